//! `permissions`: groups of addresses, from the `address` table or a file, and peers whose requests are
//! trusted.
//!
//! Tables and file are read whole, when the server starts and when it is told to read them again; what scripts
//! ask is answered from memory.

mod addresses;
mod trusted;

pub use addresses::Addresses;

use crate::database::TableNeeded;
use crate::domain::DB_URL_DOC;
use crate::output::push_avp;
use crate::run::Run;
use crate::settings::{Reader, avp_name};
use crate::table::{
    Function, MESSAGES, Module, TARGETS, harmless_parameter, int_parameter, refused_parameter, str_parameter,
};
use crate::uri_parts::decimal;
use addresses::{Member, Peer};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use engine::Listener;
use route::{Args, Outcome, Param, ParamKind, ParameterDecl, ValueRef};
use sip::Transport;
use trusted::Protocol;

pub(crate) static MODULE: Module = Module {
    name: "permissions",
    doc: "Groups of addresses, and peers whose requests are trusted, from tables or a file.",
    functions: FUNCTIONS,
    parameters: PARAMETERS,
    variables: &[],
};

const NO_RULE_FILES: &str =
    "rules in files are not read; write them in the script: if ($fu =~ \"...\" && $ru =~ \"...\")";

/// Functions of Kamailio's `permissions` that cannot be had, and why.
pub(crate) static ABSENT: &[(&str, &str)] =
    &[("allow_routing", NO_RULE_FILES), ("allow_register", NO_RULE_FILES), ("allow_uri", NO_RULE_FILES)];

static PARAMETERS: &[ParameterDecl] = &[
    str_parameter("db_url", "", DB_URL_DOC),
    str_parameter(
        "address_file",
        "",
        "A file of addresses, which takes the place of the table; a relative path begins beside the \
         configuration. Lines: GROUP ADDRESS [MASK [PORT [TAG]]].",
    ),
    str_parameter("address_table", "address", "The table of addresses, networks and names."),
    str_parameter("grp_col", "grp", "Its column of groups, 1 or more."),
    str_parameter("ip_addr_col", "ip_addr", "Its column of addresses and names."),
    str_parameter("mask_col", "mask", "Its column of the length of a network's prefix; 0, all bits."),
    str_parameter("port_col", "port", "Its column of ports; 0, any."),
    str_parameter("trusted_table", "trusted", "The table of trusted peers."),
    str_parameter("source_col", "src_ip", "Its column of the address that requests come from."),
    str_parameter(
        "proto_col",
        "proto",
        "Its column of transports: any, udp, tcp, tls, sctp, ws, wss or none.",
    ),
    str_parameter(
        "from_col",
        "from_pattern",
        "Its column of the POSIX basic expression that the URI of From must match.",
    ),
    str_parameter("ruri_col", "ruri_pattern", "Its column of the one that the Request-URI must match."),
    str_parameter("tag_col", "tag", "The column of both tables that `peer_tag_avp` is set to."),
    str_parameter("priority_col", "priority", "The column of priorities: rules of higher ones come first."),
    str_parameter("peer_tag_avp", "", "The `$avp` that a match gives the tag of its row; empty: none."),
    int_parameter(
        "peer_tag_mode",
        (0, 1),
        0,
        "",
        "Whether `allow_trusted` gives the tag of the first rule that fits (0), or the tags of all, and \
         returns how many there are (1).",
    ),
    int_parameter(
        "load_backends",
        (0, 65_535),
        65_535,
        "",
        "What is read of the database: the sum of 1 (addresses) and 2 (trusted peers); further bits mean \
         nothing here.",
    ),
    harmless_parameter(
        "db_mode",
        "the trusted table is always kept in memory, as with 1; a change counts once the table is read again.",
    ),
    harmless_parameter("max_subnets", "500,000 networks are read, at most."),
    harmless_parameter("reload_delta", "tables are read again one at a time."),
    harmless_parameter(
        "trusted_cleanup_interval",
        "what was read before is freed when nobody uses it any more.",
    ),
    refused_parameter("default_allow_file", NO_RULE_FILES),
    refused_parameter("default_deny_file", NO_RULE_FILES),
    refused_parameter("allow_suffix", NO_RULE_FILES),
    refused_parameter("deny_suffix", NO_RULE_FILES),
    refused_parameter("check_all_branches", NO_RULE_FILES),
];

const GROUP: Param = Param::new("group", ParamKind::Int);
const ADDRESS: Param = Param::new("address", ParamKind::Format);
const PORT: Param = Param::new("port", ParamKind::Format);
const PROTOCOL: Param = Param::new("protocol", ParamKind::Format);
const FROM: Param = Param::new("from", ParamKind::Format);

static FUNCTIONS: &[Function] = &[
    Function::new(
        "allow_address",
        &[GROUP, ADDRESS, PORT],
        TARGETS,
        allow_address,
        "Whether an address (or a name, which is not looked up) and a port belong to a group. The tag of \
         the row becomes `peer_tag_avp`: that of the longest prefix.",
    ),
    Function::optional(
        "allow_source_address",
        &[GROUP],
        0,
        TARGETS,
        allow_source_address,
        "Whether the address and port that the request came from belong to a group; without GROUP, to group 1.",
    ),
    Function::new(
        "allow_source_address_group",
        &[],
        TARGETS,
        allow_source_address_group,
        "The group that the address and port belong to which the request came from; -1 if there is none. A \
         single address comes before networks, then the lowest group counts.",
    ),
    Function::new(
        "allow_address_group",
        &[ADDRESS, PORT],
        MESSAGES,
        allow_address_group,
        "The same of any address (or name) and port.",
    ),
    Function::optional(
        "allow_trusted",
        &[ADDRESS, PROTOCOL, FROM],
        0,
        TARGETS,
        allow_trusted,
        "Whether a rule of the trusted table fits the source of the request, its transport, the URI of its \
         From and its Request-URI; others may be given instead. The tag of the rule becomes `peer_tag_avp`.",
    ),
];

/// What `permissions` is set to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PermissionsSettings {
    /// The database, by its place among [`Settings::databases`](crate::Settings::databases); none if it has no
    /// URL.
    pub database: Option<u16>,
    /// The table of addresses.
    pub table: String,
    /// Its columns that [`Addresses::from_rows`] wants, in this order: grp, ip_addr, mask, port, tag.
    pub columns: Vec<String>,
    /// The table of trusted peers.
    pub trusted_table: String,
    /// Its columns that [`Addresses::from_rows`] wants, in this order: src_ip, proto, from_pattern,
    /// ruri_pattern, tag, priority.
    pub trusted_columns: Vec<String>,
    /// The file of addresses, for [`Addresses::from_file`]; relative to the configuration's directory.
    pub address_file: Option<String>,
    /// The `$avp` for tags.
    pub(crate) peer_tag_avp: Option<Box<[u8]>>,
    /// Whether all rules that fit are counted.
    pub(crate) all_tags: bool,
    /// `load_backends`.
    backends: i64,
}

pub(crate) fn read(reader: &mut Reader<'_>) -> PermissionsSettings {
    let text = |reader: &Reader<'_>, name: &str| reader.text("permissions", name);
    let texts = |reader: &Reader<'_>, names: &[&str]| -> Vec<String> {
        names.iter().map(|name| text(reader, name)).collect()
    };
    let avp = text(reader, "peer_tag_avp");
    let peer_tag_avp = avp_name(&avp);
    if !avp.is_empty() && peer_tag_avp.is_none() {
        let span = reader.place("permissions", "peer_tag_avp").unwrap_or_default();
        reader.error(span, "bad-name", "this is no `$avp`".to_owned(), "write it as \"$avp(peer)\"");
    }
    let loaded = reader.loads("permissions");
    PermissionsSettings {
        database: if loaded { reader.database("permissions", "db_url") } else { None },
        table: text(reader, "address_table"),
        columns: texts(reader, &["grp_col", "ip_addr_col", "mask_col", "port_col", "tag_col"]),
        trusted_table: text(reader, "trusted_table"),
        trusted_columns: texts(
            reader,
            &["source_col", "proto_col", "from_col", "ruri_col", "tag_col", "priority_col"],
        ),
        address_file: Some(text(reader, "address_file")).filter(|file| loaded && !file.is_empty()),
        peer_tag_avp,
        all_tags: reader.int("permissions", "peer_tag_mode") == 1,
        backends: reader.int("permissions", "load_backends"),
    }
}

impl PermissionsSettings {
    /// Whether the table of addresses is read.
    pub fn reads_addresses(&self) -> bool {
        self.database.is_some() && self.address_file.is_none() && self.backends & 1 != 0
    }

    /// Whether the table of trusted peers is read.
    pub fn reads_trusted(&self) -> bool {
        self.database.is_some() && self.backends & 2 != 0
    }

    /// The tables that the database must have.
    pub(crate) fn tables_needed(&self) -> Vec<TableNeeded> {
        let Some(database) = self.database else { return Vec::new() };
        let needed = |table: &String, kind, names: &[&'static str], columns: &[String]| TableNeeded {
            database,
            table: table.clone(),
            kind,
            columns: names.iter().copied().zip(columns.iter().cloned()).collect(),
        };
        let mut tables = Vec::new();
        if self.reads_addresses() {
            tables.push(needed(
                &self.table,
                "address",
                &["grp", "ip_addr", "mask", "port", "tag"],
                &self.columns,
            ));
        }
        if self.reads_trusted() {
            let names = ["src_ip", "proto", "from_pattern", "ruri_pattern", "tag", "priority"];
            tables.push(needed(&self.trusted_table, "trusted", &names, &self.trusted_columns));
        }
        tables
    }
}

fn known(run: &Run<'_, '_>) -> Arc<Addresses> {
    run.environment.services.addresses()
}

/// The address and port that the request came from.
fn source(run: &Run<'_, '_>) -> (Peer<'static>, u16) {
    let remote = run.path().remote;
    (Peer::Address(remote.ip().to_canonical()), remote.port())
}

fn port(text: &[u8]) -> Option<u16> {
    let text = text.trim_ascii();
    if text.is_empty() { Some(0) } else { decimal(text).and_then(|port| u16::try_from(port).ok()) }
}

/// Gives `peer_tag_avp` the tag of a row.
fn put_tag(run: &mut Run<'_, '_>, tag: Option<&str>) {
    let settings = run.settings;
    if let (Some(avp), Some(tag)) = (&settings.permissions.peer_tag_avp, tag) {
        push_avp(run, avp, ValueRef::Str(tag.as_bytes()));
    }
}

fn is_member(run: &mut Run<'_, '_>, group: i64, peer: Peer<'_>, port: Option<u16>) -> Outcome {
    let known = known(run);
    let group = u32::try_from(group).ok();
    let Some(member) = group.zip(port).and_then(|(group, port)| known.member(group, peer, port)) else {
        return Outcome::False;
    };
    put_tag(run, member.tag);
    Outcome::True
}

fn group_of(run: &mut Run<'_, '_>, peer: Peer<'_>, port: Option<u16>) -> Outcome {
    let known = known(run);
    let Some(Member { group, tag }) = port.and_then(|port| known.group(peer, port)) else {
        return Outcome::False;
    };
    put_tag(run, tag);
    i32::try_from(group).map_or(Outcome::False, Outcome::Code)
}

fn allow_address(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    is_member(run, args.int(0), Peer::parse(args.str(1)), port(args.str(2)))
}

fn allow_source_address(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let (peer, port) = source(run);
    let group = if args.is_empty() { 1 } else { args.int(0) };
    is_member(run, group, peer, Some(port))
}

fn allow_source_address_group(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    let (peer, port) = source(run);
    group_of(run, peer, Some(port))
}

fn allow_address_group(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    group_of(run, Peer::parse(args.str(0)), port(args.str(1)))
}

fn allow_trusted(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let known = known(run);
    let settings = run.settings;
    let source = if args.is_empty() { source(run).0 } else { Peer::parse(args.str(0)) };
    let protocol = match args.len() {
        0 | 1 => Some(Protocol::Is(transport(run))),
        _ => Protocol::parse(args.str(1)),
    };
    let Some(protocol) = protocol else {
        return run.fail("allow_trusted: the transport is any, udp, tcp, tls, sctp, ws or wss");
    };
    let message = run.message();
    let from = match (args.len(), message.from()) {
        (3.., _) => args.str(2),
        (_, Ok(from)) => from.uri,
        _ => return Outcome::False,
    };
    let all = settings.permissions.all_tags;
    let mut tags: Vec<&str> = Vec::new();
    let count = known.trusted.each(source, protocol, from, run.request_uri(), &mut |tag| {
        tags.extend(tag);
        all
    });
    for tag in tags {
        put_tag(run, Some(tag));
    }
    match i32::try_from(count) {
        Ok(1..) if all => Outcome::Code(i32::try_from(count).unwrap_or(i32::MAX)),
        Ok(1..) => Outcome::True,
        _ => Outcome::False,
    }
}

/// The transport that the message came by.
fn transport(run: &Run<'_, '_>) -> Transport {
    let listener: Option<&Listener> = run.environment.listeners.get(usize::from(run.path().listener.0));
    listener.map_or(Transport::Udp, |listener| listener.transport)
}
