//! Numbers as people read them, and the lines of the views; pure.

use crate::report::model::{Second, ServerSecond, TrialReport};
use std::time::Duration;

/// Operations a second: whole numbers from 100, below that as many digits as say something.
pub(super) fn rate(rate: f64) -> String {
    if rate >= 100.0 || rate.fract() == 0.0 { format!("{rate:.0}") } else { format!("{rate:.2}") }
}

/// A time in milliseconds at three digits, in the unit that suits it; `–` where failed attempts begin.
pub(super) fn time(ms: Option<f64>) -> String {
    match ms {
        None => "–".into(),
        Some(ms) if ms >= 100_000.0 => format!("{:.0} s", ms / 1e3),
        Some(ms) if ms >= 10_000.0 => format!("{:.1} s", ms / 1e3),
        Some(ms) if ms >= 1000.0 => format!("{:.2} s", ms / 1e3),
        Some(ms) if ms >= 100.0 => format!("{ms:.0} ms"),
        Some(ms) if ms >= 10.0 => format!("{ms:.1} ms"),
        Some(ms) if ms >= 1.0 => format!("{ms:.2} ms"),
        Some(ms) => format!("{:.0} µs", ms * 1e3),
    }
}

/// A share in per cent; never rounded up to 100 or down to 0.
pub(super) fn percent(share: f64) -> String {
    let hundredth = (share * 10_000.0).round() / 100.0;
    if share < 1.0 && hundredth >= 100.0 {
        "> 99.99 %".into()
    } else if share > 0.0 && hundredth <= 0.0 {
        "< 0.01 %".into()
    } else {
        format!("{hundredth} %")
    }
}

/// Bytes in the unit that suits them.
pub(super) fn bytes(bytes: u64) -> String {
    match bytes as f64 / 1e6 {
        mb if mb >= 10_000.0 => format!("{:.1} GB", mb / 1e3),
        mb if mb >= 100.0 => format!("{mb:.0} MB"),
        mb => format!("{mb:.1} MB"),
    }
}

/// A time to wait, in whole seconds, minutes, hours.
pub(super) fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{}:{:02} min", seconds / 60, seconds % 60),
        seconds => format!("{}:{:02} h", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Offered and carried.
pub(super) fn load(second: &Second, asked: f64) -> String {
    format!(
        "{} of {}/s offered, {}/s carried, {} open",
        second.offered,
        rate(asked),
        second.succeeded,
        second.open
    )
}

/// Successes and failures since the window began.
pub(super) fn success(succeeded: u64, failed: u64) -> String {
    let all = succeeded + failed;
    if all == 0 {
        return "nothing has ended yet".into();
    }
    format!("{} of {all} ended, {failed} failed", percent(succeeded as f64 / all as f64))
}

/// The same before and after the window.
pub(super) fn outside(succeeded: u64, failed: u64) -> String {
    if succeeded + failed == 0 {
        "warming up: not counted yet".into()
    } else {
        format!("{}; the window is over", success(succeeded, failed))
    }
}

/// How long operations took in this second.
pub(super) fn times(second: &Second) -> String {
    let resent = second.retransmissions;
    format!("p50 {}, p99 {}, {resent} resent", time(second.p50_ms), time(second.p99_ms))
}

/// The server in this second.
pub(super) fn server(server: Option<&ServerSecond>) -> String {
    let Some(server) = server else { return "not watched (--sut-pid, --sut-cgroup, --sut-exec)".into() };
    let mut line = format!("{:.2} cores, {}", server.cpu_cores, bytes(server.resident_bytes));
    if let Some(drops) = server.udp_drops.filter(|drops| *drops > 0) {
        line.push_str(&format!(", {drops} datagrams lost"));
    }
    line
}

/// The generator in this second.
pub(super) fn generator(second: &Second) -> String {
    let lag =
        second.send_lag_p99_ms.map(|lag| format!(", send lag p99 {}", time(Some(lag)))).unwrap_or_default();
    format!("{} busy{lag}", percent(second.generator))
}

/// A judged trial in one line for people.
pub(super) fn trial(trial: &TrialReport) -> String {
    let latency = &trial.all.latency_planned;
    let mut line = format!(
        "{:<8} {:>8}/s  {:<9} {:>8}/s carried  {:>9}  p50 {:>8}  p99 {:>8}",
        trial.phase,
        rate(trial.rate),
        verdict(trial),
        rate(trial.throughput),
        percent(trial.all.success),
        time(latency.p50_ms),
        time(latency.p99_ms),
    );
    if let (Some(cores), Some(us)) = (trial.cpu_cores, trial.cpu_us_per_op) {
        line.push_str(&format!("  server {cores:.2} cores, {us:.0} µs/op"));
    }
    line
}

/// The verdict, or that there is none because the measurement is invalid.
pub(super) fn verdict(trial: &TrialReport) -> &str {
    if !trial.invalid.is_empty() {
        "invalid"
    } else if trial.verdict.is_empty() {
        "-"
    } else {
        &trial.verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_never_rounded_to_all_or_nothing() {
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(percent(0.999_999), "> 99.99 %");
        assert_eq!(percent(0.9998), "99.98 %");
        assert_eq!(percent(0.000_001), "< 0.01 %");
        assert_eq!(percent(0.0), "0 %");
    }

    #[test]
    fn times_choose_their_unit() {
        assert_eq!(time(Some(0.412)), "412 µs");
        assert_eq!(time(Some(1.234)), "1.23 ms");
        assert_eq!(time(Some(212.4)), "212 ms");
        assert_eq!(time(Some(12_345.0)), "12.3 s");
        assert_eq!(time(None), "–");
    }

    #[test]
    fn spans_and_sizes_are_short() {
        assert_eq!(span(Duration::from_secs(90)), "90 s");
        assert_eq!(span(Duration::from_secs(150)), "2:30 min");
        assert_eq!(span(Duration::from_secs(7260)), "2:01 h");
        assert_eq!(bytes(12_340_000), "12.3 MB");
        assert_eq!(bytes(20_000_000_000), "20.0 GB");
        assert_eq!(rate(3375.4), "3375");
        assert_eq!(rate(0.5), "0.50");
    }

    #[test]
    fn a_trial_that_says_nothing_has_no_verdict() {
        let invalid =
            TrialReport { verdict: "pass".into(), invalid: vec!["late".into()], ..TrialReport::default() };
        assert_eq!(verdict(&invalid), "invalid");
        assert_eq!(verdict(&TrialReport::default()), "-");
    }

    #[test]
    fn a_server_that_nobody_watches_says_how_to_watch_it() {
        assert!(server(None).contains("--sut-pid"));
        let seen = ServerSecond { cpu_cores: 0.5, udp_drops: Some(3), ..ServerSecond::default() };
        assert!(server(Some(&seen)).contains("3 datagrams lost"));
    }
}
