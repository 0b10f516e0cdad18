//! Shares of successes: Wilson's bounds and the decision whether a required share is met (Wilson 1927; Newcombe 1998).
//!
//! A share of 99 % required and 99.9 % seen is decided by the one-sided bound at 95 %: from 331 attempts on (the often
//! quoted 338 are enough too). With no failure at all 268 attempts suffice.

use super::Verdict;
use super::distribution::normal_quantile;
use crate::report::model::Estimate;

/// Confidence of the one-sided bounds that decide.
pub const CONFIDENCE: f64 = 0.95;
/// The normal quantile of [`CONFIDENCE`].
const DECIDING_Z: f64 = 1.644_853_626_951_472_2;

/// Lower one-sided bound of the true share at this confidence; zero without attempts.
///
/// More successes than attempts count as all.
#[must_use]
pub fn lower(successes: u64, attempts: u64, confidence: f64) -> f64 {
    bound(successes, attempts, -normal_quantile(confidence))
}

/// Upper one-sided bound of the true share at this confidence; one without attempts.
#[must_use]
pub fn upper(successes: u64, attempts: u64, confidence: f64) -> f64 {
    bound(successes, attempts, normal_quantile(confidence))
}

/// Whether the true share is at least `share`, at 95 % one-sided.
pub fn decide(successes: u64, attempts: u64, share: f64) -> Verdict {
    if bound(successes, attempts, -DECIDING_Z) >= share {
        Verdict::Pass
    } else if bound(successes, attempts, DECIDING_Z) < share {
        Verdict::Fail
    } else {
        Verdict::Undecided
    }
}

/// The fewest attempts with which a share of `seen` proves one of `share` at 95 %; `None` if `seen` is not above it.
#[must_use]
pub fn attempts_to_prove(seen: f64, share: f64) -> Option<u64> {
    if !(seen > share && share > 0.0 && seen <= 1.0) {
        return None;
    }
    // The lower bound is `share` where (seen − share)² = z²·share·(1 − share)/n.
    let attempts = DECIDING_Z * DECIDING_Z * share * (1.0 - share) / (seen - share).powi(2);
    Some((attempts - 1e-9).ceil().max(1.0) as u64)
}

/// The 95 % interval of `new − base`, both given as (successes, attempts): Newcombe's score interval.
///
/// `None` if either has no attempts.
#[must_use]
pub fn difference(base: (u64, u64), new: (u64, u64)) -> Option<Estimate> {
    if base.1 == 0 || new.1 == 0 {
        return None;
    }
    let share = |(successes, attempts): (u64, u64)| successes.min(attempts) as f64 / attempts as f64;
    let (p, q) = (share(base), share(new));
    let two_sided = 0.975;
    let (base_low, base_high) = (lower(base.0, base.1, two_sided), upper(base.0, base.1, two_sided));
    let (new_low, new_high) = (lower(new.0, new.1, two_sided), upper(new.0, new.1, two_sided));
    let value = q - p;
    Some(Estimate {
        value,
        low: value - (q - new_low).hypot(base_high - p),
        high: value + (new_high - q).hypot(p - base_low),
    })
}

/// Wilson's bound at `z` standard deviations; negative `z` is the lower one.
fn bound(successes: u64, attempts: u64, z: f64) -> f64 {
    if attempts == 0 {
        return if z < 0.0 { 0.0 } else { 1.0 };
    }
    let n = attempts as f64;
    let share = successes.min(attempts) as f64 / n;
    let spread = z * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
    ((share + z * z / (2.0 * n) + spread) / (1.0 + z * z / n)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn near(left: f64, right: f64, by: f64) {
        assert!((left - right).abs() <= by, "{left} is not {right}");
    }

    #[test]
    fn bounds_match_published_values() {
        // Newcombe 1998, table I, method 3 (two-sided 95 %): 81/263, 15/148, 0/20, 1/29.
        for (successes, attempts, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            near(lower(successes, attempts, 0.975), low, 5e-5);
            near(upper(successes, attempts, 0.975), high, 5e-5);
        }
    }

    #[test]
    fn difference_matches_published_values() {
        // Newcombe 1998 (Interval estimation for the difference), table II, method 10: 56/70 − 48/80.
        let found = difference((48, 80), (56, 70)).expect("both have attempts");
        near(found.value, 0.2, 1e-12);
        near(found.low, 0.0524, 5e-5);
        near(found.high, 0.3339, 5e-5);
        assert_eq!(difference((0, 0), (1, 1)), None);
        assert_eq!(difference((1, 1), (0, 0)), None);
    }

    #[test]
    fn seeing_99_9_percent_proves_99_percent_from_331_attempts_on() {
        assert_eq!(attempts_to_prove(0.999, 0.99), Some(331));
        // In whole attempts: one failure in a thousand proves it, and so do 338 attempts with none.
        assert_eq!(decide(999, 1000, 0.99), Verdict::Pass);
        assert_eq!(decide(338, 338, 0.99), Verdict::Pass);
        assert_eq!(decide(330 - 1, 330, 0.99), Verdict::Undecided);
    }

    #[test]
    fn decisions_are_made_at_the_stated_confidence() {
        near(DECIDING_Z, normal_quantile(CONFIDENCE), 1e-9);
    }

    #[test]
    fn without_failures_268_attempts_prove_99_percent() {
        assert_eq!(attempts_to_prove(1.0, 0.99), Some(268));
        assert_eq!(decide(267, 267, 0.99), Verdict::Undecided);
        assert_eq!(decide(268, 268, 0.99), Verdict::Pass);
    }

    #[test]
    fn what_cannot_be_proven_needs_no_number_of_attempts() {
        assert_eq!(attempts_to_prove(0.99, 0.99), None);
        assert_eq!(attempts_to_prove(0.98, 0.99), None);
        assert_eq!(attempts_to_prove(f64::NAN, 0.99), None);
    }

    #[test]
    fn clear_failures_and_nothing_at_all() {
        assert_eq!(decide(900, 1000, 0.99), Verdict::Fail);
        assert_eq!(decide(990, 1000, 0.99), Verdict::Undecided);
        assert_eq!(decide(0, 0, 0.99), Verdict::Undecided);
        assert_eq!(decide(0, 10, 0.99), Verdict::Fail);
    }

    proptest! {
        #[test]
        fn bounds_enclose_what_was_seen(attempts in 1_u64..1_000_000, share in 0.0_f64..=1.0) {
            let successes = (attempts as f64 * share) as u64;
            let seen = successes as f64 / attempts as f64;
            prop_assert!(lower(successes, attempts, CONFIDENCE) <= seen + 1e-12);
            prop_assert!(upper(successes, attempts, CONFIDENCE) >= seen - 1e-12);
        }

        #[test]
        fn any_counts_give_shares(successes: u64, attempts: u64) {
            let (low, high) = (lower(successes, attempts, CONFIDENCE), upper(successes, attempts, CONFIDENCE));
            prop_assert!((0.0..=1.0).contains(&low) && (0.0..=1.0).contains(&high) && low <= high);
        }
    }
}
