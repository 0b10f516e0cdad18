//! Databases that a configuration names: `db_url` of the modules that have one.

use alloc::string::String;
use alloc::vec::Vec;

/// A database's URL, which may hold a password: it is never written to a log.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(pub String);

impl core::fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let scheme = self.0.split_once(':').map_or("?", |(scheme, _)| scheme);
        write!(f, "DatabaseUrl({scheme}:..)")
    }
}

/// A table that a configuration needs, to be checked when the server starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableNeeded {
    /// The database, by its place among [`Settings::databases`](crate::Settings::databases).
    pub database: u16,
    /// The table's name in the configuration.
    pub table: String,
    /// Kamailio's name for tables of its kind: `location`, `subscriber`, `domain`, …
    pub kind: &'static str,
    /// Columns that the configuration names otherwise: (Kamailio's name, the name here).
    pub columns: Vec<(&'static str, String)>,
}
