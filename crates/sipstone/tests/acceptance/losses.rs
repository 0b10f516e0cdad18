//! Verdicts and retransmissions under losses of a known share.

use crate::rig::{Conditions, measure, workload};
use crate::server::{Front, Kind, Server};
use sipstone::report::model::TrialReport;
use sipstone::scenario;
use sipstone::spec::{Scenario, Workload};
use std::time::Duration;

/// 50,000 registrations: five standard deviations lie between 0.8 % and 1 %.
fn registrations() -> Workload {
    workload(Scenario::Register, 5000.0, Duration::from_secs(10))
}

/// The same without retransmissions: T1 is longer than any operation may last.
fn without_retransmissions() -> Workload {
    Workload {
        t1: Duration::from_secs(20),
        t2: Duration::from_secs(20),
        drain: Duration::from_secs(1),
        ..registrations()
    }
}

fn under(workload: &Workload, conditions: Conditions) -> TrialReport {
    measure(workload, Server::new(Front::Prompt), conditions)
}

fn near(seen: f64, expected: f64, within: f64) {
    assert!((seen - expected).abs() < within, "{seen} instead of {expected}");
}

/// Share of attempts that took at most so long, by the distribution in the report.
fn share_within(trial: &TrialReport, ms: f64) -> f64 {
    trial.cdf.iter().take_while(|(us, _)| *us <= ms * 1000.0).last().map_or(0.0, |(_, share)| *share)
}

#[test]
fn half_a_percent_of_lost_operations_passes_and_one_and_a_half_fails() {
    for (lost, verdict) in [(0.005, "pass"), (0.015, "fail")] {
        let trial = under(&registrations(), Conditions { operations_lost: lost, ..Conditions::default() });
        near(1.0 - trial.all.success, lost, 0.002);
        assert_eq!(trial.verdict, verdict, "{}", trial.all.success);
        let timeouts = trial.all.failures.get("timeout").copied().unwrap_or(0);
        assert_eq!(timeouts, trial.all.offered - trial.all.succeeded, "{:?}", trial.all.failures);
    }
}

#[test]
fn lost_operations_are_infinitely_long_from_the_planned_start() {
    let trial = under(&registrations(), Conditions { operations_lost: 0.015, ..Conditions::default() });
    assert_eq!(trial.all.latency_planned.p99_ms, None);
    assert!(trial.all.latency_planned.p95_ms.unwrap() < 1.0);
    assert!(trial.all.latency_sent.p99_ms.unwrap() < 1.0, "of the successes only");
}

#[test]
fn without_retransmissions_both_datagrams_of_a_registration_must_arrive() {
    for (lost, verdict) in [(0.01, "fail"), (0.004, "pass")] {
        let trial = under(&without_retransmissions(), Conditions { lost, ..Conditions::default() });
        assert_eq!(trial.all.retransmissions_sent, 0.0);
        near(1.0 - trial.all.success, 1.0 - (1.0 - lost) * (1.0 - lost), 0.002);
        assert_eq!(trial.verdict, verdict, "{}", trial.all.success);
        let unfinished = trial.all.failures.get("unfinished").copied().unwrap_or(0);
        assert_eq!(unfinished, trial.all.offered - trial.all.succeeded, "{:?}", trial.all.failures);
    }
}

#[test]
fn with_retransmissions_losses_show_as_steps_at_t1_and_its_multiples() {
    for lost in [0.01, 0.004] {
        let trial = under(&registrations(), Conditions { lost, ..Conditions::default() });
        assert_eq!((trial.all.success, trial.verdict.as_str()), (1.0, "pass"));
        let missed = 1.0 - (1.0 - lost) * (1.0 - lost);
        // Nobody is answered between the round trip and T1; then all but the share that lost two attempts is.
        near(share_within(&trial, 1.0), 1.0 - missed, 0.002);
        assert_eq!(share_within(&trial, 1.0), share_within(&trial, 499.0));
        near(share_within(&trial, 502.0), 1.0 - missed * missed, 0.000_5);
        near(trial.all.retransmissions_sent, missed, 0.002);
        // RFC 3261 §17.1.2.2: the third attempt comes 2·T1 after the second.
        near(share_within(&trial, 1502.0), 1.0, 0.000_1);
    }
}

#[test]
fn every_scenario_makes_up_for_what_the_network_loses_and_doubles() {
    // Only with a stateless proxy: after a 100 the caller leaves repeating to the proxy (RFC 3261 §17.1.1.2), and the
    // null server behind it repeats nothing.
    let bad = Conditions { lost: 0.01, doubled: 0.02, ..Conditions::default() };
    for scenario in scenario::ALL {
        let mut load = workload(scenario, 500.0, Duration::from_secs(4));
        load.classes[0].cancel_after = Duration::from_millis(50);
        let server = Server::of_kind(Front::Prompt, Kind::Stateless, scenario == Scenario::Redirect);
        let trial = measure(&load, server, bad);
        assert_eq!(trial.all.succeeded, trial.all.offered, "{scenario:?}: {:?}", trial.all.failures);
        assert_eq!(trial.invalid, [""; 0], "{scenario:?}");
        assert!(trial.all.retransmissions_sent > 0.01, "{scenario:?}");
    }
}

#[test]
fn a_dead_server_is_offered_everything_and_nothing_is_left_out_of_the_books() {
    let load = workload(Scenario::Options, 1000.0, Duration::from_secs(5));
    let trial = under(&load, Conditions { lost: 1.0, ..Conditions::default() });
    near(trial.offered_rate, 1000.0, 45.0);
    assert_eq!((trial.all.succeeded, trial.throughput, trial.verdict.as_str()), (0, 0.0, "fail"));
    assert_eq!(trial.all.failures, [("timeout".to_string(), trial.all.offered)].into());
    // RFC 3261 §17.1.2.2: Timer E at 0.5, 1.5, 3.5, 7.5 s and then every T2, until Timer F after 32 s.
    assert_eq!(trial.all.retransmissions_sent, 10.0);
    assert_eq!(trial.invalid, [""; 0], "it is the server that fails, not the measurement");
}

#[test]
fn operations_for_which_the_generator_has_no_room_are_counted_and_make_the_trial_invalid() {
    let load =
        Workload { open_operations_max: 500, ..workload(Scenario::Options, 1000.0, Duration::from_secs(5)) };
    let trial = under(&load, Conditions { lost: 1.0, ..Conditions::default() });
    near(trial.offered_rate, 1000.0, 45.0);
    let dropped = trial.all.failures.get("generator-dropped").copied().unwrap_or(0);
    assert!(dropped > 4000, "{:?}", trial.all.failures);
    assert_eq!(trial.all.failures.values().sum::<u64>(), trial.all.offered);
    assert!(trial.invalid.iter().any(|problem| problem.contains("no room")), "{:?}", trial.invalid);
}
