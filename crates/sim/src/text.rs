//! SIP messages as phones and oracles read them (RFC 3261 §7, §25). It shares nothing with the server's parser,
//! so that a fault of that one is seen. It reads what well-behaved elements write; anything else is `None`.

use std::net::SocketAddr;

/// A message, its header names in lower case and long form, its folded lines joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Msg {
    /// The request line or status line.
    pub first: String,
    /// Names and values, in order.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

/// How a message may be written; it means the same (RFC 3261 §7.3.1, §7.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// As usual.
    Plain,
    /// Short names, no blanks.
    Compact,
    /// Long names in capitals, blanks wherever they may be.
    Shouted,
    /// Every value on a line of its own.
    Folded,
}

/// RFC 3261 §7.3.3.
const COMPACT: [(&str, &str); 10] = [
    ("v", "via"),
    ("f", "from"),
    ("t", "to"),
    ("i", "call-id"),
    ("m", "contact"),
    ("l", "content-length"),
    ("c", "content-type"),
    ("s", "subject"),
    ("k", "supported"),
    ("e", "content-encoding"),
];

impl Msg {
    /// Reads a message; `None` if it is none.
    pub fn parse(bytes: &[u8]) -> Option<Msg> {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n")?;
        let mut lines = head.split("\r\n");
        let first = lines.next()?.to_owned();
        if !(first.ends_with(" SIP/2.0") || first.starts_with("SIP/2.0 ")) {
            return None;
        }
        let mut headers: Vec<(String, String)> = Vec::new();
        for line in lines {
            if line.starts_with([' ', '\t']) {
                let (_, value) = headers.last_mut()?;
                if !value.is_empty() {
                    value.push(' ');
                }
                value.push_str(line.trim());
                continue;
            }
            let (name, value) = line.split_once(':')?;
            let name = name.trim().to_ascii_lowercase();
            let long =
                COMPACT.iter().find(|(compact, _)| *compact == name).map(|(_, long)| (*long).to_owned());
            headers.push((long.unwrap_or(name), value.trim().to_owned()));
        }
        Some(Msg { first, headers, body: body.to_owned() })
    }

    /// The status of a response.
    pub fn status(&self) -> Option<u16> {
        self.first.strip_prefix("SIP/2.0 ")?.get(..3)?.parse().ok()
    }

    /// The method of a request; of a response that in its CSeq.
    pub fn method(&self) -> &str {
        if self.first.starts_with("SIP/2.0 ") {
            self.get("cseq").and_then(|value| value.split_whitespace().nth(1)).unwrap_or("")
        } else {
            self.first.split(' ').next().unwrap_or("")
        }
    }

    /// Whether it is a request.
    pub fn is_request(&self) -> bool {
        !self.first.starts_with("SIP/2.0 ")
    }

    /// The Request-URI.
    pub fn uri(&self) -> &str {
        self.first.split(' ').nth(1).unwrap_or("")
    }

    /// The first value of a header, whole.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// All values of a header whose values may be joined by commas.
    pub fn list(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(key, _)| key == name).flat_map(|(_, value)| commas(value)).collect()
    }

    /// The branch of the topmost Via.
    pub fn branch(&self) -> &str {
        self.list("via").first().and_then(|via| param(via, "branch")).unwrap_or("")
    }

    /// The sent-by of the topmost Via.
    pub fn sent_by(&self) -> &str {
        self.list("via").first().map_or("", |via| sent_by(via))
    }

    /// The tag of To.
    pub fn to_tag(&self) -> Option<&str> {
        param(self.get("to")?, "tag")
    }

    /// The tag of From.
    pub fn from_tag(&self) -> Option<&str> {
        param(self.get("from")?, "tag")
    }

    /// The number of CSeq.
    pub fn cseq(&self) -> u32 {
        self.get("cseq").and_then(|value| value.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    }

    /// The Call-ID.
    pub fn call_id(&self) -> &str {
        self.get("call-id").unwrap_or("")
    }

    /// `INVITE` or `180 INVITE`, for people.
    pub fn label(&self) -> String {
        match self.status() {
            Some(status) => format!("{status} {}", self.method()),
            None => self.method().to_owned(),
        }
    }

    /// The message as it is sent, with its Content-Length.
    pub fn bytes(&self) -> Vec<u8> {
        self.spelled(Spelling::Plain)
    }

    /// The same in another spelling.
    pub fn spelled(&self, spelling: Spelling) -> Vec<u8> {
        let mut text = self.first.clone() + "\r\n";
        let length = ("content-length".to_owned(), self.body.len().to_string());
        let others = self.headers.iter().filter(|(name, _)| name != "content-length");
        for (name, value) in others.chain([&length]) {
            let compact = COMPACT.iter().find(|(_, long)| long == name).map(|(compact, _)| *compact);
            let line = match spelling {
                Spelling::Plain => format!("{name}: {value}"),
                Spelling::Compact => format!("{}:{value}", compact.unwrap_or(name)),
                Spelling::Shouted => format!("{} \t: {value}  ", name.to_ascii_uppercase()),
                Spelling::Folded if value.is_empty() => format!("{name}:"),
                Spelling::Folded => format!("{name}:\r\n {value}"),
            };
            text.push_str(&line);
            text.push_str("\r\n");
        }
        text.push_str("\r\n");
        text.push_str(&self.body);
        text.into_bytes()
    }

    /// The response to this request (RFC 3261 §8.2.6.2); `to_tag` is added where To has none.
    pub fn respond(&self, status: u16, reason: &str, to_tag: &str) -> Msg {
        let copied = |name: &str| matches!(name, "via" | "from" | "call-id" | "cseq");
        let mut headers = Vec::new();
        for (name, value) in &self.headers {
            if copied(name) || (name == "record-route" && (101..300).contains(&status)) {
                headers.push((name.clone(), value.clone()));
            } else if name == "to" {
                let tagged = self.to_tag().is_some() || status == 100;
                let value = if tagged { value.clone() } else { format!("{value};tag={to_tag}") };
                headers.push((name.clone(), value));
            }
        }
        Msg { first: format!("SIP/2.0 {status} {reason}"), headers, body: String::new() }
    }
}

/// Splits at the commas outside of quotes and angle brackets.
pub fn commas(value: &str) -> Vec<&str> {
    let (mut parts, mut start, mut quoted, mut depth) = (Vec::new(), 0, false, 0_i32);
    for (at, letter) in value.char_indices() {
        match letter {
            '"' => quoted = !quoted,
            '<' if !quoted => depth += 1,
            '>' if !quoted => depth -= 1,
            ',' if !quoted && depth <= 0 => {
                parts.push(value[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(value[start..].trim());
    parts
}

/// A header parameter: `tag`, `branch`, `expires`, … A parameter without a value has the empty one.
pub fn param<'a>(value: &'a str, name: &str) -> Option<&'a str> {
    let params = value
        .rsplit_once('>')
        .map_or_else(|| value.split_once(';').map(|(_, params)| params), |(_, p)| Some(p))?;
    params.split(';').map(str::trim).find_map(|param| {
        let (key, value) = param.split_once('=').unwrap_or((param, ""));
        key.trim().eq_ignore_ascii_case(name).then_some(value.trim())
    })
}

/// The URI of a name-addr or addr-spec.
pub fn uri_of(value: &str) -> &str {
    match (value.find('<'), value.find('>')) {
        (Some(open), Some(close)) if open < close => &value[open + 1..close],
        _ => value.split(';').next().unwrap_or(value).trim(),
    }
}

/// `host:port` of a Via value.
pub fn sent_by(via: &str) -> &str {
    via.split_once(char::is_whitespace).map_or("", |(_, rest)| rest.split(';').next().unwrap_or("").trim())
}

/// `user` of `sip:user@host`.
pub fn user_of(uri: &str) -> &str {
    uri.split_once(':').and_then(|(_, rest)| rest.split_once('@')).map_or("", |(user, _)| user)
}

/// `host:port` of a URI, without its parameters.
pub fn host_of(uri: &str) -> &str {
    let rest = uri.split_once(':').map_or(uri, |(_, rest)| rest);
    let rest = rest.split_once('@').map_or(rest, |(_, host)| host);
    rest.split([';', '?', '>']).next().unwrap_or(rest)
}

/// The address that a URI names; `None` for a name. Port 5060 where it has none.
pub fn address_of(uri: &str) -> Option<SocketAddr> {
    let host = host_of(uri);
    host.parse().ok().or_else(|| format!("{host}:5060").parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_and_written() {
        let text = b"INVITE sip:b@h SIP/2.0\r\nv: SIP/2.0/UDP a:1;branch=z9hG4bK1, SIP/2.0/UDP b:2\r\n ;branch=z\r\n\
            f: \"A, B\" <sip:a@h>;tag=1\r\nTo: <sip:b@h;x=y>\r\nCall-ID: c\r\nCSeq: 7 INVITE\r\nl: 2\r\n\r\nhi";
        let msg = Msg::parse(text).unwrap();
        assert_eq!(
            (msg.method(), msg.uri(), msg.branch(), msg.sent_by()),
            ("INVITE", "sip:b@h", "z9hG4bK1", "a:1")
        );
        assert_eq!(msg.list("via")[1], "SIP/2.0/UDP b:2 ;branch=z");
        assert_eq!((msg.from_tag(), msg.to_tag(), msg.cseq(), &*msg.body), (Some("1"), None, 7, "hi"));
        assert_eq!(Msg::parse(&msg.bytes()).unwrap().list("via"), msg.list("via"));
        let ok = msg.respond(200, "OK", "t");
        assert_eq!(
            (ok.status(), ok.to_tag(), ok.method(), ok.label().as_str()),
            (Some(200), Some("t"), "INVITE", "200 INVITE")
        );
    }

    #[test]
    fn every_spelling_means_the_same() {
        let msg =
            Msg::parse(b"OPTIONS sip:a SIP/2.0\r\nVia: x\r\nTo: <sip:a>\r\nContent-Length: 2\r\n\r\nhi")
                .unwrap();
        for spelling in [Spelling::Plain, Spelling::Compact, Spelling::Shouted, Spelling::Folded] {
            let read = Msg::parse(&msg.spelled(spelling)).unwrap();
            assert_eq!(
                (read.get("via"), read.get("to"), &read.body),
                (msg.get("via"), msg.get("to"), &msg.body)
            );
        }
    }

    #[test]
    fn parts_of_uris() {
        assert_eq!(uri_of("\"x\" <sip:u@1.2.3.4:5;lr>;tag=1"), "sip:u@1.2.3.4:5;lr");
        assert_eq!((user_of("sip:u@h:1"), host_of("sip:u@h:1;lr")), ("u", "h:1"));
        assert_eq!(address_of("sip:u@1.2.3.4;lr"), "1.2.3.4:5060".parse().ok());
        assert_eq!(address_of("sip:u@name.example"), None);
    }
}
