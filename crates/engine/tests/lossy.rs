//! A thousand calls over bad networks, with user agents that obey the RFC: every call ends, with one final response.

mod rig;

use rig::to_bob;
use rig::world::{Link, World};

struct Summary {
    answered: u64,
    busy: u64,
    cancelled: u64,
    timeouts: u64,
    /// Calls that never heard any response although they asked seven times, or never their final one.
    silent: u64,
    unacknowledged: u64,
}

/// Runs `calls` calls, one each 50 ms, then waits until everything must have ended.
fn run(seed: u64, calls: u32, link: Link) -> Summary {
    let mut world = World::new(seed, link, to_bob());
    for n in 0..calls {
        world.caller.call_at(n, u64::from(n) * 50_000);
    }
    let last = u64::from(calls) * 50_000;
    // Ring and talk (4 s), 64*T1 for each of INVITE, CANCEL and BYE, Timer C, and room.
    world.run_until(last + 400_000_000);

    assert_eq!(
        world.network.engine.transactions(),
        0,
        "seed {seed}: the table is empty after the last timer"
    );
    assert_eq!(world.network.engine.next_timeout(), None);
    assert_eq!(world.caller.double_finals, 0, "seed {seed}: a call got two different final responses");
    for (n, branches) in &world.callee.branches {
        assert_eq!(branches.len(), 1, "seed {seed}: call {n}: a retransmission was taken for a new request");
    }
    let of = |status: u16| world.caller.outcomes.get(&status).copied().unwrap_or(0);
    let other: u64 = world
        .caller
        .outcomes
        .iter()
        .filter(|&(status, _)| ![200, 408, 486, 487].contains(status))
        .map(|(_, n)| n)
        .sum();
    assert_eq!(other, 0, "seed {seed}: {:?}", world.caller.outcomes);
    Summary {
        answered: of(200),
        busy: of(486),
        cancelled: of(487),
        timeouts: of(408),
        silent: world.caller.calls.values().filter(|call| call.open).count() as u64,
        unacknowledged: world.callee.unacknowledged,
    }
}

/// The perfect network, as a check of the rig itself.
#[test]
fn all_calls_end_on_a_perfect_network() {
    let summary = run(1, 200, rig::world::PERFECT);
    assert_eq!((summary.answered, summary.busy, summary.cancelled), (120, 40, 40));
    assert_eq!((summary.timeouts, summary.silent, summary.unacknowledged), (0, 0, 0));
}

/// RFC 3261 §17: 20 % loss each way on each hop. A 408 or silence is only left to calls of which all seven requests or
/// all their answers were lost: 0.36^7 of them.
#[test]
fn a_thousand_calls_survive_twenty_percent_loss() {
    let link = Link { latency: 20_000, jitter: 5000, loss: 20, duplication: 0 };
    let (mut ended, mut timeouts, mut silent, mut unacknowledged) = (0, 0, 0, 0);
    for seed in 0..10 {
        let summary = run(seed, 100, link);
        ended += summary.answered + summary.busy + summary.cancelled;
        timeouts += summary.timeouts;
        silent += summary.silent;
        unacknowledged += summary.unacknowledged;
    }
    assert_eq!(ended + timeouts + silent, 1000);
    assert!(timeouts <= 1, "{timeouts} calls got 408");
    assert!(silent <= 3, "{silent} calls heard nothing");
    assert!(unacknowledged <= 10, "{unacknowledged} final responses were never acknowledged");
}

/// Everything arrives, much of it twice.
#[test]
fn duplication_changes_nothing() {
    let link = Link { latency: 20_000, jitter: 0, loss: 0, duplication: 40 };
    let summary = run(7, 500, link);
    assert_eq!((summary.answered, summary.busy, summary.cancelled), (300, 100, 100));
    assert_eq!((summary.timeouts, summary.silent, summary.unacknowledged), (0, 0, 0));
}

/// Up to 800 ms of jitter: everything arrives, in any order, after retransmissions have been sent.
#[test]
fn reordering_changes_nothing() {
    let link = Link { latency: 10_000, jitter: 800_000, loss: 0, duplication: 10 };
    let summary = run(9, 500, link);
    assert_eq!(summary.answered + summary.busy + summary.cancelled, 500);
    assert_eq!((summary.timeouts, summary.silent), (0, 0));
    assert_eq!((summary.answered, summary.busy, summary.cancelled), (300, 100, 100));
}

/// All of it together.
#[test]
fn a_really_bad_network_is_survived() {
    let link = Link { latency: 50_000, jitter: 300_000, loss: 20, duplication: 20 };
    let summary = run(13, 500, link);
    let ended = summary.answered + summary.busy + summary.cancelled;
    assert!(ended >= 497, "{ended} of 500 ended");
}

/// The same seed gives the same run: the engine has no hidden input.
#[test]
fn a_run_is_reproducible() {
    let link = Link { latency: 20_000, jitter: 100_000, loss: 20, duplication: 10 };
    let counters = |seed| {
        let mut world = World::new(seed, link, to_bob());
        for n in 0..50 {
            world.caller.call_at(n, u64::from(n) * 50_000);
        }
        world.run_until(200_000_000);
        format!("{:?}", world.network.engine.counters())
    };
    assert_eq!(counters(3), counters(3));
    assert_ne!(counters(3), counters(4));
}
