//! What the server says on standard output when it has started: where it listens, how to register a phone.

use std::fmt;

use crate::admin;
use crate::configuration::Loaded;

/// Three lines for whoever started it.
pub(crate) struct Greeting<'a> {
    pub(crate) loaded: &'a Loaded,
    pub(crate) is_built_in: bool,
    pub(crate) listeners: &'a [engine::Listener],
    pub(crate) shards: u8,
    /// Whether there is any user; `None` if the configuration knows none.
    pub(crate) has_users: Option<bool>,
}

impl fmt::Display for Greeting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Strowger {} listens on", env!("CARGO_PKG_VERSION"))?;
        for (i, listener) in self.listeners.iter().enumerate() {
            let transport = listener.transport.as_str().unwrap_or("?").to_ascii_lowercase();
            write!(f, "{} {transport}:{}", if i > 0 { "," } else { "" }, listener.address)?;
        }
        writeln!(f, " ({} shard{})", self.shards, if self.shards == 1 { "" } else { "s" })?;
        self.how_to_register(f)?;
        if self.is_built_in {
            write!(
                f,
                "Configuration: built in; `strowger init` writes it to strowger.cfg, `strowger run FILE` runs yours"
            )
        } else {
            write!(f, "Configuration: {}", self.loaded.name)
        }
    }
}

impl Greeting<'_> {
    fn how_to_register(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.listeners.first() else { return Ok(()) };
        let domain = admin::users::default_domain(&self.loaded.settings);
        match self.has_users {
            None => {
                writeln!(f, "Register a phone: user name as you like, domain {}, no password", first.address)
            }
            Some(true) => writeln!(
                f,
                "Register a phone: a user of `strowger user list` and the password, domain {domain}, server {}",
                first.address
            ),
            Some(false) if self.is_built_in => writeln!(
                f,
                "No users yet: phones on this machine register at {} without a password until `strowger user add NAME` \
                 adds the first",
                first.address
            ),
            Some(false) => writeln!(
                f,
                "No users yet: `strowger user add NAME` adds one, who then registers a phone at {} with domain {domain}",
                first.address
            ),
        }
    }
}
