//! What `auth_db` is set to: the database, its columns, how long what was read is believed.

use super::cache::Ages;
use crate::database::TableNeeded;
use crate::settings::Reader;
use crate::table::{int_parameter, str_parameter};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;
use route::ParameterDecl;
use sip::digest::Algorithm;

/// Longest name of a table or a column, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Columns of `load_credentials`.
const LOADED_MAX: usize = 32;
/// The functions that authenticate users of a table, for the realm that is their first argument.
const NAME_REALMS: &[&str] =
    &["www_authorize", "www_authenticate", "proxy_authorize", "proxy_authenticate", "auth_check"];
/// The functions that name a table, as their second argument.
const NAME_TABLES: &[&str] = &[
    "www_authorize",
    "www_authenticate",
    "proxy_authorize",
    "proxy_authenticate",
    "auth_check",
    "is_subscriber",
];

pub(super) static PARAMETERS: &[ParameterDecl] = &[
    str_parameter(
        "db_url",
        "sqlite:",
        "The database: `sqlite:PATH` (relative to the state directory; `sqlite:` alone is the server's own file there), \
         `postgres://USER:PASSWORD@HOST/DATABASE` or `mysql://USER:PASSWORD@HOST/DATABASE`.",
    ),
    str_parameter("user_column", "username", "The column of users."),
    str_parameter("domain_column", "domain", "The column of their domains."),
    str_parameter(
        "password_column",
        "ha1",
        "The column of the secret: H(user:realm:password) in hexadecimal, by MD5 or, of 64 digits, by SHA-256; with \
         `calculate_ha1` the password itself.",
    ),
    str_parameter(
        "password_column_2",
        "ha1b",
        "The column of H(user@domain:realm:password), for phones whose user name is `user@domain`. Not used with \
         `calculate_ha1`.",
    ),
    int_parameter(
        "calculate_ha1",
        (0, 1),
        0,
        "",
        "Whether `password_column` holds passwords (1) or hashes (0). With hashes, SHA-256 and SHA-512-256 take theirs \
         from the columns `ha1_sha256` and `ha1_sha512_256`, or else from the password in `password`, as far as the table \
         has these.",
    ),
    int_parameter(
        "use_domain",
        (0, 1),
        0,
        "",
        "Whether a user is user and domain (of the credentials, or else the realm), or the user alone. With 1 \
         `auth_check` compares domains, too.",
    ),
    str_parameter(
        "load_credentials",
        "",
        "Columns whose values are put into `$avp`s once the user has been found: `$avp(x)=column;other_column`.",
    ),
    int_parameter("version_table", (0, 1), 1, "", "Whether the version of the table is checked at start."),
    int_parameter(
        "cache_size",
        (0, 4_000_000),
        65_536,
        "users",
        "Ours: users that each shard remembers with their secrets. 0: the database is asked each time. A full memory \
         gives up what was not used lately.",
    ),
    int_parameter(
        "cache_age",
        (0, 86_400),
        600,
        "s",
        "Ours: how long a user is remembered. A password that does not fit is looked up again before it is called wrong, so \
         that a new one works at once; one that was taken away works until then.",
    ),
    int_parameter(
        "cache_unknown_age",
        (0, 86_400),
        10,
        "s",
        "Ours: how long it is remembered that there is no such user. Credentials that are not right are not refused by what is older than a second: it is read again.",
    ),
    int_parameter(
        "query_timeout",
        (1, 60_000),
        2_000,
        "ms",
        "Ours: how long the database may take. Past it the request is answered 503 with Retry-After.",
    ),
    int_parameter(
        "retry_after",
        (1, 86_400),
        5,
        "s",
        "Ours: the Retry-After where the database does not answer.",
    ),
    int_parameter(
        "open_until_first_user",
        (0, 1),
        0,
        "",
        "Ours: while the table has no user at all, requests that come from or to a loopback address pass without credentials, and \
         all others are answered 403. The first user ends that, until the server is started anew on an empty table.",
    ),
];

/// What `auth_db` is set to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthDbSettings {
    /// The database, by its place among [`Settings::databases`](crate::Settings::databases); none if the module is
    /// not loaded.
    pub database: Option<u16>,
    /// Whether the version of the tables is checked at start.
    pub version_check: bool,
    /// Users that each shard remembers.
    pub cache_max: usize,
    pub(crate) user_column: Arc<str>,
    pub(crate) domain_column: Arc<str>,
    pub(crate) calculate_ha1: bool,
    pub(crate) use_domain: bool,
    /// The columns that are asked for: the secret, what is loaded, and behind them those that a table may lack.
    pub(crate) columns: Arc<[Arc<str>]>,
    /// The same without those that a table may lack.
    pub(crate) certain: Arc<[Arc<str>]>,
    pub(crate) places: Places,
    /// Names of `$avp`s and the places of their columns.
    pub(crate) loaded: Vec<(Box<[u8]>, usize)>,
    pub(crate) tables: Vec<Arc<str>>,
    pub(crate) ages: Ages,
    pub(crate) query_timeout: Duration,
    pub(crate) retry_after_secs: u32,
    pub(crate) open_until_first_user: bool,
    /// The realm, where the script names one and no other: what `strowger user add` makes hashes for.
    pub realm: Option<String>,
    needed_columns: Vec<(&'static str, String)>,
}

/// Where the secrets are among the columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// `user_column`.
    pub(crate) user: usize,
    /// `password_column`.
    pub(crate) password: usize,
    /// `password_column_2`.
    pub(crate) password_2: Option<usize>,
    /// `ha1_sha256`.
    pub(crate) sha256: Option<usize>,
    /// `ha1_sha512_256`.
    pub(crate) sha512_256: Option<usize>,
    /// `password`, beside hashes.
    pub(crate) clear: Option<usize>,
}

impl AuthDbSettings {
    /// The tables of users, for the check at start.
    pub(crate) fn tables_needed(&self) -> Vec<TableNeeded> {
        let Some(database) = self.database else { return Vec::new() };
        let needed = |table: &Arc<str>| TableNeeded {
            database,
            table: table.to_string(),
            kind: "subscriber",
            columns: self.needed_columns.clone(),
        };
        self.tables.iter().map(needed).collect()
    }

    /// The table of this name; `None` if it can be none.
    pub(crate) fn table(&self, name: &[u8]) -> Option<Arc<str>> {
        if let Some(known) = self.tables.iter().find(|table| table.as_bytes() == name) {
            return Some(known.clone());
        }
        core::str::from_utf8(name).ok().filter(|name| is_name(name)).map(Arc::from)
    }
}

/// Whether a text can name a table or a column.
fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(fits)
}

/// Columns under collection: each once.
#[derive(Default)]
struct Columns(Vec<Arc<str>>);

impl Columns {
    fn place(&mut self, name: &str) -> usize {
        self.0.iter().position(|known| **known == *name).unwrap_or_else(|| {
            self.0.push(name.into());
            self.0.len() - 1
        })
    }
}

/// What the configuration says; `algorithms` are those that `auth` offers.
pub(crate) fn read(reader: &mut Reader<'_>, algorithms: &[Algorithm]) -> AuthDbSettings {
    if !reader.loads("auth_db") {
        return AuthDbSettings::default();
    }
    let calculate_ha1 = reader.int("auth_db", "calculate_ha1") != 0;
    let user_column = column(reader, "user_column");
    let domain_column = column(reader, "domain_column");
    let password_column = column(reader, "password_column");
    let password_column_2 = column(reader, "password_column_2");
    let mut columns = Columns::default();
    let mut places = Places { password: columns.place(&password_column), ..Places::default() };
    if !calculate_ha1 {
        places.password_2 = Some(columns.place(&password_column_2));
    }
    places.user = columns.place(&user_column);
    let loaded = loaded(reader, &mut columns);
    let certain: Arc<[Arc<str>]> = columns.0.as_slice().into();
    let stronger = |algorithm| !calculate_ha1 && algorithms.contains(&algorithm);
    places.sha256 = stronger(Algorithm::Sha256).then(|| columns.place("ha1_sha256"));
    places.sha512_256 = stronger(Algorithm::Sha512_256).then(|| columns.place("ha1_sha512_256"));
    if places.sha256.is_some() || places.sha512_256.is_some() {
        places.clear = Some(columns.place("password"));
    }
    if reader.text("auth_db", "db_url").is_empty() {
        let span = reader.place("auth_db", "db_url").unwrap_or_default();
        reader.error(
            span,
            "no-database",
            "users are in a database".to_owned(),
            "write \"sqlite:\" for the server's own",
        );
    }
    let tables = tables(reader);
    let secs = |reader: &Reader<'_>, name: &str| Duration::from_secs(reader.unsigned("auth_db", name).into());
    let ages = match reader.int("auth_db", "cache_size") {
        0 => Ages::default(),
        _ => Ages { known: secs(reader, "cache_age"), unknown: secs(reader, "cache_unknown_age") },
    };
    AuthDbSettings {
        database: reader.database("auth_db", "db_url"),
        version_check: reader.int("auth_db", "version_table") != 0,
        cache_max: reader.unsigned("auth_db", "cache_size") as usize,
        realm: realm(reader),
        needed_columns: needed(
            &user_column,
            &domain_column,
            &password_column,
            &password_column_2,
            calculate_ha1,
        ),
        user_column: user_column.into(),
        domain_column: domain_column.into(),
        calculate_ha1,
        use_domain: reader.int("auth_db", "use_domain") != 0,
        columns: columns.0.into(),
        certain,
        places,
        loaded,
        tables,
        ages,
        query_timeout: Duration::from_millis(reader.unsigned("auth_db", "query_timeout").into()),
        retry_after_secs: reader.unsigned("auth_db", "retry_after"),
        open_until_first_user: reader.int("auth_db", "open_until_first_user") != 0,
    }
}

/// The one realm that the script's functions name, without `realm_prefix`.
fn realm(reader: &Reader<'_>) -> Option<String> {
    let realms = reader.called_texts(NAME_REALMS, 0);
    let [realm] = realms.as_slice() else { return None };
    let prefix = reader.text("auth", "realm_prefix");
    let realm = realm.strip_prefix(prefix.as_str()).unwrap_or(realm);
    (!realm.is_empty() && !realm.contains('$')).then(|| realm.to_owned())
}

/// The columns whose names are not Kamailio's. One that is named as another usually is (`password_column` is `ha1` also where
/// passwords are stored) changes places with it, so that no table would have two columns of one name.
fn needed(
    user: &str,
    domain: &str,
    secret: &str,
    secret_2: &str,
    clear: bool,
) -> Vec<(&'static str, String)> {
    let mut pairs = [("username", user), ("domain", domain), ("ha1", secret), ("ha1b", secret_2)].to_vec();
    if clear {
        pairs.truncate(2);
        pairs.push(("password", secret));
    }
    let named = pairs.clone();
    for (usual, here) in named {
        let other = ["password", "ha1", "ha1b"].into_iter().find(|name| *name == here);
        if let Some(other) = other.filter(|other| !pairs.iter().any(|(known, _)| known == other)) {
            pairs.push((other, usual));
        }
    }
    pairs
        .into_iter()
        .filter(|(usual, here)| usual != here)
        .map(|(usual, here)| (usual, here.to_owned()))
        .collect()
}

fn column(reader: &mut Reader<'_>, parameter: &str) -> String {
    let name = reader.text("auth_db", parameter);
    if !is_name(&name) {
        let span = reader.place("auth_db", parameter).unwrap_or_default();
        let message = format!("`{name}` is no name of a column");
        reader.error(span, "bad-column", message, "letters, digits and `_`, at most 64");
    }
    name
}

fn tables(reader: &mut Reader<'_>) -> Vec<Arc<str>> {
    let named = reader.called_texts(NAME_TABLES, 1);
    named.iter().filter(|name| is_name(name)).map(|name| Arc::from(name.as_str())).collect()
}

/// Reads `load_credentials`: `$avp(x)=column;$avp(i:7)=column;column`.
fn loaded(reader: &mut Reader<'_>, columns: &mut Columns) -> Vec<(Box<[u8]>, usize)> {
    let text = reader.text("auth_db", "load_credentials");
    let mut loaded = Vec::new();
    for item in text.split(';').map(str::trim).filter(|item| !item.is_empty()) {
        let (avp, column) = match item.split_once('=') {
            Some((avp, column)) => (crate::settings::avp_name(avp.trim()), column.trim()),
            None => (crate::settings::avp_name(item), item),
        };
        match avp {
            Some(avp) if is_name(column) && loaded.len() < LOADED_MAX => {
                loaded.push((avp, columns.place(column)));
            }
            _ => {
                let span = reader.place("auth_db", "load_credentials").unwrap_or_default();
                let message = format!("`{item}` loads nothing");
                reader.error(
                    span,
                    "bad-column",
                    message,
                    "write $avp(name)=column, or the column alone; at most 32",
                );
            }
        }
    }
    loaded
}
