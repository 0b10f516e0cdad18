//! Nanoseconds per operation: `cargo bench -p strowger --bench message_time`.
//!
//! With `-- WORDS`, only the operations whose names contain the words.
//!
//! The operations take turns in short rounds, so that whatever else the machine does meets all of them, and the median
//! round counts. An operation starts each round afresh where it ran out of recorded traffic.

mod support;

use std::hint::black_box;
use std::time::{Duration, Instant};

use support::operations::{self, Again, Bindings, Editing, Kind, Play, Script};
use support::tape::MESSAGES_PER_CALL;
use support::{DEFAULT, STATELESS, text};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Rounds of every operation.
const ROUNDS: usize = 21;
/// Calls of one round; a round takes some milliseconds.
const CALLS: usize = 200;
/// Calls before: with the time between calls, some more than the 32 s that a transaction is remembered.
const WARM_UP_CALLS: usize = 3_400;
const BETWEEN_CALLS: Duration = Duration::from_millis(10);
/// Single messages of one round.
const MESSAGES: usize = 1_000;
/// Parses and the like of one round.
const SMALL: usize = 5_000;
/// Users of the location table.
const BINDINGS: usize = 100_000;

/// An operation by its name: a round does some, and says how many and how long they took.
struct Operation {
    name: &'static str,
    round: Box<dyn FnMut() -> (usize, Duration)>,
    nanos: Vec<f64>,
}

impl Operation {
    fn new(name: &'static str, round: impl FnMut() -> (usize, Duration) + 'static) -> Operation {
        Operation { name, round: Box::new(round), nanos: Vec::new() }
    }

    /// `operation`, `count` times a round.
    fn repeated(name: &'static str, count: usize, mut operation: impl FnMut(usize) + 'static) -> Operation {
        Operation::new(name, move || {
            let begin = Instant::now();
            operation(count);
            (count, begin.elapsed())
        })
    }

    /// The next `messages` datagrams of a play, as `count` operations.
    fn played(name: &'static str, mut play: Play<Script>, count: usize, messages: usize) -> Operation {
        Operation::repeated(name, count, move |_| {
            black_box(play.run(messages));
        })
    }

    /// The script of one kind of request; reading the clock is not counted.
    fn script(name: &'static str, kind: Kind, clock: Duration) -> Operation {
        let (mut play, rest) = operations::ready_for_script(kind, CALLS, (ROUNDS + 1) * CALLS);
        let before = if kind == Kind::Bye { MESSAGES_PER_CALL - 2 } else { 0 };
        let after = rest - before;
        let mut first = true;
        Operation::new(name, move || {
            play.endpoint.user_mut().spent = (Duration::ZERO, 0);
            for _ in 0..CALLS {
                if !first {
                    play.run(before);
                }
                first = false;
                play.endpoint.user_mut().measured = true;
                play.run(1);
                play.endpoint.user_mut().measured = false;
                if play.left() >= after {
                    play.run(after);
                }
            }
            let (spent, runs) = play.endpoint.user().spent;
            (runs as usize, spent.saturating_sub(clock * runs))
        })
    }

    fn median(&mut self) -> f64 {
        self.nanos.sort_by(f64::total_cmp);
        self.nanos[self.nanos.len() / 2]
    }
}

/// What it costs to read the clock twice.
fn clock() -> Duration {
    let count = 10_000_u32;
    let mut sum = Duration::ZERO;
    for _ in 0..count {
        sum += black_box(Instant::now()).elapsed();
    }
    sum / count
}

fn parse(name: &'static str, text: String) -> Operation {
    let mut editing = Editing::new(&text);
    Operation::repeated(name, SMALL, move |count| {
        (0..count).for_each(|_| assert!(black_box(editing.parse()) > 0));
    })
}

fn operations() -> Vec<Operation> {
    let rounds = ROUNDS + 1;
    let clock = clock();
    let call = |text, warm_up| operations::ready_for_calls(text, warm_up, rounds * CALLS, BETWEEN_CALLS);
    let mut accepted = Editing::new(&operations::accepted());
    let mut forwarded = Editing::new(&text::invite_of_1_kb());
    let mut returned = Editing::new(&operations::accepted());
    let (mut looked_up, mut refreshed) = (Bindings::new(BINDINGS), Bindings::new(BINDINGS));
    vec![
        parse("parse: INVITE of 1 kB", text::invite_of_1_kb()),
        Operation::repeated("parse: 200 of an INVITE", SMALL, move |count| {
            (0..count).for_each(|_| assert!(black_box(accepted.parse_response()) > 0));
        }),
        Operation::played(
            "match: INVITE again, with its parse and the 100",
            operations::ready_for_again(Again::Invite, rounds * MESSAGES),
            MESSAGES,
            MESSAGES,
        ),
        Operation::played(
            "match: 100 of a callee, with its parse",
            operations::ready_for_again(Again::Trying, rounds * MESSAGES),
            MESSAGES,
            MESSAGES,
        ),
        Operation::script("script: INVITE, with lookup and t_relay", Kind::Invite, clock),
        Operation::script("script: REGISTER, with save", Kind::Register, clock),
        Operation::script("script: BYE, with loose_route and t_relay", Kind::Bye, clock),
        Operation::repeated("location: lookup among 100,000", SMALL, move |count| {
            (0..count).for_each(|_| assert!(black_box(looked_up.lookup()) > 0));
        }),
        Operation::repeated("location: refresh among 100,000", SMALL, move |count| {
            (0..count).for_each(|_| refreshed.refresh());
        }),
        Operation::repeated("edit and write: INVITE of 1 kB", SMALL, move |count| {
            assert!(black_box(forwarded.forward_request(count)) > count * 900);
        }),
        Operation::repeated("edit and write: 200 of an INVITE", SMALL, move |count| {
            assert!(black_box(returned.forward_response(count)) > count * 300);
        }),
        Operation::played(
            "REGISTER, refresh",
            operations::ready_for_registers(2_000, rounds * MESSAGES),
            MESSAGES,
            MESSAGES,
        ),
        Operation::played(
            "call, record-routed, stateful: 6 in, 7 out",
            call(DEFAULT, WARM_UP_CALLS),
            CALLS,
            CALLS * MESSAGES_PER_CALL,
        ),
        Operation::played(
            "call, record-routed, stateless: 6 in, 6 out",
            call(STATELESS, CALLS),
            CALLS,
            CALLS * MESSAGES_PER_CALL,
        ),
    ]
}

fn main() {
    let words = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect::<Vec<_>>().join(" ");
    let mut operations = operations();
    operations.retain(|operation| operation.name.contains(&words));
    // The first round is warm-up.
    for round in 0..=ROUNDS {
        for operation in &mut operations {
            let (count, spent) = (operation.round)();
            if round > 0 {
                operation.nanos.push(spent.as_nanos() as f64 / count as f64);
            }
        }
    }
    println!("{:<50} {:>10} {:>10}", "operation", "ns, median", "ns, least");
    for operation in &mut operations {
        let median = operation.median();
        println!("{:<50} {median:>10.0} {:>10.0}", operation.name, operation.nanos[0]);
    }
}
