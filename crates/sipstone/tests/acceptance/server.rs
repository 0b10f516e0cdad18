//! Servers about which everything is known: the null server behind a queue, or one that stalls.

use sip::Instant;
use sipstone::load::{Outbox, Send, SocketId};
use sipstone::null::{Behaviour, NullServer};
use std::net::SocketAddr;
use std::time::Duration;

/// Where the server listens.
pub(crate) const SERVER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 1, 1)), 5060);

/// What stands between the socket and the server.
#[derive(Clone, Debug)]
pub(crate) enum Front {
    /// Nothing: served when it comes.
    Prompt,
    /// One processor that takes a fixed time for each datagram, first come, first served. What would have to wait for
    /// longer than the queue is long is dropped.
    Queue {
        /// Nanoseconds of each datagram.
        service_ns: u64,
        /// Longest wait, nanoseconds.
        queue_ns: u64,
        /// When it will be done with all that it has, nanoseconds.
        free_at_ns: u64,
    },
    /// Does nothing during the last `length` of every `every`, and then at once all that came meanwhile.
    Stalling {
        /// From stall to stall.
        every: Duration,
        /// Of one stall.
        length: Duration,
    },
}

impl Front {
    /// A server that carries `rate` datagrams a second, with a queue of 50 ms: the capacity of a scenario whose
    /// operations cost the server one datagram each.
    pub(crate) fn of_capacity(rate: f64) -> Front {
        Front::Queue { service_ns: (1e9 / rate).round() as u64, queue_ns: 50_000_000, free_at_ns: 0 }
    }

    /// When a datagram that comes now has been served; `None`: it is dropped.
    pub(crate) fn admit(&mut self, now: Instant) -> Option<Instant> {
        match self {
            Front::Prompt => Some(now),
            Front::Queue { service_ns, queue_ns, free_at_ns } => {
                let now_ns = now.as_micros() * 1000;
                if free_at_ns.saturating_sub(now_ns) > *queue_ns {
                    return None;
                }
                *free_at_ns = now_ns.max(*free_at_ns) + *service_ns;
                Some(Instant::from_micros(free_at_ns.div_ceil(1000)))
            }
            Front::Stalling { every, length } => {
                let every_us = u64::try_from(every.as_micros()).unwrap();
                let length_us = u64::try_from(length.as_micros()).unwrap();
                let left_us = every_us - now.as_micros() % every_us;
                Some(if left_us <= length_us { now + Duration::from_micros(left_us) } else { now })
            }
        }
    }
}

/// Where 100s come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// None is sent.
    Stateless,
    /// One is sent for each INVITE, also for those that are refused.
    Stateful,
    /// One is sent for every other INVITE.
    Half,
}

/// A server.
pub(crate) struct Server {
    pub(crate) front: Front,
    null: NullServer,
    kind: Kind,
    invites: u64,
}

impl Server {
    pub(crate) fn new(front: Front) -> Server {
        Server::of_kind(front, Kind::Stateless, false)
    }

    pub(crate) fn of_kind(front: Front, kind: Kind, redirect: bool) -> Server {
        // The null server sends no 100 before a 404, so all of them are sent here.
        let behaviour = Behaviour { redirect, trying: false, cap: None };
        Server { front, null: NullServer::new(SERVER, behaviour), kind, invites: 0 }
    }

    /// Takes a datagram that the front has let through.
    pub(crate) fn serve(&mut self, now: Instant, from: SocketAddr, bytes: &[u8], out: &mut Outbox) {
        let invite = bytes.starts_with(b"INVITE ");
        self.invites += u64::from(invite);
        let tries = match self.kind {
            Kind::Stateless => false,
            Kind::Stateful => true,
            Kind::Half => self.invites.is_multiple_of(2),
        };
        if invite && tries {
            let start = out.bytes.len();
            out.bytes.extend_from_slice(trying(bytes).as_bytes());
            out.sends.push(Send {
                connection: sipstone::load::ConnectionId::NONE,
                socket: SocketId(0),
                to: from,
                range: start..out.bytes.len(),
                planned: None,
            });
        }
        self.null.handle(now, from, bytes, out);
    }
}

/// The 100 to a request (RFC 3261 §8.2.6.2).
fn trying(request: &[u8]) -> String {
    let request = std::str::from_utf8(request).unwrap();
    let copied = ["Via:", "From:", "To:", "Call-ID:", "CSeq:"];
    let lines = request.split("\r\n").take_while(|line| !line.is_empty());
    let lines: String = lines
        .filter(|line| copied.iter().any(|name| line.starts_with(name)))
        .map(|line| format!("{line}\r\n"))
        .collect();
    format!("SIP/2.0 100 Trying\r\n{lines}Content-Length: 0\r\n\r\n")
}

#[test]
fn a_queue_carries_its_capacity_and_drops_what_is_beyond() {
    let mut front = Front::of_capacity(1000.0);
    let mut served = 0;
    for at_us in (0..10_000_000).step_by(500) {
        let now = Instant::from_micros(at_us);
        if let Some(done) = front.admit(now) {
            served += 1;
            let wait = done.since(now);
            assert!(wait >= Duration::from_millis(1) && wait <= Duration::from_micros(51_000), "{wait:?}");
        }
    }
    // Twice its capacity was offered for ten seconds; what stands in the queue at the end counts too.
    assert!((10_000..=10_051).contains(&served), "{served}");
}

#[test]
fn a_stall_lets_all_wait_for_its_end() {
    let mut front = Front::Stalling { every: Duration::from_secs(10), length: Duration::from_secs(1) };
    let mut served = |seconds: f64| {
        front.admit(Instant::from_micros((seconds * 1e6) as u64)).map(|at| at.as_micros() as f64 / 1e6)
    };
    assert_eq!(
        [served(0.0), served(8.9), served(9.0), served(9.5), served(19.75)],
        [0.0, 8.9, 10.0, 10.0, 20.0].map(Some)
    );
}
