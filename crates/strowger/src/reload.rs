//! What a running server reads again when it is told to, by SIGHUP or over its control socket: certificates, and tables
//! that it holds in memory as a whole. Everything else is read at start, or row by row.

use std::fmt::Display;
use std::sync::Arc;

use modules::Settings;

use crate::databases::Databases;
use crate::services::Shared;
use crate::tls::InUse;

/// Who can do it.
#[derive(Clone)]
pub(crate) struct Reload {
    pub(crate) settings: Arc<Settings>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) databases: Arc<Databases>,
    /// `None` if no listener needs it.
    pub(crate) tls: Option<Arc<InUse>>,
}

/// One thing that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    /// `domains`, `addresses` or `certificates`.
    pub(crate) what: &'static str,
    /// Tables or files.
    pub(crate) from: Vec<String>,
    /// How many entries.
    pub(crate) count: usize,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub(crate) read: Vec<Read>,
    /// A sentence for each that failed; what was in use before stays.
    pub(crate) wrong: Vec<String>,
}

impl Reload {
    /// Reads everything again. `by` is who asked, for the log.
    pub(crate) fn again(&self, by: &str) -> Reading {
        let mut reading = Reading::default();
        match self.tls.as_ref().map(|tls| (tls, tls.reload())) {
            None => tracing::info!("{by}: TLS is not in use, there are no certificates to read again"),
            Some((tls, Ok((servers, clients)))) => {
                tracing::info!(
                    "{by}: certificates read again ({servers} server and {clients} client profiles); \
                     open connections keep the old ones"
                );
                let from = vec![tls.origin().to_owned()];
                reading.read.push(Read { what: "certificates", from, count: servers + clients });
            }
            Some((_, Err(why))) => log_error(by, &mut reading, &why, "the old certificates stay in use"),
        }
        let tables = self.databases.read_tables(&self.settings, &self.shared);
        for Read { what, from, count } in &tables.read {
            tracing::info!("{by}: {what} read again ({count}) from {}", from.join(", "));
        }
        tables.wrong.iter().for_each(|line| tracing::error!("{by}: {line}"));
        reading.read.extend(tables.read);
        reading.wrong.extend(tables.wrong);
        reading
    }
}

fn log_error(by: &str, reading: &mut Reading, why: &dyn Display, what_stays: &str) {
    let line = format!("{why}; {what_stays}");
    tracing::error!("{by}: {line}");
    reading.wrong.push(line);
}
