//! One run of a script: the message in hand, and everything that functions may use.

use crate::auth::{Authentication, Shard};
use crate::log::{Level, Log};
use crate::registrar::Unsaved;
use crate::services::{NoServices, Services};
use crate::settings::Settings;
use crate::table::{Handler, Reader, Writer};
use crate::text::Substitution;
use crate::uri_parts::UriParts;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;
use engine::{BranchContext, Listener, Own, Path, ReplyContext, RequestContext};
use hashbrown::HashMap;
use location::Location;
use route::{
    Args, Avps, FunctionId, Host, Outcome, RouteId, RouteKind, Sink, Subject, Subscript, ValueRef, VariableId,
};
use sip::{Edits, Instant, Message, Uri};
use smallvec::SmallVec;

/// Prepared substitutions that one shard remembers; past it they are prepared anew each time.
const SUBSTITUTIONS_MAX: usize = 1_024;
/// Bytes that a script may add to one reply by `append_to_reply`; past it the function fails.
pub(crate) const REPLY_HEADERS_MAX: usize = 8_192;

/// What stays with a transaction: armed routes, flags, variables.
#[derive(Debug, Default)]
pub struct State {
    /// The route that `t_on_reply` armed.
    pub(crate) on_reply: Option<RouteId>,
    /// The route that `t_on_failure` armed.
    pub(crate) on_failure: Option<RouteId>,
    /// The route that `t_on_branch` armed.
    pub(crate) on_branch: Option<RouteId>,
    /// The message flags, `setflag(0)` the lowest bit.
    pub(crate) flags: u32,
    /// What `$avp` holds.
    pub(crate) avps: Avps,
    /// Whether something with line ends was ever put there.
    pub(crate) avps_hold_lines: bool,
    /// Where the header lines start that authenticated the request.
    pub(crate) authorized: SmallVec<[u32; 4]>,
    /// Who sent the request, once its credentials were found right.
    pub(crate) authenticated: Option<Authenticated>,
}

/// A user whose credentials were found right.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Authenticated {
    /// `username` of the credentials.
    pub(crate) username: alloc::boxed::Box<[u8]>,
    /// Their `realm`.
    pub(crate) realm: alloc::boxed::Box<[u8]>,
}

impl core::fmt::Debug for Authenticated {
    // No identities in logs.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Authenticated(..)")
    }
}

/// What a script has prepared and no one has used yet; it survives a suspension.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    /// Parameters for the Record-Route URI, `;x=y`.
    pub(crate) route_params: Vec<u8>,
    /// Whether `record_route` was called.
    pub(crate) record_routed: bool,
    /// Where `alias_db_find` puts what it finds, while it waits for the database; `None`: `alias_db_lookup` waits.
    pub(crate) alias_output: Option<alloc::boxed::Box<[u8]>>,
    /// Header lines for the next replies.
    pub(crate) reply_headers: Vec<u8>,
    /// Max-Forwards after `mf_process_maxfwd_header`.
    pub(crate) max_forwards: Option<u32>,
    /// The reason of the last failed `sanity_check`, for `sanity_reply`.
    pub(crate) insane: Option<(u16, &'static str)>,
    /// Whether the run has read a piece of a message with line ends in it: see [`crate::text`].
    pub(crate) lines_read: bool,
    /// The function of `registrar` that waits.
    pub(crate) pending: Option<Box<crate::registrar::Pending>>,
    /// What the run knows of authentication.
    pub(crate) auth: Authentication,
}

impl Prepared {
    pub(crate) fn clear(&mut self) {
        self.route_params.clear();
        self.alias_output = None;
        self.reply_headers.clear();
        self.record_routed = false;
        self.max_forwards = None;
        self.insane = None;
        self.lines_read = false;
        self.pending = None;
        self.auth = Authentication::default();
    }
}

/// Buffers that are reused from message to message.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) uri: Vec<u8>,
    pub(crate) current: Vec<u8>,
    pub(crate) text: Vec<u8>,
    pub(crate) aor: Vec<u8>,
    pub(crate) headers: Vec<u8>,
    pub(crate) substitutions: HashMap<u32, Option<Substitution>, ahash::RandomState>,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        // The keys are positions in the configuration, never a peer's choice: the seed need not be secret.
        let hasher = ahash::RandomState::with_seeds(1, 2, 3, 4);
        Scratch {
            uri: Vec::new(),
            current: Vec::new(),
            text: Vec::new(),
            aor: Vec::new(),
            headers: Vec::new(),
            substitutions: HashMap::with_hasher(hasher),
        }
    }
}

/// The wall clock: what the core's instants mean in seconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Microseconds from 1970-01-01T00:00:00Z to [`Instant::ZERO`].
    pub unix_micros_at_zero: u64,
}

impl Clock {
    /// Microseconds since 1970 at `now`.
    pub fn unix_micros(self, now: Instant) -> u64 {
        self.unix_micros_at_zero.saturating_add(now.as_micros())
    }
}

/// What the process knows and the core cannot: the time of day, its own number, the addresses that were bound.
#[derive(Clone)]
pub struct Environment {
    /// The wall clock.
    pub clock: Clock,
    /// The process id, for `$pp`; 0 where there are no processes.
    pub process_id: u32,
    /// The listeners as they were bound, in the order of the engine's.
    pub listeners: Vec<engine::Listener>,
    /// The longest message that is taken, in bytes: [`engine::Limits::message_bytes_max`]; `max_len` in scripts.
    pub message_bytes_max: u32,
    /// The key of nonces where the configuration has no `secret`: random, the same for all shards.
    pub nonce_key: [u8; 32],
    /// The second since 1970 in which the server started: nonces of earlier runs are stale.
    pub started_unix_secs: u64,
    /// Whether whoever drives the engine asks [`ScriptUser::take_unsaved`](crate::ScriptUser::take_unsaved) after each input,
    /// and holds back the answers that it names.
    pub holds_answers: bool,
    /// What the shards share.
    pub services: Arc<dyn Services>,
}

impl core::fmt::Debug for Environment {
    // No secrets in logs.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Environment")
            .field("clock", &self.clock)
            .field("process_id", &self.process_id)
            .field("listeners", &self.listeners)
            .field("message_bytes_max", &self.message_bytes_max)
            .finish_non_exhaustive()
    }
}

impl Default for Environment {
    fn default() -> Environment {
        Environment {
            clock: Clock::default(),
            process_id: 0,
            listeners: Vec::new(),
            message_bytes_max: 65_535,
            nonce_key: [0; 32],
            started_unix_secs: 0,
            holds_answers: false,
            services: Arc::new(NoServices),
        }
    }
}

/// What a function does with an answer from outside. Its outcome is the function's; it may ask once more.
pub type Then = for<'r, 'm> fn(&mut Run<'r, 'm>, &engine::Answer<'_>) -> Outcome;

/// A question of a function to the outside.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The question.
    pub(crate) ask: engine::Ask,
    /// How long to wait.
    pub(crate) deadline: core::time::Duration,
    /// What becomes of the answer.
    pub(crate) then: Then,
}

/// The functions and variables by their ids.
#[derive(Debug, Default)]
pub(crate) struct Dispatch {
    pub(crate) handlers: Vec<Handler>,
    pub(crate) readers: Vec<Reader>,
    pub(crate) writers: Vec<Option<Writer>>,
}

/// The message in hand.
pub(crate) enum Context<'r, 'm> {
    /// A request, or (`failed`) a request all of whose branches failed.
    Request(&'r mut RequestContext<'m, State>),
    /// A response.
    Reply(&'r mut ReplyContext<'m, State>),
    /// A branch about to be sent.
    Branch(&'r mut BranchContext<'m, State>),
}

/// One run of a script.
pub struct Run<'r, 'm> {
    pub(crate) cx: Context<'r, 'm>,
    pub(crate) location: &'r dyn Location,
    pub(crate) log: &'r mut dyn Log,
    pub(crate) settings: &'r Settings,
    pub(crate) dispatch: &'r Dispatch,
    pub(crate) scratch: &'r mut Scratch,
    pub(crate) prepared: &'r mut Prepared,
    pub(crate) environment: &'r Environment,
    /// What the shard keeps for authentication.
    pub(crate) auth: &'r mut Shard,
    pub(crate) ask: &'r mut Option<Asked>,
    pub(crate) unsaved: &'r mut Vec<Unsaved>,
}

impl<'r, 'm> Run<'r, 'm> {
    /// The message as it was received.
    pub(crate) fn message(&self) -> Message<'m> {
        match &self.cx {
            Context::Request(cx) => cx.message(),
            Context::Reply(cx) => cx.message(),
            Context::Branch(cx) => cx.message(),
        }
    }

    /// The time.
    pub(crate) fn now(&self) -> Instant {
        match &self.cx {
            Context::Request(cx) => cx.now(),
            Context::Reply(cx) => cx.now(),
            Context::Branch(cx) => cx.now(),
        }
    }

    /// The listener that the message came by.
    pub(crate) fn listener(&self) -> Option<&Listener> {
        match &self.cx {
            Context::Request(cx) => Some(cx.listener()),
            _ => self.environment.listeners.get(usize::from(self.path().listener.0)),
        }
    }

    /// Our address that it came to.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        let bound = self.listener()?.address;
        let ip =
            if bound.ip().is_unspecified() { self.path().local.unwrap_or(bound.ip()) } else { bound.ip() };
        Some(SocketAddr::new(ip, bound.port()))
    }

    /// The way the message came (of a branch: the way it leaves by).
    pub(crate) fn path(&self) -> &Path {
        match &self.cx {
            Context::Request(cx) => cx.path(),
            Context::Reply(cx) => cx.path(),
            Context::Branch(cx) => cx.path(),
        }
    }

    /// Who this server is.
    pub(crate) fn own(&self) -> &Own {
        match &self.cx {
            Context::Request(cx) => cx.own(),
            Context::Reply(cx) => cx.own(),
            Context::Branch(cx) => cx.own(),
        }
    }

    /// What stays with the transaction.
    pub(crate) fn state(&mut self) -> &mut State {
        match &mut self.cx {
            Context::Request(cx) => cx.state,
            Context::Reply(cx) => cx.state,
            Context::Branch(cx) => cx.state,
        }
    }

    /// The changes to be made to the message.
    pub(crate) fn edits(&mut self) -> &mut Edits {
        match &mut self.cx {
            Context::Request(cx) => cx.edits,
            Context::Reply(cx) => cx.edits,
            Context::Branch(cx) => cx.edits,
        }
    }

    /// The request, where targets and replies can be had.
    pub(crate) fn request(&mut self) -> Option<&mut RequestContext<'m, State>> {
        match &mut self.cx {
            Context::Request(cx) => Some(cx),
            _ => None,
        }
    }

    /// The Request-URI as it would be sent; empty in a response.
    pub(crate) fn request_uri(&self) -> &[u8] {
        match &self.cx {
            Context::Request(cx) => cx.request_uri(),
            Context::Branch(cx) => cx.request_uri(),
            Context::Reply(_) => &[],
        }
    }

    /// Rewrites the Request-URI.
    pub(crate) fn set_request_uri(&mut self, uri: &[u8]) {
        match &mut self.cx {
            Context::Request(cx) => cx.set_request_uri(uri),
            Context::Branch(cx) => cx.set_request_uri(uri),
            Context::Reply(_) => {}
        }
    }

    /// The next hop that was set.
    pub(crate) fn destination_uri(&self) -> Option<&[u8]> {
        match &self.cx {
            Context::Request(cx) => cx.destination_uri(),
            Context::Branch(cx) => cx.destination_uri(),
            Context::Reply(_) => None,
        }
    }

    /// The status of a response, or of what is about to go upstream, or that was replied.
    pub(crate) fn status(&self) -> Option<u16> {
        match &self.cx {
            Context::Request(cx) => cx.status().or(cx.replied()),
            Context::Reply(cx) => Some(cx.status()),
            Context::Branch(_) => None,
        }
    }

    /// Writes a line of the log.
    pub(crate) fn say(&mut self, level: Level, line: &[u8]) {
        if self.log.is_enabled(level) {
            self.log.log(level, line);
        }
    }

    /// Says why a function failed, and fails.
    pub(crate) fn fail(&mut self, line: &str) -> Outcome {
        self.say(Level::Error, line.as_bytes());
        Outcome::False
    }

    /// Suspends the script until `ask` is answered or `deadline` has passed: what a function returns that needs the
    /// outside. `then` turns the answer ([`engine::Answer::Failed`] past the deadline) into the function's
    /// outcome; what it must know then is kept in `Prepared`.
    pub fn suspend(&mut self, ask: engine::Ask, deadline: core::time::Duration, then: Then) -> Outcome {
        *self.ask = Some(Asked { ask, deadline, then });
        Outcome::Suspend
    }

    /// Whether a URI means this server.
    pub(crate) fn is_own_uri(&self, uri: &[u8]) -> bool {
        if crate::domain::is_myself(self, uri) {
            return true;
        }
        let own = self.own();
        if let Ok(uri) = Uri::parse(uri) {
            return own.is_own_uri(&uri);
        }
        let (host, port) = crate::uri_parts::split_hostport(uri);
        let port = port.and_then(crate::uri_parts::decimal).and_then(|port| u16::try_from(port).ok());
        sip::Host::parse(host).is_some_and(|host| own.is_own_host(&host, port, None))
    }

    /// Changes one piece of the Request-URI; false if it has no such pieces.
    pub(crate) fn change_request_uri(&mut self, change: Change<'_>) -> bool {
        let mut current = core::mem::take(&mut self.scratch.current);
        let mut text = core::mem::take(&mut self.scratch.text);
        let mut uri = core::mem::take(&mut self.scratch.uri);
        current.clear();
        text.clear();
        uri.clear();
        current.extend_from_slice(self.request_uri());
        let done = match UriParts::parse(&current) {
            Some(parts) => change.apply(parts, &mut text, &mut uri),
            None => false,
        };
        // A user that a script took away, a host that is none: what is no URI is not sent.
        let done = done && Uri::parse(&uri).is_ok();
        if done {
            self.set_request_uri(&uri);
        }
        self.scratch.current = current;
        self.scratch.text = text;
        self.scratch.uri = uri;
        done
    }

    /// The prepared form of a substitution, made when it is first used; `None` if it is none.
    pub(crate) fn substitution<T>(
        &mut self,
        args: &Args<'_>,
        at: usize,
        with: impl FnOnce(&mut Run<'r, 'm>, &Substitution) -> T,
    ) -> Option<T> {
        let text = args.str(at);
        let Some(id) = args.constant_id(at) else {
            let made = Substitution::parse(text).ok()?;
            return Some(with(self, &made));
        };
        let made = match self.scratch.substitutions.remove(&id) {
            Some(made) => made,
            None => match Substitution::parse(text) {
                Ok(made) => Some(made),
                Err(why) => {
                    self.fail(why);
                    None
                }
            },
        };
        let done = made.as_ref().map(|made| with(self, made));
        if self.scratch.substitutions.len() < SUBSTITUTIONS_MAX {
            self.scratch.substitutions.insert(id, made);
        }
        done
    }
}

impl Host for Run<'_, '_> {
    fn call(&mut self, function: FunctionId, args: &Args<'_>) -> Outcome {
        match self.dispatch.handlers.get(usize::from(function.0)) {
            Some(handler) => handler(self, args),
            None => Outcome::False,
        }
    }

    fn read(&mut self, variable: VariableId, at: &Subscript<'_>, out: &mut Sink<'_>) {
        if let Some(reader) = self.dispatch.readers.get(usize::from(variable.0)) {
            reader(self, at, out);
        }
    }

    fn write(&mut self, variable: VariableId, at: &Subscript<'_>, value: ValueRef<'_>) {
        if let Some(Some(writer)) = self.dispatch.writers.get(usize::from(variable.0)) {
            writer(self, at, value);
        }
    }

    fn is_myself(&mut self, subject: Subject<'_>) -> bool {
        match subject {
            Subject::Bytes(uri) => self.is_own_uri(uri),
            Subject::Variable(variable) if Some(variable) == self.settings.request_uri_variable => {
                self.is_own_uri(self.request_uri())
            }
            Subject::Variable(variable) => {
                let mut text = core::mem::take(&mut self.scratch.text);
                text.clear();
                let mut own = false;
                if let ValueRef::Str(uri) =
                    Sink::collect(&mut text, |out| self.read(variable, &Subscript::NONE, out))
                {
                    own = self.is_own_uri(uri);
                }
                self.scratch.text = text;
                own
            }
        }
    }

    fn refused(&mut self, function: FunctionId, kind: RouteKind) {
        let _ = function;
        let line = match kind {
            RouteKind::Reply => "a function was called in a reply route that cannot be called there",
            RouteKind::Failure => "a function was called in a failure route that cannot be called there",
            RouteKind::Branch => "a function was called in a branch route that cannot be called there",
            _ => "a function was called in a route that it cannot be called in",
        };
        self.say(Level::Error, line.as_bytes());
    }
}

/// A change of one piece of a URI.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<'v> {
    /// Another user, or none.
    User(Option<&'v [u8]>),
    /// Another user with a password.
    UserPassword(&'v [u8], Option<&'v [u8]>),
    /// Another host.
    Host(&'v [u8]),
    /// Another port, or none.
    Port(Option<&'v [u8]>),
    /// Another host and port.
    HostPort(&'v [u8], Option<&'v [u8]>),
    /// Something before the user.
    Prefix(&'v [u8]),
    /// So many characters off the front of the user.
    Strip(usize),
    /// So many characters off the end of the user.
    StripTail(usize),
    /// A parameter more.
    AddParam(&'v [u8]),
    /// A parameter less.
    RemoveParam(&'v [u8]),
}

impl<'a> Change<'a> {
    fn apply(self, mut parts: UriParts<'a>, text: &'a mut Vec<u8>, out: &mut Vec<u8>) -> bool {
        let old_user = parts.user.unwrap_or(&[]);
        match self {
            Change::User(user) => {
                parts.user = user.filter(|user| !user.is_empty());
                parts.password = parts.password.filter(|_| parts.user.is_some());
            }
            Change::UserPassword(user, password) => (parts.user, parts.password) = (Some(user), password),
            Change::Host(_) | Change::Port(_) | Change::HostPort(..) if parts.is_tel() => return false,
            Change::Host(host) => parts.host = host,
            Change::Port(port) => parts.port = port.filter(|port| !port.is_empty()),
            Change::HostPort(host, port) => (parts.host, parts.port) = (host, port),
            Change::Prefix(prefix) => {
                text.extend_from_slice(prefix);
                text.extend_from_slice(old_user);
                parts.user = Some(text);
            }
            Change::Strip(count) => parts.user = old_user.get(count..).filter(|user| !user.is_empty()),
            Change::StripTail(count) => {
                let rest = old_user.len().saturating_sub(count);
                parts.user = old_user.get(..rest).filter(|user| !user.is_empty());
            }
            Change::AddParam(param) => {
                text.extend_from_slice(parts.params);
                if !parts.params.is_empty() {
                    text.push(b';');
                }
                text.extend_from_slice(param);
                parts.params = text;
            }
            Change::RemoveParam(name) => {
                for param in parts.params.split(|&byte| byte == b';') {
                    let key = param.split(|&byte| byte == b'=').next().unwrap_or(param);
                    if !key.eq_ignore_ascii_case(name) {
                        if !text.is_empty() {
                            text.push(b';');
                        }
                        text.extend_from_slice(param);
                    }
                }
                parts.params = text;
            }
        }
        parts.write(out);
        true
    }
}
