//! Tests of comparisons.

use super::*;
use crate::report::model::{ClassReport, LatencyReport, Peak};

fn trial(phase: &str, rate: f64, p99_ms: Option<f64>, succeeded: u64) -> TrialReport {
    TrialReport {
        phase: phase.into(),
        rate,
        throughput: rate * succeeded as f64 / 100_000.0,
        all: ClassReport {
            offered: 100_000,
            succeeded,
            success: succeeded as f64 / 100_000.0,
            latency_planned: LatencyReport { p99_ms, ..LatencyReport::default() },
            ..ClassReport::default()
        },
        ..TrialReport::default()
    }
}

/// A subject with a peak, three full trials at it with these latencies, and one in overload.
fn subject(name: &str, peak: f64, p99_ms: [f64; 3]) -> Subject {
    let mut trials: Vec<TrialReport> =
        p99_ms.into_iter().map(|ms| trial("confirm", peak, Some(ms), 99_990)).collect();
    trials.push(trial("overload", peak * 1.5, None, 60_000));
    Subject {
        name: name.into(),
        criterion: "ibm2007".into(),
        trials,
        peak: Some(Peak {
            rate: peak,
            low: peak,
            high: peak * 1.02,
            highest_throughput: peak,
            ..Peak::default()
        }),
        ..Subject::default()
    }
}

fn report(subjects: Vec<Subject>) -> Report {
    Report { label: "a server".into(), version: "1".into(), subjects, ..Report::default() }
}

fn row_of(comparison: &Comparison, metric: &str, at: &str) -> Row {
    let rows = comparison.subjects.iter().flat_map(|subject| &subject.rows);
    let mut found = rows.filter(|row| row.metric == metric && row.at == at);
    found.next().unwrap_or_else(|| panic!("no {metric} at {at:?}")).clone()
}

#[test]
fn a_report_is_the_same_as_itself() {
    let base = report(vec![subject("invite", 4000.0, [3.0, 3.01, 2.99])]);
    let found = compare(&base, &base);
    assert_eq!((found.count(Change::Better), found.count(Change::Worse)), (0, 0));
    assert_eq!(row_of(&found, "peak", "").change, Change::Same);
    assert_eq!(row_of(&found, "p99", "peak").change, Change::Same);
    assert_eq!(row_of(&found, "success", "peak").change, Change::Same);
    assert!(found.remarks.is_empty() && found.only_base.is_empty() && found.only_new.is_empty());
}

#[test]
fn a_higher_peak_is_better_and_a_lower_one_worse() {
    let base = report(vec![subject("invite", 4000.0, [3.0, 3.1, 2.9])]);
    for (peak, change) in [(4400.0, Change::Better), (3600.0, Change::Worse), (4060.0, Change::Unclear)] {
        let row =
            row_of(&compare(&base, &report(vec![subject("invite", peak, [3.0, 3.1, 2.9])])), "peak", "");
        assert_eq!(row.change, change, "{row:?}");
        assert!((row.ratio.expect("a ratio") - peak / 4000.0).abs() < 1e-12);
        assert!(row.interval.is_some());
    }
}

#[test]
fn a_lower_latency_is_better_and_scatter_makes_it_unclear() {
    let base = report(vec![subject("invite", 4000.0, [3.0, 3.1, 2.9])]);
    for (latencies, change) in [
        ([2.0, 2.1, 1.9], Change::Better),
        ([4.0, 4.1, 3.9], Change::Worse),
        ([3.0, 6.0, 2.0], Change::Unclear),
    ] {
        let row = row_of(&compare(&base, &report(vec![subject("invite", 4000.0, latencies)])), "p99", "peak");
        assert_eq!(row.change, change, "{row:?}");
        assert_eq!((row.base_trials, row.new_trials), (3, 3));
    }
}

#[test]
fn single_trials_have_a_ratio_but_no_verdict() {
    let single = |ms| {
        let trials = vec![trial("run", 500.0, Some(ms), 100_000)];
        report(vec![Subject { name: "invite".into(), trials, ..Subject::default() }])
    };
    let row = row_of(&compare(&single(2.0), &single(4.0)), "p99", "500/s");
    assert_eq!((row.ratio, row.interval, row.change), (Some(2.0), None, Change::Unclear));
}

#[test]
fn success_needs_no_second_trial_since_its_attempts_are_many() {
    let single = |succeeded| {
        let trials = vec![trial("run", 500.0, Some(1.0), succeeded)];
        report(vec![Subject { name: "invite".into(), trials, ..Subject::default() }])
    };
    let change = |base, new| row_of(&compare(&single(base), &single(new)), "success", "500/s").change;
    assert_eq!(change(99_990, 99_995), Change::Same);
    assert_eq!(change(99_990, 99_000), Change::Worse);
    assert_eq!(change(98_000, 99_000), Change::Better);
    assert_eq!(change(0, 0), Change::Same);
}

#[test]
fn a_latency_that_became_infinite_is_worse() {
    let base = report(vec![subject("invite", 4000.0, [3.0, 3.1, 2.9])]);
    let mut new = base.clone();
    new.subjects[0].trials[1].all.latency_planned.p99_ms = None;
    let found = compare(&base, &new);
    let row = row_of(&found, "p99", "peak");
    assert_eq!((row.new, row.ratio, row.change), (None, None, Change::Worse));
    assert!(found.table().contains("infinite"));
    assert_eq!(row_of(&compare(&new, &base), "p99", "peak").change, Change::Better);
    // In overload both are.
    assert_eq!(row_of(&found, "p99", "1.50 x peak").change, Change::Same);
}

#[test]
fn what_only_one_report_measured_is_unclear_and_what_neither_did_is_left_out() {
    let base = report(vec![subject("invite", 4000.0, [3.0, 3.1, 2.9])]);
    let mut new = base.clone();
    for trial in &mut new.subjects[0].trials {
        trial.cpu_us_per_op = Some(50.0);
    }
    let found = compare(&base, &new);
    assert_eq!(row_of(&found, "cpu_us_per_op", "peak").change, Change::Unclear);
    assert!(found.table().contains("not measured"));
    assert!(found.subjects[0].rows.iter().all(|row| row.metric != "resident"));
}

#[test]
fn the_slope_of_cpu_time_uses_both_intervals() {
    let with = |value: f64, reach: f64| {
        let slope = Estimate { value, low: value - reach, high: value + reach };
        let cpu_slope = Some(slope);
        report(vec![Subject { cpu_slope, ..subject("invite", 4000.0, [3.0, 3.1, 2.9]) }])
    };
    let change = |base, new| row_of(&compare(&base, &new), "cpu_us_slope", "").change;
    assert_eq!(change(with(50.0, 0.5), with(45.0, 0.5)), Change::Better);
    assert_eq!(change(with(50.0, 0.5), with(55.0, 0.5)), Change::Worse);
    assert_eq!(change(with(50.0, 5.0), with(53.0, 5.0)), Change::Unclear);
    assert_eq!(change(with(50.0, 0.1), with(50.1, 0.1)), Change::Same);
}

#[test]
fn subjects_and_loads_of_only_one_report_are_named() {
    let mut base = report(vec![
        subject("invite", 4000.0, [3.0, 3.1, 2.9]),
        subject("register", 9000.0, [1.0, 1.1, 0.9]),
    ]);
    base.subjects[0].trials.push(trial("run", 100.0, Some(1.0), 100_000));
    let authenticated = Subject { auth: Auth::Challenge, ..subject("invite", 700.0, [3.0, 3.1, 2.9]) };
    let mut new = report(vec![subject("invite", 4000.0, [3.0, 3.1, 2.9]), authenticated]);
    new.subjects[0].trials.push(trial("run", 200.0, Some(1.0), 100_000));
    let found = compare(&base, &new);
    assert_eq!(found.only_base, ["register"]);
    assert_eq!(found.only_new, ["invite (auth challenge)"]);
    assert_eq!(
        found.subjects[0].remarks,
        ["only the new report has trials at 200/s", "only the base report has trials at 100/s"]
    );
    let table = found.table();
    for words in
        ["only in the base report: register", "only in the new report: invite (auth challenge)", "at 200/s"]
    {
        assert!(table.contains(words), "{table}");
    }
}

#[test]
fn searches_are_also_compared_at_the_highest_rate_of_the_ramp_that_both_passed() {
    let with = |peak: f64, ms: f64| {
        let mut subject = subject("invite", peak, [3.0, 3.1, 2.9]);
        for (rate, verdict) in
            [(1000.0, "pass"), (1500.0, "pass"), (2250.0, if peak > 2000.0 { "pass" } else { "fail" })]
        {
            let ramp = trial("ramp", rate, Some(ms), 100_000);
            subject.trials.push(TrialReport { verdict: verdict.into(), ..ramp });
        }
        report(vec![subject])
    };
    let found = compare(&with(4000.0, 1.0), &with(1900.0, 2.0));
    let row = row_of(&found, "p99", "1500/s (ramp)");
    assert_eq!((row.ratio, row.change), (Some(2.0), Change::Unclear));
    assert!(found.subjects[0].rows.iter().all(|row| row.at != "2250/s (ramp)" && row.at != "1000/s (ramp)"));
    assert!(found.subjects[0].remarks[0].contains("4000/s in the base report, 1900/s"), "{found:?}");
}

#[test]
fn different_machines_criteria_and_lengths_are_remarked() {
    let base = report(vec![subject("invite", 4000.0, [3.0, 3.1, 2.9])]);
    let mut new = base.clone();
    new.quick = true;
    new.version = "2".into();
    new.generator_host = Host { processor: "P4".into(), cpus: 1, threads: 3, ..Host::default() };
    new.invalid = vec!["late".into()];
    new.subjects[0].criterion = "carrier".into();
    let found = compare(&base, &new);
    let all = format!("{:?} {:?}", found.remarks, found.subjects[0].remarks);
    for words in [
        "--quick",
        "different machines",
        "version of sipstone",
        "threads",
        "report is invalid: late",
        "carrier in the new",
    ] {
        assert!(all.contains(words), "{words}: {all}");
    }
    assert!(found.table().contains("note: different machines"));
}

#[test]
fn zeros_are_the_same_as_zeros_and_losses_where_none_were_are_worse() {
    let with = |retransmissions: f64| {
        let mut report = report(vec![subject("invite", 4000.0, [3.0, 3.1, 2.9])]);
        for trial in &mut report.subjects[0].trials {
            trial.all.retransmissions_sent = retransmissions;
        }
        report
    };
    let change =
        |base: f64, new: f64| row_of(&compare(&with(base), &with(new)), "retransmissions", "peak").change;
    assert_eq!(change(0.0, 0.0), Change::Same);
    assert_eq!(change(0.0, 0.1), Change::Worse);
    assert_eq!(change(0.1, 0.0), Change::Better);
    assert_eq!(
        row_of(&compare(&with(0.0), &with(0.1)), "retransmissions", "1.50 x peak").change,
        Change::Unclear
    );
}

#[test]
fn a_comparison_survives_json() {
    let base = report(vec![subject("invite", 4000.0, [3.0, 3.1, 2.9])]);
    let found = compare(&base, &report(vec![subject("invite", 4400.0, [2.0, 2.1, 1.9])]));
    let text = serde_json::to_string(&found).expect("JSON");
    // Not bit by bit: the last digit of a number may change on the way.
    let read: Comparison = serde_json::from_str(&text).expect("a comparison");
    assert_eq!(read.table(), found.table());
    assert_eq!(compare(&Report::default(), &Report::default()).count(Change::Unclear), 0);
}
