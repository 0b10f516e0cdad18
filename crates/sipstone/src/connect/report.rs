//! What a run of kept connections came to.

use super::fleet::Counts;
use crate::report::assemble::latency;
use crate::report::model::{LatencyReport, ServerSecond};
use crate::sut::Sample;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Connections must be begun within this of their planned time, at the 99th percentile; a generator that is
/// later does not offer the rate.
pub const LAG_P99_MAX: Duration = Duration::from_millis(50);

/// Kept connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectReport {
    /// `tcp` or `tls`.
    pub transport: String,
    /// How many were asked for.
    pub connections: u32,
    /// How many were to be begun a second.
    pub rate: f64,
    /// Longest time between pings, seconds; `None`: none were sent.
    pub keepalive_s: Option<f64>,
    /// How long all were held after the last was opened, seconds.
    pub hold_s: f64,
    /// Whether a user was registered on each.
    pub registered: bool,
    /// Local addresses.
    pub sources: u32,
    /// Begun.
    pub begun: u64,
    /// Opened.
    pub opened: u64,
    /// Open at the end.
    pub open_at_end: u64,
    /// Never opened, by cause.
    pub failed: BTreeMap<String, u64>,
    /// Opened and lost, by cause.
    pub lost: BTreeMap<String, u64>,
    /// From the first start until the last was opened or had failed, seconds.
    pub opening_s: f64,
    /// Opened a second, on average.
    pub opened_rate: f64,
    /// From the planned to the actual start, milliseconds, 99th percentile.
    pub lag_p99_ms: Option<f64>,
    /// SYN to connection.
    pub connect: LatencyReport,
    /// The TLS handshake.
    pub handshake: Option<LatencyReport>,
    /// REGISTER to 200.
    pub register: Option<LatencyReport>,
    /// Ping to pong.
    pub pong: Option<LatencyReport>,
    /// Full TLS handshakes.
    pub handshakes_full: u64,
    /// TLS handshakes that resumed a session.
    pub handshakes_resumed: u64,
    /// Pings sent.
    pub pings: u64,
    /// Pongs received.
    pub pongs: u64,
    /// Requests and unasked-for pongs of the server.
    pub strays: u64,
    /// The server, if it was watched.
    pub server: Option<ConnectServer>,
    /// Second by second.
    pub series: Vec<ConnectSecond>,
}

/// What the connections cost the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectServer {
    /// Resident memory before the first connection, bytes.
    pub resident_before: u64,
    /// And when all were open and the server had come to rest.
    pub resident_open: u64,
    /// And at the end.
    pub resident_end: u64,
    /// What grew, divided by the open connections; `None` where there were none.
    pub bytes_per_connection: Option<f64>,
    /// Descriptors before.
    pub descriptors_before: Option<u32>,
    /// Descriptors when all were open.
    pub descriptors_open: Option<u32>,
    /// CPU time of the opening, divided by what was opened, microseconds.
    pub cpu_us_per_opening: Option<f64>,
    /// CPU while the connections were only held, in cores.
    pub idle_cores: Option<f64>,
    /// The same, divided by the pings: microseconds each.
    pub idle_cpu_us_per_ping: Option<f64>,
}

/// One second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectSecond {
    /// Counted from the first start.
    pub second: u32,
    /// Begun in it.
    pub begun: u64,
    /// Opened in it.
    pub opened: u64,
    /// Failed or lost in it.
    pub failed: u64,
    /// Open at its end.
    pub open: u64,
    /// Pings sent in it.
    pub pings: u64,
    /// The server, if it was watched.
    pub server: Option<ServerSecond>,
}

/// Looks at the server, and the pings sent by then.
#[derive(Clone, Copy, Debug)]
pub struct Looks {
    /// Before the first connection.
    pub before: Sample,
    /// When all were open and the server had come to rest.
    pub open: Sample,
    /// At the end, before any was closed.
    pub end: Sample,
}

impl ConnectReport {
    /// Puts the counts in; `opening`: how long the opening took.
    pub fn count(&mut self, counts: &Counts, opening: Duration) {
        let recorded = |times: &crate::tally::Times| (times.count() > 0).then(|| latency(times, 0));
        self.begun = counts.begun;
        self.opened = counts.opened;
        self.open_at_end = counts.open;
        self.failed.clone_from(&counts.failed);
        self.lost.clone_from(&counts.lost);
        self.opening_s = opening.as_secs_f64();
        self.opened_rate = if opening.is_zero() { 0.0 } else { counts.opened as f64 / opening.as_secs_f64() };
        self.lag_p99_ms = counts.lag.quantile_us(0.99).map(|us| us as f64 / 1000.0);
        self.connect = latency(&counts.connect, 0);
        self.handshake = recorded(&counts.handshake);
        self.register = recorded(&counts.register);
        self.pong = recorded(&counts.pong);
        self.handshakes_full = counts.handshakes_full;
        self.handshakes_resumed = counts.handshakes_resumed;
        self.pings = counts.pings;
        self.pongs = counts.pongs;
        self.strays = counts.strays;
    }

    /// Puts the server's cost in; `open`: connections that were open at the second look, `pings`: sent between
    /// the last two.
    pub fn watch(&mut self, looks: &Looks, open: u64, pings: u64) {
        let Looks { before, open: at_open, end } = looks;
        let per = |sum: f64, count: u64| (count > 0).then(|| sum / count as f64);
        let idle_us = end.cpu_us.saturating_sub(at_open.cpu_us) as f64;
        let held_us = end.at.saturating_duration_since(at_open.at).as_micros() as f64;
        self.server = Some(ConnectServer {
            resident_before: before.resident_bytes,
            resident_open: at_open.resident_bytes,
            resident_end: end.resident_bytes,
            bytes_per_connection: per(at_open.resident_bytes as f64 - before.resident_bytes as f64, open),
            descriptors_before: before.descriptors,
            descriptors_open: at_open.descriptors,
            cpu_us_per_opening: per(at_open.cpu_us.saturating_sub(before.cpu_us) as f64, self.opened),
            idle_cores: (held_us > 0.0).then(|| idle_us / held_us),
            idle_cpu_us_per_ping: per(idle_us, pings),
        });
    }

    /// What makes it invalid: the generator's own faults.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let limit_ms = LAG_P99_MAX.as_secs_f64() * 1000.0;
        if let Some(lag) = self.lag_p99_ms.filter(|lag| *lag > limit_ms) {
            faults.push(format!(
                "connections were begun late (99th percentile {lag:.0} ms): lower --rate, or give the generator more --threads"
            ));
        }
        for (cause, count) in self.failed.iter().filter(|(cause, _)| cause.starts_with("generator-")) {
            let what =
                if cause.ends_with("port") { "source ports (--source)" } else { "descriptors (ulimit -n)" };
            faults.push(format!("{count} connections could not be begun for want of {what}"));
        }
        if self.opened == 0 {
            let causes: Vec<String> =
                self.failed.iter().map(|(cause, count)| format!("{count} {cause}")).collect();
            faults.push(format!("not one connection was opened ({})", causes.join(", ")));
        }
        faults
    }
}

/// The seconds of a run, from counts that only grow.
#[derive(Clone, Debug, Default)]
pub struct Seconds {
    last: Option<Snapshot>,
    server: Option<Sample>,
}

/// What a second is the difference of.
#[derive(Clone, Copy, Debug, Default)]
struct Snapshot {
    begun: u64,
    opened: u64,
    failed: u64,
    pings: u64,
}

impl Seconds {
    /// The second that ends now.
    pub fn next(&mut self, second: u32, counts: &Counts, server: Option<Sample>) -> ConnectSecond {
        let now = Snapshot {
            begun: counts.begun,
            opened: counts.opened,
            failed: counts.failed() + counts.lost(),
            pings: counts.pings,
        };
        let before = self.last.replace(now).unwrap_or_default();
        let earlier = std::mem::replace(&mut self.server, server);
        ConnectSecond {
            second,
            begun: now.begun - before.begun,
            opened: now.opened - before.opened,
            failed: now.failed - before.failed,
            open: counts.open,
            pings: now.pings - before.pings,
            server: earlier.zip(server).map(|(before, now)| server_second(&before, &now)),
        }
    }

    /// Notes the server before the first second.
    pub fn begin(&mut self, server: Option<Sample>) {
        self.server = server;
    }
}

fn server_second(before: &Sample, now: &Sample) -> ServerSecond {
    let wall_us = now.at.saturating_duration_since(before.at).as_micros().max(1) as f64;
    let cores = |now: u64, before: u64| now.saturating_sub(before) as f64 / wall_us;
    let difference = |now: Option<u64>, before: Option<u64>| {
        now.zip(before).map(|(now, before)| now.saturating_sub(before))
    };
    ServerSecond {
        cpu_cores: cores(now.cpu_us, before.cpu_us),
        cpu_user_cores: now.cpu_user_us.zip(before.cpu_user_us).map(|(now, before)| cores(now, before)),
        resident_bytes: now.resident_bytes,
        descriptors: now.descriptors,
        udp_drops: difference(now.udp_drops, before.udp_drops),
        context_switches: difference(now.context_switches, before.context_switches),
        threads: now.threads,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::time::Instant;

    fn sample(at: Instant, cpu_us: u64, resident_bytes: u64) -> Sample {
        Sample {
            at,
            cpu_us,
            cpu_user_us: None,
            resident_bytes,
            descriptors: Some(10),
            udp_drops: None,
            context_switches: None,
            threads: 1,
        }
    }

    /// A thousand connections that cost 10,240 bytes and 80 µs each.
    pub(crate) fn report() -> ConnectReport {
        let mut counts =
            Counts { begun: 1000, opened: 999, open: 998, pings: 2000, pongs: 1999, ..Counts::default() };
        counts.failed.insert("refused".into(), 1);
        counts.lost.insert("no-pong".into(), 1);
        (0..999).for_each(|n| counts.connect.record_us(100 + n));
        (0..1999).for_each(|n| counts.pong.record_us(200 + n));
        counts.lag.record_us(50);
        let mut report = ConnectReport {
            transport: "tcp".into(),
            connections: 1000,
            rate: 500.0,
            keepalive_s: Some(30.0),
            hold_s: 60.0,
            sources: 1,
            series: vec![ConnectSecond { opened: 500, open: 500, ..ConnectSecond::default() }; 3],
            ..ConnectReport::default()
        };
        report.count(&counts, Duration::from_secs(2));
        let start = Instant::now();
        let s = Duration::from_secs;
        let looks = Looks {
            before: sample(start, 1_000, 1 << 20),
            open: sample(start + s(4), 1_000 + 999 * 80, (1 << 20) + 999 * 10_240),
            end: sample(start + s(64), 1_000 + 999 * 80 + 600_000, (1 << 20) + 999 * 10_240),
        };
        report.watch(&looks, 999, 2000);
        report
    }

    #[test]
    fn cost_of_a_connection_is_what_grew_divided_by_the_open_ones() {
        let server = report().server.unwrap();
        assert_eq!(server.bytes_per_connection, Some(10_240.0));
        assert_eq!(server.cpu_us_per_opening, Some(80.0));
        assert_eq!((server.idle_cores, server.idle_cpu_us_per_ping), (Some(0.01), Some(300.0)));
    }

    #[test]
    fn faults_are_the_generators_own() {
        let mut report = report();
        assert_eq!(report.faults(), [""; 0]);
        report.lag_p99_ms = Some(80.0);
        report.failed.insert("generator-no-port".into(), 7);
        let faults = report.faults();
        assert!(faults[0].contains("80 ms") && faults[1].contains("7 connections"), "{faults:?}");
        report.opened = 0;
        assert!(report.faults()[2].contains("1 refused"), "{:?}", report.faults());
    }

    #[test]
    fn seconds_are_differences() {
        let mut seconds = Seconds::default();
        let start = Instant::now();
        seconds.begin(Some(sample(start, 0, 5)));
        let counts = Counts { begun: 10, opened: 8, open: 8, ..Counts::default() };
        let first = seconds.next(0, &counts, Some(sample(start + Duration::from_secs(1), 250_000, 6)));
        assert_eq!((first.begun, first.opened, first.open), (10, 8, 8));
        assert!((first.server.unwrap().cpu_cores - 0.25).abs() < 1e-9);
        let counts = Counts { begun: 15, opened: 15, open: 14, pings: 3, ..counts };
        let second = seconds.next(1, &counts, None);
        assert_eq!((second.begun, second.opened, second.open, second.pings), (5, 7, 14, 3));
        assert!(second.server.is_none());
    }
}
