//! The doctor: what on this host, or at the target, would spoil a measurement, and the command that mends it.
//!
//! [`examine`] reads settings of the kernel, measures clocks, timers and loopback for about a second altogether, and asks
//! a target for its OPTIONS (RFC 3261 §11). It changes nothing.

mod host;
mod measure;
mod target;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

/// How good something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// As it should be.
    Good,
    /// Measurements are possible but may suffer.
    Warn,
    /// Measurements will fail or be wrong.
    Bad,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// What: `open files`, `timers`, …
    pub topic: String,
    /// How good.
    pub state: State,
    /// What was seen, with units.
    pub seen: String,
    /// What to do about it, with the command; `None` when there is nothing to do.
    pub advice: Option<String>,
}

impl Finding {
    fn new(topic: &str, state: State, seen: impl Into<String>) -> Finding {
        Finding { topic: topic.into(), state, seen: seen.into(), advice: None }
    }

    fn good(topic: &str, seen: impl Into<String>) -> Finding {
        Finding::new(topic, State::Good, seen)
    }

    fn warn(topic: &str, seen: impl Into<String>) -> Finding {
        Finding::new(topic, State::Warn, seen)
    }

    fn bad(topic: &str, seen: impl Into<String>) -> Finding {
        Finding::new(topic, State::Bad, seen)
    }

    fn advise(mut self, advice: impl Into<String>) -> Finding {
        self.advice = Some(advice.into());
        self
    }
}

/// What the measurement that is planned needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Worker threads of the generator.
    pub threads: u16,
    /// Local addresses that it sends from.
    pub sources: u16,
    /// The domain of the OPTIONS request; `None`: the target's address.
    pub domain: Option<String>,
    /// How long the target may take to answer.
    pub answer_within: Duration,
    /// How long loopback is measured; at most 300 ms are taken.
    pub loopback_for: Duration,
    /// Sleeps whose overshoot is measured, of 500 µs each; at most 200 are made.
    pub sleeps: u32,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            threads: 1,
            sources: 1,
            domain: None,
            answer_within: Duration::from_secs(4),
            loopback_for: measure::LOOPBACK_MAX,
            sleeps: measure::SLEEPS_MAX,
        }
    }
}

/// Looks at everything; the host first, then the target if there is one.
#[must_use]
pub fn examine(target: Option<SocketAddr>, plan: &Plan) -> Vec<Finding> {
    let before = host::cpu_times();
    let mut findings = host::examine(target, plan);
    findings.extend(measure::examine(plan));
    findings.extend(host::stolen(before, host::cpu_times()));
    if let Some(target) = target {
        findings.extend(target::examine(target, plan));
    }
    findings
}

/// The worst state among the findings; `Good` when there are none.
#[must_use]
pub fn worst(findings: &[Finding]) -> State {
    findings.iter().map(|finding| finding.state).max().unwrap_or(State::Good)
}

/// The findings as text, one a line, the advice below it; control characters are made visible.
#[must_use]
pub fn render(findings: &[Finding]) -> String {
    let columns = findings.iter().map(|finding| finding.topic.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for Finding { topic, state, seen, advice } in findings {
        let word = match state {
            State::Good => "good",
            State::Warn => "WARN",
            State::Bad => "BAD ",
        };
        let (topic, seen) = (crate::ladder::visible(topic), crate::ladder::visible(seen));
        let _ = writeln!(out, "{word}  {topic:<columns$}  {seen}");
        if let Some(advice) = advice {
            let _ = writeln!(out, "      {:columns$}  → {}", "", crate::ladder::visible(advice));
        }
    }
    let count = |state| findings.iter().filter(|finding| finding.state == state).count();
    let (warn, bad) = (count(State::Warn), count(State::Bad));
    let _ = match (warn, bad) {
        (0, 0) => writeln!(out, "\nNothing to mend."),
        _ => writeln!(out, "\n{bad} to mend before measuring, {warn} worth a look."),
    };
    out
}
