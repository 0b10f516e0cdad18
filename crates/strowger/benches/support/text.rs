//! The messages: those of the load generator that the server's speed is compared with, and a softphone's INVITE of 1 kB.

use std::fmt::Write as _;

use super::{CALLEE, CALLER, SERVER};

const SDP: &str = "v=0\r\no=user1 53655765 2353687637 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
    m=audio 6000 RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n";

/// What a softphone sends to begin a call: a little more than 1,000 bytes, 14 header fields, a session description.
pub fn invite_of_1_kb() -> String {
    let sdp = "v=0\r\no=alice 3905286432 3905286432 IN IP4 192.0.2.17\r\ns=call\r\nc=IN IP4 192.0.2.17\r\nt=0 0\r\n\
        m=audio 49170 RTP/AVP 96 9 0 8 101\r\na=rtpmap:96 opus/48000/2\r\n\
        a=fmtp:96 useinbandfec=1; maxaveragebitrate=64000\r\na=rtpmap:9 G722/8000\r\n\
        a=rtpmap:0 PCMU/8000\r\na=rtpmap:8 PCMA/8000\r\na=rtpmap:101 telephone-event/8000\r\n\
        a=fmtp:101 0-15\r\na=ptime:20\r\na=rtcp:49171\r\na=sendrecv\r\n";
    format!(
        "INVITE sip:bob@biloxi.example.com SIP/2.0\r\n\
         Via: SIP/2.0/UDP 192.0.2.17:5060;rport;branch=z9hG4bKPj4b43c2ff8a2b4d6e9f00\r\n\
         Max-Forwards: 70\r\n\
         From: \"Alice\" <sip:alice@atlanta.example.com>;tag=76341a7c0b9e4f2d\r\n\
         To: <sip:bob@biloxi.example.com>\r\n\
         Contact: <sip:alice@192.0.2.17:5060;ob>\r\n\
         Call-ID: 9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d\r\n\
         CSeq: 23145 INVITE\r\n\
         Allow: PRACK, INVITE, ACK, BYE, CANCEL, UPDATE, INFO, SUBSCRIBE, NOTIFY, REFER, MESSAGE, OPTIONS\r\n\
         Supported: replaces, 100rel, timer, norefersub\r\n\
         Session-Expires: 1800\r\n\
         Min-SE: 90\r\n\
         User-Agent: Softphone 5.16.4 (Linux x86_64)\r\n\
         Content-Type: application/sdp\r\n\
         Content-Length: {}\r\n\r\n{sdp}",
        sdp.len()
    )
}

/// The address-of-record of user `user`.
pub fn aor(user: usize) -> String {
    format!("sip:user{user}@127.0.0.1")
}

/// A REGISTER of `user`, the `number`th: the same Call-ID each time, as RFC 3261 §10.2 has it.
pub fn register(user: usize, number: usize) -> String {
    format!(
        "REGISTER sip:{SERVER} SIP/2.0\r\n\
         Via: SIP/2.0/UDP {CALLER};branch=z9hG4bK-r{user}-{number}\r\n\
         Max-Forwards: 70\r\n\
         From: <sip:user{user}@{SERVER}>;tag=r{user}\r\n\
         To: <sip:user{user}@{SERVER}>\r\n\
         Call-ID: r{user}@registrations\r\n\
         CSeq: {} REGISTER\r\n\
         Contact: <sip:user{user}@{CALLEE}>\r\n\
         Expires: 3600\r\n\
         Content-Length: 0\r\n\r\n",
        1_000 + number
    )
}

/// One call's requests.
pub struct Call {
    /// The Call-ID.
    pub id: String,
    /// Whom it is for.
    pub user: usize,
}

impl Call {
    /// The first INVITE.
    pub fn invite(&self) -> String {
        self.request("INVITE", 1, &format!("sip:user{}@{SERVER}", self.user), "", "", SDP)
    }

    /// The ACK of a 2xx.
    pub fn ack(&self, accepted: &str) -> String {
        self.within("ACK", 1, accepted)
    }

    /// The ACK of a failure: that of the INVITE's own transaction (RFC 3261 §17.1.1.3).
    pub fn ack_of_failure(&self, failed: &str) -> String {
        let to = values(failed, "To").next().expect("a To");
        let tag = to.split_once(";tag=").map_or(String::new(), |(_, tag)| format!(";tag={tag}"));
        let uri = format!("sip:user{}@{SERVER}", self.user);
        self.request("ACK", 1, &uri, &tag, "", "").replace("-1-ACK", "-1-INVITE")
    }

    /// The caller hangs up.
    pub fn bye(&self, accepted: &str) -> String {
        self.within("BYE", 2, accepted)
    }

    /// A request within the dialog that the 200 `accepted` set up (RFC 3261 §12.2.1.1).
    fn within(&self, method: &str, cseq: u32, accepted: &str) -> String {
        let contact =
            values(accepted, "Contact").next().expect("a Contact").trim_matches(['<', '>']).to_owned();
        let to = values(accepted, "To").next().expect("a To");
        let tag = to.split_once(";tag=").expect("a tag").1;
        let mut recorded: Vec<&str> =
            values(accepted, "Record-Route").flat_map(|value| value.split(',')).map(str::trim).collect();
        recorded.reverse();
        let mut routes = String::new();
        for route in recorded {
            let _ = write!(routes, "Route: {route}\r\n");
        }
        self.request(method, cseq, &contact, &format!(";tag={tag}"), &routes, "")
    }

    fn request(&self, method: &str, cseq: u32, uri: &str, to_tag: &str, routes: &str, body: &str) -> String {
        let (id, user) = (&self.id, self.user);
        let content_type = if body.is_empty() { "" } else { "Content-Type: application/sdp\r\n" };
        format!(
            "{method} {uri} SIP/2.0\r\n\
             Via: SIP/2.0/UDP {CALLER};branch=z9hG4bK-{id}-{cseq}-{method}\r\n\
             {routes}\
             Max-Forwards: 70\r\n\
             From: \"caller\" <sip:caller@127.0.0.1>;tag=c{id}\r\n\
             To: <sip:user{user}@{SERVER}>{to_tag}\r\n\
             Call-ID: {id}\r\n\
             CSeq: {cseq} {method}\r\n\
             Contact: <sip:caller@{CALLER}>\r\n\
             {content_type}\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    }
}

/// What the callee answers to `request` as it received it.
pub fn response(request: &str, status: &str) -> String {
    let mut text = format!("SIP/2.0 {status}\r\n");
    for line in lines(request) {
        match line.split(':').next() {
            Some("Via" | "From" | "Call-ID" | "CSeq" | "Record-Route") => text.push_str(line),
            Some("To") if line.contains(";tag=") => text.push_str(line),
            Some("To") => {
                let _ = write!(text, "{line};tag=callee");
            }
            _ => continue,
        }
        text.push_str("\r\n");
    }
    let invite = request.starts_with("INVITE");
    if invite {
        let _ = write!(text, "Contact: <sip:{CALLEE}>\r\n");
    }
    if invite && status.starts_with('2') {
        let _ = write!(text, "Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{SDP}", SDP.len());
    } else {
        text.push_str("Content-Length: 0\r\n\r\n");
    }
    text
}

/// The values of the header lines called `name`.
pub fn values<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    lines(text).filter_map(move |line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

/// The header lines.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split("\r\n\r\n").next().unwrap_or_default().split("\r\n").skip(1)
}
