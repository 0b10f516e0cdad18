//! One connection of a stream transport, seen by the test byte by byte: TCP, TLS, and WebSocket over either.

use std::fmt;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ServerConfig, ServerConnection};
use socket2::{Domain, Protocol, Socket, Type};

use crate::websocket::{self, Frame};
use crate::{Credentials, Message, PATIENCE, Transport};

/// How long a connection that has nothing to read is left alone.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The peer closed it.
    Closed,
    /// It broke: a reset, or no way to the peer.
    Broken,
    /// TLS failed; rustls says why (`received fatal alert: …` where the peer did).
    Tls(String),
}

/// What came over a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// A whole message.
    Message(Vec<u8>),
    /// CRLF between messages: the answer to a ping (RFC 5626 §3.5.1).
    Pong,
    /// A frame of WebSocket that is no message.
    Frame(Frame),
}

/// A connection between the test and a server or peer. It answers pings of WebSocket, nothing else, by itself.
pub struct Connection {
    transport: Transport,
    socket: TcpStream,
    tls: Option<Box<rustls::Connection>>,
    /// In clear, not yet taken.
    received: Vec<u8>,
    ended: Option<Ending>,
}

impl Connection {
    /// Connects to a server.
    ///
    /// # Panics
    ///
    /// When that fails.
    pub fn open(transport: Transport, server: SocketAddr, credentials: Option<&Credentials>) -> Self {
        Self::attempt(transport, None, server, credentials)
            .unwrap_or_else(|error| panic!("{} to {server}: {error}", transport.via()))
    }

    /// Connects to a server, from an address of ours if one is given.
    ///
    /// # Errors
    ///
    /// Why not, in words: of the operating system, of TLS, or the HTTP response that refused the upgrade.
    pub fn attempt(
        transport: Transport,
        local: Option<IpAddr>,
        server: SocketAddr,
        credentials: Option<&Credentials>,
    ) -> Result<Self, String> {
        Self::attempt_named(transport, local, server, credentials, ServerName::from(server.ip()))
    }

    /// As [`Connection::attempt`], with a host name to ask for (SNI) and to be proved.
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Panics
    ///
    /// When a secure transport is given no credentials.
    pub fn attempt_named(
        transport: Transport,
        local: Option<IpAddr>,
        server: SocketAddr,
        credentials: Option<&Credentials>,
        name: ServerName<'static>,
    ) -> Result<Self, String> {
        let socket = dial(local, server).map_err(|error| error.to_string())?;
        let mut connection = Self::new(transport, socket);
        if transport.is_secure() {
            let credentials = credentials.expect("TLS needs credentials");
            let tls = ClientConnection::new(Arc::clone(&credentials.client), name);
            connection.tls = Some(Box::new(tls.map_err(|error| error.to_string())?.into()));
            connection.shake_hands()?;
        }
        if transport.is_websocket() {
            connection.upgrade(&websocket::upgrade_request(server, ""))?;
        }
        Ok(connection)
    }

    /// One that a phone's listener has accepted. Its handshake goes on whenever it is looked at.
    pub(crate) fn accepted(transport: Transport, socket: TcpStream, tls: Option<&Arc<ServerConfig>>) -> Self {
        let mut connection = Self::new(transport, socket);
        if let Some(configuration) = tls.filter(|_| transport.is_secure()) {
            let tls = ServerConnection::new(Arc::clone(configuration));
            let tls = tls.expect("invariant: rustls checked the configuration when it was built");
            connection.tls = Some(Box::new(tls.into()));
        }
        connection
    }

    /// Over a socket that is connected already, in clear.
    pub fn on(transport: Transport, socket: TcpStream) -> Self {
        Self::new(transport, socket)
    }

    fn new(transport: Transport, socket: TcpStream) -> Self {
        socket.set_nonblocking(true).expect("invariant: a socket can be told not to block");
        socket.set_nodelay(true).expect("invariant: a TCP socket can be told not to gather");
        Self { transport, socket, tls: None, received: Vec::new(), ended: None }
    }

    fn shake_hands(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            self.pump();
            match &self.ended {
                Some(Ending::Tls(error)) => return Err(error.clone()),
                Some(ending) => return Err(format!("{ending:?} during the handshake")),
                None if Instant::now() > deadline => return Err("the handshake takes too long".to_owned()),
                None => thread::sleep(PAUSE),
            }
        }
        Ok(())
    }

    /// Asks for WebSocket with this HTTP request.
    ///
    /// # Errors
    ///
    /// The head of the HTTP response if it refuses, or how the connection ended.
    pub fn upgrade(&mut self, request: &str) -> Result<(), String> {
        self.send(request);
        let head = self.http_head()?;
        if websocket::is_accepted(&head) { Ok(()) } else { Err(head) }
    }

    /// The same connection once its upgrade to WebSocket is answered: what follows is frames.
    #[must_use]
    pub fn as_websocket(mut self) -> Self {
        self.transport = if self.transport.is_secure() { Transport::Wss } else { Transport::Ws };
        self
    }

    /// The head of the HTTP response that comes next.
    ///
    /// # Errors
    ///
    /// How the connection ended if none comes.
    pub fn http_head(&mut self) -> Result<String, String> {
        let head = self.until(PATIENCE, |connection| websocket::take_head(&mut connection.received));
        head.ok_or_else(|| format!("no HTTP response; the connection: {:?}", self.ended))
    }

    /// Our address.
    ///
    /// # Panics
    ///
    /// Never: the socket is connected.
    pub fn local_address(&self) -> SocketAddr {
        self.socket.local_addr().expect("invariant: the socket is bound")
    }

    /// The session of TLS, if there is one.
    pub fn tls(&self) -> Option<&rustls::Connection> {
        self.tls.as_deref()
    }

    /// Sends bytes; over WebSocket as they are, so that frames can be malformed.
    ///
    /// # Panics
    ///
    /// When the peer does not take them.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let sent = self.try_send(bytes.as_ref());
        sent.unwrap_or_else(|error| panic!("sending over {}: {error}", self.transport.via()));
    }

    /// Sends bytes.
    ///
    /// # Errors
    ///
    /// What the operating system says, or that the peer takes nothing.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            None => write_all(&mut self.socket, bytes),
            Some(tls) => {
                tls.set_buffer_limit(None);
                tls.writer().write_all(bytes)?;
                flush(tls, &mut self.socket)
            }
        }
    }

    /// Sends one message, in a frame where the transport has them.
    pub fn send_message(&mut self, message: impl AsRef<[u8]>) {
        match self.transport.is_websocket() {
            true => self.send(websocket::frame(Frame::TEXT, message.as_ref())),
            false => self.send(message),
        }
    }

    /// What comes next, if something does within the limit.
    pub fn receive(&mut self, limit: Duration) -> Option<Received> {
        self.until(limit, Self::take)
    }

    /// The next message must come; pongs on the way are skipped.
    ///
    /// # Panics
    ///
    /// When none does.
    pub fn expect_message(&mut self) -> Message {
        let message = self.until(PATIENCE, |connection| {
            loop {
                if let Received::Message(bytes) = connection.take()? {
                    return Message::parse(&bytes);
                }
            }
        });
        message.unwrap_or_else(|| panic!("no message came; {self:?}"))
    }

    /// The next final response must have this status.
    ///
    /// # Panics
    ///
    /// When it has another, or none comes.
    pub fn expect_response(&mut self, status: u16) -> Message {
        loop {
            let message = self.expect_message();
            if message.status().is_none_or(|found| found >= 200) {
                assert_eq!(message.status(), Some(status), "{message}");
                return message;
            }
        }
    }

    /// The peer must end the connection; what it sends before is skipped.
    ///
    /// # Panics
    ///
    /// When it does not within the limit.
    pub fn expect_end(&mut self, limit: Duration) -> Ending {
        let ended = self.until(limit, |connection| {
            connection.received.clear();
            connection.ended.clone()
        });
        ended.unwrap_or_else(|| panic!("the connection does not end; {self:?}"))
    }

    /// How it ended, if it has.
    pub fn ending(&mut self) -> Option<Ending> {
        self.pump();
        self.ended.clone()
    }

    /// Says that nothing more will be sent (with the alert of TLS) and goes on reading.
    pub fn finish_sending(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            // A peer that has gone has no need to be told.
            let _ = flush(tls, &mut self.socket);
        }
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Ends it in order, and waits until the peer has done the same: it knows then.
    pub fn close(mut self) {
        self.finish_sending();
        self.expect_end(PATIENCE);
    }

    /// Ends it with a reset instead of an orderly close: the peer can send nothing from now on, whether it has looked
    /// or not.
    pub fn reset(self) {
        reset(&self.socket);
    }

    fn until<T>(&mut self, limit: Duration, mut take: impl FnMut(&mut Self) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + limit;
        loop {
            self.pump();
            if let Some(found) = take(self) {
                return Some(found);
            }
            if self.ended.is_some() || Instant::now() >= deadline {
                return None;
            }
            thread::sleep(PAUSE);
        }
    }

    /// Reads and decrypts what has come.
    pub(crate) fn pump(&mut self) {
        if self.ended.is_none() {
            self.ended = match &mut self.tls {
                None => read_plain(&mut self.socket, &mut self.received),
                Some(tls) => read_tls(&mut self.socket, tls, &mut self.received),
            };
        }
    }

    /// Takes one thing off what has come, if it is whole.
    pub(crate) fn take(&mut self) -> Option<Received> {
        if !self.transport.is_websocket() {
            return take_message(&mut self.received);
        }
        let frame = websocket::take_frame(&mut self.received)?;
        match frame.opcode {
            Frame::TEXT | Frame::BINARY if frame.payload.iter().all(|byte| b"\r\n".contains(byte)) => {
                Some(Received::Pong)
            }
            Frame::TEXT | Frame::BINARY => Some(Received::Message(frame.payload)),
            Frame::PING => {
                // A peer that has gone waits for no pong.
                let _ = self.try_send(&websocket::frame(Frame::PONG, &frame.payload));
                Some(Received::Frame(frame))
            }
            _ => Some(Received::Frame(frame)),
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let received = String::from_utf8_lossy(&self.received);
        write!(f, "{} {:?}, {:?}, not taken: {received:?}", self.transport.via(), self.socket, self.ended)
    }
}

/// A blank line or a whole message at the front of a stream, taken off (RFC 3261 §18.3).
///
/// # Panics
///
/// When a message has no Content-Length, which a stream needs (RFC 3261 §20.14).
fn take_message(received: &mut Vec<u8>) -> Option<Received> {
    if received.starts_with(b"\r\n") {
        received.drain(..2);
        return Some(Received::Pong);
    }
    let head = received.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let message = Message::parse(&received[..head]);
    let length = message.as_ref().and_then(|message| message.find("Content-Length")?.parse::<usize>().ok());
    let text = String::from_utf8_lossy(&received[..head]);
    let length = length.unwrap_or_else(|| panic!("a message on a stream without Content-Length:\n{text}"));
    received.get(..head + length)?;
    Some(Received::Message(received.drain(..head + length).collect()))
}

/// Connects from an address of ours, or any.
pub(crate) fn dial(local: Option<IpAddr>, server: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, Some(Protocol::TCP))?;
    if let Some(local) = local {
        socket.bind(&SocketAddr::new(local, 0).into())?;
    }
    socket.connect_timeout(&server.into(), PATIENCE)?;
    Ok(socket.into())
}

/// Ends a connection with a reset (RST), which leaves nothing behind in either kernel.
///
/// It is sent at once. That of a socket which is dropped with a linger of zero waits for the last copy of the descriptor:
/// a child has one until it has become its own program, and so long the server writes to a phone that has gone.
pub(crate) fn reset(socket: &TcpStream) {
    // connect(2): an address without family dissolves the association.
    rustix::net::connect_unspec(socket).expect("invariant: a TCP socket can be disconnected");
}

fn read_plain(socket: &mut TcpStream, received: &mut Vec<u8>) -> Option<Ending> {
    let mut buffer = [0; 16_384];
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return Some(Ending::Closed),
            Ok(length) => received.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Some(Ending::Broken),
        }
    }
}

fn read_tls(socket: &mut TcpStream, tls: &mut rustls::Connection, received: &mut Vec<u8>) -> Option<Ending> {
    let ending = loop {
        match tls.read_tls(socket) {
            Ok(0) => break Some(Ending::Closed),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break None,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => break Some(Ending::Broken),
        }
        match tls.process_new_packets() {
            Ok(state) => {
                let mut clear = vec![0; state.plaintext_bytes_to_read()];
                let read = tls.reader().read_exact(&mut clear);
                read.expect("invariant: rustls said how much there is");
                received.extend(clear);
                if state.peer_has_closed() {
                    break Some(Ending::Closed);
                }
            }
            Err(error) => break Some(Ending::Tls(error.to_string())),
        }
    };
    // What rustls has to say by itself: its part of the handshake, an alert. A peer that has gone misses nothing.
    let _ = flush(tls, socket);
    ending
}

fn flush(tls: &mut rustls::Connection, socket: &mut TcpStream) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while tls.wants_write() {
        match tls.write_tls(socket) {
            Ok(_) => {}
            Err(error) => wait_to_write(error, deadline)?,
        }
    }
    Ok(())
}

fn write_all(socket: &mut TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !bytes.is_empty() {
        match socket.write(bytes) {
            Ok(length) => bytes = &bytes[length..],
            Err(error) => wait_to_write(error, deadline)?,
        }
    }
    Ok(())
}

/// Waits a little if the error only says that there is no room, and the deadline is not over.
fn wait_to_write(error: io::Error, deadline: Instant) -> io::Result<()> {
    match error.kind() {
        ErrorKind::Interrupted => Ok(()),
        ErrorKind::WouldBlock if Instant::now() < deadline => {
            thread::sleep(PAUSE);
            Ok(())
        }
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn a_reset_arrives_at_once_though_the_descriptor_has_a_copy() -> io::Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let socket = TcpStream::connect(listener.local_addr()?)?;
        let (mut peer, _) = listener.accept()?;
        let _copy = socket.try_clone()?;
        Connection::on(Transport::Tcp, socket).reset();
        let written = peer.write(b"x").map_err(|error| error.kind());
        assert_eq!(written, Err(ErrorKind::ConnectionReset));
        Ok(())
    }

    #[test]
    fn messages_are_taken_off_a_stream_one_by_one() {
        let first = b"SIP/2.0 200 OK\r\nl: 2\r\n\r\nab".as_slice();
        let mut stream = [b"\r\n", first, b"SIP/2.0 100 Trying\r\nContent-Length: 0\r\n\r"].concat();
        assert_eq!(take_message(&mut stream), Some(Received::Pong));
        assert_eq!(take_message(&mut stream), Some(Received::Message(first.to_vec())));
        assert_eq!(take_message(&mut stream), None);
        stream.push(b'\n');
        assert!(matches!(take_message(&mut stream), Some(Received::Message(_))));
    }
}
