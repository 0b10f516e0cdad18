//! The stream transports of one shard: accepting, connecting, reading, writing, closing (RFC 3261 §18).

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use engine::{FlowId, ListenerId, Path, TransportFailure};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use sip::{Instant, Transport};

use crate::connection::{Alias, Connection, Desk, Held, LastWord, Read, State, Upward, Waiting};
use crate::connections::{Connections, shard_of};
use crate::listener::StreamListener;
use crate::peers::{Key, Peers};
use crate::queue::{Parcel, Post};
use crate::stream_settings::Ended;
use crate::tcp::{self, Accepted, Acceptor};
use crate::tls::{HandshakeError, HandshakePool, NotTls, Secured, Session};

/// Bytes read from a connection at once; then the others have their turn.
const READ_BYTES: usize = 64 << 10;
/// Connections accepted by one listener in one turn: a storm of them delays calls by about a millisecond.
const ACCEPTS_PER_TURN: usize = 32;
/// Deadlines handled in one turn.
const DEADLINES_PER_TURN: usize = 1_024;
/// Failures of which the engine has not yet been told, at most; it finds out about further ones by its own timers.
const FAILURES_MAX: usize = 65_536;

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// It is on its way, or waits.
    Yes,
    /// The connection is not there any more.
    Gone,
    /// It is lost, and nobody has been told.
    Lost,
}

/// See the module's documentation.
pub(crate) struct Streams {
    index: usize,
    registry: Registry,
    acceptors: Vec<Option<Acceptor>>,
    connections: Connections,
    desk: Desk,
    buffer: Box<[u8]>,
    /// Connections that may have something to read.
    ready: VecDeque<FlowId>,
    /// Connections that have something to write.
    dirty: Vec<FlowId>,
    /// Ways by which what was sent is lost, or may be.
    failed: VecDeque<(Path, TransportFailure)>,
    fresh: Fresh,
    peers: Arc<Peers>,
    posts: Vec<Post>,
    tls: Option<HandshakePool>,
}

impl Streams {
    pub(crate) fn new(
        index: usize,
        registry: Registry,
        listeners: Vec<Option<StreamListener>>,
        desk: Desk,
        (peers, posts): (Arc<Peers>, Vec<Post>),
        tls: Option<HandshakePool>,
    ) -> Streams {
        let used = listeners.iter().any(Option::is_some);
        let acceptors = listeners.into_iter().map(|listener| listener.map(Acceptor::new)).collect();
        Streams {
            index,
            registry,
            acceptors,
            connections: Connections::new(index),
            desk,
            buffer: vec![0; if used { READ_BYTES } else { 0 }].into_boxed_slice(),
            ready: VecDeque::new(),
            dirty: Vec::new(),
            failed: VecDeque::new(),
            fresh: Fresh::default(),
            peers,
            posts,
            tls,
        }
    }

    /// The time that counts until the next call.
    pub(crate) fn set_now(&mut self, now: Instant) {
        self.desk.now = now;
    }

    pub(crate) fn statistics(&self) -> crate::StreamStatistics {
        crate::StreamStatistics {
            open: self.connections.len() as u64,
            open_tls: self.connections.tls() as u64,
            ..self.desk.statistics()
        }
    }

    /// When the next deadline is.
    pub(crate) fn next_due(&self) -> Instant {
        let retry = self.acceptors.iter().flatten().filter_map(Acceptor::retry_at).min();
        self.connections.next_due().min(retry.unwrap_or(Instant::NEVER))
    }

    // --- events -------------------------------------------------------------------------------------------------------

    /// A listening socket has connections.
    pub(crate) fn listener_event(&mut self, listener: usize) {
        if let Some(Some(acceptor)) = self.acceptors.get_mut(listener) {
            acceptor.ready = true;
        }
    }

    /// Something happened to a connection; what is said of one that has gone is ignored.
    pub(crate) fn event(&mut self, event: &mio::event::Event) {
        let flow = FlowId(event.token().0 as u64);
        let Some(connection) = self.connections.get_mut(flow) else { return };
        let ended = event.is_read_closed() || event.is_error();
        connection.nears_end |= ended;
        if event.is_error() && connection.is_lost() {
            return self.close(flow, Ended::Reset);
        }
        if let State::Connecting(_) = connection.state {
            if event.is_writable() || event.is_error() {
                self.finish_connect(flow);
            }
            return;
        }
        if (event.is_readable() || ended) && !connection.ready {
            connection.ready = true;
            self.ready.push_back(flow);
        }
        if event.is_writable() && connection.queued() > 0 && !connection.dirty {
            connection.dirty = true;
            self.dirty.push(flow);
        }
    }

    /// Accepts a bounded number of connections; returns whether there may be more.
    pub(crate) fn accept(&mut self) -> bool {
        let mut more = false;
        for listener in 0..self.acceptors.len() {
            for _ in 0..ACCEPTS_PER_TURN {
                let Some(Some(acceptor)) = self.acceptors.get_mut(listener) else { break };
                match acceptor.accept(&mut self.desk) {
                    Accepted::Nothing => break,
                    Accepted::Refused => {}
                    Accepted::Connection(socket, remote) => self.accepted(listener, socket, remote),
                }
            }
            let acceptor = self.acceptors.get(listener).and_then(Option::as_ref);
            more |= acceptor.is_some_and(|acceptor| acceptor.ready && acceptor.retry_at().is_none());
        }
        more
    }

    fn accepted(&mut self, listener: usize, socket: TcpStream, remote: SocketAddr) {
        let Some(Some(acceptor)) = self.acceptors.get(listener) else { return };
        let (transport, address) = (acceptor.transport(), acceptor.address());
        self.desk.statistics.accepted += 1;
        if !self.peers.admit(remote.ip(), self.desk.settings.per_source_max) {
            self.desk.statistics.refused_source += 1;
            return;
        }
        if !self.make_room(transport) {
            self.desk.statistics.refused_full += 1;
            self.peers.dismiss(remote.ip());
            return;
        }
        // A listener on all addresses answers from the one that was asked; the others are known by theirs.
        let local = if address.ip().is_unspecified() { socket.local_addr().ok() } else { None };
        let path = Path::new(ListenerId(listener as u16), local.map(|local| local.ip()), remote);
        let key = self.peers.key(transport, remote, b"");
        let connection = Connection::new(socket, State::Open, transport, path, key, self.desk.now);
        let Some(flow) = self.insert(connection) else {
            self.desk.statistics.refused_full += 1;
            self.peers.dismiss(remote.ip());
            return;
        };
        if let Some(connection) = self.connections.get_mut(flow) {
            connection.accepted = true;
            if connection.is_tls() {
                self.secure_accepted(flow, local.unwrap_or(address));
                return;
            }
        }
        if let Err(error) = self.register(flow) {
            tracing::warn!(%error, "cannot watch a connection; it is closed");
            self.close(flow, Ended::Reset);
        }
    }

    /// Puts a connection into the table; `None` where that is full.
    fn insert(&mut self, connection: Connection) -> Option<FlowId> {
        let (key, tls) = (connection.key, connection.is_tls());
        let flow = self.connections.insert(connection, self.desk.now)?;
        self.peers.opened(tls);
        self.peers.insert(key, flow);
        if let Some(connection) = self.connections.get_mut(flow) {
            connection.flow = flow;
            let deadline = connection.deadline(&self.desk.settings);
            self.connections.schedule(flow, deadline);
        }
        Some(flow)
    }

    fn register(&mut self, flow: FlowId) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(flow) else { return Ok(()) };
        let Some(socket) = &mut connection.socket else { return Ok(()) };
        // Edge-triggered: a connection that may be written costs nothing until it was full.
        self.registry.register(socket, Token(flow.0 as usize), Interest::READABLE | Interest::WRITABLE)
    }

    /// Sees to it that one more connection fits the limits; closes the one that has been idle longest if need be.
    fn make_room(&mut self, transport: Transport) -> bool {
        let tls = matches!(transport, Transport::Tls | Transport::Wss);
        let full = self.peers.open() >= self.desk.settings.max;
        let tls_full = tls && self.peers.open_tls() >= self.desk.settings.tls_max;
        if !full && !tls_full {
            return true;
        }
        let Some(idle) = self.connections.longest_idle(tls_full, self.desk.now) else { return false };
        self.close(idle, Ended::Evicted);
        true
    }

    // --- reading ------------------------------------------------------------------------------------------------------

    /// Reads from one connection that has something; returns whether there was one.
    pub(crate) fn read_next(&mut self, up: &mut dyn Upward) -> bool {
        let Some(flow) = self.ready.pop_front() else { return false };
        let Some(connection) = self.connections.get_mut(flow) else { return true };
        connection.ready = false;
        let read = connection.read(&mut self.buffer, &mut self.desk, up);
        if read == Ok(Read::Some) {
            connection.ready = true;
            self.ready.push_back(flow);
        }
        self.after_input(flow, read);
        true
    }

    /// Messages received since the start.
    pub(crate) fn messages_received(&self) -> u64 {
        self.desk.statistics.messages_received
    }

    /// Whether a connection waits to be read from.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    fn after_input(&mut self, flow: FlowId, read: Result<Read, Ended>) {
        let Some(connection) = self.connections.get_mut(flow) else { return };
        match read {
            Err(why) => return self.close(flow, why),
            // Who has finished cannot answer what is about to be written: it takes another way.
            Ok(Read::Last) if !connection.owes() && self.fresh.asked(flow) > 0 => {
                return self.close(flow, Ended::Reset);
            }
            Ok(Read::Last) => {
                connection.half_close(self.desk.now);
                // It may still be told something, but it answers nothing.
                self.tell_of_loss(flow, Ended::ByPeer);
            }
            Ok(_) => {}
        }
        self.after(flow);
    }

    /// Looks after a connection to which something has happened.
    fn after(&mut self, flow: FlowId) {
        let Some(connection) = self.connections.get_mut(flow) else { return };
        if let Some(why) = connection.is_over() {
            return self.close(flow, why);
        }
        if connection.queued() > 0 && !connection.dirty {
            connection.dirty = true;
            self.dirty.push(flow);
        }
        let deadline = connection.deadline(&self.desk.settings);
        self.connections.schedule(flow, deadline);
        self.connections.touch(flow, self.desk.now);
    }

    // --- sending ------------------------------------------------------------------------------------------------------

    /// Sends a message of this shard's engine; `domain` is whom a TLS connection that is opened for it must lead to.
    pub(crate) fn send(&mut self, path: Path, domain: &[u8], message: &[u8]) {
        if !path.flow.is_one() {
            return self.send_to(path.remote, path, domain, message, Find::Anywhere);
        }
        match self.send_on(path.flow, path, message) {
            Sent::Yes => {}
            Sent::Gone => self.send_anew(path, domain, message),
            Sent::Lost => self.fail(path, self.index),
        }
    }

    /// A message that another shard could not send, as its connection had gone.
    pub(crate) fn bounced(&mut self, path: Path, domain: &[u8], message: &[u8]) {
        if !path.flow.is_one() {
            return self.send_to(path.remote, path, domain, message, Find::Here);
        }
        self.send_anew(path, domain, message);
    }

    /// RFC 3261 §18.2.2: a response whose connection has gone goes to the port of its sent-by.
    fn send_anew(&mut self, path: Path, domain: &[u8], message: &[u8]) {
        if path.fallback_port == 0 {
            return self.fail(path, self.index);
        }
        let remote = SocketAddr::new(path.remote.ip(), path.fallback_port);
        self.send_to(remote, path, domain, message, Find::Anywhere);
    }

    /// Sends by the connection that leads to `remote`, or opens one.
    fn send_to(&mut self, remote: SocketAddr, path: Path, domain: &[u8], message: &[u8], find: Find) {
        let Some(transport) = self.transport(path.listener) else { return };
        let key = self.peers.key(transport, remote, domain);
        let found = self.peers.find(&key).filter(|flow| find == Find::Anywhere || self.is_own(*flow));
        if let Some(flow) = found {
            match self.send_on(flow, path, message) {
                Sent::Yes => return,
                Sent::Lost => return self.fail(path, self.index),
                Sent::Gone => {}
            }
        }
        if path.flow == FlowId::STANDING {
            return self.fail(path, self.index);
        }
        match self.open(transport, remote, path, domain, key) {
            Some(flow) if self.deliver(flow, path, self.index, message) == Sent::Yes => {}
            _ => self.fail(path, self.index),
        }
    }

    /// Sends by a connection, be it another shard's.
    fn send_on(&mut self, flow: FlowId, path: Path, message: &[u8]) -> Sent {
        if self.is_own(flow) {
            return self.deliver(flow, path, self.index, message);
        }
        match self.posts.get(shard_of(flow)) {
            Some(post) if post.outgoing(self.index, flow, path, message) => Sent::Yes,
            Some(_) => Sent::Lost,
            None => Sent::Gone,
        }
    }

    fn is_own(&self, flow: FlowId) -> bool {
        shard_of(flow) == self.index
    }

    /// Another shard's message for a connection of this one.
    pub(crate) fn outgoing(
        &mut self,
        from: usize,
        flow: FlowId,
        path: Path,
        message: Vec<u8>,
    ) -> Option<Vec<u8>> {
        match self.deliver(flow, path, from, &message) {
            Sent::Yes => Some(message),
            Sent::Gone => {
                if let Some(post) = self.posts.get(from) {
                    post.send(Parcel::Bounced { path, bytes: message });
                }
                None
            }
            Sent::Lost => {
                self.fail(path, from);
                Some(message)
            }
        }
    }

    /// Gives a message to a connection of this shard.
    fn deliver(&mut self, flow: FlowId, path: Path, origin: usize, message: &[u8]) -> Sent {
        let Some(connection) = self.connections.get_mut(flow) else { return Sent::Gone };
        let unanswerable = !path.flow.is_one() && connection.answers_nothing();
        if unanswerable || !connection.takes_messages() {
            return Sent::Gone;
        }
        if let State::Connecting(waiting) | State::Securing(waiting) = &mut connection.state {
            let settings = &self.desk.settings;
            let full = waiting.messages.len() >= settings.connect_queue_messages_max
                || waiting.bytes.len() + message.len() > settings.write_queue_bytes_max
                || self.desk.queued_bytes + message.len() > settings.write_queue_total_bytes_max;
            if full {
                return Sent::Lost;
            }
            waiting.bytes.extend_from_slice(message);
            waiting.messages.push(Held { path, origin, len: message.len() });
            self.desk.queued_bytes += message.len();
            return Sent::Yes;
        }
        match connection.append(message, origin, &mut self.desk) {
            Ok(()) => {
                if !connection.keep_last_word(path, origin, message) {
                    self.fresh.keep(flow, path, origin, message);
                }
                self.after(flow);
                Sent::Yes
            }
            Err(why) => {
                self.close(flow, why);
                Sent::Lost
            }
        }
    }

    fn transport(&self, listener: ListenerId) -> Option<Transport> {
        self.acceptors.get(usize::from(listener.0))?.as_ref().map(Acceptor::transport)
    }

    /// Writes what has gathered in this turn: one write for each connection.
    pub(crate) fn write_all(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for flow in dirty.drain(..) {
            let Some(connection) = self.connections.get_mut(flow) else { continue };
            connection.dirty = false;
            match connection.write(&mut self.desk) {
                Err(why) => self.close(flow, why),
                Ok(()) => {
                    if let Some(why) = connection.is_over() {
                        self.close(flow, why);
                    } else if connection.queued() > 0 || !matches!(connection.state, State::Open) {
                        let deadline = connection.deadline(&self.desk.settings);
                        self.connections.schedule(flow, deadline);
                    }
                }
            }
        }
        self.dirty.append(&mut dirty);
        self.fresh.clear();
    }

    /// A way by which something was lost, of which the engine is to be told.
    pub(crate) fn next_failure(&mut self) -> Option<(Path, TransportFailure)> {
        self.failed.pop_front()
    }

    /// What the shard `origin` wanted sent this way has not left.
    fn fail(&mut self, path: Path, origin: usize) {
        self.desk.statistics.messages_unsent += 1;
        self.tell(path, TransportFailure::Unreachable, origin);
    }

    fn tell(&mut self, path: Path, failure: TransportFailure, origin: usize) {
        if origin != self.index {
            if let Some(post) = self.posts.get(origin) {
                post.send(Parcel::Failed { path, failure });
            }
        } else if self.failed.len() < FAILURES_MAX {
            self.failed.push_back((path, failure));
        }
    }

    /// Another shard tells that what was sent this way is lost, or may be.
    pub(crate) fn failed(&mut self, path: Path, failure: TransportFailure) {
        self.tell(path, failure, self.index);
    }

    // --- connecting ---------------------------------------------------------------------------------------------------

    /// Begins a connection; `None` if there can be none.
    fn open(
        &mut self,
        transport: Transport,
        remote: SocketAddr,
        path: Path,
        domain: &[u8],
        key: Key,
    ) -> Option<FlowId> {
        // RFC 7118 §5: WebSocket connections are opened by clients only.
        let opens = match transport {
            Transport::Tcp => true,
            Transport::Tls => self.tls.is_some(),
            _ => false,
        };
        if !opens || self.desk.settings.no_connect || !self.make_room(transport) {
            return None;
        }
        let from = self.acceptors.get(usize::from(path.listener.0))?.as_ref()?.address().ip();
        let socket = match tcp::connect(remote, from, &self.desk.settings) {
            Ok(socket) => socket,
            Err(error) => {
                self.desk.statistics.connect_failures += 1;
                self.desk.statistics.no_descriptors += u64::from(tcp::is_want_of_descriptors(&error));
                tracing::debug!(%remote, ?transport, domain = %String::from_utf8_lossy(domain), %error, "cannot connect");
                return None;
            }
        };
        let waiting = Waiting { domain: domain.into(), ..Waiting::default() };
        let state = State::Connecting(Box::new(waiting));
        let path = Path::new(path.listener, None, remote);
        let connection = Connection::new(socket, state, transport, path, key, self.desk.now);
        let flow = self.insert(connection)?;
        if let Err(error) = self.register(flow) {
            tracing::warn!(%error, "cannot watch a connection; it is not opened");
            self.close(flow, Ended::ConnectFailed);
            return None;
        }
        Some(flow)
    }

    /// The network has answered to an attempt to connect.
    fn finish_connect(&mut self, flow: FlowId) {
        let Some(connection) = self.connections.get_mut(flow) else { return };
        let Some(socket) = &connection.socket else { return };
        match tcp::is_connected(socket) {
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(remote = %connection.remote, transport = ?connection.transport, %error, "cannot connect");
                self.close(flow, Ended::ConnectFailed);
            }
            Ok(true) => {
                let wildcard = self
                    .acceptors
                    .get(usize::from(connection.listener.0))
                    .and_then(Option::as_ref)
                    .is_some_and(|acceptor| acceptor.address().ip().is_unspecified());
                if wildcard {
                    connection.local = socket.local_addr().ok().map(|local| local.ip());
                }
                if connection.is_tls() {
                    self.secure_connected(flow);
                } else {
                    self.established(flow);
                }
            }
        }
    }

    /// A connection to a peer is there: what has waited for it goes out.
    fn established(&mut self, flow: FlowId) {
        let Some(connection) = self.connections.get_mut(flow) else { return };
        let accepted = connection.accepted;
        self.desk.statistics.connected += u64::from(!accepted);
        connection.active = self.desk.now;
        let before = std::mem::replace(&mut connection.state, State::Open);
        let (State::Connecting(waiting) | State::Securing(waiting)) = before else { return };
        let Waiting { bytes, messages, .. } = *waiting;
        self.desk.queued_bytes -= bytes.len();
        let mut at = 0;
        for Held { path, origin, len } in messages {
            let message = bytes.get(at..at + len).unwrap_or(&[]);
            at += len;
            if self.deliver(flow, path, origin, message) != Sent::Yes {
                self.fail(path, origin);
            }
        }
        self.fresh.forget(flow);
        // What the event told besides is not told again.
        if let Some(connection) = self.connections.get_mut(flow)
            && !connection.ready
        {
            connection.ready = true;
            self.ready.push_back(flow);
        }
        self.after(flow);
    }

    // --- TLS ----------------------------------------------------------------------------------------------------------

    /// Hands an accepted connection to those who shake hands.
    fn secure_accepted(&mut self, flow: FlowId, local: SocketAddr) {
        let Some(connection) = self.connections.get_mut(flow) else { return };
        connection.state = State::Securing(Box::default());
        let remote = connection.remote;
        let Some(socket) = connection.socket.take() else { return };
        let handed = match (&self.tls, self.posts.get(self.index)) {
            (Some(pool), Some(post)) => pool.accept(socket.into(), local, remote, flow, post).is_ok(),
            _ => false,
        };
        if !handed {
            self.close(flow, Ended::HandshakesFull);
        }
    }

    /// The same with one that was opened.
    fn secure_connected(&mut self, flow: FlowId) {
        let Some(connection) = self.connections.get_mut(flow) else { return };
        let remote = connection.remote;
        let Some(mut socket) = connection.socket.take() else { return };
        let before = std::mem::replace(&mut connection.state, State::Open);
        let State::Connecting(waiting) = before else { return };
        let domain = waiting.domain.clone();
        connection.state = State::Securing(waiting);
        if let Err(error) = self.registry.deregister(&mut socket) {
            tracing::warn!(%error, "cannot give a connection away; it is closed");
            return self.close(flow, Ended::ConnectFailed);
        }
        let name = (!domain.is_empty()).then_some(&domain[..]);
        let handed = match (&self.tls, self.posts.get(self.index)) {
            (Some(pool), Some(post)) => pool.connect(socket.into(), remote, name, flow, post).is_ok(),
            _ => false,
        };
        if !handed {
            self.close(flow, Ended::HandshakesFull);
        }
    }

    /// A handshake has ended.
    pub(crate) fn secured(
        &mut self,
        flow: FlowId,
        result: Result<Box<Secured>, HandshakeError>,
        up: &mut dyn Upward,
    ) {
        let Some(connection) = self.connections.get_mut(flow) else { return };
        if !matches!(connection.state, State::Securing(_)) {
            return;
        }
        let secured = match result {
            Ok(secured) => *secured,
            Err(error) => {
                tracing::debug!(remote = %connection.remote, %error, "TLS handshake failed");
                self.count_handshake_error(&error);
                return self.close(flow, Ended::Handshake);
            }
        };
        let Secured { socket, session, plaintext } = secured;
        connection.secured(TcpStream::from_std(socket), session);
        if let Err(error) = self.register(flow) {
            tracing::warn!(%error, "cannot watch a connection; it is closed");
            return self.close(flow, Ended::Reset);
        }
        self.established(flow);
        let Some(connection) = self.connections.get_mut(flow) else { return };
        // What came with the last flight; the end may have been in it as well.
        let received = connection.receive_plain(&plaintext, &mut self.desk, up);
        let received = received.and_then(|()| connection.receive(&mut [], &mut self.desk, up));
        self.after_input(flow, received.map(|last| if last { Read::Last } else { Read::All }));
    }

    fn count_handshake_error(&mut self, error: &HandshakeError) {
        match error {
            HandshakeError::NotTls(NotTls::Sip) => self.desk.statistics.tls_clear_sip += 1,
            HandshakeError::NotTls(NotTls::Http) => self.desk.statistics.tls_clear_http += 1,
            _ => {}
        }
    }

    // --- aliases ------------------------------------------------------------------------------------------------------

    /// RFC 5923: a connection may be used for requests to the peer's own port.
    pub(crate) fn alias(&mut self, path: Path, port: u16) {
        if port == 0 {
            return;
        }
        if !self.is_own(path.flow) {
            if let Some(post) = self.posts.get(shard_of(path.flow)) {
                post.send(Parcel::Alias { path, port });
            }
            return;
        }
        let Some(connection) = self.connections.get_mut(path.flow) else { return };
        let remote = SocketAddr::new(connection.remote.ip(), port);
        let keys: Vec<Key> = if connection.is_tls() {
            let names = connection.session().map(proved_names).unwrap_or_default();
            let proves = |name: &String| name.parse::<IpAddr>().map_or(true, |ip| ip == remote.ip());
            let domain =
                |name: &String| if name.parse::<IpAddr>().is_ok() { String::new() } else { name.clone() };
            let names = names.iter().filter(|name| proves(name)).map(domain);
            names.map(|name| self.peers.key(connection.transport, remote, name.as_bytes())).collect()
        } else {
            [self.peers.key(connection.transport, remote, b"")].into()
        };
        let before = connection.alias.take();
        for key in before.iter().flat_map(|alias| &alias.keys) {
            self.peers.remove(key, path.flow);
        }
        for key in &keys {
            self.peers.insert(*key, path.flow);
        }
        connection.alias = (!keys.is_empty()).then_some(Alias { remote, keys });
    }

    // --- ending -------------------------------------------------------------------------------------------------------

    /// Looks after the connections whose time has come; returns whether more are left.
    pub(crate) fn deadlines(&mut self) -> bool {
        for _ in 0..DEADLINES_PER_TURN {
            let Some(flow) = self.connections.take_due(self.desk.now) else { return false };
            let Some(connection) = self.connections.get_mut(flow) else { continue };
            match connection.expired(&mut self.desk) {
                Some(why) => self.close(flow, why),
                None => {
                    if connection.queued() > 0 && !connection.dirty {
                        connection.dirty = true;
                        self.dirty.push(flow);
                    }
                    let deadline = connection.deadline(&self.desk.settings);
                    self.connections.schedule(flow, deadline);
                }
            }
        }
        true
    }

    /// Ends a connection, and tells those who wait for something from it.
    fn close(&mut self, flow: FlowId, why: Ended) {
        if why == Ended::Reset
            && let Some(connection) = self.connections.get_mut(flow)
        {
            let all = connection.forget_asked(self.fresh.asked(flow));
            self.fresh.bounce(flow, all, &self.posts);
            self.fresh.forget(flow);
        }
        self.tell_of_loss(flow, why);
        let Some(mut connection) = self.connections.remove(flow) else { return };
        self.desk.statistics.ended(why);
        if why == Ended::Reset {
            for LastWord { path, origin, bytes } in connection.take_last_words() {
                if let Some(post) = self.posts.get(origin) {
                    post.send(Parcel::Bounced { path, bytes });
                }
            }
        }
        if matches!(why, Ended::ByPeer | Ended::Idle | Ended::Evicted | Ended::Stopped) {
            connection.close(&mut self.desk);
        }
        let (tls, source) = (connection.is_tls(), connection.remote.ip());
        self.peers.remove(&connection.key, flow);
        for key in connection.alias.iter().flat_map(|alias| &alias.keys) {
            self.peers.remove(key, flow);
        }
        self.peers.closed(tls);
        if connection.accepted {
            self.peers.dismiss(source);
        }
        if let Some(mut socket) = connection.socket.take() {
            let _ = self.registry.deregister(&mut socket);
        }
        connection.give_back(&mut self.desk);
        if let State::Connecting(waiting) | State::Securing(waiting) = connection.state {
            self.desk.queued_bytes -= waiting.bytes.len();
            for Held { path, origin, .. } in waiting.messages {
                self.fail(path, origin);
            }
        }
    }

    /// Tells those whose requests will not be answered on a connection (RFC 3261 §18.4).
    fn tell_of_loss(&mut self, flow: FlowId, why: Ended) {
        let Some(connection) = self.connections.get_mut(flow) else { return };
        let bereaved = connection.take_bereaved(why, self.desk.now);
        let path = connection.path();
        let aliased = connection.alias.as_ref().map(|alias| Path { remote: alias.remote, ..path });
        for origin in (0..64).filter(|origin| bereaved >> origin & 1 == 1) {
            self.tell(path, TransportFailure::Broken, origin);
            if let Some(aliased) = aliased {
                self.tell(aliased, TransportFailure::Broken, origin);
            }
        }
    }

    /// No further connections.
    pub(crate) fn stop_listening(&mut self) {
        for acceptor in self.acceptors.iter_mut().flatten() {
            acceptor.stop(&self.registry);
        }
    }

    /// The end: every connection is closed in order.
    pub(crate) fn stop(&mut self) {
        self.stop_listening();
        for flow in self.connections.flows() {
            self.close(flow, Ended::Stopped);
        }
    }
}

/// What one turn sends, until the kernel has taken it: of a connection that turns out to be reset when it is written, none
/// of it has arrived. Responses then go to the sent-by of their requests (RFC 3261 §18.2.2), requests by another connection.
#[derive(Debug, Default)]
struct Fresh {
    bytes: Vec<u8>,
    kept: Vec<Kept>,
}

/// One message of a [`Fresh`].
#[derive(Debug)]
struct Kept {
    flow: FlowId,
    path: Path,
    origin: usize,
    bytes: std::ops::Range<usize>,
    /// It is answered: no response, and no ACK.
    asks: bool,
}

impl Fresh {
    fn keep(&mut self, flow: FlowId, path: Path, origin: usize, message: &[u8]) {
        let asks = !path.flow.is_one() && !message.starts_with(b"ACK ") && !message.starts_with(b"SIP/");
        if path.flow.is_one() && path.fallback_port == 0 {
            return;
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(message);
        self.kept.push(Kept { flow, path, origin, bytes: start..self.bytes.len(), asks });
    }

    /// How many of them a connection's peer is to answer.
    fn asked(&self, flow: FlowId) -> usize {
        self.kept.iter().filter(|kept| kept.flow == flow && kept.asks).count()
    }

    /// Hands those of one connection back to the shards that they came from; requests only if they are `all` that was
    /// asked there: otherwise the engine has been told that everything is lost that waits at that peer.
    fn bounce(&self, gone: FlowId, all: bool, posts: &[Post]) {
        for kept in self.kept.iter().filter(|kept| kept.flow == gone && (all || !kept.asks)) {
            let bytes = self.bytes.get(kept.bytes.clone());
            if let (Some(bytes), Some(post)) = (bytes, posts.get(kept.origin)) {
                post.send(Parcel::Bounced { path: kept.path, bytes: bytes.to_vec() });
            }
        }
    }

    /// A connection that was opened for them is no second time replaced.
    fn forget(&mut self, flow: FlowId) {
        self.kept.retain(|kept| kept.flow != flow);
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.kept.clear();
    }
}

/// What the peer of a session has proved to be: over TLS an address alone proves nothing (RFC 5923 §9).
fn proved_names(session: &Session) -> Vec<String> {
    /// Names by which one connection is found, at most.
    const NAMES_MAX: usize = 16;
    let facts = session.facts();
    let mut names = if facts.peer_verified { facts.names } else { Vec::new() };
    names.truncate(NAMES_MAX);
    names
}

/// Where a connection may be that leads to an address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Find {
    Anywhere,
    /// In this shard: another's has just been found to have gone.
    Here,
}
