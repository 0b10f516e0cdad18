//! `textops`: searching and changing the text of messages.

use crate::core::outcome;
use crate::run::{REPLY_HEADERS_MAX, Run};
use crate::table::{Function, MESSAGES, Module, REQUESTS, TARGETS};
use crate::text::{contains, contains_ignoring_case, is_line, with_unfolded};
use crate::uri_parts::split_once;
use route::{Args, Contexts, Outcome, Param, ParamKind};
use sip::{Header, HeaderName, Message, Method, Uri};

pub(crate) static MODULE: Module = Module {
    name: "textops",
    doc: "Searching and changing the text of messages.",
    functions: FUNCTIONS,
    parameters: &[],
    variables: &[],
};

const EXPRESSION: Param = Param::new("expression", ParamKind::Regex);
const SUBST: Param = Param::new("substitution", ParamKind::Str);
const HEADER: Param = Param::new("header", ParamKind::Format);
const TEXT: Param = Param::new("text", ParamKind::Format);
const OTHER: Param = Param::new("other", ParamKind::Format);
const WHICH: Param = Param::new("which", ParamKind::Encoded(which));
const LIST: Param = Param::new("list", ParamKind::Format);
const SEPARATOR: Param = Param::new("separator", ParamKind::Str);
const METHODS: Param = Param::new("methods", ParamKind::Encoded(methods));
const TYPE: Param = Param::new("type", ParamKind::Format);

static FUNCTIONS: &[Function] = &[
    Function::new(
        "is_method",
        &[METHODS],
        MESSAGES,
        is_method,
        "Whether the method is one of `INVITE|ACK|...`; of a response, that of its CSeq.",
    ),
    Function::new(
        "search",
        &[EXPRESSION],
        MESSAGES,
        search,
        "Whether the expression matches anywhere in the message.",
    ),
    Function::new(
        "search_body",
        &[EXPRESSION],
        MESSAGES,
        search_body,
        "Whether the expression matches anywhere in the body.",
    ),
    Function::new(
        "search_str",
        &[TEXT, EXPRESSION],
        Contexts::ANY,
        search_str,
        "Whether the expression matches anywhere in TEXT.",
    ),
    Function::optional(
        "search_hf",
        &[HEADER, EXPRESSION, WHICH],
        2,
        MESSAGES,
        search_hf,
        "Whether the expression matches in a header's value; WHICH: `a` all of the name, `f` the first, `l` the last.",
    ),
    Function::new(
        "subst",
        &[SUBST],
        MESSAGES,
        subst,
        "Substitutes in the header lines of the message, line by line: `/expression/replacement/flags`. False if nothing matched.",
    ),
    Function::new(
        "subst_uri",
        &[SUBST],
        REQUESTS,
        subst_uri,
        "Substitutes in the Request-URI: `/expression/replacement/flags`. False if nothing matched or the result is no URI.",
    ),
    Function::new(
        "subst_user",
        &[SUBST],
        REQUESTS,
        subst_user,
        "Substitutes in the user of the Request-URI: `/expression/replacement/flags`. False if nothing matched.",
    ),
    Function::optional(
        "subst_hf",
        &[HEADER, SUBST, WHICH],
        2,
        MESSAGES,
        subst_hf,
        "Substitutes in the values of a header: `/expression/replacement/flags`. False if nothing matched.",
    ),
    Function::new(
        "append_hf",
        &[TEXT],
        MESSAGES,
        append_hf,
        "Adds header lines (`Name: value\\r\\n`) after all others, or after the last one called HEADER. One line per call where variables are in it and $rb, $mb or $msg was read before: their line ends are not the script's.",
    ),
    Function::new(
        "append_hf",
        &[TEXT, HEADER],
        MESSAGES,
        append_hf_after,
        "Adds header lines (`Name: value\\r\\n`) after all others, or after the last one called HEADER. One line per call where variables are in it and $rb, $mb or $msg was read before: their line ends are not the script's.",
    ),
    Function::new(
        "insert_hf",
        &[TEXT],
        MESSAGES,
        insert_hf,
        "Adds header lines (`Name: value\\r\\n`) before all others, or before the first one called HEADER. One line per call where variables are in it and $rb, $mb or $msg was read before: their line ends are not the script's.",
    ),
    Function::new(
        "insert_hf",
        &[TEXT, HEADER],
        MESSAGES,
        insert_hf_before,
        "Adds header lines (`Name: value\\r\\n`) before all others, or before the first one called HEADER. One line per call where variables are in it and $rb, $mb or $msg was read before: their line ends are not the script's.",
    ),
    Function::new(
        "append_to_reply",
        &[TEXT],
        REQUESTS,
        append_to_reply,
        "Adds header lines (`Name: value\\r\\n`) to the replies that are made here. False past 8,192 bytes. Of variables as `append_hf`.",
    ),
    Function::new(
        "remove_hf",
        &[HEADER],
        MESSAGES,
        remove_hf,
        "Removes all headers of a name, written long or compact. False if there is none.",
    ),
    Function::new("remove_hf_pv", &[HEADER], MESSAGES, remove_hf, "The same."),
    Function::new(
        "remove_hf_re",
        &[EXPRESSION],
        MESSAGES,
        remove_hf_re,
        "Removes all headers whose names match. False if there is none.",
    ),
    Function::new(
        "is_present_hf",
        &[HEADER],
        MESSAGES,
        is_present_hf,
        "Whether there is a header of a name, written long or compact.",
    ),
    Function::new("is_present_hf_pv", &[HEADER], MESSAGES, is_present_hf, "The same."),
    Function::new(
        "is_present_hf_re",
        &[EXPRESSION],
        MESSAGES,
        is_present_hf_re,
        "Whether there is a header whose name matches.",
    ),
    Function::optional(
        "has_body",
        &[TYPE],
        0,
        MESSAGES,
        has_body,
        "Whether there is a body (of this media type).",
    ),
    Function::new("set_body", &[TEXT, TYPE], MESSAGES, set_body, "Replaces the body and its Content-Type."),
    Function::new("remove_body", &[], MESSAGES, remove_body, "Removes the body and its Content-Type."),
    Function::new("cmp_str", &[TEXT, OTHER], Contexts::ANY, cmp_str, "Whether two texts are equal."),
    Function::new(
        "cmp_istr",
        &[TEXT, OTHER],
        Contexts::ANY,
        cmp_istr,
        "Whether two texts are equal, letters in either case.",
    ),
    Function::new(
        "starts_with",
        &[TEXT, OTHER],
        Contexts::ANY,
        starts_with,
        "Whether a text starts with another.",
    ),
    Function::new("ends_with", &[TEXT, OTHER], Contexts::ANY, ends_with, "Whether a text ends with another."),
    Function::new("str_find", &[TEXT, OTHER], Contexts::ANY, str_find, "Whether a text contains another."),
    Function::new(
        "str_ifind",
        &[TEXT, OTHER],
        Contexts::ANY,
        str_ifind,
        "Whether a text contains another, letters in either case.",
    ),
    Function::new(
        "in_list",
        &[TEXT, LIST, SEPARATOR],
        Contexts::ANY,
        in_list,
        "Whether a text is one of a list's items.",
    ),
    Function::new(
        "in_list_prefix",
        &[TEXT, LIST, SEPARATOR],
        Contexts::ANY,
        in_list_prefix,
        "Whether one of a list's items is what a text starts with.",
    ),
    Function::new(
        "is_privacy",
        &[Param::new("type", ParamKind::Str)],
        MESSAGES,
        is_privacy,
        "Whether the Privacy header names this type.",
    ),
    Function::new(
        "append_urihf",
        &[Param::new("prefix", ParamKind::Str), Param::new("suffix", ParamKind::Str)],
        TARGETS,
        append_urihf,
        "Adds a header line made of a text, the Request-URI that was received, and another text (`\\r\\n`).",
    ),
];

/// Functions of Kamailio's `textops` that cannot be had, and why.
pub(crate) static ABSENT: &[(&str, &str)] = &[
    ("replace", "use `subst` or `subst_hf`"),
    ("replace_all", "use `subst` or `subst_hf`"),
    ("replace_hdrs", "use `subst` or `subst_hf`"),
    ("replace_body", "use `set_body`"),
    ("replace_body_all", "use `set_body`"),
    ("replace_body_atonce", "use `set_body`"),
    ("subst_body", "use `set_body`"),
    ("search_append", "use `append_hf`"),
    ("search_append_body", "use `set_body`"),
    ("filter_body", "bodies of several parts are passed on as they are"),
    ("set_reply_body", "replies that are made here have no body"),
    ("append_time", "use `append_to_reply`"),
];

fn methods(text: &[u8]) -> Result<i64, &'static str> {
    let mut mask = 0;
    for name in text.split(|&byte| byte == b'|') {
        let method = Method::of(name.trim_ascii());
        if method == Method::Other {
            return Err(
                "methods are written `INVITE|ACK`, in capitals; compare $rm with one that is not known",
            );
        }
        mask |= 1i64 << (method as u32);
    }
    Ok(mask)
}

fn is_method(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let method = run.message().method();
    outcome(method != Method::Other && args.int(0) > 0 && args.int(0) & (1i64 << (method as u32)) != 0)
}

fn search(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    outcome(args.regex(0).is_some_and(|expression| expression.is_match(run.message().bytes())))
}

fn search_body(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    outcome(args.regex(0).is_some_and(|expression| expression.is_match(run.message().body())))
}

fn search_str(_: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    outcome(args.regex(1).is_some_and(|expression| expression.is_match(args.str(0))))
}

fn which(text: &[u8]) -> Result<i64, &'static str> {
    match text {
        b"a" => Ok(0),
        b"f" => Ok(1),
        b"l" => Ok(2),
        _ => Err("it is `a` for all, `f` for the first or `l` for the last"),
    }
}

/// Calls `with` for the headers of a name that `which` chooses.
fn each_header<'m>(message: &Message<'m>, name: &[u8], which: i64, mut with: impl FnMut(&Header<'m>)) {
    match which {
        1 => message.headers_named(name).take(1).for_each(|header| with(&header)),
        2 => {
            if let Some(header) = message.headers_named(name).last() {
                with(&header);
            }
        }
        _ => message.headers_named(name).for_each(|header| with(&header)),
    }
}

fn search_hf(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let Some(expression) = args.regex(1) else { return Outcome::False };
    let mut found = false;
    each_header(&run.message(), args.str(0), args.int(2), |header| {
        found |= with_unfolded(header.value, |value| expression.is_match(value));
    });
    outcome(found)
}

fn subst(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let done = run.substitution(args, 0, |run, made| {
        let message = run.message();
        let mut text = core::mem::take(&mut run.scratch.text);
        let mut count = 0;
        for header in message.all_headers() {
            let line =
                message.bytes().get(header.line.start as usize..header.line.end as usize).unwrap_or(&[]);
            let line_text = line.strip_suffix(b"\r\n").unwrap_or(line);
            text.clear();
            // A fold must not hide anything from the expression.
            if with_unfolded(line_text, |line| made.apply(line, &mut text)) > 0 && is_line(&text) {
                let end = header.line.start + u32::try_from(line_text.len()).unwrap_or(0);
                run.edits().replace_span(header.line.start..end, &text);
                count += 1;
            }
        }
        run.scratch.text = text;
        count
    });
    outcome(done.unwrap_or(0) > 0)
}

fn subst_uri(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let done = run.substitution(args, 0, |run, made| {
        let mut text = core::mem::take(&mut run.scratch.text);
        text.clear();
        let done = made.apply(run.request_uri(), &mut text) > 0 && Uri::parse(&text).is_ok();
        if done {
            run.set_request_uri(&text);
        }
        run.scratch.text = text;
        done
    });
    outcome(done.unwrap_or(false))
}

fn subst_user(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let done = run.substitution(args, 0, |run, made| {
        let mut user = core::mem::take(&mut run.scratch.aor);
        user.clear();
        let parts = crate::uri_parts::UriParts::parse(run.request_uri());
        let matched = made.apply(parts.and_then(|parts| parts.user).unwrap_or(&[]), &mut user) > 0;
        let done = matched && run.change_request_uri(crate::run::Change::User(Some(&user)));
        run.scratch.aor = user;
        done
    });
    outcome(done.unwrap_or(false))
}

fn subst_hf(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let done = run.substitution(args, 1, |run, made| {
        let message = run.message();
        let mut text = core::mem::take(&mut run.scratch.text);
        let mut count = 0;
        each_header(&message, args.str(0), args.int(2), |header| {
            text.clear();
            if with_unfolded(header.value, |value| made.apply(value, &mut text)) > 0
                && is_line(&text)
                && let Some(span) = value_span(&message, header)
            {
                run.edits().replace_span(span, &text);
                count += 1;
            }
        });
        run.scratch.text = text;
        count
    });
    outcome(done.unwrap_or(0) > 0)
}

/// Where a header's value lies in the message.
fn value_span(message: &Message<'_>, header: &Header<'_>) -> Option<core::ops::Range<u32>> {
    let line = message.bytes().get(header.line.start as usize..header.line.end as usize)?;
    let colon = line.iter().position(|&byte| byte == b':')? + 1;
    let rest = line.get(colon..)?;
    let skipped = rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let start = header.line.start + u32::try_from(colon + skipped).ok()?;
    Some(start..start + u32::try_from(header.value.len()).ok()?)
}

/// Whether a text is whole header lines: `Name: value`, each with its end.
fn are_header_lines(text: &[u8]) -> bool {
    let Some(mut rest) = text.strip_suffix(b"\r\n") else { return false };
    loop {
        let end = rest.windows(2).position(|pair| pair == b"\r\n");
        let line = rest.get(..end.unwrap_or(rest.len())).unwrap_or(rest);
        let name = split_once(line, b':').map_or(&b""[..], |(name, _)| name.trim_ascii_end());
        let is_token = |byte: &u8| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(byte);
        // A CR or LF alone is a line end to some.
        if name.is_empty()
            || !name.iter().all(is_token)
            || line.iter().any(|byte| matches!(byte, b'\r' | b'\n'))
        {
            return false;
        }
        let Some(end) = end else { return true };
        rest = rest.get(end + 2..).unwrap_or(&[]);
    }
}

const NO_LINES: &str = "a header line is `Name: value\\r\\n`: it needs a name, a colon and an end";
const ONE_LINE: &str =
    "one header line per call where $rb, $mb or $msg was read before: their line ends must not become ours";

/// Gives `with` the header lines that are argument `at`, if they are any and all of them are the script's own.
fn with_lines(
    run: &mut Run<'_, '_>,
    args: &Args<'_>,
    at: usize,
    with: impl FnOnce(&mut Run<'_, '_>, &[u8]) -> Outcome,
) -> Outcome {
    let text = args.str(at);
    if !are_header_lines(text) {
        return run.fail(NO_LINES);
    }
    let literal = args.constant_id(at).is_some();
    if !literal && run.prepared.lines_read && text.windows(2).filter(|pair| *pair == b"\r\n").count() > 1 {
        return run.fail(ONE_LINE);
    }
    if !text.contains(&0) {
        return with(run, text);
    }
    let mut clean = core::mem::take(&mut run.scratch.headers);
    clean.clear();
    clean.extend(text.iter().map(|byte| if *byte == 0 { b' ' } else { *byte }));
    let outcome = with(run, &clean);
    run.scratch.headers = clean;
    outcome
}

fn append_hf(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    with_lines(run, args, 0, |run, lines| {
        let message = run.message();
        run.edits().append_header(&message, lines);
        Outcome::True
    })
}

fn append_hf_after(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let Some(header) = run.message().headers_named(args.str(1)).last() else { return append_hf(run, args) };
    with_lines(run, args, 0, |run, lines| {
        run.edits().replace_span(header.line.end..header.line.end, lines);
        Outcome::True
    })
}

fn insert_hf(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    with_lines(run, args, 0, |run, lines| {
        let message = run.message();
        run.edits().insert_header(&message, lines);
        Outcome::True
    })
}

fn insert_hf_before(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let Some(header) = run.message().headers_named(args.str(1)).next() else { return insert_hf(run, args) };
    with_lines(run, args, 0, |run, lines| {
        run.edits().replace_span(header.line.start..header.line.start, lines);
        Outcome::True
    })
}

fn append_to_reply(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    with_lines(run, args, 0, |run, lines| {
        let kept = &mut run.prepared.reply_headers;
        if kept.len() + lines.len() > REPLY_HEADERS_MAX {
            return run.fail("append_to_reply: more than 8,192 bytes");
        }
        kept.extend_from_slice(lines);
        Outcome::True
    })
}

fn append_urihf(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let message = run.message();
    let mut line = core::mem::take(&mut run.scratch.text);
    line.clear();
    for piece in [args.str(0), message.request_uri(), args.str(1)] {
        line.extend_from_slice(piece);
    }
    let valid = are_header_lines(&line);
    if valid {
        run.edits().append_header(&message, &line);
    }
    run.scratch.text = line;
    if valid { Outcome::True } else { run.fail(NO_LINES) }
}

/// Removes header lines. A Route that is removed is not followed either: what is sent on and where it is sent to
/// (RFC 3261 §16.6 item 7) must not differ. (No two lines of Route can be told apart by their names.)
fn remove_lines<'m>(run: &mut Run<'_, 'm>, lines: impl Iterator<Item = Header<'m>>) -> Outcome {
    let (mut found, mut routes) = (false, false);
    for header in lines {
        run.edits().remove_header(&header);
        found = true;
        routes |= header.name == HeaderName::Route;
    }
    if routes && let Some(cx) = run.request() {
        cx.forget_routes();
    }
    outcome(found)
}

fn remove_hf(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let message = run.message();
    remove_lines(run, message.headers_named(args.str(0)))
}

fn remove_hf_re(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let Some(expression) = args.regex(0) else { return Outcome::False };
    let message = run.message();
    remove_lines(run, message.all_headers().filter(|header| expression.is_match(header.name_bytes)))
}

fn is_present_hf(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    outcome(run.message().headers_named(args.str(0)).next().is_some())
}

fn is_present_hf_re(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let Some(expression) = args.regex(0) else { return Outcome::False };
    outcome(run.message().all_headers().any(|header| expression.is_match(header.name_bytes)))
}

fn has_body(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let message = run.message();
    let wanted = args.str(0);
    if message.body().is_empty() || wanted.is_empty() {
        return outcome(!message.body().is_empty());
    }
    let Some(header) = message.header(HeaderName::ContentType) else { return Outcome::False };
    let media = header.value.split(|&byte| byte == b';').next().unwrap_or(&[]).trim_ascii();
    outcome(media.eq_ignore_ascii_case(wanted.trim_ascii()))
}

fn set_body(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    if !is_line(args.str(1)) || args.str(1).trim_ascii().is_empty() {
        return run.fail("set_body: the type is a media type such as text/plain");
    }
    let message = run.message();
    run.edits().set_body(&message, args.str(1), args.str(0));
    Outcome::True
}

fn remove_body(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    let message = run.message();
    run.edits().remove_body(&message);
    Outcome::True
}

fn cmp_str(_: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    outcome(args.str(0) == args.str(1))
}

fn cmp_istr(_: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    outcome(args.str(0).eq_ignore_ascii_case(args.str(1)))
}

fn starts_with(_: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    outcome(args.str(0).starts_with(args.str(1)))
}

fn ends_with(_: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    outcome(args.str(0).ends_with(args.str(1)))
}

fn str_find(_: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    outcome(contains(args.str(0), args.str(1)))
}

fn str_ifind(_: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    outcome(contains_ignoring_case(args.str(0), args.str(1)))
}

/// Whether an item of the list passes; the separator is one character.
fn any_item(args: &Args<'_>, passes: impl Fn(&[u8]) -> bool) -> Outcome {
    let &[separator] = args.str(2) else { return Outcome::False };
    let mut items = args.str(1).split(|&byte| byte == separator).map(|item| item.trim_ascii());
    outcome(items.any(|item| !item.is_empty() && passes(item)))
}

fn in_list(_: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    any_item(args, |item| item == args.str(0))
}

fn in_list_prefix(_: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    any_item(args, |item| args.str(0).starts_with(item))
}

fn is_privacy(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let message = run.message();
    let mut types =
        message.headers_named(b"Privacy").flat_map(|header| header.value.split(|&byte| byte == b';'));
    outcome(types.any(|kind| kind.trim_ascii().eq_ignore_ascii_case(args.str(0))))
}
