//! What the benchmarks and the allocation test share: an engine with a script, and the traffic to feed it.
//!
//! The engine is deterministic, so its traffic can be recorded once against one endpoint, with a caller and a callee who
//! read what it sends, and then played to any number of endpoints that were made in the same way: they answer with the
//! same bytes, and nothing but the engine runs while it is measured.
//!
//! - [`text`]: the messages.
//! - [`tape`]: recording and playing.
//! - [`apart`]: the script by itself.

// Each benchmark uses its own part of this.
#![allow(dead_code, unreachable_pub)]

pub mod apart;
pub mod operations;
pub mod tape;
pub mod text;

use std::sync::Arc;

use engine::{Config, Endpoint, Listener};
use location::{Limits, Local, Location, Seeds};
use modules::{Environment, NoLog, ScriptUser, Settings};
use route::{Colour, NoFiles};
use sip::Transport;

/// The embedded configuration. [`Configuration::new`] takes its part for Kamailio: nobody asks a database.
pub const DEFAULT: &str = include_str!("../../../../conf/default.cfg");
/// The same work without transactions.
pub const STATELESS: &str = include_str!("../../../../conf/stateless.cfg");

/// Where the server listens.
pub const SERVER: &str = "127.0.0.1:5060";
/// Where all calls come from.
pub const CALLER: &str = "127.0.0.1:6081";
/// Where all users are registered.
pub const CALLEE: &str = "127.0.0.1:6090";

/// Keys of branches, tags and steering: the benchmarks' endpoints are all alike.
pub const SEED: [u64; 4] = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];

/// A checked configuration, from which endpoints are made.
#[derive(Clone)]
pub struct Configuration {
    program: Arc<route::Program>,
    settings: Arc<Settings>,
}

impl Configuration {
    /// Checks `text`.
    pub fn new(text: &str) -> Configuration {
        let text = &text.replace("#!ifdef STROWGER", "#!ifdef NOT_HERE");
        let loaded = route::load(text, "bench.cfg", &modules::catalogue(), &NoFiles, &[])
            .unwrap_or_else(|rejected| panic!("{}", rejected.render(Colour::Never)));
        let settings = Settings::from_program(&loaded.program).unwrap_or_else(|errors| panic!("{errors:?}"));
        Configuration { program: Arc::new(loaded.program), settings: Arc::new(settings) }
    }

    /// The script as a transaction user.
    pub fn user<L: Location>(&self, location: L) -> ScriptUser<L, NoLog> {
        let environment = Environment { listeners: vec![listener()], ..Environment::default() };
        ScriptUser::new(self.program.clone(), self.settings.clone(), location, NoLog, environment)
    }

    /// How the server configures its engine for shard `shard` of `shards`.
    pub fn engine(&self, shard: u8, shards: u8) -> Config {
        let limits = engine::Limits { branches_max: self.settings.branches_max, ..engine::Limits::default() };
        Config {
            listeners: vec![listener()],
            aliases: self.settings.aliases.clone(),
            timers: self.settings.timers.clone(),
            limits,
            shard,
            shards,
            server_header: self.settings.server_header.clone(),
            seed: SEED,
            auto_100: self.settings.auto_100,
            transports: self.settings.transports.clone(),
        }
    }

    /// The only shard of a server with a location table of its own.
    pub fn endpoint(&self) -> Endpoint<ScriptUser<Local, NoLog>> {
        Endpoint::new(self.engine(0, 1), self.user(local()))
    }
}

/// An empty location table for one thread.
pub fn local() -> Local {
    Local::new(Limits::default(), Seeds(SEED))
}

fn listener() -> Listener {
    Listener { transport: Transport::Udp, address: SERVER.parse().expect("an address"), advertise: None }
}
