//! A user agent client that obeys RFC 3261 §17.1 (amended by RFC 6026) and §13.2: many calls at once, on virtual time.

use std::collections::{BTreeMap, BTreeSet};

use super::SIXTY_FOUR_T1;
use super::text::{Request, Seen};

const T1: u64 = 500_000;
const T2: u64 = 4_000_000;

/// What the caller of call `n` does; the callee knows the same plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Bob answers after a second of ringing, Alice hangs up after three seconds of talk.
    Answered,
    /// Bob is busy.
    Busy,
    /// Bob rings, Alice gives up two seconds after the first provisional response.
    Cancelled,
}

/// One call in five is cancelled, one is refused, three are answered.
pub fn plan(n: u32) -> Plan {
    match n % 5 {
        3 => Plan::Cancelled,
        4 => Plan::Busy,
        _ => Plan::Answered,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Start,
    /// Timer A, with the interval after this one.
    A(u64),
    B,
    Hangup,
    Cancel,
    /// Timer E of the non-INVITE transaction (true: BYE, false: CANCEL).
    E(bool, u64),
    F(bool),
}

#[derive(Debug, Default)]
struct NonInvite {
    bytes: Vec<u8>,
    proceeding: bool,
    done: bool,
}

/// One call, and how it ended.
#[derive(Debug, Default)]
pub struct Call {
    pub n: u32,
    invite: Option<Request>,
    /// Any response came: no more retransmissions (§17.1.1.2).
    proceeding: bool,
    ack: Vec<u8>,
    cancel: NonInvite,
    bye: NonInvite,
    hanging_up: bool,
    /// Distinct final responses to the INVITE: status and To tag.
    pub finals: BTreeSet<(u16, String)>,
    /// Timer B fired without any response.
    pub timed_out: bool,
    /// Statuses of final responses to BYE.
    pub bye_finals: BTreeSet<u16>,
    /// The INVITE's final response is still missing.
    pub open: bool,
}

/// Alice, with all her calls.
pub struct Caller {
    pub calls: BTreeMap<u32, Call>,
    timers: BTreeMap<(u64, u64), (u32, Timer)>,
    sequence: u64,
    /// Statuses of first final responses, counted.
    pub outcomes: BTreeMap<u16, u64>,
    /// Calls with more than one distinct final response: always a failure of the proxy.
    pub double_finals: u64,
    /// Calls are forgotten this long after their start (long runs).
    pub forget_after: Option<u64>,
}

impl Caller {
    pub fn new() -> Caller {
        Caller {
            calls: BTreeMap::new(),
            timers: BTreeMap::new(),
            sequence: 0,
            outcomes: BTreeMap::new(),
            double_finals: 0,
            forget_after: None,
        }
    }

    /// Call number `n` starts at `at` microseconds.
    pub fn call_at(&mut self, n: u32, at: u64) {
        self.calls.insert(n, Call { n, open: true, ..Call::default() });
        self.arm(at, n, Timer::Start);
    }

    fn arm(&mut self, at: u64, n: u32, timer: Timer) {
        self.sequence += 1;
        self.timers.insert((at, self.sequence), (n, timer));
    }

    pub fn next(&self) -> Option<u64> {
        self.timers.first_key_value().map(|(&(at, _), _)| at)
    }

    pub fn tick(&mut self, now: u64, out: &mut Vec<Vec<u8>>) {
        while let Some(entry) = self.timers.first_entry().filter(|entry| entry.key().0 <= now) {
            let (n, timer) = entry.remove();
            self.fire(now, n, timer, out);
        }
    }

    fn fire(&mut self, now: u64, n: u32, timer: Timer, out: &mut Vec<Vec<u8>>) {
        let Some(call) = self.calls.get_mut(&n) else { return };
        let b_at = SIXTY_FOUR_T1 * 1000;
        match timer {
            Timer::Start => {
                let invite = Request::invite(n);
                out.push(invite.bytes());
                call.invite = Some(invite);
                self.arm(now + T1, n, Timer::A(2 * T1));
                self.arm(now + b_at, n, Timer::B);
            }
            Timer::A(next) if !call.proceeding && !call.timed_out => {
                out.extend(call.invite.as_ref().map(Request::bytes));
                self.arm(now + next, n, Timer::A(next * 2));
            }
            Timer::B if !call.proceeding => call.timed_out = true,
            Timer::A(_) | Timer::B => {}
            Timer::Cancel => {
                if call.finals.is_empty() {
                    let cancel = call.invite.as_ref().expect("a call that rings was started").cancel();
                    self.start_non_invite(now, n, false, cancel.bytes(), out);
                }
            }
            Timer::Hangup => {
                let bytes = std::mem::take(&mut call.bye.bytes);
                self.start_non_invite(now, n, true, bytes, out);
            }
            Timer::E(bye, next) => {
                let transaction = if bye { &call.bye } else { &call.cancel };
                if !transaction.done {
                    out.push(transaction.bytes.clone());
                    let wait = if transaction.proceeding { T2 } else { next };
                    self.arm(now + wait, n, Timer::E(bye, (wait * 2).min(T2)));
                }
            }
            Timer::F(bye) => {
                let transaction = if bye { &mut call.bye } else { &mut call.cancel };
                transaction.done = true;
            }
        }
    }

    fn start_non_invite(&mut self, now: u64, n: u32, bye: bool, bytes: Vec<u8>, out: &mut Vec<Vec<u8>>) {
        let Some(call) = self.calls.get_mut(&n) else { return };
        let transaction = if bye { &mut call.bye } else { &mut call.cancel };
        out.push(bytes.clone());
        transaction.bytes = bytes;
        self.arm(now + T1, n, Timer::E(bye, 2 * T1));
        self.arm(now + SIXTY_FOUR_T1 * 1000, n, Timer::F(bye));
    }

    pub fn receive(&mut self, now: u64, seen: &Seen, out: &mut Vec<Vec<u8>>) {
        let Some(n) = call_number(&seen.call_id()) else { return };
        let (Some(call), Some(status)) = (self.calls.get_mut(&n), seen.status()) else { return };
        match seen.cseq_method().as_str() {
            "INVITE" => self.receive_for_invite(now, n, status, seen, out),
            "BYE" => {
                call.bye.proceeding = true;
                if status >= 200 {
                    call.bye.done = true;
                    call.bye_finals.insert(status);
                }
            }
            "CANCEL" => {
                call.cancel.proceeding = true;
                call.cancel.done |= status >= 200;
            }
            _ => {}
        }
    }

    fn receive_for_invite(&mut self, now: u64, n: u32, status: u16, seen: &Seen, out: &mut Vec<Vec<u8>>) {
        let Some(call) = self.calls.get_mut(&n) else { return };
        let first = !call.proceeding;
        call.proceeding = true;
        if status < 200 {
            if first && plan(n) == Plan::Cancelled {
                self.arm(now + 2_000_000, n, Timer::Cancel);
            }
            return;
        }
        let invite = call.invite.clone().expect("a response follows a request");
        let new = call.finals.insert((status, seen.to_tag().unwrap_or_default()));
        if new {
            *self.outcomes.entry(status).or_default() += 1;
            call.open = false;
            if call.finals.len() == 2 {
                self.double_finals += 1;
            }
            call.ack = if status < 300 { invite.ack_2xx(seen).bytes() } else { invite.ack(seen).bytes() };
        }
        // Every copy of a final response is acknowledged (§17.1.1.2, §13.2.2.4).
        out.push(call.ack.clone());
        if status < 300 && !call.hanging_up {
            call.hanging_up = true;
            call.bye.bytes = invite.in_dialog("BYE", seen).bytes();
            self.arm(now + 3_000_000, n, Timer::Hangup);
        }
    }

    /// Long runs: forgets calls with a number below `n`; returns how many of them never saw their end.
    pub fn forget_below(&mut self, n: u32) -> usize {
        let keep = self.calls.split_off(&n);
        let old = std::mem::replace(&mut self.calls, keep);
        old.values().filter(|call| call.open).count()
    }
}

/// The `n` of a Call-ID that [`Request::new`] wrote.
pub fn call_number(call_id: &str) -> Option<u32> {
    call_id.strip_prefix("call-")?.split('@').next()?.parse().ok()
}
