//! Instructions per message, counted by Callgrind: `cargo xtask callgrind`.
//!
//! Counts do not depend on what else the machine does, so small changes are seen. A benchmark's id ends in the number of
//! operations that it does; the chore divides by it.

// The macros make public items without a word about them.
#![allow(missing_docs)]

mod support;

use std::hint::black_box;
use std::time::Duration;

use gungraun::{
    Callgrind, CallgrindMetrics, EntryPoint, EventKind, LibraryBenchmarkConfig, library_benchmark,
    library_benchmark_group, main,
};

use support::apart::Apart;
use support::operations::{self, Again, Bindings, Editing, Kind, Play, Script};
use support::tape::MESSAGES_PER_CALL;
use support::{DEFAULT, STATELESS, text};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Calls before those that are counted: more than live at the same time, so that old transactions end meanwhile.
const WARM_UP_CALLS: usize = 1_400;
/// Time between two calls: with the warm-up, some more than the 32 s that a transaction is remembered.
const BETWEEN_CALLS: Duration = Duration::from_millis(25);

fn counting(entry: EntryPoint) -> Callgrind {
    let mut callgrind = Callgrind::default();
    callgrind.entry_point(entry).format([CallgrindMetrics::SingleEvent(EventKind::Ir)]);
    callgrind
}

// --- parse ------------------------------------------------------------------------------------------------------------

fn parse_ready(text: &str) -> Editing {
    let mut editing = Editing::new(text);
    editing.parse();
    editing.parse_response();
    editing
}

#[library_benchmark]
#[bench::invite_of_1_kb_1(parse_ready(&text::invite_of_1_kb()))]
fn parse(mut editing: Editing) -> (usize, Editing) {
    (black_box(&mut editing).parse(), editing)
}

#[library_benchmark]
#[bench::ok_of_invite_1(parse_ready(&operations::accepted()))]
fn parse_response(mut editing: Editing) -> (usize, Editing) {
    (black_box(&mut editing).parse_response(), editing)
}

// --- match ------------------------------------------------------------------------------------------------------------

#[library_benchmark]
#[bench::request_again_32(operations::ready_for_again(Again::Invite, 32))]
#[bench::response_100_32(operations::ready_for_again(Again::Trying, 32))]
fn matching(mut play: Play<Script>) -> (usize, Play<Script>) {
    (black_box(&mut play).run(32), play)
}

// --- script -----------------------------------------------------------------------------------------------------------

#[library_benchmark(config = LibraryBenchmarkConfig::default().tool(counting(EntryPoint::Custom("*run_script*".to_owned()))))]
#[bench::invite_1(operations::ready_for_script(Kind::Invite, 64, 1))]
#[bench::register_1(operations::ready_for_script(Kind::Register, 64, 1))]
#[bench::bye_1(operations::ready_for_script(Kind::Bye, 64, 1))]
fn script((mut play, _): (Play<Apart<Script>>, usize)) -> (usize, Play<Apart<Script>>) {
    play.endpoint.user_mut().measured = true;
    (black_box(&mut play).run(1), play)
}

// --- location ---------------------------------------------------------------------------------------------------------

#[library_benchmark]
#[bench::of_10_000_100(Bindings::new(10_000))]
fn lookup(mut bindings: Bindings) -> (usize, Bindings) {
    ((0..100).map(|_| black_box(&mut bindings).lookup()).sum(), bindings)
}

#[library_benchmark]
#[bench::of_10_000_100(Bindings::new(10_000))]
fn refresh(mut bindings: Bindings) -> Bindings {
    (0..100).for_each(|_| black_box(&mut bindings).refresh());
    bindings
}

// --- edit and serialise -----------------------------------------------------------------------------------------------

fn request_ready() -> Editing {
    let mut editing = Editing::new(&text::invite_of_1_kb());
    editing.forward_request(0);
    editing
}

fn response_ready() -> Editing {
    let mut editing = Editing::new(&operations::accepted());
    editing.forward_response(0);
    editing
}

#[library_benchmark(config = LibraryBenchmarkConfig::default().tool(counting(EntryPoint::Custom("*forward_measured_request*".to_owned()))))]
#[bench::invite_of_1_kb_1(request_ready())]
fn forward_request(mut editing: Editing) -> (usize, Editing) {
    (black_box(&mut editing).forward_request(1), editing)
}

#[library_benchmark(config = LibraryBenchmarkConfig::default().tool(counting(EntryPoint::Custom("*forward_measured_response*".to_owned()))))]
#[bench::ok_of_invite_1(response_ready())]
fn forward_response(mut editing: Editing) -> (usize, Editing) {
    (black_box(&mut editing).forward_response(1), editing)
}

// --- whole ------------------------------------------------------------------------------------------------------------

#[library_benchmark]
#[bench::stateful_32(operations::ready_for_calls(DEFAULT, WARM_UP_CALLS, 32, BETWEEN_CALLS))]
#[bench::stateless_32(operations::ready_for_calls(STATELESS, 100, 32, BETWEEN_CALLS))]
fn call(mut play: Play<Script>) -> (usize, Play<Script>) {
    (black_box(&mut play).run(32 * MESSAGES_PER_CALL), play)
}

#[library_benchmark]
#[bench::refresh_32(operations::ready_for_registers(2_000, 32))]
fn register(mut play: Play<Script>) -> (usize, Play<Script>) {
    (black_box(&mut play).run(32), play)
}

library_benchmark_group!(
    name = message,
    benchmarks = [
        parse,
        parse_response,
        matching,
        script,
        lookup,
        refresh,
        forward_request,
        forward_response,
        call,
        register
    ]
);

main!(
    config = LibraryBenchmarkConfig::default().tool(counting(EntryPoint::Default)),
    library_benchmark_groups = message
);
