//! The functions of `auth`.

use super::challenge::{self, Offer, challenge};
use super::settings::algorithm_list;
use super::verify::{admit, choose, has_no_value, is_exempt, is_right, judge, offered, realm};
use super::{Identity, code, is_identity, split_username};
use crate::core::outcome;
use crate::run::Run;
use crate::table::{Function, REQUESTS, TARGETS};
use alloc::vec::Vec;
use route::{Args, Contexts, Index, Outcome, Param, ParamKind, ValueRef};
use sip::Method;
use sip::digest::{Algorithm, Hex, Role, presented};

/// The flag that says that a password is H(A1).
const IS_HA1: i64 = 1;
/// The flags that put a challenge into an `$avp`: without qop, with `auth`, with `auth-int`.
const AVP_PLAIN: i64 = 2;
const AVP_QOP: i64 = 4;
const AVP_QOP_INT: i64 = 8;

const REALM: Param = Param::new("realm", ParamKind::Format);
const FLAGS: Param = Param::new("flags", ParamKind::Int);
const PASSWORD: Param = Param::new("password", ParamKind::Format);
const METHOD: Param = Param::new("method", ParamKind::Format);

const CHALLENGE: &str = "Answers 401 with a challenge for REALM, one header field for each of `algorithm`; without REALM for the \
    domain of From (of a REGISTER, To). FLAGS is a sum: 1 offers qop=auth, 4 leaves failures to the script, 16 says stale=true, \
    which is said by itself where credentials were right but for their nonce. Where attempts are slowed, 503 with Retry-After \
    goes instead. Returns 1; -1 without a realm, or for ACK and CANCEL, which are never challenged; -3 if nothing could be sent.";
const PROXY_CHALLENGE: &str = "`www_challenge` of a proxy: 407 and Proxy-Authenticate.";
const AUTH_CHALLENGE: &str = "`www_challenge` for a REGISTER, `proxy_challenge` for other requests.";
const PV_AUTHENTICATE: &str = "Whether the credentials in Authorization for REALM are right by PASSWORD. FLAGS is a sum: 1, PASSWORD is \
    H(user:realm:password) in hexadecimal; 2, 4 or 8 puts a challenge without or with qop into `challenge_attr` if they are not; \
    16, this says stale=true. METHOD stands for that of the request. Returns 1, also for ACK and CANCEL; -1 for an empty \
    password or no realm, -2 wrong, -4 nonce too old or not ours, -5 no credentials, -6 nonce used before, -7 too many wrong \
    attempts. What cannot be read, or is for another URI than the Request-URI, is answered 400, and the script ends.";
const PV_PROXY: &str = "`pv_www_authenticate` with the credentials in Proxy-Authorization.";
const PV_CHECK: &str = "`pv_www_authenticate` for a REGISTER, `pv_proxy_authenticate` for other requests. With CHECKS 1 the user must \
    also be that of From (of a REGISTER, To): -8 otherwise.";
const CONSUME: &str = "Takes the header fields that authenticated the request out of what is sent on, and no others (RFC 3261 section \
    22.3). False if there are none.";
const GET: &str = "Puts a challenge for REALM, as the value of a WWW-Authenticate, into the `$avp` that is named: \"$avp(x)\". FLAGS: 4 or 8, \
    with qop; 16, stale=true. -1 without a realm or for anything that is no `$avp`.";

pub(super) static FUNCTIONS: &[Function] = &[
    Function::new("www_challenge", &[REALM, FLAGS], TARGETS, www_challenge, CHALLENGE),
    Function::new("proxy_challenge", &[REALM, FLAGS], TARGETS, proxy_challenge, PROXY_CHALLENGE),
    Function::new("auth_challenge", &[REALM, FLAGS], TARGETS, auth_challenge, AUTH_CHALLENGE),
    Function::optional(
        "pv_www_authenticate",
        &[REALM, PASSWORD, FLAGS, METHOD],
        3,
        TARGETS,
        pv_www_authenticate,
        PV_AUTHENTICATE,
    ),
    Function::optional(
        "pv_proxy_authenticate",
        &[REALM, PASSWORD, FLAGS, METHOD],
        3,
        TARGETS,
        pv_proxy_authenticate,
        PV_PROXY,
    ),
    Function::new(
        "pv_auth_check",
        &[REALM, PASSWORD, FLAGS, Param::new("checks", ParamKind::Int)],
        TARGETS,
        pv_auth_check,
        PV_CHECK,
    ),
    Function::new("consume_credentials", &[], REQUESTS, consume_credentials, CONSUME),
    Function::new(
        "has_credentials",
        &[REALM],
        REQUESTS,
        has_credentials,
        "Whether the request has credentials for REALM, right or wrong, in Authorization or Proxy-Authorization.",
    ),
    Function::new(
        "auth_get_www_authenticate",
        &[REALM, FLAGS, Param::new("avp", ParamKind::Str)],
        Contexts::ANY,
        auth_get_www_authenticate,
        GET,
    ),
    Function::new(
        "auth_algorithm",
        &[Param::new("algorithm", ParamKind::Format)],
        TARGETS,
        auth_algorithm,
        "Sets `algorithm` for the rest of this run of the script. False for an algorithm that is unknown.",
    ),
];

fn www_challenge(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    challenge(run, Role::Server, args.str(0), args.int(1))
}

fn proxy_challenge(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    challenge(run, Role::Proxy, args.str(0), args.int(1))
}

fn auth_challenge(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    challenge(run, role_of(run), args.str(0), args.int(1))
}

/// As whom requests of this method are challenged: as the registrar, or as a proxy.
pub(crate) fn role_of(run: &Run<'_, '_>) -> Role {
    if run.message().method() == Method::Register { Role::Server } else { Role::Proxy }
}

fn pv_www_authenticate(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    pv_authenticate(run, Role::Server, args, args.str(3), Identity::Unchecked)
}

fn pv_proxy_authenticate(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    pv_authenticate(run, Role::Proxy, args, args.str(3), Identity::Unchecked)
}

fn pv_auth_check(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let identity = if args.int(3) & 1 != 0 { Identity::One } else { Identity::Unchecked };
    pv_authenticate(run, role_of(run), args, b"", identity)
}

fn pv_authenticate(
    run: &mut Run<'_, '_>,
    role: Role,
    args: &Args<'_>,
    method: &[u8],
    identity: Identity,
) -> Outcome {
    let message = run.message();
    if is_exempt(&message) {
        return Outcome::True;
    }
    let (password, flags) = (args.str(1), args.int(2));
    if password.is_empty() || has_no_value(password) {
        return run
            .fail("no credentials are right for an empty password: what was given for it has no value");
    }
    let Some(realm) = realm(&message, run.settings, args.str(0)) else {
        return run.fail("credentials are for a realm: none was given, and From (or To) has no domain");
    };
    let method = if method.is_empty() { message.method_bytes() } else { method };
    let done = evaluate(run, role, realm, password, flags, method, identity);
    let wanted = flags & (AVP_PLAIN | AVP_QOP | AVP_QOP_INT) != 0;
    if wanted && !matches!(done, Outcome::True | Outcome::Exit | Outcome::Code(code::MISMATCH)) {
        keep_challenge(run, role, realm, flags);
    }
    done
}

fn evaluate(
    run: &mut Run<'_, '_>,
    role: Role,
    realm: &[u8],
    password: &[u8],
    flags: i64,
    method: &[u8],
    identity: Identity,
) -> Outcome {
    let chosen = match choose(run, role, realm) {
        Ok(chosen) => chosen,
        Err(outcome) => return outcome,
    };
    // The script has found the secret, by what is not known here: the user's own name, most likely.
    let account = [split_username(&chosen.username).0, b"\0", realm].concat();
    let pass = match admit(run, &account) {
        Ok(pass) => pass,
        Err(outcome) => return outcome,
    };
    let credentials = chosen.credentials;
    let ha1 = if flags & IS_HA1 != 0 {
        Hex::parse(password)
    } else {
        let parts = [credentials.username, credentials.realm, password];
        Some(credentials.algorithm.hash_joined(&parts))
    };
    let ha1 = ha1.as_ref().map(Hex::as_bytes);
    let proven = ha1.filter(|ha1| is_right(&credentials, Some(ha1), method));
    let done = judge(run, role, &chosen, pass, proven);
    let use_domain = run.settings.auth.use_domain;
    if done == Outcome::True && !is_identity(run, identity, &chosen.username, realm, use_domain) {
        return Outcome::Code(code::MISMATCH);
    }
    done
}

/// Puts a challenge, as header lines, into `challenge_attr`.
fn keep_challenge(run: &mut Run<'_, '_>, role: Role, realm: &[u8], flags: i64) {
    let settings = run.settings;
    let Some(name) = &settings.auth.challenge_avp else { return };
    let offer = offer_of(run, flags);
    let mut lines = Vec::new();
    challenge::push_lines(run, role, realm, offer, &mut lines);
    keep(run, name, &lines);
}

fn offer_of(run: &Run<'_, '_>, flags: i64) -> Offer {
    Offer {
        qop: run.settings.auth.qop || flags & (AVP_QOP | AVP_QOP_INT) != 0,
        stale: run.prepared.auth.stale || flags & challenge::STALE != 0,
    }
}

/// Assigns to an `$avp`; one more value does not pile up. The line ends are ours.
fn keep(run: &mut Run<'_, '_>, name: &[u8], value: &[u8]) -> bool {
    run.state().avps.write(name, Index::All, ValueRef::Str(value)).is_ok()
}

fn auth_get_www_authenticate(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let message = run.message();
    let name = core::str::from_utf8(args.str(2)).ok().filter(|text| text.starts_with("$avp("));
    let Some(name) = name.and_then(crate::settings::avp_name) else {
        return run.fail(
            "auth_get_www_authenticate: the third argument must be a name of an avp in quotes: \"$avp(x)\"",
        );
    };
    let Some(realm) = realm(&message, run.settings, args.str(0)) else { return Outcome::False };
    let offer = offer_of(run, args.int(1));
    let nonce = challenge::nonce(run, realm);
    let algorithm = offered(run).first().copied().unwrap_or(Algorithm::Md5);
    let mut value = Vec::new();
    challenge::push_value(realm, &nonce, algorithm, offer, &mut value);
    outcome(keep(run, &name, &value))
}

fn consume_credentials(run: &mut Run<'_, '_>, _: &Args<'_>) -> Outcome {
    let message = run.message();
    let authorized = run.state().authorized.clone();
    let mut any = false;
    for header in message.all_headers().filter(|header| authorized.contains(&header.line.start)) {
        run.edits().remove_header(&header);
        any = true;
    }
    outcome(any)
}

fn has_credentials(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let message = run.message();
    let Some(realm) = realm(&message, run.settings, args.str(0)) else { return Outcome::False };
    let has = |role| {
        presented(&message, role).any(|presented| presented.credentials.is_ok_and(|it| it.is_for(realm)))
    };
    outcome(has(Role::Server) || has(Role::Proxy))
}

fn auth_algorithm(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let list = core::str::from_utf8(args.str(0)).ok().and_then(algorithm_list);
    let Some(list) = list else {
        return run.fail("auth_algorithm: write MD5, SHA-256, SHA-512-256, or a list of these");
    };
    run.prepared.auth.algorithms = Some(list.into_iter().collect());
    Outcome::True
}
