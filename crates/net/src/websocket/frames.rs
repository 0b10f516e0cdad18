//! Frames of a WebSocket connection (RFC 6455 §5) put together to messages, as the server reads and writes
//! them.

use super::close_code::{NOT_UTF8, PROTOCOL, TOO_BIG};

/// Opcodes (RFC 6455 §5.2).
const CONTINUATION: u8 = 0x0;
pub(crate) const TEXT: u8 = 0x1;
pub(crate) const BINARY: u8 = 0x2;
pub(crate) const CLOSE: u8 = 0x8;
pub(crate) const PING: u8 = 0x9;
pub(crate) const PONG: u8 = 0xa;

const FINAL: u8 = 0x80;
const RESERVED: u8 = 0x70;
const OPCODE: u8 = 0x0f;
/// Opcodes from here on are of control frames.
const CONTROL: u8 = 0x8;
const MASKED: u8 = 0x80;
const LENGTH: u8 = 0x7f;
/// This length, and larger ones, are in the 2 bytes that follow.
const LENGTH_16: u8 = 126;
/// The length is in the 8 bytes that follow.
const LENGTH_64: u8 = 127;
/// Longest payload of a control frame (RFC 6455 §5.5).
const CONTROL_BYTES_MAX: u64 = 125;
/// Longest header: 2 bytes, a length of 8, a mask of 4.
pub(crate) const HEADER_BYTES_MAX: usize = 14;

/// What frames amounted to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// All fragments of a text or binary message.
    Message(Vec<u8>),
    /// A ping and its payload.
    Ping(Vec<u8>),
    /// A pong, asked for or not.
    Pong,
    /// A close and its code, if it has one.
    Close(Option<u16>),
}

/// Reads frames. It holds at most one message, one control frame and one frame header.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    header: HeaderBytes,
    /// The frame whose payload is being read.
    frame: Option<Frame>,
    /// The message in hand: of fragments before this frame, or of this frame.
    message: Option<Kind>,
    payload: Vec<u8>,
    /// The payload of a control frame, which may come between the fragments of a message.
    control: Vec<u8>,
}

/// How the first frame of a message declared it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Binary,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    is_final: bool,
    opcode: u8,
    /// Turned so that its first byte is for the payload's next byte.
    mask: [u8; 4],
    /// Bytes of the payload that have not come yet.
    left: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct HeaderBytes {
    bytes: [u8; HEADER_BYTES_MAX],
    len: usize,
}

impl Frames {
    /// Reads on until something is whole, and takes what it has read off `bytes`; `None`: `bytes` are used up.
    ///
    /// # Errors
    /// The close code for a peer that broke the protocol; nothing more can be read.
    pub(crate) fn receive(
        &mut self,
        bytes: &mut &[u8],
        message_bytes_max: usize,
    ) -> Result<Option<Received>, u16> {
        loop {
            let mut frame = match self.frame.take() {
                Some(frame) => frame,
                None => {
                    let Some(frame) = self.header.receive(bytes)? else { return Ok(None) };
                    self.begin(&frame, message_bytes_max)?;
                    frame
                }
            };
            let is_control = frame.opcode >= CONTROL;
            frame.take_payload(bytes, if is_control { &mut self.control } else { &mut self.payload });
            if frame.left > 0 {
                self.frame = Some(frame);
                return Ok(None);
            }
            if is_control {
                let payload = std::mem::take(&mut self.control);
                return match frame.opcode {
                    PING => Ok(Some(Received::Ping(payload))),
                    PONG => Ok(Some(Received::Pong)),
                    _ => Ok(Some(Received::Close(close_code_of(&payload)?))),
                };
            }
            if frame.is_final {
                return self.end_of_message().map(|message| Some(Received::Message(message)));
            }
        }
    }

    /// Checks a new frame against what came before it, and its length against the limit.
    fn begin(&mut self, frame: &Frame, message_bytes_max: usize) -> Result<(), u16> {
        if frame.opcode >= CONTROL {
            return Ok(());
        }
        // RFC 6455 §5.4: fragments are not interleaved with other messages.
        self.message = match (frame.opcode, self.message) {
            (CONTINUATION, Some(kind)) => Some(kind),
            (TEXT, None) => Some(Kind::Text),
            (BINARY, None) => Some(Kind::Binary),
            _ => return Err(PROTOCOL),
        };
        // The length is only believed to be too large: memory is taken as bytes come.
        let room = message_bytes_max.saturating_sub(self.payload.len());
        if frame.left > room as u64 { Err(TOO_BIG) } else { Ok(()) }
    }

    fn end_of_message(&mut self) -> Result<Vec<u8>, u16> {
        let payload = std::mem::take(&mut self.payload);
        match self.message.take() {
            // RFC 6455 §8.1.
            Some(Kind::Text) if std::str::from_utf8(&payload).is_err() => Err(NOT_UTF8),
            _ => Ok(payload),
        }
    }

    /// True if a frame or a message has begun and not ended.
    pub(crate) fn is_partial(&self) -> bool {
        self.frame.is_some() || self.message.is_some() || self.header.len > 0
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.payload.capacity() + self.control.capacity()
    }
}

impl Frame {
    /// Takes what there is of the payload off `bytes` and puts it behind `to`, unmasked (RFC 6455 §5.3).
    fn take_payload(&mut self, bytes: &mut &[u8], to: &mut Vec<u8>) {
        let len = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        let (masked, rest) = bytes.split_at(len);
        let start = to.len();
        to.extend_from_slice(masked);
        let payload = to.get_mut(start..).unwrap_or_default();
        let (words, tail) = payload.as_chunks_mut::<4>();
        for word in words {
            for (byte, mask) in word.iter_mut().zip(self.mask) {
                *byte ^= mask;
            }
        }
        for (byte, mask) in tail.iter_mut().zip(self.mask) {
            *byte ^= mask;
        }
        self.mask.rotate_left(len % 4);
        self.left -= len as u64;
        *bytes = rest;
    }
}

impl HeaderBytes {
    /// Reads a frame's header on and takes it off `bytes`; `None`: it is not whole.
    ///
    /// # Errors
    /// The close code for one that is not allowed.
    fn receive(&mut self, bytes: &mut &[u8]) -> Result<Option<Frame>, u16> {
        loop {
            let [first, second, ..] = self.bytes;
            if self.len == 2 {
                check(first, second)?;
            }
            if self.len >= 2 && self.len == header_len(second) {
                self.len = 0;
                return frame(first, second, &self.bytes).map(Some);
            }
            let Some((&byte, rest)) = bytes.split_first() else { return Ok(None) };
            *bytes = rest;
            if let Some(place) = self.bytes.get_mut(self.len) {
                *place = byte;
            }
            self.len += 1;
        }
    }
}

/// Bytes of a masked frame's header, told by its second byte.
fn header_len(second: u8) -> usize {
    match second & LENGTH {
        LENGTH_64 => 14,
        LENGTH_16 => 8,
        _ => 6,
    }
}

/// What the first two bytes of a client's frame may not be.
fn check(first: u8, second: u8) -> Result<(), u16> {
    let (opcode, length) = (first & OPCODE, second & LENGTH);
    let known = matches!(opcode, CONTINUATION | TEXT | BINARY | CLOSE | PING | PONG);
    // No extension was negotiated that could give a meaning to the reserved bits (RFC 6455 §5.2), and a
    // client's frames are masked (§5.1).
    let sound = known && first & RESERVED == 0 && second & MASKED != 0;
    // A control frame is whole and short (§5.5).
    let control = opcode < CONTROL || (first & FINAL != 0 && u64::from(length) <= CONTROL_BYTES_MAX);
    if sound && control { Ok(()) } else { Err(PROTOCOL) }
}

/// The frame that a whole header announces.
fn frame(first: u8, second: u8, header: &[u8; HEADER_BYTES_MAX]) -> Result<Frame, u16> {
    let [_, _, a, b, c, d, e, f, g, h, i, j, k, l] = *header;
    let (left, mask) = match second & LENGTH {
        LENGTH_64 => (u64::from_be_bytes([a, b, c, d, e, f, g, h]), [i, j, k, l]),
        LENGTH_16 => (u64::from(u16::from_be_bytes([a, b])), [c, d, e, f]),
        length => (u64::from(length), [a, b, c, d]),
    };
    // RFC 6455 §5.2: as few bytes as can hold the length, and the topmost bit of eight is 0.
    let minimal = match second & LENGTH {
        LENGTH_64 => left > u64::from(u16::MAX) && left <= i64::MAX as u64,
        LENGTH_16 => left >= u64::from(LENGTH_16),
        _ => true,
    };
    if !minimal {
        return Err(PROTOCOL);
    }
    Ok(Frame { is_final: first & FINAL != 0, opcode: first & OPCODE, mask, left })
}

/// The code of a close frame (RFC 6455 §5.5.1): one that may stand on the wire (§7.4, IANA's registry), then
/// text.
fn close_code_of(payload: &[u8]) -> Result<Option<u16>, u16> {
    match payload {
        [] => Ok(None),
        [high, low, reason @ ..] => {
            let code = u16::from_be_bytes([*high, *low]);
            if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
                return Err(PROTOCOL);
            }
            if std::str::from_utf8(reason).is_err() {
                return Err(NOT_UTF8);
            }
            Ok(Some(code))
        }
        _ => Err(PROTOCOL),
    }
}

/// Appends one whole frame as a server writes it: not masked (RFC 6455 §5.1).
pub(crate) fn write(opcode: u8, payload: &[u8], out: &mut Vec<u8>) {
    out.push(FINAL | opcode);
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length), _) if length < LENGTH_16 => out.push(length),
        (_, Ok(length)) => {
            out.push(LENGTH_16);
            out.extend_from_slice(&length.to_be_bytes());
        }
        _ => {
            out.push(LENGTH_64);
            out.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(payload);
}
