//! The null server on connections: TCP, TLS, WebSocket.
//!
//! The same means as the generator's: one thread, one epoll, writes gathered once a turn. A message goes out on the
//! connection whose other end is where it is to go; where there is none, one is opened.

use super::serve::{PUBLISH_EVERY_US, Shared, WAKE_EVERY_MS, micros};
use super::{Counters, NullServer};
use crate::load::{Outbox, SocketId};
use crate::net::stream::tls::Ends;
use crate::net::stream::{Equipment, Place, Streams, limits};
use crate::spec::{Tls, Transport};
use crate::tally::Failure;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sip::Instant;
use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

/// Most batches of events taken before what they brought is sent.
const BATCHES_MAX: usize = 4;

/// The thread's own.
pub(super) struct StreamServer {
    streams: Streams,
    server: NullServer,
    out: Outbox,
    /// Messages that found no connection.
    send_errors: u64,
}

impl StreamServer {
    /// On a listener.
    ///
    /// # Errors
    /// TLS or the epoll cannot be set up.
    pub(super) fn new(
        transport: Transport,
        tls: &Tls,
        listener: TcpListener,
        server: NullServer,
    ) -> io::Result<StreamServer> {
        let local = listener.local_addr()?.ip();
        let ends = transport.is_tls().then(|| Ends::new(tls, local, &[local])).transpose();
        let mut streams = Streams::new(Equipment {
            places: vec![Some(Place { local, transport })],
            listeners: vec![(listener, SocketId(0))],
            ends: ends.map_err(io::Error::other)?,
            open_max: limits::connections_max(),
        })
        .map_err(|error| io::Error::other(error.to_string()))?;
        streams.know_remotes();
        Ok(StreamServer { streams, server, out: Outbox::default(), send_errors: 0 })
    }

    /// Serves until it is to stop.
    ///
    /// # Errors
    /// The system does not tell of connections any more.
    pub(super) fn run(mut self, shared: &Shared) -> io::Result<()> {
        let clock = std::time::Instant::now();
        let epoll = self.streams.epoll();
        let mut published_us = 0;
        while !shared.stop.load(Ordering::Relaxed) {
            let mut polled = [PollFd::new(epoll.0.as_fd(), PollFlags::POLLIN)];
            match poll(&mut polled, PollTimeout::from(WAKE_EVERY_MS)) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            let now = Instant::from_micros(micros(&clock));
            self.receive(now)?;
            self.flush(now);
            if now.as_micros() >= published_us + PUBLISH_EVERY_US {
                published_us = now.as_micros();
                self.publish(shared);
            }
        }
        self.publish(shared);
        Ok(())
    }

    fn publish(&self, shared: &Shared) {
        *shared.counters() = Counters { send_errors: self.send_errors, ..self.server.counters() };
    }

    fn receive(&mut self, now: Instant) -> io::Result<()> {
        let StreamServer { streams, server, out, .. } = self;
        for _ in 0..BATCHES_MAX {
            let more =
                streams.receive(now, &mut |arrived| server.handle(now, arrived.from, arrived.bytes, out));
            if !more.map_err(|error| io::Error::other(error.to_string()))? {
                break;
            }
        }
        Ok(())
    }

    fn flush(&mut self, now: Instant) {
        for send in &self.out.sends {
            let connection = self.streams.connection_to(send.to);
            self.streams.send(now, (SocketId(0), connection, send.to), self.out.datagram(send));
        }
        self.streams.flush();
        while let Some((_, failure)) = self.streams.take_lost() {
            // A callee that hangs up has lost nothing.
            self.send_errors += u64::from(failure != Failure::Connection);
        }
        self.out.clear();
    }
}

#[cfg(test)]
mod tests {
    use crate::null::{Behaviour, serve};
    use crate::spec::{Tls, Transport};
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Duration;

    const PLAIN: Behaviour = Behaviour { redirect: false, trying: false, cap: None };

    #[test]
    fn requests_on_a_connection_are_answered_on_it() {
        let address = "127.0.0.1:0".parse().unwrap();
        let serving = serve::start_over(Transport::Tcp, &Tls::default(), address, PLAIN, None).unwrap();
        let mut client = TcpStream::connect(serving.address()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let request = "OPTIONS sip:a SIP/2.0\r\nVia: SIP/2.0/TCP h;rport;branch=z9hG4bK1\r\nFrom: <sip:a@b>;tag=1\r\n\
                       To: <sip:a@b>\r\nCall-ID: 1\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n";
        client.write_all(request.repeat(3).as_bytes()).unwrap();
        let mut got = String::new();
        while got.matches("\r\n\r\n").count() < 3 {
            let mut room = [0; 4096];
            let count = client.read(&mut room).unwrap();
            assert!(count > 0, "{got}");
            got.push_str(std::str::from_utf8(&room[..count]).unwrap());
        }
        assert_eq!(got.matches("SIP/2.0 200 OK").count(), 3);
        let counters = serving.stop().unwrap();
        assert_eq!((counters.options, counters.answered, counters.send_errors), (3, 3, 0));
    }

    #[test]
    fn an_address_that_is_taken_is_an_error() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let error = serve::start_over(Transport::Tcp, &Tls::default(), address, PLAIN, None).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    }
}
