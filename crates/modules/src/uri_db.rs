//! `uri_db`: whether URIs belong to the authenticated user (RFC 3261 §22.1: who somebody is, and who he says he
//! is), and whether users exist.
//!
//! What needs the database waits for it; where it cannot answer, the request is answered 503 with Retry-After
//! and the script ends, as in `alias_db`.

use crate::alias_db::{QUERY_TIMEOUT_DOC, is_key, unanswered};
use crate::database::TableNeeded;
use crate::domain::DB_URL_DOC;
use crate::run::Run;
use crate::settings::Reader;
use crate::table::{Function, Module, int_parameter, str_parameter};
use crate::uri_parts::UriParts;
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;
use engine::{Answer, Ask, Select};
use route::{Args, Contexts, Outcome, Param, ParamKind, ParameterDecl};
use sip::Uri;

/// What `check_*` return where the request is not authenticated.
const NO_CREDENTIALS: Outcome = Outcome::Code(-2);
/// Where the URI has no user.
const NO_USER: Outcome = Outcome::Code(-4);
/// What `does_uri_exist` returns for a user that does not.
const NOT_THERE: Outcome = Outcome::Code(-5);
/// What `check_*` return for a URI that the table does not give the user.
const NOT_IN_TABLE: Outcome = Outcome::Code(-9);
/// For a URI of another user.
const ANOTHER_USER: Outcome = Outcome::Code(-10);

pub(crate) static MODULE: Module = Module {
    name: "uri_db",
    doc: "Checks of URIs against the authenticated user, and whether users exist.",
    functions: FUNCTIONS,
    parameters: PARAMETERS,
    variables: &[],
};

/// Functions of Kamailio's `uri_db` of earlier times that cannot be had, and why.
pub(crate) static ABSENT: &[(&str, &str)] = &[("does_uri_user_exist", "write does_uri_exist()")];

static PARAMETERS: &[ParameterDecl] = &[
    str_parameter("db_url", "sqlite:", DB_URL_DOC),
    str_parameter(
        "db_table",
        "subscriber",
        "The table: `subscriber`, or with `use_uri_table` that of URIs, `uri`.",
    ),
    str_parameter("user_column", "username", "The column of users."),
    str_parameter("domain_column", "domain", "The column of their domains."),
    str_parameter("uriuser_column", "uri_user", "The column of the users of the URIs that belong to a user."),
    int_parameter(
        "use_uri_table",
        (0, 1),
        0,
        "",
        "Whether a table says which URIs belong to a user (1), or each user has the one of his own name (0).",
    ),
    int_parameter(
        "use_domain",
        (0, 1),
        0,
        "",
        "Whether `does_uri_exist` looks for user and domain (1), or the user alone (0). Domains are looked \
         for in lower case.",
    ),
    int_parameter("query_timeout", (100, 30_000), 2_000, "ms", QUERY_TIMEOUT_DOC),
];

const URI: Param = Param::new("uri", ParamKind::Format);

static FUNCTIONS: &[Function] = &[
    Function::new(
        "check_to",
        &[],
        Contexts::REQUEST,
        check_to,
        "Whether the user of To is the authenticated one, letters in either case; with `use_uri_table`, \
         whether the table gives it to him (waits for the database). -2: nobody is authenticated; -4: the \
         URI has no user; -9, -10: another user.",
    ),
    Function::new("check_from", &[], Contexts::REQUEST, check_from, "The same of the user of From."),
    Function::new(
        "check_uri",
        &[URI],
        Contexts::REQUEST,
        check_uri,
        "The same of the user of any URI; -1 if it is none.",
    ),
    Function::new(
        "does_uri_exist",
        &[],
        Contexts::REQUEST,
        does_uri_exist,
        "Whether the user of the Request-URI exists: in the table of users, or with `use_uri_table` in that \
         of URIs; -5 if not. Waits for the database.",
    ),
];

/// What `uri_db` is set to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UriDbSettings {
    /// The database, by its place among [`Settings::databases`](crate::Settings::databases); none if it is
    /// never asked.
    pub database: Option<u16>,
    /// The table.
    pub table: Arc<str>,
    user_column: Arc<str>,
    domain_column: Arc<str>,
    uri_user_column: Arc<str>,
    use_uri_table: bool,
    use_domain: bool,
    timeout: Duration,
}

pub(crate) fn read(reader: &mut Reader<'_>) -> UriDbSettings {
    let text = |reader: &Reader<'_>, name| Arc::from(reader.text("uri_db", name));
    let use_uri_table = reader.int("uri_db", "use_uri_table") != 0;
    // Without the table of URIs `check_to` and its relatives need no database.
    if let (true, None, Some(span)) =
        (use_uri_table, reader.place("uri_db", "db_table"), reader.place("uri_db", "use_uri_table"))
    {
        let message = "the table of URIs is not named: `db_table` is that of users".to_owned();
        reader.error(span, "no-table", message, "add: modparam(\"uri_db\", \"db_table\", \"uri\")");
    }
    let asks = reader.loads("uri_db") && (use_uri_table || reader.calls("does_uri_exist"));
    UriDbSettings {
        database: if asks { reader.database("uri_db", "db_url") } else { None },
        table: text(reader, "db_table"),
        user_column: text(reader, "user_column"),
        domain_column: text(reader, "domain_column"),
        uri_user_column: text(reader, "uriuser_column"),
        use_uri_table,
        use_domain: reader.int("uri_db", "use_domain") != 0,
        timeout: Duration::from_millis(reader.unsigned("uri_db", "query_timeout").into()),
    }
}

impl UriDbSettings {
    /// The tables that the database must have.
    pub(crate) fn tables_needed(&self) -> Vec<TableNeeded> {
        let Some(database) = self.database else { return Vec::new() };
        let mut columns = Vec::from([
            ("username", String::from(&*self.user_column)),
            ("domain", String::from(&*self.domain_column)),
        ]);
        if self.use_uri_table {
            columns.push(("uri_user", String::from(&*self.uri_user_column)));
        }
        let kind = if self.use_uri_table { "uri" } else { "subscriber" };
        [TableNeeded { database, table: String::from(&*self.table), kind, columns }].into()
    }
}

fn check_to(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    let message = run.message();
    message.to().map_or(Outcome::False, |to| check(run, to.uri))
}

fn check_from(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    let message = run.message();
    message.from().map_or(Outcome::False, |from| check(run, from.uri))
}

fn check_uri(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    check(run, args.str(0))
}

/// Whether a URI belongs to the authenticated user.
fn check(run: &mut Run<'_, '_>, uri: &[u8]) -> Outcome {
    let Some(parts) = UriParts::parse(uri).filter(|_| Uri::parse(uri).is_ok()) else { return Outcome::False };
    let Some(user) = parts.plain_user().filter(|user| !user.is_empty()) else { return NO_USER };
    let settings = &run.settings.uri_db;
    let Some(authenticated) = &run.state().authenticated else { return NO_CREDENTIALS };
    let (username, domain) = account(&authenticated.username, &authenticated.realm);
    if !settings.use_uri_table {
        return if username.eq_ignore_ascii_case(&user) { Outcome::True } else { ANOTHER_USER };
    }
    let keys = [
        (&settings.user_column, username),
        (&settings.domain_column, domain),
        (&settings.uri_user_column, &*user),
    ];
    if !keys.iter().all(|(_, value)| is_key(value)) {
        return NOT_IN_TABLE;
    }
    let keys = keys.map(|(column, value)| (column.clone(), value.into())).into();
    ask(run, keys, checked)
}

/// The user and the domain of credentials: `username` may be `user@domain`, else the domain is the realm.
fn account<'a>(username: &'a [u8], realm: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    match crate::uri_parts::split_once(username, b'@') {
        Some((user, domain)) if !domain.is_empty() => (user, domain),
        Some((user, _)) => (user, realm),
        None => (username, realm),
    }
}

fn does_uri_exist(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    let settings = run.settings;
    let settings = &settings.uri_db;
    let Some(parts) = UriParts::parse(run.request_uri()) else { return Outcome::False };
    let Some(user) = parts.plain_user().filter(|user| is_key(user)) else { return NOT_THERE };
    let column = if settings.use_uri_table { &settings.uri_user_column } else { &settings.user_column };
    let mut keys: Keys = Vec::from([(column.clone(), user.into_boxed_slice())]);
    if settings.use_domain {
        let domain = parts.host.to_ascii_lowercase();
        if !is_key(&domain) {
            return NOT_THERE;
        }
        keys.push((settings.domain_column.clone(), domain.into()));
    }
    ask(run, keys, exists)
}

/// Columns and what they must be.
type Keys = Vec<(Arc<str>, Box<[u8]>)>;

fn ask(run: &mut Run<'_, '_>, keys: Keys, then: crate::run::Then) -> Outcome {
    let settings = &run.settings.uri_db;
    let Some(database) = settings.database else {
        return run.fail("uri_db: there is no database: set its db_url");
    };
    let select = Select {
        database,
        table: settings.table.clone(),
        columns: [settings.user_column.clone()].into(),
        keys,
        rows_max: 1,
    };
    run.suspend(Ask::Select(Box::new(select)), settings.timeout, then)
}

fn checked(run: &mut Run<'_, '_>, answer: &Answer<'_>) -> Outcome {
    match answer {
        Answer::Rows(rows) if rows.0.is_empty() => NOT_IN_TABLE,
        Answer::Rows(_) => Outcome::True,
        _ => unanswered(run, answer, "uri_db"),
    }
}

fn exists(run: &mut Run<'_, '_>, answer: &Answer<'_>) -> Outcome {
    match answer {
        Answer::Rows(rows) if rows.0.is_empty() => NOT_THERE,
        Answer::Rows(_) => Outcome::True,
        _ => unanswered(run, answer, "does_uri_exist"),
    }
}
