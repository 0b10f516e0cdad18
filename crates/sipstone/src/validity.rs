//! Whether a trial measured the server, or only its own tools.
//!
//! An invalid trial is not a slow server: the command ends with exit code 3 and says what was seen, what was expected and
//! what to do about it.

use crate::report::model::{ClassReport, ConnectionReport, HandshakeReport, TrialReport};
use crate::spec::{Auth, CONTACTS_MAX, Class, Proxy, Shape, TlsMode, Workload};
use crate::tally::Failure;

/// Least limit of the send lag's 99th percentile, milliseconds.
pub const SEND_LAG_MS: f64 = 1.0;
/// The limit of the send lag as a share of the median latency.
pub const SEND_LAG_OF_LATENCY: f64 = 0.1;
/// The same where only the server's CPU time per operation is measured, which does not depend on when in the window an
/// operation began: so much is half a percent of a window of ten seconds.
pub const SEND_LAG_OF_COST_MS: f64 = 50.0;
/// How far the offered rate may be off.
pub const OFFERED_RATE_OFF: f64 = 0.005;
/// Most of its processors that the generator may use.
pub const UTILISATION_MAX: f64 = 0.8;
/// How far messages per operation, and the share of INVITEs with a 100, may be off the table.
pub const MESSAGES_OFF: f64 = 0.001;
/// How far they may be off because messages are lost: no more than this however many are sent again.
pub const MESSAGES_OFF_BY_LOSS_MAX: f64 = 0.02;
/// Least share of TLS handshakes that resume a session, where sessions are to be reused.
pub const RESUMED_MIN: f64 = 0.99;
/// So many full handshakes make the sessions that are resumed, however few there are: one for each thread of each group.
pub const SESSIONS_MADE_MAX: u64 = 16;
/// Classes with a smaller share of successes are not compared with the table of messages.
pub const MESSAGES_SUCCESS_MIN: f64 = 0.99;

/// What is read off a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// Latencies too.
    #[default]
    Latency,
    /// The server's CPU time per operation, nothing else.
    Cost,
}

/// Everything that makes a trial invalid, a sentence each; empty when it is valid.
#[must_use]
pub fn check(trial: &TrialReport, workload: &Workload, purpose: Purpose) -> Vec<String> {
    let mut problems = generator_faults(trial, workload, purpose);
    if let Some(connections) = &trial.connections {
        problems.extend(handshakes(connections, workload));
    }
    for (class, report) in workload.classes.iter().zip(&trial.classes) {
        problems.extend(messages(class, report, workload));
    }
    problems
}

/// Of what makes a trial invalid, that which says that the generator could not keep up: it, not the server, sets the limit.
#[must_use]
pub fn generator_faults(trial: &TrialReport, workload: &Workload, purpose: Purpose) -> Vec<String> {
    let mut problems = Vec::new();
    problems.extend(send_lag(trial, purpose));
    problems.extend(offered_rate(trial, workload));
    problems.extend(generator(trial));
    problems.extend(trial.connections.iter().flat_map(exhausted));
    problems
}

/// The generator could not open the connections that it was to open.
fn exhausted(connections: &ConnectionReport) -> Vec<String> {
    let mut problems = Vec::new();
    let ports = connections.ports_exhausted;
    if ports > 0 {
        problems.push(format!(
            "{ports} connections were not opened because no source port was free: a closed connection keeps its port for a \
             minute (TIME_WAIT) at the end that closed it first; give more addresses (--source 127.0.0.2-127.0.0.9), widen \
             net.ipv4.ip_local_port_range, let the server close (--close server), or lower the rate"
        ));
    }
    let files = connections.files_exhausted;
    if files > 0 {
        problems.push(format!(
            "{files} connections were not opened because this process may have no more files open: raise the limit \
             (ulimit -n), or let fewer operations be open at once (--hold, --rate)"
        ));
    }
    problems
}

/// Sessions that a server must make with callees before it can resume them: one for each contact, where it connects to
/// those anew for each call or transaction.
#[must_use]
pub fn callee_sessions(workload: &Workload) -> u64 {
    if workload.links.callee.connections.stay() { 0 } else { workload.users.count.min(CONTACTS_MAX).into() }
}

/// Handshakes of the wrong kind: what was measured is not what was asked for.
fn handshakes(connections: &ConnectionReport, workload: &Workload) -> Vec<String> {
    let callees = callee_sessions(workload);
    let sides = [
        ("as the client", &connections.tls_client, 0),
        // The server makes a session with each address.
        ("as the server", &connections.tls_server, callees),
    ];
    let mode = workload.links.tls.mode;
    let wrong = |(end, side, peers): (&str, &HandshakeReport, u64)| {
        let all = side.full + side.resumed;
        match mode {
            TlsMode::Reuse => {
                // A session must be made before it can be resumed.
                let again = side.full.saturating_sub(peers) + side.resumed;
                let share = side.resumed as f64 / again.max(1) as f64;
                (side.full > SESSIONS_MADE_MAX && share < RESUMED_MIN).then(|| {
                    format!(
                        "{:.1} % of {all} TLS handshakes {end} resumed a session, and with --tls reuse at least {:.0} % \
                         must: let the server keep sessions or issue tickets, or measure --tls full",
                        share * 100.0,
                        RESUMED_MIN * 100.0
                    )
                })
            }
            TlsMode::Full | TlsMode::Mutual => (side.resumed > 0).then(|| {
                format!(
                    "{} of {all} TLS handshakes {end} resumed a session, and with --tls full or mutual none may; measure \
                     --tls reuse",
                    side.resumed
                )
            }),
        }
    };
    sides.into_iter().filter_map(wrong).collect()
}

/// The generator was late: its lag would be taken for the server's latency.
fn send_lag(trial: &TrialReport, purpose: Purpose) -> Option<String> {
    let seen = trial.generator.send_lag_p99_ms?;
    let median = trial.all.latency_sent.p50_ms.unwrap_or(0.0);
    let (most, why) = match purpose {
        Purpose::Latency => {
            (SEND_LAG_MS.max(SEND_LAG_OF_LATENCY * median), "1 ms, or a tenth of the median latency")
        }
        Purpose::Cost => (SEND_LAG_OF_COST_MS, "where only CPU time is measured"),
    };
    (seen > most).then(|| {
        format!(
            "the generator was late: 1 % of its operations began more than {seen:.2} ms after their planned time, and at \
             most {most:.2} ms is allowed ({why}); give it more --threads, keep the server off its CPUs (--cpus), or lower \
             the rate"
        )
    })
}

/// What was offered is not what was asked for.
///
/// A Poisson count of n has a standard deviation of √n: where four of them are more than half a percent, they are allowed.
/// Bursts may straddle the window's edges.
fn offered_rate(trial: &TrialReport, workload: &Workload) -> Option<String> {
    let rate = expected_rate(trial, workload);
    let count = rate * trial.measure_s;
    if !(count.is_finite() && count > 0.0) {
        return None;
    }
    let scatter = match workload.shape {
        Shape::Poisson | Shape::Ramp { .. } => 4.0 / count.sqrt(),
        Shape::Uniform => 2.0 / count,
        Shape::Burst { size } => 2.0 * f64::from(size) / count,
    };
    let allowed = OFFERED_RATE_OFF.max(scatter);
    let off = trial.offered_rate / rate - 1.0;
    (off.abs() > allowed).then(|| {
        format!(
            "the offered rate was {:.1}/s instead of {rate:.1}/s: {:.2} % off, and {:.2} % is allowed; the generator could \
             not keep its schedule, so give it more --threads or lower the rate",
            trial.offered_rate,
            off.abs() * 100.0,
            allowed * 100.0,
        )
    })
}

/// The mean rate that was asked for within the window.
fn expected_rate(trial: &TrialReport, workload: &Workload) -> f64 {
    match workload.shape {
        Shape::Ramp { from } => {
            let whole = (workload.warm_up + workload.measure).as_secs_f64();
            let middle = trial.warm_up_s + trial.measure_s / 2.0;
            let way = if whole > 0.0 { middle / whole } else { 1.0 };
            from + (trial.rate - from) * way
        }
        Shape::Poisson | Shape::Uniform | Shape::Burst { .. } => trial.rate,
    }
}

/// The generator at its own limits.
fn generator(trial: &TrialReport) -> Vec<String> {
    let mut problems = Vec::new();
    let used = trial.generator.utilisation;
    if used > UTILISATION_MAX {
        problems.push(format!(
            "the generator used {:.0} % of its CPUs, and {:.0} % is the most at which it is trusted; give it more --threads, \
             or more hosts (--agent)",
            used * 100.0,
            UTILISATION_MAX * 100.0,
        ));
    }
    let drops = trial.generator.socket_drops;
    if drops > 0 {
        problems.push(format!(
            "the generator's own sockets lost {drops} datagrams, and none is allowed; raise net.core.rmem_max, give it more \
             --threads, or lower the rate"
        ));
    }
    let dropped = trial.all.failures.get(&Failure::GeneratorDropped.word()).copied().unwrap_or(0);
    if dropped > 0 {
        problems.push(format!(
            "the generator had no room for {dropped} operations, which it counted as failed; shorten --hold and --ring, \
             give it more --threads, or lower the rate"
        ));
    }
    problems
}

/// A row of the table of messages: into and out of the server, per operation.
type Row = (u32, u32);

/// The messages of one class against the table.
///
/// Only successful operations are counted, each message once. Provisional responses are not sent again when they are lost
/// (RFC 3261 §13.3.1.1, §17.2.1), so where retransmissions show that messages are lost, as many may be missing. Beyond
/// [`MESSAGES_OFF_BY_LOSS_MAX`], and in a class that mostly fails, the messages say something about the overload, nothing
/// about the kind of the proxy.
fn messages(class: &Class, report: &ClassReport, workload: &Workload) -> Vec<String> {
    if report.succeeded == 0 || report.success < MESSAGES_SUCCESS_MIN {
        return Vec::new();
    }
    let lost = report.retransmissions_sent + report.retransmissions_received;
    if lost > MESSAGES_OFF_BY_LOSS_MAX {
        return Vec::new();
    }
    let tolerance = MESSAGES_OFF.max(lost);
    let stateless = row(class, Proxy::Stateless, workload);
    let stateful = row(class, Proxy::Stateful, workload);
    let name = &report.name;
    if stateless == stateful {
        return counted(name, report, stateless, "", workload.auth, tolerance).into_iter().collect();
    }
    let is_stateful = match workload.proxy {
        Proxy::Stateful => true,
        Proxy::Stateless => false,
        Proxy::Auto => report.trying >= 0.5,
    };
    let (expected, kind) = if is_stateful { (stateful, "stateful ") } else { (stateless, "stateless ") };
    let mut problems = Vec::new();
    let share = if is_stateful { 1.0 } else { 0.0 };
    if (report.trying - share).abs() > tolerance {
        problems.push(trying(name, report.trying, workload.proxy, kind));
    }
    // Whoever is told of the wrong kind of proxy need not be told of its messages.
    if problems.is_empty() {
        problems.extend(counted(name, report, expected, kind, workload.auth, tolerance));
    }
    problems
}

/// The row of the table for a class, this kind of proxy and no more than the first challenge.
fn row(class: &Class, proxy: Proxy, workload: &Workload) -> Row {
    class.scenario.messages(proxy, workload.auth, workload.auth_every)
}

/// The sentence about 100 responses.
fn trying(name: &str, share: f64, said: Proxy, kind: &str) -> String {
    let seen = share * 100.0;
    match said {
        Proxy::Auto => format!(
            "{name}: {seen:.2} % of the INVITEs got a 100, neither all nor none: the server treats calls in two ways; make \
             its configuration do one thing, or measure the two apart"
        ),
        Proxy::Stateful | Proxy::Stateless => format!(
            "{name}: {seen:.2} % of the INVITEs got a 100, and with the {kind}proxy that --proxy says there is, {} should; \
             correct --proxy or the server's configuration",
            if said == Proxy::Stateful { "all" } else { "none" },
        ),
    }
}

/// The sentence about messages per operation, if they are off.
///
/// With cached credentials only some operations are challenged (the first of each user, and stale nonces): anything between
/// the row without challenges and the one with them is right.
fn counted(
    name: &str,
    report: &ClassReport,
    row: Row,
    kind: &str,
    auth: Auth,
    tolerance: f64,
) -> Option<String> {
    let (into, out) = (f64::from(row.0), f64::from(row.1));
    // A challenge to an INVITE costs the server two messages in (request and ACK) and one out.
    let (extra_in, extra_out) = if auth == Auth::Cached { (2.0, 1.0) } else { (0.0, 0.0) };
    let within =
        |seen: f64, low: f64, high: f64| seen >= low - low * tolerance && seen <= high + high * tolerance;
    if within(report.messages_in, into, into + extra_in) && within(report.messages_out, out, out + extra_out)
    {
        return None;
    }
    Some(format!(
        "{name}: the server got {:.3} and sent {:.3} messages per operation, and a {kind}{name} is {}+{}; look at one call \
         with --trace: the server does something else than this scenario, or another proxy or B2BUA is between",
        report.messages_in, report.messages_out, row.0, row.1,
    ))
}

#[cfg(test)]
mod tests;
