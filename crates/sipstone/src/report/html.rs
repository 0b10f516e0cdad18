//! The report as one page that needs nothing but itself: no network, no server, and for the tables no JavaScript.
//!
//! Everything that a server or a user could have written is escaped by the template's engine; the data for the plots
//! stand in a block that is no script, without a `<`; and a content security policy allows no script but ours, by hash.

use super::history::{self, Figure};
use super::model::{ClassFacts, ClassReport, LatencyReport, Report, Subject, TrialReport};
use super::tables::{self, Section};
use super::words::{
    self, NOTHING, bytes, estimate, milliseconds, number, or_dash, percent, sentence, subject_title,
    upper_bound, whole,
};
use super::{csv, ladders, redact};
use base64::Engine as _;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::io::{self, Write};

const TEMPLATE: &str = include_str!("../../assets/report.html");
const STYLE: &str = include_str!("../../assets/report.css");
const SCRIPT: &str = include_str!("../../assets/report.js");
const UPLOT_STYLE: &str = include_str!("../../assets/uPlot.min.css");
const UPLOT_SCRIPT: &str = include_str!("../../assets/uPlot.iife.min.js");
const UPLOT_LICENCE: &str = include_str!("../../assets/uPlot.LICENSE");

/// Messages per operation that differ from the table by more than this share are marked (0.1 %).
const MESSAGES_OFF: f64 = 0.001;

/// Causes of failure with a column of their own; more share one.
const CAUSES_MAX: usize = 8;

/// The page.
#[must_use]
pub fn page(report: &Report) -> String {
    let report = redact::report(report);
    let page = Page::of(&report);
    let mut engine = minijinja::Environment::new();
    engine.set_trim_blocks(true);
    engine.set_undefined_behavior(minijinja::UndefinedBehavior::Strict);
    engine
        .add_template("report.html", TEMPLATE)
        .expect("invariant: the template is a constant, and a test renders it");
    let template = engine.get_template("report.html").expect("invariant: it was added above");
    template
        .render(&page)
        .expect("invariant: the template asks only for fields of Page, and a test renders all of it")
}

/// Writes the page.
///
/// # Errors
/// The writer's.
pub fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(page(report).as_bytes())
}

/// What the template shows: everything as text already.
#[derive(Serialize)]
struct Page {
    version: String,
    command: String,
    quick: bool,
    started_at: String,
    title: String,
    invalid: Vec<String>,
    remarks: Vec<String>,
    /// Term, value, whether it is code.
    facts: Vec<(&'static str, String, bool)>,
    /// The grid and kept connections.
    sections: Vec<Section>,
    subjects: Vec<SubjectView>,
    data: String,
    history: String,
    style: &'static str,
    uplot_style: &'static str,
    scripts: Vec<String>,
    script_hashes: String,
}

#[derive(Serialize)]
struct SubjectView {
    anchor: String,
    title: String,
    about: String,
    sentence: String,
    peak: String,
    interval: String,
    cpu: String,
    note: String,
    told: usize,
    told_rate: String,
    told_success: String,
    told_p50: String,
    told_p99: String,
    told_messages: String,
    /// How many different rates were offered: one point is no curve.
    rates: usize,
    watched: bool,
    searched: bool,
    infinite: bool,
    ended_early: bool,
    trials: Vec<TrialView>,
    classes: Vec<String>,
    history: Vec<FigureView>,
    causes: Vec<String>,
    failures: Vec<FailureRow>,
    examples: Vec<ladders::Ladder>,
    /// Of each trial over connections: number, phase, and what became of them.
    connections: Vec<[String; 11]>,
}

#[derive(Serialize)]
struct FigureView {
    paper: &'static str,
    processor: &'static str,
    what: &'static str,
    text: String,
}

#[derive(Serialize)]
struct TrialView {
    phase: String,
    rate: String,
    offered: String,
    carried: String,
    success: String,
    success_low: String,
    success_high: String,
    p50: String,
    p90: String,
    p99: String,
    p999: String,
    longest: String,
    cpu: String,
    cores: String,
    memory: String,
    verdict: String,
    verdict_class: &'static str,
    invalid: bool,
    classes: Vec<ClassView>,
    latencies: Vec<LatencyRow>,
    generator: [String; 10],
}

#[derive(Serialize)]
struct ClassView {
    name: String,
    offered: String,
    succeeded: String,
    success: String,
    success_low: String,
    success_high: String,
    planned: [String; 7],
    messages_in: String,
    messages_out: String,
    expected_in: String,
    expected_out: String,
    in_off: bool,
    out_off: bool,
    trying: String,
    sent_again: String,
    received_again: String,
}

#[derive(Serialize)]
struct LatencyRow {
    what: String,
    cells: [String; 7],
}

#[derive(Serialize)]
struct FailureRow {
    number: usize,
    phase: String,
    rate: String,
    failed: String,
    counts: Vec<String>,
}

impl Page {
    fn of(report: &Report) -> Page {
        let scripts =
            vec![format!("/*! uPlot 1.6.32\n{UPLOT_LICENCE}\n*/\n{UPLOT_SCRIPT}"), SCRIPT.to_owned()];
        let hashes: Vec<String> = scripts.iter().map(|script| hash(script)).collect();
        let history: Vec<Vec<Figure>> = report.subjects.iter().map(history::of).collect();
        Page {
            version: report.version.clone(),
            command: report.command.clone(),
            quick: report.quick,
            started_at: report.started_at.clone(),
            title: title(report),
            invalid: words::invalid(report),
            remarks: report.remarks.clone(),
            facts: facts(report),
            sections: tables::of(report),
            subjects: report
                .subjects
                .iter()
                .enumerate()
                .map(|(at, subject)| subject_view(report, at, subject))
                .collect(),
            data: data(report),
            history: data(&history),
            style: STYLE,
            uplot_style: UPLOT_STYLE,
            scripts,
            script_hashes: hashes.join(" "),
        }
    }
}

/// A script's place in the content security policy.
fn hash(script: &str) -> String {
    format!("'sha256-{}'", base64::engine::general_purpose::STANDARD.encode(Sha256::digest(script)))
}

/// JSON that can stand in an HTML block: without `<` it can neither end the block nor begin a comment.
fn data(value: &impl Serialize) -> String {
    let text =
        serde_json::to_string(value).expect("invariant: strings are the keys, numbers are finite or null");
    text.replace('<', "\\u003c")
}

fn title(report: &Report) -> String {
    let label = if report.label.is_empty() { &report.target } else { &report.label };
    if report.grid.is_some() {
        return format!("the TLS grid: {label}");
    }
    if report.connect.is_some() {
        return format!("kept connections: {label}");
    }
    match report.subjects.as_slice() {
        [subject] => format!("{}: {label}", subject_title(subject)),
        subjects => format!("{label}: {} measurements", subjects.len()),
    }
}

fn facts(report: &Report) -> Vec<(&'static str, String, bool)> {
    let host = &report.generator_host;
    let trials = || report.subjects.iter().flat_map(|subject| &subject.trials);
    let each = |word: fn(&TrialReport) -> String| {
        let words: BTreeSet<String> = trials().map(word).collect();
        words.into_iter().collect::<Vec<_>>().join(", ")
    };
    let mut facts = vec![
        ("Target", report.target.clone(), false),
        ("Server", server(report), false),
        (
            "Generator",
            format!(
                "{}, {} processors, {}, kernel {}; {} worker threads",
                host.processor,
                host.cpus,
                bytes(host.memory_bytes),
                host.kernel,
                host.threads
            ),
            false,
        ),
    ];
    for agent in &host.agents {
        let offset = format!("clock {} µs off, round trip {} µs", agent.clock_offset_us, agent.round_trip_us);
        facts.push(("Agent", format!("{}: {offset}", agent.address), false));
    }
    let criteria: BTreeSet<String> = report.subjects.iter().map(criterion).collect();
    facts.push(("Criterion", criteria.into_iter().collect::<Vec<_>>().join("; "), false));
    facts.push((
        "Arrivals",
        format!(
            "{}; {} users; seed {}; T1 {} ms",
            each(|trial| trial.shape.clone()),
            each(|trial| whole(trial.users.into())),
            seeds(report),
            each(|trial| number(trial.t1_ms))
        ),
        false,
    ));
    facts.push((
        "Times",
        format!(
            "{} s of warm-up, {} s measured{}",
            each(|trial| number(trial.warm_up_s)),
            each(|trial| number(trial.measure_s)),
            if report.quick { ": quick, a tenth of the criterion’s" } else { "" }
        ),
        false,
    ));
    if !report.calibration.is_empty() {
        let limits = report.calibration.iter().map(|(id, rate)| format!("{id} {}/s", number(*rate)));
        let limits: Vec<String> = limits.collect();
        facts.push((
            "Generator’s limit",
            format!("{} against a server that does nothing", limits.join(", ")),
            false,
        ));
    }
    facts.push((
        "Command",
        report.command_line.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
        true,
    ));
    facts.push(("Started", report.started_at.clone(), false));
    facts
}

/// The seed of all trials, or the first's when each has its own.
fn seeds(report: &Report) -> String {
    let mut seeds: Vec<u64> =
        report.subjects.iter().flat_map(|s| &s.trials).map(|trial| trial.seed).collect();
    let first = seeds.first().map_or_else(|| NOTHING.into(), ToString::to_string);
    seeds.sort_unstable();
    seeds.dedup();
    if seeds.len() > 1 { format!("{first} and others, see the CSV or JSON report") } else { first }
}

/// A word as a shell would need it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

fn criterion(subject: &Subject) -> String {
    let required = subject.required_success.map(|share| format!(" (at least {} % succeed)", percent(share)));
    format!("{}{}", subject.criterion, required.unwrap_or_default())
}

fn server(report: &Report) -> String {
    let Some(server) = &report.server else { return "not watched: no CPU or memory figures".into() };
    let mut text = format!("watched by {}", server.method);
    if let Some(pid) = server.pid {
        text += &format!(", process {pid}");
    }
    if let Some(command) = &server.command {
        text += &format!(", started as “{command}”");
    }
    if !server.cpus.is_empty() {
        let cpus: Vec<String> = server.cpus.iter().map(ToString::to_string).collect();
        text += &format!(", on CPU {}", cpus.join(", "));
    }
    text + if server.same_host { ", on the generator’s host" } else { ", on another host" }
}

fn subject_view(report: &Report, at: usize, subject: &Subject) -> SubjectView {
    let told = words::telling_trial(subject);
    let of_told =
        |text: &dyn Fn(&TrialReport) -> String| told.map_or_else(|| NOTHING.into(), |(_, trial)| text(trial));
    let peak = subject.peak.as_ref();
    let cpu = subject.cpu_slope.map(|slope| slope.value).or(told.and_then(|(_, trial)| trial.cpu_us_per_op));
    let causes = causes(subject);
    let rates: BTreeSet<u64> = subject.trials.iter().map(|trial| trial.rate.to_bits()).collect();
    SubjectView {
        anchor: format!("s{at}"),
        title: subject_title(subject),
        about: about(report, subject),
        sentence: sentence(subject),
        peak: peak.map_or_else(|| NOTHING.into(), |peak| number(peak.rate)),
        interval: peak
            .map_or_else(|| NOTHING.into(), |peak| format!("{} to {}", number(peak.low), number(peak.high))),
        cpu: or_dash(cpu),
        note: note(subject),
        told: told.map_or(0, |(number, _)| number),
        told_rate: of_told(&|trial| number(trial.rate)),
        told_success: of_told(&|trial| percent(trial.all.success)),
        told_p50: of_told(&|trial| planned(&trial.all)[0].clone()),
        told_p99: of_told(&|trial| planned(&trial.all)[3].clone()),
        told_messages: of_told(&|trial| {
            format!("{} + {}", number(trial.all.messages_in), number(trial.all.messages_out))
        }),
        rates: rates.len(),
        watched: subject.trials.iter().any(|trial| trial.cpu_cores.is_some()),
        searched: peak.is_some_and(|peak| !peak.trace.is_empty()),
        infinite: subject
            .trials
            .iter()
            .any(|trial| trial.all.latency_planned.p999_ms.is_none() && trial.all.offered > 0),
        ended_early: subject.trials.iter().any(|trial| trial.ended_early),
        trials: subject.trials.iter().map(|trial| trial_view(subject, trial)).collect(),
        classes: subject.classes.iter().map(|class| class.name.clone()).collect(),
        history: history::of(subject).iter().map(figure_view).collect(),
        failures: failure_rows(subject, &causes),
        causes,
        examples: ladders::of(subject),
        connections: connection_rows(subject),
    }
}

fn figure_view(figure: &Figure) -> FigureView {
    FigureView {
        paper: figure.paper,
        processor: figure.processor,
        what: figure.what,
        text: number(figure.rate),
    }
}

/// One line: what the scenario is, and what the search or the slope found beside the peak.
fn about(report: &Report, subject: &Subject) -> String {
    let mut parts = Vec::new();
    match subject.classes.as_slice() {
        [class] => {
            let facts = class.scenario.facts();
            parts.push(format!("{}: {}. Timed: {}.", facts.id, facts.summary, facts.latency));
        }
        classes => {
            let weights: f64 = classes.iter().map(|class| class.weight).sum();
            let share = |class: &ClassFacts| {
                format!(
                    "{} % {} ({})",
                    number(100.0 * class.weight / weights),
                    class.name,
                    class.scenario.facts().summary
                )
            };
            parts.push(format!("A mix: {}.", classes.iter().map(share).collect::<Vec<_>>().join("; ")));
        }
    }
    if let Some(slope) = &subject.cpu_slope {
        parts.push(format!("CPU per operation as a slope over all rates: {} µs at 95 %.", estimate(slope)));
    }
    if let Some(peak) = &subject.peak {
        parts.push(format!("The search took {} trials.", peak.search_trials));
        if peak.highest_throughput > 0.0 {
            let most = number(peak.highest_throughput);
            parts.push(format!("Most that any trial carried, overload included: {most}/s."));
        }
        if peak.generator_bound {
            parts.push("The peak is over half of what the generator itself can do: generator-bound.".into());
        }
    } else if report.calibration.is_empty() && report.command != "run" {
        parts.push("The generator was not calibrated.".into());
    }
    parts.join(" ")
}

fn note(subject: &Subject) -> String {
    let mut notes = Vec::new();
    if subject.trials.iter().any(|trial| !trial.invalid.is_empty()) {
        notes.push("INVALID".to_owned());
    }
    if let Some(peak) = &subject.peak {
        notes.extend(peak.generator_bound.then(|| "generator-bound".to_owned()));
        notes.extend(peak.ended.clone());
    }
    notes.join("; ")
}

/// A class's quantiles from the planned start, with the longest and the mean.
fn planned(class: &ClassReport) -> [String; 7] {
    latency_cells(&class.latency_planned, class.succeeded < class.offered)
}

/// p50, p90, p95, p99, p99.9, longest, mean.
fn latency_cells(latency: &LatencyReport, failed: bool) -> [String; 7] {
    let cell = |value| milliseconds(value, latency.count, failed);
    [
        cell(latency.p50_ms),
        cell(latency.p90_ms),
        cell(latency.p95_ms),
        cell(latency.p99_ms),
        cell(latency.p999_ms),
        or_dash(latency.max_ms),
        or_dash(latency.mean_ms),
    ]
}

fn trial_view(subject: &Subject, trial: &TrialReport) -> TrialView {
    let [p50, p90, _, p99, p999, longest, _] = planned(&trial.all);
    let early = if trial.ended_early { ", early" } else { "" };
    let (sign, verdict_class) = match trial.verdict.as_str() {
        "pass" => ("✓ ", "pass"),
        "fail" => ("✗ ", "fail"),
        _ => ("", "undecided"),
    };
    let word = if trial.verdict.is_empty() { NOTHING } else { &trial.verdict };
    TrialView {
        phase: trial.phase.clone(),
        rate: number(trial.rate),
        offered: number(trial.offered_rate),
        carried: number(trial.throughput),
        success: percent(trial.all.success),
        success_low: percent(trial.all.success_low),
        success_high: upper_bound(trial.all.success_high),
        p50,
        p90,
        p99,
        p999,
        longest,
        cpu: or_dash(trial.cpu_us_per_op),
        cores: or_dash(trial.cpu_cores),
        memory: csv::resident_max(trial).map_or_else(|| NOTHING.into(), bytes),
        verdict: format!("{sign}{word}{early}"),
        verdict_class,
        invalid: !trial.invalid.is_empty(),
        classes: trial
            .classes
            .iter()
            .enumerate()
            .map(|(at, class)| class_view(subject.classes.get(at), class))
            .collect(),
        latencies: latency_rows(trial),
        generator: generator_cells(trial),
    }
}

fn class_view(facts: Option<&ClassFacts>, class: &ClassReport) -> ClassView {
    let off = |seen: f64, expected: Option<u32>| {
        expected.is_some_and(|expected| {
            class.succeeded > 0 && (seen - f64::from(expected)).abs() > f64::from(expected) * MESSAGES_OFF
        })
    };
    let expected_in = facts.map(|facts| facts.messages_in);
    let expected_out = facts.map(|facts| facts.messages_out);
    let calls = facts.is_some_and(|facts| facts.scenario.facts().messages.2);
    let text =
        |expected: Option<u32>| expected.map_or_else(|| NOTHING.into(), |expected| expected.to_string());
    ClassView {
        name: class.name.clone(),
        offered: whole(class.offered),
        succeeded: whole(class.succeeded),
        success: percent(class.success),
        success_low: percent(class.success_low),
        success_high: upper_bound(class.success_high),
        planned: planned(class),
        messages_in: number(class.messages_in),
        messages_out: number(class.messages_out),
        in_off: off(class.messages_in, expected_in),
        out_off: off(class.messages_out, expected_out),
        expected_in: text(expected_in),
        expected_out: text(expected_out),
        trying: if calls { percent(class.trying) } else { NOTHING.into() },
        sent_again: number(class.retransmissions_sent),
        received_again: number(class.retransmissions_received),
    }
}

fn latency_rows(trial: &TrialReport) -> Vec<LatencyRow> {
    let all = &trial.all;
    let mut rows = vec![
        LatencyRow { what: "from the planned start".into(), cells: planned(all) },
        LatencyRow {
            what: "from the send, successes".into(),
            cells: latency_cells(&all.latency_sent, false),
        },
    ];
    for (what, latency) in [("INVITE to the first 18x", &all.first_18x), ("BYE to 200", &all.bye)] {
        if let Some(latency) = latency {
            rows.push(LatencyRow { what: what.into(), cells: latency_cells(latency, false) });
        }
    }
    rows
}

fn generator_cells(trial: &TrialReport) -> [String; 10] {
    let generator = &trial.generator;
    [
        percent(generator.utilisation),
        or_dash(generator.send_lag_p50_ms),
        or_dash(generator.send_lag_p99_ms),
        or_dash(generator.send_lag_max_ms),
        or_dash(generator.callee_turnaround_p50_ms),
        or_dash(generator.callee_turnaround_p99_ms),
        whole(generator.datagrams_sent),
        whole(generator.datagrams_received),
        whole(generator.socket_drops),
        whole(generator.strays),
    ]
}

/// Connections and handshakes of each trial that had any.
fn connection_rows(subject: &Subject) -> Vec<[String; 11]> {
    let numbered = subject.trials.iter().enumerate();
    let row = |(number, trial): (usize, &TrialReport)| {
        let connections = trial.connections.as_ref()?;
        let (callers, callees) = (&connections.tls_client, &connections.tls_server);
        let failures: Vec<String> =
            connections.failures.iter().map(|(cause, count)| format!("{cause} {}", whole(*count))).collect();
        let time = if callers.time.count > 0 { &callers.time } else { &callees.time };
        Some([
            number.to_string(),
            trial.phase.clone(),
            whole(connections.opened),
            whole(connections.accepted),
            whole(connections.closed_by_server),
            or_dash(connections.connect.p50_ms),
            format!("{} + {}", whole(callers.full), whole(callers.resumed)),
            format!("{} + {}", whole(callees.full), whole(callees.resumed)),
            or_dash(time.p50_ms),
            or_dash(time.p99_ms),
            if failures.is_empty() { NOTHING.into() } else { failures.join(", ") },
        ])
    };
    numbered.filter_map(row).collect()
}

/// The causes of a subject's failures, the most frequent first; what is beyond [`CAUSES_MAX`] is added up as `others`.
fn causes(subject: &Subject) -> Vec<String> {
    let mut sums = std::collections::BTreeMap::<&str, u64>::new();
    for (cause, count) in subject.trials.iter().flat_map(|trial| &trial.all.failures) {
        *sums.entry(cause).or_default() += count;
    }
    let mut causes: Vec<_> = sums.into_iter().filter(|(_, count)| *count > 0).collect();
    causes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let others = causes.len() > CAUSES_MAX;
    let named = causes.into_iter().take(CAUSES_MAX).map(|(cause, _)| cause.to_owned());
    named.chain(others.then(|| "others".to_owned())).collect()
}

fn failure_rows(subject: &Subject, causes: &[String]) -> Vec<FailureRow> {
    let failed = |trial: &TrialReport| trial.all.failures.values().sum::<u64>();
    let row = |(number, trial): (usize, &TrialReport)| {
        let mut left = failed(trial);
        let counts = causes.iter().map(|cause| {
            let count =
                trial.all.failures.get(cause).copied().unwrap_or(if cause == "others" { left } else { 0 });
            left -= count.min(left);
            if count == 0 { String::new() } else { whole(count) }
        });
        FailureRow {
            number,
            phase: trial.phase.clone(),
            rate: words::number(trial.rate),
            counts: counts.collect(),
            failed: whole(failed(trial)),
        }
    };
    subject.trials.iter().enumerate().filter(|(_, trial)| failed(trial) > 0).map(row).collect()
}

/// The report that stands in a page.
#[cfg(test)]
pub(super) fn embedded(page: &str) -> Option<serde_json::Value> {
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"report-data\">")?;
    serde_json::from_str(rest.split_once("</script>")?.0).ok()
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use crate::tally::Failure;

    /// `SIPSTONE_SAMPLES=DIR cargo test -p sipstone pages_of_the_samples` writes them, to look at.
    #[test]
    fn pages_of_the_samples_are_whole() {
        let mut invalid = sample::run();
        invalid.invalid = vec!["send lag p99 of 3.1 ms is over 1 ms: the generator was late".into()];
        for (name, report) in [
            ("peak", sample::peak()),
            ("run", sample::run()),
            ("suite", sample::suite()),
            ("grid", super::super::tables::tests::report()),
            ("invalid", invalid),
        ] {
            let page = page(&report);
            if let Some(directory) = std::env::var_os("SIPSTONE_SAMPLES") {
                let write = |suffix: &str, text: &str| {
                    std::fs::write(std::path::Path::new(&directory).join(format!("{name}.{suffix}")), text)
                        .unwrap();
                };
                write("html", &page);
                write("json", &super::super::json::to_json(&report));
                write("txt", &super::super::text::summary(&report));
            }
            assert!(page.trim_end().ends_with("</html>"));
            for tag in ["section", "table", "figure", "svg", "tr", "td", "dl", "details", "script"] {
                let (opened, closed) =
                    (page.matches(&format!("<{tag}")).count(), page.matches(&format!("</{tag}>")).count());
                // `<tr` also begins `<track`, which the page has none of.
                assert_eq!(opened, closed, "{tag} in {name}");
            }
            assert!(!page.contains("src=\"") && !page.contains("http://"), "nothing is fetched");
            assert!(
                page.contains(&minijinja::HtmlEscape(&sentence(&report.subjects[0])).to_string())
                    || name == "suite"
            );
        }
    }

    #[test]
    fn connections_have_a_table_where_there_were_any() {
        let mut report = sample::run();
        assert!(!page(&report).contains("<caption>Connections</caption>"));
        let tls_client = super::super::model::HandshakeReport { full: 3, resumed: 4, ..Default::default() };
        report.subjects[0].trials[0].connections =
            Some(super::super::model::ConnectionReport { opened: 7, tls_client, ..Default::default() });
        let page = page(&report);
        assert!(page.contains("<caption>Connections</caption>") && page.contains("3 + 4"));
    }

    #[test]
    fn grid_and_kept_connections_have_their_tables() {
        let page = page(&super::super::tables::tests::report());
        assert!(page.contains("the TLS grid: "));
        assert!(page.contains("<caption>What a call is made of</caption>"));
        assert!(page.contains("<caption>Second by second</caption>") || page.contains("Second by second"));
        assert_eq!(embedded(&page).unwrap()["grid"]["rows"].as_array().unwrap().len(), 20);
    }

    #[test]
    fn page_of_an_empty_report_is_whole() {
        assert!(page(&Report::default()).contains("</html>"));
        let report = Report {
            subjects: vec![Subject { trials: vec![TrialReport::default()], ..Subject::default() }],
            ..Report::default()
        };
        assert!(page(&report).contains("</html>"));
    }

    #[test]
    fn hostile_server_and_user_cannot_run_a_script() {
        let hostile = "</script><script>alert(1)</script><!--<img src=x onerror=alert(1)>\"'{{ 1234*4321 }}";
        let mut report = sample::suite();
        (report.label, report.target) = (hostile.into(), hostile.into());
        report.command_line.push(hostile.into());
        (report.invalid, report.remarks) = (vec![hostile.into()], vec![hostile.into()]);
        report.generator_host.processor = hostile.into();
        for subject in &mut report.subjects {
            (subject.name, subject.criterion) = (hostile.into(), hostile.into());
            for class in &mut subject.classes {
                class.name = hostile.into();
            }
            for trial in &mut subject.trials {
                (trial.phase, trial.verdict, trial.shape) = (hostile.into(), hostile.into(), hostile.into());
                trial.all.failures.insert(hostile.into(), 3);
                for class in &mut trial.classes {
                    class.name = hostile.into();
                }
                for example in &mut trial.examples {
                    (example.class, example.failure) = (hostile.into(), Some(hostile.into()));
                    for message in &mut example.messages {
                        message.text = format!("SIP/2.0 200 {hostile}\r\nUser-Agent: {hostile}\r\n\r\n");
                    }
                }
            }
        }
        let ours = page(&sample::suite()).matches("<script").count();
        let page = page(&report);
        assert_eq!(page.matches("<script").count(), ours);
        assert!(!page.contains("<img") && !page.contains("<script>alert"));
        assert!(!page.contains("5332114"), "templates in data are not run");
        assert_eq!(embedded(&page).unwrap()["label"], hostile);
    }

    #[test]
    fn policy_allows_just_the_scripts_of_the_page() {
        let page = page(&sample::run());
        let policy = page.split_once("script-src ").unwrap().1.split_once("; style-src").unwrap().0;
        let policy = policy.replace("&#x27;", "'").replace("&#x2f;", "/");
        let mut scripts = 0;
        for (at, _) in page.match_indices("<script>") {
            let script = page[at + "<script>".len()..].split_once("</script>").unwrap().0;
            assert!(policy.contains(&hash(script)), "{policy}");
            scripts += 1;
        }
        assert_eq!(scripts, policy.split(' ').count());
    }

    #[test]
    fn passwords_are_not_in_the_page() {
        let mut report = sample::run();
        report.command_line.extend(["--password-format".into(), "s3cret{}".into()]);
        assert!(!page(&report).contains("s3cret"));
    }

    #[test]
    fn invalid_stands_before_everything_else() {
        let mut report = sample::run();
        report.subjects[0].trials[0].invalid = vec!["3 datagrams were lost".into()];
        let page = page(&report);
        assert!(page.contains("<title>INVALID: "));
        assert!(page.find("3 datagrams were lost").unwrap() < page.find("class=\"lead\"").unwrap());
    }

    #[test]
    fn rare_causes_share_a_column() {
        let mut report = sample::run();
        let failures = &mut report.subjects[0].trials[0].all.failures;
        *failures = (400..415).map(|status| (Failure::Status(status).word(), u64::from(status))).collect();
        let causes = causes(&report.subjects[0]);
        assert_eq!(causes.len(), CAUSES_MAX + 1);
        let rows = failure_rows(&report.subjects[0], &causes);
        assert_eq!(rows[0].counts.last().unwrap(), &whole((400..407).sum()));
    }

    #[test]
    fn words_for_the_shell_are_quoted() {
        assert_eq!(quoted("--rate=500"), "--rate=500");
        assert_eq!(quoted("exp:8.5s '"), "'exp:8.5s '\\'''");
        assert_eq!(quoted(""), "''");
    }
}
