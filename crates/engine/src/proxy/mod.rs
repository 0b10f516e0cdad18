//! The proxy core (RFC 3261 §16): what a script can do with a request beyond answering it.

pub(crate) mod cancel;
pub(crate) mod forward;
pub(crate) mod loop_detection;
pub(crate) mod record_route;
pub(crate) mod response;
pub(crate) mod stateless;
pub(crate) mod target;
pub(crate) mod validate;

use crate::context::{RelayError, RequestContext};
use crate::reply::Reply;
use sip::Method;

impl<S> RequestContext<'_, S> {
    /// Relays the request with state to all targets of the highest q that have not been tried (RFC 3261 §16.6); lower
    /// ones follow by themselves when those have failed. The messages leave when the script ends.
    ///
    /// An ACK is forwarded without state (§16.11). A CANCEL of an INVITE that is here is answered 200 and cancels its
    /// branches; another CANCEL is forwarded without state (§16.10).
    ///
    /// # Errors
    ///
    /// See [`RelayError`]. Nothing was sent then; if the script sends nothing either, the engine answers with it.
    pub fn relay(&mut self) -> Result<(), RelayError> {
        let result = match self.message.method() {
            Method::Ack => self.without_state(),
            Method::Cancel => self.relay_cancel(),
            _ => self.relay_stateful(),
        };
        self.plan.error = result.err();
        result
    }

    /// Forwards the request without state to one next hop: `destination` (a URI, or `host[:port]`), or where target 0
    /// leads (RFC 3261 §16.11).
    ///
    /// # Errors
    ///
    /// See [`RelayError`]. A request whose next hop has a name that is not known yet waits for its address; if there is none
    /// within [`Timers::resolve`](crate::Timers), it is answered as by [`RelayError::Unresolvable`].
    pub fn forward(&mut self, destination: Option<&[u8]>) -> Result<(), RelayError> {
        if destination.is_some() {
            self.plan.set_destination(0, destination);
        }
        let result = self.without_state();
        self.plan.error = result.err();
        result
    }

    fn without_state(&mut self) -> Result<(), RelayError> {
        self.core.forward_stateless(&self.message, self.plan, self.edits, &self.arrival, self.now, self.out)
    }

    fn relay_cancel(&mut self) -> Result<(), RelayError> {
        let invite = self.core.find_invite(&self.message);
        if invite.is_none() && !self.core.cancels_other(&self.message) {
            return self.without_state();
        }
        // RFC 3261 §16.10: it has a transaction of its own, so that a copy that comes when the INVITE has gone is no CANCEL of
        // something unknown. Where there is no room, a copy is one.
        let _ = self.create_transaction();
        // 200 at once, then the branches. On other requests than an INVITE it has no effect (§9.2).
        let reply = Reply::bare(200);
        match self.kept() {
            Some(entry) => {
                let _ = self.core.reply(entry, &self.message, &reply, self.now, self.out);
            }
            None => self.core.reply_stateless(&self.message, &self.arrival, &reply, self.out),
        }
        self.plan.replied = Some(200);
        if let Some(invite) = invite {
            self.core.cancel_invite(invite, self.now, self.out);
            self.plan.cancelled = Some(invite);
        }
        Ok(())
    }

    fn relay_stateful(&mut self) -> Result<(), RelayError> {
        self.core.validate(&self.message, self.plan)?;
        self.create_transaction().map_err(|_| RelayError::TableFull)?;
        let Some(id) = self.entry else { return Err(RelayError::TableFull) };
        let Some(entry) = self.core.table.get(id) else { return Err(RelayError::AlreadyFinal) };
        if entry.server.is_final() {
            return Err(RelayError::AlreadyFinal);
        }
        if entry.cancelled {
            return Err(RelayError::Cancelled);
        }
        if entry.declined {
            return Err(RelayError::NoTarget);
        }
        let first = entry.branches.is_empty() && entry.response.is_empty();
        self.core.plan_group(id, &self.message, self.plan, &self.arrival.path, self.now, self.out)?;
        self.plan.relayed = Some(self.edits.mark());
        if first && self.message.method() == Method::Invite && self.core.config.auto_100 {
            // RFC 3261 §16.2: at once, so that the client stops retransmitting.
            let _ = self.core.reply(id, &self.message, &Reply::bare(100), self.now, self.out);
        }
        Ok(())
    }
}
