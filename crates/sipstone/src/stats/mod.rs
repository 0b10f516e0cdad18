//! Statistics of measurements: proportions, means, medians, slopes, each with its interval.
//!
//! Everything here is a function of its arguments. Intervals are two-sided at 95 % unless they say otherwise; a number
//! without enough data for an interval is `None`, never an interval of width zero.

pub mod distribution;
pub mod interval;
pub mod slope;
pub mod wilson;

use serde::{Deserialize, Serialize};

/// What a measurement says about a requirement.
///
/// Ordered from good to bad, so that the worst of several is their maximum.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[must_use]
pub enum Verdict {
    /// It is met, and that is proven.
    Pass,
    /// Too little was seen to prove either.
    Undecided,
    /// It is not met, and that is proven.
    Fail,
}

impl Verdict {
    /// Its word in reports: `pass`, `fail`, `undecided`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Undecided => "undecided",
            Verdict::Fail => "fail",
        }
    }

    /// The verdict of a word.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Verdict> {
        [Verdict::Pass, Verdict::Undecided, Verdict::Fail].into_iter().find(|verdict| verdict.word() == word)
    }

    /// The worse of two.
    pub fn worst(self, other: Verdict) -> Verdict {
        self.max(other)
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::Verdict;

    #[test]
    fn the_worst_of_several_verdicts_is_the_failure() {
        assert_eq!(Verdict::Pass.worst(Verdict::Undecided), Verdict::Undecided);
        assert_eq!(Verdict::Fail.worst(Verdict::Undecided), Verdict::Fail);
        assert_eq!(Verdict::Pass.worst(Verdict::Pass), Verdict::Pass);
    }

    #[test]
    fn words_lead_back_to_their_verdicts_and_others_to_none() {
        for verdict in [Verdict::Pass, Verdict::Fail, Verdict::Undecided] {
            assert_eq!(Verdict::of_word(verdict.word()), Some(verdict));
        }
        assert_eq!(Verdict::of_word("maybe"), None);
    }
}
