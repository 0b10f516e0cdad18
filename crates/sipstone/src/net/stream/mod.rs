//! Connections of one worker: TCP, TLS and WebSocket, without a thread for each (RFC 3261 §18, RFC 7118).
//!
//! One epoll has all of them; the worker's thread looks at it like at one more socket. What is sent is gathered in the
//! connections' buffers and written once a turn. Whoever opens a connection names it; one that is not there is opened by
//! the first message for it.

mod layers;
pub(crate) mod limits;
pub(crate) mod tls;
mod websocket;

use super::socket::NetError;
use crate::load::{ConnectionId, SocketId};
use crate::spec::Transport;
use crate::tally::{ConnectionTally, Failure, count_kind};
use layers::{Desk, End, Layers};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{setsockopt, sockopt};
use sip::Instant;
use std::collections::{HashMap, VecDeque};
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use tls::Ends;

/// Bytes read at once from a connection.
const READ_BYTES: usize = 64 << 10;

/// Most reads from one connection before others have their turn.
const READS_MAX: usize = 4;

/// Most events taken at once.
const EVENTS: usize = 256;

/// Most connections taken from one listener at once.
const ACCEPTS_MAX: usize = 64;

/// Connections that a listener keeps until they are taken.
const BACKLOG: i32 = 4096;

/// Marks the events of listeners.
const LISTENER: u64 = 1 << 63;

/// Where a socket number of the worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The address to connect from.
    pub(crate) local: IpAddr,
    /// What the connections carry.
    pub(crate) transport: Transport,
}

/// A message, or the end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived<'a> {
    pub(crate) socket: SocketId,
    pub(crate) connection: ConnectionId,
    pub(crate) from: SocketAddr,
    pub(crate) bytes: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Connecting,
    /// TLS or WebSocket is being agreed on.
    Handshaking,
    Open,
}

#[derive(Debug)]
struct Connection {
    id: ConnectionId,
    socket: SocketId,
    remote: SocketAddr,
    stream: TcpStream,
    phase: Phase,
    layers: Layers,
    end: End,
    /// When the connect, or then the handshake, began.
    begun: Instant,
    /// Whether it waits in the list of those to be written.
    dirty: bool,
    /// Whether it is to be closed once everything is written.
    closing: bool,
    /// Whether epoll tells when there is room to write.
    waits_for_room: bool,
}

/// A place in the table; its generation tells one tenant from the next.
#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

/// The connections of a worker.
#[derive(Debug)]
pub(crate) struct Streams {
    epoll: Arc<Epoll>,
    listeners: Vec<(TcpListener, SocketId)>,
    /// By the number of the socket.
    places: Vec<Option<Place>>,
    ends: Option<Ends>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    open: usize,
    open_max: usize,
    named: HashMap<ConnectionId, u32, ahash::RandomState>,
    /// By their other end, for a server that answers and forwards to addresses; `None`: nobody asks.
    remotes: Option<HashMap<SocketAddr, u32>>,
    next_shared: u32,
    dirty: Vec<u32>,
    lost: VecDeque<(ConnectionId, Failure)>,
    tally: ConnectionTally,
    buffer: Box<[u8]>,
    desk: Desk,
    events: Vec<EpollEvent>,
}

/// What a worker's connections are made from.
#[derive(Debug)]
pub(crate) struct Equipment {
    /// Where its sockets are; `None` for one of datagrams.
    pub(crate) places: Vec<Option<Place>>,
    /// Where the server connects to.
    pub(crate) listeners: Vec<(TcpListener, SocketId)>,
    /// TLS, where a place has it.
    pub(crate) ends: Option<Ends>,
    /// Most connections at a time.
    pub(crate) open_max: usize,
}

/// A listener that never blocks.
///
/// # Errors
/// [`NetError::Listen`].
pub(crate) fn listen(address: SocketAddr) -> Result<TcpListener, NetError> {
    let made = || -> io::Result<TcpListener> {
        use socket2::{Domain, Socket, Type};
        let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), None)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        // Connections of an earlier run may still be in TIME_WAIT here.
        socket.set_reuse_address(true)?;
        // Those that are accepted inherit it.
        socket.set_tcp_nodelay(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    made().map_err(|error| NetError::Listen { address, error })
}

impl Streams {
    /// Without connections; the listeners are listened to from now on.
    ///
    /// # Errors
    /// [`NetError::Epoll`].
    pub(crate) fn new(equipment: Equipment) -> Result<Streams, NetError> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|error| NetError::Epoll { error })?;
        for (index, (listener, _)) in (0u64..).zip(&equipment.listeners) {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, LISTENER | index);
            epoll.add(listener, event).map_err(|error| NetError::Epoll { error })?;
        }
        Ok(Streams {
            epoll: Arc::new(epoll),
            listeners: equipment.listeners,
            places: equipment.places,
            ends: equipment.ends,
            slots: Vec::new(),
            free: Vec::new(),
            open: 0,
            open_max: equipment.open_max,
            named: HashMap::with_hasher(ahash::RandomState::with_seeds(1, 2, 3, 4)),
            remotes: None,
            next_shared: 0,
            dirty: Vec::new(),
            lost: VecDeque::new(),
            tally: ConnectionTally::default(),
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            desk: Desk::default(),
            events: vec![EpollEvent::empty(); EVENTS],
        })
    }

    /// What tells that there is something to do: readable then.
    pub(crate) fn epoll(&self) -> Arc<Epoll> {
        Arc::clone(&self.epoll)
    }

    /// From now on connections are found by their other end, too.
    pub(crate) fn know_remotes(&mut self) {
        self.remotes = Some(HashMap::default());
    }

    /// The connection whose other end is `to`, or the name of a new one.
    pub(crate) fn connection_to(&mut self, to: SocketAddr) -> ConnectionId {
        let known = self.remotes.as_ref().and_then(|remotes| remotes.get(&to));
        let known = known.and_then(|slot| self.slots.get(place(*slot))?.connection.as_ref());
        match known {
            Some(connection) => connection.id,
            None => {
                self.next_shared = self.next_shared.wrapping_add(1);
                ConnectionId::shared(self.next_shared)
            }
        }
    }

    /// Puts a message among what the connection is to be sent, and opens it if it is not there.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        (socket, connection, to): (SocketId, ConnectionId, SocketAddr),
        bytes: &[u8],
    ) {
        let slot = match self.find(connection) {
            Some(slot) => slot,
            None if connection.accepted_slot().is_some() => {
                self.tally.undeliverable += 1;
                return;
            }
            None => match self.connect(now, socket, connection, to) {
                Ok(slot) => slot,
                Err(failure) => return self.lost.push_back((connection, failure)),
            },
        };
        let Some(one) = self.slots.get_mut(place(slot)).and_then(|slot| slot.connection.as_mut()) else {
            return;
        };
        match one.layers.send(bytes) {
            Ok(()) => self.mark(slot),
            Err(cause) => self.lose(slot, &cause),
        }
    }

    /// Closes a connection once everything is written.
    pub(crate) fn close(&mut self, connection: ConnectionId) {
        let Some(slot) = self.find(connection) else { return };
        let Some(one) = self.slots.get_mut(place(slot)).and_then(|slot| slot.connection.as_mut()) else {
            return;
        };
        if one.phase == Phase::Connecting {
            self.tally.closed += 1;
            self.remove(slot);
            return;
        }
        if !one.closing {
            one.closing = true;
            one.layers.close();
            self.mark(slot);
        }
    }

    /// Closes what single operations had opened: their names are given anew.
    pub(crate) fn close_own(&mut self) {
        let own: Vec<ConnectionId> = self.named.keys().copied().filter(|id| id.owner().is_some()).collect();
        for connection in own {
            self.close(connection);
        }
        self.flush();
        self.lost.clear();
    }

    /// What was lost, one after the other.
    pub(crate) fn take_lost(&mut self) -> Option<(ConnectionId, Failure)> {
        self.lost.pop_front()
    }

    /// The counts since the last call.
    pub(crate) fn take_tally(&mut self) -> ConnectionTally {
        std::mem::take(&mut self.tally)
    }

    fn find(&self, connection: ConnectionId) -> Option<u32> {
        match connection.accepted_slot() {
            None => self.named.get(&connection).copied(),
            Some(slot) => {
                let tenant = self.slots.get(place(slot))?.connection.as_ref()?;
                (tenant.id == connection).then_some(slot)
            }
        }
    }

    fn mark(&mut self, slot: u32) {
        if let Some(one) = self.slots.get_mut(place(slot)).and_then(|slot| slot.connection.as_mut())
            && !one.dirty
        {
            one.dirty = true;
            self.dirty.push(slot);
        }
    }

    fn connect(
        &mut self,
        now: Instant,
        socket: SocketId,
        id: ConnectionId,
        to: SocketAddr,
    ) -> Result<u32, Failure> {
        let Some(Some(from)) = self.places.get(usize::from(socket.0)).copied() else {
            return Err(self.not_made("no place to connect from", Failure::GeneratorDropped));
        };
        if self.open >= self.open_max {
            self.tally.files_exhausted += 1;
            return Err(Failure::GeneratorDropped);
        }
        let stream = begin_connect(from.local, to).map_err(|error| self.not_connected(&error))?;
        let ends = self.ends.as_ref().filter(|_| from.transport.is_tls());
        let host = to.to_string();
        let layers = Layers::new(End::Client, ends, from.transport.is_websocket(), &host)
            .map_err(|cause| self.not_made(&cause, Failure::Handshake))?;
        let connection = Connection {
            id,
            socket,
            remote: to,
            stream,
            phase: Phase::Connecting,
            layers,
            end: End::Client,
            begun: now,
            dirty: false,
            closing: false,
            waits_for_room: true,
        };
        let slot = self.take_slot().ok_or(Failure::GeneratorDropped)?;
        self.insert(slot, connection).map_err(|error| self.not_connected(&error))?;
        self.named.insert(id, slot);
        Ok(slot)
    }

    fn take_slot(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            let slot = u32::try_from(self.slots.len()).ok()?;
            self.slots.push(Slot::default());
            Some(slot)
        })
    }

    fn insert(&mut self, slot: u32, connection: Connection) -> io::Result<()> {
        let Some(room) = self.slots.get_mut(place(slot)) else { return Ok(()) };
        let flags = interest(connection.waits_for_room);
        if let Err(error) =
            self.epoll.add(&connection.stream, EpollEvent::new(flags, mark_of(slot, room.generation)))
        {
            self.free.push(slot);
            return Err(error.into());
        }
        if let Some(remotes) = &mut self.remotes {
            remotes.insert(connection.remote, slot);
        }
        room.connection = Some(connection);
        self.open += 1;
        Ok(())
    }

    /// Takes a connection out of the table; its socket is closed with it.
    fn remove(&mut self, slot: u32) -> Option<Connection> {
        let room = self.slots.get_mut(place(slot))?;
        let connection = room.connection.take()?;
        room.generation = room.generation.wrapping_add(1);
        self.free.push(slot);
        self.open -= 1;
        if self.named.get(&connection.id) == Some(&slot) {
            self.named.remove(&connection.id);
        }
        if let Some(remotes) = &mut self.remotes
            && remotes.get(&connection.remote) == Some(&slot)
        {
            remotes.remove(&connection.remote);
        }
        Some(connection)
    }

    fn not_made(&mut self, cause: &str, failure: Failure) -> Failure {
        count_kind(&mut self.tally.failures, cause, 1);
        failure
    }

    /// A connection could not be begun: by our own limits, or by the network.
    fn not_connected(&mut self, error: &io::Error) -> Failure {
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EADDRNOTAVAIL | Errno::EADDRINUSE) => {
                self.tally.ports_exhausted += 1;
                Failure::GeneratorDropped
            }
            Some(Errno::EMFILE | Errno::ENFILE) => {
                self.tally.files_exhausted += 1;
                Failure::GeneratorDropped
            }
            _ => self.not_made(&cause("connect", error), Failure::ConnectRefused),
        }
    }

    /// A connection is of no use any more.
    fn lose(&mut self, slot: u32, cause: &str) {
        let Some(connection) = self.remove(slot) else { return };
        count_kind(&mut self.tally.failures, cause, 1);
        let failure = match connection.phase {
            Phase::Connecting => Failure::ConnectRefused,
            Phase::Handshaking => Failure::Handshake,
            Phase::Open => Failure::Connection,
        };
        self.tell_lost(connection.id, failure);
    }

    /// The other end has closed.
    fn hung_up(&mut self, slot: u32) {
        let Some(connection) = self.slots.get(place(slot)).and_then(|slot| slot.connection.as_ref()) else {
            return;
        };
        if connection.phase == Phase::Handshaking {
            return self.lose(slot, "closed by the server during the handshake");
        }
        if let Some(connection) = self.remove(slot) {
            if connection.closing {
                self.tally.closed += 1;
            } else {
                self.tally.closed_by_server += 1;
            }
            self.tell_lost(connection.id, Failure::Connection);
        }
    }

    /// Nobody waits for an answer on a connection that the server has opened.
    fn tell_lost(&mut self, connection: ConnectionId, failure: Failure) {
        if connection.accepted_slot().is_none() {
            self.lost.push_back((connection, failure));
        }
    }

    /// Writes what has been gathered, and closes what is to be closed.
    pub(crate) fn flush(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for slot in dirty.drain(..) {
            self.write(slot);
        }
        // Nothing that is written marks another one.
        self.dirty = dirty;
    }

    fn write(&mut self, slot: u32) {
        let Some(room) = self.slots.get_mut(place(slot)) else { return };
        let (generation, Some(one)) = (room.generation, room.connection.as_mut()) else { return };
        one.dirty = false;
        if one.phase == Phase::Connecting {
            return;
        }
        let full = match one.layers.write_to(&mut one.stream) {
            Ok(done) => !done,
            // Whoever closes does not mind that the other end was first.
            Err(_) if one.closing => false,
            Err(error) => return self.lose(slot, &cause("write", &error)),
        };
        if !full && one.closing {
            drain(&mut one.stream, &mut self.buffer);
            self.tally.closed += 1;
            self.remove(slot);
            return;
        }
        if full != one.waits_for_room {
            one.waits_for_room = full;
            let mut event = EpollEvent::new(interest(full), mark_of(slot, generation));
            if let Err(error) = self.epoll.modify(&one.stream, &mut event) {
                self.lose(slot, &cause("epoll", &error.into()));
            }
        }
    }

    /// Takes what has happened, without waiting, and hands on the messages. Whether there may be more.
    ///
    /// # Errors
    /// [`NetError::Epoll`].
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        each: &mut dyn FnMut(Arrived<'_>),
    ) -> Result<bool, NetError> {
        let mut events = std::mem::take(&mut self.events);
        let taken = match self.epoll.wait(&mut events, EpollTimeout::ZERO) {
            Ok(taken) => taken,
            Err(Errno::EINTR) => 0,
            Err(error) => return Err(NetError::Epoll { error }),
        };
        for event in events.iter().take(taken) {
            if event.data() & LISTENER != 0 {
                self.accept(now, event.data() & !LISTENER);
            } else {
                self.on_event(now, event, each);
            }
        }
        self.events = events;
        self.flush();
        Ok(taken == EVENTS)
    }

    fn on_event(&mut self, now: Instant, event: &EpollEvent, each: &mut dyn FnMut(Arrived<'_>)) {
        let slot = u32::try_from(event.data() & 0xffff_ffff).unwrap_or(u32::MAX);
        let Some(room) = self.slots.get_mut(place(slot)) else { return };
        if mark_of(slot, room.generation) != event.data() {
            return;
        }
        let Some(one) = room.connection.as_mut() else { return };
        if one.phase == Phase::Connecting {
            match one.stream.take_error() {
                Ok(None) => self.connected(now, slot),
                Ok(Some(error)) | Err(error) => {
                    let cause = cause("connect", &error);
                    return self.lose(slot, &cause);
                }
            }
        }
        if event.events().intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR) {
            self.read(now, slot, each);
        }
        if event.events().contains(EpollFlags::EPOLLOUT) {
            self.mark(slot);
        }
    }

    fn connected(&mut self, now: Instant, slot: u32) {
        let Some(one) = self.slots.get_mut(place(slot)).and_then(|slot| slot.connection.as_mut()) else {
            return;
        };
        self.tally.opened += 1;
        self.tally.connect_time.record(now.since(one.begun));
        one.begun = now;
        one.phase = if one.layers.is_handshaking() { Phase::Handshaking } else { Phase::Open };
        self.mark(slot);
    }

    /// Reads a connection, as much as fits its turn.
    fn read(&mut self, now: Instant, slot: u32, each: &mut dyn FnMut(Arrived<'_>)) {
        for _ in 0..READS_MAX {
            let Streams { slots, buffer, desk, .. } = self;
            let Some(one) = slots.get_mut(place(slot)).and_then(|slot| slot.connection.as_mut()) else {
                return;
            };
            let count = match one.stream.read(buffer) {
                Ok(0) => return self.hung_up(slot),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // A server that closes with something unread resets the connection.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset && one.phase == Phase::Open => {
                    return self.hung_up(slot);
                }
                Err(error) => {
                    let cause = cause("read", &error);
                    return self.lose(slot, &cause);
                }
            };
            let (socket, connection, from) = (one.socket, one.id, one.remote);
            let mut hand = |bytes: &[u8]| each(Arrived { socket, connection, from, bytes });
            let read = one.layers.receive(buffer.get(..count).unwrap_or(&[]), desk, &mut hand);
            self.after_read(now, slot, read);
            if count < READ_BYTES {
                return;
            }
        }
    }

    /// Counts a handshake that has ended, and sees to what the other end is to be told.
    fn after_read(&mut self, now: Instant, slot: u32, read: Result<(), String>) {
        let Some(one) = self.slots.get_mut(place(slot)).and_then(|slot| slot.connection.as_mut()) else {
            return;
        };
        if let Err(cause) = read {
            // An alert may tell the other end why.
            let _ = one.layers.write_to(&mut one.stream);
            return self.lose(slot, &cause);
        }
        if one.phase == Phase::Handshaking {
            if let Some(secured) = one.layers.secured() {
                let side = match one.end {
                    End::Client => &mut self.tally.client,
                    End::Server => &mut self.tally.server,
                };
                let kind = if secured.resumed { &mut side.resumed } else { &mut side.full };
                *kind += 1;
                side.time.record(now.since(one.begun));
                count_kind(&mut self.tally.suites, &secured.suite, 1);
            }
            if !one.layers.is_handshaking() {
                one.phase = Phase::Open;
            }
        }
        if one.layers.is_closed() {
            return self.hung_up(slot);
        }
        if one.layers.wants_write() {
            self.mark(slot);
        }
    }

    fn accept(&mut self, now: Instant, listener: u64) {
        let listener = usize::try_from(listener).unwrap_or(usize::MAX);
        for _ in 0..ACCEPTS_MAX {
            let Some((from, socket)) = self.listeners.get(listener) else { return };
            let socket = *socket;
            let (stream, remote) = match from.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    match error.raw_os_error().map(Errno::from_raw) {
                        Some(Errno::EMFILE | Errno::ENFILE) => self.tally.files_exhausted += 1,
                        _ => count_kind(&mut self.tally.failures, &cause("accept", &error), 1),
                    }
                    return;
                }
            };
            if let Err(cause) = self.take_in(now, socket, stream, remote) {
                count_kind(&mut self.tally.failures, &cause, 1);
            }
        }
    }

    fn take_in(
        &mut self,
        now: Instant,
        socket: SocketId,
        stream: TcpStream,
        remote: SocketAddr,
    ) -> Result<(), String> {
        if self.open >= self.open_max {
            self.tally.files_exhausted += 1;
            return Ok(());
        }
        stream.set_nonblocking(true).map_err(|error| cause("accept", &error))?;
        let Some(Some(at)) = self.places.get(usize::from(socket.0)).copied() else { return Ok(()) };
        let ends = self.ends.as_ref().filter(|_| at.transport.is_tls());
        let layers = Layers::new(End::Server, ends, at.transport.is_websocket(), "")?;
        let Some(slot) = self.take_slot() else { return Ok(()) };
        let generation = self.slots.get(place(slot)).map_or(0, |slot| slot.generation);
        let phase = if layers.is_handshaking() { Phase::Handshaking } else { Phase::Open };
        let connection = Connection {
            id: ConnectionId::accepted(slot, generation),
            socket,
            remote,
            stream,
            phase,
            layers,
            end: End::Server,
            begun: now,
            dirty: false,
            closing: false,
            waits_for_room: false,
        };
        self.insert(slot, connection).map_err(|error| cause("accept", &error))?;
        self.tally.accepted += 1;
        Ok(())
    }
}

/// Begins to connect without waiting. The port is chosen by the system for this destination, so that one source address
/// has its 28,000 ports for each server.
fn begin_connect(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    use socket2::{Domain, Socket, Type};
    let socket = Socket::new(Domain::for_address(to), Type::STREAM.nonblocking(), None)?;
    socket.set_tcp_nodelay(true)?;
    if !from.is_unspecified() {
        setsockopt(&socket, sockopt::IpBindAddressNoPort, &true)?;
        socket.bind(&SocketAddr::new(from, 0).into())?;
    }
    match socket.connect(&to.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error().map(Errno::from_raw) == Some(Errno::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
}

/// Reads and forgets what is there: a socket that is closed with something unread resets its connection.
fn drain(stream: &mut TcpStream, buffer: &mut [u8]) {
    for _ in 0..READS_MAX {
        if !matches!(stream.read(buffer), Ok(1..)) {
            break;
        }
    }
}

/// What epoll is to tell of a connection.
fn interest(waits_for_room: bool) -> EpollFlags {
    if waits_for_room { EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN }
}

/// A cause as it is counted: without what differs from one connection to the next.
fn cause(doing: &str, error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(code) => format!("{doing}: {}", Errno::from_raw(code).desc()),
        None => format!("{doing}: {error}"),
    }
}

fn mark_of(slot: u32, generation: u32) -> u64 {
    u64::from(generation & 0x7fff_ffff) << 32 | u64::from(slot)
}

fn place(slot: u32) -> usize {
    usize::try_from(slot).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
