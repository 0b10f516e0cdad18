//! The client's side of WebSocket (RFC 6455), as little as SIP needs (RFC 7118): the upgrade, and frames either way.

/// The key of the example in RFC 6455 §1.3 and what a server must make of it.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// What every frame of ours is masked with.
const MASK: [u8; 4] = [0x53, 0x49, 0x50, 0x21];

/// One frame that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it is (RFC 6455 §11.8).
    pub opcode: u8,
    /// What it carries.
    pub payload: Vec<u8>,
}

impl Frame {
    /// A message that is text.
    pub const TEXT: u8 = 1;
    /// A message that is none.
    pub const BINARY: u8 = 2;
    /// The end.
    pub const CLOSE: u8 = 8;
    /// To be answered with a pong.
    pub const PING: u8 = 9;
    /// The answer to a ping.
    pub const PONG: u8 = 10;

    /// The status of a close (RFC 6455 §7.4).
    pub fn close_code(&self) -> Option<u16> {
        (self.opcode == Self::CLOSE).then_some(())?;
        Some(u16::from_be_bytes(self.payload.get(..2)?.try_into().ok()?))
    }
}

/// The HTTP request that asks for SIP over WebSocket (RFC 7118 §4), with more header lines if there are any.
pub fn upgrade_request(host: impl std::fmt::Display, more: &str) -> String {
    format!(
        "GET / HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {KEY}\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: sip\r\n{more}\r\n"
    )
}

/// The head of an HTTP response at the front of `received`, taken off; `None` while it is not whole.
pub(crate) fn take_head(received: &mut Vec<u8>) -> Option<String> {
    let end = received.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = received.drain(..end).collect::<Vec<_>>();
    Some(String::from_utf8_lossy(&head).into_owned())
}

/// Whether this head accepts the upgrade as RFC 6455 §4.1 and RFC 7118 §4 ask.
pub(crate) fn is_accepted(head: &str) -> bool {
    let has = |name: &str, value: &str| {
        let fields = head.lines().filter_map(|line| line.split_once(':'));
        fields.into_iter().any(|(n, v)| n.eq_ignore_ascii_case(name) && v.trim().eq_ignore_ascii_case(value))
    };
    head.starts_with("HTTP/1.1 101 ")
        && has("Upgrade", "websocket")
        && has("Connection", "upgrade")
        && has("Sec-WebSocket-Accept", ACCEPT)
        && has("Sec-WebSocket-Protocol", "sip")
}

/// A whole frame from a client, masked.
pub fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    fragment(0x80 | opcode, payload)
}

/// A frame whose first byte is given: without 0x80 it is not the last one of its message.
///
/// # Panics
///
/// When the payload is longer than 65,535 bytes.
pub fn fragment(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).expect("frames of the tests are short");
    let mut bytes = vec![first];
    match u8::try_from(length) {
        Ok(short) if short < 126 => bytes.push(0x80 | short),
        _ => {
            bytes.push(0x80 | 126);
            bytes.extend(length.to_be_bytes());
        }
    }
    bytes.extend(MASK);
    bytes.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// The frame at the front of `received`, taken off; `None` while it is not whole.
///
/// # Panics
///
/// When it is masked, which no server may do (RFC 6455 §5.1).
pub(crate) fn take_frame(received: &mut Vec<u8>) -> Option<Frame> {
    let (first, second) = (*received.first()?, *received.get(1)?);
    assert!(second & 0x80 == 0, "a server must not mask");
    let (length, head) = match second {
        127 => (u64::from_be_bytes(received.get(2..10)?.try_into().ok()?), 10),
        126 => (u64::from(u16::from_be_bytes(received.get(2..4)?.try_into().ok()?)), 4),
        short => (u64::from(short), 2),
    };
    let end = head + usize::try_from(length).ok()?;
    received.get(..end)?;
    let payload = received.drain(..end).skip(head).collect();
    Some(Frame { opcode: first & 0x0f, payload })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_one_by_one() {
        let mut bytes = vec![0x81, 2, b'h', b'i', 0x88, 2, 0x03];
        let text = take_frame(&mut bytes).expect("a frame");
        assert_eq!((text.opcode, text.payload), (Frame::TEXT, b"hi".to_vec()));
        assert_eq!(take_frame(&mut bytes), None);
        bytes.push(0xe8);
        assert_eq!(take_frame(&mut bytes).and_then(|frame| frame.close_code()), Some(1000));
    }

    #[test]
    fn a_frame_of_ours_is_masked() {
        assert_eq!(frame(Frame::TEXT, b"SIP!"), [0x81, 0x84, 0x53, 0x49, 0x50, 0x21, 0, 0, 0, 0]);
    }
}
