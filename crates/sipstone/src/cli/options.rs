//! The options that `run`, `peak` and `suite` share.
//!
//! One declaration per option: its help is the manual, its parser the check. Ranges that depend on other options are
//! checked where the workload is built ([`super::workload`]).

use super::links::{LinkArgs, TlsArgs};
use super::values::{self, TargetName};
use crate::criterion::Criterion;
use crate::spec::{Auth, Delay, Proxy, Shape};
use clap::Args;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Most users.
pub(super) const USERS_MAX: u32 = 5_000_000;
/// Most worker threads of this host.
pub(super) const THREADS_MAX: u16 = 256;
/// Most agents.
pub(super) const AGENTS_MAX: usize = 64;

/// What is offered, and to whom.
#[derive(Args, Clone, Debug)]
pub(super) struct LoadArgs {
    /// The server: HOST, HOST:PORT, [::1]:5060 or sip:HOST[:PORT][;transport=tcp]; default port 5060, of TLS 5061
    ///
    /// A name is looked up once, at the start; of several addresses the first is used.
    #[arg(long, value_name = "HOST:PORT", help_heading = "Target")]
    pub target: TargetName,

    /// The domain of Request-URIs and addresses-of-record [default: the target as it was written]
    ///
    /// Give it when the server answers for a name: --target 10.0.0.1 --domain example.com. A port belongs into it
    /// only if the server expects one there.
    #[arg(long, value_name = "NAME", help_heading = "Target")]
    pub domain: Option<String>,

    #[command(flatten)]
    pub links: LinkArgs,

    #[command(flatten)]
    pub tls: TlsArgs,

    /// How operations follow each other: poisson, uniform, burst:N or ramp:FROM
    ///
    /// poisson: independent callers, exponential gaps. uniform: equal gaps. burst:N: N at once (at most 100000), then
    /// a pause, so that the mean rate holds. ramp:FROM: Poisson arrivals whose rate goes in a straight line from FROM
    /// a second to the rate, over warm-up and measurement. The schedule is absolute: what the server delays does not
    /// delay what follows, and what could not be sent in time is counted.
    #[arg(long, value_name = "SHAPE", default_value = "poisson", value_parser = values::shape, help_heading = "Load")]
    pub shape: Shape,

    /// Number from which everything random comes; the same number gives the same arrivals [default: random, reported]
    #[arg(long, value_name = "N", help_heading = "Load")]
    pub seed: Option<u64>,

    /// How long after the last start operations may still end; what is open then has failed as `unfinished`
    ///
    /// [default: 64 T1 + 1 s = 33s, plus the longest ring and hold time]
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration, help_heading = "Load")]
    pub drain: Option<Duration>,

    /// From a callee's 180 to its 200: 8s, exp:8.5s (mean) or exp:8.5s:38s (mean and longest) [default: the mix's, or
    /// none]
    #[arg(long, value_name = "DELAY", value_parser = values::delay, help_heading = "Load")]
    pub ring: Option<Delay>,

    /// From the 200 to the caller's BYE, written as --ring [default: none]
    #[arg(long, value_name = "DELAY", value_parser = values::delay, help_heading = "Load")]
    pub hold: Option<Delay>,

    /// For invite-cancel: from the INVITE to the CANCEL [default: 38s, or the mix's]
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration, help_heading = "Load")]
    pub cancel_after: Option<Duration>,

    /// Most operations open at once in one thread (1 to 10000000); one more is counted as `generator-dropped`
    #[arg(long, value_name = "N", default_value_t = 1_000_000, help_heading = "Load")]
    pub open_max: u32,

    /// RFC 3261 T1, the first retransmission interval over UDP (1ms to 10s)
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = values::duration, help_heading = "Load")]
    pub t1: Duration,

    /// RFC 3261 T2, the longest retransmission interval of requests other than INVITE (T1 to 1m)
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = values::duration, help_heading = "Load")]
    pub t2: Duration,

    /// How many users (2 to 5000000)
    #[arg(long, value_name = "N", default_value_t = 10_000, help_heading = "Users")]
    pub users: u32,

    /// The first user's number
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Users")]
    pub first_user: u32,

    /// User part, with {} for the number
    #[arg(long, value_name = "FORMAT", default_value = "user{}", help_heading = "Users")]
    pub user_format: String,

    /// Password, with {} for the number
    #[arg(long, value_name = "FORMAT", default_value = "password{}", help_heading = "Users")]
    pub password_format: String,

    /// Users from a CSV file with a line `name,password` for each, instead of --users and the formats
    #[arg(long, value_name = "FILE", conflicts_with_all = ["users", "first_user"], help_heading = "Users")]
    pub users_file: Option<PathBuf>,

    /// Choose user k with a probability in proportion to 1/k^S (0.1 to 5) [default: all alike]
    #[arg(long, value_name = "S", help_heading = "Users")]
    pub zipf: Option<f64>,

    /// Authentication that the client expects
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Auth::None, help_heading = "Users")]
    pub auth: Auth,

    /// With --auth challenge: the BYE is challenged too
    #[arg(long, help_heading = "Users")]
    pub auth_every: bool,

    /// Do not register the users first: they are in the server's database, or are not needed
    #[arg(long, help_heading = "Users")]
    pub no_preamble: bool,

    /// Registrations outstanding at once in one thread while the users are registered (1 to 10000)
    #[arg(long, value_name = "N", default_value_t = 64, help_heading = "Users")]
    pub preamble_window: u32,

    /// `Expires` of registrations, seconds (60 to 604800)
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, help_heading = "Users")]
    pub expires: u32,

    /// What the proxy is: a stateful one sends a 100 for each INVITE; the messages on the wire are held against it
    #[arg(long, value_enum, value_name = "KIND", default_value_t = Proxy::Auto, help_heading = "Target")]
    pub proxy: Proxy,

    /// Worker threads of this host (1 to 256) [default: one for each CPU of --cpus, or that is not the server's]
    ///
    /// When the server runs on this host and its CPUs are not known (--sut-cpu), half of the CPUs. With --agent: the threads
    /// of each agent, 1 unless given; --cpus and --source are then the agents', too.
    #[arg(long, value_name = "N", help_heading = "Generator")]
    pub threads: Option<u16>,

    /// CPUs to pin the threads to, as in 1,2-3 [default: with --sut-cpu all others; otherwise not pinned]
    #[arg(long, value_name = "LIST", help_heading = "Generator")]
    pub cpus: Option<String>,

    /// Local addresses to send from, as in 127.0.0.2-127.0.0.9,10.0.0.1; at most 256 [default: the route's]
    #[arg(long, value_name = "A[-B],…", value_parser = Sources::parse, help_heading = "Generator")]
    pub source: Option<Sources>,

    /// Let the agent at this address do the work (`sipstone agent` on another host), or half of it with =loader (calls)
    /// or =handler (registers and answers); can be repeated, at most 64 times
    #[arg(long = "agent", value_name = "HOST:PORT[=ROLE]", help_heading = "Generator")]
    pub agents: Vec<String>,

    /// File with the token that the agents know
    #[arg(long, value_name = "FILE", requires = "agents", help_heading = "Generator")]
    pub agent_token_file: Option<PathBuf>,
}

/// Addresses to send from. (A type of its own, because `clap` takes a bare `Vec` for a repeated option.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sources(pub Vec<IpAddr>);

impl Sources {
    fn parse(text: &str) -> Result<Sources, String> {
        values::sources(text).map(Sources)
    }
}

/// How the server is watched.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Watching the server")]
pub(super) struct ServerArgs {
    /// Process of the server, on this host: its CPU time and memory are measured, its children's too
    #[arg(long, value_name = "PID", conflicts_with_all = ["sut_cgroup", "sut_exec"])]
    pub sut_pid: Option<u32>,

    /// Cgroup (v2) of the server, as a directory below /sys/fs/cgroup
    #[arg(long, value_name = "DIR", conflicts_with = "sut_exec")]
    pub sut_cgroup: Option<PathBuf>,

    /// Start the server with this command and end it afterwards; split as a shell would, but no shell runs
    #[arg(long, value_name = "CMD")]
    pub sut_exec: Option<String>,

    /// CPUs of the server, as in 0 or 0,2-3: a started server is pinned to them; the generator keeps away from them
    #[arg(long, value_name = "LIST")]
    pub sut_cpu: Option<String>,

    /// Longest time until a started server listens (at most 10m)
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = values::positive_duration)]
    pub sut_ready: Duration,

    /// Start the server anew before each trial
    #[arg(long, requires = "sut_exec")]
    pub sut_restart: bool,
}

/// What is written, and how the result is judged.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Result")]
pub(super) struct OutputArgs {
    /// When a trial passes: ibm2007, tls2009, columbia2006, barepc or carrier [default: ibm2007]
    ///
    /// ibm2007: at least 99 % succeed; 5 s + 120 s, 5 runs. tls2009: the same share; 30 s + 120 s, 3 runs.
    /// columbia2006: at least 50 %, with a mean of at most 1 s (REGISTER) or 2 s (calls); 5 s + 100 s, 1 run. barepc:
    /// processed is offered within 1 %; 5 s + 120 s, 3 runs. carrier: at least 99.999 %, and 99.9 % within 200 ms; 30
    /// s + 300 s, 3 runs. The times are those of warm-up and window of a full trial. In a mix every class must pass.
    #[arg(long, value_name = "NAME")]
    pub criterion: Option<Criterion>,

    /// Divide the criterion's times by ten; every output says so
    #[arg(long)]
    pub quick: bool,

    /// Fail (exit code 2) unless this holds, as in 'p99 <= 5ms' or 'success >= 99.9%'; can be repeated
    #[arg(long = "gate", value_name = "CONDITION")]
    pub gates: Vec<String>,

    /// Report that gates compare with where they say `base`
    #[arg(long, value_name = "FILE")]
    pub base: Option<PathBuf>,

    /// Write the report as JSON; - for standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write the trials as CSV; - for standard output
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Write one self-contained HTML page with plots
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Name of the measurement in reports [default: the target]
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,

    /// Show the messages of the first operation of each class as a ladder
    #[arg(long)]
    pub trace: bool,

    /// Show nothing while it runs
    #[arg(long, short)]
    pub quiet: bool,
}
