//! `sipstone peak`: the highest rate that the server keeps up with, and its CPU time for each operation.

use super::calibration::calibrate;
use super::exit::{Exit, Refusal};
use super::mix::{self, Offer};
use super::options::{LoadArgs, OutputArgs, ServerArgs};
use super::run::Weights;
use super::session::{Ending, Session, Stop};
use super::workload::{self, Pace};
use super::{refuse, values};
use crate::criterion::Criterion;
use crate::report::assemble;
use crate::report::model::{Estimate, Peak, Subject, TrialReport};
use crate::search::{Next, Outcome, Phase, Search, SearchSettings};
use crate::spec::{Delay, Workload};
use crate::stats::{Verdict, slope};
use crate::validity::{self, Purpose};
use clap::Args;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  sipstone peak invite --target 127.0.0.1:5060 --sut-pid 1234 --sut-cpu 0 --cpus 1
  sipstone peak register --target sip:10.0.0.1 --auth challenge --quick --html register.html
  sipstone peak mix:mobile --target 10.0.0.1 --criterion carrier --start 5k --csv mobile.csv
  sipstone peak invite --target 127.0.0.1:5060 --sut-exec './server -f a.cfg' --sut-cpu 0
  sipstone peak invite --target 127.0.0.1:5060 --base last.json --gate 'peak >= 0.95*base'

How: the rate is raised by half until a trial fails, then the range is halved to --precision; the rate found is \
confirmed by full trials, of which a majority must pass; then more than the peak is offered, to see whether \
throughput holds.

Generator and server on one host should have CPUs of their own (--sut-cpu, --cpus): on loopback the sender pays \
for the receiver's network stack.";

/// How long the wait for the next trial sleeps at a time.
const SLICE: Duration = Duration::from_millis(50);
/// Longest pause between trials.
const COOLDOWN_MAX: Duration = Duration::from_secs(600);
/// The trial that shows whether the server does this at all: a few operations, none of them in a hurry.
const PROBE: Pace = Pace { rate: 20.0, warm_up: Duration::ZERO, measure: Duration::from_secs(1) };
/// How long an operation of the probe may take: a datagram lost twice still makes it (RFC 3261 §17.1.2.1, Timer E).
const PROBE_DRAIN: Duration = Duration::from_secs(4);

/// Find the highest rate that the server keeps up with, and its CPU time per operation
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct PeakArgs {
    /// What to offer: a scenario or mix:NAME, as `sipstone scenarios` lists them
    #[arg(value_name = "SCENARIO")]
    scenario: Option<String>,

    /// Scenarios with weights of your own, as in 'invite=7,register=3'; at most 16
    #[arg(long, value_name = "A=W,B=W", value_parser = Weights::parse, help_heading = "Load")]
    mix: Option<Weights>,

    #[command(flatten)]
    search: SearchArgs,

    #[command(flatten)]
    load: LoadArgs,

    #[command(flatten)]
    server: ServerArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// How the peak is searched.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Search")]
pub(super) struct SearchArgs {
    /// The first rate that is tried, operations a second
    #[arg(long, value_name = "RATE", default_value = "1000", value_parser = values::rate)]
    pub(super) start: f64,

    /// No higher rate is tried [default: 10M]
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub(super) max_rate: Option<f64>,

    /// How closely the peak is found (0.1% to 50%)
    #[arg(long, value_name = "SHARE", default_value = "2%", value_parser = values::share)]
    pub(super) precision: f64,

    /// Full trials at the peak, of which a majority must pass (1 to 99) [default: the criterion's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub(super) confirm: Option<u32>,

    /// Multiples of the peak that are offered after it was found; each above 1 and at most 10, at most 8 of them
    #[arg(long, value_name = "A,B,…", default_value = "1.1,1.5,2", value_parser = Factors::parse)]
    pub(super) overload: Factors,

    /// Do not offer more than the peak
    #[arg(long, conflicts_with = "overload")]
    pub(super) no_overload: bool,

    /// Do not measure first what the generator itself can do
    #[arg(long)]
    pub(super) no_calibration: bool,

    /// Pause between trials, for the server to come to rest (at most 10m)
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::duration)]
    pub(super) cooldown: Duration,

    /// The window of a full trial (100ms to 24h) [default: the criterion's]
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration)]
    pub(super) duration: Option<Duration>,

    /// The warm-up of a full trial [default: the criterion's]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(super) warm_up: Option<Duration>,
}

/// Multiples of the peak. (A type of its own, because `clap` takes a bare `Vec` for a repeated option.)
#[derive(Clone, Debug)]
pub(super) struct Factors(pub(super) Vec<f64>);

impl Factors {
    fn parse(text: &str) -> Result<Factors, String> {
        values::factors(text).map(Factors)
    }
}

impl SearchArgs {
    /// The criterion with the times that the options put in its place; `--quick` is in them already.
    fn criterion(&self, criterion: Criterion, quick: bool) -> Criterion {
        let plan = criterion.plan(quick);
        Criterion {
            warm_up: self.warm_up.unwrap_or(plan.warm_up),
            measure: self.duration.unwrap_or(plan.measure),
            ..criterion
        }
    }

    /// What the search is to find.
    fn settings(&self, criterion: Criterion, calibration: Option<f64>) -> SearchSettings {
        SearchSettings {
            start: self.start,
            max_rate: self.max_rate,
            precision: self.precision,
            criterion,
            confirm_runs: self.confirm,
            overload: if self.no_overload { Vec::new() } else { self.overload.0.clone() },
            calibration,
            ..SearchSettings::default()
        }
    }

    /// Checks what the parsers of single options cannot.
    ///
    /// # Errors
    /// A value out of its range.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.cooldown > COOLDOWN_MAX {
            return Err("--cooldown is longer than 10m".into());
        }
        if self.max_rate.is_some_and(|max| max < self.start) {
            return Err("--max-rate is below --start".into());
        }
        self.settings(Criterion::default(), None).check().map_err(|error| error.to_string())
    }
}

pub(super) fn peak(args: &PeakArgs) -> Result<Exit, Refusal> {
    let offer = mix::offer(args.scenario.as_deref(), args.mix.as_ref().map(|weights| weights.0.as_slice()))?;
    let mut session = Session::open("peak", &args.load, &args.server, &args.output, |given| {
        args.search.check()?;
        workload::check_effect(&offer, &args.load)?;
        workload::build(&offer, &args.load, given, full_pace(&args.search, &args.output)).map(drop)
    })?;
    match subject(&mut session, &offer, &args.search)? {
        Course::Measured | Course::BrokenOff => session.close(),
        Course::NotSupported(sentence, _) => {
            session.view.end();
            refuse(sentence)
        }
    }
}

/// A full trial at the first rate.
pub(super) fn full_pace(search: &SearchArgs, output: &OutputArgs) -> Pace {
    let criterion = search.criterion(output.criterion.unwrap_or_default(), output.quick);
    Pace { rate: search.start, warm_up: criterion.warm_up, measure: criterion.measure }
}

/// How the search of one subject went.
pub(super) enum Course {
    /// It is in the report.
    Measured,
    /// What there is of it is in the report, with the reason.
    BrokenOff,
    /// Not one operation succeeded: why, and the subject with the one trial that showed it.
    NotSupported(String, Box<Subject>),
}

/// Searches the peak of one offer and puts it into the report.
///
/// # Errors
/// Calibration could not be made, or the workload does not fit.
pub(super) fn subject(
    session: &mut Session<'_>,
    offer: &Offer,
    search: &SearchArgs,
) -> Result<Course, Refusal> {
    session.criterion = search.criterion(session.output.criterion.unwrap_or_default(), session.output.quick);
    let workload = session.workload(offer, full_pace(search, session.output))?;
    let mut subject = session.subject(offer, &workload);
    if let Some(course) = probe(session, offer, &workload, &mut subject) {
        return Ok(course);
    }
    let calibration = match search.no_calibration {
        true => None,
        false => calibration(session, offer, search.start)?,
    };
    let settings = search.settings(session.criterion, calibration).for_classes(&workload.classes);
    let mut found = Search::new(settings);
    let end = trials(session, &workload, &mut found, &mut subject, search.cooldown);
    Ok(finish(session, &workload, &found, subject, end))
}

/// A few operations, to see whether the server does this at all; `None` if it does. Their pauses are left out.
pub(super) fn probe(
    session: &mut Session<'_>,
    offer: &Offer,
    workload: &Workload,
    subject: &mut Subject,
) -> Option<Course> {
    let mut probe = workload.clone();
    (probe.rate, probe.warm_up, probe.measure, probe.drain) =
        (PROBE.rate, PROBE.warm_up, PROBE.measure, PROBE_DRAIN);
    probe.trace = session.output.trace;
    for class in &mut probe.classes {
        (class.ring, class.hold) = (Delay::None, Delay::None);
        class.cancel_after = class.cancel_after.min(PROBE_DRAIN / 4);
    }
    match session.measure(&probe, "probe", Ending::AtTheEnd) {
        Ok(trial) if trial.all.succeeded > 0 => {
            session.keep_traces(&trial);
            None
        }
        Ok(mut trial) => {
            let sentence = nothing_succeeded(offer, &trial);
            // It measured nothing, so nothing can have spoilt it.
            trial.invalid.clear();
            subject.trials.push(trial);
            Some(Course::NotSupported(sentence, Box::new(std::mem::take(subject))))
        }
        Err(Stop::SetUp(sentence)) => Some(Course::NotSupported(sentence, Box::new(std::mem::take(subject)))),
        Err(Stop::BrokenOff(why, _)) => {
            session.report.invalid.push(why);
            Some(Course::BrokenOff)
        }
    }
}

/// The sentence about a server that does not do this; the messages were shown already.
fn nothing_succeeded(offer: &Offer, trial: &TrialReport) -> String {
    let failures: Vec<String> =
        trial.all.failures.iter().map(|(word, count)| format!("{count} {word}")).collect();
    format!("{}: none of {} operations succeeded ({})", offer.name, trial.all.offered, failures.join(", "))
}

/// The generator's own limit, put into the report.
fn calibration(session: &mut Session<'_>, offer: &Offer, start: f64) -> Result<Option<f64>, Refusal> {
    if !session.load.agents.is_empty() {
        session.remark("the generator was not calibrated: the work was done by agents".into());
        return Ok(None);
    }
    let reached = calibrate(session, offer, start)?;
    if let Some(rate) = reached {
        session.report.calibration.insert(offer.name.clone(), rate);
        session.view.note(&format!(
            "the generator reaches {rate:.0}/s of {} against a server that does nothing",
            offer.name
        ));
    }
    Ok(reached)
}

/// Why a search ended before it was done.
enum End {
    /// The generator could not keep up any more.
    Generator(Vec<String>),
    /// A group died, the server could not be started anew, or the user interrupted it.
    BrokenOff(String),
}

/// How often a trial is made again because the generator could not keep up: a hiccup of the host is not its limit.
const HICCUPS_MAX: u32 = 2;

/// A server that uses this share of its CPUs is full: when it fails, it fails by itself, and the generator's lateness, which
/// the retransmissions of such a trial bring about, changes nothing in that. Not more, for a virtual machine's host may
/// take away a tenth of the time.
const SERVER_FULL: f64 = 0.85;

/// What is wrong with the generator, as far as the search must heed it.
fn faults_that_count(
    session: &Session<'_>,
    search: &Search,
    trial: &TrialReport,
    workload: &Workload,
    outcome: &Outcome,
) -> Vec<String> {
    let cpus = session.server_cpus.len();
    let full = cpus > 0 && trial.cpu_cores.is_some_and(|cores| cores >= SERVER_FULL * cpus as f64);
    if full && search.fails(outcome) {
        Vec::new()
    } else {
        validity::generator_faults(trial, workload, Purpose::Latency)
    }
}

/// Makes the trials that the search asks for.
fn trials(
    session: &mut Session<'_>,
    workload: &Workload,
    search: &mut Search,
    subject: &mut Subject,
    cooldown: Duration,
) -> Option<End> {
    let (mut hiccups, mut repeated) = (0, 0);
    while let Next::Trial { phase, rate, warm_up, measure } = search.next() {
        pause(session, if subject.trials.is_empty() { Duration::ZERO } else { cooldown });
        let workload = Workload { rate, warm_up, measure, ..workload.clone() };
        let ending = if phase == Phase::Overload { Ending::AtTheEnd } else { Ending::WhenCertain };
        let mut trial = match session.measure(&workload, phase.word(), ending) {
            Ok(trial) => trial,
            Err(Stop::SetUp(sentence)) => return Some(End::BrokenOff(sentence)),
            Err(Stop::BrokenOff(why, trial)) => {
                subject.trials.push(*trial);
                return Some(End::BrokenOff(why));
            }
        };
        let index = u32::try_from(subject.trials.len()).unwrap_or(u32::MAX);
        let outcome = Outcome::of(&session.criterion, &trial, index);
        let faults = faults_that_count(session, search, &trial, &workload, &outcome);
        if !faults.is_empty() && phase != Phase::Overload && hiccups < HICCUPS_MAX {
            (hiccups, repeated) = (hiccups + 1, repeated + 1);
            session
                .view
                .note(&format!("made again, for the generator could not keep up: {}", faults.join("; ")));
            continue;
        }
        hiccups = 0;
        let failed_by_itself = faults.is_empty() && phase != Phase::Overload && search.fails(&outcome);
        if failed_by_itself {
            trial.invalid.clear();
        }
        subject.trials.push(trial);
        if phase == Phase::Overload && !faults.is_empty() {
            session.remark(format!(
                "{}: overload at {rate:.0}/s was more than the generator's: {}",
                subject.name,
                faults.join("; ")
            ));
        } else if !faults.is_empty() {
            return Some(End::Generator(faults));
        }
        search.record(outcome);
    }
    if repeated > 0 {
        let name = &subject.name;
        session
            .remark(format!("{name}: trials made again because the generator could not keep up: {repeated}"));
    }
    None
}

/// Waits, but not for longer than until Ctrl-C.
pub(super) fn pause(session: &Session<'_>, time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until && !session.interrupted() {
        std::thread::sleep(SLICE.min(time));
    }
}

/// Puts the subject into the report, with what the search found.
fn finish(
    session: &mut Session<'_>,
    workload: &Workload,
    search: &Search,
    mut subject: Subject,
    end: Option<End>,
) -> Course {
    let mut peak = search.peak();
    // The search knows more than a trial's own counts: one that only fell behind has failed.
    for step in &peak.trace {
        let trial = usize::try_from(step.trial).ok().and_then(|trial| subject.trials.get_mut(trial));
        trial.into_iter().for_each(|trial| trial.verdict.clone_from(&step.verdict));
    }
    let confirmed = peak.rate > 0.0;
    if peak.generator_bound {
        session.remark(format!(
            "{}: the peak is over half of what the generator reaches against a server that does nothing; it may be the \
             generator's (more --threads or --agent)",
            subject.name
        ));
    }
    let mut course = Course::Measured;
    match end {
        Some(End::Generator(faults)) if confirmed => {
            session.remark(format!(
                "{}: overload was not tried any further: {}",
                subject.name,
                faults.join("; ")
            ));
        }
        Some(End::Generator(faults)) => generator_bound(session, &mut peak, &faults),
        Some(End::BrokenOff(why)) => {
            session.report.invalid.push(why);
            course = Course::BrokenOff;
        }
        None if !confirmed => {
            let why = peak.ended.clone().unwrap_or_default();
            session.report.invalid.push(format!("{}: no peak was found: {why}", subject.name));
        }
        None => {}
    }
    session.report.invalid.extend(doubts(&subject, &peak));
    subject.classes = assemble::class_facts(workload, &subject.trials);
    subject.cpu_slope = cpu_slope(&subject.trials);
    subject.peak = Some(peak);
    session.report.subjects.push(subject);
    course
}

/// A search that the generator ended: the server carries at least the highest rate that passed.
fn generator_bound(session: &mut Session<'_>, peak: &mut Peak, faults: &[String]) {
    let passed = peak.trace.iter().filter(|step| step.verdict == Verdict::Pass.word()).map(|step| step.rate);
    let rate = passed.max_by(f64::total_cmp).unwrap_or(0.0);
    let faults = faults.join("; ");
    let sentence = if rate > 0.0 {
        format!(
            "generator-bound: above {rate:.0}/s the generator could not keep up, so the server's peak is not known, \
             only that it is not below: {faults}"
        )
    } else {
        format!(
            "the generator could not keep up even at the first rate, so nothing is known of the server; if it was \
             hardly busy, something else keeps this host busy (sipstone doctor): {faults}"
        )
    };
    (peak.rate, peak.low, peak.high, peak.generator_bound) = (rate, rate, rate, true);
    peak.ended = Some(sentence.clone());
    session.report.invalid.push(sentence);
}

/// What is wrong with the trials that confirm the peak.
fn doubts(subject: &Subject, peak: &Peak) -> Vec<String> {
    let confirms = |trial: &&TrialReport| trial.phase == Phase::Confirm.word() && trial.rate == peak.rate;
    let mut doubts: Vec<String> =
        subject.trials.iter().filter(confirms).flat_map(|trial| trial.invalid.iter()).cloned().collect();
    doubts.sort();
    doubts.dedup();
    doubts.into_iter().map(|doubt| format!("{}: {doubt}", subject.name)).collect()
}

/// What one more operation a second costs the server, over the trials that it kept up with.
pub(super) fn cpu_slope(trials: &[TrialReport]) -> Option<Estimate> {
    let kept_up =
        trials.iter().filter(|trial| trial.invalid.is_empty() && trial.verdict == Verdict::Pass.word());
    let points: Vec<(f64, f64)> =
        kept_up.filter_map(|trial| Some((trial.throughput, trial.cpu_cores? * 1e6))).collect();
    slope::line(&points).ok()?.errors.map(|errors| errors.slope)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        search: SearchArgs,
    }

    fn search(options: &str) -> SearchArgs {
        Line::try_parse_from(std::iter::once("x").chain(options.split_whitespace())).unwrap().search
    }

    fn trial(throughput: f64, cores: f64, verdict: &str) -> TrialReport {
        TrialReport { throughput, cpu_cores: Some(cores), verdict: verdict.into(), ..TrialReport::default() }
    }

    #[test]
    fn quick_shortens_the_criterions_times_but_not_given_ones() {
        let ibm = Criterion::default();
        let times = |options: &str, quick| {
            let criterion = search(options).criterion(ibm, quick);
            (criterion.warm_up, criterion.measure)
        };
        assert_eq!(times("", false), (ibm.warm_up, ibm.measure));
        assert!(times("", true).1 <= ibm.measure / 10 + Duration::from_secs(1));
        let given = (Duration::from_secs(3), Duration::from_secs(40));
        assert_eq!(times("--warm-up 3s --duration 40s", true), given);
    }

    #[test]
    fn search_options_are_checked_against_each_other() {
        assert!(search("").check().is_ok());
        assert!(search("--start 2k --max-rate 1k").check().unwrap_err().contains("--max-rate"));
        assert!(search("--cooldown 11m").check().unwrap_err().contains("--cooldown"));
        assert!(search("--start 0.5").check().unwrap_err().contains("--start"));
        assert!(Line::try_parse_from(["x", "--no-overload", "--overload", "2"]).is_err());
        assert!(search("--no-overload").settings(Criterion::default(), None).overload.is_empty());
    }

    #[test]
    fn cost_is_the_slope_over_trials_that_the_server_kept_up_with() {
        let trials = [trial(100.0, 0.11, "pass"), trial(200.0, 0.21, "pass"), trial(400.0, 0.41, "pass")];
        let slope = cpu_slope(&trials).unwrap();
        assert!((slope.value - 1000.0).abs() < 1e-6, "{slope:?}");
        let mut overloaded = trials.to_vec();
        overloaded.push(trial(410.0, 1.0, "fail"));
        assert_eq!(cpu_slope(&overloaded).unwrap().value, slope.value);
        assert!(cpu_slope(&trials[..1]).is_none());
        assert!(cpu_slope(&[]).is_none());
    }

    #[test]
    fn doubts_about_the_peak_are_those_of_its_own_trials() {
        let confirm = |rate, invalid: &[&str]| TrialReport {
            phase: "confirm".into(),
            rate,
            invalid: invalid.iter().map(ToString::to_string).collect(),
            ..TrialReport::default()
        };
        let trials = vec![confirm(100.0, &["late"]), confirm(100.0, &["late"]), confirm(120.0, &["lossy"])];
        let subject = Subject { name: "invite".into(), trials, ..Subject::default() };
        let peak = Peak { rate: 100.0, ..Peak::default() };
        assert_eq!(doubts(&subject, &peak), ["invite: late"]);
    }
}
