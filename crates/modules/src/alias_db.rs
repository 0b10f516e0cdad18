//! `alias_db`: aliases of users, from the `dbaliases` table.
//!
//! The database is asked each time, while the script waits; nothing is remembered. Where it cannot answer, the
//! request is answered 503 (RFC 3261 §21.5.4), or 500 if it says that it never will, with Retry-After, and the
//! script ends: whether somebody has an alias is not known then, and a script that went on would answer 404.

use crate::auth_db::Said;
use crate::core::outcome;
use crate::database::TableNeeded;
use crate::domain::DB_URL_DOC;
use crate::log::Level;
use crate::output::{Output, check};
use crate::run::Run;
use crate::settings::Reader;
use crate::sl::{Mode, reply_with};
use crate::table::{Function, Module, int_parameter, str_parameter};
use crate::uri_parts::{UriParts, push_number};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;
use engine::{Answer, Ask, Rows, Select, Target};
use route::{Args, Contexts, Outcome, Param, ParamKind, ParameterDecl};
use sip::Uri;

/// Longest user or domain that a database is asked for, in bytes; nobody is called by a longer one.
pub(crate) const KEY_BYTES_MAX: usize = 255;
/// Rows that `alias_db_find` and `append_branches` take: as many as a request has targets.
const ROWS_MAX: u16 = 31;
/// How often the log says that the database does not answer, or refuses, at most.
const SAID_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) static MODULE: Module = Module {
    name: "alias_db",
    doc: "Aliases of users from a table. The script waits for the database; where it does not answer, the request is \
          answered 503 with Retry-After and the script ends.",
    functions: FUNCTIONS,
    parameters: PARAMETERS,
    variables: &[],
};

pub(crate) const QUERY_TIMEOUT_DOC: &str =
    "Ours: how long the script waits for the database before the request is answered 503.";

static PARAMETERS: &[ParameterDecl] = &[
    str_parameter("db_url", "sqlite:", DB_URL_DOC),
    str_parameter("user_column", "username", "The column of the user that an alias stands for."),
    str_parameter("domain_column", "domain", "The column of the user's domain."),
    str_parameter("alias_user_column", "alias_username", "The column of the alias's user."),
    str_parameter("alias_domain_column", "alias_domain", "The column of the alias's domain."),
    int_parameter(
        "use_domain",
        (0, 1),
        0,
        "",
        "Whether the domain of the URI must be the alias's, too (1), or the user alone is looked for (0). \
         Domains are looked for in lower case.",
    ),
    str_parameter("domain_prefix", "", "Taken off the front of the URI's domain before it is looked for."),
    int_parameter(
        "append_branches",
        (0, 1),
        0,
        "",
        "Whether an alias of several users has them all: the first as Request-URI, the others as further \
         targets.",
    ),
    int_parameter("query_timeout", (100, 30_000), 2_000, "ms", QUERY_TIMEOUT_DOC),
];

const TABLE: Param = Param::new("table", ParamKind::Format);
const INPUT: Param = Param::new("input", ParamKind::Format);
const OUTPUT: Param = Param::new("output", ParamKind::Str);
const FLAGS: Param = Param::new("flags", ParamKind::Encoded(flags));

static FUNCTIONS: &[Function] = &[
    Function::optional(
        "alias_db_lookup",
        &[TABLE, FLAGS],
        1,
        Contexts::REQUEST,
        alias_db_lookup,
        "Whether the Request-URI is an alias in a table; if so, it becomes the URI of the user that the \
         alias stands for. FLAGS: `d` looks for the user alone, `u` for user and domain, `r` for the alias \
         of a user. Waits for the database.",
    ),
    Function::optional(
        "alias_db_find",
        &[TABLE, INPUT, OUTPUT, FLAGS],
        3,
        Contexts::REQUEST,
        alias_db_find,
        "The same of any URI; the result is put into an output: \"$avp(NAME)\" in quotes. Waits for the \
         database.",
    ),
];

/// `d`: without the domain.
const WITHOUT_DOMAIN: i64 = 1;
/// `u`: with the domain.
const WITH_DOMAIN: i64 = 2;
/// `r`: from user to alias.
const REVERSE: i64 = 4;

fn flags(text: &[u8]) -> Result<i64, &'static str> {
    text.iter().try_fold(0, |flags, flag| match flag {
        b'd' => Ok(flags | WITHOUT_DOMAIN),
        b'u' => Ok(flags | WITH_DOMAIN),
        b'r' => Ok(flags | REVERSE),
        _ => Err("the flags are d (user alone), u (user and domain) and r (reverse)"),
    })
}

/// What `alias_db` is set to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AliasDbSettings {
    /// The database, by its place among [`Settings::databases`](crate::Settings::databases); none if the module
    /// is not loaded.
    pub database: Option<u16>,
    /// The tables that scripts name, as far as they do so in so many words.
    pub tables: Vec<String>,
    user: Names,
    alias: Names,
    use_domain: bool,
    domain_prefix: Box<[u8]>,
    append_branches: bool,
    timeout: Duration,
}

/// Two columns that are one address-of-record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Names {
    /// The user's, then the domain's.
    columns: Arc<[Arc<str>]>,
}

impl Names {
    fn column(&self, place: usize) -> Arc<str> {
        self.columns.get(place).cloned().unwrap_or_default()
    }
}

pub(crate) fn read(reader: &mut Reader<'_>) -> AliasDbSettings {
    let names = |reader: &Reader<'_>, user, domain| Names {
        columns: [user, domain].map(|name| Arc::from(reader.text("alias_db", name))).into(),
    };
    check(reader, &["alias_db_find"], 2);
    AliasDbSettings {
        database: if reader.loads("alias_db") { reader.database("alias_db", "db_url") } else { None },
        tables: reader.called_texts(&["alias_db_lookup", "alias_db_find"], 0),
        user: names(reader, "user_column", "domain_column"),
        alias: names(reader, "alias_user_column", "alias_domain_column"),
        use_domain: reader.int("alias_db", "use_domain") != 0,
        domain_prefix: reader.text("alias_db", "domain_prefix").to_ascii_lowercase().into_bytes().into(),
        append_branches: reader.int("alias_db", "append_branches") != 0,
        timeout: Duration::from_millis(reader.unsigned("alias_db", "query_timeout").into()),
    }
}

impl AliasDbSettings {
    /// The tables that the database must have.
    pub(crate) fn tables_needed(&self) -> Vec<TableNeeded> {
        let Some(database) = self.database else { return Vec::new() };
        let column = |name, names: &Names, place| (name, String::from(&*names.column(place)));
        let needed = |table: &String| TableNeeded {
            database,
            table: table.clone(),
            kind: "dbaliases",
            columns: [
                column("alias_username", &self.alias, 0),
                column("alias_domain", &self.alias, 1),
                column("username", &self.user, 0),
                column("domain", &self.user, 1),
            ]
            .into(),
        };
        self.tables.iter().map(needed).collect()
    }
}

fn alias_db_lookup(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let mut uri = core::mem::take(&mut run.scratch.uri);
    uri.clear();
    uri.extend_from_slice(run.request_uri());
    let asked = ask(run, args.str(0), &uri, args.int(1), looked_up);
    run.scratch.uri = uri;
    run.prepared.alias_output = None;
    asked
}

fn alias_db_find(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let Some(_) = Output::parse(args.str(2)) else {
        return run.fail("alias_db_find: the output is a variable in quotes: \"$avp(NAME)\"");
    };
    let asked = ask(run, args.str(0), args.str(1), args.int(3), found);
    run.prepared.alias_output = Some(args.str(2).into());
    asked
}

/// Asks the database for a URI.
fn ask(run: &mut Run<'_, '_>, table: &[u8], uri: &[u8], flags: i64, then: crate::run::Then) -> Outcome {
    let settings = &run.settings.alias_db;
    let (Some(database), Ok(table)) = (settings.database, core::str::from_utf8(table)) else {
        return run.fail("alias_db: there is no database: set its db_url, and load the module");
    };
    if flags < 0 || table.is_empty() {
        return run.fail("alias_db: a table must be named, and the flags are d, u and r");
    }
    let Some(parts) = UriParts::parse(uri).filter(|parts| Uri::parse(uri).is_ok() && !parts.is_tel()) else {
        return Outcome::False;
    };
    let Some(user) = parts.plain_user().filter(|user| is_key(user)) else { return Outcome::False };
    let (from, to) = if flags & REVERSE == 0 {
        (&settings.alias, &settings.user)
    } else {
        (&settings.user, &settings.alias)
    };
    let mut keys = Vec::from([(from.column(0), user.into_boxed_slice())]);
    if flags & WITHOUT_DOMAIN == 0 && (settings.use_domain || flags & WITH_DOMAIN != 0) {
        let domain = parts.host.to_ascii_lowercase();
        let domain = domain.strip_prefix(&*settings.domain_prefix).unwrap_or(&domain);
        if !is_key(domain) {
            return Outcome::False;
        }
        keys.push((from.column(1), domain.into()));
    }
    let select = Select {
        database,
        table: table.into(),
        columns: to.columns.clone(),
        keys,
        rows_max: if settings.append_branches { ROWS_MAX } else { 1 },
    };
    run.suspend(Ask::Select(Box::new(select)), settings.timeout, then)
}

/// Whether a database can be asked for this: what holds a NUL, or is too long, is nobody's.
pub(crate) fn is_key(text: &[u8]) -> bool {
    !text.is_empty()
        && text.len() <= KEY_BYTES_MAX
        && core::str::from_utf8(text).is_ok()
        && !text.contains(&0)
}

/// The URIs of rows: of user and domain each. A row that makes none is passed over.
fn uris(run: &mut Run<'_, '_>, rows: &Rows) -> Vec<Vec<u8>> {
    let mut uris = Vec::new();
    for row in &rows.0 {
        let column = |place: usize| row.get(place).and_then(Option::as_deref).unwrap_or_default();
        let uri = [b"sip:", column(0), b"@", column(1)].concat();
        // A row may hold anything: `a@b` in the column of users would make another host.
        let whole = UriParts::parse(&uri)
            .is_some_and(|parts| parts.user == Some(column(0)) && parts.host == column(1));
        if whole && Uri::parse(&uri).is_ok() {
            uris.push(uri);
        } else {
            run.say(Level::Warning, b"alias_db: a row is passed over whose user and domain make no SIP URI");
        }
    }
    uris
}

fn looked_up(run: &mut Run<'_, '_>, answer: &Answer<'_>) -> Outcome {
    let Answer::Rows(rows) = answer else { return unanswered(run, answer, "alias_db_lookup") };
    let uris = uris(run, rows);
    let Some((first, further)) = uris.split_first() else { return Outcome::False };
    run.set_request_uri(first);
    let Some(cx) = run.request() else { return Outcome::False };
    // Past the last place for a target the others are left out, as in `lookup`.
    let full = further.iter().any(|uri| cx.append_target(&Target::new(uri)).is_err());
    if full {
        run.say(
            Level::Warning,
            b"alias_db_lookup: an alias stands for more users than a request may have targets",
        );
    }
    Outcome::True
}

fn found(run: &mut Run<'_, '_>, answer: &Answer<'_>) -> Outcome {
    let text = run.prepared.alias_output.take().unwrap_or_default();
    let Answer::Rows(rows) = answer else { return unanswered(run, answer, "alias_db_find") };
    let Some(output) = Output::parse(&text) else { return Outcome::False };
    let uris = uris(run, rows);
    outcome(!uris.is_empty() && uris.iter().all(|uri| output.put(run, uri)))
}

/// Answers a request for which the database was needed and did not answer, and ends the script: 503 if it may
/// answer later (RFC 3261 §21.5.4), 500 if it says that it cannot (§21.5.1), both with Retry-After (§20.33).
pub(crate) fn unanswered(run: &mut Run<'_, '_>, answer: &Answer<'_>, function: &str) -> Outcome {
    let refused = matches!(answer, Answer::Refused);
    let (status, why, said) = if refused {
        (500, "the database refuses what it is asked: see its own message", Said::Refused)
    } else {
        (503, "the database does not answer: requests that need it are answered 503", Said::Unanswered)
    };
    let now = run.now();
    if run.auth.users.may_say(said, now, SAID_INTERVAL) {
        let line = [function.as_bytes(), b": ", why.as_bytes()].concat();
        run.say(Level::Error, &line);
    }
    let mut headers = core::mem::take(&mut run.scratch.headers);
    headers.clear();
    let seconds = run.settings.registrar.retry_after_secs;
    if seconds > 0 {
        headers.extend_from_slice(b"Retry-After: ");
        push_number(&mut headers, seconds.into());
        headers.extend_from_slice(b"\r\n");
    }
    reply_with(run, status, b"", &mut headers, Mode::Any);
    run.scratch.headers = headers;
    Outcome::Exit
}
