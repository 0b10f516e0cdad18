//! Writing answers to requests, and what is read from messages (RFC 3261 §8.2.6, §12.1.1, §18.2; RFC 3581).

use super::SocketText;
use sip::{HeaderName, Message, Via};
use std::net::{IpAddr, SocketAddr};

/// What the callee is told in `X-Sipstone`.
#[derive(Clone, Copy, Debug)]
pub(in crate::load) struct Note {
    pub(in crate::load) class: u16,
    /// From the 180 to the 200, microseconds.
    pub(in crate::load) ring_us: u32,
    pub(in crate::load) traced: bool,
}

/// Whether an answer lists a contact. Parameters that the server has added to the URI do not matter.
pub(in crate::load) fn has_contact(answer: &Message<'_>, uri: &[u8]) -> bool {
    let same =
        |found: &[u8]| found.strip_prefix(uri).is_some_and(|rest| rest.is_empty() || rest.starts_with(b";"));
    answer.contacts().flatten().any(|contact| same(contact.uri))
}

pub(super) fn push_note(note: Note, out: &mut Vec<u8>) {
    out.extend_from_slice(b"X-Sipstone: class=");
    sip::push_number(out, note.class.into());
    if note.ring_us != 0 {
        out.extend_from_slice(b";ring=");
        sip::push_number(out, note.ring_us);
    }
    if note.traced {
        out.extend_from_slice(b";trace=1");
    }
    out.extend_from_slice(b"\r\n");
}

/// What a caller's `X-Sipstone` says; class 0 without delay if there is none.
pub(in crate::load) fn read_note(request: &Message<'_>) -> Note {
    let mut note = Note { class: 0, ring_us: 0, traced: false };
    let Some(header) = request.headers_named(b"X-Sipstone").next() else {
        return note;
    };
    for part in header.value.split(|&b| b == b';') {
        let mut halves = part.splitn(2, |&b| b == b'=');
        let (name, value) = (halves.next().unwrap_or(&[]), halves.next().unwrap_or(&[]));
        match name {
            b"class" => note.class = number(value).and_then(|n| u16::try_from(n).ok()).unwrap_or(0),
            b"ring" => note.ring_us = number(value).and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
            b"trace" => note.traced = value == b"1",
            _ => {}
        }
    }
    note
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Where the answer to a request goes (RFC 3261 §18.2.2, RFC 3581 §4): to where the request came from, and to the
/// port of sent-by unless `rport` was asked for.
pub(in crate::load) fn reply_address(via: &Via<'_>, from: SocketAddr) -> SocketAddr {
    if via.rport().is_some() { from } else { SocketAddr::new(from.ip(), via.port_or_default()) }
}

/// What every answer copies from its request (RFC 3261 §8.2.6.2): the Vias, From, To with the tag, Call-ID, CSeq.
///
/// `None`: the request lacks one of them.
pub(in crate::load) fn push_copied(
    request: &Message<'_>,
    via: &Via<'_>,
    from: SocketAddr,
    tag: &[u8],
    out: &mut Vec<u8>,
) -> Option<()> {
    let bytes = request.bytes();
    let line = |name| {
        let header = request.header(name)?;
        bytes.get(usize::try_from(header.line.start).ok()?..usize::try_from(header.line.end).ok()?)
    };
    push_vias(request, via, from, out)?;
    out.extend_from_slice(line(HeaderName::From)?);
    let to = request.header(HeaderName::To)?;
    out.extend_from_slice(b"To: ");
    out.extend_from_slice(to.value);
    if request.to().ok()?.tag().is_none() {
        out.extend_from_slice(b";tag=");
        out.extend_from_slice(tag);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(line(HeaderName::CallId)?);
    out.extend_from_slice(line(HeaderName::CSeq)?);
    Some(())
}

/// All Via lines; the topmost value gets `received` where its host is not the sender's address (RFC 3261 §18.2.1), and
/// both `received` and `rport` where `rport` is asked for (RFC 3581 §4).
fn push_vias(request: &Message<'_>, via: &Via<'_>, from: SocketAddr, out: &mut Vec<u8>) -> Option<()> {
    let bytes = request.bytes();
    let asked = via.rport() == Some(None);
    let mut lines = request.headers(HeaderName::Via);
    let first = lines.next()?;
    if !asked && via.host.ip() == Some(from.ip()) {
        out.extend_from_slice(
            bytes.get(usize::try_from(first.line.start).ok()?..usize::try_from(first.line.end).ok()?)?,
        );
    } else {
        let (start, end) = (usize::try_from(via.span.start).ok()?, usize::try_from(via.span.end).ok()?);
        let params = via.params.as_bytes();
        out.extend_from_slice(b"Via: ");
        out.extend_from_slice(bytes.get(start..end)?.strip_suffix(params)?);
        for (name, value) in via.params {
            if name.eq_ignore_ascii_case(b"received") || asked && name.eq_ignore_ascii_case(b"rport") {
                continue;
            }
            out.push(b';');
            out.extend_from_slice(name);
            if let Some(value) = value {
                out.push(b'=');
                out.extend_from_slice(value);
            }
        }
        out.extend_from_slice(b";received=");
        push_bare_ip(from.ip(), out);
        if asked {
            out.extend_from_slice(b";rport=");
            sip::push_number(out, from.port().into());
        }
        let value_end = usize::try_from(first.value_start).ok()? + first.value.len();
        out.extend_from_slice(bytes.get(end..value_end)?);
        out.extend_from_slice(b"\r\n");
    }
    for line in lines {
        out.extend_from_slice(
            bytes.get(usize::try_from(line.line.start).ok()?..usize::try_from(line.line.end).ok()?)?,
        );
    }
    Some(())
}

/// An address as `received` is written: without brackets (RFC 3261 §25.1 `via-received`).
fn push_bare_ip(ip: IpAddr, out: &mut Vec<u8>) {
    let start = out.len();
    sip::host::push_ip(out, ip);
    if ip.is_ipv6() {
        out.remove(start);
        out.pop();
    }
}

/// Record-Route as it came, for the answers that make a dialog (RFC 3261 §12.1.1), and our Contact.
pub(in crate::load) fn push_dialog_headers(request: &Message<'_>, socket: &SocketText, out: &mut Vec<u8>) {
    for header in request.headers(HeaderName::RecordRoute) {
        out.extend_from_slice(b"Record-Route: ");
        out.extend_from_slice(header.value);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"Contact: <sip:");
    let uri = request.request_uri();
    let user = uri.strip_prefix(b"sip:").and_then(|rest| rest.split(|&b| b == b'@').next());
    out.extend_from_slice(user.filter(|user| user.len() + 4 < uri.len()).unwrap_or(b"sipstone"));
    out.push(b'@');
    out.extend_from_slice(&socket.host_port);
    out.extend_from_slice(b">\r\n");
}

/// Ends an answer: with an SDP body, or with none.
pub(in crate::load) fn push_body(socket: Option<&SocketText>, out: &mut Vec<u8>) {
    out.extend_from_slice(socket.map_or(&b"Content-Length: 0\r\n\r\n"[..], |socket| &socket.sdp));
}

#[cfg(test)]
mod tests {
    use super::*;
    use sip::Index;

    fn invite(via: &str) -> String {
        format!(
            "INVITE sip:user1@10.0.0.1:7000;x=y SIP/2.0\r\n{via}From: <sip:a@b>;tag=1\r\nTo: <sip:user1@b>\r\n\
             Call-ID: c\r\nCSeq: 1 INVITE\r\nContent-Length: 0\r\n\r\n"
        )
    }

    fn copied(via: &str, from: &str) -> (String, SocketAddr) {
        let (text, mut index) = (invite(via), Index::new());
        let message = Message::parse(text.as_bytes(), &mut index).unwrap();
        let (top, from) = (message.via_top().unwrap(), from.parse().unwrap());
        let mut out = Vec::new();
        push_copied(&message, &top, from, b"tt", &mut out).unwrap();
        (String::from_utf8(out).unwrap(), reply_address(&top, from))
    }

    /// RFC 3261 §18.2.1, §18.2.2; RFC 3581 §4.
    #[test]
    fn answers_go_back_where_their_requests_came_from() {
        let cases = [
            ("Via: SIP/2.0/UDP 10.0.0.9;branch=z9", "10.0.0.9:999", "", "10.0.0.9:5060"),
            ("Via: SIP/2.0/UDP 10.0.0.9:70;branch=z9", "10.0.0.8:999", ";received=10.0.0.8", "10.0.0.8:70"),
            ("Via: SIP/2.0/UDP p.example:70;branch=z9", "10.0.0.8:999", ";received=10.0.0.8", "10.0.0.8:70"),
            ("Via: SIP/2.0/UDP [::1]:70;branch=z9", "[::2]:999", ";received=::2", "[::2]:70"),
        ];
        for (via, from, added, to) in cases {
            let (text, address) = copied(&format!("{via}\r\nv: SIP/2.0/UDP 10.7.7.7\r\n"), from);
            assert!(text.starts_with(&format!("{via}{added}\r\nv: SIP/2.0/UDP 10.7.7.7\r\n")), "{text}");
            assert_eq!(address, to.parse().unwrap());
        }
        let (text, address) =
            copied("Via: SIP/2.0/UDP 10.0.0.9:70;rport;branch=z9, SIP/2.0/UDP x\r\n", "10.0.0.9:999");
        let via = "Via: SIP/2.0/UDP 10.0.0.9:70;branch=z9;received=10.0.0.9;rport=999, SIP/2.0/UDP x\r\n";
        assert!(text.starts_with(via), "{text}");
        assert_eq!(address, "10.0.0.9:999".parse().unwrap());
        assert!(text.ends_with(
            "From: <sip:a@b>;tag=1\r\nTo: <sip:user1@b>;tag=tt\r\nCall-ID: c\r\nCSeq: 1 INVITE\r\n"
        ));
    }

    #[test]
    fn notes_are_read_as_they_are_written_and_nonsense_is_none() {
        let read = |line: &str| {
            let (text, mut index) = (invite(&format!("Via: SIP/2.0/UDP x\r\n{line}")), Index::new());
            let note = read_note(&Message::parse(text.as_bytes(), &mut index).unwrap());
            (note.class, note.ring_us, note.traced)
        };
        let mut out = Vec::new();
        push_note(Note { class: 3, ring_us: 8_500_000, traced: true }, &mut out);
        assert_eq!(read(&String::from_utf8(out).unwrap()), (3, 8_500_000, true));
        assert_eq!(read(""), (0, 0, false));
        assert_eq!(read("x-sipstone: class=99999;ring=-1;trace=2;;=;x\r\n"), (0, 0, false));
    }

    #[test]
    fn a_contact_may_have_got_parameters_but_no_other_port() {
        let lists = |contact: &str| {
            let (text, mut index) = (invite(&format!("Via: SIP/2.0/UDP x\r\n{contact}")), Index::new());
            has_contact(&Message::parse(text.as_bytes(), &mut index).unwrap(), b"sip:u@10.0.0.1:70")
        };
        assert!(lists("Contact: <sip:u@10.0.0.1:70>;expires=5\r\n"));
        assert!(lists("m: <sip:x@y>, <sip:u@10.0.0.1:70;transport=udp>\r\n"));
        assert!(!lists("Contact: <sip:u@10.0.0.1:700>\r\n"));
        assert!(!lists("Contact: *\r\n") && !lists(""));
    }
}
