//! `auth_db`: users and their secrets from the `subscriber` table.
//!
//! [`authorize`] finds the row of a user in the shard's memory ([`cache`]), or suspends the script and asks the database for
//! it; [`crate::auth::verify`] does the rest. Nobody else waits meanwhile.

mod authorize;
mod cache;
mod settings;

pub(crate) use authorize::Job;
pub(crate) use cache::{Said, Users};
pub use settings::AuthDbSettings;
pub(crate) use settings::read;

use crate::table::{Function, MESSAGES, Module, TARGETS};
use route::{Param, ParamKind};

pub(crate) static MODULE: Module = Module {
    name: "auth_db",
    doc: "Users and their secrets from the `subscriber` table.",
    functions: FUNCTIONS,
    parameters: settings::PARAMETERS,
    variables: &[],
};

const REALM: Param = Param::new("realm", ParamKind::Format);
const TABLE: Param = Param::new("table", ParamKind::Format);
const METHOD: Param = Param::new("method", ParamKind::Format);
const FLAGS: Param = Param::new("flags", ParamKind::Int);

const WWW: &str = "Whether the credentials in Authorization for REALM (by default the domain of From; of a REGISTER, of To) are right \
    by the user's row in TABLE. METHOD stands for that of the request. The script waits where the row is not remembered. Returns \
    1, also for ACK and CANCEL; -1 for what cannot work, -2 wrong, -3 no such user, -4 nonce too old or not ours, -5 no \
    credentials, -6 nonce used before, -7 too many wrong attempts. What cannot be read, or is for another URI than the \
    Request-URI, is answered 400, and 503 with Retry-After goes where the database does not answer; the script ends then.";
const PROXY: &str = "`www_authorize` with the credentials in Proxy-Authorization.";
const CHECK: &str = "`www_authorize` for a REGISTER, `proxy_authorize` for other requests; then who is authenticated is compared with \
    who is named. FLAGS 1: with From, of a REGISTER also with To, of a PUBLISH also with To and Request-URI; 3: the same, but not \
    of INVITE, BYE, PRACK, UPDATE and MESSAGE, whose From may be anonymous. -8 if they differ.";
const SUBSCRIBER: &str = "Whether TABLE has the user of URI; what `load_credentials` names is put into its `$avp`s. FLAGS is a sum: 1, \
    the domain counts, too; 2, nothing is loaded. -1 if there is none.";

static FUNCTIONS: &[Function] = &[
    Function::new("www_authorize", &[REALM, TABLE], TARGETS, authorize::www, WWW),
    Function::optional("www_authenticate", &[REALM, TABLE, METHOD], 2, TARGETS, authorize::www, WWW),
    Function::new("proxy_authorize", &[REALM, TABLE], TARGETS, authorize::proxy, PROXY),
    Function::optional("proxy_authenticate", &[REALM, TABLE, METHOD], 2, TARGETS, authorize::proxy, PROXY),
    Function::new("auth_check", &[REALM, TABLE, FLAGS], TARGETS, authorize::auth_check, CHECK),
    Function::new(
        "is_subscriber",
        &[Param::new("uri", ParamKind::Format), TABLE, FLAGS],
        MESSAGES,
        authorize::is_subscriber,
        SUBSCRIBER,
    ),
];
