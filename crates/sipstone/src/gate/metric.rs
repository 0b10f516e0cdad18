//! The metrics that gates and comparisons speak of, in one table: help, documentation and errors are made from it.

use crate::report::model::{LatencyReport, Subject, TrialReport};

/// A number that a report has, and what is good about it.
#[derive(Debug)]
pub struct Metric {
    /// Its name in gates.
    pub name: &'static str,
    /// What its values are counted in.
    pub unit: Unit,
    /// Which way is better.
    pub better: Better,
    /// Relative changes up to this are no news.
    pub negligible: f64,
    /// One line for help and documentation.
    pub doc: &'static str,
    /// What to do when a report does not have it.
    pub missing: &'static str,
    /// Where it is read.
    pub source: Source,
}

/// Where a metric is read.
#[derive(Debug)]
pub enum Source {
    /// Once per subject.
    Subject(fn(&Subject) -> Value),
    /// In every trial.
    Trial(fn(&TrialReport) -> Value),
}

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

/// What values are counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Operations a second.
    Rate,
    /// 0 to 1.
    Share,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// Bytes.
    Bytes,
    /// A plain number.
    Number,
}

/// A metric's value in one report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// It was measured.
    Number(f64),
    /// It lies among the operations that never ended.
    Infinite,
    /// It was not measured.
    Missing,
}

const NO_SEARCH: &str = "no search was made: use `sipstone peak`";
const NO_TRIAL: &str = "no trial was made";
const NOT_CALLS: &str = "only calls have it";
const NOT_WATCHED: &str = "the server was not watched: give --sut-pid, --sut-cgroup or --sut-exec";
const NO_SLOPE: &str =
    "it needs a watched server (--sut-pid, --sut-cgroup, --sut-exec) and trials at several rates";

/// A metric of trials.
const fn of_trials(
    name: &'static str,
    unit: Unit,
    better: Better,
    negligible: f64,
    doc: &'static str,
    missing: &'static str,
    read: fn(&TrialReport) -> Value,
) -> Metric {
    Metric { name, unit, better, negligible, doc, missing, source: Source::Trial(read) }
}

/// A metric of subjects.
const fn of_subjects(
    name: &'static str,
    unit: Unit,
    better: Better,
    doc: &'static str,
    missing: &'static str,
    read: fn(&Subject) -> Value,
) -> Metric {
    Metric { name, unit, better, negligible: 0.03, doc, missing, source: Source::Subject(read) }
}

use Better::{Higher, Lower};
use Unit::{Bytes, Microseconds, Milliseconds, Number, Rate, Share};

/// Every metric.
pub static METRICS: [Metric; 17] = [
    of_subjects("peak", Rate, Higher, "the highest rate that passed and was confirmed", NO_SEARCH, peak),
    of_subjects(
        "highest_throughput",
        Rate,
        Higher,
        "the highest throughput of any trial of a search, overload included",
        NO_SEARCH,
        highest_throughput,
    ),
    of_subjects(
        "cpu_us_slope",
        Microseconds,
        Lower,
        "CPU time of the server per operation, as the slope over all rates",
        NO_SLOPE,
        cpu_slope,
    ),
    of_trials("success", Share, Higher, 0.001, "share of operations that succeeded", NO_TRIAL, |trial| {
        if trial.all.offered == 0 { Value::Missing } else { Value::Number(trial.all.success) }
    }),
    of_trials("throughput", Rate, Higher, 0.01, "operations carried a second", NO_TRIAL, |trial| {
        Value::Number(trial.throughput)
    }),
    of_trials("p50", Milliseconds, Lower, 0.05, "median latency from the planned start", NO_TRIAL, |trial| {
        planned(trial, |latency| latency.p50_ms)
    }),
    of_trials("p90", Milliseconds, Lower, 0.05, "90th percentile of that", NO_TRIAL, |trial| {
        planned(trial, |latency| latency.p90_ms)
    }),
    of_trials("p95", Milliseconds, Lower, 0.05, "95th percentile of that", NO_TRIAL, |trial| {
        planned(trial, |latency| latency.p95_ms)
    }),
    of_trials("p99", Milliseconds, Lower, 0.05, "99th percentile of that", NO_TRIAL, |trial| {
        planned(trial, |latency| latency.p99_ms)
    }),
    of_trials("p99.9", Milliseconds, Lower, 0.05, "99.9th percentile of that", NO_TRIAL, |trial| {
        planned(trial, |latency| latency.p999_ms)
    }),
    of_trials("mean", Milliseconds, Lower, 0.05, "mean latency of the successful ones", NO_TRIAL, |trial| {
        planned(trial, |latency| latency.mean_ms)
    }),
    of_trials(
        "first_18x_p99",
        Milliseconds,
        Lower,
        0.05,
        "99th percentile to the first 18x",
        NOT_CALLS,
        |trial| measured(trial.all.first_18x.as_ref().and_then(|latency| latency.p99_ms)),
    ),
    of_trials(
        "bye_p99",
        Milliseconds,
        Lower,
        0.05,
        "99th percentile of BYE to its 200",
        NOT_CALLS,
        |trial| measured(trial.all.bye.as_ref().and_then(|latency| latency.p99_ms)),
    ),
    of_trials(
        "cpu_us_per_op",
        Microseconds,
        Lower,
        0.02,
        "CPU time of the server per completed operation",
        NOT_WATCHED,
        |trial| measured(trial.cpu_us_per_op),
    ),
    of_trials("resident", Bytes, Lower, 0.05, "most memory that the server had", NOT_WATCHED, resident),
    of_trials(
        "udp_drops",
        Number,
        Lower,
        0.0,
        "datagrams that the server's sockets lost",
        NOT_WATCHED,
        udp_drops,
    ),
    of_trials(
        "retransmissions",
        Number,
        Lower,
        0.05,
        "messages sent again, per operation",
        NO_TRIAL,
        |trial| Value::Number(trial.all.retransmissions_sent),
    ),
];

/// The metric of a name; `p999` is another name of `p99.9`.
#[must_use]
pub fn metric(name: &str) -> Option<&'static Metric> {
    let name = if name == "p999" { "p99.9" } else { name };
    METRICS.iter().find(|metric| metric.name == name)
}

/// The table of metrics as text, for help and documentation.
#[must_use]
pub fn help() -> String {
    let line = |metric: &Metric| {
        let better = if metric.better == Higher { "higher" } else { "lower" };
        format!("  {:<20} {:<6} {better:<6} is better: {}\n", metric.name, metric.unit.word(), metric.doc)
    };
    METRICS.iter().map(line).collect()
}

impl Unit {
    /// Its word in tables.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Rate => "/s",
            Share => "%",
            Milliseconds => "ms",
            Microseconds => "us",
            Bytes => "B",
            Number => "",
        }
    }

    /// The words that a gate may use, with what one of them is in the metric's own unit.
    #[must_use]
    pub fn words(self) -> &'static [(&'static str, f64)] {
        match self {
            Rate => &[("", 1.0), ("/s", 1.0), ("cps", 1.0)],
            Share => &[("%", 0.01), ("", 1.0)],
            Milliseconds => &[("", 1.0), ("ms", 1.0), ("s", 1e3), ("us", 1e-3), ("µs", 1e-3), ("μs", 1e-3)],
            Microseconds => &[("", 1.0), ("us", 1.0), ("µs", 1.0), ("μs", 1.0), ("ms", 1e3), ("s", 1e6)],
            Bytes => &[
                ("", 1.0),
                ("B", 1.0),
                ("kB", 1e3),
                ("MB", 1e6),
                ("GB", 1e9),
                ("KiB", 1024.0),
                ("MiB", 1_048_576.0),
                ("GiB", 1_073_741_824.0),
            ],
            Number => &[("", 1.0)],
        }
    }

    /// A value for reading: `99.95 %`, `3.2 ms`, `48.0 MiB`.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        match self {
            Rate if value < 100.0 => format!("{value:.1}/s"),
            Rate => format!("{value:.0}/s"),
            Share => format!("{:.3} %", value * 100.0),
            Milliseconds => format!("{value:.3} ms"),
            Microseconds => format!("{value:.2} µs"),
            Bytes => format!("{:.1} MiB", value / 1_048_576.0),
            Number => format!("{value:.4}"),
        }
    }
}

impl Value {
    /// Of several trials at one rate: their mean; infinite if one of them is; missing if all are.
    #[must_use]
    pub fn of_all(values: &[Value]) -> Value {
        if values.contains(&Value::Infinite) {
            return Value::Infinite;
        }
        let numbers: Vec<f64> = values.iter().filter_map(|value| value.number()).collect();
        if numbers.is_empty() {
            return Value::Missing;
        }
        Value::Number(numbers.iter().sum::<f64>() / numbers.len() as f64)
    }

    /// The number, if it is one.
    #[must_use]
    pub fn number(self) -> Option<f64> {
        match self {
            Value::Number(number) if number.is_finite() => Some(number),
            _ => None,
        }
    }
}

/// At what load a metric is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum At {
    /// The full trials at the peak that the search found.
    Peak,
    /// Trials at a rate that the user gave.
    Rate(f64),
    /// Above the peak, at this multiple of it.
    Overload(f64),
    /// A short trial of the ramp, at this rate: for comparing two servers at one load.
    Ramp(f64),
}

impl At {
    /// Whether both mean the same load.
    #[must_use]
    pub fn same(self, other: At) -> bool {
        match (self, other) {
            (At::Peak, At::Peak) => true,
            (At::Rate(one), At::Rate(two)) | (At::Ramp(one), At::Ramp(two)) => {
                (one - two).abs() <= 1e-6 * one.abs()
            }
            (At::Overload(one), At::Overload(two)) => (one - two).abs() < 0.005,
            _ => false,
        }
    }
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            At::Peak => f.write_str("peak"),
            At::Rate(rate) => write!(f, "{rate}/s"),
            At::Overload(factor) => write!(f, "{factor:.2} x peak"),
            At::Ramp(rate) => write!(f, "{rate}/s (ramp)"),
        }
    }
}

/// The trials of a subject that count, by load: full trials at the peak, overload, and runs at given rates. The trials of
/// the search itself are short and are not among them.
#[must_use]
pub fn loads(subject: &Subject) -> Vec<(At, Vec<&TrialReport>)> {
    let mut loads: Vec<(At, Vec<&TrialReport>)> = Vec::new();
    let peak = subject.peak.as_ref().map(|peak| peak.rate).filter(|rate| *rate > 0.0);
    for trial in &subject.trials {
        let at = match (trial.phase.as_str(), peak) {
            ("run", _) => At::Rate(trial.rate),
            ("confirm", Some(peak)) if At::Rate(peak).same(At::Rate(trial.rate)) => At::Peak,
            ("overload", Some(peak)) => At::Overload(trial.rate / peak),
            _ => continue,
        };
        match loads.iter_mut().find(|(other, _)| other.same(at)) {
            Some((_, trials)) => trials.push(trial),
            None => loads.push((at, vec![trial])),
        }
    }
    loads
}

fn peak(subject: &Subject) -> Value {
    measured(subject.peak.as_ref().map(|peak| peak.rate))
}

fn highest_throughput(subject: &Subject) -> Value {
    measured(subject.peak.as_ref().map(|peak| peak.highest_throughput))
}

fn cpu_slope(subject: &Subject) -> Value {
    measured(subject.cpu_slope.map(|slope| slope.value))
}

fn measured(value: Option<f64>) -> Value {
    value.map_or(Value::Missing, Value::Number)
}

/// A latency from the planned start: without a value it lies among the failed ones, if there were any attempts.
fn planned(trial: &TrialReport, read: fn(&LatencyReport) -> Option<f64>) -> Value {
    match read(&trial.all.latency_planned) {
        Some(ms) => Value::Number(ms),
        None if trial.all.offered > 0 => Value::Infinite,
        None => Value::Missing,
    }
}

fn resident(trial: &TrialReport) -> Value {
    let seconds = trial.series.iter().filter_map(|second| second.server.as_ref());
    measured(seconds.map(|server| server.resident_bytes as f64).max_by(f64::total_cmp))
}

/// Within the window.
fn udp_drops(trial: &TrialReport) -> Value {
    let window = trial.warm_up_s..trial.warm_up_s + trial.measure_s;
    let seconds = trial.series.iter().filter(|second| window.contains(&f64::from(second.second)));
    let drops: Vec<u64> = seconds.filter_map(|second| second.server?.udp_drops).collect();
    measured((!drops.is_empty()).then(|| drops.iter().sum::<u64>() as f64))
}
