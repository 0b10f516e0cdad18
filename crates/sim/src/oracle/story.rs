//! What one server did, as seen from outside: its messages sorted into server transactions and their branches
//! (RFC 3261 §17.1.3, §17.2.3), without asking it.

use crate::phone::LONG;
use crate::text::Msg;
use crate::trace::{Entry, Micros, ServerId, Shard, Trace, What};
use engine::TransportFailure;
use std::collections::HashMap;
use std::net::SocketAddr;

/// Timer C of the servers' configurations: the server's default.
pub const TIMER_C: Micros = 185_000_000;
/// How long the servers wait for a name: the proxy core's default.
const NAME_WAIT: Micros = 4_000_000;
/// How much later than its time a timer may fire: two ticks of the server's wheel.
pub const LATE: Micros = 2_000;

/// The place of an event in the trace.
pub(super) type At = usize;

/// A request that a server received, with everything that it answered and sent on.
#[derive(Debug)]
pub struct Transaction {
    /// Its method.
    pub method: String,
    /// Its Call-ID.
    pub call_id: String,
    /// The request, and its copies.
    pub ins: Vec<At>,
    /// Responses sent.
    pub outs: Vec<At>,
    /// CANCELs received for it.
    pub cancels: Vec<At>,
    /// ACKs received with its branch.
    pub acks: Vec<At>,
    /// Its branches, by their places in [`Story::branches`].
    pub branches: Vec<usize>,
    /// When names of its targets were asked for; perhaps of those of another INVITE.
    pub names: Vec<At>,
    /// Which shard of the server has it.
    pub shard: Option<Shard>,
    /// When the server forgot it: all of it began again, or this shard.
    pub forgotten: Option<Micros>,
}

/// A request that a server sent on.
#[derive(Debug)]
pub struct Branch {
    /// The Via branch.
    pub id: String,
    /// Its transaction.
    pub transaction: usize,
    /// The request, and its copies.
    pub sends: Vec<At>,
    /// Responses received.
    pub responses: Vec<At>,
    /// CANCELs sent, copies too.
    pub cancels: Vec<At>,
    /// Responses to those.
    pub cancel_responses: Vec<At>,
    /// ACKs sent with its branch.
    pub acks: Vec<At>,
    /// When the server learnt that its peer cannot be reached.
    pub failures: Vec<At>,
}

/// One server's story.
pub struct Story<'t> {
    /// Whose.
    pub server: ServerId,
    /// Its address.
    pub address: SocketAddr,
    /// Everything that happened.
    pub trace: &'t Trace,
    /// Requests received; ACKs are not among them.
    pub transactions: Vec<Transaction>,
    /// Requests sent on.
    pub branches: Vec<Branch>,
    /// ACKs received that belong to no transaction, and the ACKs sent at the same moment.
    pub acks: Vec<(At, Vec<At>)>,
    /// ACKs received that belong to a transaction, and were sent on all the same.
    pub leaks: Vec<(At, At)>,
    /// Requests sent that belong to nothing that was received.
    pub orphans: Vec<At>,
    /// Responses sent that belong to nothing that was received.
    pub orphan_responses: Vec<At>,
}

type Key = (String, String, String);

fn key(msg: &Msg, method: &str) -> Key {
    (msg.branch().to_owned(), msg.sent_by().to_owned(), method.to_owned())
}

/// The transaction whose copy this is, by its second Via.
fn parent_key(msg: &Msg) -> Option<Key> {
    let vias = msg.list("via");
    let via = vias.get(1)?;
    let branch = crate::text::param(via, "branch").unwrap_or("");
    Some((branch.to_owned(), crate::text::sent_by(via).to_owned(), msg.method().to_owned()))
}

impl<'t> Story<'t> {
    /// Reads a server's story from what happened.
    pub fn read(trace: &'t Trace, server: ServerId, address: SocketAddr) -> Story<'t> {
        let mut story = Story {
            server,
            address,
            trace,
            transactions: Vec::new(),
            branches: Vec::new(),
            acks: Vec::new(),
            leaks: Vec::new(),
            orphans: Vec::new(),
            orphan_responses: Vec::new(),
        };
        let mut reader = Reader::default();
        for (at, entry) in trace.entries.iter().enumerate() {
            match (&entry.what, &entry.msg) {
                (What::ShardRestarted(who, shard), _) if *who == server => {
                    reader.forget(&mut story, entry.at, Some(*shard));
                }
                (What::Restarted(who), _) if *who == server => reader.forget(&mut story, entry.at, None),
                (What::TransportFailed(_), _) if entry.node == address => story.note_failure(at, entry),
                (What::Asked(shard, _), _) if entry.node == address => {
                    reader.asked(&mut story, at, *shard);
                }
                (What::Received, Some(msg)) if entry.node == address => reader.received(&mut story, at, msg),
                (What::Sent, Some(msg)) if entry.node == address => reader.sent(&mut story, at, msg),
                _ => {}
            }
        }
        story
    }

    /// A way failed: that of the branches which were sent by this transport to this port (RFC 3261 §18.4), and
    /// of no others, though they may have gone to the same host.
    fn note_failure(&mut self, at: At, failure: &Entry) {
        for branch in &mut self.branches {
            let sent = branch.sends.last().and_then(|last| self.trace.entries.get(*last));
            if sent.is_some_and(|sent| (sent.reliable, sent.peer) == (failure.reliable, failure.peer)) {
                branch.failures.push(at);
            }
        }
    }

    /// An event.
    pub fn entry(&self, at: At) -> &'t Entry {
        &self.trace.entries[at]
    }

    /// When an event happened.
    pub fn time(&self, at: At) -> Micros {
        self.entry(at).at
    }

    /// Whether a failure of the transport is the end of a connection, behind which nobody knows what has arrived.
    pub fn is_break(&self, failure: At) -> bool {
        matches!(self.entry(failure).what, What::TransportFailed(TransportFailure::Broken))
    }

    /// The copy of a branch's request that was sent last before `before`: its CANCEL and its ACK go there.
    pub fn last_copy(&self, branch: &Branch, before: At) -> &'t Entry {
        let mut copies = branch.sends.iter().rev().filter(|at| **at < before);
        self.entry(copies.next().copied().unwrap_or(branch.sends[0]))
    }

    /// The message of an event that has one.
    pub fn msg(&self, at: At) -> &'t Msg {
        match &self.trace.entries[at].msg {
            Some(msg) => msg,
            None => unreachable!("only messages are sorted into transactions"),
        }
    }

    /// The status of a response.
    pub fn status(&self, at: At) -> u16 {
        self.msg(at).status().unwrap_or(0)
    }

    /// The first of these responses with a status in this range.
    pub fn first(&self, responses: &[At], statuses: std::ops::Range<u16>) -> Option<At> {
        responses.iter().copied().find(|at| statuses.contains(&self.status(*at)))
    }

    /// Whether its promises are judged: those to noise are not.
    pub fn is_judged(&self, transaction: &Transaction) -> bool {
        !transaction.call_id.starts_with(crate::noise::CALL_ID)
    }

    /// Whether a transaction still existed then, as far as restarts go.
    pub fn remembers(&self, transaction: &Transaction, then: Micros) -> bool {
        transaction.forgotten.is_none_or(|at| then < at)
    }

    /// Until when a branch waits for a response if none comes but those it had before `before` (RFC 3261
    /// §17.1.1.2 Timer B, §16.6 item 11 and §16.8 Timer C, §9.1 for cancelled ones). What comes when it waits
    /// no more changes nothing.
    pub fn waits_until(&self, branch: &Branch, before: At) -> Micros {
        let begun = branch.sends.first().map_or(0, |at| self.time(*at));
        let mut deadline = begun + LONG;
        let mut rang = None;
        let mut events: Vec<At> = branch.responses.iter().chain(branch.cancels.first()).copied().collect();
        events.sort_unstable();
        for at in events.into_iter().take_while(|at| *at < before) {
            let (time, msg) = (self.time(at), self.msg(at));
            match msg.status() {
                // The CANCEL; that of Timer C goes when the deadline is over.
                None => return time + LONG,
                _ if time > deadline => break,
                // A 100 starts nothing anew (RFC 3261 §16.7 item 2).
                Some(100) => deadline = rang.unwrap_or(begun) + TIMER_C,
                Some(101..=199) => {
                    rang = Some(time);
                    deadline = time + TIMER_C;
                }
                Some(_) => {}
            }
        }
        deadline
    }

    /// Whether a branch was given up before `before`, as its way failed when nothing had come back: the server behaves as
    /// if it had received a 503 then (RFC 3261 §16.9), the client transaction is gone (§17.1.4), and what comes after all
    /// changes nothing. An INVITE that is sent once more at that moment goes on.
    pub fn is_given_up(&self, branch: &Branch, before: At) -> bool {
        let ends_it = |failure: At| {
            let is_silent = branch.responses.first().is_none_or(|first| *first > failure);
            let goes_on = |send: &At| *send > failure && self.time(*send) == self.time(failure);
            is_silent && !branch.sends.iter().any(goes_on)
        };
        branch.failures.iter().any(|failure| *failure < before && ends_it(*failure))
    }

    /// Whether an INVITE was refused so long before `now` that its transaction has ended by Timer H (RFC 3261 §17.2.1):
    /// a copy that comes then is a new request to whoever receives it.
    fn is_past_timer_h(&self, transaction: &Transaction, now: Micros) -> bool {
        let Some(status) = transaction.outs.last().map(|last| self.status(*last)) else { return false };
        let copies = transaction.outs.iter().rev().take_while(|out| self.status(**out) == status);
        let is_failure = transaction.method == "INVITE" && status >= 300;
        is_failure && copies.last().is_some_and(|first| self.time(*first) + LONG <= now)
    }

    /// When the last name is found, or given up, that a transaction asks for at `now`: one of its targets has neither
    /// failed nor been sent to until then.
    pub fn names_until(&self, transaction: &Transaction, now: Micros) -> Option<Micros> {
        let until = |at: &At| {
            let asked = self.time(*at);
            match self.entry(*at).what {
                What::Asked(_, until) if asked <= now => Some(until.min(asked + NAME_WAIT + LATE)),
                _ => None,
            }
        };
        transaction.names.iter().filter_map(until).max().filter(|until| *until >= now)
    }

    /// The final response that ended a branch, if one came while it waited.
    pub fn final_of(&self, branch: &Branch) -> Option<At> {
        self.first(&branch.responses, 200..700)
    }
}

#[derive(Default)]
struct Reader {
    transactions: HashMap<Key, usize>,
    branches: HashMap<String, usize>,
    /// The ACK that was received last, if it belongs to a transaction.
    absorbed: Option<At>,
    /// What was received last, and the transaction that it belongs to.
    last: Option<(At, usize)>,
}

impl Reader {
    /// The server began again, or one shard of it: what comes now belongs to nothing that was there.
    fn forget(&mut self, story: &mut Story<'_>, now: Micros, shard: Option<Shard>) {
        let is_gone = |transaction: &Transaction| shard.is_none() || transaction.shard == shard;
        for transaction in story.transactions.iter_mut().filter(|transaction| is_gone(transaction)) {
            transaction.forgotten.get_or_insert(now);
        }
        let (transactions, branches) = (&story.transactions, &story.branches);
        self.transactions.retain(|_, number| !is_gone(&transactions[*number]));
        self.branches.retain(|_, number| !is_gone(&transactions[branches[*number].transaction]));
        self.absorbed = None;
        self.last = None;
    }

    /// A shard asked for a name: for the transaction that something has just come for. Behind a script that waited for the
    /// store, or a timer, nobody outside can tell for which INVITE; all others ask when they come.
    fn asked(&mut self, story: &mut Story<'_>, at: At, shard: Shard) {
        if let Some((_, transaction)) = self.last.filter(|(last, _)| story.time(*last) == story.time(at)) {
            story.transactions[transaction].names.push(at);
            return;
        }
        for place in 0..story.transactions.len() {
            let transaction = &story.transactions[place];
            let is_here = transaction.shard == Some(shard) && transaction.forgotten.is_none();
            let is_open = story.first(&transaction.outs, 200..700).is_none();
            if transaction.method == "INVITE" && is_here && is_open {
                story.transactions[place].names.push(at);
            }
        }
    }

    fn received(&mut self, story: &mut Story<'_>, at: At, msg: &Msg) {
        self.last = None;
        if !msg.is_request() {
            self.absorbed = None;
            if let Some(branch) = self.branches.get(msg.branch()) {
                let branch = &mut story.branches[*branch];
                self.last = Some((at, branch.transaction));
                if msg.method() == "CANCEL" {
                    branch.cancel_responses.push(at);
                } else {
                    branch.responses.push(at);
                }
            }
            return;
        }
        let method = msg.method();
        self.absorbed = None;
        if method == "ACK" {
            self.absorbed = self.transactions.contains_key(&key(msg, "INVITE")).then_some(at);
            match self.transactions.get(&key(msg, "INVITE")) {
                Some(transaction) => story.transactions[*transaction].acks.push(at),
                None => story.acks.push((at, Vec::new())),
            }
            return;
        }
        if method == "CANCEL"
            && let Some(invite) = self.transactions.get(&key(msg, "INVITE"))
        {
            story.transactions[*invite].cancels.push(at);
        }
        let now = story.time(at);
        let known = self.transactions.get(&key(msg, method));
        if known.is_some_and(|known| story.is_past_timer_h(&story.transactions[*known], now)) {
            self.transactions.remove(&key(msg, method));
        }
        let transaction = *self.transactions.entry(key(msg, method)).or_insert_with(|| {
            story.transactions.push(Transaction {
                method: method.to_owned(),
                call_id: msg.call_id().to_owned(),
                ins: Vec::new(),
                outs: Vec::new(),
                cancels: Vec::new(),
                acks: Vec::new(),
                branches: Vec::new(),
                names: Vec::new(),
                shard: story.entry(at).shard,
                forgotten: None,
            });
            story.transactions.len() - 1
        });
        story.transactions[transaction].ins.push(at);
        self.last = Some((at, transaction));
    }

    fn sent(&mut self, story: &mut Story<'_>, at: At, msg: &Msg) {
        let method = msg.method();
        if !msg.is_request() {
            match self.transactions.get(&key(msg, method)) {
                Some(transaction) => story.transactions[*transaction].outs.push(at),
                None => story.orphan_responses.push(at),
            }
            return;
        }
        match (self.branches.get(msg.branch()), method) {
            (Some(branch), "CANCEL") => story.branches[*branch].cancels.push(at),
            (Some(branch), "ACK") => story.branches[*branch].acks.push(at),
            (Some(branch), _) => story.branches[*branch].sends.push(at),
            (None, "ACK") => match (self.absorbed, story.acks.last_mut()) {
                (Some(ack), _) => story.leaks.push((ack, at)),
                (None, Some((_, sent))) => sent.push(at),
                (None, None) => story.orphans.push(at),
            },
            (None, _) => self.new_branch(story, at, msg),
        }
    }

    fn new_branch(&mut self, story: &mut Story<'_>, at: At, msg: &Msg) {
        let parent = parent_key(msg).and_then(|key| self.transactions.get(&key).copied());
        let Some(transaction) = parent else {
            story.orphans.push(at);
            return;
        };
        story.branches.push(Branch {
            id: msg.branch().to_owned(),
            transaction,
            sends: vec![at],
            responses: Vec::new(),
            cancels: Vec::new(),
            cancel_responses: Vec::new(),
            acks: Vec::new(),
            failures: Vec::new(),
        });
        let branch = story.branches.len() - 1;
        story.transactions[transaction].branches.push(branch);
        self.branches.insert(msg.branch().to_owned(), branch);
    }
}

/// Stories written by hand, of one server and one peer.
#[cfg(test)]
pub(super) mod rig {
    use super::{Entry, Micros, Msg, Story, Trace, What};
    use std::net::SocketAddr;
    use std::rc::Rc;

    /// What happened, in order.
    #[derive(Default)]
    pub(in crate::oracle) struct Script(Trace);

    fn server() -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], 5060))
    }

    fn peer() -> SocketAddr {
        SocketAddr::from(([10, 1, 0, 1], 5060))
    }

    impl Script {
        pub(in crate::oracle) fn received(&mut self, at: Micros, text: &str) {
            self.happened(at, What::Received, false, text);
        }

        pub(in crate::oracle) fn sent(&mut self, at: Micros, text: &str) {
            self.happened(at, What::Sent, false, text);
        }

        pub(in crate::oracle) fn happened(&mut self, at: Micros, what: What, reliable: bool, text: &str) {
            let msg = Msg::parse(text.as_bytes()).map(Rc::new);
            let bytes = text.as_bytes().into();
            let (node, peer, shard) = (server(), peer(), Some(0));
            self.0.push(Entry { at, what, node, peer, reliable, shard, bytes, msg });
        }

        pub(in crate::oracle) fn trace(&self) -> &Trace {
            &self.0
        }

        pub(in crate::oracle) fn story(&self) -> Story<'_> {
            Story::read(&self.0, 0, server())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::What;
    use super::rig::Script;
    use engine::TransportFailure;

    const INVITE: &str = "INVITE sip:u@10.1.0.1:5060 SIP/2.0\r\n";
    const OWN_VIA: &str = "Via: SIP/2.0/UDP 10.0.0.1:5060;branch=z9hG4bKours\r\n";
    const REST: &str = "Via: SIP/2.0/UDP 10.1.0.1:5060;branch=z9hG4bKtheirs\r\nFrom: <sip:a@b>;tag=1\r\n\
        To: <sip:u@home.example>\r\nCall-ID: a\r\nCSeq: 1 INVITE\r\n\r\n";

    /// An INVITE that goes on, a failure of the transport, and then the answer: the failures of its branch, and
    /// whether it was given up.
    fn judged(is_sent_reliably: bool, fails_reliably: bool) -> (usize, bool) {
        let mut script = Script::default();
        script.received(0, &format!("{INVITE}{REST}"));
        script.happened(0, What::Sent, is_sent_reliably, &format!("{INVITE}{OWN_VIA}{REST}"));
        script.happened(100, What::TransportFailed(TransportFailure::Unreachable), fails_reliably, "");
        script.happened(200, What::Received, is_sent_reliably, &format!("SIP/2.0 600 -\r\n{OWN_VIA}{REST}"));
        let story = script.story();
        let branch = &story.branches[0];
        assert_eq!(branch.responses, [3]);
        (branch.failures.len(), story.is_given_up(branch, 3))
    }

    #[test]
    fn a_connection_that_cannot_be_made_ends_no_branch_that_went_by_datagrams() {
        assert_eq!(judged(false, true), (0, false));
        assert_eq!(judged(true, true), (1, true));
        assert_eq!(judged(false, false), (1, true));
    }
}
