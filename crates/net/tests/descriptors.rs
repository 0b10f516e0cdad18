//! A server without descriptors: those who come are turned away at once, nothing spins, and it recovers.

#![allow(clippy::unwrap_used)]

mod support;

use std::io::{Read, Write};
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
    // Both ends are in this process. The last ones are accepted by the kernel, not by the server.
    let mut streams: Vec<TcpStream> = Vec::new();
    while let Ok(stream) = TcpStream::connect(server.addresses[1]) {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        streams.push(stream);
    }
    server.statistics(|s| s.no_descriptors > 0);
    // They are turned away, not left waiting; those who were there before are served.
    let mut turned_away = 0;
    for stream in &mut streams {
        let mut first = [0];
        let _ = stream.write_all(request(1).as_bytes());
        turned_away += usize::from(!matches!(stream.read(&mut first), Ok(1)));
    }
    assert!(turned_away > 0, "{}", streams.len());
    served.iter_mut().for_each(|stream| ask(stream, 2));
    drop((served, streams));
    server.statistics(|s| s.open == 0);
    ask(&mut server.connect(), 3);
    let woken = server.stop()[0].wakeups;
    assert!(woken < 10_000, "woken {woken} times");
}
