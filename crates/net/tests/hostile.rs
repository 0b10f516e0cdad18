//! Peers that mean no good, or are broken: nothing of theirs may stop, block or fill a shard, and nobody else
//! may notice.
//!
//! The runs are seeded. `HOSTILE_ROUNDS=10000 cargo test -p net --test hostile -- --ignored` runs longer, with
//! other seeds.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use sip::Transport;
use support::*;

/// Numbers that look random: the same for the same seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
    /// One of these.
    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

const UPGRADE: &str = "GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: sip\r\n\
    Sec-WebSocket-Version: 13\r\n\r\n";

/// A client's frame.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [0x11, 0x22, 0x33, 0x44];
    let mut frame = match u8::try_from(payload.len()) {
        Ok(len) if len < 126 => vec![first, 0x80 | len],
        _ => {
            let [high, low] = u16::try_from(payload.len()).unwrap().to_be_bytes();
            vec![first, 0x80 | 126, high, low]
        }
    };
    frame.extend(mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// Opens a WebSocket at the listener of this number.
fn upgrade(server: &Server, listener: usize) -> TcpStream {
    let mut stream = server.connect_to(listener);
    stream.write_all(UPGRADE.as_bytes()).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    assert!(answer.starts_with(b"HTTP/1.1 101 "));
    stream
}

/// Reads one frame of the server: opcode and payload.
fn read_frame(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut head = [0; 2];
    stream.read_exact(&mut head).unwrap();
    let len = match head[1] {
        126 => {
            let mut len = [0; 2];
            stream.read_exact(&mut len).unwrap();
            usize::from(u16::from_be_bytes(len))
        }
        len => usize::from(len),
    };
    let mut payload = vec![0; len];
    stream.read_exact(&mut payload).unwrap();
    (head[0], payload)
}

/// One request and its answer by WebSocket.
fn ask_by_websocket(stream: &mut TcpStream, cseq: u32) {
    stream.write_all(&frame(0x81, request(cseq).as_bytes())).unwrap();
    assert_eq!(read_frame(stream), (0x81, answered(cseq).into_bytes()));
}

/// Something that a peer might send which it should not.
fn malice(random: &mut Random) -> Vec<u8> {
    let len = random.below(2_000);
    let request = request(7);
    match random.below(14) {
        0 => random.bytes(len),
        1 => request.replace("Content-Length: 0", "Content-Length: 70000").into_bytes(),
        2 => request.replace("Content-Length: 0", "Content-Length: 50").into_bytes(),
        3 => request.replace("\r\n\r\n", "").into_bytes(),
        4 => b"\r\n".repeat(len),
        5 => vec![b'A'; len * 40],
        6 => format!("OPTIONS sip:a@b SIP/2.0\r\nX: {}", "y".repeat(len * 40)).into_bytes(),
        7 => b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        8 => UPGRADE.as_bytes()[..random.below(UPGRADE.len())].to_vec(),
        9 => [UPGRADE.as_bytes(), &random.bytes(len)].concat(),
        10 => {
            let payload = random.bytes(random.0 as usize % 200);
            let first = random.next() as u8;
            [UPGRADE.as_bytes(), &frame(0x01, b"half a"), &frame(first, &payload)].concat()
        }
        11 => [UPGRADE.as_bytes(), &frame(0x89, b"?").repeat(len)].concat(),
        12 => [UPGRADE.as_bytes(), &[0x81, 0xff, 0, 0, 0, 0, 0x7f, 0, 0, 0, 1, 2, 3, 4]].concat(),
        _ => {
            let mut bytes = request.into_bytes();
            for _ in 0..=random.below(5) {
                let at = random.below(bytes.len());
                bytes[at] = random.next() as u8;
            }
            bytes
        }
    }
}

/// One hostile connection: says something in chunks, and leaves in one way or another.
fn attack(server: &Server, random: &mut Random, kept: &mut Vec<TcpStream>) {
    let mut stream = server.connect_to(1 + random.below(2));
    let _ = stream.set_write_timeout(Some(Duration::from_secs(2)));
    let bytes = malice(random);
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let (chunk, behind) = rest.split_at(1 + random.below(rest.len()));
        if stream.write_all(chunk).is_err() {
            return;
        }
        rest = behind;
    }
    match random.below(4) {
        0 => reset(stream),
        1 => {
            let _ = stream.shutdown(Shutdown::Write);
            kept.push(stream);
        }
        2 if kept.len() < 100 => kept.push(stream),
        _ => drop(stream),
    }
}

/// Attacks of which two good peers must not notice anything, and of which nothing is left.
fn rounds(count: usize, seed: u64) {
    let mut settings = settings();
    settings.streams.message_timeout = Duration::from_millis(500);
    settings.streams.lifetime = Duration::from_secs(20);
    let server = start(2, &[Transport::Tcp, Transport::Ws], &settings);
    let (mut random, mut kept) = (Random(seed), Vec::new());
    let (mut phone, mut browser) = (server.connect_to(1), upgrade(&server, 2));
    let mut slowest = Duration::ZERO;
    for round in 0..count {
        attack(&server, &mut random, &mut kept);
        if round % 8 == 0 {
            let begin = Instant::now();
            let cseq = u32::try_from(round).unwrap();
            ask(&mut phone, cseq);
            ask_by_websocket(&mut browser, cseq);
            slowest = slowest.max(begin.elapsed());
        }
        if kept.len() >= 100 {
            kept.drain(..*random.pick(&[1, 10, 100]));
        }
        while server.seen.try_recv().is_ok() {}
    }
    drop(kept);
    let left = server.statistics(|s| s.open == 2 && s.queued_bytes == 0 && s.partial_bytes == 0);
    assert_eq!(left.accepted, count as u64 + 2);
    ask(&mut phone, 1);
    ask_by_websocket(&mut browser, 1);
    assert!(slowest < Duration::from_secs(5), "a good peer waited for {slowest:?}");
    for shard in server.stop() {
        assert_eq!(shard.panics, 0);
    }
}

#[test]
fn a_thousand_attacks_leave_nothing_behind() {
    rounds(1_000, 1);
}

#[test]
#[ignore = "minutes; HOSTILE_ROUNDS says how many attacks"]
fn many_attacks_leave_nothing_behind() {
    let count = std::env::var("HOSTILE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20_000);
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    eprintln!("seed {seed}");
    rounds(count, seed);
}

/// A connection that sends pings of WebSocket and reads no pongs holds no more than its queue.
#[test]
fn websocket_pings_without_reading_end_the_connection() {
    let mut settings = settings();
    settings.streams.write_queue_bytes_max = 10_000;
    settings.streams.send_timeout = Duration::from_secs(600);
    let server = start(1, &[Transport::Ws], &settings);
    let mut stream = upgrade(&server, 1);
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let pings = frame(0x89, &[b'?'; 125]).repeat(1_000);
    let mut sent = 0;
    while stream.write_all(&pings).is_ok() {
        sent += pings.len();
        // The kernel's buffers on both sides take some megabytes; what is beyond them is ours.
        assert!(sent < 64 << 20, "{sent} bytes of pings were answered into memory");
    }
    assert_eq!(server.statistics(|s| s.open == 0).write_queue_full, 1);
    server.stop();
}

/// A handshake that never ends is given up, even if it sends a line end now and then.
#[test]
fn an_endless_websocket_handshake_ends_in_time() {
    let mut settings = settings();
    settings.streams.message_timeout = Duration::from_millis(300);
    let server = start(1, &[Transport::Ws], &settings);
    for drip in [&b"\r\n"[..], b"G"] {
        let mut stream = server.connect();
        let begin = Instant::now();
        while stream.write_all(drip).is_ok() {
            std::thread::sleep(Duration::from_millis(50));
            assert!(begin.elapsed() < PATIENCE, "{}", drip.escape_ascii());
        }
    }
    // One that says nothing at all lives no longer than any other silent connection.
    server.statistics(|s| s.open == 0 && s.slow == 2);
    server.stop();
}

/// Frames of a message that never ends, and a header of a frame that never ends.
#[test]
fn an_endless_websocket_message_ends_in_time() {
    let mut settings = settings();
    settings.streams.message_timeout = Duration::from_millis(300);
    let server = start(1, &[Transport::Ws], &settings);
    let starts = [frame(0x01, b""), vec![0x81], vec![0x81, 0xfe, 0x00], frame(0x01, b"x")];
    for start in &starts {
        let mut stream = upgrade(&server, 1);
        stream.write_all(start).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    server.statistics(|s| s.open == 0 && s.slow == starts.len() as u64);
    server.stop();
}

/// What a peer sends the moment a connection to it is there is read, and so is its end.
#[test]
fn what_comes_with_the_connection_is_not_overlooked() {
    let server = tcp(&settings());
    for cseq in 0..300 {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let peer = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(request(cseq).as_bytes()).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut got = Vec::new();
            while !got.ends_with(answered(cseq).as_bytes()) {
                let mut buffer = [0; 1_000];
                let n = stream.read(&mut buffer).expect("the answer to what came first");
                assert_ne!(n, 0);
                got.extend_from_slice(&buffer[..n]);
            }
        });
        server.send_to(address, &answered(cseq));
        peer.join().unwrap();
    }
    server.statistics(|s| s.open == 0);
    server.stop();
}
