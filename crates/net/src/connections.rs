//! The connections of one shard: a table that names them by [`FlowId`], the order in which they have been idle, and the
//! times at which they are to be looked at. Everything here is O(1) for one connection.

use std::ops::Range;
use std::time::Duration;

use engine::FlowId;
use sip::Instant;

use crate::connection::Connection;

/// Connections of one shard at most: what a [`FlowId`] has room for.
pub(crate) const CONNECTIONS_MAX: usize = 1 << SLOT_BITS;

const SLOT_BITS: u32 = 24;
/// Slots allocated together: a growing table moves nothing.
const CHUNK: usize = 256;
const NIL: u32 = u32::MAX;
/// One step of the clock of deadlines; a connection is looked at up to this late.
const TICK: Duration = Duration::from_millis(64);
/// Steps that the clock covers, 131 s; a later deadline is looked at again on the way.
const TICKS: usize = 2_048;
/// How exactly the order of idleness is kept: a busy connection changes its place this often at most.
const IDLE_STEP: Duration = Duration::from_secs(1);

/// The shard that owns a connection.
pub(crate) fn shard_of(flow: FlowId) -> usize {
    (flow.0 >> SLOT_BITS) as usize & 0xff
}

fn slot_of(flow: FlowId) -> u32 {
    (flow.0 as u32) & ((1 << SLOT_BITS) - 1)
}

fn generation_of(flow: FlowId) -> u32 {
    (flow.0 >> 32) as u32
}

/// Which of the two orders: by deadline, by idleness.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Time,
    Idle,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

const EMPTY: List = List { first: NIL, last: NIL };

#[derive(Debug)]
struct Slot {
    /// Of the connection that is here, or the next one that will be; 0 where there has been none, and never `u32::MAX`.
    generation: u32,
    /// Place in the order of idleness: the tick of the last activity, in [`IDLE_STEP`]s.
    active: u64,
    /// Which list of that order it is in.
    list: usize,
    /// The tick at which it is looked at next; `u64::MAX` for never.
    due: u64,
    links: [Link; 2],
    connection: Option<Connection>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Connections {
    shard: usize,
    chunks: Vec<Box<[Slot]>>,
    free: Vec<u32>,
    len: usize,
    tls: usize,
    /// Buckets of the clock.
    wheel: Box<[List]>,
    occupied: [u64; TICKS / 64],
    /// The tick whose bucket is looked at next.
    tick: u64,
    /// By last activity, the longest idle first. Those that have said nothing yet: in clear, over TLS; then the others.
    idle: [List; 4],
}

impl Connections {
    pub(crate) fn new(shard: usize) -> Connections {
        Connections {
            shard,
            chunks: Vec::new(),
            free: Vec::new(),
            len: 0,
            tls: 0,
            wheel: vec![EMPTY; TICKS].into_boxed_slice(),
            occupied: [0; TICKS / 64],
            tick: 0,
            idle: [EMPTY; 4],
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Connections over TLS.
    pub(crate) fn tls(&self) -> usize {
        self.tls
    }

    /// Puts a connection into the table; `None`, and it is closed, where that is full.
    pub(crate) fn insert(&mut self, connection: Connection, now: Instant) -> Option<FlowId> {
        let index = self.take_slot()?;
        let shard = self.shard as u64;
        let (tls, list) = (connection.is_tls(), list_of(&connection));
        let slot = self.slot_mut(index)?;
        slot.connection = Some(connection);
        slot.list = list;
        slot.active = idle_tick(now);
        slot.due = u64::MAX;
        let flow = FlowId(u64::from(slot.generation) << 32 | shard << SLOT_BITS | u64::from(index));
        self.len += 1;
        self.tls += usize::from(tls);
        self.push_back(Order::Idle, list, index);
        Some(flow)
    }

    fn take_slot(&mut self) -> Option<u32> {
        if let Some(index) = self.free.pop() {
            return Some(index);
        }
        let first = self.chunks.len() * CHUNK;
        if first >= CONNECTIONS_MAX {
            return None;
        }
        let link = Link { before: NIL, next: NIL };
        let slot =
            || Slot { generation: 1, active: 0, list: 0, due: u64::MAX, links: [link; 2], connection: None };
        self.chunks.push((0..CHUNK).map(|_| slot()).collect());
        self.free.extend((first + 1..first + CHUNK).rev().map(|index| index as u32));
        Some(first as u32)
    }

    pub(crate) fn get_mut(&mut self, flow: FlowId) -> Option<&mut Connection> {
        if shard_of(flow) != self.shard {
            return None;
        }
        let slot = self.slot_mut(slot_of(flow))?;
        if slot.generation == generation_of(flow) { slot.connection.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, flow: FlowId) -> Option<Connection> {
        self.get_mut(flow)?;
        let index = slot_of(flow);
        self.unschedule(index);
        let slot = self.slot_mut(index)?;
        let (connection, list) = (slot.connection.take()?, slot.list);
        let tls = connection.is_tls();
        self.unlink(Order::Idle, list, index);
        self.len -= 1;
        self.tls -= usize::from(tls);
        let slot = self.slot_mut(index)?;
        slot.generation += 1;
        // A name is never used twice: a slot that has had all of its names is given up.
        if slot.generation < u32::MAX {
            self.free.push(index);
        }
        Some(connection)
    }

    /// All connections there are.
    pub(crate) fn flows(&self) -> Vec<FlowId> {
        let slots = self.chunks.iter().flat_map(|chunk| chunk.iter()).enumerate();
        slots
            .filter(|(_, slot)| slot.connection.is_some())
            .map(|(index, _)| self.flow(index as u32))
            .collect()
    }

    // --- idleness -----------------------------------------------------------------------------------------------------

    /// Something came or went: it is the last one to be closed for idleness.
    pub(crate) fn touch(&mut self, flow: FlowId, now: Instant) {
        let Some(list) = self.get_mut(flow).map(|connection| list_of(connection)) else { return };
        let index = slot_of(flow);
        let Some(slot) = self.slot_mut(index) else { return };
        let active = idle_tick(now);
        let before = slot.list;
        if slot.active != active || before != list {
            (slot.active, slot.list) = (active, list);
            self.unlink(Order::Idle, before, index);
            self.push_back(Order::Idle, list, index);
        }
    }

    /// The connection to be closed for another's sake, among all or those over TLS: one that has been idle for at least a
    /// step of time, the longest of those that have said nothing yet, else the longest of all.
    pub(crate) fn longest_idle(&mut self, tls_only: bool, now: Instant) -> Option<FlowId> {
        let first = usize::from(tls_only);
        let silent = self.longest_idle_of(first..2, now);
        silent.or_else(|| self.longest_idle_of(2 + first..4, now)).map(|index| self.flow(index))
    }

    fn longest_idle_of(&mut self, lists: Range<usize>, now: Instant) -> Option<u32> {
        /// Connections looked at from the front. Those that are not idle (they are being established or closed, or wait for
        /// an answer) go to the back, so that they do not hide the others.
        const LOOK: usize = 64;
        let (mut best, mut second): (Option<(u64, u32)>, Option<u32>) = (None, None);
        for list in lists {
            for _ in 0..LOOK {
                let at = self.idle[list].first;
                let Some(slot) = self.slot_mut(at) else { break };
                let Some(connection) = &slot.connection else { break };
                if connection.is_idle() {
                    if slot.active < idle_tick(now) && best.is_none_or(|(active, _)| slot.active < active) {
                        best = Some((slot.active, at));
                    }
                    break;
                }
                if connection.is_given_up(now) {
                    second = second.or(Some(at));
                }
                self.unlink(Order::Idle, list, at);
                self.push_back(Order::Idle, list, at);
            }
        }
        best.map(|(_, index)| index).or(second)
    }

    // --- deadlines ----------------------------------------------------------------------------------------------------

    /// Has a connection looked at when `deadline` has come, or earlier.
    pub(crate) fn schedule(&mut self, flow: FlowId, deadline: Instant) {
        if self.get_mut(flow).is_none() || deadline == Instant::NEVER {
            return;
        }
        let index = slot_of(flow);
        let wanted = tick_after(deadline);
        let (earliest, latest) = (self.tick + 1, self.tick + TICKS as u64 - 1);
        let due = wanted.clamp(earliest, latest);
        if self.slot_mut(index).is_none_or(|slot| slot.due <= due) {
            return;
        }
        self.unschedule(index);
        if let Some(slot) = self.slot_mut(index) {
            slot.due = due;
        }
        let bucket = due as usize % TICKS;
        self.push_back(Order::Time, bucket, index);
        self.occupied[bucket / 64] |= 1 << (bucket % 64);
    }

    fn unschedule(&mut self, index: u32) {
        let Some(slot) = self.slot_mut(index) else { return };
        if slot.due == u64::MAX {
            return;
        }
        let bucket = slot.due as usize % TICKS;
        slot.due = u64::MAX;
        self.unlink(Order::Time, bucket, index);
        if self.wheel[bucket].first == NIL {
            self.occupied[bucket / 64] &= !(1 << (bucket % 64));
        }
    }

    /// The next connection to be looked at by now; it must be scheduled again.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<FlowId> {
        let reached = now.as_micros() / TICK.as_micros() as u64;
        loop {
            let first = self.wheel[self.tick as usize % TICKS].first;
            if first != NIL {
                self.unschedule(first);
                return Some(self.flow(first));
            }
            if self.tick >= reached {
                return None;
            }
            self.tick = self.next_tick().map_or(reached, |next| next.min(reached)).max(self.tick + 1);
        }
    }

    /// When [`take_due`](Self::take_due) has something next.
    pub(crate) fn next_due(&self) -> Instant {
        match self.next_tick() {
            Some(tick) => Instant::from_micros(tick.saturating_mul(TICK.as_micros() as u64)),
            None => Instant::NEVER,
        }
    }

    /// The first tick from the present one on whose bucket holds something.
    fn next_tick(&self) -> Option<u64> {
        let start = self.tick as usize % TICKS;
        let words = self.occupied.len();
        for step in 0..=words {
            let word = (start / 64 + step) % words;
            let mut bits = self.occupied[word];
            if step == 0 {
                bits &= u64::MAX << (start % 64);
            } else if step == words {
                bits &= !(u64::MAX << (start % 64));
            }
            if bits != 0 {
                let bucket = word * 64 + bits.trailing_zeros() as usize;
                return Some(self.tick + ((bucket + TICKS - start) % TICKS) as u64);
            }
        }
        None
    }

    // --- lists --------------------------------------------------------------------------------------------------------

    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot> {
        self.chunks.get_mut(index as usize / CHUNK)?.get_mut(index as usize % CHUNK)
    }

    fn flow(&self, index: u32) -> FlowId {
        let slot =
            self.chunks.get(index as usize / CHUNK).and_then(|chunk| chunk.get(index as usize % CHUNK));
        let generation = slot.map_or(0, |slot| slot.generation);
        FlowId(u64::from(generation) << 32 | (self.shard as u64) << SLOT_BITS | u64::from(index))
    }

    fn list_mut(&mut self, order: Order, list: usize) -> &mut List {
        match order {
            Order::Time => &mut self.wheel[list],
            Order::Idle => &mut self.idle[list],
        }
    }

    fn push_back(&mut self, order: Order, list: usize, index: u32) {
        let last = self.list_mut(order, list).last;
        if let Some(slot) = self.slot_mut(index) {
            slot.links[order as usize] = Link { before: last, next: NIL };
        }
        match self.slot_mut(last) {
            Some(slot) => slot.links[order as usize].next = index,
            None => self.list_mut(order, list).first = index,
        }
        self.list_mut(order, list).last = index;
    }

    fn unlink(&mut self, order: Order, list: usize, index: u32) {
        let Some(slot) = self.slot_mut(index) else { return };
        let Link { before, next } = slot.links[order as usize];
        match self.slot_mut(before) {
            Some(slot) => slot.links[order as usize].next = next,
            None => self.list_mut(order, list).first = next,
        }
        match self.slot_mut(next) {
            Some(slot) => slot.links[order as usize].before = before,
            None => self.list_mut(order, list).last = before,
        }
    }
}

/// The list of the order of idleness that a connection belongs to.
fn list_of(connection: &Connection) -> usize {
    usize::from(connection.is_tls()) + 2 * usize::from(connection.is_proven())
}

fn idle_tick(now: Instant) -> u64 {
    now.as_micros() / IDLE_STEP.as_micros() as u64
}

/// The first tick that does not begin before `deadline`.
fn tick_after(deadline: Instant) -> u64 {
    deadline.as_micros().div_ceil(TICK.as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use engine::{ListenerId, Path};
    use sip::Transport;

    use super::*;
    use crate::connection::State;
    use crate::peers::Peers;

    fn connection(transport: Transport) -> Connection {
        let remote: SocketAddr = "127.0.0.1:9".parse().unwrap();
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(socket.local_addr().unwrap()).unwrap();
        let path = Path::new(ListenerId(0), None, remote);
        let key = Peers::new().key(transport, remote, b"");
        Connection::new(
            mio::net::TcpStream::from_std(stream),
            State::Open,
            transport,
            path,
            key,
            Instant::ZERO,
        )
    }

    fn table(count: usize) -> (Connections, Vec<FlowId>) {
        let mut table = Connections::new(3);
        let flows =
            (0..count).map(|_| table.insert(connection(Transport::Tcp), Instant::ZERO).unwrap()).collect();
        (table, flows)
    }

    fn at(ms: u64) -> Instant {
        Instant::from_micros(ms * 1_000)
    }

    #[test]
    fn a_name_is_never_used_twice_and_says_its_shard() {
        let (mut table, flows) = table(2);
        assert!(flows.iter().all(|flow| shard_of(*flow) == 3 && *flow != FlowId::NONE));
        assert!(table.remove(flows[0]).is_some() && table.remove(flows[0]).is_none());
        let again = table.insert(connection(Transport::Tls), Instant::ZERO).unwrap();
        assert_eq!(slot_of(again), slot_of(flows[0]));
        assert!(table.get_mut(flows[0]).is_none() && table.get_mut(again).is_some());
        assert_eq!((table.len(), table.tls()), (2, 1));
        assert!(Connections::new(2).get_mut(flows[1]).is_none());
    }

    #[test]
    fn the_longest_idle_comes_first() {
        let (mut table, flows) = table(3);
        assert_eq!(table.longest_idle(false, at(900)), None, "all have just been active");
        table.touch(flows[0], at(2_000));
        assert_eq!(table.longest_idle(false, at(3_000)), Some(flows[1]));
        table.remove(flows[1]);
        table.touch(flows[2], at(4_000));
        assert_eq!(table.longest_idle(false, at(9_000)), Some(flows[0]));
        assert_eq!(table.longest_idle(true, at(9_000)), None);
        let tls = table.insert(connection(Transport::Tls), at(1_000)).unwrap();
        assert_eq!(table.longest_idle(true, at(9_000)), Some(tls));
        assert_eq!(table.longest_idle(false, at(9_000)), Some(tls));
        // Those that have said something come behind those that have not, however long they have been idle.
        let opened = State::Connecting(Box::default());
        let mut proven = connection(Transport::Tcp);
        proven = Connection::new(
            proven.socket.take().unwrap(),
            opened,
            Transport::Tcp,
            proven.path(),
            proven.key,
            Instant::ZERO,
        );
        proven.state = State::Open;
        let proven = table.insert(proven, Instant::ZERO).unwrap();
        for flow in [tls, flows[0], flows[2]] {
            assert_eq!(table.longest_idle(false, at(9_000)), Some(flow));
            table.remove(flow);
        }
        assert_eq!(table.longest_idle(false, at(9_000)), Some(proven));
    }

    #[test]
    fn deadlines_come_in_time_and_in_order() {
        let (mut table, flows) = table(4);
        table.schedule(flows[0], at(5_000));
        table.schedule(flows[1], at(1_000));
        table.schedule(flows[2], at(5_000_000));
        assert_eq!(table.take_due(at(999)), None);
        assert!(table.next_due() >= at(1_000) && table.next_due() <= at(1_064));
        assert_eq!(table.take_due(at(1_064)), Some(flows[1]));
        // A later deadline changes nothing, an earlier one does.
        table.schedule(flows[0], at(9_000));
        table.schedule(flows[2], at(3_000));
        assert_eq!(table.take_due(at(3_100)), Some(flows[2]));
        assert_eq!(table.take_due(at(3_100)), None);
        table.schedule(flows[3], Instant::NEVER);
        assert_eq!(table.take_due(at(60_000)), Some(flows[0]));
        assert_eq!(table.take_due(at(600_000)), None);
        assert_eq!(table.next_due(), Instant::NEVER);
    }

    #[test]
    fn a_deadline_past_the_clock_is_looked_at_on_the_way() {
        let (mut table, flows) = table(1);
        table.schedule(flows[0], at(1_000_000));
        let first = table.next_due();
        assert!(first < at(200_000));
        assert_eq!(table.take_due(first), Some(flows[0]));
        table.schedule(flows[0], at(1_000_000));
        table.remove(flows[0]);
        assert_eq!(table.take_due(at(2_000_000)), None);
    }

    #[test]
    fn every_deadline_of_many_comes_once_however_the_clock_jumps() {
        let (mut table, flows) = table(300);
        for (i, flow) in flows.iter().enumerate() {
            table.schedule(*flow, at(i as u64 * 397 % 120_000 + 1));
        }
        let (mut now, mut seen) = (0, Vec::new());
        for step in [1, 50, 64, 1_000, 7, 40_000, 3, 80_000, 64] {
            now += step;
            while let Some(flow) = table.take_due(at(now)) {
                let wanted = slot_of(flow) as u64 * 397 % 120_000 + 1;
                assert!(wanted <= now, "{wanted} at {now}");
                seen.push(flow.0);
            }
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), flows.len());
    }
}
