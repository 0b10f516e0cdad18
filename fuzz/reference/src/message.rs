//! Whole messages (RFC 3261 §7, §8.1.1, §18.3): where their lines are, whether one may act on them, what they
//! mean.

use super::matcher::Matcher;
use super::values::{self, Address, Uri, Via, trim};
use super::{Judged, OURS, accepts, rules};

/// Most header lines of a message: the server's limit (`sip::MAX_HEADERS`).
const HEADERS_MAX: usize = 250;

/// Compact forms (RFC 3261 §7.3.3 and IANA's list of header fields).
const COMPACT: [(&str, &str); 20] = [
    ("a", "accept-contact"),
    ("b", "referred-by"),
    ("c", "content-type"),
    ("d", "request-disposition"),
    ("e", "content-encoding"),
    ("f", "from"),
    ("i", "call-id"),
    ("j", "reject-contact"),
    ("k", "supported"),
    ("l", "content-length"),
    ("m", "contact"),
    ("n", "identity-info"),
    ("o", "event"),
    ("r", "refer-to"),
    ("s", "subject"),
    ("t", "to"),
    ("u", "allow-events"),
    ("v", "via"),
    ("x", "session-expires"),
    ("y", "identity"),
];

/// A header line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// In its long form and lower case.
    pub name: String,
    /// Without white space at its ends; folds are kept.
    pub value: &'a [u8],
}

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start<'a> {
    /// Method and Request-URI.
    Request(&'a [u8], &'a [u8]),
    /// Status and reason phrase.
    Status(u16, &'a [u8]),
}

/// A message whose lines are told apart without a doubt.
#[derive(Clone, Debug)]
pub struct Lines<'a> {
    /// The first line.
    pub start: Start<'a>,
    /// All header lines, in order.
    pub headers: Vec<Header<'a>>,
    /// What follows the empty line.
    pub rest: &'a [u8],
    /// Where the first line begins.
    pub at: usize,
}

/// A message that may be acted on.
#[derive(Clone, Debug)]
pub struct Message<'a> {
    /// Its lines.
    pub lines: Lines<'a>,
    /// The values of the first Via line.
    pub vias: Vec<Via<'a>>,
    /// From.
    pub from: Address<'a>,
    /// To.
    pub to: Address<'a>,
    /// Call-ID.
    pub call_id: &'a [u8],
    /// Number and method.
    pub cseq: (u32, &'a [u8]),
    /// In a request.
    pub max_forwards: Option<u32>,
    /// The body, cut to Content-Length (§18.3).
    pub body: &'a [u8],
}

impl<'a> Lines<'a> {
    /// The values of all lines of a name.
    pub fn named(&self, name: &str) -> impl Iterator<Item = &'a [u8]> + use<'_, 'a> {
        let name = name.to_owned();
        self.headers.iter().filter(move |header| header.name == name).map(|header| header.value)
    }

    /// The value of a header field that may be there once.
    fn once(&self, name: &str) -> Judged<Option<&'a [u8]>> {
        let mut values = self.named(name);
        let first = values.next();
        if values.next().is_some() { Judged::No } else { Judged::Yes(first) }
    }
}

/// Tells the lines of a message apart (§7). Only CRLF ends a line; a CR or LF alone is a doubt.
#[must_use]
pub fn lines(bytes: &[u8]) -> Judged<Lines<'_>> {
    let mut at = 0;
    while bytes[at..].starts_with(b"\r\n") {
        at += 2;
    }
    let mut rest = &bytes[at..];
    let Some(line) = take_line(&mut rest) else { return Judged::No };
    let start = match start_line(line) {
        Judged::Yes(start) => start,
        Judged::No => return Judged::No,
        Judged::TooLong => return Judged::TooLong,
    };
    let mut headers = Vec::new();
    loop {
        if let Some(rest) = rest.strip_prefix(b"\r\n") {
            return Judged::Yes(Lines { start, headers, rest, at });
        }
        let before = rest;
        if take_line(&mut rest).is_none() {
            return Judged::No;
        }
        while rest.starts_with(b" ") || rest.starts_with(b"\t") {
            if take_line(&mut rest).is_none() {
                return Judged::No;
            }
        }
        let line = &before[..before.len() - rest.len() - 2];
        match header(line) {
            Judged::Yes(header) => headers.push(header),
            Judged::No => return Judged::No,
            Judged::TooLong => return Judged::TooLong,
        }
        if headers.len() > HEADERS_MAX {
            return Judged::No;
        }
    }
}

/// Takes a line and its CRLF off `rest`; `None` if there is none, or a CR or LF alone in it.
fn take_line<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n'))?;
    let line = &rest[..end];
    *rest = rest[end..].strip_prefix(b"\r\n")?;
    Some(line)
}

/// `header-name HCOLON header-value` (§7.3.1).
fn header(line: &[u8]) -> Judged<Header<'_>> {
    let Some(colon) = line.iter().position(|&byte| byte == b':') else { return Judged::No };
    let mut name = &line[..colon];
    while let [shorter @ .., b' ' | b'\t'] = name {
        name = shorter;
    }
    match accepts(&OURS, "header-name", name) {
        Some(true) => {}
        Some(false) => return Judged::No,
        None => return Judged::TooLong,
    }
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    let long = COMPACT.iter().find(|(compact, _)| *compact == name).map(|(_, long)| (*long).to_owned());
    Judged::Yes(Header { name: long.unwrap_or(name), value: trim(&line[colon + 1..]) })
}

/// Reads a request line or a status line of SIP/2.0.
#[must_use]
pub fn start_line(line: &[u8]) -> Judged<Start<'_>> {
    let Some(mut matcher) = Matcher::new(&OURS, line) else { return Judged::TooLong };
    if let Some(parts) = matcher.parts("Request-Line", &["Method", "Request-URI"])
        && let [(_, method), (_, uri)] = parts.as_slice()
    {
        return Judged::Yes(Start::Request(&line[method.clone()], &line[uri.clone()]));
    }
    let Some(mut matcher) = Matcher::new(&OURS, line) else { return Judged::TooLong };
    let Some(parts) = matcher.parts("Status-Line", &["Status-Code", "Reason-Phrase"]) else {
        return Judged::No;
    };
    let part = |name| parts.iter().find(|(rule, _)| *rule == name).map(|(_, range)| &line[range.clone()]);
    let status = part("Status-Code").and_then(rules::number).and_then(|status| u16::try_from(status).ok());
    match status {
        Some(status) => Judged::Yes(Start::Status(status, part("Reason-Phrase").unwrap_or_default())),
        None => Judged::No,
    }
}

/// Whether a message may be acted on: what every element checks (§8.2, §16.3 item 1, §18.3).
#[must_use]
pub fn message(bytes: &[u8]) -> Judged<Message<'_>> {
    let lines = match lines(bytes) {
        Judged::Yes(lines) => lines,
        Judged::No => return Judged::No,
        Judged::TooLong => return Judged::TooLong,
    };
    let mut reader = Reader { too_long: false };
    match reader.message(lines) {
        _ if reader.too_long => Judged::TooLong,
        Some(message) => Judged::Yes(message),
        None => Judged::No,
    }
}

struct Reader {
    too_long: bool,
}

impl Reader {
    /// What was judged, or `None`; that something was too long is remembered.
    fn known<T>(&mut self, judged: Judged<T>) -> Option<T> {
        self.too_long |= matches!(judged, Judged::TooLong);
        judged.yes()
    }

    fn message<'a>(&mut self, lines: Lines<'a>) -> Option<Message<'a>> {
        if let Start::Request(_, uri) = lines.start {
            // §19.1.1, Table 1: a Request-URI has no header components.
            let uri = self.known(values::uri(uri))?;
            if matches!(uri, Uri::Sip { headers: Some(_), .. }) {
                return None;
            }
        }
        // Via lines below the first are of others; they are only looked at where taking our value off the
        // first line must leave a line that the next hop can read.
        let via_lines: Vec<&[u8]> = lines.named("via").collect();
        let vias = self.known(values::vias(via_lines.first()?))?;
        if vias.len() > 1 {
            for line in &via_lines[1..] {
                self.known(values::vias(line))?;
            }
        }
        let from = self.one_address(&lines, "from")?;
        let to = self.one_address(&lines, "to")?;
        let call_id = self.known(lines.once("call-id"))??;
        if !self.is(call_id, "callid")? {
            return None;
        }
        let cseq = self.known(lines.once("cseq"))??;
        let cseq = self.cseq(cseq)?;
        let mut max_forwards = None;
        if let Start::Request(method, _) = lines.start {
            // §8.1.1.5: methods are the same byte for byte.
            if method != cseq.1 {
                return None;
            }
            // §20.22: 0 to 255.
            let number = self.number(&lines, "max-forwards", 255)?;
            max_forwards = number.and_then(|n| u32::try_from(n).ok());
        }
        let body = match self.number(&lines, "content-length", u64::from(u32::MAX))? {
            Some(length) => lines.rest.get(..usize::try_from(length).ok()?)?,
            None => lines.rest,
        };
        Some(Message { vias, from, to, call_id, cseq, max_forwards, body, lines })
    }

    /// A singleton, with a tag that is not empty if it has one.
    fn one_address<'a>(&mut self, lines: &Lines<'a>, name: &str) -> Option<Address<'a>> {
        let value = self.known(lines.once(name))??;
        let address = self.known(values::address(value))?;
        let tagless =
            |(name, value): &(&[u8], Option<&[u8]>)| name.eq_ignore_ascii_case(b"tag") && value.is_none();
        (!address.params.iter().any(tagless)).then_some(address)
    }

    /// `None` for one that is none, `Some(None)` where there is none.
    fn number(&mut self, lines: &Lines<'_>, name: &str, max: u64) -> Option<Option<u64>> {
        let Some(value) = self.known(lines.once(name))? else { return Some(None) };
        rules::number(value).filter(|&n| n <= max).map(Some)
    }

    fn is(&mut self, text: &[u8], rule: &str) -> Option<bool> {
        let verdict = accepts(&OURS, rule, text);
        self.too_long |= verdict.is_none();
        verdict
    }

    /// The number is less than 2^31 (§8.1.1.5).
    fn cseq<'a>(&mut self, value: &'a [u8]) -> Option<(u32, &'a [u8])> {
        let Some(mut matcher) = Matcher::new(&OURS, value) else {
            self.too_long = true;
            return None;
        };
        let parts = matcher.parts("CSeq-value", &["cseq-number", "Method"])?;
        let [(_, number), (_, method)] = parts.as_slice() else { return None };
        let number = rules::number(&value[number.clone()]).filter(|&n| n < 1 << 31)?;
        Some((u32::try_from(number).ok()?, &value[method.clone()]))
    }
}
