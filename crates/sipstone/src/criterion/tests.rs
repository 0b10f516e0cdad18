//! Tests of the criteria.

use super::*;
use crate::report::model::LatencyReport;
use proptest::prelude::*;

/// A class with this many attempts and successes, and these latencies for all quantiles and the mean.
fn class(name: &str, offered: u64, succeeded: u64, latency_ms: f64) -> ClassReport {
    let latency = LatencyReport {
        count: succeeded,
        mean_ms: Some(latency_ms),
        p50_ms: Some(latency_ms),
        p999_ms: Some(latency_ms),
        ..LatencyReport::default()
    };
    ClassReport {
        name: name.into(),
        offered,
        succeeded,
        success: succeeded as f64 / offered.max(1) as f64,
        latency_planned: latency,
        ..ClassReport::default()
    }
}

fn trial(classes: Vec<ClassReport>) -> TrialReport {
    let offered = classes.iter().map(|class| class.offered).sum();
    let succeeded = classes.iter().map(|class| class.succeeded).sum();
    let latency = classes.first().and_then(|class| class.latency_planned.mean_ms).unwrap_or(0.0);
    TrialReport {
        measure_s: 10.0,
        offered_rate: offered as f64 / 10.0,
        throughput: succeeded as f64 / 10.0,
        all: class("all", offered, succeeded, latency),
        classes,
        ..TrialReport::default()
    }
}

fn named(name: &str) -> Criterion {
    name.parse().expect("a criterion")
}

#[test]
fn ibm_2007_is_the_default_and_asks_for_99_percent_in_five_runs_of_two_minutes() {
    let default = Criterion::default();
    assert_eq!((default.name, default.share), ("ibm2007", 0.99));
    let plan = default.plan(false);
    assert_eq!(
        (plan.warm_up, plan.measure, plan.runs),
        (Duration::from_secs(5), Duration::from_secs(120), 5)
    );
}

#[test]
fn quick_divides_the_times_by_ten_and_not_the_runs() {
    let plan = named("carrier").plan(true);
    assert_eq!((plan.warm_up, plan.measure, plan.runs), (Duration::from_secs(3), Duration::from_secs(30), 3));
    // Half a second is rounded up: counts are kept by the second.
    assert_eq!(Criterion::default().plan(true).warm_up, Duration::from_secs(1));
}

#[test]
fn an_unknown_name_is_an_error_that_lists_the_known_ones() {
    let error = "ibm".parse::<Criterion>().expect_err("no such criterion").to_string();
    for criterion in ALL {
        assert!(error.contains(criterion.name), "{error}");
    }
}

#[test]
fn ninety_nine_percent_is_proven_refuted_or_undecided() {
    let ibm = Criterion::default();
    assert_eq!(ibm.judge(&trial(vec![class("invite", 10_000, 10_000, 1.0)])), Verdict::Pass);
    assert_eq!(ibm.judge(&trial(vec![class("invite", 10_000, 9_800, 1.0)])), Verdict::Fail);
    assert_eq!(ibm.judge(&trial(vec![class("invite", 10_000, 9_900, 1.0)])), Verdict::Undecided);
    assert_eq!(ibm.judge(&trial(vec![class("invite", 100, 100, 1.0)])), Verdict::Undecided);
}

#[test]
fn every_class_must_pass_and_the_worst_decides() {
    let ibm = Criterion::default();
    let good = class("answered", 10_000, 10_000, 1.0);
    assert_eq!(ibm.judge(&trial(vec![good.clone(), class("abandoned", 400, 300, 1.0)])), Verdict::Fail);
    assert_eq!(ibm.judge(&trial(vec![good.clone(), class("abandoned", 40, 40, 1.0)])), Verdict::Undecided);
    assert_eq!(ibm.judge(&trial(vec![good.clone(), class("abandoned", 400, 400, 1.0)])), Verdict::Pass);
    assert!((ibm.worst_success(&trial(vec![good, class("abandoned", 400, 300, 1.0)])) - 0.75).abs() < 1e-12);
}

#[test]
fn a_trial_without_attempts_is_undecided() {
    for criterion in ALL {
        assert_eq!(criterion.judge(&TrialReport::default()), Verdict::Undecided, "{}", criterion.name);
        assert_eq!(criterion.judge(&trial(vec![class("invite", 0, 0, 1.0)])), Verdict::Undecided);
    }
}

#[test]
fn columbia_limits_the_mean_to_one_second_for_register_and_two_for_calls() {
    let columbia = named("columbia2006");
    assert_eq!(columbia.judge(&trial(vec![class("register", 1000, 600, 900.0)])), Verdict::Pass);
    assert_eq!(columbia.judge(&trial(vec![class("register", 1000, 600, 1100.0)])), Verdict::Fail);
    assert_eq!(columbia.judge(&trial(vec![class("invite", 1000, 600, 1900.0)])), Verdict::Pass);
    assert_eq!(columbia.judge(&trial(vec![class("invite", 1000, 600, 2100.0)])), Verdict::Fail);
    assert_eq!(columbia.judge(&trial(vec![class("invite", 1000, 400, 1.0)])), Verdict::Fail);
    // A class with its own name is a call if an 18x was timed.
    let mut own = class("late-shift", 1000, 1000, 1900.0);
    assert_eq!(columbia.judge(&trial(vec![own.clone()])), Verdict::Fail);
    own.first_18x = Some(LatencyReport::default());
    assert_eq!(columbia.judge(&trial(vec![own])), Verdict::Pass);
}

#[test]
fn carrier_needs_99_999_percent_and_200_ms_at_99_9_percent() {
    let carrier = named("carrier");
    let many = 1_000_000;
    assert_eq!(carrier.judge(&trial(vec![class("invite", many, many, 199.0)])), Verdict::Pass);
    assert_eq!(carrier.judge(&trial(vec![class("invite", many, many, 201.0)])), Verdict::Fail);
    assert_eq!(carrier.judge(&trial(vec![class("invite", many, many - 100, 1.0)])), Verdict::Fail);
    assert_eq!(carrier.judge(&trial(vec![class("invite", 1000, 1000, 1.0)])), Verdict::Undecided);
}

#[test]
fn a_percentile_among_the_failed_ones_fails() {
    let mut lost = class("invite", 1_000_000, 1_000_000, 1.0);
    lost.latency_planned.p999_ms = None;
    assert_eq!(named("carrier").judge(&trial(vec![lost])), Verdict::Fail);
}

#[test]
fn sustainable_means_processed_within_the_window() {
    let barepc = named("barepc");
    let mut slow = trial(vec![class("register", 10_000, 10_000, 1.0)]);
    assert_eq!(barepc.judge(&slow), Verdict::Pass);
    // All succeed in the end, but 5 % of them only after the window.
    slow.throughput = 950.0;
    assert_eq!(barepc.judge(&slow), Verdict::Fail);
    assert_eq!(Criterion::default().judge(&slow), Verdict::Pass);
}

#[test]
fn a_trial_is_hopeless_only_when_the_remaining_successes_cannot_save_it() {
    let ibm = Criterion::default();
    // 10,000 planned (10,400 at most): 100 failures may still come out at 99 %, 300 may not.
    assert!(!ibm.certain(&[(2000, 1900, 100)], &[10_000.0]));
    assert!(ibm.certain(&[(2000, 1700, 300)], &[10_000.0]));
    assert!(ibm.certain(&[(2000, 2000, 0), (2000, 1700, 300)], &[10_000.0, 10_000.0]));
    assert!(!ibm.certain(&[], &[]));
    assert!(!ibm.certain(&[(2000, 1700, 300)], &[f64::NAN]));
}

#[test]
fn classes_are_offered_by_their_weights() {
    let expected = expected_offered(&crate::scenario::sipstone_mix(), 100.0, Duration::from_secs(10));
    assert!((expected[0] - 700.0).abs() < 1e-9 && (expected[1] - 300.0).abs() < 1e-9, "{expected:?}");
    assert!(!Criterion::default().certain(&[(10, 0, 10)], &expected_offered(&[], 1.0, Duration::ZERO)));
}

proptest! {
    #[test]
    fn what_was_certain_is_judged_so_at_the_end(
        planned in 100_u64..100_000, so_far in 0.0_f64..1.0, failing in 0.0_f64..0.1,
    ) {
        let offered = (planned as f64 * so_far) as u64;
        let failed = (offered as f64 * failing) as u64;
        let ibm = Criterion::default();
        if ibm.certain(&[(offered, offered - failed, failed)], &[planned as f64]) {
            let end = trial(vec![class("invite", planned, planned - failed, 1.0)]);
            prop_assert_eq!(ibm.judge(&end), Verdict::Fail);
        }
    }
}
