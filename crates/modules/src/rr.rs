//! `rr`: record routing and loose routing (RFC 3261 §16.4, §16.6 item 4; the thesis's §3.4).

use crate::core::outcome;
use crate::run::Run;
use crate::table::{
    Function, Module, TARGETS, Variable, harmless_parameter, int_parameter, refused_parameter,
};
use crate::text::put_unfolded;
use crate::uri_parts::UriParts;
use engine::RouteVerdict;
use route::{Args, Contexts, Outcome, Param, ParamKind, Sink, Subscript};

/// Bytes that a script may add to one Record-Route URI; past it the function fails.
const ROUTE_PARAMS_MAX: usize = 1_024;

pub(crate) static MODULE: Module = Module {
    name: "rr",
    doc: "Staying on the path of a dialog: record routing and loose routing.",
    functions: FUNCTIONS,
    parameters: &[
        int_parameter(
            "append_fromtag",
            (0, 1),
            1,
            "",
            "Whether the Record-Route carries the From tag (`;ftag=`), from which `is_direction` knows who sent a request.",
        ),
        harmless_parameter("enable_full_lr", "the parameter is written `;lr`; every loose router knows it."),
        harmless_parameter(
            "enable_double_rr",
            "two Record-Routes are written where a request leaves by another listener than it came by, and where a side can be reached only by its connection.",
        ),
        harmless_parameter(
            "enable_socket_mismatch_warning",
            "a request leaves by the listener that our second Route names, where that fits.",
        ),
        harmless_parameter("ignore_sips", "a sips: request is record-routed as it is."),
        refused_parameter(
            "add_username",
            "the user of our Record-Route is the token by which it is known again; keep the name in a parameter: add_rr_param(\";user=$rU\").",
        ),
        refused_parameter(
            "custom_user_avp",
            "the user of our Record-Route is the token by which it is known again; keep the name in a parameter.",
        ),
        harmless_parameter(
            "force_send_socket",
            "a request leaves by the listener that our second Route names, where its destination can be reached by that.",
        ),
        harmless_parameter("sockname_mode", "listeners are known by their addresses."),
    ],
    variables: &[Variable::read_only(
        "route_uri",
        TARGETS,
        route_uri,
        "The URI of the topmost Route that was received.",
    )],
};

const PARAMS: Param = Param::new("params", ParamKind::Format);
const LOOSE_ROUTE: &str = "Follows the Route (RFC 3261 section 16.4): takes our own values off it, and undoes what a strict router did. Returns 1 inside a dialog, -1 if there is no Route, or if an initial request has no more of it, -3 if an initial request has (a route that its sender loaded before).";

static FUNCTIONS: &[Function] = &[
    Function::optional(
        "record_route",
        &[PARAMS],
        0,
        TARGETS,
        record_route,
        "Puts a Record-Route into what is relayed, so that later requests of the dialog pass here. PARAMS (`;x=y`) go into its URI.",
    ),
    Function::optional(
        "record_route_preset",
        &[Param::new("address", ParamKind::Format), Param::new("inbound", ParamKind::Format)],
        1,
        TARGETS,
        record_route_preset,
        "Puts a Record-Route with this ADDRESS (`HOST:PORT;params`) into what is relayed, before one with INBOUND if it is given.",
    ),
    Function::new(
        "add_rr_param",
        &[PARAMS],
        TARGETS,
        add_rr_param,
        "Adds parameters (`;x=y`) to the URI of our Record-Route, before or after `record_route`.",
    ),
    Function::new("loose_route", &[], Contexts::REQUEST, loose_route, LOOSE_ROUTE),
    Function::new(
        "loose_route_preloaded",
        &[],
        Contexts::REQUEST,
        loose_route_preloaded,
        "`loose_route` for initial requests: true if one has a further Route.",
    ),
    Function::new(
        "check_route_param",
        &[Param::new("expression", ParamKind::Regex)],
        Contexts::REQUEST,
        check_route_param,
        "Whether the parameters of our own Route match. To be called after `loose_route`.",
    ),
    Function::new(
        "is_direction",
        &[Param::new("direction", ParamKind::Encoded(direction))],
        Contexts::REQUEST,
        is_direction,
        "Whether the request goes `downstream` (from caller to callee) or `upstream`. Needs `append_fromtag`; to be called after `loose_route`.",
    ),
    Function::new(
        "rr_next_hop_route",
        &[],
        TARGETS,
        rr_next_hop_route,
        "Whether a Route is left after our own values.",
    ),
];

/// Functions of Kamailio's `rr` that cannot be had, and why.
pub(crate) static ABSENT: &[(&str, &str)] = &[
    ("remove_record_route", "call record_route() only where it shall be there"),
    ("record_route_advertised_address", "write `advertise` after the `listen` address"),
    ("loose_route_mode", "call loose_route()"),
];

fn record_route(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    if !run.prepared.record_routed {
        run.prepared.record_routed = true;
        if run.settings.append_fromtag
            && let Some(tag) = run.message().from_tag()
        {
            run.prepared.route_params.extend_from_slice(b";ftag=");
            run.prepared.route_params.extend_from_slice(tag);
        }
    }
    if !args.str(0).is_empty() && !push_params(run, args.str(0)) {
        return Outcome::False;
    }
    apply(run)
}

fn apply(run: &mut Run<'_, '_>) -> Outcome {
    let params = core::mem::take(&mut run.prepared.route_params);
    if let Some(cx) = run.request() {
        cx.record_route(&params);
    }
    run.prepared.route_params = params;
    Outcome::True
}

/// Keeps parameters for the Record-Route; nothing that would end the URI.
fn push_params(run: &mut Run<'_, '_>, params: &[u8]) -> bool {
    let fits = run.prepared.route_params.len() + params.len() < ROUTE_PARAMS_MAX;
    let forbidden = |byte: &u8| byte.is_ascii_control() || matches!(byte, b'<' | b'>' | b' ' | b'"');
    if !fits || params.iter().any(forbidden) {
        run.fail("rr: parameters are `;name=value`, without spaces and angle brackets, 1,024 bytes at most");
        return false;
    }
    if params.first() != Some(&b';') {
        run.prepared.route_params.push(b';');
    }
    run.prepared.route_params.extend_from_slice(params);
    true
}

fn add_rr_param(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    if !push_params(run, args.str(0)) {
        return Outcome::False;
    }
    if run.prepared.record_routed { apply(run) } else { Outcome::True }
}

fn record_route_preset(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let mut value = core::mem::take(&mut run.scratch.text);
    value.clear();
    for place in 0..args.len().min(2) {
        if place > 0 {
            value.extend_from_slice(b", ");
        }
        value.extend_from_slice(b"<sip:");
        value.extend_from_slice(args.str(place));
        value.extend_from_slice(b";lr>");
    }
    let forbidden = |byte: &u8| byte.is_ascii_control() || matches!(byte, b'<' | b'>' | b' ' | b'"');
    let valid = !args.str(0).iter().chain(args.str(1)).any(forbidden);
    if valid {
        let message = run.message();
        run.edits().insert_record_route(&message, &value);
    }
    run.scratch.text = value;
    outcome(valid)
}

/// Whether a Route is left that is not ours.
fn has_foreign_route(run: &Run<'_, '_>) -> bool {
    let own = run.own();
    let mut routes = run.message().routes().flatten();
    routes.any(|route| !route.uri().is_ok_and(|uri| own.is_own_uri(&uri)))
}

fn loose_route(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    let in_dialog = run.message().to_tag().is_some();
    let further = !in_dialog && has_foreign_route(run);
    let Some(cx) = run.request() else { return Outcome::False };
    match cx.loose_route() {
        RouteVerdict::NotRouted => Outcome::False,
        RouteVerdict::Routed | RouteVerdict::Foreign if in_dialog => Outcome::True,
        RouteVerdict::Routed | RouteVerdict::Foreign if further => Outcome::Code(-3),
        // An initial request with nothing but our own Route is routed like one without.
        RouteVerdict::Routed | RouteVerdict::Foreign => Outcome::False,
    }
}

fn loose_route_preloaded(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    outcome(loose_route(run, args) == Outcome::Code(-3))
}

/// The parameters of the URI by which the request came to us: of our Route, or of the Request-URI where a strict
/// router made it one.
fn with_own_params<T>(run: &Run<'_, '_>, with: impl FnOnce(&UriParts<'_>) -> T) -> Option<T> {
    let message = run.message();
    if let Some(Ok(route)) = message.routes().next()
        && run.is_own_uri(route.uri)
        && let Some(parts) = UriParts::parse(route.uri)
    {
        return Some(with(&parts));
    }
    run.is_own_uri(message.request_uri())
        .then(|| UriParts::parse(message.request_uri()))?
        .map(|parts| with(&parts))
}

fn check_route_param(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let Some(expression) = args.regex(0) else { return Outcome::False };
    outcome(with_own_params(run, |parts| expression.is_match(parts.params)).unwrap_or(false))
}

fn direction(text: &[u8]) -> Result<i64, &'static str> {
    match text {
        b"downstream" => Ok(0),
        b"upstream" => Ok(1),
        _ => Err("a direction is `upstream` or `downstream`"),
    }
}

fn is_direction(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let from_tag = run.message().from_tag();
    let downstream = with_own_params(run, |parts| parts.param(b"ftag").map(|tag| Some(tag) == from_tag));
    match (downstream.flatten(), args.int(0)) {
        (Some(downstream), 0) => outcome(downstream),
        (Some(downstream), 1) => outcome(!downstream),
        // Without the tag nobody knows; a request is taken to go the way of the first one.
        (None, wanted) => outcome(wanted == 0),
        _ => Outcome::False,
    }
}

fn rr_next_hop_route(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    outcome(has_foreign_route(run))
}

fn route_uri(run: &mut Run<'_, '_>, _: &Subscript<'_>, out: &mut Sink<'_>) {
    if let Some(Ok(route)) = run.message().routes().next() {
        put_unfolded(out, route.uri);
    }
}
