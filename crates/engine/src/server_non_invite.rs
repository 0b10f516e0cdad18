//! Non-INVITE server transaction (RFC 3261 §17.2.2, amended by RFC 4320).
//!
//! ```text
//!  Trying --1xx--> Proceeding --200-699--> Completed --J--> gone
//!     |--200-699---------------------------^  ^
//!     `--no final will come--> Silent --100---'
//! ```
//!
//! RFC 4320 §4.1: the only provisional response is 100, and it goes out when the client's Timer E has reached T2.

use crate::config::Timers;
use crate::machine::{Actions, Arm, Delivery, Emit};
use core::time::Duration;

/// State of one non-INVITE server transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerNonInvite {
    /// Waiting for the user; retransmissions are absorbed.
    Trying,
    /// A 100 was sent, or is due; it is sent again.
    Proceeding,
    /// No final response will be sent, and a 100 is due still.
    Silent,
    /// A final response was sent; it is sent again. Or none will be, and what is sent again is the 100, if there was one.
    Completed,
    /// Gone.
    Terminated,
}

impl ServerNonInvite {
    /// The request came.
    pub(crate) fn start(timers: &Timers) -> (ServerNonInvite, Actions) {
        let resend = Arm::After(time_to_t2(timers));
        (ServerNonInvite::Trying, Actions { resend, ..Actions::NONE })
    }

    /// The request came again.
    pub(crate) fn on_request(&mut self) -> Actions {
        match self {
            ServerNonInvite::Proceeding | ServerNonInvite::Completed => {
                Actions { emit: Emit::Again, ..Actions::NONE }
            }
            _ => Actions::NONE,
        }
    }

    /// The client's Timer E has reached T2: a 100 is due, if nothing has been sent. Where no final response will come it has
    /// been written already.
    pub(crate) fn on_resend(&mut self) -> Emit {
        let (next, emit) = match self {
            ServerNonInvite::Trying => (ServerNonInvite::Proceeding, Emit::New),
            ServerNonInvite::Silent => (ServerNonInvite::Completed, Emit::Again),
            _ => return Emit::Nothing,
        };
        *self = next;
        emit
    }

    /// The user sends a response.
    pub(crate) fn on_response(&mut self, status: u16, timers: &Timers, delivery: Delivery) -> Actions {
        if !matches!(self, ServerNonInvite::Trying | ServerNonInvite::Proceeding) {
            return Actions::NONE;
        }
        if status < 200 {
            // RFC 4320 §4.1: no provisional response but 100, and where messages get lost that not before its time.
            let early = *self == ServerNonInvite::Trying && delivery == Delivery::Unreliable;
            if status != 100 || early {
                return Actions::NONE;
            }
            *self = ServerNonInvite::Proceeding;
            return Actions { emit: Emit::New, resend: Arm::Stop, ..Actions::NONE };
        }
        // RFC 3261 §17.2.2: Timer J is zero on reliable transports.
        let expire = match delivery.unless_reliable(timers.timer_j) {
            Some(after) => {
                *self = ServerNonInvite::Completed;
                Arm::After(after)
            }
            None => {
                *self = ServerNonInvite::Terminated;
                Arm::Stop
            }
        };
        Actions { emit: Emit::New, resend: Arm::Stop, expire, ..Actions::NONE }
    }

    /// No final response will be sent (RFC 4320 §4.2). The client sends its request again for so long all the same; taken
    /// for a new one, it would be carried out twice. The 100 that tells it that somebody is here (§4.1) goes all the same.
    pub(crate) fn on_silence(&mut self, left: Duration, delivery: Delivery) -> Actions {
        let is_trying = *self == ServerNonInvite::Trying;
        let stays = if is_trying { Some(left) } else { delivery.unless_reliable(left) };
        match stays.filter(|left| !left.is_zero()) {
            Some(after) if is_trying => {
                *self = ServerNonInvite::Silent;
                Actions { expire: Arm::After(after), ..Actions::NONE }
            }
            Some(after) => {
                *self = ServerNonInvite::Completed;
                Actions { resend: Arm::Stop, expire: Arm::After(after), ..Actions::NONE }
            }
            None => {
                *self = ServerNonInvite::Terminated;
                Actions::END
            }
        }
    }

    /// Timer J.
    pub(crate) fn on_expire(&mut self) -> Actions {
        *self = ServerNonInvite::Terminated;
        Actions::END
    }
}

/// How long a client's Timer E takes to be reset to T2 (RFC 4320 §4.1): 3.5 s by default.
pub(crate) fn time_to_t2(timers: &Timers) -> Duration {
    let mut interval = timers.t1.max(Duration::from_millis(1));
    let mut total = Duration::ZERO;
    while interval < timers.t2 {
        total += interval;
        interval *= 2;
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    const UDP: Delivery = Delivery::Unreliable;

    #[test]
    fn trying_waits_until_timer_e_has_reached_t2() {
        let (machine, actions) = ServerNonInvite::start(&Timers::default());
        assert_eq!(machine, ServerNonInvite::Trying);
        assert_eq!(actions.resend, Arm::After(Duration::from_millis(3_500)));
    }

    #[test]
    fn a_final_response_is_sent_again_until_timer_j() {
        let timers = Timers::default();
        let (mut machine, _) = ServerNonInvite::start(&timers);
        assert_eq!(machine.on_request(), Actions::NONE);
        assert_eq!(machine.on_resend(), Emit::New);
        assert_eq!(machine.on_response(100, &timers, UDP).emit, Emit::New);
        assert_eq!(machine.on_request().emit, Emit::Again);
        assert_eq!(machine.on_response(200, &timers, UDP).expire, Arm::After(timers.timer_j));
        assert_eq!(machine.on_response(500, &timers, UDP), Actions::NONE);
        assert_eq!(machine.on_request().emit, Emit::Again);
        assert_eq!(machine.on_expire(), Actions::END);
    }

    #[test]
    fn other_provisional_responses_do_not_pass() {
        let timers = Timers::default();
        let (mut machine, _) = ServerNonInvite::start(&timers);
        assert_eq!(machine.on_response(183, &timers, UDP), Actions::NONE);
        assert_eq!(machine, ServerNonInvite::Trying);
    }

    #[test]
    fn a_100_before_its_time_passes_on_reliable_transports_only() {
        let timers = Timers::default();
        let (mut machine, _) = ServerNonInvite::start(&timers);
        assert_eq!(machine.on_response(100, &timers, UDP), Actions::NONE);
        assert_eq!((machine.on_resend(), machine.on_resend()), (Emit::New, Emit::Nothing));
        assert_eq!(machine.on_response(100, &timers, UDP).emit, Emit::New);
        let (mut machine, _) = ServerNonInvite::start(&timers);
        assert_eq!(machine.on_response(100, &timers, Delivery::Reliable).emit, Emit::New);
    }
}
