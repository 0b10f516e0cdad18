//! The search for the peak, from its first trial to its last, against servers of a known capacity.

use crate::rig::{Conditions, Early, Rig, judged, workload};
use crate::server::{Front, Server};
use sip::Instant;
use sipstone::load::arrivals::Arrivals;
use sipstone::report::assemble::RawTrial;
use sipstone::report::model::Peak;
use sipstone::search::{Next, Outcome, Phase, Search, SearchSettings};
use sipstone::spec::{Scenario, Workload};
use sipstone::tally::{ClassTally, Failure, Tally};
use sipstone::validity;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Most trials of ramp and bisection.
const SEARCH_TRIALS_MAX: u32 = 12;

/// Makes the trials that a search asks for, as the command `peak` does, each with a seed of its own.
fn search(
    settings: SearchSettings,
    seed: u64,
    mut trial: impl FnMut(&Workload, &str, Option<Early<'_>>) -> RawTrial,
) -> Peak {
    let criterion = settings.criterion;
    let mut search = Search::new(settings);
    for index in 0.. {
        let (phase, rate, warm_up, measure) = match search.next() {
            Next::Trial { phase, rate, warm_up, measure } => (phase, rate, warm_up, measure),
            Next::Done(peak) => return peak,
        };
        let load = workload(Scenario::Options, rate, measure);
        let load = Workload { warm_up, seed: seed * 1000 + u64::from(index), ..load };
        let expected = [rate * measure.as_secs_f64()];
        let certain = |measured: &[(u64, u64, u64)]| criterion.certain(measured, &expected);
        let early = (phase != Phase::Overload).then_some(&certain as Early<'_>);
        let report = judged(&trial(&load, phase.word(), early), &criterion);
        assert_eq!(validity::generator_faults(&report, &load, validity::Purpose::Latency), [""; 0]);
        search.record(Outcome::of(&criterion, &report, index));
    }
    unreachable!("a search ends");
}

fn settings() -> SearchSettings {
    SearchSettings { quick: true, overload: Vec::new(), ..SearchSettings::default() }
}

/// The peak as the whole instrument finds it.
fn peak_by_the_engine(capacity: f64, settings: SearchSettings, seed: u64) -> Peak {
    search(settings, seed, |load, phase, early| {
        Rig::new(load, 1, Server::new(Front::of_capacity(capacity))).trial(
            phase,
            Conditions::default(),
            early,
        )
    })
}

/// The peak with a model in place of workers and network, for rates at which those take too long.
fn peak_by_the_model(capacity: f64, settings: SearchSettings, seed: u64) -> Peak {
    search(settings, seed, |load, phase, _| modelled(load, phase, Front::of_capacity(capacity)))
}

/// What the counts of a trial would be: the real schedule, and requests that are sent again as RFC 3261 §17.1.2.2 says.
fn modelled(load: &Workload, phase: &str, mut front: Front) -> RawTrial {
    let start = Instant::from_micros(1_000_000);
    let opens = start + load.warm_up;
    let total = load.warm_up + load.measure;
    let mut arrivals = Arrivals::new(load.shape, load.rate, start, total, load.seed, (0, 1));
    // Attempts to come: when, for which planned start, and the time to the attempt after it.
    let mut attempts: BinaryHeap<Reverse<(Instant, Instant, Duration)>> = BinaryHeap::new();
    let mut books =
        Books { start, window: (opens, start + total), seconds: Vec::new(), measured: Tally::new(1) };
    loop {
        let again = attempts.peek().map_or(Instant::NEVER, |Reverse((at, ..))| *at);
        let (at, planned, interval) = match arrivals.peek() {
            Some(planned) if planned <= again => {
                arrivals.next();
                books.count(planned, planned, |class| class.offered += 1);
                (planned, planned, load.t1)
            }
            _ => match attempts.pop() {
                Some(Reverse(attempt)) => attempt,
                None => break,
            },
        };
        let (next, deadline) = (at + interval, planned + 64 * load.t1);
        if let Some(done) = front.admit(at) {
            books.count(done, planned, |class| {
                class.succeeded += 1;
                class.latencies.from_planned.record(done.since(planned));
                class.latencies.from_sent.record(done.since(planned));
            });
        } else if next < deadline {
            attempts.push(Reverse((next, planned, (2 * interval).min(load.t2))));
        } else {
            books.count(deadline, planned, |class| *class.failures.entry(Failure::Timeout).or_default() += 1);
        }
    }
    RawTrial {
        phase: phase.into(),
        workload: load.clone(),
        seconds: (0..).zip(books.seconds).collect(),
        measured: books.measured,
        server: Vec::new(),
        ended_early: false,
        examples: Vec::new(),
    }
}

/// The counts of a model.
struct Books {
    start: Instant,
    window: (Instant, Instant),
    seconds: Vec<Tally>,
    measured: Tally,
}

impl Books {
    /// Counts something that happened `at` to an operation.
    fn count(&mut self, at: Instant, planned: Instant, count: impl Fn(&mut ClassTally)) {
        let second = usize::try_from(at.since(self.start).as_secs()).unwrap();
        if self.seconds.len() <= second {
            self.seconds.resize_with(second + 1, || Tally::new(1));
        }
        count(&mut self.seconds[second].classes[0]);
        if planned >= self.window.0 && planned < self.window.1 {
            count(&mut self.measured.classes[0]);
        }
    }
}

fn check(peak: &Peak, capacity: f64) {
    let trace: Vec<_> =
        peak.trace.iter().map(|step| format!("{} {:.1} {}", step.phase, step.rate, step.verdict)).collect();
    let off = peak.rate / capacity - 1.0;
    assert!(off.abs() <= 0.02, "{} instead of {capacity}: {trace:#?}", peak.rate);
    assert!(peak.search_trials <= SEARCH_TRIALS_MAX, "{} trials: {trace:#?}", peak.search_trials);
    assert_eq!(peak.ended, None);
    assert!(peak.low <= peak.rate && peak.rate < peak.high, "{peak:?}");
}

#[test]
fn peak_of_a_server_that_carries_300_a_second() {
    // At this rate `--quick` has too few operations for two percent: a Poisson count of 3600 is off by 1.7 %.
    let settings = SearchSettings { quick: false, ..settings() };
    check(&peak_by_the_engine(300.0, settings, 1), 300.0);
}

#[test]
fn peak_of_a_server_that_carries_1000_a_second() {
    check(&peak_by_the_engine(1000.0, settings(), 1), 1000.0);
}

#[test]
fn peak_of_a_server_that_carries_3000_a_second() {
    let settings = SearchSettings { confirm_runs: Some(3), ..settings() };
    check(&peak_by_the_engine(3000.0, settings, 1), 3000.0);
}

#[test]
fn peak_of_a_server_that_carries_10_000_a_second() {
    let settings = SearchSettings { confirm_runs: Some(1), ..settings() };
    check(&peak_by_the_engine(10_000.0, settings, 1), 10_000.0);
}

#[test]
fn peak_of_a_server_that_carries_30_000_a_second() {
    let settings = SearchSettings { start: 10_000.0, confirm_runs: Some(1), ..settings() };
    check(&peak_by_the_engine(30_000.0, settings, 1), 30_000.0);
}

#[test]
fn peak_of_servers_that_carry_300_to_30_000_a_second_whatever_the_seed() {
    for capacity in [300.0, 1000.0, 3000.0, 5500.0, 10_000.0, 17_000.0, 30_000.0] {
        for seed in 1..=3 {
            let settings = SearchSettings { quick: capacity >= 3000.0, ..settings() };
            check(&peak_by_the_model(capacity, settings, seed), capacity);
        }
    }
}

#[test]
fn overload_shows_that_throughput_holds() {
    let settings = SearchSettings { overload: vec![1.1, 1.5, 2.0], ..settings() };
    let peak = peak_by_the_model(10_000.0, settings, 1);
    check(&peak, 10_000.0);
    assert_eq!(peak.trace.iter().filter(|step| step.phase == "overload").count(), 3);
    let off = peak.highest_throughput / 10_000.0 - 1.0;
    assert!(off.abs() < 0.02, "{}", peak.highest_throughput);
}
