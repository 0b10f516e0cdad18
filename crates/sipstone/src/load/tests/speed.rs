//! How long the engine takes for a call, both sides: run by hand, with optimisation.
//!
//! ```text
//! cargo test -p sipstone --lib --release speed -- --ignored --nocapture
//! ```

use super::rig::{SERVER, one};
use crate::load::{Input, Outbox, SocketId, Worker};
use crate::spec::{Assignment, Role, Scenario};
use sip::Instant;
use std::net::SocketAddr;
use std::time::Duration;

/// Passes on what one side sends to the other as the simplest proxy would: a Via in front of a request, with a
/// Record-Route for an INVITE, and away again before an answer.
fn relay(message: &[u8], out: &mut Vec<u8>) -> Option<SocketId> {
    let line = message.iter().position(|&b| b == b'\n')? + 1;
    out.clear();
    out.extend_from_slice(&message[..line]);
    if message.starts_with(b"SIP/2.0") {
        let via = line + message[line..].iter().position(|&b| b == b'\n')? + 1;
        out.extend_from_slice(&message[via..]);
        return Some(SocketId(0));
    }
    let at = line + message[line..].windows(7).position(|part| part == b"branch=")? + 7;
    out.extend_from_slice(b"Via: SIP/2.0/UDP 10.0.0.9:5060;branch=z9hG4bK.1.");
    out.extend_from_slice(message.get(at..at + 45)?);
    out.extend_from_slice(b"\r\n");
    if message.starts_with(b"INVITE") {
        out.extend_from_slice(b"Record-Route: <sip:10.0.0.9:5060;lr>\r\n");
    }
    out.extend_from_slice(&message[line..]);
    Some(SocketId(1))
}

/// CPU time of this thread: other processes on the machine do not count.
fn cpu() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

#[test]
#[ignore = "a measurement"]
fn time_of_a_call() {
    const CALLS: u32 = 200_000;
    let mut workload = one(Scenario::Outbound);
    workload.preamble = false;
    workload.rate = 1e6;
    workload.measure = Duration::from_secs(10);
    let assignment = Assignment {
        workload,
        group: 0,
        rate_share: 1.0,
        callees: (0, 20),
        role: Role::Both,
        threads: 1,
        cpus: Vec::new(),
        sources: Vec::new(),
    };
    let sockets: [SocketAddr; 2] = ["10.0.0.1:6000".parse().unwrap(), "10.0.0.1:7000".parse().unwrap()];
    let mut worker = Worker::new(&assignment, 0, 1, (0, 20), &sockets[..1], &sockets[1..]);
    let contacts = worker.contacts();
    worker.start(Instant::from_micros(1000), &contacts);
    let (mut out, mut back, mut relayed) = (Outbox::default(), Outbox::default(), Vec::new());
    let from = SERVER.parse().unwrap();
    let (mut engine, mut messages) = (Duration::ZERO, 0u64);
    let mut now = Instant::from_micros(1000);
    while worker.measured()[0].1 < u64::from(CALLS) {
        now += Duration::from_micros(25);
        let begun = cpu();
        worker.handle(now, Input::Timeout, &mut out);
        engine += cpu() - begun;
        while !out.sends.is_empty() {
            std::mem::swap(&mut out, &mut back);
            out.clear();
            // Relayed first and timed as one batch, so that reading the clock is not what is measured.
            let mut batch: Vec<(SocketId, Vec<u8>)> = Vec::with_capacity(back.sends.len());
            for send in &back.sends {
                let socket = relay(back.datagram(send), &mut relayed).unwrap();
                batch.push((socket, relayed.clone()));
            }
            messages += 2 * batch.len() as u64;
            let begun = cpu();
            for (socket, bytes) in &batch {
                worker.handle(now, Input::Datagram { socket: *socket, from, bytes }, &mut out);
            }
            engine += cpu() - begun;
        }
        back.clear();
    }
    let (offered, succeeded, failed) = worker.measured()[0];
    println!("{offered} calls offered, {succeeded} succeeded, {failed} failed, {messages} messages");
    println!("{:.2} us a call, both sides", engine.as_secs_f64() * 1e6 / succeeded as f64);
    assert_eq!(failed, 0);
}
