//! The reference itself: RFC 3261 §25.1 and each of our deviations from it, by example.

#![allow(missing_docs)]

use reference::{Judged, OURS, STANDARD, accepts, message, values};

fn both(rule: &str, text: &[u8]) -> (bool, bool) {
    let verdict = |grammar| accepts(grammar, rule, text).expect("short");
    (verdict(&STANDARD), verdict(&OURS))
}

/// What stands in the examples of RFC 3261 is taken by both.
#[test]
fn examples_of_the_rfc_are_taken() {
    let examples: [(&str, &[u8]); 14] = [
        ("SIP-URI", b"sip:alice@atlanta.com"),
        ("SIP-URI", b"sip:alice:secretword@atlanta.com;transport=tcp"),
        ("SIPS-URI", b"sips:alice@atlanta.com?subject=project%20x&priority=urgent"),
        ("SIP-URI", b"sip:+1-212-555-1212:1234@gateway.com;user=phone"),
        ("SIP-URI", b"sip:atlanta.com;method=REGISTER?to=alice%40atlanta.com"),
        ("SIP-URI", b"sip:alice;day=tuesday@atlanta.com"),
        ("SIP-URI", b"sip:%61lice@atlanta.com;transport=TCP"),
        ("telephone-uri", b"tel:+1-201-555-0123"),
        ("telephone-uri", b"tel:7042;phone-context=example.com"),
        ("via-values", b"SIP/2.0/UDP erlang.bell-telephone.com:5060;branch=z9hG4bK87asdks7"),
        (
            "via-values",
            b"SIP / 2.0 / UDP first.example.com: 4000;ttl=16 ;maddr=224.2.0.1 ;branch=z9hG4bKa7c6a8dlze.1",
        ),
        ("one-address", b"\"A. G. Bell\" <sip:agb@bell-telephone.com> ;tag=a48s"),
        ("one-address", b"Anonymous <sip:c8oqz84zk7z@privacy.org>;tag=hyh8"),
        ("Request-Line", b"INVITE sip:bob@biloxi.com SIP/2.0"),
    ];
    for (rule, text) in examples {
        assert_eq!(both(rule, text), (true, true), "{rule}: {}", text.escape_ascii());
    }
}

/// Section A of `deviations.abnf`.
#[test]
fn what_we_refuse_beyond_the_rfc() {
    let examples: [(&str, &[u8]); 10] = [
        ("SIP-URI", b"sip:256.1.1.1"),
        ("SIP-URI", b"sip:192.0.02.1"),
        ("SIP-URI", b"sip:[1::2::3]"),
        ("SIP-URI", b"sip:[1:2]"),
        ("via-values", b"SIP/3.0/UDP host"),
        ("via-values", b"HTTP/2.0/UDP host"),
        ("one-address", b"sip:a@b?subject=x"),
        ("credentials", b"Digest realm=\"a\r\n b\""),
        ("Request-Line", b"INVITE sip:bob@biloxi.com SIP/3.0"),
        ("Status-Line", b"SIP/2.0 999 Odd"),
    ];
    for (rule, text) in examples {
        // A doubled `::` is one of those that even the standard's grammar has not.
        let standard = both(rule, text).0;
        assert_eq!(
            (standard || text.contains(&b'['), both(rule, text).1),
            (true, false),
            "{}",
            text.escape_ascii()
        );
    }
}

/// Section B of `deviations.abnf`.
#[test]
fn what_we_take_beyond_the_rfc() {
    let examples: [(&str, &[u8]); 16] = [
        ("via-values", b"SIP/2.0/UDP\r\n \r\n a"),
        ("SIP-URI", b"sip:a@under_score.example"),
        ("SIP-URI", b"sip:a{b}@host"),
        ("SIP-URI", b"sip:host;a=b=c"),
        ("SIP-URI", b"sip:host?x"),
        ("telephone-uri", b"tel:+1;x=a@b"),
        ("other-URI", b"urn:{x}"),
        ("one-address", b"<sip:a@[b>"),
        ("one-address", "Jürgen/Büro <sip:a@b>".as_bytes()),
        ("one-address", b"<sip:a@b>;x=a/b"),
        ("one-address", b"\"\xff\x01\" <sip:a@b>"),
        ("via-values", b"SIP/2.0/UDP a;ttl=1 (a (nested) comment)"),
        ("callid", b"a@b@c"),
        ("credentials", b"Digest realm=\"a\",, nonce=a/b"),
        ("Status-Line", b"SIP/2.0 200"),
        ("qvalue", b".5"),
    ];
    for (rule, text) in examples {
        assert_eq!(both(rule, text), (false, true), "{rule}: {}", text.escape_ascii());
    }
}

#[test]
fn parts_are_where_they_are() {
    let Judged::Yes(uri) = values::uri(b"sip:a;b:c@h:5060;lr;x=y?q=r") else { panic!("a URI") };
    let wanted = values::Uri::Sip {
        secure: false,
        user: Some(b"a;b"),
        password: Some(b"c"),
        host: b"h",
        port: Some(b"5060"),
        params: vec![(b"lr", None), (b"x", Some(b"y"))],
        headers: Some(b"q=r"),
    };
    assert_eq!(uri, wanted);
    let Judged::Yes(vias) = values::vias(b"SIP/2.0/UDP a;x=\"1,2\", SIP/2.0/TCP [::1]:1;rport") else {
        panic!("two Vias")
    };
    assert_eq!(vias[0].params, [(&b"x"[..], Some(&b"\"1,2\""[..]))]);
    assert_eq!((vias[1].host, vias[1].port), (&b"[::1]"[..], Some(&b"1"[..])));
    let Judged::Yes(address) = values::address(b"\"x\" <sip:a@b;u>;tag=1") else { panic!("an address") };
    assert_eq!((address.display, address.uri), (Some(&b"\"x\""[..]), &b"sip:a@b;u"[..]));
}

/// The reference and the manifest of the torture messages (RFC 4475, RFC 5118) agree on what may be acted on.
#[test]
fn torture_messages_are_judged_as_the_manifest_says() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/torture");
    let manifest = std::fs::read_to_string(format!("{folder}/manifest.tsv")).expect("the manifest");
    let rows = manifest.lines().filter(|line| !line.starts_with('#')).skip(1);
    for row in rows {
        let fields: Vec<&str> = row.split('\t').collect();
        let bytes = std::fs::read(format!("{folder}/{}", fields[0])).expect("a message");
        let wanted = !matches!(fields[3], "parse" | "validate");
        match message::message(&bytes) {
            Judged::TooLong => {}
            judged => assert_eq!(matches!(judged, Judged::Yes(_)), wanted, "{}", fields[0]),
        }
    }
}
