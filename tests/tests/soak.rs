//! The server under load for a long time: memory stays flat, and its tables are empty afterwards.
//!
//! Ignored unless asked for, since it takes ten minutes:
//!
//! ```text
//! STROWGER_SOAK_SECONDS=600 STROWGER_SOAK_CALLS_PER_SECOND=1000 \
//!     cargo test -p end-to-end --test soak -- --ignored --nocapture
//! ```

use std::env;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use end_to_end::{PATIENCE, Phone, Signal, Sipp, Start, only_strowger};

/// How long the load lasts, unless `STROWGER_SOAK_SECONDS` says otherwise.
const SECONDS: u32 = 600;

/// About half of what SIPp and the server manage together on one core each, unless `STROWGER_SOAK_CALLS_PER_SECOND`
/// says otherwise.
const CALLS_PER_SECOND: u32 = 500;

/// The tables have reached their size when the first transactions have ended: 64 × T1 (RFC 3261 §17), and some.
const WARM_UP: Duration = Duration::from_secs(40);

/// What memory may grow by after the warm-up, in percent: allocators keep pages.
const GROWTH_PERCENT_MAX: u64 = 5;

/// And what it may grow by however small it was.
const GROWTH_KIB_MAX: u64 = 2_048;

fn setting(name: &str, default: u32) -> u32 {
    env::var(name)
        .ok()
        .map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// The resident memory of a process in KiB (proc(5), `VmRSS`).
fn resident_kib(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("the server runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux says it");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
#[ignore = "takes ten minutes; see the top of the file"]
fn memory_is_flat_and_tables_are_empty_after_ten_minutes_at_half_the_peak() {
    only_strowger!("the memory is ours");
    let seconds = setting("STROWGER_SOAK_SECONDS", SECONDS);
    let rate = setting("STROWGER_SOAK_CALLS_PER_SECOND", CALLS_PER_SECOND);
    let calls = seconds * rate;
    let limit = Duration::from_secs(u64::from(seconds) + 60);

    let mut server = Start::configuration("default").arguments(&["--drain-timeout", "60s"]).spawn();
    let callee = Sipp::new("callee", calls, &server).user("bob").lasting(limit);
    let contact = callee.address().to_string();
    Phone::new(&server, "bob").register_contact(format!("<sip:bob@{contact}>;expires=3600"));
    let callee = callee.key("contact", &contact).spawn();
    let caller = Sipp::new("caller", calls, &server).user("bob").lasting(limit);
    let began = Instant::now();
    let caller = caller.rate(rate).spawn();

    thread::sleep(WARM_UP.min(Duration::from_secs(u64::from(seconds) / 2)));
    let warm = resident_kib(server.id());
    let mut peak = warm;
    while began.elapsed() < Duration::from_secs(u64::from(seconds)) {
        thread::sleep(Duration::from_secs(1));
        peak = peak.max(resident_kib(server.id()));
    }
    caller.finish();
    callee.finish();
    let allowed = warm + (warm * GROWTH_PERCENT_MAX / 100).max(GROWTH_KIB_MAX);
    println!("{calls} calls; resident: {warm} KiB warm, {peak} KiB at most, {allowed} KiB allowed");
    assert!(peak <= allowed, "memory grew from {warm} to {peak} KiB");

    // The last transactions end by their timers; with empty tables there is nothing to drain.
    thread::sleep(WARM_UP);
    server.stop(Signal::Terminate);
    let status = server.wait_for_exit(PATIENCE);
    assert!(
        status.is_some_and(|status| status.success()),
        "something is still in the tables:\n{}",
        server.log()
    );
}
