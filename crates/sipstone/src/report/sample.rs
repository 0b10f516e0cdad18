//! Reports of a server that does not exist, for tests: a search with ramp, bisection, confirmation and overload, a run,
//! a suite with a mix. Made from raw counts through [`assemble`](super::assemble), the same every time.

use super::assemble::{self, RawTrial};
use super::model::{AgentFacts, Estimate, FORMAT, Host, Peak, Report, ServerFacts, Step, Subject};
use crate::scenario;
use crate::spec::{Auth, Choice, Class, Links, Proxy, Scenario, Shape, Target, Users, Workload};
use crate::sut::Sample;
use crate::tally::{ClassTally, Direction, Example, Failure, Side, Tally, TracedMessage};
use rand::{Rng, SeedableRng, rngs::StdRng};
use rand_distr::{Distribution, LogNormal, Poisson};
use std::time::{Duration, Instant};

/// A server that carries so many operations a second, and its costs.
#[derive(Clone, Copy)]
struct Model {
    capacity: f64,
    cpu_us: f64,
    base_us: f64,
}

const INVITE: Model = Model { capacity: 4060.0, cpu_us: 231.0, base_us: 420.0 };
const REGISTER: Model = Model { capacity: 21_000.0, cpu_us: 44.0, base_us: 110.0 };

/// A workload of these classes.
pub(crate) fn workload(classes: Vec<Class>, rate: f64, auth: Auth) -> Workload {
    Workload {
        target: Target { address: "127.0.0.1:5060".parse().unwrap(), domain: "127.0.0.1".into() },
        links: Links::default(),
        classes,
        rate,
        shape: Shape::Poisson,
        users: Users {
            count: 10_000,
            first: 1,
            name: "user{}".into(),
            password: "password{}".into(),
            listed: Vec::new(),
            choice: Choice::Uniform,
        },
        auth,
        auth_every: false,
        proxy: Proxy::Auto,
        seed: 20_071_101,
        warm_up: Duration::from_secs(1),
        measure: Duration::from_secs(12),
        drain: Duration::from_secs(2),
        t1: Duration::from_millis(500),
        t2: Duration::from_secs(4),
        open_operations_max: 100_000,
        preamble_window: 200,
        preamble: true,
        expires: 3600,
        trace: true,
    }
}

impl Model {
    /// One trial as workers would have counted it.
    fn trial(self, phase: &str, workload: &Workload) -> RawTrial {
        let mut random = StdRng::seed_from_u64(workload.seed ^ workload.rate.to_bits());
        let (mut seconds, mut measured) = (Vec::new(), Tally::new(workload.classes.len()));
        let (warm_up, end) = (1.0, 13.0);
        let mut succeeded = Vec::new();
        for second in 0..15 {
            let part = (end - f64::from(second)).clamp(0.0, 1.0);
            let mut tally = Tally::new(workload.classes.len());
            let weights: f64 = workload.classes.iter().map(|class| class.weight).sum();
            for (class, counts) in workload.classes.iter().zip(&mut tally.classes) {
                let rate = workload.rate * class.weight / weights * part;
                if rate > 0.0 {
                    let offered = Poisson::new(rate).unwrap().sample(&mut random) as u64;
                    self.operations(offered, workload, class.scenario, counts, &mut random);
                }
            }
            self.generator(workload, &mut tally, &mut random);
            succeeded.push(tally.classes.iter().map(|class| class.succeeded).sum::<u64>());
            if f64::from(second) + 1.0 > warm_up {
                measured.merge(&tally);
            }
            seconds.push((second, tally));
        }
        let rho = workload.rate / self.capacity;
        let mut examples = vec![trace(workload)];
        examples.extend((rho > 1.0).then(|| {
            failure(
                &workload.classes[0].name,
                "status-503",
                Some("SIP/2.0 503 Service Unavailable\r\nRetry-After: 5\r\n\r\n"),
            )
        }));
        examples.extend((rho > 1.0).then(|| failure(&workload.classes[0].name, "timeout", None)));
        let server = self.server(&succeeded, rho);
        RawTrial {
            phase: phase.into(),
            workload: workload.clone(),
            seconds,
            measured,
            server,
            ended_early: false,
            examples,
        }
    }

    /// Operations of one class in one second.
    fn operations(
        self,
        offered: u64,
        workload: &Workload,
        scenario: Scenario,
        counts: &mut ClassTally,
        random: &mut StdRng,
    ) {
        let rho = workload.rate / self.capacity;
        let carried =
            if rho > 1.0 { (1.0 - 0.08 * (rho - 1.0)) / rho } else { 1.0 - 2e-6 * (6.0 * rho).exp() };
        let spread = LogNormal::new(0.0, 0.35).unwrap();
        let queue = if rho < 1.0 { 1.0 / (1.0 - 0.97 * rho) } else { 40.0 * rho };
        counts.offered = offered;
        for _ in 0..offered {
            if random.random::<f64>() > carried {
                let cause =
                    if random.random::<f64>() < 0.7 { Failure::Status(503) } else { Failure::Timeout };
                *counts.failures.entry(cause).or_default() += 1;
                counts.retransmissions_sent += if cause == Failure::Timeout { 6 } else { 1 };
                continue;
            }
            let mut us =
                self.base_us * (1.0 + (queue - 1.0) * random.random::<f64>()) * spread.sample(random);
            if rho > 0.97 && random.random::<f64>() < 0.02 * rho * rho {
                // The first copies were lost: answered after a retransmission.
                us += [500_000.0, 1_500_000.0, 3_500_000.0][random.random_range(0..3)];
                counts.retransmissions_sent += 1;
                counts.retransmissions_received += u64::from(random.random::<f64>() < 0.2);
            }
            counts.succeeded += 1;
            counts.latencies.from_planned.record_us((us + 12.0) as u64);
            counts.latencies.from_sent.record_us(us as u64);
            if scenario.facts().callee {
                counts.latencies.first_18x.record_us((us * 0.6) as u64);
                counts.latencies.bye.record_us((us * 0.5) as u64);
            }
        }
        messages(counts, workload, scenario);
    }

    fn generator(self, workload: &Workload, tally: &mut Tally, random: &mut StdRng) {
        let counts = &mut tally.generator;
        let load = (workload.rate / 40_000.0).min(0.95);
        counts.wall_us = 2_000_000;
        counts.cpu_us = (load * (1.95 + 0.1 * random.random::<f64>()) * 1e6) as u64;
        for _ in 0..200 {
            counts.send_lag.record_us((12.0 / (1.0 - load) * (0.4 + random.random::<f64>() * 2.0)) as u64);
            counts.callee_turnaround.record_us(random.random_range(8..60));
        }
        counts.datagrams_sent =
            tally.classes.iter().map(|class| class.caller_messages_in + class.callee_messages_in).sum();
        counts.datagrams_received =
            tally.classes.iter().map(|class| class.caller_messages_out + class.callee_messages_out).sum();
    }

    /// Looks at the server, a little after each second began.
    fn server(self, succeeded: &[u64], rho: f64) -> Vec<(f64, Sample)> {
        let (start, mut cpu_us, mut drops) = (Instant::now(), 4_000_000.0, 0);
        let mut samples = Vec::new();
        let mut look = |second: f64, cpu_us: f64, drops: u64| {
            let sample = Sample {
                at: start + Duration::from_secs_f64(second + 2.0),
                cpu_us: cpu_us as u64,
                cpu_user_us: Some((cpu_us * 0.31) as u64),
                resident_bytes: (38 << 20) + (second.max(0.0) * rho * 700_000.0) as u64,
                descriptors: Some(23),
                udp_drops: Some(drops),
                context_switches: Some((cpu_us / 40.0) as u64),
                threads: 3,
            };
            samples.push((second + 0.02, sample));
        };
        look(-1.0, cpu_us, 0);
        look(0.0, cpu_us + 900.0, 0);
        for (second, succeeded) in succeeded.iter().enumerate() {
            cpu_us += *succeeded as f64 * self.cpu_us + 900.0;
            drops += if rho > 1.0 && *succeeded > 0 { ((rho - 1.0) * 900.0) as u64 } else { 0 };
            look(second as f64 + 1.0, cpu_us, drops);
        }
        samples
    }
}

/// The messages that a stateful server exchanges for the successes.
fn messages(counts: &mut ClassTally, workload: &Workload, scenario: Scenario) {
    let (messages_in, messages_out) = scenario.messages(Proxy::Stateful, workload.auth, workload.auth_every);
    let callee = scenario.facts().callee;
    let (callee_in, callee_out) =
        if callee { (u64::from(messages_in) / 2, u64::from(messages_out) / 2) } else { (0, 0) };
    counts.caller_messages_in = counts.succeeded * (u64::from(messages_in) - callee_in);
    counts.caller_messages_out = counts.succeeded * (u64::from(messages_out) - callee_out);
    counts.trying = if scenario.facts().messages.2 { counts.succeeded } else { 0 };
    if callee {
        counts.callee_ended = counts.succeeded + 3;
        counts.callee_messages_in = counts.callee_ended * callee_in;
        counts.callee_messages_out = counts.callee_ended * callee_out;
    }
}

/// A traced call, or a traced registration.
fn trace(workload: &Workload) -> Example {
    let class = &workload.classes[0];
    let head = "Via: SIP/2.0/UDP 127.0.0.1:40001;rport;branch=z9hG4bK0001\r\nFrom: <sip:user1@127.0.0.1>;tag=a1\r\n\
        To: <sip:user2@127.0.0.1>\r\nCall-ID: 0000.0000.00000001.00000001@sipstone\r\n\
        User-Agent: sipstone/0.1.0\r\nContent-Length: 0\r\n\r\n";
    let (caller, callee, sent, received) = (Side::Caller, Side::Callee, Direction::Sent, Direction::Received);
    let invite = "INVITE sip:user2@127.0.0.1 SIP/2.0";
    let call = [
        (0, caller, sent, invite),
        (120, caller, received, "SIP/2.0 100 Trying"),
        (190, callee, received, "INVITE sip:user2@127.0.0.1:40002 SIP/2.0"),
        (230, callee, sent, "SIP/2.0 180 Ringing"),
        (240, callee, sent, "SIP/2.0 200 OK"),
        (330, caller, received, "SIP/2.0 180 Ringing"),
        (360, caller, received, "SIP/2.0 200 OK"),
        (372, caller, sent, "ACK sip:user2@127.0.0.1:40002 SIP/2.0"),
        (430, callee, received, "ACK sip:user2@127.0.0.1:40002 SIP/2.0"),
        (520, caller, sent, "BYE sip:user2@127.0.0.1:40002 SIP/2.0"),
        (590, callee, received, "BYE sip:user2@127.0.0.1:40002 SIP/2.0"),
        (610, callee, sent, "SIP/2.0 200 OK"),
        (680, caller, received, "SIP/2.0 200 OK"),
    ];
    let register =
        [(0, caller, sent, "REGISTER sip:127.0.0.1 SIP/2.0"), (104, caller, received, "SIP/2.0 200 OK")];
    let flow = if class.scenario == Scenario::Register { register.as_slice() } else { call.as_slice() };
    let message = |(at_us, side, direction, first): &(u64, Side, Direction, &str)| TracedMessage {
        at_us: 1_000_000 + at_us,
        side: *side,
        direction: *direction,
        repeated: false,
        text: format!("{first}\r\n{head}"),
    };
    Example { class: class.name.clone(), failure: None, messages: flow.iter().map(message).collect() }
}

/// A failed call: the INVITE, again and again, and an answer or none.
fn failure(class: &str, word: &str, answer: Option<&str>) -> Example {
    let invite =
        "INVITE sip:user77@127.0.0.1 SIP/2.0\r\nCall-ID: 0000.0001.00000a07.00000003@sipstone\r\n\r\n";
    let message = |at_us, direction, repeated, text: &str| TracedMessage {
        at_us,
        side: Side::Caller,
        direction,
        repeated,
        text: text.into(),
    };
    let mut messages = vec![
        message(2_000_000, Direction::Sent, false, invite),
        message(2_500_110, Direction::Sent, true, invite),
    ];
    messages.extend(answer.map(|answer| message(2_503_400, Direction::Received, false, answer)));
    Example { class: class.into(), failure: Some(word.into()), messages }
}

/// A subject that was searched for its peak.
fn searched(model: Model, classes: &[Class], auth: Auth, steps: &[(&str, f64)]) -> Subject {
    let mut subject = Subject {
        name: classes[0].name.clone(),
        auth,
        criterion: "ibm2007".into(),
        required_success: Some(0.99),
        ..Subject::default()
    };
    let mut peak = Peak::default();
    for (index, (phase, rate)) in steps.iter().enumerate() {
        let mut offered = workload(classes.to_vec(), *rate, auth);
        offered.seed += index as u64;
        let mut trial = assemble::trial(&model.trial(phase, &offered));
        trial.verdict = if trial.all.success_low >= 0.99 { "pass" } else { "fail" }.into();
        if *phase == "confirm" {
            (peak.rate, peak.low) = (*rate, *rate);
        }
        if trial.verdict == "fail" && *phase != "overload" && (peak.high == 0.0 || *rate < peak.high) {
            peak.high = *rate;
        }
        peak.search_trials += u32::from(["ramp", "bisect"].contains(phase));
        peak.trace.push(Step {
            phase: (*phase).into(),
            rate: *rate,
            verdict: trial.verdict.clone(),
            success: trial.all.success,
            trial: index as u32,
        });
        peak.highest_throughput = peak.highest_throughput.max(trial.throughput);
        subject.trials.push(trial);
    }
    subject.classes = assemble::class_facts(&workload(classes.to_vec(), 1.0, auth), &subject.trials);
    let slope = model.cpu_us * 1.01;
    subject.cpu_slope = Some(Estimate { value: slope, low: slope * 0.985, high: slope * 1.015 });
    subject.peak = Some(peak);
    subject
}

fn report(command: &str, subjects: Vec<Subject>) -> Report {
    Report {
        grid: None,
        connect: None,
        format: FORMAT,
        version: "0.1.0".into(),
        command: command.into(),
        command_line: [
            "sipstone",
            command,
            "invite",
            "--target",
            "127.0.0.1:5060",
            "--sut-pid",
            "1234",
            "--quick",
        ]
        .map(String::from)
        .to_vec(),
        started_at: "2026-11-21T19:30:00Z".into(),
        label: "strowger 0.1.0, default configuration".into(),
        quick: true,
        generator_host: Host {
            processor: "Example CPU @ 2.50GHz".into(),
            cpus: 4,
            memory_bytes: 16 << 30,
            kernel: "6.1.0".into(),
            threads: 2,
            agents: vec![AgentFacts {
                address: "10.0.0.7:7070".into(),
                clock_offset_us: -132,
                round_trip_us: 210,
            }],
        },
        target: "127.0.0.1:5060".into(),
        server: Some(ServerFacts {
            method: "process tree".into(),
            command: Some("strowger run strowger.cfg".into()),
            pid: Some(1234),
            cpus: vec![0],
            same_host: true,
        }),
        calibration: [("invite".to_owned(), 14_300.0), ("register".to_owned(), 71_000.0)].into(),
        subjects,
        invalid: Vec::new(),
        remarks: vec![
            "Generator and server share this host: loopback charges the receive path to the sender.".into(),
            "Quick: all times were divided by ten.".into(),
        ],
    }
}

const SEARCH: [(&str, f64); 17] = [
    ("ramp", 1000.0),
    ("ramp", 1500.0),
    ("ramp", 2250.0),
    ("ramp", 3375.0),
    ("ramp", 5062.5),
    ("bisect", 4218.75),
    ("bisect", 3796.875),
    ("bisect", 4007.8),
    ("bisect", 4113.3),
    ("confirm", 4007.8),
    ("confirm", 4007.8),
    ("confirm", 4007.8),
    ("confirm", 4007.8),
    ("confirm", 4007.8),
    ("overload", 4408.6),
    ("overload", 6011.7),
    ("overload", 8015.6),
];

/// A search for the peak of `invite`.
pub(crate) fn peak() -> Report {
    report("peak", vec![searched(INVITE, &[Class::plain(Scenario::Invite)], Auth::None, &SEARCH)])
}

/// One run of `invite` below the peak.
pub(crate) fn run() -> Report {
    let mut subject = searched(INVITE, &[Class::plain(Scenario::Invite)], Auth::None, &[("run", 1200.0)]);
    (subject.peak, subject.cpu_slope) = (None, None);
    report("run", vec![subject])
}

/// Two searches and a mix.
pub(crate) fn suite() -> Report {
    let register = [
        ("ramp", 10_000.0),
        ("ramp", 15_000.0),
        ("ramp", 22_500.0),
        ("bisect", 20_000.0),
        ("confirm", 20_000.0),
    ];
    let invite =
        [("ramp", 1000.0), ("ramp", 3000.0), ("ramp", 4500.0), ("bisect", 3900.0), ("confirm", 3900.0)];
    let mut mix = searched(INVITE, &scenario::sipstone_mix(), Auth::None, &[("run", 300.0), ("run", 600.0)]);
    mix.name = "mix:sipstone".into();
    mix.peak = None;
    report(
        "suite",
        vec![
            searched(REGISTER, &[Class::plain(Scenario::Register)], Auth::None, &register),
            searched(INVITE, &[Class::plain(Scenario::Invite)], Auth::Challenge, &invite),
            mix,
        ],
    )
}

/// A raw trial of `invite`, for the tests of [`assemble`](super::assemble).
pub(crate) fn raw(rate: f64) -> RawTrial {
    INVITE.trial("run", &workload(vec![Class::plain(Scenario::Invite)], rate, Auth::None))
}
