//! Forwarding without state (RFC 3261 §16.11): requests to one target with a branch that their retransmissions share,
//! responses by their Via.

use crate::branch::OwnBranch;
use crate::context::{Arrival, RelayError};
use crate::io::{Ask, FlowId, Outbox, Output};
use crate::mac::Purpose;
use crate::plan::Plan;
use crate::proxy::forward::Copy;
use crate::proxy::target::NextHop;
use crate::resolve::{Waiter, lower};
use crate::shard::{Core, request_key, via_key};
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
        let way = match self.next_hop(message, plan, 0, &arrival.path, now)? {
            NextHop::Way(way) => way,
            NextHop::Name(name) => {
                self.ask_for_next_time(name, now, out);
                return Err(RelayError::Unresolvable);
            }
        };
        let branch = OwnBranch::Stateless {
            shard: self.config.shard,
            listener: arrival.path.listener.0,
            flow: arrival.path.flow,
            unique: self.stateless_unique(message, arrival.path.flow),
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

    /// RFC 3261 §16.11: the same for retransmissions, for the CANCEL and for the ACK of a failure: a hash of the
    /// received branch, or of the fields of RFC 2543, and of the connection.
    fn stateless_unique(&self, message: &Message<'_>, flow: FlowId) -> u64 {
        match request_key(message, Method::Invite) {
            Some(key) => self.stateless_mac(&key, flow),
            None => self.stateless_mac(message.bytes(), flow),
        }
    }

    fn stateless_mac(&self, key: &[u8], flow: FlowId) -> u64 {
        if flow == FlowId::NONE {
            return self.keys.mac(Purpose::Stateless, &[key]);
        }
        self.keys.mac(Purpose::Stateless, &[key, &flow.0.to_le_bytes()])
    }

    /// The connection that a response without state goes back by: the one in our branch if we have put it there for the
    /// Via below, else none, so that nobody can send on another's connection. The branch of a client of RFC 2543 says
    /// too little to be checked.
    pub(crate) fn stateless_flow(&self, message: &Message<'_>, flow: FlowId, unique: u64) -> FlowId {
        let key = message.via_below().as_ref().and_then(via_key);
        match key {
            Some(key) if self.stateless_mac(&key, flow) == unique => flow,
            _ => FlowId::NONE,
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
