//! What messages look like, and where they go (RFC 3261 §8.2.6, §16.6, §16.7, §18.2.2, RFC 3581, RFC 5393).

use super::story::At;
use super::{Branch, Court, Oracle, Story, Transaction};
use crate::noise::CALL_ID;
use crate::server::Role;
use crate::text::{Msg, address_of, param, sent_by, uri_of};
use crate::world::World;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

pub(super) const ORACLES: &[Oracle] = &[
    Oracle {
        name: "responses-follow-via",
        section: "RFC 3261 §18.2.1, §18.2.2, RFC 3581 §4",
        says: "A response goes to where its request came from, as `received`, `rport` and the connection say.",
        judge: responses_follow_via,
    },
    Oracle {
        name: "responses-copy",
        section: "RFC 3261 §8.2.6.2",
        says: "A response has the From, Call-ID, CSeq, Via and To of its request, and a tag in To unless it \
            is a 100.",
        judge: responses_copy,
    },
    Oracle {
        name: "hops-and-vias",
        section: "RFC 3261 §16.6 items 3 and 8, §16.7 item 3, §16.3 item 3",
        says: "Each hop takes one from Max-Forwards, or adds one, and adds one Via; each response loses one Via; no \
            request passes with 0.",
        judge: hops_and_vias,
    },
    Oracle {
        name: "branches-are-fresh",
        section: "RFC 3261 §16.6 item 8, §8.1.1.7",
        says: "Each branch has a name that begins with the magic cookie and was never used before.",
        judge: branches_are_fresh,
    },
    Oracle {
        name: "requests-pass-untouched",
        section: "RFC 3261 §16.6 item 1",
        says: "A request goes on with its body and headers, in their order, but for those that a proxy writes.",
        judge: requests_pass_untouched,
    },
    Oracle {
        name: "responses-pass-untouched",
        section: "RFC 3261 §16.7 items 7 and 9",
        says: "A response goes on as it came, but for its topmost Via; the best 401 or 407 has the challenges of \
            all.",
        judge: responses_pass_untouched,
    },
    Oracle {
        name: "breadth-is-shared",
        section: "RFC 5393 §5.3.3",
        says: "The branches of a request have together no more Max-Breadth than it had.",
        judge: breadth_is_shared,
    },
    Oracle {
        name: "each-target-once",
        section: "RFC 3261 §16.5, §17.2.2, §17.2.3",
        says: "A request goes to each of its targets once: a copy of it is not taken for another one.",
        judge: each_target_once,
    },
    Oracle {
        name: "next-hop",
        section: "RFC 3261 §16.6 items 6 and 7",
        says: "A datagram goes to where the first Route that is left says, without one the Request-URI.",
        judge: next_hop,
    },
    Oracle {
        name: "udp-without-tcp",
        section: "RFC 3261 §18.1.1",
        says: "What went by a stream goes by a datagram as well only if no connection could be made.",
        judge: udp_without_tcp,
    },
    Oracle {
        name: "nothing-from-nothing",
        section: "RFC 3261 §16, §18.1.2, RFC 6026 §8.9",
        says: "Whatever a server sends belongs to a request that it received.",
        judge: nothing_from_nothing,
    },
];

/// Where a name leads that is answered wrongly.
const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9)), 5060);

/// Max-Forwards that the servers' configurations add where there is none.
const HOPS: u32 = 10;
/// Those that the proxy core adds where a script leaves it to that (RFC 3261 §16.6 item 3).
pub(super) const HOPS_OF_THE_CORE: u32 = 70;

/// Headers that a proxy writes (RFC 3261 §16.6, RFC 5393), and those that the home's script adds.
pub(super) const PROXYS_OWN: [&str; 10] = [
    "via",
    "route",
    "record-route",
    "max-forwards",
    "max-breadth",
    "content-length",
    // RFC 3261 §22.3: who was meant by the credentials takes them out.
    "proxy-authorization",
    crate::server::TABLE_HEADER,
    crate::server::SECOND_HEADER,
    crate::server::CONFIGURATION_HEADER,
];

pub(super) fn others<'m>(msg: &'m Msg, without: &[&str]) -> Vec<&'m (String, String)> {
    msg.headers.iter().filter(|(name, _)| !without.contains(&name.as_str())).collect()
}

fn each(court: &mut Court<'_>, judge: impl Fn(&Story<'_>, &Transaction) -> Option<(At, String)>) {
    for story in court.stories {
        for transaction in story.transactions.iter().filter(|transaction| story.is_judged(transaction)) {
            if let Some((at, text)) = judge(story, transaction) {
                court.accuse(story.time(at), &transaction.call_id, text);
            }
        }
    }
}

fn responses_follow_via(court: &mut Court<'_>) {
    each(court, |story, transaction| {
        let request = story.entry(transaction.ins[0]);
        let asked = story.msg(transaction.ins[0]);
        let via = asked.list("via")[0];
        let host = sent_by(via).to_owned();
        let port = host.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(5060);
        let asks_rport = param(via, "rport").is_some();
        let by_sent_by = SocketAddr::new(request.peer.ip(), port);
        for &out in &transaction.outs {
            let sent = story.entry(out);
            // A copy that comes by another connection is answered there, if the first has left nothing behind it; a broken
            // connection is replaced by one to the sent-by's port.
            let asked_by = |at: &At| *at < out && story.entry(*at).peer == sent.peer;
            let by_connection = sent.peer == by_sent_by || transaction.ins.iter().any(asked_by);
            let right = match (request.reliable, asks_rport) {
                (true, _) => sent.reliable && by_connection,
                (false, true) => !sent.reliable && sent.peer == request.peer,
                (false, false) => !sent.reliable && sent.peer == by_sent_by,
            };
            if !right {
                return Some((
                    out,
                    format!(
                        "{} went to {}, its request came from {}",
                        story.msg(out).label(),
                        sent.peer,
                        request.peer
                    ),
                ));
            }
            let answered = story.msg(out).list("via");
            let received = param(answered[0], "received");
            let is_other = host.split(':').next() != Some(&request.peer.ip().to_string());
            if is_other && received != Some(&request.peer.ip().to_string()) {
                return Some((out, format!("a response without the `received` of {}", request.peer)));
            }
            if asks_rport && param(answered[0], "rport") != Some(&request.peer.port().to_string()) {
                return Some((out, format!("a response without the `rport` of {}", request.peer)));
            }
        }
        None
    });
}

fn responses_copy(court: &mut Court<'_>) {
    each(court, |story, transaction| {
        let asked = story.msg(transaction.ins[0]);
        for &out in &transaction.outs {
            let msg = story.msg(out);
            let same = |name: &str| msg.get(name) == asked.get(name);
            let to = msg.get("to").unwrap_or("");
            let tagged = msg.to_tag().is_some() || msg.status() == Some(100);
            let grown = msg.list("via").len() == asked.list("via").len();
            if !(["from", "call-id", "cseq"].iter().all(|name| same(name))
                && tagged
                && grown
                && to.starts_with(asked.get("to").unwrap_or("?")))
            {
                return Some((out, format!("{} is not that of its request", msg.label())));
            }
        }
        None
    });
}

/// The hops that a server adds where none came (RFC 3261 §16.6 item 3): as many as its configuration says, or the proxy
/// core where that does not look.
fn hops_added(world: &World, story: &Story<'_>) -> u32 {
    let looks = world.servers[story.server].role == Role::Home || !world.plan.lax_edges;
    if looks { HOPS } else { HOPS_OF_THE_CORE }
}

/// What is wrong with the hops that are left, if `added` where none came.
fn hops_fault(asked: &Msg, sent: &Msg, added: u32) -> Option<String> {
    let hops = |msg: &Msg| msg.get("max-forwards").and_then(|value| value.parse::<u32>().ok());
    let (came, left) = (hops(asked), hops(sent));
    let due = came.map_or(Some(added), |came| came.checked_sub(1));
    (left != due).then(|| format!("Max-Forwards {left:?} behind {came:?}"))
}

fn hops_and_vias(court: &mut Court<'_>) {
    let world = court.world;
    each(court, |story, transaction| {
        let asked = story.msg(transaction.ins[0]);
        for branch in transaction.branches.iter().map(|branch| &story.branches[*branch]) {
            let sent = story.msg(branch.sends[0]);
            if let Some(text) = hops_fault(asked, sent, hops_added(world, story)) {
                return Some((branch.sends[0], text));
            }
            let (before, after) = (asked.list("via"), sent.list("via"));
            if after.len() != before.len() + 1 || after[2..] != before[1..] {
                return Some((
                    branch.sends[0],
                    "the Vias of a request that goes on are not its own and one".to_owned(),
                ));
            }
        }
        None
    });
    for story in court.stories {
        for (ack, sent) in &story.acks {
            let asked = story.msg(*ack);
            for out in sent.iter().filter(|out| story.msg(**out).call_id() == asked.call_id()) {
                let is_same = story.time(*out) == story.time(*ack) && !asked.call_id().starts_with(CALL_ID);
                let fault = hops_fault(asked, story.msg(*out), hops_added(world, story));
                if let Some(text) = fault.filter(|_| is_same) {
                    court.accuse(story.time(*out), asked.call_id(), format!("an ACK goes on with {text}"));
                }
                if story.msg(*out).list("via").len() != asked.list("via").len() + 1 {
                    court.accuse(
                        story.time(*out),
                        asked.call_id(),
                        "an ACK goes on without one more Via".to_owned(),
                    );
                }
            }
        }
    }
}

fn branches_are_fresh(court: &mut Court<'_>) {
    for story in court.stories {
        let mut seen: BTreeMap<&str, At> = BTreeMap::new();
        for branch in &story.branches {
            let first = branch.sends[0];
            if !branch.id.starts_with("z9hG4bK") || seen.insert(&branch.id, first).is_some() {
                court.accuse(story.time(first), "", format!("the branch {} is not fresh", branch.id));
            }
            // What is no copy of the request is another one by the same name.
            let request = |at: At| (story.msg(at).list("via").get(1).copied(), story.msg(at).call_id());
            if let Some(other) = branch.sends.iter().find(|at| request(**at) != request(first)) {
                court.accuse(story.time(*other), "", format!("the branch {} is used again", branch.id));
            }
        }
    }
}

fn requests_pass_untouched(court: &mut Court<'_>) {
    each(court, |story, transaction| {
        let asked = story.msg(transaction.ins[0]);
        for branch in transaction.branches.iter().map(|branch| &story.branches[*branch]) {
            let sent = story.msg(branch.sends[0]);
            let recorded = sent.list("record-route").ends_with(&asked.list("record-route"));
            if others(sent, &PROXYS_OWN) != others(asked, &PROXYS_OWN) || sent.body != asked.body || !recorded
            {
                return Some((
                    branch.sends[0],
                    format!("the request on {} is not the one that came", branch.id),
                ));
            }
        }
        None
    });
}

/// The response of a branch that went upstream as `out`.
pub(super) fn origin(story: &Story<'_>, transaction: &Transaction, out: At) -> Option<At> {
    let msg = story.msg(out);
    let branches = transaction.branches.iter().map(|branch| &story.branches[*branch]);
    // A CANCEL of nothing goes on without state, and its answer comes back without (RFC 3261 §16.10, §16.11).
    let is_cancel = transaction.method == "CANCEL";
    let responses =
        branches.flat_map(|branch| if is_cancel { &branch.cancel_responses } else { &branch.responses });
    let mut fits = responses.copied().filter(|at| {
        let came = story.msg(*at);
        *at < out && came.status() == msg.status() && came.get("to") == msg.get("to")
    });
    fits.next()
}

fn challenges(msg: &Msg) -> Vec<&(String, String)> {
    msg.headers.iter().filter(|(name, _)| name.ends_with("authenticate")).collect()
}

/// The challenges of a response that came, and, in a 401 or 407 that goes upstream as the best, of all others that had
/// come (RFC 3261 §16.7 item 7), in order of their bytes.
fn gathered<'w>(
    story: &Story<'w>,
    transaction: &Transaction,
    came: At,
    out: At,
) -> Vec<&'w (String, String)> {
    let mut all = challenges(story.msg(came));
    let status = story.status(out);
    if matches!(status, 401 | 407) {
        // What is sent again is what was sent.
        let is_copy = |first: &&At| story.status(**first) == status;
        let first = transaction.outs.iter().find(is_copy).copied().unwrap_or(out);
        let branches = transaction.branches.iter().map(|branch| &story.branches[*branch]);
        for branch in branches.filter(|branch| !branch.responses.contains(&came)) {
            let Some(at) = story.final_of(branch).filter(|at| *at < first) else { continue };
            let is_heard = story.time(at) < story.waits_until(branch, at) && !story.is_given_up(branch, at);
            if is_heard && matches!(story.status(at), 401 | 407) {
                all.extend(challenges(story.msg(at)));
            }
        }
    }
    all.sort_unstable();
    all
}

fn responses_pass_untouched(court: &mut Court<'_>) {
    const CHANGED: [&str; 4] = ["via", "content-length", "www-authenticate", "proxy-authenticate"];
    each(court, |story, transaction| {
        for &out in &transaction.outs {
            let Some(came) = origin(story, transaction, out).filter(|_| story.status(out) > 100) else {
                continue;
            };
            let expected = gathered(story, transaction, came, out);
            let (came, went) = (story.msg(came), story.msg(out));
            let vias = came.list("via").get(1..) == Some(&went.list("via")[..]);
            let same = others(came, &CHANGED) == others(went, &CHANGED)
                && came.body == went.body
                && came.first == went.first;
            let mut challenges = challenges(went);
            challenges.sort_unstable();
            if !vias || !same || challenges != expected {
                return Some((
                    out,
                    format!("the {} that went upstream is not the one that came", went.label()),
                ));
            }
        }
        None
    });
}

fn breadth_is_shared(court: &mut Court<'_>) {
    let limit = court.plan().sizes.breadth;
    for story in court.stories {
        for transaction in story.transactions.iter().filter(|transaction| story.is_judged(transaction)) {
            let asked = story.msg(transaction.ins[0]);
            let breadth =
                asked.get("max-breadth").and_then(|value| value.parse().ok()).unwrap_or(limit).min(limit);
            // Only branches of one moment are in parallel for certain.
            let mut sums: BTreeMap<u64, u32> = BTreeMap::new();
            let branches = transaction.branches.iter().map(|branch| &story.branches[*branch]);
            // One that could not be reached has given its share back.
            for branch in branches.filter(|branch| branch.failures.is_empty()) {
                let sent = story.msg(branch.sends[0]);
                let share = sent.get("max-breadth").and_then(|value| value.parse().ok()).unwrap_or(0);
                *sums.entry(story.time(branch.sends[0])).or_default() += share;
            }
            if let Some((at, sum)) = sums.into_iter().find(|(_, sum)| *sum > breadth) {
                court.accuse(
                    at,
                    &transaction.call_id,
                    format!("branches of breadth {sum} of a request of {breadth}"),
                );
            }
        }
    }
}

fn each_target_once(court: &mut Court<'_>) {
    each(court, |story, transaction| {
        // A failure route may try the same target again.
        if story.msg(transaction.ins[0]).uri().contains("second-") {
            return None;
        }
        let mut seen = BTreeMap::new();
        let branches = transaction.branches.iter().map(|branch| &story.branches[*branch]);
        for branch in branches.filter(|branch| branch.failures.is_empty()) {
            let sent = story.entry(branch.sends[0]);
            let target = (story.msg(branch.sends[0]).uri(), sent.peer);
            if seen.insert(target, branch.sends[0]).is_some() {
                return Some((branch.sends[0], format!("{} went to {} twice", transaction.method, target.0)));
            }
        }
        None
    });
}

/// What was sent on without the way that it has to take. Where a stream leads is not to be seen by its address.
fn next_hop(court: &mut Court<'_>) {
    let servers: Vec<_> = court.world.servers.iter().map(|server| server.address).collect();
    for story in court.stories {
        let requests = story.branches.iter().filter(|branch| {
            let transaction = &story.transactions[branch.transaction];
            story.is_judged(transaction)
        });
        let made = |branch: &Branch| {
            let all = branch.sends.iter().chain(&branch.cancels).chain(&branch.acks);
            all.copied().collect::<Vec<_>>()
        };
        let acks = story.acks.iter().filter(|(ack, _)| !story.msg(*ack).call_id().starts_with(CALL_ID));
        for out in requests.flat_map(made).chain(acks.flat_map(|(_, sent)| sent.clone())) {
            let (entry, msg) = (story.entry(out), story.msg(out));
            if entry.reliable {
                continue;
            }
            let hop = msg.list("route").first().map_or(msg.uri(), |route| uri_of(route));
            let is_right = match address_of(hop) {
                // Names lead to servers, and a wrong answer to nobody.
                None => servers.contains(&entry.peer) || entry.peer == NOBODY,
                Some(address) => address == entry.peer,
            };
            if !is_right {
                let text = format!("{} for {hop} went to {}", msg.label(), entry.peer);
                court.accuse(story.time(out), msg.call_id(), text);
            }
        }
    }
}

fn udp_without_tcp(court: &mut Court<'_>) {
    each(court, |story, transaction| {
        let branches: Vec<_> = transaction.branches.iter().map(|branch| &story.branches[*branch]).collect();
        for datagram in branches.iter().filter(|branch| !story.entry(branch.sends[0]).reliable) {
            let begun = datagram.sends[0];
            let went_there = |stream: &&&Branch| {
                let (first, there) = (story.entry(stream.sends[0]), story.entry(begun));
                let same = story.msg(stream.sends[0]).uri() == story.msg(begun).uri();
                first.reliable && stream.sends[0] < begun && first.peer.ip() == there.peer.ip() && same
            };
            let Some(stream) = branches.iter().find(went_there) else { continue };
            let is_reason = |failure: &At| *failure < begun && !story.is_break(*failure);
            if !stream.failures.iter().any(is_reason) {
                return Some((begun, format!("{} went by UDP after a stream", transaction.method)));
            }
        }
        None
    });
}

fn nothing_from_nothing(court: &mut Court<'_>) {
    for story in court.stories {
        for &out in story.orphans.iter().chain(&story.orphan_responses) {
            let msg = story.msg(out);
            // What answers noise is judged by nobody: an oracle may not even be able to read the question.
            let is_noise = msg.call_id().starts_with(CALL_ID);
            // A CANCEL of nothing goes on without state, and its answer comes back without (RFC 3261 §16.10, §16.11),
            // whoever was killed meanwhile.
            let is_stateless = !msg.is_request() && msg.method() == "CANCEL";
            if !is_noise && !is_stateless {
                court.accuse(
                    story.time(out),
                    msg.call_id(),
                    format!("{} belongs to nothing that came", msg.label()),
                );
            }
        }
    }
}
