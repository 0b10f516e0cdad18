//! Connections of which one direction has ended (RFC 9293 §3.6): who has said its last word may still
//! listen, and what is owed to it comes on that connection (RFC 3261 §18.2.2).

use super::{Event, World};
use crate::faults::MILLI;
use crate::phone::LONG;
use crate::server::LastWord;
use crate::streams::{End, Side};
use crate::trace::{ServerId, What};
use engine::{FlowId, Path, TransportFailure};
use std::net::SocketAddr;

impl World {
    /// A phone may have said its last word with what it has just sent or read: at once, or a little later.
    pub(super) fn maybe_last_word(&mut self, stream: u64, node: SocketAddr) {
        if self.plan.last_words == 0 || !self.last_words.chance(self.plan.last_words) {
            return;
        }
        let end = if self.last_words.chance(70) { End::Half } else { End::Whole };
        let later = *self.last_words.pick(&[0, 0, 20, 300, 3_000]) * MILLI;
        self.at(self.now + later, Event::End { stream, node, end });
    }

    /// A node says its last word on a connection.
    pub(super) fn end_stream(&mut self, stream: u64, node: SocketAddr, end: End) {
        let Some(open) = self.streams.get_mut(stream) else { return };
        let side = open.side_of(node);
        if open.set_end(side, end) {
            let towards = side.other();
            let at = open.arrival(towards, self.now + self.plan.link.delay);
            if self.servers.iter().all(|server| server.address != node) {
                self.count(if end == End::Half { "last words" } else { "last words of who is gone" });
            }
            self.at(at, Event::Ended { stream, towards });
        }
    }

    /// The end of the other side's direction arrives.
    pub(super) fn deliver_last_word(&mut self, stream: u64, towards: Side) {
        let Some(open) = self.streams.get_mut(stream) else { return };
        let (node, peer) = (open.node(towards), open.seen_by(towards));
        if open.end(towards) != End::Open {
            // Both directions have ended.
            self.streams.close(stream);
            return;
        }
        let Some(server) = self.servers.iter().position(|server| server.address == node) else {
            // A phone has nothing left to say to who has nothing more to say.
            self.end_stream(stream, node, End::Half);
            return;
        };
        let Some(ending) = self.servers[server].ended(self.now, stream) else { return };
        self.note(What::Ended, node, peer);
        if ending.is_loss {
            self.tell_of_loss(server, stream, peer);
        }
        if ending.is_over {
            self.servers[server].disconnected(stream);
            self.end_stream(stream, node, End::Half);
        } else {
            let incarnation = self.servers[server].incarnation;
            self.at(self.now + LONG, Event::Linger { server, incarnation, stream });
        }
    }

    /// Tells a server's shards that what they asked on a connection will not be answered.
    pub(super) fn tell_of_loss(&mut self, server: ServerId, stream: u64, peer: SocketAddr) {
        let address = self.servers[server].address;
        let failure = TransportFailure::Broken;
        let path = Path { flow: FlowId(stream), ..Path::new(crate::server::TCP, Some(address.ip()), peer) };
        self.note_failure(failure, address, path);
        for shard in 0..self.servers[server].shards() {
            let deeds = self.servers[server].failed(self.now, shard, path, failure);
            self.do_all(server, deeds);
        }
    }

    /// A server waits no longer for what it owes on a connection whose peer has said its last word.
    pub(super) fn stop_lingering(&mut self, server: ServerId, stream: u64) {
        self.servers[server].disconnected(stream);
        self.end_stream(stream, self.servers[server].address, End::Half);
    }

    /// A phone's answer to what came on a connection; by a new one where it has said its last word there.
    pub(super) fn answer_on(&mut self, stream: u64, from: SocketAddr, bytes: Vec<u8>) {
        let Some(open) = self.streams.get_mut(stream) else { return };
        let side = open.side_of(from);
        if open.end(side) == End::Open {
            return self.send_on(stream, from, bytes);
        }
        let to = open.node(side.other());
        if let Some(stream) = self.streams.find(from, to).or_else(|| self.open(from, to)) {
            self.send_on(stream, from, bytes);
        }
    }

    /// RFC 3261 §18.2.2: a response whose connection turned out to be gone goes to the port of its sent-by.
    /// The transport does so by itself: the transaction has sent it once.
    pub(super) fn send_anew(&mut self, server: ServerId, word: LastWord) {
        let from = self.servers[server].address;
        let LastWord { shard, path, bytes } = word;
        let to = SocketAddr::new(path.remote.ip(), path.fallback_port);
        let Some(stream) = self.servers[server].connection_to(to).or_else(|| self.open(from, to)) else {
            return self.fail(server, shard, path);
        };
        let Some(open) = self.streams.get_mut(stream) else { return self.fail(server, shard, path) };
        let towards = open.side_of(from).other();
        self.note(What::Note(format!("{from} sends its last word anew to {to}")), from, to);
        self.servers[server].sent(self.now, stream, shard, path, &bytes);
        self.transmit(stream, towards, &bytes);
    }
}
