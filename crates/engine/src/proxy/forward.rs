//! Request forwarding (RFC 3261 §16.6): the copy for one next hop, and the client transaction that sends it.

use crate::branch::OwnBranch;
use crate::client_invite::ClientInvite;
use crate::client_non_invite::ClientNonInvite;
use crate::context::{Arrival, RelayError};
use crate::io::{Ask, Outbox, Output, Path};
use crate::mac::Purpose;
use crate::machine::{Actions, Arm, Delivery};
use crate::own::{Side, default_port, is_websocket};
use crate::plan::{Plan, Work};
use crate::proxy::loop_detection::has_second_via;
use crate::proxy::target::{NextHop, Way, first_route, is_lowered, is_sips, is_strict, request_uri_of};
use crate::reply::{canonical, is_datagram};
use crate::resolve::{Waiter, lower};
use crate::shard::Core;
use crate::table::EntryId;
use crate::transaction::{Branch, Cancel, Client, Entry};
use crate::waiting::WaitId;
use crate::wheel::TimerId;
use alloc::string::String;
use alloc::vec::Vec;
use sip::{Edits, HeaderName, Instant, Message, Method, Uri};

/// What a copy is made of.
pub(crate) struct Copy<'a, 'm> {
    pub(crate) message: &'a Message<'m>,
    pub(crate) arrival: &'a Arrival,
    pub(crate) target: usize,
    pub(crate) to: Path,
    pub(crate) branch: OwnBranch,
    pub(crate) breadth: u32,
}

impl<S> Core<S> {
    /// Appends the copy of a request for one next hop; `edits` are as they were afterwards. Past the limits of edits
    /// and messages nothing is appended.
    pub(crate) fn write_copy(
        &mut self,
        copy: &Copy<'_, '_>,
        plan: &Plan,
        edits: &mut Edits,
        out: &mut Vec<u8>,
    ) -> Result<(), RelayError> {
        let message = copy.message;
        let mark = edits.mark();
        let fix = copy.arrival.fix;
        if fix.received.is_some() || fix.rport.is_some() {
            edits.set_received(message, fix.received, fix.rport);
        }
        if let Some(port) = fix.rport.filter(|_| fix.forced) {
            self.edit_forced_rport(message, port, edits);
        }
        self.edit_routes(copy, plan, edits);
        // RFC 3261 §16.6 item 3.
        edits.set_max_forwards(message, plan.max_forwards.unwrap_or(self.config.limits.max_forwards));
        self.edit_breadth(copy, edits);
        // RFC 3261 §16.6 item 8.
        let own = &self.own;
        edits.push_via(message, |value| {
            own.write_via(copy.to.listener, copy.to.local, value);
            copy.branch.write(value);
            if plan.local_rport {
                // RFC 3581 §3.
                value.extend_from_slice(b";rport");
            }
        });
        let overflowed = edits.is_overflowed();
        let start = out.len();
        if !overflowed {
            edits.write(message, out);
            self.add_content_length(message, copy.to.listener, start, out);
        }
        edits.rewind(mark);
        if overflowed {
            self.counters.edits_full += 1;
            return Err(RelayError::EditsFull);
        }
        if out.len() - start > self.config.limits.message_bytes_max {
            out.truncate(start);
            return Err(RelayError::TooLarge);
        }
        Ok(())
    }

    /// `rport` in the Via of a client that did not ask for it.
    fn edit_forced_rport(&mut self, message: &Message<'_>, port: u16, edits: &mut Edits) {
        let Ok(via) = message.via_top() else { return };
        let mut text = core::mem::take(&mut self.text);
        text.clear();
        text.extend_from_slice(b";rport=");
        sip::push_number(&mut text, u32::from(port));
        edits.replace_span(via.span.end..via.span.end, &text);
        self.text = text;
    }

    /// Request-URI, Record-Route and Route (RFC 3261 §16.6 items 2, 4 and 6).
    fn edit_routes(&mut self, copy: &Copy<'_, '_>, plan: &Plan, edits: &mut Edits) {
        let message = copy.message;
        let uri = plan.uri(copy.target);
        if let Some(params) = plan.record_route() {
            let mut text = core::mem::take(&mut self.text);
            text.clear();
            self.write_record_routes(copy, plan, params, &mut text);
            edits.insert_record_route(message, &text);
            self.text = text;
        }
        if let Some(path) = plan.path(copy.target) {
            let mut text = core::mem::take(&mut self.text);
            text.clear();
            text.extend_from_slice(b"Route: ");
            text.extend_from_slice(path);
            text.extend_from_slice(b"\r\n");
            edits.insert_header(message, &text);
            self.text = text;
        } else if let Some(route) = first_route(message, plan).filter(is_strict) {
            // RFC 3261 §16.6 item 6: the next hop is a strict router.
            let own = uri.unwrap_or(message.request_uri());
            edits.append_route(
                message,
                request_uri_of(own, is_lowered(message.request_uri(), own), &mut self.text),
            );
            edits.remove_route(message, plan.routes_removed);
            edits.set_request_uri(message, request_uri_of(route.uri, false, &mut self.text));
            return;
        }
        if let Some(uri) = uri {
            let lowered = is_lowered(message.request_uri(), uri);
            edits.set_request_uri(message, request_uri_of(uri, lowered, &mut self.text));
        }
    }

    /// One Record-Route, or two where the request changes sides (thesis §3.4.1), the outer one for the side that it
    /// leaves by. A side whose peer can only be reached by its connection has that in its own.
    fn write_record_routes(&self, copy: &Copy<'_, '_>, plan: &Plan, params: &[u8], text: &mut Vec<u8>) {
        let message = copy.message;
        let uri = plan.uri(copy.target).unwrap_or(message.request_uri());
        // RFC 3261 §16.6 item 4.
        let secure = is_sips(uri) && !is_lowered(message.request_uri(), uri);
        let (from, to) = (&copy.arrival.path, &copy.to);
        let side = |path: &Path, connected: bool| Side {
            listener: path.listener,
            local: path.local,
            connection: connected.then_some(path.remote),
            secure,
        };
        let came = side(from, self.is_bound_to_connection(message, from));
        let target = plan.targets.get(copy.target);
        let transport = self.own.transport(to.listener);
        let registered = target.is_some_and(|target| target.registered) && !is_datagram(transport);
        let leaves = side(to, registered || is_websocket(transport));
        let two = from.listener != to.listener || came.connection.is_some() || leaves.connection.is_some();
        self.own.write_record_route(&leaves, two, params, text);
        if two {
            text.extend_from_slice(b", ");
            self.own.write_record_route(&came, two, params, text);
        }
    }

    /// Whether the sender of a request can be reached only by the connection that it came by: a WebSocket client always
    /// (RFC 7118 §5), another client if its Contact is not the address that it came from.
    fn is_bound_to_connection(&self, message: &Message<'_>, from: &Path) -> bool {
        let transport = self.own.transport(from.listener);
        if is_datagram(transport) {
            return false;
        }
        if is_websocket(transport) {
            return true;
        }
        // What another proxy sends is no business of its connection.
        if has_second_via(message) {
            return false;
        }
        let Some(Ok(contact)) = message.contacts().next() else { return false };
        let Ok(Uri::Sip(uri)) = contact.uri() else { return false };
        let port = uri.port.unwrap_or(default_port(transport));
        uri.host.ip() != Some(canonical(from.remote.ip())) || port != from.remote.port()
    }

    /// Appends the copy for one next hop, by a stream where it is too long for a datagram (RFC 3261 §18.1.1); the way
    /// that it takes.
    pub(crate) fn write_fitting(
        &mut self,
        copy: Copy<'_, '_>,
        free: bool,
        plan: &Plan,
        edits: &mut Edits,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Result<Path, RelayError> {
        let start = out.len();
        self.write_copy(&copy, plan, edits, out)?;
        if !free {
            return Ok(copy.to);
        }
        let Some(stream) = self.stream_instead(out.len() - start, &copy.to, now) else { return Ok(copy.to) };
        out.truncate(start);
        self.write_copy(&Copy { to: stream, ..copy }, plan, edits, out)?;
        Ok(stream)
    }

    /// Max-Breadth (RFC 5393 §5.3.3).
    fn edit_breadth(&mut self, copy: &Copy<'_, '_>, edits: &mut Edits) {
        let mut text = core::mem::take(&mut self.text);
        text.clear();
        text.extend_from_slice(b"Max-Breadth: ");
        sip::push_number(&mut text, copy.breadth);
        text.extend_from_slice(b"\r\n");
        for header in copy.message.headers(HeaderName::MaxBreadth) {
            edits.remove_header(&header);
        }
        edits.append_header(copy.message, &text);
        self.text = text;
    }

    /// Makes branches of all targets of the best q that have not been tried; lower ones while none of those can be
    /// routed (RFC 3261 §16.6).
    pub(crate) fn plan_group(
        &mut self,
        id: EntryId,
        message: &Message<'_>,
        plan: &mut Plan,
        from: &Path,
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), RelayError> {
        plan.drop_duplicates(message.request_uri());
        let mut error = RelayError::NoTarget;
        while let Some(q) = plan.targets.iter().filter(|target| !target.tried).map(|target| target.q).max() {
            let in_group = |target: &crate::plan::PlannedTarget| !target.tried && target.q == q;
            let width = plan.targets.iter().filter(|target| in_group(target)).count() as u32;
            // RFC 5393 §5.3.3: the sum of what is handed on must not exceed what came in; branches that wait for their
            // final response still have their share.
            let breadth = plan.breadth.saturating_sub(self.table.get(id).map_or(0, Entry::pending_breadth));
            if width > breadth {
                return Err(RelayError::Breadth);
            }
            let (share, rest) = (breadth / width.max(1), breadth % width.max(1));
            let mut made = 0;
            for target in 0..plan.targets.len() {
                let Some(planned) = plan.targets.get_mut(target) else { break };
                if planned.tried || planned.q != q {
                    continue;
                }
                planned.tried = true;
                let breadth = share + u32::from(made < rest);
                match self.plan_branch(id, message, plan, target, breadth, from, now, out) {
                    Ok(()) => made += 1,
                    Err(reason) => error = reason,
                }
            }
            if made > 0 {
                return Ok(());
            }
        }
        Err(error)
    }

    #[allow(clippy::too_many_arguments)]
    fn plan_branch(
        &mut self,
        id: EntryId,
        message: &Message<'_>,
        plan: &Plan,
        target: usize,
        breadth: u32,
        from: &Path,
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), RelayError> {
        let hop = self.next_hop(message, plan, target, from, now)?;
        let branches_max = usize::from(self.branches_max());
        let count = self.table.get(id).map_or(0, |entry| entry.branches.len());
        if count >= branches_max {
            return Err(RelayError::NoTarget);
        }
        let index = count as u16;
        let (client, way) = match hop {
            NextHop::Way(way) => (Client::Planned, way),
            NextHop::Name(name) => {
                let name = lower(name);
                let host = String::from_utf8_lossy(&name).into_owned();
                let waiter = Waiter::Branch { entry: id, index, name };
                let Some(ask) = self.resolver.ask(waiter) else { return Err(RelayError::Unresolvable) };
                self.counters.resolves += 1;
                let deadline = now + self.config.timers.resolve;
                out.outputs.push(Output::Ask { id: ask, ask: Ask::Resolve { host }, deadline });
                (Client::Resolving, Way { path: *from, free: false, second: None })
            }
        };
        let Some(entry) = self.table.get_mut(id) else { return Err(RelayError::AlreadyFinal) };
        entry.branches.push(Branch {
            client,
            cancel: Cancel::No,
            target: target as u16,
            timer_c: false,
            replied: false,
            timed_out: false,
            ringing: plan.ringing,
            breadth,
            status: 0,
            path: way.path,
            free: way.free,
            second: way.second,
            sent_again: false,
            waiting: WaitId::NONE,
            cookie: 0,
            loop_hash: 0,
            sent: Vec::new(),
            sent_at: now,
            resend: TimerId::NONE,
            expire: TimerId::NONE,
        });
        if client == Client::Resolving {
            let expire = Arm::After(self.config.timers.resolve);
            self.arm_branch(id, index, Actions { expire, ..Actions::NONE }, now);
        }
        Ok(())
    }

    /// Sends a planned branch: writes it once, keeps one copy, starts its client transaction.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn send_branch(
        &mut self,
        id: EntryId,
        index: u16,
        message: &Message<'_>,
        work: &mut Work,
        arrival: &Arrival,
        now: Instant,
        out: &mut Outbox,
    ) {
        let Some(branch) = self.table.get(id).and_then(|entry| entry.branches.get(usize::from(index))) else {
            return;
        };
        let (target, first, breadth) = (usize::from(branch.target), branch.path, branch.breadth);
        let (free, second) = (branch.free, branch.second);
        let cookie = self.cookie(id, index);
        let own = OwnBranch::Stateful {
            shard: self.config.shard,
            slot: id.slot,
            generation: id.generation,
            index,
            cookie,
            loop_hash: work.plan.loop_hash,
        };
        let start = out.bytes.len();
        let copy = Copy { message, arrival, target, to: first, branch: own, breadth };
        let written = self.write_fitting(copy, free, &work.plan, &mut work.edits, now, &mut out.bytes);
        let to = match written {
            Ok(to) => to,
            Err(error) => {
                self.fail_branch(id, index, error.status());
                return;
            }
        };
        let len = out.bytes.len() - start;
        let sent = self.pool.copy(out.bytes.get(start..).unwrap_or(b""));
        out.outputs.push(Output::Send { path: to, bytes: start..start + len });
        let delivery = self.delivery(to.listener);
        let (client, actions) = if message.method() == Method::Invite {
            let (machine, actions) = ClientInvite::start(&self.config.timers, delivery);
            (Client::Invite(machine), actions)
        } else {
            let (machine, actions) = ClientNonInvite::start(&self.config.timers, delivery);
            (Client::NonInvite(machine), actions)
        };
        let waiting = match delivery {
            Delivery::Reliable => self.waiting.insert(to.listener, to.remote, id, index),
            Delivery::Unreliable => WaitId::NONE,
        };
        if let Some(branch) =
            self.table.get_mut(id).and_then(|entry| entry.branches.get_mut(usize::from(index)))
        {
            branch.client = client;
            branch.path = to;
            branch.waiting = waiting;
            // What is too long for a datagram is one all the same where the stream fails.
            branch.second = if to == first { second } else { Some((first.listener, first.remote.port())) };
            branch.cookie = cookie;
            branch.loop_hash = work.plan.loop_hash;
            branch.sent = sent;
            branch.sent_at = now;
        }
        self.counters.branches += 1;
        let expire = work.plan.silence.map_or(actions.expire, Arm::After);
        self.arm_branch(id, index, Actions { expire, ..actions }, now);
    }

    /// A number that only the next hop of this branch gets to know.
    fn cookie(&mut self, id: EntryId, index: u16) -> u64 {
        self.cookies += 1;
        let place = (u64::from(id.slot) << 32 | u64::from(id.generation)).to_le_bytes();
        let branch = [self.config.shard, index as u8, (index >> 8) as u8];
        self.keys.mac(Purpose::Cookie, &[&place, &branch, &self.cookies.to_le_bytes()])
    }
}
