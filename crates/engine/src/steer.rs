//! Which shard a datagram belongs to, before it is parsed (RFC 3261 has no say).
//!
//! A response belongs to the shard in the branch of its topmost Via, which is ours. A request belongs to the hash of its
//! Call-ID: its retransmissions, its CANCEL and its ACK have the same.

use crate::branch::OwnBranch;
use crate::mac::Keys;

/// Bytes looked at; a Call-ID behind them does not count.
const SCAN_BYTES_MAX: usize = 16_384;

/// The shard of a message among `shards`, less than `shards`; 0 where nothing can be found. `key` is
/// [`Config::seed`](crate::Config::seed).
pub fn steer(bytes: &[u8], shards: u8, key: [u64; 4]) -> u8 {
    if shards <= 1 {
        return 0;
    }
    let head = bytes.get(..bytes.len().min(SCAN_BYTES_MAX)).unwrap_or(bytes);
    let response = head.get(..4).is_some_and(|start| start.eq_ignore_ascii_case(b"SIP/"));
    if response {
        let via = header(head, b"via", b"v");
        if let Some(shard) = via.and_then(branch).and_then(OwnBranch::parse).map(|branch| branch.shard())
            && shard < shards
        {
            return shard;
        }
    }
    match header(head, b"call-id", b"i") {
        Some(call_id) => (Keys::new(key).hash(&[call_id]) % u64::from(shards)) as u8,
        None => 0,
    }
}

/// The value of the first header with one of two names, without surrounding blanks.
fn header<'a>(head: &'a [u8], long: &[u8], short: &[u8]) -> Option<&'a [u8]> {
    let mut lines = head.split(|&byte| byte == b'\n');
    lines.next();
    while let Some(line) = lines.next() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return None;
        }
        let first = line.first().map_or(0, u8::to_ascii_lowercase);
        if Some(&first) != long.first() && Some(&first) != short.first() {
            continue;
        }
        let colon = line.iter().position(|&byte| byte == b':')?;
        let name = line.get(..colon).unwrap_or(b"").trim_ascii();
        if name.eq_ignore_ascii_case(long) || name.eq_ignore_ascii_case(short) {
            let value = line.get(colon + 1..).unwrap_or(b"").trim_ascii();
            // RFC 3261 §7.3.1: the value may begin on the next line.
            return if value.is_empty() { folded(lines) } else { Some(value) };
        }
    }
    None
}

/// The first part of a folded value that is not blank.
fn folded<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<&'a [u8]> {
    let continued = lines.take_while(|line| matches!(line.first(), Some(b' ' | b'\t')));
    continued.map(<[u8]>::trim_ascii).find(|part| !part.is_empty())
}

/// The branch parameter of the first value of a Via.
fn branch(via: &[u8]) -> Option<&[u8]> {
    let first = via.split(|&byte| byte == b',').next().unwrap_or(via);
    first.split(|&byte| byte == b';').find_map(|param| {
        let param = param.trim_ascii();
        let (name, value) = param.split_at_checked(7)?;
        name.eq_ignore_ascii_case(b"branch=").then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_response_goes_where_its_branch_says() {
        let mut text = b"SIP/2.0 200 OK\r\nFrom: x\r\nv : SIP/2.0/UDP h:1 ; rport ; Branch=".to_vec();
        let branch =
            OwnBranch::Stateful { shard: 3, slot: 1, generation: 2, index: 0, cookie: 5, loop_hash: 6 };
        branch.write(&mut text);
        text.extend_from_slice(b";x, SIP/2.0/UDP c;branch=z9hG4bK7\r\nCall-ID: a\r\n\r\n");
        assert_eq!(steer(&text, 8, [1; 4]), 3);
        assert!(steer(&text, 2, [1; 4]) < 2);
        assert_eq!(steer(&text, 1, [1; 4]), 0);
    }

    #[test]
    fn requests_of_a_call_meet() {
        let mut seen = [false; 4];
        for call in 0..64u8 {
            let of = |method: &str, name: &str| {
                let mut text = Vec::new();
                text.extend_from_slice(method.as_bytes());
                text.extend_from_slice(b" sip:a@b SIP/2.0\r\nCSeq: 1 X\r\n");
                text.extend_from_slice(name.as_bytes());
                text.extend_from_slice(&[b'x', b'0' + call, b'\r', b'\n', b'\r', b'\n']);
                steer(&text, 4, [7; 4])
            };
            let shard = of("INVITE", "Call-ID: ");
            assert_eq!(shard, of("CANCEL", "i:"));
            seen[usize::from(shard)] = true;
        }
        assert_eq!(seen, [true; 4]);
        assert_eq!(steer(b"", 4, [7; 4]), 0);
        assert_eq!(steer(b"\r\n\r\n", 4, [7; 4]), 0);
    }
}
