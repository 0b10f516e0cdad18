//! An established TLS connection over bytes, either side (RFC 5246, RFC 8446).
//!
//! It works on the caller's buffers: records are decrypted where they were read to, and an idle session owns
//! nothing but its keys. Only what is left of an incomplete record is kept, until the rest of it comes.

use std::fmt;
use std::mem;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic};
use rustls::{CommonState, Error, HandshakeKind, ProtocolVersion};

use super::der::Facts;
use super::error::SessionError;
use super::{TlsVersion, ciphers, identity};

/// Bytes of records that do not make up a message yet; more is an attack (a handshake message has at most
/// 65,535).
const REST_BYTES_MAX: usize = 128 * 1024;

/// What `rustls` and the cipher keep on the heap for one session, measured.
const LIBRARY_BYTES: usize = 3_072;

/// What came of some ciphertext.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The peer has said that nothing more comes (close_notify): close the connection once all is answered.
    pub closed: bool,
}

/// What a session is and whom it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionFacts {
    /// The version that was agreed on.
    pub version: TlsVersion,
    /// The cipher suite, by the name that OpenSSL has for it.
    pub cipher_suite: &'static str,
    /// Whether an earlier session was resumed, without certificates and signatures.
    pub resumed: bool,
    /// The name that was asked for (SNI), by the peer or by us.
    pub server_name: Option<String>,
    /// Whether the peer has a certificate and it was checked: chain, times, and, of a server, its name.
    pub peer_verified: bool,
    /// The subject of the peer's certificate in one line, if it has one.
    pub subject: Option<String>,
    /// The SIP domains (RFC 5922 §7.1) and addresses in the peer's certificate.
    pub names: Vec<String>,
}

/// Either side's connection.
pub(super) enum Connection {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

/// What shall happen once application data may be written.
#[derive(Clone, Copy)]
enum Task<'a> {
    Nothing,
    Encrypt(&'a [u8]),
    Close,
}

/// Where a connection stands after all that could be done.
#[derive(Debug)]
pub(super) enum Stand {
    /// In the middle of the handshake, and the peer's turn.
    Blocked,
    /// Established; what was to be written is written.
    Ready,
    /// Both sides have closed.
    Closed,
    Failed(Error),
}

/// One step of `rustls`'s own state machine.
enum Step {
    Again,
    PeerClosed,
    Stands(Stand),
}

/// What a call of [`Connection::pump`] did.
pub(super) struct Pumped {
    /// Bytes at the front of the ciphertext that are done with.
    pub(super) used: usize,
    /// Whether the peer's close_notify was among them.
    pub(super) peer_closed: bool,
    pub(super) stand: Stand,
}

impl Connection {
    /// Works on all of `incoming`; appends plaintext, and what must be sent to `outgoing`.
    pub(super) fn handshake(
        &mut self,
        incoming: &mut [u8],
        plaintext: &mut Vec<u8>,
        outgoing: &mut Vec<u8>,
    ) -> Pumped {
        self.pump(incoming, Task::Nothing, plaintext, outgoing)
    }

    fn pump(
        &mut self,
        incoming: &mut [u8],
        task: Task<'_>,
        plaintext: &mut Vec<u8>,
        outgoing: &mut Vec<u8>,
    ) -> Pumped {
        let mut used = 0;
        let mut peer_closed = false;
        let stand = loop {
            let left = incoming.get_mut(used..).unwrap_or_default();
            let (discard, step) = self.step(left, task, plaintext, outgoing);
            used += discard;
            match step {
                Step::Again => {}
                Step::PeerClosed => peer_closed = true,
                Step::Stands(stand) => break stand,
            }
        };
        if let Stand::Failed(_) = stand {
            self.encode_alerts(outgoing);
        }
        Pumped { used: used.min(incoming.len()), peer_closed, stand }
    }

    fn step(
        &mut self,
        incoming: &mut [u8],
        task: Task<'_>,
        plaintext: &mut Vec<u8>,
        outgoing: &mut Vec<u8>,
    ) -> (usize, Step) {
        match self {
            Connection::Server(c) => step(c.process_tls_records(incoming), task, plaintext, outgoing),
            Connection::Client(c) => step(c.process_tls_records(incoming), task, plaintext, outgoing),
        }
    }

    /// After a failure: the alert that tells the peer why, and what was to go before it.
    fn encode_alerts(&mut self, outgoing: &mut Vec<u8>) {
        while self.common().wants_write() {
            let (before, mut nothing) = (outgoing.len(), Vec::new());
            // Output comes before input is looked at: there is none, as what failed must not be offered again.
            let _ = self.step(&mut [], Task::Nothing, &mut nothing, outgoing);
            if outgoing.len() == before {
                return;
            }
        }
    }

    pub(super) fn common(&self) -> &CommonState {
        match self {
            Connection::Server(connection) => connection,
            Connection::Client(connection) => connection,
        }
    }

    pub(super) fn is_resumed(&self) -> bool {
        self.common().handshake_kind() == Some(HandshakeKind::Resumed)
    }
}

fn step<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    task: Task<'_>,
    plaintext: &mut Vec<u8>,
    outgoing: &mut Vec<u8>,
) -> (usize, Step) {
    let mut discard = status.discard;
    let step = match status.state {
        Err(error) => Step::Stands(Stand::Failed(error)),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                None => break Step::Again,
                Some(Ok(record)) => {
                    discard += record.discard;
                    plaintext.extend_from_slice(record.payload);
                }
                Some(Err(error)) => break Step::Stands(Stand::Failed(error)),
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            match append(outgoing, 512, |room| data.encode(room).map_err(Needs::from)) {
                Ok(()) => Step::Again,
                Err(error) => Step::Stands(Stand::Failed(error)),
            }
        }
        Ok(ConnectionState::TransmitTlsData(data)) => {
            // It stands in `outgoing`, in front of all that comes later.
            data.done();
            Step::Again
        }
        Ok(ConnectionState::BlockedHandshake) => Step::Stands(Stand::Blocked),
        Ok(ConnectionState::WriteTraffic(traffic)) => Step::Stands(match write(traffic, task, outgoing) {
            Ok(()) => Stand::Ready,
            Err(error) => Stand::Failed(error),
        }),
        Ok(ConnectionState::PeerClosed) => Step::PeerClosed,
        Ok(ConnectionState::Closed) => Step::Stands(Stand::Closed),
        Ok(_) => Step::Stands(Stand::Failed(Error::General("early data, which is not allowed".into()))),
    };
    (discard, step)
}

fn write<Data>(
    mut traffic: WriteTraffic<'_, Data>,
    task: Task<'_>,
    outgoing: &mut Vec<u8>,
) -> Result<(), Error> {
    /// Header, tag, content type and nonce of a record, at most.
    const RECORD_OVERHEAD: usize = 5 + 16 + 1 + 8;
    const RECORD_PLAINTEXT_MAX: usize = 16_384;
    match task {
        Task::Nothing => Ok(()),
        Task::Encrypt(data) => {
            let room = data.len() + (data.len() / RECORD_PLAINTEXT_MAX + 1) * RECORD_OVERHEAD;
            append(outgoing, room, |room| traffic.encrypt(data, room).map_err(Needs::from))
        }
        Task::Close => append(outgoing, 64, |room| traffic.queue_close_notify(room).map_err(Needs::from)),
    }
}

/// Why a piece of output was not written.
enum Needs {
    Room(usize),
    Never(Error),
}

impl From<EncodeError> for Needs {
    fn from(error: EncodeError) -> Needs {
        match error {
            EncodeError::InsufficientSize(size) => Needs::Room(size.required_size),
            other => Needs::Never(Error::General(other.to_string())),
        }
    }
}

impl From<EncryptError> for Needs {
    fn from(error: EncryptError) -> Needs {
        match error {
            EncryptError::InsufficientSize(size) => Needs::Room(size.required_size),
            EncryptError::EncryptExhausted => Needs::Never(Error::EncryptError),
        }
    }
}

/// Appends what `fill` writes, which is told `room` bytes first and as many as it wants if that was too little.
fn append(
    outgoing: &mut Vec<u8>,
    room: usize,
    mut fill: impl FnMut(&mut [u8]) -> Result<usize, Needs>,
) -> Result<(), Error> {
    let start = outgoing.len();
    outgoing.resize(start + room, 0);
    let mut filled = fill(&mut outgoing[start..]);
    if let Err(Needs::Room(needed)) = filled {
        outgoing.resize(start + needed, 0);
        filled = fill(&mut outgoing[start..]);
    }
    outgoing.truncate(start + filled.as_ref().copied().unwrap_or(0));
    match filled {
        Ok(_) => Ok(()),
        Err(Needs::Never(error)) => Err(error),
        Err(Needs::Room(_)) => Err(Error::General("a record does not fit where it should".into())),
    }
}

/// What a handshake leaves to its session besides the connection.
pub(super) struct Begun<'a> {
    /// Bytes that came behind its last flight and were not used up.
    pub(super) rest: &'a [u8],
    /// The name that was asked for.
    pub(super) server_name: Option<Box<str>>,
    /// Whether a certificate of the peer was checked, if it has one.
    pub(super) verified: bool,
    /// Whether the peer has closed already.
    pub(super) peer_closed: bool,
}

/// An established connection.
///
/// Order matters: what [`send`](Self::send), [`pending`](Self::pending) and [`close`](Self::close) append must
/// go to the peer in the order of the calls.
pub struct Session {
    connection: Box<Connection>,
    /// The beginning of a record whose end has not come.
    rest: Vec<u8>,
    /// What must be sent and was not fetched yet.
    outgoing: Vec<u8>,
    /// Plaintext that came up at an odd moment.
    unread: Vec<u8>,
    server_name: Option<Box<str>>,
    verified: bool,
    peer_closed: bool,
    closed: bool,
    /// The library must not be given anything any more.
    failed: Option<SessionError>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let common = self.connection.common();
        f.debug_struct("Session")
            .field("version", &common.protocol_version())
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

impl Session {
    pub(super) fn new(connection: Box<Connection>, begun: Begun<'_>) -> Session {
        Session {
            connection,
            rest: begun.rest.to_vec(),
            outgoing: Vec::new(),
            unread: Vec::new(),
            server_name: begun.server_name,
            verified: begun.verified,
            peer_closed: begun.peer_closed,
            closed: false,
            failed: None,
        }
    }

    /// Takes ciphertext, which is overwritten, and appends its plaintext.
    ///
    /// What must be answered (a key update, the alert of an error) is to be fetched with
    /// [`pending`](Self::pending) afterwards. With no ciphertext it tells whether the peer had closed already.
    ///
    /// # Errors
    ///
    /// When the peer breaks the protocol, has sent a fatal alert, or its records were tampered with; plaintext
    /// that was appended before that is good. The connection is of no use any more.
    pub fn receive(
        &mut self,
        ciphertext: &mut [u8],
        plaintext: &mut Vec<u8>,
    ) -> Result<Received, SessionError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        plaintext.append(&mut mem::take(&mut self.unread));
        let pumped = if self.rest.is_empty() {
            let pumped = self.connection.pump(ciphertext, Task::Nothing, plaintext, &mut self.outgoing);
            self.rest.extend_from_slice(ciphertext.get(pumped.used..).unwrap_or_default());
            pumped
        } else {
            self.rest.extend_from_slice(ciphertext);
            let pumped = self.connection.pump(&mut self.rest, Task::Nothing, plaintext, &mut self.outgoing);
            self.rest.drain(..pumped.used);
            pumped
        };
        self.peer_closed |= pumped.peer_closed;
        if self.rest.is_empty() || self.peer_closed {
            self.rest = Vec::new();
        }
        match pumped.stand {
            Stand::Failed(error) => Err(self.fail(error)),
            _ if self.rest.len() > REST_BYTES_MAX => {
                Err(self.fail(Error::General("the peer's message is too long".into())))
            }
            _ => Ok(Received { closed: self.peer_closed }),
        }
    }

    fn fail(&mut self, error: Error) -> SessionError {
        let error = SessionError::from(error);
        self.failed = Some(error.clone());
        self.rest = Vec::new();
        error
    }

    /// Appends the records that carry `plaintext`, after all that is pending.
    ///
    /// # Errors
    ///
    /// After [`close`](Self::close), or when the cipher is exhausted (2⁶⁰ bytes); nothing was appended for it
    /// then.
    pub fn send(&mut self, plaintext: &[u8], ciphertext: &mut Vec<u8>) -> Result<(), SessionError> {
        self.pending(ciphertext);
        if plaintext.is_empty() {
            return Ok(());
        }
        if self.closed {
            return Err(Error::General("the session was closed".into()).into());
        }
        self.write(Task::Encrypt(plaintext), ciphertext)
    }

    /// Appends what must be sent without the caller's doing: alerts and answers to key updates.
    pub fn pending(&mut self, ciphertext: &mut Vec<u8>) {
        if !self.outgoing.is_empty() {
            ciphertext.append(&mut mem::take(&mut self.outgoing));
        }
    }

    /// Appends close_notify: nothing more can be sent after it (RFC 8446 §6.1).
    pub fn close(&mut self, ciphertext: &mut Vec<u8>) {
        self.pending(ciphertext);
        if !mem::replace(&mut self.closed, true) {
            // A session that has failed has no word left to say.
            let _ = self.write(Task::Close, ciphertext);
        }
    }

    fn write(&mut self, task: Task<'_>, ciphertext: &mut Vec<u8>) -> Result<(), SessionError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        // What is left of a record goes along: the library remembers places in it.
        let pumped = self.connection.pump(&mut self.rest, task, &mut self.unread, ciphertext);
        self.rest.drain(..pumped.used);
        self.peer_closed |= pumped.peer_closed;
        match pumped.stand {
            Stand::Ready => Ok(()),
            Stand::Failed(error) => Err(self.fail(error)),
            Stand::Blocked | Stand::Closed => Err(Error::General("the session was closed".into()).into()),
        }
    }

    /// What was agreed on, and with whom. It is put together anew by each call.
    pub fn facts(&self) -> SessionFacts {
        let common = self.connection.common();
        let version = match common.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => TlsVersion::V1_2,
            _ => TlsVersion::V1_3,
        };
        let suite = common.negotiated_cipher_suite().map(|suite| suite.suite());
        let certificate = common.peer_certificates().and_then(<[CertificateDer<'_>]>::first);
        let facts = certificate.and_then(|certificate| Facts::read(certificate));
        SessionFacts {
            version,
            cipher_suite: suite.map(ciphers::name).unwrap_or_default(),
            resumed: self.connection.is_resumed(),
            server_name: self.server_name.as_deref().map(str::to_owned),
            peer_verified: self.verified && certificate.is_some(),
            subject: facts.as_ref().map(Facts::subject_line),
            names: facts.as_ref().map(identity::presented).unwrap_or_default(),
        }
    }

    /// Bytes kept of a record whose end has not come, at most some 16 KiB; 0 while nothing is begun.
    pub fn partial_bytes(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn is_resumed(&self) -> bool {
        self.connection.is_resumed()
    }

    /// Bytes of memory that the session takes, about.
    pub fn memory(&self) -> usize {
        let certificates = self.connection.common().peer_certificates().unwrap_or_default();
        mem::size_of::<Connection>()
            + LIBRARY_BYTES
            + certificates.iter().map(|certificate| certificate.len()).sum::<usize>()
            + self.rest.capacity()
            + self.outgoing.capacity()
            + self.unread.capacity()
    }
}
