//! Which shard a datagram belongs to: all of one call's transaction together, before any parsing.

mod rig;

use engine::steer;
use rig::{ALICE, BOB, Network, Request, config, to_bob};

const KEY: [u64; 4] = [1, 2, 3, 4];

fn shard_of(bytes: &[u8], shards: u8) -> u8 {
    let shard = steer(bytes, shards, KEY);
    assert!(shard < shards.max(1));
    shard
}

/// CANCEL, ACK and retransmissions go where their INVITE went, and so does the whole dialog.
#[test]
fn requests_of_one_call_go_to_one_shard() {
    for shards in [1, 2, 3, 4, 7, 8, 16, 255] {
        for n in 0..100 {
            let invite = Request::invite(n);
            let shard = shard_of(&invite.bytes(), shards);
            for method in ["CANCEL", "ACK", "BYE", "INFO", "INVITE"] {
                let mut request =
                    Request::new(method, n).cseq(n + 2).with_to_tag("bob").uri("sip:bob@10.0.2.1");
                request.vias.insert(0, "SIP/2.0/UDP 192.0.2.9;branch=z9hG4bKother".into());
                assert_eq!(shard_of(&request.bytes(), shards), shard, "{method}");
            }
            assert_eq!(shard_of(&invite.bytes(), shards), shard);
        }
    }
}

/// However the Call-ID header is written, it is the same Call-ID (RFC 3261 §7.3.1).
#[test]
fn the_way_a_call_id_is_written_does_not_matter() {
    for n in 0..50 {
        let text = Request::invite(n).text();
        let shard = shard_of(text.as_bytes(), 16);
        let value = format!("call-{n}@alice.example.org");
        for header in
            ["i: ", "I:", "CALL-ID:   ", "call-id : ", "Call-ID:\t", "Call-ID:\r\n ", "Call-ID: \r\n\t"]
        {
            let other = text.replace(&format!("Call-ID: {value}"), &format!("{header}{value}"));
            assert_ne!(other, text);
            assert_eq!(shard_of(other.as_bytes(), 16), shard, "{header:?}");
        }
        let spaces = text.replace(&value, &format!("{value}  "));
        assert_eq!(shard_of(spaces.as_bytes(), 16), shard);
    }
}

/// A Call-ID inside another header or the body is none.
#[test]
fn only_the_call_id_header_counts() {
    for n in 0..50 {
        let mut plain = Request::invite(n);
        let shard = shard_of(&plain.bytes(), 16);
        plain.lines.insert(0, "X-Call-ID: wrong".into());
        plain.lines.insert(0, "Subject: the\r\n Call-ID: wrong".into());
        plain.body.push_str("Call-ID: wrong\r\n");
        assert_eq!(shard_of(&plain.bytes(), 16), shard);
    }
}

/// A response goes to the shard that sent the request: it is coded in the branch of our Via.
#[test]
fn responses_go_to_the_shard_that_sent_the_request() {
    for shards in [1_u8, 2, 3, 8, 16] {
        for n in 0..60 {
            let invite = Request::invite(n);
            let shard = shard_of(&invite.bytes(), shards);
            let mut config = config();
            config.shard = shard;
            config.shards = shards;
            let mut network = Network::with(config, to_bob());
            network.alice(&invite);
            let received = network.only(BOB, "INVITE");
            for response in [received.respond(100, ""), received.respond(180, "bob"), received.accept("bob")]
            {
                assert_eq!(shard_of(&response, shards), shard);
            }
            let text = String::from_utf8(received.respond(180, "bob")).expect("our own text");
            let compact = text.replacen("Via:", "v:", 2).replacen("Call-ID:", "i:", 1);
            assert_eq!(shard_of(compact.as_bytes(), shards), shard);
            network.send(BOB, received.respond(180, "bob"));
            network.alice(&invite.cancel());
            let cancel = network.only(BOB, "CANCEL");
            assert_eq!(shard_of(&cancel.respond(200, "bob"), shards), shard);
            assert_eq!(network.sent_at(ALICE, "180"), [0]);
        }
    }
}

/// Shards get alike shares.
#[test]
fn calls_are_spread_evenly() {
    let mut counts = [0_u32; 8];
    for n in 0..8000 {
        counts[usize::from(shard_of(&Request::invite(n).bytes(), 8))] += 1;
    }
    assert!(counts.iter().all(|&count| (800..1200).contains(&count)), "{counts:?}");
}

/// Who does not know the key cannot aim at one shard.
#[test]
fn the_key_decides() {
    let same = (0..400)
        .filter(|&n| {
            let bytes = Request::invite(n).bytes();
            steer(&bytes, 8, KEY) == steer(&bytes, 8, [9, 9, 9, 9])
        })
        .count();
    assert!((10..120).contains(&same), "about one in eight by chance: {same}");
}

/// Whatever arrives gets a shard that exists.
#[test]
fn garbage_is_steered_somewhere() {
    let mut prng = rig::prng::Prng::new(11);
    let text = Request::invite(1).bytes();
    for _ in 0..20_000 {
        let mut bytes = text.clone();
        for _ in 0..=prng.below(8) {
            let at = usize::try_from(prng.below(bytes.len() as u64)).expect("small");
            match prng.below(3) {
                0 => bytes[at] = u8::try_from(prng.below(256)).expect("a byte"),
                1 => bytes.truncate(at.max(1)),
                _ => {
                    bytes.remove(at.min(bytes.len() - 1));
                    bytes.push(b'\n');
                }
            }
        }
        shard_of(&bytes, 5);
    }
    for bytes in
        [&b""[..], b"\r\n\r\n", b"SIP/2.0", b"SIP/2.0 200 OK\r\nVia", b"INVITE", b"Call-ID:", b"\0\0\0\0"]
    {
        shard_of(bytes, 5);
        shard_of(bytes, 1);
    }
}
