//! What the four transaction machines have in common: the actions they ask for.
//!
//! A machine knows its state and nothing else: no bytes, no clock, no timers. It is told what happened and answers
//! with [`Actions`]; whoever holds it carries them out.

use core::time::Duration;

/// What shall happen to a timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Arm {
    /// Nothing.
    #[default]
    Keep,
    /// Disarm it.
    Stop,
    /// Arm it for this long from now.
    After(Duration),
}

/// What shall be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Emit {
    /// Nothing.
    #[default]
    Nothing,
    /// The message at hand: a new response.
    New,
    /// What was sent last, again.
    Again,
    /// The ACK of the response at hand (RFC 3261 §17.1.1.3).
    Ack,
}

/// What the transaction user (here the proxy core) is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Report {
    /// Nothing.
    #[default]
    Nothing,
    /// The message at hand.
    Message,
    /// No response, or no ACK, came in time.
    Timeout,
}

/// What a machine asks for.
#[must_use]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Actions {
    /// To be sent.
    pub(crate) emit: Emit,
    /// The timer of retransmissions.
    pub(crate) resend: Arm,
    /// The timer that ends a state.
    pub(crate) expire: Arm,
    /// To be told.
    pub(crate) report: Report,
}

impl Actions {
    /// Nothing to do.
    pub(crate) const NONE: Actions =
        Actions { emit: Emit::Nothing, resend: Arm::Keep, expire: Arm::Keep, report: Report::Nothing };
    /// The machine has ended: no timers.
    pub(crate) const END: Actions =
        Actions { emit: Emit::Nothing, resend: Arm::Stop, expire: Arm::Stop, report: Report::Nothing };
}

/// Whether the transport delivers by itself (RFC 3261 §17: TCP, TLS, SCTP, WebSocket) or not (UDP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// Messages may be lost.
    Unreliable,
    /// Messages arrive or the connection fails.
    Reliable,
}

impl Delivery {
    /// `duration` on an unreliable transport, nothing on a reliable one.
    pub(crate) fn unless_reliable(self, duration: Duration) -> Option<Duration> {
        (self == Delivery::Unreliable).then_some(duration)
    }
}
