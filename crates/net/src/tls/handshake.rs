//! One handshake on one socket, without waiting: reads, thinks and writes as far as it gets.
//!
//! A server's begins by looking at the ClientHello alone, because address and name (SNI) decide which profile,
//! with its certificates and its demands, the rest is done with.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::{Acceptor, UnbufferedServerConnection};
use rustls::{CertificateError, Error};

use super::der::Facts;
use super::error::{HandshakeError, NotTls};
use super::identity;
use super::profiles::Loaded;
use super::session::{Begun, Connection, Session, Stand};
use super::{Secured, Tls};

/// Bytes that one side may send during a handshake, and with its last flight.
const RECEIVED_BYTES_MAX: usize = 256 * 1024;

/// Bytes of a ClientHello with its records: those of today's clients have one or two kilobytes, and a ticket
/// with a chain of certificates in it some more. As many may lie here for each handshake that the limit allows.
const HELLO_BYTES_MAX: usize = 32 * 1024;

/// The alert `unrecognized_name`, fatal, in a record (RFC 8446 §5.1, §6.2): there is no connection yet to make
/// it.
const UNRECOGNISED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// A handshake under way.
pub(super) struct Handshake {
    pub(super) socket: TcpStream,
    stage: Stage,
    /// Received and not used up.
    incoming: Vec<u8>,
    received: usize,
    /// To be written, from `written` on.
    outgoing: Vec<u8>,
    written: usize,
    /// Application data that came with the last flight.
    plaintext: Vec<u8>,
    server_name: Option<Box<str>>,
    verifies: bool,
    peer_closed: bool,
}

enum Stage {
    /// Server: waiting for all of the ClientHello.
    Hello { acceptor: Box<Acceptor>, local: SocketAddr },
    /// In the middle of it.
    Going(Box<Connection>),
    /// Done but for what is left to be written.
    Done(Box<Connection>),
    /// Nothing more can come of it.
    Over,
}

/// How far a handshake is.
pub(super) enum Progress {
    /// The socket must become readable or writable first.
    Waits,
    /// [`Handshake::finish`] gives the session.
    Done,
    Failed(HandshakeError),
}

impl Handshake {
    /// As server, for a connection that came in at `local`.
    pub(super) fn accept(socket: TcpStream, local: SocketAddr) -> Handshake {
        Handshake::new(socket, Stage::Hello { acceptor: Box::default(), local })
    }

    /// As client, towards `remote`, which must prove to be `name`, or else its address.
    ///
    /// # Errors
    ///
    /// When no profile is for it, or the name is none that can be proved.
    pub(super) fn connect(
        socket: TcpStream,
        remote: SocketAddr,
        name: Option<&[u8]>,
        loaded: &Loaded,
    ) -> Result<Handshake, HandshakeError> {
        let Some((profile, config)) = loaded.client(remote) else {
            let why = format!("no client profile of TLS is for {remote}; add a default one");
            return Err(HandshakeError::NoCommon(why));
        };
        let name = profile.name.as_deref().map(str::as_bytes).or(name);
        let Some(wanted) = identity::wanted(name, remote.ip()) else {
            let name = String::from_utf8_lossy(name.unwrap_or_default()).into_owned();
            return Err(HandshakeError::Certificate(format!("no server can prove to be `{name}`")));
        };
        let asked = match &wanted {
            ServerName::DnsName(name) => Some(name.as_ref().into()),
            _ => None,
        };
        let connection = UnbufferedClientConnection::new(Arc::new(config), wanted)?;
        let mut handshake = Handshake::new(socket, Stage::Going(Box::new(Connection::Client(connection))));
        handshake.server_name = asked;
        handshake.verifies = profile.verifies;
        Ok(handshake)
    }

    fn new(socket: TcpStream, stage: Stage) -> Handshake {
        Handshake {
            socket,
            stage,
            incoming: Vec::new(),
            received: 0,
            outgoing: Vec::new(),
            written: 0,
            plaintext: Vec::new(),
            server_name: None,
            verifies: false,
            peer_closed: false,
        }
    }

    /// Goes on as far as the socket allows; `scratch` is room to read into.
    pub(super) fn advance(&mut self, tls: &Tls, scratch: &mut [u8]) -> Progress {
        match self.try_advance(tls, scratch) {
            Ok(progress) => progress,
            Err(error) => {
                // The alert that says why, if the socket takes it.
                let _ = self.flush();
                let _ = self.socket.shutdown(Shutdown::Write);
                self.stage = Stage::Over;
                Progress::Failed(error)
            }
        }
    }

    fn try_advance(&mut self, tls: &Tls, scratch: &mut [u8]) -> Result<Progress, HandshakeError> {
        // A client speaks first.
        if self.received == 0 && matches!(self.stage, Stage::Going(_)) {
            self.go_on()?;
        }
        loop {
            let flushed = self.flush();
            if matches!(self.stage, Stage::Done(_)) {
                match flushed {
                    Ok(true) => return Ok(Progress::Done),
                    Ok(false) => return Ok(Progress::Waits),
                    Err(_) => return Err(HandshakeError::Closed),
                }
            }
            let count = match (&self.socket).read(scratch) {
                Ok(0) => return Err(HandshakeError::Closed),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // What the peer said before it closed is read first: it may be the alert that says why.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && flushed.is_ok() => {
                    return Ok(Progress::Waits);
                }
                Err(_) => return Err(HandshakeError::Closed),
            };
            self.take(tls, &scratch[..count])?;
        }
    }

    /// Takes bytes from the socket.
    fn take(&mut self, tls: &Tls, bytes: &[u8]) -> Result<(), HandshakeError> {
        self.received += bytes.len();
        let received_max =
            if matches!(self.stage, Stage::Hello { .. }) { HELLO_BYTES_MAX } else { RECEIVED_BYTES_MAX };
        if self.received > received_max {
            return Err(HandshakeError::Protocol("the peer's part of the handshake is too long".into()));
        }
        if self.received - bytes.len() < 2 {
            let first = [&self.incoming, bytes].concat();
            if let Some(kind) = NotTls::recognise(&first) {
                return Err(HandshakeError::NotTls(kind));
            }
        }
        self.incoming.extend_from_slice(bytes);
        if let Stage::Hello { .. } = self.stage
            && !self.choose_profile(tls, bytes)?
        {
            return Ok(());
        }
        self.go_on()
    }

    /// Looks for the whole ClientHello; `false` if it is not there yet.
    fn choose_profile(&mut self, tls: &Tls, mut bytes: &[u8]) -> Result<bool, HandshakeError> {
        let Stage::Hello { acceptor, local } = &mut self.stage else { return Ok(true) };
        let accepted = loop {
            if bytes.is_empty() {
                return Ok(false);
            }
            acceptor.read_tls(&mut bytes).map_err(|error| HandshakeError::Protocol(error.to_string()))?;
            match acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => break accepted,
                Err((error, mut alert)) => {
                    let _ = alert.write_all(&mut self.outgoing);
                    return Err(error.into());
                }
            }
        };
        let name = accepted.client_hello().server_name().map(str::to_owned);
        let loaded = tls.loaded();
        let Some(profile) = loaded.server(*local, name.as_deref()) else {
            self.outgoing.extend_from_slice(&UNRECOGNISED_NAME);
            let name = name.as_deref().unwrap_or("no name");
            let why = format!("no server profile of TLS is for {local} and {name}; add a default one");
            return Err(HandshakeError::NoCommon(why));
        };
        let connection = UnbufferedServerConnection::new(profile.config.clone())?;
        self.verifies = true;
        self.server_name = name.map(Into::into);
        self.stage = Stage::Going(Box::new(Connection::Server(connection)));
        Ok(true)
    }

    /// Lets the library work on what has come in.
    fn go_on(&mut self) -> Result<(), HandshakeError> {
        let Stage::Going(connection) = &mut self.stage else { return Ok(()) };
        let pumped = connection.handshake(&mut self.incoming, &mut self.plaintext, &mut self.outgoing);
        self.incoming.drain(..pumped.used);
        self.peer_closed |= pumped.peer_closed;
        match pumped.stand {
            Stand::Failed(error) => Err(error.into()),
            Stand::Closed => Err(HandshakeError::Closed),
            Stand::Blocked if self.peer_closed => Err(HandshakeError::Closed),
            Stand::Blocked => Ok(()),
            Stand::Ready => {
                still_valid(connection)?;
                if let Stage::Going(connection) = std::mem::replace(&mut self.stage, Stage::Over) {
                    self.stage = Stage::Done(connection);
                }
                Ok(())
            }
        }
    }

    /// Writes what is to be written; whether that was all.
    fn flush(&mut self) -> io::Result<bool> {
        while let Some(left) = self.outgoing.get(self.written..).filter(|left| !left.is_empty()) {
            match (&self.socket).write(left) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.outgoing.clear();
        self.written = 0;
        Ok(true)
    }

    /// The session, once [`Progress::Done`] was told.
    pub(super) fn finish(self) -> Result<Box<Secured>, HandshakeError> {
        let Stage::Done(connection) = self.stage else { return Err(HandshakeError::Closed) };
        let begun = Begun {
            rest: &self.incoming,
            server_name: self.server_name,
            verified: self.verifies,
            peer_closed: self.peer_closed,
        };
        let session = Session::new(connection, begun);
        Ok(Box::new(Secured { socket: self.socket, session, plaintext: self.plaintext }))
    }
}

/// The certificates of a resumed session were checked when it began; in the meantime they may have expired.
fn still_valid(connection: &Connection) -> Result<(), Error> {
    let certificates = connection.common().peer_certificates().unwrap_or_default();
    if !connection.is_resumed() || !matches!(connection, Connection::Server(_)) {
        return Ok(());
    }
    let now = UnixTime::now().as_secs();
    let own = certificates.first().and_then(|certificate| Facts::read(certificate));
    if own.is_some_and(|facts| now > facts.not_after) {
        return Err(Error::InvalidCertificate(CertificateError::Expired));
    }
    Ok(())
}
