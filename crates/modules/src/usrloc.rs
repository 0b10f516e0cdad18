//! `usrloc`: how the location service keeps its bindings, and how they outlive the process. It has parameters only.

use crate::database::TableNeeded;
use crate::settings::Reader;
use crate::table::{Module, harmless_parameter, int_parameter, refused_parameter, str_parameter};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;
use route::{Constant, ParameterDecl};

pub(crate) static MODULE: Module = Module {
    name: "usrloc",
    doc: "The location service: where users are. Bindings are kept in memory; `db_mode` says how they outlive the process.",
    functions: &[],
    parameters: PARAMETERS,
    variables: &[],
};

/// The table that is there whatever the script names.
const MAIN_TABLE: &str = "location";
/// Functions of `registrar` whose first argument is a table.
const TABLE_FUNCTIONS: [&str; 6] =
    ["save", "lookup", "lookup_to_dset", "lookup_branches", "registered", "unregister"];
/// The longest name of a table or column that every database takes (bytes): PostgreSQL's bound.
const NAME_BYTES_MAX: usize = 63;

const NO_PINGS: &str = "contacts are not pinged yet.";
const NO_TCP: &str =
    "a contact whose connection is gone is tried, fails at once, and stays until it expires.";
const BY_KEY: &str =
    "a row is inserted, or replaced by its key: it makes no difference whether it was there.";
const IN_PASSING: &str = "rows that have expired are deleted as their bindings are.";

static PARAMETERS: &[ParameterDecl] = &[
    int_parameter(
        "db_mode",
        (0, 3),
        0,
        "",
        "How bindings outlive the process: not at all (0); a REGISTER is answered when the database has it (1, write-through); the database follows by at most `flush_interval` (2, write-back); as 1, and every `save`, `lookup` and `registered` reads the database first, which others write, too (3). 1 to 3 need `db_url`.",
    ),
    str_parameter(
        "db_url",
        "",
        "The database of `db_mode` 1 to 3: `sqlite:FILE`, `postgres://USER:PASSWORD@HOST/NAME` or `mysql://USER:PASSWORD@HOST/NAME`. There is no default.",
    ),
    int_parameter(
        "flush_interval",
        (1, 3_600_000),
        1_000,
        "ms",
        "How far the database may be behind in `db_mode` 2: what a crash can lose. Where `timer_interval` is shorter, that counts. A parameter of Strowger's own.",
    ),
    int_parameter(
        "commit_timeout",
        (10, 30_000),
        2_000,
        "ms",
        "How long a REGISTER waits for its commit in `db_mode` 1 and 3, and `lookup` for the database in 3; past it the REGISTER is undone and answered 503. A parameter of Strowger's own.",
    ),
    int_parameter(
        "use_domain",
        (0, 1),
        0,
        "",
        "Whether an address-of-record is user and domain (1), or the user alone (0).",
    ),
    int_parameter(
        "timer_interval",
        (1, 3_600),
        60,
        "s",
        "How often expired bindings are removed, at most (they are never returned, whenever that is), and a bound of `flush_interval`.",
    ),
    str_parameter(
        "preload",
        "",
        "A table that is loaded at start though no function of the script names it; may be set several times.",
    ),
    str_parameter("user_column", "username", "The column that holds the user of the address-of-record."),
    str_parameter("domain_column", "domain", "The column that holds its domain."),
    str_parameter("contact_column", "contact", "The column that holds the contact's URI."),
    str_parameter("expires_column", "expires", "The column that holds when the binding expires."),
    str_parameter("q_column", "q", "The column that holds the preference."),
    str_parameter("callid_column", "callid", "The column that holds the Call-ID of the last REGISTER."),
    str_parameter("cseq_column", "cseq", "The column that holds its CSeq number."),
    str_parameter("methods_column", "methods", "The column that holds the methods that the contact takes."),
    str_parameter("flags_column", "flags", "The column that holds the flags of the record."),
    str_parameter("cflags_column", "cflags", "The column that holds the flags of the contact."),
    str_parameter("user_agent_column", "user_agent", "The column that holds the User-Agent."),
    str_parameter("received_column", "received", "The column that holds where the REGISTER came from."),
    str_parameter("socket_column", "socket", "The column that holds the listener that it came by."),
    str_parameter("path_column", "path", "The column that holds the Path."),
    str_parameter("ruid_column", "ruid", "The column that holds the record's unique id."),
    str_parameter("instance_column", "instance", "The column that holds the `+sip.instance`."),
    str_parameter("reg_id_column", "reg_id", "The column that holds the `reg-id`."),
    str_parameter("server_id_column", "server_id", "The column that holds the server that wrote the row."),
    str_parameter(
        "connection_id_column",
        "connection_id",
        "The column that holds the connection that the REGISTER came by.",
    ),
    str_parameter("keepalive_column", "keepalive", "The column that holds whether the contact is pinged."),
    str_parameter("partition_column", "partition", "The column that holds the partition of the pings."),
    harmless_parameter("hash_size", "the table grows with what it holds."),
    harmless_parameter("matching_mode", "contacts match by RFC 3261 section 19.1.4 and Call-ID."),
    harmless_parameter("cseq_delay", "a REGISTER that comes twice is answered twice and done once."),
    harmless_parameter(
        "desc_time_order",
        "of two contacts of the same preference the newer one comes first.",
    ),
    refused_parameter("nat_bflag", "branches have no flags yet."),
    harmless_parameter("timer_procs", "there are no worker processes."),
    harmless_parameter("handle_lost_tcp", NO_TCP),
    harmless_parameter("close_expired_tcp", NO_TCP),
    harmless_parameter(
        "skip_remote_socket",
        "a row whose listener is not one of this server's is loaded, too.",
    ),
    harmless_parameter("rm_expired_delay", "expired bindings are never returned."),
    harmless_parameter("xavp_contact", "a binding keeps no variables."),
    harmless_parameter("load_rank", "bindings are loaded before the first request is taken."),
    harmless_parameter(
        "server_id_filter",
        "a table belongs to one server (`db_mode` 1 and 2), or to all of them (3).",
    ),
    harmless_parameter("version_table", "the version is looked at where there is a table of versions."),
    harmless_parameter("db_load", "what the database holds is always loaded."),
    harmless_parameter("db_insert_update", BY_KEY),
    harmless_parameter("db_update_as_insert", BY_KEY),
    harmless_parameter("db_check_update", BY_KEY),
    harmless_parameter("db_ops_ruid", BY_KEY),
    harmless_parameter("fetch_rows", "rows are taken as they come, however many there are."),
    refused_parameter(
        "expires_type",
        "times are columns of the type DATETIME or TIMESTAMP, as in the tables that come with Kamailio.",
    ),
    harmless_parameter("db_raw_fetch_type", "contacts are never fetched for pings."),
    harmless_parameter("db_insert_null", "every column is written."),
    harmless_parameter("db_timer_clean", IN_PASSING),
    harmless_parameter("db_clean_tcp", IN_PASSING),
    refused_parameter("ka_mode", NO_PINGS),
    harmless_parameter("ka_method", NO_PINGS),
    harmless_parameter("ka_from", NO_PINGS),
    harmless_parameter("ka_domain", NO_PINGS),
    harmless_parameter("ka_filter", NO_PINGS),
    harmless_parameter("ka_timeout", NO_PINGS),
    harmless_parameter("ka_loglevel", NO_PINGS),
    harmless_parameter("ka_logmsg", NO_PINGS),
];

/// How bindings are kept (`db_mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DbMode {
    /// In memory alone: they end with the process.
    #[default]
    Memory,
    /// The 200 leaves after the commit.
    WriteThrough,
    /// The database follows at most one flush interval behind.
    WriteBack,
    /// As write-through, and every look-up asks the database first, which others write, too.
    DatabaseOnly,
}

/// How bindings outlive the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PersistenceSettings {
    /// The mode.
    pub mode: DbMode,
    /// The database, by its place among [`Settings::databases`](crate::Settings::databases); none in memory mode.
    pub database: Option<u16>,
    /// How far the database may be behind (write-back).
    pub flush_interval: Duration,
    /// How long a REGISTER waits for its commit, and a look-up for the database, before it is answered 503.
    pub commit_timeout: Duration,
    /// The tables that scripts name in `save` and `lookup`, each once, `location` first: the databases must have them.
    pub tables: Vec<String>,
    /// Columns that are called otherwise than Kamailio calls them: its name, and that of these tables.
    pub columns: Vec<(&'static str, String)>,
}

impl PersistenceSettings {
    /// The tables that the database must have.
    pub(crate) fn tables_needed(&self) -> Vec<TableNeeded> {
        let Some(database) = self.database else { return Vec::new() };
        let needed = |table: &String| TableNeeded {
            database,
            table: table.clone(),
            kind: MAIN_TABLE,
            columns: self.columns.clone(),
        };
        self.tables.iter().map(needed).collect()
    }
}

pub(crate) fn read(reader: &mut Reader<'_>) -> PersistenceSettings {
    let mode = match reader.int("usrloc", "db_mode") {
        1 => DbMode::WriteThrough,
        2 => DbMode::WriteBack,
        3 => DbMode::DatabaseOnly,
        _ => DbMode::Memory,
    };
    let millis = |name: &str| Duration::from_millis(reader.unsigned("usrloc", name).into());
    let timer_interval = Duration::from_secs(reader.unsigned("usrloc", "timer_interval").into());
    let flush_interval = millis("flush_interval").min(timer_interval);
    let commit_timeout = millis("commit_timeout");
    // Without a database that is used, none is opened.
    let database = if mode == DbMode::Memory { None } else { reader.database("usrloc", "db_url") };
    if mode != DbMode::Memory && database.is_none() {
        let span = reader.place("usrloc", "db_mode").unwrap_or_default();
        reader.error(
            span,
            "no-database",
            "there is no database to keep bindings in".to_owned(),
            "add: modparam(\"usrloc\", \"db_url\", \"sqlite:/var/lib/strowger/strowger.db\"), or the URL of a PostgreSQL or MariaDB database",
        );
    }
    let tables = tables(reader, mode);
    let columns = columns(reader);
    PersistenceSettings { mode, database, flush_interval, commit_timeout, tables, columns }
}

/// `location`, and what functions and `preload` name.
fn tables(reader: &mut Reader<'_>, mode: DbMode) -> Vec<String> {
    let (program, catalogue) = (reader.program, &reader.catalogue);
    let is_preload = |set: &&route::ModParam| {
        catalogue.module_name(set.module) == "usrloc"
            && catalogue.parameter(set.id).is_some_and(|decl| decl.name == "preload")
    };
    let preloaded = program.modparams().iter().filter(is_preload).filter_map(|set| match &set.value {
        Constant::Str(text) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    });
    let mut names: Vec<String> = [MAIN_TABLE.to_owned()].into();
    for name in reader.called_texts(&TABLE_FUNCTIONS, 0).into_iter().chain(preloaded) {
        if !name.is_empty() && names.iter().all(|known| *known != name) {
            names.push(name);
        }
    }
    if mode != DbMode::Memory
        && let Some(name) = names.iter().find(|name| !is_name(name))
    {
        let message = format!("`{name}` cannot be a table of the database");
        let span = reader.place("usrloc", "db_mode").unwrap_or_default();
        reader.error(
            span,
            "bad-table",
            message,
            "tables in `save` and `lookup` are named by letters, digits and `_`",
        );
    }
    names
}

/// The columns that the file calls otherwise.
fn columns(reader: &mut Reader<'_>) -> Vec<(&'static str, String)> {
    let mut columns = Vec::new();
    for decl in PARAMETERS.iter().filter(|decl| decl.name.ends_with("_column")) {
        let route::DefaultValue::Str(own) = decl.default else { continue };
        let name = reader.text("usrloc", decl.name);
        if !is_name(&name) {
            let span = reader.place("usrloc", decl.name).unwrap_or_default();
            let message = format!("`{name}` cannot be a column");
            reader.error(span, "bad-column", message, "letters, digits and `_`, at most 63 of them");
        } else if name != own {
            columns.push((own, name.to_string()));
        }
    }
    columns
}

/// Whether a text can stand in a query as a name.
fn is_name(text: &str) -> bool {
    let starts = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    starts
        && text.len() <= NAME_BYTES_MAX
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
