//! A user agent server that obeys RFC 3261 §17.2 (amended by RFC 6026) and §13.3.1: many calls at once, on virtual time.

use std::collections::{BTreeMap, BTreeSet};

use super::caller::{Plan, call_number, plan};
use super::text::Seen;

const T1: u64 = 500_000;
const T2: u64 = 4_000_000;
const SIXTY_FOUR_T1: u64 = 64 * T1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// The phone is picked up.
    Answer,
    /// Timer G, or the user agent's own retransmission of a 2xx (§13.3.1.4): the interval after this one.
    Resend(u64),
    /// No ACK in 64*T1 (Timer H), or nothing more to absorb: forget the call's INVITE transaction.
    Forget,
}

#[derive(Debug)]
struct ServerInvite {
    request: Seen,
    /// The newest response, sent again for a retransmitted request.
    response: Vec<u8>,
    status: u16,
    acknowledged: bool,
}

/// Bob, with all his calls.
#[derive(Default)]
pub struct Callee {
    invites: BTreeMap<u32, ServerInvite>,
    /// Answers to non-INVITE requests, by branch and method, and when they are forgotten (Timer J).
    others: BTreeMap<(String, String), Vec<u8>>,
    forget: BTreeMap<(u64, u64), (String, String)>,
    timers: BTreeMap<(u64, u64), (u32, Timer)>,
    sequence: u64,
    /// Branches under which INVITEs arrived, by call; more than one means that a retransmission became a new request.
    pub branches: BTreeMap<u32, BTreeSet<String>>,
    /// Calls whose final response was never acknowledged within 64*T1.
    pub unacknowledged: u64,
    /// Long runs keep no branches.
    pub lean: bool,
}

impl Callee {
    pub fn new() -> Callee {
        Callee::default()
    }

    fn arm(&mut self, at: u64, n: u32, timer: Timer) {
        self.sequence += 1;
        self.timers.insert((at, self.sequence), (n, timer));
    }

    pub fn next(&self) -> Option<u64> {
        let timer = self.timers.first_key_value().map(|(&(at, _), _)| at);
        let forget = self.forget.first_key_value().map(|(&(at, _), _)| at);
        timer.into_iter().chain(forget).min()
    }

    pub fn tick(&mut self, now: u64, out: &mut Vec<Vec<u8>>) {
        while let Some(entry) = self.forget.first_entry().filter(|entry| entry.key().0 <= now) {
            let key = entry.remove();
            self.others.remove(&key);
        }
        while let Some(entry) = self.timers.first_entry().filter(|entry| entry.key().0 <= now) {
            let (n, timer) = entry.remove();
            self.fire(now, n, timer, out);
        }
    }

    fn fire(&mut self, now: u64, n: u32, timer: Timer, out: &mut Vec<Vec<u8>>) {
        let Some(invite) = self.invites.get_mut(&n) else { return };
        match timer {
            Timer::Answer if invite.status < 200 => {
                let response = invite.request.accept(&format!("bob-{n}"));
                self.finish(now, n, 200, response, out);
            }
            Timer::Answer => {}
            Timer::Resend(next) => {
                if !invite.acknowledged {
                    out.push(invite.response.clone());
                    self.arm(now + next, n, Timer::Resend((next * 2).min(T2)));
                }
            }
            Timer::Forget => {
                if !invite.acknowledged {
                    self.unacknowledged += 1;
                }
                self.invites.remove(&n);
            }
        }
    }

    fn finish(&mut self, now: u64, n: u32, status: u16, response: Vec<u8>, out: &mut Vec<Vec<u8>>) {
        let Some(invite) = self.invites.get_mut(&n) else { return };
        invite.status = status;
        invite.response.clone_from(&response);
        out.push(response);
        self.arm(now + T1, n, Timer::Resend(2 * T1));
        self.arm(now + SIXTY_FOUR_T1, n, Timer::Forget);
    }

    pub fn receive(&mut self, now: u64, seen: &Seen, out: &mut Vec<Vec<u8>>) {
        let Some(n) = call_number(&seen.call_id()) else { return };
        match seen.label().as_str() {
            "INVITE" => self.receive_invite(now, n, seen, out),
            "ACK" => {
                if let Some(invite) = self.invites.get_mut(&n).filter(|invite| invite.status >= 200) {
                    invite.acknowledged = true;
                }
            }
            "CANCEL" => {
                self.answer_other(now, seen, out);
                let pending = self.invites.get(&n).filter(|invite| invite.status < 200);
                if let Some(response) = pending.map(|invite| invite.request.respond(487, &format!("bob-{n}")))
                {
                    self.finish(now, n, 487, response, out);
                }
            }
            "BYE" => self.answer_other(now, seen, out),
            _ => {}
        }
    }

    fn receive_invite(&mut self, now: u64, n: u32, seen: &Seen, out: &mut Vec<Vec<u8>>) {
        if !self.lean {
            self.branches.entry(n).or_default().insert(seen.branch());
        }
        if let Some(old) = self.invites.get(&n) {
            // A 2xx is retransmitted by the user agent only; other responses by the transaction (RFC 6026 §7.1).
            if old.status < 200 || old.status >= 300 && !old.acknowledged {
                out.push(old.response.clone());
            }
            return;
        }
        let response = seen.respond(180, &format!("bob-{n}"));
        let invite = ServerInvite { request: seen.clone(), response, status: 180, acknowledged: false };
        self.invites.insert(n, invite);
        match plan(n) {
            Plan::Busy => {
                let response = seen.respond(486, &format!("bob-{n}"));
                self.finish(now, n, 486, response, out);
            }
            Plan::Answered => {
                out.push(seen.respond(180, &format!("bob-{n}")));
                self.arm(now + 1_000_000, n, Timer::Answer);
            }
            // Were the CANCEL lost for good, somebody would answer in the end.
            Plan::Cancelled => {
                out.push(seen.respond(180, &format!("bob-{n}")));
                self.arm(now + 90_000_000, n, Timer::Answer);
            }
        }
    }

    fn answer_other(&mut self, now: u64, seen: &Seen, out: &mut Vec<Vec<u8>>) {
        let key = (seen.branch(), seen.label());
        let response =
            self.others.entry(key.clone()).or_insert_with(|| seen.respond(200, "bob-other")).clone();
        out.push(response);
        self.sequence += 1;
        self.forget.insert((now + SIXTY_FOUR_T1, self.sequence), key);
    }
}
