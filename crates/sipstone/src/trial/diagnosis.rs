//! What a set-up that fails most probably means, as sentences that say what to do.

use crate::spec::{Scenario, Workload};
use crate::tally::{Example, Failure, Tally};
use std::collections::BTreeMap;
use std::time::Duration;

/// The request that begins an operation.
pub(super) fn method(scenario: Scenario) -> &'static str {
    match scenario {
        Scenario::Options => "OPTIONS",
        Scenario::Register | Scenario::RegisterUpdate | Scenario::RegisterLogout => "REGISTER",
        Scenario::Message => "MESSAGE",
        Scenario::Invite
        | Scenario::InviteCancel
        | Scenario::InviteNotfound
        | Scenario::Redirect
        | Scenario::Outbound => "INVITE",
    }
}

/// Nothing came back.
pub(super) fn no_answer(workload: &Workload, method: &str, within: Duration) -> String {
    format!(
        "no answer from {} to {method} within {} s: check that the server runs, that this is its {} port, and that no \
         packet filter lies between",
        workload.target.address,
        within.as_secs(),
        workload.links.caller.transport.via(),
    )
}

/// ICMP port unreachable came back.
pub(super) fn nothing_listens(workload: &Workload) -> String {
    format!(
        "nothing listens on {}:{}: start the server there, or name another --target",
        workload.links.caller.transport, workload.target.address
    )
}

/// Registrations failed.
pub(super) fn refused(
    workload: &Workload,
    registered: u32,
    failed: u32,
    example: Option<&Example>,
) -> String {
    let users = workload.users.count;
    let word = example.and_then(|example| example.failure.as_deref());
    let reason = match word.and_then(Failure::of_word) {
        Some(Failure::Unreachable) => return nothing_listens(workload),
        Some(Failure::ConnectRefused) => {
            let link = workload.links.callee;
            let address = link.address.unwrap_or(workload.target.address);
            format!(
                "{address} does not take {} connections: start the server there, or name another --target or \
                 --callee-target",
                link.transport.via()
            )
        }
        Some(Failure::Handshake) => {
            "TLS or WebSocket could not be agreed on: look at the server's log, at --tls-version, --tls-cipher and --tls-ca, \
             and whether the server wants certificates (--tls mutual)"
                .into()
        }
        Some(Failure::Connection) => "the server closed the connection before it answered".into(),
        Some(Failure::Timeout) if registered == 0 => {
            return no_answer(workload, "REGISTER", 64 * workload.t1);
        }
        Some(Failure::Status(status @ (401 | 407))) => {
            format!("the server asks for credentials ({status}): add --auth challenge or --auth cached")
        }
        Some(Failure::Status(status @ (403 | 404))) => format!(
            "the server answered {status}: it must know the users (--user-format, --first-user, --users-file) and serve \
             the domain {} (--domain)",
            workload.target.domain
        ),
        Some(Failure::Status(status)) => format!("the server answered {status}"),
        Some(Failure::Authentication) => {
            "the server refused the credentials: check --password-format or --users-file".into()
        }
        Some(Failure::WrongContent) => "the server's 200 does not list the registered contact".into(),
        Some(Failure::Timeout) => {
            "the server did not answer: it may be slower than the preamble offers".into()
        }
        Some(Failure::GeneratorDropped | Failure::Unfinished) | None => "no answer said why".into(),
    };
    format!("{failed} registrations of {users} users failed, {registered} succeeded: {reason}")
}

/// Nothing has succeeded so far.
pub(super) fn nothing_succeeds(seconds: u32, failures: &BTreeMap<Failure, u64>) -> String {
    let mut kinds: Vec<(&Failure, &u64)> = failures.iter().collect();
    kinds.sort_by(|a, b| b.1.cmp(a.1));
    let list: Vec<String> =
        kinds.iter().take(3).map(|(failure, count)| format!("{} × {count}", failure.word())).collect();
    let list = if list.is_empty() { "none has failed either".to_owned() } else { list.join(", ") };
    let challenged = failures.keys().any(|failure| matches!(failure, Failure::Status(401 | 407)));
    let hint =
        if challenged { "; the server asks for credentials: add --auth challenge or cached" } else { "" };
    format!("no operation has succeeded in the first {seconds} s: {list}{hint}")
}

/// What the first seconds of a trial showed.
#[derive(Debug, Default)]
pub(super) struct FirstSeconds {
    /// Datagrams that came back.
    pub(super) received: u64,
    /// Operations that ended well.
    pub(super) succeeded: u64,
    /// The others.
    pub(super) failures: BTreeMap<Failure, u64>,
    /// The first second in which something was sent.
    pub(super) first_sent: Option<u32>,
}

impl FirstSeconds {
    /// Takes a second.
    pub(super) fn take(&mut self, second: u32, tally: &Tally) {
        self.received += tally.generator.datagrams_received;
        if self.first_sent.is_none() && tally.generator.datagrams_sent > 0 {
            self.first_sent = Some(second);
        }
        for class in &tally.classes {
            self.succeeded += class.succeeded;
            for (failure, count) in &class.failures {
                *self.failures.entry(*failure).or_default() += count;
            }
        }
    }

    /// Whether ICMP said that nothing listens there.
    pub(super) fn unreachable(&self) -> bool {
        self.failures.contains_key(&Failure::Unreachable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::fake::workload;

    fn sentence(word: &str) -> String {
        let example = Example { class: "preamble".into(), failure: Some(word.into()), messages: vec![] };
        refused(&workload(), 0, 12, Some(&example))
    }

    #[test]
    fn each_cause_has_its_advice() {
        assert!(sentence("unreachable").starts_with("nothing listens on udp:127.0.0.1:5060"));
        assert!(sentence("timeout").starts_with("no answer from 127.0.0.1:5060 to REGISTER within 32 s"));
        assert!(sentence("status-401").contains("--auth challenge"));
        assert!(sentence("status-404").contains("--domain"));
        assert!(sentence("status-503").contains("answered 503"));
        assert!(sentence("authentication").contains("--password-format"));
    }

    #[test]
    fn the_commonest_failures_come_first() {
        let failures = BTreeMap::from([(Failure::Timeout, 3), (Failure::Status(404), 120)]);
        let text = nothing_succeeds(3, &failures);
        assert_eq!(text, "no operation has succeeded in the first 3 s: status-404 × 120, timeout × 3");
    }
}
