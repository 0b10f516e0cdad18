//! What leaves the workers: a Poisson process, and the same one each time.

use crate::rig::{Conditions, Rig, Seen, workload};
use crate::server::{Front, Server};
use sipstone::spec::{Class, Scenario, Shape, Workload};
use std::time::Duration;

/// Kolmogorov-Smirnov: the largest distance times √n that a sample of the distribution exceeds in 1 % of cases.
const CRITICAL: f64 = 1.628;
const RATE: f64 = 1000.0;

/// The first requests of 10 s as they left the workers. A queue and losses keep the workers busy with answers and
/// retransmissions meanwhile.
fn departures(shape: Shape, workers: u16, seed: u64) -> Vec<Seen> {
    let load = Workload { shape, seed, ..workload(Scenario::Register, RATE, Duration::from_secs(9)) };
    let mut rig = Rig::new(&load, workers, Server::new(Front::of_capacity(1200.0))).watch();
    rig.trial("run", Conditions { lost: 0.02, ..Conditions::default() }, None);
    rig.sent.into_iter().filter(|seen| seen.planned.is_some()).collect()
}

/// Distance of the gaps' distribution from the exponential one of the whole rate, times √n.
fn distance(departures: &[Seen]) -> f64 {
    let gap = |pair: &[Seen]| pair[1].at.since(pair[0].at).as_secs_f64();
    let mut gaps: Vec<f64> = departures.windows(2).map(gap).collect();
    gaps.sort_by(f64::total_cmp);
    let n = gaps.len() as f64;
    let off = |(rank, gap): (usize, &f64)| {
        let expected = 1.0 - (-RATE * gap).exp();
        f64::max((rank as f64 + 1.0) / n - expected, expected - rank as f64 / n)
    };
    gaps.iter().enumerate().map(off).fold(0.0, f64::max) * n.sqrt()
}

#[test]
fn gaps_between_first_requests_of_one_worker_are_exponential() {
    for seed in [1, 2, 3] {
        let departures = departures(Shape::Poisson, 1, seed);
        assert!((departures.len() as f64 - 10_000.0).abs() < 400.0, "{}", departures.len());
        let distance = distance(&departures);
        assert!(distance < CRITICAL, "seed {seed}: {distance}");
    }
}

#[test]
fn gaps_between_first_requests_of_four_workers_together_are_exponential() {
    for seed in [1, 2, 3] {
        let departures = departures(Shape::Poisson, 4, seed);
        assert!((departures.len() as f64 - 10_000.0).abs() < 400.0, "{}", departures.len());
        for worker in 0..4 {
            let own = departures
                .iter()
                .filter(|seen| seen.local.to_string().starts_with(&format!("10.0.0.{}", worker + 1)));
            assert!((own.count() as f64 - 2500.0).abs() < 200.0, "worker {worker} has not its quarter");
        }
        let distance = distance(&departures);
        assert!(distance < CRITICAL, "seed {seed}: {distance}");
    }
}

#[test]
fn equal_gaps_fail_the_test_for_exponential_ones() {
    assert!(distance(&departures(Shape::Uniform, 4, 1)) > 10.0 * CRITICAL);
}

#[test]
fn first_requests_leave_when_they_are_planned_whatever_the_server_does() {
    let late = |seen: &Seen| seen.planned != Some(seen.at);
    assert!(!departures(Shape::Poisson, 2, 1).iter().any(late));
}

/// Everything that leaves two workers with a mix of scenarios, over a network that loses and doubles.
fn everything_sent(seed: u64) -> Vec<Seen> {
    let mut load = workload(Scenario::Invite, 200.0, Duration::from_secs(2));
    load.seed = seed;
    load.classes.extend([Class::plain(Scenario::Message), Class::plain(Scenario::RegisterUpdate)]);
    let mut rig = Rig::new(&load, 2, Server::new(Front::Prompt)).watch();
    rig.trial("run", Conditions { lost: 0.01, doubled: 0.02, ..Conditions::default() }, None);
    rig.sent
}

#[test]
fn the_same_seed_gives_the_same_datagrams_byte_by_byte() {
    let (first, again) = (everything_sent(7), everything_sent(7));
    assert!(first.len() > 1500, "{}", first.len());
    assert_eq!(first.len(), again.len());
    let different = first.iter().zip(&again).find(|(one, other)| one != other);
    assert_eq!(different, None);
}

#[test]
fn another_seed_gives_other_datagrams_at_other_times() {
    let (one, other) = (everything_sent(7), everything_sent(8));
    assert!(one.iter().zip(&other).all(|(one, other)| one.bytes != other.bytes));
    assert!(one.iter().zip(&other).filter(|(one, other)| one.at == other.at).count() < 10);
}
