//! A server without descriptors: those who come are turned away at once, nothing spins, and it recovers.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs::File;
use std::io::Read;
use std::net::TcpStream;
use std::process::Command;

use support::*;

/// The limit on descriptors holds for a process, so the test proper runs in one of its own.
#[test]
fn want_of_descriptors_turns_peers_away_and_ends() {
    let this = std::env::current_exe().unwrap();
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg("ulimit -n 64; exec \"$0\" --ignored --exact --nocapture in_want_of_descriptors")
        .arg(this);
    let output = command.output().unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "run by the other test, with few descriptors"]
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
