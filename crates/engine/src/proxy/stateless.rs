//! Forwarding without state (RFC 3261 §16.11): requests to one target with a branch that their retransmissions share,
//! responses by their Via.

use crate::branch::OwnBranch;
use crate::context::{Arrival, RelayError};
use crate::io::{Ask, Outbox, Output};
use crate::mac::Purpose;
use crate::plan::Plan;
use crate::proxy::forward::Copy;
use crate::proxy::target::NextHop;
use crate::resolve::{Waiter, lower};
use crate::shard::{Core, request_key};
use alloc::string::String;
use sip::{Edits, Instant, Message, Method};

impl<S> Core<S> {
    /// Forwards a request to target 0.
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
        // RFC 5393 §5.3.3. ACK and CANCEL go where their INVITE went, and cannot be refused.
        if plan.breadth == 0 && !matches!(message.method(), Method::Ack | Method::Cancel) {
            return Err(RelayError::Breadth);
        }
        let to = match self.next_hop(message, plan, 0, &arrival.path, now)? {
            NextHop::Path(path) => path,
            NextHop::Name(name) => {
                self.ask_for_next_time(name, now, out);
                return Err(RelayError::Unresolvable);
            }
        };
        let branch = OwnBranch::Stateless {
            shard: self.config.shard,
            listener: arrival.path.listener.0,
            unique: self.stateless_unique(message),
            loop_hash: plan.loop_hash,
        };
        let start = out.bytes.len();
        let copy = Copy { message, arrival, target: 0, to, branch, breadth: plan.breadth };
        self.write_copy(&copy, plan, edits, &mut out.bytes)?;
        let end = out.bytes.len();
        out.outputs.push(Output::Send { path: to, bytes: start..end });
        self.counters.forwarded_stateless += 1;
        plan.forwarded = true;
        Ok(())
    }

    /// RFC 3261 §16.11: the same for retransmissions, for the CANCEL and for the ACK of a failure: a hash of the
    /// received branch, or of the fields of RFC 2543.
    fn stateless_unique(&self, message: &Message<'_>) -> u64 {
        match request_key(message, Method::Invite) {
            Some(key) => self.keys.mac(Purpose::Stateless, &[&key]),
            None => self.keys.mac(Purpose::Stateless, &[message.bytes()]),
        }
    }

    /// Nobody can wait without state: this message is lost, and its retransmission finds the answer.
    fn ask_for_next_time(&mut self, name: &[u8], now: Instant, out: &mut Outbox) {
        let name = lower(name);
        let host = String::from_utf8_lossy(&name).into_owned();
        if let Some(id) = self.resolver.ask(Waiter::Nobody { name }) {
            self.counters.resolves += 1;
            let deadline = now + self.config.timers.resolve;
            out.outputs.push(Output::Ask { id, ask: Ask::Resolve { host }, deadline });
        }
    }
}
