//! An hour of steady calls on virtual time: what is held stays level, and nothing is left at the end.

mod rig;

use rig::to_bob;
use rig::world::{PERFECT, World};

const CALLS_PER_SECOND: u64 = 10;
const MINUTE: u64 = 60_000_000;

/// RFC 3261 §17: each transaction is destroyed at its end, so the table follows the rate and not the time.
#[test]
fn an_hour_of_calls_holds_a_level_table() {
    let mut world = World::new(1, PERFECT, to_bob());
    world.callee.lean = true;
    let (mut n, mut lost) = (0_u32, 0);
    let mut levels = Vec::new();
    for minute in 0..60_u64 {
        for call in 0..60 * CALLS_PER_SECOND {
            world.caller.call_at(n, minute * MINUTE + call * 1_000_000 / CALLS_PER_SECOND);
            n += 1;
        }
        world.run_until((minute + 1) * MINUTE);
        levels.push(world.network.engine.transactions());
        let two_minutes_of_calls = u32::try_from(120 * CALLS_PER_SECOND).expect("small");
        lost += world.caller.forget_below(n.saturating_sub(two_minutes_of_calls));
    }
    assert_eq!(lost, 0, "every call ended");
    let (low, high) =
        (levels[2..].iter().min().expect("minutes"), levels[2..].iter().max().expect("minutes"));
    assert!(high - low <= high / 50, "the table is level within 2 %: {levels:?}");
    // Three calls of five hold an INVITE (ring 1 s + Timer L) and a BYE (Timer J), the others less: under 80 s a call.
    assert!(*high as u64 <= CALLS_PER_SECOND * 160, "{high} for {CALLS_PER_SECOND} calls a second");

    world.run_until(62 * MINUTE);
    assert_eq!(world.network.engine.transactions(), 0);
    assert_eq!(world.network.engine.next_timeout(), None);
    let calls = u64::from(n);
    let of = |status: u16| world.caller.outcomes.get(&status).copied().unwrap_or(0);
    assert_eq!((of(200), of(486), of(487)), (calls * 3 / 5, calls / 5, calls / 5));
    assert_eq!(world.caller.double_finals, 0);
    assert_eq!(world.callee.unacknowledged, 0);
    let counters = world.network.engine.counters();
    assert_eq!(counters.timeouts, 0);
    assert_eq!(counters.retransmissions_out, 0, "a perfect network needs none");
}
