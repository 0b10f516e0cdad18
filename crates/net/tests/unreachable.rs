//! An ICMP error on its whole way: from the kernel by the shard to the engine, and what comes of it to the caller (RFC 3261
//! §18.4, §16.9).

#![allow(clippy::unwrap_used)]

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use engine::{Answer, Config, Endpoint, Handled, Input, Listener, Outbox, RequestContext, TransactionUser};
use net::{Control, Handler, Resolver, Settings, Shard, Statistics, bind};
use sip::{Instant, Transport};

/// How long a test waits for what must come; Timer B and Timer F take 32 s.
const PATIENCE: Duration = Duration::from_secs(20);

/// Relays every request to where it says.
struct Relay;

impl TransactionUser for Relay {
    type State = ();
    type Suspended = ();
    fn on_request(&mut self, cx: &mut RequestContext<'_, ()>) -> Handled<()> {
        let _ = cx.relay();
        Handled::Done
    }
    fn on_answer(&mut self, _: &mut RequestContext<'_, ()>, (): (), _: Answer<'_>) -> Handled<()> {
        Handled::Done
    }
}

struct Proxy(Endpoint<Relay>);

impl Handler for Proxy {
    fn shard_of(&self, _: &[u8]) -> usize {
        0
    }
    fn handle(&mut self, now: Instant, input: Input<'_>, out: &mut Outbox) {
        self.0.handle(now, input, out);
    }
    fn next_timeout(&self) -> Option<Instant> {
        self.0.next_timeout()
    }
    fn is_idle(&self) -> bool {
        true
    }
    fn report(&mut self, _: &Statistics) {}
}

/// The first final response to a request for somebody at `to`.
fn answer(server: SocketAddr, method: &str, to: SocketAddr) -> String {
    let caller = UdpSocket::bind("127.0.0.1:0").unwrap();
    caller.set_read_timeout(Some(PATIENCE)).unwrap();
    let here = caller.local_addr().unwrap();
    let request = format!(
        "{method} sip:nobody@{to} SIP/2.0\r\nVia: SIP/2.0/UDP {here};branch=z9hG4bK-{method}\r\nMax-Forwards: 70\r\n\
        From: <sip:a@example.org>;tag=1\r\nTo: <sip:nobody@example.org>\r\nCall-ID: {method}\r\nCSeq: 1 {method}\r\n\
        Contact: <sip:a@{here}>\r\nContent-Length: 0\r\n\r\n"
    );
    caller.send_to(request.as_bytes(), server).unwrap();
    let mut buffer = [0; 2_000];
    loop {
        let length = caller.recv(&mut buffer).expect("a response comes before the timers end");
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        if !text.starts_with("SIP/2.0 1") {
            return text;
        }
    }
}

#[test]
fn a_request_to_a_closed_port_is_answered_500_at_once() {
    let settings = Settings::new(Duration::ZERO, Clock::now());
    let sockets = bind(Transport::Udp, "127.0.0.1:0".parse().unwrap(), 1, &settings.streams).unwrap();
    let server = sockets[0].address();
    let shard = Shard::new(0, sockets).unwrap();
    let post = shard.post();
    let control = Arc::new(Control::new(1));
    let (posts, stop) = (vec![post.clone()], control.clone());
    let thread = std::thread::spawn(move || {
        let listener = Listener { transport: Transport::Udp, address: server, advertise: None };
        let config = Config { listeners: vec![listener], seed: [1, 2, 3, 4], ..Config::default() };
        let proxy = Proxy(Endpoint::new(config, Relay));
        shard.run(proxy, &settings, &control, posts, Resolver::start().unwrap()).unwrap()
    });
    // At an address that nobody else is at, so that its port stays closed.
    let closed = UdpSocket::bind("127.0.203.2:0").unwrap().local_addr().unwrap();
    for method in ["INVITE", "OPTIONS"] {
        let response = answer(server, method, closed);
        assert!(response.starts_with("SIP/2.0 500 "), "{response}");
    }
    stop.stop();
    post.wake();
    thread.join().unwrap();
}
