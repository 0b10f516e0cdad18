//! What the transaction user sees and may do: contexts of requests, replies and branches.

use crate::config::Listener;
use crate::io::{Answer, Ask, Outbox, Path};
use crate::own::Own;
use crate::plan::Plan;
use crate::reply::ViaFix;
use crate::shard::Core;
use crate::table::EntryId;
use core::time::Duration;
use sip::{Edits, Instant, Message};

/// The transaction user of RFC 3261 §5: whoever decides what happens to requests.
///
/// The engine calls it with a context; it never calls the engine by itself.
pub trait TransactionUser {
    /// Kept with each server transaction: armed routes, variables, flags.
    type State: Default;
    /// A suspended script that waits for an answer.
    type Suspended;

    /// A new request: never a retransmission, never the ACK of a non-2xx or of a stateless reply of ours. A CANCEL
    /// comes here too; [`RequestContext::relay`] cancels the INVITE that it matches.
    fn on_request(&mut self, cx: &mut RequestContext<'_, Self::State>) -> Handled<Self::Suspended>;

    /// The answer that a suspended request waited for; [`Answer::Failed`] if its deadline passed. The message is the
    /// same, and so are edits, targets and state.
    fn on_answer(
        &mut self,
        cx: &mut RequestContext<'_, Self::State>,
        suspended: Self::Suspended,
        answer: Answer<'_>,
    ) -> Handled<Self::Suspended>;

    /// A script that was to wait cannot, since too many do: its request is answered 503, and it does not go on. What it has
    /// done that was to be confirmed by the answer is to be undone.
    fn on_abandoned(&mut self, suspended: Self::Suspended, now: Instant) {
        let _ = (suspended, now);
    }

    /// A response just before it is forwarded. A dropped provisional or stateless response is not forwarded; a final
    /// response of a transaction is forwarded whatever the verdict, as its client waits for one.
    fn on_reply(&mut self, cx: &mut ReplyContext<'_, Self::State>) -> ReplyVerdict {
        let _ = cx;
        ReplyVerdict::Forward
    }

    /// All branches failed; [`RequestContext::status`] is the response about to go upstream. The user may append
    /// targets and relay again (serial forking), or reply; if it does neither, that response goes.
    fn on_failure(&mut self, cx: &mut RequestContext<'_, Self::State>) {
        let _ = cx;
    }

    /// Whether [`TransactionUser::on_failure`] wants to be called for a transaction with this state. The engine keeps
    /// edits and targets of a relayed request only where it says yes; asked when the script ends.
    fn failure_armed(&self, state: &Self::State) -> bool {
        let _ = state;
        true
    }

    /// A branch just before it is sent. A dropped branch counts as never made.
    fn on_branch(&mut self, cx: &mut BranchContext<'_, Self::State>) -> BranchVerdict {
        let _ = cx;
        BranchVerdict::Send
    }
}

/// How a script ended.
#[derive(Debug)]
pub enum Handled<S> {
    /// It is done.
    Done,
    /// It waits. The engine makes a transaction if there is none (503 if that is not possible), keeps message, edits,
    /// targets and state, and calls [`TransactionUser::on_answer`] later.
    ///
    /// A transaction made for that absorbs copies of the request while the script waits, and goes when the script has
    /// ended, unless the script asked for one or relayed, or a provisional response went out: to the script, and to its
    /// client, it is as if there were none (a stateless UAS, RFC 3261 §8.2.7). A copy that comes later runs the script
    /// anew.
    Suspend {
        /// Handed back with the answer.
        state: S,
        /// The question.
        ask: Ask,
        /// How long to wait at most.
        deadline: Duration,
    },
}

/// What becomes of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ReplyVerdict {
    /// It goes upstream.
    Forward,
    /// It does not.
    Drop,
}

/// What becomes of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum BranchVerdict {
    /// It is sent.
    Send,
    /// It is not.
    Drop,
}

/// One target of a request (RFC 3261 §16.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// Becomes the Request-URI.
    pub uri: &'a [u8],
    /// The next hop instead of Route and Request-URI: a URI, or `host[:port]`.
    pub destination: Option<&'a [u8]>,
    /// Preference, 0 to 1000; targets of the same q are tried at the same time, higher ones first.
    pub q: u16,
    /// Route values to be put before all others (RFC 3327).
    pub path: Option<&'a [u8]>,
}

impl<'a> Target<'a> {
    /// A target with q 1.0 and neither destination nor path.
    pub fn new(uri: &'a [u8]) -> Target<'a> {
        Target { uri, destination: None, q: crate::plan::Q_DEFAULT, path: None }
    }
}

/// The target set has [`Limits::branches_max`](crate::Limits::branches_max) targets, or too many bytes; or the target
/// cannot be written, as there are line ends, white space or angle brackets in its URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetsFull;

/// What route processing found (RFC 3261 §16.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum RouteVerdict {
    /// There is no Route, or none that concerns this server.
    NotRouted,
    /// The request was routed here: own Route values were removed, or a strict router's rewriting was undone.
    Routed,
    /// There is a Route and it points elsewhere: the request will follow it (a pre-loaded route, RFC 3261 §16.6).
    Foreign,
}

/// What became of Max-Forwards (RFC 3261 §16.6 item 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum MaxForwards {
    /// It was reduced to this.
    Ok(u32),
    /// It was zero: answer 483 (RFC 3261 §16.3 item 3).
    Zero,
    /// There was none: the default was added.
    Added,
}

/// Why a request could not be relayed or forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RelayError {
    /// The message broke a rule that only relaying needs.
    BadRequest,
    /// A URI scheme that we cannot route (RFC 3261 §16.3 item 2).
    UnsupportedScheme,
    /// Proxy-Require names an extension that we do not know (RFC 3261 §16.3 item 5).
    BadExtension,
    /// The request has been here with the same routing (RFC 3261 §16.3 item 4, RFC 5393 §4.2).
    Loop,
    /// Max-Forwards is zero (RFC 3261 §16.3 item 3).
    TooManyHops,
    /// More parallel branches than Max-Breadth allows (RFC 5393 §5.3.3).
    Breadth,
    /// No listener can reach the next hop.
    NoRoute,
    /// The request is for a `sips` URI, and its next hop for a `sip` one or without TLS (RFC 5630 §5.3).
    SipsNotAllowed,
    /// The next hop wants TLS, and there is no listener that can reach it by TLS (RFC 5630 §5.3).
    SipsRequired,
    /// The next hop's name has no address.
    Unresolvable,
    /// There is no target that has not been tried.
    NoTarget,
    /// The table of transactions is full.
    TableFull,
    /// The INVITE has been cancelled.
    Cancelled,
    /// A final response has been sent already.
    AlreadyFinal,
    /// The message would be longer than [`Limits::message_bytes_max`](crate::Limits::message_bytes_max).
    TooLarge,
    /// More changes were made to the message than [`sip::MAX_EDITS`] or [`sip::MAX_EDIT_BYTES`] allow.
    EditsFull,
}

impl RelayError {
    /// The status to be answered.
    pub fn status(self) -> u16 {
        match self {
            RelayError::BadRequest => 400,
            RelayError::UnsupportedScheme => 416,
            RelayError::BadExtension => 420,
            RelayError::Loop => 482,
            RelayError::TooManyHops => 483,
            RelayError::Breadth => 440,
            RelayError::NoRoute | RelayError::Unresolvable => 478,
            RelayError::SipsNotAllowed | RelayError::SipsRequired => 480,
            RelayError::NoTarget => 404,
            RelayError::TableFull => 503,
            RelayError::Cancelled => 487,
            RelayError::AlreadyFinal => 500,
            RelayError::TooLarge => 513,
            RelayError::EditsFull => 500,
        }
    }

    /// The reason phrase to be answered.
    pub fn reason(self) -> &'static str {
        match self {
            RelayError::BadRequest => "Bad Request",
            RelayError::UnsupportedScheme => "Unsupported URI Scheme",
            RelayError::BadExtension => "Bad Extension",
            RelayError::Loop => "Loop Detected",
            RelayError::TooManyHops => "Too Many Hops",
            RelayError::Breadth => "Max-Breadth Exceeded",
            RelayError::NoRoute => "No Transport to Destination",
            RelayError::SipsNotAllowed | RelayError::SipsRequired => "Temporarily Unavailable",
            RelayError::Unresolvable => "Unresolvable Destination",
            RelayError::NoTarget => "Not Found",
            RelayError::TableFull => "Service Unavailable",
            RelayError::Cancelled => "Request Terminated",
            RelayError::AlreadyFinal => "Server Internal Error",
            RelayError::TooLarge => "Message Too Large",
            RelayError::EditsFull => "Server Internal Error",
        }
    }
}

/// Why a reply was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplyError {
    /// An ACK is never answered (RFC 3261 §17).
    Ack,
    /// A final response has been sent already.
    AlreadyFinal,
    /// The status is not one of 100 to 699.
    Status,
}

/// Why there is no transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineError {
    /// The table is full; answer 503.
    TableFull,
    /// An ACK has no transaction of its own (RFC 3261 §17).
    Ack,
}

/// A request in the hands of the transaction user.
pub struct RequestContext<'a, S> {
    /// The state of its transaction, or of the one that it may get.
    pub state: &'a mut S,
    /// The changes to be made to it when it is forwarded.
    pub edits: &'a mut Edits,
    pub(crate) plan: &'a mut Plan,
    pub(crate) core: &'a mut Core<S>,
    pub(crate) out: &'a mut Outbox,
    pub(crate) message: Message<'a>,
    pub(crate) now: Instant,
    pub(crate) arrival: Arrival,
    pub(crate) entry: Option<EntryId>,
    pub(crate) has_waited: bool,
    pub(crate) failed: Option<u16>,
}

/// How a request came and where its responses go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) path: Path,
    pub(crate) reply_path: Path,
    pub(crate) fix: ViaFix,
}

impl<'a, S> RequestContext<'a, S> {
    /// The request as it was received.
    pub fn message(&self) -> Message<'a> {
        self.message
    }

    /// The time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// When the request came, if its script has waited for an answer since.
    pub fn waiting_since(&self) -> Option<Instant> {
        let entry = self.core.table.get(self.entry.filter(|_| self.has_waited)?)?;
        Some(entry.created)
    }

    /// The way the request came.
    pub fn path(&self) -> &Path {
        &self.arrival.path
    }

    /// The listener that the request came by.
    pub fn listener(&self) -> &Listener {
        let place = usize::from(self.arrival.path.listener.0);
        self.core.config.listeners.get(place).expect("invariant: messages of unknown listeners are dropped")
    }

    /// Who this server is.
    pub fn own(&self) -> &Own {
        &self.core.own
    }

    /// In [`TransactionUser::on_failure`]: the status about to go upstream.
    pub fn status(&self) -> Option<u16> {
        self.failed
    }

    // --- targets (RFC 3261 §16.5) ---------------------------------------------------------------------------------

    /// The Request-URI as it would be sent: target 0.
    pub fn request_uri(&self) -> &[u8] {
        self.plan.uri(0).unwrap_or(self.message.request_uri())
    }

    /// Rewrites the Request-URI; what it was before is still in [`RequestContext::message`]. What cannot be a URI, as
    /// there are line ends, white space or angle brackets in it, is not taken.
    pub fn set_request_uri(&mut self, uri: &[u8]) {
        if self.request_uri() != uri {
            self.plan.set_uri(0, uri);
        }
    }

    /// The next hop of target 0 if it was set.
    pub fn destination_uri(&self) -> Option<&[u8]> {
        self.plan.destination(0)
    }

    /// Sets the next hop of target 0, instead of Route and Request-URI: a URI, or `host[:port]`. Another next hop makes
    /// it a target that has not been tried.
    pub fn set_destination_uri(&mut self, uri: Option<&[u8]>) {
        self.plan.set_destination(0, uri);
    }

    /// Adds a target. Of targets that are the same (RFC 3261 §16.5: equal URIs, §19.1.4; here also the same destination
    /// and path) only one is tried; that is found out by [`RequestContext::relay`], as target 0 may change until then.
    ///
    /// # Errors
    ///
    /// [`TargetsFull`] past [`Limits::branches_max`](crate::Limits::branches_max).
    pub fn append_target(&mut self, target: &Target<'_>) -> Result<(), TargetsFull> {
        if self.plan.targets.len() >= usize::from(self.core.branches_max()) {
            return Err(TargetsFull);
        }
        let planned = self.plan.planned(target).ok_or(TargetsFull)?;
        self.plan.targets.push(planned);
        Ok(())
    }

    /// Replaces target 0: Request-URI, destination, q and path.
    pub fn set_request_target(&mut self, target: &Target<'_>) {
        if let Some(planned) = self.plan.planned(target)
            && let Some(first) = self.plan.targets.first_mut()
        {
            *first = planned;
        }
    }

    /// The targets, target 0 first, with those that have been tried.
    pub fn targets(&self) -> impl Iterator<Item = Target<'_>> {
        self.plan.targets.iter().map(|target| Target {
            uri: self.plan.slice(&target.uri).unwrap_or(self.message.request_uri()),
            destination: self.plan.slice(&target.destination),
            q: target.q,
            path: self.plan.slice(&target.path),
        })
    }

    /// Forgets all targets but target 0.
    pub fn clear_targets(&mut self) {
        self.plan.targets.truncate(1);
    }

    // --- routes -----------------------------------------------------------------------------------------------------

    /// Asks for a Record-Route in what is forwarded (RFC 3261 §16.6 item 4), with further URI parameters (`;x=y`).
    ///
    /// Each branch gets one, or two with `;r2=on` where it leaves by another listener than it came by.
    pub fn record_route(&mut self, params: &[u8]) {
        self.plan.set_record_route(params);
    }

    /// Says that the script has removed every Route from the request: the next hop is not taken from them any more. The
    /// lines themselves are removed by [`RequestContext::edits`].
    pub fn forget_routes(&mut self) {
        self.plan.routes_gone = true;
    }

    // --- replies (RFC 3261 §8.2.6) ------------------------------------------------------------------------------------

    /// Replies: in the transaction if there is one, else without state. `headers` are full lines with CRLF.
    ///
    /// A request that is no INVITE gets no 408 in a transaction, and no provisional response but a 100, over UDP not before
    /// the client's Timer E has reached T2 (RFC 4320 §4): nothing is sent then.
    ///
    /// # Errors
    ///
    /// See [`ReplyError`]; nothing was sent then.
    pub fn reply(
        &mut self,
        status: u16,
        reason: &[u8],
        headers: &[u8],
        body: &[u8],
    ) -> Result<(), ReplyError> {
        self.check_reply(status)?;
        let reply = crate::reply::Reply { status, reason, headers, body };
        if status < 200
            && let Some(id) = self.entry
        {
            // RFC 3261 §8.2.7: a stateless UAS sends no provisional responses.
            self.core.keep_transaction(id);
        }
        match self.kept() {
            Some(entry) => self.core.reply(entry, &self.message, &reply, self.now, self.out)?,
            None => self.core.reply_stateless(&self.message, &self.arrival, &reply, self.out),
        }
        self.plan.replied = Some(status);
        Ok(())
    }

    /// Replies without state. The To tag is such that the ACK is recognised and absorbed. A provisional response is sent to
    /// an INVITE alone (RFC 4320 §4.1).
    ///
    /// # Errors
    ///
    /// See [`ReplyError`]; nothing was sent then.
    pub fn reply_stateless(
        &mut self,
        status: u16,
        reason: &[u8],
        headers: &[u8],
        body: &[u8],
    ) -> Result<(), ReplyError> {
        self.check_reply(status)?;
        let reply = crate::reply::Reply { status, reason, headers, body };
        self.core.reply_stateless(&self.message, &self.arrival, &reply, self.out);
        self.plan.replied = Some(status);
        Ok(())
    }

    /// Things to do that are in the outbox by now: where the next one will be found.
    pub fn outputs(&self) -> usize {
        self.out.outputs.len()
    }

    /// Replies with what [`RequestContext::last_error`] says, and the headers that belong to it (Unsupported,
    /// Retry-After); 500 if there was no error.
    ///
    /// # Errors
    ///
    /// See [`ReplyError`]; nothing was sent then.
    pub fn reply_error(&mut self) -> Result<(), ReplyError> {
        self.check_reply(500)?;
        let error = self.plan.error;
        self.core.reply_error(self.kept(), &self.message, &self.arrival, error, self.now, self.out)?;
        self.plan.replied = Some(error.map_or(500, RelayError::status));
        Ok(())
    }

    /// Its transaction, unless that is there only while the script waits.
    pub(crate) fn kept(&self) -> Option<EntryId> {
        self.entry.filter(|&id| !self.core.is_ephemeral(id))
    }

    fn check_reply(&self, status: u16) -> Result<(), ReplyError> {
        if self.message.method() == sip::Method::Ack {
            return Err(ReplyError::Ack);
        }
        if !(100..=699).contains(&status) {
            return Err(ReplyError::Status);
        }
        Ok(())
    }

    /// The status that was replied last.
    pub fn replied(&self) -> Option<u16> {
        self.plan.replied
    }

    /// Why the last relay or forward failed, as status and reason.
    pub fn last_error(&self) -> Option<(u16, &'static str)> {
        self.plan.error.map(|error| (error.status(), error.reason()))
    }

    // --- the way back (RFC 3581) ----------------------------------------------------------------------------------------

    /// Sends the responses to the address and port that the request came from, although its client did not ask for it
    /// by `rport`; `received` and `rport` are written into its Via all the same. On a stream it changes nothing but
    /// the Via.
    pub fn force_rport(&mut self) {
        if self.arrival.fix.forced || self.message.via_top().is_ok_and(|via| via.rport().is_some()) {
            return;
        }
        let path = Path { fallback_port: self.arrival.reply_path.fallback_port, ..self.arrival.path };
        self.arrival.fix = crate::reply::ViaFix {
            received: Some(crate::reply::canonical(path.remote.ip())),
            rport: Some(path.remote.port()),
            forced: true,
        };
        self.arrival.reply_path = path;
        if let Some(entry) = self.entry.and_then(|id| self.core.table.get_mut(id)) {
            entry.fix = self.arrival.fix;
            entry.reply_path = path;
        }
    }

    /// Asks the next hop, by an `rport` in our Via, to answer to the port that the request leaves by.
    pub fn ask_rport(&mut self) {
        self.plan.local_rport = true;
    }

    /// Lets requests to the sender take the connection that this one came by, as if it led to `port` of the sender
    /// (RFC 5923), by default the port of the topmost Via; false where it came by a datagram.
    pub fn alias(&mut self, port: Option<u16>) -> bool {
        let transport = self.listener().transport;
        let Some(port) = self.core.alias_port(&self.message, transport, port) else { return false };
        self.out.outputs.push(crate::io::Output::Alias { path: self.arrival.path, port });
        true
    }

    // --- transactions -------------------------------------------------------------------------------------------------

    /// Makes a transaction of the request if there is none. When the table is full, 503 becomes the
    /// [`RequestContext::last_error`], which the engine answers if the script answers nothing.
    ///
    /// # Errors
    ///
    /// See [`EngineError`].
    pub fn create_transaction(&mut self) -> Result<(), EngineError> {
        if let Some(id) = self.entry {
            self.core.keep_transaction(id);
        } else {
            match self.core.create(&self.message, &self.arrival, self.now) {
                Ok(entry) => self.entry = Some(entry),
                Err(error) => {
                    if error == EngineError::TableFull {
                        self.plan.error = Some(RelayError::TableFull);
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Whether the request has a transaction.
    pub fn has_transaction(&self) -> bool {
        self.kept().is_some()
    }

    /// Whether the INVITE was cancelled (RFC 3261 §9.2).
    pub fn is_cancelled(&self) -> bool {
        self.entry.and_then(|id| self.core.table.get(id)).is_some_and(|entry| entry.cancelled)
    }

    /// What has become of the branches of the request's transaction.
    pub fn branches(&self) -> Branches {
        let Some(entry) = self.entry.and_then(|id| self.core.table.get(id)) else {
            return Branches::default();
        };
        let best = entry.best.as_ref().and_then(|best| entry.branches.get(usize::from(best.branch)));
        Branches {
            any_replied: entry.branches.iter().any(|branch| branch.replied),
            any_timed_out: entry.branches.iter().any(|branch| branch.timed_out),
            best_replied: best.is_some_and(|branch| branch.replied),
            best_timed_out: best.is_some_and(|branch| branch.timed_out),
        }
    }

    /// Sets how long the branches relayed from now on wait: `ringing` for the final response to an INVITE that is being
    /// worked on (Timer C), `silence` for any response to it, or for the final response to another request (timers B
    /// and F). `None` is the configured time ([`Timers`](crate::Timers)).
    pub fn set_timeouts(&mut self, ringing: Option<Duration>, silence: Option<Duration>) {
        self.plan.ringing = ringing;
        self.plan.silence = silence;
    }

    /// Whether a CANCEL belongs to a transaction that is here, or an ACK to one of an INVITE; false for other methods.
    pub fn matches_transaction(&self) -> bool {
        let is_of_invite = || self.core.find_invite(&self.message).is_some();
        match self.message.method() {
            sip::Method::Cancel => is_of_invite() || self.core.cancels_other(&self.message),
            sip::Method::Ack => is_of_invite(),
            _ => false,
        }
    }

    /// Reduces Max-Forwards for what is forwarded, or adds `default_max`. Relaying does this by itself with
    /// [`Limits::max_forwards`](crate::Limits::max_forwards) if a script never did.
    pub fn decrement_max_forwards(&mut self, default_max: u32) -> MaxForwards {
        match self.message.max_forwards() {
            Ok(Some(0)) | Err(_) => MaxForwards::Zero,
            Ok(Some(hops)) => {
                self.plan.max_forwards = Some(hops - 1);
                MaxForwards::Ok(hops - 1)
            }
            Ok(None) => {
                self.plan.max_forwards = Some(default_max);
                MaxForwards::Added
            }
        }
    }
}

/// What has become of the branches of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Branches {
    /// A branch got a response, provisional or final.
    pub any_replied: bool,
    /// A branch ran into Timer B, C or F.
    pub any_timed_out: bool,
    /// The branch whose response is the best so far got one.
    pub best_replied: bool,
    /// The branch whose response is the best so far ran into Timer B, C or F.
    pub best_timed_out: bool,
}

/// A response in the hands of the transaction user.
pub struct ReplyContext<'a, S> {
    /// The state of its transaction; a fresh one if it is forwarded without state.
    pub state: &'a mut S,
    /// The changes to be made to it; the topmost Via is removed by the engine.
    pub edits: &'a mut Edits,
    pub(crate) message: Message<'a>,
    pub(crate) path: Path,
    pub(crate) now: Instant,
    pub(crate) transaction: Option<TransactionId>,
    pub(crate) own: &'a Own,
}

/// Names a live transaction in logs; not for comparison with anything on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransactionId(pub(crate) EntryId);

impl<'a, S> ReplyContext<'a, S> {
    /// The response as it was received.
    pub fn message(&self) -> Message<'a> {
        self.message
    }

    /// Its status.
    pub fn status(&self) -> u16 {
        self.message.status().unwrap_or(0)
    }

    /// The way it came.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The transaction that it belongs to; `None` if it is forwarded without state.
    pub fn transaction(&self) -> Option<TransactionId> {
        self.transaction
    }

    /// Who this server is.
    pub fn own(&self) -> &Own {
        self.own
    }
}

/// A branch in the hands of the transaction user.
pub struct BranchContext<'a, S> {
    /// The state of its transaction.
    pub state: &'a mut S,
    /// The changes to be made to this branch alone, on top of those of the request.
    pub edits: &'a mut Edits,
    pub(crate) message: Message<'a>,
    pub(crate) index: u16,
    pub(crate) path: Path,
    pub(crate) plan: &'a mut Plan,
    pub(crate) target: usize,
    pub(crate) now: Instant,
    pub(crate) own: &'a Own,
}

impl<'a, S> BranchContext<'a, S> {
    /// The request as it was received.
    pub fn message(&self) -> Message<'a> {
        self.message
    }

    /// Which branch of the transaction this is, from 0.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// The way it leaves by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Its Request-URI.
    pub fn request_uri(&self) -> &[u8] {
        self.plan.uri(self.target).unwrap_or(self.message.request_uri())
    }

    /// Rewrites its Request-URI; the next hop has been chosen already and stays.
    pub fn set_request_uri(&mut self, uri: &[u8]) {
        self.plan.set_uri(self.target, uri);
        if let Some(target) = self.plan.targets.get_mut(self.target) {
            target.tried = true;
        }
    }

    /// The destination that was set for it.
    pub fn destination_uri(&self) -> Option<&[u8]> {
        self.plan.destination(self.target)
    }

    /// Who this server is.
    pub fn own(&self) -> &Own {
        self.own
    }
}
