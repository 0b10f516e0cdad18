//! Forwarding without state (RFC 3261 §16.11): requests to one target with a branch that their retransmissions share,
//! responses by their Via.

use crate::branch::{OwnBranch, is_magic};
use crate::context::{Arrival, RelayError};
use crate::io::{Ask, FlowId, Outbox, Output};
use crate::mac::Purpose;
use crate::plan::{Plan, Work};
use crate::proxy::forward::Copy;
use crate::proxy::target::NextHop;
use crate::resolve::{Waiter, lower};
use crate::shard::Core;
use crate::transaction::KEY_INLINE;
use alloc::boxed::Box;
use alloc::string::String;
use sip::{Edits, Instant, Message, Method, Via};
use smallvec::SmallVec;

/// A request without state that waits for the address of its next hop. There are at most
/// [`Limits::resolves_max`](crate::Limits::resolves_max) of them.
#[derive(Debug)]
pub(crate) struct Held {
    bytes: Box<[u8]>,
    work: Work,
    arrival: Arrival,
    /// Nobody is served by an answer that comes later.
    until: Instant,
}

impl<S> Core<S> {
    /// Forwards a request to target 0; at once, or when the address of its next hop is known.
    pub(crate) fn forward_stateless(
        &mut self,
        message: &Message<'_>,
        plan: &mut Plan,
        edits: &mut Edits,
        arrival: &Arrival,
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), RelayError> {
        self.validate(message, plan)?;
        plan.ordered = true;
        // RFC 5393 §5.3.3. ACK and CANCEL go where their INVITE went, and cannot be refused.
        if plan.breadth == 0 && !matches!(message.method(), Method::Ack | Method::Cancel) {
            return Err(RelayError::Breadth);
        }
        let way = match self.next_hop(message, plan, 0, &arrival.path, now)? {
            NextHop::Way(way) => way,
            NextHop::Name(name) => {
                let name = lower(name);
                return self.hold(name, message, plan, edits, arrival, now, out);
            }
        };
        let via = message.via_top().map_err(|_| RelayError::BadRequest)?;
        let branch = OwnBranch::Stateless {
            shard: self.config.shard,
            listener: arrival.path.listener.0,
            flow: arrival.path.flow,
            unique: self.stateless_unique(message, &via, arrival.path.flow),
            loop_hash: plan.loop_hash,
        };
        let start = out.bytes.len();
        let copy = Copy { message, arrival, target: 0, to: way.path, branch, breadth: plan.breadth };
        let to = self.write_fitting(copy, way.free, plan, edits, now, &mut out.bytes)?;
        let end = out.bytes.len();
        out.outputs.push(Output::Send { path: to, bytes: start..end });
        self.counters.forwarded_stateless += 1;
        plan.forwarded = true;
        Ok(())
    }

    /// RFC 3261 §16.11: the same for retransmissions, for the CANCEL and for the ACK of a failure, and for responses, which
    /// carry the Via (§8.2.6): so it tells those to what we have sent from all others, and a connection that we have
    /// written into our branch from one that somebody else has. It is a keyed hash of the Via and the connection that the
    /// request came by and, where a client of RFC 2543 has no branch to tell its requests apart, of what does. The
    /// Request-URI is in the loop hash.
    pub(crate) fn stateless_unique(&self, message: &Message<'_>, via: &Via<'_>, flow: FlowId) -> u64 {
        let branch = via.branch().unwrap_or(b"");
        let mut key: SmallVec<[u8; KEY_INLINE]> = SmallVec::from_slice(&flow.0.to_le_bytes());
        let mut part = |bytes: &[u8]| {
            key.extend_from_slice(bytes);
            key.push(0);
        };
        part(branch);
        part(via.sent_by_bytes());
        if !is_magic(branch) {
            part(message.call_id().unwrap_or(b""));
            part(message.from_tag().unwrap_or(b""));
            part(&message.cseq().map_or(0, |cseq| cseq.number).to_be_bytes());
        }
        self.keys.mac(Purpose::Stateless, &[&key])
    }

    /// Keeps a request until the address of its next hop is known: the 478 that would be all there is to say otherwise would
    /// end it for its sender, and over a stream there is no retransmission that might fare better.
    #[allow(clippy::too_many_arguments)]
    fn hold(
        &mut self,
        name: Box<[u8]>,
        message: &Message<'_>,
        plan: &mut Plan,
        edits: &Edits,
        arrival: &Arrival,
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), RelayError> {
        let host = String::from_utf8_lossy(&name).into_owned();
        let until = now + self.config.timers.resolve;
        let work = Work { edits: edits.clone(), plan: plan.clone() };
        let held = Box::new(Held { bytes: message.bytes().into(), work, arrival: *arrival, until });
        let waiter = Waiter::Request { held, name };
        let Some(id) = self.resolver.ask(waiter) else { return Err(RelayError::Unresolvable) };
        self.counters.resolves += 1;
        out.outputs.push(Output::Ask { id, ask: Ask::Resolve { host }, deadline: until });
        plan.forwarded = true;
        Ok(())
    }

    /// Sends a request on whose next hop has its answer now, in `resolver`. What cannot be sent is answered, an ACK excepted.
    pub(crate) fn forward_held(&mut self, held: Held, now: Instant, out: &mut Outbox) {
        let Held { bytes, work: Work { mut edits, mut plan }, arrival, until } = held;
        let mut index = core::mem::take(&mut self.spare);
        if let Ok(message) = Message::parse(&bytes, &mut index) {
            let sent = match now > until {
                true => Err(RelayError::Unresolvable),
                false => self.forward_stateless(&message, &mut plan, &mut edits, &arrival, now, out),
            };
            if let Some(error) = sent.err().filter(|_| message.method() != Method::Ack) {
                let _ = self.reply_error(None, &message, &arrival, Some(error), now, out);
            }
        }
        self.spare = index;
    }
}
