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
        section: "RFC 3261 §16.7 item 6",
        says: "A failure that goes upstream is the best of those that came: a 6xx if there is one, else of \
            the lowest class.",
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
        // Where the table was full, there was nothing to remember this answer by.
        if status == 503 && court.plan().refuses() {
            continue;
        }
        match status {
            100 => {}
            101..=199 if is_over => return Some((at, format!("{status} after a final response"))),
            101..=199 => {}
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

/// The finals that a server had of its branches before `out`, as far as they came while these were waiting.
fn finals_before(story: &Story<'_>, transaction: &Transaction, out: At) -> Vec<u16> {
    let branches = transaction.branches.iter().map(|branch| &story.branches[*branch]);
    let finals = branches.filter_map(|branch| {
        let at = story.final_of(branch).filter(|at| *at < out)?;
        let is_heard = story.time(at) < story.waits_until(branch, at) && !story.is_given_up(branch, at);
        is_heard.then(|| story.status(at))
    });
    finals.collect()
}

/// The first failure that went upstream by a transaction: a 503 for want of room leaves none, so that a copy of
/// the request may fare better.
fn first_failure(court: &Court<'_>, story: &Story<'_>, transaction: &Transaction) -> Option<At> {
    let first = story.first(&transaction.outs, 300..700)?;
    if story.status(first) == 503 && court.plan().refuses() { None } else { Some(first) }
}

fn best_response(court: &Court<'_>, story: &Story<'_>, transaction: &Transaction) -> Found {
    let out = first_failure(court, story, transaction)?;
    let status = story.status(out);
    let finals = finals_before(story, transaction, out);
    let at = story.time(out);
    if finals.is_empty() {
        return None;
    }
    if finals.iter().any(|status| *status >= 600) {
        let text = format!("{status} went upstream though a 6xx had come: {finals:?}");
        return (status < 600).then_some((at, text));
    }
    // A branch that never answered counts as 408, one that could not be reached as 503, one that was cancelled
    // as 487.
    let unanswered = finals.len() < transaction.branches.len();
    let best = finals.iter().map(|status| status / 100).min().unwrap_or(6);
    let ours = unanswered && matches!(status, 408 | 487 | 500);
    if status / 100 > best && !ours {
        return Some((at, format!("{status} went upstream though a better one had come: {finals:?}")));
    }
    let is_received = finals.contains(&status) || (status == 500 && finals.contains(&503));
    // A target that there was no room for counts, too, though nobody has seen its branch.
    if !is_received && !unanswered && !court.plan().refuses() {
        return Some((at, format!("{status} went upstream, which no branch had sent: {finals:?}")));
    }
    (status == 503 && unanswered).then(|| (at, "a 503 of a callee went upstream".to_owned()))
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
            if msg.call_id().starts_with(crate::noise::CALL_ID) {
                continue;
            }
            court.accuse(story.time(*ack), msg.call_id(), "the ACK of a failure went on".to_owned());
        }
    }
}
