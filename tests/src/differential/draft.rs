//! Messages of a case before they are sent: templates of lines, edited as the traffic file says.

use super::text::{Names, expand};

/// The header fields that a response copies from its request (RFC 3261 §8.2.6.2, §12.1.1), in the order we
/// write them.
const COPIED: [&str; 6] = ["Via", "Record-Route", "From", "To", "Call-ID", "CSeq"];

/// What one step of a case sends.
#[derive(Clone, Debug)]
pub(super) enum Draft {
    /// Exactly these bytes.
    Bytes(Vec<u8>),
    /// These lines, each with its line end.
    Lines(Vec<String>),
    /// A message of parts.
    Message(Message),
    /// What the same side has sent last, once more.
    Again,
}

/// A message as templates: the start line, header lines under the names by which they are edited, the body.
#[derive(Clone, Debug)]
pub(super) struct Message {
    start: String,
    lines: Vec<(String, Line)>,
    body: String,
    /// Bytes after the message.
    tail: String,
}

#[derive(Clone, Debug)]
enum Line {
    /// A template.
    Written(String),
    /// All lines of this name of the request that arrived last.
    Copied,
}

impl Message {
    /// A request of the caller.
    pub(super) fn request(method: &str) -> Self {
        let uri = if method == "REGISTER" { "sip:example.net" } else { "sip:bob@example.net" };
        let mut message = Self::new(format!("{method} {uri} SIP/2.0"));
        message.written("Via", "Via: SIP/2.0/UDP {caller};branch=z9hG4bK{id}");
        message.written("Max-Forwards", "Max-Forwards: 70");
        let to = if method == "REGISTER" { "alice" } else { "bob" };
        message.written("From", "From: <sip:alice@example.net>;tag=f{id}");
        message.written("To", &format!("To: <sip:{to}@example.net>"));
        message.written("Call-ID", "Call-ID: {id}");
        message.written("CSeq", &format!("CSeq: 1 {method}"));
        message.written("Contact", "Contact: <sip:alice@{caller}>");
        message.written("Content-Length", "Content-Length: {length}");
        message
    }

    /// A response of the next hop to what has arrived there.
    pub(super) fn answer(status: &str) -> Self {
        let mut message = Self::new(format!("SIP/2.0 {status}"));
        message.lines.extend(COPIED.map(|name| (name.to_owned(), Line::Copied)));
        message.written("Content-Length", "Content-Length: {length}");
        message
    }

    /// A response of the next hop to a request that never was.
    pub(super) fn stray(status: &str) -> Self {
        let mut message = Self::new(format!("SIP/2.0 {status}"));
        message.written("Via", "Via: SIP/2.0/UDP {server};branch=z9hG4bKstray{id}");
        message.written("Via2", "Via: SIP/2.0/UDP {caller};branch=z9hG4bK{id}");
        message.written("From", "From: <sip:alice@example.net>;tag=f{id}");
        message.written("To", "To: <sip:bob@example.net>;tag=t{id}");
        message.written("Call-ID", "Call-ID: {id}");
        message.written("CSeq", "CSeq: 1 MESSAGE");
        message.written("Content-Length", "Content-Length: {length}");
        message
    }

    fn new(start: String) -> Self {
        Self { start, lines: Vec::new(), body: String::new(), tail: String::new() }
    }

    fn written(&mut self, name: &str, line: &str) {
        self.lines.push((name.to_owned(), Line::Written(line.to_owned())));
    }

    /// Applies one line of a traffic file. Returns whether it was an edit.
    pub(super) fn edit(&mut self, word: &str, rest: &str) -> bool {
        match word {
            "start" => rest.clone_into(&mut self.start),
            "set" => {
                let name = rest.split([':', ' ', '\\']).next().unwrap_or_default();
                self.replace(name, rest);
            }
            "put" => {
                let (name, line) = rest.split_once(' ').unwrap_or((rest, ""));
                self.replace(name, line);
            }
            "add" => self.lines.insert(self.before_length(), added(rest)),
            "top" => self.lines.insert(0, added(rest)),
            "last" => self.lines.push(added(rest)),
            "drop" => self.lines.retain(|(name, _)| !name.eq_ignore_ascii_case(rest)),
            "body" => {
                let (kind, body) = rest.split_once(' ').unwrap_or((rest, ""));
                body.clone_into(&mut self.body);
                self.lines.insert(self.before_length(), added(&format!("Content-Type: {kind}")));
            }
            "tail" => rest.clone_into(&mut self.tail),
            _ => return false,
        }
        true
    }

    /// Puts a line in the place of the one that is known by this name, or adds it.
    pub(super) fn set_or_add(&mut self, name: &str, line: &str) {
        if self.lines.iter().any(|(other, _)| other == name) {
            self.replace(name, line);
        } else {
            self.lines.insert(self.before_length(), added(line));
        }
    }

    /// Puts a line in the place of the one that is known by this name.
    fn replace(&mut self, name: &str, line: &str) {
        let found = self.lines.iter_mut().find(|(other, _)| other.eq_ignore_ascii_case(name));
        let (_, old) = found.unwrap_or_else(|| panic!("nothing called {name} to be set: {line}"));
        *old = Line::Written(line.to_owned());
    }

    fn before_length(&self) -> usize {
        let length = self.lines.iter().position(|(name, _)| name == "Content-Length");
        length.unwrap_or(self.lines.len())
    }

    /// The bytes.
    pub(super) fn bytes(&self, names: &Names) -> Vec<u8> {
        let body = expand(&self.body, names);
        let mut bytes = expand(&self.start, names);
        for (name, line) in &self.lines {
            match line {
                Line::Written(line) => {
                    bytes.extend_from_slice(b"\r\n");
                    bytes.extend(expand(&line.replace("{length}", &body.len().to_string()), names));
                }
                Line::Copied => {
                    for line in lines_named(&names.arrived, name) {
                        bytes.extend_from_slice(b"\r\n");
                        bytes.extend_from_slice(&line);
                        if name == "To" && !String::from_utf8_lossy(&line).contains("tag=") {
                            bytes.extend_from_slice(b";tag=next");
                        }
                    }
                }
            }
        }
        bytes.extend_from_slice(b"\r\n\r\n");
        bytes.extend(body);
        bytes.extend(expand(&self.tail, names));
        bytes
    }
}

fn added(line: &str) -> (String, Line) {
    (String::new(), Line::Written(line.to_owned()))
}

/// How many empty lines are before the start line, which mean nothing (RFC 3261 §7.5).
pub(super) fn empty_lines_before(message: &[u8]) -> usize {
    message.chunks(2).take_while(|pair| *pair == b"\r\n").count()
}

/// The lines of a message up to its body, folded ones whole, without their line ends.
pub(super) fn header_lines(message: &[u8]) -> Vec<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> = Vec::new();
    let mut rest = &message[2 * empty_lines_before(message)..];
    while let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
        let line = &rest[..end];
        rest = &rest[end + 2..];
        if line.is_empty() && !lines.is_empty() {
            return lines;
        }
        match lines.last_mut() {
            Some(last) if line.first().is_some_and(|first| b" \t".contains(first)) => {
                last.extend_from_slice(b"\r\n");
                last.extend_from_slice(line);
            }
            _ => lines.push(line.to_vec()),
        }
    }
    lines
}

/// The lines of a message whose name is this one, written long or compact.
fn lines_named(message: &[u8], name: &str) -> Vec<Vec<u8>> {
    let compact = match name {
        "Via" => "v",
        "From" => "f",
        "To" => "t",
        "Call-ID" => "i",
        _ => name,
    };
    let is_named = |line: &Vec<u8>| {
        let before = line.split(|byte| *byte == b':').next().unwrap_or_default();
        let written = String::from_utf8_lossy(before.trim_ascii()).into_owned();
        written.eq_ignore_ascii_case(name) || written.eq_ignore_ascii_case(compact)
    };
    header_lines(message).into_iter().skip(1).filter(is_named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_edited_and_copied() {
        let mut names = Names {
            server: ([127, 0, 0, 1], 5060).into(),
            peer: [127, 0, 0, 9].into(),
            caller_port: 5060,
            next_port: 5070,
            id: "x".to_owned(),
            credentials: String::new(),
            arrived: Vec::new(),
        };
        let mut request = Message::request("MESSAGE");
        assert!(request.edit("set", "To : <sip:b@c>"));
        assert!(request.edit("drop", "Contact"));
        assert!(request.edit("body", "text/plain hello"));
        assert!(!request.edit("nonsense", ""));
        let bytes = request.bytes(&names);
        let text = String::from_utf8(bytes.clone()).expect("text");
        assert!(text.contains("\r\nTo : <sip:b@c>\r\n") && !text.contains("Contact"), "{text}");
        assert!(text.ends_with("Content-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"), "{text}");
        names.arrived = bytes;
        let answer = String::from_utf8(Message::answer("200 OK").bytes(&names)).expect("text");
        assert!(answer.starts_with("SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP 127.0.0.9:5060;branch=z9hG4bKx\r\n"));
        assert!(answer.contains("To : <sip:b@c>;tag=next\r\n"), "{answer}");
    }
}
