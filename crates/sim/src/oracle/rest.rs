//! What is left at the end, and what never grows too far.

use super::{Court, Oracle};
use crate::faults::ROOMY;
use crate::phone::LONG;
use crate::trace::{Micros, What};
use crate::world::THIEF;

pub(super) const ORACLES: &[Oracle] = &[
    Oracle {
        name: "rest",
        section: "RFC 3261 §17 (Table 4), §10.3",
        says: "When nothing happens any more, no transaction, buffer, timer, script, question or binding is left.",
        judge: rest,
    },
    Oracle {
        name: "sizes",
        section: "RFC 5393 §5.3",
        says: "Transactions, scripts that wait, open names and bindings are never more, messages sent never longer, than \
            they may be.",
        judge: sizes,
    },
    Oracle {
        name: "fair-worlds-complete",
        section: "RFC 3261 §13.3.1.4, §13.2.2.4",
        says: "Where nothing is lost, every 2xx of a phone is acknowledged, and every BYE answered.",
        judge: fair_worlds_complete,
    },
];

fn rest(court: &mut Court<'_>) {
    let world = court.world;
    if world.restless {
        court.accuse(world.now, "", "the world does not come to rest".to_owned());
    }
    for (number, server) in world.servers.iter().enumerate() {
        for what in server.remains() {
            court.accuse(world.now, "", format!("server {number}: {what}"));
        }
        for counters in server.counters().filter(|counters| counters.transactions_lost > 0) {
            court.accuse(
                world.now,
                "",
                format!("server {number} lost {} transactions by panics", counters.transactions_lost),
            );
        }
    }
    for phone in world.phones.iter().filter(|phone| phone.remains() > 0) {
        court.accuse(world.now, "", format!("the phone at {} has not come to rest", phone.address));
    }
}

fn sizes(court: &mut Court<'_>) {
    let world = court.world;
    for (number, server) in world.servers.iter().enumerate() {
        for what in server.excesses() {
            court.accuse(world.now, "", format!("server {number}: {what}"));
        }
    }
    let (bytes, branches) = (world.plan.sizes.message_bytes, usize::from(world.plan.sizes.branches));
    for entry in &world.trace.entries {
        let is_servers = world.servers.iter().any(|server| server.address == entry.node);
        if matches!(entry.what, What::Sent) && is_servers && entry.bytes.len() > bytes {
            let (label, call_id) =
                entry.msg.as_ref().map_or((String::new(), ""), |msg| (msg.label(), msg.call_id()));
            let text = format!("{label} of {} bytes where {bytes} may be", entry.bytes.len());
            court.accuse(entry.at, call_id, text);
        }
    }
    if world.plan.sizes == ROOMY {
        return;
    }
    for story in court.stories {
        for transaction in story.transactions.iter().filter(|transaction| story.is_judged(transaction)) {
            // One that could not be reached may be sent another way, under another name.
            let reached = transaction
                .branches
                .iter()
                .filter(|branch| story.branches[**branch].failures.is_empty())
                .count();
            if reached <= branches {
                continue;
            }
            let text = format!("{reached} branches where {branches} may be");
            court.accuse(story.time(transaction.ins[0]), &transaction.call_id, text);
        }
    }
}

/// In a fair world a phone sends its 2xx again only until the ACK has had the time to come. Whoever has stolen credentials
/// hears nothing and says nothing more: where the request that they were made for did not come so far that they were looked
/// at, or the store was too slow then, the first one that brings them passes (RFC 7616 §3.4), and it may be the thief's.
fn fair_worlds_complete(court: &mut Court<'_>) {
    let plan = court.plan();
    if !plan.is_fair() || plan.noise > 0 {
        return;
    }
    // From the 2xx to its ACK: two ways through all servers, each twice for a spiral, or once for each Request-URI that
    // leads in circles, and names.
    let ways = plan.loops.map_or(2, |loops| 2 + 2 * loops.users as u64);
    let round = 2 * ways * (plan.servers as u64 + 1) * (plan.link.delay + plan.link.jitter) + LONG / 8;
    let there_and_back = 2 * (plan.link.delay + plan.link.jitter);
    let thief = THIEF.to_string();
    for phone in &court.world.phones {
        let byes = phone.tally.unanswered_byes.iter().filter(|uri| !uri.contains(&thief)).count();
        if byes > 0 {
            let text = format!("{byes} BYEs of the phone at {} were not answered", phone.address);
            court.accuse(court.world.now, "", text);
        }
    }
    let phones: Vec<_> = court.world.phones.iter().map(|phone| phone.address).collect();
    // When the INVITE came, when it was first answered, when it was accepted.
    let mut calls = std::collections::BTreeMap::<_, (Micros, Option<Micros>, Option<Micros>)>::new();
    for entry in &court.world.trace.entries {
        let Some(msg) =
            entry.msg.as_ref().filter(|msg| msg.method() == "INVITE" && phones.contains(&entry.node))
        else {
            continue;
        };
        let key = (entry.node, msg.branch().to_owned());
        match (&entry.what, msg.status()) {
            (What::Received, None) if msg.list("via").last().is_some_and(|via| via.contains(&thief)) => {}
            (What::Received, None) => {
                calls.entry(key).or_insert((entry.at, None, None));
            }
            (What::Sent, Some(status)) => {
                let Some((came, answered, accepted)) = calls.get_mut(&key) else { continue };
                // Who is silent until Timer B has been given up (RFC 6026 §8.9). It began when the INVITE was sent, and
                // the answer has to come back (RFC 3261 §17.1.1.2).
                let answered = *answered.get_or_insert(entry.at);
                if status != 200 || answered + LONG / 32 + there_and_back > *came + LONG {
                    continue;
                }
                if entry.at > *accepted.get_or_insert(entry.at) + round {
                    court.accuse(entry.at, msg.call_id(), format!("{} gets no ACK for its 2xx", entry.node));
                    return;
                }
            }
            _ => {}
        }
    }
}
