//! `websocket`: SIP over WebSocket (RFC 7118). It has parameters only; the listeners are `listen=ws:` and `listen=wss:`.

use crate::table::{Module, harmless_parameter, int_parameter, str_parameter};
use route::ParameterDecl;

pub(crate) static MODULE: Module = Module {
    name: "websocket",
    doc: "SIP over WebSocket, for browsers: `listen=ws:ADDRESS:PORT` and `listen=wss:ADDRESS:PORT`, with or without this module.",
    functions: &[],
    parameters: PARAMETERS,
    variables: &[],
};

const PINGS: &str = "a connection is probed by pings of its own, without processes for it.";

static PARAMETERS: &[ParameterDecl] = &[
    str_parameter(
        "origins",
        "",
        "The values of Origin that are let in, joined by commas: \"https://phone.example,https://other.example\"; empty, all. It is this server's own.",
    ),
    int_parameter(
        "keepalive_timeout",
        (1, 31_536_000),
        180,
        "s",
        "How long a connection may be silent before it is probed by a ping; after as long again without a sign of life it is closed.",
    ),
    int_parameter(
        "keepalive_mechanism",
        (0, 2),
        1,
        "",
        "Whether silent connections are probed (1, 2), or not (0).",
    ),
    int_parameter(
        "sub_protocols",
        (1, 1),
        1,
        "",
        "What is spoken over WebSocket: 1, SIP. MSRP (2) is not there.",
    ),
    harmless_parameter(
        "cors_mode",
        "the handshake of a WebSocket needs no CORS headers; `origins` says who is let in.",
    ),
    harmless_parameter("keepalive_interval", PINGS),
    harmless_parameter("keepalive_processes", PINGS),
    harmless_parameter("ping_application_data", PINGS),
    harmless_parameter("timer_interval", PINGS),
    harmless_parameter("rm_delay_interval", "a closed connection is forgotten at once."),
    harmless_parameter("verbose_list", "there is no command interface of that kind."),
    harmless_parameter("event_callback", "routes are written in this language."),
];

/// Functions of Kamailio's `websocket`, `xhttp` and of what goes with them that are not there, and why.
pub(crate) static ABSENT: &[(&str, &str)] = &[
    (
        "ws_handle_handshake",
        "write `listen=ws:ADDRESS:PORT` or `listen=wss:ADDRESS:PORT`: the handshake is answered by itself there, as modparam(\"websocket\", \"origins\", ...) says; leave event_route[xhttp:request] out",
    ),
    ("ws_close", "a connection is closed when it has been idle for `tcp_connection_lifetime`"),
    ("xhttp_reply", "HTTP is spoken on WebSocket listeners alone, and answered there by itself"),
];
