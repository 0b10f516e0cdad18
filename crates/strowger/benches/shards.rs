//! Whole calls per second of one shard, and of two that share a location table: `cargo bench -p strowger --bench shards`.
//!
//! Each shard is an engine with the embedded configuration on a thread of its own, as the server runs it but without
//! sockets, and gets calls that belong to it. One shard alone and two at once take turns in short rounds.
//!
//! A machine that does other things, too, does not always have two cores to give: beside the calls per second of the
//! clock on the wall there are those per second of processor time, in which only what the shards do to each other
//! (locks, shared cache lines, memory) shows.

mod support;

#[allow(dead_code)]
#[path = "../src/striped.rs"]
mod striped;

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use engine::{Endpoint, Outbox};
use location::{Limits, Seeds};
use striped::Striped;
use support::tape::{MESSAGES_PER_CALL, Recorder, Tape};
use support::text::Call;
use support::{Configuration, DEFAULT, SEED};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Shards of the server; the one that runs alone is one of two, too.
const SHARDS: u8 = 2;
/// Users of both shards together.
const USERS: usize = 10_000;
/// Calls of each shard before those that count.
const WARM_UP_CALLS: usize = 1_700;
/// Calls of each shard that count, in one round.
const CALLS: usize = 4_000;
/// Time between two calls of a shard: with the warm-up, some more than the 32 s that a transaction is remembered.
const BETWEEN_CALLS: Duration = Duration::from_millis(20);
/// Rounds of one shard and of two.
const ROUNDS: usize = 41;
/// What two shards must do of what one does.
const RATIO_MIN: f64 = 1.8;

type Server = Endpoint<modules::ScriptUser<Striped, modules::NoLog>>;

/// What a shard hears.
struct Traffic {
    registers: Arc<Tape>,
    calls: Arc<Tape>,
}

/// A table with all users, and what they sent.
fn registrations(configuration: &Configuration) -> Tape {
    let location = Striped::new(&Limits::default(), Seeds(SEED));
    let mut recorder = Recorder::new(server(configuration, &location, 0));
    (0..USERS).for_each(|user| recorder.register(user, 0));
    recorder.finish()
}

fn server(configuration: &Configuration, location: &Striped, shard: u8) -> Server {
    Endpoint::new(configuration.engine(shard, SHARDS), configuration.user(location.clone()))
}

fn filled(configuration: &Configuration, registers: &Tape) -> Striped {
    let location = Striped::new(&Limits::default(), Seeds(SEED));
    registers.play(0..registers.len(), &mut server(configuration, &location, 0), &mut Outbox::new());
    location
}

/// Calls whose Call-ID belongs to `shard`, to users of both.
fn calls(configuration: &Configuration, location: &Striped, shard: u8) -> Tape {
    let mut recorder = Recorder::new(server(configuration, location, shard));
    let own = (0..).map(|number: usize| Call { id: format!("call{number:06}@bench"), user: number % USERS });
    let own = own.filter(|call| engine::steer(call.invite().as_bytes(), SHARDS, SEED) == shard);
    for call in own.take(WARM_UP_CALLS + CALLS) {
        recorder.call(&call);
        recorder.wait(BETWEEN_CALLS);
    }
    recorder.finish()
}

/// What a round took.
#[derive(Clone, Copy)]
struct Took {
    wall: Duration,
    processor: Duration,
}

/// The processor time of this thread.
fn processor_time() -> Duration {
    // The kernel brings the number up to date when it schedules.
    thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// Runs one shard: its warm-up, then, when all are there, its calls.
fn run(mut server: Server, traffic: &Traffic, barrier: &Barrier) -> Took {
    let mut out = Outbox::new();
    let (warm_up, end) = (WARM_UP_CALLS * MESSAGES_PER_CALL, traffic.calls.len());
    traffic.calls.play(0..warm_up, &mut server, &mut out);
    barrier.wait();
    let (processor, wall) = (processor_time(), Instant::now());
    let sent = traffic.calls.play(warm_up..end, &mut server, &mut out);
    let took = Took { wall: wall.elapsed(), processor: processor_time().saturating_sub(processor) };
    assert_eq!(sent, CALLS * (MESSAGES_PER_CALL + 1), "not all calls went through");
    took
}

/// One round of the shards in `which`, over a location table of their own.
fn round(configuration: &Configuration, traffic: &[Traffic], which: std::ops::Range<usize>) -> Vec<Took> {
    let location = filled(configuration, &traffic[0].registers);
    let barrier = Barrier::new(which.len());
    let servers: Vec<(usize, Server)> =
        which.map(|shard| (shard, server(configuration, &location, shard as u8))).collect();
    thread::scope(|scope| {
        let shards: Vec<_> = servers
            .into_iter()
            .map(|(shard, server)| {
                let (traffic, barrier) = (&traffic[shard], &barrier);
                scope.spawn(move || run(server, traffic, barrier))
            })
            .collect();
        shards.into_iter().map(|shard| shard.join().expect("a shard")).collect()
    })
}

/// Calls per second of the clock on the wall, and per second of processor time, of all shards together.
fn rates(took: &[Took]) -> (f64, f64) {
    let wall = took.iter().map(|took| took.wall).max().unwrap_or_default();
    let processor = took.iter().map(|took| CALLS as f64 / took.processor.as_secs_f64()).sum();
    ((took.len() * CALLS) as f64 / wall.as_secs_f64(), processor)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let configuration = Configuration::new(DEFAULT);
    let registers = Arc::new(registrations(&configuration));
    let location = filled(&configuration, &registers);
    let traffic: Vec<Traffic> = (0..SHARDS)
        .map(|shard| Traffic {
            registers: registers.clone(),
            calls: Arc::new(calls(&configuration, &location, shard)),
        })
        .collect();
    // Columns: one shard, two, their ratio; first on the wall, then in processor time.
    let mut columns: [Vec<f64>; 6] = Default::default();
    for number in 0..ROUNDS {
        let alone = number % usize::from(SHARDS);
        let one = rates(&round(&configuration, &traffic, alone..alone + 1));
        let two = rates(&round(&configuration, &traffic, 0..usize::from(SHARDS)));
        let row = [one.0, two.0, two.0 / one.0, one.1, two.1, two.1 / one.1];
        columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
    }
    let [wall_one, wall_two, wall, one, two, processor] = columns.map(median);
    println!("calls per second             one shard  two shards   ratio");
    println!("of the clock on the wall    {wall_one:>10.0} {wall_two:>11.0} {wall:>7.2}");
    println!("of processor time           {one:>10.0} {two:>11.0} {processor:>7.2}");
    let verdict = if processor >= RATIO_MIN { "met" } else { "missed" };
    println!("at least {RATIO_MIN} is asked for: {verdict}");
}
