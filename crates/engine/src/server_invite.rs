//! INVITE server transaction (RFC 3261 §17.2.1, amended by RFC 6026 §7.1).
//!
//! ```text
//!  Proceeding --2xx--> Accepted  --L--> gone
//!      `--3xx-6xx--> Completed --ACK--> Confirmed --I--> gone
//!                        `--H--> gone (no ACK came)
//! ```

use crate::config::Timers;
use crate::machine::{Actions, Arm, Delivery, Emit, Report};
use core::time::Duration;

/// State of one INVITE server transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerInvite {
    /// Waiting for the user; the newest provisional response is sent again.
    Proceeding,
    /// A 2xx was sent; later 2xx go straight through (RFC 6026 §7.1).
    Accepted,
    /// A final response that is no 2xx was sent; `interval` is Timer G.
    Completed { interval: Duration },
    /// The ACK came; its retransmissions are absorbed.
    Confirmed,
    /// Gone.
    Terminated,
}

impl ServerInvite {
    /// The INVITE came again.
    pub(crate) fn on_request(&mut self) -> Actions {
        match self {
            ServerInvite::Proceeding | ServerInvite::Completed { .. } => {
                Actions { emit: Emit::Again, ..Actions::NONE }
            }
            // RFC 6026 §7.1: absorbed without a word.
            _ => Actions::NONE,
        }
    }

    /// The user sends a response.
    pub(crate) fn on_response(&mut self, status: u16, timers: &Timers, delivery: Delivery) -> Actions {
        match (*self, status) {
            (ServerInvite::Proceeding, ..200) => Actions { emit: Emit::New, ..Actions::NONE },
            (ServerInvite::Proceeding, 200..=299) => {
                *self = ServerInvite::Accepted;
                let expire = Arm::After(timers.timer_l);
                Actions { emit: Emit::New, resend: Arm::Stop, expire, ..Actions::NONE }
            }
            (ServerInvite::Proceeding, _) => {
                *self = ServerInvite::Completed { interval: timers.t1 };
                let resend = delivery.unless_reliable(timers.t1).map_or(Arm::Stop, Arm::After);
                let expire = Arm::After(timers.timer_h);
                Actions { emit: Emit::New, resend, expire, ..Actions::NONE }
            }
            (ServerInvite::Accepted, 200..=299) => Actions { emit: Emit::New, ..Actions::NONE },
            _ => Actions::NONE,
        }
    }

    /// An ACK came that matches this transaction.
    pub(crate) fn on_ack(&mut self, timers: &Timers, delivery: Delivery) -> Actions {
        match self {
            ServerInvite::Completed { .. } => match delivery.unless_reliable(timers.t4) {
                Some(after) => {
                    *self = ServerInvite::Confirmed;
                    Actions { resend: Arm::Stop, expire: Arm::After(after), ..Actions::NONE }
                }
                None => {
                    *self = ServerInvite::Terminated;
                    Actions::END
                }
            },
            // RFC 6026 §7.1: the ACK of a 2xx is the user's.
            ServerInvite::Accepted => Actions { report: Report::Message, ..Actions::NONE },
            _ => Actions::NONE,
        }
    }

    /// Timer G (RFC 3261 §17.2.1): again, after MIN(2*interval, T2).
    pub(crate) fn on_resend(&mut self, timers: &Timers) -> Actions {
        match self {
            ServerInvite::Completed { interval } => {
                *interval = (*interval * 2).min(timers.t2);
                Actions { emit: Emit::Again, resend: Arm::After(*interval), ..Actions::NONE }
            }
            _ => Actions::NONE,
        }
    }

    /// Timer H, I or L.
    pub(crate) fn on_expire(&mut self) -> Actions {
        let waiting = matches!(self, ServerInvite::Completed { .. });
        *self = ServerInvite::Terminated;
        let report = if waiting { Report::Timeout } else { Report::Nothing };
        Actions { report, ..Actions::END }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UDP: Delivery = Delivery::Unreliable;

    #[test]
    fn a_failure_is_sent_until_its_ack_comes() {
        let timers = Timers::default();
        let mut machine = ServerInvite::Proceeding;
        assert_eq!(machine.on_request().emit, Emit::Again);
        let actions = machine.on_response(486, &timers, UDP);
        assert_eq!((actions.emit, actions.resend), (Emit::New, Arm::After(timers.t1)));
        assert_eq!(actions.expire, Arm::After(timers.timer_h));
        for millis in [1_000, 2_000, 4_000, 4_000] {
            let actions = machine.on_resend(&timers);
            assert_eq!(actions.resend, Arm::After(Duration::from_millis(millis)));
        }
        let actions = machine.on_ack(&timers, UDP);
        assert_eq!((actions.resend, actions.expire), (Arm::Stop, Arm::After(timers.t4)));
        assert_eq!(machine.on_request(), Actions::NONE);
        assert_eq!(machine.on_ack(&timers, UDP), Actions::NONE);
        assert_eq!(machine.on_expire(), Actions::END);
    }

    #[test]
    fn no_ack_is_reported_at_timer_h() {
        let mut machine = ServerInvite::Proceeding;
        let _ = machine.on_response(500, &Timers::default(), UDP);
        assert_eq!(machine.on_expire().report, Report::Timeout);
    }

    #[test]
    fn accepted_absorbs_invites_and_passes_2xx_and_acks() {
        let timers = Timers::default();
        let mut machine = ServerInvite::Proceeding;
        assert_eq!(machine.on_response(200, &timers, UDP).expire, Arm::After(timers.timer_l));
        assert_eq!(machine.on_request(), Actions::NONE);
        assert_eq!(machine.on_response(200, &timers, UDP).emit, Emit::New);
        assert_eq!(machine.on_response(486, &timers, UDP), Actions::NONE);
        assert_eq!(machine.on_ack(&timers, UDP).report, Report::Message);
        assert_eq!(machine.on_expire(), Actions::END);
    }

    #[test]
    fn reliable_transports_do_not_resend_and_end_at_the_ack() {
        let timers = Timers::default();
        let mut machine = ServerInvite::Proceeding;
        assert_eq!(machine.on_response(404, &timers, Delivery::Reliable).resend, Arm::Stop);
        assert_eq!(machine.on_ack(&timers, Delivery::Reliable), Actions::END);
        assert_eq!(machine, ServerInvite::Terminated);
    }
}
