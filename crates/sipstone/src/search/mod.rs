//! The search for the peak: the highest rate that a server carries by a criterion.
//!
//! ```text
//!  Ramp ×1.5 ──fail──▶ Bisect to the precision ──▶ Confirm at full length ──majority──▶ Overload ──▶ Done
//!    │ every rate up to the limit passed ─────────────▲   │ no majority: step down, then up again
//!    └ the first fails: down, until one passes            └──▶ Done, without a peak
//! ```
//!
//! Pure: [`Search::next`] says which trial to make, [`Search::record`] takes what it showed.
//!
//! **Times.** Trials of the ramp and of the bisection measure a tenth of the criterion's time (two seconds at least), and
//! longer where that gives too few attempts for Wilson's bound to decide, up to the full time; they warm up for at most
//! five seconds. They only point to where the full trials are made: what counts is the confirmation. A trial that stays
//! undecided is made once more, four times as long; what is undecided then goes by the share that was seen.
//!
//! **Confirmation.** Where no majority of the full trials passes, the rate is lowered; where it had to be lowered far, it is
//! then raised again by halves towards the lowest rate that failed. Both are bounded ([`CONFIRM_STEPS`], [`CLIMBS_MAX`]).
//!
//! **Falling behind.** Operations may end after the window, so that a server which carried less than was offered can still
//! answer all of a short trial's backlog before they time out. Where operations end soon after they begin
//! ([`SearchSettings::ends_promptly`]), a trial with a throughput under the required share has therefore failed.

mod bracket;

use crate::criterion::{Criterion, Plan, whole_seconds};
use crate::report::model::{Peak, Step, TrialReport};
use crate::spec::{Class, Delay, Scenario};
use crate::stats::Verdict;
use bracket::{Bracket, Found, Proposal};
use std::time::Duration;

/// The lowest rate that is tried, operations a second.
pub const LOWEST_RATE: f64 = 1.0;
/// The highest rate that is tried without `--max-rate`, operations a second.
pub const HIGHEST_RATE: f64 = 10_000_000.0;
/// Most trials of ramp and bisection; the search ends with what it knows then.
pub const SEARCH_TRIALS_MAX: u32 = 60;
/// How often the rate is lowered because a majority of the full trials failed, and by how many times the precision.
pub const CONFIRM_STEPS: [i32; 5] = [1, 1, 2, 4, 8];
/// How often, at most, the rate is then raised again towards the lowest one that full trials failed.
pub const CLIMBS_MAX: usize = 4;
/// Shortest window of a search trial.
pub const SEARCH_MEASURE_MIN: Duration = Duration::from_secs(2);
/// Longest warm-up of a search trial.
pub const SEARCH_WARM_UP_MAX: Duration = Duration::from_secs(5);
/// How much longer an undecided trial is made the second time.
pub const EXTENSION: u32 = 4;
/// How far under the required share the throughput may be before a server has fallen behind.
const FALLING_BEHIND_ALLOWANCE: f64 = 0.005;

/// What a search is to find, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchSettings {
    /// First rate, operations a second (`--start`, 1000); 1 to 10,000,000.
    pub start: f64,
    /// No higher rate is offered (`--max-rate`).
    pub max_rate: Option<f64>,
    /// The bracket is narrowed to this ratio (`--precision`, 0.02); 0.001 to 0.5.
    pub precision: f64,
    /// When a rate is carried.
    pub criterion: Criterion,
    /// Divides the times by ten.
    pub quick: bool,
    /// Full trials at the peak instead of the criterion's number (`--confirm`); 1 to 99.
    pub confirm_runs: Option<u32>,
    /// Multiples of the peak that are offered after it is found (`--overload`); above 1, at most 10.
    pub overload: Vec<f64>,
    /// The rate that the generator reached against the null server, if it was measured.
    pub calibration: Option<f64>,
    /// The smallest class's share of the arrivals, 0 to 1: it needs enough attempts, too.
    pub rarest_share: f64,
    /// Whether operations end soon after they begin (no ring or hold time): then throughput must keep up.
    pub ends_promptly: bool,
    /// How long an operation is meant to take by its ring, hold and cancel times, in the mean, seconds.
    pub intended_s: f64,
}

impl Default for SearchSettings {
    fn default() -> SearchSettings {
        SearchSettings {
            start: 1000.0,
            max_rate: None,
            precision: 0.02,
            criterion: Criterion::default(),
            quick: false,
            confirm_runs: None,
            overload: vec![1.1, 1.5, 2.0],
            calibration: None,
            rarest_share: 1.0,
            ends_promptly: true,
            intended_s: 0.0,
        }
    }
}

/// A setting out of its range; the sentence says which and what it may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSetting(pub String);

impl std::fmt::Display for BadSetting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadSetting {}

impl SearchSettings {
    /// Takes over what a search must know of the classes: the rarest one's share and whether operations end promptly.
    #[must_use]
    pub fn for_classes(mut self, classes: &[Class]) -> SearchSettings {
        let all: f64 = classes.iter().map(|class| class.weight).sum();
        let rarest =
            classes.iter().map(|class| class.weight).filter(|weight| *weight > 0.0).min_by(f64::total_cmp);
        self.rarest_share = rarest.map_or(1.0, |weight| (weight / all).clamp(1e-6, 1.0));
        let intended = classes.iter().map(|class| class.weight * class.intended().as_secs_f64()).sum::<f64>();
        self.intended_s = if all > 0.0 { intended / all } else { 0.0 };
        self.ends_promptly = classes.iter().all(|class| {
            class.ring == Delay::None && class.hold == Delay::None && class.scenario != Scenario::InviteCancel
        });
        self
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// The first setting that is out of its range.
    pub fn check(&self) -> Result<(), BadSetting> {
        let within = |name: &str, value: f64, low: f64, high: f64| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(BadSetting(format!("{name} is {value}: it must lie between {low} and {high}")))
        };
        within("--start", self.start, LOWEST_RATE, HIGHEST_RATE)?;
        within("--max-rate", self.max_rate.unwrap_or(HIGHEST_RATE), LOWEST_RATE, HIGHEST_RATE)?;
        within("--precision", self.precision, 0.001, 0.5)?;
        within("--confirm", f64::from(self.confirm_runs.unwrap_or(1)), 1.0, 99.0)?;
        self.overload.iter().try_for_each(|factor| within("--overload", *factor, 1.000_001, 10.0))
    }

    /// The highest rate that may be offered.
    fn limit(&self) -> f64 {
        self.max_rate.unwrap_or(HIGHEST_RATE).clamp(LOWEST_RATE, HIGHEST_RATE)
    }
}

/// Why a trial is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// To find a rate that fails and one that passes.
    Ramp,
    /// To bring the two together.
    Bisect,
    /// To prove the peak at full length.
    Confirm,
    /// To see whether throughput holds above the peak.
    Overload,
}

impl Phase {
    /// Its word in reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Phase::Ramp => "ramp",
            Phase::Bisect => "bisect",
            Phase::Confirm => "confirm",
            Phase::Overload => "overload",
        }
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Make this trial and record its outcome.
    Trial {
        /// Why.
        phase: Phase,
        /// Operations a second.
        rate: f64,
        /// Not counted.
        warm_up: Duration,
        /// Counted.
        measure: Duration,
    },
    /// Nothing: this was found.
    Done(Peak),
}

/// What a trial showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// By the criterion.
    pub verdict: Verdict,
    /// Share of successes of the worst class; what is undecided in the end goes by it.
    pub success: f64,
    /// Planned starts in the window, per second.
    pub offered_rate: f64,
    /// Successful ends in the window, per second.
    pub throughput: f64,
    /// Index into the subject's trials.
    pub trial_index: u32,
    /// CPU of the server in cores, if it was watched.
    pub server_cores: Option<f64>,
    /// Planned starts in the window.
    pub offered: u64,
    /// Operations open at the end of the window.
    pub open_at_end: u64,
}

impl Outcome {
    /// What a trial showed, judged by the criterion.
    #[must_use]
    pub fn of(criterion: &Criterion, trial: &TrialReport, trial_index: u32) -> Outcome {
        Outcome {
            verdict: criterion.judge(trial),
            success: criterion.worst_success(trial),
            offered_rate: trial.offered_rate,
            throughput: trial.throughput,
            trial_index,
            server_cores: trial.cpu_cores,
            offered: trial.all.offered,
            open_at_end: open_at_end(trial),
        }
    }
}

/// Operations open at the end of the window: of its last whole second.
fn open_at_end(trial: &TrialReport) -> u64 {
    let within = |second: f64| second + 1.0 <= trial.warm_up_s + trial.measure_s;
    trial.series.iter().rfind(|second| within(f64::from(second.second))).map_or(0, |second| second.open)
}

/// Where a search is.
#[derive(Clone, Debug)]
enum Stage {
    /// Ramp or bisection.
    Seek { proposal: Proposal, extended: bool },
    /// Full trials at one rate.
    Confirm(Confirm),
    /// Full trials above the peak; the rates that remain, the next one last.
    Overload(Vec<f64>),
    /// Over.
    Done,
}

/// Full trials at one rate.
#[derive(Clone, Debug)]
struct Confirm {
    rate: f64,
    passed: u32,
    failed: u32,
    /// Times that the rate was lowered.
    steps: usize,
    /// The highest throughput of those that failed.
    throughput: f64,
}

/// A search under way.
#[derive(Clone, Debug)]
pub struct Search {
    settings: SearchSettings,
    plan: Plan,
    bracket: Bracket,
    stage: Stage,
    trace: Vec<Step>,
    search_trials: u32,
    /// The rate that a majority of full trials proved.
    confirmed: Option<f64>,
    /// Rates that a majority of full trials failed.
    unconfirmed: Vec<f64>,
    ended: Option<String>,
    highest_throughput: f64,
    server_cores: Option<f64>,
}

impl Search {
    /// A search that has done nothing yet. Settings out of their range ([`SearchSettings::check`]) are brought into it.
    #[must_use]
    pub fn new(mut settings: SearchSettings) -> Search {
        let limit = settings.limit();
        settings.precision =
            if settings.precision.is_finite() { settings.precision.clamp(0.001, 0.5) } else { 0.02 };
        settings.start =
            if settings.start.is_finite() { settings.start.clamp(LOWEST_RATE, limit) } else { LOWEST_RATE };
        settings.rarest_share = settings.rarest_share.clamp(1e-6, 1.0);
        settings.overload.retain(|factor| (1.0..=10.0).contains(factor));
        let mut plan = settings.criterion.plan(settings.quick);
        plan.runs = settings.confirm_runs.unwrap_or(plan.runs).clamp(1, 99);
        let bracket = Bracket::new(settings.start, limit, settings.precision, settings.criterion.share);
        let stage = match bracket.propose() {
            Ok(proposal) => Stage::Seek { proposal, extended: false },
            Err(_) => Stage::Done,
        };
        Search {
            settings,
            plan,
            bracket,
            stage,
            trace: Vec::new(),
            search_trials: 0,
            confirmed: None,
            unconfirmed: Vec::new(),
            ended: None,
            highest_throughput: 0.0,
            server_cores: None,
        }
    }

    /// The next trial to make, or what was found. Says the same until an outcome is recorded.
    #[must_use]
    pub fn next(&self) -> Next {
        let full =
            |phase, rate| Next::Trial { phase, rate, warm_up: self.plan.warm_up, measure: self.plan.measure };
        match &self.stage {
            Stage::Seek { proposal, extended } => Next::Trial {
                phase: proposal.phase,
                rate: proposal.rate,
                warm_up: self.plan.warm_up.min(SEARCH_WARM_UP_MAX),
                measure: self.short_measure(proposal.rate, *extended),
            },
            Stage::Confirm(confirm) => full(Phase::Confirm, confirm.rate),
            Stage::Overload(rates) => match rates.last() {
                Some(rate) => full(Phase::Overload, *rate),
                None => Next::Done(self.peak()),
            },
            Stage::Done => Next::Done(self.peak()),
        }
    }

    /// Whether the search takes a trial with this outcome for failed.
    #[must_use]
    pub fn fails(&self, outcome: &Outcome) -> bool {
        outcome.verdict == Verdict::Fail || self.fell_behind(outcome)
    }

    /// Takes the outcome of the trial that [`Search::next`] asked for. Ignored when the search is over.
    pub fn record(&mut self, outcome: Outcome) {
        let Next::Trial { phase, rate, .. } = self.next() else { return };
        let verdict = match outcome.verdict {
            _ if self.fell_behind(&outcome) => Verdict::Fail,
            // A full trial is not made longer.
            Verdict::Undecided
                if phase == Phase::Confirm && self.settled(Verdict::Undecided, outcome.success) =>
            {
                Verdict::Pass
            }
            Verdict::Undecided if phase == Phase::Confirm => Verdict::Fail,
            verdict => verdict,
        };
        self.trace.push(Step {
            phase: phase.word().into(),
            rate,
            verdict: verdict.word().into(),
            success: outcome.success,
            trial: outcome.trial_index,
        });
        if outcome.throughput.is_finite() {
            self.highest_throughput = self.highest_throughput.max(outcome.throughput);
        }
        match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Seek { proposal, extended } => self.record_search(proposal, extended, verdict, outcome),
            Stage::Confirm(confirm) => {
                self.record_full(confirm, self.settled(verdict, outcome.success), outcome);
            }
            Stage::Overload(mut rates) => {
                rates.pop();
                self.stage = if rates.is_empty() { Stage::Done } else { Stage::Overload(rates) };
            }
            Stage::Done => {}
        }
    }

    /// What was tried so far, in order.
    #[must_use]
    pub fn trace(&self) -> &[Step] {
        &self.trace
    }

    /// Full trials at the peak that are asked for.
    #[must_use]
    pub fn runs(&self) -> u32 {
        self.plan.runs
    }

    fn record_search(&mut self, proposal: Proposal, extended: bool, verdict: Verdict, outcome: Outcome) {
        self.search_trials += 1;
        self.server_cores = outcome.server_cores;
        let longer = self.short_measure(proposal.rate, true) > self.short_measure(proposal.rate, extended);
        if verdict == Verdict::Undecided && longer && self.search_trials < SEARCH_TRIALS_MAX {
            self.stage = Stage::Seek { proposal, extended: true };
            return;
        }
        self.bracket.record(proposal, self.settled(verdict, outcome.success), outcome.throughput);
        if self.search_trials >= SEARCH_TRIALS_MAX {
            self.ended = Some(format!(
                "the search was stopped after {SEARCH_TRIALS_MAX} trials without closing in on the peak: begin nearer \
                 to it (--start), or allow a coarser precision (--precision)"
            ));
            return self.confirm_lowest();
        }
        match self.bracket.propose() {
            Ok(proposal) => self.stage = Stage::Seek { proposal, extended: false },
            Err(Found::Bracketed | Found::LimitPassed) => self.confirm_lowest(),
            Err(Found::NothingPasses) => self.ended = Some(self.nothing_passes(outcome.success)),
        }
    }

    /// Goes on to the full trials at the highest rate that passed; without one the search is over.
    fn confirm_lowest(&mut self) {
        if let Some(rate) = self.bracket.low() {
            self.stage = Stage::Confirm(Confirm { rate, passed: 0, failed: 0, steps: 0, throughput: 0.0 });
        }
    }

    fn record_full(&mut self, mut confirm: Confirm, passed: bool, outcome: Outcome) {
        if passed {
            confirm.passed += 1;
        } else {
            confirm.failed += 1;
            confirm.throughput = confirm.throughput.max(outcome.throughput);
        }
        let runs = self.plan.runs;
        let majority = runs / 2 + 1;
        if confirm.failed > runs - majority {
            // No majority can come any more.
            self.unconfirmed.push(confirm.rate);
            if self.confirmed.is_some() { self.climb(&confirm) } else { self.step_down(&confirm) }
        } else if confirm.passed + confirm.failed < runs {
            self.stage = Stage::Confirm(confirm);
        } else {
            self.confirmed = Some(confirm.rate);
            self.climb(&confirm);
        }
    }

    /// After a rate was confirmed: where full trials failed much above it, because the way down was long, tries the middle;
    /// else goes on to overload.
    fn climb(&mut self, confirm: &Confirm) {
        let Some(low) = self.confirmed else { return };
        let above = self.unconfirmed.iter().copied().filter(|failed| *failed > low);
        let near_enough = (1.0 + self.settings.precision).powi(2);
        let wide = above.min_by(f64::total_cmp).filter(|high| high / low > near_enough);
        if let Some(high) = wide.filter(|_| confirm.steps < CONFIRM_STEPS.len() + CLIMBS_MAX) {
            let rate = (low * high).sqrt();
            self.stage = Stage::Confirm(Confirm {
                rate,
                passed: 0,
                failed: 0,
                steps: confirm.steps + 1,
                throughput: 0.0,
            });
            return;
        }
        let limit = self.settings.limit();
        let rates = self.settings.overload.iter().rev().map(|factor| factor * low);
        let rates: Vec<f64> = rates.filter(|rate| *rate <= limit).collect();
        self.stage = if rates.is_empty() { Stage::Done } else { Stage::Overload(rates) };
    }

    /// Lowers the rate after the full trials failed: by the precision, then faster; at once to where the throughput of
    /// the failed trials says that the peak is.
    fn step_down(&mut self, confirm: &Confirm) {
        let widening = 1.0 + self.settings.precision;
        let rate = CONFIRM_STEPS.get(confirm.steps).map(|times| {
            let lower = confirm.rate / widening.powi(*times);
            let told = confirm.throughput / self.settings.criterion.share / widening.sqrt();
            if confirm.throughput > confirm.rate / 2.0 { lower.min(told) } else { lower }
        });
        match rate {
            Some(rate) if rate >= LOWEST_RATE => {
                self.stage = Stage::Confirm(Confirm {
                    rate,
                    passed: 0,
                    failed: 0,
                    steps: confirm.steps + 1,
                    throughput: 0.0,
                });
            }
            _ => {
                self.ended = Some(format!(
                    "no rate could be confirmed: full trials still failed at {:.0}/s, where the short ones had passed at \
                     {:.0}/s; the server may slow down as it runs, so look at the series of the full trials",
                    confirm.rate,
                    self.bracket.low().unwrap_or(0.0),
                ));
            }
        }
    }

    /// What an undecided trial goes by in the end.
    fn settled(&self, verdict: Verdict, success: f64) -> bool {
        match verdict {
            Verdict::Pass => true,
            Verdict::Fail => false,
            Verdict::Undecided => success >= self.settings.criterion.share,
        }
    }

    /// Whether a backlog grew that retransmissions would carry after the window: by the throughput where operations end
    /// promptly, else by the operations that are open beyond those that are meant to be (Little's law).
    fn fell_behind(&self, outcome: &Outcome) -> bool {
        let share = self.settings.criterion.share.min(0.99) - FALLING_BEHIND_ALLOWANCE;
        if self.settings.ends_promptly {
            return outcome.throughput < share * outcome.offered_rate;
        }
        let meant = outcome.offered_rate * self.settings.intended_s;
        // A Poisson number of operations is open; four deviations are noise.
        let allowed = meant + 4.0 * meant.sqrt() + (1.0 - share) * outcome.offered as f64;
        outcome.open_at_end as f64 > allowed
    }

    /// The window of a search trial.
    fn short_measure(&self, rate: f64, extended: bool) -> Duration {
        // Three times what Wilson needs, so that a server just above the required share is told from one just below.
        let attempts = 3.0 * self.settings.criterion.attempts_needed() as f64;
        let needed = (attempts / (rate * self.settings.rarest_share)).min(self.plan.measure.as_secs_f64());
        let short = (self.plan.measure / 10).max(SEARCH_MEASURE_MIN).max(Duration::from_secs_f64(needed));
        let short = whole_seconds(if extended { short * EXTENSION } else { short });
        short.min(self.plan.measure)
    }

    fn nothing_passes(&self, success: f64) -> String {
        let cores = match self.server_cores {
            Some(cores) if cores < 0.5 => format!(
                "; the server used only {cores:.2} cores, so it is not its speed: look at the failures by cause"
            ),
            _ => "; look at the failures by cause".into(),
        };
        format!(
            "even {LOWEST_RATE} operation a second is too fast: {:.1} % succeeded{cores}",
            success * 100.0
        )
    }

    /// What was found so far; the whole once [`Search::next`] says [`Next::Done`].
    #[must_use]
    pub fn peak(&self) -> Peak {
        let rate = self.confirmed.unwrap_or(0.0);
        let failed = self.bracket.high().into_iter().chain(self.unconfirmed.iter().copied());
        let high = failed.filter(|failed| *failed > rate).min_by(f64::total_cmp);
        let limit_passed = (high.is_none() && rate > 0.0).then(|| {
            format!("every trial passed, up to the limit of {rate:.0}/s: the peak is at least that (raise --max-rate)")
        });
        Peak {
            rate,
            low: rate,
            high: high.unwrap_or(rate),
            generator_bound: self.settings.calibration.is_some_and(|calibration| rate > calibration / 2.0),
            highest_throughput: self.highest_throughput,
            trace: self.trace.clone(),
            search_trials: self.search_trials,
            ended: self.ended.clone().or(limit_passed),
        }
    }
}

#[cfg(test)]
mod tests;
