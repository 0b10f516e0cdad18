//! One seed: its world, run and judged.

use crate::faults::Plan;
use crate::oracle::{self, Violation};
use crate::world::World;

/// What came of a seed.
#[derive(Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The hash of everything that happened.
    pub hash: u64,
    /// Messages on the wire.
    pub messages: usize,
    /// What does not hold, the earliest first.
    pub violations: Vec<Violation>,
    /// What was met.
    pub coverage: crate::coverage::Coverage,
}

/// Runs the world of a seed.
pub fn world(seed: u64) -> World {
    world_of(Plan::of(seed))
}

/// Runs the world of a plan.
pub fn world_of(plan: Plan) -> World {
    let mut world = World::new(plan);
    world.run();
    world
}

/// Runs a seed and judges it.
pub fn run(seed: u64) -> Outcome {
    judged(&world(seed))
}

/// Judges a world that has been run.
pub fn judged(world: &World) -> Outcome {
    let stories = oracle::stories(world);
    let violations = oracle::judge(world, &stories);
    let mut coverage = crate::coverage::Coverage::default();
    coverage.count(world, &stories);
    let messages =
        world.trace.entries.iter().filter(|entry| matches!(entry.what, crate::trace::What::Sent)).count();
    Outcome { seed: world.plan.seed, hash: world.trace.hash(), messages, violations, coverage }
}

/// The hash of a second run of the seed: it must be that of the first.
pub fn hash_again(seed: u64) -> u64 {
    world(seed).trace.hash()
}
