//! A comparison as text.

use super::{Change, Comparison, Row, SubjectComparison};
use crate::gate::metric::{Metric, metric};
use std::fmt::Write;

/// The whole comparison.
pub(super) fn table(comparison: &Comparison) -> String {
    let mut text = format!("base: {}\nnew:  {}\n", comparison.base, comparison.new);
    for remark in &comparison.remarks {
        let _ = writeln!(text, "note: {remark}");
    }
    for subject in &comparison.subjects {
        subject_table(subject, &mut text);
    }
    for (which, names) in [("base", &comparison.only_base), ("new", &comparison.only_new)] {
        if !names.is_empty() {
            let _ = writeln!(text, "\nonly in the {which} report: {}", names.join(", "));
        }
    }
    let count = |change| comparison.count(change);
    let _ = writeln!(
        text,
        "\n{} better, {} worse, {} same, {} unclear",
        count(Change::Better),
        count(Change::Worse),
        count(Change::Same),
        count(Change::Unclear),
    );
    text
}

fn subject_table(subject: &SubjectComparison, text: &mut String) {
    let _ = writeln!(text, "\n{}", subject.name);
    for remark in &subject.remarks {
        let _ = writeln!(text, "  note: {remark}");
    }
    let head = ["metric", "at", "base", "new", "new/base", "95 % interval"];
    line(text, head, "verdict");
    for row in &subject.rows {
        let known = metric(&row.metric);
        let ratio = row.ratio.map_or("-".into(), |ratio| format!("{ratio:.3}"));
        let interval =
            row.interval.map_or("-".into(), |found| format!("{:.3} to {:.3}", found.low, found.high));
        let (base, new) = (show(known, row, row.base), show(known, row, row.new));
        line(text, [&row.metric, &row.at, &base, &new, &ratio, &interval], row.change.word());
    }
}

fn line(text: &mut String, [metric, at, base, new, ratio, interval]: [&str; 6], verdict: &str) {
    let _ =
        writeln!(text, "  {metric:<19} {at:<15} {base:>13} {new:>13} {ratio:>9} {interval:>17}  {verdict}");
}

/// A value in its unit. Without one it is infinite, or was not measured; a latency can be either, and what can be infinite
/// was measured wherever any trial was made.
fn show(metric: Option<&Metric>, row: &Row, value: Option<f64>) -> String {
    match (metric, value) {
        (Some(metric), Some(value)) => metric.unit.show(value),
        (None, Some(value)) => format!("{value}"),
        (_, None) if row.metric.starts_with('p') && row.metric != "peak" || row.metric == "mean" => {
            "infinite".into()
        }
        (_, None) => "not measured".into(),
    }
}
