//! What is to be measured: the target, the users, the operations and how they arrive.
//!
//! A [`Workload`] is what the command line means, complete and checked; an [`Assignment`] is the share of it that one
//! group of workers (this process, or an agent on another host) carries out. Both travel to agents as JSON.

mod link;

pub use link::{
    CONTACTS_MAX, Close, Connections, Link, Links, OwnCertificate, POOL_MAX, Tls, TlsMode, TlsVersion,
    Transport,
};

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// One kind of operation. What each must exchange is in [`crate::scenario`].
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    clap::ValueEnum,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// OPTIONS to the server itself, 200.
    Options,
    /// REGISTER of the next user in order, 200.
    Register,
    /// REGISTER of a binding that exists, 200 and the binding is in it.
    RegisterUpdate,
    /// REGISTER with `Expires: 0` of a binding that exists, 200 and the binding is gone.
    RegisterLogout,
    /// A call through the proxy to a registered user: INVITE, 180, 200, ACK, BYE, 200.
    Invite,
    /// A call that rings, is cancelled by the caller and ends with 487.
    InviteCancel,
    /// A call to a user who is not registered: 404.
    InviteNotfound,
    /// A call to a redirect server: 302 with the registered contact.
    Redirect,
    /// A call with a Route to the server and a foreign Request-URI.
    Outbound,
    /// MESSAGE through the proxy to a registered user, 200.
    Message,
}

/// How long something takes, drawn anew for each operation.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delay {
    /// No delay.
    #[default]
    None,
    /// Always the same.
    Constant(Duration),
    /// Exponentially distributed with this mean, cut off at `max` (drawn again above it).
    Exponential {
        /// The mean before the cut.
        mean: Duration,
        /// Never longer than this.
        max: Duration,
    },
}

/// One class of operations of a mix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Class {
    /// Its name in reports: the scenario's id, or a preset's own (`answered`, `abandoned`).
    pub name: String,
    /// What it does.
    pub scenario: Scenario,
    /// Its share of the arrivals, relative to the other classes' weights.
    pub weight: f64,
    /// From the callee's 180 to its 200.
    pub ring: Delay,
    /// From the 200 to the caller's BYE.
    pub hold: Delay,
    /// For [`Scenario::InviteCancel`]: from the INVITE to the CANCEL.
    pub cancel_after: Duration,
}

/// How operations follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Exponential gaps: independent callers. The default.
    Poisson,
    /// Equal gaps.
    Uniform,
    /// `size` operations at once, then a pause, so that the mean rate holds.
    Burst {
        /// Operations of one burst.
        size: u32,
    },
    /// Poisson arrivals whose rate goes in a straight line from `from` operations a second to the given rate,
    /// over warm-up and measurement together.
    Ramp {
        /// Operations a second at the start.
        from: f64,
    },
}

/// How the next user is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// All alike.
    Uniform,
    /// User k with a probability in proportion to 1/k^s.
    Zipf(f64),
}

/// The users and their names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Users {
    /// How many; numbers run from `first` to `first + count - 1`.
    pub count: u32,
    /// The first user's number.
    pub first: u32,
    /// User part with `{}` for the number: `user{}`.
    pub name: String,
    /// Password with `{}` for the number: `password{}`.
    pub password: String,
    /// Names and passwords given one by one (`--users-file`, CSV `name,password`), instead of generated ones.
    pub listed: Vec<(String, String)>,
    /// How callers and callees are chosen.
    pub choice: Choice,
}

/// What the client does about authentication.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Auth {
    /// A challenge is a failure.
    #[default]
    None,
    /// Every request goes first without credentials and is challenged anew.
    Challenge,
    /// The last nonce is used again with the next nonce count, until the server calls it stale.
    Cached,
}

/// What the user says about the proxy. `Auto` accepts either and reports which was seen.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Proxy {
    /// Whichever it shows to be; but all operations alike.
    #[default]
    Auto,
    /// A 100 from the proxy belongs to every INVITE.
    Stateful,
    /// No 100 comes from the proxy.
    Stateless,
}

/// Which half of the work a group does.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Calls and answers. The default.
    #[default]
    Both,
    /// Starts operations (the 2006 paper's loader).
    Loader,
    /// Registers its users and answers (the 2006 paper's call handler).
    Handler,
}

/// Where the server is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Where requests are sent.
    pub address: SocketAddr,
    /// The domain of Request-URIs and addresses-of-record, with its port if it has one: `127.0.0.1:5060`.
    pub domain: String,
}

/// Everything that is offered to the server, by all groups together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// The server.
    pub target: Target,
    /// How it is reached: over UDP unless told otherwise.
    #[serde(default)]
    pub links: Links,
    /// At least one; their weights add up to more than zero.
    pub classes: Vec<Class>,
    /// Operations a second, of all classes and groups together.
    pub rate: f64,
    /// How they arrive.
    pub shape: Shape,
    /// The users.
    pub users: Users,
    /// Client authentication.
    pub auth: Auth,
    /// With [`Auth::Challenge`]: whether in-dialog requests (BYE) expect a challenge too (`--auth-every`).
    pub auth_every: bool,
    /// What the proxy is said to be.
    pub proxy: Proxy,
    /// Everything random comes from this number: arrivals, users, tags.
    pub seed: u64,
    /// Operations of the first seconds, not counted.
    pub warm_up: Duration,
    /// Operations planned within this time after the warm-up are counted.
    pub measure: Duration,
    /// How long after the last planned start operations may still end; what is open then has failed as `unfinished`.
    pub drain: Duration,
    /// RFC 3261 T1 (500 ms).
    pub t1: Duration,
    /// RFC 3261 T2 (4 s).
    pub t2: Duration,
    /// Most operations open at once, in one worker; one more is `generator-dropped`.
    pub open_operations_max: u32,
    /// Registrations outstanding at once in the preamble, in one worker.
    pub preamble_window: u32,
    /// Whether the users are to be registered before the first operation.
    pub preamble: bool,
    /// `Expires` of registrations, seconds.
    pub expires: u32,
    /// Record the messages of the first operation of each class.
    pub trace: bool,
}

/// The share of one group of workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// The whole.
    pub workload: Workload,
    /// This group's index among all groups, from 0; part of Call-IDs and of the random seed.
    pub group: u16,
    /// Its share of the rate, 0 to 1.
    pub rate_share: f64,
    /// The users whose callees live here: from, count (numbers relative to `users.first`).
    pub callees: (u32, u32),
    /// What it does.
    pub role: Role,
    /// Worker threads.
    pub threads: u16,
    /// CPUs to pin them to, in order, round robin; empty: not pinned.
    pub cpus: Vec<u16>,
    /// Local addresses to send from, each with sockets of its own in each worker; empty: the one that the route to
    /// the target has. At most 256.
    pub sources: Vec<IpAddr>,
}

/// Where the callees of a range of users can be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContactRange {
    /// First user, relative to `users.first`.
    pub first: u32,
    /// How many.
    pub count: u32,
    /// Host and port of their contacts.
    pub address: SocketAddr,
}
