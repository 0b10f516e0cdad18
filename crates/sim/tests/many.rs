//! A world with as many phones as a small office park has. It takes ten seconds, many more if it is not
//! optimized, and so runs when it is asked for:
//! `cargo test --release -p sim --test many -- --ignored --nocapture`.

use sim::faults::{Keeping, Link, MILLI, Plan, ROOMY, SECOND, StoreFaults};
use sim::run;
use std::time::Instant;

/// Phones of the world.
const PHONES: usize = 2_000;

/// Two servers of four shards, a network that loses, doubles and overtakes, deaths of the servers and of shards, a store
/// that fails, clocks that go back, users who lead in circles.
fn plan() -> Plan {
    Plan {
        seed: PHONES as u64,
        phones: PHONES,
        users: 1_500,
        requests: 2_500,
        active: 120 * SECOND,
        servers: 2,
        shards: 4,
        link: Link { delay: 20 * MILLI, jitter: 50 * MILLI, loss: 2, duplicates: 2, mtu: 0 },
        partitions: 5,
        kills: 1,
        lone_restarts: 2,
        clock_steps: 1,
        keeping: Keeping::WriteBack,
        store: StoreFaults { slowest: 500 * MILLI, failures: 10, lies: 50 },
        tcp: 20,
        last_words: 5,
        noise: 50,
        sizes: ROOMY,
        ..Plan::of(1)
    }
}

#[test]
#[ignore = "takes long if it is not optimized"]
fn two_thousand_phones_keep_every_promise_and_do_so_again() {
    let begin = Instant::now();
    let world = run::world_of(plan());
    let ran = begin.elapsed();
    let outcome = run::judged(&world);
    let judged = begin.elapsed() - ran;
    drop(world);
    let told: Vec<_> = outcome.violations.iter().map(|v| format!("{}: {}", v.oracle, v.text)).collect();
    assert!(told.is_empty(), "{told:#?}");
    assert!(outcome.messages > 20 * PHONES, "{} messages", outcome.messages);
    let again = run::world_of(plan()).trace.hash();
    assert_eq!(again, outcome.hash, "the second run was another one");
    let whole = begin.elapsed();
    println!(
        "{PHONES} phones, {} messages: run in {ran:.1?}, judged in {judged:.1?}, {whole:.1?} with the second run",
        outcome.messages
    );
}
