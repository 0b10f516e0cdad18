//! What is refused, and with which words (RFC 3261 §16.3, RFC 4475 §3.1.2, §3.3).

use super::*;
use crate::Index;
use alloc::string::String;
use alloc::vec::Vec;

const SOUND: &str = "OPTIONS sip:user@example.com SIP/2.0\r\nTo: sip:j.user@example.com\r\n\
From: sip:caller@example.net;tag=34525\r\nMax-Forwards: 6\r\nCall-ID: x.dj0234sxdfl3\r\nCSeq: 8 OPTIONS\r\n\
Via: SIP/2.0/UDP host.example.com;branch=z9hG4bKkdjuw\r\nl: 0\r\n\r\n";

fn verdict(text: &str) -> Result<(), Reject> {
    let mut index = Index::new();
    let message = Message::parse(text.as_bytes(), &mut index).unwrap();
    if message.is_request() { request(&message) } else { response(&message) }
}

fn changed(from: &str, to: &str) -> Result<(), (u16, &'static str)> {
    assert!(SOUND.contains(from), "{from}");
    verdict(&SOUND.replacen(from, to, 1)).map_err(|r| (r.status, r.reason))
}

#[test]
fn a_sound_request_passes() {
    assert_eq!(verdict(SOUND), Ok(()));
}

#[test]
fn what_rfc_2543_clients_leave_out_may_be_missing() {
    assert_eq!(changed(";tag=34525", ""), Ok(()));
    assert_eq!(changed("Max-Forwards: 6\r\n", ""), Ok(()));
    assert_eq!(changed(";branch=z9hG4bKkdjuw", ""), Ok(()));
    assert_eq!(changed("l: 0\r\n", ""), Ok(()));
}

#[test]
fn malformed_start_lines_are_400() {
    let line = "OPTIONS sip:user@example.com SIP/2.0";
    for bad in [
        "OPTIONS  sip:user@example.com  SIP/2.0",
        "OPTIONS sip:user@example.com SIP/2.0  ",
        "OPTIONS sip:user@example.com; lr SIP/2.0",
        "OPTIONS\tsip:user@example.com SIP/2.0",
        "OPTI@NS sip:user@example.com SIP/2.0",
        " OPTIONS sip:user@example.com SIP/2.0",
        "OPTIONS  SIP/2.0",
        "OPTIONS SIP/2.0",
        "OPTIONS sip:user@example.com\r\n SIP/2.0 SIP/2.0",
    ] {
        let verdict = if bad.contains('\n') { continue } else { changed(line, bad) };
        assert_eq!(verdict, Err((400, "Bad Request Line")), "{bad}");
    }
    assert_eq!(changed(line, "OPTIONS <sip:user@example.com> SIP/2.0"), Err((400, "Bad Request-URI")));
    assert_eq!(changed(line, "OPTIONS sip:2001:db8::10 SIP/2.0"), Err((400, "Bad Host In Request-URI")));
    assert_eq!(changed(line, "OPTIONS sip:a:99999 SIP/2.0"), Err((400, "Bad Port In Request-URI")));
    assert_eq!(changed(line, "OPTIONS sip:a@b@c SIP/2.0"), Err((400, "Bad Request-URI")));
    assert_eq!(
        changed(line, "OPTIONS sip:a?Route=%3Csip:b%3E SIP/2.0"),
        Err((400, "Headers In Request-URI"))
    );
    assert_eq!(changed(line, "OPTIONS soap.beep://192.0.2.103:3002 SIP/2.0"), Ok(()));
}

#[test]
fn another_version_is_505_before_anything_else() {
    let seven = SOUND.replace("SIP/2.0", "SIP/7.0");
    assert_eq!(verdict(&seven).unwrap_err().status, 505);
    assert_eq!(changed(" SIP/2.0", " sip/2.0"), Ok(()));
}

#[test]
fn a_line_end_alone_is_a_doubt() {
    for (from, to) in [
        ("6\r\n", "6\n"),
        ("6\r\n", "6\nX: y\r\n"),
        ("6\r\n", "6\r"),
        ("6\r\n", "6\rX: y\r\n"),
        ("6\r\n", "6\r\r\n"),
        ("com SIP", "com\nX: SIP"),
    ] {
        let got = changed(from, to);
        assert!(matches!(got, Err((400, "Bare CR Or LF" | "Bad Request Line"))), "{to:?}: {got:?}");
    }
}

#[test]
fn headers_must_be_lines_and_end() {
    assert_eq!(changed("Max-Forwards: 6", "Max-Forwards 6"), Err((400, "Bad Header Line")));
    assert_eq!(changed("Max-Forwards: 6", "Max Forwards: 6"), Err((400, "Bad Header Line")));
    assert_eq!(changed("Max-Forwards: 6", ": 6"), Err((400, "Bad Header Line")));
    assert_eq!(changed("To: ", " To: "), Err((400, "Bad Header Line")));
    assert_eq!(changed("0\r\n\r\n", "0\r\n"), Err((400, "Headers Not Ended")));
    assert_eq!(changed("0\r\n\r\n", "0"), Err((400, "Headers Not Ended")));
}

#[test]
fn each_mandatory_header_must_be_there_once_and_sound() {
    for (line, name, bad) in [
        ("To: sip:j.user@example.com\r\n", "To", "To: \"Mr. J. User <sip:j.user@example.com>\r\n"),
        (
            "From: sip:caller@example.net;tag=34525\r\n",
            "From",
            "From: Bell, Alexander <sip:a.g.bell@example.com>;tag=43\r\n",
        ),
        ("Call-ID: x.dj0234sxdfl3\r\n", "Call-ID", "Call-ID: a b\r\n"),
        ("CSeq: 8 OPTIONS\r\n", "CSeq", "CSeq: 36893488147419103232 OPTIONS\r\n"),
        (
            "Via: SIP/2.0/UDP host.example.com;branch=z9hG4bKkdjuw\r\n",
            "Via",
            "Via: SIP/2.0/UDP 192.0.2.15;;,;,,\r\n",
        ),
    ] {
        let missing: &str = &["Missing ", name].concat();
        assert_eq!(changed(line, "").map_err(|r| r.1), Err(missing));
        let malformed: &str = &["Bad ", name].concat();
        assert_eq!(changed(line, bad).map_err(|r| r.1), Err(malformed));
        if name != "Via" {
            let twice: &str = &["Repeated ", name].concat();
            assert_eq!(changed(line, &[line, line].concat()).map_err(|r| r.1), Err(twice));
        }
    }
    for name in ["Max-Forwards: 6\r\n", "l: 0\r\n"] {
        let got = changed(name, &[name, name].concat());
        assert!(got.is_err_and(|r| r.1.starts_with("Repeated")), "{name}");
    }
}

#[test]
fn a_tag_must_have_a_value() {
    assert_eq!(changed(";tag=34525", ";tag"), Err((400, "Bad From")));
    assert_eq!(changed("j.user@example.com", "j.user@example.com;tag ; x"), Err((400, "Bad To")));
}

#[test]
fn a_joined_via_must_be_sound_to_its_end() {
    let via = ";branch=z9hG4bKkdjuw";
    assert_eq!(changed(via, ";branch=1 , SIP/2.0/TCP b"), Ok(()));
    for bad in [";branch=1,", ";branch=1,,SIP/2.0/TCP b", ";branch=1, x"] {
        assert_eq!(changed(via, bad), Err((400, "Bad Via")), "{bad}");
    }
}

/// Lines below are for others to read (RFC 3261 §16.3), whatever stands behind the topmost value.
#[test]
fn a_comment_behind_the_top_via_joins_nothing() {
    let via = ";branch=z9hG4bKkdjuw";
    for behind in ["()", " (c)", " (c, d)", ";branch=1 (c) (d)"] {
        assert_eq!(changed(via, &[behind, "\r\nVia: x"].concat()), Ok(()), "{behind}");
        assert_eq!(changed(via, &[behind, ", x"].concat()), Err((400, "Bad Via")), "{behind}");
    }
}

#[test]
fn cseq_must_name_the_method() {
    assert_eq!(changed("8 OPTIONS", "8 INVITE"), Err((400, "CSeq Method Does Not Match")));
    assert_eq!(changed("8 OPTIONS", "8 options"), Err((400, "CSeq Method Does Not Match")));
    let unknown = SOUND.replacen("OPTIONS", "NEWMETHOD", 1);
    assert_eq!(verdict(&unknown).unwrap_err().status, 501);
    assert_eq!(verdict(&SOUND.replace("OPTIONS", "NEWMETHOD")), Ok(()));
    assert!(
        verdict(&SOUND.replacen("OPTIONS", "NEWMETHOD", 1).replace("8 OPTIONS", "8 OTHERMETHOD")).is_err()
    );
}

#[test]
fn content_length_must_fit_the_datagram() {
    assert_eq!(changed("l: 0", "l: 1"), Err((400, "Content-Length Too Large")));
    assert_eq!(changed("l: 0", "l: -999"), Err((400, "Bad Content-Length")));
    assert_eq!(changed("l: 0", "l: 99999999999999"), Err((400, "Bad Content-Length")));
    let mut longer = String::from(SOUND);
    longer.push_str("INVITE sip:surplus SIP/2.0\r\n");
    assert_eq!(verdict(&longer), Ok(()));
}

#[test]
fn responses_are_checked_too() {
    let tail = SOUND.split_once("\r\n").unwrap().1;
    let response: Vec<&str> = ["SIP/2.0 200 OK\r\n", tail].into();
    assert_eq!(verdict(&response.concat()), Ok(()));
    for (from, to) in [("8 OPTIONS", "9292394834772304023312 OPTIONS"), ("Via:", "Vie:"), ("l: 0", "l: 7")] {
        assert!(verdict(&response.concat().replacen(from, to, 1)).is_err(), "{to}");
    }
    assert_eq!(verdict(&["SIP/7.0 200 OK\r\n", tail].concat()).unwrap_err().status, 505);
}
