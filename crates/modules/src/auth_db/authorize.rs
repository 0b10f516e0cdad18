//! Authenticating a request by the row of its user.
//!
//! ```text
//!  remembered ──────────────▶ judged ──wrong, and not just read──▶ asked once more
//!  not remembered ──▶ asked ──▶ judged                                  │
//!                       └─ no answer: 503, Retry-After, the script ends ◀┘
//! ```
//!
//! The functions are run again from their beginning when the answer is there: it is remembered by then.

use super::cache::{Ages, Row, Said};
use super::settings::AuthDbSettings;
use crate::auth::verify::{self, Chosen, admit, choose, is_exempt, is_right, judge};
use crate::auth::{Identity, Pass, code, is_identity, role_of, split_username};
use crate::core::outcome;
use crate::log::Level;
use crate::run::{Context, Run};
use crate::sl::{Mode, reply};
use crate::uri_parts::UriParts;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;
use engine::{Answer, Ask, Select};
use route::{Args, Index, Outcome, ValueRef};
use sip::digest::{Algorithm, Hex, Role};
use sip::{Instant, Method};
use smallvec::SmallVec;

/// Longest user name or domain that is looked up, in bytes; a longer one is nobody's.
const NAME_BYTES_MAX: usize = 255;
/// A row younger than this is not read again for a password that does not fit.
const SURELY_FRESH: Duration = Duration::from_secs(1);
/// How often the log says that the database does not answer, at most.
const AWAY_INTERVAL: Duration = Duration::from_secs(10);
/// How often the log says that there is no user yet, at most.
const NO_USER_INTERVAL: Duration = Duration::from_secs(60);
/// How often the log says that a user lacks a secret, or that a route cannot wait, at most.
const SCRIPT_INTERVAL: Duration = Duration::from_secs(60);

/// Table, user and perhaps domain, NULs between: what a row is remembered by.
type Key = SmallVec<[u8; 128]>;

/// What a script asked for.
#[derive(Clone)]
struct Task<'a> {
    table: Arc<str>,
    what: What<'a>,
    /// The row has been read for this very request.
    asked: bool,
}

#[derive(Clone, Copy)]
enum What<'a> {
    Authorize(Authorize<'a>),
    Subscriber { user: &'a [u8], domain: Option<&'a [u8]>, load: bool },
}

#[derive(Clone, Copy)]
struct Authorize<'a> {
    role: Role,
    realm: &'a [u8],
    method: &'a [u8],
    identity: Identity,
}

/// A task that waits for the database. Its `Debug` would show who is who, so it has none.
pub(crate) struct Job {
    table: Arc<str>,
    kept: Kept,
    question: Question,
    /// What [`users_epoch`](crate::Services::users_epoch) was when it was asked: an answer of before a change is none.
    epoch: u64,
}

enum Kept {
    Authorize { role: Role, realm: Box<[u8]>, method: Box<[u8]>, identity: Identity },
    Subscriber { user: Box<[u8]>, domain: Option<Box<[u8]>>, load: bool },
}

/// What is asked of the database.
enum Question {
    /// The row of a user; without the columns that a table may lack, if it refused them then.
    User { key: Key, refused: Option<Instant> },
    /// Whether there is any user.
    Any,
}

impl Job {
    fn task(&self) -> Task<'_> {
        let what = match &self.kept {
            Kept::Authorize { role, realm, method, identity } => {
                What::Authorize(Authorize { role: *role, realm, method, identity: *identity })
            }
            Kept::Subscriber { user, domain, load } => {
                What::Subscriber { user, domain: domain.as_deref(), load: *load }
            }
        };
        Task { table: self.table.clone(), what, asked: matches!(self.question, Question::User { .. }) }
    }
}

// --- functions ------------------------------------------------------------------------------------------------------

pub(super) fn www(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    start(run, Role::Server, args, args.str(2), Identity::Unchecked)
}

pub(super) fn proxy(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    start(run, Role::Proxy, args, args.str(2), Identity::Unchecked)
}

pub(super) fn auth_check(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    start(run, role_of(run), args, b"", Identity::of_flags(args.int(2)))
}

pub(super) fn is_subscriber(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let flags = args.int(2);
    let Some(table) = run.settings.auth_db.table(args.str(1)) else { return no_table(run) };
    let Some(parts) = UriParts::parse(args.str(0)) else { return Outcome::False };
    let Some(plain) = parts.plain_user() else { return Outcome::False };
    let domain = (flags & 1 != 0).then_some(parts.host);
    run.auth.users.follow(run.environment.services.users_epoch());
    perform(
        run,
        &Task { table, what: What::Subscriber { user: &plain, domain, load: flags & 2 == 0 }, asked: false },
    )
}

fn start(run: &mut Run<'_, '_>, role: Role, args: &Args<'_>, method: &[u8], identity: Identity) -> Outcome {
    let message = run.message();
    if is_exempt(&message) {
        return Outcome::True;
    }
    let Some(table) = run.settings.auth_db.table(args.str(1)) else { return no_table(run) };
    let Some(realm) = verify::realm(&message, run.settings, args.str(0)) else {
        return run.fail("credentials are for a realm: none was given, and From (or To) has no domain");
    };
    let method = if method.is_empty() { message.method_bytes() } else { method };
    run.auth.users.follow(run.environment.services.users_epoch());
    let what = What::Authorize(Authorize { role, realm, method, identity });
    perform(run, &Task { table, what, asked: false })
}

fn no_table(run: &mut Run<'_, '_>) -> Outcome {
    run.fail("users are looked for in a table: its name has letters, digits and `_`, at most 64")
}

fn perform(run: &mut Run<'_, '_>, task: &Task<'_>) -> Outcome {
    match task.what {
        What::Authorize(authorize) => match gate(run, task) {
            Some(outcome) => outcome,
            None => check(run, task, &authorize),
        },
        What::Subscriber { user, domain, load } => subscriber(run, task, user, domain, load),
    }
}

// --- before there is a user -------------------------------------------------------------------------------------------

/// `open_until_first_user`: what becomes of a request while the table is empty; `None` once it is not.
fn gate(run: &mut Run<'_, '_>, task: &Task<'_>) -> Option<Outcome> {
    if !run.settings.auth_db.open_until_first_user {
        return None;
    }
    let now = run.now();
    match run.auth.users.has_any(&task.table, now) {
        Some(true) => None,
        Some(false) if is_of_this_host(run) => Some(Outcome::True),
        Some(false) => {
            if run.auth.users.may_say(Said::NoUser, now, NO_USER_INTERVAL) {
                run.say(
                    Level::Warning,
                    b"there is no user yet, so that only this host is served: make one with `strowger user add`",
                );
            }
            reply(run, 403, b"No Users Yet", Mode::Any);
            Some(Outcome::Exit)
        }
        None => Some(ask(run, task, Question::Any)),
    }
}

/// Nobody else reaches a loopback address; who sends to one may do so from any of the host's.
fn is_of_this_host(run: &Run<'_, '_>) -> bool {
    let is_loopback = |address: SocketAddr| address.ip().to_canonical().is_loopback();
    is_loopback(run.path().remote) || run.local().is_some_and(is_loopback)
}

// --- credentials ------------------------------------------------------------------------------------------------------

/// What is known of a user's secret.
enum Secret {
    /// Nothing: the database must be asked.
    Unread,
    /// There is no such user; how old that knowledge is.
    NoUser(Duration),
    /// The user has none for the algorithm; how old that knowledge is.
    None(Duration),
    /// H(A1), and how old it is.
    Ha1(Hex, Duration),
}

fn check(run: &mut Run<'_, '_>, task: &Task<'_>, authorize: &Authorize<'_>) -> Outcome {
    let &Authorize { role, realm, method, identity } = authorize;
    let chosen = match choose(run, role, realm) {
        Ok(chosen) => chosen,
        Err(outcome) => return outcome,
    };
    let credentials = chosen.credentials;
    let key = key_of(run, task, &chosen, realm);
    // Asked again after each answer, so that no guesses wait together for the database.
    let pass = match admit(run, key.as_deref().unwrap_or(&chosen.username)) {
        Ok(pass) => pass,
        Err(outcome) => return outcome,
    };
    let Some(key) = key else {
        let _ = is_right(&credentials, None, method);
        return nobody(run, role, &chosen, pass);
    };
    let (age, known) = match secret(run, task, &key, &chosen) {
        Secret::Unread => return ask(run, task, Question::User { key, refused: None }),
        Secret::NoUser(age) => (age, None),
        Secret::None(age) => (age, Some(None)),
        Secret::Ha1(ha1, age) => (age, Some(Some(ha1))),
    };
    // A new password works at once, and so does a new user: what does not fit is read again before it is called wrong.
    let ha1 = known.flatten();
    let secret = ha1.as_ref().map(Hex::as_bytes);
    let fits = is_right(&credentials, secret, method);
    if !fits && !task.asked && age >= SURELY_FRESH && can_wait(run) {
        return ask(run, task, Question::User { key, refused: None });
    }
    if known.is_none() {
        return nobody(run, role, &chosen, pass);
    }
    if ha1.is_none() && may_say(run, Said::NoSecret, SCRIPT_INTERVAL) {
        let line = b"a user has no secret for the algorithm of the credentials: set the password anew, or offer MD5, too";
        run.say(Level::Notice, line);
    }
    let done = judge(run, role, &chosen, pass, secret.filter(|_| fits));
    if done != Outcome::True {
        return done;
    }
    let use_domain = run.settings.auth_db.use_domain;
    if !is_identity(run, identity, &chosen.username, realm, use_domain) {
        return Outcome::Code(code::MISMATCH);
    }
    load(run, &key);
    Outcome::True
}

/// No such user: as slow as a wrong password, and as dear.
fn nobody(run: &mut Run<'_, '_>, role: Role, chosen: &Chosen<'_>, pass: Pass) -> Outcome {
    let _ = judge(run, role, chosen, pass, None);
    Outcome::Code(code::USER)
}

/// What the row of these credentials' user is remembered by; `None` if there can be none.
fn key_of(run: &Run<'_, '_>, task: &Task<'_>, chosen: &Chosen<'_>, realm: &[u8]) -> Option<Key> {
    let (user, domain) = split_username(&chosen.username);
    let domain = run.settings.auth_db.use_domain.then(|| domain.unwrap_or(realm));
    key(&task.table, user, domain)
}

/// The key of a user; `None` for a name that no table has: empty, too long, no text.
fn key(table: &str, user: &[u8], domain: Option<&[u8]>) -> Option<Key> {
    let is_name = |name: &[u8]| {
        (1..=NAME_BYTES_MAX).contains(&name.len())
            && core::str::from_utf8(name).is_ok_and(|name| !name.chars().any(char::is_control))
    };
    let mut key = Key::from_slice(table.as_bytes());
    for name in [Some(user), domain].into_iter().flatten() {
        if !is_name(name) {
            return None;
        }
        key.push(0);
        key.extend_from_slice(name);
    }
    Some(key)
}

/// How long what is remembered may be believed; what was read for this very request, always.
fn ages(settings: &AuthDbSettings, task: &Task<'_>) -> Ages {
    if task.asked { Ages { known: Duration::MAX, unknown: Duration::MAX } } else { settings.ages }
}

fn secret(run: &mut Run<'_, '_>, task: &Task<'_>, key: &[u8], chosen: &Chosen<'_>) -> Secret {
    let (now, settings) = (run.now(), &run.settings.auth_db);
    let user = key.split(|&byte| byte == 0).nth(1);
    match run.auth.users.get(key, now, ages(settings, task)) {
        None => Secret::Unread,
        Some((age, None)) => Secret::NoUser(age),
        // MariaDB compares without case and spaces at the end: `BOB` finds bob's row, and is not bob.
        Some((age, Some(row))) if row.get(settings.places.user).and_then(Option::as_deref) != user => {
            Secret::NoUser(age)
        }
        Some((age, Some(row))) => {
            ha1(settings, row, chosen).map_or(Secret::None(age), |ha1| Secret::Ha1(ha1, age))
        }
    }
}

/// H(A1) of these credentials (RFC 7616 §3.4.2) by the user's row: a stored one of their algorithm, or made of the password.
fn ha1(settings: &AuthDbSettings, row: &Row, chosen: &Chosen<'_>) -> Option<Hex> {
    let credentials = &chosen.credentials;
    let at = |place: Option<usize>| {
        place.and_then(|place| row.get(place)?.as_deref()).filter(|text| !text.is_empty())
    };
    let algorithm = credentials.algorithm;
    let made = |password: &[u8]| algorithm.hash_joined(&[credentials.username, credentials.realm, password]);
    let places = &settings.places;
    if settings.calculate_ha1 {
        return at(Some(places.password)).map(made);
    }
    // Hashes of `user@domain` are in a column of their own, and only Kamailio's two have such a second one.
    let with_domain = split_username(&chosen.username).1.is_some();
    let usual = if with_domain { places.password_2 } else { Some(places.password) };
    let own = match algorithm {
        Algorithm::Md5 => None,
        Algorithm::Sha256 => places.sha256.filter(|_| !with_domain),
        Algorithm::Sha512_256 => places.sha512_256.filter(|_| !with_domain),
    };
    let stored = |place: Option<usize>| {
        at(place).and_then(Hex::parse).filter(|ha1| ha1.as_bytes().len() == algorithm.hex_len())
    };
    // 64 digits in Kamailio's columns are SHA-256: it knows no other hash of that length.
    let usual = usual.filter(|_| algorithm != Algorithm::Sha512_256);
    stored(own).or_else(|| stored(usual)).or_else(|| at(places.clear).map(made))
}

/// Fills the `$avp`s of `load_credentials`.
fn load(run: &mut Run<'_, '_>, key: &[u8]) {
    let settings = run.settings;
    if settings.auth_db.loaded.is_empty() {
        return;
    }
    let (now, always) = (run.now(), Ages { known: Duration::MAX, unknown: Duration::MAX });
    let Some((_, Some(row))) = run.auth.users.get(key, now, always) else { return };
    let row = row.clone();
    for (name, place) in &settings.auth_db.loaded {
        let Some(Some(value)) = row.get(*place) else { continue };
        let lines = !crate::text::is_line(value);
        let state = run.state();
        state.avps_hold_lines |= lines;
        if state.avps.write(name, Index::All, ValueRef::Str(value)).is_err() {
            run.fail("$avp: 256 values and 65,536 bytes are kept with one transaction; what load_credentials names is lost");
        }
    }
}

fn subscriber(
    run: &mut Run<'_, '_>,
    task: &Task<'_>,
    user: &[u8],
    domain: Option<&[u8]>,
    with_values: bool,
) -> Outcome {
    let Some(key) = key(&task.table, user, domain) else { return Outcome::False };
    let (now, settings) = (run.now(), &run.settings.auth_db);
    match run.auth.users.get(&key, now, ages(settings, task)) {
        None => ask(run, task, Question::User { key, refused: None }),
        Some((_, None)) => Outcome::False,
        Some((_, Some(_))) => {
            if with_values {
                load(run, &key);
            }
            outcome(true)
        }
    }
}

// --- the database -----------------------------------------------------------------------------------------------------

/// Whether this run can wait for an answer: the engine suspends nothing but a request's own route, and no ACK, which has no
/// transaction to wait in.
fn can_wait(run: &Run<'_, '_>) -> bool {
    let ack = run.message().method() == Method::Ack;
    matches!(&run.cx, Context::Request(cx) if cx.status().is_none() && !ack)
}

fn may_say(run: &mut Run<'_, '_>, what: Said, interval: Duration) -> bool {
    let now = run.now();
    run.auth.users.may_say(what, now, interval)
}

/// Suspends the script until the database has answered.
fn ask(run: &mut Run<'_, '_>, task: &Task<'_>, question: Question) -> Outcome {
    let kept = match task.what {
        What::Authorize(Authorize { role, realm, method, identity }) => {
            Kept::Authorize { role, realm: realm.into(), method: method.into(), identity }
        }
        What::Subscriber { user, domain, load } => {
            Kept::Subscriber { user: user.into(), domain: domain.map(Into::into), load }
        }
    };
    let question = match question {
        Question::User { key, .. } => {
            let refused = run.auth.users.refused(&task.table, run.now());
            Question::User { key, refused }
        }
        other => other,
    };
    let epoch = run.environment.services.users_epoch();
    let job = Job { table: task.table.clone(), kept, question, epoch };
    if !can_wait(run) {
        if may_say(run, Said::CannotWait, SCRIPT_INTERVAL) {
            let line = b"a user was looked for who is not remembered, in a route that cannot wait for the database: \
                authenticate in request_route";
            run.say(Level::Error, line);
        }
        return Outcome::False;
    }
    send(run, Box::new(job))
}

fn send(run: &mut Run<'_, '_>, job: Box<Job>) -> Outcome {
    let settings = &run.settings.auth_db;
    let Some(database) = settings.database else { return Outcome::False };
    let (columns, keys) = match &job.question {
        Question::Any => (Arc::from([settings.user_column.clone()].as_slice()), Vec::new()),
        Question::User { key, refused } => {
            let columns = if refused.is_some() { &settings.certain } else { &settings.columns };
            let names = key.split(|&byte| byte == 0).skip(1);
            let values = [&settings.user_column, &settings.domain_column].into_iter().zip(names);
            (columns.clone(), values.map(|(column, name)| (column.clone(), name.into())).collect())
        }
    };
    let select = Select { database, table: job.table.clone(), columns, keys, rows_max: 1 };
    let timeout = settings.query_timeout;
    run.prepared.auth.job = Some(job);
    run.suspend(Ask::Select(Box::new(select)), timeout, answered)
}

fn answered(run: &mut Run<'_, '_>, answer: &Answer<'_>) -> Outcome {
    let Some(mut job) = run.prepared.auth.job.take() else { return Outcome::False };
    let now = run.now();
    let epoch = run.environment.services.users_epoch();
    if job.epoch != epoch && matches!(answer, Answer::Rows(_)) {
        job.epoch = epoch;
        return send(run, job);
    }
    run.auth.users.follow(epoch);
    match (answer, &mut job.question) {
        (Answer::Rows(rows), Question::Any) => run.auth.users.saw(&job.table, !rows.0.is_empty(), now),
        (Answer::Rows(rows), Question::User { key, refused }) => {
            let row = rows.0.first().map(|row| row.clone().into_boxed_slice());
            run.auth.users.insert(key, now, row);
            if let Some(then) = *refused {
                run.auth.users.reduce(&job.table, then, now);
            }
        }
        // A table of Kamailio's lacks the columns of the stronger hashes.
        (Answer::Refused, Question::User { refused, .. })
            if refused.is_none() && has_optional(&run.settings.auth_db) =>
        {
            *refused = Some(now);
            return send(run, job);
        }
        _ => return away(run),
    }
    perform(run, &job.task())
}

fn has_optional(settings: &AuthDbSettings) -> bool {
    settings.columns.len() > settings.certain.len()
}

/// No answer: what needs one is answered 503, and nothing else.
fn away(run: &mut Run<'_, '_>) -> Outcome {
    if may_say(run, Said::Away, AWAY_INTERVAL) {
        let line = b"the database of auth_db does not answer: requests of users who are not remembered are answered 503";
        run.say(Level::Error, line);
    }
    let secs = run.settings.auth_db.retry_after_secs;
    verify::unavailable(run, secs);
    Outcome::Exit
}
