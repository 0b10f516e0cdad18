//! What must hold, each with the section that says so. Oracles see only what went over the wire, questions for
//! names among it (and, at the end, what is left in the servers): they are written from the RFCs and share
//! nothing with what they judge.

mod cancel;
mod changes;
mod digest;
mod invented;
mod invite;
mod loops;
mod messages;
mod refusals;
mod registrar;
mod rest;
mod story;
mod streams;
mod timers;

pub use story::{Branch, LATE, Story, TIMER_C, Transaction};

use crate::faults::Plan;
use crate::trace::Micros;
use crate::world::World;

/// Violations that one run tells, at most.
const VIOLATIONS_MAX: usize = 20;

/// One thing that must hold.
pub struct Oracle {
    /// Its name.
    pub name: &'static str,
    /// Where it is written.
    pub section: &'static str,
    /// What it says, in a sentence.
    pub says: &'static str,
    /// How it is judged.
    judge: fn(&mut Court<'_>),
}

/// All of them.
pub const ORACLES: &[&[Oracle]] = &[
    invite::ORACLES,
    cancel::ORACLES,
    timers::ORACLES,
    messages::ORACLES,
    refusals::ORACLES,
    invented::ORACLES,
    streams::ORACLES,
    changes::ORACLES,
    digest::ORACLES,
    registrar::ORACLES,
    loops::ORACLES,
    rest::ORACLES,
];

/// Something that does not hold.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The oracle's name.
    pub oracle: &'static str,
    /// Its section.
    pub section: &'static str,
    /// When.
    pub at: Micros,
    /// The call's Call-ID; empty where there is none.
    pub call_id: String,
    /// What happened instead.
    pub text: String,
}

/// What an oracle judges by.
pub struct Court<'w> {
    /// The world after its run.
    pub world: &'w World,
    /// The servers' stories.
    pub stories: &'w [Story<'w>],
    oracle: &'static Oracle,
    found: Vec<Violation>,
}

impl Court<'_> {
    /// What the seed had decided.
    pub fn plan(&self) -> &Plan {
        &self.world.plan
    }

    /// Says that something does not hold.
    pub fn accuse(&mut self, at: Micros, call_id: &str, text: String) {
        if self.found.len() < VIOLATIONS_MAX {
            self.found.push(Violation {
                oracle: self.oracle.name,
                section: self.oracle.section,
                at,
                call_id: call_id.to_owned(),
                text,
            });
        }
    }
}

/// Reads what every server did.
pub fn stories(world: &World) -> Vec<Story<'_>> {
    let of =
        |(server, node): (usize, &crate::server::Server)| Story::read(&world.trace, server, node.address);
    world.servers.iter().enumerate().map(of).collect()
}

/// Judges a world after its run.
pub fn judge(world: &World, stories: &[Story<'_>]) -> Vec<Violation> {
    let mut found = Vec::new();
    for oracle in ORACLES.iter().copied().flatten() {
        let mut court = Court { world, stories, oracle, found: Vec::new() };
        (oracle.judge)(&mut court);
        found.append(&mut court.found);
    }
    found.sort_by_key(|violation| violation.at);
    found.truncate(VIOLATIONS_MAX);
    found
}

#[cfg(test)]
mod tests {
    use super::ORACLES;
    use std::collections::BTreeSet;

    #[test]
    fn every_oracle_has_a_name_of_its_own_and_a_section() {
        let all: Vec<_> = ORACLES.iter().copied().flatten().collect();
        let names: BTreeSet<_> = all.iter().map(|oracle| oracle.name).collect();
        assert_eq!(names.len(), all.len());
        assert!(all.iter().all(|oracle| oracle.section.contains('§') && oracle.says.ends_with('.')));
    }
}
