//! The notation of bytes in traffic files: escapes, repetitions, and what is only known when a case is sent.

use std::net::{IpAddr, SocketAddr};

/// What the placeholders of a template stand for.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// The server's address for the case's transport.
    pub(super) server: SocketAddr,
    /// The host of caller and next hop.
    pub(super) peer: IpAddr,
    /// Where the caller sends from.
    pub(super) caller_port: u16,
    /// Where the next hop listens.
    pub(super) next_port: u16,
    /// A token that no other case has.
    pub(super) id: String,
    /// The credentials that answer the last challenge.
    pub(super) credentials: String,
    /// The last request that the next hop received.
    pub(super) arrived: Vec<u8>,
}

/// The bytes of a template: `\r`, `\n`, `\t`, `\0`, `\\`, `\{` and `\xHH`; `{N*text}` is `text` N times; a name
/// in braces is replaced by what it stands for, and any other `{` is itself.
pub(super) fn expand(template: &str, names: &Names) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = template;
    while let Some(first) = rest.chars().next() {
        rest = match first {
            '\\' => escape(&rest[1..], &mut bytes),
            '{' => placeholder(&rest[1..], names, &mut bytes),
            other => {
                let length = other.len_utf8();
                bytes.extend_from_slice(&rest.as_bytes()[..length]);
                &rest[length..]
            }
        };
    }
    bytes
}

fn escape<'t>(rest: &'t str, bytes: &mut Vec<u8>) -> &'t str {
    let (byte, length) = match rest.as_bytes().first() {
        Some(b'r') => (b'\r', 1),
        Some(b'n') => (b'\n', 1),
        Some(b't') => (b'\t', 1),
        Some(b'0') => (0, 1),
        Some(b'x') => {
            let digits = rest.get(1..3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
            (digits.unwrap_or_else(|| panic!("\\x wants two digits: \\{rest}")), 3)
        }
        Some(other) if other.is_ascii() => (*other, 1),
        _ => panic!("a traffic file ends a line in the middle of an escape"),
    };
    bytes.push(byte);
    &rest[length..]
}

fn placeholder<'t>(rest: &'t str, names: &Names, bytes: &mut Vec<u8>) -> &'t str {
    let Some((inside, after)) = rest.split_once('}') else {
        bytes.push(b'{');
        return rest;
    };
    if let Some((count, text)) = inside.split_once('*').and_then(|(n, text)| Some((n.parse().ok()?, text))) {
        let once = expand(text, names);
        bytes.extend(once.repeat(count));
        return after;
    }
    let value = match inside {
        "server" => names.server.to_string(),
        "server-host" => names.server.ip().to_string(),
        "caller" => SocketAddr::new(names.peer, names.caller_port).to_string(),
        "next" => SocketAddr::new(names.peer, names.next_port).to_string(),
        "host" => names.peer.to_string(),
        "id" => names.id.clone(),
        "branch" => branch(&names.arrived),
        "credentials" => names.credentials.clone(),
        _ => {
            bytes.push(b'{');
            return rest;
        }
    };
    bytes.extend_from_slice(value.as_bytes());
    after
}

/// The branch that a message names first: of its topmost Via.
fn branch(message: &[u8]) -> String {
    let text = String::from_utf8_lossy(message);
    let after = text.split_once("branch=").map(|(_, after)| after).unwrap_or_default();
    after.split([';', ',', ' ', '\r']).next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_expanded() {
        let names = Names {
            server: ([127, 0, 0, 1], 5060).into(),
            peer: [127, 0, 0, 9].into(),
            caller_port: 5060,
            next_port: 5070,
            id: "one".to_owned(),
            credentials: String::new(),
            arrived: Vec::new(),
        };
        let expanded = |template| expand(template, &names);
        assert_eq!(expanded("{server} {next} {host} {id}"), b"127.0.0.1:5060 127.0.0.9:5070 127.0.0.9 one");
        assert_eq!(expanded(r"a\r\n\t\0\x7f\\\{b"), b"a\r\n\t\0\x7f\\{b");
        assert_eq!(expanded("{3*ab,}"), b"ab,ab,ab,");
        assert_eq!(expanded("{unknown} {"), b"{unknown} {");
        assert_eq!(expanded("ü"), "ü".as_bytes());
    }
}
