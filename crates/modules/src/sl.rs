//! `sl`: replies without state (RFC 3261 §8.2.7), and `send_reply`, which uses the transaction if there is one.

use crate::core::outcome;
use crate::run::Run;
use crate::table::{Function, Module, REQUESTS, TARGETS, harmless_parameter, int_parameter, str_parameter};
use crate::text::push_line;
use alloc::vec::Vec;
use route::{Args, Outcome, Param, ParamKind};
use sip::Uri;

/// Whether a reply uses the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Never.
    Stateless,
    /// If there is one.
    Any,
}

pub(crate) static MODULE: Module = Module {
    name: "sl",
    doc: "Replies without state.",
    functions: FUNCTIONS,
    parameters: &[
        int_parameter(
            "default_code",
            (100, 699),
            500,
            "",
            "The status that `sl_reply_error` answers where no failure is known.",
        ),
        str_parameter(
            "default_reason",
            "Server Internal Error",
            "The reason that belongs to `default_code`.",
        ),
        harmless_parameter("bind_tm", "`send_reply` knows by itself whether there is a transaction."),
        harmless_parameter("rich_redirect", "a 3xx carries the targets' URIs and preferences."),
        harmless_parameter("event_callback_fl_ack", "routes are written in this language."),
        harmless_parameter("event_callback_lres_sent", "routes are written in this language."),
    ],
    variables: &[],
};

pub(crate) const CODE: Param = Param::new("code", ParamKind::Int);
pub(crate) const REASON: Param = Param::new("reason", ParamKind::Format);

const SL_SEND_REPLY: &str = "Replies CODE REASON without state. With a 3xx the targets go along as Contact. False for an ACK, which is never answered.";

static FUNCTIONS: &[Function] = &[
    Function::new("sl_send_reply", &[CODE, REASON], REQUESTS, sl_send_reply, SL_SEND_REPLY),
    Function::new("sl_reply", &[CODE, REASON], REQUESTS, sl_send_reply, SL_SEND_REPLY),
    Function::new(
        "send_reply",
        &[CODE, REASON],
        TARGETS,
        send_reply,
        "Replies CODE REASON: in the transaction if there is one, else without state. With a 3xx the targets go along as Contact.",
    ),
    Function::new(
        "sl_reply_error",
        &[],
        REQUESTS,
        sl_reply_error,
        "Replies with what the last failure was: 483 for too many hops, 478 for a next hop that cannot be reached, `default_code` and `default_reason` if nothing is known; nothing where the function that failed has answered, as `save` does.",
    ),
];

/// Functions of Kamailio's `sl` that cannot be had, and why.
pub(crate) static ABSENT: &[(&str, &str)] = &[(
    "sl_forward_reply",
    "a response is forwarded by itself when its reply route ends; `drop` keeps it back",
)];

fn sl_send_reply(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    outcome(reply(run, args.int(0), args.str(1), Mode::Stateless))
}

fn send_reply(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    outcome(reply(run, args.int(0), args.str(1), Mode::Any))
}

fn sl_reply_error(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    // `if (!save("location")) { sl_reply_error(); }`: what has answered its own failure is not answered twice.
    if run.request().and_then(|cx| cx.replied()).is_some_and(|status| status >= 200) {
        return Outcome::True;
    }
    let known = run.request().is_some_and(|cx| cx.last_error().is_some());
    if known {
        return outcome(run.request().is_some_and(|cx| cx.reply_error().is_ok()));
    }
    let settings = run.settings;
    let (code, reason) = &settings.default_reply;
    outcome(reply(run, i64::from(*code), reason.as_bytes(), Mode::Any))
}

/// Replies with the prepared headers and, in a redirection, the targets as Contact (RFC 3261 §8.3).
pub(crate) fn reply(run: &mut Run<'_, '_>, code: i64, reason: &[u8], mode: Mode) -> bool {
    let mut headers = core::mem::take(&mut run.scratch.headers);
    headers.clear();
    let done = reply_with(run, code, reason, &mut headers, mode);
    run.scratch.headers = headers;
    done
}

/// The same with header lines of the caller's own.
pub(crate) fn reply_with(
    run: &mut Run<'_, '_>,
    code: i64,
    reason: &[u8],
    headers: &mut Vec<u8>,
    mode: Mode,
) -> bool {
    let Ok(status) = u16::try_from(code) else { return false };
    headers.extend_from_slice(&run.prepared.reply_headers);
    // What a variable put into the reason must not end the line (RFC 3261 §25.1 `Reason-Phrase`).
    let mut line = core::mem::take(&mut run.scratch.text);
    line.clear();
    let reason = reason.split(|&byte| byte == b'\r' || byte == b'\n').next().unwrap_or(&[]);
    push_line(if reason.is_empty() { sip::reason_phrase(status).as_bytes() } else { reason }, &mut line);
    let done = run.request().is_some_and(|cx| send(cx, status, &line, headers, mode));
    run.scratch.text = line;
    done
}

fn send(
    cx: &mut engine::RequestContext<'_, crate::run::State>,
    status: u16,
    reason: &[u8],
    headers: &mut Vec<u8>,
    mode: Mode,
) -> bool {
    if (300..400).contains(&status) {
        push_targets(cx, headers);
    }
    let done = match mode {
        // After a function that waited there is a transaction, and its client waits for the transaction's answer.
        Mode::Stateless if !cx.has_transaction() => cx.reply_stateless(status, reason, headers, b""),
        Mode::Stateless | Mode::Any => cx.reply(status, reason, headers, b""),
    };
    done.is_ok()
}

/// Appends a Contact with all targets, the most preferred one first. RFC 3261 §8.3: nobody is redirected to a URI equal to
/// the Request-URI.
fn push_targets(cx: &engine::RequestContext<'_, crate::run::State>, out: &mut Vec<u8>) {
    /// Parameters of a Request-URI that is compared as a URI, at most; one with more is compared by its bytes.
    const PARAMS_MAX: usize = 32;
    let message = cx.message();
    let asked = match message.parsed_request_uri() {
        Ok(Uri::Sip(uri)) if uri.params.into_iter().nth(PARAMS_MAX).is_some() => None,
        parsed => parsed.ok(),
    };
    let is_same = |uri: &[u8]| {
        uri == message.request_uri()
            || matches!((&asked, Uri::parse(uri)), (Some(asked), Ok(uri)) if asked.equivalent(&uri))
    };
    let targets = || cx.targets().filter(|target| !is_same(target.uri));
    let Some(first) = targets().next() else { return };
    let differ = targets().any(|target| target.q != first.q);
    out.extend_from_slice(b"Contact: ");
    for (place, target) in targets().enumerate() {
        if place > 0 {
            out.extend_from_slice(b", ");
        }
        out.push(b'<');
        out.extend_from_slice(target.uri);
        out.push(b'>');
        if differ {
            push_q(out, target.q);
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends `;q=0.7` of thousandths.
pub(crate) fn push_q(out: &mut Vec<u8>, thousandths: u16) {
    out.extend_from_slice(b";q=");
    out.push(if thousandths >= 1000 { b'1' } else { b'0' });
    let mut rest = thousandths % 1000;
    if rest > 0 {
        out.push(b'.');
        let mut unit = 100;
        while rest > 0 {
            out.push(b'0' + (rest / unit) as u8);
            rest %= unit;
            unit /= 10;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferences_are_written_as_short_as_can_be() {
        for (thousandths, text) in
            [(0, ";q=0"), (1000, ";q=1"), (500, ";q=0.5"), (333, ";q=0.333"), (7, ";q=0.007")]
        {
            let mut out = Vec::new();
            push_q(&mut out, thousandths);
            assert_eq!(out, text.as_bytes());
        }
    }
}
