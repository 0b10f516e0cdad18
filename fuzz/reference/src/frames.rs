//! WebSocket frames from RFC 6455 §5, one whole text at a time.

/// What a server makes of the frames of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// All fragments of a message.
    Message(Vec<u8>),
    /// A ping with its payload.
    Ping(Vec<u8>),
    /// The peer said goodbye, with this code if it gave one.
    Close(Option<u16>),
    /// The peer broke the protocol, and is told this code (§7.4.1).
    Violation(u16),
}

const PROTOCOL: u16 = 1002;
const NOT_UTF8: u16 = 1007;
const TOO_BIG: u16 = 1009;

/// Reads as many frames as are whole; a frame that breaks the protocol by its header alone need not be whole.
/// The last event of a connection is a close or a violation.
#[must_use]
pub fn read(bytes: &[u8], message_bytes_max: usize) -> Vec<Event> {
    let mut events = Vec::new();
    let mut rest = bytes;
    // Opcode and payload of the message in hand.
    let mut open: Option<(u8, Vec<u8>)> = None;
    loop {
        match frame(&mut rest, open.as_ref(), message_bytes_max) {
            Ok(None) => return events,
            Ok(Some((last, opcode, payload))) => match opcode {
                8 => {
                    events.push(close(&payload));
                    return events;
                }
                9 => events.push(Event::Ping(payload)),
                10 => {}
                _ => {
                    let message = open.get_or_insert((opcode, Vec::new()));
                    message.1.extend(payload);
                    if last {
                        let (opcode, payload) = open.take().expect("invariant: it was just put there");
                        // §5.6, §8.1: text is UTF-8.
                        if opcode == 1 && String::from_utf8(payload.clone()).is_err() {
                            events.push(Event::Violation(NOT_UTF8));
                            return events;
                        }
                        events.push(Event::Message(payload));
                    }
                }
            },
            Err(code) => {
                events.push(Event::Violation(code));
                return events;
            }
        }
    }
}

type Frame = (bool, u8, Vec<u8>);

/// Takes one frame off `rest`; `None`: it is not whole.
fn frame(
    rest: &mut &[u8],
    open: Option<&(u8, Vec<u8>)>,
    message_bytes_max: usize,
) -> Result<Option<Frame>, u16> {
    let [first, second, tail @ ..] = *rest else { return Ok(None) };
    let (last, opcode, short) = (first & 0x80 != 0, first & 0x0f, usize::from(second & 0x7f));
    let control = opcode >= 8;
    // §5.2: reserved bits without an extension, unknown opcodes; §5.1: a client masks; §5.5: control frames
    // are whole and short.
    let bad = first & 0x70 != 0 || !matches!(opcode, 0..=2 | 8..=10) || second & 0x80 == 0;
    if bad || (control && (!last || short > 125)) {
        return Err(PROTOCOL);
    }
    let size_bytes = match short {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    // A header is judged once it is whole, its mask included.
    if tail.len() < size_bytes + 4 {
        return Ok(None);
    }
    let (size, tail) = tail.split_at(size_bytes);
    let size = size.iter().fold(0u64, |size, &byte| size << 8 | u64::from(byte));
    let length = if size_bytes == 0 { short as u64 } else { size };
    // §5.2: the shortest form that holds the length, and no more than 63 bits.
    if (size_bytes == 2 && length < 126) || (size_bytes == 8 && (length < 65_536 || length >> 63 != 0)) {
        return Err(PROTOCOL);
    }
    if !control {
        // §5.4: fragments of a message are not interleaved with those of another.
        if (opcode == 0) != open.is_some() {
            return Err(PROTOCOL);
        }
        let before = open.map_or(0, |(_, payload)| payload.len() as u64);
        if before.saturating_add(length) > message_bytes_max as u64 {
            return Err(TOO_BIG);
        }
    }
    let (mask, tail) = tail.split_at(4);
    let length = usize::try_from(length).map_err(|_| TOO_BIG)?;
    let Some(masked) = tail.get(..length) else { return Ok(None) };
    *rest = &tail[length..];
    Ok(Some((last, opcode, masked.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect())))
}

/// §5.5.1, §7.4: nothing, or a code that may be sent and a reason in UTF-8.
fn close(payload: &[u8]) -> Event {
    let [high, low, reason @ ..] = payload else {
        return if payload.is_empty() { Event::Close(None) } else { Event::Violation(PROTOCOL) };
    };
    match u16::from_be_bytes([*high, *low]) {
        code @ (1000..=1003 | 1007..=1014 | 3000..=4999) if std::str::from_utf8(reason).is_ok() => {
            Event::Close(Some(code))
        }
        1000..=1003 | 1007..=1014 | 3000..=4999 => Event::Violation(NOT_UTF8),
        _ => Event::Violation(PROTOCOL),
    }
}
