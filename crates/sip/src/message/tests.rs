//! Framing and lazy values (RFC 3261 §7, RFC 4475 §3.1.1).

use super::*;
use crate::{MAX_HEADERS, validate};
use alloc::vec::Vec;

fn with<T>(bytes: &[u8], check: impl FnOnce(&Message<'_>) -> T) -> T {
    let mut index = Index::new();
    check(&Message::parse(bytes, &mut index).unwrap_or_else(|e| panic!("{e}")))
}

fn parse_error(bytes: &[u8]) -> ParseErrorKind {
    Message::parse(bytes, &mut Index::new()).unwrap_err().kind
}

const TORTUOUS: &[u8] = b"INVITE sip:vivekg@chair-dnrc.example.com;unknownparam SIP/2.0\r\n\
TO :\r\n sip:vivekg@chair-dnrc.example.com ;   tag    = 1918181833n\r\n\
from   : \"J Rosenberg \\\\\\\"\"       <sip:jdrosen@example.com>\r\n  ;\r\n  tag = 98asjd8\r\n\
MaX-fOrWaRdS: 0068\r\nCall-ID: wsinv.ndaksdj@192.0.2.1\r\nContent-Length   : 4\r\ncseq: 0009\r\n  INVITE\r\n\
Via  : SIP  /   2.0\r\n /UDP\r\n    192.0.2.2;branch=390skdjuw\r\ns :\r\n\
NewFangledHeader:   newfangled value\r\n continued newfangled value\r\n\
UnknownHeaderWithUnusualValue: ;;,,;;,;\r\nContent-Type: application/sdp\r\n\
Route:\r\n <sip:services.example.com;lr;unknownwith=value;unknown-no-value>\r\n\
v:  SIP  / 2.0  / TCP     spindle.example.com   ;\r\n  branch  =   z9hG4bK9ikj8  ,\r\n \
SIP  /    2.0   / UDP  192.168.255.111   ; branch=\r\n z9hG4bK30239\r\n\
m:\"Quoted string \\\"\\\"\" <sip:jdrosen@example.com> ; newparam =\r\n      newvalue ;\r\n  secondparam ; q = 0.33\r\n\
\r\nv=0\r\nrest that is no body";

#[test]
fn a_short_tortuous_invite_means_what_it_means() {
    with(TORTUOUS, |m| {
        assert_eq!(validate::request(m), Ok(()));
        assert_eq!((m.method(), m.method_bytes()), (Method::Invite, &b"INVITE"[..]));
        assert_eq!(m.request_uri(), b"sip:vivekg@chair-dnrc.example.com;unknownparam");
        assert_eq!((m.to_tag(), m.from_tag()), (Some(&b"1918181833n"[..]), Some(&b"98asjd8"[..])));
        assert_eq!(m.max_forwards(), Ok(Some(68)));
        assert_eq!(m.call_id(), Ok(&b"wsinv.ndaksdj@192.0.2.1"[..]));
        assert_eq!(m.cseq(), Ok(CSeq { number: 9, method: Method::Invite, method_bytes: b"INVITE" }));
        let branches: Vec<_> = m.vias().map(|v| v.unwrap().branch().unwrap()).collect();
        assert_eq!(branches, [&b"390skdjuw"[..], b"z9hG4bK9ikj8", b"z9hG4bK30239"]);
        assert_eq!(m.header(HeaderName::Subject).unwrap().value, b"");
        let contact = m.contacts().next().unwrap().unwrap();
        assert_eq!(contact.params.get(b"newparam"), Some(Some(&b"newvalue"[..])));
        assert_eq!(contact.q().unwrap().thousandths(), 330);
        assert!(m.routes().next().unwrap().unwrap().uri().unwrap().sip().unwrap().lr());
        assert_eq!(m.body(), b"v=0\r");
        let folded = m.headers_named(b"newfangledheader").next().unwrap();
        assert_eq!(folded.value, b"newfangled value\r\n continued newfangled value");
    });
}

#[test]
fn a_name_means_one_header_however_it_is_written() {
    with(TORTUOUS, |m| {
        for name in [&b"v"[..], b"V", b"Via", b"VIA"] {
            assert_eq!(m.headers_named(name).count(), 2, "{name:?}");
        }
        assert_eq!(m.headers_named(b"l").next().unwrap().name_bytes, b"Content-Length");
        assert_eq!(m.headers_named(b"X-None").count(), 0);
    });
}

#[test]
fn header_lines_tile_the_bytes_between_start_line_and_empty_line() {
    with(TORTUOUS, |m| {
        let mut at = m.index.start_line.end;
        for header in m.all_headers() {
            assert_eq!(header.line.start, at);
            at = header.line.end;
        }
        assert_eq!(at as usize, m.headers_end());
        assert_eq!(slice(m.bytes(), m.headers_end(), m.headers_end() + 2), b"\r\n");
    });
}

#[test]
fn a_response_takes_its_method_from_cseq() {
    with(b"SIP/2.0 200 = 2**3 * 5**2 \xd0\xbd\xd0\xbe\r\nCSeq: 7 BYE\r\n\r\n", |m| {
        assert!(!m.is_request());
        assert_eq!((m.status(), m.method()), (Some(200), Method::Bye));
        assert_eq!(m.reason(), b"= 2**3 * 5**2 \xd0\xbd\xd0\xbe");
        assert_eq!(m.request_uri(), b"");
    });
    with(b"SIP/2.0 100 \r\n\r\n", |m| assert_eq!((m.status(), m.reason()), (Some(100), &b""[..])));
    with(b"sip/2.0 699\r\n\r\n", |m| assert_eq!((m.status(), m.version_ok()), (Some(699), true)));
}

#[test]
fn what_is_not_sip_does_not_parse() {
    assert_eq!(parse_error(b""), ParseErrorKind::Empty);
    assert_eq!(parse_error(b"\r\n\r\n"), ParseErrorKind::Empty);
    assert_eq!(parse_error(b"GET / HTTP/1.1\r\n\r\n"), ParseErrorKind::NotSip);
    assert_eq!(parse_error(b"INVITE sip:a@b\r\n\r\n"), ParseErrorKind::NotSip);
    assert_eq!(parse_error(b"INVITE\r\n\r\n"), ParseErrorKind::NotSip);
    assert_eq!(parse_error(b"INVITE sip:a@b SIP/2.0\nVia: x\n\n"), ParseErrorKind::NoLineEnd);
    assert_eq!(
        parse_error(b"SIP/2.0 4294967301 better not break the receiver\r\n\r\n"),
        ParseErrorKind::BadStatus
    );
    for line in
        [&b"SIP/2.0 99 x"[..], b"SIP/2.0 700 x", b"SIP/2.0 2000", b"SIP/2.0  200 OK", b"SIP/2.0 -20 x"]
    {
        assert_eq!(parse_error(&[line, b"\r\n\r\n"].concat()), ParseErrorKind::BadStatus, "{line:?}");
    }
    assert_eq!(parse_error(&Vec::from([b'x'; MAX_MESSAGE_BYTES + 1])), ParseErrorKind::TooLong);
}

#[test]
fn header_lines_are_bounded() {
    let mut bytes = b"OPTIONS sip:a SIP/2.0\r\n".to_vec();
    (0..MAX_HEADERS).for_each(|_| bytes.extend_from_slice(b"a:b\r\n"));
    with(&[&bytes[..], b"\r\n"].concat(), |m| assert_eq!(m.all_headers().count(), MAX_HEADERS));
    bytes.extend_from_slice(b"a:b\r\n\r\n");
    assert_eq!(parse_error(&bytes), ParseErrorKind::TooManyHeaders);
}

#[test]
fn empty_lines_before_the_start_line_are_skipped() {
    with(b"\r\n\r\nOPTIONS sip:a SIP/2.0\r\nCSeq: 1 OPTIONS\r\n\r\n", |m| {
        assert_eq!(m.method(), Method::Options);
        assert_eq!(m.cseq().unwrap().number, 1);
    });
}

fn value_of<T>(header: &[u8], get: impl FnOnce(&Message<'_>) -> T) -> T {
    with(&[&b"OPTIONS sip:a SIP/2.0\r\n"[..], header, b"\r\n\r\n"].concat(), get)
}

#[test]
fn cseq_is_a_number_below_two_to_the_31_and_a_token() {
    assert_eq!(value_of(b"CSeq: 2147483647 ACK", |m| m.cseq().map(|c| c.number)), Ok(2_147_483_647));
    let problem = |text: &[u8]| value_of(&[b"CSeq: ", text].concat(), |m| m.cseq().unwrap_err().problem);
    assert_eq!(problem(b"2147483648 ACK"), Problem::OutOfRange);
    assert_eq!(problem(b"36893488147419103232 REGISTER"), Problem::OutOfRange);
    for text in [&b"-1 ACK"[..], b"ACK", b"1", b"1ACK", b"1 A B", b"1 A@B", b"", b"0x1 ACK", b"1, 2 ACK"] {
        assert_eq!(problem(text), Problem::Malformed, "{text:?}");
    }
}

#[test]
fn singletons_may_not_be_repeated() {
    assert_eq!(value_of(b"i: a\r\nCall-ID: a", |m| m.call_id().unwrap_err().problem), Problem::Repeated);
    assert_eq!(
        value_of(b"f: <sip:a>\r\nFrom: <sip:a>", |m| m.from().unwrap_err().problem),
        Problem::Repeated
    );
    assert_eq!(value_of(b"To: <sip:a>, <sip:b>", |m| m.to().unwrap_err().problem), Problem::Malformed);
    assert_eq!(value_of(b"l: 0\r\nl: 0", |m| m.content_length().unwrap_err().problem), Problem::Repeated);
    assert_eq!(value_of(b"x: y", |m| m.call_id().unwrap_err().problem), Problem::Missing);
}

#[test]
fn numbers_keep_their_ranges() {
    assert_eq!(value_of(b"Expires: 1000000000000000000", |m| m.expires()), Ok(Some(u32::MAX)));
    assert!(value_of(b"Expires: soon", |m| m.expires()).is_err());
    assert_eq!(value_of(b"Max-Forwards: 0", |m| m.max_forwards()), Ok(Some(0)));
    assert!(value_of(b"Max-Forwards: 300", |m| m.max_forwards()).is_err());
    assert_eq!(value_of(b"x: y", |m| m.max_forwards()), Ok(None));
    assert!(value_of(b"Content-Length: -999", |m| m.content_length()).is_err());
    assert!(value_of(b"Content-Length: 4294967296", |m| m.content_length()).is_err());
    assert!(value_of(b"Content-Length:", |m| m.content_length()).is_err());
}

#[test]
fn values_joined_and_scattered_are_one_list() {
    let joined = b"Route: <sip:a>;x=\"1,2\" , \"d,e\" <sip:b?h=1,2>\r\nRoute: <sip:c>";
    let uris = |m: &Message<'_>| m.routes().map(|r| r.unwrap().uri.to_vec()).collect::<Vec<_>>();
    assert_eq!(value_of(joined, uris), [&b"sip:a"[..], b"sip:b?h=1,2", b"sip:c"]);
    let spans = |m: &Message<'_>| {
        m.routes().all(|r| {
            let r = r.unwrap();
            NameAddr::parse(Span { start: r.span.start, end: r.span.end }.of(m.bytes())).unwrap().uri == r.uri
        })
    };
    assert!(value_of(joined, spans));
}

#[test]
fn a_list_ends_at_its_first_malformed_value() {
    let ok = |m: &Message<'_>| m.routes().map(|r| r.is_ok()).collect::<Vec<_>>();
    assert_eq!(value_of(b"Route: <sip:a>, b, <sip:c>\r\nRoute: <sip:d>", ok), [true, false]);
    assert_eq!(value_of(b"Route: <sip:a>,", ok), [true, false]);
    assert_eq!(value_of(b"Route:", ok), [false]);
}

#[test]
fn a_star_stands_alone() {
    assert!(value_of(b"m: *", |m| m.contacts().is_star() && m.contacts().next().is_none()));
    assert!(
        value_of(b"m: *\r\nm: <sip:a>", |m| !m.contacts().is_star() && m.contacts().next().unwrap().is_err())
    );
    assert!(value_of(b"m: <sip:a>, *", |m| !m.contacts().is_star() && m.contacts().last().unwrap().is_err()));
}

#[test]
fn option_tags_are_split_and_trimmed() {
    let tags = |m: &Message<'_>| m.option_tags(HeaderName::Supported).map(<[u8]>::to_vec).collect::<Vec<_>>();
    assert_eq!(value_of(b"k: a ,\r\n b,,\r\nSupported: c\r\nSupported:", tags), [b"a", b"b", b"c"]);
}

#[test]
fn scratch_keeps_nothing_of_the_message_before() {
    let mut index = Index::new();
    let first = Message::parse(TORTUOUS, &mut index).unwrap();
    assert!(first.via_top().is_ok() && first.cseq().is_ok());
    let second = Message::parse(b"OPTIONS sip:a SIP/2.0\r\nx: y\r\n\r\n", &mut index).unwrap();
    assert_eq!(second.via_top().unwrap_err().problem, Problem::Missing);
    assert_eq!(second.cseq().unwrap_err().problem, Problem::Missing);
    assert_eq!((second.from_tag(), second.to_tag()), (None, None));
    assert_eq!(second.content_length(), Ok(None));
    assert_eq!(second.all_headers().count(), 1);
}

#[test]
fn the_via_below_stands_on_the_same_line_or_another() {
    let below = |m: &Message<'_>| m.via_below().and_then(|via| via.branch().map(<[u8]>::to_vec));
    for (vias, branch) in [
        (&b"v: SIP/2.0/UDP a;branch=1, SIP/2.0/UDP b;branch=2"[..], Some(&b"2"[..])),
        (b"v: SIP/2.0/UDP a;branch=1\r\nVia: SIP/2.0/UDP b;branch=2, SIP/2.0/UDP c;branch=3", Some(b"2")),
        (b"v: SIP/2.0/UDP a;branch=1 (x)\r\nx: y\r\nVia:SIP/2.0/UDP b;branch=2", Some(b"2")),
        (b"v: SIP/2.0/UDP a;branch=1", None),
        (b"v: SIP/2.0/UDP a;branch=1\r\nv: SIP/3.0/UDP b;branch=2", None),
        (b"v: SIP/3.0/UDP a;branch=1\r\nv: SIP/2.0/UDP b;branch=2", None),
        (b"x: y", None),
    ] {
        assert_eq!(value_of(vias, below).as_deref(), branch, "{}", vias.escape_ascii());
    }
}

#[test]
fn the_request_uri_is_parsed_as_its_text_is() {
    for uri in ["sip:a:b@c:5061;x=%41?h=1", "SIPS:c", "tel:+1-2;ext=3", "http://x/y", "sip:a@@b", "sip:", "x"]
    {
        let request = alloc::format!("OPTIONS {uri} SIP/2.0\r\n\r\n");
        with(request.as_bytes(), |m| {
            assert_eq!(m.parsed_request_uri(), Uri::parse(uri.as_bytes()), "{uri}");
            assert_eq!(m.parsed_request_uri(), Uri::parse(uri.as_bytes()), "{uri}, again");
        });
    }
    with(b"SIP/2.0 200 sip:a@b\r\n\r\n", |m| assert!(m.parsed_request_uri().is_err()));
}

#[test]
fn a_parameter_that_is_remembered_is_found_in_any_case() {
    let via = b"v: SIP/2.0/UDP a;RPort;Received=192.0.2.1;mAddr=192.0.2.9;BRANCH=\"q\";receivef=1;rporu";
    with(&[b"SIP/2.0 200 OK\r\n", &via[..], b"\r\n\r\n"].concat(), |m| {
        let via = m.via_top().unwrap();
        assert_eq!(via.rport(), Some(None));
        assert_eq!(via.received(), Some("192.0.2.1".parse().unwrap()));
        assert_eq!(via.maddr().and_then(|host| host.ip()), Some("192.0.2.9".parse().unwrap()));
        assert_eq!(via.branch(), Some(&b"\"q\""[..]));
    });
    let tags = |m: &Message<'_>| (m.from_tag().is_some(), m.from().is_err());
    assert_eq!(value_of(b"f: <sip:a>;TaG=1", tags), (true, false));
    assert_eq!(value_of(b"f: <sip:a>;tag", tags), (false, true));
    assert_eq!(value_of(b"f: <sip:a>;tagg=1", tags), (false, false));
}
