//! The stream network: bytes in order, in pieces of any size, until the connection breaks.

use crate::trace::Micros;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Which end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It opened the connection.
    Opener,
    /// It was connected to.
    Acceptor,
}

impl Side {
    /// The other one.
    pub fn other(self) -> Side {
        match self {
            Side::Opener => Side::Acceptor,
            Side::Acceptor => Side::Opener,
        }
    }
}

/// One connection.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Whose it is: the opener's own address, under which the world knows it.
    pub opener: SocketAddr,
    /// What the acceptor sees: the opener's address with a port of the moment.
    pub source: SocketAddr,
    /// Where it leads.
    pub acceptor: SocketAddr,
    /// When the last bytes towards each side arrive; later ones come later.
    last: [Micros; 2],
    /// What phones have read and not yet taken, towards each side.
    buffers: [Vec<u8>; 2],
    /// How far each side has ended its own direction.
    ends: [End; 2],
}

/// How far a side has ended its own direction of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// It may still send.
    #[default]
    Open,
    /// It has sent its last byte, and still listens (RFC 9293 §3.6).
    Half,
    /// It is gone: what arrives is answered by a reset. To the other side that looks the same until then.
    Whole,
}

impl Stream {
    /// The node at a side.
    pub fn node(&self, side: Side) -> SocketAddr {
        match side {
            Side::Opener => self.opener,
            Side::Acceptor => self.acceptor,
        }
    }

    /// The address that `side` sees at the other end.
    pub fn seen_by(&self, side: Side) -> SocketAddr {
        match side {
            Side::Opener => self.acceptor,
            Side::Acceptor => self.source,
        }
    }

    /// The side at which a node is.
    pub fn side_of(&self, node: SocketAddr) -> Side {
        if node == self.opener { Side::Opener } else { Side::Acceptor }
    }

    /// The time at which bytes arrive that would arrive at `at` if they overtook nothing.
    pub fn arrival(&mut self, towards: Side, at: Micros) -> Micros {
        let last = &mut self.last[towards as usize];
        *last = (*last + 1).max(at);
        *last
    }

    /// How far a side has ended.
    pub fn end(&self, side: Side) -> End {
        self.ends[side as usize]
    }

    /// A side ends; whether it had not done so before.
    pub fn set_end(&mut self, side: Side, end: End) -> bool {
        let before = std::mem::replace(&mut self.ends[side as usize], end);
        before == End::Open
    }

    /// Bytes for a phone: the messages that are whole now, cut by Content-Length (RFC 3261 §18.3).
    pub fn read(&mut self, towards: Side, bytes: &[u8]) -> Vec<Vec<u8>> {
        let buffer = &mut self.buffers[towards as usize];
        buffer.extend_from_slice(bytes);
        let mut messages = Vec::new();
        while let Some(length) = whole(buffer) {
            messages.push(buffer.drain(..length).collect());
        }
        messages
    }
}

/// The length of the message at the front, if it is whole.
fn whole(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let lines = text.replace("\r\n ", " ").replace("\r\n\t", " ");
    let mut headers = lines.split("\r\n").filter_map(|line| line.split_once(':'));
    let (_, length) = headers.find(|(name, _)| matches!(name.trim(), "content-length" | "l"))?;
    let length = head + length.trim().parse::<usize>().ok()?;
    (bytes.len() >= length).then_some(length)
}

/// All connections.
#[derive(Debug, Default)]
pub struct Streams {
    open: BTreeMap<u64, Stream>,
    next: u64,
}

impl Streams {
    /// Opens a connection; its number is not 0.
    pub fn open(&mut self, opener: SocketAddr, acceptor: SocketAddr) -> u64 {
        self.next += 1;
        let port = 20_000 + (self.next % 40_000) as u16;
        let source = SocketAddr::new(opener.ip(), port);
        let stream = Stream {
            opener,
            source,
            acceptor,
            last: [0; 2],
            buffers: [Vec::new(), Vec::new()],
            ends: [End::Open; 2],
        };
        self.open.insert(self.next, stream);
        self.next
    }

    /// A connection, if it is open.
    pub fn get_mut(&mut self, id: u64) -> Option<&mut Stream> {
        self.open.get_mut(&id)
    }

    /// A connection that a node opened to an address, and on which it may still send.
    pub fn find(&self, opener: SocketAddr, acceptor: SocketAddr) -> Option<u64> {
        let leads =
            |s: &Stream| s.opener == opener && s.acceptor == acceptor && s.end(Side::Opener) == End::Open;
        self.open.iter().find(|(_, stream)| leads(stream)).map(|(id, _)| *id)
    }

    /// Breaks a connection.
    pub fn close(&mut self, id: u64) -> Option<Stream> {
        self.open.remove(&id)
    }

    /// Connections of a node.
    pub fn of(&self, node: SocketAddr) -> Vec<u64> {
        self.open.iter().filter(|(_, s)| s.opener == node || s.acceptor == node).map(|(id, _)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_whole_however_they_are_cut() {
        let mut streams = Streams::default();
        let id = streams.open("10.0.0.1:5060".parse().unwrap(), "10.0.0.2:5060".parse().unwrap());
        let stream = streams.get_mut(id).unwrap();
        let text = b"OPTIONS sip:a SIP/2.0\r\nContent-Length: 2\r\n\r\nhiSIP/2.0 200 OK\r\nl :\r\n 0\r\n\r\n";
        let mut messages = Vec::new();
        for byte in text {
            messages.extend(stream.read(Side::Acceptor, &[*byte]));
        }
        assert_eq!(messages.len(), 2);
        assert!(messages[0].ends_with(b"hi"));
    }
}
