//! Shards over real sockets on loopback, with a handler that records what comes and does what it is told.
//!
//! It answers every request with a 200 that has the same CSeq. Orders come as datagrams, which begin with `DO`.

#![allow(dead_code)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant as Clock};

use engine::{FlowId, Input, ListenerId, Outbox, Output, Path, TransportFailure};
use net::{Control, Handler, Post, Resolver, Settings, Shard, Statistics, StreamStatistics, bind};
use sip::{Instant, Transport};

/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// What a handler was given.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) shard: usize,
    pub(crate) path: Path,
    /// `None` for a transport error.
    pub(crate) message: Option<Vec<u8>>,
    /// What kind of one.
    pub(crate) failure: Option<TransportFailure>,
}

impl Seen {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(self.message.as_deref().expect("a message")).into_owned()
    }
}

struct Recorder {
    index: usize,
    seen: Sender<Seen>,
    holds: bool,
    /// Where an order meets the test, twice: what happens between is not seen by the shard before it sends.
    meeting: Arc<Barrier>,
    /// The names of domains by their numbers; what is sent is for the last one.
    domains: Vec<Vec<u8>>,
    statistics: Arc<Mutex<Statistics>>,
}

impl Recorder {
    /// `DO send LISTENER FLOW REMOTE FALLBACK`, a line end, and the message; `DO alias LISTENER FLOW PORT`; `DO hold`;
    /// `DO meet-send …`, which meets the test first; `DO domain NAME`, which a TLS connection for what is sent from then
    /// on must prove.
    fn obey(&mut self, order: &[u8], out: &mut Outbox) {
        let end = order.iter().position(|b| *b == b'\n').unwrap_or(order.len());
        let line = String::from_utf8_lossy(&order[..end]).into_owned();
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[1] {
            "hold" => self.holds = true,
            "domain" => self.domains.push(words.get(2).map_or(Vec::new(), |name| name.as_bytes().to_vec())),
            "send" | "meet-send" => {
                if words[1] == "meet-send" {
                    self.meeting.wait();
                    self.meeting.wait();
                }
                let mut path = path(&words);
                path.remote = words[4].parse().unwrap();
                path.domain = engine::DomainId(self.domains.len() as u32);
                path.fallback_port = words[5].parse().unwrap();
                out.send(path, |bytes| bytes.extend_from_slice(&order[end + 1..]));
            }
            "alias" => {
                let port = words[4].parse().unwrap();
                out.outputs.push(Output::Alias { path: path(&words), port });
            }
            other => panic!("no such order: {other}"),
        }
    }
}

fn path(words: &[&str]) -> Path {
    let mut path = Path::new(ListenerId(words[2].parse().unwrap()), None, "127.0.0.1:9".parse().unwrap());
    path.flow = FlowId(words[3].parse().unwrap());
    path
}

impl Handler for Recorder {
    /// `shard-N` anywhere says whose it is.
    fn shard_of(&self, message: &[u8]) -> usize {
        let place = message.windows(6).position(|w| w == b"shard-");
        place.and_then(|at| message.get(at + 6)).map_or(0, |digit| usize::from(digit - b'0'))
    }
    fn handle(&mut self, _now: Instant, input: Input<'_>, out: &mut Outbox) {
        match input {
            Input::Message { bytes, .. } if bytes.starts_with(b"DO ") => self.obey(bytes, out),
            Input::Message { path, bytes } => {
                if !bytes.starts_with(b"SIP/") && !self.holds {
                    let text = String::from_utf8_lossy(bytes);
                    let cseq = text.lines().find(|line| line.starts_with("CSeq:")).unwrap_or("CSeq: 0 X");
                    out.send(path, |o| o.extend_from_slice(answer(cseq).as_bytes()));
                }
                let _ = self.seen.send(Seen {
                    shard: self.index,
                    path,
                    message: Some(bytes.to_vec()),
                    failure: None,
                });
            }
            Input::TransportError { path, failure } => {
                let seen = Seen { shard: self.index, path, message: None, failure: Some(failure) };
                let _ = self.seen.send(seen);
            }
            _ => {}
        }
    }
    fn domain(&self, id: engine::DomainId) -> &[u8] {
        (id.0 as usize).checked_sub(1).map_or(b"", |place| &self.domains[place])
    }
    fn next_timeout(&self) -> Option<Instant> {
        None
    }
    fn is_idle(&self) -> bool {
        true
    }
    fn report(&mut self, statistics: &Statistics) {
        *self.statistics.lock().unwrap() = *statistics;
    }
}

fn answer(cseq: &str) -> String {
    format!("SIP/2.0 200 OK\r\n{cseq}\r\nContent-Length: 0\r\n\r\n")
}

/// A request with this number.
pub(crate) fn request(cseq: u32) -> String {
    format!("OPTIONS sip:a@b SIP/2.0\r\nCSeq: {cseq} OPTIONS\r\nContent-Length: 0\r\n\r\n")
}

/// The answer to it.
pub(crate) fn answered(cseq: u32) -> String {
    answer(&format!("CSeq: {cseq} OPTIONS"))
}

/// Running shards: listener 0 is UDP for orders, the others as asked for.
pub(crate) struct Server {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) seen: Receiver<Seen>,
    pub(crate) control: Arc<Control>,
    posts: Vec<Post>,
    threads: Vec<JoinHandle<Statistics>>,
    statistics: Vec<Arc<Mutex<Statistics>>>,
    orders: UdpSocket,
    meeting: Arc<Barrier>,
}

pub(crate) fn settings() -> Settings {
    Settings::new(Duration::ZERO, Clock::now())
}

/// One shard with one TCP listener, number 1.
pub(crate) fn tcp(settings: &Settings) -> Server {
    start(1, &[Transport::Tcp], settings)
}

pub(crate) fn start(shards: usize, transports: &[Transport], settings: &Settings) -> Server {
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let mut sockets: Vec<Vec<net::Listener>> = (0..shards).map(|_| Vec::new()).collect();
    let mut addresses = Vec::new();
    for transport in [Transport::Udp].iter().chain(transports) {
        let bound = bind(*transport, any, shards, &settings.streams).unwrap();
        addresses.push(bound[0].address());
        sockets.iter_mut().zip(bound).for_each(|(shard, socket)| shard.push(socket));
    }
    let shards: Vec<Shard> =
        sockets.into_iter().enumerate().map(|(i, sockets)| Shard::new(i, sockets).unwrap()).collect();
    let posts: Vec<Post> = shards.iter().map(Shard::post).collect();
    let control = Arc::new(Control::new(posts.len()));
    let resolver = Resolver::start().unwrap();
    let (sender, seen) = channel();
    let statistics: Vec<Arc<Mutex<Statistics>>> = posts.iter().map(|_| Arc::default()).collect();
    let meeting = Arc::new(Barrier::new(2));
    let threads = shards
        .into_iter()
        .enumerate()
        .map(|(index, shard)| {
            let (control, posts, resolver) = (control.clone(), posts.clone(), resolver.clone());
            let settings = settings.clone();
            let (seen, statistics) = (sender.clone(), statistics[index].clone());
            let meeting = meeting.clone();
            std::thread::spawn(move || {
                let recorder =
                    Recorder { index, seen, holds: false, meeting, domains: Vec::new(), statistics };
                shard.run(recorder, &settings, &control, posts, resolver).unwrap()
            })
        })
        .collect();
    let orders = UdpSocket::bind(any).unwrap();
    Server { addresses, seen, control, posts, threads, statistics, orders, meeting }
}

impl Server {
    /// A connection to the first stream listener.
    pub(crate) fn connect(&self) -> TcpStream {
        self.connect_to(1)
    }
    pub(crate) fn connect_to(&self, listener: usize) -> TcpStream {
        let stream = TcpStream::connect(self.addresses[listener]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }
    /// A connection from an address that nobody else is at, so that its port is free when it has ended.
    pub(crate) fn connect_alone(&self) -> TcpStream {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let alone: SocketAddr = "127.0.203.1:0".parse().unwrap();
        socket.bind(&alone.into()).unwrap();
        socket.connect(&self.addresses[1].into()).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }
    /// A connection whose peer takes little.
    pub(crate) fn connect_narrow(&self) -> TcpStream {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(4_096).unwrap();
        socket.connect(&self.addresses[1].into()).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }
    pub(crate) fn order(&self, order: &str) {
        self.orders.send_to(order.as_bytes(), self.addresses[0]).unwrap();
    }
    /// Has shard 0 send a message by listener 1 to whatever connection leads to `remote`.
    pub(crate) fn send_to(&self, remote: SocketAddr, message: &str) {
        self.order(&format!("DO send 1 0 {remote} 0\n{message}"));
    }
    /// Has shard 0 send a message on a connection, or to `fallback` if that is gone.
    pub(crate) fn send_on(&self, path: Path, fallback: u16, message: &str) {
        self.order(&format!("DO send 1 {} {} {fallback}\n{message}", path.flow.0, path.remote));
    }
    /// Has shard 0 send a message on `flow`, or to `remote` with the port `fallback`; `before` happens when it has made
    /// up its mind to, and has seen nothing of it.
    pub(crate) fn send_after(&self, before: impl FnOnce(), path: Path, fallback: u16, message: &str) {
        self.order(&format!("DO meet-send 1 {} {} {fallback}\n{message}", path.flow.0, path.remote));
        self.meeting.wait();
        before();
        self.meeting.wait();
    }
    pub(crate) fn next(&self) -> Seen {
        self.seen.recv_timeout(PATIENCE).expect("something comes")
    }
    pub(crate) fn next_message(&self) -> Seen {
        let seen = self.next();
        assert!(seen.message.is_some(), "a transport error came: {seen:?}");
        seen
    }
    /// What was sent on this path has not left.
    pub(crate) fn next_error(&self) -> Path {
        self.next_failure(TransportFailure::Unreachable)
    }
    /// A connection on which something had been asked has ended.
    pub(crate) fn next_break(&self) -> Path {
        self.next_failure(TransportFailure::Broken)
    }
    fn next_failure(&self, failure: TransportFailure) -> Path {
        let seen = self.next();
        assert!(seen.message.is_none(), "a message came: {}", seen.text());
        assert_eq!(seen.failure, Some(failure), "{:?}", seen.path);
        seen.path
    }
    pub(crate) fn nothing_comes(&self) {
        if let Ok(seen) = self.seen.recv_timeout(Duration::from_millis(100)) {
            panic!("something came: {seen:?}");
        }
    }
    fn wake(&self) {
        self.posts.iter().for_each(Post::wake);
    }
    /// What all shards counted about connections, once `is_enough` says so.
    pub(crate) fn statistics(&self, is_enough: impl Fn(&StreamStatistics) -> bool) -> StreamStatistics {
        let begin = Clock::now();
        loop {
            self.control.report();
            self.wake();
            std::thread::sleep(Duration::from_millis(10));
            let all: Vec<Statistics> = self.statistics.iter().map(|s| *s.lock().unwrap()).collect();
            let sum = all.iter().fold(StreamStatistics::default(), |a, b| add(a, b.streams));
            if is_enough(&sum) {
                return sum;
            }
            assert!(begin.elapsed() < PATIENCE, "{sum:#?}");
        }
    }
    pub(crate) fn stop(self) -> Vec<Statistics> {
        self.control.stop();
        self.wake();
        self.threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    }
    pub(crate) fn drain(&self) {
        self.control.drain();
        self.wake();
    }
}

fn add(a: StreamStatistics, b: StreamStatistics) -> StreamStatistics {
    StreamStatistics {
        open: a.open + b.open,
        open_tls: a.open_tls + b.open_tls,
        queued_bytes: a.queued_bytes + b.queued_bytes,
        partial_bytes: a.partial_bytes + b.partial_bytes,
        accepted: a.accepted + b.accepted,
        connected: a.connected + b.connected,
        connect_failures: a.connect_failures + b.connect_failures,
        messages_received: a.messages_received + b.messages_received,
        messages_sent: a.messages_sent + b.messages_sent,
        messages_unsent: a.messages_unsent + b.messages_unsent,
        // What tests of several shards do not look at is that of the last one.
        ..b
    }
}

/// Reads what there is until `text` has come whole; anything else is an error.
pub(crate) fn expect(stream: &mut impl Read, text: &str) {
    let mut got = vec![0; text.len()];
    stream.read_exact(&mut got).unwrap_or_else(|error| panic!("{error}, wanted {text}"));
    assert_eq!(String::from_utf8_lossy(&got), text);
}

/// The peer has closed: nothing more comes, or a reset.
pub(crate) fn expect_closed(stream: &mut impl Read) {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => assert_eq!(String::from_utf8_lossy(&rest), ""),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
    }
}

pub(crate) fn send(stream: &mut impl Write, text: &str) {
    stream.write_all(text.as_bytes()).unwrap();
    stream.flush().unwrap();
}

/// One request and its answer.
pub(crate) fn ask(stream: &mut (impl Read + Write), cseq: u32) {
    send(stream, &request(cseq));
    expect(stream, &answered(cseq));
}

/// Closes with a reset.
pub(crate) fn reset(stream: TcpStream) {
    let socket = socket2::Socket::from(stream);
    socket.set_linger(Some(Duration::ZERO)).unwrap();
}

/// An address where nobody listens.
pub(crate) fn closed_port() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// An address where attempts to connect are left without an answer, while the value lives.
pub(crate) struct Silent {
    pub(crate) address: SocketAddr,
    _sockets: (socket2::Socket, Vec<socket2::Socket>),
}

pub(crate) fn silent() -> Silent {
    use socket2::{Domain, Socket, Type};
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    listener.bind(&any.into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    // With its queue full the kernel ignores whoever knocks.
    let fill = |_| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None).unwrap();
        let _ = socket.connect(&address.into());
        socket
    };
    let filled = (0..4).map(fill).collect();
    std::thread::sleep(Duration::from_millis(50));
    Silent { address, _sockets: (listener, filled) }
}
