//! Quantiles of the normal and of Student's t distribution.
//!
//! Exact to about nine digits, which is far beyond what any interval needs; slow by design (bisection on the distribution
//! function), since a report asks for a few dozen of them.

/// Where the distribution function of the standard normal distribution has the value `probability`.
///
/// `probability` is cut to \[1e-12, 1 − 1e-12\]; a NaN gives zero.
#[must_use]
pub fn normal_quantile(probability: f64) -> f64 {
    bisect(probability, 8.0, normal_cdf)
}

/// Where the distribution function of Student's t with `freedom` degrees of freedom has the value `probability`.
///
/// `freedom` need not be whole (Welch); below one it counts as one. `probability` as in [`normal_quantile`].
#[must_use]
pub fn student_quantile(probability: f64, freedom: f64) -> f64 {
    let freedom = freedom.max(1.0);
    bisect(probability, 1e7, |t| student_cdf(t, freedom))
}

/// The share of a standard normal distribution below `z`.
#[must_use]
pub fn normal_cdf(z: f64) -> f64 {
    if z.abs() > 8.0 {
        return if z > 0.0 { 1.0 } else { 0.0 };
    }
    // Marsaglia's series (Evaluating the normal distribution, 2004): z + z³/3 + z⁵/(3·5) + …, times the density.
    let (mut term, mut sum, mut divisor) = (z, z, 1.0);
    for _ in 0..200 {
        divisor += 2.0;
        term *= z * z / divisor;
        if sum + term == sum {
            break;
        }
        sum += term;
    }
    let density = (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
    0.5 + sum * density
}

/// The share of Student's t distribution with `freedom` degrees of freedom below `t`.
#[must_use]
pub fn student_cdf(t: f64, freedom: f64) -> f64 {
    let tail = 0.5 * incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5);
    if t > 0.0 { 1.0 - tail } else { tail }
}

/// Logarithm of the gamma function for positive arguments (Lanczos, g = 7).
#[must_use]
pub fn ln_gamma(x: f64) -> f64 {
    const TERMS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x < 0.5 {
        // Reflection: Γ(x)·Γ(1−x) = π / sin(πx).
        let pi = std::f64::consts::PI;
        return (pi / (pi * x).sin().abs()).ln() - ln_gamma(1.0 - x);
    }
    let x = x - 1.0;
    let mut sum = 0.999_999_999_999_809_9;
    let mut at = x;
    for term in TERMS {
        at += 1.0;
        sum += term / at;
    }
    let t = x + 7.5;
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

/// The regularised incomplete beta function I_x(a, b).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return if x <= 0.0 { 0.0 } else { 1.0 };
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp();
    // The fraction converges fast on this side of the mean; the other side is its mirror image.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * beta_fraction(x, a, b) / a
    } else {
        1.0 - front * beta_fraction(1.0 - x, b, a) / b
    }
}

/// The continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz's method.
fn beta_fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    const STEPS_MAX: u32 = 2_000;
    let away_from_zero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut result = d;
    for step in 1..=STEPS_MAX {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        for numerator in [even, odd] {
            d = 1.0 / away_from_zero(1.0 + numerator * d);
            c = away_from_zero(1.0 + numerator / c);
            result *= d * c;
        }
        if (d * c - 1.0).abs() < 1e-15 {
            break;
        }
    }
    result
}

/// Where a rising function that is symmetric about (0, ½) has the value `probability`, within ±`bound`.
fn bisect(probability: f64, bound: f64, cdf: impl Fn(f64) -> f64) -> f64 {
    if probability.is_nan() {
        return 0.0;
    }
    let probability = probability.clamp(1e-12, 1.0 - 1e-12);
    let (mut low, mut high) = (-bound, bound);
    // Halving the widest interval this often leaves less than a rounding error.
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if cdf(middle) < probability {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(left: f64, right: f64, by: f64) {
        assert!((left - right).abs() <= by, "{left} is not {right}");
    }

    #[test]
    fn normal_quantiles_match_the_tables() {
        let table = [(0.5, 0.0), (0.9, 1.281_551_566), (0.95, 1.644_853_627), (0.975, 1.959_963_985)];
        for (probability, quantile) in table {
            near(normal_quantile(probability), quantile, 1e-8);
            near(normal_quantile(1.0 - probability), -quantile, 1e-8);
        }
        near(normal_quantile(0.999), 3.090_232_306, 1e-8);
    }

    #[test]
    fn student_quantiles_match_the_tables() {
        // Two-sided 95 % and 99 %, as printed in every table of the distribution.
        let table = [
            (1.0, 12.706_204_7, 63.656_741_2),
            (2.0, 4.302_652_7, 9.924_843_2),
            (3.0, 3.182_446_3, 5.840_909_3),
            (4.0, 2.776_445_1, 4.604_094_9),
            (5.0, 2.570_581_8, 4.032_143_0),
            (10.0, 2.228_138_9, 3.169_272_7),
            (30.0, 2.042_272_5, 2.749_995_7),
            (120.0, 1.979_930_4, 2.617_421_1),
        ];
        for (freedom, at_95, at_99) in table {
            near(student_quantile(0.975, freedom), at_95, 1e-6);
            near(student_quantile(0.995, freedom), at_99, 1e-6);
            near(student_quantile(0.025, freedom), -at_95, 1e-6);
        }
    }

    #[test]
    fn student_with_much_freedom_is_normal() {
        near(student_quantile(0.975, 1e6), normal_quantile(0.975), 1e-5);
    }

    #[test]
    fn gamma_is_the_factorial() {
        let mut factorial: f64 = 1.0;
        for n in 1..20_u32 {
            near(ln_gamma(f64::from(n)), factorial.ln(), 1e-10);
            factorial *= f64::from(n);
        }
        near(ln_gamma(0.5), std::f64::consts::PI.sqrt().ln(), 1e-12);
        near(ln_gamma(0.25), 3.625_609_908_221_908_f64.ln(), 1e-12);
    }

    #[test]
    fn nonsense_gives_numbers_and_no_panic() {
        for probability in [f64::NAN, -1.0, 0.0, 1.0, 2.0, f64::INFINITY] {
            assert!(normal_quantile(probability).is_finite());
            assert!(student_quantile(probability, 0.0).is_finite());
        }
    }
}
