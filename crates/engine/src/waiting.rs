//! Which branches wait for their first response on which stream, so that those of a connection that failed are found
//! without looking at all others (RFC 3261 §16.9, §18.4).

use crate::io::ListenerId;
use crate::mac::Keys;
use crate::table::EntryId;
use alloc::vec::Vec;
use core::net::SocketAddr;
use hashbrown::HashMap;

/// Branches that wait on streams, at most; further ones are not found when their connection fails and end by Timer B
/// or F.
pub(crate) const WAITING_MAX: usize = 262_144;
const NIL: u32 = u32::MAX;

/// A branch's place in the list; [`WaitId::NONE`] if it is in none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WaitId(u32);

impl WaitId {
    pub(crate) const NONE: WaitId = WaitId(NIL);
}

/// Where a branch was sent.
type Peer = (ListenerId, SocketAddr);

#[derive(Debug)]
struct Node {
    peer: Peer,
    entry: EntryId,
    index: u16,
    /// The neighbours in the peer's list; a free node's `next` is the next free one.
    next: u32,
    previous: u32,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Waiting {
    first: HashMap<Peer, u32, ahash::RandomState>,
    nodes: Vec<Node>,
    free: u32,
    max: usize,
}

impl Waiting {
    pub(crate) fn new(max: usize, keys: &Keys) -> Waiting {
        let first = HashMap::with_hasher(keys.random_state(b"waiting"));
        Waiting { first, nodes: Vec::new(), free: NIL, max: max.min(NIL as usize) }
    }

    /// A branch was sent to a peer.
    pub(crate) fn insert(
        &mut self,
        listener: ListenerId,
        remote: SocketAddr,
        entry: EntryId,
        index: u16,
    ) -> WaitId {
        let peer = (listener, remote);
        let next = self.first.get(&peer).copied().unwrap_or(NIL);
        let node = Node { peer, entry, index, next, previous: NIL };
        let place = if let Some(free) = self.nodes.get_mut(self.free as usize) {
            let place = self.free;
            self.free = free.next;
            *free = node;
            place
        } else if self.nodes.len() < self.max {
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        } else {
            return WaitId::NONE;
        };
        if let Some(next) = self.nodes.get_mut(next as usize) {
            next.previous = place;
        }
        self.first.insert(peer, place);
        WaitId(place)
    }

    /// A branch waits no longer.
    pub(crate) fn remove(&mut self, id: &mut WaitId) {
        let place = core::mem::replace(id, WaitId::NONE).0;
        let Some(node) = self.nodes.get_mut(place as usize) else { return };
        let (peer, next, previous) = (node.peer, node.next, node.previous);
        node.next = self.free;
        self.free = place;
        if let Some(next) = self.nodes.get_mut(next as usize) {
            next.previous = previous;
        }
        match self.nodes.get_mut(previous as usize) {
            Some(before) => before.next = next,
            None if next == NIL => {
                self.first.remove(&peer);
            }
            None => {
                self.first.insert(peer, next);
            }
        }
    }

    /// The branches that wait for a peer, the newest first.
    pub(crate) fn at(
        &self,
        listener: ListenerId,
        remote: SocketAddr,
    ) -> impl Iterator<Item = (EntryId, u16)> + '_ {
        let mut place = self.first.get(&(listener, remote)).copied().unwrap_or(NIL);
        core::iter::from_fn(move || {
            let node = self.nodes.get(place as usize)?;
            place = node.next;
            Some((node.entry, node.index))
        })
    }

    /// Branches that wait.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let free = core::iter::successors(self.nodes.get(self.free as usize), |node| {
            self.nodes.get(node.next as usize)
        });
        self.nodes.len() - free.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTENER: ListenerId = ListenerId(1);

    fn entry(slot: u32) -> EntryId {
        EntryId { slot, generation: 0 }
    }

    fn slots(waiting: &Waiting, listener: ListenerId, remote: SocketAddr) -> Vec<u32> {
        waiting.at(listener, remote).map(|(id, _)| id.slot).collect()
    }

    #[test]
    fn branches_are_found_by_where_they_were_sent() {
        let mut waiting = Waiting::new(8, &Keys::new([1; 4]));
        let (one, two) = ("192.0.2.1:5060".parse().unwrap(), "192.0.2.2:5060".parse().unwrap());
        let mut ids: Vec<WaitId> = (0..3).map(|slot| waiting.insert(LISTENER, one, entry(slot), 0)).collect();
        let mut other = waiting.insert(LISTENER, two, entry(7), 0);
        assert_eq!(slots(&waiting, LISTENER, one), [2, 1, 0]);
        assert_eq!(slots(&waiting, ListenerId(0), one), []);
        waiting.remove(&mut ids[1]);
        assert_eq!(slots(&waiting, LISTENER, one), [2, 0]);
        waiting.remove(&mut ids[1]);
        waiting.remove(&mut ids[2]);
        assert_eq!(slots(&waiting, LISTENER, one), [0]);
        waiting.remove(&mut ids[0]);
        assert_eq!(slots(&waiting, LISTENER, one), []);
        assert_eq!(slots(&waiting, LISTENER, two), [7]);
        waiting.remove(&mut other);
        assert_eq!((waiting.len(), waiting.first.len()), (0, 0));
    }

    #[test]
    fn a_full_list_takes_no_more_and_places_are_used_again() {
        let mut waiting = Waiting::new(2, &Keys::new([1; 4]));
        let peer = "192.0.2.1:5060".parse().unwrap();
        let mut first = waiting.insert(LISTENER, peer, entry(0), 0);
        let second = waiting.insert(LISTENER, peer, entry(1), 0);
        assert_ne!(second, WaitId::NONE);
        let mut third = waiting.insert(LISTENER, peer, entry(2), 0);
        assert_eq!(third, WaitId::NONE);
        waiting.remove(&mut third);
        waiting.remove(&mut first);
        assert_ne!(waiting.insert(LISTENER, peer, entry(3), 0), WaitId::NONE);
        assert_eq!(slots(&waiting, LISTENER, peer), [3, 1]);
    }
}
