//! `pv`: the pseudo-variables, and questions about them.

mod credentials;
mod message;
mod uri;

pub(crate) use message::transport_name;

use crate::core::outcome;
use crate::run::Run;
use crate::table::{
    Function, MESSAGES, Module, REQUESTS, TARGETS, Variable, harmless_parameter, refused_parameter,
};
use credentials as c;
use message as m;
use route::{Args, Contexts, InnerRule, Outcome, Param, ParamKind, Sink, Subscript, ValueRef, parse_int};
use uri as u;

pub(crate) static MODULE: Module = Module {
    name: "pv",
    doc: "The pseudo-variables.",
    functions: FUNCTIONS,
    parameters: &[
        refused_parameter("shvset", "`$shv` is not there yet."),
        refused_parameter("varset", "assign the variable at the start of the route."),
        harmless_parameter("avp_aliases", "`$avp` knows its variables by their names."),
    ],
    variables: VARIABLES,
};

const ANYTHING: Param = Param::new("variable", ParamKind::Any);

static FUNCTIONS: &[Function] = &[
    Function::new("pv_isset", &[ANYTHING], Contexts::ANY, pv_isset, "Whether a variable has a value."),
    Function::new(
        "is_int",
        &[ANYTHING],
        Contexts::ANY,
        is_int,
        "Whether a variable is an integer, or a string that reads as one.",
    ),
    Function::new(
        "not_empty",
        &[ANYTHING],
        Contexts::ANY,
        not_empty,
        "Whether a variable is a string with something in it.",
    ),
];

fn pv_isset(_: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    outcome(!args.value(0).is_null())
}

fn is_int(_: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    outcome(match args.value(0) {
        ValueRef::Int(_) => true,
        ValueRef::Str(text) => parse_int(text).is_some(),
        ValueRef::Null => false,
    })
}

fn not_empty(_: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    outcome(args.value(0).as_str().is_some_and(|text| !text.is_empty()))
}

const ANY: Contexts = Contexts::ANY;
const REPLY: Contexts = Contexts::REPLY;
/// What can be read of the Request-URI is null in a response, where scripts test for that.
const URIS: Contexts = MESSAGES;

static VARIABLES: &[Variable] = &[
    // --- the Request-URI ------------------------------------------------------------------------------------------
    Variable::writable("ru", URIS, u::ru, u::set_ru, "The Request-URI, as it would be sent."),
    Variable::writable("rU", URIS, u::r_user, u::set_r_user, "The user of the Request-URI; null if it has none."),
    Variable::writable("rd", URIS, u::r_host, u::set_r_host, "The host of the Request-URI."),
    Variable::writable("rp", URIS, u::r_port, u::set_r_port, "The port of the Request-URI, 5060 or 5061 if it has none."),
    Variable::read_only("rP", URIS, u::r_transport, "The transport of the Request-URI, UDP if it names none."),
    Variable::read_only("rz", URIS, u::r_scheme, "The scheme of the Request-URI."),
    Variable::read_only("ou", URIS, u::ou, "The Request-URI that was received."),
    Variable::read_only("oU", URIS, u::o_user, "The user of the Request-URI that was received."),
    Variable::read_only("od", URIS, u::o_host, "The host of the Request-URI that was received."),
    Variable::read_only("op", URIS, u::o_port, "The port of the Request-URI that was received, 5060 or 5061 if it has none."),
    Variable::read_only("oP", URIS, u::o_transport, "The transport of the Request-URI that was received, UDP if it names none."),
    // --- the next hop ---------------------------------------------------------------------------------------------
    Variable::writable("du", URIS, u::du, u::set_du, "The next hop that was set; null takes it away."),
    Variable::read_only("dd", URIS, u::d_host, "The host of the next hop that was set."),
    Variable::read_only("dp", URIS, u::d_port, "The port of the next hop that was set."),
    Variable::read_only("dP", URIS, u::d_transport, "The transport of the next hop that was set, UDP if it names none."),
    Variable::read_only("br", TARGETS, u::first_branch, "The URI of the first further target."),
    Variable::read_only("bR", TARGETS, u::all_branches, "The URIs of all further targets, joined by commas."),
    // --- From and To ----------------------------------------------------------------------------------------------
    Variable::read_only("fu", MESSAGES, u::fu, "The URI of From."),
    Variable::read_only("fU", MESSAGES, u::f_user, "The user of From."),
    Variable::read_only("fd", MESSAGES, u::f_host, "The host of From."),
    Variable::read_only("ft", MESSAGES, u::f_tag, "The tag of From."),
    Variable::read_only("fn", MESSAGES, u::f_display, "The display name of From."),
    Variable::read_only("tu", MESSAGES, u::tu, "The URI of To."),
    Variable::read_only("tU", MESSAGES, u::t_user, "The user of To."),
    Variable::read_only("td", MESSAGES, u::t_host, "The host of To."),
    Variable::read_only("tt", MESSAGES, u::t_tag, "The tag of To; null outside a dialog."),
    Variable::read_only("tn", MESSAGES, u::t_display, "The display name of To."),
    // --- the message ----------------------------------------------------------------------------------------------
    Variable::read_only("rm", MESSAGES, m::rm, "The method; of a response, that of its CSeq."),
    Variable::read_only("rs", MESSAGES, m::rs, "The status of a response; null in a request."),
    Variable::read_only("rr", MESSAGES, m::rr, "The reason of a response; null in a request."),
    Variable::read_only("ci", MESSAGES, m::ci, "The Call-ID."),
    Variable::read_only("cs", MESSAGES, m::cs, "The number of CSeq."),
    Variable::read_only("csb", MESSAGES, m::csb, "The value of CSeq."),
    Variable::read_only("ct", MESSAGES, m::ct, "The value of Contact."),
    Variable::read_only("cT", MESSAGES, m::content_type, "The value of Content-Type."),
    Variable::read_only("cl", MESSAGES, m::cl, "The number of Content-Length."),
    Variable::read_only("ua", MESSAGES, m::ua, "The value of User-Agent."),
    Variable::read_only("re", MESSAGES, m::remote_party, "The value of Remote-Party-ID."),
    Variable::read_only("rb", MESSAGES, m::rb, "The body; null if there is none."),
    Variable::read_only("bs", MESSAGES, m::bs, "The length of the body in bytes."),
    Variable::read_only("mb", MESSAGES, m::mb, "The whole message as it was received."),
    Variable::read_only("ml", MESSAGES, m::ml, "The length of the message in bytes."),
    Variable::read_only("mt", MESSAGES, m::mt, "1 for a request, 2 for a response."),
    Variable::read_only("mi", MESSAGES, m::mi, "A number of the message: the microsecond of its arrival."),
    Variable::read_only("hdr", MESSAGES, m::hdr, "The value of a header, written long or compact; null if there is none. An index counts headers of the name, from the end if it is negative.").inner(InnerRule::Required, true),
    Variable::read_only("hdrc", MESSAGES, m::hdrc, "How many headers there are of a name.").inner(InnerRule::Required, false),
    Variable::read_only("hfl", MESSAGES, m::hdr, "As `$hdr`.").inner(InnerRule::Required, true),
    Variable::read_only("msg", MESSAGES, m::msg, "Parts of the message: its length (`len`), its text (`buf`), its body (`body`), the body's length (`body_size`), its headers (`hdrs`) or its first line (`fline`).").inner(InnerRule::OneOf(m::MSG_PARTS), false),
    // --- credentials ----------------------------------------------------------------------------------------------
    Variable::read_only("au", MESSAGES, c::user, "The user of the credentials' user name, without the domain. Credentials are those that authenticated the request, or else the first ones in it, right or wrong."),
    Variable::read_only("ad", MESSAGES, c::domain, "The domain of the credentials' user name; null if it has none."),
    Variable::read_only("aU", MESSAGES, c::username, "The credentials' whole user name."),
    Variable::read_only("ar", MESSAGES, c::realm, "The realm of the credentials."),
    Variable::read_only("adu", MESSAGES, c::uri, "The `uri` of the credentials."),
    Variable::read_only("aa", MESSAGES, c::algorithm, "The algorithm of the credentials; MD5 if they name none."),
    Variable::read_only("adn", MESSAGES, c::nonce, "The nonce of the credentials."),
    Variable::read_only("adc", MESSAGES, c::cnonce, "The `cnonce` of the credentials."),
    Variable::read_only("adr", MESSAGES, c::response, "The `response` of the credentials."),
    Variable::read_only("ado", MESSAGES, c::opaque, "The `opaque` of the credentials."),
    // --- where it came from -----------------------------------------------------------------------------------------
    Variable::read_only("si", MESSAGES, m::si, "The address that the message came from."),
    Variable::read_only("sp", MESSAGES, m::sp, "The port that the message came from."),
    Variable::read_only("su", MESSAGES, m::su, "Where the message came from, as a URI."),
    Variable::read_only("sas", MESSAGES, m::sas, "Where the message came from, as `proto:address:port`."),
    Variable::read_only("siz", MESSAGES, m::siz, "The address that the message came from; IPv6 in brackets."),
    Variable::read_only("Ri", MESSAGES, m::received_ip, "Our address by which the message came."),
    Variable::read_only("Rp", MESSAGES, m::received_port, "Our port by which the message came."),
    Variable::read_only("RAi", MESSAGES, m::advertised_host, "The host that we advertise where the message came in."),
    Variable::read_only("RAp", MESSAGES, m::advertised_port, "The port that we advertise where the message came in."),
    Variable::read_only("Ru", MESSAGES, m::received_uri, "Our address by which the message came, as a URI."),
    Variable::read_only("pr", MESSAGES, m::proto, "The transport that the message came by: `udp`, `tcp`, `tls`, `ws` or `wss`."),
    Variable::read_only("proto", MESSAGES, m::proto, "The transport that the message came by: `udp`, `tcp`, `tls`, `ws` or `wss`."),
    Variable::read_only("af", MESSAGES, m::af, "The address family that the message came by: `IPv4` or `IPv6`."),
    // --- what the script keeps --------------------------------------------------------------------------------------
    Variable::writable("avp", MESSAGES, avp, set_avp, "A variable of the transaction. Assigning adds a value in front of the earlier ones; null takes the newest away.").inner(InnerRule::Required, true),
    Variable::writable("mf", MESSAGES, flags, set_flags, "The flags of the transaction as a number."),
    // --- the time, the server ---------------------------------------------------------------------------------------
    Variable::read_only("TS", ANY, m::seconds, "Seconds since 1970 at the message's arrival."),
    Variable::read_only("Ts", ANY, m::seconds, "Seconds since 1970 at the message's arrival."),
    Variable::read_only("TV", ANY, m::time_value, "The time of the message's arrival: seconds (`s`) and microseconds (`u`) since 1970, or both (`sn`).").inner(InnerRule::OneOf(m::TIME_PARTS), false),
    Variable::read_only("max_len", ANY, m::max_len, "The longest message that is taken, in bytes; the old keyword `max_len`."),
    Variable::read_only("pp", ANY, m::pid, "The process id of the server."),
    Variable::read_only("version", ANY, m::version, "The version of the server (`num` or `full`).").inner(InnerRule::Optional, false),
    Variable::read_only("T_reply_code", REPLY.or(TARGETS), m::status, "The status of the response in hand, of what goes upstream in a failure route, or of what was replied."),
    Variable::read_only("T_branch_idx", REQUESTS, m::branch_index, "The number of the branch in hand, from 0; -1 elsewhere."),
];

fn avp(run: &mut Run<'_, '_>, at: &Subscript<'_>, out: &mut Sink<'_>) {
    // What was kept may be a piece of an earlier message: see `crate::text`.
    let kept = run.state().avps_hold_lines;
    run.prepared.lines_read |= kept;
    run.state().avps.read(at.inner.bytes(), at.index, out);
}

fn set_avp(run: &mut Run<'_, '_>, at: &Subscript<'_>, value: ValueRef<'_>) {
    let lines = value.as_str().is_some_and(|text| !crate::text::is_line(text));
    run.state().avps_hold_lines |= lines;
    if run.state().avps.write(at.inner.bytes(), at.index, value).is_err() {
        run.fail("$avp: 256 values and 65,536 bytes are kept with one transaction; this one is lost");
    }
}

fn flags(run: &mut Run<'_, '_>, _: &Subscript<'_>, out: &mut Sink<'_>) {
    out.int(i64::from(run.state().flags));
}

fn set_flags(run: &mut Run<'_, '_>, _: &Subscript<'_>, value: ValueRef<'_>) {
    run.state().flags = u32::try_from(value.to_int()).unwrap_or(0);
}
