//! SIP messages as a tester needs them: every part open to be formed or malformed (RFC 3261 §7).

use std::fmt;

/// A message as a start line, header fields in their order, and a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The request line or status line.
    pub start: String,
    /// Names as written, and values.
    pub headers: Vec<(String, String)>,
    /// What follows the empty line.
    pub body: String,
}

impl Message {
    /// Reads a datagram; `None` if it is not a message at all. Folded lines are not understood: no server may fold.
    pub fn parse(datagram: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(datagram);
        let (head, body) = text.split_once("\r\n\r\n")?;
        let mut lines = head.split("\r\n");
        let start = lines.next()?.to_owned();
        let header = |line: &str| {
            line.split_once(':').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
        };
        let headers = lines.map(header).collect::<Option<Vec<_>>>()?;
        start.contains("SIP/2.0").then(|| Self { start, headers, body: body.to_owned() })
    }

    /// The status code of a response.
    pub fn status(&self) -> Option<u16> {
        self.start.strip_prefix("SIP/2.0 ")?.split(' ').next()?.parse().ok()
    }

    /// The method of the request, or of the request that this response answers.
    pub fn method(&self) -> &str {
        match self.status() {
            Some(_) => self.header("CSeq").split(' ').next_back().unwrap_or_default(),
            None => self.start.split(' ').next().unwrap_or_default(),
        }
    }

    /// The Request-URI of a request.
    pub fn uri(&self) -> &str {
        self.start.split(' ').nth(1).unwrap_or_default()
    }

    /// The value of a header field that must be there.
    ///
    /// # Panics
    ///
    /// When it is not.
    pub fn header(&self, name: &str) -> &str {
        self.find(name).unwrap_or_else(|| panic!("no {name} in:\n{self}"))
    }

    /// The first value of a header field, by its long name, as written.
    pub fn find(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| is_name(other, name)).map(|(_, value)| value.as_str())
    }

    /// All values of a header field, however they are spread over lines.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let lines = self.headers.iter().filter(|(other, _)| is_name(other, name));
        lines.flat_map(|(_, value)| split_at_commas(value)).collect()
    }

    /// A parameter of the first value of a header field: `parameter("To", "tag")`.
    pub fn parameter(&self, header: &str, parameter: &str) -> Option<&str> {
        let values = self.all(header);
        let (_, parameters) = values.first()?.rsplit_once('>').or_else(|| values.first()?.split_once(';'))?;
        let mut pairs = parameters.split(';').filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(name, _)| name.eq_ignore_ascii_case(parameter)).map(|(_, value)| value)
    }

    /// The URI within the first value of a header field.
    pub fn uri_of(&self, header: &str) -> &str {
        let value = self.all(header).first().copied().unwrap_or_default();
        value.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map_or(value, |(uri, _)| uri)
    }

    /// The same with one more header field, after the others.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }

    /// The same with a header field replaced in its place, or added.
    #[must_use]
    pub fn set(mut self, name: &str, value: impl fmt::Display) -> Self {
        match self.headers.iter_mut().find(|(other, _)| is_name(other, name)) {
            Some((_, old)) => *old = value.to_string(),
            None => return self.with(name, value),
        }
        self
    }

    /// The same without a header field.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(other, _)| !is_name(other, name));
        self
    }

    /// The same with another start line.
    #[must_use]
    pub fn start(mut self, start: impl Into<String>) -> Self {
        self.start = start.into();
        self
    }

    /// The same with a body and its length.
    #[must_use]
    pub fn body(mut self, content_type: &str, body: impl Into<String>) -> Self {
        self.body = body.into();
        let length = self.body.len();
        self.set("Content-Type", content_type).set("Content-Length", length)
    }

    /// The response to this request (RFC 3261 §8.2.6), with `tag` in its To unless one is there.
    pub fn response(&self, status: u16, reason: &str, tag: &str) -> Self {
        let copied = ["Via", "From", "To", "Call-ID", "CSeq", "Record-Route"];
        let is_copied = |name: &str| copied.iter().any(|long| is_name(name, long));
        let headers = self.headers.iter().filter(|(name, _)| is_copied(name)).cloned().collect();
        let response = Self { start: format!("SIP/2.0 {status} {reason}"), headers, body: String::new() };
        let response = match self.parameter("To", "tag") {
            Some(_) => response,
            None => response.set("To", format!("{};tag={tag}", self.header("To"))),
        };
        response.with("Content-Length", 0)
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\r\n", self.start)?;
        for (name, value) in &self.headers {
            write!(f, "{name}: {value}\r\n")?;
        }
        write!(f, "\r\n{}", self.body)
    }
}

/// The port in the sent-by of the first Via of a message as it came, 5060 if that names none.
pub fn via_port(message: &str) -> Option<u16> {
    let is_via = |line: &&str| {
        let name = line.split(':').next().unwrap_or_default().trim();
        name.eq_ignore_ascii_case("via") || name.eq_ignore_ascii_case("v")
    };
    let start = message.lines().position(|line| is_via(&line))?;
    let mut lines = message.lines().skip(start);
    let first = lines.next()?.split_once(':')?.1.to_owned();
    let value =
        lines.take_while(|line| line.starts_with([' ', '\t'])).fold(first, |value, line| value + line);
    let sent_by = value.split([';', ',']).next()?.trim();
    let after_host = sent_by.rsplit_once(']').map_or(sent_by, |(_, rest)| rest);
    let port = after_host.rsplit_once(':').and_then(|(_, port)| port.trim().parse().ok());
    Some(port.unwrap_or(5060))
}

/// Whether a header name as written is this long name, in any case or in its compact form (RFC 3261 §7.3.3).
fn is_name(written: &str, long: &str) -> bool {
    const COMPACT: &[(&str, &str)] = &[
        ("v", "Via"),
        ("f", "From"),
        ("t", "To"),
        ("i", "Call-ID"),
        ("m", "Contact"),
        ("l", "Content-Length"),
        ("c", "Content-Type"),
        ("k", "Supported"),
    ];
    let expanded = COMPACT.iter().find(|(compact, _)| compact.eq_ignore_ascii_case(written));
    expanded.map_or(written, |(_, name)| name).eq_ignore_ascii_case(long)
}

/// The parts of a header value between the commas that stand outside quotes and angle brackets.
fn split_at_commas(value: &str) -> Vec<&str> {
    let (mut quoted, mut bracketed) = (false, false);
    let parts = value.split(move |character| {
        match character {
            '"' => quoted = !quoted,
            '<' if !quoted => bracketed = true,
            '>' if !quoted => bracketed = false,
            _ => {}
        }
        character == ',' && !quoted && !bracketed
    });
    parts.map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_message_are_found() {
        let text = "SIP/2.0 200 OK\r\nv: SIP/2.0/UDP a;branch=z9hG4bK1, SIP/2.0/UDP b\r\nVia: SIP/2.0/UDP c\r\n\
                    To: \"x, y\" <sip:a@b;x=y>;tag=7\r\nCSeq: 1 INVITE\r\n\r\nbody";
        let message = Message::parse(text.as_bytes()).expect("a message");
        assert_eq!(message.status(), Some(200));
        assert_eq!(message.method(), "INVITE");
        assert_eq!(message.all("Via").len(), 3);
        assert_eq!(message.parameter("Via", "branch"), Some("z9hG4bK1"));
        assert_eq!(message.parameter("To", "tag"), Some("7"));
        assert_eq!(message.uri_of("To"), "sip:a@b;x=y");
        assert_eq!(message.body, "body");
    }

    #[test]
    fn what_is_no_message_is_none() {
        assert_eq!(Message::parse(b"\r\n\r\n"), None);
        assert_eq!(Message::parse(b"GET / HTTP/1.0\r\n\r\n"), None);
    }
}
