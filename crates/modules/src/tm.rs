//! `tm`: transactions, relaying (RFC 3261 §16, §17).

use crate::core::{destination, is_request, outcome};
use crate::run::{Context, Run};
use crate::sl::{CODE, Mode, REASON, reply};
use crate::table::{
    Function, MESSAGES, Module, TARGETS, harmless_parameter, int_parameter, refused_parameter,
};
use crate::uri_parts::push_number;
use ::core::time::Duration;
use route::{Args, Contexts, Outcome, Param, ParamKind, ParameterDecl, RouteKind};
use sip::Method;

pub(crate) static MODULE: Module = Module {
    name: "tm",
    doc: "Transactions and relaying.",
    functions: FUNCTIONS,
    parameters: PARAMETERS,
    variables: &[],
};

/// The longest `fr_timer`, in ms.
const FR_MAX_MS: u32 = 3_600_000;
/// The longest `fr_inv_timer`, in ms.
const FR_INV_MAX_MS: u32 = 86_400_000;

const CANCEL_REASON: &str = "a CANCEL carries the Reason of the one that caused it, or none.";
const NO_BLOCKLIST: &str = "no list of unreachable destinations is kept.";
const MATCHING: &str = "requests match by branch, sent-by and method, old clients by RFC 2543's rules.";

static PARAMETERS: &[ParameterDecl] = &[
    int_parameter(
        "fr_timer",
        (1, FR_MAX_MS as i64),
        32_000,
        "ms",
        "How long a branch waits for any response (timers B and F).",
    ),
    int_parameter(
        "fr_inv_timer",
        (1, FR_INV_MAX_MS as i64),
        185_000,
        "ms",
        "How long a ringing INVITE waits for a final response (timer C). RFC 3261 section 16.6 item 11 asks for more than 180,000.",
    ),
    int_parameter("retr_timer1", (50, 60_000), 500, "ms", "The first interval between retransmissions (T1)."),
    int_parameter(
        "retr_timer2",
        (50, 60_000),
        4_000,
        "ms",
        "The longest interval between retransmissions (T2).",
    ),
    int_parameter(
        "wt_timer",
        (1, 3_600_000),
        5_000,
        "ms",
        "How long a finished transaction absorbs what is still in the network (T4).",
    ),
    int_parameter("auto_inv_100", (0, 1), 1, "", "Whether an INVITE is answered 100 when it is relayed."),
    harmless_parameter("auto_inv_100_reason", "the 100 says Trying."),
    harmless_parameter(
        "max_inv_lifetime",
        "a transaction ends by RFC 3261's timers: fr_inv_timer is what bounds it.",
    ),
    harmless_parameter(
        "max_noninv_lifetime",
        "a transaction ends by RFC 3261's timers: fr_timer is what bounds it.",
    ),
    harmless_parameter("noisy_ctimer", "a caller always hears of a timeout."),
    harmless_parameter(
        "restart_fr_on_each_reply",
        "a provisional response restarts timer C (RFC 3261 section 16.7 item 2).",
    ),
    harmless_parameter("unix_tx_timeout", "there is no command interface of that kind."),
    harmless_parameter(
        "aggregate_challenges",
        "challenges are always gathered (RFC 3261 section 16.7 item 7).",
    ),
    harmless_parameter("reparse_invite", "a CANCEL and an ACK are made of the INVITE that was sent."),
    harmless_parameter("ac_extra_hdrs", "a CANCEL and an ACK carry what RFC 3261 says."),
    harmless_parameter("blst_503", NO_BLOCKLIST),
    harmless_parameter("blst_503_def_timeout", NO_BLOCKLIST),
    harmless_parameter("blst_503_min_timeout", NO_BLOCKLIST),
    harmless_parameter("blst_503_max_timeout", NO_BLOCKLIST),
    harmless_parameter("blst_methods_add", NO_BLOCKLIST),
    harmless_parameter("blst_methods_lookup", NO_BLOCKLIST),
    harmless_parameter(
        "cancel_b_method",
        "a CANCEL waits for the branch's first response (RFC 3261 section 9.1).",
    ),
    harmless_parameter("reparse_on_dns_failover", "each branch is written for itself."),
    harmless_parameter("ruri_matching", MATCHING),
    harmless_parameter("via1_matching", MATCHING),
    harmless_parameter("callid_matching", MATCHING),
    harmless_parameter("callid_cseq_matching", MATCHING),
    harmless_parameter(
        "pass_provisional_replies",
        "nothing is called for provisional responses but the reply routes.",
    ),
    harmless_parameter("default_code", "a failure has the status that belongs to it."),
    harmless_parameter("default_reason", "a failure has the reason that belongs to it."),
    harmless_parameter("local_ack_mode", "no INVITE is originated here."),
    harmless_parameter("faked_reply_prio", "the best response is chosen by RFC 3261 section 16.7 item 6."),
    harmless_parameter("local_cancel_reason", CANCEL_REASON),
    harmless_parameter("e2e_cancel_reason", CANCEL_REASON),
    harmless_parameter("remap_503_500", "a 503 goes upstream as RFC 3261 section 16.7 item 6 says."),
    harmless_parameter("failure_exec_mode", "a failure route runs once, when all branches have failed."),
    harmless_parameter(
        "dns_reuse_rcv_socket",
        "a request leaves by the listener it came by where that can reach the next hop.",
    ),
    harmless_parameter("event_callback", "routes are written in this language."),
    harmless_parameter("event_callback_lres_sent", "routes are written in this language."),
    harmless_parameter("relay_100", "a 100 is never forwarded (RFC 3261 section 16.7 item 2)."),
    harmless_parameter("rich_redirect", "a 3xx carries the targets' URIs and preferences."),
    harmless_parameter("exec_time_check", "scripts never wait."),
    harmless_parameter("enable_uac_fr", "no request is originated here."),
    harmless_parameter("xavp_contact", "`t_load_contacts` is not there."),
    harmless_parameter("contacts_avp", "`t_load_contacts` is not there."),
    harmless_parameter("contact_flows_avp", "`t_load_contacts` is not there."),
    harmless_parameter(
        "failure_reply_mode",
        "replies of earlier branches do not win over later ones once a failure route has relayed again.",
    ),
    refused_parameter(
        "unmatched_cancel",
        "a CANCEL without INVITE is forwarded without state (RFC 3261 section 16.10); drop it in the route with t_check_trans().",
    ),
    refused_parameter("on_sl_reply", "write `onreply_route { }`: it runs for every response."),
    refused_parameter("fr_timer_avp", "call t_set_fr() where the timer shall be another."),
    refused_parameter("fr_inv_timer_avp", "call t_set_fr() where the timer shall be another."),
    refused_parameter("disable_6xx_block", "a 6xx ends all branches (RFC 3261 section 16.7 item 5)."),
    refused_parameter("reply_relay_mode", "responses are relayed as they come."),
];

const HOST: Param = Param::new("host", ParamKind::Format);
const PORT: Param = Param::new("port", ParamKind::Int);
const RELAY: &str = "Relays the request statefully to all its targets (RFC 3261 section 16.6), or to HOST and PORT whatever they are. An ACK goes without state; a CANCEL cancels the INVITE that it matches. False if it could not be relayed; `sl_reply_error()` says why then, and if nothing does, the server answers by itself.";

static FUNCTIONS: &[Function] = &[
    Function::new("t_relay", &[], TARGETS, t_relay, RELAY),
    Function::new("t_relay", &[HOST, PORT], TARGETS, t_relay_to, RELAY),
    Function::new(
        "t_relay_to_udp",
        &[HOST, PORT],
        TARGETS,
        t_relay_to_udp,
        "`t_relay` to HOST and PORT by UDP.",
    ),
    Function::new(
        "t_relay_to_tcp",
        &[HOST, PORT],
        TARGETS,
        t_relay_to_tcp,
        "`t_relay` to HOST and PORT by TCP.",
    ),
    Function::new(
        "t_relay_to_tls",
        &[HOST, PORT],
        TARGETS,
        t_relay_to_tls,
        "`t_relay` to HOST and PORT by TLS; the certificate must be HOST's.",
    ),
    Function::new(
        "t_forward_nonack",
        &[HOST, PORT],
        TARGETS,
        t_forward_nonack,
        "`t_relay` to HOST and PORT for anything but an ACK.",
    ),
    Function::new(
        "t_forward_nonack_udp",
        &[HOST, PORT],
        TARGETS,
        t_forward_nonack_udp,
        "`t_relay` to HOST and PORT by UDP for anything but an ACK.",
    ),
    Function::new(
        "t_forward_nonack_tcp",
        &[HOST, PORT],
        TARGETS,
        t_forward_nonack_tcp,
        "`t_relay` to HOST and PORT by TCP for anything but an ACK.",
    ),
    Function::new(
        "t_forward_nonack_tls",
        &[HOST, PORT],
        TARGETS,
        t_forward_nonack_tls,
        "`t_relay` to HOST and PORT by TLS for anything but an ACK.",
    ),
    Function::new(
        "t_relay_cancel",
        &[],
        Contexts::REQUEST,
        t_relay_cancel,
        "Cancels the INVITE that this CANCEL matches and ends the script; false if there is none.",
    ),
    Function::new(
        "t_newtran",
        &[],
        Contexts::REQUEST,
        t_newtran,
        "Makes a transaction of the request, so that what is answered later is answered with state. False if that is not possible.",
    ),
    Function::new(
        "t_reply",
        &[CODE, REASON],
        TARGETS,
        t_reply,
        "Replies CODE REASON in the transaction; false if there is none.",
    ),
    Function::new(
        "t_send_reply",
        &[CODE, REASON],
        TARGETS,
        t_send_reply,
        "Replies CODE REASON in the transaction, which it makes if there is none.",
    ),
    Function::new(
        "t_check_trans",
        &[],
        MESSAGES,
        t_check_trans,
        "Whether a CANCEL or an ACK belongs to an INVITE that is here, and a response to a transaction. Retransmissions never get here.",
    ),
    Function::optional(
        "t_lookup_cancel",
        &[Param::new("flags", ParamKind::Int)],
        0,
        Contexts::REQUEST,
        t_lookup_cancel,
        "Whether a CANCEL matches an INVITE that is here.",
    ),
    Function::new(
        "t_lookup_request",
        &[],
        MESSAGES,
        t_lookup_request,
        "Whether the request has a transaction.",
    ),
    Function::new(
        "t_on_reply",
        &[Param::new("route", ParamKind::Route(RouteKind::Reply))],
        MESSAGES,
        t_on_reply,
        "Runs `onreply_route[ROUTE]` for the responses of this transaction; an empty name, none.",
    ),
    Function::new(
        "t_on_failure",
        &[Param::new("route", ParamKind::Route(RouteKind::Failure))],
        MESSAGES,
        t_on_failure,
        "Runs `failure_route[ROUTE]` when all branches of this transaction have failed; an empty name, none.",
    ),
    Function::new(
        "t_on_branch",
        &[Param::new("route", ParamKind::Route(RouteKind::Branch))],
        TARGETS,
        t_on_branch,
        "Runs `branch_route[ROUTE]` for each branch of this transaction before it is sent; an empty name, none.",
    ),
    Function::new(
        "t_is_set",
        &[Param::new("what", ParamKind::Encoded(armed))],
        MESSAGES,
        t_is_set,
        "Whether a `failure_route`, `onreply_route` or `branch_route` is armed.",
    ),
    Function::new(
        "t_check_status",
        &[Param::new("expression", ParamKind::Regex)],
        MESSAGES,
        t_check_status,
        "Whether the status matches: of the response in a reply route, of what goes upstream in a failure route, else of what was replied.",
    ),
    Function::new(
        "t_get_status_code",
        &[],
        MESSAGES,
        t_get_status_code,
        "The status as return code, -1 if there is none.",
    ),
    Function::optional(
        "t_set_fr",
        &[Param::new("fr_inv_timer", ParamKind::Int), Param::new("fr_timer", ParamKind::Int)],
        1,
        TARGETS,
        t_set_fr,
        "Sets the timers of what is relayed afterwards, in ms: how long a ringing INVITE waits for a final response (1 to 86,400,000), and how long a branch waits for any (1 to 3,600,000). 0, the one that is set by `modparam`.",
    ),
    Function::new("t_reset_fr", &[], TARGETS, t_reset_fr, "Takes back what `t_set_fr` set."),
    Function::new(
        "t_is_canceled",
        &[],
        TARGETS,
        t_is_canceled,
        "Whether the caller has cancelled the INVITE.",
    ),
    Function::new(
        "t_any_replied",
        &[],
        TARGETS,
        t_any_replied,
        "Whether any branch of the transaction got a response, provisional or final.",
    ),
    Function::new(
        "t_any_timeout",
        &[],
        TARGETS,
        t_any_timeout,
        "Whether any branch of the transaction waited in vain for a response.",
    ),
    Function::new(
        "t_branch_replied",
        &[],
        Contexts::FAILURE,
        t_branch_replied,
        "Whether the branch whose response is about to go upstream got one, provisional or final.",
    ),
    Function::new(
        "t_branch_timeout",
        &[],
        Contexts::FAILURE,
        t_branch_timeout,
        "Whether the branch whose response is about to go upstream waited in vain for it.",
    ),
];

/// Functions of Kamailio's `tm` that cannot be had, and why.
pub(crate) static ABSENT: &[(&str, &str)] = &[
    ("t_set_retr", "the timers are the same for all transactions: set tm's retr_timer1 and retr_timer2"),
    ("t_set_max_lifetime", "a transaction ends by RFC 3261's timers: t_set_fr() sets those that bound it"),
    ("t_release", "transactions end by themselves: leave the call out"),
    ("t_set_auto_inv_100", "the 100 is for all INVITEs or for none: set tm's auto_inv_100"),
    ("t_save_lumps", "each branch is written for itself: leave the call out"),
    ("t_retransmit_reply", "retransmissions are answered by themselves: leave the call out"),
    ("t_is_expired", "a final response that comes too late is not forwarded: leave the test out"),
    ("t_is_retr_async_reply", "retransmissions are answered by themselves: leave the test out"),
    ("t_grep_status", "only the best response is kept: test t_check_status"),
    ("t_relay_to_sctp", "SCTP is not there"),
    ("t_load_contacts", "targets of one preference are tried together, lower ones afterwards"),
    ("t_next_contacts", "targets of one preference are tried together, lower ones afterwards"),
    ("t_suspend", "the script waits by itself where a function needs an answer from outside"),
    ("t_continue", "the script waits by itself where a function needs an answer from outside"),
    ("force_send_socket", "a request leaves by the listener that it came by, or the first that fits"),
    ("setbflag", "branches have no flags yet"),
    ("isbflagset", "branches have no flags yet"),
    ("resetbflag", "branches have no flags yet"),
];

fn t_relay(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    let done = run.request().is_some_and(|cx| cx.relay().is_ok());
    outcome(done)
}

fn relay_to(run: &mut Run<'_, '_>, args: &Args<'_>, params: &[u8]) -> Outcome {
    let mut uri = core::mem::take(&mut run.scratch.uri);
    destination(&mut uri, args.str(0), Some(args.int(1)), params);
    let done = run.request().is_some_and(|cx| {
        cx.set_destination_uri(Some(&uri));
        cx.relay().is_ok()
    });
    run.scratch.uri = uri;
    outcome(done)
}

fn t_relay_to(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    relay_to(run, args, b"")
}

fn t_relay_to_udp(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    relay_to(run, args, b";transport=udp")
}

fn t_relay_to_tcp(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    relay_to(run, args, b";transport=tcp")
}

fn t_relay_to_tls(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    relay_to(run, args, b";transport=tls")
}

fn forward_nonack(run: &mut Run<'_, '_>, args: &Args<'_>, params: &[u8]) -> Outcome {
    if run.message().method() == Method::Ack {
        return Outcome::False;
    }
    relay_to(run, args, params)
}

fn t_forward_nonack(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    forward_nonack(run, args, b"")
}

fn t_forward_nonack_udp(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    forward_nonack(run, args, b";transport=udp")
}

fn t_forward_nonack_tcp(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    forward_nonack(run, args, b";transport=tcp")
}

fn t_forward_nonack_tls(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    forward_nonack(run, args, b";transport=tls")
}

fn t_relay_cancel(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    if !is_known_cancel(run) {
        return Outcome::False;
    }
    match run.request().map(|cx| cx.relay()) {
        Some(Ok(())) => Outcome::Exit,
        _ => Outcome::False,
    }
}

fn t_newtran(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    let done = run.request().is_some_and(|cx| cx.create_transaction().is_ok());
    outcome(done)
}

fn t_reply(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    if !run.request().is_some_and(|cx| cx.has_transaction()) {
        return run
            .fail("t_reply: there is no transaction; call t_newtran() before, or send_reply() instead");
    }
    outcome(reply(run, args.int(0), args.str(1), Mode::Any))
}

fn t_send_reply(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let created = run.request().is_some_and(|cx| cx.create_transaction().is_ok());
    outcome(created && reply(run, args.int(0), args.str(1), Mode::Any))
}

fn is_known_cancel(run: &mut Run<'_, '_>) -> bool {
    run.message().method() == Method::Cancel && run.request().is_some_and(|cx| cx.matches_transaction())
}

fn t_check_trans(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    outcome(match &run.cx {
        Context::Request(cx) => cx.matches_transaction(),
        Context::Reply(cx) => cx.transaction().is_some(),
        Context::Branch(_) => true,
    })
}

fn t_lookup_cancel(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    outcome(is_known_cancel(run))
}

fn t_lookup_request(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    outcome(match &run.cx {
        Context::Request(cx) => cx.has_transaction(),
        Context::Reply(_) => false,
        Context::Branch(_) => true,
    })
}

fn t_on_reply(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    run.state().on_reply = args.route(0);
    Outcome::True
}

fn t_on_failure(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    run.state().on_failure = args.route(0);
    Outcome::True
}

fn t_on_branch(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    run.state().on_branch = args.route(0);
    Outcome::True
}

fn armed(what: &[u8]) -> Result<i64, &'static str> {
    match what {
        b"failure_route" => Ok(0),
        b"onreply_route" | b"reply_route" => Ok(1),
        b"branch_route" => Ok(2),
        _ => Err("it is one of failure_route, onreply_route, branch_route"),
    }
}

fn t_is_set(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let state = run.state();
    outcome(match args.int(0) {
        0 => state.on_failure.is_some(),
        1 => state.on_reply.is_some(),
        2 => state.on_branch.is_some(),
        _ => false,
    })
}

fn t_check_status(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let (Some(status), Some(expression)) = (run.status(), args.regex(0)) else { return Outcome::False };
    let mut text = core::mem::take(&mut run.scratch.text);
    text.clear();
    push_number(&mut text, u64::from(status));
    let matched = expression.is_match(&text);
    run.scratch.text = text;
    outcome(matched)
}

/// A timer in ms; `None` for 0, and what is out of range is an error.
fn timer(millis: i64, max: u32) -> Result<Option<Duration>, ()> {
    match u32::try_from(millis) {
        Ok(0) => Ok(None),
        Ok(millis) if millis <= max => Ok(Some(Duration::from_millis(millis.into()))),
        _ => Err(()),
    }
}

fn t_set_fr(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let (Ok(ringing), Ok(silence)) = (timer(args.int(0), FR_INV_MAX_MS), timer(args.int(1), FR_MAX_MS))
    else {
        return run.fail("t_set_fr: timers are 1 to 86,400,000 and 1 to 3,600,000 ms, or 0");
    };
    if let Some(cx) = run.request() {
        cx.set_timeouts(ringing, silence);
    }
    Outcome::True
}

fn t_reset_fr(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    if let Some(cx) = run.request() {
        cx.set_timeouts(None, None);
    }
    Outcome::True
}

fn t_is_canceled(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    outcome(run.request().is_some_and(|cx| cx.is_cancelled()))
}

fn t_any_replied(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    outcome(run.request().is_some_and(|cx| cx.branches().any_replied))
}

fn t_any_timeout(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    outcome(run.request().is_some_and(|cx| cx.branches().any_timed_out))
}

fn t_branch_replied(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    outcome(run.request().is_some_and(|cx| cx.branches().best_replied))
}

fn t_branch_timeout(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    outcome(run.request().is_some_and(|cx| cx.branches().best_timed_out))
}

fn t_get_status_code(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    debug_assert!(is_request(run) || run.status().is_some());
    run.status().map_or(Outcome::False, |status| Outcome::Code(i32::from(status)))
}
