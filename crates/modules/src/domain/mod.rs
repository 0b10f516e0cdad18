//! `domain`: the domains that this server serves, from the `domain` table.
//!
//! The tables are read whole, when the server starts and when it is told to read them again; what scripts ask
//! is answered from memory.

mod domains;

pub use domains::Domains;
pub(crate) use domains::{check_count, text};

use crate::core::outcome;
use crate::database::TableNeeded;
use crate::output::push_avp;
use crate::run::{Context, Run};
use crate::settings::Reader;
use crate::table::{Function, Module, REQUESTS, int_parameter, str_parameter};
use crate::uri_parts::{UriParts, split_hostport};
use alloc::string::String;
use alloc::vec::Vec;
use domains::Value;
use route::{Args, Outcome, Param, ParamKind, ParameterDecl, ValueRef};

pub(crate) static MODULE: Module = Module {
    name: "domain",
    doc: "The domains that are served, and their attributes, from tables.",
    functions: FUNCTIONS,
    parameters: PARAMETERS,
    variables: &[],
};

pub(crate) const DB_URL_DOC: &str = "The database: `sqlite:PATH` (relative to the state directory; `sqlite:` alone \
     is the server's own file there), \
     `postgres://USER:PASSWORD@HOST/DATABASE` or `mysql://USER:PASSWORD@HOST/DATABASE`.";

static PARAMETERS: &[ParameterDecl] = &[
    str_parameter("db_url", "sqlite:", DB_URL_DOC),
    str_parameter("domain_table", "domain", "The table of domains."),
    str_parameter("domain_attrs_table", "domain_attrs", "The table of their attributes."),
    str_parameter(
        "did_col",
        "did",
        "The column of both that says which domains belong together; NULL: the domain's own name.",
    ),
    str_parameter("domain_col", "domain", "The column of a domain's name."),
    str_parameter("name_col", "name", "The column of an attribute's name."),
    str_parameter("type_col", "type", "The column of its type: 0, an integer; 2, a string."),
    str_parameter("value_col", "value", "The column of its value."),
    int_parameter(
        "register_myself",
        (0, 1),
        0,
        "",
        "Whether the domains are names of this server, too: `myself`, `is_myself` and `loose_route` know them.",
    ),
];

const DOMAIN: Param = Param::new("domain", ParamKind::Format);
const PREFIX: Param = Param::new("prefix", ParamKind::Format);

static FUNCTIONS: &[Function] = &[
    Function::new(
        "is_from_local",
        &[],
        REQUESTS,
        is_from_local,
        "Whether the host of From is a domain that is served.",
    ),
    Function::new(
        "is_uri_host_local",
        &[],
        REQUESTS,
        is_uri_host_local,
        "Whether the host of the Request-URI (in a branch route: of the branch's) is a domain that is served.",
    ),
    Function::new(
        "is_domain_local",
        &[DOMAIN],
        REQUESTS,
        is_domain_local,
        "Whether this is a domain that is served.",
    ),
    Function::optional(
        "lookup_domain",
        &[DOMAIN, PREFIX],
        1,
        REQUESTS,
        lookup_domain,
        "Whether this is a domain that is served; if so, its attributes and its `did` become `$avp`s, with \
         PREFIX before their names.",
    ),
];

/// What `domain` is set to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DomainSettings {
    /// The database, by its place among [`Settings::databases`](crate::Settings::databases); none if the module
    /// is not loaded.
    pub database: Option<u16>,
    /// The table of domains.
    pub table: String,
    /// Its columns that [`Domains::from_rows`] wants, in this order: domain, did.
    pub columns: Vec<String>,
    /// The table of attributes.
    pub attributes_table: String,
    /// Its columns that [`Domains::from_rows`] wants, in this order: did, name, type, value.
    pub attributes_columns: Vec<String>,
    /// Whether the domains are names of this server.
    pub register_myself: bool,
}

pub(crate) fn read(reader: &mut Reader<'_>) -> DomainSettings {
    let texts = |reader: &Reader<'_>, names: &[&str]| -> Vec<String> {
        names.iter().map(|name| reader.text("domain", name)).collect()
    };
    DomainSettings {
        database: if reader.loads("domain") { reader.database("domain", "db_url") } else { None },
        table: reader.text("domain", "domain_table"),
        columns: texts(reader, &["domain_col", "did_col"]),
        attributes_table: reader.text("domain", "domain_attrs_table"),
        attributes_columns: texts(reader, &["did_col", "name_col", "type_col", "value_col"]),
        register_myself: reader.int("domain", "register_myself") != 0,
    }
}

impl DomainSettings {
    /// The tables that the database must have.
    pub(crate) fn tables_needed(&self) -> Vec<TableNeeded> {
        let Some(database) = self.database else { return Vec::new() };
        let needed = |table: &String, kind, names: &[&'static str], columns: &[String]| TableNeeded {
            database,
            table: table.clone(),
            kind,
            columns: names.iter().copied().zip(columns.iter().cloned()).collect(),
        };
        [
            needed(&self.table, "domain", &["domain", "did"], &self.columns),
            needed(
                &self.attributes_table,
                "domain_attrs",
                &["did", "name", "type", "value"],
                &self.attributes_columns,
            ),
        ]
        .into()
    }
}

/// Whether the host of a URI, or a host by itself, is a domain that is a name of this server, too
/// (`register_myself`).
pub(crate) fn is_myself(run: &Run<'_, '_>, uri: &[u8]) -> bool {
    if !run.settings.domain.register_myself {
        return false;
    }
    let host = UriParts::parse(uri).map_or_else(|| split_hostport(uri).0, |parts| parts.host);
    run.environment.services.domains().contains(host)
}

fn is_local(run: &Run<'_, '_>, host: &[u8]) -> Outcome {
    outcome(run.environment.services.domains().contains(host))
}

fn is_from_local(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    let message = run.message();
    let Ok(from) = message.from() else { return Outcome::False };
    UriParts::parse(from.uri).map_or(Outcome::False, |parts| is_local(run, parts.host))
}

fn is_uri_host_local(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    if matches!(run.cx, Context::Reply(_)) {
        return Outcome::False;
    }
    UriParts::parse(run.request_uri()).map_or(Outcome::False, |parts| is_local(run, parts.host))
}

fn is_domain_local(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    is_local(run, args.str(0))
}

fn lookup_domain(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let domains = run.environment.services.domains();
    let Some((did, attributes)) = domains.look_up(args.str(0)) else { return Outcome::False };
    let mut name = args.str(1).to_vec();
    let prefix = name.len();
    for attribute in attributes {
        name.truncate(prefix);
        name.extend_from_slice(&attribute.name);
        let value = match &attribute.value {
            Value::Int(int) => ValueRef::Int(*int),
            Value::Str(text) => ValueRef::Str(text),
        };
        push_avp(run, &name, value);
    }
    name.truncate(prefix);
    name.extend_from_slice(b"did");
    outcome(push_avp(run, &name, ValueRef::Str(did)))
}
