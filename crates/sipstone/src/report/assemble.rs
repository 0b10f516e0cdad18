//! From raw counts to a report: quantiles, messages and CPU time per operation, series, distribution.
//!
//! Pure. A failed attempt counts as infinitely long in everything that is measured from the planned start; rates and
//! CPU time are differences over the measured window, never averages over the server's life.

use super::model::{
    ClassFacts, ClassReport, ConnectionReport, GeneratorReport, HandshakeReport, LatencyReport, Second,
    ServerSecond, TrialReport,
};
use crate::scenario::Facts;
use crate::spec::{Proxy, Shape, Workload};
use crate::stats::wilson;
use crate::sut::Sample;
use crate::tally::{ClassTally, ConnectionTally, Example, GeneratorTally, Handshakes, Tally, Times};

/// Points of a distribution at most.
pub const CDF_POINTS_MAX: usize = 400;

/// A server that answers this share of INVITEs with a 100 is stateful.
pub const STATEFUL_SHARE: f64 = 0.5;

/// One trial as it was counted.
#[derive(Clone, Debug)]
pub struct RawTrial {
    /// Why it was made: `run`, `ramp`, `bisect`, `confirm`, `overload`.
    pub phase: String,
    /// What was offered.
    pub workload: Workload,
    /// The counts of each second since the start of the warm-up, all groups together.
    pub seconds: Vec<(u32, Tally)>,
    /// The operations planned within the window, to their end.
    pub measured: Tally,
    /// Looks at the server: seconds since the start of the warm-up (negative before it), sample.
    pub server: Vec<(f64, Sample)>,
    /// Whether it was ended because its verdict was certain.
    pub ended_early: bool,
    /// Traces and first failures.
    pub examples: Vec<Example>,
}

/// The report of a trial; its verdict and validity are judged elsewhere and left empty.
///
/// Of a trial that ended early the window is what was seen of it, in whole seconds; `measure_s` says how long that is.
#[must_use]
pub fn trial(raw: &RawTrial) -> TrialReport {
    let window = Window::of(raw);
    let sum = sum_of_classes(&raw.measured);
    let classes = class_reports(raw);
    let all = all_report(raw, &sum, &classes);
    let offered = if window.cut { window.sum(raw, offered) } else { sum.offered as f64 };
    let server = server_use(raw, &window);
    TrialReport {
        phase: raw.phase.clone(),
        seed: raw.workload.seed,
        users: users(&raw.workload),
        shape: shape_word(raw.workload.shape),
        t1_ms: raw.workload.t1.as_secs_f64() * 1000.0,
        rate: raw.workload.rate,
        offered_rate: ratio(offered, window.length()),
        throughput: ratio(window.sum(raw, succeeded), window.length()),
        warm_up_s: window.start,
        measure_s: window.length(),
        verdict: String::new(),
        ended_early: raw.ended_early,
        cpu_us_per_op: server.as_ref().and_then(|server| server.us_per_op),
        cpu_user_us_per_op: server.as_ref().and_then(|server| server.user_us_per_op),
        cpu_cores: server.as_ref().map(|server| server.cores),
        generator: generator_report(&generator_tally(raw, &window)),
        series: raw
            .seconds
            .iter()
            .map(|(second, tally)| second_report(*second, tally, &raw.server))
            .collect(),
        cdf: distribution(&sum.latencies.from_planned, sum.offered, CDF_POINTS_MAX),
        examples: raw.examples.clone(),
        connections: raw.measured.connections.as_deref().map(connection_report),
        invalid: Vec::new(),
        all,
        classes,
    }
}

/// What a subject's classes are, with the messages that the table of scenarios expects. With [`Proxy::Auto`] the
/// stateful number stands there if `trials` show a 100 to most INVITEs.
#[must_use]
pub fn class_facts(workload: &Workload, trials: &[TrialReport]) -> Vec<ClassFacts> {
    let seen_stateful = trials.iter().any(|trial| trial.all.trying > STATEFUL_SHARE);
    let proxy = match workload.proxy {
        Proxy::Auto if seen_stateful => Proxy::Stateful,
        other => other,
    };
    let facts = |class: &crate::spec::Class| {
        let (messages_in, messages_out) = class.scenario.messages(proxy, workload.auth, workload.auth_every);
        ClassFacts {
            name: class.name.clone(),
            scenario: class.scenario,
            weight: class.weight,
            messages_in,
            messages_out,
        }
    };
    workload.classes.iter().map(facts).collect()
}

/// The measured window, in seconds since the start of the warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Window {
    start: f64,
    end: f64,
    /// Whether it is shorter than planned.
    cut: bool,
}

impl Window {
    fn of(raw: &RawTrial) -> Window {
        let start = raw.workload.warm_up.as_secs_f64();
        let planned = start + raw.workload.measure.as_secs_f64();
        let seen = raw.seconds.iter().map(|(second, _)| f64::from(*second) + 1.0).fold(0.0, f64::max);
        if !raw.ended_early && seen >= planned {
            return Window { start, end: planned, cut: false };
        }
        // The second in which the arrivals were stopped is not a whole one, so it is left out, unless there is no other.
        let last =
            raw.seconds.iter().filter(|(_, tally)| offered(tally) > 0).map(|(second, _)| *second).max();
        let last = f64::from(last.unwrap_or(0));
        let end = if last > start { last } else { last + 1.0 };
        let end = end.clamp(start, planned);
        Window { start, end, cut: end < planned }
    }

    fn length(&self) -> f64 {
        self.end - self.start
    }

    /// The part of a second that lies within, 0 to 1.
    fn part(&self, second: u32) -> f64 {
        let second = f64::from(second);
        ((second + 1.0).min(self.end) - second.max(self.start)).clamp(0.0, 1.0)
    }

    /// A count, added over the seconds within; a second that lies in it by half counts by half. But in the second in
    /// which the arrivals end as planned, nothing is offered behind them, so that as much counts as was offered in it.
    fn sum(&self, raw: &RawTrial, count: impl Fn(&Tally) -> u64) -> f64 {
        let counted = |second: u32, tally: &Tally| {
            let ends_here = !self.cut && self.part(second) > 0.0 && f64::from(second) + 1.0 > self.end;
            if ends_here && f64::from(second) >= self.start {
                count(tally).min(offered(tally)) as f64
            } else {
                self.part(second) * count(tally) as f64
            }
        };
        raw.seconds.iter().map(|(second, tally)| counted(*second, tally)).sum()
    }
}

fn offered(tally: &Tally) -> u64 {
    tally.classes.iter().map(|class| class.offered).sum()
}

fn succeeded(tally: &Tally) -> u64 {
    tally.classes.iter().map(|class| class.succeeded).sum()
}

/// A quotient that is 0 where nothing can be divided, so that no report ever holds a NaN.
fn ratio(numerator: f64, denominator: f64) -> f64 {
    if denominator > 0.0 { numerator / denominator } else { 0.0 }
}

fn users(workload: &Workload) -> u32 {
    match workload.users.listed.len() {
        0 => workload.users.count,
        listed => u32::try_from(listed).unwrap_or(u32::MAX),
    }
}

fn shape_word(shape: Shape) -> String {
    match shape {
        Shape::Poisson => "poisson".into(),
        Shape::Uniform => "uniform".into(),
        Shape::Burst { size } => format!("burst:{size}"),
        Shape::Ramp { from } => format!("ramp:{from}"),
    }
}

fn sum_of_classes(tally: &Tally) -> ClassTally {
    let mut sum = ClassTally::default();
    for class in &tally.classes {
        sum.merge(class);
    }
    sum
}

fn class_reports(raw: &RawTrial) -> Vec<ClassReport> {
    let report = |(class, tally): (&crate::spec::Class, &ClassTally)| {
        let facts = class.scenario.facts();
        let (messages_in, messages_out) = messages_per_operation(tally);
        let trying = if invites(&facts) { ratio(tally.trying as f64, tally.succeeded as f64) } else { 0.0 };
        ClassReport { messages_in, messages_out, trying, ..counts_report(&class.name, tally) }
    };
    raw.workload.classes.iter().zip(&raw.measured.classes).map(report).collect()
}

/// Whether the operations of a scenario begin with an INVITE: only to one does a proxy send a 100.
fn invites(facts: &Facts) -> bool {
    facts.messages.2
}

/// Callers' messages per success, and callees' per dialog that ended on their side: the callee cannot know whether the
/// caller called it a success, so each side is averaged over what it counts itself.
fn messages_per_operation(tally: &ClassTally) -> (f64, f64) {
    let per_success = |messages: u64| ratio(messages as f64, tally.succeeded as f64);
    let per_dialog = |messages: u64| ratio(messages as f64, tally.callee_ended as f64);
    if tally.succeeded == 0 {
        return (0.0, 0.0);
    }
    (
        per_success(tally.caller_messages_in) + per_dialog(tally.callee_messages_in),
        per_success(tally.caller_messages_out) + per_dialog(tally.callee_messages_out),
    )
}

/// All classes together. What is an average over operations is weighted by the successes of each class, because classes
/// without a callee have none to average over.
fn all_report(raw: &RawTrial, sum: &ClassTally, classes: &[ClassReport]) -> ClassReport {
    let weighted = |value: fn(&ClassReport) -> f64| {
        let total: f64 = classes.iter().map(|class| value(class) * class.succeeded as f64).sum();
        ratio(total, sum.succeeded as f64)
    };
    let calls =
        raw.workload.classes.iter().zip(classes).filter(|(class, _)| invites(&class.scenario.facts()));
    let (tried, called) = calls.fold((0.0, 0.0), |(tried, called), (_, report)| {
        (tried + report.trying * report.succeeded as f64, called + report.succeeded as f64)
    });
    ClassReport {
        messages_in: weighted(|class| class.messages_in),
        messages_out: weighted(|class| class.messages_out),
        trying: ratio(tried, called),
        ..counts_report("all", sum)
    }
}

/// Everything of a class but the messages per operation.
fn counts_report(name: &str, tally: &ClassTally) -> ClassReport {
    let bound = |of: fn(u64, u64, f64) -> f64| of(tally.succeeded, tally.offered, wilson::CONFIDENCE);
    let (success_low, success_high) = (bound(wilson::lower), bound(wilson::upper));
    let offered = tally.offered as f64;
    let lost = tally.offered.saturating_sub(tally.latencies.from_planned.count());
    ClassReport {
        name: name.into(),
        offered: tally.offered,
        succeeded: tally.succeeded,
        failures: tally.failures.iter().map(|(failure, count)| (failure.word(), *count)).collect(),
        success: ratio(tally.succeeded as f64, offered),
        success_low,
        success_high,
        latency_planned: latency(&tally.latencies.from_planned, lost),
        latency_sent: latency(&tally.latencies.from_sent, 0),
        first_18x: recorded(&tally.latencies.first_18x),
        bye: recorded(&tally.latencies.bye),
        messages_in: 0.0,
        messages_out: 0.0,
        trying: 0.0,
        retransmissions_sent: ratio(tally.retransmissions_sent as f64, offered),
        retransmissions_received: ratio(tally.retransmissions_received as f64, offered),
    }
}

fn milliseconds(us: u64) -> f64 {
    us as f64 / 1000.0
}

/// Quantiles of times and of `lost` attempts that never ended.
pub(crate) fn latency(times: &Times, lost: u64) -> LatencyReport {
    let quantile = |quantile| times.quantile_with_lost_us(quantile, lost).map(milliseconds);
    LatencyReport {
        count: times.count(),
        mean_ms: times.mean_us().map(|mean| mean / 1000.0),
        p50_ms: quantile(0.5),
        p90_ms: quantile(0.9),
        p95_ms: quantile(0.95),
        p99_ms: quantile(0.99),
        p999_ms: quantile(0.999),
        max_ms: times.max_us().map(milliseconds),
    }
}

fn recorded(times: &Times) -> Option<LatencyReport> {
    (times.count() > 0).then(|| latency(times, 0))
}

/// The distribution of times over `attempts`, of which those not in `times` never end: microseconds and the share that
/// took at most so long. Points lie at equal steps of the share, and closer and closer in the last hundredth.
fn distribution(times: &Times, attempts: u64, points_max: usize) -> Vec<(f64, f64)> {
    let recorded = times.count();
    if recorded == 0 || points_max == 0 {
        return Vec::new();
    }
    let attempts = attempts.max(recorded) as f64;
    let mut targets = shares(points_max).into_iter().peekable();
    let (mut points, mut seen, mut last) = (Vec::with_capacity(points_max), 0_u64, (0.0, 0.0));
    for step in times.histogram().iter_recorded() {
        seen += step.count_at_value();
        last = (step.value_iterated_to() as f64, seen as f64 / attempts);
        let share = seen as f64 / recorded as f64;
        let mut reached = false;
        while targets.next_if(|target| *target <= share).is_some() {
            reached = true;
        }
        if reached && seen < recorded {
            points.push(last);
        }
    }
    points.truncate(points_max - 1);
    points.push(last);
    points
}

/// Shares of the recorded times at which a distribution is drawn, ascending, fewer than `count`: three quarters of them
/// in equal steps up to 0.99, the rest in equal steps on the logarithm of what is left, down to 10⁻⁶.
fn shares(count: usize) -> Vec<f64> {
    let (equal, tail) = (count * 3 / 4, count / 4);
    let body = (0..equal).map(|step| 0.99 * step as f64 / equal as f64);
    let rest = (0..tail).map(|step| 1.0 - 10_f64.powf(-2.0 - 4.0 * step as f64 / tail as f64));
    body.chain(rest).collect()
}

/// The generator's counts over the seconds of the window; drops and strays over all of the trial, because one in the
/// drain spoils a measured operation too. Lag and turnaround are those of the measured operations where known.
fn generator_tally(raw: &RawTrial, window: &Window) -> GeneratorTally {
    let (mut inside, mut outside) = (GeneratorTally::default(), GeneratorTally::default());
    for (second, tally) in &raw.seconds {
        let into = if window.part(*second) > 0.0 { &mut inside } else { &mut outside };
        into.merge(&tally.generator);
    }
    let measured = &raw.measured.generator;
    let mut sum = if inside.wall_us > 0 { inside.clone() } else { measured.clone() };
    sum.socket_drops = (inside.socket_drops + outside.socket_drops).max(measured.socket_drops);
    sum.strays = (inside.strays + outside.strays).max(measured.strays);
    if measured.send_lag.count() > 0 {
        sum.send_lag = measured.send_lag.clone();
    }
    if measured.callee_turnaround.count() > 0 {
        sum.callee_turnaround = measured.callee_turnaround.clone();
    }
    sum
}

fn connection_report(tally: &ConnectionTally) -> ConnectionReport {
    let handshakes = |handshakes: &Handshakes| HandshakeReport {
        full: handshakes.full,
        resumed: handshakes.resumed,
        time: latency(&handshakes.time, 0),
    };
    ConnectionReport {
        opened: tally.opened,
        accepted: tally.accepted,
        closed: tally.closed,
        closed_by_server: tally.closed_by_server,
        connect: latency(&tally.connect_time, 0),
        tls_client: handshakes(&tally.client),
        tls_server: handshakes(&tally.server),
        suites: tally.suites.clone(),
        failures: tally.failures.clone(),
        ports_exhausted: tally.ports_exhausted,
        files_exhausted: tally.files_exhausted,
        undeliverable: tally.undeliverable,
    }
}

fn generator_report(tally: &GeneratorTally) -> GeneratorReport {
    let at = |times: &Times, quantile| times.quantile_us(quantile).map(milliseconds);
    GeneratorReport {
        utilisation: ratio(tally.cpu_us as f64, tally.wall_us as f64),
        send_lag_p50_ms: at(&tally.send_lag, 0.5),
        send_lag_p99_ms: at(&tally.send_lag, 0.99),
        send_lag_max_ms: tally.send_lag.max_us().map(milliseconds),
        callee_turnaround_p50_ms: at(&tally.callee_turnaround, 0.5),
        callee_turnaround_p99_ms: at(&tally.callee_turnaround, 0.99),
        socket_drops: tally.socket_drops,
        datagrams_sent: tally.datagrams_sent,
        datagrams_received: tally.datagrams_received,
        strays: tally.strays,
    }
}

/// One second's counts, for the series and for whoever shows progress.
#[must_use]
pub fn second_report(second: u32, tally: &Tally, server: &[(f64, Sample)]) -> Second {
    let sum = |count: fn(&ClassTally) -> u64| tally.classes.iter().map(count).sum();
    let mut times = Times::default();
    for class in &tally.classes {
        times.merge(&class.latencies.from_planned);
    }
    Second {
        second,
        offered: sum(|class| class.offered),
        succeeded: sum(|class| class.succeeded),
        failed: sum(ClassTally::failed),
        open: tally.open,
        p50_ms: times.quantile_us(0.5).map(milliseconds),
        p99_ms: times.quantile_us(0.99).map(milliseconds),
        retransmissions: sum(|class| class.retransmissions_sent),
        generator: ratio(tally.generator.cpu_us as f64, tally.generator.wall_us as f64),
        send_lag_p99_ms: tally.generator.send_lag.quantile_us(0.99).map(milliseconds),
        server: server_second(f64::from(second), server),
    }
}

/// What the server used over the window.
struct ServerUse {
    us_per_op: Option<f64>,
    user_us_per_op: Option<f64>,
    cores: f64,
}

/// CPU time over the window, or over the part of it that samples enclose, if that is at least half of it.
fn server_use(raw: &RawTrial, window: &Window) -> Option<ServerUse> {
    let (first, last) = (raw.server.first()?.0, raw.server.last()?.0);
    let seen =
        Window { start: window.start.clamp(first, last), end: window.end.clamp(first, last), cut: true };
    if seen.length() <= 0.0 || seen.length() < window.length() / 2.0 {
        return None;
    }
    let over = |pick: fn(&Sample) -> Option<u64>| {
        let used = counter_at(&raw.server, seen.end, pick)? - counter_at(&raw.server, seen.start, pick)?;
        (used >= 0.0).then_some(used)
    };
    let used = over(|sample| Some(sample.cpu_us))?;
    let operations = seen.sum(raw, succeeded);
    let per_op = |used: f64| (operations > 0.0).then(|| used / operations);
    Some(ServerUse {
        us_per_op: per_op(used),
        user_us_per_op: over(|sample| sample.cpu_user_us).and_then(per_op),
        cores: used / (seen.length() * 1e6),
    })
}

/// The value of a counter at a time between two samples, on the straight line between them; `None` outside.
fn counter_at(samples: &[(f64, Sample)], at: f64, pick: fn(&Sample) -> Option<u64>) -> Option<f64> {
    let after = samples.partition_point(|(time, _)| *time < at);
    let (time_after, sample_after) = samples.get(after)?;
    let value_after = pick(sample_after)? as f64;
    if *time_after == at {
        return Some(value_after);
    }
    let (time_before, sample_before) = samples.get(after.checked_sub(1)?)?;
    let value_before = pick(sample_before)? as f64;
    Some(value_before + (value_after - value_before) * (at - time_before) / (time_after - time_before))
}

/// The server from `second` to the next: CPU on the line between samples, whole counts from the samples nearest to both
/// ends, so that a drop is never half a drop and the seconds add up to the whole.
fn server_second(second: f64, samples: &[(f64, Sample)]) -> Option<ServerSecond> {
    /// A sample further than this from the end of a second says nothing about it.
    const NEAR_S: f64 = 0.75;
    let nearest = |at: f64| {
        let near = samples.iter().filter(|(time, _)| (time - at).abs() <= NEAR_S);
        near.min_by(|(one, _), (other, _)| (one - at).abs().total_cmp(&(other - at).abs()))
    };
    let ((time_begin, begin), (time_end, end)) = (nearest(second)?, nearest(second + 1.0)?);
    let cores = |pick: fn(&Sample) -> Option<u64>| {
        let exact = counter_at(samples, second + 1.0, pick).zip(counter_at(samples, second, pick));
        let exact = exact.map(|(end, begin)| (end - begin) / 1e6);
        let near = || {
            let (begin, end) = (pick(begin)? as f64, pick(end)? as f64);
            (time_end > time_begin).then(|| (end - begin) / (time_end - time_begin) / 1e6)
        };
        exact.or_else(near).map(|cores| cores.max(0.0))
    };
    let count = |pick: fn(&Sample) -> Option<u64>| Some(pick(end)?.saturating_sub(pick(begin)?));
    Some(ServerSecond {
        cpu_cores: cores(|sample| Some(sample.cpu_us))?,
        cpu_user_cores: cores(|sample| sample.cpu_user_us),
        resident_bytes: end.resident_bytes,
        descriptors: end.descriptors,
        udp_drops: count(|sample| sample.udp_drops),
        context_switches: count(|sample| sample.context_switches),
        threads: end.threads,
    })
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use crate::scenario;
    use crate::spec::{Auth, Class, Scenario};
    use crate::tally::Failure;
    use std::time::{Duration, Instant};

    fn near(value: f64, expected: f64) -> bool {
        (value - expected).abs() <= expected.abs() * 1e-6 + 1e-9
    }

    /// A window of ten seconds after one of warm-up; `per_second` operations are planned and succeed in each second.
    fn steady(scenario: Scenario, per_second: u64) -> RawTrial {
        let mut workload = sample::workload(vec![Class::plain(scenario)], per_second as f64, Auth::None);
        (workload.warm_up, workload.measure) = (Duration::from_secs(1), Duration::from_secs(10));
        let tally = |counted: u64| {
            let mut tally = Tally::new(1);
            (tally.classes[0].offered, tally.classes[0].succeeded) = (counted, counted);
            for _ in 0..counted {
                tally.classes[0].latencies.from_planned.record_us(1000);
            }
            tally
        };
        let seconds =
            (0..12).map(|second| (second, tally(if second < 11 { per_second } else { 0 }))).collect();
        RawTrial {
            phase: "run".into(),
            workload,
            seconds,
            measured: tally(per_second * 10),
            server: Vec::new(),
            ended_early: false,
            examples: Vec::new(),
        }
    }

    fn look(cpu_us: u64) -> Sample {
        Sample {
            at: Instant::now(),
            cpu_us,
            cpu_user_us: None,
            resident_bytes: 1 << 20,
            descriptors: None,
            udp_drops: Some(cpu_us / 1000),
            context_switches: None,
            threads: 1,
        }
    }

    #[test]
    fn rates_are_those_of_the_window() {
        let report = trial(&steady(Scenario::Options, 50));
        assert_eq!(
            (report.offered_rate, report.throughput, report.measure_s, report.warm_up_s),
            (50.0, 50.0, 10.0, 1.0)
        );
        assert_eq!((report.all.offered, report.all.succeeded, report.all.success), (500, 500, 1.0));
        assert_eq!((report.verdict.as_str(), report.invalid.len()), ("", 0));
        assert_eq!((report.users, report.shape.as_str(), report.t1_ms), (10_000, "poisson", 500.0));
    }

    #[test]
    fn second_that_lies_in_the_window_by_half_counts_by_half() {
        let mut raw = steady(Scenario::Options, 50);
        raw.workload.warm_up = Duration::from_millis(500);
        raw.seconds[0].1.classes[0].succeeded = 100;
        raw.seconds[10].1.classes[0].succeeded = 0;
        assert_eq!(trial(&raw).throughput, (50.0 + 9.0 * 50.0) / 10.0);
    }

    #[test]
    fn trial_that_ended_early_is_measured_over_the_whole_seconds_it_had() {
        let mut raw = steady(Scenario::Options, 50);
        raw.ended_early = true;
        raw.seconds.truncate(5);
        raw.seconds[4].1.classes[0].offered = 3;
        let report = trial(&raw);
        assert_eq!((report.measure_s, report.offered_rate, report.throughput), (3.0, 50.0, 50.0));
        assert!(report.ended_early);
    }

    #[test]
    fn trial_without_a_second_has_no_nan() {
        let mut raw = steady(Scenario::Invite, 50);
        raw.seconds.clear();
        raw.measured = Tally::new(1);
        let report = trial(&raw);
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<TrialReport>(&json).unwrap(), report);
        assert_eq!((report.all.success, report.all.success_low, report.all.success_high), (0.0, 0.0, 1.0));
        assert!(report.all.latency_planned.p50_ms.is_none() && report.cdf.is_empty());
    }

    #[test]
    fn failed_attempts_are_infinite_from_the_planned_start_only() {
        let mut raw = steady(Scenario::Options, 9);
        let class = &mut raw.measured.classes[0];
        class.offered += 10;
        class.failures = [(Failure::Timeout, 7), (Failure::Status(503), 3)].into();
        for _ in 0..90 {
            class.latencies.from_sent.record_us(900);
        }
        let report = trial(&raw).all;
        assert!(near(report.latency_planned.p90_ms.unwrap(), 1.0));
        assert_eq!((report.latency_planned.p95_ms, report.latency_planned.p99_ms), (None, None));
        assert!(report.latency_sent.p999_ms.is_some());
        assert_eq!(report.failures, [("timeout".to_owned(), 7), ("status-503".to_owned(), 3)].into());
        assert!(report.success_low < 0.9 && report.success_high > 0.9);
        assert!(report.first_18x.is_none() && report.bye.is_none());
    }

    #[test]
    fn messages_are_the_callers_average_and_the_callees() {
        let mut raw = steady(Scenario::Invite, 10);
        let class = &mut raw.measured.classes[0];
        (class.caller_messages_in, class.caller_messages_out, class.trying) = (300, 400, 50);
        // One more dialog ended than succeeded.
        (class.callee_ended, class.callee_messages_in, class.callee_messages_out) = (101, 303, 303);
        let report = trial(&raw);
        assert_eq!((report.all.messages_in, report.all.messages_out, report.all.trying), (6.0, 7.0, 0.5));
        assert_eq!(class_facts(&raw.workload, &[report]).first().map(|class| class.messages_out), Some(6));
    }

    #[test]
    fn messages_of_a_mix_are_weighted_by_successes() {
        let mut raw = steady(Scenario::Invite, 10);
        raw.workload.classes = vec![Class::plain(Scenario::Invite), Class::plain(Scenario::Options)];
        let mut options = raw.measured.classes[0].clone();
        let invite = &mut raw.measured.classes[0];
        (invite.caller_messages_in, invite.caller_messages_out, invite.trying) = (300, 400, 100);
        (invite.callee_ended, invite.callee_messages_in, invite.callee_messages_out) = (100, 300, 300);
        (options.caller_messages_in, options.caller_messages_out) = (100, 100);
        raw.measured.classes.push(options);
        let report = trial(&raw);
        assert_eq!((report.all.messages_in, report.all.messages_out), (3.5, 4.0));
        assert_eq!(report.all.trying, 1.0, "only INVITEs can get a 100");
        let facts = class_facts(&raw.workload, &[report]);
        assert_eq!(
            facts.iter().map(|class| (class.messages_in, class.messages_out)).collect::<Vec<_>>(),
            [(6, 7), (1, 1)]
        );
    }

    #[test]
    fn cpu_is_the_difference_over_the_window_between_interpolated_samples() {
        let mut raw = steady(Scenario::Options, 100);
        // 20 ms of CPU a second, in samples half a second off; much before the window and after it.
        raw.server =
            (-2..14).map(|second| (f64::from(second) + 0.5, look((second + 2) as u64 * 20_000))).collect();
        raw.server.insert(0, (-60.0, look(0)));
        let report = trial(&raw);
        assert!(near(report.cpu_us_per_op.unwrap(), 200.0), "{:?}", report.cpu_us_per_op);
        assert!(near(report.cpu_cores.unwrap(), 0.02), "{:?}", report.cpu_cores);
        assert_eq!(report.cpu_user_us_per_op, None);
        let second = report.series[3].server.unwrap();
        assert!(near(second.cpu_cores, 0.02) && second.cpu_user_cores.is_none());
        let drops: u64 = report.series.iter().filter_map(|second| second.server?.udp_drops).sum();
        assert_eq!(drops, 12 * 20, "the seconds add up to the whole");
    }

    #[test]
    fn cpu_is_taken_over_what_samples_enclose_and_not_at_all_from_too_few() {
        let mut raw = steady(Scenario::Options, 100);
        raw.server = (3..10).map(|second| (f64::from(second), look(second as u64 * 20_000))).collect();
        assert!(near(trial(&raw).cpu_us_per_op.unwrap(), 200.0));
        raw.server.truncate(3);
        assert_eq!(trial(&raw).cpu_us_per_op, None);
        raw.server = vec![(0.0, look(5_000_000)), (12.0, look(10))];
        assert_eq!(trial(&raw).cpu_cores, None, "a counter that fell belongs to another process");
    }

    #[test]
    fn no_success_has_no_cpu_per_operation_but_cores() {
        let mut raw = steady(Scenario::Options, 10);
        for (_, tally) in &mut raw.seconds {
            tally.classes[0].succeeded = 0;
        }
        raw.server = vec![(0.0, look(0)), (12.0, look(1_200_000))];
        let report = trial(&raw);
        assert_eq!(report.cpu_us_per_op, None);
        assert!(near(report.cpu_cores.unwrap(), 0.1));
    }

    #[test]
    fn distribution_rises_to_the_share_that_succeeded() {
        let report = trial(&sample::raw(4400.0));
        assert!(report.cdf.len() <= CDF_POINTS_MAX && report.cdf.len() > 100, "{}", report.cdf.len());
        assert!(report.cdf.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1));
        let last = report.cdf.last().unwrap();
        assert!(near(last.1, report.all.success), "{last:?} {}", report.all.success);
        assert!(near(last.0 / 1000.0, report.all.latency_planned.max_ms.unwrap()));
        // The points agree with the quantiles.
        let median = report.all.latency_planned.p50_ms.unwrap() * 1000.0;
        let at = report.cdf.iter().find(|point| point.0 >= median).unwrap();
        assert!((at.1 - 0.5).abs() < 0.02, "{at:?}");
    }

    #[test]
    fn distribution_keeps_to_its_limit_and_to_what_there_is() {
        let mut times = Times::default();
        assert!(distribution(&times, 10, 400).is_empty());
        times.record_us(700);
        assert_eq!(distribution(&times, 4, 400), [(700.0, 0.25)]);
        for us in 1..50_000 {
            times.record_us(us);
        }
        for points_max in [1, 2, 10, 400] {
            let points = distribution(&times, 50_000, points_max);
            assert!(!points.is_empty() && points.len() <= points_max, "{} of {points_max}", points.len());
            assert_eq!(points.last().unwrap().1, 1.0);
        }
    }

    #[test]
    fn generator_is_that_of_the_window_but_a_drop_counts_whenever() {
        let mut raw = steady(Scenario::Options, 10);
        for (second, tally) in &mut raw.seconds {
            (tally.generator.wall_us, tally.generator.cpu_us) =
                (1_000_000, if *second == 0 { 1_000_000 } else { 250_000 });
            tally.generator.datagrams_sent = 10;
        }
        raw.seconds[11].1.generator.socket_drops = 2;
        let report = trial(&raw).generator;
        assert_eq!((report.utilisation, report.socket_drops, report.datagrams_sent), (0.25, 2, 100));
        assert_eq!(report.send_lag_p99_ms, None);
    }

    #[test]
    fn every_class_of_a_mix_has_its_row() {
        let mut raw = sample::raw(100.0);
        raw.workload.classes = scenario::sipstone_mix();
        raw.measured.classes.push(raw.measured.classes[0].clone());
        let report = trial(&raw);
        assert_eq!(
            report.classes.iter().map(|class| class.name.as_str()).collect::<Vec<_>>(),
            ["answered", "abandoned"]
        );
        assert_eq!(report.all.offered, 2 * report.classes[0].offered);
    }
}
