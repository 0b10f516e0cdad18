//! The next rate to try, from the highest that passed and the lowest that failed.
//!
//! A trial that fails tells more than that: a server which holds up under overload goes on carrying its capacity, so its
//! throughput θ says where the peak is. The next two trials go just above and just below it, which is all that is needed
//! to bracket it. Many servers collapse instead, and then θ lies anywhere below the peak. So a prediction is only a
//! prediction: one that turns out wrong is followed by a plain bisection, and after [`SURPRISES_MAX`] of them no more are
//! made.

use super::{LOWEST_RATE, Phase};

/// Wrong predictions after which only bisection is used.
const SURPRISES_MAX: u32 = 2;
/// Factor of the ramp.
const RAMP: f64 = 1.5;
/// Factor of the way down while nothing has passed.
const DESCENT: f64 = 4.0;

/// What is known of the peak.
#[derive(Clone, Debug)]
pub(super) struct Bracket {
    start: f64,
    limit: f64,
    /// 1 + the precision: high/low at which the search is over.
    ratio: f64,
    share: f64,
    low: Option<f64>,
    high: Option<Failed>,
    /// Throughput of the failed trial before `high`.
    earlier_throughput: Option<f64>,
    surprises: u32,
    /// The last prediction was wrong.
    surprised: bool,
}

/// A rate that failed.
#[derive(Clone, Copy, Debug)]
struct Failed {
    rate: f64,
    throughput: f64,
}

/// A rate to try.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Proposal {
    pub(super) phase: Phase,
    pub(super) rate: f64,
    /// Whether it should pass, where that is predicted.
    predicted: Option<bool>,
}

/// Why there is no rate to try any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The peak is bracketed.
    Bracketed,
    /// The highest permitted rate passed.
    LimitPassed,
    /// The lowest rate failed.
    NothingPasses,
}

impl Bracket {
    pub(super) fn new(start: f64, limit: f64, precision: f64, share: f64) -> Bracket {
        Bracket {
            start,
            limit,
            ratio: 1.0 + precision,
            share,
            low: None,
            high: None,
            earlier_throughput: None,
            surprises: 0,
            surprised: false,
        }
    }

    /// The highest rate that passed.
    pub(super) fn low(&self) -> Option<f64> {
        self.low
    }

    /// The lowest rate that failed.
    pub(super) fn high(&self) -> Option<f64> {
        self.high.map(|failed| failed.rate)
    }

    /// Takes the result of a proposed trial.
    pub(super) fn record(&mut self, proposal: Proposal, passed: bool, throughput: f64) {
        self.surprised = proposal.predicted.is_some_and(|predicted| predicted != passed);
        self.surprises += u32::from(self.surprised);
        if passed {
            self.low = Some(proposal.rate);
        } else {
            self.earlier_throughput = self.high.map(|failed| failed.throughput);
            self.high = Some(Failed { rate: proposal.rate, throughput });
        }
    }

    /// The next rate.
    pub(super) fn propose(&self) -> Result<Proposal, Found> {
        let plain = |phase, rate| Proposal { phase, rate, predicted: None };
        match (self.low, self.high) {
            (None, None) => Ok(plain(Phase::Ramp, self.start)),
            (Some(low), None) if low >= self.limit => Err(Found::LimitPassed),
            (Some(low), None) => Ok(plain(Phase::Ramp, (low * RAMP).min(self.limit))),
            (None, Some(high)) if high.rate <= LOWEST_RATE => Err(Found::NothingPasses),
            (None, Some(high)) => Ok(self.descend(high)),
            // A hair more than the ratio, so that rounding does not cost a trial.
            (Some(low), Some(high)) if high.rate <= low * self.ratio * (1.0 + 1e-9) => Err(Found::Bracketed),
            (Some(low), Some(high)) => {
                let predicted = self.peak_by(high).and_then(|peak| self.beside(peak, low, high.rate));
                Ok(predicted.unwrap_or_else(|| plain(Phase::Bisect, (low * high.rate).sqrt())))
            }
        }
    }

    /// While nothing has passed: to just below what the throughput says where it is credible, else a big step down.
    fn descend(&self, high: Failed) -> Proposal {
        let credible = high.throughput >= high.rate / DESCENT
            || self.earlier_throughput.is_some_and(|earlier| (high.throughput / earlier - 1.0).abs() < 0.1);
        let below =
            self.peak_by(high).map(|peak| peak / self.half()).filter(|rate| credible && *rate < high.rate);
        let rate = below.unwrap_or(high.rate / DESCENT).max(LOWEST_RATE);
        Proposal { phase: Phase::Ramp, rate, predicted: below.map(|_| true) }
    }

    /// Where a failed trial's throughput says that the peak is, if that is still to be believed.
    fn peak_by(&self, failed: Failed) -> Option<f64> {
        let peak = failed.throughput / self.share;
        let believed = !self.surprised && self.surprises < SURPRISES_MAX && peak.is_finite() && peak > 0.0;
        believed.then_some(peak)
    }

    /// The trial just above or just below a predicted peak which narrows the bracket more; `None` if the peak is
    /// predicted outside the bracket.
    fn beside(&self, peak: f64, low: f64, high: f64) -> Option<Proposal> {
        let (above, below) = (peak * self.half(), peak / self.half());
        if above < low || below > high {
            return None;
        }
        let (rate, passes) = if below <= low {
            // One trial closes the bracket from above, if it fails.
            (low * self.ratio, false)
        } else if above >= high {
            (high / self.ratio, true)
        } else if high / above >= below / low {
            (above, false)
        } else {
            // Where the rate that failed is near enough, exactly the ratio below it: the estimate moves by a hair from
            // trial to trial, and a bracket that is a hair too wide costs another one.
            let close = high / below < self.ratio * 1.005;
            (if close { below.max(high / self.ratio) } else { below }, true)
        };
        Some(Proposal { phase: Phase::Bisect, rate, predicted: Some(passes) })
    }

    /// From a predicted peak to the trials on both its sides, which together make the ratio.
    fn half(&self) -> f64 {
        self.ratio.sqrt()
    }
}
