//! Requests that come back, and requests that become many (RFC 3261 §16.3 item 4, RFC 5393).

use super::messages::HOPS_OF_THE_CORE;
use super::story::At;
use super::{Branch, Court, Oracle, Story, Transaction};
use crate::text::{Msg, param, user_of};
use crate::world::ROUND;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Branches that the servers begin for one phone's call, at most: Max-Breadth of 60 at each of three servers, and
/// spirals, which a user's own calls make.
const BRANCHES_MAX: usize = 400;

pub(super) const ORACLES: &[Oracle] = &[
    Oracle {
        name: "loops-end",
        section: "RFC 3261 §16.3 item 4, RFC 5393 §4.2",
        says: "A request that comes back with nothing changed that decides where it goes goes nowhere, and is answered \
            482, if nothing else is wrong with it; no other one is.",
        judge: loops_end,
    },
    Oracle {
        name: "breadth",
        section: "RFC 5393 §5.3, RFC 3261 §16.3 items 3 and 4",
        says: "One request never becomes a storm, whatever loops and forks it meets: it goes no further than its \
            Max-Forwards, and at each distance it has no more copies than Max-Breadth allows.",
        judge: breadth,
    },
];

/// What decides where a request goes, and tells it from other ones (RFC 5393 §4.2.1).
fn decisive(msg: &Msg) -> (&str, Vec<&str>, Option<&str>, &str, u32) {
    (msg.uri(), msg.list("route"), msg.from_tag(), msg.call_id(), msg.cseq())
}

/// Statuses of a request that is refused before anybody looks for loops: by the scripts (a lookup that finds nothing, a
/// challenge of what came by way of an edge), for want of hops, or of room.
fn is_refused_first(status: u16) -> bool {
    matches!(status, 401 | 403 | 404 | 407 | 483 | 500 | 503)
}

fn loops_end(court: &mut Court<'_>) {
    for story in court.stories {
        let sent: HashMap<&str, &Branch> =
            story.branches.iter().map(|branch| (branch.id.as_str(), branch)).collect();
        let judged = story.transactions.iter().filter(|transaction| story.is_judged(transaction));
        for transaction in judged.filter(|transaction| transaction.method != "CANCEL") {
            if let Some((at, text)) = wrong_end(story, &sent, transaction) {
                court.accuse(story.time(at), &transaction.call_id, text);
            }
        }
    }
}

fn wrong_end(
    story: &Story<'_>,
    sent: &HashMap<&str, &Branch>,
    transaction: &Transaction,
) -> Option<(At, String)> {
    let first = transaction.ins[0];
    let asked = story.msg(first);
    let (mut is_loop, mut was_forgotten) = (false, false);
    for via in asked.list("via") {
        let branch = param(via, "branch").and_then(|branch| sent.get(branch));
        let Some(parent) = branch.map(|branch| &story.transactions[branch.transaction]) else { continue };
        if decisive(story.msg(parent.ins[0])) != decisive(asked) {
            continue;
        }
        // Who has begun again meanwhile does not know its own marks any more.
        let is_known = story.remembers(parent, story.time(first));
        is_loop |= is_known;
        was_forgotten |= !is_known;
    }
    let out = story.first(&transaction.outs, 200..700);
    let status = out.map(|out| story.status(out));
    let went = transaction.branches.first().map(|branch| story.branches[*branch].sends[0]);
    match (is_loop, went, out) {
        (true, Some(went), _) => Some((went, format!("{} has been here, and goes on", transaction.method))),
        (true, None, Some(out)) if !status.is_some_and(|s| s == 482 || is_refused_first(s)) => {
            Some((out, format!("a loop is answered {}", story.status(out))))
        }
        (false, None, Some(out)) if status == Some(482) && !was_forgotten => {
            Some((out, "482 to a request that has not been here".to_owned()))
        }
        _ => None,
    }
}

fn breadth(court: &mut Court<'_>) {
    for story in court.stories {
        let mut branches = BTreeMap::<&str, usize>::new();
        for branch in &story.branches {
            *branches.entry(&story.transactions[branch.transaction].call_id).or_default() += 1;
        }
        for (call_id, count) in branches.into_iter().filter(|(_, count)| *count > BRANCHES_MAX) {
            court.accuse(0, call_id, format!("{count} branches of one call"));
        }
    }
    for (request, spread) in spreads(court.stories) {
        let allowed = court.plan().sizes.breadth as usize;
        let widest = spread.copies.iter().max_by_key(|(_, copies)| **copies);
        if let Some((distance, copies)) = widest.filter(|(_, copies)| **copies > allowed) {
            let text = format!("{copies} copies after {distance} hops where {allowed} may be");
            court.accuse(0, request.0, text);
        }
        let furthest = spread.copies.keys().max().copied().unwrap_or(0);
        if furthest > spread.hops {
            court.accuse(0, request.0, format!("it went {furthest} hops with Max-Forwards {}", spread.hops));
        }
    }
}

/// Call-ID, CSeq number, and method of a request, and the Via branch of who made it: whoever sends on what he has overheard
/// makes another one of it.
type Request<'w> = (&'w str, u32, &'w str, &'w str);

/// What one phone's request has become.
#[derive(Default)]
struct Spread {
    /// How far it may go.
    hops: usize,
    /// Copies that the servers sent of it, by how many servers had sent it on by then.
    copies: BTreeMap<usize, usize>,
}

/// What became of requests for users who lead in circles. Nothing of these is tried in sequence, one group of contacts
/// behind another, so that each branch keeps its share of the breadth.
fn spreads<'w>(stories: &'w [Story<'w>]) -> BTreeMap<Request<'w>, Spread> {
    let mut spreads = BTreeMap::<Request<'w>, Spread>::new();
    for story in stories {
        let mut seen = BTreeSet::new();
        let judged = story.transactions.iter().filter(|transaction| story.is_judged(transaction));
        for transaction in judged.filter(|transaction| transaction.method != "CANCEL") {
            let asked = story.msg(transaction.ins[0]);
            let vias = asked.list("via").len();
            // A copy that came when its transaction had ended, or its server had begun again, has been counted.
            let is_first = seen.insert((asked.branch(), asked.sent_by()));
            if !user_of(asked.uri()).starts_with(ROUND) || asked.to_tag().is_some() || !is_first {
                continue;
            }
            let makers = asked.list("via").last().and_then(|via| param(via, "branch")).unwrap_or("");
            let request = (asked.call_id(), asked.cseq(), transaction.method.as_str(), makers);
            let spread = spreads.entry(request).or_default();
            if vias == 1 {
                // Where none came, the first server adds them.
                let hops = asked
                    .get("max-forwards")
                    .map_or(Some(HOPS_OF_THE_CORE as usize), |hops| hops.parse().ok());
                spread.hops = hops.unwrap_or(0);
            }
            let branches = transaction.branches.iter().map(|branch| &story.branches[*branch]);
            // One that could not be reached has given its share back.
            let copies = branches.filter(|branch| branch.failures.is_empty()).count();
            *spread.copies.entry(vias).or_default() += copies;
        }
    }
    for spread in spreads.values_mut() {
        spread.copies.retain(|_, copies| *copies > 0);
    }
    spreads
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::story::rig::Script;

    const REST: &str =
        "From: <sip:a@b>;tag=1\r\nTo: <sip:round0@home.example>\r\nCall-ID: a\r\nCSeq: 1 INVITE\r\n\r\n";
    const CALLERS: &str = "Via: SIP/2.0/UDP 10.1.0.1:5060;branch=z9hG4bKtheirs\r\nMax-Forwards: 3\r\n";

    fn via(branch: &str) -> String {
        format!("Via: SIP/2.0/UDP 10.0.0.1:5060;branch=z9hG4bK{branch}\r\n")
    }

    /// A request that comes back as `uri`, and is answered so, or goes on.
    fn round(uri: &str, status: Option<u16>) -> Script {
        let mut script = Script::default();
        let invite = |uri: &str| format!("INVITE sip:{uri}@home.example SIP/2.0\r\n");
        script.received(0, &format!("{}{CALLERS}{REST}", invite("round0")));
        script.sent(0, &format!("{}{}{CALLERS}{REST}", invite(uri), via("1")));
        script.received(1, &format!("{}{}{CALLERS}{REST}", invite(uri), via("1")));
        match status {
            Some(status) => script.sent(1, &format!("SIP/2.0 {status} -\r\n{}{CALLERS}{REST}", via("1"))),
            None => script.sent(1, &format!("{}{}{}{CALLERS}{REST}", invite("round1"), via("2"), via("1"))),
        }
        script
    }

    fn is_wrong(script: &Script) -> bool {
        let story = script.story();
        let sent = story.branches.iter().map(|branch| (branch.id.as_str(), branch)).collect();
        story.transactions.iter().any(|transaction| wrong_end(&story, &sent, transaction).is_some())
    }

    #[test]
    fn a_loop_ends_and_a_spiral_does_not() {
        assert!(!is_wrong(&round("round0", Some(482))));
        assert!(is_wrong(&round("round0", Some(200))));
        assert!(is_wrong(&round("round0", None)));
        assert!(!is_wrong(&round("round1", None)));
        assert!(is_wrong(&round("round1", Some(482))));
    }

    #[test]
    fn copies_are_counted_by_their_distance() {
        let script = round("round1", None);
        let stories = [script.story()];
        let spreads = spreads(&stories);
        let spread = &spreads[&("a", 1, "INVITE", "z9hG4bKtheirs")];
        assert_eq!((spread.hops, spread.copies.clone()), (3, BTreeMap::from([(1, 1), (2, 1)])));
    }

    #[test]
    fn what_somebody_else_has_made_of_it_is_another_request() {
        let mut script = round("round1", None);
        let theft = CALLERS.replace("theirs", "theft").replace("Forwards: 3", "Forwards: 1");
        script.received(2, &format!("INVITE sip:round0@home.example SIP/2.0\r\n{theft}{REST}"));
        let stories = [script.story()];
        let spreads = spreads(&stories);
        let hops = |branch| spreads[&("a", 1, "INVITE", branch)].hops;
        assert_eq!((hops("z9hG4bKtheirs"), hops("z9hG4bKtheft")), (3, 1));
    }
}
