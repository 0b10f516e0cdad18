//! The TLS grid of the 2009 paper: what each way of connecting costs a server, and a model that adds the costs
//! up.
//!
//! Four modes say who connects anew for every call (paper, figure 3), five securities what a connection is.
//! Each of the twenty configurations is measured as CPU time per call, the slope over several rates; [`model`]
//! takes components out of fifteen of them and predicts the `local` ones, which it has not seen. [`paper`] has
//! what was measured in 2009.
//!
//! "C. Shen, E. Nahum, H. Schulzrinne, C. P. Wright: The Impact of TLS on SIP Server Performance", Columbia
//! University technical report CUCS-022-09.

pub mod files;
pub mod model;
pub mod paper;
pub mod report;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which side connects anew for every call (paper, section II-C).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Neither: one connection on each side, as between proxies.
    Chain,
    /// The callers: the server accepts a connection for every call.
    Outbound,
    /// The server, towards the callees.
    Inbound,
    /// Both.
    Local,
}

/// What the connections are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Security {
    /// No connections at all.
    Udp,
    /// TCP.
    Tcp,
    /// TLS with a full handshake, in which only servers show a certificate.
    Tls,
    /// TLS with a full handshake, in which both sides show one.
    TlsMutual,
    /// TLS that resumes an earlier session.
    TlsReuse,
}

/// One of the twenty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Configuration {
    /// Who connects anew.
    pub mode: Mode,
    /// What the connections are.
    pub security: Security,
}

impl Mode {
    /// All, in the paper's order.
    pub const ALL: [Mode; 4] = [Mode::Chain, Mode::Outbound, Mode::Inbound, Mode::Local];

    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Mode::Chain => "chain",
            Mode::Outbound => "outbound",
            Mode::Inbound => "inbound",
            Mode::Local => "local",
        }
    }

    /// Whether every call comes in by a connection of its own (the model's L).
    #[must_use]
    pub fn callers_connect(self) -> bool {
        matches!(self, Mode::Outbound | Mode::Local)
    }

    /// Whether the server opens a connection for every call (the model's R).
    #[must_use]
    pub fn callees_are_connected(self) -> bool {
        matches!(self, Mode::Inbound | Mode::Local)
    }
}

impl Security {
    /// All, in the paper's order.
    pub const ALL: [Security; 5] =
        [Security::Udp, Security::Tcp, Security::Tls, Security::TlsMutual, Security::TlsReuse];

    /// Those with a TLS handshake.
    pub const TLS: [Security; 3] = [Security::Tls, Security::TlsMutual, Security::TlsReuse];

    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Security::Udp => "udp",
            Security::Tcp => "tcp",
            Security::Tls => "tls",
            Security::TlsMutual => "tls-mutual",
            Security::TlsReuse => "tls-reuse",
        }
    }

    /// Whether it is TLS.
    #[must_use]
    pub fn is_tls(self) -> bool {
        Security::TLS.contains(&self)
    }
}

impl Configuration {
    /// All twenty: mode by mode.
    #[must_use]
    pub fn all() -> Vec<Configuration> {
        let of = |mode| Security::ALL.into_iter().map(move |security| Configuration { mode, security });
        Mode::ALL.into_iter().flat_map(of).collect()
    }

    /// `local-tls-mutual`.
    #[must_use]
    pub fn id(self) -> String {
        format!("{}-{}", self.mode.word(), self.security.word())
    }

    /// The configuration of an id.
    #[must_use]
    pub fn of_id(id: &str) -> Option<Configuration> {
        Configuration::all().into_iter().find(|configuration| configuration.id() == id)
    }

    /// The configurations of a list: ids, modes, securities, `all`, with commas between them; in the grid's
    /// order, each once.
    ///
    /// # Errors
    /// A word that names none.
    pub fn list(text: &str) -> Result<Vec<Configuration>, String> {
        let all = Configuration::all();
        let mut wanted = vec![false; all.len()];
        for word in text.split(',').map(str::trim) {
            let names = |one: &Configuration| {
                word == "all" || one.id() == word || one.mode.word() == word || one.security.word() == word
            };
            if !all.iter().any(names) {
                return Err(format!(
                    "{word:?} is no part of the grid: name modes (chain, outbound, inbound, local), securities (udp, tcp, \
                     tls, tls-mutual, tls-reuse), both as in local-tls, or all"
                ));
            }
            all.iter().zip(&mut wanted).filter(|(one, _)| names(one)).for_each(|(_, wanted)| *wanted = true);
        }
        Ok(all.into_iter().zip(wanted).filter_map(|(one, wanted)| wanted.then_some(one)).collect())
    }

    /// Which handshakes a call of it brings: server side (from callers), client side (towards callees).
    #[must_use]
    pub fn handshakes_per_call(self) -> (u32, u32) {
        if !self.security.is_tls() {
            return (0, 0);
        }
        (u32::from(self.mode.callers_connect()), u32::from(self.mode.callees_are_connected()))
    }
}

impl std::fmt::Display for Configuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_twenty_configurations_with_different_ids() {
        let ids: std::collections::BTreeSet<String> =
            Configuration::all().into_iter().map(Configuration::id).collect();
        assert_eq!(ids.len(), 20);
        assert!(ids.iter().all(|id| Configuration::of_id(id).is_some_and(|one| one.id() == *id)));
        assert_eq!(Configuration::of_id("chain"), None);
    }

    #[test]
    fn lists_name_modes_securities_and_both() {
        let ids = |text: &str| {
            Configuration::list(text).map(|list| list.into_iter().map(Configuration::id).collect::<Vec<_>>())
        };
        assert_eq!(ids("all").unwrap().len(), 20);
        assert_eq!(ids("local").unwrap().len(), 5);
        assert_eq!(ids("udp,tcp").unwrap().len(), 8);
        assert_eq!(ids("tls").unwrap(), ["chain-tls", "outbound-tls", "inbound-tls", "local-tls"]);
        assert_eq!(ids("local-tls, chain-udp,chain-udp").unwrap(), ["chain-udp", "local-tls"]);
        assert!(ids("local-dtls").unwrap_err().contains("local-dtls"));
        assert!(ids("").is_err());
    }

    #[test]
    fn handshakes_come_with_connections_of_every_call() {
        let of = |id: &str| Configuration::of_id(id).unwrap().handshakes_per_call();
        assert_eq!(of("chain-tls"), (0, 0));
        assert_eq!(of("outbound-tls-reuse"), (1, 0));
        assert_eq!(of("inbound-tls"), (0, 1));
        assert_eq!(of("local-tls-mutual"), (1, 1));
        assert_eq!(of("local-tcp"), (0, 0));
    }
}
