//! The summary that a terminal shows at the end: everything that one needs, aligned, without colour.

use super::model::{ClassReport, LatencyReport, Report, Subject, TrialReport};
use super::tables::{self, Section, Table};
use super::words::{
    self, NOTHING, bytes, estimate, failures, milliseconds, number, or_dash, percent, subject_title, whole,
};
use super::{csv, redact};
use crate::tally::{Direction, Example};

/// Characters that one line of an example may have.
const EXAMPLE_LINE_MAX: usize = 100;

/// Failures whose examples are shown, per subject.
const EXAMPLES_SHOWN_MAX: usize = 5;

/// The summary of a report, lines of up to about 110 characters.
#[must_use]
pub fn summary(report: &Report) -> String {
    let report = redact::report(report);
    let mut out = String::new();
    let quick = if report.quick { ", quick (times divided by ten)" } else { "" };
    line(&mut out, &format!("{} of {}, {}{quick}", report.command, report.target, report.started_at));
    // The configurations of a grid stand in its tables; each alone is in the page.
    let subjects = if report.grid.is_some() { &[] } else { report.subjects.as_slice() };
    for subject in subjects {
        out.push('\n');
        subject_summary(&mut out, &report, subject);
    }
    for section in tables::of(&report) {
        out.push('\n');
        section_summary(&mut out, &section);
    }
    let invalid = words::invalid(&report);
    out.push('\n');
    for remark in &report.remarks {
        line(&mut out, &format!("note       {remark}"));
    }
    if invalid.is_empty() {
        line(&mut out, "valid      yes");
    }
    for reason in &invalid {
        line(&mut out, &format!("INVALID    {reason}"));
    }
    printable(&out)
}

/// A heading, what it came to, and its tables.
fn section_summary(out: &mut String, section: &Section) {
    line(out, &section.title);
    line(out, &section.lead);
    for table in &section.tables {
        out.push('\n');
        table_summary(out, table);
    }
}

/// A table with its columns aligned: words on the left, figures on the right.
fn table_summary(out: &mut String, table: &Table) {
    line(out, &table.caption);
    let heads: Vec<String> = table
        .columns
        .iter()
        .map(|column| match column.unit {
            "" => column.name.to_owned(),
            unit => format!("{} ({unit})", column.name),
        })
        .collect();
    let width = |at: usize| {
        let cells = table.rows.iter().filter_map(|row| row.get(at)).chain(heads.get(at));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    for row in std::iter::once(&heads).chain(&table.rows) {
        let mut text = String::from(" ");
        for ((cell, column), width) in row.iter().zip(&table.columns).zip(&widths) {
            text += &if column.word { format!(" {cell:<width$} ") } else { format!(" {cell:>width$} ") };
        }
        line(out, &text);
    }
    for note in &table.notes {
        line(out, &format!("  {note}"));
    }
}

/// Adds a line without blanks at its end.
fn line(out: &mut String, text: &str) {
    out.push_str(text.trim_end());
    out.push('\n');
}

/// Text without control characters, which could move a terminal's cursor or colour what follows: a server chooses part
/// of what stands in examples.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

fn subject_summary(out: &mut String, report: &Report, subject: &Subject) {
    line(out, &format!("{} (criterion {})", subject_title(subject), subject.criterion));
    let Some((number, trial)) = words::telling_trial(subject) else {
        return line(out, "nothing was measured");
    };
    if subject.peak.is_some() {
        peak(out, report, subject);
        trials(out, subject);
        line(out, &format!("trial {number}, {} at {}/s:", trial.phase, words::number(trial.rate)));
    }
    one_trial(out, report, subject, trial);
}

fn peak(out: &mut String, report: &Report, subject: &Subject) {
    let Some(peak) = &subject.peak else { return };
    let confirmed = |verdict: Option<&str>| {
        let confirms = peak.trace.iter().filter(|step| step.phase == "confirm" && step.rate == peak.rate);
        confirms.filter(|step| verdict.is_none_or(|verdict| step.verdict == verdict)).count()
    };
    let of = confirmed(None);
    let times = if of > 0 {
        format!("; {} of {of} confirmations passed", confirmed(Some("pass")))
    } else {
        String::new()
    };
    line(
        out,
        &format!(
            "peak       {}/s ({} to {} at 95 %{times}; {} trials to find it)",
            number(peak.rate),
            number(peak.low),
            number(peak.high),
            peak.search_trials
        ),
    );
    if peak.highest_throughput > 0.0 {
        let most = number(peak.highest_throughput);
        line(out, &format!("most       {most}/s carried in any trial, overload included"));
    }
    if let Some(ended) = &peak.ended {
        line(out, &format!("           {ended}"));
    }
    let limit = subject.classes.first().and_then(|class| report.calibration.get(class.scenario.facts().id));
    if let Some(limit) = limit {
        let bound = if peak.generator_bound { ": the peak is generator-bound" } else { "" };
        line(
            out,
            &format!("generator  reaches {}/s against a server that does nothing{bound}", number(*limit)),
        );
    }
    if let Some(slope) = &subject.cpu_slope {
        line(out, &format!("server     {} µs CPU per operation, the slope over all rates", estimate(slope)));
    }
}

/// A table of all trials.
fn trials(out: &mut String, subject: &Subject) {
    line(
        out,
        &format!(
            "{:>5}  {:<8} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8} {:>7}  verdict",
            "trial",
            "phase",
            "rate",
            "offered",
            "carried",
            "success %",
            "p50 ms",
            "p99 ms",
            "CPU µs",
            "cores"
        ),
    );
    for (at, trial) in subject.trials.iter().enumerate() {
        let latency = &trial.all.latency_planned;
        let invalid = if trial.invalid.is_empty() { "" } else { ", INVALID" };
        line(
            out,
            &format!(
                "{at:>5}  {:<8} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8} {:>7}  {}{invalid}",
                trial.phase,
                number(trial.rate),
                number(trial.offered_rate),
                number(trial.throughput),
                percent(trial.all.success),
                quantile(&trial.all, latency.p50_ms),
                quantile(&trial.all, latency.p99_ms),
                or_dash(trial.cpu_us_per_op),
                or_dash(trial.cpu_cores),
                trial.verdict
            ),
        );
    }
}

/// A quantile of a class from the planned start.
fn quantile(class: &ClassReport, value: Option<f64>) -> String {
    milliseconds(value, class.latency_planned.count, class.succeeded < class.offered)
}

fn one_trial(out: &mut String, report: &Report, subject: &Subject, trial: &TrialReport) {
    let all = &trial.all;
    let early = if trial.ended_early { ", ended early: the verdict was certain" } else { "" };
    line(
        out,
        &format!(
            "offered    {}/s of {}/s asked: {} operations in {} s{early} (seed {})",
            number(trial.offered_rate),
            number(trial.rate),
            whole(all.offered),
            number(trial.measure_s),
            trial.seed
        ),
    );
    let verdict = if trial.verdict.is_empty() { NOTHING } else { &trial.verdict };
    line(out, &format!("carried    {}/s, verdict {verdict}", number(trial.throughput)));
    let classes = if trial.classes.len() > 1 { trial.classes.as_slice() } else { &[] };
    for class in std::iter::once(all).chain(classes) {
        line(
            out,
            &format!(
                "success    {} % ({} to {} %, one-sided 95 % each): {} of {}{}",
                percent(class.success),
                percent(class.success_low),
                words::upper_bound(class.success_high),
                whole(class.succeeded),
                whole(class.offered),
                of_class(class)
            ),
        );
    }
    for class in std::iter::once(all).chain(classes) {
        latencies(out, class);
    }
    messages(out, subject, trial);
    connections(out, trial);
    server(out, trial);
    generator(out, report, trial);
    failed(out, subject, trial);
}

/// `, answered` for a class of a mix, nothing for all.
fn of_class(class: &ClassReport) -> String {
    if class.name == "all" { String::new() } else { format!(", {}", class.name) }
}

fn latencies(out: &mut String, class: &ClassReport) {
    let head = format!("latency ms{}", of_class(class));
    line(
        out,
        &format!(
            "{head:<22} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
            "p50", "p90", "p95", "p99", "p99.9", "longest", "mean"
        ),
    );
    let failed = class.succeeded < class.offered;
    let mut row = |name: &str, latency: &LatencyReport, failed: bool| {
        let cell = |value: Option<f64>| milliseconds(value, latency.count, failed);
        line(
            out,
            &format!(
                "  {name:<20} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
                cell(latency.p50_ms),
                cell(latency.p90_ms),
                cell(latency.p95_ms),
                cell(latency.p99_ms),
                cell(latency.p999_ms),
                or_dash(latency.max_ms),
                or_dash(latency.mean_ms)
            ),
        );
    };
    row("from planned start", &class.latency_planned, failed);
    row("from the send", &class.latency_sent, false);
    for (name, latency) in [("INVITE to 18x", &class.first_18x), ("BYE to 200", &class.bye)] {
        if let Some(latency) = latency {
            row(name, latency, false);
        }
    }
    let planned = &class.latency_planned;
    if failed && planned.p999_ms.is_none() {
        line(
            out,
            &format!("  {}: the quantile lies among the failed attempts, which never ended", words::INFINITE),
        );
    }
}

fn messages(out: &mut String, subject: &Subject, trial: &TrialReport) {
    for (facts, class) in subject.classes.iter().zip(&trial.classes) {
        let name = if trial.classes.len() > 1 { of_class(class) } else { String::new() };
        let trying = if facts.scenario.facts().messages.2 {
            format!("; 100 Trying to {} % of INVITEs", percent(class.trying))
        } else {
            String::new()
        };
        line(
            out,
            &format!(
                "messages   {} in, {} out per success, {} and {} expected{trying}{name}",
                number(class.messages_in),
                number(class.messages_out),
                facts.messages_in,
                facts.messages_out
            ),
        );
    }
    let all = &trial.all;
    if all.retransmissions_sent > 0.0 || all.retransmissions_received > 0.0 {
        line(
            out,
            &format!(
                "again      {} sent and {} received again per operation",
                number(all.retransmissions_sent),
                number(all.retransmissions_received)
            ),
        );
    }
}

/// Connections and handshakes of the window.
fn connections(out: &mut String, trial: &TrialReport) {
    let Some(connections) = &trial.connections else { return };
    let failures: Vec<String> =
        connections.failures.iter().map(|(cause, count)| format!("{cause} {}", whole(*count))).collect();
    let failed =
        if failures.is_empty() { String::new() } else { format!("; failed: {}", failures.join(", ")) };
    line(
        out,
        &format!(
            "connections {} opened to the server, {} by it; {} closed by it{failed}",
            whole(connections.opened),
            whole(connections.accepted),
            whole(connections.closed_by_server)
        ),
    );
    for (who, handshakes) in [("callers", &connections.tls_client), ("callees", &connections.tls_server)] {
        if handshakes.full + handshakes.resumed > 0 {
            line(
                out,
                &format!(
                    "handshakes {} full and {} resumed with {who}, p50 {} ms, p99 {} ms",
                    whole(handshakes.full),
                    whole(handshakes.resumed),
                    or_dash(handshakes.time.p50_ms),
                    or_dash(handshakes.time.p99_ms)
                ),
            );
        }
    }
    for (suite, count) in &connections.suites {
        line(out, &format!("           {suite}: {}", whole(*count)));
    }
}

fn server(out: &mut String, trial: &TrialReport) {
    let Some(cores) = trial.cpu_cores else {
        return line(out, "server     not watched (--sut-pid, --sut-cgroup or --sut-exec)");
    };
    let user =
        trial.cpu_user_us_per_op.map_or_else(String::new, |user| format!(" ({} in user mode)", number(user)));
    let memory = csv::resident_max(trial)
        .map_or_else(String::new, |resident| format!(", {} resident", bytes(resident)));
    let drops =
        csv::drops(trial).map_or_else(String::new, |drops| format!(", {} datagrams lost", whole(drops)));
    line(
        out,
        &format!(
            "server     {} µs CPU per operation{user}, {} cores{memory}{drops}",
            or_dash(trial.cpu_us_per_op),
            number(cores)
        ),
    );
}

fn generator(out: &mut String, report: &Report, trial: &TrialReport) {
    let generator = &trial.generator;
    line(
        out,
        &format!(
            "generator  {} % of {} threads, send lag p99 {} ms, {} datagrams lost, {} strays",
            percent(generator.utilisation),
            report.generator_host.threads,
            or_dash(generator.send_lag_p99_ms),
            whole(generator.socket_drops),
            whole(generator.strays)
        ),
    );
}

/// Causes, and of each the first example's deciding line.
fn failed(out: &mut String, subject: &Subject, trial: &TrialReport) {
    let total: u64 = trial.all.failures.values().sum();
    if total == 0 {
        return line(out, "failures   none");
    }
    line(out, &format!("failures   {}: {}", whole(total), failures(&trial.all)));
    let elsewhere = subject.trials.iter().filter(|other| !std::ptr::eq(*other, trial));
    let mut shown: Vec<&str> = Vec::new();
    for example in trial.examples.iter().chain(elsewhere.flat_map(|other| &other.examples)) {
        let Some(cause) = example.failure.as_deref() else { continue };
        if shown.len() < EXAMPLES_SHOWN_MAX
            && trial.all.failures.contains_key(cause)
            && !shown.contains(&cause)
        {
            shown.push(cause);
            line(out, &format!("           {cause}: {}", deciding_line(example)));
        }
    }
}

/// The line of an example that tells most: the first of the last message received, else of the last sent.
fn deciding_line(example: &Example) -> String {
    let received = example.messages.iter().rfind(|message| message.direction == Direction::Received);
    let sent = || example.messages.last();
    let Some(message) = received.or_else(sent) else {
        return format!("class {}, without messages", example.class);
    };
    let first: String = message.text.lines().next().unwrap_or("").chars().take(EXAMPLE_LINE_MAX).collect();
    let way = if received.is_some() { "the last answer was" } else { "no answer to" };
    format!("class {}, {way} {first:?}", example.class)
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn summary_of_a_run_says_everything() {
        insta::assert_snapshot!(summary(&sample::run()));
    }

    #[test]
    fn summary_of_a_search_has_the_peak_and_every_trial() {
        let report = sample::peak();
        let text = summary(&report);
        assert!(
            text.contains(&format!(
                "peak       {}/s",
                number(report.subjects[0].peak.as_ref().unwrap().rate)
            )),
            "{text}"
        );
        for trial in &report.subjects[0].trials {
            assert!(text.contains(&number(trial.offered_rate)), "{text}");
        }
        assert!(text.contains("valid      yes"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 130 && line.trim_end() == line), "{text}");
    }

    #[test]
    fn tables_of_grid_and_connections_are_aligned() {
        let text = summary(&super::super::tables::tests::report());
        let rows: Vec<&str> =
            text.lines().filter(|line| line.trim_start().starts_with("local-tls")).collect();
        assert_eq!(rows.len(), 6, "three configurations and three predictions");
        assert!(text.contains("Kept connections") && text.contains("memory per connection"), "{text}");
        assert!(text.lines().all(|line| line.trim_end() == line), "{text}");
    }

    #[test]
    fn handshakes_of_a_trial_are_told() {
        let mut report = sample::run();
        let tls_client = super::super::model::HandshakeReport { full: 1, resumed: 999, ..Default::default() };
        let suites = [("TLSv1_3 TLS_AES_256_GCM_SHA384".to_owned(), 1000)].into();
        report.subjects[0].trials[0].connections = Some(super::super::model::ConnectionReport {
            opened: 1000,
            tls_client,
            suites,
            ..Default::default()
        });
        let text = summary(&report);
        assert!(text.contains("handshakes 1 full and 999 resumed with callers"), "{text}");
        assert!(text.contains("TLS_AES_256_GCM_SHA384: 1,000"), "{text}");
    }

    #[test]
    fn invalid_report_says_why_in_capitals() {
        let mut report = sample::run();
        report.invalid = vec!["send lag p99 of 3 ms is over 1 ms".into()];
        report.subjects[0].trials[0].invalid = report.invalid.clone();
        let text = summary(&report);
        assert_eq!(text.matches("INVALID").count(), 1, "{text}");
        assert!(!text.contains("valid      yes"));
    }

    #[test]
    fn quantile_among_the_failed_is_infinite() {
        let mut report = sample::peak();
        let overloaded = report.subjects[0].trials.pop().unwrap();
        assert!(overloaded.all.latency_planned.p99_ms.is_none());
        report.subjects[0].trials = vec![overloaded];
        report.subjects[0].peak = None;
        assert!(summary(&report).contains('∞'));
    }

    #[test]
    fn control_characters_of_a_server_do_not_reach_the_terminal() {
        let mut report = sample::run();
        let trial = &mut report.subjects[0].trials[0];
        trial.examples[0].failure = Some("timeout".into());
        trial.all.failures.insert("timeout".into(), 1);
        for message in &mut trial.examples[0].messages {
            message.text = "SIP/2.0 500 \u{1b}[2J\u{9b}31m\rgone\r\n".into();
        }
        let text = summary(&report);
        assert!(text.contains("SIP/2.0 500"), "{text}");
        assert!(!text.contains(['\u{1b}', '\u{9b}', '\r']), "{text}");
    }

    #[test]
    fn empty_report_has_a_summary() {
        assert!(summary(&Report::default()).contains("valid"));
        let report = Report { subjects: vec![Subject::default()], ..Report::default() };
        assert!(summary(&report).contains("nothing was measured"));
    }
}
