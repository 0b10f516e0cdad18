//! Answers on connections of which one direction has ended (RFC 3261 §18.2.2; RFC 9293 §3.6).

use super::story::At;
use super::{Court, LATE, Oracle, Story};
use crate::phone::LONG;
use crate::trace::What;
use std::collections::BTreeMap;
use std::net::SocketAddr;

pub(super) const ORACLES: &[Oracle] = &[Oracle {
    name: "last-word-is-answered",
    section: "RFC 3261 §18.2.2",
    says: "Who has sent its last byte on a connection still gets on it what it is owed.",
    judge: last_word_is_answered,
}];

/// What is known of a connection, by the peer's address and port: each has its own.
#[derive(Clone, Default)]
struct Known {
    /// When its peer had said its last word.
    ended: Option<At>,
    /// When it broke.
    broken: Option<At>,
    /// Requests that came by it.
    asked: Vec<At>,
    /// Final responses that went by it.
    answered: Vec<At>,
}

impl Known {
    /// Whether the server owes something on it. It need not tell the copy of a 2xx from the answer to another
    /// request (`crates/net` counts them alike): when as many have gone, it may end its own direction, too.
    fn is_owing(&self, at: At) -> bool {
        let before = |events: &[At]| events.iter().filter(|event| **event < at).count();
        before(&self.asked) > before(&self.answered)
    }
}

fn last_word_is_answered(court: &mut Court<'_>) {
    if court.plan().last_words == 0 {
        return;
    }
    for story in court.stories {
        let known = connections(story);
        for transaction in story.transactions.iter().filter(|transaction| story.is_judged(transaction)) {
            let peer = story.entry(transaction.ins[0]).peer;
            let Some(connection) = known.get(&peer) else { continue };
            let Some(ended) = connection.ended else { continue };
            let is_due = |out: At| {
                out > ended
                    && story.time(out) + LATE < story.time(ended) + LONG
                    && connection.broken.is_none_or(|broken| out < broken)
                    && connection.is_owing(out)
            };
            let strayed = |out: &&At| story.entry(**out).peer != peer && is_due(**out);
            if let Some(&out) = transaction.outs.iter().find(strayed) {
                let (label, to) = (story.msg(out).label(), story.entry(out).peer);
                let text = format!("{label} went to {to}, though {peer} still listens");
                court.accuse(story.time(out), &transaction.call_id, text);
            }
        }
    }
}

fn connections(story: &Story<'_>) -> BTreeMap<SocketAddr, Known> {
    let mut known: BTreeMap<SocketAddr, Known> = BTreeMap::new();
    let own = |(_, entry): &(At, &crate::trace::Entry)| entry.node == story.address;
    for (at, entry) in story.trace.entries.iter().enumerate().filter(own) {
        let status = entry.msg.as_ref().and_then(|msg| msg.status());
        match &entry.what {
            What::Received if entry.reliable && status.is_none() => {
                let is_ack = entry.msg.as_ref().is_some_and(|msg| msg.method() == "ACK");
                known.entry(entry.peer).or_default().asked.extend((!is_ack).then_some(at));
            }
            What::Sent if entry.reliable && status.is_some_and(|status| status >= 200) => {
                known.entry(entry.peer).or_default().answered.push(at);
            }
            What::Ended => known.entry(entry.peer).or_default().ended = Some(at),
            What::TransportFailed(_) => {
                known.entry(entry.peer).or_default().broken.get_or_insert(at);
            }
            // What was known before is gone.
            What::Restarted(_) => {
                for known in known.values_mut() {
                    known.broken.get_or_insert(at);
                }
            }
            _ => {}
        }
    }
    known
}
