//! Finding one's way in a SIP message by its bytes (RFC 3261 §7, §25), at the least cost.
//!
//! Lines are found and the few header fields that the null server uses are named; values are looked into only where
//! they are needed. What is not found where it should be makes the message garbage; nothing here panics on any bytes.

use memchr::{memchr, memchr3};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

/// Most header fields of a message; one with more is garbage.
pub(super) const HEADERS_MAX: usize = 128;

/// The port of a SIP URI or a Via that names none (RFC 3261 §19.1.2, §18.2.2).
pub(super) const PORT_DEFAULT: u16 = 5060;

/// The header fields that are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Via,
    From,
    To,
    CallId,
    CSeq,
    Contact,
    Route,
    MaxForwards,
    Expires,
    Timestamp,
    Other,
}

impl Name {
    /// Long and compact forms, in any case (RFC 3261 §7.3.3).
    fn of(name: &[u8]) -> Name {
        let is = |long: &[u8], found: Name| if name.eq_ignore_ascii_case(long) { found } else { Name::Other };
        match (name.len(), name.first().map_or(0, u8::to_ascii_lowercase)) {
            (1, b'v') => Name::Via,
            (1, b'f') => Name::From,
            (1, b't') => Name::To,
            (1, b'i') => Name::CallId,
            (1, b'm') => Name::Contact,
            (2, b't') => is(b"To", Name::To),
            (3, b'v') => is(b"Via", Name::Via),
            (4, b'f') => is(b"From", Name::From),
            (4, b'c') => is(b"CSeq", Name::CSeq),
            (5, b'r') => is(b"Route", Name::Route),
            (7, b'c') if name.eq_ignore_ascii_case(b"Call-ID") => Name::CallId,
            (7, b'c') => is(b"Contact", Name::Contact),
            (7, b'e') => is(b"Expires", Name::Expires),
            (9, b't') => is(b"Timestamp", Name::Timestamp),
            (12, b'm') => is(b"Max-Forwards", Name::MaxForwards),
            _ => Name::Other,
        }
    }
}

/// One header field; folded lines belong to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) name: Name,
    /// Where the name begins.
    pub(super) start: usize,
    /// Where the value begins, behind the colon.
    pub(super) value: usize,
    /// Behind the line's end.
    pub(super) end: usize,
}

/// What the first line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Start {
    Request {
        /// The method is the bytes before it and a space.
        uri: Range<usize>,
    },
    Response,
}

/// A message whose lines are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) lines: &'a [Line],
    /// Behind the end of the first line.
    pub(super) headers: usize,
}

impl<'a> Message<'a> {
    /// Bytes of a range, nothing where it is out of bounds.
    pub(super) fn slice(&self, range: Range<usize>) -> &'a [u8] {
        self.bytes.get(range).unwrap_or_default()
    }

    /// The first field of a name.
    pub(super) fn first(&self, name: Name) -> Option<Line> {
        self.lines.iter().find(|line| line.name == name).copied()
    }

    /// Where a field's value begins, behind the white space.
    pub(super) fn value_start(&self, line: Line) -> usize {
        skip_space(self.bytes, line.value).min(line.end)
    }

    /// A field's value without the white space around it.
    pub(super) fn value(&self, line: Line) -> &'a [u8] {
        self.slice(line.value..line.end).trim_ascii()
    }
}

/// Finds the lines of a message and what its first one is. `None`: this is no SIP/2.0 message.
pub(super) fn read(bytes: &[u8], lines: &mut Vec<Line>) -> Option<(Start, usize)> {
    lines.clear();
    let first = memchr(b'\n', bytes)?;
    let start = start_line(bytes.get(..first)?)?;
    let mut at = first + 1;
    loop {
        let end = line_end(bytes, at)?;
        let line = bytes.get(at..end)?;
        if line == b"\r\n" || line == b"\n" {
            return Some((start, first + 1));
        }
        let colon = memchr(b':', line)?;
        if lines.len() == HEADERS_MAX {
            return None;
        }
        let name = Name::of(line.get(..colon)?.trim_ascii_end());
        lines.push(Line { name, start: at, value: at + colon + 1, end });
        at = end;
    }
}

/// The place behind the line that begins at `at` and the lines that are folded to it (RFC 3261 §7.3.1).
fn line_end(bytes: &[u8], at: usize) -> Option<usize> {
    let mut from = at;
    loop {
        let end = from + memchr(b'\n', bytes.get(from..)?)? + 1;
        let empty = end - at <= 2 && bytes.get(at..end)?.trim_ascii().is_empty();
        if empty || !matches!(bytes.get(end), Some(b' ' | b'\t')) {
            return Some(end);
        }
        from = end;
    }
}

/// `METHOD SP URI SP SIP/2.0` or `SIP/2.0 SP code SP reason`.
fn start_line(line: &[u8]) -> Option<Start> {
    if line.get(..8).is_some_and(|version| version.eq_ignore_ascii_case(b"SIP/2.0 ")) {
        let status = line.get(8..11)?;
        return status.iter().all(u8::is_ascii_digit).then_some(Start::Response);
    }
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let method = memchr(b' ', line)?;
    let uri = method + 1..line.len().checked_sub(b" SIP/2.0".len())?;
    let version = line.get(uri.end..)?;
    let spaces = memchr(b' ', line.get(uri.clone())?).is_some();
    let sound = method > 0 && method <= METHOD_BYTES_MAX && !uri.is_empty() && !spaces;
    (sound && version.eq_ignore_ascii_case(b" SIP/2.0")).then_some(Start::Request { uri })
}

/// Longest method.
const METHOD_BYTES_MAX: usize = 32;

/// What a Via says about the source's port (RFC 3581 §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rport {
    /// Nothing.
    Absent,
    /// `rport` without a value: it is asked for, and belongs at this place of the message.
    Asked(usize),
    /// It was filled in.
    Given(u16),
}

/// The first value of a Via field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Via<'a> {
    pub(super) host: &'a [u8],
    pub(super) port: Option<u16>,
    pub(super) branch: Option<&'a [u8]>,
    pub(super) received: Option<&'a [u8]>,
    pub(super) rport: Rport,
    /// Where the value ends in the message.
    pub(super) end: usize,
    /// Where the next value of the same field begins.
    pub(super) next: Option<usize>,
}

impl Via<'_> {
    /// Where a response goes (RFC 3261 §18.2.2; RFC 3581 §4): `None` where a name would have to be looked up.
    pub(super) fn response_address(&self) -> Option<SocketAddr> {
        let ip = self.received.and_then(ip).or_else(|| ip(self.host))?;
        let port = match self.rport {
            Rport::Given(port) => port,
            Rport::Absent | Rport::Asked(_) => self.port.unwrap_or(PORT_DEFAULT),
        };
        Some(SocketAddr::new(ip, port))
    }
}

/// Reads the Via value that begins at `at` of a field that ends at `end` (RFC 3261 §25.1 `via-parm`).
pub(super) fn via(bytes: &[u8], at: usize, end: usize) -> Option<Via<'_>> {
    let text = bytes.get(..end)?.trim_ascii_end();
    let sent_by = sent_by_start(text, at)?;
    let host_end = host_end(text, sent_by)?;
    let mut at = skip_space(text, host_end);
    let mut port = None;
    if text.get(at) == Some(&b':') {
        let digits = skip_space(text, at + 1);
        at = digits + text.get(digits..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
        port = Some(number(text.get(digits..at)?)?);
    }
    let mut via = Via {
        host: text.get(sent_by..host_end)?,
        port,
        branch: None,
        received: None,
        rport: Rport::Absent,
        end: at,
        next: None,
    };
    loop {
        let mark = skip_space(text, at);
        match text.get(mark) {
            None => return Some(via),
            Some(b',') => {
                via.next = Some(skip_space(text, mark + 1));
                return Some(via);
            }
            Some(b';') => at = via_parameter(text, mark + 1, &mut via)?,
            Some(_) => return None,
        }
        via.end = at;
    }
}

/// Behind `SIP / 2.0 / transport` and the space after it.
fn sent_by_start(text: &[u8], at: usize) -> Option<usize> {
    let at = skip_space(text, at);
    let rest = text.get(at..)?;
    if rest.starts_with(b"SIP/2.0/UDP ") {
        return Some(skip_space(text, at + b"SIP/2.0/UDP ".len()));
    }
    let name = memchr(b'/', rest)? + 1;
    let version = name + memchr(b'/', rest.get(name..)?)? + 1;
    let transport = skip_space(rest, version);
    let len = rest.get(transport..)?.iter().position(u8::is_ascii_whitespace)?;
    (len > 0).then(|| skip_space(text, at + transport + len))
}

fn host_end(text: &[u8], at: usize) -> Option<usize> {
    let rest = text.get(at..)?;
    let len = if rest.first() == Some(&b'[') {
        memchr(b']', rest)? + 1
    } else {
        rest.iter().position(|byte| b";:, \t\r\n".contains(byte)).unwrap_or(rest.len())
    };
    (len > 0).then_some(at + len)
}

/// Reads one parameter and returns the place behind it.
fn via_parameter<'a>(text: &'a [u8], at: usize, via: &mut Via<'a>) -> Option<usize> {
    let start = skip_space(text, at);
    let end = parameter_end(text, start)?;
    let parameter = text.get(start..end)?.trim_ascii_end();
    let equals = memchr(b'=', parameter);
    let name = parameter.get(..equals.unwrap_or(parameter.len()))?.trim_ascii_end();
    let value = equals.and_then(|equals| parameter.get(equals + 1..)).map(<[u8]>::trim_ascii);
    match (name.len(), value) {
        (6, Some(value)) if name.eq_ignore_ascii_case(b"branch") => via.branch = Some(value),
        (8, Some(value)) if name.eq_ignore_ascii_case(b"received") => via.received = Some(value),
        (5, _) if name.eq_ignore_ascii_case(b"rport") => {
            via.rport = match value {
                Some(value) if !value.is_empty() => Rport::Given(number(value)?),
                // `rport=` is taken for `rport`; what is written then goes behind the name.
                Some(_) => Rport::Absent,
                None => Rport::Asked(start + name.len()),
            };
        }
        _ => {}
    }
    Some(start + parameter.len())
}

/// The next `;` or `,` that no quotes enclose, or the end.
fn parameter_end(text: &[u8], at: usize) -> Option<usize> {
    let mut at = at;
    loop {
        let Some(found) = memchr3(b';', b',', b'"', text.get(at..)?) else { return Some(text.len()) };
        at += found;
        if text.get(at) != Some(&b'"') {
            return Some(at);
        }
        at = behind_quotes(text, at)?;
    }
}

/// The place behind the quoted string that begins at `at`.
fn behind_quotes(text: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        if text.get(at) == Some(&b'"') {
            return Some(at + 1);
        }
        at += 2;
    }
}

fn skip_space(text: &[u8], at: usize) -> usize {
    let space = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    at + text.get(at..).unwrap_or_default().iter().take_while(space).count()
}

/// A decimal number without a sign.
pub(super) fn number<N: std::str::FromStr>(digits: &[u8]) -> Option<N> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// An IP address as a host or a `received` writes it, IPv6 with or without brackets.
pub(super) fn ip(text: &[u8]) -> Option<IpAddr> {
    let bare = text.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]")).unwrap_or(text);
    std::str::from_utf8(bare).ok()?.parse().ok()
}

/// The parts of a SIP URI that say where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target<'a> {
    /// Without a password.
    pub(super) user: Option<&'a [u8]>,
    /// Host and port as written.
    pub(super) host_port: &'a [u8],
    pub(super) host: &'a [u8],
    pub(super) port: Option<u16>,
}

impl<'a> Target<'a> {
    /// Reads a sip or sips URI (RFC 3261 §19.1.1).
    pub(super) fn parse(uri: &'a [u8]) -> Option<Target<'a>> {
        let scheme = memchr(b':', uri)?;
        let (name, rest) = (uri.get(..scheme)?, uri.get(scheme + 1..)?);
        if !name.eq_ignore_ascii_case(b"sip") && !name.eq_ignore_ascii_case(b"sips") {
            return None;
        }
        let (user, rest) = match memchr(b'@', rest) {
            Some(at) => (Some(rest.get(..at)?), rest.get(at + 1..)?),
            None => (None, rest),
        };
        let user = user.map(|user| user.split(|&byte| byte == b':').next().unwrap_or_default());
        let host_port = rest.get(..memchr::memchr2(b';', b'?', rest).unwrap_or(rest.len()))?;
        let host_end = host_end(host_port, 0)?;
        let port = match host_port.get(host_end..)? {
            [] => None,
            [b':', digits @ ..] => Some(number(digits)?),
            _ => return None,
        };
        Some(Target {
            user: user.filter(|user| !user.is_empty()),
            host_port,
            host: host_port.get(..host_end)?,
            port,
        })
    }

    /// Its address; `None` where a name would have to be looked up.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        Some(SocketAddr::new(ip(self.host)?, self.port.unwrap_or(PORT_DEFAULT)))
    }
}

/// One value of To, Contact or Route: the URI, its header parameters, and where the next value begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Addressed<'a> {
    pub(super) uri: &'a [u8],
    pub(super) params: &'a [u8],
    /// Behind the comma, counted from the beginning of the text that was read.
    pub(super) next: Option<usize>,
}

/// Reads the first value of a list of `name-addr` or `addr-spec` (RFC 3261 §25.1, §20.10).
pub(super) fn addressed(text: &[u8]) -> Option<Addressed<'_>> {
    let start = skip_space(text, 0);
    let from = if text.get(start) == Some(&b'"') { behind_quotes(text, start)? } else { start };
    let (uri, params) = match memchr3(b'<', b',', b';', text.get(from..)?).map(|found| from + found) {
        Some(open) if text.get(open) == Some(&b'<') => {
            let close = open + memchr(b'>', text.get(open..)?)?;
            (open + 1..close, close + 1)
        }
        // No angle brackets: parameters and commas belong to the header field (RFC 3261 §20.10).
        Some(mark) => (start..mark, mark),
        None => (start..text.len(), text.len()),
    };
    let mut end = params;
    while let Some(b';') = text.get(skip_space(text, end)) {
        end = parameter_end(text, skip_space(text, end) + 1)?;
    }
    let comma = skip_space(text, end);
    let next = match text.get(comma) {
        None => None,
        Some(b',') => Some(skip_space(text, comma + 1)),
        Some(_) => return None,
    };
    Some(Addressed { uri: text.get(uri)?.trim_ascii(), params: text.get(params..end)?, next })
}

/// The value of a header parameter; empty for one without a value.
pub(super) fn parameter<'a>(params: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut at = 0;
    while at < params.len() {
        let start = at + 1;
        at = parameter_end(params, start)?;
        let one = params.get(start..at)?.trim_ascii();
        let equals = memchr(b'=', one).unwrap_or(one.len());
        if one.get(..equals)?.trim_ascii_end().eq_ignore_ascii_case(name) {
            return Some(one.get(equals + 1..).unwrap_or_default().trim_ascii());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole_via(text: &str) -> Option<Via<'_>> {
        via(text.as_bytes(), 0, text.len())
    }

    #[test]
    fn lines_are_named_in_long_and_compact_form_and_folds_belong_to_them() {
        let text =
            b"INVITE sip:a@b SIP/2.0\r\nv: x\r\nVIA: y,\r\n z\r\nTo : t\r\nX-To: u\r\n\r\nbody: no\r\n";
        let mut lines = Vec::new();
        let (start, headers) = read(text, &mut lines).expect("a message");
        assert_eq!(start, Start::Request { uri: 7..14 });
        let message = Message { bytes: text, lines: &lines, headers };
        let named: Vec<_> = lines.iter().map(|&line| (line.name, message.value(line))).collect();
        let expected: [(Name, &[u8]); 4] =
            [(Name::Via, b"x"), (Name::Via, b"y,\r\n z"), (Name::To, b"t"), (Name::Other, b"u")];
        assert_eq!(named, expected);
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let mut lines = Vec::new();
        let many =
            [b"OPTIONS sip:a SIP/2.0\r\n".as_slice(), &b"A: b\r\n".repeat(HEADERS_MAX + 1), b"\r\n"].concat();
        for text in [
            b"".as_slice(),
            b"\r\n\r\n",
            b"OPTIONS sip:a SIP/2.0\r\nTo: x\r\n",
            b"OPTIONS sip:a SIP/3.0\r\n\r\n",
            b"OPTIONS sip:a b SIP/2.0\r\n\r\n",
            b" SIP/2.0\r\n\r\n",
            b"SIP/2.0 20x OK\r\n\r\n",
            b"OPTIONS sip:a SIP/2.0\r\nno colon\r\n\r\n",
            &many,
        ] {
            assert!(read(text, &mut lines).is_none(), "{:?}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn vias_are_read_with_odd_spacing_and_several_in_a_field() {
        let plain = whole_via("SIP/2.0/UDP 10.0.0.1:5070;rport;branch=z9hG4bKx").expect("a Via");
        assert_eq!(
            (plain.host, plain.port, plain.branch),
            (&b"10.0.0.1"[..], Some(5070), Some(&b"z9hG4bKx"[..]))
        );
        assert_eq!((plain.rport, plain.next, plain.end), (Rport::Asked(31), None, 47));
        let text = "SIP / 2.0 / UDP\r\n [::1] : 99 ; branch = b;x=\"a,;\\\"\" , SIP/2.0/UDP h";
        let odd = whole_via(text).expect("a Via");
        assert_eq!((odd.host, odd.port, odd.branch), (&b"[::1]"[..], Some(99), Some(&b"b"[..])));
        assert_eq!(odd.next, text.find("SIP/2.0/UDP h"));
        let filled = whole_via("SIP/2.0/UDP host;received=1.2.3.4;rport=77").expect("a Via");
        assert_eq!(filled.response_address(), Some("1.2.3.4:77".parse().expect("an address")));
        assert_eq!(whole_via("SIP/2.0/UDP host").expect("a Via").response_address(), None);
        for bad in [
            "",
            "SIP/2.0/UDP",
            "SIP/2.0/UDP ",
            "SIP/2.0/UDP h:99999",
            "SIP/2.0/UDP h x",
            "SIP/2.0/UDP h;a=\"",
            "x",
        ] {
            assert_eq!(whole_via(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn targets_of_uris_are_found() {
        let target = |uri: &'static str| Target::parse(uri.as_bytes());
        let whole = target("sip:alice:secret@10.0.0.1:5070;transport=udp?x=y").expect("a URI");
        assert_eq!((whole.user, whole.host_port), (Some(&b"alice"[..]), &b"10.0.0.1:5070"[..]));
        assert_eq!(whole.address(), Some("10.0.0.1:5070".parse().expect("an address")));
        assert_eq!(
            target("SIPS:[::1]").expect("a URI").address(),
            Some("[::1]:5060".parse().expect("an address"))
        );
        assert_eq!(target("sip:a@host").expect("a URI").address(), None);
        assert_eq!(target("sip:a;day=tue@host").expect("a URI").user, Some(&b"a;day=tue"[..]));
        for bad in ["", "sip:", "tel:123", "sip:a@", "sip:a@h:", "sip:a@h:1x", "sip:a@[::1"] {
            assert_eq!(target(bad).filter(|target| target.address().is_some()), None, "{bad}");
        }
    }

    #[test]
    fn addresses_are_found_with_names_and_parameters() {
        let text = b"\"a <,;\\\" b\" <sip:x;lr>;tag=1;q=\"a,b\" , Bob <sip:y> , sip:z;expires=3";
        let first = addressed(text).expect("an address");
        assert_eq!((first.uri, first.params), (&b"sip:x;lr"[..], &b";tag=1;q=\"a,b\" "[..]));
        assert_eq!(parameter(first.params, b"TAG"), Some(&b"1"[..]));
        assert_eq!(parameter(first.params, b"lr"), None);
        let rest = &text[first.next.expect("another")..];
        let second = addressed(rest).expect("an address");
        assert_eq!(second.uri, b"sip:y");
        let third = addressed(&rest[second.next.expect("another")..]).expect("an address");
        assert_eq!(
            (third.uri, parameter(third.params, b"expires"), third.next),
            (&b"sip:z"[..], Some(&b"3"[..]), None)
        );
        assert_eq!(addressed(b"<sip:x> y"), None);
        assert_eq!(addressed(b"\"x"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            text in "[sipSIP/2.0:;,<>\"\\\\= a\r\n@\\[\\]]{0,80}",
        ) {
            let mut lines = Vec::new();
            for bytes in [bytes.as_slice(), text.as_bytes()] {
                let _ = read(bytes, &mut lines);
                let _ = via(bytes, 0, bytes.len());
                let _ = Target::parse(bytes).map(|target| target.address());
                let _ = addressed(bytes).map(|one| parameter(one.params, b"tag").is_some());
            }
        }
    }
}
