//! What lies between the bytes of a connection and SIP messages: TLS, WebSocket, framing (RFC 3261 §18.3).
//!
//! ```text
//!  bytes ──▶ TLS ──▶ WebSocket or framer ──▶ messages
//! ```
//!
//! No socket here: bytes are handed in, and stand in a buffer to be written.

use super::tls::{Ends, suite_name};
use super::websocket::{Channel, Standing};
use rustls::HandshakeKind;
use sip::stream::{Broken, Frame, Framer, NotSip, StreamLimits};
use std::io::{self, Read, Write};

/// Most bytes that wait for the server to take them; a connection with more is lost.
pub(super) const OUTGOING_BYTES_MAX: usize = 16 << 20;

/// A buffer that has grown beyond this is not kept when it is empty.
const KEPT_BYTES_MAX: usize = 16 << 10;

/// Which end of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Client,
    Server,
}

/// A connection's layers.
#[derive(Debug, Default)]
pub(super) struct Layers {
    tls: Option<Box<rustls::Connection>>,
    channel: Option<Box<Channel>>,
    framer: Framer,
    /// The beginning of a message.
    rest: Vec<u8>,
    /// What is not encrypted yet; without TLS always empty.
    clear: Vec<u8>,
    /// What is to be written, and how much of it has been.
    outgoing: Vec<u8>,
    written: usize,
    /// Whether the end of the TLS handshake has been told.
    secured: bool,
    /// Whether the other end has said that it sends nothing more.
    closed: bool,
}

/// What a TLS handshake came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Secured {
    pub(super) resumed: bool,
    /// Version and cipher suite.
    pub(super) suite: String,
}

/// What is used again for each read.
#[derive(Debug, Default)]
pub(super) struct Desk {
    plain: Vec<u8>,
    reply: Vec<u8>,
}

impl Layers {
    /// Those of a new connection; `host` is what a WebSocket's server is asked for.
    ///
    /// # Errors
    /// TLS refuses its settings.
    pub(super) fn new(end: End, tls: Option<&Ends>, websocket: bool, host: &str) -> Result<Layers, String> {
        let mut layers = Layers::default();
        if let Some(ends) = tls {
            let session = match end {
                End::Client => ends.connect(),
                End::Server => ends.accept(),
            };
            let mut session = session.map_err(|error| format!("TLS: {error}"))?;
            // What is sent before the handshake is over waits; it is bounded with everything else that waits.
            session.set_buffer_limit(None);
            layers.tls = Some(Box::new(session));
        }
        if websocket {
            let mut request = Vec::new();
            let channel = match end {
                End::Client => Channel::client(host, &mut request),
                End::Server => Channel::server(),
            };
            layers.channel = Some(Box::new(channel));
            layers.put(&request);
        }
        Ok(layers)
    }

    /// The end of the TLS handshake, once.
    pub(super) fn secured(&mut self) -> Option<Secured> {
        let session = self.tls.as_deref().filter(|session| !self.secured && !session.is_handshaking())?;
        self.secured = true;
        let version = session.protocol_version().map_or_else(String::new, |version| format!("{version:?} "));
        let suite =
            session.negotiated_cipher_suite().map_or_else(String::new, |suite| suite_name(suite.suite()));
        Some(Secured {
            resumed: session.handshake_kind() == Some(HandshakeKind::Resumed),
            suite: version + &suite,
        })
    }

    /// Whether TLS or WebSocket is still being agreed on.
    pub(super) fn is_handshaking(&self) -> bool {
        self.tls.as_deref().is_some_and(|session| session.is_handshaking())
            || self.channel.as_deref().is_some_and(Channel::is_upgrading)
    }

    /// Whether the other end has closed in the protocol's own way.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Takes what came from the socket and hands on each message.
    ///
    /// # Errors
    /// A short sentence: the connection is of no use any more. What stands to be written may still say why to the other
    /// end.
    pub(super) fn receive(
        &mut self,
        bytes: &[u8],
        desk: &mut Desk,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<(), String> {
        let Some(session) = self.tls.as_deref_mut() else {
            return self.read_clear(bytes, &mut desk.reply, each);
        };
        desk.plain.clear();
        let (mut bytes, mut broken) = (bytes, None);
        while !bytes.is_empty() && broken.is_none() {
            let taken = session.read_tls(&mut bytes).and_then(|count| match count {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                _ => session.process_new_packets().map_err(io::Error::other),
            });
            match taken {
                Ok(state) => {
                    self.closed |= state.peer_has_closed();
                    let mut reader = session.reader();
                    let mut wanted = state.plaintext_bytes_to_read();
                    while wanted > 0 {
                        let start = desk.plain.len();
                        desk.plain.resize(start + wanted, 0);
                        let count = reader.read(&mut desk.plain[start..]).unwrap_or(0);
                        desk.plain.truncate(start + count);
                        wanted = if count == 0 { 0 } else { wanted - count };
                    }
                }
                Err(_) if self.closed => break,
                Err(error) => broken = Some(format!("TLS: {error}")),
            }
        }
        let plain = std::mem::take(&mut desk.plain);
        let read = if plain.is_empty() { Ok(()) } else { self.read_clear(&plain, &mut desk.reply, each) };
        desk.plain = plain;
        broken.map_or(read, Err)
    }

    fn read_clear(
        &mut self,
        bytes: &[u8],
        reply: &mut Vec<u8>,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<(), String> {
        let Some(channel) = &mut self.channel else { return self.read_stream(bytes, each) };
        reply.clear();
        let standing = channel.receive(bytes, reply, each);
        self.closed |= standing == Ok(Standing::Closed);
        let reply = std::mem::take(reply);
        self.put(&reply);
        standing.map(drop)
    }

    /// Cuts a stream into messages; what is left of the last one is kept.
    fn read_stream(&mut self, bytes: &[u8], each: &mut dyn FnMut(&[u8])) -> Result<(), String> {
        let mut kept = std::mem::take(&mut self.rest);
        if !kept.is_empty() {
            kept.extend_from_slice(bytes);
        }
        let from_kept = !kept.is_empty();
        let mut left = if from_kept { kept.as_slice() } else { bytes };
        let limits = StreamLimits::default();
        let broken = loop {
            match self.framer.next(&limits, left) {
                Frame::Message { skip, len } => {
                    each(left.get(skip..skip + len).unwrap_or(&[]));
                    left = left.get(skip + len..).unwrap_or(&[]);
                }
                Frame::Ping { len } => {
                    left = left.get(len..).unwrap_or(&[]);
                    // RFC 5626 §3.5.1.
                    self.put(b"\r\n");
                }
                Frame::Incomplete { skip } => {
                    left = left.get(skip..).unwrap_or(&[]);
                    break None;
                }
                Frame::Broken(why) => break Some(why),
            }
        };
        if let Some(why) = broken {
            return Err(broken_sentence(why).into());
        }
        if from_kept {
            let from = kept.len() - left.len();
            kept.drain(..from);
            self.rest = kept;
        } else {
            self.rest.extend_from_slice(left);
        }
        if self.rest.is_empty() && self.rest.capacity() > KEPT_BYTES_MAX {
            self.rest = Vec::new();
        }
        Ok(())
    }

    /// Puts a message among what is to be written.
    ///
    /// # Errors
    /// The WebSocket is closed, or more than [`OUTGOING_BYTES_MAX`] wait.
    pub(super) fn send(&mut self, message: &[u8]) -> Result<(), String> {
        match &mut self.channel {
            Some(channel) => {
                let mut frame = Vec::new();
                channel.send(message, &mut frame)?;
                self.put(&frame);
            }
            None => self.put(message),
        }
        if self.clear.len() + self.outgoing.len() - self.written > OUTGOING_BYTES_MAX {
            return Err("the server takes nothing more".into());
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) {
        let into = if self.tls.is_some() { &mut self.clear } else { &mut self.outgoing };
        into.extend_from_slice(bytes);
    }

    /// Says to the other end that nothing more is sent.
    pub(super) fn close(&mut self) {
        if let Some(channel) = &mut self.channel {
            let mut frame = Vec::new();
            channel.close(&mut frame);
            self.put(&frame);
        }
        if self.tls.is_some() {
            self.encrypt();
        }
        if let Some(session) = &mut self.tls {
            session.send_close_notify();
        }
    }

    fn encrypt(&mut self) {
        let Some(session) = &mut self.tls else { return };
        if !self.clear.is_empty() {
            // Without a limit it takes everything.
            let _ = session.writer().write_all(&self.clear);
            self.clear.clear();
        }
        while session.wants_write() {
            if session.write_tls(&mut self.outgoing).is_err() {
                break;
            }
        }
    }

    /// Whether there is something to write.
    pub(super) fn wants_write(&self) -> bool {
        self.written < self.outgoing.len()
            || !self.clear.is_empty()
            || self.tls.as_deref().is_some_and(|session| session.wants_write())
    }

    /// Writes what there is to write; whether nothing is left.
    ///
    /// # Errors
    /// The socket's.
    pub(super) fn write_to(&mut self, socket: &mut impl Write) -> io::Result<bool> {
        self.encrypt();
        while let Some(rest) = self.outgoing.get(self.written..).filter(|rest| !rest.is_empty()) {
            match socket.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.written = 0;
        self.outgoing.clear();
        for buffer in [&mut self.outgoing, &mut self.clear] {
            if buffer.capacity() > KEPT_BYTES_MAX {
                *buffer = Vec::new();
            }
        }
        Ok(true)
    }
}

fn broken_sentence(why: Broken) -> &'static str {
    match why {
        Broken::HeadersTooLong => "the server's message has headers without an end",
        Broken::TooLarge => "the server's message is longer than 64 kB",
        Broken::ContentLength => "the server's message has no sound Content-Length",
        Broken::NotSip(NotSip::Tls) => "the other end speaks TLS where plain SIP was expected",
        Broken::NotSip(NotSip::Http) => "the other end speaks HTTP where SIP was expected",
        Broken::NotSip(NotSip::Other) => "what the other end sent is no SIP",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Tls;
    use std::net::IpAddr;

    const ONE: &[u8] = b"OPTIONS sip:a SIP/2.0\r\nContent-Length: 2\r\n\r\nhi";
    const TWO: &[u8] = b"SIP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n";

    fn pair(tls: bool, websocket: bool) -> (Layers, Layers) {
        let here = IpAddr::from([127, 0, 0, 1]);
        let ends = tls.then(|| Ends::new(&Tls::default(), here, &[here]).unwrap());
        let end = |end| Layers::new(end, ends.as_ref(), websocket, "h").unwrap();
        (end(End::Client), end(End::Server))
    }

    /// Carries all that is to be written from one to the other, in pieces; the messages that came of it.
    fn carry(from: &mut Layers, to: &mut Layers, step: usize) -> Vec<Vec<u8>> {
        let (mut wire, mut got) = (Vec::new(), Vec::new());
        assert!(from.write_to(&mut wire).unwrap());
        for piece in wire.chunks(step) {
            to.receive(piece, &mut Desk::default(), &mut |message| got.push(message.to_vec())).unwrap();
        }
        got
    }

    #[test]
    fn messages_cross_every_layer_however_they_are_cut() {
        for (tls, websocket) in [(false, false), (true, false), (false, true), (true, true)] {
            for step in [1, 13, 100_000] {
                let (mut client, mut server) = pair(tls, websocket);
                client.send(ONE).unwrap();
                client.send(TWO).unwrap();
                let (mut there, mut back) = (Vec::new(), Vec::new());
                for _ in 0..6 {
                    there.extend(carry(&mut client, &mut server, step));
                    if there.len() == 2 && back.is_empty() {
                        server.send(TWO).unwrap();
                    }
                    back.extend(carry(&mut server, &mut client, step));
                }
                assert_eq!(there, [ONE, TWO], "tls {tls}, websocket {websocket}, step {step}");
                assert_eq!(back, [TWO]);
                assert!(!client.is_handshaking() && !client.wants_write());
                assert_eq!(client.secured().is_some(), tls);
                assert!(client.secured().is_none(), "it is told once");
                if tls || websocket {
                    client.close();
                    carry(&mut client, &mut server, step);
                    assert!(server.is_closed());
                }
            }
        }
    }

    /// RFC 5626 §3.5.1.
    #[test]
    fn a_ping_is_answered() {
        let (mut client, mut server) = pair(false, false);
        client.put(b"\r\n\r\n");
        assert!(carry(&mut client, &mut server, 1).is_empty());
        assert_eq!(server.outgoing, b"\r\n");
    }

    #[test]
    fn what_is_no_sip_or_no_tls_breaks_the_connection_with_a_sentence() {
        let breaks = |tls, bytes: &[u8]| {
            let (mut client, _) = pair(tls, false);
            client.receive(bytes, &mut Desk::default(), &mut |_| {}).unwrap_err()
        };
        assert!(breaks(false, b"HTTP/1.1 400 Bad Request\r\n\r\n").contains("HTTP"));
        assert!(breaks(false, b"SIP/2.0 200 OK\r\n\r\n").contains("Content-Length"));
        assert!(breaks(true, b"SIP/2.0 400 Bad Request\r\n\r\n").starts_with("TLS: "));
    }

    #[test]
    fn a_server_that_takes_nothing_loses_its_connection_before_memory_runs_out() {
        let (mut client, _) = pair(false, false);
        let message = vec![b'x'; 1 << 20];
        let sent = (0..100).take_while(|_| client.send(&message).is_ok()).count();
        assert_eq!(sent, OUTGOING_BYTES_MAX >> 20);
    }
}
