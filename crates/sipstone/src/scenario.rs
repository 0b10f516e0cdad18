//! The table of scenarios: what each exchanges with the server, and what counts as success.

use crate::spec::{Auth, Class, Delay, Proxy, Scenario};
use std::time::Duration;

/// What one operation of a scenario is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its id on the command line and in reports.
    pub id: &'static str,
    /// One line for help and reports.
    pub summary: &'static str,
    /// The answer whose arrival ends the timed part.
    pub latency: &'static str,
    /// What makes it a success.
    pub success: &'static str,
    /// Messages at the server without authentication: in, out, and whether a stateful proxy adds a 100.
    pub messages: (u32, u32, bool),
    /// Whether the users must have been registered before.
    pub preamble: bool,
    /// Whether a callee takes part.
    pub callee: bool,
}

/// Every scenario.
pub const ALL: [Scenario; 10] = [
    Scenario::Options,
    Scenario::Register,
    Scenario::RegisterUpdate,
    Scenario::RegisterLogout,
    Scenario::Invite,
    Scenario::InviteCancel,
    Scenario::InviteNotfound,
    Scenario::Redirect,
    Scenario::Outbound,
    Scenario::Message,
];

impl Scenario {
    /// The row of the table.
    #[must_use]
    pub fn facts(self) -> Facts {
        let facts = |id, summary, latency, success, messages, preamble, callee| Facts {
            id,
            summary,
            latency,
            success,
            messages,
            preamble,
            callee,
        };
        match self {
            Scenario::Options => facts(
                "options",
                "OPTIONS to the server, 200",
                "OPTIONS to 200",
                "200",
                (1, 1, false),
                false,
                false,
            ),
            Scenario::Register => facts(
                "register",
                "REGISTER of the next user, 200",
                "REGISTER to 200 (RRD)",
                "200 with the binding",
                (1, 1, false),
                false,
                false,
            ),
            Scenario::RegisterUpdate => facts(
                "register-update",
                "REGISTER of an existing binding, 200",
                "REGISTER to 200 (RRD)",
                "200 with the binding",
                (1, 1, false),
                true,
                false,
            ),
            Scenario::RegisterLogout => facts(
                "register-logout",
                "REGISTER with Expires: 0 of an existing binding, 200",
                "REGISTER to 200 (RRD)",
                "200 without the binding",
                (1, 1, false),
                true,
                false,
            ),
            Scenario::Invite => facts(
                "invite",
                "a call through the proxy: INVITE, 180, 200, ACK, BYE, 200",
                "INVITE to 200 (setup)",
                "200 to INVITE and BYE",
                (6, 6, true),
                true,
                true,
            ),
            // INVITE, 180, CANCEL, 200, 487, ACK on each leg: from the caller INVITE, CANCEL, ACK; from the callee 180,
            // 200 (CANCEL), 487. A stateful proxy answers CANCEL itself and acknowledges the 487 itself (RFC 3261 §9.2,
            // §17.1.1.3): out: 100, 180, 200, 487 to the caller, INVITE, CANCEL, ACK to the callee.
            Scenario::InviteCancel => facts(
                "invite-cancel",
                "a call that rings and is cancelled: INVITE, 180, CANCEL, 200, 487, ACK",
                "CANCEL to 487",
                "200 to CANCEL and 487 to INVITE",
                (6, 6, true),
                true,
                true,
            ),
            Scenario::InviteNotfound => facts(
                "invite-notfound",
                "a call to a user who is not registered: 404",
                "INVITE to 404",
                "404",
                (2, 1, true),
                false,
                false,
            ),
            Scenario::Redirect => facts(
                "redirect",
                "a call to a redirect server: 302 with the stored contact",
                "INVITE to 302",
                "302 with the stored contact",
                (2, 1, true),
                true,
                false,
            ),
            Scenario::Outbound => facts(
                "outbound",
                "a call with a Route to the server and a foreign Request-URI",
                "INVITE to 200 (setup)",
                "200 to INVITE and BYE",
                (6, 6, true),
                false,
                true,
            ),
            Scenario::Message => facts(
                "message",
                "MESSAGE through the proxy to a registered user, 200",
                "MESSAGE to 200",
                "200",
                (2, 2, false),
                true,
                true,
            ),
        }
    }

    /// The scenario of an id.
    #[must_use]
    pub fn of_id(id: &str) -> Option<Scenario> {
        ALL.into_iter().find(|scenario| scenario.facts().id == id)
    }

    /// Messages per successful operation, into and out of the server, by the table.
    ///
    /// A challenge adds a request and its answer; one to an INVITE also adds the ACK of the 407 (RFC 3261 §17.1.1.3), and
    /// the challenged INVITE's own 100 is never sent by a server that challenges at once.
    #[must_use]
    pub fn messages(self, proxy: Proxy, auth: Auth, auth_every: bool) -> (u32, u32) {
        let (mut messages_in, mut messages_out, trying) = self.facts().messages;
        if trying && proxy == Proxy::Stateful {
            messages_out += 1;
        }
        if auth == Auth::Challenge {
            let invite = self.facts().messages.2;
            messages_in += 1 + u32::from(invite);
            messages_out += 1;
            if auth_every && matches!(self, Scenario::Invite | Scenario::Outbound) {
                messages_in += 1;
                messages_out += 1;
            }
        }
        (messages_in, messages_out)
    }
}

impl Class {
    /// A class of one scenario with nothing special about it.
    #[must_use]
    pub fn plain(scenario: Scenario) -> Class {
        Class {
            name: scenario.facts().id.into(),
            scenario,
            weight: 1.0,
            ring: Delay::None,
            hold: Delay::None,
            cancel_after: Duration::from_secs(38),
        }
    }

    /// How long an operation is meant to take, in the mean, beyond what server and network need.
    #[must_use]
    pub fn intended(&self) -> Duration {
        match self.scenario {
            Scenario::Invite | Scenario::Outbound => self.ring.mean() + self.hold.mean(),
            Scenario::InviteCancel => self.cancel_after,
            _ => Duration::ZERO,
        }
    }
}

impl Delay {
    /// The mean; for a cut exponential distribution that of what is left of it.
    #[must_use]
    pub fn mean(&self) -> Duration {
        match *self {
            Delay::None => Duration::ZERO,
            Delay::Constant(delay) => delay,
            Delay::Exponential { mean, max } => {
                let (mean, max) = (mean.as_secs_f64(), max.as_secs_f64());
                let beyond = (-max / mean).exp();
                let cut = mean - max * beyond / (1.0 - beyond);
                // No mean, or a cut at nothing, is no number.
                Duration::try_from_secs_f64(cut).unwrap_or_default()
            }
        }
    }
}

/// The SIPstone mix: 70 % of calls are answered after 8.5 s on average, the rest ring 38 s and are cancelled.
#[must_use]
pub fn sipstone_mix() -> Vec<Class> {
    let ring = Delay::Exponential { mean: Duration::from_millis(8500), max: Duration::from_secs(38) };
    vec![
        Class { name: "answered".into(), weight: 0.7, ring, ..Class::plain(Scenario::Invite) },
        Class { name: "abandoned".into(), weight: 0.3, ..Class::plain(Scenario::InviteCancel) },
    ]
}
