//! One entry of the table: a server transaction and the client transactions that it was forked into, which is the
//! response context of RFC 3261 §16.2.

use crate::client_invite::ClientInvite;
use crate::client_non_invite::ClientNonInvite;
use crate::io::{ListenerId, Path};
use crate::plan::Work;
use crate::reply::ViaFix;
use crate::server_invite::ServerInvite;
use crate::server_non_invite::ServerNonInvite;
use crate::waiting::WaitId;
use crate::wheel::TimerId;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;
use sip::{Instant, Method};
use smallvec::SmallVec;

/// Bytes of a key held inside the entry; longer ones (clients of RFC 2543) lie on the heap.
pub(crate) const KEY_INLINE: usize = 96;

/// The server side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    Invite(ServerInvite),
    NonInvite(ServerNonInvite),
}

impl Server {
    /// Whether a final response has been sent, or none ever will.
    pub(crate) fn is_final(&self) -> bool {
        !matches!(
            self,
            Server::Invite(ServerInvite::Proceeding)
                | Server::NonInvite(ServerNonInvite::Trying | ServerNonInvite::Proceeding)
        )
    }

    pub(crate) fn is_terminated(&self) -> bool {
        matches!(
            self,
            Server::Invite(ServerInvite::Terminated) | Server::NonInvite(ServerNonInvite::Terminated)
        )
    }

    pub(crate) fn terminate(&mut self) {
        match self {
            Server::Invite(machine) => *machine = ServerInvite::Terminated,
            Server::NonInvite(machine) => *machine = ServerNonInvite::Terminated,
        }
    }
}

/// The client side of one branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    /// To be sent when the script ends.
    Planned,
    /// Waiting for the addresses of its next hop.
    Resolving,
    Invite(ClientInvite),
    NonInvite(ClientNonInvite),
    /// Never sent, or over.
    Gone,
}

impl Client {
    /// Whether it was sent and nothing has come back.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(
            self,
            Client::Invite(ClientInvite::Calling { .. }) | Client::NonInvite(ClientNonInvite::Trying { .. })
        )
    }

    pub(crate) fn is_terminated(&self) -> bool {
        matches!(
            self,
            Client::Gone
                | Client::Invite(ClientInvite::Terminated)
                | Client::NonInvite(ClientNonInvite::Terminated)
        )
    }
}

/// How far the cancellation of a branch is (RFC 3261 §9.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cancel {
    /// Nobody asked for it.
    No,
    /// It goes out after the first provisional response.
    Wanted,
    /// It was sent.
    Sent(ClientNonInvite),
}

/// One branch.
#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) client: Client,
    pub(crate) cancel: Cancel,
    /// Which target of the plan it serves.
    pub(crate) target: u16,
    /// Whether `expire` is Timer C (RFC 3261 §16.6 item 11).
    pub(crate) timer_c: bool,
    /// Its share of Max-Breadth (RFC 5393 §5.3.3).
    pub(crate) breadth: u32,
    /// Whether any response came.
    pub(crate) replied: bool,
    /// Whether Timer B, C or F fired.
    pub(crate) timed_out: bool,
    /// How long it may ring (Timer C) if that is not what the configuration says.
    pub(crate) ringing: Option<Duration>,
    /// The final status, its own or the one made up for it; 0 while there is none.
    pub(crate) status: u16,
    pub(crate) path: Path,
    /// Whether the next hop's URI leaves the transport to us (RFC 3261 §18.1.1).
    pub(crate) free: bool,
    /// The listener and the port of the peer to be tried when `path` fails before anything has come back.
    pub(crate) second: Option<(ListenerId, u16)>,
    /// Whether it was sent a second time as its first connection had broken.
    pub(crate) sent_again: bool,
    /// Its place among those that wait on streams.
    pub(crate) waiting: WaitId,
    pub(crate) cookie: u64,
    /// The second part of its branch parameter.
    pub(crate) loop_hash: u64,
    /// The request as it was sent, then its ACK.
    pub(crate) sent: Vec<u8>,
    pub(crate) sent_at: Instant,
    pub(crate) resend: TimerId,
    pub(crate) expire: TimerId,
}

impl Branch {
    pub(crate) fn is_final(&self) -> bool {
        self.status >= 200
    }

    /// Whether no provisional response has replaced Timer B by Timer C yet.
    pub(crate) fn expire_is_timer_b(&self) -> bool {
        !self.timer_c
    }
}

/// The best final response so far (RFC 3261 §16.7 item 6).
#[derive(Debug)]
pub(crate) struct Best {
    pub(crate) status: u16,
    /// Smaller is better.
    pub(crate) rank: u16,
    /// The branch that it came from, or that it was made up for.
    pub(crate) branch: u16,
    /// The response as received; empty if it is made up.
    pub(crate) bytes: Vec<u8>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Entry<S> {
    pub(crate) hash: u64,
    pub(crate) key: SmallVec<[u8; KEY_INLINE]>,
    pub(crate) server: Server,
    pub(crate) method: Method,
    /// The way the request came.
    pub(crate) path: Path,
    /// The way responses go (RFC 3261 §18.2.2).
    pub(crate) reply_path: Path,
    pub(crate) fix: ViaFix,
    /// The request as received; empty once nothing can ask for it.
    pub(crate) request: Vec<u8>,
    /// The response to be sent again; empty if there is none.
    pub(crate) response: Vec<u8>,
    pub(crate) created: Instant,
    pub(crate) resend: TimerId,
    pub(crate) expire: TimerId,
    pub(crate) branches: SmallVec<[Branch; 1]>,
    pub(crate) best: Option<Best>,
    /// Challenges of 401 and 407 that were not chosen (RFC 3261 §16.7 item 7).
    pub(crate) challenges: Vec<u8>,
    pub(crate) work: Option<Box<Work>>,
    /// Whether it is there only because its script waits, so that copies of the request are absorbed meanwhile; see
    /// [`crate::Handled::Suspend`].
    pub(crate) ephemeral: bool,
    /// The question that the script waits for.
    pub(crate) suspended: Option<crate::io::AskId>,
    /// Whether the response waits until its address has been heard from twice.
    pub(crate) held_back: bool,
    /// Whether the response counts among the long ones.
    pub(crate) long: bool,
    /// Whether a CANCEL came.
    pub(crate) cancelled: bool,
    /// Whether a 6xx came: no more branches (RFC 3261 §16.7 item 5).
    pub(crate) declined: bool,
    /// The final status sent; 0 while there is none.
    pub(crate) final_sent: u16,
    /// Whether [`crate::Counters`]' owner still counts it as unfinished.
    pub(crate) unfinished: bool,
    /// The user's state; away while a script runs.
    pub(crate) state: Option<S>,
}

impl<S> Entry<S> {
    /// Whether the client of a request that is no INVITE has given up by its Timer F (RFC 3261 §17.1.2.2).
    pub(crate) fn is_given_up(&self, timer_f: Duration, now: Instant) -> bool {
        self.method != Method::Invite && now >= self.created + timer_f
    }

    /// Whether a failure of a branch goes upstream as it came: a 503 becomes a 500 (RFC 3261 §16.7 item 6), and a request
    /// that is no INVITE gets no 408, and nothing at all once its client has given up (RFC 4320 §4.2).
    pub(crate) fn passes_on(&self, status: u16, timer_f: Duration, now: Instant) -> bool {
        status != 503 && (self.method == Method::Invite || status != 408 && !self.is_given_up(timer_f, now))
    }

    /// The breadth that branches without final response hold (RFC 5393 §5.3.3).
    pub(crate) fn pending_breadth(&self) -> u32 {
        let pending = self.branches.iter().filter(|branch| !branch.is_final());
        pending.fold(0, |sum, branch| sum.saturating_add(branch.breadth))
    }

    /// Whether every branch has a final response, its own or a made-up one.
    pub(crate) fn all_final(&self) -> bool {
        self.branches.iter().all(Branch::is_final)
    }
}
