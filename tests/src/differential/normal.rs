//! Messages without what each server may choose, so that what is left can be compared.
//!
//! Taken away: addresses (`SERVER`, `PEER`), the caller's port over TCP, the branch that the server makes
//! (`BRANCH`), To tags, nonces and temporary GRUUs that it makes (`TAG`, `NONCE`, `NAME`), reason phrases, Date, Server, Warning and
//! Kamailio's P-Registrar-Error, the order of header fields of different names (RFC 3261 §7.3.1), and what
//! differs in every message ([`alike`]; `docs/differences.md` lists it). What is no printable ASCII is escaped.

use std::fmt::Write as _;

use super::draft::{empty_lines_before, header_lines};
use super::readers::{READERS, Reader, header_fields};
use super::stage::Outcome;

/// Header fields that a server may add to its answers as it likes.
const FREE: [&str; 4] = ["date", "server", "warning", "p-registrar-error"];

/// An outcome in comparable form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Normal {
    /// What the caller received.
    pub answers: Vec<Plain>,
    /// What the next hop received.
    pub forwarded: Vec<Plain>,
    /// Whether the caller's connection was closed.
    pub closed: bool,
    /// The readers of what was forwarded that find a header field that the configurations remove.
    pub smuggled: Vec<&'static str>,
}

/// The header fields that the configurations remove, in lower case, and what they are called besides.
const REMOVED: [&str; 3] = ["x-secret", "subject", "s"];

/// A message in comparable form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain {
    /// The request line, or the status alone.
    pub start: String,
    /// The header lines by name, and the body as `body: …`.
    pub lines: Vec<String>,
}

impl Normal {
    /// Of this outcome.
    pub fn of(outcome: &Outcome) -> Self {
        // What differs in a nonce or a Date alone has been sent again.
        let plain = |messages: &[Vec<u8>]| {
            let mut all: Vec<Plain> = Vec::new();
            for message in messages.iter().map(|bytes| Plain::of(bytes, outcome)) {
                if !all.contains(&message) {
                    all.push(message);
                }
            }
            all
        };
        let (answers, forwarded) = (plain(&outcome.answers), plain(&outcome.forwarded));
        let finds = |reader: &&Reader| {
            let mut fields = outcome.forwarded.iter().flat_map(|message| header_fields(message, **reader));
            fields.any(|(name, _)| REMOVED.contains(&name.as_str()))
        };
        let smuggled = READERS.iter().filter(finds).map(|reader| reader.name).collect();
        Self { answers, forwarded, closed: outcome.closed, smuggled }
    }

    /// What the caller was told: `400`, `200, 486`, `silence`; `closed` where the connection was.
    pub fn told(&self) -> String {
        let mut starts: Vec<&str> = self.answers.iter().map(|answer| answer.start.as_str()).collect();
        starts.extend(self.closed.then_some("closed"));
        if starts.is_empty() { "silence".to_owned() } else { starts.join(", ") }
    }

    /// Who finds in what went on a header field that was to be removed; `nobody`.
    pub fn found_by(&self) -> String {
        if self.smuggled.is_empty() { "nobody".to_owned() } else { self.smuggled.join(", ") }
    }

    /// What went on: the request lines, or `nothing`.
    pub fn went_on(&self) -> String {
        let starts: Vec<&str> = self.forwarded.iter().map(|request| request.start.as_str()).collect();
        if starts.is_empty() { "nothing".to_owned() } else { starts.join(", ") }
    }
}

impl Plain {
    fn of(bytes: &[u8], outcome: &Outcome) -> Self {
        let known = |value: &str| {
            outcome.sent.iter().any(|sent| printable(sent).contains(value)) || value.starts_with("next")
        };
        let replaced = |text: String| {
            let port = format!("{}:{}", outcome.peer, outcome.caller_port);
            let text = if outcome.caller_port == 5060 { text } else { text.replace(&port, "PEER:5060") };
            text.replace(&outcome.server.ip().to_string(), "SERVER")
                .replace(&outcome.peer.to_string(), "PEER")
        };
        let mut all = header_lines(bytes).into_iter().map(|line| unbranched(replaced(printable(&line))));
        let start = "\\r\\n".repeat(empty_lines_before(bytes)) + &all.next().unwrap_or_default();
        let is_answer = start.starts_with("SIP/2.0 ");
        let mut lines: Vec<String> = Vec::new();
        for line in all {
            let name = long_name(&line);
            let is_free = is_answer && FREE.contains(&name.as_str());
            // RFC 5393 §5.3.3: we add it, Kamailio does not know it.
            if is_free || line == "Max-Breadth: 60" {
                continue;
            }
            let line = alike(&name, line);
            let line = match name.as_str() {
                "via" if line.contains("SERVER") => cut(&line, "branch=", "BRANCH", &|_| false),
                "to" => cut(&line, "tag=", "TAG", &known),
                "www-authenticate" | "proxy-authenticate" => cut(&line, "nonce=", "NONCE", &|_| false),
                // A name that Kamailio makes for a contact (RFC 5627 §3.3).
                "contact" => cut(&line, "temp-gruu=\"sip:", "NAME", &|_| false),
                // Of the caller, to a nonce of the server's.
                "authorization" | "proxy-authorization" => {
                    let line = cut(&line, " nonce=", "NONCE", &|_| false);
                    cut(&line, "response=", "RESPONSE", &|_| false)
                }
                _ => line,
            };
            lines.push(line);
        }
        lines.sort_by_key(|line| long_name(line));
        if let Some(head) = bytes.windows(4).position(|end| end == b"\r\n\r\n") {
            let body = &bytes[head + 4..];
            if !body.is_empty() {
                lines.push(format!("body: {}", printable(body)));
            }
        }
        let status = start.strip_prefix("SIP/2.0 ").map(|rest| rest.chars().take(3).collect());
        Self { start: status.unwrap_or(start), lines }
    }
}

/// The line without the branch that the server made, and without Kamailio's note of the connection that a
/// request came by.
fn unbranched(line: String) -> String {
    if !["SERVER;branch=", "SERVER:5060;branch="].iter().any(|made| line.contains(made)) {
        return line;
    }
    cut(&cut(&line, "branch=", "BRANCH", &|_| false), ";i=", "", &|_| false).replace(";i=", "")
}

/// The line in the form that both servers would have if they wrote alike what means the same: our Record-Route
/// has a token by which we know it, our Via and Record-Route name port 5060, our challenges name MD5;
/// `received` is the last parameter of a Via that we write it into, and the first of Kamailio's; a binding may
/// have lost a second.
fn alike(name: &str, line: String) -> String {
    match name {
        "via" if line.contains("SERVER:5060;branch=") && !line.contains("received=") => {
            line.replacen("SERVER:5060;", "SERVER;", 1)
        }
        "via" if line.contains(";received=PEER") => {
            format!("{};received=PEER", line.replace(";received=PEER", ""))
        }
        "record-route" => {
            let at = line.find("@SERVER:5060;").filter(|at| line[..*at].len() > 13);
            let own = at.and_then(|at| line[..at].rfind("<sip:").map(|start| (start + 5, at + 1)));
            match own {
                Some((start, end)) => {
                    format!("{}{}", &line[..start], line[end..].replacen("SERVER:5060;", "SERVER;", 1))
                }
                None => line,
            }
        }
        "www-authenticate" | "proxy-authenticate" | "authorization" | "proxy-authorization" => {
            line.replace(", algorithm=MD5", "")
        }
        "contact" => ["59", "1799", "3599"].iter().fold(line, |line, less| {
            let whole = less.parse::<u32>().unwrap_or_default() + 1;
            line.replace(&format!(";expires={less}"), &format!(";expires={whole}"))
        }),
        _ => line,
    }
}

/// Replaces the value that follows `before`, unless it is to be kept.
fn cut(line: &str, before: &str, with: &str, keeps: &dyn Fn(&str) -> bool) -> String {
    let Some(at) = line.to_ascii_lowercase().find(before) else { return line.to_owned() };
    let start = at + before.len();
    let rest = &line[start..];
    let end = rest.find([';', ',', ' ', '\\', '>']).unwrap_or(rest.len());
    if keeps(&rest[..end]) {
        return line.to_owned();
    }
    format!("{}{with}{}", &line[..start], &rest[end..])
}

/// The bytes as text on one line.
pub(super) fn printable(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b'\r' => text.push_str("\\r"),
            b'\n' => text.push_str("\\n"),
            b'\t' => text.push_str("\\t"),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => {
                // Writing to a String cannot fail.
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
        text
    })
}

/// The name of a header line in lower case, the long one for a compact one.
fn long_name(line: &str) -> String {
    let name = line.split(':').next().unwrap_or_default().replace("\\t", " ").trim().to_ascii_lowercase();
    let long = match name.as_str() {
        "v" => "via",
        "f" => "from",
        "t" => "to",
        "i" => "call-id",
        "m" => "contact",
        "l" => "content-length",
        "c" => "content-type",
        "k" => "supported",
        "e" => "content-encoding",
        "s" => "subject",
        _ => return name,
    };
    long.to_owned()
}
