//! Memory on a message's way: after warm-up nothing is allocated but where a transaction or a binding is made, and a
//! finished transaction holds little until its timers end it.
//!
//! Allocations are counted by thread, with the engine, the embedded configuration and its modules as the server runs
//! them, and without sockets.

#[path = "../benches/support/mod.rs"]
mod support;

use std::time::Duration;

use allocation_counter::{AllocationInfo, measure};
use engine::Outbox;
use support::operations::{self, Play, Script, USERS};
use support::tape::{MESSAGES_PER_CALL, Recorder, Tape};
use support::text::{self, Call};
use support::{Configuration, DEFAULT, STATELESS};

/// Bytes that a finished transaction may hold until its timers end it.
const HELD_BYTES_MAX: i64 = 4_096;
/// Transactions of one call: INVITE and BYE.
const TRANSACTIONS_PER_CALL: usize = 2;
/// Allocations for each transaction made in the steady state, where every buffer is a used one.
const ALLOCATIONS_PER_TRANSACTION_MAX: f64 = 0.0;

/// Calls and refreshes that are counted.
const COUNTED: usize = 500;

/// Plays the next `count` datagrams; what was allocated, and how many datagrams were sent.
fn count(play: &mut Play<Script>, count: usize) -> (AllocationInfo, usize) {
    let mut sent = 0;
    let allocated = measure(|| sent = play.run(count));
    (allocated, sent)
}

/// Records with `record`, plays the first `warm_up` datagrams to a fresh endpoint and counts the rest.
fn count_recorded(
    configuration: &str,
    record: impl FnOnce(&mut Recorder<Script>) -> usize,
) -> (AllocationInfo, usize) {
    let configuration = Configuration::new(configuration);
    let mut recorder = Recorder::new(configuration.endpoint());
    let warm_up = record(&mut recorder);
    let tape = recorder.finish();
    let rest = tape.len() - warm_up;
    count(&mut Play::new(tape, configuration.endpoint(), warm_up), rest)
}

fn call(number: usize) -> Call {
    Call { id: format!("call{number:06}@bench"), user: number % USERS }
}

#[test]
fn the_counter_counts() {
    let allocated = measure(|| drop(std::hint::black_box(vec![1_u8; 100])));
    assert_eq!((allocated.count_total, allocated.bytes_total, allocated.bytes_current), (1, 100, 0));
}

#[test]
fn stateless_forwarding_of_whole_calls_allocates_nothing() {
    let mut play = operations::ready_for_calls(STATELESS, 100, COUNTED, Duration::from_millis(1));
    let (allocated, sent) = count(&mut play, COUNTED * MESSAGES_PER_CALL);
    assert_eq!(sent, COUNTED * MESSAGES_PER_CALL);
    assert_eq!(allocated.count_total, 0, "{allocated:?}");
}

#[test]
fn a_stateless_404_allocates_nothing() {
    let (allocated, sent) = count_recorded(DEFAULT, |recorder| {
        for number in 0..100 + COUNTED {
            let sent = recorder.caller(&call(number).invite());
            assert!(sent.len() == 1 && sent[0].starts_with("SIP/2.0 404"), "{sent:#?}");
        }
        100
    });
    assert_eq!(sent, COUNTED);
    assert_eq!(allocated.count_total, 0, "{allocated:?}");
}

#[test]
fn a_refresh_of_a_binding_allocates_nothing() {
    let mut play = operations::ready_for_registers(2 * USERS, COUNTED);
    let (allocated, sent) = count(&mut play, COUNTED);
    assert_eq!(sent, COUNTED);
    assert_eq!(allocated.count_total, 0, "{allocated:?}");
}

/// Open INVITE transactions of calls `0..COUNTED`; how the callee received them.
fn open(recorder: &mut Recorder<Script>) -> Vec<String> {
    (0..USERS).for_each(|user| recorder.register(user, 0));
    (0..COUNTED).map(|number| recorder.invite(&call(number))).collect()
}

#[test]
fn a_retransmitted_invite_is_absorbed_without_an_allocation() {
    let (allocated, sent) = count_recorded(DEFAULT, |recorder| {
        open(recorder);
        (0..2 * COUNTED)
            .for_each(|number| assert_eq!(recorder.caller(&call(number % COUNTED).invite()).len(), 1));
        USERS + 2 * COUNTED
    });
    assert_eq!(sent, COUNTED);
    assert_eq!(allocated.count_total, 0, "{allocated:?}");
}

#[test]
fn forwarding_provisional_responses_allocates_nothing() {
    let (allocated, sent) = count_recorded(DEFAULT, |recorder| {
        let invites = open(recorder);
        for status in ["180 Ringing", "180 Ringing", "183 Session Progress"] {
            invites
                .iter()
                .for_each(|invite| assert_eq!(recorder.callee(&text::response(invite, status)).len(), 1));
        }
        USERS + 2 * COUNTED
    });
    assert_eq!(sent, 2 * COUNTED);
    assert_eq!(allocated.count_total, 0, "{allocated:?}");
}

/// A first round of calls ends in the same way as the counted ones: `end` does it, in `count` datagrams per call. Then
/// the lists of used buffers are as long as they get.
fn count_second_round(
    count: usize,
    end: impl Fn(&mut Recorder<Script>, &Call, &str),
) -> (AllocationInfo, usize) {
    count_recorded(DEFAULT, |recorder| {
        (0..USERS).for_each(|user| recorder.register(user, 0));
        for round in [0..COUNTED, COUNTED..2 * COUNTED] {
            let calls: Vec<Call> = round.map(call).collect();
            let invites: Vec<String> = calls.iter().map(|call| recorder.invite(call)).collect();
            calls.iter().zip(&invites).for_each(|(call, invite)| end(recorder, call, invite));
            recorder.wait(Duration::from_secs(60));
        }
        USERS + (1 + count) * COUNTED + COUNTED
    })
}

#[test]
fn forwarding_the_2xx_of_an_invite_and_its_retransmission_allocates_nothing() {
    let (allocated, sent) = count_second_round(2, |recorder, _, invite| {
        assert_eq!(recorder.callee(&text::response(invite, "200 OK")).len(), 1);
        assert_eq!(recorder.callee(&text::response(invite, "200 OK")).len(), 1);
    });
    assert_eq!(sent, 2 * COUNTED);
    assert_eq!(allocated.count_total, 0, "{allocated:?}");
}

#[test]
fn a_failure_its_acks_and_a_late_invite_allocate_nothing() {
    let (allocated, sent) = count_second_round(5, |recorder, call, invite| {
        // The callee gets an ACK, the caller the 486.
        assert_eq!(recorder.callee(&text::response(invite, "486 Busy Here")).len(), 2);
        let busy = recorder.caller(&call.invite());
        let ack = call.ack_of_failure(&busy[0]);
        assert!(recorder.caller(&ack).is_empty());
        assert!(recorder.caller(&ack).is_empty());
        assert!(recorder.caller(&call.invite()).is_empty());
    });
    assert_eq!(sent, 3 * COUNTED);
    assert_eq!(allocated.count_total, 0, "{allocated:?}");
}

#[test]
fn the_ack_of_a_2xx_passes_without_an_allocation() {
    let (allocated, sent) = count_recorded(DEFAULT, |recorder| {
        (0..USERS).for_each(|user| recorder.register(user, 0));
        let invite = recorder.invite(&call(0));
        let accepted = recorder.callee(&text::response(&invite, "200 OK"));
        (0..100 + COUNTED).for_each(|_| assert_eq!(recorder.caller(&call(0).ack(&accepted[0])).len(), 1));
        USERS + 2 + 100
    });
    assert_eq!(sent, COUNTED);
    assert_eq!(allocated.count_total, 0, "{allocated:?}");
}

#[test]
fn in_the_steady_state_transactions_live_in_used_memory() {
    // 50 calls a second for 80 s: transactions of the first seconds have ended, their memory is used again, and the
    // table of keys has found its size.
    let warm_up = 4_000;
    let mut play = operations::ready_for_calls(DEFAULT, warm_up, COUNTED, Duration::from_millis(20));
    let before = play.endpoint.transactions();
    let (allocated, sent) = count(&mut play, COUNTED * MESSAGES_PER_CALL);
    assert_eq!(sent, COUNTED * (MESSAGES_PER_CALL + 1));
    assert_eq!(play.endpoint.transactions(), before, "this is no steady state");
    let transactions = (COUNTED * TRANSACTIONS_PER_CALL) as f64;
    let each = allocated.count_total as f64 / transactions;
    println!("{each} allocations per transaction in the steady state");
    assert!(each <= ALLOCATIONS_PER_TRANSACTION_MAX, "{each} per transaction: {allocated:?}");
}

/// What `tape` from `start` on leaves allocated, with a fresh endpoint and with its outbox freed.
fn held(tape: &Tape, start: usize) -> (i64, usize) {
    let configuration = Configuration::new(DEFAULT);
    let mut endpoint = configuration.endpoint();
    let mut out = Outbox::new();
    tape.play(0..start, &mut endpoint, &mut out);
    let allocated = measure(|| {
        tape.play(start..tape.len(), &mut endpoint, &mut out);
    });
    (allocated.bytes_current, endpoint.transactions())
}

#[test]
fn a_finished_transaction_holds_at_most_4_kib() {
    const CALLS: usize = 1_000;
    let (tape, users) = operations::calls(DEFAULT, CALLS, Duration::from_micros(250));
    let (bytes, transactions) = held(&tape, users);
    assert_eq!(transactions, CALLS * TRANSACTIONS_PER_CALL, "timers have ended some already");
    let each = bytes / transactions as i64;
    println!("{each} bytes held per finished transaction");
    assert!(each <= HELD_BYTES_MAX, "{each} bytes");
}
