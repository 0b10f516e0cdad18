//! Two reports side by side: what became better, what worse, and what cannot be said.
//!
//! Every metric is compared at the same load: at each one's peak, at the same multiple of it, at the same given rate, and
//! at the highest rate of the ramp that both passed. A verdict needs an interval, and so several trials or a search. With a
//! 95 % interval of the ratio new/base:
//!
//! - `same`: the whole interval lies within what is negligible for the metric;
//! - `better`, `worse`: the interval excludes 1, and the change is more than negligible;
//! - `unclear`: everything else. More trials make it narrower.

mod table;

use crate::gate::metric::{At, Better, METRICS, Metric, Source, Value, loads};
use crate::gate::same_subject;
use crate::report::model::{Estimate, Host, Report, Subject, TrialReport};
use crate::spec::Auth;
use crate::stats::{interval, wilson};
use serde::{Deserialize, Serialize};

/// Two reports compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Comparison {
    /// The label of the base report.
    pub base: String,
    /// The label of the new one.
    pub new: String,
    /// What makes the comparison doubtful.
    pub remarks: Vec<String>,
    /// What both have, in the order of the new report.
    pub subjects: Vec<SubjectComparison>,
    /// Subjects that only the base report has.
    pub only_base: Vec<String>,
    /// Subjects that only the new report has.
    pub only_new: Vec<String>,
}

/// One subject in two reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SubjectComparison {
    /// Its name, with the authentication if there is one.
    pub name: String,
    /// What makes its comparison doubtful; loads that only one report has.
    pub remarks: Vec<String>,
    /// Each metric at each load.
    pub rows: Vec<Row>,
}

/// One metric at one load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Row {
    /// Its name.
    pub metric: String,
    /// `peak`, `1.50 x peak`, `500/s`; empty for metrics of the whole subject.
    pub at: String,
    /// In the metric's unit; `null` if it is infinite or was not measured.
    pub base: Option<f64>,
    /// See `base`.
    pub new: Option<f64>,
    /// Trials of the base report.
    pub base_trials: u32,
    /// Trials of the new one.
    pub new_trials: u32,
    /// new / base.
    pub ratio: Option<f64>,
    /// Its 95 % interval, where there are enough trials.
    pub interval: Option<Estimate>,
    /// What it means.
    pub change: Change,
}

/// What a change means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// For the better.
    Better,
    /// For the worse.
    Worse,
    /// Nothing that matters.
    Same,
    /// It cannot be said.
    Unclear,
}

impl Change {
    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Change::Better => "better",
            Change::Worse => "worse",
            Change::Same => "same",
            Change::Unclear => "unclear",
        }
    }
}

/// Compares a new report with a base.
#[must_use]
pub fn compare(base: &Report, new: &Report) -> Comparison {
    let subjects = new.subjects.iter();
    Comparison {
        base: base.label.clone(),
        new: new.label.clone(),
        remarks: remarks(base, new),
        subjects: subjects
            .filter_map(|subject| Some(compare_subjects(same_subject(base, subject)?, subject)))
            .collect(),
        only_base: missing_in(new, base),
        only_new: missing_in(base, new),
    }
}

impl Comparison {
    /// How many rows have this change.
    #[must_use]
    pub fn count(&self, change: Change) -> usize {
        self.subjects.iter().flat_map(|subject| &subject.rows).filter(|row| row.change == change).count()
    }

    /// The comparison as text, a line for each row.
    #[must_use]
    pub fn table(&self) -> String {
        table::table(self)
    }
}

/// Names of the subjects of `report` that `other` does not have.
fn missing_in(other: &Report, report: &Report) -> Vec<String> {
    report.subjects.iter().filter(|subject| same_subject(other, subject).is_none()).map(full_name).collect()
}

/// A subject's name, with what distinguishes it from others of that name.
fn full_name(subject: &Subject) -> String {
    match subject.auth {
        Auth::None => subject.name.clone(),
        Auth::Challenge => format!("{} (auth challenge)", subject.name),
        Auth::Cached => format!("{} (auth cached)", subject.name),
    }
}

/// What differs between the two measurements besides the server.
fn remarks(base: &Report, new: &Report) -> Vec<String> {
    let mut remarks = Vec::new();
    for (which, report) in [("base", base), ("new", new)] {
        if !report.invalid.is_empty() {
            remarks.push(format!("the {which} report is invalid: {}", report.invalid.join("; ")));
        }
    }
    if base.quick != new.quick {
        let which = if base.quick { "base" } else { "new" };
        remarks
            .push(format!("only the {which} report was made with --quick: its trials are ten times shorter"));
    }
    remarks.extend(host_remark(&base.generator_host, &new.generator_host));
    let mut differs = |what: &str, base: String, new: String| {
        if base != new {
            remarks.push(format!("{what} differs: {base} in the base report, {new} in the new one"));
        }
    };
    differs("the version of sipstone", base.version.clone(), new.version.clone());
    differs("the number of generator threads", count(&base.generator_host), count(&new.generator_host));
    if let (Some(one), Some(two)) = (&base.server, &new.server) {
        differs("the way the server was watched", one.method.clone(), two.method.clone());
        differs("the server's CPUs", format!("{:?}", one.cpus), format!("{:?}", two.cpus));
        let place = |same| if same { "the generator's host" } else { "another host" };
        differs("where the server ran", place(one.same_host).into(), place(two.same_host).into());
    }
    remarks
}

fn count(host: &Host) -> String {
    host.threads.to_string()
}

/// Different machines: speeds are not comparable at all.
fn host_remark(base: &Host, new: &Host) -> Option<String> {
    let show = |host: &Host| format!("{} x {} (Linux {})", host.cpus, host.processor, host.kernel);
    let key = |host: &Host| (host.cpus, host.processor.clone(), host.kernel.clone());
    (key(base) != key(new)).then(|| {
        format!(
            "different machines: {} in the base report, {} in the new one; differences may be theirs",
            show(base),
            show(new),
        )
    })
}

/// Compares one subject.
fn compare_subjects(base: &Subject, new: &Subject) -> SubjectComparison {
    let mut found = SubjectComparison { name: full_name(new), ..SubjectComparison::default() };
    if base.criterion != new.criterion {
        found.remarks.push(format!(
            "the criterion differs: {} in the base report, {} in the new one; the peaks mean different things",
            base.criterion, new.criterion,
        ));
    }
    if base.proxy != new.proxy {
        found.remarks.push(format!(
            "--proxy differs: {:?} in the base report, {:?} in the new one",
            base.proxy, new.proxy
        ));
    }
    if base.classes != new.classes {
        found.remarks.push("the classes, their weights or their messages per operation differ".into());
    }
    let (base_loads, new_loads) = (loads(base), loads(new));
    for metric in &METRICS {
        if let Source::Subject(read) = metric.source {
            found.rows.extend(subject_row(metric, base, new, read));
        }
    }
    for (at, trials) in &new_loads {
        match base_loads.iter().find(|(other, _)| other.same(*at)) {
            Some((_, base_trials)) => found.rows.extend(trial_rows(*at, base_trials, trials)),
            None => found.remarks.push(format!("only the new report has trials at {at}")),
        }
    }
    if let Some((rate, base_trial, new_trial)) = shared_ramp(base, new) {
        found.rows.extend(trial_rows(At::Ramp(rate), &[base_trial], &[new_trial]));
    }
    found.remarks.extend(peaks_apart(base, new));
    for (at, _) in &base_loads {
        if !new_loads.iter().any(|(other, _)| other.same(*at)) {
            found.remarks.push(format!("only the base report has trials at {at}"));
        }
    }
    found
}

/// The trials of the ramp at the highest rate that both passed: one trial each, but at the same load.
fn shared_ramp<'a>(base: &'a Subject, new: &'a Subject) -> Option<(f64, &'a TrialReport, &'a TrialReport)> {
    let passed = |trial: &&TrialReport| trial.phase == "ramp" && trial.verdict == "pass";
    let pairs = new.trials.iter().filter(passed).filter_map(|trial| {
        let same = |other: &&TrialReport| At::Ramp(other.rate).same(At::Ramp(trial.rate));
        Some((trial.rate, base.trials.iter().filter(passed).find(same)?, trial))
    });
    pairs.max_by(|one, two| one.0.total_cmp(&two.0))
}

/// At different peaks, latencies are those of different loads.
fn peaks_apart(base: &Subject, new: &Subject) -> Option<String> {
    let (base, new) = (base.peak.as_ref()?.rate, new.peak.as_ref()?.rate);
    let apart = base > 0.0 && new > 0.0 && (new / base).ln().abs() > 0.03;
    apart.then(|| {
        format!("rows at the peak are at each one's own: {base:.0}/s in the base report, {new:.0}/s in the new one")
    })
}

/// A metric of the whole subject; `None` if neither report has it.
fn subject_row(metric: &Metric, base: &Subject, new: &Subject, read: fn(&Subject) -> Value) -> Option<Row> {
    let estimate = |subject: &Subject| match metric.name {
        "peak" => {
            subject.peak.as_ref().map(|peak| Estimate { value: peak.rate, low: peak.low, high: peak.high })
        }
        "cpu_us_slope" => subject.cpu_slope,
        _ => None,
    };
    let interval = match (estimate(base), estimate(new)) {
        (Some(base), Some(new)) if metric.name == "peak" => bracket_ratio(base, new),
        (Some(base), Some(new)) => estimate_ratio(base, new),
        _ => None,
    };
    row(metric, None, [&[read(base)], &[read(new)]], interval)
}

/// Every metric of trials at one load.
fn trial_rows(at: At, base: &[&TrialReport], new: &[&TrialReport]) -> Vec<Row> {
    let rows = METRICS.iter().filter_map(|metric| {
        let Source::Trial(read) = metric.source else { return None };
        let values = |trials: &[&TrialReport]| trials.iter().map(|trial| read(trial)).collect::<Vec<Value>>();
        let (base_values, new_values) = (values(base), values(new));
        let interval = if metric.name == "success" {
            success_ratio(base, new)
        } else {
            interval::ratio(&numbers(&base_values), &numbers(&new_values))
        };
        row(metric, Some(at), [&base_values, &new_values], interval)
    });
    rows.collect()
}

/// One row; `None` if neither report has the metric.
fn row(metric: &Metric, at: Option<At>, values: [&[Value]; 2], interval: Option<Estimate>) -> Option<Row> {
    let [base, new] = values.map(Value::of_all);
    if base == Value::Missing && new == Value::Missing {
        return None;
    }
    // Among the infinite ones a ratio of the rest would mislead.
    let finite = base.number().is_some() && new.number().is_some();
    let interval =
        interval.filter(|found| finite && [found.low, found.high].iter().all(|end| end.is_finite()));
    let quotient = match (base.number(), new.number()) {
        (Some(base), Some(new)) if base > 0.0 => Some(new / base),
        _ => None,
    };
    let trials = |values: &[Value]| u32::try_from(values.len()).unwrap_or(u32::MAX);
    Some(Row {
        metric: metric.name.into(),
        at: at.map_or(String::new(), |at| at.to_string()),
        base: base.number(),
        new: new.number(),
        base_trials: trials(values[0]),
        new_trials: trials(values[1]),
        ratio: interval.map(|found| found.value).or(quotient),
        interval,
        change: change(metric, [base, new], values, interval),
    })
}

/// What a change means.
fn change(
    metric: &Metric,
    [base, new]: [Value; 2],
    values: [&[Value]; 2],
    interval: Option<Estimate>,
) -> Change {
    let rose = match (base, new) {
        (Value::Missing, _) | (_, Value::Missing) => return Change::Unclear,
        (Value::Infinite, Value::Infinite) => return Change::Same,
        (Value::Number(_), Value::Infinite) => true,
        (Value::Infinite, Value::Number(_)) => false,
        (Value::Number(base), Value::Number(new)) => match interval {
            Some(found) => match beyond(found, metric.negligible) {
                Ok(rose) => rose,
                Err(change) => return change,
            },
            None if base == 0.0 || new == 0.0 => {
                match from_or_to_nothing(&numbers(values[0]), &numbers(values[1])) {
                    Ok(rose) => rose,
                    Err(change) => return change,
                }
            }
            None => return Change::Unclear,
        },
    };
    if rose == (metric.better == Better::Higher) { Change::Better } else { Change::Worse }
}

/// Whether a ratio rose (or fell) by more than is negligible; else what that means.
fn beyond(ratio: Estimate, negligible: f64) -> Result<bool, Change> {
    let most = (1.0 + negligible) * (1.0 + 1e-9);
    if ratio.low >= 1.0 / most && ratio.high <= most {
        return Err(Change::Same);
    }
    let matters = ratio.value > most || ratio.value < 1.0 / most;
    if matters && ratio.low > 1.0 {
        Ok(true)
    } else if matters && ratio.high < 1.0 {
        Ok(false)
    } else {
        Err(Change::Unclear)
    }
}

/// Where one side is zero there is no ratio: all trials of one report must lie above all of the other, three of each at
/// least.
fn from_or_to_nothing(base: &[f64], new: &[f64]) -> Result<bool, Change> {
    const TRIALS_MIN: usize = 3;
    if base.iter().chain(new).all(|value| *value == 0.0) {
        return Err(Change::Same);
    }
    let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = |values: &[f64]| values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if base.len().min(new.len()) < TRIALS_MIN {
        Err(Change::Unclear)
    } else if least(new) > most(base) {
        Ok(true)
    } else if most(new) < least(base) {
        Ok(false)
    } else {
        Err(Change::Unclear)
    }
}

/// Ratio of two brackets: as far as their ends allow.
fn bracket_ratio(base: Estimate, new: Estimate) -> Option<Estimate> {
    let positive = base.low > 0.0 && new.low > 0.0;
    positive.then(|| Estimate {
        value: new.value / base.value,
        low: new.low / base.high,
        high: new.high / base.low,
    })
}

/// Ratio of two estimates with intervals of their own: relative widths add as squares.
fn estimate_ratio(base: Estimate, new: Estimate) -> Option<Estimate> {
    if !(base.value > 0.0 && new.value > 0.0) {
        return None;
    }
    let width = |estimate: Estimate| (estimate.high - estimate.low) / 2.0 / estimate.value;
    let (value, reach) = (new.value / base.value, width(base).hypot(width(new)));
    Some(Estimate { value, low: value * (-reach).exp(), high: value * reach.exp() })
}

/// Ratio of two shares of successes, all trials of a report together (Newcombe's interval of the difference).
fn success_ratio(base: &[&TrialReport], new: &[&TrialReport]) -> Option<Estimate> {
    let pooled = |trials: &[&TrialReport]| {
        let succeeded = trials.iter().map(|trial| trial.all.succeeded).sum::<u64>();
        (succeeded, trials.iter().map(|trial| trial.all.offered).sum::<u64>())
    };
    let (base, new) = (pooled(base), pooled(new));
    let difference = wilson::difference(base, new)?;
    let share = base.0 as f64 / base.1 as f64;
    (share > 0.0).then(|| Estimate {
        value: 1.0 + difference.value / share,
        low: 1.0 + difference.low / share,
        high: 1.0 + difference.high / share,
    })
}

fn numbers(values: &[Value]) -> Vec<f64> {
    values.iter().filter_map(|value| value.number()).collect()
}

#[cfg(test)]
mod tests;
