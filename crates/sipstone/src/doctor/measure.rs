//! What has to be tried out: how long reading the clock takes, how late a sleep ends, how fast loopback is.
//!
//! Everything is bounded, to about half a second together.

use super::{Finding, Plan};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// Most sleeps.
pub(super) const SLEEPS_MAX: u32 = 200;

/// Longest measurement of loopback.
pub(super) const LOOPBACK_MAX: Duration = Duration::from_millis(300);

/// Length of each sleep.
const SLEEP: Duration = Duration::from_micros(500);

/// Longest time that all sleeps together may take; on a busy host fewer are made.
const SLEEPS_TIME_MAX: Duration = Duration::from_secs(1);

/// Readings of the clock, and the longest time that they may take together.
const READINGS: u32 = 100_000;
const READINGS_TIME_MAX: Duration = Duration::from_millis(50);

/// Datagrams of the loopback test: so many at once, so long; about what a call's messages have.
const BATCH: usize = 32;
const DATAGRAM_BYTES: usize = 500;

/// All measurements.
pub(super) fn examine(plan: &Plan) -> Vec<Finding> {
    let mut findings = vec![clock()];
    findings.extend(timers(plan.sleeps.min(SLEEPS_MAX)));
    findings.push(loopback(plan.loopback_for.min(LOOPBACK_MAX)));
    findings
}

fn clock() -> Finding {
    let start = Instant::now();
    let (mut last, mut readings, mut step) = (start, 0_u32, Duration::MAX);
    while readings < READINGS && last.duration_since(start) < READINGS_TIME_MAX {
        let now = Instant::now();
        let since = now.duration_since(last);
        if !since.is_zero() {
            step = step.min(since);
        }
        last = now;
        readings += 1;
    }
    judge_clock(last.duration_since(start) / readings.max(1), step)
}

/// `cost` of a reading, and the smallest `step` seen between two.
pub(super) fn judge_clock(cost: Duration, step: Duration) -> Finding {
    let topic = "clock";
    let seen = format!("a reading takes {} ns, the smallest step is {} ns", cost.as_nanos(), step.as_nanos());
    if step > Duration::from_micros(1) {
        return Finding::bad(topic, format!("{seen}: latencies are recorded in microseconds"))
            .advise("as root: echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource");
    }
    if cost > Duration::from_nanos(500) {
        return Finding::warn(topic, format!("{seen}: the generator reads it several times a message"))
            .advise("see `cat /sys/devices/system/clocksource/clocksource0/available_clocksource`; tsc is the fastest");
    }
    Finding::good(topic, seen)
}

fn timers(sleeps: u32) -> Option<Finding> {
    let start = Instant::now();
    let mut late_us = Vec::new();
    while late_us.len() < sleeps as usize && start.elapsed() < SLEEPS_TIME_MAX {
        let before = Instant::now();
        std::thread::sleep(SLEEP);
        late_us.push(before.elapsed().saturating_sub(SLEEP).as_micros());
    }
    late_us.sort_unstable();
    let at = |share: usize| {
        late_us.get((late_us.len() * share / 100).min(late_us.len().saturating_sub(1))).copied()
    };
    Some(judge_timers(at(50)?, at(99)?, late_us.len()))
}

/// By how much sleeps were too long: the median and the 99th percentile, microseconds.
pub(super) fn judge_timers(median_us: u128, p99_us: u128, sleeps: usize) -> Finding {
    let topic = "timers";
    let seen = format!("{sleeps} sleeps of 500 µs ended {median_us} µs late (median), {p99_us} µs (p99)");
    let advice = "stop other work, keep the server off the generator's CPUs (--cpus here, --sut-cpu there), run sipstone \
                  ahead of the rest (as root: chrt -R -f 50 sipstone …); in a virtual machine ask for CPUs of its own";
    // A send lag of 1 ms at p99 makes a run invalid; a sleep is only part of it.
    match p99_us {
        0..=500 => Finding::good(topic, seen),
        501..=1000 => Finding::warn(topic, seen).advise(advice),
        // Only while it lasts, so that it is no reason to refuse.
        _ => Finding::warn(topic, format!("{seen}: a send lag of over 1 ms at p99 makes a run invalid"))
            .advise(advice),
    }
}

fn loopback(time: Duration) -> Finding {
    match pump(time) {
        Ok((datagrams, lost, took)) => judge_loopback(datagrams, lost, took),
        Err(error) => Finding::bad("loopback", format!("datagrams cannot be sent over 127.0.0.1: {error}"))
            .advise(
                "as root: ip link set lo up; and see what filters them: iptables -L -v, nft list ruleset",
            ),
    }
}

/// Sends and receives on one thread; datagrams that came, those that did not, and the time.
fn pump(time: Duration) -> std::io::Result<(u64, u64, Duration)> {
    let (from, to) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    from.connect(to.local_addr()?)?;
    // Over loopback a datagram is in the other socket's queue when the call returns.
    to.set_nonblocking(true)?;
    let (out, mut space) = ([0_u8; DATAGRAM_BYTES], [0_u8; DATAGRAM_BYTES]);
    let (start, mut sent, mut received) = (Instant::now(), 0, 0);
    while start.elapsed() < time {
        for _ in 0..BATCH {
            from.send(&out)?;
            sent += 1;
        }
        while to.recv(&mut space).is_ok() {
            received += 1;
        }
    }
    Ok((received, sent - received, start.elapsed()))
}

pub(super) fn judge_loopback(datagrams: u64, lost: u64, took: Duration) -> Finding {
    let topic = "loopback";
    let rate = datagrams as f64 / took.as_secs_f64().max(1e-9);
    let seen = format!(
        "{rate:.0} datagrams of {DATAGRAM_BYTES} bytes a second on one thread, one call for each; {lost} lost"
    );
    if lost > datagrams / 1000 {
        return Finding::bad(topic, seen)
            .advise("see what filters them: iptables -L -v, nft list ruleset, tc -s qdisc show dev lo");
    }
    if rate < 50_000.0 {
        return Finding::warn(topic, format!("{seen}: expect a generator's limit of a few thousand calls a second"))
            .advise("see what else uses the CPUs (top), and what looks at each datagram: iptables -L -v, nft list ruleset");
    }
    Finding::good(topic, seen)
}
