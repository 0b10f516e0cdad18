//! `siputils`: questions about messages and URIs.

use crate::core::{is_request, outcome};
use crate::run::{Change, Context, Run};
use crate::sl::{Mode, reply_with};
use crate::table::{Function, MESSAGES, Module, REQUESTS, harmless_parameter, str_parameter};
use crate::uri_parts::UriParts;
use alloc::vec::Vec;
use route::{Args, Contexts, Outcome, Param, ParamKind};
use sip::{HeaderName, Method, Uri};

pub(crate) static MODULE: Module = Module {
    name: "siputils",
    doc: "Questions about messages and URIs.",
    functions: FUNCTIONS,
    parameters: &[
        str_parameter("options_accept", "*/*", "The Accept of `options_reply`."),
        str_parameter("options_accept_encoding", "", "The Accept-Encoding of `options_reply`."),
        str_parameter("options_accept_language", "en", "The Accept-Language of `options_reply`."),
        str_parameter("options_support", "", "The Supported of `options_reply`."),
        harmless_parameter("contact_flds_separator", "contacts are not encoded."),
        harmless_parameter("rpid_prefix", "no Remote-Party-ID is added."),
        harmless_parameter("rpid_suffix", "no Remote-Party-ID is added."),
        harmless_parameter("rpid_avp", "no Remote-Party-ID is added."),
    ],
    variables: &[],
};

const TEXT: Param = Param::new("text", ParamKind::Format);
const URI: Param = Param::new("uri", ParamKind::Format);
const OTHER: Param = Param::new("other", ParamKind::Format);
const NAME: Param = Param::new("name", ParamKind::Format);
const VALUE: Param = Param::new("value", ParamKind::Format);

static FUNCTIONS: &[Function] = &[
    Function::new(
        "has_totag",
        &[],
        MESSAGES,
        has_totag,
        "Whether the To has a tag: the request is inside a dialog.",
    ),
    Function::new("is_request", &[], MESSAGES, is_a_request, "Whether the message is a request."),
    Function::new("is_reply", &[], MESSAGES, is_a_reply, "Whether the message is a response."),
    Function::new(
        "is_first_hop",
        &[],
        MESSAGES,
        is_first_hop,
        "Whether the message comes straight from its sender: a request with one Via and no Route but ours, a response with nothing but our Via and its destination's.",
    ),
    Function::new("is_uri", &[TEXT], Contexts::ANY, is_uri, "Whether a text is a SIP, SIPS or tel URI."),
    Function::optional(
        "uri_param",
        &[NAME, VALUE],
        1,
        REQUESTS,
        uri_param,
        "Whether the Request-URI has a parameter (of this value).",
    ),
    Function::new(
        "uri_param_any",
        &[NAME],
        REQUESTS,
        uri_param,
        "Whether the Request-URI has a parameter, with or without value.",
    ),
    Function::new(
        "add_uri_param",
        &[Param::new("param", ParamKind::Format)],
        REQUESTS,
        add_uri_param,
        "Adds a parameter (`name=value`) to the Request-URI.",
    ),
    Function::new(
        "uri_param_rm",
        &[NAME],
        REQUESTS,
        uri_param_rm,
        "Removes a parameter from the Request-URI; false if it has none of the name.",
    ),
    Function::new(
        "is_e164",
        &[TEXT],
        Contexts::ANY,
        is_e164,
        "Whether a text is `+` and 2 to 15 digits, the first one no 0.",
    ),
    Function::new(
        "is_uri_user_e164",
        &[URI],
        Contexts::ANY,
        is_uri_user_e164,
        "Whether the user of a URI is `+` and 2 to 15 digits.",
    ),
    Function::new(
        "is_tel_number",
        &[TEXT],
        Contexts::ANY,
        is_tel_number,
        "Whether a text is a telephone number: digits, perhaps after `+`.",
    ),
    Function::new("is_numeric", &[TEXT], Contexts::ANY, is_numeric, "Whether a text is digits."),
    Function::new(
        "is_alphanum",
        &[TEXT],
        Contexts::ANY,
        is_alphanum,
        "Whether a text is letters and digits.",
    ),
    Function::new(
        "is_alphanumex",
        &[TEXT, OTHER],
        Contexts::ANY,
        is_alphanumex,
        "Whether a text is letters, digits and the bytes of OTHER.",
    ),
    Function::new(
        "cmp_uri",
        &[URI, OTHER],
        Contexts::ANY,
        cmp_uri,
        "Whether two URIs mean the same (RFC 3261 section 19.1.4).",
    ),
    Function::new(
        "cmp_aor",
        &[URI, OTHER],
        Contexts::ANY,
        cmp_aor,
        "Whether two URIs have the same address-of-record: scheme, user and host.",
    ),
    Function::new(
        "cmp_hdr_name",
        &[TEXT, OTHER],
        Contexts::ANY,
        cmp_hdr_name,
        "Whether two names mean the same header, long or compact.",
    ),
    Function::new(
        "is_supported",
        &[TEXT],
        MESSAGES,
        is_supported,
        "Whether the Supported header names an option tag.",
    ),
    Function::new(
        "options_reply",
        &[],
        Contexts::REQUEST,
        options_reply,
        "Answers an OPTIONS that is for this server itself with 200; false for any other request.",
    ),
];

/// Functions of Kamailio's `siputils` that cannot be had, and why.
pub(crate) static ABSENT: &[(&str, &str)] = &[
    ("tel2sip", "assign it: $ru = \"sip:\" + $rU + \"@host\""),
    ("set_uri_user", "assign it: $rU = \"...\""),
    ("set_uri_host", "assign it: $rd = \"...\""),
    ("is_user", "credentials are not there yet"),
    ("encode_contact", "contacts are passed on as they are"),
    ("decode_contact", "contacts are passed on as they are"),
    ("append_rpid_hf", "use `append_hf`"),
];

fn has_totag(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    outcome(run.message().to_tag().is_some())
}

fn is_a_request(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    outcome(is_request(run))
}

fn is_a_reply(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    outcome(!is_request(run))
}

fn is_first_hop(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    let message = run.message();
    let vias = message.vias().take(3).count();
    outcome(match &run.cx {
        Context::Reply(_) => vias == 2,
        _ => vias == 1 && !message.routes().flatten().any(|route| !run.is_own_uri(route.uri)),
    })
}

fn is_uri(_: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    outcome(matches!(Uri::parse(args.str(0)), Ok(Uri::Sip(_) | Uri::Tel(_))))
}

fn uri_param(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let found = UriParts::parse(run.request_uri()).and_then(|parts| parts.param(args.str(0)));
    outcome(match (found, args.len()) {
        (Some(value), 2..) => value.eq_ignore_ascii_case(args.str(1)),
        (found, _) => found.is_some(),
    })
}

fn add_uri_param(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let param = args.str(0).strip_prefix(b";").unwrap_or(args.str(0));
    let done = param.is_empty() || run.change_request_uri(Change::AddParam(param));
    outcome(done)
}

fn uri_param_rm(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let there = UriParts::parse(run.request_uri()).is_some_and(|parts| parts.param(args.str(0)).is_some());
    let done = there && run.change_request_uri(Change::RemoveParam(args.str(0)));
    outcome(done)
}

/// `+` and 2 to 15 digits, the first one no 0 (E.164 §6.2).
fn e164(text: &[u8]) -> bool {
    text.strip_prefix(b"+").is_some_and(|digits| {
        (2..=15).contains(&digits.len())
            && digits.iter().all(u8::is_ascii_digit)
            && digits.first() != Some(&b'0')
    })
}

fn is_e164(_: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    outcome(e164(args.str(0)))
}

fn is_uri_user_e164(_: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    outcome(UriParts::parse(args.str(0)).and_then(|parts| parts.user).is_some_and(e164))
}

fn is_tel_number(_: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let digits = args.str(0).strip_prefix(b"+").unwrap_or(args.str(0));
    outcome(!digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
}

fn is_numeric(_: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    outcome(!args.str(0).is_empty() && args.str(0).iter().all(u8::is_ascii_digit))
}

fn is_alphanum(_: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    outcome(!args.str(0).is_empty() && args.str(0).iter().all(u8::is_ascii_alphanumeric))
}

fn is_alphanumex(_: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || args.str(1).contains(byte);
    outcome(!args.str(0).is_empty() && args.str(0).iter().all(fits))
}

fn cmp_uri(_: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let (Ok(uri), Ok(other)) = (Uri::parse(args.str(0)), Uri::parse(args.str(1))) else {
        return Outcome::False;
    };
    outcome(uri.equivalent(&other))
}

fn cmp_aor(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let (Ok(uri), Ok(other)) = (Uri::parse(args.str(0)), Uri::parse(args.str(1))) else {
        return Outcome::False;
    };
    run.scratch.aor.clear();
    run.scratch.text.clear();
    sip::canonical_aor(&uri, true, &mut run.scratch.aor);
    sip::canonical_aor(&other, true, &mut run.scratch.text);
    outcome(run.scratch.aor == run.scratch.text)
}

fn cmp_hdr_name(_: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let (name, other) = (HeaderName::of(args.str(0)), HeaderName::of(args.str(1)));
    outcome(match (name, other) {
        (HeaderName::Other, HeaderName::Other) => args.str(0).eq_ignore_ascii_case(args.str(1)),
        _ => name == other,
    })
}

fn is_supported(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let message = run.message();
    let mut tags = message.option_tags(HeaderName::Supported);
    outcome(tags.any(|tag| tag.eq_ignore_ascii_case(args.str(0))))
}

fn options_reply(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    let has_user = UriParts::parse(run.request_uri()).is_some_and(|parts| parts.user.is_some());
    if run.message().method() != Method::Options || has_user || !run.is_own_uri(run.request_uri()) {
        return Outcome::False;
    }
    let mut headers = core::mem::take(&mut run.scratch.headers);
    headers.clear();
    let options = &run.settings.options;
    push_line(&mut headers, "Accept", &options.accept);
    push_line(&mut headers, "Accept-Encoding", &options.accept_encoding);
    push_line(&mut headers, "Accept-Language", &options.accept_language);
    push_line(&mut headers, "Supported", &options.supported);
    let done = reply_with(run, 200, b"OK", &mut headers, Mode::Any);
    run.scratch.headers = headers;
    outcome(done)
}

fn push_line(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}
