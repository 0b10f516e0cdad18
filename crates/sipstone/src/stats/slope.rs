//! A straight line through measurements: what one more operation a second costs.
//!
//! The cost of an operation is the slope of the server's CPU time over its completed operations, not their quotient: what
//! the server does when idle is the intercept and belongs to no operation (IBM 2007 and the 2009 paper's calibration).

use super::distribution::student_quantile;
use crate::report::model::Estimate;

/// An ordinary least-squares line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// y per x.
    pub slope: f64,
    /// y at x = 0.
    pub intercept: f64,
    /// How sure that is; `None` with exactly two points, through which a line always goes.
    pub errors: Option<Errors>,
    /// Points it was drawn through.
    pub points: usize,
}

/// What the scatter about the line says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Errors {
    /// Standard error of the slope.
    pub slope_error: f64,
    /// 95 % interval of the slope.
    pub slope: Estimate,
    /// Standard error of the intercept.
    pub intercept_error: f64,
    /// 95 % interval of the intercept.
    pub intercept: Estimate,
}

/// Why there is no line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLine {
    /// Fewer than two different x.
    TooFew,
    /// A coordinate is not a finite number.
    NotFinite,
}

impl std::fmt::Display for NoLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            NoLine::TooFew => {
                "a slope needs measurements at two different rates or more: run at another rate too"
            }
            NoLine::NotFinite => "a rate or a CPU time is not a number: leave that measurement out",
        })
    }
}

impl std::error::Error for NoLine {}

/// The line through points (x, y).
///
/// # Errors
/// See [`NoLine`].
pub fn line(points: &[(f64, f64)]) -> Result<Line, NoLine> {
    if points.iter().any(|(x, y)| !x.is_finite() || !y.is_finite()) {
        return Err(NoLine::NotFinite);
    }
    let first = points.first().ok_or(NoLine::TooFew)?.0;
    if points.iter().all(|(x, _)| *x == first) {
        return Err(NoLine::TooFew);
    }
    let count = points.len() as f64;
    let x_mean = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let y_mean = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let x_spread = points.iter().map(|(x, _)| (x - x_mean).powi(2)).sum::<f64>();
    let together = points.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum::<f64>();
    let slope = together / x_spread;
    let intercept = y_mean - slope * x_mean;
    let errors = (points.len() > 2).then(|| {
        let residual = points.iter().map(|(x, y)| (y - intercept - slope * x).powi(2)).sum::<f64>();
        let variance = residual / (count - 2.0);
        let slope_error = (variance / x_spread).sqrt();
        let intercept_error = (variance * (1.0 / count + x_mean * x_mean / x_spread)).sqrt();
        let t = student_quantile(0.975, count - 2.0);
        let around =
            |value: f64, error: f64| Estimate { value, low: value - t * error, high: value + t * error };
        Errors {
            slope_error,
            slope: around(slope, slope_error),
            intercept_error,
            intercept: around(intercept, intercept_error),
        }
    });
    Ok(Line { slope, intercept, errors, points: points.len() })
}

impl Line {
    /// Of a line of CPU cores over operations a second: microseconds of CPU time per operation, with the 95 % interval.
    /// `None` with two points only, which have no interval.
    #[must_use]
    pub fn us_per_operation(&self) -> Option<Estimate> {
        let slope = self.errors?.slope;
        Some(Estimate { value: slope.value * 1e6, low: slope.low * 1e6, high: slope.high * 1e6 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(left: f64, right: f64, by: f64) {
        assert!((left - right).abs() <= by, "{left} is not {right}");
    }

    #[test]
    fn a_known_regression_has_its_known_errors() {
        // Anscombe's first quartet: y = 3.0001 + 0.5001·x, errors 1.1247 and 0.1179.
        let x = [10.0, 8.0, 13.0, 9.0, 11.0, 14.0, 6.0, 4.0, 12.0, 7.0, 5.0];
        let y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68];
        let points: Vec<(f64, f64)> = x.into_iter().zip(y).collect();
        let found = line(&points).expect("eleven points");
        near(found.slope, 0.500_091, 1e-6);
        near(found.intercept, 3.000_091, 1e-6);
        let errors = found.errors.expect("more than two points");
        near(errors.slope_error, 0.117_906, 1e-6);
        near(errors.intercept_error, 1.124_747, 1e-6);
        near(errors.slope.low, 0.500_091 - 2.262_157 * 0.117_906, 1e-5);
        near(errors.intercept.high, 3.000_091 + 2.262_157 * 1.124_747, 1e-5);
    }

    #[test]
    fn the_idle_load_of_a_server_is_in_the_intercept_and_not_in_the_cost() {
        // 50 µs per operation over an idle load of 3 % of a core.
        let points: Vec<(f64, f64)> =
            (1..=5).map(|k| f64::from(k) * 1000.0).map(|rate| (rate, 0.03 + rate * 50e-6)).collect();
        let found = line(&points).expect("five points");
        near(found.us_per_operation().expect("an interval").value, 50.0, 1e-9);
        near(found.intercept, 0.03, 1e-12);
    }

    #[test]
    fn two_points_have_a_slope_without_an_interval() {
        let found = line(&[(1.0, 1.0), (2.0, 3.0)]).expect("two points");
        near(found.slope, 2.0, 1e-12);
        assert_eq!((found.errors, found.us_per_operation()), (None, None));
    }

    #[test]
    fn one_rate_is_no_slope() {
        assert_eq!(line(&[]), Err(NoLine::TooFew));
        assert_eq!(line(&[(1.0, 1.0)]), Err(NoLine::TooFew));
        assert_eq!(line(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]), Err(NoLine::TooFew));
        assert_eq!(line(&[(1.0, 1.0), (f64::NAN, 2.0)]), Err(NoLine::NotFinite));
        assert!(NoLine::TooFew.to_string().contains("another rate"));
    }
}
