//! SIP as text, written and read without the crates under test: a bug that server and tester share is invisible.

use std::fmt::Write as _;
use std::net::SocketAddr;

use super::{ALICE, DOMAIN};

/// A request in the making, as a user agent would write it (RFC 3261 §8.1.1).
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    pub uri: String,
    pub version: String,
    pub vias: Vec<String>,
    pub max_forwards: Option<String>,
    pub from: String,
    pub to: String,
    pub call_id: String,
    pub cseq: u32,
    pub cseq_method: String,
    pub lines: Vec<String>,
    pub body: String,
}

impl Request {
    /// A request of call number `n` from Alice to `sip:bob@example.org`.
    pub fn new(method: &str, n: u32) -> Request {
        Request {
            method: method.into(),
            uri: format!("sip:bob@{DOMAIN}"),
            version: "SIP/2.0".into(),
            vias: vec![format!("SIP/2.0/UDP {ALICE};branch=z9hG4bK-alice-{n}-{method}")],
            max_forwards: Some("70".into()),
            from: format!("\"Alice, A.\" <sip:alice@{DOMAIN}>;tag=from-{n}"),
            to: format!("<sip:bob@{DOMAIN}>"),
            call_id: format!("call-{n}@alice.example.org"),
            cseq: 1,
            cseq_method: method.into(),
            lines: vec![format!("Contact: <sip:alice@{ALICE}>")],
            body: String::new(),
        }
    }

    /// The INVITE of call number `n`, with an SDP body.
    pub fn invite(n: u32) -> Request {
        let mut request = Request::new("INVITE", n);
        request.lines.push("Content-Type: application/sdp".into());
        request.body = "v=0\r\no=- 1 1 IN IP4 10.0.1.1\r\ns=-\r\nc=IN IP4 10.0.1.1\r\nt=0 0\r\nm=audio 4000 RTP/AVP 0\r\n".into();
        request
    }

    /// An OPTIONS numbered `n`.
    pub fn options(n: u32) -> Request {
        Request::new("OPTIONS", n)
    }

    pub fn uri(mut self, uri: &str) -> Request {
        self.uri = uri.into();
        self
    }

    /// Another header line, without its CRLF.
    pub fn line(mut self, line: &str) -> Request {
        self.lines.push(line.into());
        self
    }

    /// The whole topmost Via value.
    pub fn via(mut self, via: &str) -> Request {
        self.vias[0] = via.into();
        self
    }

    /// The topmost Via's branch, cookie included (or missing, as an RFC 2543 client has it).
    pub fn branch(mut self, branch: &str) -> Request {
        self.vias[0] = format!("SIP/2.0/UDP {ALICE};branch={branch}");
        self
    }

    pub fn max_forwards(mut self, value: Option<&str>) -> Request {
        self.max_forwards = value.map(str::to_owned);
        self
    }

    pub fn with_to_tag(mut self, tag: &str) -> Request {
        let _ = write!(self.to, ";tag={tag}");
        self
    }

    pub fn cseq(mut self, cseq: u32) -> Request {
        self.cseq = cseq;
        self
    }

    /// The CANCEL of this request (RFC 3261 §9.1).
    pub fn cancel(&self) -> Request {
        let mut cancel = self.clone();
        cancel.method = "CANCEL".into();
        cancel.cseq_method = "CANCEL".into();
        cancel.vias.truncate(1);
        cancel.max_forwards = Some("70".into());
        cancel.lines.retain(|line| line.starts_with("Route:"));
        cancel.body.clear();
        cancel
    }

    /// The ACK of a non-2xx response to this request (RFC 3261 §17.1.1.3).
    pub fn ack(&self, response: &Seen) -> Request {
        let mut ack = self.cancel();
        ack.method = "ACK".into();
        ack.cseq_method = "ACK".into();
        ack.to = response.header("To").expect("a response has a To");
        ack
    }

    /// The ACK of a 2xx response to this request: a transaction of its own (RFC 3261 §13.2.2.4), with the dialog's
    /// remote target and route set (§12.1.2, §12.2.1.1).
    pub fn ack_2xx(&self, response: &Seen) -> Request {
        let mut ack = self.in_dialog("ACK", response);
        ack.cseq = self.cseq;
        ack
    }

    /// A later request in the dialog that `response` to this INVITE established (RFC 3261 §12.2.1.1).
    pub fn in_dialog(&self, method: &str, response: &Seen) -> Request {
        let mut request = self.clone();
        request.method = method.into();
        request.cseq_method = method.into();
        request.cseq = self.cseq + 1;
        let old = self.vias[0].split("branch=").nth(1).unwrap_or("z9hG4bK-none").to_owned();
        request.vias = vec![format!("SIP/2.0/UDP {ALICE};branch={old}-{method}")];
        request.to = response.header("To").expect("a response has a To");
        request.lines.clear();
        if let Some(contact) = response.header("Contact") {
            request.uri = inside_brackets(&contact).to_owned();
        }
        for route in response.values("Record-Route").iter().rev() {
            request.lines.push(format!("Route: {route}"));
        }
        request.body.clear();
        request
    }

    pub fn text(&self) -> String {
        let mut text = format!("{} {} {}\r\n", self.method, self.uri, self.version);
        for via in &self.vias {
            let _ = write!(text, "Via: {via}\r\n");
        }
        if let Some(max_forwards) = &self.max_forwards {
            let _ = write!(text, "Max-Forwards: {max_forwards}\r\n");
        }
        let _ = write!(text, "From: {}\r\nTo: {}\r\nCall-ID: {}\r\n", self.from, self.to, self.call_id);
        let _ = write!(text, "CSeq: {} {}\r\n", self.cseq, self.cseq_method);
        for line in &self.lines {
            let _ = write!(text, "{line}\r\n");
        }
        let _ = write!(text, "Content-Length: {}\r\n\r\n{}", self.body.len(), self.body);
        text
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.text().into_bytes()
    }
}

/// One datagram of the log, with its time.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Microseconds since the start of the test.
    pub at: u64,
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub bytes: Vec<u8>,
}

impl Seen {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    pub fn ms(&self) -> u64 {
        self.at / 1000
    }

    pub fn start_line(&self) -> String {
        self.text().lines().next().unwrap_or_default().to_owned()
    }

    /// The method of a request or the status of a response: what a log of labels shows.
    pub fn label(&self) -> String {
        let line = self.start_line();
        let mut words = line.split(' ');
        let first = words.next().unwrap_or_default();
        if first == "SIP/2.0" { words.next().unwrap_or_default().to_owned() } else { first.to_owned() }
    }

    pub fn status(&self) -> Option<u16> {
        if self.bytes.starts_with(b"SIP/2.0 ") { self.label().parse().ok() } else { None }
    }

    pub fn uri(&self) -> String {
        self.start_line().split(' ').nth(1).unwrap_or_default().to_owned()
    }

    pub fn body(&self) -> String {
        let text = self.text();
        text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
    }

    /// All header lines (unfolded ones), in order, as (name, value).
    pub fn header_lines(&self) -> Vec<(String, String)> {
        let text = self.text();
        let head = text.split("\r\n\r\n").next().unwrap_or_default();
        head.split("\r\n")
            .skip(1)
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
            .collect()
    }

    /// The first header of that name, whole.
    pub fn header(&self, name: &str) -> Option<String> {
        self.header_lines().into_iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// All values of a comma-separated header, over all its lines.
    pub fn values(&self, name: &str) -> Vec<String> {
        let mut values = Vec::new();
        for (_, value) in self.header_lines().into_iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)) {
            split_commas(&value, &mut values);
        }
        values
    }

    pub fn vias(&self) -> Vec<String> {
        self.values("Via")
    }

    /// The branch of the topmost Via.
    pub fn branch(&self) -> String {
        let via = self.vias().first().cloned().unwrap_or_default();
        param(&via, "branch").unwrap_or_default()
    }

    pub fn to_tag(&self) -> Option<String> {
        let to = self.header("To").unwrap_or_default();
        let after = to.rsplit_once('>').map(|(_, after)| after.to_owned()).unwrap_or(to);
        param(&after, "tag")
    }

    pub fn call_id(&self) -> String {
        self.header("Call-ID").unwrap_or_default()
    }

    pub fn cseq_method(&self) -> String {
        self.header("CSeq").and_then(|value| value.split(' ').nth(1).map(str::to_owned)).unwrap_or_default()
    }

    /// This request's response as a user agent server would write it (RFC 3261 §8.2.6.2), with `tag` in To where
    /// the request has none (empty: no tag).
    pub fn respond(&self, status: u16, tag: &str) -> Vec<u8> {
        self.respond_with(status, tag, &[], "")
    }

    pub fn respond_with(&self, status: u16, tag: &str, lines: &[&str], body: &str) -> Vec<u8> {
        let mut text = format!("SIP/2.0 {status} Whatever\r\n");
        for via in self.vias() {
            let _ = write!(text, "Via: {via}\r\n");
        }
        for route in self.values("Record-Route") {
            let _ = write!(text, "Record-Route: {route}\r\n");
        }
        let mut to = self.header("To").unwrap_or_default();
        if self.to_tag().is_none() && !tag.is_empty() {
            let _ = write!(to, ";tag={tag}");
        }
        let _ = write!(text, "From: {}\r\nTo: {to}\r\n", self.header("From").unwrap_or_default());
        let _ = write!(
            text,
            "Call-ID: {}\r\nCSeq: {}\r\n",
            self.call_id(),
            self.header("CSeq").unwrap_or_default()
        );
        for line in lines {
            let _ = write!(text, "{line}\r\n");
        }
        let _ = write!(text, "Content-Length: {}\r\n\r\n{body}", body.len());
        text.into_bytes()
    }

    /// A 200 with a Contact at the address that received this request.
    pub fn accept(&self, tag: &str) -> Vec<u8> {
        let contact = format!("Contact: <sip:bob@{}>", self.to);
        self.respond_with(200, tag, &[&contact], "")
    }
}

/// A parameter of a header value without quoted strings.
pub fn param(value: &str, name: &str) -> Option<String> {
    value.split(';').skip(1).find_map(|param| {
        let (n, v) = param.split_once('=').unwrap_or((param, ""));
        n.trim().eq_ignore_ascii_case(name).then(|| v.trim().to_owned())
    })
}

/// What stands between `<` and `>`, or the whole value.
pub fn inside_brackets(value: &str) -> &str {
    let inside = value.split_once('<').map_or(value, |(_, rest)| rest);
    inside.split_once('>').map_or(inside, |(inside, _)| inside)
}

fn split_commas(value: &str, values: &mut Vec<String>) {
    let (mut start, mut quoted, mut depth) = (0, false, 0_i32);
    for (at, c) in value.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '<' if !quoted => depth += 1,
            '>' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                values.push(value[start..at].trim().to_owned());
                start = at + 1;
            }
            _ => {}
        }
    }
    values.push(value[start..].trim().to_owned());
}
