//! Latency from the planned start, and histograms that are merged.

use crate::rig::{Conditions, Rig, Seen, call_id, judged, workload};
use crate::server::{Front, Server};
use sip::Instant;
use sipstone::criterion::Criterion;
use sipstone::spec::{Scenario, Workload};
use sipstone::tally::Times;
use std::collections::HashMap;
use std::time::Duration;

const STALL: Front = Front::Stalling { every: Duration::from_secs(10), length: Duration::from_secs(1) };

/// What a tool sees that asks again when it has been answered, and at most a thousand times a second.
fn closed_loop(mut front: Front, time: Duration) -> Times {
    let (way, pace) = (Conditions::default().delay, Duration::from_millis(1));
    let mut times = Times::default();
    let mut now = Instant::from_micros(1_000_000);
    let end = now + time;
    while now < end {
        let answered = front.admit(now + way).unwrap() + way;
        times.record(answered.since(now));
        now = answered.max(now + pace);
    }
    times
}

#[test]
fn a_stall_shows_from_the_planned_start_and_hides_from_a_closed_loop() {
    let load = workload(Scenario::Options, 1000.0, Duration::from_secs(30));
    let raw = Rig::new(&load, 1, Server::new(STALL)).trial("run", Conditions::default(), None);
    let trial = judged(&raw, &Criterion::default());
    assert_eq!(trial.all.offered, trial.all.succeeded, "a stall loses nothing: {:?}", trial.all.failures);
    assert_eq!(trial.invalid, [""; 0]);
    // One in ten comes during a stall and waits for half a second on average: one in a hundred for more than 0.9 s.
    let p99_ms = trial.all.latency_planned.p99_ms.unwrap();
    assert!((800.0..=1000.0).contains(&p99_ms), "{p99_ms} ms");
    assert!(trial.all.latency_planned.p50_ms.unwrap() < 1.0);
    // One in twenty waits for longer than T1, asks once more and is answered twice.
    assert!((0.04..0.06).contains(&trial.all.retransmissions_sent), "{}", trial.all.retransmissions_sent);

    let closed = closed_loop(STALL, Duration::from_secs(30));
    let closed_p99_ms = closed.quantile_us(0.99).unwrap() as f64 / 1000.0;
    assert!(closed_p99_ms < 5.0, "{closed_p99_ms} ms");
    assert!(closed.max_us().unwrap() > 900_000, "it met the stall, but hardly counted it");
}

#[test]
fn a_generator_that_is_late_shows_it_and_the_trial_is_invalid() {
    let load = workload(Scenario::Options, 1000.0, Duration::from_secs(5));
    let mut rig = Rig::new(&load, 1, Server::new(Front::Prompt)).sluggish(Duration::from_millis(20));
    let trial = judged(&rig.trial("run", Conditions::default(), None), &Criterion::default());
    // Planned times are spread evenly over the 20 ms in which nobody looks.
    let near = |seen: Option<f64>, expected: f64| (seen.unwrap() - expected).abs() < 1.0;
    assert!(near(trial.generator.send_lag_p50_ms, 10.0), "{:?}", trial.generator);
    assert!(near(trial.generator.send_lag_p99_ms, 19.8), "{:?}", trial.generator);
    assert!(near(trial.all.latency_planned.p50_ms, 10.2), "the lag is in it");
    assert!(near(trial.all.latency_sent.p99_ms, 0.2), "the lag is not in it");
    let [problem] = trial.invalid.as_slice() else { panic!("{:?}", trial.invalid) };
    assert!(problem.contains("late"), "{problem}");
}

/// Time from planned to answered of each operation of the window, read off the datagrams.
fn by_the_datagrams(rig: &Rig, window: (Instant, Instant)) -> Times {
    let inside = |planned: &Instant| *planned >= window.0 && *planned < window.1;
    let planned =
        |seen: &Seen| seen.planned.filter(inside).map(|planned| (call_id(&seen.bytes).to_vec(), planned));
    let mut planned: HashMap<Vec<u8>, Instant> = rig.sent.iter().filter_map(planned).collect();
    let mut times = Times::default();
    for answer in &rig.received {
        if let Some(planned) = planned.remove(call_id(&answer.bytes)) {
            times.record(answer.at.since(planned));
        }
    }
    assert!(planned.is_empty(), "{} were never answered", planned.len());
    times
}

#[test]
fn histograms_of_four_workers_merged_equal_one_of_all_values() {
    // At 95 % of the server's capacity, with some losses: times from a fifth of a millisecond to seconds.
    let load = Workload { seed: 5, ..workload(Scenario::Register, 1900.0, Duration::from_secs(10)) };
    let mut rig = Rig::new(&load, 4, Server::new(Front::of_capacity(2000.0))).watch();
    let raw = rig.trial("run", Conditions { lost: 0.01, ..Conditions::default() }, None);
    let start = Instant::from_micros(1_100_000);
    let window = (start + load.warm_up, start + load.warm_up + load.measure);
    let expected = by_the_datagrams(&rig, window);
    let merged = &raw.measured.classes[0].latencies.from_planned;
    assert!(
        merged.count() > 15_000 && merged.max_us() > Some(500_000),
        "{} {:?}",
        merged.count(),
        merged.max_us()
    );
    assert_eq!(*merged, expected);

    // Merged in another order, and after they have travelled as text, as those of agents do.
    let mut again = Times::default();
    for worker in rig.workers.iter_mut().rev() {
        let own = worker.counts().measured.classes.remove(0).latencies.from_planned;
        assert!(own.count() > 3000, "a worker without its share: {}", own.count());
        again.merge(&serde_json::from_str(&serde_json::to_string(&own).unwrap()).unwrap());
    }
    assert_eq!(again, expected);
}
