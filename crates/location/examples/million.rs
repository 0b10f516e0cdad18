//! A million users with one binding each: memory, and time per operation.
//!
//! ```text
//! cargo run --release -p location --example million [users]
//! ```
//!
//! Memory is what the process holds (Linux: `VmRSS`), so the allocator's overhead is in it.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use location::{Limits, Policy, Register, Seeds, Table, Update};
use sip::Instant;
use std::io::Write;
use std::time::Instant as Clock;

fn main() {
    let users: u64 = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(1_000_000);
    let mut table = Table::new(Limits::default(), Seeds([11, 22, 33, 44]));
    let mut user = User::default();

    let before = resident_bytes();
    measure("register, new", users, |n| user.register(&mut table, n, 0, 1));
    let held = resident_bytes().saturating_sub(before);
    println!("{:>24}: {} by its own count", "bytes per binding", table.bytes() as u64 / users);
    println!("{:>24}: {} resident, {} MB in all", "", held / users, held >> 20);

    measure("refresh, same Call-ID", users, |n| user.register(&mut table, n, 100, 2));
    measure("refresh, new Call-ID", users, |n| user.register(&mut table, n, 200, 1_000_000));
    let mut found = 0;
    measure("lookup", users, |n| {
        user.name(n);
        found += table.lookup(at(300), &user.aor).filter(|binding| !binding.contact().is_empty()).count();
    });
    let mut missed = 0;
    measure("lookup of the unknown", users, |n| {
        user.name(n + users);
        missed += usize::from(table.lookup(at(300), &user.aor).next().is_none());
    });
    assert_eq!((found as u64, missed as u64), (users, users));
    measure("making the keys alone", users, |n| user.name(n));
    measure("making requests alone", users, |n| user.strings(n, 2));

    let mut steps = 0;
    let clock = Clock::now();
    let mut longest = 0;
    while let Some(due) = table.next_expiry() {
        let step = Clock::now();
        table.expire(due.max(at(300)), 1000);
        longest = longest.max(step.elapsed().as_micros());
        steps += 1;
    }
    let each = clock.elapsed().as_nanos() / u128::from(users);
    println!("{:>24}: {each} ns each, {steps} calls of 1000 steps, the longest {longest} us", "expire");
    assert!(table.is_empty());
}

/// Buffers for one user's strings.
#[derive(Default)]
struct User {
    aor: Vec<u8>,
    contact: Vec<u8>,
    call_id: Vec<u8>,
    received: Vec<u8>,
}

impl User {
    /// Users come in an order that no cache foresees.
    fn name(&mut self, n: u64) {
        let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        self.aor.clear();
        let _ = write!(self.aor, "sip:{n}@atlanta.example.com");
    }

    fn strings(&mut self, n: u64, cseq: u32) {
        self.name(n);
        for buffer in [&mut self.contact, &mut self.call_id, &mut self.received] {
            buffer.clear();
        }
        let _ = write!(self.contact, "sip:{n}@192.0.2.{}:{};ob", n % 250, 1024 + n % 60_000);
        let _ = write!(self.call_id, "{:032x}@192.0.2.{}", n * u64::from(cseq >> 8 | 1), n % 250);
        let _ = write!(self.received, "sip:198.51.100.{}:{}", n % 250, 1024 + n % 60_000);
    }

    fn register(&mut self, table: &mut Table, n: u64, now: u64, cseq: u32) {
        self.strings(n, cseq);
        let update = Update {
            expires: Some(600 + (n % 3000) as u32),
            received: &self.received,
            user_agent: b"Linphone/5.1.0 (Pixel 8)",
            flow: n,
            ..Update::new(&self.contact, &self.call_id, cseq)
        };
        let request = Register::Bind(core::slice::from_ref(&update));
        let done = table.register(at(now), &self.aor, &request, &Policy::default()).expect("there is room");
        assert_eq!(done.bindings, 1);
    }
}

fn measure(what: &str, users: u64, mut one: impl FnMut(u64)) {
    let clock = Clock::now();
    (0..users).for_each(&mut one);
    println!("{what:>24}: {} ns each", clock.elapsed().as_nanos() / u128::from(users));
}

fn at(seconds: u64) -> Instant {
    Instant::from_micros(seconds * 1_000_000)
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) * 1024
}
