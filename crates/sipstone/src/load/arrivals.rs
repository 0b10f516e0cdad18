//! When operations begin: planned times on an absolute schedule, which no answer of the server can delay.
//!
//! A worker reads its own stream; the streams of all workers together have the shape that was asked for. Poisson
//! streams are independent of each other, so that their sum is Poisson again; equal gaps and bursts of the workers interleave.
//! Every time is computed from the start, never from the time before it, so that rounding cannot add up.

use crate::spec::Shape;
use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;
use sip::Instant;
use std::time::Duration;

/// The highest rate of one worker, operations a second. A schedule with a higher one is empty: planned times are whole
/// microseconds, and a hundred operations in each is beyond any socket.
pub const RATE_MAX: f64 = 1e8;

/// The planned times of one worker.
#[derive(Clone, Debug)]
pub struct Arrivals {
    start: Instant,
    total_us: u64,
    schedule: Schedule,
    upcoming: Option<Instant>,
}

/// How the next time follows; times are seconds after the start.
#[derive(Clone, Debug)]
enum Schedule {
    /// Nothing ever: a rate that no schedule can have.
    Never,
    /// Groups of `size` at (group + phase) · period; groups of one are equal gaps.
    Even { period: f64, phase: f64, size: u64, next: u64 },
    /// A Poisson process whose cumulative rate is `from`·t + `bend`·t²; `expected` is the cumulative rate at the next
    /// time, a sum of exponentials of mean one (inversion of an inhomogeneous Poisson process).
    Poisson { from: f64, bend: f64, expected: f64, random: Xoshiro256PlusPlus },
}

impl Arrivals {
    /// The times of worker `part.0` of `part.1`, which alone has `rate` operations a second (as has
    /// [`Shape::Ramp`]'s `from`: the caller has divided both), from `start` until just before `start + total`.
    ///
    /// `seed` is common to the workers of a group; the part makes their streams independent. A rate that is zero,
    /// negative, not a number or above [`RATE_MAX`] gives an empty schedule.
    #[must_use]
    pub fn new(
        shape: Shape,
        rate: f64,
        start: Instant,
        total: Duration,
        seed: u64,
        part: (u32, u32),
    ) -> Arrivals {
        let (index, of) = part;
        let phase = f64::from(index) / f64::from(of.max(1));
        let even = |size: u32| Schedule::Even {
            period: f64::from(size.max(1)) / rate,
            phase,
            size: u64::from(size.max(1)),
            next: 0,
        };
        let poisson = |from: f64, bend: f64| {
            let mut random = random_of(seed, index);
            Schedule::Poisson { from, bend, expected: Exp1.sample(&mut random), random }
        };
        let sound = |rate: f64| rate > 0.0 && rate <= RATE_MAX;
        let schedule = match shape {
            Shape::Ramp { from }
                if (sound(from) || from == 0.0) && (sound(rate) || rate == 0.0) && from + rate > 0.0 =>
            {
                poisson(from, (rate - from) / (2.0 * total.as_secs_f64()))
            }
            Shape::Poisson if sound(rate) => poisson(rate, 0.0),
            Shape::Uniform if sound(rate) => even(1),
            Shape::Burst { size } if sound(rate) => even(size),
            _ => Schedule::Never,
        };
        let total_us = u64::try_from(total.as_micros()).unwrap_or(u64::MAX);
        let mut arrivals = Arrivals { start, total_us, schedule, upcoming: None };
        arrivals.upcoming = arrivals.planned(start);
        arrivals
    }

    /// The next planned time, without taking it.
    #[must_use]
    pub fn peek(&self) -> Option<Instant> {
        self.upcoming
    }

    /// Takes the next planned time; `None` from the end on. Times never decrease.
    #[allow(clippy::should_implement_trait, reason = "an iterator's adapters would hide `peek`")]
    pub fn next(&mut self) -> Option<Instant> {
        let now = self.upcoming?;
        self.schedule.advance();
        self.upcoming = self.planned(now);
        Some(now)
    }

    /// The schedule's current time, not before `earliest`; `None` at the end.
    fn planned(&self, earliest: Instant) -> Option<Instant> {
        let seconds = self.schedule.seconds()?;
        // Nanoseconds first: a time that is a whole microsecond but for the last bit must not fall short of it.
        // A float beyond u64 becomes the largest u64, which is past any end.
        let micros = (seconds * 1e9).round() as u64 / 1000;
        let at = Instant::from_micros(self.start.as_micros().saturating_add(micros));
        (micros < self.total_us).then(|| at.max(earliest))
    }
}

impl Schedule {
    /// Seconds from the start to the current time; `None` when the process has no further one.
    fn seconds(&self) -> Option<f64> {
        match self {
            Schedule::Never => None,
            Schedule::Even { period, phase, size, next } => Some(((next / size) as f64 + phase) * period),
            Schedule::Poisson { from, bend, expected, .. } => {
                // The smaller root of bend·t² + from·t = expected, in the form that also holds for bend = 0. No root:
                // a falling rate reached zero before.
                let root = from.mul_add(*from, 4.0 * bend * expected);
                let seconds = 2.0 * expected / (from + root.sqrt());
                (root >= 0.0 && seconds.is_finite()).then_some(seconds)
            }
        }
    }

    fn advance(&mut self) {
        match self {
            Schedule::Never => {}
            Schedule::Even { next, .. } => *next += 1,
            Schedule::Poisson { expected, random, .. } => {
                let gap: f64 = Exp1.sample(random);
                *expected += gap;
            }
        }
    }
}

/// The random numbers of one worker's arrivals: no worker shares them, nor does anything else that is drawn from the
/// same seed.
fn random_of(seed: u64, index: u32) -> Xoshiro256PlusPlus {
    const ARRIVALS: u64 = 0x6172_7269_7661_6c73;
    Xoshiro256PlusPlus::seed_from_u64(scramble(scramble(seed ^ ARRIVALS).wrapping_add(u64::from(index))))
}

/// SplitMix64's finaliser: neighbouring numbers come out unrelated.
fn scramble(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_micros(7_000_000);

    fn times(shape: Shape, rate: f64, total_s: f64, seed: u64, part: (u32, u32)) -> Vec<f64> {
        let total = Duration::from_secs_f64(total_s);
        let mut arrivals = Arrivals::new(shape, rate, START, total, seed, part);
        let mut all = Vec::new();
        while let Some(peeked) = arrivals.peek() {
            assert_eq!(arrivals.next(), Some(peeked));
            all.push(peeked.since(START).as_micros() as f64 / 1e6);
        }
        assert_eq!(arrivals.next(), None);
        assert!(all.is_sorted(), "planned times decrease");
        assert!(all.iter().all(|&at| at < total_s), "a time at or after the end");
        all
    }

    fn merged(shape: Shape, rate: f64, total_s: f64, seed: u64, workers: u32) -> Vec<f64> {
        let mut all: Vec<f64> =
            (0..workers).flat_map(|index| times(shape, rate, total_s, seed, (index, workers))).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    fn gaps(times: &[f64]) -> Vec<f64> {
        times.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    /// The Kolmogorov-Smirnov statistic times the square root of the sample's size: above 1.63 at the 1 % level.
    fn kolmogorov_smirnov(mut sample: Vec<f64>, cumulative: impl Fn(f64) -> f64) -> f64 {
        sample.sort_by(f64::total_cmp);
        let n = sample.len() as f64;
        let distance = |(rank, &value): (usize, &f64)| {
            let expected = cumulative(value);
            f64::max((rank as f64 + 1.0) / n - expected, expected - rank as f64 / n)
        };
        sample.iter().enumerate().map(distance).fold(0.0, f64::max) * n.sqrt()
    }

    const CRITICAL: f64 = 1.63;

    #[test]
    fn poisson_gaps_of_one_worker_are_exponential() {
        for seed in [1, 2, 3, 20_261_121] {
            let gaps = gaps(&times(Shape::Poisson, 100.0, 200.0, seed, (0, 1)));
            let statistic = kolmogorov_smirnov(gaps, |gap| 1.0 - (-100.0 * gap).exp());
            assert!(statistic < CRITICAL, "seed {seed}: {statistic}");
        }
    }

    #[test]
    fn poisson_gaps_of_four_workers_together_are_exponential_and_independent() {
        for seed in [1, 2, 3, 20_261_121] {
            let gaps = gaps(&merged(Shape::Poisson, 25.0, 200.0, seed, 4));
            let n = gaps.len() as f64;
            let lagged: f64 = gaps.windows(2).map(|pair| (pair[0] - 0.01) * (pair[1] - 0.01)).sum();
            assert!(
                (lagged / n / 1e-4).abs() < 3.0 / n.sqrt(),
                "seed {seed}: neighbouring gaps are correlated"
            );
            let statistic = kolmogorov_smirnov(gaps, |gap| 1.0 - (-100.0 * gap).exp());
            assert!(statistic < CRITICAL, "seed {seed}: {statistic}");
        }
    }

    #[test]
    fn the_test_itself_tells_equal_gaps_from_exponential_ones() {
        let gaps = gaps(&times(Shape::Uniform, 100.0, 20.0, 1, (0, 1)));
        assert!(kolmogorov_smirnov(gaps, |gap| 1.0 - (-100.0 * gap).exp()) > CRITICAL);
    }

    #[test]
    fn mean_poisson_rate_is_within_three_sigma() {
        for (rate, total_s) in [(0.5, 20_000.0), (1000.0, 30.0), (1e6, 0.1)] {
            for seed in 0..5 {
                let expected: f64 = rate * total_s;
                let seen = times(Shape::Poisson, rate, total_s, seed, (0, 1)).len() as f64;
                assert!((seen - expected).abs() < 3.0 * expected.sqrt(), "{rate}/s, seed {seed}: {seen}");
            }
        }
    }

    #[test]
    fn same_seed_repeats_and_other_seed_or_worker_differs() {
        let one = |seed, part| times(Shape::Poisson, 50.0, 10.0, seed, part);
        assert_eq!(one(9, (1, 4)), one(9, (1, 4)));
        assert_ne!(one(9, (1, 4)), one(10, (1, 4)));
        assert_ne!(one(9, (1, 4)), one(9, (2, 4)));
    }

    #[test]
    fn uniform_gaps_of_four_workers_interleave() {
        let all = merged(Shape::Uniform, 250.0, 2.0, 1, 4);
        assert_eq!(all.len(), 2000);
        assert!(gaps(&all).iter().all(|gap| (gap - 0.001).abs() < 1e-9));
    }

    #[test]
    fn uniform_times_do_not_drift() {
        let all = times(Shape::Uniform, 3.0, 300_000.0, 1, (0, 1));
        assert_eq!(all.len(), 900_000);
        let off = |(k, at): (usize, &f64)| (k as f64 / 3.0 - at).abs() > 1e-6;
        assert!(!all.iter().enumerate().any(off));
    }

    #[test]
    fn bursts_start_together_and_keep_the_mean_rate() {
        let all = merged(Shape::Burst { size: 5 }, 50.0, 10.0, 1, 2);
        assert_eq!(all.len(), 1000);
        for (burst, members) in all.chunks(5).enumerate() {
            assert!(
                members.iter().all(|&at| (at - burst as f64 * 0.05).abs() < 1e-6),
                "burst {burst}: {members:?}"
            );
        }
    }

    #[test]
    fn ramps_follow_the_straight_line_up_and_down() {
        for (from, to) in [(0.0, 400.0), (100.0, 300.0), (400.0, 0.0)] {
            let total = 100.0;
            let cumulative = |t: f64| from * t + (to - from) * t * t / (2.0 * total);
            let all = times(Shape::Ramp { from }, to, total, 5, (0, 1));
            let expected: f64 = cumulative(total);
            assert!(
                (all.len() as f64 - expected).abs() < 3.0 * expected.sqrt(),
                "{from} to {to}: {}",
                all.len()
            );
            let statistic = kolmogorov_smirnov(all, |t| cumulative(t) / cumulative(total));
            assert!(statistic < CRITICAL, "{from} to {to}: {statistic}");
        }
    }

    #[test]
    fn a_level_ramp_is_poisson() {
        assert_eq!(
            times(Shape::Ramp { from: 20.0 }, 20.0, 50.0, 3, (0, 1)),
            times(Shape::Poisson, 20.0, 50.0, 3, (0, 1))
        );
    }

    #[test]
    fn rates_that_no_schedule_can_have_give_an_empty_one() {
        for rate in
            [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, RATE_MAX * 1.01, f64::MIN_POSITIVE]
        {
            for shape in
                [Shape::Poisson, Shape::Uniform, Shape::Burst { size: 3 }, Shape::Ramp { from: rate }]
            {
                let all = times(shape, rate, 10.0, 1, (1, 2));
                assert!(all.is_empty(), "{shape:?} at {rate}: {}", all.len());
            }
        }
        assert!(times(Shape::Poisson, 100.0, 0.0, 1, (0, 1)).is_empty());
        assert!(times(Shape::Ramp { from: 0.0 }, 100.0, 0.0, 1, (0, 1)).is_empty());
    }

    #[test]
    fn slow_and_degenerate_schedules_are_bounded() {
        assert!(times(Shape::Poisson, 0.001, 1.0, 4, (0, 1)).len() < 2);
        assert_eq!(times(Shape::Uniform, 0.001, 3000.0, 4, (0, 1)), [0.0, 1000.0, 2000.0]);
        assert_eq!(times(Shape::Burst { size: 0 }, 10.0, 1.0, 4, (0, 0)).len(), 10);
        let mut late = Arrivals::new(Shape::Uniform, 1.0, Instant::NEVER, Duration::from_secs(3), 1, (0, 1));
        assert_eq!(std::iter::from_fn(|| late.next()).count(), 3);
        let mut long = Arrivals::new(Shape::Poisson, 10.0, START, Duration::MAX, 1, (0, 1));
        assert!((0..1000).all(|_| long.next().is_some()));
    }
}
