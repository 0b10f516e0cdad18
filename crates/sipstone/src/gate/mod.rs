//! Gates: what a report must show, or the command fails (exit code 2).
//!
//! ```text
//!  [SUBJECT:] METRIC OP VALUE[unit]        p99 <= 5ms     invite: success >= 99.9%
//!  [SUBJECT:] METRIC OP [FACTOR*]base      peak >= 0.97*base     cpu_us_per_op <= 1.05*base
//! ```
//!
//! OP is `<=`, `<`, `>=` or `>`. Without a subject a gate holds for every subject of the report. A metric of trials is read
//! from the full trials at the peak, or from the runs at each given rate, and must hold at each. What was not measured
//! fails: a gate never passes for want of a number. Unknown names, units and subjects, and `base` without a base report,
//! are errors (exit code 1).

pub mod metric;

use crate::report::model::{Report, Subject};
use metric::{At, METRICS, Metric, Source, Unit, Value, loads, metric};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Longest text of a gate, bytes.
pub const GATE_LENGTH_MAX: usize = 200;

/// A checked gate.
#[derive(Clone, Debug)]
pub struct Gate {
    /// As it was given.
    pub text: String,
    /// The only subject that it is about.
    pub subject: Option<String>,
    /// What is compared.
    pub metric: &'static Metric,
    /// How.
    pub operator: Operator,
    /// With what.
    pub limit: Limit,
}

/// How a value is compared with the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `<=`
    AtMost,
    /// `<`
    Below,
    /// `>=`
    AtLeast,
    /// `>`
    Above,
}

/// What a value is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// This, in the metric's unit.
    Value(f64),
    /// This many times the base report's value.
    Base(f64),
}

/// Why a gate cannot be evaluated; exit code 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateError(pub String);

impl std::fmt::Display for GateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for GateError {}

/// What became of a gate, for one subject at one load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GateResult {
    /// The gate as it was given.
    pub gate: String,
    /// The subject.
    pub subject: String,
    /// The load: `peak`, `500/s`; empty for metrics of the whole subject.
    pub at: String,
    /// What was seen, in the metric's unit; `null` if it is infinite or was not measured.
    pub value: Option<f64>,
    /// The limit, in the metric's unit; `null` if the base report has none.
    pub limit: Option<f64>,
    /// Whether it holds.
    pub pass: bool,
    /// The whole in words.
    pub sentence: String,
}

/// Evaluates all gates against a report; a command fails if any result does not pass.
///
/// # Errors
/// A gate names a subject that the report does not have, or says `base` and there is none.
pub fn evaluate(
    gates: &[Gate],
    report: &Report,
    base: Option<&Report>,
) -> Result<Vec<GateResult>, GateError> {
    let mut results = Vec::new();
    for gate in gates {
        results.extend(gate.evaluate(report, base)?);
    }
    Ok(results)
}

impl Gate {
    /// Reads a gate.
    ///
    /// # Errors
    /// The sentence says what is wrong with it and what would be right.
    pub fn parse(text: &str) -> Result<Gate, GateError> {
        if text.len() > GATE_LENGTH_MAX {
            return Err(GateError(format!(
                "a gate has at most {GATE_LENGTH_MAX} bytes; this one has {}",
                text.len()
            )));
        }
        let refuse = |what: String| GateError(format!("gate {:?}: {what}", text.trim()));
        let at = text.find(['<', '>', '=']).ok_or_else(|| {
            refuse("there is no <=, <, >= or > in it; write it like p99 <= 5ms or peak >= 0.97*base".into())
        })?;
        let (left, right) = text.split_at(at);
        let (operator, right) = operator(right)
            .ok_or_else(|| refuse("use <=, <, >= or >; measured numbers are never exactly equal".into()))?;
        // A mix has a colon in its own name (`mix:sipstone`), so the last one ends the subject.
        let (subject, name) = match left.rsplit_once(':') {
            Some((subject, name)) => (Some(subject.trim()), name.trim()),
            None => (None, left.trim()),
        };
        if subject == Some("") {
            return Err(refuse("the subject before the colon is missing".into()));
        }
        let metric = metric(name).ok_or_else(|| refuse(unknown_metric(name)))?;
        let limit = limit(right.trim(), metric).map_err(refuse)?;
        Ok(Gate { text: text.trim().into(), subject: subject.map(str::to_owned), metric, operator, limit })
    }

    /// Whether it needs a base report.
    #[must_use]
    pub fn needs_base(&self) -> bool {
        matches!(self.limit, Limit::Base(_))
    }

    /// Evaluates it for its subject, or for every one.
    ///
    /// # Errors
    /// See [`evaluate`].
    pub fn evaluate(&self, report: &Report, base: Option<&Report>) -> Result<Vec<GateResult>, GateError> {
        if self.needs_base() && base.is_none() {
            return Err(GateError(format!(
                "gate {:?} compares with a base report: give it with --base FILE",
                self.text
            )));
        }
        let mut subjects: Vec<&Subject> = report.subjects.iter().collect();
        if let Some(name) = &self.subject {
            subjects.retain(|subject| subject.name == *name);
        }
        if subjects.is_empty() {
            let names: Vec<&str> = report.subjects.iter().map(|subject| subject.name.as_str()).collect();
            return Err(GateError(match &self.subject {
                Some(name) => {
                    format!("gate {:?}: the report has no {name:?}; it has: {}", self.text, names.join(", "))
                }
                None => format!("gate {:?}: the report is empty", self.text),
            }));
        }
        Ok(subjects.into_iter().flat_map(|subject| self.judge(subject, base)).collect())
    }

    /// Judges one subject, at each of its loads.
    fn judge(&self, subject: &Subject, base: Option<&Report>) -> Vec<GateResult> {
        let base = base.and_then(|base| same_subject(base, subject));
        let values = values(self.metric, subject);
        let base_values = base.map(|base| values_of_base(self.metric, base));
        if values.is_empty() {
            return vec![self.result(subject, None, Value::Missing, None)];
        }
        let results = values.into_iter().map(|(at, value)| {
            let limit = match self.limit {
                Limit::Value(limit) => Some(limit),
                Limit::Base(factor) => base_values
                    .iter()
                    .flatten()
                    .find(|(other, _)| same_load(at, *other))
                    .and_then(|(_, value)| value.number())
                    .map(|value| value * factor),
            };
            self.result(subject, at, value, limit)
        });
        results.collect()
    }

    fn result(&self, subject: &Subject, at: Option<At>, value: Value, limit: Option<f64>) -> GateResult {
        let unit = self.metric.unit;
        let place = at.map_or(String::new(), |at| format!(" at {at}"));
        let about = format!("{}: {}{place}", subject.name, self.metric.name);
        let (pass, sentence) = match (value, limit) {
            (Value::Missing, _) => (false, format!("{about} was not measured: {}", self.metric.missing)),
            (_, None) => (
                false,
                format!("{about}: the base report has no such number to compare with; measure the base anew"),
            ),
            (Value::Infinite, Some(limit)) => {
                let pass = matches!(self.operator, Operator::AtLeast | Operator::Above);
                let shown = self.shown_limit(unit, limit);
                (
                    pass,
                    format!("{about} is infinite (it lies among the failed operations), and must be {shown}"),
                )
            }
            (Value::Number(number), Some(limit)) => {
                let shown = self.shown_limit(unit, limit);
                let pass = self.operator.holds(number, limit);
                let verb = if pass { "as it must be" } else { "but must be" };
                (pass, format!("{about} is {}, {verb} {shown}", unit.show(number)))
            }
        };
        GateResult {
            gate: self.text.clone(),
            subject: subject.name.clone(),
            at: at.map_or(String::new(), |at| at.to_string()),
            value: value.number(),
            limit: limit.filter(|limit| limit.is_finite()),
            pass,
            sentence,
        }
    }

    fn shown_limit(&self, unit: Unit, limit: f64) -> String {
        let base = match self.limit {
            Limit::Base(factor) => format!(" ({factor} x base)"),
            Limit::Value(_) => String::new(),
        };
        format!("{} {}{base}", self.operator.word(), unit.show(limit))
    }
}

impl FromStr for Gate {
    type Err = GateError;

    fn from_str(text: &str) -> Result<Gate, GateError> {
        Gate::parse(text)
    }
}

impl Operator {
    /// As it is written.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Operator::AtMost => "<=",
            Operator::Below => "<",
            Operator::AtLeast => ">=",
            Operator::Above => ">",
        }
    }

    fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Operator::AtMost => value <= limit,
            Operator::Below => value < limit,
            Operator::AtLeast => value >= limit,
            Operator::Above => value > limit,
        }
    }
}

/// The help text: the grammar and the metrics.
#[must_use]
pub fn help() -> String {
    format!(
        "A gate is METRIC OP VALUE or METRIC OP FACTOR*base, with `SUBJECT:` before it for one scenario only:\n  \
         p99 <= 5ms    invite: success >= 99.9%    peak >= 0.97*base    cpu_us_per_op <= 1.05*base\n\
         Metrics:\n{}",
        metric::help()
    )
}

/// The subject of another report that is the same as this one: name and authentication.
#[must_use]
pub fn same_subject<'a>(report: &'a Report, subject: &Subject) -> Option<&'a Subject> {
    report.subjects.iter().find(|other| other.name == subject.name && other.auth == subject.auth)
}

/// A metric's values at each load but overload; one without a load for metrics of the whole subject.
fn values(metric: &Metric, subject: &Subject) -> Vec<(Option<At>, Value)> {
    values_of_base(metric, subject)
        .into_iter()
        .filter(|(at, _)| !matches!(at, Some(At::Overload(_))))
        .collect()
}

/// As [`values`], overload included.
fn values_of_base(metric: &Metric, subject: &Subject) -> Vec<(Option<At>, Value)> {
    match metric.source {
        Source::Subject(read) => vec![(None, read(subject))],
        Source::Trial(read) => loads(subject)
            .into_iter()
            .map(|(at, trials)| {
                let values: Vec<Value> = trials.into_iter().map(read).collect();
                (Some(at), Value::of_all(&values))
            })
            .collect(),
    }
}

fn same_load(one: Option<At>, two: Option<At>) -> bool {
    match (one, two) {
        (None, None) => true,
        (Some(one), Some(two)) => one.same(two),
        _ => false,
    }
}

/// The operator at the beginning of a text, and what follows it.
fn operator(text: &str) -> Option<(Operator, &str)> {
    [("<=", Operator::AtMost), (">=", Operator::AtLeast), ("<", Operator::Below), (">", Operator::Above)]
        .into_iter()
        .find_map(|(word, operator)| Some((operator, text.strip_prefix(word)?)))
}

/// What stands right of the operator.
fn limit(text: &str, metric: &Metric) -> Result<Limit, String> {
    if text == "base" {
        return Ok(Limit::Base(1.0));
    }
    if let Some((factor, word)) = text.split_once('*') {
        let factor = factor.trim();
        return match (number_prefix(factor), word.trim()) {
            (Some((value, "")), "base") if value > 0.0 => Ok(Limit::Base(value)),
            (_, "base") => Err(format!("{factor:?} is no factor; write it like 0.97*base")),
            (_, other) => Err(format!("{other:?} is not base; write it like 0.97*base")),
        };
    }
    let (value, unit) = number_prefix(text)
        .ok_or_else(|| format!("{text:?} is no value; write it like 5ms, 99.9% or 0.97*base"))?;
    let unit = unit.trim();
    let words = metric.unit.words();
    let Some((_, times)) = words.iter().find(|(word, _)| *word == unit) else {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).filter(|word| !word.is_empty()).collect();
        return Err(if known.is_empty() {
            format!("{} has no unit, so {unit:?} must go", metric.name)
        } else {
            format!("{unit:?} is no unit of {}; use {}", metric.name, known.join(", "))
        });
    };
    let value = value * times;
    if metric.unit == Unit::Share && value > 1.0 {
        return Err(format!("{text:?} is more than everything; write a share like 99.9% or 0.999"));
    }
    Ok(Limit::Value(value))
}

/// The longest number, finite and not negative, that a text begins with, and what follows it.
fn number_prefix(text: &str) -> Option<(f64, &str)> {
    // Without this, words that Rust reads as numbers (inf, nan) would pass.
    if !text.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return None;
    }
    let ends = text.char_indices().map(|(at, character)| at + character.len_utf8());
    let ends: Vec<usize> = ends.take(GATE_LENGTH_MAX).collect();
    ends.into_iter().rev().find_map(|end| {
        let (number, rest) = text.split_at(end);
        let value: f64 = number.parse().ok()?;
        value.is_finite().then_some((value, rest))
    })
}

/// The sentence for a name that is no metric's, with the nearest one.
fn unknown_metric(name: &str) -> String {
    let nearest = METRICS.iter().map(|metric| (distance(name, metric.name), metric.name)).min();
    let guess = match nearest {
        Some((distance, nearest)) if distance <= 3 && distance < nearest.len() => {
            format!("did you mean {nearest}? ")
        }
        _ => String::new(),
    };
    let names: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
    format!("{name:?} is no metric; {guess}There are: {}", names.join(", "))
}

/// Levenshtein's distance: letters to insert, remove or replace.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, letter) in from.chars().enumerate() {
        let mut diagonal = index;
        let mut left = index + 1;
        for (cell, other) in row.iter_mut().skip(1).zip(&to) {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = *cell;
            left = replaced.min(*cell + 1).min(left + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = index + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests;
