//! What `auth` is set to: algorithms, nonces, how attempts are slowed.

use super::GuardLimits;
use crate::settings::{Reader, avp_name};
use crate::table::{harmless_parameter, int_parameter, refused_parameter, str_parameter};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use route::ParameterDecl;
use sip::digest::Algorithm;

/// Algorithms of one challenge: each that there is.
const ALGORITHMS_MAX: usize = 3;
/// Shortest `secret` that passes without a note, in bytes.
const SECRET_BYTES_GOOD: usize = 16;

const ONE_TABLE: &str =
    "nonces carry their own time and MAC; those in use are in one table for all shards: nc_array_size.";

pub(super) static PARAMETERS: &[ParameterDecl] = &[
    str_parameter(
        "secret",
        "",
        "What nonces are signed with. Servers with the same secret accept each other's nonces; those of before a restart are stale. \
         Empty: a random one.",
    ),
    int_parameter(
        "nonce_expire",
        (1, 86_400),
        300,
        "s",
        "How long a nonce is good for. Past it right credentials are challenged again with `stale=true`.",
    ),
    int_parameter(
        "nonce_auth_max_drift",
        (0, 3_600),
        3,
        "s",
        "How far a nonce may be from the future: the clocks of servers that share a secret differ.",
    ),
    int_parameter(
        "nonce_count",
        (0, 1),
        1,
        "",
        "Whether the nonce count of credentials with qop is checked, so that nobody can use them a second time \
         (RFC 7616 section 3.4). A retransmission of the same request is not a second time.",
    ),
    int_parameter("one_time_nonce", (0, 1), 0, "", "Whether a nonce is good for one request alone."),
    int_parameter(
        "nc_array_size",
        (64, 4_194_304),
        262_144,
        "nonces",
        "Nonces in use that are remembered, 65 bytes each. Past it the one used longest ago is forgotten, and stale from then on.",
    ),
    str_parameter("qop", "", "`auth`: every challenge offers it. Empty: those whose flags say so."),
    str_parameter(
        "algorithm",
        "",
        "The algorithms of a challenge, in the order of preference: `SHA-512-256,SHA-256,MD5` makes three header fields of it \
         (RFC 8760 section 2.3). Credentials by another algorithm are refused. Empty: MD5.",
    ),
    str_parameter(
        "realm_prefix",
        "",
        "Taken off the front of every realm: `sip.` makes `example.com` of `sip.example.com`.",
    ),
    int_parameter(
        "use_domain",
        (0, 1),
        0,
        "",
        "Whether `pv_auth_check` compares domains, too, and not users alone.",
    ),
    int_parameter(
        "add_authinfo_hdr",
        (0, 1),
        0,
        "",
        "Whether replies to authenticated requests prove that the server knows the secret, too (Authentication-Info, \
         RFC 7616 section 3.5).",
    ),
    int_parameter(
        "auth_checks_register",
        (0, 15),
        0,
        "",
        "What of a REGISTER must be as in the one that was challenged: the sum of 1 (Request-URI), 2 (Call-ID), 4 (From tag), \
         8 (source address).",
    ),
    int_parameter("auth_checks_no_dlg", (0, 15), 0, "", "The same of other requests outside dialogs."),
    int_parameter("auth_checks_in_dlg", (0, 15), 0, "", "The same of requests within dialogs."),
    int_parameter(
        "check_uri",
        (0, 1),
        1,
        "",
        "Ours: whether the `uri` of credentials must mean the same as the Request-URI, and is answered 400 otherwise (RFC 2617 \
         section 3.2.2.5). 0, as Kamailio has it: for phones behind a proxy that rewrites the Request-URI.",
    ),
    str_parameter(
        "challenge_attr",
        "$avp(digest_challenge)",
        "The `$avp` into which `pv_www_authenticate` and its like put a challenge.",
    ),
    str_parameter("www_challenge_header", "WWW-Authenticate", "The header field of `www_challenge`."),
    str_parameter("proxy_challenge_header", "Proxy-Authenticate", "The header field of `proxy_challenge`."),
    int_parameter(
        "attempts_max",
        (0, 1_000),
        10,
        "attempts",
        "Ours: wrong attempts that a source or a user may make at once before they are slowed; 0: no limit. A source is an IPv4 \
         address or an IPv6 network of 64 bits. Who fitted together within a day has ten times as many, of their own.",
    ),
    int_parameter(
        "attempts_interval",
        (1, 3_600),
        6,
        "s",
        "Ours: how long a further attempt takes to become free.",
    ),
    int_parameter(
        "attempts_size",
        (64, 16_777_216),
        65_536,
        "entries",
        "Ours: sources and users whose wrong attempts are remembered, 40 bytes each.",
    ),
    harmless_parameter(
        "force_stateless_reply",
        "a challenge is sent without state where there is no transaction; where there is one, it must end with it.",
    ),
    harmless_parameter("nid_pool_no", ONE_TABLE),
    int_parameter(
        "nc_array_order",
        (0, 22),
        0,
        "",
        "Where `nc_array_size` is not set, its power of two; 0: not set.",
    ),
    harmless_parameter("otn_in_flight_no", ONE_TABLE),
    harmless_parameter("otn_in_flight_order", ONE_TABLE),
    harmless_parameter(
        "auth_extra_checks",
        "auth_checks_register, auth_checks_no_dlg and auth_checks_in_dlg say it.",
    ),
    refused_parameter(
        "protect_contacts",
        "the contacts of a REGISTER are not part of a nonce; nonce_count keeps credentials from being used again.",
    ),
];

/// What `auth` is set to.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AuthSettings {
    /// What nonces are signed with; none if the server's own random key is.
    pub(crate) secret: Option<Box<[u8]>>,
    /// Nonces in use that are remembered by all shards together: the room of [`NonceWindow`](crate::NonceWindow).
    pub nonces_max: usize,
    /// Sources and users whose failures are remembered by all shards together: the room of [`Guard`](crate::Guard).
    pub attempts_max: usize,
    /// The algorithms that are offered, the preferred one first.
    pub algorithms: Vec<Algorithm>,
    pub(crate) nonce_expire_secs: u32,
    pub(crate) nonce_drift_secs: u32,
    pub(crate) nonce_count: bool,
    pub(crate) one_time_nonce: bool,
    pub(crate) qop: bool,
    pub(crate) realm_prefix: Box<[u8]>,
    pub(crate) use_domain: bool,
    pub(crate) add_authinfo: bool,
    pub(crate) checks: Checks,
    pub(crate) check_uri: bool,
    pub(crate) challenge_avp: Option<Box<[u8]>>,
    pub(crate) www_header: String,
    pub(crate) proxy_header: String,
    pub(crate) guard: GuardLimits,
}

/// What of a request must be as in the one that was challenged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checks {
    pub(crate) register: u32,
    pub(crate) outside: u32,
    pub(crate) within: u32,
}

impl core::fmt::Debug for AuthSettings {
    // No secrets in logs.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("AuthSettings")
            .field("algorithms", &self.algorithms)
            .field("nonce_expire_secs", &self.nonce_expire_secs)
            .finish_non_exhaustive()
    }
}

pub(crate) fn read(reader: &mut Reader<'_>) -> AuthSettings {
    let secret = reader.text("auth", "secret");
    if let Some(span) = reader.place("auth", "secret")
        && (1..SECRET_BYTES_GOOD).contains(&secret.len())
    {
        let message = "whoever guesses this secret can make nonces".to_owned();
        reader.note(span, "short-secret", message, "16 bytes or more, from a random source; or leave it out");
    }
    let flag = |name: &str| reader.int("auth", name) != 0;
    let (nonce_count, one_time_nonce) = (flag("nonce_count"), flag("one_time_nonce"));
    let (use_domain, add_authinfo, check_uri) =
        (flag("use_domain"), flag("add_authinfo_hdr"), flag("check_uri"));
    let unsigned = |name: &str| reader.unsigned("auth", name);
    let checks = Checks {
        register: unsigned("auth_checks_register"),
        outside: unsigned("auth_checks_no_dlg"),
        within: unsigned("auth_checks_in_dlg"),
    };
    let guard = GuardLimits {
        at_once: unsigned("attempts_max"),
        secs_per_attempt: unsigned("attempts_interval"),
        ..GuardLimits::default()
    };
    AuthSettings {
        secret: (!secret.is_empty()).then(|| secret.into_bytes().into()),
        nonces_max: nonces_max(reader),
        attempts_max: reader.unsigned("auth", "attempts_size") as usize,
        nonce_expire_secs: reader.unsigned("auth", "nonce_expire"),
        nonce_drift_secs: reader.unsigned("auth", "nonce_auth_max_drift"),
        nonce_count,
        one_time_nonce,
        qop: qop(reader),
        algorithms: algorithms(reader),
        realm_prefix: reader.text("auth", "realm_prefix").into_bytes().into(),
        use_domain,
        add_authinfo,
        checks,
        check_uri,
        challenge_avp: challenge_avp(reader),
        www_header: header_name(reader, "www_challenge_header"),
        proxy_header: header_name(reader, "proxy_challenge_header"),
        guard,
    }
}

fn nonces_max(reader: &Reader<'_>) -> usize {
    let order = reader.unsigned("auth", "nc_array_order");
    match reader.place("auth", "nc_array_size") {
        None if order > 0 => 1usize << order.min(22),
        _ => reader.unsigned("auth", "nc_array_size") as usize,
    }
}

fn qop(reader: &mut Reader<'_>) -> bool {
    let qop = reader.text("auth", "qop");
    if !matches!(qop.as_str(), "" | "auth") {
        let span = reader.place("auth", "qop").unwrap_or_default();
        reader.error(span, "bad-qop", format!("`{qop}` is not offered"), "write \"auth\", or \"\" for none");
    }
    qop == "auth"
}

/// Reads a list of algorithms, commas between; MD5 if it is empty. `None` for one that is unknown, twice there, or of
/// sessions.
pub(crate) fn algorithm_list(text: &str) -> Option<Vec<Algorithm>> {
    let mut algorithms = Vec::new();
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        match Algorithm::parse(name.as_bytes()) {
            Some((algorithm, false)) if !algorithms.contains(&algorithm) => algorithms.push(algorithm),
            _ => return None,
        }
    }
    if algorithms.is_empty() {
        algorithms.push(Algorithm::Md5);
    }
    (algorithms.len() <= ALGORITHMS_MAX).then_some(algorithms)
}

fn algorithms(reader: &mut Reader<'_>) -> Vec<Algorithm> {
    let text = reader.text("auth", "algorithm");
    algorithm_list(&text).unwrap_or_else(|| {
        let span = reader.place("auth", "algorithm").unwrap_or_default();
        let message = format!("`{text}` is no list of algorithms");
        reader.error(span, "bad-algorithm", message, "for example \"SHA-512-256,SHA-256,MD5\", each once");
        [Algorithm::Md5].into()
    })
}

fn challenge_avp(reader: &mut Reader<'_>) -> Option<Box<[u8]>> {
    let text = reader.text("auth", "challenge_attr");
    // SER's notation has no parentheses: `$digest_challenge`.
    let bare = text.strip_prefix('$').filter(|rest| !rest.contains('('));
    let name = avp_name(bare.unwrap_or(&text));
    if name.is_none() && !text.is_empty() {
        let span = reader.place("auth", "challenge_attr").unwrap_or_default();
        reader.error(span, "bad-name", "this is no `$avp`".to_owned(), "write it as \"$avp(challenge)\"");
    }
    name
}

fn header_name(reader: &mut Reader<'_>, parameter: &str) -> String {
    let name = reader.text("auth", parameter);
    if !sip::is_token(name.as_bytes()) {
        let span = reader.place("auth", parameter).unwrap_or_default();
        reader.error(span, "bad-header", "this is no name of a header field".to_owned(), "WWW-Authenticate");
    }
    name
}
