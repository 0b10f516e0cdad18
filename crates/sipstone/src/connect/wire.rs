//! What is said on a kept connection: pings and pongs (RFC 5626 §3.5.1), and one REGISTER with its answer (RFC
//! 3261 §10).

use crate::spec::Transport;
use std::net::SocketAddr;

/// The ping.
pub const PING: &[u8] = b"\r\n\r\n";

/// Most bytes that may wait for the end of a message; a server that sends more without one is given up.
pub const INBOX_BYTES_MAX: usize = 65_536;

/// How a user is registered on each connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The domain of the addresses-of-record.
    pub domain: String,
    /// User part, with `{}` for the number.
    pub user_format: String,
    /// The first user's number; connection k registers the k-th after it.
    pub first: u32,
    /// `Expires`, seconds.
    pub expires: u32,
    /// What the connection is.
    pub transport: Transport,
}

impl Registration {
    /// The request of a connection, of which `attempt` makes Call-ID and branch differ between runs.
    #[must_use]
    pub fn request(&self, index: u32, local: SocketAddr, attempt: u64) -> String {
        let user =
            self.user_format.replace("{}", &u64::from(self.first).saturating_add(index.into()).to_string());
        let Registration { domain, expires, .. } = self;
        let (via, transport) = (self.transport.via(), self.transport.id());
        format!(
            "REGISTER sip:{domain} SIP/2.0\r\n\
             Via: SIP/2.0/{via} {local};branch=z9hG4bKc{attempt:x}x{index:x}\r\n\
             Max-Forwards: 70\r\n\
             From: <sip:{user}@{domain}>;tag=c{attempt:x}x{index:x}\r\n\
             To: <sip:{user}@{domain}>\r\n\
             Call-ID: connect-{attempt:x}-{index:x}\r\n\
             CSeq: 1 REGISTER\r\n\
             Contact: <sip:{user}@{local};transport={transport}>\r\n\
             Expires: {expires}\r\n\
             Content-Length: 0\r\n\r\n"
        )
    }
}

/// What a server has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// CRLF between messages: the answer to a ping.
    Pong,
    /// A response with this status.
    Response(u16),
    /// A request, which is not answered: nothing but registrations and pings belongs here.
    Request,
}

/// Why the bytes are not SIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotSip;

/// Takes the first whole thing off the front of `inbox`; `None` when more bytes are needed.
///
/// # Errors
/// More than [`INBOX_BYTES_MAX`] bytes without the end of a message, or a first line that is neither a request
/// nor a response.
pub fn next(inbox: &mut Vec<u8>) -> Result<Option<Heard>, NotSip> {
    if inbox.starts_with(b"\r\n") {
        inbox.drain(..2);
        return Ok(Some(Heard::Pong));
    }
    let Some(end) = memchr::memmem::find(inbox, b"\r\n\r\n") else {
        return if inbox.len() > INBOX_BYTES_MAX { Err(NotSip) } else { Ok(None) };
    };
    let head = &inbox[..end];
    let whole = (end + 4).saturating_add(content_length(head).ok_or(NotSip)?);
    if whole > INBOX_BYTES_MAX {
        return Err(NotSip);
    }
    if inbox.len() < whole {
        return Ok(None);
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or(head);
    let heard = first_line(line).ok_or(NotSip)?;
    inbox.drain(..whole);
    Ok(Some(heard))
}

fn first_line(line: &[u8]) -> Option<Heard> {
    if line.ends_with(b" SIP/2.0") {
        return Some(Heard::Request);
    }
    let status = std::str::from_utf8(line.strip_prefix(b"SIP/2.0 ")?.get(..3)?).ok()?;
    status.parse().ok().filter(|status| (100..700).contains(status)).map(Heard::Response)
}

/// The body's length; nothing where the field is missing (RFC 3261 §20.14 demands it over streams). `None`
/// where it is no number.
fn content_length(head: &[u8]) -> Option<usize> {
    for line in head.split(|byte| *byte == b'\n') {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let name = line[..colon].trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") || name.eq_ignore_ascii_case(b"l") {
            return std::str::from_utf8(line[colon + 1..].trim_ascii()).ok()?.parse().ok();
        }
    }
    Some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> (Vec<Heard>, usize) {
        let mut inbox = bytes.to_vec();
        let mut heard = Vec::new();
        while let Some(one) = next(&mut inbox).unwrap() {
            heard.push(one);
        }
        (heard, inbox.len())
    }

    #[test]
    fn pongs_stand_between_messages() {
        assert_eq!(all(b"\r\n"), (vec![Heard::Pong], 0));
        let answer =
            b"\r\nSIP/2.0 200 OK\r\nContent-Length: 3\r\n\r\nabc\r\nOPTIONS sip:a SIP/2.0\r\nl:0\r\n\r\n";
        assert_eq!(all(answer), (vec![Heard::Pong, Heard::Response(200), Heard::Pong, Heard::Request], 0));
    }

    #[test]
    fn pieces_are_waited_for() {
        let answer = b"SIP/2.0 401 Unauthorized\r\nContent-Length: 2\r\n\r\nxy";
        for cut in 0..answer.len() {
            assert_eq!(all(&answer[..cut]), (vec![], cut), "{cut}");
        }
        assert_eq!(all(answer).0, [Heard::Response(401)]);
    }

    #[test]
    fn what_is_not_sip_is_an_error() {
        let wrong = |bytes: &[u8]| next(&mut bytes.to_vec()).is_err();
        assert!(wrong(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
        assert!(wrong(b"SIP/2.0 99 Low\r\n\r\n"));
        assert!(wrong(b"SIP/2.0 200 OK\r\nContent-Length: many\r\n\r\n"));
        assert!(wrong(b"SIP/2.0 200 OK\r\nContent-Length: 99999999\r\n\r\n"));
        assert!(wrong(b"SIP/2.0 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n"));
        assert!(wrong(&vec![b'x'; INBOX_BYTES_MAX + 1]));
        assert!(!wrong(&vec![b'x'; INBOX_BYTES_MAX]));
    }

    #[test]
    fn each_connection_registers_a_user_of_its_own() {
        let registration = Registration {
            domain: "example.com".into(),
            user_format: "user{}".into(),
            first: 1,
            expires: 3600,
            transport: Transport::Tls,
        };
        let local = "127.0.0.1:40000".parse().unwrap();
        let request = registration.request(41, local, 7);
        assert!(request.contains("To: <sip:user42@example.com>"), "{request}");
        assert!(request.contains("Via: SIP/2.0/TLS 127.0.0.1:40000;branch=z9hG4bK"), "{request}");
        assert!(request.contains("Contact: <sip:user42@127.0.0.1:40000;transport=tls>"), "{request}");
        assert!(request.ends_with("Content-Length: 0\r\n\r\n"), "{request}");
        assert_ne!(request, registration.request(41, local, 8));
        assert_eq!(all(request.as_bytes()), (vec![Heard::Request], 0));
    }
}
