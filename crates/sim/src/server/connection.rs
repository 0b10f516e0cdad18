//! One stream connection of a server, as `crates/net` keeps it (its `connection.rs`): what is owed on it,
//! what is asked, and what becomes of it when its peer has said its last word (RFC 3261 §18.2.2, RFC 9293
//! §3.6).
//!
//! ```text
//!  open ──end of the peer's stream──▶ ending ──last answer, or 32 s──▶ gone
//!    (the peer may still listen: what is owed to it goes out; it answers nothing any more, so nothing is
//! asked)
//! ```

use super::Shard;
use crate::phone::LONG;
use crate::trace::Micros;
use engine::Path;
use sip::stream::{Frame, Framer, StreamLimits};
use std::net::SocketAddr;

/// Responses kept for a peer that may be gone altogether, at most (as `crates/net` has it).
const WORDS_MAX: usize = 4;
/// Bytes of each, at most.
const WORD_BYTES_MAX: usize = 4_096;
/// How long a request may be unanswered for the loss of its connection to be told (64*T1).
const ANSWER_EXPECTED: Micros = LONG;

/// A response that may have gone to nobody.
#[derive(Clone, Debug)]
pub struct LastWord {
    /// Who sent it.
    pub shard: Shard,
    /// Its way.
    pub path: Path,
    /// What it says.
    pub bytes: Vec<u8>,
}

/// What a server does about the end of a peer's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Requests were asked on it, and will not be answered.
    pub is_loss: bool,
    /// Nothing is owed: the server's own direction ends, too.
    pub is_over: bool,
}

/// See the module's documentation.
pub(super) struct Connection {
    pub(super) remote: SocketAddr,
    framer: Framer,
    buffer: Vec<u8>,
    /// Requests that came and have had no final answer.
    owed: u32,
    /// Requests that went and have had none.
    asked: u32,
    asked_at: Micros,
    /// The peer has said its last word.
    is_ending: bool,
    words: Vec<LastWord>,
}

impl Connection {
    pub(super) fn new(remote: SocketAddr) -> Connection {
        Connection {
            remote,
            framer: Framer::new(),
            buffer: Vec::new(),
            owed: 0,
            asked: 0,
            asked_at: 0,
            is_ending: false,
            words: Vec::new(),
        }
    }

    /// Whether a response may go out on it.
    pub(super) fn takes_answers(&self) -> bool {
        !self.is_ending || self.owed > 0
    }

    /// Whether a request may: who has said its last word cannot answer.
    pub(super) fn takes_requests(&self) -> bool {
        !self.is_ending
    }

    /// Bytes came: the messages that are whole now, and whether the stream is sound.
    pub(super) fn received(&mut self, bytes: &[u8], limit: usize) -> (Vec<Vec<u8>>, bool) {
        let limits = StreamLimits { head_bytes_max: limit, message_bytes_max: limit };
        self.buffer.extend_from_slice(bytes);
        let mut messages = Vec::new();
        loop {
            match self.framer.next(&limits, &self.buffer) {
                Frame::Message { skip, len } => {
                    let message = self.buffer[skip..skip + len].to_vec();
                    self.buffer.drain(..skip + len);
                    self.note_received(&message);
                    messages.push(message);
                }
                Frame::Ping { len } => drop(self.buffer.drain(..len)),
                Frame::Incomplete { skip } => {
                    self.buffer.drain(..skip);
                    return (messages, true);
                }
                _ => return (messages, false),
            }
        }
    }

    fn note_received(&mut self, message: &[u8]) {
        match message.strip_prefix(b"SIP/2.0 ") {
            Some(rest) if is_final(rest) => self.asked = self.asked.saturating_sub(1),
            Some(_) => {}
            None if message.starts_with(b"ACK ") => {}
            None => self.owed += 1,
        }
    }

    /// A message went out on it; whether that was the last one, so that the server's direction ends.
    pub(super) fn sent(&mut self, now: Micros, shard: Shard, path: Path, message: &[u8]) -> bool {
        match message.strip_prefix(b"SIP/2.0 ") {
            Some(rest) if is_final(rest) => self.owed = self.owed.saturating_sub(1),
            Some(_) => {}
            None if message.starts_with(b"ACK ") => {}
            None => {
                self.asked += 1;
                self.asked_at = now;
            }
        }
        let fits = self.words.len() < WORDS_MAX && message.len() <= WORD_BYTES_MAX;
        if self.is_ending && fits && path.fallback_port != 0 {
            self.words.push(LastWord { shard, path, bytes: message.to_vec() });
        }
        self.is_ending && self.owed == 0
    }

    /// The peer has said its last word.
    pub(super) fn ended(&mut self, now: Micros) -> Ending {
        self.is_ending = true;
        let is_loss = self.asked > 0 && now - self.asked_at < ANSWER_EXPECTED;
        self.asked = 0;
        Ending { is_loss, is_over: self.owed == 0 }
    }

    /// What goes another way if the peer turns out to be gone.
    pub(super) fn take_words(&mut self) -> Vec<LastWord> {
        std::mem::take(&mut self.words)
    }
}

/// Whether what follows `SIP/2.0 ` is a final response.
fn is_final(rest: &[u8]) -> bool {
    rest.first().is_some_and(|class| *class >= b'2')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::TCP;

    const REQUEST: &[u8] = b"OPTIONS sip:a SIP/2.0\r\nContent-Length: 0\r\n\r\n";

    fn path() -> Path {
        let peer = "10.1.0.1:20001".parse().unwrap();
        Path { fallback_port: 5060, ..Path::new(TCP, None, peer) }
    }

    #[test]
    fn what_is_owed_still_goes_out_and_then_it_is_over() {
        let mut connection = Connection::new("10.1.0.1:20001".parse().unwrap());
        let (messages, is_sound) = connection.received(&[REQUEST, REQUEST].concat(), 1_000);
        assert!(messages.len() == 2 && is_sound);
        assert_eq!(connection.ended(0), Ending { is_loss: false, is_over: false });
        assert!(connection.takes_answers() && !connection.takes_requests());
        assert!(!connection.sent(0, 0, path(), b"SIP/2.0 180 Ringing"));
        assert!(!connection.sent(0, 0, path(), b"SIP/2.0 200 OK"));
        assert!(connection.sent(0, 0, path(), b"SIP/2.0 486 Busy Here"));
        assert!(!connection.takes_answers());
        assert_eq!(connection.take_words().len(), 3);
    }

    #[test]
    fn what_was_asked_is_lost_if_it_was_asked_lately() {
        for (now, is_loss) in [(LONG - 1, true), (LONG, false)] {
            let mut connection = Connection::new("10.1.0.1:5060".parse().unwrap());
            assert!(!connection.sent(0, 0, path(), REQUEST));
            assert_eq!(connection.ended(now), Ending { is_loss, is_over: true });
        }
    }
}
