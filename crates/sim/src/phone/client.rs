//! Client transactions of a phone (RFC 3261 §17.1, RFC 6026 §7.2).

use super::{LONG, Phone, T1, T2, T4, Way};
use crate::text::Msg;
use crate::trace::Micros;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Calling,
    Proceeding,
    Accepted,
    Completed,
}

/// One transaction.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) branch: String,
    pub(super) msg: Msg,
    pub(super) way: Way,
    pub(super) resend_at: Option<Micros>,
    pub(super) expire_at: Option<Micros>,
    begun: Micros,
    interval: Micros,
    state: State,
    bytes: Vec<u8>,
    /// The ACK of a failure, for its retransmissions.
    ack: Option<Vec<u8>>,
}

impl Client {
    /// Whether a response is awaited.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.state, State::Calling | State::Proceeding)
    }

    /// Whether it is an INVITE of this call that has a provisional response only.
    pub(super) fn is_ringing(&self, call_id: &str) -> bool {
        self.state == State::Proceeding
            && self.is_invite()
            && self.msg.call_id() == call_id
            && self.msg.to_tag().is_none()
    }

    fn is_invite(&self) -> bool {
        self.msg.method() == "INVITE"
    }
}

impl Phone {
    /// Sends a request; `branch` where it is not the message's own to know (a CANCEL has that of its INVITE).
    pub(super) fn begin(&mut self, now: Micros, msg: Msg, way: Way, branch: Option<String>) {
        let bytes = msg.spelled(self.habits.spelling);
        let branch = branch.unwrap_or_else(|| msg.branch().to_owned());
        self.out.push((way, bytes.clone()));
        self.clients.push(Client {
            branch,
            msg,
            way,
            resend_at: (!way.is_reliable()).then_some(now + T1),
            expire_at: Some(now + LONG),
            begun: now,
            interval: T1,
            state: State::Calling,
            bytes,
            ack: None,
        });
    }

    pub(super) fn tick_clients(&mut self, now: Micros) {
        let mut failed = Vec::new();
        for client in &mut self.clients {
            if client.resend_at.is_some_and(|at| at <= now) {
                self.out.push((client.way, client.bytes.clone()));
                self.tally.again += 1;
                client.interval *= 2;
                if !client.is_invite() {
                    client.interval = client.interval.min(T2);
                    if client.state == State::Proceeding {
                        client.interval = T2;
                    }
                }
                client.resend_at = Some(now + client.interval);
            }
            if client.expire_at.is_some_and(|at| at <= now) && client.is_waiting() {
                failed.push((client.branch.clone(), client.msg.method().to_owned()));
            }
        }
        for (branch, method) in failed {
            self.client_failed(&branch, &method);
        }
        self.clients.retain(|client| client.is_waiting() || client.expire_at.is_some_and(|at| at > now));
    }

    /// Timer B or F, or a transport error: nobody will answer.
    pub(super) fn client_failed(&mut self, branch: &str, method: &str) {
        let fits =
            |client: &Client| client.branch == branch && client.msg.method() == method && client.is_waiting();
        let Some(at) = self.clients.iter().position(fits) else { return };
        let client = self.clients.remove(at);
        if client.msg.method() == "BYE" {
            self.tally.unanswered_byes.push(client.msg.uri().to_owned());
        }
        if client.is_invite() {
            self.call_over(client.msg.call_id());
        }
    }

    fn call_over(&mut self, call_id: &str) {
        for call in self.calls.iter_mut().filter(|call| call.call_id == call_id) {
            call.over = true;
        }
    }

    pub(super) fn on_response(&mut self, now: Micros, status: u16, msg: &Msg) {
        let fits = |client: &Client| client.branch == msg.branch() && client.msg.method() == msg.method();
        let Some(at) = self.clients.iter().position(fits) else { return };
        let client = &mut self.clients[at];
        if client.is_invite() {
            self.on_invite_response(now, at, status, msg);
            return;
        }
        match (client.state, status) {
            (State::Calling | State::Proceeding, 100..=199) => {
                client.state = State::Proceeding;
                if client.resend_at.is_some() {
                    client.interval = T2;
                }
            }
            (State::Calling | State::Proceeding, _) => {
                client.state = State::Completed;
                client.resend_at = None;
                client.expire_at = Some(now + if client.way.is_reliable() { 0 } else { T4 });
                self.maybe_answer(now, at, status, msg);
            }
            _ => {}
        }
    }

    /// Answers the challenge of a final response, if it is one.
    fn maybe_answer(&mut self, now: Micros, at: usize, status: u16, msg: &Msg) -> bool {
        if self.keys.is_none() {
            return false;
        }
        let client = self.clients[at].clone();
        if matches!(status, 401 | 407) && matches!(client.msg.method(), "REGISTER" | "INVITE") {
            return self.answer_challenge(now, &client, msg);
        }
        if let Some(keys) = self.keys.as_mut() {
            keys.settled(client.msg.call_id());
        }
        false
    }

    fn on_invite_response(&mut self, now: Micros, at: usize, status: u16, msg: &Msg) {
        let client = &mut self.clients[at];
        let call_id = client.msg.call_id().to_owned();
        match (client.state, status) {
            (State::Calling | State::Proceeding, 100..=199) => {
                let is_first = client.state == State::Calling;
                client.state = State::Proceeding;
                client.resend_at = None;
                // Who has called gives up some time; nobody does so for a re-INVITE.
                if is_first {
                    client.expire_at = client.msg.to_tag().map(|_| now + 16 * LONG);
                }
                self.send_cancel(now, &call_id);
            }
            (State::Calling | State::Proceeding | State::Accepted, 200..=299) => {
                if client.state != State::Accepted {
                    client.state = State::Accepted;
                    client.resend_at = None;
                    client.expire_at = Some(now + LONG);
                    if client.msg.to_tag().is_none() {
                        self.tally.accepted += 1;
                        self.tally.set_up.push(now - client.begun);
                    }
                }
                let invite = client.msg.clone();
                self.call_over(&call_id);
                self.accepted(now, &invite, msg);
            }
            (State::Calling | State::Proceeding, _) => {
                client.state = State::Completed;
                client.resend_at = None;
                client.expire_at = Some(now + if client.way.is_reliable() { 0 } else { LONG });
                let ack = ack_of_failure(&client.msg, msg);
                self.out.push((client.way, ack.clone()));
                client.ack = Some(ack);
                if !self.maybe_answer(now, at, status, msg) {
                    self.call_over(&call_id);
                }
            }
            (State::Completed, 300..) => {
                if let Some(ack) = &client.ack {
                    self.out.push((client.way, ack.clone()));
                }
            }
            _ => {}
        }
    }
}

/// RFC 3261 §17.1.1.3: the Request-URI, Call-ID, From, Route and the one Via of the INVITE, the To of the
/// response.
fn ack_of_failure(invite: &Msg, response: &Msg) -> Vec<u8> {
    let same = |name: &str| matches!(name, "max-forwards" | "from" | "call-id" | "route");
    let mut headers: Vec<_> = invite.headers.iter().take(1).cloned().collect();
    headers.extend(invite.headers.iter().filter(|(name, _)| same(name)).cloned());
    headers.push(("to".to_owned(), response.get("to").unwrap_or("").to_owned()));
    headers.push(("cseq".to_owned(), format!("{} ACK", invite.cseq())));
    Msg { first: format!("ACK {} SIP/2.0", invite.uri()), headers, body: String::new() }.bytes()
}
