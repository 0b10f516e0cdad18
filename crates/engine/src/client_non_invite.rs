//! Non-INVITE client transaction (RFC 3261 §17.1.2).
//!
//! ```text
//!  Trying --1xx--> Proceeding --200-699--> Completed --K--> gone
//!     |  `--200-699------------------------^
//!     `--F or transport error--> gone  (also from Proceeding)
//! ```

use crate::config::Timers;
use crate::machine::{Actions, Arm, Delivery, Emit, Report};
use core::time::Duration;

/// State of one non-INVITE client transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientNonInvite {
    /// The request was sent; `interval` is Timer E.
    Trying { interval: Duration },
    /// A provisional response came; Timer E goes on at T2.
    Proceeding,
    /// A final response came; its retransmissions are absorbed.
    Completed,
    /// Gone.
    Terminated,
}

impl ClientNonInvite {
    /// The request was handed to the transport.
    pub(crate) fn start(timers: &Timers, delivery: Delivery) -> (ClientNonInvite, Actions) {
        let resend = delivery.unless_reliable(timers.t1).map_or(Arm::Keep, Arm::After);
        let actions = Actions { resend, expire: Arm::After(timers.timer_f), ..Actions::NONE };
        (ClientNonInvite::Trying { interval: timers.t1 }, actions)
    }

    /// Timer E (RFC 3261 §17.1.2.2): again, after MIN(2*interval, T2).
    pub(crate) fn on_resend(&mut self, timers: &Timers) -> Actions {
        let after = match self {
            ClientNonInvite::Trying { interval } => {
                *interval = (*interval * 2).min(timers.t2);
                *interval
            }
            ClientNonInvite::Proceeding => timers.t2,
            _ => return Actions::NONE,
        };
        Actions { emit: Emit::Again, resend: Arm::After(after), ..Actions::NONE }
    }

    /// Timer F or K.
    pub(crate) fn on_expire(&mut self) -> Actions {
        let waiting = matches!(self, ClientNonInvite::Trying { .. } | ClientNonInvite::Proceeding);
        *self = ClientNonInvite::Terminated;
        let report = if waiting { Report::Timeout } else { Report::Nothing };
        Actions { report, ..Actions::END }
    }

    /// A response with the branch and the method of this transaction.
    pub(crate) fn on_response(&mut self, status: u16, timers: &Timers, delivery: Delivery) -> Actions {
        if !matches!(self, ClientNonInvite::Trying { .. } | ClientNonInvite::Proceeding) {
            return Actions::NONE;
        }
        if status < 200 {
            *self = ClientNonInvite::Proceeding;
            return Actions { report: Report::Message, ..Actions::NONE };
        }
        // RFC 3261 §17.1.2.2: Timer K is zero on reliable transports.
        let expire = match delivery.unless_reliable(timers.t4) {
            Some(after) => {
                *self = ClientNonInvite::Completed;
                Arm::After(after)
            }
            None => {
                *self = ClientNonInvite::Terminated;
                Arm::Stop
            }
        };
        Actions { resend: Arm::Stop, expire, report: Report::Message, emit: Emit::Nothing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UDP: Delivery = Delivery::Unreliable;

    #[test]
    fn timer_e_doubles_up_to_t2() {
        let timers = Timers::default();
        let (mut machine, actions) = ClientNonInvite::start(&timers, UDP);
        assert_eq!((actions.resend, actions.expire), (Arm::After(timers.t1), Arm::After(timers.timer_f)));
        for millis in [1_000, 2_000, 4_000, 4_000] {
            let actions = machine.on_resend(&timers);
            assert_eq!(actions.resend, Arm::After(Duration::from_millis(millis)));
        }
        assert_eq!(machine.on_expire().report, Report::Timeout);
    }

    #[test]
    fn proceeding_resends_at_t2_and_the_first_final_is_reported() {
        let timers = Timers::default();
        let (mut machine, _) = ClientNonInvite::start(&timers, UDP);
        let actions = machine.on_response(100, &timers, UDP);
        assert_eq!((actions.resend, actions.report), (Arm::Keep, Report::Message));
        assert_eq!(machine.on_resend(&timers).resend, Arm::After(timers.t2));
        let actions = machine.on_response(200, &timers, UDP);
        assert_eq!((actions.expire, actions.report), (Arm::After(timers.t4), Report::Message));
        assert_eq!(machine.on_response(200, &timers, UDP), Actions::NONE);
        assert_eq!(machine.on_resend(&timers), Actions::NONE);
        assert_eq!(machine.on_expire(), Actions::END);
    }

    #[test]
    fn a_final_on_a_reliable_transport_ends_at_once() {
        let timers = Timers::default();
        let (mut machine, actions) = ClientNonInvite::start(&timers, Delivery::Reliable);
        assert_eq!(actions.resend, Arm::Keep);
        assert_eq!(machine.on_response(404, &timers, Delivery::Reliable).expire, Arm::Stop);
        assert_eq!(machine, ClientNonInvite::Terminated);
    }
}
