//! INVITE client transaction (RFC 3261 §17.1.1, amended by RFC 6026 §7.2).
//!
//! ```text
//!  Calling --1xx--> Proceeding --2xx--> Accepted --M--> gone
//!     |  `--2xx-------------------------^   (each 2xx is passed up)
//!     |  `--3xx-6xx--> Completed --D--> gone
//!     `--B or transport error--> gone       (each 3xx-6xx is acknowledged)
//! ```
//!
//! In Proceeding the other timer belongs to the proxy core: Timer C, or the wait for the end of a cancelled branch.

use crate::config::Timers;
use crate::machine::{Actions, Arm, Delivery, Emit, Report};
use core::time::Duration;

/// State of one INVITE client transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientInvite {
    /// The request was sent; `interval` is Timer A.
    Calling { interval: Duration },
    /// A provisional response came.
    Proceeding,
    /// A 2xx came; later ones are passed up (RFC 6026 §7.2).
    Accepted,
    /// A final response that is no 2xx came; its retransmissions are acknowledged.
    Completed,
    /// Gone.
    Terminated,
}

impl ClientInvite {
    /// The request was handed to the transport.
    pub(crate) fn start(timers: &Timers, delivery: Delivery) -> (ClientInvite, Actions) {
        let resend = delivery.unless_reliable(timers.t1).map_or(Arm::Keep, Arm::After);
        let actions = Actions { resend, expire: Arm::After(timers.timer_b), ..Actions::NONE };
        (ClientInvite::Calling { interval: timers.t1 }, actions)
    }

    /// Timer A (RFC 3261 §17.1.1.2): again, after twice the interval.
    pub(crate) fn on_resend(&mut self) -> Actions {
        match self {
            ClientInvite::Calling { interval } => {
                *interval *= 2;
                Actions { emit: Emit::Again, resend: Arm::After(*interval), ..Actions::NONE }
            }
            _ => Actions::NONE,
        }
    }

    /// Timer B, D or M.
    pub(crate) fn on_expire(&mut self) -> Actions {
        let waiting = matches!(self, ClientInvite::Calling { .. } | ClientInvite::Proceeding);
        *self = ClientInvite::Terminated;
        let report = if waiting { Report::Timeout } else { Report::Nothing };
        Actions { report, ..Actions::END }
    }

    /// A response with the branch of this transaction and the method INVITE.
    pub(crate) fn on_response(&mut self, status: u16, timers: &Timers, delivery: Delivery) -> Actions {
        match (*self, status) {
            (ClientInvite::Calling { .. } | ClientInvite::Proceeding, 100..=199) => {
                *self = ClientInvite::Proceeding;
                Actions { resend: Arm::Stop, report: Report::Message, ..Actions::NONE }
            }
            (ClientInvite::Calling { .. } | ClientInvite::Proceeding, 200..=299) => {
                *self = ClientInvite::Accepted;
                let expire = Arm::After(timers.timer_m);
                Actions { resend: Arm::Stop, expire, report: Report::Message, emit: Emit::Nothing }
            }
            (ClientInvite::Calling { .. } | ClientInvite::Proceeding, _) => {
                // RFC 3261 §17.1.1.2: Timer D is zero on reliable transports.
                let expire = match delivery.unless_reliable(timers.timer_d) {
                    Some(after) => {
                        *self = ClientInvite::Completed;
                        Arm::After(after)
                    }
                    None => {
                        *self = ClientInvite::Terminated;
                        Arm::Stop
                    }
                };
                Actions { emit: Emit::Ack, resend: Arm::Stop, expire, report: Report::Message }
            }
            (ClientInvite::Accepted, 200..=299) => Actions { report: Report::Message, ..Actions::NONE },
            (ClientInvite::Completed, 300..) => Actions { emit: Emit::Again, ..Actions::NONE },
            _ => Actions::NONE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UDP: Delivery = Delivery::Unreliable;

    #[test]
    fn timer_a_doubles_without_bound_until_timer_b() {
        let timers = Timers::default();
        let (mut machine, actions) = ClientInvite::start(&timers, UDP);
        assert_eq!(actions.resend, Arm::After(timers.t1));
        assert_eq!(actions.expire, Arm::After(timers.timer_b));
        for factor in [2, 4, 8, 16, 32] {
            let actions = machine.on_resend();
            assert_eq!((actions.emit, actions.resend), (Emit::Again, Arm::After(timers.t1 * factor)));
        }
        assert_eq!(machine.on_expire().report, Report::Timeout);
        assert_eq!(machine, ClientInvite::Terminated);
    }

    #[test]
    fn reliable_transports_neither_resend_nor_wait() {
        let timers = Timers::default();
        let (mut machine, actions) = ClientInvite::start(&timers, Delivery::Reliable);
        assert_eq!(actions.resend, Arm::Keep);
        let actions = machine.on_response(486, &timers, Delivery::Reliable);
        assert_eq!((actions.emit, machine), (Emit::Ack, ClientInvite::Terminated));
    }

    #[test]
    fn a_failure_is_acknowledged_each_time_and_reported_once() {
        let timers = Timers::default();
        let (mut machine, _) = ClientInvite::start(&timers, UDP);
        assert_eq!(machine.on_response(180, &timers, UDP).report, Report::Message);
        assert_eq!(machine.on_resend(), Actions::NONE);
        let actions = machine.on_response(486, &timers, UDP);
        assert_eq!((actions.emit, actions.report), (Emit::Ack, Report::Message));
        let actions = machine.on_response(486, &timers, UDP);
        assert_eq!((actions.emit, actions.report), (Emit::Again, Report::Nothing));
        assert_eq!(machine.on_response(200, &timers, UDP), Actions::NONE);
        assert_eq!(machine.on_expire(), Actions::END);
    }

    #[test]
    fn every_2xx_is_reported_and_nothing_else_after_it() {
        let timers = Timers::default();
        let (mut machine, _) = ClientInvite::start(&timers, UDP);
        assert_eq!(machine.on_response(200, &timers, UDP).expire, Arm::After(timers.timer_m));
        assert_eq!(machine.on_response(200, &timers, UDP).report, Report::Message);
        assert_eq!(machine.on_response(180, &timers, UDP), Actions::NONE);
        assert_eq!(machine.on_response(500, &timers, UDP), Actions::NONE);
    }
}
