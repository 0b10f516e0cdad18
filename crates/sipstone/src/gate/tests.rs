//! Tests of gates: what they accept, what they refuse, and what they decide.

use super::*;
use crate::report::model::{ClassReport, LatencyReport, Peak, Second, ServerSecond, TrialReport};
use proptest::prelude::*;

fn trial(phase: &str, rate: f64, p99_ms: Option<f64>) -> TrialReport {
    TrialReport {
        phase: phase.into(),
        rate,
        throughput: rate,
        measure_s: 10.0,
        all: ClassReport {
            offered: 10_000,
            succeeded: 9_995,
            success: 0.9995,
            latency_planned: LatencyReport {
                p99_ms,
                p999_ms: p99_ms.map(|ms| ms * 2.0),
                ..LatencyReport::default()
            },
            ..ClassReport::default()
        },
        ..TrialReport::default()
    }
}

fn subject(name: &str, peak: f64) -> Subject {
    let mut trials = vec![trial("ramp", 1000.0, Some(900.0))];
    trials.extend((0..3).map(|k| trial("confirm", peak, Some(3.0 + f64::from(k)))));
    trials.push(trial("overload", peak * 1.5, None));
    Subject {
        name: name.into(),
        trials,
        peak: Some(Peak { rate: peak, low: peak, high: peak * 1.02, ..Peak::default() }),
        ..Subject::default()
    }
}

fn report(subjects: Vec<Subject>) -> Report {
    Report { subjects, ..Report::default() }
}

fn passes(gate: &str, report: &Report, base: Option<&Report>) -> bool {
    let results = Gate::parse(gate).expect("a gate").evaluate(report, base).expect("results");
    assert!(!results.is_empty());
    results.iter().all(|result| result.pass)
}

fn refused(gate: &str) -> String {
    Gate::parse(gate).expect_err("no gate").to_string()
}

#[test]
fn a_gate_compares_with_a_value_and_its_unit() {
    let report = report(vec![subject("invite", 4000.0)]);
    // The mean of the three full trials is 4 ms; ramp and overload do not count.
    for (gate, pass) in [
        ("p99 <= 5ms", true),
        ("p99<=4ms", true),
        ("p99 < 4 ms", false),
        ("p99 <= 0.005s", true),
        ("p99 <= 3900us", false),
        ("p99 <= 3900µs", false),
        ("p99.9 <= 8", true),
        ("p999 > 8", false),
        ("success >= 99.9%", true),
        ("success >= 0.9999", false),
        ("peak >= 4000/s", true),
        ("peak > 4e3", false),
        ("throughput >= 3999", true),
        ("retransmissions <= 0", true),
    ] {
        assert_eq!(passes(gate, &report, None), pass, "{gate}");
    }
}

#[test]
fn a_gate_compares_with_the_base() {
    let base = report(vec![subject("invite", 4000.0)]);
    let slower = report(vec![subject("invite", 3800.0)]);
    assert!(passes("peak >= 0.95*base", &slower, Some(&base)));
    assert!(!passes("peak >= 0.97 * base", &slower, Some(&base)));
    assert!(!passes("peak >= base", &slower, Some(&base)));
    assert!(passes("p99 <= 1.05*base", &slower, Some(&base)));
    let results =
        Gate::parse("peak >= 0.97*base").expect("a gate").evaluate(&slower, Some(&base)).expect("results");
    assert_eq!(results[0].limit, Some(3880.0));
    assert_eq!(results[0].sentence, "invite: peak is 3800/s, but must be >= 3880/s (0.97 x base)");
}

#[test]
fn base_without_a_base_report_is_an_error_and_without_its_subject_a_failure() {
    let report = report(vec![subject("invite", 4000.0)]);
    let gate = Gate::parse("peak >= base").expect("a gate");
    assert!(gate.needs_base());
    let error = gate.evaluate(&report, None).expect_err("no base").to_string();
    assert!(error.contains("--base"), "{error}");
    let other = super::tests::report(vec![subject("register", 4000.0)]);
    let results = gate.evaluate(&report, Some(&other)).expect("results");
    assert!(
        !results[0].pass && results[0].sentence.contains("base report has no such number"),
        "{results:?}"
    );
}

#[test]
fn a_gate_with_a_subject_is_about_it_only() {
    let report = report(vec![subject("invite", 4000.0), subject("mix:sipstone", 900.0)]);
    assert!(passes("invite: peak >= 4000", &report, None));
    assert!(passes("mix:sipstone: peak <= 900", &report, None));
    assert!(!passes("peak >= 4000", &report, None));
    let error =
        evaluate(&[Gate::parse("invit: peak >= 1").expect("a gate")], &report, None).expect_err("unknown");
    assert!(error.to_string().contains("invite, mix:sipstone"), "{error}");
    assert!(Gate::parse("peak >= 1").expect("a gate").evaluate(&super::tests::report(vec![]), None).is_err());
}

#[test]
fn an_infinite_percentile_fails_at_most_and_meets_at_least() {
    let mut report = report(vec![subject("invite", 4000.0)]);
    report.subjects[0].trials[2] = trial("confirm", 4000.0, None);
    assert!(!passes("p99 <= 5ms", &report, None));
    assert!(!passes("p99 < 1000s", &report, None));
    assert!(passes("p99 >= 5ms", &report, None));
    let results = Gate::parse("p99 <= 5ms").expect("a gate").evaluate(&report, None).expect("results");
    assert_eq!(results[0].value, None);
    assert!(results[0].sentence.contains("infinite"));
}

#[test]
fn what_was_not_measured_never_passes() {
    let mut report = report(vec![subject("invite", 4000.0)]);
    for gate in
        ["cpu_us_per_op <= 1s", "cpu_us_per_op >= 0", "bye_p99 >= 0", "udp_drops <= 9", "resident >= 0"]
    {
        assert!(!passes(gate, &report, None), "{gate}");
    }
    let results =
        Gate::parse("cpu_us_per_op <= 1").expect("a gate").evaluate(&report, None).expect("results");
    assert!(results[0].sentence.contains("--sut-pid"), "{results:?}");
    report.subjects[0].trials.clear();
    assert!(!passes("success >= 0", &report, None));
    report.subjects[0].peak = None;
    assert!(!passes("peak >= 0", &report, None));
}

#[test]
fn runs_at_several_rates_must_all_hold_and_compare_with_their_own_rate() {
    let runs = |first: f64, second: f64| {
        let trials = vec![trial("run", 1000.0, Some(first)), trial("run", 2000.0, Some(second))];
        report(vec![Subject { name: "invite".into(), trials, ..Subject::default() }])
    };
    let base = runs(1.0, 10.0);
    assert!(passes("p99 <= 10ms", &base, None));
    assert!(!passes("p99 <= 5ms", &base, None));
    assert!(passes("p99 <= 1.1*base", &runs(1.05, 10.5), Some(&base)));
    assert!(!passes("p99 <= 1.1*base", &runs(2.0, 9.0), Some(&base)));
}

#[test]
fn memory_and_drops_come_from_the_series() {
    let mut report = report(vec![subject("invite", 4000.0)]);
    for trial in &mut report.subjects[0].trials {
        trial.warm_up_s = 1.0;
        for second in 0..3 {
            let server = ServerSecond {
                resident_bytes: 48 << 20,
                udp_drops: Some(if second == 0 { 100 } else { 1 }),
                ..ServerSecond::default()
            };
            trial.series.push(Second { second, server: Some(server), ..Second::default() });
        }
    }
    assert!(passes("resident <= 48MiB", &report, None));
    assert!(!passes("resident <= 48MB", &report, None));
    // Those of the warm-up do not count.
    assert!(passes("udp_drops <= 2", &report, None));
}

#[test]
fn an_unknown_metric_is_an_error_with_the_nearest_name_and_the_list() {
    let error = refused("peek >= 1");
    assert!(error.contains("did you mean peak?"), "{error}");
    for metric in &METRICS {
        assert!(error.contains(metric.name), "{error}");
    }
    assert!(!refused("somethingelse >= 1").contains("did you mean"));
    assert!(refused("CPU >= 1").contains("no metric"));
}

#[test]
fn nonsense_is_refused_with_a_sentence() {
    for (gate, words) in [
        ("", "there is no <="),
        ("peak", "there is no <="),
        ("peak == 5", "use <="),
        ("peak = 5", "use <="),
        ("peak >=", "is no value"),
        ("peak >= -5", "is no value"),
        ("peak >= inf", "is no value"),
        ("peak >= nan", "is no value"),
        ("peak >= 5ms", "no unit of peak; use /s, cps"),
        ("p99 <= 5 parsecs", "no unit of p99"),
        ("retransmissions <= 5%", "has no unit"),
        ("success >= 99.9", "more than everything"),
        ("success >= 101%", "more than everything"),
        ("peak >= 0*base", "is no factor"),
        ("peak >= x*base", "is no factor"),
        ("peak >= 2*bass", "is not base"),
        (": peak >= 2", "subject before the colon"),
        ("p99 <= 5 <= 6", "no unit"),
    ] {
        let error = refused(gate);
        assert!(error.contains(words), "{gate}: {error}");
    }
    assert!(refused(&"p".repeat(GATE_LENGTH_MAX + 1)).contains("at most"));
}

#[test]
fn help_lists_every_metric_with_its_unit() {
    let help = help();
    for metric in &METRICS {
        assert!(help.contains(metric.name) && help.contains(metric.doc), "{}", metric.name);
    }
}

#[test]
fn distances_are_levenshteins() {
    for (from, to, expected) in
        [("kitten", "sitting", 3), ("", "abc", 3), ("abc", "", 3), ("peak", "peak", 0)]
    {
        assert_eq!(distance(from, to), expected);
    }
}

proptest! {
    #[test]
    fn any_text_is_a_gate_or_an_error(text in "\\PC{0,60}") {
        let _ = Gate::parse(&text);
    }

    #[test]
    fn text_that_is_nearly_a_gate_does_not_panic(
        text in "[a-z:]{0,6}(peak|p99|success|µs)? ?[<>=]{0,3} ?[0-9.eE+µ*%-]{0,8}(base|ms|%|µs)?",
    ) {
        if let Ok(gate) = Gate::parse(&text) {
            let report = report(vec![subject("invite", 4000.0)]);
            let _ = gate.evaluate(&report, Some(&report));
        }
    }

    #[test]
    fn every_metric_operator_and_number_is_read_back(index in 0..METRICS.len(), value in 0.0_f64..1.0, operator in 0..4_usize) {
        let operator = [Operator::AtMost, Operator::Below, Operator::AtLeast, Operator::Above][operator];
        let text = format!("invite: {} {} {value}", METRICS[index].name, operator.word());
        let gate = Gate::parse(&text).expect("a gate");
        prop_assert_eq!(gate.metric.name, METRICS[index].name);
        prop_assert_eq!(gate.operator, operator);
        prop_assert_eq!(gate.limit, Limit::Value(value));
        prop_assert_eq!(gate.subject.as_deref(), Some("invite"));
    }
}
