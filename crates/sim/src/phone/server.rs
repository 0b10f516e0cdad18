//! Server transactions of a phone (RFC 3261 §17.2, RFC 6026 §7.1), and how it answers.

use super::{LONG, Phone, T1, T2, T4, Task, Way};
use crate::text::Msg;
use crate::trace::Micros;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Proceeding,
    Accepted,
    Completed,
    Confirmed,
}

/// One transaction.
#[derive(Clone, Debug)]
pub(super) struct ServerTransaction {
    number: u64,
    request: Msg,
    way: Way,
    tag: String,
    state: State,
    last: Option<Vec<u8>>,
    interval: Micros,
    pub(super) resend_at: Option<Micros>,
    pub(super) expire_at: Option<Micros>,
}

impl ServerTransaction {
    /// RFC 3261 §17.2.3.
    fn fits(&self, msg: &Msg, method: &str) -> bool {
        self.request.branch() == msg.branch()
            && self.request.sent_by() == msg.sent_by()
            && self.request.method() == method
    }
}

impl Phone {
    pub(super) fn on_request(&mut self, now: Micros, way: Way, msg: &Msg) {
        if let Some(known) = self.servers.iter().find(|server| server.fits(msg, msg.method())) {
            if let (State::Proceeding | State::Completed, Some(last)) = (known.state, &known.last) {
                self.out.push((way, last.clone()));
            }
            return;
        }
        self.sequence += 1;
        let number = self.sequence;
        let tag = self.prng.word();
        let expire_at = (msg.method() != "INVITE").then_some(now + LONG + T4);
        self.servers.push(ServerTransaction {
            number,
            request: msg.clone(),
            way,
            tag,
            state: State::Proceeding,
            last: None,
            interval: T1,
            resend_at: None,
            expire_at,
        });
        match msg.method() {
            "INVITE" => self.on_invite(now, number, msg),
            "CANCEL" => self.on_cancel(now, number, msg),
            "BYE" => {
                let status = if self.on_bye(msg) { 200 } else { 481 };
                self.answer(now, number, status);
            }
            _ => self.on_other(now, number),
        }
    }

    fn on_invite(&mut self, now: Micros, number: u64, msg: &Msg) {
        if msg.to_tag().is_some() {
            self.answer(now, number, 200);
            return;
        }
        // RFC 3261 §8.2.2.2: the same request by another way.
        let merged = |other: &ServerTransaction| {
            other.number != number
                && other.request.call_id() == msg.call_id()
                && other.request.get("cseq") == msg.get("cseq")
                && other.request.from_tag() == msg.from_tag()
        };
        if self.servers.iter().any(merged) {
            self.answer(now, number, 482);
            return;
        }
        let mut at = now;
        for status in [100, 180, 183, 180] {
            if self.prng.chance(45) {
                at += self.prng.below(self.habits.slow / 3 + 1);
                self.plan(at, Task::Answer(number, status));
            }
        }
        match self.habits.answer(&mut self.prng) {
            Some(status) => {
                at += self.prng.below(self.habits.slow + 1);
                self.plan(at, Task::Answer(number, status));
            }
            // It rings for ever, or is silent; in the end it forgets.
            None => self.plan(now + 400_000_000, Task::Answer(number, 480)),
        }
    }

    fn on_cancel(&mut self, now: Micros, number: u64, msg: &Msg) {
        let invite = self.servers.iter().find(|server| server.fits(msg, "INVITE"));
        let waiting = invite.filter(|server| server.state == State::Proceeding).map(|server| server.number);
        let status = if invite.is_some() { 200 } else { 481 };
        self.answer(now, number, status);
        if let Some(invite) = waiting {
            self.answer(now, invite, 487);
        }
    }

    fn on_other(&mut self, now: Micros, number: u64) {
        if self.prng.chance(self.habits.deaf) {
            return;
        }
        let status = *self.prng.pick(&[200, 200, 200, 486, 404, 501, 503, 408]);
        let after = if self.prng.chance(50) { 0 } else { self.prng.below(self.habits.slow + 1) };
        self.plan(now + after, Task::Answer(number, status));
    }

    /// Sends a response in a transaction that awaits one.
    pub(super) fn answer(&mut self, now: Micros, number: u64, status: u16) {
        let contact = self.contact();
        let tag_to_redirect = format!("<sip:u{}@home.example>", self.prng.below(4));
        let Some(server) = self.servers.iter_mut().find(|server| server.number == number) else { return };
        if server.state != State::Proceeding {
            return;
        }
        let mut msg = server.request.respond(status, reason(status), &server.tag);
        let is_invite = server.request.method() == "INVITE";
        if is_invite && (101..300).contains(&status) {
            msg.headers.push(("contact".to_owned(), format!("<{contact}>")));
        }
        match status {
            300..=399 => msg.headers.push(("contact".to_owned(), tag_to_redirect)),
            401 => msg
                .headers
                .push(("www-authenticate".to_owned(), format!("Digest realm=\"{contact}\", nonce=\"1\""))),
            407 => msg
                .headers
                .push(("proxy-authenticate".to_owned(), format!("Digest realm=\"{contact}\", nonce=\"1\""))),
            _ => {}
        }
        let (way, request) = (server.way, server.request.clone());
        server.last = Some(msg.bytes());
        self.out.push((way, msg.bytes()));
        let reliable = way.is_reliable();
        match (is_invite, status) {
            (_, 100..=199) => {}
            (true, 200..=299) => {
                server.state = State::Accepted;
                server.expire_at = Some(now + LONG);
                self.accept(now, &request, &msg, way);
            }
            (true, _) => {
                server.state = State::Completed;
                server.resend_at = (!reliable).then_some(now + T1);
                server.expire_at = Some(now + LONG);
            }
            (false, _) => {
                server.state = State::Completed;
                server.expire_at = Some(now + if reliable { 0 } else { LONG });
            }
        }
    }

    pub(super) fn on_ack(&mut self, now: Micros, msg: &Msg) {
        if let Some(server) = self.servers.iter_mut().find(|server| server.fits(msg, "INVITE"))
            && server.state != State::Accepted
        {
            if server.state == State::Completed {
                server.state = State::Confirmed;
                server.resend_at = None;
                server.expire_at = Some(now + if server.way.is_reliable() { 0 } else { T4 });
            }
            return;
        }
        self.acknowledged(msg);
    }

    pub(super) fn tick_servers(&mut self, now: Micros) {
        for server in &mut self.servers {
            if server.resend_at.is_some_and(|at| at <= now)
                && let Some(last) = &server.last
            {
                self.out.push((server.way, last.clone()));
                self.tally.again += 1;
                server.interval = (server.interval * 2).min(T2);
                server.resend_at = Some(now + server.interval);
            }
        }
        self.servers.retain(|server| server.expire_at.is_none_or(|at| at > now));
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        100 => "Trying",
        180 => "Ringing",
        183 => "Session Progress",
        200 => "OK",
        302 => "Moved Temporarily",
        486 => "Busy Here",
        487 => "Request Terminated",
        _ => "As Drawn",
    }
}
