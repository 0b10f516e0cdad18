//! A run allocates nothing once the machine's buffers have grown.
#![allow(clippy::unwrap_used, clippy::disallowed_types)]

mod support;

use route::{
    Args, FunctionId, Host, Machine, Outcome, Program, RouteId, RouteKind, Sink, Step, Subject, Subscript,
    ValueRef, VariableId, Verdict,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use support::load;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A host that costs nothing: functions return `answer`, variables are short strings.
struct Quiet {
    answer: Outcome,
}

impl Host for Quiet {
    fn call(&mut self, _: FunctionId, args: &Args<'_>) -> Outcome {
        std::hint::black_box(args.len());
        self.answer
    }

    fn read(&mut self, _: VariableId, _: &Subscript<'_>, out: &mut Sink<'_>) {
        out.str(b"sip:alice@example.com");
    }

    fn write(&mut self, _: VariableId, _: &Subscript<'_>, value: ValueRef<'_>) {
        std::hint::black_box(value.is_null());
    }

    fn is_myself(&mut self, _: Subject<'_>) -> bool {
        true
    }
}

fn go(machine: &mut Machine, program: &Program, route: RouteId) {
    match machine.run(program, route, &mut Quiet { answer: Outcome::True }) {
        Step::Done(verdict) => assert!(!matches!(verdict, Verdict::Failed(_))),
        Step::Suspended(_) => panic!("suspended"),
    }
}

const BUSY: &str = "loadmodule \"tm.so\"
route {
    if ($rm == \"INVITE\" || $ru =~ \"^sip:(alice|bob)@\") $var(a) = 1;
    while ($var(i) < 20) { $var(i) += 1; $var(s) = $var(s) + $_s(<$ru $var(i)>); }
    switch ($var(i)) { case 20: $ru = \"sip:\" + $(ru{uri.user}) + \"@\" + $(hdr(X)[1]{s.toupper}{re.none}); }
    route(A);
    if (src_ip == 10.0.0.0/8 || uri == myself) log(1, \"$ru $avp(x) $(var(s){s.len})\");
}
route[A] { route(B); return -1; }
route[B] { $avp(x) = $var(s); t_relay(); }
";

#[test]
fn a_run_allocates_nothing() {
    for text in [BUSY.replace("{re.none}", ""), include_str!("data/kamailio-stateful.cfg").to_string()] {
        let loaded = load(&text);
        let route = loaded.program.entry(RouteKind::Request, None).unwrap();
        let mut machine = Machine::new();
        go(&mut machine, &loaded.program, route);
        go(&mut machine, &loaded.program, route);
        let before = ALLOCATIONS.with(Cell::get);
        for _ in 0..100 {
            go(&mut machine, &loaded.program, route);
        }
        assert_eq!(ALLOCATIONS.with(Cell::get), before);
    }
}

/// Not run by default: `cargo test --release -p route --test allocation -- --ignored --nocapture`.
#[test]
#[ignore = "measures time"]
fn time_of_a_run() {
    for (name, text, answer) in [
        ("stateful, in a dialog", include_str!("data/kamailio-stateful.cfg").to_string(), Outcome::True),
        ("stateful, all the way", include_str!("data/kamailio-stateful.cfg").to_string(), Outcome::False),
        ("busy", BUSY.replace("{re.none}", ""), Outcome::True),
    ] {
        let loaded = load(&text);
        let route = loaded.program.entry(RouteKind::Request, None).unwrap();
        let mut machine = Machine::new();
        let start = std::time::Instant::now();
        let runs = 1_000_000;
        for _ in 0..runs {
            std::hint::black_box(machine.run(&loaded.program, route, &mut Quiet { answer }));
        }
        let each = start.elapsed().as_nanos() / runs;
        println!("{name}: {each} ns, {} steps", machine.steps());
    }
}
