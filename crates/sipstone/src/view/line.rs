//! The view of a pipe: one line for each thing that happens, made for `grep` and `awk`.
//!
//! ```text
//! begin what="invite at 500/s" expected_s=12
//! register ok=4096 fail=0 users=10000
//! t=12 window=1 rate=500 offered=500 ok=499 fail=1 open=3 p50_ms=0.412 p99_ms=1.203 resent=0 gen=0.310 cpu=0.430 …
//! trial phase=run rate=500 carried=499.8 success=0.9998 p50_ms=0.412 p99_ms=1.203 verdict=pass valid=1
//! note a sentence
//! ```
//!
//! The order of the fields is fixed and new ones are added at the end. A quantile among failed attempts is `inf`.

use super::{View, text};
use crate::report::model::{Second, TrialReport};
use std::io::Write;
use std::time::{Duration, Instant};

/// How often registrations are reported.
const REGISTERING_EVERY: Duration = Duration::from_secs(1);

/// Writes lines to `W`. A reader that has gone away is no reason to end a measurement: errors are ignored.
#[derive(Debug)]
pub struct LineView<W> {
    to: W,
    registering: Option<Instant>,
}

impl<W: Write> LineView<W> {
    /// A view that writes to `to`.
    #[must_use]
    pub fn new(to: W) -> LineView<W> {
        LineView { to, registering: None }
    }

    fn line(&mut self, line: &str) {
        let _ = writeln!(self.to, "{line}").and_then(|()| self.to.flush());
    }
}

impl<W: Write> View for LineView<W> {
    fn begin(&mut self, what: &str, expected: Option<Duration>) {
        let expected =
            expected.map(|time| format!(" expected_s={:.0}", time.as_secs_f64())).unwrap_or_default();
        self.line(&format!("begin what={what:?}{expected}"));
        self.registering = None;
    }

    fn registering(&mut self, registered: u32, failed: u32, users: u32) {
        let due = self.registering.is_none_or(|last| last.elapsed() >= REGISTERING_EVERY);
        if due || registered + failed >= users {
            self.registering = Some(Instant::now());
            self.line(&format!("register ok={registered} fail={failed} users={users}"));
        }
    }

    fn second(&mut self, second: &Second, rate: f64, measured: bool) {
        self.line(&second_line(second, rate, measured));
    }

    fn trial(&mut self, trial: &TrialReport) {
        self.line(&trial_line(trial));
    }

    fn note(&mut self, text: &str) {
        for line in text.lines() {
            self.line(&format!("note {line}"));
        }
    }

    fn end(&mut self) {}
}

/// Milliseconds to the microsecond, or `inf`.
fn ms(value: Option<f64>) -> String {
    value.map_or_else(|| "inf".into(), |value| format!("{value:.3}"))
}

fn second_line(second: &Second, rate: f64, measured: bool) -> String {
    let mut line = format!(
        "t={} window={} rate={} offered={} ok={} fail={} open={} p50_ms={} p99_ms={} resent={} gen={:.3}",
        second.second,
        u8::from(measured),
        text::rate(rate),
        second.offered,
        second.succeeded,
        second.failed,
        second.open,
        ms(second.p50_ms),
        ms(second.p99_ms),
        second.retransmissions,
        second.generator,
    );
    if let Some(lag) = second.send_lag_p99_ms {
        line.push_str(&format!(" lag_p99_ms={lag:.3}"));
    }
    if let Some(server) = &second.server {
        line.push_str(&format!(
            " cpu={:.3} rss_mb={:.1}",
            server.cpu_cores,
            server.resident_bytes as f64 / 1e6
        ));
        if let Some(drops) = server.udp_drops {
            line.push_str(&format!(" drops={drops}"));
        }
    }
    line
}

fn trial_line(trial: &TrialReport) -> String {
    let latency = &trial.all.latency_planned;
    let mut line = format!(
        "trial phase={} rate={} carried={:.1} success={:.6} p50_ms={} p99_ms={} verdict={} valid={}",
        trial.phase,
        text::rate(trial.rate),
        trial.throughput,
        trial.all.success,
        ms(latency.p50_ms),
        ms(latency.p99_ms),
        if trial.verdict.is_empty() { "none" } else { &trial.verdict },
        u8::from(trial.invalid.is_empty()),
    );
    if let (Some(cores), Some(us)) = (trial.cpu_cores, trial.cpu_us_per_op) {
        line.push_str(&format!(" cpu={cores:.3} us_per_op={us:.1}"));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::ServerSecond;

    fn shown(act: impl FnOnce(&mut LineView<Vec<u8>>)) -> String {
        let mut view = LineView::new(Vec::new());
        act(&mut view);
        String::from_utf8(view.to).unwrap()
    }

    #[test]
    fn a_second_is_one_line_of_fields() {
        let second = Second {
            second: 12,
            offered: 500,
            succeeded: 499,
            failed: 1,
            open: 3,
            p50_ms: Some(0.4123),
            p99_ms: None,
            retransmissions: 2,
            generator: 0.31,
            server: Some(ServerSecond {
                cpu_cores: 0.43,
                resident_bytes: 12_300_000,
                ..ServerSecond::default()
            }),
            ..Second::default()
        };
        assert_eq!(
            shown(|view| view.second(&second, 500.0, true)),
            "t=12 window=1 rate=500 offered=500 ok=499 fail=1 open=3 p50_ms=0.412 p99_ms=inf resent=2 gen=0.310 \
             cpu=0.430 rss_mb=12.3\n"
        );
    }

    #[test]
    fn registrations_are_reported_once_a_second_and_at_the_end() {
        let text = shown(|view| {
            view.begin("registering", None);
            for registered in 0..=100 {
                view.registering(registered, 0, 100);
            }
        });
        let lines: Vec<&str> = text.lines().collect();
        let expected = [
            "begin what=\"registering\"",
            "register ok=0 fail=0 users=100",
            "register ok=100 fail=0 users=100",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn every_line_of_a_note_can_be_found() {
        assert_eq!(shown(|view| view.note("one\ntwo")), "note one\nnote two\n");
    }

    #[test]
    fn a_trial_that_is_not_valid_says_so() {
        let trial = TrialReport {
            phase: "run".into(),
            rate: 10.0,
            invalid: vec!["late".into()],
            ..TrialReport::default()
        };
        let line = shown(|view| view.trial(&trial));
        assert!(
            line.starts_with("trial phase=run rate=10 ") && line.ends_with("verdict=none valid=0\n"),
            "{line}"
        );
    }

    #[test]
    fn a_reader_that_has_gone_does_not_stop_it() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        LineView::new(Closed).note("nobody hears this");
    }
}
