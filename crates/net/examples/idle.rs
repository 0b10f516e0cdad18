//! How much memory idle TCP connections take: `cargo run -p net --example idle -- [CONNECTIONS]`.
//!
//! Opens connections to a shard of its own over loopback (both ends in this process: two descriptors each), has each carry
//! one request, and prints what the process has grown by per connection. Fails above [`BYTES_MAX`].

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use engine::{Input, Outbox};
use net::{Control, Handler, Resolver, Settings, Shard, Statistics, bind};
use sip::{Instant, Transport};
use socket2::{Domain, Socket, Type};

/// Bytes of user space that an idle connection may take.
const BYTES_MAX: usize = 2_048;
/// Connections from one address: ports are few.
const PER_ADDRESS: usize = 4_000;

const REQUEST: &[u8] = b"OPTIONS sip:a@b SIP/2.0\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n";
const RESPONSE: &[u8] = b"SIP/2.0 200 OK\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n";

struct Answers;

impl Handler for Answers {
    fn shard_of(&self, _: &[u8]) -> usize {
        0
    }
    fn handle(&mut self, _: Instant, input: Input<'_>, out: &mut Outbox) {
        if let Input::Message { path, .. } = input {
            out.send(path, |bytes| bytes.extend_from_slice(RESPONSE));
        }
    }
    fn next_timeout(&self) -> Option<Instant> {
        None
    }
    fn is_idle(&self) -> bool {
        true
    }
    fn report(&mut self, _: &Statistics) {}
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let count: usize = std::env::args().nth(1).map_or(Ok(20_000), |text| text.parse())?;
    let mut settings = Settings::new(Duration::ZERO, Clock::now());
    settings.streams.lifetime = Duration::from_secs(3_600);
    let listeners = bind(Transport::Tcp, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), 1, &settings.streams)?;
    let Some(to) = listeners.first().map(net::Listener::address) else { return Err("no listener".into()) };
    let shard = Shard::new(0, listeners)?;
    let post = shard.post();
    let control = Arc::new(Control::new(1));
    let (orders, posts, resolver) = (control.clone(), vec![post.clone()], Resolver::start()?);
    let thread = std::thread::spawn(move || shard.run(Answers, &settings, &orders, posts, resolver));
    let mut streams: Vec<TcpStream> = Vec::with_capacity(count);
    let begin = Clock::now();
    let before = resident_bytes()?;
    for n in 0..count {
        let from = Ipv4Addr::new(127, 0, 1, 1 + (n / PER_ADDRESS) as u8);
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((from, 0)).into())?;
        socket
            .connect(&to.into())
            .map_err(|error| format!("connection {n}: {error}; is ulimit -n high enough?"))?;
        let mut stream = TcpStream::from(socket);
        stream.write_all(REQUEST)?;
        stream.read_exact(&mut [0; RESPONSE.len()])?;
        streams.push(stream);
    }
    let grown = resident_bytes()?.saturating_sub(before);
    let each = grown / count.max(1);
    println!("{count} idle connections in {:?}: {grown} bytes, {each} bytes each", begin.elapsed());
    control.stop();
    post.wake();
    let ended = thread.join().map_err(|_| "the shard panicked")??;
    let complete = ended.streams.accepted == count as u64 && ended.streams.messages_sent == count as u64;
    Ok(if complete && each <= BYTES_MAX { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Memory of this process that is in use.
fn resident_bytes() -> Result<usize, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    let kilobytes: usize = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes * 1_024)
}
