//! What an endpoint is told before it starts: listeners, names, timers (RFC 3261 Table 4), limits.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;
use sip::Transport;

/// One address that the server listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The transport.
    pub transport: Transport,
    /// The bound address; its port is known. A wildcard address (`0.0.0.0`, `::`) is replaced in Via and Record-Route
    /// by the local address of the message at hand ([`Path::local`](crate::Path::local)).
    pub address: SocketAddr,
    /// Host and port to be written into Via and Record-Route instead of `address`.
    pub advertise: Option<(String, u16)>,
}

/// A name that means this server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alias {
    /// A host name or an address literal.
    pub host: String,
    /// The port that must be asked for; any if `None`.
    pub port: Option<u16>,
    /// The transport that must be asked for; any if `None`.
    pub transport: Option<Transport>,
}

/// The timers of RFC 3261 Table 4, of RFC 6026, and our own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timers {
    /// Estimate of the round-trip time; default 500 ms.
    pub t1: Duration,
    /// Longest interval between retransmissions; default 4 s.
    pub t2: Duration,
    /// How long a message may stay in the network; default 5 s.
    pub t4: Duration,
    /// Timer B, an INVITE without any response; default 64*T1 = 32 s.
    pub timer_b: Duration,
    /// Timer C, a proxied INVITE without a final response; more than 3 minutes (RFC 3261 §16.6 item 11), default 185 s.
    pub timer_c: Duration,
    /// Timer D, wait for retransmitted responses to an INVITE; default 32 s.
    pub timer_d: Duration,
    /// Timer F, a non-INVITE request without a final response; default 64*T1 = 32 s.
    pub timer_f: Duration,
    /// Timer H, wait for the ACK; default 64*T1 = 32 s.
    pub timer_h: Duration,
    /// Timer J, wait for retransmitted non-INVITE requests; default 64*T1 = 32 s.
    pub timer_j: Duration,
    /// Timer L, wait for retransmissions of an accepted INVITE (RFC 6026 §8.7); default 64*T1 = 32 s.
    pub timer_l: Duration,
    /// Timer M, wait for more 2xx to an INVITE (RFC 6026 §8.4); default 64*T1 = 32 s.
    pub timer_m: Duration,
    /// How long a branch waits for the addresses of its next hop; default 4 s.
    pub resolve: Duration,
}

impl Timers {
    /// The defaults derived from another T1.
    pub fn with_t1(t1: Duration) -> Timers {
        let long = t1 * 64;
        Timers {
            t1,
            timer_b: long,
            timer_f: long,
            timer_h: long,
            timer_j: long,
            timer_l: long,
            timer_m: long,
            ..Timers::default()
        }
    }
}

impl Default for Timers {
    fn default() -> Timers {
        let long = Duration::from_secs(32);
        Timers {
            t1: Duration::from_millis(500),
            t2: Duration::from_secs(4),
            t4: Duration::from_secs(5),
            timer_b: long,
            timer_c: Duration::from_secs(185),
            timer_d: long,
            timer_f: long,
            timer_h: long,
            timer_j: long,
            timer_l: long,
            timer_m: long,
            resolve: Duration::from_secs(4),
        }
    }
}

/// What may grow, and how far; what is answered past the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Transactions alive at once, default 2,000,000 (31,000 calls/s, each two of them for the 32 s of Timers J and L);
    /// past it a request that needs one is answered 503 with Retry-After, without state. At most 2^30.
    pub transactions_max: usize,
    /// Branches of one request over its life, default 32 and at most 1,023; past it targets are refused
    /// ([`TargetsFull`](crate::TargetsFull)).
    pub branches_max: u16,
    /// Largest message taken or sent, default 65,535 bytes; past it a request is answered 513.
    pub message_bytes_max: usize,
    /// Max-Breadth of a request that has none, and the most that is taken over (RFC 5393 §5.3.1); default 60. Past it
    /// a request is answered 440.
    pub max_breadth: u32,
    /// Max-Forwards of a request that has none (RFC 3261 §16.6 item 3); default 70.
    pub max_forwards: u32,
    /// Scripts that wait for an answer at once, default 100,000; past it 503 with Retry-After.
    pub suspended_max: usize,
    /// Questions about names that are open at once, default 10,000; past it the branch fails as if there were no
    /// address.
    pub resolves_max: usize,
    /// Timers fired or moved in one [`Endpoint::handle`](crate::Endpoint::handle), default 1,024; past it the rest is
    /// due at once.
    pub timers_per_step_max: u32,
    /// Seconds in the Retry-After of a 503 of ours; default 5.
    pub retry_after_secs: u32,
    /// Bytes that a response of ours may be longer than its request while its address has not been heard from twice,
    /// default 1,024; a longer one is held back until the request is retransmitted.
    pub amplification_slack: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            transactions_max: 2_000_000,
            branches_max: 32,
            message_bytes_max: 65_535,
            max_breadth: 60,
            max_forwards: 70,
            suspended_max: 100_000,
            resolves_max: 10_000,
            timers_per_step_max: 1_024,
            retry_after_secs: 5,
            amplification_slack: 1_024,
        }
    }
}

/// What depends on the transport that a message takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transports {
    /// The longest request that leaves by UDP where the next hop's URI names no transport; a longer one takes
    /// [`Transports::long_transport`] (RFC 3261 §18.1.1). Default 1,300 bytes; 0: all leave by UDP.
    pub datagram_bytes_max: usize,
    /// What a request takes that is too long for UDP, where there is such a listener of the family: TCP (the default)
    /// or TLS; none: it leaves by UDP.
    pub long_transport: Option<Transport>,
    /// Whether `alias` in the topmost Via of a request over TCP makes its connection one for requests to its sender
    /// (RFC 5923); default false, as it lets one host of a shared address speak for another. Over TLS only
    /// [`RequestContext::alias`](crate::RequestContext::alias) does it: whether the peer has proved who it is, is not
    /// known here.
    pub accept_aliases: bool,
}

impl Default for Transports {
    fn default() -> Transports {
        Transports { datagram_bytes_max: 1_300, long_transport: Some(Transport::Tcp), accept_aliases: false }
    }
}

/// Everything an endpoint is told before it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The listeners; [`ListenerId`](crate::ListenerId) counts them from 0.
    pub listeners: Vec<Listener>,
    /// Further names of this server.
    pub aliases: Vec<Alias>,
    /// Timers.
    pub timers: Timers,
    /// Limits.
    pub limits: Limits,
    /// What depends on transports.
    pub transports: Transports,
    /// Which shard this endpoint is, from 0.
    pub shard: u8,
    /// How many shards there are; at least 1.
    pub shards: u8,
    /// The value of the Server header in responses of ours; none is written if `None`.
    pub server_header: Option<String>,
    /// Keys of hashes, MACs, branches and tags: random, secret, and the same for all shards.
    pub seed: [u64; 4],
    /// Whether a relayed INVITE is answered `100 Trying` at once (RFC 3261 §16.2); default true.
    pub auto_100: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listeners: Vec::new(),
            aliases: Vec::new(),
            timers: Timers::default(),
            limits: Limits::default(),
            transports: Transports::default(),
            shard: 0,
            shards: 1,
            server_header: None,
            seed: [0; 4],
            auto_100: true,
        }
    }
}
