//! What may be believed of a peer: numbers within limits, so that none of them can overflow a sum, a clock or the memory.
//!
//! The command line has checked an assignment already; these limits are for what comes from a connection.

use super::wire::shown;
use crate::group::{Command, Event, Finished};
use crate::spec::{
    Assignment, Choice, Class, Connections, ContactRange, Delay, POOL_MAX, Shape, Users, Workload,
};
use crate::tally::{CLASSES_MAX, ClassTally, ConnectionTally, GeneratorTally, KINDS_MAX, Tally};
use std::time::Duration;

/// Most worker threads of a group.
pub const THREADS_MAX: u16 = 1024;

/// Most users.
pub const USERS_MAX: u32 = 50_000_000;

/// Most ranges of contacts: every callee socket of every worker of every group has one.
pub const CONTACT_RANGES_MAX: usize = 1 << 18;

/// Longest warm-up, window, drain or delay.
pub const TIME_MAX: Duration = Duration::from_secs(31 * 86_400);

/// Largest count that is believed of one second or one window: sums of many of them cannot overflow.
pub const COUNT_MAX: u64 = 1 << 53;

/// Most local addresses of a group, as [`Assignment::sources`] says.
const SOURCES_MAX: usize = 256;

/// Most operations a second that can be asked for.
const RATE_MAX: f64 = 1e9;

/// Most operations open or registrations outstanding in one worker.
const OPEN_MAX: u32 = 1 << 26;

/// Longest name, password pattern or domain, in bytes.
const TEXT_BYTES_MAX: usize = 1024;

/// Longest time until a start.
const START_AFTER_MAX: Duration = Duration::from_secs(3600);

/// Parses a line of a controller.
///
/// # Errors
/// A sentence for the controller's user.
pub(super) fn command(line: &[u8]) -> Result<Command, String> {
    let command: Command = serde_json::from_slice(line)
        .map_err(|error| format!("that is no command: {}", shown(&error.to_string())))?;
    match &command {
        Command::Prepare(assignment) => assignment_ok(assignment)?,
        Command::Register { contacts } => contacts_ok(contacts)?,
        Command::Start { after, contacts } => {
            at_most("the time until the start", after, &START_AFTER_MAX)?;
            contacts_ok(contacts)?;
        }
        Command::Stop { .. } | Command::Ping { .. } => {}
    }
    Ok(command)
}

/// Parses a line of an agent.
///
/// # Errors
/// A sentence for the controller's user.
pub(super) fn event(line: &[u8]) -> Result<Event, String> {
    let mut event: Event = serde_json::from_slice(line)
        .map_err(|error| format!("it sent no event: {}", shown(&error.to_string())))?;
    match &mut event {
        Event::Prepared { contacts } => contacts_ok(contacts)?,
        Event::Interval(interval) => {
            at_most("the second", &u64::from(interval.second), &(4 * TIME_MAX.as_secs()))?;
            at_most("the number of classes", &interval.measured.len(), &CLASSES_MAX)?;
            for (offered, succeeded, failed) in &interval.measured {
                counts_ok(&[*offered, *succeeded, *failed])?;
            }
            tally_ok(&interval.tally)?;
        }
        Event::Finished(finished) => {
            let Finished { measured, examples: _ } = &**finished;
            tally_ok(measured)?;
        }
        Event::Problem { message } => *message = shown(message),
        Event::Registering { .. } | Event::Registered { .. } | Event::Pong { .. } => {}
    }
    Ok(event)
}

/// An error unless `value` is at most `limit`; NaN is an error.
fn at_most<T: PartialOrd + std::fmt::Debug>(what: &str, value: &T, limit: &T) -> Result<(), String> {
    if value <= limit {
        Ok(())
    } else {
        Err(format!("{what} is {value:?}, and at most {limit:?} is allowed"))
    }
}

/// An error unless `value` is a number from 0 to `limit`.
fn within(what: &str, value: f64, limit: f64) -> Result<(), String> {
    if value >= 0.0 && value <= limit {
        Ok(())
    } else {
        Err(format!("{what} is {value}, and 0 to {limit} is allowed"))
    }
}

fn assignment_ok(assignment: &Assignment) -> Result<(), String> {
    let Assignment { workload, group: _, rate_share, callees, role: _, threads, cpus, sources } = assignment;
    at_most("the number of threads", threads, &THREADS_MAX)?;
    if *threads == 0 {
        return Err("no thread is to be started".into());
    }
    at_most("the number of CPUs", &cpus.len(), &usize::from(u16::MAX))?;
    at_most("the number of sources", &sources.len(), &SOURCES_MAX)?;
    within("the share of the rate", *rate_share, 1.0)?;
    let callees_end = u64::from(callees.0) + u64::from(callees.1);
    at_most("the last callee", &callees_end, &u64::from(workload.users.count))?;
    workload_ok(workload)
}

fn workload_ok(workload: &Workload) -> Result<(), String> {
    at_most("the number of classes", &workload.classes.len(), &CLASSES_MAX)?;
    workload.classes.iter().try_for_each(class_ok)?;
    if workload.classes.iter().map(|class| class.weight).sum::<f64>() <= 0.0 {
        return Err("no class has a weight".into());
    }
    within("the rate", workload.rate, RATE_MAX)?;
    match workload.shape {
        Shape::Burst { size: 0 } => return Err("a burst has no operations".into()),
        Shape::Burst { size } => at_most("the size of a burst", &size, &OPEN_MAX)?,
        Shape::Ramp { from } => within("the rate that the ramp begins with", from, RATE_MAX)?,
        Shape::Poisson | Shape::Uniform => {}
    }
    users_ok(&workload.users)?;
    at_most("the length of the domain", &workload.target.domain.len(), &TEXT_BYTES_MAX)?;
    for (what, time) in
        [("warm-up", workload.warm_up), ("window", workload.measure), ("drain", workload.drain)]
    {
        at_most(what, &time, &TIME_MAX)?;
    }
    for (what, time) in [("T1", workload.t1), ("T2", workload.t2)] {
        at_most(what, &time, &Duration::from_secs(3600))?;
        // A retransmission timer of nothing would spin (RFC 3261 §17.1.1.2: it doubles).
        if time < Duration::from_millis(1) {
            return Err(format!("{what} is {time:?}, and at least 1 ms is needed"));
        }
    }
    for link in [workload.links.caller, workload.links.callee] {
        if let Connections::Pool(count) = link.connections {
            at_most("the number of connections of a pool", &count, &POOL_MAX)?;
        }
    }
    at_most("the number of open operations", &workload.open_operations_max, &OPEN_MAX)?;
    at_most("the preamble's window", &workload.preamble_window, &OPEN_MAX)
}

fn class_ok(class: &Class) -> Result<(), String> {
    at_most("the length of a class's name", &class.name.len(), &TEXT_BYTES_MAX)?;
    within("a weight", class.weight, 1e12)?;
    at_most("the time until a CANCEL", &class.cancel_after, &TIME_MAX)?;
    for delay in [class.ring, class.hold] {
        let longest = match delay {
            Delay::None => Duration::ZERO,
            Delay::Constant(time) => time,
            Delay::Exponential { mean, max } => mean.max(max),
        };
        at_most("a delay", &longest, &TIME_MAX)?;
    }
    Ok(())
}

fn users_ok(users: &Users) -> Result<(), String> {
    at_most("the number of users", &users.count, &USERS_MAX)?;
    at_most(
        "the number of listed users",
        &users.listed.len(),
        &usize::try_from(USERS_MAX).unwrap_or(usize::MAX),
    )?;
    if users.first.checked_add(users.count).is_none() {
        return Err(format!("users {} and {} more go beyond {}", users.first, users.count, u32::MAX));
    }
    for text in [&users.name, &users.password] {
        at_most("the length of a name or password", &text.len(), &TEXT_BYTES_MAX)?;
    }
    for (name, password) in &users.listed {
        at_most("the length of a name", &name.len(), &TEXT_BYTES_MAX)?;
        at_most("the length of a password", &password.len(), &TEXT_BYTES_MAX)?;
    }
    if let Choice::Zipf(exponent) = users.choice {
        within("Zipf's exponent", exponent, 100.0)?;
    }
    Ok(())
}

fn contacts_ok(contacts: &[ContactRange]) -> Result<(), String> {
    at_most("the number of contact ranges", &contacts.len(), &CONTACT_RANGES_MAX)?;
    for range in contacts {
        let end = u64::from(range.first) + u64::from(range.count);
        at_most("the last user of a contact range", &end, &u64::from(USERS_MAX))?;
    }
    Ok(())
}

fn counts_ok(counts: &[u64]) -> Result<(), String> {
    counts.iter().try_for_each(|count| at_most("a count", count, &COUNT_MAX))
}

fn tally_ok(tally: &Tally) -> Result<(), String> {
    let Tally { classes, generator, open, connections } = tally;
    connections.as_deref().map_or(Ok(()), connection_tally_ok)?;
    at_most("the number of classes", &classes.len(), &CLASSES_MAX)?;
    classes.iter().try_for_each(class_tally_ok)?;
    let GeneratorTally { cpu_us, wall_us, socket_drops, datagrams_sent, datagrams_received, strays, .. } =
        generator;
    counts_ok(&[*open, *cpu_us, *wall_us, *socket_drops, *datagrams_sent, *datagrams_received, *strays])
}

fn connection_tally_ok(tally: &ConnectionTally) -> Result<(), String> {
    for kinds in [&tally.suites, &tally.failures] {
        at_most("the kinds of connections", &kinds.len(), &(KINDS_MAX + 1))?;
        kinds.values().try_for_each(|count| counts_ok(&[*count]))?;
    }
    counts_ok(&[tally.opened, tally.accepted, tally.closed, tally.closed_by_server, tally.undeliverable])?;
    counts_ok(&[tally.ports_exhausted, tally.files_exhausted])?;
    [&tally.client, &tally.server].into_iter().try_for_each(|side| counts_ok(&[side.full, side.resumed]))
}

fn class_tally_ok(class: &ClassTally) -> Result<(), String> {
    counts_ok(&[
        class.offered,
        class.succeeded,
        class.caller_messages_in,
        class.caller_messages_out,
        class.trying,
        class.callee_messages_in,
        class.callee_messages_out,
        class.callee_ended,
        class.retransmissions_sent,
        class.retransmissions_received,
    ])?;
    class.failures.values().try_for_each(|count| counts_ok(&[*count]))
}
