//! Means, medians and ratios of repeated measurements, each with its 95 % interval.

use super::distribution::{ln_gamma, student_quantile};
use crate::report::model::Estimate;

/// Arithmetic mean with Student's interval; `None` with fewer than two values or one that is not finite.
#[must_use]
pub fn mean(values: &[f64]) -> Option<Estimate> {
    let moments = Moments::of(values)?;
    let reach = student_quantile(0.975, moments.count - 1.0) * moments.error_squared().sqrt();
    Some(Estimate { value: moments.mean, low: moments.mean - reach, high: moments.mean + reach })
}

/// Median with the interval between two order statistics, which assumes nothing about the distribution and covers the
/// true median with at least 95 %.
///
/// `None` with fewer than six values (the extremes of five cover it with 93.75 % only) or one that is not finite.
#[must_use]
pub fn median(values: &[f64]) -> Option<Estimate> {
    if values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = low_rank(sorted.len())?;
    let low = *sorted.get(rank)?;
    let high = *sorted.get(sorted.len() - 1 - rank)?;
    Some(Estimate { value: middle(&sorted)?, low, high })
}

/// The middle of sorted values; of two middles their mean; `None` when empty.
#[must_use]
pub fn middle(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(0.5 * (sorted.get(sorted.len() / 2 - 1)? + upper))
}

/// Ratio new/base of the geometric means with Welch's interval on the logarithms.
///
/// `None` unless both have two values or more, all finite and above zero. When nothing varies the interval has no width:
/// that is what was seen.
#[must_use]
pub fn ratio(base: &[f64], new: &[f64]) -> Option<Estimate> {
    let logarithms = |values: &[f64]| {
        values.iter().map(|value| (*value > 0.0).then(|| value.ln())).collect::<Option<Vec<f64>>>()
    };
    let (base, new) = (Moments::of(&logarithms(base)?)?, Moments::of(&logarithms(new)?)?);
    let (base_error, new_error) = (base.error_squared(), new.error_squared());
    let error = base_error + new_error;
    let difference = new.mean - base.mean;
    let reach = if error > 0.0 {
        // Welch and Satterthwaite: the degrees of freedom of a difference of unequal variances.
        let freedom = error * error
            / (base_error * base_error / (base.count - 1.0) + new_error * new_error / (new.count - 1.0));
        student_quantile(0.975, freedom) * error.sqrt()
    } else {
        0.0
    };
    Some(Estimate {
        value: difference.exp(),
        low: (difference - reach).exp(),
        high: (difference + reach).exp(),
    })
}

/// Count, mean and variance of a sample.
struct Moments {
    count: f64,
    mean: f64,
    variance: f64,
}

impl Moments {
    /// Of at least two finite values.
    fn of(values: &[f64]) -> Option<Moments> {
        if values.len() < 2 || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        Some(Moments { count, mean, variance })
    }

    /// Square of the mean's standard error.
    fn error_squared(&self) -> f64 {
        self.variance / self.count
    }
}

/// The highest rank (from 0) whose value lies above the median with at most 2.5 %; `None` if not even the lowest does.
fn low_rank(count: usize) -> Option<usize> {
    let n = count as f64;
    // The number of values below the median is binomial with one half.
    let chance = |k: f64| {
        (ln_gamma(n + 1.0) - ln_gamma(k + 1.0) - ln_gamma(n - k + 1.0) - n * std::f64::consts::LN_2).exp()
    };
    let mut below = 0.0;
    let mut rank = None;
    for k in 0..count / 2 {
        below += chance(k as f64);
        if below > 0.025 {
            break;
        }
        rank = Some(k);
    }
    rank
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};

    fn near(left: f64, right: f64, by: f64) {
        assert!((left - right).abs() <= by, "{left} is not {right}");
    }

    #[test]
    fn mean_of_five_has_the_textbook_interval() {
        // s = √2.5, t(4) = 2.776445, half width = 2.776445·√(2.5/5) = 1.963243.
        let found = mean(&[1.0, 2.0, 3.0, 4.0, 5.0]).expect("five values");
        near(found.value, 3.0, 1e-12);
        near(found.low, 3.0 - 1.963_243, 1e-5);
        near(found.high, 3.0 + 1.963_243, 1e-5);
    }

    #[test]
    fn one_value_has_no_interval() {
        assert_eq!(mean(&[1.0]), None);
        assert_eq!(mean(&[]), None);
        assert_eq!(mean(&[1.0, f64::NAN]), None);
        assert_eq!(ratio(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(median(&[1.0, 2.0, 3.0, 4.0, 5.0]), None);
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn median_lies_between_the_right_order_statistics() {
        // Published ranks (Conover): n = 6: 1st to 6th; n = 10: 2nd to 9th; n = 20: 6th to 15th; n = 100: 40th to 61st.
        for (count, low, high) in [(6, 1, 6), (10, 2, 9), (20, 6, 15), (100, 40, 61)] {
            let values: Vec<f64> = (1..=count).rev().map(f64::from).collect();
            let found = median(&values).expect("enough values");
            assert_eq!((found.low, found.high), (f64::from(low), f64::from(high)), "of {count}");
        }
    }

    #[test]
    fn median_of_many_values_does_not_underflow() {
        let values: Vec<f64> = (0..5000).map(f64::from).collect();
        let found = median(&values).expect("many values");
        near(found.value, 2499.5, 1e-9);
        near(found.high - found.low, 1.96 * 5000_f64.sqrt(), 4.0);
    }

    #[test]
    fn ratio_of_equal_samples_is_one_and_of_doubled_ones_two() {
        let base = [10.0, 10.2, 9.8, 10.1];
        let doubled: Vec<f64> = base.iter().map(|value| value * 2.0).collect();
        let found = ratio(&base, &doubled).expect("four values each");
        near(found.value, 2.0, 1e-12);
        assert!(found.low > 1.9 && found.high < 2.1);
        let still = ratio(&[3.0, 3.0], &[3.0, 3.0]).expect("two values each");
        assert_eq!((still.low, still.high), (1.0, 1.0));
    }

    #[test]
    fn ratio_needs_positive_values() {
        assert_eq!(ratio(&[0.0, 1.0], &[1.0, 1.0]), None);
        assert_eq!(ratio(&[1.0, 1.0], &[1.0, -1.0]), None);
        assert_eq!(ratio(&[1.0, 1.0], &[1.0, f64::INFINITY]), None);
    }

    #[test]
    fn intervals_cover_the_truth_about_95_times_in_100() {
        let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(1);
        let (mut means, mut medians, mut ratios) = (0, 0, 0);
        for _ in 0..2000 {
            // A sum of twelve uniform numbers is near enough to normal; mean 6.
            let mut sample = |count: usize| -> Vec<f64> {
                (0..count).map(|_| (0..12).map(|_| random.random::<f64>()).sum()).collect()
            };
            let (small, large, other) = (sample(5), sample(15), sample(5));
            let holds = |estimate: Option<Estimate>, truth: f64| {
                u32::from(estimate.is_some_and(|found| found.low <= truth && truth <= found.high))
            };
            means += holds(mean(&small), 6.0);
            medians += holds(median(&large), 6.0);
            ratios += holds(ratio(&small, &other), 1.0);
        }
        for (what, count, limits) in
            [("mean", means, 1860..1940), ("median", medians, 1900..1970), ("ratio", ratios, 1860..1970)]
        {
            assert!(limits.contains(&count), "{what}: {count} of 2000");
        }
    }
}
