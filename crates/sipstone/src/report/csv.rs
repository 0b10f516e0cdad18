//! The report as CSV (RFC 4180): one row per trial and class, with `all` for the classes together.
//!
//! The same numbers as in JSON, digit by digit. What is not known is an empty cell; so is a quantile that falls among
//! the failed attempts, whose time is infinite.

use super::model::{ClassReport, ConnectionReport, LatencyReport, Report, Subject, TrialReport};
use super::redact;
use std::io::{self, Write};

/// One row's sources.
struct Row<'a> {
    report: &'a Report,
    subject: &'a Subject,
    number: usize,
    trial: &'a TrialReport,
    class: &'a ClassReport,
}

/// A column: its name, what it holds, and where that comes from. `None`: an empty cell.
type Column = (&'static str, &'static str, fn(&Row<'_>) -> Option<String>);

fn some(value: impl ToString) -> Option<String> {
    Some(value.to_string())
}

fn opt(value: Option<impl ToString>) -> Option<String> {
    value.map(|value| value.to_string())
}

fn of(latency: Option<&LatencyReport>, pick: fn(&LatencyReport) -> Option<f64>) -> Option<String> {
    opt(latency.and_then(pick))
}

/// Every column, in order. Trial figures (server, generator) stand only in rows of the class `all`.
const COLUMNS: [Column; 65] = [
    ("label", "the user's label", |row| some(&row.report.label)),
    ("started_at", "RFC 3339, UTC", |row| some(&row.report.started_at)),
    ("target", "where the load went", |row| some(&row.report.target)),
    ("subject", "scenario or mix", |row| some(&row.subject.name)),
    ("criterion", "the criterion's name", |row| some(&row.subject.criterion)),
    ("trial", "number within the subject, from 0", |row| some(row.number)),
    ("phase", "run, ramp, bisect, confirm, overload", |row| some(&row.trial.phase)),
    ("class", "class of the mix, or all", |row| some(&row.class.name)),
    ("verdict", "pass, fail, undecided", |row| some(&row.trial.verdict)),
    ("valid", "whether the trial is valid", |row| some(row.trial.invalid.is_empty())),
    ("ended_early", "whether it ended when its verdict was certain", |row| some(row.trial.ended_early)),
    ("seed", "of everything random", |row| some(row.trial.seed)),
    ("rate", "asked for, all classes, 1/s", |row| some(row.trial.rate)),
    ("offered_rate", "planned starts, all classes, 1/s", |row| some(row.trial.offered_rate)),
    ("throughput", "successful ends, all classes, 1/s", |row| some(row.trial.throughput)),
    ("warm_up_s", "s", |row| some(row.trial.warm_up_s)),
    ("measure_s", "the window, s", |row| some(row.trial.measure_s)),
    ("offered", "operations planned in the window", |row| some(row.class.offered)),
    ("succeeded", "of these, succeeded", |row| some(row.class.succeeded)),
    ("failed", "of these, failed", |row| some(row.class.failures.values().sum::<u64>())),
    ("failures", "by cause: timeout=2 status-503=1", |row| {
        let words: Vec<String> =
            row.class.failures.iter().map(|(word, count)| format!("{word}={count}")).collect();
        some(words.join(" "))
    }),
    ("success", "share, 0 to 1", |row| some(row.class.success)),
    ("success_low", "one-sided 95 % Wilson bound", |row| some(row.class.success_low)),
    ("success_high", "one-sided 95 % Wilson bound", |row| some(row.class.success_high)),
    ("planned_mean_ms", "from the planned start, successes only", |row| {
        of(Some(&row.class.latency_planned), |l| l.mean_ms)
    }),
    ("planned_p50_ms", "from the planned start, failed attempts infinite", |row| {
        of(Some(&row.class.latency_planned), |l| l.p50_ms)
    }),
    ("planned_p90_ms", "the same", |row| of(Some(&row.class.latency_planned), |l| l.p90_ms)),
    ("planned_p95_ms", "the same", |row| of(Some(&row.class.latency_planned), |l| l.p95_ms)),
    ("planned_p99_ms", "the same", |row| of(Some(&row.class.latency_planned), |l| l.p99_ms)),
    ("planned_p999_ms", "the same", |row| of(Some(&row.class.latency_planned), |l| l.p999_ms)),
    ("planned_max_ms", "longest of a success", |row| of(Some(&row.class.latency_planned), |l| l.max_ms)),
    ("sent_mean_ms", "from the send, successes only", |row| of(Some(&row.class.latency_sent), |l| l.mean_ms)),
    ("sent_p50_ms", "the same", |row| of(Some(&row.class.latency_sent), |l| l.p50_ms)),
    ("sent_p90_ms", "the same", |row| of(Some(&row.class.latency_sent), |l| l.p90_ms)),
    ("sent_p95_ms", "the same", |row| of(Some(&row.class.latency_sent), |l| l.p95_ms)),
    ("sent_p99_ms", "the same", |row| of(Some(&row.class.latency_sent), |l| l.p99_ms)),
    ("sent_p999_ms", "the same", |row| of(Some(&row.class.latency_sent), |l| l.p999_ms)),
    ("sent_max_ms", "the same", |row| of(Some(&row.class.latency_sent), |l| l.max_ms)),
    ("first_18x_p50_ms", "INVITE to the first 18x", |row| of(row.class.first_18x.as_ref(), |l| l.p50_ms)),
    ("first_18x_p99_ms", "INVITE to the first 18x", |row| of(row.class.first_18x.as_ref(), |l| l.p99_ms)),
    ("bye_p50_ms", "BYE to 200", |row| of(row.class.bye.as_ref(), |l| l.p50_ms)),
    ("bye_p99_ms", "BYE to 200", |row| of(row.class.bye.as_ref(), |l| l.p99_ms)),
    ("messages_in", "into the server per success", |row| some(row.class.messages_in)),
    ("messages_out", "out of the server per success", |row| some(row.class.messages_out)),
    ("trying", "share of INVITEs with a 100", |row| some(row.class.trying)),
    ("retransmissions_sent", "per offered operation", |row| some(row.class.retransmissions_sent)),
    ("retransmissions_received", "per offered operation", |row| some(row.class.retransmissions_received)),
    ("cpu_us_per_op", "CPU time of the server per success, µs", |row| {
        row.trial_only(|trial| opt(trial.cpu_us_per_op))
    }),
    ("cpu_user_us_per_op", "of that in user mode, µs", |row| {
        row.trial_only(|trial| opt(trial.cpu_user_us_per_op))
    }),
    ("cpu_cores", "CPU of the server, cores", |row| row.trial_only(|trial| opt(trial.cpu_cores))),
    ("resident_bytes_max", "largest resident memory of the server", |row| {
        row.trial_only(|trial| opt(resident_max(trial)))
    }),
    ("udp_drops", "datagrams that the server's sockets lost", |row| {
        row.trial_only(|trial| opt(drops(trial)))
    }),
    ("generator_utilisation", "share of its threads' time", |row| {
        row.trial_only(|trial| some(trial.generator.utilisation))
    }),
    ("send_lag_p99_ms", "planned start to sent", |row| {
        row.trial_only(|trial| opt(trial.generator.send_lag_p99_ms))
    }),
    ("send_lag_max_ms", "planned start to sent", |row| {
        row.trial_only(|trial| opt(trial.generator.send_lag_max_ms))
    }),
    ("generator_drops", "datagrams that its sockets lost", |row| {
        row.trial_only(|trial| some(trial.generator.socket_drops))
    }),
    ("strays", "datagrams of no operation", |row| row.trial_only(|trial| some(trial.generator.strays))),
    ("caller_transport", "what the callers' messages travelled in", |row| {
        opt(row.subject.links.as_ref().map(|links| links.caller.transport))
    }),
    ("callee_transport", "what the callees' messages travelled in", |row| {
        opt(row.subject.links.as_ref().map(|links| links.callee.transport))
    }),
    ("connections_opened", "to the server, in the window", |row| row.connections(|all| all.opened)),
    ("connections_accepted", "from the server, in the window", |row| row.connections(|all| all.accepted)),
    ("callers_handshakes_full", "with the server, in the window", |row| {
        row.connections(|all| all.tls_client.full)
    }),
    ("callers_handshakes_resumed", "of an earlier session", |row| {
        row.connections(|all| all.tls_client.resumed)
    }),
    ("callees_handshakes_full", "by the server, in the window", |row| {
        row.connections(|all| all.tls_server.full)
    }),
    ("callees_handshakes_resumed", "of an earlier session", |row| {
        row.connections(|all| all.tls_server.resumed)
    }),
];

impl Row<'_> {
    fn trial_only(&self, value: fn(&TrialReport) -> Option<String>) -> Option<String> {
        if std::ptr::eq(self.class, &raw const self.trial.all) { value(self.trial) } else { None }
    }

    fn connections(&self, count: fn(&ConnectionReport) -> u64) -> Option<String> {
        let all = std::ptr::eq(self.class, &raw const self.trial.all);
        opt(self.trial.connections.as_ref().filter(|_| all).map(count))
    }
}

/// The largest resident memory of the server that was seen in a trial, bytes.
pub(super) fn resident_max(trial: &TrialReport) -> Option<u64> {
    trial.series.iter().filter_map(|second| Some(second.server?.resident_bytes)).max()
}

/// The datagrams that the server's sockets lost in a trial; `None` where no second tells.
pub(super) fn drops(trial: &TrialReport) -> Option<u64> {
    let seconds = trial.series.iter().filter_map(|second| second.server?.udp_drops);
    seconds.fold(None, |sum, drops| Some(sum.unwrap_or(0) + drops))
}

/// The columns' names with what each holds.
pub fn columns() -> impl Iterator<Item = (&'static str, &'static str)> {
    COLUMNS.iter().map(|(name, holds, _)| (*name, *holds))
}

/// Writes the head and the rows: of each trial first `all`, then its classes if there is more than one.
///
/// # Errors
/// The writer's.
pub fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let report = redact::report(report);
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(columns().map(|(name, _)| name))?;
    for subject in &report.subjects {
        for (number, trial) in subject.trials.iter().enumerate() {
            let classes = if trial.classes.len() > 1 { trial.classes.as_slice() } else { &[] };
            for class in std::iter::once(&trial.all).chain(classes) {
                let row = Row { report: &report, subject, number, trial, class };
                writer.write_record(COLUMNS.iter().map(|(_, _, value)| value(&row).unwrap_or_default()))?;
            }
        }
    }
    writer.flush()
}

#[cfg(test)]
mod tests {
    use super::super::{html, json, sample};
    use super::*;
    use serde_json::Value;

    fn rows(report: &Report) -> Vec<std::collections::BTreeMap<String, String>> {
        let mut bytes = Vec::new();
        write(report, &mut bytes).unwrap();
        csv::Reader::from_reader(bytes.as_slice()).deserialize().map(|row| row.unwrap()).collect()
    }

    /// Where each numeric column stands in the JSON, from the trial or from its class.
    fn path_in_json(column: &str, class: &str) -> String {
        let of_class = |field: &str| format!("{class}/{field}");
        let of_latency = |prefix: &str, field: &str| {
            column.strip_prefix(prefix).map(|quantile| of_class(&format!("{field}/{quantile}")))
        };
        let trial = ["seed", "rate", "offered_rate", "throughput", "warm_up_s", "measure_s", "ended_early"];
        let server = ["cpu_us_per_op", "cpu_user_us_per_op", "cpu_cores"];
        if trial.contains(&column) || server.contains(&column) {
            return format!("/{column}");
        }
        match column {
            "generator_utilisation" => return "/generator/utilisation".into(),
            "generator_drops" => return "/generator/socket_drops".into(),
            "send_lag_p99_ms" | "send_lag_max_ms" | "strays" => return format!("/generator/{column}"),
            _ => {}
        }
        of_latency("planned_", "latency_planned")
            .or_else(|| of_latency("sent_", "latency_sent"))
            .or_else(|| of_latency("first_18x_", "first_18x"))
            .or_else(|| of_latency("bye_", "bye"))
            .unwrap_or_else(|| of_class(column))
    }

    #[test]
    fn json_csv_and_html_have_the_same_numbers() {
        let computed = ["trial", "valid", "failed", "failures", "resident_bytes_max", "udp_drops"];
        let words = ["label", "started_at", "target", "subject", "criterion", "phase", "class", "verdict"];
        for report in [sample::peak(), sample::run(), sample::suite()] {
            let json: Value = serde_json::from_str(&json::to_json(&report)).unwrap();
            let page = html::page(&report);
            assert_eq!(html::embedded(&page).unwrap(), json, "the page's data");
            let mut compared = 0;
            let mut trials = json["subjects"]
                .as_array()
                .unwrap()
                .iter()
                .flat_map(|subject| subject["trials"].as_array().unwrap());
            let (mut trial, mut next_class) = (&Value::Null, 0);
            for row in rows(&report) {
                let class = if row["class"] == "all" {
                    (trial, next_class) = (trials.next().unwrap(), 0);
                    "/all".to_owned()
                } else {
                    next_class += 1;
                    format!("/classes/{}", next_class - 1)
                };
                for (column, cell) in &row {
                    let connected =
                        ["transport", "connections_", "handshakes_"].iter().any(|part| column.contains(part));
                    if connected || computed.contains(&column.as_str()) || words.contains(&column.as_str()) {
                        continue;
                    }
                    let value = trial.pointer(&path_in_json(column, &class)).unwrap_or(&Value::Null);
                    let trial_figure =
                        path_in_json(column, &class).starts_with("/generator") || column.starts_with("cpu_");
                    match value {
                        _ if trial_figure && class != "/all" => assert_eq!(cell, "", "{column}"),
                        Value::Null => assert_eq!(cell, "", "{column}"),
                        Value::Number(number) => {
                            assert_eq!(cell.parse::<f64>().unwrap(), number.as_f64().unwrap(), "{column}");
                            compared += 1;
                        }
                        other => assert_eq!(cell, &other.to_string(), "{column}"),
                    }
                }
            }
            assert!(trials.next().is_none(), "a trial has no row");
            assert!(compared > 30, "{compared}");
        }
    }

    #[test]
    fn mix_has_a_row_for_each_class_and_one_for_all() {
        let report = sample::suite();
        let mix = report.subjects.iter().find(|subject| subject.classes.len() == 2).unwrap();
        let names: Vec<String> = rows(&report)
            .into_iter()
            .filter(|row| row["subject"] == mix.name && row["trial"] == "0")
            .map(|row| row["class"].clone())
            .collect();
        assert_eq!(names, ["all", "answered", "abandoned"]);
    }

    #[test]
    fn connections_stand_in_the_row_of_all() {
        let mut report = sample::suite();
        let tls_client = super::super::model::HandshakeReport { full: 2, resumed: 7, ..Default::default() };
        for trial in report.subjects.iter_mut().flat_map(|subject| &mut subject.trials) {
            trial.connections =
                Some(ConnectionReport { opened: 9, tls_client, ..ConnectionReport::default() });
        }
        for row in rows(&report) {
            let expected = if row["class"] == "all" { ["9", "0", "2", "7"] } else { ["", "", "", ""] };
            let columns = [
                "connections_opened",
                "connections_accepted",
                "callers_handshakes_full",
                "callers_handshakes_resumed",
            ];
            assert_eq!(columns.map(|column| row[column].as_str()), expected);
        }
    }

    #[test]
    fn quantile_among_the_failed_is_an_empty_cell() {
        let report = sample::peak();
        let overloaded = report.subjects[0]
            .trials
            .iter()
            .position(|trial| trial.phase == "overload" && trial.all.success < 0.9);
        let row = &rows(&report)[overloaded.unwrap()];
        assert_eq!(row["planned_p99_ms"], "");
        assert_ne!(row["sent_p99_ms"], "");
    }

    #[test]
    fn commas_quotes_and_line_ends_in_names_stay_in_their_cell() {
        let mut report = sample::run();
        report.label = "a,\"b\"\nc".into();
        assert_eq!(rows(&report)[0]["label"], report.label);
    }

    #[test]
    fn columns_are_named_once() {
        let names: std::collections::BTreeSet<_> = columns().map(|(name, _)| name).collect();
        assert_eq!(names.len(), COLUMNS.len());
    }
}
