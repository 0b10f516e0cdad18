//! Numbers as people read them, and the sentences that text and page share.

use super::model::{ClassReport, Estimate, Report, SideFacts, Subject, TrialReport};
use crate::spec::{TlsMode, Transport};

/// What stands for a number that there is none of.
pub(super) const NOTHING: &str = "–";

/// What stands for a quantile among the failed attempts.
pub(super) const INFINITE: &str = "∞";

/// Three significant digits, none behind the point from 100 on; a whole number has no point: `2.00` is nearly 2.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return NOTHING.into();
    }
    if value.fract() == 0.0 || size >= 99.95 {
        return grouped(&format!("{value:.0}"));
    }
    match size {
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.9995 => format!("{value:.2}"),
        size if size < 5e-7 => "0".into(),
        size => {
            // The power of ten is that of the rounded number, so that 0.09996 is 0.100 and not 0.1000.
            let power = (size * 1.0005).log10().floor().abs();
            format!("{value:.*}", power as usize + 2)
        }
    }
}

/// A whole number with a comma every three digits.
pub(super) fn whole(value: u64) -> String {
    grouped(&value.to_string())
}

fn grouped(digits: &str) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |digits| ("-", digits));
    let mut text = String::from(sign);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share as a percentage without its sign. `100` and `0` mean exactly all and none: what is close to them gets as
/// many digits as show the difference.
pub(super) fn percent(share: f64) -> String {
    if share == 1.0 || share == 0.0 || !share.is_finite() {
        return if share.is_finite() { format!("{:.0}", share * 100.0) } else { NOTHING.into() };
    }
    let value = share * 100.0;
    let distance = value.min(100.0 - value).abs().max(1e-9);
    let digits = if distance >= 0.95 { 1 } else { (-distance.log10() - 1e-6).ceil() as usize + 1 };
    format!("{value:.*}", digits.clamp(1, 8))
}

/// An upper bound in percent. That of a trial in which all succeeded is so close to 100 that its digits say nothing.
pub(super) fn upper_bound(share: f64) -> String {
    if share > 1.0 - 1e-6 { "100".into() } else { percent(share) }
}

/// Milliseconds of a quantile, without the unit; infinite if it is none and something failed.
pub(super) fn milliseconds(value: Option<f64>, recorded: u64, failed: bool) -> String {
    match value {
        Some(value) => number(value),
        None if failed || recorded > 0 => INFINITE.into(),
        None => NOTHING.into(),
    }
}

/// A time with the unit that suits it, not to be parted by a line's end.
pub(super) fn time(ms: f64) -> String {
    if ms < 1.0 {
        format!("{}\u{a0}µs", number(ms * 1000.0))
    } else if ms < 1000.0 {
        format!("{}\u{a0}ms", number(ms))
    } else {
        format!("{}\u{a0}s", number(ms / 1000.0))
    }
}

/// A quantile in a sentence.
pub(super) fn quantile(value: Option<f64>) -> String {
    value.map_or_else(|| format!("{INFINITE} (among the failed)"), time)
}

/// Bytes in binary units.
pub(super) fn bytes(value: u64) -> String {
    let value = value as f64;
    for (unit, name) in [(f64::from(1 << 30), "GiB"), (f64::from(1 << 20), "MiB"), (1024.0, "KiB")] {
        if value >= unit {
            return format!("{} {name}", number(value / unit));
        }
    }
    format!("{value:.0} bytes")
}

/// A number or a dash.
pub(super) fn or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| NOTHING.into(), number)
}

/// An estimate with its interval.
pub(super) fn estimate(estimate: &Estimate) -> String {
    format!("{} ({} to {})", number(estimate.value), number(estimate.low), number(estimate.high))
}

/// `invite, authentication challenge, over tls (full handshakes, per-call connections)`.
pub(super) fn subject_title(subject: &Subject) -> String {
    let authentication = match subject.auth {
        crate::spec::Auth::None => String::new(),
        auth => format!(", authentication {}", auth_word(auth)),
    };
    format!("{}{authentication}{}", subject.name, links(subject))
}

/// How the load reached the server, where that was not UDP alone.
fn links(subject: &Subject) -> String {
    let Some(links) = &subject.links else { return String::new() };
    let side = |side: &SideFacts| match &side.connections {
        Some(connections) => format!("{} ({connections})", side.transport),
        None => side.transport.to_string(),
    };
    let (caller, callee) = (side(&links.caller), side(&links.callee));
    let handshakes = match links.tls.as_ref().map(|tls| tls.mode) {
        Some(TlsMode::Mutual) => ", mutual handshakes",
        Some(TlsMode::Reuse) => ", sessions resumed",
        Some(TlsMode::Full) | None => "",
    };
    match (caller == callee, links.caller.transport) {
        (true, Transport::Udp) => String::new(),
        (true, _) => format!(", over {caller}{handshakes}"),
        (false, _) => format!(", callers over {caller}, callees over {callee}{handshakes}"),
    }
}

pub(super) fn auth_word(auth: crate::spec::Auth) -> &'static str {
    match auth {
        crate::spec::Auth::None => "none",
        crate::spec::Auth::Challenge => "challenge",
        crate::spec::Auth::Cached => "cached",
    }
}

/// The trial that a subject is judged by: of a search the last confirmation that passed, or the fastest that passed at
/// all; else the last.
pub(super) fn telling_trial(subject: &Subject) -> Option<(usize, &TrialReport)> {
    let numbered = || subject.trials.iter().enumerate();
    let confirmed = numbered().rfind(|(_, trial)| trial.phase == "confirm" && trial.verdict == "pass");
    let passed = || numbered().filter(|(_, trial)| trial.verdict == "pass" && trial.phase != "overload");
    let fastest = || passed().max_by(|(_, one), (_, other)| one.rate.total_cmp(&other.rate));
    let searched = subject.peak.as_ref().and_then(|_| confirmed.or_else(fastest));
    searched.or_else(|| numbered().next_back())
}

/// All reasons for which a report is invalid: its own and its trials', each once.
pub(super) fn invalid(report: &Report) -> Vec<String> {
    let mut reasons = report.invalid.clone();
    if report.grid.is_some() {
        // Trials that a grid did not use spoil nothing: its rows say what does.
        return reasons;
    }
    for (subject, trial, number) in report.subjects.iter().flat_map(|subject| {
        subject.trials.iter().enumerate().map(move |(number, trial)| (subject, trial, number))
    }) {
        // Overload is tried after the peak was found: where it was more than the generator's, the table and a remark say so.
        let reasons_of_trial = trial.invalid.iter().filter(|_| trial.phase != "overload");
        for reason in reasons_of_trial {
            if !reasons.iter().any(|known| known.contains(reason.as_str())) {
                reasons.push(format!(
                    "{}, trial {number} ({} at {}/s): {reason}",
                    subject.name,
                    trial.phase,
                    number_of(trial)
                ));
            }
        }
    }
    reasons
}

fn number_of(trial: &TrialReport) -> String {
    number(trial.rate)
}

/// What a subject came to, in one sentence.
pub(super) fn sentence(subject: &Subject) -> String {
    let Some((_, trial)) = telling_trial(subject) else {
        return format!("{}: nothing was measured.", subject.name);
    };
    let mut text = match &subject.peak {
        Some(peak) if peak.rate > 0.0 => format!(
            "{} carries {} operations a second ({} to {} at 95 %)",
            subject_title(subject),
            number(peak.rate),
            number(peak.low),
            number(peak.high)
        ),
        Some(_) => return format!("{}: no rate passed. {}", subject_title(subject), ended(subject)),
        None => format!(
            "{} at {} operations a second: {} % succeeded ({} carried a second)",
            subject_title(subject),
            number(trial.offered_rate),
            percent(trial.all.success),
            number(trial.throughput)
        ),
    };
    let cpu = subject.cpu_slope.map(|slope| slope.value).or(trial.cpu_us_per_op);
    if let Some(cpu) = cpu {
        text += &format!(", {} µs of server CPU per operation", number(cpu));
    }
    let latency = &trial.all.latency_planned;
    text += &format!(
        ", median latency {}, 99th percentile {}.",
        quantile(latency.p50_ms),
        quantile(latency.p99_ms)
    );
    if subject.peak.as_ref().is_some_and(|peak| peak.generator_bound) {
        text += " The generator was the limit, or near it.";
    }
    let ended = ended(subject);
    if ended.is_empty() { text } else { format!("{text} {ended}") }
}

/// How the search ended, if not by bracketing the peak.
fn ended(subject: &Subject) -> String {
    let reason = subject.peak.as_ref().and_then(|peak| peak.ended.as_deref());
    reason.map_or_else(String::new, |reason| format!("The search ended: {}.", reason.trim_end_matches('.')))
}

/// Causes of failure, most frequent first: `timeout 12, status-503 3`.
pub(super) fn failures(class: &ClassReport) -> String {
    let mut causes: Vec<_> = class.failures.iter().filter(|(_, count)| **count > 0).collect();
    causes.sort_by(|(_, one), (_, other)| other.cmp(one));
    let causes: Vec<String> =
        causes.into_iter().map(|(word, count)| format!("{word} {}", whole(*count))).collect();
    causes.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_commas() {
        let cases = [
            (0.0, "0"),
            (1.0, "1"),
            (12.0, "12"),
            (0.5, "0.500"),
            (1.234, "1.23"),
            (12.34, "12.3"),
            (123.4, "123"),
            (99.96, "100"),
            (9.999, "10.0"),
            (1234.5, "1,234"),
            (1_234_567.0, "1,234,567"),
            (0.012_345, "0.0123"),
            (0.000_123_4, "0.000123"),
            (0.999_9, "1.00"),
            (-4.5, "-4.50"),
            (-12_345.6, "-12,346"),
            (2.003, "2.00"),
            (f64::NAN, "–"),
            (1e-12, "0"),
            (0.099_96, "0.100"),
            (0.1, "0.100"),
        ];
        for (value, expected) in cases {
            assert_eq!(number(value), expected, "{value}");
        }
    }

    #[test]
    fn percentages_never_round_to_all_or_nothing() {
        let cases = [
            (1.0, "100"),
            (0.0, "0"),
            (0.99, "99.0"),
            (0.999, "99.90"),
            (0.99996, "99.9960"),
            (0.5, "50.0"),
            (0.0004, "0.040"),
            (0.999_999_9, "99.999990"),
        ];
        for (share, expected) in cases {
            assert_eq!(percent(share), expected, "{share}");
        }
    }

    #[test]
    fn upper_bounds_have_no_row_of_noughts() {
        assert_eq!(upper_bound(0.999_999_999_9), "100");
        assert_eq!(upper_bound(1.0), "100");
        assert_eq!(upper_bound(0.999_6), "99.960");
    }

    #[test]
    fn quantile_among_the_failed_is_infinite_and_no_attempt_is_a_dash() {
        assert_eq!(milliseconds(None, 10, true), "∞");
        assert_eq!(milliseconds(None, 0, true), "∞");
        assert_eq!(milliseconds(None, 0, false), "–");
        assert_eq!(milliseconds(Some(0.4567), 10, true), "0.457");
        assert_eq!(quantile(None), "∞ (among the failed)");
        assert_eq!(quantile(Some(0.25)), "250\u{a0}µs");
        assert_eq!(quantile(Some(1500.0)), "1.50\u{a0}s");
    }

    #[test]
    fn titles_say_how_the_server_was_reached() {
        use crate::report::model::{LinkFacts, TlsFacts};
        let side = |transport, connections: Option<&str>| SideFacts {
            transport,
            connections: connections.map(str::to_owned),
        };
        let title = |caller: &SideFacts, callee: &SideFacts, mode: Option<TlsMode>| {
            let tls = mode.map(|mode| TlsFacts { mode, ..TlsFacts::default() });
            let links =
                LinkFacts { caller: caller.clone(), callee: callee.clone(), tls, ..LinkFacts::default() };
            subject_title(&Subject { name: "invite".into(), links: Some(links), ..Subject::default() })
        };
        let udp = side(Transport::Udp, None);
        let tls = side(Transport::Tls, Some("per-call"));
        assert_eq!(title(&udp, &udp, None), "invite");
        assert_eq!(title(&tls, &tls, Some(TlsMode::Reuse)), "invite, over tls (per-call), sessions resumed");
        assert_eq!(
            title(&tls, &udp, Some(TlsMode::Full)),
            "invite, callers over tls (per-call), callees over udp"
        );
    }

    #[test]
    fn memory_is_in_binary_units() {
        assert_eq!(bytes(12), "12 bytes");
        assert_eq!(bytes(50 << 20), "50 MiB");
        assert_eq!(bytes(3 << 29), "1.50 GiB");
    }
}
