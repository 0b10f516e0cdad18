//! The server's side of a WebSocket connection (RFC 6455) that carries SIP (RFC 7118): bytes in, messages out.
//!
//! No I/O: the connection gives it what it has read (and decrypted) and writes what it is handed back.
//!
//! ```text
//!  Handshake --101--> Open --close sent--> Closing --the peer's close--> Closed
//!      `--an HTTP error--> Closed <--violation, or the peer's close--'
//! ```
//!
//! Each WebSocket message is one SIP message (RFC 7118 §5), so Content-Length is not needed to tell where it
//! ends. No extension is negotiated.

mod frames;
mod handshake;
#[cfg(test)]
mod tests;

use frames::{Frames, Received};
use handshake::{Handshake, Progress};

/// What a WebSocket listener allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSocketPolicy {
    /// Values of Origin that are let in, compared without case (`https://phone.example`); all where it is
    /// empty.
    ///
    /// Browsers always send one; a request without is not a browser's, and let in (RFC 6455 §4.2.1): what this
    /// defends against is other people's pages in our users' browsers (§10.2).
    pub origins: Vec<String>,
    /// Bytes of one message, over all of its frames; default 65,535.
    pub message_bytes_max: usize,
    /// Bytes of the HTTP request; default 8,192.
    pub head_bytes_max: usize,
}

impl Default for WebSocketPolicy {
    fn default() -> WebSocketPolicy {
        WebSocketPolicy { origins: Vec::new(), message_bytes_max: 65_535, head_bytes_max: 8_192 }
    }
}

/// What came of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    /// One SIP message, from its first byte to its last; or a keep-alive of CRLFs, which counts as one.
    Message(&'a [u8]),
    /// To be written to the peer now: the handshake's answer, a pong, a close.
    Reply(&'a [u8]),
    /// Nothing more can come: close the connection once what was replied is written.
    Closed(Closed),
}

/// Why a WebSocket connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// The peer said so.
    ByPeer,
    /// The HTTP request was refused: 400 (SIP on an HTTP port among them), 403 (Origin), 405, 426, 431, 505.
    Refused(u16),
    /// The peer broke the protocol: the close code of RFC 6455 §7.4.1 that it was told.
    Violation(u16),
}

/// Close codes of RFC 6455 §7.4.1.
pub(crate) mod close_code {
    /// The server goes away.
    pub(crate) const GOING_AWAY: u16 = 1001;
    /// A frame that the protocol does not allow.
    pub(crate) const PROTOCOL: u16 = 1002;
    /// Text that is not UTF-8.
    pub(crate) const NOT_UTF8: u16 = 1007;
    /// A message beyond the limit.
    pub(crate) const TOO_BIG: u16 = 1009;
}

/// One connection.
#[derive(Debug)]
pub(crate) struct WebSocket {
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// The HTTP request is not whole.
    Handshake(Handshake),
    /// Messages go both ways.
    Open(Frames),
    /// We sent a close, after which nothing may be sent (RFC 6455 §5.5.1), and wait for the peer's.
    Closing(Frames),
    /// Nothing more is read or sent.
    Closed,
}

impl WebSocket {
    /// A connection of which no byte has come yet.
    pub(crate) fn new() -> WebSocket {
        WebSocket { phase: Phase::Handshake(Handshake::default()) }
    }

    /// Takes bytes from the peer and hands out what came of them, in order. After [`Event::Closed`] bytes are
    /// ignored.
    pub(crate) fn receive(
        &mut self,
        bytes: &[u8],
        policy: &WebSocketPolicy,
        handle: &mut dyn FnMut(Event<'_>),
    ) {
        let mut bytes = bytes;
        if let Phase::Handshake(handshake) = &mut self.phase {
            match handshake.receive(&mut bytes, policy) {
                Progress::More => return,
                Progress::Accepted(answer) => {
                    self.phase = Phase::Open(Frames::default());
                    handle(Event::Reply(&answer));
                }
                Progress::Refused(status, answer) => {
                    self.phase = Phase::Closed;
                    handle(Event::Reply(&answer));
                    handle(Event::Closed(Closed::Refused(status)));
                }
            }
        }
        while let Phase::Open(frames) | Phase::Closing(frames) = &mut self.phase {
            match frames.receive(&mut bytes, policy.message_bytes_max) {
                Ok(None) => return,
                Ok(Some(received)) => self.received(&received, handle),
                Err(code) => self.end(Some(code), Closed::Violation(code), handle),
            }
        }
    }

    fn received(&mut self, received: &Received, handle: &mut dyn FnMut(Event<'_>)) {
        match received {
            // A message without a byte says nothing.
            Received::Message(message) if message.is_empty() => {}
            Received::Message(message) => handle(Event::Message(message)),
            Received::Ping(payload) if self.is_open() => {
                // The pong repeats what the ping said (RFC 6455 §5.5.3).
                let mut pong = Vec::with_capacity(frames::HEADER_BYTES_MAX + payload.len());
                frames::write(frames::PONG, payload, &mut pong);
                handle(Event::Reply(&pong));
            }
            Received::Ping(_) | Received::Pong => {}
            Received::Close(code) => self.end(*code, Closed::ByPeer, handle),
        }
    }

    /// Says goodbye where that was not done yet, and ends.
    fn end(&mut self, code: Option<u16>, why: Closed, handle: &mut dyn FnMut(Event<'_>)) {
        let was_open = self.is_open();
        self.phase = Phase::Closed;
        if was_open {
            let mut close = Vec::with_capacity(frames::HEADER_BYTES_MAX);
            write_close(code, &mut close);
            handle(Event::Reply(&close));
        }
        handle(Event::Closed(why));
    }

    /// Appends `message` as one frame: of text if it is UTF-8, else it must be binary (RFC 7118 §4.2). Nothing
    /// if it is not [open](WebSocket::is_open).
    pub(crate) fn write(&self, message: &[u8], out: &mut Vec<u8>) {
        if self.is_open() {
            let text = std::str::from_utf8(message).is_ok();
            frames::write(if text { frames::TEXT } else { frames::BINARY }, message, out);
        }
    }

    /// Appends a ping (RFC 6455 §5.5.2, RFC 7118 §6), which the peer answers. Nothing if it is not open.
    pub(crate) fn ping(&self, out: &mut Vec<u8>) {
        if self.is_open() {
            frames::write(frames::PING, &[], out);
        }
    }

    /// Appends a close with this [code](close_code); nothing more is written after it. The peer's own close
    /// ends the connection ([`Closed::ByPeer`]); one that was not open is ended at once, without a word.
    pub(crate) fn close(&mut self, code: u16, out: &mut Vec<u8>) {
        self.phase = match std::mem::replace(&mut self.phase, Phase::Closed) {
            Phase::Open(frames) => {
                write_close(Some(code), out);
                Phase::Closing(frames)
            }
            Phase::Closing(frames) => Phase::Closing(frames),
            Phase::Handshake(_) | Phase::Closed => Phase::Closed,
        };
    }

    /// True from the handshake's 101 to the first close, of either side.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open(_))
    }

    /// True while the handshake, a frame or a message has begun and not ended: the peer owes bytes.
    pub(crate) fn is_partial(&self) -> bool {
        match &self.phase {
            Phase::Handshake(_) => true,
            Phase::Open(frames) | Phase::Closing(frames) => frames.is_partial(),
            Phase::Closed => false,
        }
    }

    /// Bytes of memory that are held for what is not whole yet; 0 for an idle connection.
    pub(crate) fn memory(&self) -> usize {
        match &self.phase {
            Phase::Handshake(handshake) => handshake.memory(),
            Phase::Open(frames) | Phase::Closing(frames) => frames.memory(),
            Phase::Closed => 0,
        }
    }
}

fn write_close(code: Option<u16>, out: &mut Vec<u8>) {
    match code {
        Some(code) => frames::write(frames::CLOSE, &code.to_be_bytes(), out),
        None => frames::write(frames::CLOSE, &[], out),
    }
}
