//! Kamailio's tables as data: columns, versions, and the statements that make them in each database.
//!
//! Names, types and versions are those of Kamailio 5.6 (and have been for years before), so either program
//! works on the tables of the other. Ours differ where nothing of Kamailio's depends on it: fewer indices;
//! nullable columns for two more digests in `subscriber`; fractions of a second in MariaDB's `location`. Only
//! SQLite's `location` is of our own kind: its times are integers, microseconds since 1970, since Kamailio's
//! (days as floating-point numbers) are exact to 40 microseconds only. Its version says so, and Kamailio
//! refuses it instead of misreading it.

use crate::session::Dialect;

/// Version of a `location` whose times are integers: Kamailio's 9 and a thousand.
pub(crate) const OWN_LOCATION_VERSION: u32 = 1009;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The row's number.
    Id,
    /// A text of so many characters.
    Text(u16),
    /// A signed number of 32 bits.
    Int,
    /// A floating-point number.
    Real,
    /// A local time.
    Time,
    /// Bytes of any number.
    Bytes,
}

/// Whether a table of somebody else may lack a column, and whether NULL is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Never NULL.
    Full,
    /// May be NULL.
    Nullable,
    /// Never NULL where it is, but it need not be there.
    Optional,
    /// Ours: nullable, and need not be there.
    Extra,
}

use Kind::{Bytes, Id, Int, Real, Text, Time};
use Presence::{Extra, Full, Nullable, Optional};

/// A column: name, what it holds, whether it must be there, and its default, as SQL says it; empty for none.
pub(crate) struct ColumnSpec(pub(crate) &'static str, pub(crate) Kind, pub(crate) Presence, &'static str);

/// A kind of table.
pub(crate) struct TableSpec {
    /// Kamailio's name.
    pub(crate) name: &'static str,
    /// Kamailio's version.
    pub(crate) version: u32,
    /// Its columns, in order.
    pub(crate) columns: &'static [ColumnSpec],
    /// What is unique; empty for nothing.
    unique: &'static [&'static str],
    /// Columns of one more index; empty for none.
    index: &'static [&'static str],
}

const EMPTY: &str = "''";
const LONG_AGO: &str = "'2000-01-01 00:00:01'";

/// All kinds of tables that are made; `version` first.
pub(crate) const TABLES: &[TableSpec] = &[
    TableSpec {
        name: "version",
        version: 1,
        columns: &[
            ColumnSpec("id", Id, Full, ""),
            ColumnSpec("table_name", Text(32), Full, ""),
            ColumnSpec("table_version", Int, Full, "0"),
        ],
        unique: &["table_name"],
        index: &[],
    },
    TableSpec {
        name: "location",
        version: 9,
        columns: &[
            ColumnSpec("id", Id, Full, ""),
            ColumnSpec("ruid", Text(64), Full, EMPTY),
            ColumnSpec("username", Text(64), Full, EMPTY),
            ColumnSpec("domain", Text(64), Nullable, ""),
            ColumnSpec("contact", Text(512), Full, EMPTY),
            ColumnSpec("received", Text(255), Nullable, ""),
            ColumnSpec("path", Text(512), Nullable, ""),
            ColumnSpec("expires", Time, Full, LONG_AGO),
            ColumnSpec("q", Real, Full, "1.0"),
            ColumnSpec("callid", Text(255), Full, EMPTY),
            ColumnSpec("cseq", Int, Full, "1"),
            ColumnSpec("last_modified", Time, Full, LONG_AGO),
            ColumnSpec("flags", Int, Full, "0"),
            ColumnSpec("cflags", Int, Full, "0"),
            ColumnSpec("user_agent", Text(255), Full, EMPTY),
            ColumnSpec("socket", Text(64), Nullable, ""),
            ColumnSpec("methods", Int, Nullable, ""),
            ColumnSpec("instance", Text(255), Nullable, ""),
            ColumnSpec("reg_id", Int, Full, "0"),
            ColumnSpec("server_id", Int, Optional, "0"),
            ColumnSpec("connection_id", Int, Optional, "0"),
            ColumnSpec("keepalive", Int, Optional, "0"),
            ColumnSpec("partition", Int, Optional, "0"),
        ],
        unique: &["ruid"],
        index: &["username"],
    },
    TableSpec {
        name: "subscriber",
        version: 7,
        columns: &[
            ColumnSpec("id", Id, Full, ""),
            ColumnSpec("username", Text(64), Full, EMPTY),
            ColumnSpec("domain", Text(64), Full, EMPTY),
            ColumnSpec("password", Text(64), Full, EMPTY),
            ColumnSpec("ha1", Text(128), Full, EMPTY),
            ColumnSpec("ha1b", Text(128), Full, EMPTY),
            ColumnSpec("ha1_sha256", Text(128), Extra, ""),
            ColumnSpec("ha1_sha512_256", Text(128), Extra, ""),
        ],
        unique: &["username", "domain"],
        index: &[],
    },
    TableSpec {
        name: "domain",
        version: 2,
        columns: &[
            ColumnSpec("id", Id, Full, ""),
            ColumnSpec("domain", Text(64), Full, ""),
            ColumnSpec("did", Text(64), Nullable, ""),
            ColumnSpec("last_modified", Time, Optional, LONG_AGO),
        ],
        unique: &["domain"],
        index: &[],
    },
    TableSpec {
        name: "domain_attrs",
        version: 1,
        columns: &[
            ColumnSpec("id", Id, Full, ""),
            ColumnSpec("did", Text(64), Full, ""),
            ColumnSpec("name", Text(32), Full, ""),
            ColumnSpec("type", Int, Full, ""),
            ColumnSpec("value", Text(255), Full, ""),
            ColumnSpec("last_modified", Time, Optional, LONG_AGO),
        ],
        unique: &[],
        index: &["did"],
    },
    TableSpec {
        name: "address",
        version: 6,
        columns: &[
            ColumnSpec("id", Id, Full, ""),
            ColumnSpec("grp", Int, Full, "1"),
            ColumnSpec("ip_addr", Text(50), Full, ""),
            ColumnSpec("mask", Int, Full, "32"),
            ColumnSpec("port", Int, Full, "0"),
            ColumnSpec("tag", Text(64), Nullable, ""),
        ],
        unique: &[],
        index: &[],
    },
    TableSpec {
        name: "trusted",
        version: 6,
        columns: &[
            ColumnSpec("id", Id, Full, ""),
            ColumnSpec("src_ip", Text(50), Full, ""),
            ColumnSpec("proto", Text(4), Full, ""),
            ColumnSpec("from_pattern", Text(64), Nullable, ""),
            ColumnSpec("ruri_pattern", Text(64), Nullable, ""),
            ColumnSpec("tag", Text(64), Nullable, ""),
            ColumnSpec("priority", Int, Optional, "0"),
        ],
        unique: &[],
        index: &["src_ip"],
    },
    TableSpec {
        name: "dbaliases",
        version: 1,
        columns: &[
            ColumnSpec("id", Id, Full, ""),
            ColumnSpec("alias_username", Text(64), Full, EMPTY),
            ColumnSpec("alias_domain", Text(64), Full, EMPTY),
            ColumnSpec("username", Text(64), Full, EMPTY),
            ColumnSpec("domain", Text(64), Full, EMPTY),
        ],
        unique: &[],
        index: &["alias_username", "alias_domain"],
    },
    TableSpec {
        name: "uri",
        version: 1,
        columns: &[
            ColumnSpec("id", Id, Full, ""),
            ColumnSpec("username", Text(64), Full, EMPTY),
            ColumnSpec("domain", Text(64), Full, EMPTY),
            ColumnSpec("uri_user", Text(64), Full, EMPTY),
            ColumnSpec("last_modified", Time, Optional, LONG_AGO),
        ],
        unique: &["username", "domain", "uri_user"],
        index: &[],
    },
    // Ours: see `journal`.
    TableSpec {
        name: crate::journal::TABLE,
        version: 1,
        columns: &[
            ColumnSpec("id", Id, Full, ""),
            ColumnSpec("table_name", Text(64), Full, ""),
            ColumnSpec("generation", Int, Full, ""),
            ColumnSpec("changes", Bytes, Full, ""),
        ],
        unique: &[],
        index: &[],
    },
];

/// The kind with Kamailio's name `name`.
pub(crate) fn table(name: &str) -> Option<&'static TableSpec> {
    TABLES.iter().find(|table| table.name == name)
}

impl TableSpec {
    /// The version of a table that we make.
    pub(crate) fn own_version(&self, dialect: Dialect) -> u32 {
        if self.name == "location" && dialect == Dialect::Sqlite {
            OWN_LOCATION_VERSION
        } else {
            self.version
        }
    }

    /// Whether a table of this version is worth looking at its columns.
    pub(crate) fn accepts(&self, version: u32, dialect: Dialect) -> bool {
        version.abs_diff(self.version) <= 1 || version == self.own_version(dialect)
    }

    /// The statements that make a table of this kind; `column` gives each its name.
    pub(crate) fn statements(
        &self,
        dialect: Dialect,
        name: &str,
        column: &dyn Fn(&'static str) -> String,
    ) -> Vec<String> {
        let table = dialect.quote(name);
        let list = |columns: &[&'static str]| {
            let quoted: Vec<String> = columns.iter().map(|one| dialect.quote(&column(one))).collect();
            quoted.join(", ")
        };
        let mut parts: Vec<String> =
            self.columns.iter().map(|spec| column_sql(spec, dialect, self.name, &column(spec.0))).collect();
        if !self.unique.is_empty() {
            parts.push(format!("UNIQUE ({})", list(self.unique)));
        }
        let mut statements =
            vec![format!("CREATE TABLE {table} ({}){}", parts.join(", "), options(dialect, self.name))];
        if !self.index.is_empty() {
            let index = dialect.quote(&format!("strowger_{name}_idx"));
            statements.push(format!("CREATE INDEX {index} ON {table} ({})", list(self.index)));
        }
        // Trying to compress pages would cost more than writing them.
        if dialect == Dialect::Postgres {
            for spec in self.columns.iter().filter(|spec| spec.1 == Bytes) {
                let column = dialect.quote(&column(spec.0));
                statements.push(format!("ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE EXTERNAL"));
            }
        }
        let version = self.own_version(dialect);
        statements.push(format!(
            "INSERT INTO {} (table_name, table_version) VALUES ('{name}', {version})",
            dialect.quote("version")
        ));
        statements
    }
}

/// Users whose names differ in case only are different ones in all three databases.
fn options(dialect: Dialect, kind: &str) -> &'static str {
    match dialect {
        Dialect::MySql => " ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin",
        // Room on each page for the next version of its rows: an update touches no index then.
        Dialect::Postgres if kind == "location" => " WITH (fillfactor = 80)",
        _ => "",
    }
}

fn column_sql(spec: &ColumnSpec, dialect: Dialect, table: &str, name: &str) -> String {
    let name = dialect.quote(name);
    let ColumnSpec(_, kind, presence, default) = spec;
    let own_time = *kind == Time && dialect == Dialect::Sqlite && table == "location";
    let kind = match (kind, dialect) {
        (Id, Dialect::Sqlite) => return format!("{name} INTEGER PRIMARY KEY NOT NULL"),
        (Id, Dialect::Postgres) => return format!("{name} BIGSERIAL PRIMARY KEY NOT NULL"),
        (Id, Dialect::MySql) => {
            return format!("{name} BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY NOT NULL");
        }
        (Text(width), _) => format!("VARCHAR({width})"),
        (Int, _) => "INTEGER".to_string(),
        (Real, Dialect::MySql) => "DOUBLE".to_string(),
        (Real, _) => "REAL".to_string(),
        (Time, _) if own_time => "INTEGER".to_string(),
        (Time, Dialect::MySql) => "DATETIME(6)".to_string(),
        (Time, _) => "TIMESTAMP".to_string(),
        (Bytes, Dialect::Sqlite) => "BLOB".to_string(),
        (Bytes, Dialect::Postgres) => "BYTEA".to_string(),
        (Bytes, Dialect::MySql) => "LONGBLOB".to_string(),
    };
    let null = if matches!(presence, Full | Optional) { " NOT NULL" } else { "" };
    let default = if own_time { "0" } else { default };
    let default = if default.is_empty() { String::new() } else { format!(" DEFAULT {default}") };
    format!("{name} {kind}{default}{null}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_statements() {
        for dialect in [Dialect::Sqlite, Dialect::Postgres, Dialect::MySql] {
            for table in TABLES {
                let statements = table.statements(dialect, table.name, &|name| name.to_string());
                assert!(statements[0].starts_with("CREATE TABLE "), "{statements:?}");
                assert!(statements.last().unwrap().starts_with("INSERT INTO "), "{statements:?}");
            }
        }
    }

    #[test]
    fn neighbouring_versions_are_looked_at_and_others_are_not() {
        let location = table("location").unwrap();
        for version in [8, 9, 10] {
            assert!(location.accepts(version, Dialect::Postgres));
        }
        assert!(!location.accepts(1004, Dialect::Postgres));
        assert!(!location.accepts(OWN_LOCATION_VERSION, Dialect::Postgres));
        assert!(location.accepts(OWN_LOCATION_VERSION, Dialect::Sqlite));
        assert!(!location.accepts(0, Dialect::Sqlite));
    }
}
