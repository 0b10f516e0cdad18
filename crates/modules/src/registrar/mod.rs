//! `registrar`: REGISTER (RFC 3261 §10.3) and the location of users (§16.5).

mod date;
mod lookup;
mod save;
mod spread;
pub(crate) mod stored;
mod wait;

pub use wait::Unsaved;
pub(crate) use wait::{Pending, abandon};

use crate::run::Run;
use crate::settings::{PathMode, RegistrarSettings};
use crate::table::{
    Function, MESSAGES, Module, TARGETS, harmless_parameter, int_parameter, refused_parameter, str_parameter,
};
use alloc::vec::Vec;
use route::{Contexts, Param, ParamKind, ParameterDecl};
use sip::{Method, SipUri, Uri};

/// The table that addresses-of-record of no other table are kept in; names of further tables go before theirs.
const MAIN_TABLE: &[u8] = b"location";

pub(crate) static MODULE: Module = Module {
    name: "registrar",
    doc: "REGISTER, and where users are.",
    functions: FUNCTIONS,
    parameters: PARAMETERS,
    variables: &[],
};

const NO_OUTBOUND: &str = "a contact is reached by the connection that it was registered by, without flow tokens of its own (RFC 5626).";

static PARAMETERS: &[ParameterDecl] = &[
    int_parameter(
        "default_expires",
        (1, 31_536_000),
        3_600,
        "s",
        "The interval of a contact that asks for none.",
    ),
    int_parameter("min_expires", (0, 31_536_000), 60, "s", "The shortest interval; 0, none."),
    int_parameter(
        "min_expires_mode",
        (0, 1),
        0,
        "",
        "A shorter interval is raised to `min_expires` (0), or answered 423 with Min-Expires (1).",
    ),
    int_parameter(
        "max_expires",
        (0, 31_536_000),
        0,
        "s",
        "The longest interval, which longer ones are cut to; 0, none.",
    ),
    int_parameter("default_q", (0, 1_000), 0, "thousandths", "The preference of a contact that has none."),
    int_parameter(
        "max_contacts",
        (0, 32),
        0,
        "contacts",
        "Contacts of one address-of-record; 0, 32. More are answered 503.",
    ),
    int_parameter(
        "append_branches",
        (0, 1),
        1,
        "",
        "Whether `lookup` makes targets of all contacts, or only of the best one.",
    ),
    int_parameter("case_sensitive", (0, 1), 0, "", "Whether `Alice` and `alice` are two users."),
    int_parameter(
        "retry_after",
        (0, 86_400),
        5,
        "s",
        "The Retry-After of a 503, and of a 500 that passes by itself; 0, none.",
    ),
    int_parameter(
        "method_filtering",
        (0, 1),
        0,
        "",
        "Whether `lookup` passes over contacts whose Allow did not name the method of an initial request.",
    ),
    int_parameter(
        "use_path",
        (0, 1),
        0,
        "",
        "Whether the Path of a REGISTER is kept and followed (RFC 3327).",
    ),
    int_parameter(
        "path_mode",
        (0, 2),
        2,
        "",
        "The Path is never in the 200 (0), only if the phone supports it (1), or it must support it and is answered 420 otherwise (2).",
    ),
    int_parameter(
        "contact_max_size",
        (1, 4_096),
        512,
        "bytes",
        "The longest URI of a contact; a longer one is answered 400.",
    ),
    str_parameter(
        "received_avp",
        "",
        "The `$avp` that says where a contact really is, as a URI; it is kept with the contact and becomes the next hop. Where it says nothing, that is the connection of a REGISTER by WebSocket, and by TCP or TLS that of one whose Contact is not the address that it came from.",
    ),
    str_parameter(
        "received_param",
        "received",
        "The parameter of the 200's Contact that says where the contact really is; empty, none.",
    ),
    int_parameter(
        "default_expires_range",
        (0, 100),
        0,
        "%",
        "By how much `default_expires` is lengthened or shortened, at most, differently for each REGISTER, so that phones do not all come back at once.",
    ),
    int_parameter(
        "expires_range",
        (0, 100),
        0,
        "%",
        "By how much a requested interval is shortened, at most, differently for each REGISTER; not below `min_expires`.",
    ),
    refused_parameter("realm_prefix", "make the names equal by an `alias` and `use_domain` 0."),
    harmless_parameter("sock_flag", "there are no replicas that pass registrations on."),
    harmless_parameter("sock_hdr_name", "there are no replicas that pass registrations on."),
    harmless_parameter("sock_mode", "a binding knows its listener by number."),
    refused_parameter("path_use_received", "branches have no flags yet."),
    harmless_parameter("path_check_local", "a Path that leads here is recognised as our own Route."),
    refused_parameter("reg_callid_avp", "`registered` asks whether there is any contact."),
    harmless_parameter("xavp_cfg", "`$xavp` is not there, so nothing can be set by it."),
    harmless_parameter("xavp_rcd", "`$xavp` is not there, so nothing can be read from it."),
    harmless_parameter("xavp_rcd_mask", "`$xavp` is not there, so nothing can be read from it."),
    harmless_parameter("gruu_enabled", "phones are given no GRUU yet (RFC 5627)."),
    harmless_parameter("outbound_mode", NO_OUTBOUND),
    harmless_parameter("regid_mode", NO_OUTBOUND),
    harmless_parameter("flow_timer", NO_OUTBOUND),
    harmless_parameter("event_callback", "routes are written in this language."),
    harmless_parameter("lookup_filter_mode", "branches have no flags yet."),
    harmless_parameter("use_expired_contacts", "expired contacts are never returned."),
];

const DOMAIN: Param = Param::new("domain", ParamKind::Str);
const URI: Param = Param::new("uri", ParamKind::Format);
const SAVE: &str = "Does what a REGISTER asks for and answers it: 200 with all contacts, 423 if the interval is too brief, 400 for a Contact or, with `use_path`, a Path that is none, or for a `sips` one where Request-URI or Path are `sip`, 404 for a To of another domain than the Request-URI's (the server's addresses and aliases are one), 420 for a Require that is not understood, 500 out of order, or where a REGISTER that came later overtook it while it waited, 503 for too many. FLAGS: 2, no answer; 4, only the contacts of this request stay. URI stands for the To URI. Returns 1 for new contacts, 2 for refreshed ones, 3 for removed ones, 4 for a question; -2 for too many contacts, -3 if the database did not take it (500, or 503 if it was away or too late; the contacts are what they were), -1 for what else was refused. A refusal is answered, too. In `db_mode` 1 and 3 the script waits here for the database.";
const LOOKUP: &str = "Replaces the Request-URI by the best contact of its user (or of URI), and makes targets of the others. Returns 1, -1 if there is none, -2 if none takes the method, -3 if the URI is none, or if there is none as far as is known while the database (`db_mode` 3) does not answer.";

static FUNCTIONS: &[Function] = &[
    Function::optional(
        "save",
        &[DOMAIN, Param::new("flags", ParamKind::Int), URI],
        1,
        TARGETS,
        save::save,
        SAVE,
    ),
    Function::optional("lookup", &[DOMAIN, URI], 1, TARGETS, lookup::lookup, LOOKUP),
    Function::optional(
        "lookup_to_dset",
        &[DOMAIN, URI],
        1,
        TARGETS,
        lookup::lookup_to_dset,
        "`lookup` that leaves the Request-URI as it is: every contact becomes a further target.",
    ),
    Function::new(
        "lookup_branches",
        &[DOMAIN],
        TARGETS,
        lookup::lookup_branches,
        "`lookup` of the Request-URI and of every further target.",
    ),
    Function::optional(
        "registered",
        &[DOMAIN, URI],
        1,
        MESSAGES,
        lookup::registered,
        "Whether the user of the Request-URI (of the To URI in a response, or of URI) has a contact.",
    ),
    Function::new(
        "unregister",
        &[DOMAIN, URI],
        Contexts::ANY,
        lookup::unregister,
        "Removes all contacts of URI. Returns 1, -1 if the URI is none, -2 if the database has not taken it yet (`db_mode` 1 and 3), -3 if there were none.",
    ),
];

/// Functions of Kamailio's `registrar` that cannot be had, and why.
pub(crate) static ABSENT: &[(&str, &str)] = &[
    ("reg_fetch_contacts", "`$ulc` is not there; `lookup` and `registered` are"),
    ("reg_free_contacts", "`$ulc` is not there; `lookup` and `registered` are"),
    ("reg_send_reply", "leave flag 2 out of `save`: it answers then"),
    ("add_sock_hdr", "there are no replicas that pass registrations on"),
];

/// Writes the key of `uri`'s address-of-record (RFC 3261 §10.3 step 5) to `out`; false if it is no URI.
fn aor_key(settings: &RegistrarSettings, table: &[u8], uri: &[u8], out: &mut Vec<u8>) -> bool {
    out.clear();
    let parsed = match Uri::parse(uri) {
        // RFC 5630 §5.2: with either scheme it is the same address-of-record.
        Ok(Uri::Sip(uri)) => Uri::Sip(SipUri { secure: false, ..uri }),
        Ok(other) => other,
        Err(_) => return false,
    };
    if table != MAIN_TABLE {
        out.extend_from_slice(table);
        out.push(0);
    }
    let start = out.len();
    sip::canonical_aor(&parsed, settings.use_domain, out);
    // Escapes were resolved. What stands between table and user must not come from a client, and no database takes it.
    if out.get(start..).is_none_or(|aor| aor.contains(&0)) {
        return false;
    }
    if !settings.case_sensitive {
        out.make_ascii_lowercase();
    }
    true
}

/// Runs `with` with the key of an address-of-record, in a buffer that is used again.
fn with_key<'r, 'm, T>(
    run: &mut Run<'r, 'm>,
    table: &[u8],
    uri: &[u8],
    with: impl FnOnce(&mut Run<'r, 'm>, &[u8]) -> T,
) -> Option<T> {
    let mut key = core::mem::take(&mut run.scratch.aor);
    let done = aor_key(&run.settings.registrar, table, uri, &mut key).then(|| with(run, &key));
    run.scratch.aor = key;
    done
}

/// The bit of a method in a binding's mask.
fn method_bit(method: Method) -> u32 {
    1u32.checked_shl(method as u32).unwrap_or(0)
}

/// Whether the 200 names the Path.
fn answers_path(mode: PathMode, supported: bool) -> bool {
    match mode {
        PathMode::Silent => false,
        PathMode::IfSupported | PathMode::Required => supported,
    }
}
