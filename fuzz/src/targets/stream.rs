//! Streams (RFC 3261 §18.3, §7.5, RFC 5626 §3.5.1): the framer in chunks of any size.

use super::input::Input;
use super::show;
use reference::Judged;
use reference::message;
use sip::stream::{Broken, Frame, Framer, StreamLimits};
use sip::{Index, Message};

/// What a stream came to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cut {
    Message(Vec<u8>),
    Ping,
    Broken(Broken, usize),
}

/// See [`TARGETS`](crate::TARGETS). The first eight bytes are limits and sizes of chunks, the rest is the
/// stream.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let limits = *input.pick(&[
        StreamLimits::default(),
        StreamLimits { head_bytes_max: 200, message_bytes_max: 300 },
        StreamLimits { head_bytes_max: 4_096, message_bytes_max: 64 },
    ]);
    let sizes: Vec<usize> = (0..7).map(|_| input.below(64) + 1).collect();
    let stream = input.rest();
    let whole = cut(stream, &limits, std::iter::repeat(stream.len().max(1)));
    let bytewise = cut(stream, &limits, std::iter::repeat(1));
    assert_eq!(bytewise, whole, "byte by byte: {}", show(stream));
    let chunked = cut(stream, &limits, sizes.iter().copied().cycle());
    assert_eq!(chunked, whole, "in chunks of {sizes:?}: {}", show(stream));
    for piece in &whole {
        if let Cut::Message(bytes) = piece {
            message(bytes, &limits);
        }
    }
}

/// Feeds a stream chunk by chunk, as a connection does.
fn cut(stream: &[u8], limits: &StreamLimits, sizes: impl Iterator<Item = usize>) -> Vec<Cut> {
    let (mut framer, mut cuts) = (Framer::new(), Vec::new());
    let (mut held, mut taken_off) = (Vec::new(), 0);
    let mut rest = stream;
    for size in sizes {
        let (chunk, later) = rest.split_at(size.min(rest.len()));
        rest = later;
        held.extend_from_slice(chunk);
        loop {
            let gone = match framer.next(limits, &held) {
                Frame::Message { skip, len } => {
                    cuts.push(Cut::Message(held[skip..skip + len].to_vec()));
                    skip + len
                }
                Frame::Ping { len } => {
                    cuts.push(Cut::Ping);
                    len
                }
                Frame::Incomplete { skip } => {
                    held.drain(..skip);
                    taken_off += skip;
                    // Blank lines, a head and a body within their limits: nothing else is waited for.
                    let most = limits.head_bytes_max.max(limits.message_bytes_max) + size;
                    assert!(held.len() <= most, "{} bytes are held", held.len());
                    break;
                }
                Frame::Broken(why) => {
                    let head =
                        held.get(..framer.head_len()).unwrap_or_else(|| panic!("a head beyond what came"));
                    // Where the head began does not depend on what was taken off before.
                    let blank = head.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
                    cuts.push(Cut::Broken(why, head.len() - blank));
                    return cuts;
                }
            };
            held.drain(..gone);
            taken_off += gone;
        }
        if rest.is_empty() {
            break;
        }
    }
    assert_eq!(taken_off + held.len(), stream.len(), "bytes were lost");
    cuts
}

/// A message of a stream has one length for every reader: the reference finds its head where the framer did,
/// and the one Content-Length says what is left.
fn message(bytes: &[u8], limits: &StreamLimits) {
    assert!(bytes.len() <= limits.message_bytes_max, "{}", show(bytes));
    let mut index = Index::new();
    let message = Message::parse(bytes, &mut index);
    let Judged::Yes(lines) = message::lines(bytes) else { return };
    let lengths: Vec<&[u8]> = lines.named("content-length").collect();
    let wanted = lines.rest.len().to_string();
    let [length] = lengths.as_slice() else { panic!("not one Content-Length: {}", show(bytes)) };
    let plain = String::from_utf8_lossy(length).trim_start_matches('0').to_owned();
    assert_eq!(plain, wanted.trim_start_matches('0'), "{}", show(bytes));
    let message = message.unwrap_or_else(|e| panic!("{e}, and the reference reads it: {}", show(bytes)));
    assert_eq!(message.body(), lines.rest, "{}", show(bytes));
}
