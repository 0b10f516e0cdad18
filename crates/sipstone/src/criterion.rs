//! When a server is said to carry a load: the criteria of the papers, and the judgement of a trial by one of them.

use crate::report::model::{ClassReport, TrialReport};
use crate::spec::{Class, Scenario};
use crate::stats::{Verdict, wilson};
use std::time::Duration;

/// One criterion: a share of successes, perhaps a latency, and how long and how often to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Criterion {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// What it asks, in one sentence, for help and reports.
    pub summary: &'static str,
    /// The least share of operations that must succeed, 0 to 1.
    pub share: f64,
    /// What it asks besides.
    pub limit: Limit,
    /// Not counted, before each full trial.
    pub warm_up: Duration,
    /// Counted, in each full trial.
    pub measure: Duration,
    /// Full trials at the peak.
    pub runs: u32,
}

/// What a criterion asks besides a share of successes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Nothing.
    None,
    /// The mean latency of the successes, from the planned start.
    Mean {
        /// For everything that is not a call.
        register: Duration,
        /// For calls.
        invite: Duration,
    },
    /// The 99.9th percentile of the latency from the planned start, failed operations counted as infinite.
    P999(Duration),
    /// Throughput within the window is at least this share of the offered rate.
    Throughput(f64),
}

/// The times of one full trial, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Not counted.
    pub warm_up: Duration,
    /// Counted.
    pub measure: Duration,
    /// How many such trials.
    pub runs: u32,
}

/// Every criterion; the first is the default.
pub const ALL: [Criterion; 5] = [
    Criterion {
        name: "ibm2007",
        summary: "at least 99 % succeed",
        share: 0.99,
        limit: Limit::None,
        warm_up: Duration::from_secs(5),
        measure: Duration::from_secs(120),
        runs: 5,
    },
    // The 2009 paper reads its peak off the throughput curve and names no share. A search needs a yes or a no for each
    // rate: yes while 99 % succeed, which is as far as the server keeps up. The paper's own figure is the highest
    // throughput that any trial saw, overload included: `Peak::highest_throughput`.
    Criterion {
        name: "tls2009",
        summary: "peak throughput: the highest seen; a rate passes while at least 99 % succeed",
        share: 0.99,
        limit: Limit::None,
        warm_up: Duration::from_secs(30),
        measure: Duration::from_secs(120),
        runs: 3,
    },
    // The 2006 paper raises the rate by 200, 100, 40 every 100 s on a server that goes on running; the search replaces the
    // steps, and each of its trials warms up anew.
    Criterion {
        name: "columbia2006",
        summary: "at least 50 % succeed, with a mean of at most 1 s (REGISTER) or 2 s (INVITE)",
        share: 0.50,
        limit: Limit::Mean { register: Duration::from_secs(1), invite: Duration::from_secs(2) },
        warm_up: Duration::from_secs(5),
        measure: Duration::from_secs(100),
        runs: 1,
    },
    // "Sustainable" is the paper's: processed is offered within 1 %. Its "peak" is the highest throughput under overload
    // of a server that stays stable, `Peak::highest_throughput`. It gives no times; these are IBM's.
    Criterion {
        name: "barepc",
        summary: "sustainable: processed is offered within 1 %; peak: the highest throughput seen",
        share: 0.99,
        limit: Limit::Throughput(0.99),
        warm_up: Duration::from_secs(5),
        measure: Duration::from_secs(120),
        runs: 3,
    },
    Criterion {
        name: "carrier",
        summary: "at least 99.999 % succeed, and 99.9 % within 200 ms",
        share: 0.999_99,
        limit: Limit::P999(Duration::from_millis(200)),
        warm_up: Duration::from_secs(30),
        measure: Duration::from_secs(300),
        runs: 3,
    },
];

/// What `--quick` divides the times by.
pub const QUICK_DIVISOR: u32 = 10;

impl Default for Criterion {
    fn default() -> Criterion {
        ALL[0]
    }
}

/// A name that is no criterion's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCriterion(pub String);

impl std::fmt::Display for UnknownCriterion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = ALL.iter().map(|criterion| criterion.name).collect();
        write!(f, "no criterion is called {:?}: use one of {}", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownCriterion {}

impl std::str::FromStr for Criterion {
    type Err = UnknownCriterion;

    fn from_str(name: &str) -> Result<Criterion, UnknownCriterion> {
        ALL.into_iter().find(|criterion| criterion.name == name).ok_or_else(|| UnknownCriterion(name.into()))
    }
}

impl Criterion {
    /// The times and the number of full trials. `--quick` divides the times by [`QUICK_DIVISOR`] and rounds them up to
    /// whole seconds, since counts are kept by the second.
    #[must_use]
    pub fn plan(&self, quick: bool) -> Plan {
        let shortened = |time: Duration| if quick { whole_seconds(time / QUICK_DIVISOR) } else { time };
        Plan { warm_up: shortened(self.warm_up), measure: shortened(self.measure), runs: self.runs }
    }

    /// Whether a trial meets the criterion: every class must, and the worst decides.
    ///
    /// The share is judged by its Wilson bound and may be undecided; latency and throughput by what was seen. A trial
    /// without any class or attempt is undecided.
    pub fn judge(&self, trial: &TrialReport) -> Verdict {
        let classes: &[ClassReport] =
            if trial.classes.is_empty() { std::slice::from_ref(&trial.all) } else { &trial.classes };
        let worst = classes.iter().map(|class| self.judge_class(class)).max().unwrap_or(Verdict::Undecided);
        match self.limit {
            Limit::Throughput(share) if trial.all.offered > 0 && !keeps_up(trial, share) => Verdict::Fail,
            _ => worst,
        }
    }

    /// Whether a trial has failed for certain: even if every operation that is still to come succeeds, the share is not
    /// reached. For ending a hopeless trial early.
    ///
    /// `measured` is (offered, succeeded, failed) of each class so far, `expected_offered` how many each class will have
    /// been offered in the whole window. That number is random (Poisson); four standard deviations more are assumed.
    #[must_use]
    pub fn certain(&self, measured: &[(u64, u64, u64)], expected_offered: &[f64]) -> bool {
        measured.iter().zip(expected_offered).any(|(&(offered, _, failed), &expected)| {
            let expected = if expected.is_finite() { expected.max(0.0) } else { return false };
            let most = ((expected + 4.0 * expected.sqrt()).ceil() as u64).max(offered);
            wilson::decide(most.saturating_sub(failed), most, self.share) == Verdict::Fail
        })
    }

    /// The success share of a trial's worst class, 0 to 1; what [`Criterion::judge`] left undecided leans by it.
    #[must_use]
    pub fn worst_success(&self, trial: &TrialReport) -> f64 {
        let shares = trial.classes.iter().filter(|class| class.offered > 0).map(|class| class.success);
        shares.min_by(f64::total_cmp).unwrap_or(trial.all.success)
    }

    /// Attempts that a class needs for its share to be provable if it loses a tenth of what it may lose.
    #[must_use]
    pub fn attempts_needed(&self) -> u64 {
        let seen = 1.0 - (1.0 - self.share) / 10.0;
        wilson::attempts_to_prove(seen, self.share).unwrap_or(1)
    }

    fn judge_class(&self, class: &ClassReport) -> Verdict {
        if class.offered == 0 {
            return Verdict::Undecided;
        }
        let share = wilson::decide(class.succeeded, class.offered, self.share);
        share.worst(self.judge_latency(class))
    }

    fn judge_latency(&self, class: &ClassReport) -> Verdict {
        let within = |seen_ms: Option<f64>, most: Duration| match seen_ms {
            Some(ms) if ms <= most.as_secs_f64() * 1e3 => Verdict::Pass,
            // Among the failed ones, which took for ever.
            _ => Verdict::Fail,
        };
        match self.limit {
            Limit::None | Limit::Throughput(_) => Verdict::Pass,
            Limit::P999(most) => within(class.latency_planned.p999_ms, most),
            Limit::Mean { register, invite } => {
                within(class.latency_planned.mean_ms, if is_call(class) { invite } else { register })
            }
        }
    }
}

/// How many operations of each class a trial is expected to offer in its window, for [`Criterion::certain`].
#[must_use]
pub fn expected_offered(classes: &[Class], rate: f64, measure: Duration) -> Vec<f64> {
    let all: f64 = classes.iter().map(|class| class.weight).sum();
    classes.iter().map(|class| rate * measure.as_secs_f64() * class.weight / all).collect()
}

/// Rounds up to whole seconds.
pub(crate) fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs() + u64::from(time.subsec_nanos() > 0))
}

/// Whether the throughput within the window reaches a share of what was offered in it.
///
/// Operations that straddle the window's edges make the two counts differ a little even in a steady state: four standard
/// deviations of that are allowed, of a Poisson number open at each edge with what the mean latency says.
fn keeps_up(trial: &TrialReport, share: f64) -> bool {
    let open = trial.offered_rate * trial.all.latency_planned.mean_ms.unwrap_or(0.0) / 1e3;
    let allowance = if trial.measure_s > 0.0 { 4.0 * (2.0 * open).sqrt() / trial.measure_s } else { 0.0 };
    trial.throughput + allowance >= share * trial.offered_rate
}

/// Whether a class makes calls. Classes of a mix may have names of their own; those that timed an 18x are calls.
fn is_call(class: &ClassReport) -> bool {
    match Scenario::of_id(&class.name) {
        Some(scenario) => matches!(
            scenario,
            Scenario::Invite
                | Scenario::InviteCancel
                | Scenario::InviteNotfound
                | Scenario::Redirect
                | Scenario::Outbound
        ),
        None => class.first_18x.is_some(),
    }
}

#[cfg(test)]
mod tests;
