//! The net grid: the same calls over networks of every loss and delay, in one table. A regression of the
//! transactions or of the proxy is a difference in it.

use crate::faults::{Keeping, Link, MILLI, Plan, ROOMY, SECOND, StoreFaults};
use crate::phone::{Habits, Task};
use crate::world::World;
use std::fmt::Write as _;

/// Percent of packets lost.
const LOSSES: [u64; 5] = [0, 1, 5, 10, 20];
/// One way of each hop (ms).
const DELAYS: [u64; 5] = [1, 10, 50, 100, 200];
/// Callers, and as many callees.
const PAIRS: usize = 10;
/// Calls of each caller.
const CALLS: u64 = 10;

/// One cell: calls accepted of a hundred, messages sent again by all, and the 99th percentile of the time from
/// INVITE to 200 in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Calls that were accepted.
    pub accepted: u64,
    /// Messages that phones and server sent again.
    pub again: u64,
    /// Milliseconds from INVITE to 200 that one call of a hundred exceeds.
    pub p99_ms: u64,
}

/// Calls of plain phones over this network.
pub fn cell(loss: u64, delay_ms: u64) -> Cell {
    let plan = Plan {
        seed: 1_000 * loss + delay_ms,
        phones: 2 * PAIRS,
        users: 2 * PAIRS,
        requests: 0,
        active: 20 * SECOND * (CALLS + 2),
        servers: 1,
        shards: 1,
        link: Link { delay: delay_ms * MILLI, loss, ..Link::default() },
        partitions: 0,
        kills: 0,
        kills_about_commits: 0,
        shard_restarts: 0,
        lone_restarts: 0,
        clock_jumps: 0,
        clock_steps: 0,
        drains: 0,
        changes: false,
        digest: None,
        loops: None,
        lax_edges: false,
        holds_answers: false,
        keeping: Keeping::Memory,
        store: StoreFaults::default(),
        dns: 0,
        tcp: 0,
        resets: 0,
        last_words: 0,
        noise: 0,
        sizes: ROOMY,
    };
    let active = plan.active;
    let mut world = World::bare(plan);
    for (number, phone) in world.phones.iter_mut().enumerate() {
        phone.set_habits(Habits::plain(0, 5 * SECOND));
        phone.register_until(number as u64 * 10 * MILLI, active);
        for call in 0..CALLS {
            if number < PAIRS {
                let at = 20 * SECOND * (call + 1) + number as u64 * 500 * MILLI;
                phone.plan(at, Task::Call(format!("u{}", number + PAIRS)));
            }
        }
    }
    world.run();
    let accepted = world.phones.iter().map(|phone| phone.tally.accepted).sum();
    let phones: u64 = world.phones.iter().map(|phone| phone.tally.again).sum();
    let servers: u64 = world
        .servers
        .iter()
        .flat_map(|server| server.counters())
        .map(|counters| counters.retransmissions_out)
        .sum();
    let mut times: Vec<u64> =
        world.phones.iter().flat_map(|phone| phone.tally.set_up.iter().copied()).collect();
    times.sort_unstable();
    let place = (times.len() * 99).div_ceil(100).saturating_sub(1);
    let p99_ms = times.get(place).map_or(0, |micros| micros / MILLI);
    Cell { accepted, again: phones + servers, p99_ms }
}

/// The table.
pub fn table() -> String {
    let mut text = String::from(
        "Net grid: calls accepted of 100 / messages sent again / 99th percentile of the set-up time in ms,\n\
         by loss of packets (rows) and delay of each hop one way (columns). Phones answer at once; seeds are fixed.\n\n",
    );
    text.push_str("loss");
    for delay in DELAYS {
        let _ = write!(text, "{:>20}", format!("{delay} ms"));
    }
    text.push('\n');
    for loss in LOSSES {
        let _ = write!(text, "{loss:>2} %");
        for delay in DELAYS {
            let Cell { accepted, again, p99_ms } = cell(loss, delay);
            let _ = write!(text, "{:>20}", format!("{accepted} / {again} / {p99_ms}"));
        }
        text.push('\n');
    }
    text
}
