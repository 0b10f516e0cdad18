//! The core's functions: forwarding, rewriting the Request-URI, flags, the log.

pub(crate) mod settings_table;

use crate::log::Level;
use crate::run::{Change, Context, Run};
use crate::table::{Function, MESSAGES, Module, REQUESTS, TARGETS};
use crate::uri_parts::{decimal, integer, split_hostport};
use engine::Target;
use route::{Args, Contexts, Outcome, Param, ParamKind, ValueRef};

/// The module that is always loaded.
pub(crate) static MODULE: Module = Module {
    name: route::CORE,
    doc: "Always there: forwarding, rewriting the Request-URI, targets, flags, the log.",
    functions: FUNCTIONS,
    parameters: &[],
    variables: &[],
};

const URI: Param = Param::new("uri", ParamKind::Format);
const HOST: Param = Param::new("host", ParamKind::Format);
const PORT: Param = Param::new("port", ParamKind::Int);
const USER: Param = Param::new("user", ParamKind::Format);
const COUNT: Param = Param::new("count", ParamKind::Int);
const FLAG: Param = Param::new("flag", ParamKind::Int);
const Q: Param = Param::new("q", ParamKind::Any);

const FORWARD: &str = "Sends the request on without state (RFC 3261 section 16.11), to the next hop of its Route, \
    destination or Request-URI, or to HOST and PORT. True if it was sent.";
const FORWARD_BY: &str = "`forward` to HOST and PORT by the transport in its name.";
const ALIAS: &str = "Lets requests to the sender take the connection that this one came by, as if it led to PORT of the \
    sender, by default that of the topmost Via (RFC 5923). The script must know that the sender is who it says: on a \
    shared address another's calls would go there, too. False where the request came by UDP or WebSocket.";
const SET_HOST: &str = "Replaces the host of the Request-URI.";
const SET_HOSTPORT: &str = "Replaces host and port of the Request-URI: `HOST[:PORT]`.";
const SET_USER: &str = "Replaces the user of the Request-URI; an empty one removes it.";
const SET_PORT: &str = "Replaces the port of the Request-URI; an empty one removes it.";
const SET_URI: &str = "Replaces the Request-URI. False if it is no URI.";
const APPEND_BRANCH: &str = "Adds a target beside the Request-URI: URI with preference Q (0 to 1), or without URI the \
    Request-URI as it is now. False if there are as many as there may be.";

const FORCE_RPORT: &str = "Sends the responses to the address and port that the request came from, although its client \
    did not ask for it by `rport` (RFC 3581). To be called before the request is relayed or answered.";

static FUNCTIONS: &[Function] = &[
    Function::new("forward", &[], Contexts::REQUEST, forward, FORWARD),
    Function::optional("forward", &[HOST, PORT], 1, Contexts::REQUEST, forward_to, FORWARD),
    Function::optional("forward_udp", &[HOST, PORT], 1, Contexts::REQUEST, forward_udp, FORWARD_BY),
    Function::optional("forward_tcp", &[HOST, PORT], 1, Contexts::REQUEST, forward_tcp, FORWARD_BY),
    Function::optional("forward_tls", &[HOST, PORT], 1, Contexts::REQUEST, forward_tls, FORWARD_BY),
    Function::optional("append_branch", &[URI, Q], 0, TARGETS, append_branch, APPEND_BRANCH),
    Function::new("clear_branches", &[], TARGETS, clear_branches, "Forgets all targets but the Request-URI."),
    Function::new("rewritehost", &[HOST], REQUESTS, set_host, SET_HOST),
    Function::new("sethost", &[HOST], REQUESTS, set_host, SET_HOST),
    Function::new("rewritehostport", &[HOST], REQUESTS, set_hostport, SET_HOSTPORT),
    Function::new("sethostport", &[HOST], REQUESTS, set_hostport, SET_HOSTPORT),
    Function::new("rewriteuser", &[USER], REQUESTS, set_user, SET_USER),
    Function::new("setuser", &[USER], REQUESTS, set_user, SET_USER),
    Function::new(
        "rewriteuserpass",
        &[USER],
        REQUESTS,
        set_userpass,
        "Replaces user and password: `USER:PASSWORD`.",
    ),
    Function::new(
        "setuserpass",
        &[USER],
        REQUESTS,
        set_userpass,
        "Replaces user and password: `USER:PASSWORD`.",
    ),
    Function::new("rewriteport", &[Param::new("port", ParamKind::Format)], REQUESTS, set_port, SET_PORT),
    Function::new("setport", &[Param::new("port", ParamKind::Format)], REQUESTS, set_port, SET_PORT),
    Function::new("rewriteuri", &[URI], REQUESTS, set_uri, SET_URI),
    Function::new("seturi", &[URI], REQUESTS, set_uri, SET_URI),
    Function::new("revert_uri", &[], REQUESTS, revert_uri, "Puts back the Request-URI that was received."),
    Function::new("prefix", &[USER], REQUESTS, prefix, "Puts a text before the user of the Request-URI."),
    Function::new(
        "strip",
        &[COUNT],
        REQUESTS,
        strip,
        "Takes COUNT characters off the front of the Request-URI's user.",
    ),
    Function::new(
        "strip_tail",
        &[COUNT],
        REQUESTS,
        strip_tail,
        "Takes COUNT characters off the end of the Request-URI's user.",
    ),
    Function::new(
        "setdsturi",
        &[URI],
        TARGETS,
        set_destination,
        "Sets the next hop, whatever Route and Request-URI say.",
    ),
    Function::new("resetdsturi", &[], TARGETS, reset_destination, "Forgets the next hop that was set."),
    Function::new("isdsturiset", &[], REQUESTS, is_destination_set, "Whether a next hop was set."),
    Function::new("force_rport", &[], TARGETS, force_rport, FORCE_RPORT),
    Function::new("add_rport", &[], TARGETS, force_rport, FORCE_RPORT),
    Function::new(
        "add_local_rport",
        &[],
        TARGETS,
        add_local_rport,
        "Asks the next hop, by `rport` in our Via, to answer to the port that the request leaves by (RFC 3581).",
    ),
    Function::new("setflag", &[FLAG], MESSAGES, set_flag, "Sets flag 0 to 31 of the transaction."),
    Function::new("resetflag", &[FLAG], MESSAGES, reset_flag, "Clears flag 0 to 31 of the transaction."),
    Function::new(
        "isflagset",
        &[FLAG],
        MESSAGES,
        is_flag_set,
        "Whether flag 0 to 31 of the transaction is set.",
    ),
    Function::new(
        "len_gt",
        &[Param::new("bytes", ParamKind::Int)],
        MESSAGES,
        len_gt,
        "Whether the message is longer than so many bytes (SER's old test; `msg:len > N` says the same).",
    ),
    Function::new(
        "log",
        &[Param::new("text", ParamKind::Str)],
        Contexts::ANY,
        log,
        "Writes a text to the log, as an error or at LEVEL (-5 to 3).",
    ),
    Function::new(
        "log",
        &[Param::new("level", ParamKind::Int), Param::new("text", ParamKind::Str)],
        Contexts::ANY,
        log_level,
        "Writes a text to the log, as an error or at LEVEL (-5 to 3).",
    ),
    Function::optional("force_tcp_alias", &[PORT], 0, Contexts::REQUEST, tcp_alias, ALIAS),
    Function::optional("add_tcp_alias", &[PORT], 0, Contexts::REQUEST, tcp_alias, ALIAS),
];

/// True or false.
pub(crate) fn outcome(done: bool) -> Outcome {
    if done { Outcome::True } else { Outcome::False }
}

fn tcp_alias(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let port = match (!args.is_empty()).then(|| u16::try_from(args.int(0))) {
        None => None,
        Some(Ok(port)) if port > 0 => Some(port),
        Some(_) => return run.fail("force_tcp_alias: a port is 1 to 65535"),
    };
    let done = run.request().is_some_and(|cx| cx.alias(port));
    outcome(done)
}

fn forward(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    outcome(run.request().is_some_and(|cx| send_on(cx, None)))
}

/// Sends a request on without state; one that has a transaction already, as after a function that waited, in it: its client
/// waits for the transaction's answer.
fn send_on(cx: &mut engine::RequestContext<'_, crate::run::State>, destination: Option<&[u8]>) -> bool {
    if !cx.has_transaction() {
        return cx.forward(destination).is_ok();
    }
    if destination.is_some() {
        cx.set_destination_uri(destination);
    }
    cx.clear_targets();
    cx.relay().is_ok()
}

fn forward_to(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    forward_by(run, args, b"")
}

fn forward_udp(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    forward_by(run, args, b";transport=udp")
}

fn forward_tcp(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    forward_by(run, args, b";transport=tcp")
}

fn forward_tls(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    forward_by(run, args, b";transport=tls")
}

fn forward_by(run: &mut Run<'_, '_>, args: &Args<'_>, params: &[u8]) -> Outcome {
    let mut uri = core::mem::take(&mut run.scratch.uri);
    destination(&mut uri, args.str(0), (args.len() > 1).then(|| args.int(1)), params);
    let done = run.request().is_some_and(|cx| send_on(cx, Some(&uri)));
    run.scratch.uri = uri;
    outcome(done)
}

/// Writes `sip:host[:port]` + `params`; a host that is a URI already stays one.
pub(crate) fn destination(uri: &mut alloc::vec::Vec<u8>, host: &[u8], port: Option<i64>, params: &[u8]) {
    uri.clear();
    if !host.get(..3).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"sip")) || !host.contains(&b':') {
        uri.extend_from_slice(b"sip:");
    }
    uri.extend_from_slice(host);
    if let Some(port) = port.and_then(|port| u16::try_from(port).ok()) {
        uri.push(b':');
        crate::uri_parts::push_number(uri, u64::from(port));
    }
    uri.extend_from_slice(params);
}

/// Reads a preference, `0.7` or an integer in thousandths.
fn preference(value: ValueRef<'_>) -> Option<u16> {
    match value {
        ValueRef::Null => Some(sip::Q::MAX.thousandths()),
        ValueRef::Str(text) => sip::Q::parse(text).map(sip::Q::thousandths),
        ValueRef::Int(number) => u16::try_from(number).ok().filter(|number| *number <= 1000),
    }
}

fn append_branch(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let Some(q) = preference(args.value(1)) else {
        return run.fail("append_branch: q is not between 0 and 1");
    };
    let mut uri = core::mem::take(&mut run.scratch.uri);
    let mut next_hop = core::mem::take(&mut run.scratch.text);
    uri.clear();
    next_hop.clear();
    let given = args.str(0);
    uri.extend_from_slice(if given.is_empty() { run.request_uri() } else { given });
    if given.is_empty() {
        next_hop.extend_from_slice(run.destination_uri().unwrap_or(&[]));
    }
    let target =
        Target { q, destination: (!next_hop.is_empty()).then_some(&next_hop[..]), ..Target::new(&uri) };
    let valid = sip::Uri::parse(&uri).is_ok();
    let done = valid && run.request().is_some_and(|cx| cx.append_target(&target).is_ok());
    run.scratch.uri = uri;
    run.scratch.text = next_hop;
    outcome(done)
}

fn clear_branches(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    if let Some(cx) = run.request() {
        cx.clear_targets();
    }
    Outcome::True
}

fn set_host(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let done = run.change_request_uri(Change::Host(args.str(0)));
    outcome(done)
}

fn set_hostport(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let (host, port) = split_hostport(args.str(0));
    let done = run.change_request_uri(Change::HostPort(host, port));
    outcome(done)
}

fn set_user(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let done = run.change_request_uri(Change::User(Some(args.str(0))));
    outcome(done)
}

fn set_userpass(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let text = args.str(0);
    let (user, password) = match crate::uri_parts::split_once(text, b':') {
        Some((user, password)) => (user, Some(password)),
        None => (text, None),
    };
    let done = run.change_request_uri(Change::UserPassword(user, password));
    outcome(done)
}

fn set_port(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let port = args.str(0);
    let done =
        (port.is_empty() || decimal(port).is_some()) && run.change_request_uri(Change::Port(Some(port)));
    outcome(done)
}

fn set_uri(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let uri = args.str(0);
    let valid = sip::Uri::parse(uri).is_ok();
    if valid {
        run.set_request_uri(uri);
    }
    outcome(valid)
}

fn revert_uri(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    let message = run.message();
    run.set_request_uri(message.request_uri());
    Outcome::True
}

fn prefix(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let done = run.change_request_uri(Change::Prefix(args.str(0)));
    outcome(done)
}

fn strip(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let count = usize::try_from(args.int(0)).unwrap_or(0);
    let done = run.change_request_uri(Change::Strip(count));
    outcome(done)
}

fn strip_tail(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let count = usize::try_from(args.int(0)).unwrap_or(0);
    let done = run.change_request_uri(Change::StripTail(count));
    outcome(done)
}

fn set_destination(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let uri = args.str(0);
    let valid = matches!(sip::Uri::parse(uri), Ok(sip::Uri::Sip(_)));
    if let Some(cx) = run.request()
        && valid
    {
        cx.set_destination_uri(Some(uri));
    }
    outcome(valid)
}

fn reset_destination(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    if let Some(cx) = run.request() {
        cx.set_destination_uri(None);
    }
    Outcome::True
}

fn is_destination_set(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    outcome(run.destination_uri().is_some())
}

fn force_rport(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    if let Some(cx) = run.request() {
        cx.force_rport();
    }
    Outcome::True
}

fn add_local_rport(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    if let Some(cx) = run.request() {
        cx.ask_rport();
    }
    Outcome::True
}

/// The bit of flag 0 to 31.
fn flag(args: &Args<'_>) -> Option<u32> {
    u32::try_from(args.int(0)).ok().and_then(|number| 1u32.checked_shl(number))
}

fn set_flag(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let Some(bit) = flag(args) else { return run.fail("setflag: there are flags 0 to 31") };
    run.state().flags |= bit;
    Outcome::True
}

fn reset_flag(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let Some(bit) = flag(args) else { return run.fail("resetflag: there are flags 0 to 31") };
    run.state().flags &= !bit;
    Outcome::True
}

fn is_flag_set(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let Some(bit) = flag(args) else { return run.fail("isflagset: there are flags 0 to 31") };
    outcome(run.state().flags & bit != 0)
}

fn len_gt(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let limit = match args.value(0) {
        ValueRef::Int(limit) => limit,
        ValueRef::Str(text) => integer(text).unwrap_or(i64::MAX),
        ValueRef::Null => i64::MAX,
    };
    outcome(i64::try_from(run.message().bytes().len()).unwrap_or(i64::MAX) > limit)
}

fn log(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    run.say(Level::Error, args.str(0).trim_ascii_end());
    Outcome::True
}

fn log_level(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    run.say(Level::from_number(args.int(0)), args.str(1).trim_ascii_end());
    Outcome::True
}

/// Whether the run has a request in hand (a branch of one counts).
pub(crate) fn is_request(run: &Run<'_, '_>) -> bool {
    !matches!(run.cx, Context::Reply(_))
}
