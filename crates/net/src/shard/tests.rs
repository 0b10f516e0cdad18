//! The loop over real sockets, with a handler that echoes.

use std::net::UdpSocket;
use std::thread;

use super::*;
use crate::listener::bind;
use sip::Transport;

/// Echoes each datagram to its sender; panics at "panic"; belongs to the shard named by the first byte's digit.
#[derive(Default)]
struct Echo {
    index: usize,
    draining: bool,
    busy: bool,
}

impl Handler for Echo {
    fn shard_of(&self, datagram: &[u8]) -> usize {
        datagram.first().map_or(0, |b| usize::from(b.wrapping_sub(b'0')))
    }
    fn handle(&mut self, _now: Instant, input: Input<'_>, out: &mut Outbox) {
        match input {
            Input::Message { path, bytes } => {
                assert!(!bytes.ends_with(b"panic"), "as asked");
                self.busy = bytes.ends_with(b"busy") || (self.busy && !bytes.ends_with(b"idle"));
                let index = self.index;
                out.send(path, |o| {
                    o.extend_from_slice(bytes);
                    o.extend_from_slice(format!(" by {index}").as_bytes());
                });
            }
            Input::Drain => self.draining = true,
            _ => {}
        }
    }
    fn next_timeout(&self) -> Option<Instant> {
        None
    }
    fn is_idle(&self) -> bool {
        self.draining && !self.busy
    }
    fn report(&mut self, _: &Statistics) {}
}

struct Running {
    address: std::net::SocketAddr,
    control: Arc<Control>,
    posts: Vec<Post>,
    threads: Vec<thread::JoinHandle<Statistics>>,
}

fn start(shards: usize, gather: Duration) -> Running {
    start_on("127.0.0.1:0", shards, gather)
}

fn start_on(address: &str, shards: usize, gather: Duration) -> Running {
    let sockets = bind(Transport::Udp, address.parse().unwrap(), shards, &StreamSettings::default()).unwrap();
    let address = sockets[0].address();
    let shards: Vec<Shard> =
        sockets.into_iter().enumerate().map(|(i, s)| Shard::new(i, vec![s]).unwrap()).collect();
    let posts: Vec<Post> = shards.iter().map(Shard::post).collect();
    let control = Arc::new(Control::new(posts.len()));
    let resolver = Resolver::start().unwrap();
    let settings = Settings::new(gather, Clock::now());
    let threads = shards
        .into_iter()
        .enumerate()
        .map(|(index, shard)| {
            let (control, posts, resolver, settings) =
                (control.clone(), posts.clone(), resolver.clone(), settings.clone());
            thread::spawn(move || {
                let handler = Echo { index, ..Echo::default() };
                shard.run(handler, &settings, &control, posts, resolver).unwrap()
            })
        })
        .collect();
    Running { address, control, posts, threads }
}

impl Running {
    fn ask(&self, text: &str) -> String {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.send_to(text.as_bytes(), self.address).unwrap();
        let mut buffer = [0; 100];
        let n = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..n]).into_owned()
    }
    fn wake(&self) {
        self.posts.iter().for_each(Post::wake);
    }
    fn end(self) -> Vec<Statistics> {
        self.wake();
        self.threads.into_iter().map(|t| t.join().unwrap()).collect()
    }
}

#[test]
fn datagrams_are_carried_with_and_without_gathering() {
    for gather in [Duration::ZERO, Duration::from_micros(500)] {
        let server = start(1, gather);
        for i in 0..200 {
            assert_eq!(server.ask(&format!("0 {i}")), format!("0 {i} by 0"));
        }
        server.control.stop();
        let statistics = server.end();
        assert_eq!((statistics[0].datagrams_received, statistics[0].datagrams_sent), (200, 200));
    }
}

#[test]
fn what_arrives_at_the_wrong_shard_crosses_once() {
    let server = start(3, Duration::ZERO);
    for i in 0..60 {
        let shard = i % 3;
        assert_eq!(server.ask(&format!("{shard} {i}")), format!("{shard} {i} by {shard}"));
    }
    server.control.stop();
    let statistics = server.end();
    assert_eq!(statistics.iter().map(|s| s.datagrams_sent).sum::<u64>(), 60);
    assert_eq!(statistics.iter().map(|s| s.datagrams_received).sum::<u64>(), 60);
    assert!(statistics.iter().map(|s| s.crossed).sum::<u64>() <= 60);
}

#[test]
fn a_panic_costs_its_message_and_not_the_shard() {
    let server = start(1, Duration::ZERO);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(b"0 panic", server.address).unwrap();
    assert_eq!(server.ask("0 alive"), "0 alive by 0");
    server.control.stop();
    assert_eq!(server.end()[0].panics, 1);
}

#[test]
fn draining_waits_for_what_is_in_flight() {
    let server = start(1, Duration::ZERO);
    server.ask("0 busy");
    server.control.drain();
    server.wake();
    assert_eq!(server.ask("0 still here"), "0 still here by 0");
    server.ask("0 idle");
    server.end();
}

#[test]
fn shards_drain_together() {
    let server = start(3, Duration::ZERO);
    server.ask("1 busy");
    server.control.drain();
    server.wake();
    for shard in [0, 1, 2] {
        assert_eq!(server.ask(&format!("{shard} still here")), format!("{shard} still here by {shard}"));
    }
    server.ask("1 idle");
    server.end();
}

#[test]
fn an_answer_leaves_by_the_address_that_was_asked() {
    let mut server = start_on("0.0.0.0:0", 1, Duration::ZERO);
    for asked in ["127.0.0.1", "127.0.9.7"] {
        server.address.set_ip(asked.parse().unwrap());
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.send_to(b"0", server.address).unwrap();
        let (_, from) = socket.recv_from(&mut [0; 100]).unwrap();
        assert_eq!(from, server.address);
    }
    server.control.stop();
    server.end();
}

#[test]
fn gathering_begins_with_the_rate_and_ends_with_it() {
    let mut gather = Gather::new(Duration::from_micros(500));
    let ms = |n: u64| Instant::from_micros(n * 1_000);
    assert_eq!(gather.time(ms(10), 10), Duration::ZERO, "1,000 datagrams a second");
    assert_eq!(
        gather.time(ms(20), 210),
        Duration::from_micros(400),
        "20,000 datagrams a second: time for eight"
    );
    assert_eq!(gather.time(ms(21), 211), Duration::from_micros(400), "within the window");
    assert_eq!(
        gather.time(ms(30), 260),
        Duration::from_micros(500),
        "5,000 a second: never longer than allowed"
    );
    assert_eq!(gather.time(ms(40), 270), Duration::ZERO);
}

#[test]
fn no_gathering_time_means_no_gathering() {
    let mut gather = Gather::new(Duration::ZERO);
    assert_eq!(gather.time(Instant::from_micros(10_000), 100_000), Duration::ZERO);
}

#[test]
fn the_clock_counts_from_where_the_origin_is_said_to_be() {
    let origin_at = Instant::from_micros(400 * 86_400 * 1_000_000);
    let settings = Settings { origin_at, ..Settings::new(Duration::ZERO, Clock::now()) };
    let now = settings.now();
    assert!(now >= origin_at && now.since(origin_at) < Duration::from_secs(60));
}
