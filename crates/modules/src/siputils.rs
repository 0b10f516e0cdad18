//! `siputils`: questions about messages and URIs.

use crate::core::{is_request, outcome};
use crate::output::{Output, check};
use crate::run::{Change, Context, Run};
use crate::settings::Reader;
use crate::sl::{Mode, reply_with};
use crate::table::{Function, MESSAGES, Module, REQUESTS, harmless_parameter, str_parameter};
use crate::text::with_unfolded;
use crate::uri_parts::{UriParts, decimal};
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
const OUTPUT: Param = Param::new("output", ParamKind::Str);
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
    Function::optional(
        "is_first_hop",
        &[Param::new("mode", ParamKind::Int)],
        0,
        MESSAGES,
        is_first_hop,
        "Whether the message comes straight from its sender: a request with one Via and no Route but ours, \
         a response with nothing but our Via and its destination's.",
    ),
    Function::new("is_uri", &[TEXT], Contexts::ANY, is_uri, "Whether a text is a SIP, SIPS or tel URI."),
    Function::new(
        "is_user",
        &[Param::new("username", ParamKind::Format)],
        Contexts::REQUEST,
        is_user,
        "Whether the authenticated user has this name; false if nobody is authenticated.",
    ),
    Function::optional(
        "is_gruu",
        &[URI],
        0,
        MESSAGES,
        is_gruu,
        "Whether a URI, or the Request-URI, is a GRUU (RFC 5627): 1, a public one; 2, a temporary one.",
    ),
    Function::new(
        "get_uri_param",
        &[NAME, OUTPUT],
        REQUESTS,
        get_uri_param,
        "Whether the Request-URI has a parameter; its value is put into an output: \"$avp(NAME)\" in quotes.",
    ),
    Function::new(
        "tel2sip",
        &[URI, Param::new("host", ParamKind::Format), OUTPUT],
        MESSAGES,
        tel2sip,
        "Puts the SIP URI that means the same as a tel URI (RFC 3261 section 19.1.6) into an output: \
         \"$avp(NAME)\" or \"$ru\" in quotes. 2: the URI is no tel URI, and nothing is put.",
    ),
    Function::new(
        "hdr_date_check",
        &[Param::new("seconds", ParamKind::Int)],
        MESSAGES,
        hdr_date_check,
        "Whether the Date is at most SECONDS old; -4 if it is older, -1 if there is none or it is no date.",
    ),
    Function::optional(
        "uri_param",
        &[NAME, VALUE],
        1,
        REQUESTS,
        uri_param,
        "Whether the Request-URI has a parameter of this value; without VALUE, one that has none.",
    ),
    Function::new(
        "uri_param_any",
        &[NAME],
        REQUESTS,
        uri_param_any,
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

const CONTACTS: &str = "contacts are passed on as they are: a phone behind NAT is answered where it sends from, and \
     reached by the connection that it opened";

/// Functions of Kamailio's `siputils` that cannot be had, and why.
pub(crate) static ABSENT: &[(&str, &str)] = &[
    ("set_uri_user", "assign it: $rU = \"...\""),
    ("set_uri_host", "assign it: $rd = \"...\""),
    ("encode_contact", CONTACTS),
    ("decode_contact", CONTACTS),
    ("decode_contact_header", CONTACTS),
    ("contact_param_encode", CONTACTS),
    ("contact_param_decode", CONTACTS),
    ("contact_param_decode_uri", CONTACTS),
    ("contact_param_rm", CONTACTS),
    ("append_rpid_hf", "write append_hf(\"Remote-Party-ID: <$avp(rpid)>;party=calling;screen=yes\\r\\n\")"),
    ("is_rpid_user_e164", "write is_uri_user_e164(\"$avp(rpid)\")"),
    (
        "sip_p_charging_vector",
        "P-Charging-Vector (RFC 7315) is passed on as it is; append_hf and remove_hf write and remove one",
    ),
];

/// Refuses outputs that are none.
pub(crate) fn check_outputs(reader: &mut Reader<'_>) {
    check(reader, &["tel2sip"], 2);
    check(reader, &["get_uri_param"], 1);
}

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
    // Without a second argument that is an empty text: no value.
    outcome(
        param(run.request_uri(), args.str(0)).is_some_and(|value| value.eq_ignore_ascii_case(args.str(1))),
    )
}

fn uri_param_any(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    outcome(param(run.request_uri(), args.str(0)).is_some())
}

/// The value of a URI's parameter; empty if it has none.
fn param<'u>(uri: &'u [u8], name: &[u8]) -> Option<&'u [u8]> {
    UriParts::parse(uri).and_then(|parts| parts.param(name))
}

fn get_uri_param(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let Some(output) = Output::parse(args.str(1)) else {
        return run.fail("get_uri_param: the output is a variable in quotes: \"$avp(NAME)\"");
    };
    let Some(value) = param(run.request_uri(), args.str(0)).map(<[u8]>::to_vec) else {
        return Outcome::False;
    };
    outcome(output.put(run, &value))
}

fn is_gruu(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let uri = if args.is_empty() { run.request_uri() } else { args.str(0) };
    let parts = UriParts::parse(uri).filter(|parts| !parts.is_tel());
    match parts.and_then(|parts| parts.param(b"gr")) {
        Some([]) => Outcome::Code(2),
        Some(_) => Outcome::True,
        None => Outcome::False,
    }
}

fn is_user(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let authenticated = run.state().authenticated.as_ref();
    outcome(authenticated.is_some_and(|user| *user.username == *args.str(0)))
}

/// RFC 3261 §19.1.6: what a tel URI says becomes the user part, its visual separators left out and its parameters in
/// lower case.
fn tel2sip(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let Some(output) = Output::parse(args.str(2)) else {
        return run.fail("tel2sip: the output is a variable in quotes: \"$avp(NAME)\"");
    };
    let Some(tel) = UriParts::parse(args.str(0)).filter(UriParts::is_tel) else { return Outcome::Code(2) };
    let number = tel.user.unwrap_or(&[]).iter().filter(|byte| !b"-.()".contains(byte)).copied();
    let mut uri = b"sip:".to_vec();
    push_user(number, &mut uri);
    if uri.len() == b"sip:".len() {
        return Outcome::False;
    }
    if !tel.params.is_empty() {
        uri.push(b';');
        push_user(tel.params.iter().map(u8::to_ascii_lowercase), &mut uri);
    }
    uri.push(b'@');
    uri.extend_from_slice(args.str(1));
    uri.extend_from_slice(b";user=phone");
    // A host of the script's that is none makes no URI.
    outcome(Uri::parse(&uri).is_ok() && output.put(run, &uri))
}

/// Appends bytes to a user part, escaped where they cannot stand there (RFC 3261 §25.1 `user`).
fn push_user(bytes: impl Iterator<Item = u8>, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in bytes {
        // What is escaped already stays.
        if byte.is_ascii_alphanumeric() || b"-_.!~*'()&=+$,;?/%".contains(&byte) {
            out.push(byte);
        } else {
            out.push(b'%');
            out.extend([byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]));
        }
    }
}

/// RFC 3261 §20.17: whether the Date is not older than this.
fn hdr_date_check(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let message = run.message();
    let header = message.headers_named(b"Date").next();
    let Some(sent) = header.and_then(|header| with_unfolded(header.value, date)) else {
        return Outcome::False;
    };
    let now = run.environment.clock.unix_micros(run.now()) / 1_000_000;
    let oldest = i64::try_from(now).unwrap_or(i64::MAX).saturating_sub(args.int(0));
    if sent < oldest { Outcome::Code(-4) } else { Outcome::True }
}

/// Seconds since 1970 of `Sat, 13 Nov 2010 23:29:00 GMT` (RFC 3261 §25.1 `SIP-date`).
fn date(text: &[u8]) -> Option<i64> {
    const MONTHS: [&[u8]; 12] =
        [b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"];
    let mut words = text.split(|byte| *byte == b' ' || *byte == b',').filter(|word| !word.is_empty());
    let mut word = || words.next();
    let _weekday = word().filter(|word| word.len() == 3)?;
    let day = i64::from(decimal(word()?)?);
    let month = word()?.to_ascii_lowercase();
    let month = i64::try_from(MONTHS.iter().position(|name| *name == month)?).ok()? + 1;
    let year = i64::from(decimal(word().filter(|word| word.len() == 4)?)?);
    let mut time = word()?.split(|byte| *byte == b':').map(|part| decimal(part).map(i64::from));
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    let zone = word()?.eq_ignore_ascii_case(b"GMT") && word().is_none() && time.next().is_none();
    let possible = zone && (1..=31).contains(&day) && hour < 24 && minute < 60 && second < 61;
    // Years that begin in March have their leap day at their end.
    let (from_march, year) = if month > 2 { (month - 3, year) } else { (month + 9, year - 1) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * from_march + 2) / 5 + day - 1;
    possible.then_some(((days - 719_468) * 24 + hour) * 3_600 + minute * 60 + second)
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
