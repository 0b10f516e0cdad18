//! The connections of one phone: the one that it opened to the server, and those that the server opened to it.

use std::collections::HashMap;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;

use crate::connection::{PAUSE, reset};
use crate::{Connection, Credentials, Cut, Message, Received, Transport};

/// Connections of one phone, and its listener.
#[derive(Debug)]
pub(crate) struct Streams {
    transport: Transport,
    server: SocketAddr,
    ip: IpAddr,
    credentials: Option<Credentials>,
    /// None for WebSocket: nobody can connect to a browser.
    listener: Option<TcpListener>,
    /// The connection that the phone opened itself, as long as it has not been cut.
    own: Option<Connection>,
    /// Those that the server opened.
    accepted: Vec<Connection>,
    /// By branch of the topmost Via: where a request came from, which is where its answer goes (RFC 3261 §18.2.2).
    came_by: HashMap<String, Way>,
    pongs: u32,
}

#[derive(Clone, Copy, Debug)]
enum Way {
    Own,
    Accepted(usize),
}

impl Streams {
    /// Connects to the server and listens beside.
    pub(crate) fn new(
        transport: Transport,
        server: SocketAddr,
        local: SocketAddr,
        credentials: Option<Credentials>,
    ) -> Self {
        let ip = local.ip();
        let listener = (!transport.is_websocket()).then(|| {
            let listener =
                TcpListener::bind(local).unwrap_or_else(|error| panic!("phone at {local}: {error}"));
            listener.set_nonblocking(true).expect("invariant: a socket can be told not to block");
            listener
        });
        let (own, accepted) = (None, Vec::new());
        let mut streams = Self {
            transport,
            server,
            ip,
            credentials,
            listener,
            own,
            accepted,
            came_by: HashMap::new(),
            pongs: 0,
        };
        streams.connect();
        streams
    }

    pub(crate) fn transport(&self) -> Transport {
        self.transport
    }

    /// Where others reach it: its listener, or its side of its connection where it has none.
    pub(crate) fn address(&self) -> SocketAddr {
        let listener = self.listener.as_ref().and_then(|listener| listener.local_addr().ok());
        let own = || self.own.as_ref().map(Connection::local_address);
        listener.or_else(own).unwrap_or(SocketAddr::new(self.ip, 0))
    }

    /// Opens the phone's own connection again.
    pub(crate) fn connect(&mut self) {
        let (transport, ip, server) = (self.transport, self.ip, self.server);
        let connection = Connection::attempt(transport, Some(ip), server, self.credentials.as_ref());
        self.own =
            Some(connection.unwrap_or_else(|error| panic!("{} to {server}: {error}", transport.via())));
    }

    /// Ends every connection: in order, seeing the server do the same, or with resets.
    pub(crate) fn cut(&mut self, how: Cut) {
        for connection in self.own.take().into_iter().chain(self.accepted.drain(..)) {
            match how {
                Cut::Close => connection.close(),
                Cut::Reset => connection.reset(),
            }
        }
        self.came_by.clear();
    }

    /// Listens no more, and refuses who waits.
    pub(crate) fn stop_listening(&mut self) {
        while let Some(Ok((socket, _))) = self.listener.as_ref().map(TcpListener::accept) {
            reset(&socket);
        }
        if let Some(listener) = self.listener.take() {
            // A child that begins has a copy, which would go on listening.
            let stopped = SockRef::from(&listener).shutdown(Shutdown::Both);
            stopped.expect("invariant: the socket listens");
        }
    }

    pub(crate) fn accepted(&mut self) -> usize {
        self.accept();
        self.accepted.len()
    }

    pub(crate) fn pongs(&self) -> u32 {
        self.pongs
    }

    pub(crate) fn own(&mut self) -> &mut Connection {
        self.own.as_mut().expect("the phone has cut its connection")
    }

    /// Sends a message: an answer where its request came from, all else over the phone's own connection.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let message = Message::parse(bytes);
        let answer = message.filter(|message| message.status().is_some());
        let way = answer.and_then(|answer| self.came_by.get(branch(&answer)?).copied());
        let connection = match way {
            Some(Way::Accepted(index)) => self.accepted.get_mut(index),
            Some(Way::Own) | None => self.own.as_mut(),
        };
        connection.expect("the phone has cut the connection for this").send_message(bytes);
    }

    /// The next message, by whatever connection it comes.
    pub(crate) fn receive(&mut self, limit: Duration) -> Option<Vec<u8>> {
        let deadline = Instant::now() + limit;
        loop {
            self.accept();
            if let Some(message) = self.take() {
                return Some(message);
            }
            if Instant::now() >= deadline {
                return None;
            }
            thread::sleep(PAUSE);
        }
    }

    fn accept(&mut self) {
        while let Some(Ok((socket, _))) = self.listener.as_ref().map(TcpListener::accept) {
            let tls = self.credentials.as_ref().and_then(|credentials| credentials.server.as_ref());
            self.accepted.push(Connection::accepted(self.transport, socket, tls));
        }
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        let accepted = self.accepted.iter_mut().enumerate();
        let ways = accepted.map(|(index, connection)| (Way::Accepted(index), connection));
        for (way, connection) in self.own.iter_mut().map(|own| (Way::Own, own)).chain(ways) {
            connection.pump();
            while let Some(received) = connection.take() {
                match received {
                    Received::Message(bytes) => {
                        let message = Message::parse(&bytes).filter(|message| message.status().is_none());
                        if let Some(branch) = message.as_ref().and_then(branch) {
                            self.came_by.insert(branch.to_owned(), way);
                        }
                        return Some(bytes);
                    }
                    Received::Pong => self.pongs += 1,
                    Received::Frame(_) => {}
                }
            }
        }
        None
    }
}

fn branch(message: &Message) -> Option<&str> {
    message.parameter("Via", "branch")
}
