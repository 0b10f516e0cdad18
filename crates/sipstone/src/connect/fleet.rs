//! Many connections on virtual time: when each is begun, when it is pinged, when it is given up; and the
//! counts.
//!
//! Pure. Times are microseconds since the start of the opening. What the owner must do comes out of
//! [`Fleet::due`], what it saw goes into the `on_*` functions; about a connection that is over nothing is taken
//! any more.

use super::{OPEN_WITHIN, PONG_WITHIN, Settings};
use crate::tally::Times;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

/// What the owner must do with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Open it.
    Connect(u32),
    /// Send CRLF CRLF.
    Ping(u32),
    /// Close it: it has failed or is lost.
    Close(u32),
}

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Planned,
    /// TCP is being connected.
    Connecting {
        since: u64,
    },
    /// TLS is being negotiated.
    Securing {
        since: u64,
    },
    /// The answer to a REGISTER is waited for.
    Registering {
        since: u64,
    },
    /// Open; since when a pong is waited for.
    Open {
        pinged: Option<u64>,
    },
    Over,
}

/// A connection with the one time at which it is looked at again.
#[derive(Clone, Copy, Debug)]
struct Connection {
    state: State,
    wake: u64,
}

/// The wake of a connection that waits for nothing.
const NEVER: u64 = u64::MAX;

/// The counts of a fleet, or of several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Begun.
    pub begun: u64,
    /// Opened: connected, secured and registered, as far as that was asked for.
    pub opened: u64,
    /// Open now.
    pub open: u64,
    /// Never opened, by cause.
    pub failed: BTreeMap<String, u64>,
    /// Opened and lost, by cause.
    pub lost: BTreeMap<String, u64>,
    /// Pings sent.
    pub pings: u64,
    /// Pongs received.
    pub pongs: u64,
    /// Full TLS handshakes.
    pub handshakes_full: u64,
    /// TLS handshakes that resumed a session.
    pub handshakes_resumed: u64,
    /// Requests and unasked-for pongs from the server.
    pub strays: u64,
    /// From the planned to the actual start: the generator's own lateness.
    pub lag: Times,
    /// From SYN to the connection.
    pub connect: Times,
    /// The TLS handshake.
    pub handshake: Times,
    /// REGISTER to 200.
    pub register: Times,
    /// Ping to pong.
    pub pong: Times,
}

impl Counts {
    /// Never opened.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed.values().sum()
    }

    /// Opened and lost.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.values().sum()
    }

    /// Adds another's.
    pub fn merge(&mut self, other: &Counts) {
        self.begun += other.begun;
        self.opened += other.opened;
        self.open += other.open;
        self.pings += other.pings;
        self.pongs += other.pongs;
        self.handshakes_full += other.handshakes_full;
        self.handshakes_resumed += other.handshakes_resumed;
        self.strays += other.strays;
        for (mine, theirs) in [(&mut self.failed, &other.failed), (&mut self.lost, &other.lost)] {
            for (cause, count) in theirs {
                *mine.entry(cause.clone()).or_default() += count;
            }
        }
        self.lag.merge(&other.lag);
        self.connect.merge(&other.connect);
        self.handshake.merge(&other.handshake);
        self.register.merge(&other.register);
        self.pong.merge(&other.pong);
    }
}

/// Part `part` of `parts` of all connections: those whose number leaves the remainder `part`.
#[derive(Debug)]
pub struct Fleet {
    connections: Vec<Connection>,
    part: u32,
    parts: u32,
    rate: f64,
    keepalive: Option<Duration>,
    register: bool,
    next: u32,
    /// Times at which connections may have to be looked at; one that is not the connection's own any more is
    /// passed over.
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    random: Xoshiro256PlusPlus,
    counts: Counts,
}

fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Fleet {
    /// A part of the connections of the settings.
    #[must_use]
    pub fn new(settings: &Settings, part: u32, parts: u32) -> Fleet {
        let parts = parts.max(1);
        let count = settings.connections.saturating_sub(part).div_ceil(parts);
        Fleet {
            connections: vec![Connection { state: State::Planned, wake: NEVER }; count as usize],
            part,
            parts,
            rate: settings.rate,
            keepalive: settings.keepalive,
            register: settings.register.is_some(),
            next: 0,
            timers: BinaryHeap::new(),
            random: Xoshiro256PlusPlus::seed_from_u64(settings.seed.wrapping_add(part.into())),
            counts: Counts::default(),
        }
    }

    /// How many connections it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// A connection's number among those of all parts.
    #[must_use]
    pub fn number(&self, index: u32) -> u32 {
        index.saturating_mul(self.parts).saturating_add(self.part)
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Whether every connection was opened or has failed.
    #[must_use]
    pub fn all_tried(&self) -> bool {
        self.counts.opened + self.counts.failed() == self.connections.len() as u64
    }

    /// When something is to be done next; `None`: nothing any more.
    #[must_use]
    pub fn next_at(&self) -> Option<u64> {
        let begin = self.begins().then(|| self.planned(self.next));
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        [begin, timer].into_iter().flatten().min()
    }

    fn begins(&self) -> bool {
        (self.next as usize) < self.connections.len()
    }

    /// When a connection is to be begun.
    fn planned(&self, index: u32) -> u64 {
        (f64::from(self.number(index)) / self.rate * 1e6) as u64
    }

    /// The next thing that is due; call it until it returns `None`.
    pub fn due(&mut self, now: u64) -> Option<Task> {
        while let Some(&Reverse((at, index))) = self.timers.peek() {
            if at > now {
                break;
            }
            self.timers.pop();
            if self.connections[index as usize].wake == at
                && let Some(task) = self.wake(index, now)
            {
                return Some(task);
            }
        }
        if !self.begins() || self.planned(self.next) > now {
            return None;
        }
        let index = self.next;
        self.next += 1;
        self.counts.begun += 1;
        self.counts.lag.record_us(now - self.planned(index));
        self.enter(index, State::Connecting { since: now }, now.saturating_add(us(OPEN_WITHIN)));
        Some(Task::Connect(index))
    }

    fn enter(&mut self, index: u32, state: State, wake: u64) {
        let connection = &mut self.connections[index as usize];
        if connection.wake != wake && wake != NEVER {
            self.timers.push(Reverse((wake, index)));
        }
        *connection = Connection { state, wake };
    }

    /// Its time has come.
    fn wake(&mut self, index: u32, now: u64) -> Option<Task> {
        let cause = match self.connections[index as usize].state {
            State::Connecting { .. } => "connect-timeout",
            State::Securing { .. } => "handshake-timeout",
            State::Registering { .. } => "register-timeout",
            State::Open { pinged: Some(_) } => "no-pong",
            State::Open { pinged: None } => {
                self.counts.pings += 1;
                let until = now.saturating_add(us(PONG_WITHIN));
                self.enter(index, State::Open { pinged: Some(now) }, until);
                return Some(Task::Ping(index));
            }
            State::Planned | State::Over => return None,
        };
        self.on_over(index, cause);
        Some(Task::Close(index))
    }

    /// TCP is connected; `secure`: TLS comes next. Returns whether a REGISTER is to be sent now.
    pub fn on_connected(&mut self, index: u32, now: u64, secure: bool) -> bool {
        let Some((State::Connecting { since }, wake)) = self.at(index) else { return false };
        self.counts.connect.record_us(now.saturating_sub(since));
        if secure {
            self.enter(index, State::Securing { since: now }, wake);
            return false;
        }
        self.ready(index, now, wake)
    }

    /// TLS is negotiated, by a full handshake or a resumed session. Returns whether a REGISTER is to be sent
    /// now.
    pub fn on_secured(&mut self, index: u32, now: u64, resumed: bool) -> bool {
        let Some((State::Securing { since }, wake)) = self.at(index) else { return false };
        self.counts.handshake.record_us(now.saturating_sub(since));
        if resumed {
            self.counts.handshakes_resumed += 1;
        } else {
            self.counts.handshakes_full += 1;
        }
        self.ready(index, now, wake)
    }

    fn ready(&mut self, index: u32, now: u64, wake: u64) -> bool {
        if self.register {
            self.enter(index, State::Registering { since: now }, wake);
        } else {
            self.open(index, now);
        }
        self.register
    }

    fn open(&mut self, index: u32, now: u64) {
        self.counts.opened += 1;
        self.counts.open += 1;
        self.rest(index, now);
    }

    /// Open, until the next ping.
    fn rest(&mut self, index: u32, now: u64) {
        let ping = self.keepalive.map_or(NEVER, |time| {
            let share: f64 = self.random.random_range(0.8..=1.0);
            now.saturating_add((time.as_micros() as f64 * share) as u64)
        });
        self.enter(index, State::Open { pinged: None }, ping);
    }

    /// A response has come. A provisional one is waited past; an error ends the connection: returns whether it
    /// is to be closed.
    pub fn on_response(&mut self, index: u32, now: u64, status: u16) -> bool {
        match self.at(index) {
            Some((State::Registering { .. }, _)) if status < 200 => false,
            Some((State::Registering { since }, _)) if status < 300 => {
                self.counts.register.record_us(now.saturating_sub(since));
                self.open(index, now);
                false
            }
            Some((State::Registering { .. }, _)) => {
                self.on_over(index, &format!("register-{status}"));
                true
            }
            _ => {
                self.on_stray();
                false
            }
        }
    }

    /// A pong has come.
    pub fn on_pong(&mut self, index: u32, now: u64) {
        match self.at(index) {
            Some((State::Open { pinged: Some(at) }, _)) => {
                self.counts.pongs += 1;
                self.counts.pong.record_us(now.saturating_sub(at));
                self.rest(index, now);
            }
            _ => self.on_stray(),
        }
    }

    /// Something has come that nobody asked for.
    pub fn on_stray(&mut self) {
        self.counts.strays += 1;
    }

    /// The connection is over, for this cause: it has failed if it was not open yet, else it is lost.
    pub fn on_over(&mut self, index: u32, cause: &str) {
        let list = match self.at(index) {
            Some((State::Open { .. }, _)) => {
                self.counts.open -= 1;
                &mut self.counts.lost
            }
            Some((State::Planned | State::Over, _)) | None => return,
            Some(_) => &mut self.counts.failed,
        };
        *list.entry(cause.to_owned()).or_default() += 1;
        self.enter(index, State::Over, NEVER);
    }

    fn at(&self, index: u32) -> Option<(State, u64)> {
        self.connections.get(index as usize).map(|connection| (connection.state, connection.wake))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::wire::Registration;
    use crate::spec::Transport;

    fn settings(connections: u32, rate: f64) -> Settings {
        Settings {
            target: "127.0.0.1:5060".parse().unwrap(),
            connections,
            rate,
            keepalive: Some(Duration::from_secs(30)),
            sources: vec!["127.0.0.1".parse().unwrap()],
            register: None,
            seed: 1,
        }
    }

    fn registering() -> Settings {
        let register = Registration {
            domain: "a".into(),
            user_format: "u{}".into(),
            first: 1,
            expires: 60,
            transport: Transport::Tcp,
        };
        Settings { register: Some(register), ..settings(1, 1.0) }
    }

    const S: u64 = 1_000_000;

    fn tasks(fleet: &mut Fleet, now: u64) -> Vec<Task> {
        std::iter::from_fn(|| fleet.due(now)).collect()
    }

    #[test]
    fn connections_are_begun_at_the_rate_and_lateness_is_counted() {
        let mut fleet = Fleet::new(&settings(10, 2.0), 0, 1);
        assert_eq!(tasks(&mut fleet, 0), [Task::Connect(0)]);
        assert_eq!(fleet.next_at(), Some(S / 2));
        assert!(tasks(&mut fleet, S / 2 - 1).is_empty());
        assert_eq!(tasks(&mut fleet, S), [Task::Connect(1), Task::Connect(2)]);
        assert_eq!(fleet.counts().lag.max_us(), Some(500_223), "to the histogram's three digits");
    }

    #[test]
    fn parts_share_the_connections_and_the_schedule() {
        let settings = settings(10, 10.0);
        let mut parts: Vec<Fleet> = (0..3).map(|part| Fleet::new(&settings, part, 3)).collect();
        assert_eq!(parts.iter().map(Fleet::len).collect::<Vec<_>>(), [4, 3, 3]);
        let mut numbers = Vec::new();
        for fleet in &mut parts {
            while let Some(Task::Connect(index)) = fleet.due(10 * S) {
                numbers.push(fleet.number(index));
            }
        }
        numbers.sort_unstable();
        assert_eq!(numbers, (0..10).collect::<Vec<_>>());
        assert_eq!(Fleet::new(&settings, 2, 3).next_at(), Some(S / 5));
    }

    #[test]
    fn an_open_connection_is_pinged_after_80_to_100_percent_of_the_time() {
        // RFC 5626 §4.4.1.
        let mut fleet = Fleet::new(&settings(200, 1e6), 0, 1);
        for task in tasks(&mut fleet, S) {
            let Task::Connect(index) = task else { panic!("{task:?}") };
            fleet.on_connected(index, S, false);
        }
        assert_eq!((fleet.counts().opened, fleet.counts().open), (200, 200));
        assert!(fleet.all_tried());
        assert!(tasks(&mut fleet, 24 * S).is_empty());
        let pings = tasks(&mut fleet, 31 * S).len();
        assert_eq!(pings, 200);
        let first = Fleet::new(&settings(1, 1.0), 0, 1);
        assert_ne!(first.next_at(), None);
    }

    #[test]
    fn a_pong_in_time_keeps_the_connection_and_a_missing_one_loses_it() {
        let mut fleet = Fleet::new(&settings(1, 1.0), 0, 1);
        tasks(&mut fleet, 0);
        fleet.on_connected(0, 0, false);
        assert_eq!(tasks(&mut fleet, 30 * S), [Task::Ping(0)]);
        fleet.on_pong(0, 31 * S);
        assert_eq!(fleet.counts().pong.count(), 1);
        assert!(tasks(&mut fleet, 41 * S).is_empty(), "the limit of the first pong is void");
        assert_eq!(tasks(&mut fleet, 61 * S), [Task::Ping(0)]);
        assert_eq!(tasks(&mut fleet, 71 * S), [Task::Close(0)]);
        assert_eq!(fleet.counts().lost.get("no-pong"), Some(&1));
        assert_eq!((fleet.counts().open, fleet.counts().opened), (0, 1));
        fleet.on_pong(0, 72 * S);
        assert_eq!((fleet.counts().pongs, fleet.counts().strays), (1, 1));
        assert_eq!(fleet.next_at(), None);
    }

    #[test]
    fn without_keepalive_nothing_is_pinged() {
        let mut fleet = Fleet::new(&Settings { keepalive: None, ..settings(1, 1.0) }, 0, 1);
        tasks(&mut fleet, 0);
        fleet.on_connected(0, 0, false);
        assert!(tasks(&mut fleet, 1000 * S).is_empty());
        assert_eq!(fleet.counts().open, 1);
    }

    #[test]
    fn the_opening_has_one_limit_for_all_its_steps() {
        for (steps, cause) in [(0, "connect-timeout"), (1, "handshake-timeout"), (2, "register-timeout")] {
            let mut fleet = Fleet::new(&registering(), 0, 1);
            tasks(&mut fleet, 0);
            if steps > 0 {
                assert!(!fleet.on_connected(0, 20 * S, true));
            }
            if steps > 1 {
                assert!(fleet.on_secured(0, 25 * S, false));
            }
            assert!(tasks(&mut fleet, 30 * S - 1).is_empty());
            assert_eq!(tasks(&mut fleet, 30 * S), [Task::Close(0)]);
            assert_eq!(fleet.counts().failed.get(cause), Some(&1));
            assert!(fleet.all_tried());
        }
    }

    #[test]
    fn registration_opens_by_200_and_fails_by_403() {
        let mut fleet = Fleet::new(&registering(), 0, 1);
        tasks(&mut fleet, 0);
        assert!(fleet.on_connected(0, 10, false), "the REGISTER is sent");
        assert!(!fleet.on_response(0, 20, 100));
        assert!(!fleet.on_response(0, 30, 200));
        assert_eq!((fleet.counts().open, fleet.counts().register.count()), (1, 1));
        assert!(!fleet.on_response(0, 40, 200), "again");
        assert_eq!(fleet.counts().strays, 1);
        let mut fleet = Fleet::new(&registering(), 0, 1);
        tasks(&mut fleet, 0);
        fleet.on_connected(0, 10, false);
        assert!(fleet.on_response(0, 20, 403));
        assert_eq!(fleet.counts().failed.get("register-403"), Some(&1));
    }

    #[test]
    fn closed_before_it_is_open_has_failed_and_after_it_is_lost() {
        let mut fleet = Fleet::new(&settings(2, 1e6), 0, 1);
        tasks(&mut fleet, S);
        fleet.on_over(0, "refused");
        fleet.on_connected(0, S, false);
        fleet.on_connected(1, S, false);
        fleet.on_over(1, "closed");
        fleet.on_over(1, "closed");
        let counts = fleet.counts();
        assert_eq!((counts.failed(), counts.lost(), counts.open, counts.opened), (1, 1, 0, 1));
    }

    #[test]
    fn handshakes_are_counted_by_kind_and_counts_add_up() {
        let mut fleet = Fleet::new(&settings(2, 1e6), 0, 1);
        tasks(&mut fleet, S);
        for (index, resumed) in [(0, false), (1, true)] {
            fleet.on_connected(index, S, true);
            fleet.on_secured(index, S + 300, resumed);
        }
        let mut sum = fleet.counts().clone();
        sum.merge(fleet.counts());
        assert_eq!((sum.handshakes_full, sum.handshakes_resumed, sum.open), (2, 2, 4));
        assert_eq!(sum.handshake.count(), 4);
    }
}
