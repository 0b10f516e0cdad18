//! What a server has open: all that its shards need, before they run. Without descriptors those who come are
//! turned away at once, nothing spins, and it recovers.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs::File;
use std::io::Read;
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::{Input, Outbox};
use net::{Control, Handler, Resolver, Shard, Statistics, bind};
use sip::{Instant, Transport};
use support::*;

/// Descriptors are a process's, and so is their limit: a test about them runs in one of its own, with 64.
fn alone(test: &str) {
    let this = std::env::current_exe().unwrap();
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg("ulimit -n 64; exec \"$0\" --ignored --exact --nocapture \"$1\"")
        .arg(this)
        .arg(test);
    let output = command.output().unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn a_shard_has_what_it_needs_before_it_runs() {
    alone("descriptors_of_a_shard");
}

#[test]
#[ignore = "run by the test above, alone"]
fn descriptors_of_a_shard() {
    let settings = settings();
    let resolver = Resolver::start().unwrap();
    let bind = |transport| bind(transport, "127.0.0.1:0".parse().unwrap(), 1, &settings.streams).unwrap();
    let listeners = [Transport::Udp, Transport::Tcp, Transport::Ws].into_iter().flat_map(bind).collect();
    let shard = Shard::new(0, listeners).unwrap();
    let before = free_descriptors();
    let control = Arc::new(Control::new(1));
    control.stop();
    let least = Arc::new(AtomicUsize::new(before));
    let posts = vec![shard.post()];
    shard.run(Counter(least.clone()), &settings, &control, posts, resolver).unwrap();
    assert_eq!(least.load(Ordering::Relaxed), before);
}

/// Notes how few descriptors are free whenever the shard reports, as it does in its first turn.
struct Counter(Arc<AtomicUsize>);

impl Handler for Counter {
    fn shard_of(&self, _: &[u8]) -> usize {
        0
    }
    fn handle(&mut self, _: Instant, _: Input<'_>, _: &mut Outbox) {}
    fn next_timeout(&self) -> Option<Instant> {
        None
    }
    fn is_idle(&self) -> bool {
        true
    }
    fn report(&mut self, _: &Statistics) {
        self.0.fetch_min(free_descriptors(), Ordering::Relaxed);
    }
}

#[test]
fn want_of_descriptors_turns_peers_away_and_ends() {
    alone("in_want_of_descriptors");
}

#[test]
#[ignore = "run by the test above, with few descriptors"]
fn in_want_of_descriptors() {
    let server = tcp(&settings());
    let mut served: Vec<TcpStream> = (0..10).map(|_| server.connect()).collect();
    served.iter_mut().for_each(|stream| ask(stream, 1));
    // Both ends are in this process: each connection takes two descriptors, and one is left for a peer whom the
    // kernel accepts and the server cannot.
    let free = free_descriptors();
    let _even = free.is_multiple_of(2).then(|| File::open("/dev/null").unwrap());
    for _ in 0..(free - 1) / 2 {
        let mut stream = server.connect();
        ask(&mut stream, 1);
        served.push(stream);
    }
    // They are turned away, not left waiting; those who were there before are served.
    for turned_away in 1..=3 {
        let mut stream = server.connect();
        assert!(!matches!(stream.read(&mut [0]), Ok(1)));
        server.statistics(|s| s.no_descriptors == turned_away);
    }
    served.iter_mut().for_each(|stream| ask(stream, 2));
    drop(served);
    server.statistics(|s| s.open == 0);
    ask(&mut server.connect(), 3);
    let woken = server.stop()[0].wakeups;
    assert!(woken < 10_000, "woken {woken} times");
}

fn free_descriptors() -> usize {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect::<Vec<File>>().len()
}
