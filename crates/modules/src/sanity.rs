//! `sanity`: checks of requests that are answered when they fail (RFC 3261 §8.2, §16.3).

use crate::core::outcome;
use crate::run::Run;
use crate::sl::{Mode, reply_with};
use crate::table::{Function, Module, int_parameter, str_parameter};
use route::{Args, Contexts, Outcome, Param, ParamKind};
use sip::{HeaderName, Message, Uri};

const VERSION: i64 = 1;
const SCHEME: i64 = 2;
const REQUIRED: i64 = 4;
const CSEQ_METHOD: i64 = 32;
const CSEQ_VALUE: i64 = 64;
const LENGTH: i64 = 128;
const EXPIRES: i64 = 256;
const PROXY_REQUIRE: i64 = 512;
const URIS: i64 = 1024;
const TAGS: i64 = 4096;
const FIRST_VIA: i64 = 16_384;
const ALL: i64 = 32_767;

pub(crate) static MODULE: Module = Module {
    name: "sanity",
    doc: "Checks of requests that are answered when they fail.",
    functions: FUNCTIONS,
    parameters: &[
        int_parameter(
            "default_checks",
            (0, ALL),
            3047,
            "",
            "Which checks `sanity_check()` makes: the sum of SIP version (1), scheme of the Request-URI (2), required headers (4), method (32) and number (64) of CSeq, Content-Length (128), Expires (256), Proxy-Require (512), URIs (1,024), doubled tags (4,096), first Via (16,384). 8, 16, 2,048 and 8,192 check nothing.",
        ),
        int_parameter(
            "uri_checks",
            (0, 15),
            7,
            "",
            "Which URIs are checked: the sum of Request-URI (1), From (2), To (4), Contact (8).",
        ),
        str_parameter(
            "proxy_require",
            "",
            "The option tags, separated by commas, that a Proxy-Require may name.",
        ),
        int_parameter(
            "autodrop",
            (0, 1),
            1,
            "",
            "Whether a failed check ends the script; with 0 the function returns false.",
        ),
        int_parameter(
            "noreply",
            (0, 1),
            0,
            "",
            "Whether a failed check is left for `sanity_reply` to answer.",
        ),
    ],
    variables: &[],
};

const SANITY_CHECK: &str = "Checks the request; CHECKS and URIS are sums of numbers as in `default_checks` and `uri_checks`. A failed check is answered with the status that belongs to it and ends the script (false, with `autodrop` 0).";

static FUNCTIONS: &[Function] = &[
    Function::optional(
        "sanity_check",
        &[Param::new("checks", ParamKind::Int), Param::new("uris", ParamKind::Int)],
        0,
        Contexts::REQUEST,
        sanity_check,
        SANITY_CHECK,
    ),
    Function::new(
        "sanity_reply",
        &[],
        Contexts::REQUEST,
        sanity_reply,
        "Answers what the last `sanity_check` found; false if it found nothing.",
    ),
];

fn sanity_check(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let checks = if args.is_empty() { run.settings.sanity.checks } else { args.int(0) };
    let uris = if args.len() < 2 { run.settings.sanity.uris } else { args.int(1) };
    let message = run.message();
    let Err(insane) = check(&message, checks, uris, &run.settings.sanity.proxy_require) else {
        return Outcome::True;
    };
    run.prepared.insane = Some(insane);
    if !run.settings.sanity.noreply {
        answer(run, insane);
    }
    if run.settings.sanity.autodrop { Outcome::Exit } else { Outcome::False }
}

fn sanity_reply(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    let Some(insane) = run.prepared.insane else { return Outcome::False };
    outcome(answer(run, insane))
}

fn answer(run: &mut Run<'_, '_>, (status, reason): (u16, &'static str)) -> bool {
    let mut headers = core::mem::take(&mut run.scratch.headers);
    headers.clear();
    if status == 420 {
        // RFC 3261 §8.2.2.3: the extensions that are not supported are named.
        headers.extend_from_slice(b"Unsupported: ");
        let start = headers.len();
        let message = run.message();
        for tag in message.option_tags(HeaderName::ProxyRequire) {
            if !run
                .settings
                .sanity
                .proxy_require
                .iter()
                .any(|known| known.as_bytes().eq_ignore_ascii_case(tag))
            {
                if headers.len() > start {
                    headers.extend_from_slice(b", ");
                }
                headers.extend_from_slice(tag);
            }
        }
        headers.extend_from_slice(b"\r\n");
    }
    let done = reply_with(run, i64::from(status), reason.as_bytes(), &mut headers, Mode::Any);
    run.scratch.headers = headers;
    done
}

type Insane = (u16, &'static str);

fn check(
    message: &Message<'_>,
    checks: i64,
    uris: i64,
    known: &[alloc::string::String],
) -> Result<(), Insane> {
    let asked = |bit: i64| checks & bit != 0;
    let fail =
        |bad: bool, status: u16, reason: &'static str| if bad { Err((status, reason)) } else { Ok(()) };
    if asked(VERSION) {
        fail(!message.version_ok(), 505, "Version Not Supported")?;
    }
    if asked(SCHEME) {
        let other = matches!(Uri::parse(message.request_uri()), Ok(Uri::Other { .. }));
        fail(other, 416, "Unsupported URI Scheme in Request URI")?;
    }
    if asked(REQUIRED) {
        for name in [HeaderName::To, HeaderName::From, HeaderName::CSeq, HeaderName::CallId, HeaderName::Via]
        {
            fail(message.header(name).is_none(), 400, "Missing Required Header in Request")?;
        }
    }
    if asked(FIRST_VIA) {
        fail(message.via_top().is_err(), 400, "Bad Via Header")?;
    }
    if asked(CSEQ_VALUE) {
        fail(message.cseq().is_err(), 400, "CSeq Number Is Illegal")?;
    }
    if asked(CSEQ_METHOD)
        && let Ok(cseq) = message.cseq()
    {
        let differs = cseq.method_bytes != message.method_bytes();
        fail(differs, 400, "CSeq Method Does Not Match Request Method")?;
    }
    if asked(LENGTH) {
        let short = match message.content_length() {
            Ok(Some(length)) => usize::try_from(length).map_or(true, |length| length > message.body().len()),
            Ok(None) => false,
            Err(_) => true,
        };
        fail(short, 400, "Content-Length Mis-Match")?;
    }
    if asked(EXPIRES) {
        fail(message.expires().is_err(), 400, "Expires Value Is Illegal")?;
    }
    if asked(PROXY_REQUIRE) {
        let mut tags = message.option_tags(HeaderName::ProxyRequire);
        let unknown = tags.any(|tag| !known.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(tag)));
        fail(unknown, 420, "Bad Extension")?;
    }
    if asked(URIS) {
        check_uris(message, uris)?;
    }
    if asked(TAGS) {
        // A value whose parameters repeat does not parse.
        fail(message.from().is_err() || message.to().is_err(), 400, "Multiple Tags in From or To")?;
    }
    Ok(())
}

fn check_uris(message: &Message<'_>, uris: i64) -> Result<(), Insane> {
    if uris & 1 != 0 && Uri::parse(message.request_uri()).is_err() {
        return Err((400, "Bad Request URI"));
    }
    if uris & 2 != 0 && !message.from().is_ok_and(|from| from.uri().is_ok()) {
        return Err((400, "Bad From URI"));
    }
    if uris & 4 != 0 && !message.to().is_ok_and(|to| to.uri().is_ok()) {
        return Err((400, "Bad To URI"));
    }
    if uris & 8 != 0 && !message.contacts().is_star() {
        let bad = |contact: Result<sip::NameAddr<'_>, sip::HeaderError>| {
            !contact.is_ok_and(|contact| contact.uri().is_ok())
        };
        if message.contacts().any(bad) {
            return Err((400, "Bad Contact URI"));
        }
    }
    Ok(())
}
