//! INVITE transactions and forks (RFC 3261 §16.7, §17.1.1, §17.2.1, RFC 6026).

use super::story::At;
use super::{Branch, Court, Oracle, Story, TIMER_C, Transaction};
use crate::faults::SECOND;
use crate::phone::LONG;
use std::collections::BTreeSet;

/// Time for names to be looked up, and for what is on its way inside of the server.
const MARGIN: u64 = 6 * SECOND;

pub(super) const ORACLES: &[Oracle] = &[
    Oracle {
        name: "one-final",
        section: "RFC 3261 §16.7 item 5, §17.2.1",
        says: "An INVITE gets one final response that is no 2xx, or 2xx only, and nothing provisional \
            afterwards.",
        judge: |court| each_invite(court, one_final),
    },
    Oracle {
        name: "final-in-time",
        section: "RFC 3261 §16.8, §17.1.1.2",
        says: "An INVITE gets a final response within Timer B, C and the wait of §9.1, whatever its branches \
            do.",
        judge: |court| each_invite(court, final_in_time),
    },
    Oracle {
        name: "every-2xx-passes",
        section: "RFC 3261 §16.7 item 5, RFC 6026 §7.2",
        says: "Every 2xx of a branch goes upstream, once for each time that it comes.",
        judge: every_2xx_passes,
    },
    Oracle {
        name: "best-response",
        section: "RFC 3261 §16.7 item 6, §16.8, §16.9",
        says: "A failure that goes upstream is the best of all branches: a 6xx if there is one, else of the lowest \
            class, and there one that helps; silence is a 408, or a 487 when cancelled, and no way a 500.",
        judge: |court| each_invite(court, best_response),
    },
    Oracle {
        name: "failure-when-all-failed",
        section: "RFC 3261 §16.7 item 5",
        says: "A failure goes upstream when no branch can answer any more, not before.",
        judge: |court| each_invite(court, failure_when_all_failed),
    },
    Oracle {
        name: "failure-acknowledged-here",
        section: "RFC 3261 §17.1.1.3",
        says: "Each copy of a failure is acknowledged on its branch by an ACK made of the INVITE and the \
            response's To.",
        judge: failure_acknowledged_here,
    },
    Oracle {
        name: "ack-of-2xx-passes",
        section: "RFC 3261 §13.2.2.4, §16.6",
        says: "The ACK of a 2xx goes on, once, with a branch of its own; that of a failure ends here.",
        judge: ack_of_2xx_passes,
    },
];

type Found = Option<(u64, String)>;

/// Judges every INVITE of every server.
pub(super) fn each_invite(court: &mut Court<'_>, judge: fn(&Court<'_>, &Story<'_>, &Transaction) -> Found) {
    for story in court.stories {
        for transaction in story.transactions.iter().filter(|t| t.method == "INVITE" && story.is_judged(t)) {
            if let Some((at, text)) = judge(court, story, transaction) {
                court.accuse(at, &transaction.call_id, text);
            }
        }
    }
}

fn one_final(court: &Court<'_>, story: &Story<'_>, transaction: &Transaction) -> Found {
    let mut failures = BTreeSet::new();
    let mut is_over = false;
    let mut is_accepted = false;
    for &out in &transaction.outs {
        let status = story.status(out);
        let at = story.time(out);
        // Where the table was full, there was nothing to remember this answer by, and a copy may fare better.
        if status == 503 && court.plan().refuses() && !has_state(story, transaction, out) {
            continue;
        }
        match status {
            100..=199 if is_over => return Some((at, format!("{status} after a final response"))),
            100..=199 => {}
            200..=299 => is_accepted = true,
            _ => {
                let tag = story.msg(out).to_tag().unwrap_or("").to_owned();
                if failures.insert((status, tag)) && is_accepted {
                    return Some((at, format!("{status} after a 2xx")));
                }
            }
        }
        is_over |= status >= 200;
    }
    (failures.len() > 1)
        .then(|| (story.time(transaction.outs[0]), format!("more than one failure: {failures:?}")))
}

/// Whether a transaction showed that there is one before `out`: it had sent its request on, or a 100.
fn has_state(story: &Story<'_>, transaction: &Transaction, out: At) -> bool {
    let tried = story.first(&transaction.outs, 100..200).is_some_and(|first| first < out);
    tried || transaction.branches.iter().any(|branch| story.branches[*branch].sends[0] < out)
}

fn final_in_time(_: &Court<'_>, story: &Story<'_>, transaction: &Transaction) -> Found {
    let begun = story.time(*transaction.ins.first()?);
    let mut last = begun;
    for branch in transaction.branches.iter().map(|branch| &story.branches[*branch]) {
        let rang = branch.responses.iter().filter(|at| story.status(**at) < 200);
        last = branch.sends.iter().take(1).chain(rang).map(|at| story.time(*at)).fold(last, u64::max);
    }
    let deadline = last + TIMER_C + LONG + MARGIN;
    let first = story.first(&transaction.outs, 200..700);
    if first.is_some_and(|at| story.time(at) <= deadline) || !story.remembers(transaction, deadline) {
        return None;
    }
    Some((begun, format!("no final response within {} s", (deadline - begun) / SECOND)))
}

fn every_2xx_passes(court: &mut Court<'_>) {
    for story in court.stories {
        for branch in &story.branches {
            let transaction = &story.transactions[branch.transaction];
            if transaction.method != "INVITE" || !story.is_judged(transaction) {
                continue;
            }
            for &response in branch.responses.iter().filter(|at| (200..300).contains(&story.status(**at))) {
                if !is_awaited(story, transaction, branch, response) {
                    continue;
                }
                let (at, tag) = (story.time(response), story.msg(response).to_tag());
                let same = |out: &&At| {
                    **out > response
                        && story.time(**out) == at
                        && story.msg(**out).to_tag() == tag
                        && story.status(**out) == story.status(response)
                };
                let next =
                    branch.responses.iter().find(|other| **other > response).copied().unwrap_or(At::MAX);
                let passed = transaction.outs.iter().filter(same).filter(|out| **out < next).count();
                if passed != 1 {
                    court.accuse(
                        at,
                        &transaction.call_id,
                        format!("a 2xx on {} went upstream {passed} times", branch.id),
                    );
                }
            }
        }
    }
}

/// Whether a 2xx comes while its branch must pass it on (RFC 6026 §7.2, "Proceeding" and "Accepted").
fn is_awaited(story: &Story<'_>, transaction: &Transaction, branch: &Branch, response: At) -> bool {
    let at = story.time(response);
    let Some(first) = story.final_of(branch) else { return false };
    let is_first = first == response;
    let in_time = if is_first {
        at < story.waits_until(branch, response)
    } else {
        (200..300).contains(&story.status(first)) && at < story.time(first) + LONG && at >= story.time(first)
    };
    // What had been given up was not waiting any more; its first 2xx came too late, and so did all others.
    let in_vain = story.time(first) >= story.waits_until(branch, first);
    let has_failed = branch.failures.iter().any(|failure| *failure < first);
    in_time && !in_vain && !has_failed && story.remembers(transaction, at)
}

/// The first failure that went upstream by a transaction: a 503 for want of room leaves none, so that a copy of
/// the request may fare better.
fn first_failure(court: &Court<'_>, story: &Story<'_>, transaction: &Transaction) -> Option<At> {
    let first = story.first(&transaction.outs, 300..700)?;
    if story.status(first) == 503 && court.plan().refuses() { None } else { Some(first) }
}

/// What a branch counts as when the best response is chosen (RFC 3261 §16.7 item 6): more than one status where nobody
/// outside can tell, none while it may still answer.
fn counts_as(
    court: &Court<'_>,
    story: &Story<'_>,
    transaction: &Transaction,
    branch: &Branch,
    out: At,
) -> Vec<u16> {
    let end = story.final_of(branch).filter(|at| *at < out);
    let heard_until = story.waits_until(branch, end.unwrap_or(out));
    let cancelled = transaction.cancels.first().map(|cancel| story.time(*cancel));
    let mut statuses = Vec::new();
    if story.is_given_up(branch, end.unwrap_or(out)) {
        // RFC 3261 §16.9: as if a 503 had come. A shard hears of its own ways only, and one that is cancelled, but does not
        // ring, waits in vain.
        statuses.push(503);
        if court.plan().shards == 1 && cancelled.is_none() {
            return statuses;
        }
        statuses.extend([408, 487]);
        statuses.extend(end.map(|at| story.status(at)));
        return statuses;
    }
    if let Some(at) = end {
        let ended = story.time(at);
        if ended < heard_until + super::LATE {
            statuses.push(story.status(at));
        }
        if ended < heard_until {
            return statuses;
        }
    }
    if heard_until > story.time(out) {
        return statuses;
    }
    // RFC 3261 §16.8: silence is a 408; of a call that was cancelled it is the end that was asked for (§9.1).
    if cancelled.is_none_or(|at| at + super::LATE >= heard_until) {
        statuses.push(408);
    }
    if cancelled.is_some_and(|at| at <= heard_until + super::LATE) {
        statuses.push(487);
    }
    statuses
}

/// Whether a branch went another way when its first one failed: both are one to the server (RFC 3261 §18.1.1). One that
/// has its final response is over, and a later one to the same target is not its other way.
fn is_replaced(story: &Story<'_>, transaction: &Transaction, branch: &Branch) -> bool {
    let uri = story.msg(branch.sends[0]).uri();
    transaction.branches.iter().map(|other| &story.branches[*other]).any(|other| {
        let begun = other.sends[0];
        let is_open = |failure: At| story.final_of(branch).is_none_or(|end| end > failure);
        let replaces =
            |failure: &At| *failure < begun && story.time(*failure) == story.time(begun) && is_open(*failure);
        story.msg(begun).uri() == uri && branch.failures.iter().any(replaces)
    })
}

/// Failures that tell the client how to do better: of their class they are to be preferred (RFC 3261 §16.7 item 6).
const HELPFUL: [u16; 5] = [401, 407, 415, 420, 484];

fn best_response(court: &Court<'_>, story: &Story<'_>, transaction: &Transaction) -> Found {
    let out = first_failure(court, story, transaction)?;
    let (at, status) = (story.time(out), story.status(out));
    let branches = transaction.branches.iter().map(|branch| &story.branches[*branch]);
    let begun = branches.filter(|branch| branch.sends[0] < out && !is_replaced(story, transaction, branch));
    let counted: Vec<_> = begun.map(|branch| counts_as(court, story, transaction, branch, out)).collect();
    // What nobody outside can know is left out: such a branch may be no better than the others.
    let certain: Vec<u16> = counted.iter().filter(|all| all.len() == 1).flatten().copied().collect();
    // A 503 is not passed on (RFC 3261 §16.7 item 6).
    let upstream = |status: u16| if status == 503 { 500 } else { status };
    let mut possible: Vec<u16> = counted.iter().flatten().map(|status| upstream(*status)).collect();
    if certain.is_empty() {
        return None;
    }
    if certain.iter().any(|status| *status >= 600) {
        let text = format!("{status} went upstream though a 6xx had come: {counted:?}");
        return (status < 600 || !possible.contains(&status)).then_some((at, text));
    }
    // A target that there was no room for counts, too, though nobody has seen its branch; of one without breadth the
    // client is told whatever the others say (RFC 5393 §5.3.3).
    if court.plan().refuses() {
        if status == 440 {
            return None;
        }
        possible.extend([500, 513]);
    }
    // So does one whose name nobody knows, or that was cancelled while its name was asked for.
    if court.plan().dns > 0 {
        possible.push(500);
    }
    let is_asking = |cancel: &At| story.names_until(transaction, story.time(*cancel)).is_some();
    possible.extend(transaction.cancels.iter().any(is_asking).then_some(487));
    let class = certain.iter().map(|status| status / 100).min().unwrap_or(6);
    if status / 100 > class {
        return Some((at, format!("{status} went upstream though a better one had come: {counted:?}")));
    }
    if !possible.contains(&status) {
        return Some((at, format!("{status} went upstream, which no branch stands for: {counted:?}")));
    }
    let is_helpful = |status: &u16| HELPFUL.contains(status) && status / 100 == class;
    let loses = status / 100 == class && !is_helpful(&status) && certain.iter().any(is_helpful);
    loses.then(|| (at, format!("{status} went upstream though one that helps had come: {counted:?}")))
}

fn failure_when_all_failed(court: &Court<'_>, story: &Story<'_>, transaction: &Transaction) -> Found {
    let out = first_failure(court, story, transaction)?;
    let at = story.time(out);
    for branch in transaction.branches.iter().map(|branch| &story.branches[*branch]) {
        let begun = branch.sends[0];
        if begun > out {
            return Some((
                story.time(begun),
                "a branch was begun after a failure had gone upstream".to_owned(),
            ));
        }
        let has_final = story.final_of(branch).is_some_and(|at| at < out);
        let has_failed = branch.failures.iter().any(|failure| *failure < out);
        if !has_final && !has_failed && at < story.waits_until(branch, out) {
            return Some((
                at,
                format!("{} went upstream while {} could still answer", story.status(out), branch.id),
            ));
        }
    }
    None
}

fn failure_acknowledged_here(court: &mut Court<'_>) {
    for story in court.stories {
        for branch in &story.branches {
            let transaction = &story.transactions[branch.transaction];
            if transaction.method != "INVITE" || !story.is_judged(transaction) {
                continue;
            }
            for &response in branch.responses.iter().filter(|at| story.status(**at) >= 300) {
                if let Some(wrong) = ack_fault(story, transaction, branch, response) {
                    court.accuse(story.time(response), &transaction.call_id, wrong);
                }
            }
        }
    }
}

fn ack_fault(story: &Story<'_>, transaction: &Transaction, branch: &Branch, response: At) -> Option<String> {
    let at = story.time(response);
    let first = story.final_of(branch)?;
    let sent = story.entry(branch.sends[0]);
    let in_time = if first == response {
        at < story.waits_until(branch, response)
    } else {
        // Timer D; a reliable transport brings no copies.
        story.status(first) >= 300 && at < story.time(first) + LONG && !sent.reliable
    };
    let in_vain = story.time(first) >= story.waits_until(branch, first);
    let has_failed = branch.failures.iter().any(|failure| *failure < response);
    if !in_time || in_vain || has_failed || !story.remembers(transaction, at) {
        return None;
    }
    let next = branch.responses.iter().find(|other| **other > response).copied().unwrap_or(At::MAX);
    let acks: Vec<_> = branch
        .acks
        .iter()
        .filter(|ack| **ack > response && **ack < next && story.time(**ack) == at)
        .collect();
    let [ack] = acks[..] else {
        return Some(format!(
            "a {} on {} was acknowledged {} times",
            story.status(response),
            branch.id,
            acks.len()
        ));
    };
    let copy = story.last_copy(branch, *ack);
    let (ack, invite, answer) = (story.entry(*ack), story.msg(branch.sends[0]), story.msg(response));
    let msg = ack.msg.as_ref()?;
    let same = |name: &str| msg.get(name) == invite.get(name);
    // RFC 3261 §17.1.1.3: the To of the response may differ from the first one's where a copy differs.
    let fits = msg.uri() == invite.uri()
        && same("call-id")
        && same("from")
        && msg.list("route") == invite.list("route")
        && msg.cseq() == invite.cseq()
        && msg.list("via").len() == 1
        && msg.list("via").first() == invite.list("via").first()
        && (msg.get("to") == answer.get("to") || first != response)
        && ack.peer == copy.peer;
    (!fits).then(|| format!("the ACK on {} is not that of §17.1.1.3", branch.id))
}

fn ack_of_2xx_passes(court: &mut Court<'_>) {
    for story in court.stories {
        let own = format!("sip:{}", story.address);
        for (ack, sent) in &story.acks {
            let msg = story.msg(*ack);
            if msg.call_id().starts_with(crate::noise::CALL_ID) {
                continue;
            }
            let at = story.time(*ack);
            let passed = sent
                .iter()
                .filter(|out| story.time(**out) == at && story.msg(**out).call_id() == msg.call_id())
                .count();
            let routes = msg.list("route");
            let ours = routes.first().is_some_and(|route| route.contains(&own))
                && msg.get("max-forwards") != Some("0");
            // A connection may be missing.
            let by_stream = routes.iter().any(|route| route.contains("tcp")) || msg.uri().contains("tcp");
            if ours && !by_stream && passed != 1 {
                court.accuse(at, msg.call_id(), format!("the ACK of a 2xx went on {passed} times"));
            }
        }
        for (ack, _) in &story.leaks {
            let msg = story.msg(*ack);
            // That of a failure which nobody remembers may be taken for another one.
            if msg.call_id().starts_with(crate::noise::CALL_ID) || !is_of_failure(story, *ack) {
                continue;
            }
            court.accuse(story.time(*ack), msg.call_id(), "the ACK of a failure went on".to_owned());
        }
    }
}

/// Whether an ACK acknowledges a failure of the transaction that it belongs to.
fn is_of_failure(story: &Story<'_>, ack: At) -> bool {
    let tag = story.msg(ack).to_tag();
    let transaction = story.transactions.iter().find(|transaction| transaction.acks.contains(&ack));
    transaction.into_iter().flat_map(|transaction| &transaction.outs).any(|out| {
        let is_before = *out < ack && story.status(*out) >= 300;
        is_before && story.msg(*out).to_tag() == tag
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Plan;
    use crate::oracle::story::rig::Script;
    use crate::trace::What;
    use crate::world::World;
    use engine::TransportFailure;

    const REST: &str = "Via: SIP/2.0/UDP 10.1.0.1:5060;branch=z9hG4bK1\r\nFrom: <sip:a@b>;tag=1\r\n\
        To: <sip:u@home.example>\r\nCall-ID: a\r\nCSeq: 1 INVITE\r\n\r\n";

    fn via(branch: &str) -> String {
        format!("Via: SIP/2.0/UDP 10.0.0.1:5060;branch=z9hG4bK{branch}\r\n")
    }

    /// Whether `best` may go upstream when two branches were tried and this came of them, nothing of silent ones.
    fn may_be(best: &str, came: [Option<&str>; 2]) -> bool {
        let mut script = Script::default();
        script.received(0, &format!("INVITE sip:u@home.example SIP/2.0\r\n{REST}"));
        for name in ["a", "b"] {
            script.sent(0, &format!("INVITE sip:{name}@10.1.0.1 SIP/2.0\r\n{}{REST}", via(name)));
        }
        for (name, status) in ["a", "b"].iter().zip(came) {
            if let Some(status) = status {
                script.received(SECOND, &format!("SIP/2.0 {status} -\r\n{}{REST}", via(name)));
            }
        }
        script.sent(LONG, &format!("SIP/2.0 {best} -\r\n{REST}"));
        let world = World::bare(Plan { sizes: crate::faults::ROOMY, dns: 0, ..fair() });
        let stories = [script.story()];
        let oracle = &ORACLES[3];
        let court = Court { world: &world, stories: &stories, oracle, found: Vec::new() };
        best_response(&court, &stories[0], &stories[0].transactions[0]).is_none()
    }

    fn fair() -> Plan {
        let plan = (1..).map(Plan::of).find(|plan| !plan.refuses() && plan.shards == 1);
        plan.expect("a seed without faults")
    }

    #[test]
    fn a_branch_that_has_its_final_response_goes_no_other_way() {
        const FAILED: What = What::TransportFailed(TransportFailure::Unreachable);
        let mut script = Script::default();
        let send = |script: &mut Script, at, name| {
            let text = format!("INVITE sip:u@10.1.0.1 SIP/2.0\r\n{}{REST}", via(name));
            script.happened(at, What::Sent, true, &text);
        };
        script.received(0, &format!("INVITE sip:u@home.example SIP/2.0\r\n{REST}"));
        send(&mut script, 0, "refused");
        script.received(SECOND, &format!("SIP/2.0 488 -\r\n{}{REST}", via("refused")));
        send(&mut script, 2 * SECOND, "again");
        script.happened(3 * SECOND, FAILED, true, "");
        send(&mut script, 3 * SECOND, "another way");
        let story = script.story();
        let replaced = story.branches.iter().map(|one| is_replaced(&story, &story.transactions[0], one));
        assert_eq!(replaced.collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn silence_counts_as_a_408() {
        assert!(may_be("408", [None, None]) && may_be("408", [None, Some("503")]));
        assert!(may_be("404", [None, Some("404")]) && may_be("302", [None, Some("302")]));
        assert!(!may_be("500", [None, Some("503")]) && !may_be("487", [None, Some("503")]));
    }

    #[test]
    fn the_best_is_of_the_lowest_class_and_helps() {
        assert!(may_be("603", [Some("603"), Some("302")]) && !may_be("302", [Some("603"), Some("302")]));
        assert!(may_be("401", [Some("401"), Some("404")]) && !may_be("404", [Some("401"), Some("404")]));
        assert!(may_be("500", [Some("503"), Some("503")]) && !may_be("503", [Some("503"), Some("503")]));
        assert!(!may_be("486", [Some("404"), Some("480")]));
    }
}
