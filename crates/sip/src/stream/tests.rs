use super::*;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use proptest::collection::vec;
use proptest::prelude::*;

const LIMITS: StreamLimits = StreamLimits { head_bytes_max: 1_000, message_bytes_max: 2_000 };

/// What a caller makes of a stream.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    Message(Vec<u8>),
    Ping,
    Broken(Broken, usize),
}

/// Feeds `stream` in chunks that end at `cuts`, as a connection would, and checks that nothing is looked at
/// twice.
fn feed(limits: &StreamLimits, stream: &[u8], cuts: &[usize]) -> (Vec<Seen>, Vec<u8>) {
    let (mut framer, mut seen, mut rest) = (Framer::new(), Vec::new(), Vec::new());
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (stream.len() + 1)).collect();
    cuts.extend([0, stream.len()]);
    cuts.sort_unstable();
    for chunk in cuts.windows(2) {
        rest.extend_from_slice(&stream[chunk[0]..chunk[1]]);
        loop {
            match framer.next(limits, &rest) {
                Frame::Message { skip, len } => {
                    seen.push(Seen::Message(rest[skip..skip + len].to_vec()));
                    rest.drain(..skip + len);
                }
                Frame::Ping { len } => {
                    seen.push(Seen::Ping);
                    rest.drain(..len);
                }
                Frame::Incomplete { skip } => {
                    rest.drain(..skip);
                    assert!(looked(&framer) + 3 >= rest.len(), "bytes are left to be looked at again");
                    break;
                }
                Frame::Broken(broken) => {
                    let head = rest.get(..framer.head_len()).expect("the head is at the front");
                    assert!(head.is_empty() || head.ends_with(b"\r\n\r\n"));
                    assert_eq!(framer.next(limits, &rest), Frame::Broken(broken));
                    seen.push(Seen::Broken(broken, head.trim_ascii_start().len()));
                    return (seen, rest);
                }
            }
        }
    }
    (seen, rest)
}

/// How many of the bytes that are left were looked at for good.
fn looked(framer: &Framer) -> usize {
    match framer.phase {
        Phase::Between { .. } => 0,
        Phase::StartLine { looked, .. } => looked,
        Phase::Headers(headers) => headers.looked,
        Phase::Body { .. } | Phase::Broken { .. } => usize::MAX - 3,
    }
}

fn whole(stream: &[u8]) -> Vec<Seen> {
    feed(&LIMITS, stream, &[]).0
}

/// The verdict on a head with these header lines, alike in one chunk and byte for byte.
fn verdict(headers: &str, body: &str) -> Result<usize, Broken> {
    let stream = format!("BYE sip:a@b SIP/2.0\r\n{headers}\r\n{body}").into_bytes();
    let seen = whole(&stream);
    let every: Vec<usize> = (0..stream.len()).collect();
    assert_eq!(seen, feed(&LIMITS, &stream, &every).0);
    match &seen[..] {
        [Seen::Message(message)] => Ok(message.len() - (stream.len() - body.len())),
        [Seen::Broken(broken, _)] => Err(*broken),
        other => panic!("{other:?}"),
    }
}

/// How the first line of a stream is judged, and after how many bytes.
fn first_line(stream: &[u8]) -> Option<(usize, Broken)> {
    let (mut framer, mut taken) = (Framer::new(), 0);
    for len in 0..=stream.len() {
        match framer.next(&LIMITS, &stream[taken..len]) {
            Frame::Incomplete { skip } => taken += skip,
            Frame::Broken(broken) => return Some((len, broken)),
            Frame::Ping { len } | Frame::Message { len, .. } => taken += len,
        }
    }
    None
}

fn not_sip(stream: &[u8]) -> Option<(usize, NotSip)> {
    match first_line(stream) {
        Some((at, Broken::NotSip(what))) => Some((at, what)),
        _ => None,
    }
}

#[test]
fn content_length_says_where_the_next_message_begins() {
    let first = b"BYE sip:a@b SIP/2.0\r\nContent-Length: 4\r\n\r\nbody";
    let second = b"SIP/2.0 200 OK\r\nl: 0\r\n\r\n";
    let seen = whole(&[&first[..], second].concat());
    assert_eq!(seen, [Seen::Message(first.to_vec()), Seen::Message(second.to_vec())]);
}

/// RFC 3261 §7.4.2: there is no chunked transfer in SIP: it neither ends a message nor stands in for Content-Length.
#[test]
fn transfer_encoding_frames_nothing() {
    let chunks = "5\r\nhello\r\n0\r\n\r\n";
    let headers = "Transfer-Encoding: chunked\r\n";
    assert_eq!(verdict(headers, chunks), Err(Broken::ContentLength));
    let with_length = format!("{headers}Content-Length: {}\r\n", chunks.len());
    assert_eq!(verdict(&with_length, chunks), Ok(chunks.len()));
}

#[test]
fn content_length_is_found_however_it_is_written() {
    for line in [
        "Content-Length: 2",
        "content-length:2",
        "CONTENT-LENGTH :2",
        "l: 2",
        "L \t : 2",
        "Content-Length:\r\n 2",
        "Content-Length: \r\n\t2\r\n ",
        "Content-Length: 0002",
        "X: a\r\nContent-Length: 2\r\nY: b",
        "X: Content-Length: 9\r\nl:2",
        "X: a\r\n Content-Length: 9\r\nl:2",
    ] {
        assert_eq!(verdict(&format!("{line}\r\n"), "ab"), Ok(2), "{line}");
    }
}

#[test]
fn a_content_length_that_is_no_number_breaks_the_stream() {
    for value in [
        "-1",
        "+5",
        "-0",
        "",
        " ",
        "4294967296",
        "9223372036854775808",
        "18446744073709551616",
        "36893488147419103237",
        "5;x",
        "5 5",
        "5x",
        "0x5",
        "5.0",
        "\"5\"",
        "5\0",
        "five",
    ] {
        assert_eq!(
            verdict(&format!("Content-Length: {value}\r\n"), ""),
            Err(Broken::ContentLength),
            "{value}"
        );
    }
}

#[test]
fn a_content_length_beyond_the_limit_is_too_large() {
    for value in ["2000", "65536", "2147483647", "2147483648", "4294967295"] {
        assert_eq!(verdict(&format!("Content-Length: {value}\r\n"), ""), Err(Broken::TooLarge), "{value}");
    }
    let head = "BYE sip:a@b SIP/2.0\r\nContent-Length: 1955\r\n\r\n";
    assert_eq!(LIMITS.message_bytes_max - head.len(), 1_955);
    assert_eq!(verdict("Content-Length: 1955\r\n", &"x".repeat(1_955)), Ok(1_955));
    assert_eq!(verdict("Content-Length: 1956\r\n", ""), Err(Broken::TooLarge));
}

#[test]
fn content_length_has_one_value() {
    for headers in [
        "",
        "Via: x\r\n",
        "Content-Length: 0\r\nContent-Length: 0\r\n",
        "Content-Length: 0\r\nl: 0\r\n",
        "l: 1\r\nContent-Length: 2\r\n",
        "Content-Length: x\r\nContent-Length: 2\r\n",
        "Content-Length: 2, 2\r\n",
        "Content-Length: 2,\r\n",
    ] {
        assert_eq!(verdict(headers, ""), Err(Broken::ContentLength), "{headers}");
    }
}

#[test]
fn a_line_that_others_might_read_as_content_length_breaks_the_stream() {
    for line in [
        "Content-Length 5",
        " Content-Length: 5",
        "Content-Length\r\n : 5",
        "l",
        "X: a\nContent-Length: 5",
        "X: a\rl: 5",
        "X: a\n\r\n l: 5",
        "X\nl :5",
    ] {
        let before = format!("{line}\r\nContent-Length: 0\r\n");
        assert_eq!(verdict(&before, ""), Err(Broken::ContentLength), "{line}");
    }
    for line in ["no colon", ": x", "X: a\nb: c\rd", "Content-Type\r\n : 5", "Content-Lengths: 5"] {
        assert_eq!(verdict(&format!("{line}\r\nContent-Length: 0\r\n"), ""), Ok(0), "{line}");
    }
}

#[test]
fn only_crlf_crlf_ends_the_head() {
    for ending in ["\n\n", "\r\r", "\n\r", "\r\n\n", "\n\r\n"] {
        let stream = format!("BYE sip:a@b SIP/2.0\r\nl: 0\r\nX: y{ending}");
        let (seen, rest) = feed(&LIMITS, stream.as_bytes(), &[]);
        assert_eq!((seen.len(), rest.len()), (0, stream.len()), "{ending:?}");
    }
    assert_eq!(verdict("l: 2\r\nX: a\r\r\n", "ab"), Ok(2));
    assert_eq!(verdict("l: 2\r\n\rX: a\r\n", "ab"), Ok(2));
}

#[test]
fn the_head_of_a_broken_message_can_be_answered() {
    let head = b"BYE sip:a@b SIP/2.0\r\nl: 99999\r\n\r\n";
    let stream = [b"\r\n", &head[..], b"and the rest"].concat();
    let mut framer = Framer::new();
    assert_eq!(framer.next(&LIMITS, &stream), Frame::Broken(Broken::TooLarge));
    assert_eq!(framer.head_len(), 2 + head.len());
    assert_eq!(framer.next(&LIMITS, &stream), Frame::Broken(Broken::TooLarge));
    assert_eq!(framer.head_len(), 2 + head.len());
}

#[test]
fn a_head_may_be_as_long_as_the_limit_and_no_longer() {
    let head = |len: usize| {
        let mut head = String::from("BYE sip:a@b SIP/2.0\r\nl: 0\r\nX: ");
        while head.len() < len - 4 {
            head.push('x');
        }
        head + "\r\n\r\n"
    };
    let every: Vec<usize> = (0..1_100).collect();
    for cuts in [&[], &every[..]] {
        let longest = head(1_000);
        assert_eq!(feed(&LIMITS, longest.as_bytes(), cuts).0, [Seen::Message(longest.into())]);
        let seen = feed(&LIMITS, head(1_001).as_bytes(), cuts).0;
        assert_eq!(seen, [Seen::Broken(Broken::HeadersTooLong, 0)]);
    }
    // It is told as soon as the limit is reached.
    let endless = format!("BYE sip:a@b SIP/2.0\r\nX: {}", "x".repeat(2_000));
    assert_eq!(first_line(endless.as_bytes()), Some((1_000, Broken::HeadersTooLong)));
}

#[test]
fn a_start_line_has_a_limit_of_its_own() {
    let limits = StreamLimits::default();
    let line = |len: usize| format!("BYE sip:{} SIP/2.0\r\n", "a".repeat(len - 18));
    let stream = line(START_LINE_BYTES_MAX) + "l: 0\r\n\r\n";
    assert_eq!(feed(&limits, stream.as_bytes(), &[]).0.len(), 1);
    let stream = line(START_LINE_BYTES_MAX + 1) + "l: 0\r\n\r\n";
    let seen = feed(&limits, stream.as_bytes(), &[7, 8_191]).0;
    assert_eq!(seen, [Seen::Broken(Broken::HeadersTooLong, 0)]);
}

#[test]
fn a_tls_client_is_told_by_two_bytes() {
    assert_eq!(not_sip(b"\x16\x03\x01\x02\x00\x01"), Some((2, NotSip::Tls)));
    assert_eq!(not_sip(b"\r\n\x16\x03\x03"), Some((4, NotSip::Tls)));
    assert_eq!(not_sip(b"\x16\x04"), Some((2, NotSip::Other)));
    assert_eq!(not_sip(b"\x16"), None);
}

#[test]
fn http_is_told_as_soon_as_no_sip_can_follow() {
    assert_eq!(not_sip(b"GET / HTTP/1.1\r\n"), Some((5, NotSip::Http)));
    assert_eq!(not_sip(b"OPTIONS * HTTP/1.1\r\n"), Some((20, NotSip::Http)));
    assert_eq!(not_sip(b"CONNECT a.example:443 HTTP/1.1\r\n"), Some((32, NotSip::Http)));
    assert_eq!(not_sip(b"PRI * HTTP/2.0\r\n"), Some((16, NotSip::Http)));
    assert_eq!(not_sip(b"HTTP/1.1 200 OK\r\n"), Some((5, NotSip::Http)));
}

#[test]
fn noise_is_told() {
    assert_eq!(not_sip(b"\0\0\0\0"), Some((1, NotSip::Other)));
    assert_eq!(not_sip(b"\n"), Some((1, NotSip::Other)));
    assert_eq!(not_sip(b"\r\r"), Some((2, NotSip::Other)));
    assert_eq!(not_sip(b" BYE"), Some((1, NotSip::Other)));
    assert_eq!(not_sip(b"SSH-2.0-OpenSSH_9.6\r\n"), Some((21, NotSip::Other)));
    assert_eq!(not_sip(b"RTSP/1.0 200 OK\r\n"), Some((5, NotSip::Other)));
    assert_eq!(not_sip(b"hello world\r\n"), Some((13, NotSip::Other)));
    assert_eq!(not_sip(b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"), Some((36, NotSip::Other)));
    assert_eq!(not_sip(b"SIP/2.0 999 Beyond\r\n"), Some((20, NotSip::Other)));
    assert_eq!(not_sip(&[b'x'; 500]), Some((METHOD_BYTES_MAX + 1, NotSip::Other)));
}

#[test]
fn a_start_line_that_deserves_an_answer_passes() {
    for line in [
        "INVITE sip:a@b SIP/2.0",
        "!interesting-Method0123456789_*+`.%indeed'~ sip:a@b SIP/2.0",
        "INVITE  sip:a@b SIP/2.0",
        "INVITE sip:a@b  SIP/2.0 ",
        "INVITE <sip:a@b> SIP/2.0",
        "INVITE http://example.com/ SIP/2.0",
        "GET sip:a@b SIP/2.0",
        "INVITE sip:a@b SIP/7.0",
        "SIP/2.0 100",
        "sip/2.0 699 Nobody",
    ] {
        let stream = format!("{line}\r\nl: 0\r\n\r\n");
        assert_eq!(whole(stream.as_bytes()), [Seen::Message(stream.clone().into())], "{line}");
    }
}

#[test]
fn two_line_ends_are_a_ping_and_one_is_a_pong() {
    let bye = b"BYE sip:a@b SIP/2.0\r\nl: 0\r\n\r\n";
    let message = Seen::Message(bye.to_vec());
    let stream = |before: &[u8]| whole(&[before, bye].concat());
    assert_eq!(stream(b"\r\n"), core::slice::from_ref(&message));
    assert_eq!(stream(b"\r\n\r\n"), [Seen::Ping, message.clone()]);
    assert_eq!(stream(b"\r\n\r\n\r\n"), [Seen::Ping, message.clone()]);
    assert_eq!(stream(b"\r\n\r\n\r\n\r\n"), [Seen::Ping, Seen::Ping, message.clone()]);
    // What came before a message makes no ping with what comes behind it.
    assert_eq!(whole(&[b"\r\n", &bye[..], b"\r\n"].concat()), [message]);
}

#[test]
fn an_idle_stream_leaves_nothing_to_be_kept() {
    let mut framer = Framer::new();
    assert_eq!(framer.next(&LIMITS, b""), Frame::Incomplete { skip: 0 });
    assert_eq!(framer.next(&LIMITS, b"\r\n"), Frame::Incomplete { skip: 2 });
    assert_eq!(framer.next(&LIMITS, b"\r"), Frame::Incomplete { skip: 0 });
    assert_eq!(framer.next(&LIMITS, b"\r\n"), Frame::Ping { len: 2 });
}

#[test]
fn a_whole_head_is_told_before_its_body() {
    let mut framer = Framer::new();
    let stream = b"BYE sip:a@b SIP/2.0\r\nl: 3\r\n\r\nab";
    assert_eq!(framer.next(&LIMITS, &stream[..28]), Frame::Incomplete { skip: 0 });
    assert!(!framer.head_is_whole());
    assert_eq!(framer.next(&LIMITS, stream), Frame::Incomplete { skip: 0 });
    assert!(framer.head_is_whole());
}

fn header() -> impl Strategy<Value = String> {
    prop_oneof![
        "[A-Zm-z][a-z-]{1,8}[ \t]{0,2}:[ -~]{0,20}(\r\n[ \t][ -~]{0,9}){0,2}",
        "X[a-z]{1,8}: [ -~]{0,9}[\r\n][ .-9]{0,9}",
        Just("Via: SIP/2.0/TCP 192.0.2.1;branch=z9hG4bK1".into()),
    ]
}

/// A message with one Content-Length, or a keep-alive.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let start = prop_oneof!["[A-Z]{1,9} sip:[a-z]{1,9} SIP/2\\.0", "SIP/2\\.0 [1-6][0-9]{2} [a-zA-Z ]{0,9}"];
    let name = prop_oneof![Just("l"), Just("L "), Just("Content-Length"), Just("content-length\t")];
    let message =
        (start, vec(header(), 0..5), vec(header(), 0..3), name, vec(any::<u8>(), 0..60), any::<bool>())
            .prop_map(|(start, before, after, name, body, folded)| {
                let fold = if folded { "\r\n " } else { "" };
                let length = format!("{name}:{fold} {}", body.len());
                let lines: Vec<String> =
                    [start].into_iter().chain(before).chain([length]).chain(after).collect();
                [lines.join("\r\n").as_bytes(), b"\r\n\r\n", &body].concat()
            });
    prop_oneof![3 => message, 1 => Just(b"\r\n\r\n".to_vec())]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn messages_and_pings_come_out_as_they_went_in_however_they_are_cut(
        pieces in vec(piece(), 0..6),
        cuts in vec(any::<usize>(), 0..40),
    ) {
        let want: Vec<Seen> = pieces
            .iter()
            .map(|piece| if piece == b"\r\n\r\n" { Seen::Ping } else { Seen::Message(piece.clone()) })
            .collect();
        let stream = pieces.concat();
        let (seen, rest) = feed(&LIMITS, &stream, &cuts);
        prop_assert_eq!(&seen, &want);
        prop_assert!(rest.is_empty());
        let every: Vec<usize> = (0..stream.len()).collect();
        prop_assert_eq!(&feed(&LIMITS, &stream, &every).0, &want);
    }

    #[test]
    fn broken_streams_break_alike_however_they_are_cut(
        pieces in vec(piece(), 1..4),
        mutations in vec((any::<prop::sample::Index>(), prop_oneof![
            any::<u8>(),
            prop::sample::select(b"\r\n\t :,-0l".to_vec()),
        ], 0u8..3), 0..6),
        cuts in vec(any::<usize>(), 0..40),
        head_bytes_max in 0usize..400,
        message_bytes_max in 0usize..400,
    ) {
        let mut stream = pieces.concat();
        for (at, byte, kind) in mutations {
            let at = at.index(stream.len().max(1));
            match kind {
                0 if at < stream.len() => stream[at] = byte,
                1 if at < stream.len() => { stream.remove(at); }
                _ => stream.insert(at, byte),
            }
        }
        let limits = StreamLimits { head_bytes_max, message_bytes_max };
        let every: Vec<usize> = (0..stream.len()).collect();
        let byte_for_byte = feed(&limits, &stream, &every).0;
        prop_assert_eq!(feed(&limits, &stream, &cuts).0, byte_for_byte.clone());
        prop_assert_eq!(feed(&limits, &stream, &[]).0, byte_for_byte);
    }

    #[test]
    fn a_message_that_was_framed_has_the_content_length_that_the_parser_reads(stream in vec(piece(), 1..3)) {
        for seen in feed(&LIMITS, &stream.concat(), &[]).0 {
            if let Seen::Message(message) = seen {
                let mut index = crate::Index::new();
                let parsed = crate::Message::parse(&message, &mut index).unwrap();
                prop_assert_eq!(parsed.end(), message.len());
                prop_assert!(parsed.content_length().unwrap().is_some());
            }
        }
    }

    #[test]
    fn any_bytes_are_framed_without_panic(
        stream in vec(any::<u8>(), 0..300),
        cuts in vec(any::<usize>(), 0..9),
    ) {
        let _ = feed(&LIMITS, &stream, &cuts);
    }
}
