//! CANCEL (RFC 3261 §9, §16.10, §16.7 item 10).

use super::story::At;
use super::{Branch, Court, Oracle, Story, Transaction};

pub(super) const ORACLES: &[Oracle] = &[
    Oracle {
        name: "losers-cancelled",
        section: "RFC 3261 §16.7 item 10",
        says: "A 2xx, or a 6xx, has all other branches cancelled, and none begun any more.",
        judge: losers_cancelled,
    },
    Oracle {
        name: "cancel-passes",
        section: "RFC 3261 §16.10, §9.2",
        says: "A CANCEL of an INVITE without a final response has all its branches cancelled.",
        judge: cancel_passes,
    },
    Oracle {
        name: "cancel-answered",
        section: "RFC 3261 §9.2, §16.10",
        says: "A CANCEL of an INVITE that is here is answered 200, at once, and each copy of it; one of a request that \
            is not known is not.",
        judge: cancel_answered,
    },
    Oracle {
        name: "cancel-form",
        section: "RFC 3261 §9.1",
        says: "A CANCEL is made of the INVITE that was sent, goes the same way, and only after a provisional \
            response.",
        judge: cancel_form,
    },
    Oracle {
        name: "cancel-has-a-reason",
        section: "RFC 3261 §9.2, §16.8",
        says: "A branch is cancelled because of a CANCEL, of another branch's final response, or of Timer C; \
            never else.",
        judge: cancel_has_a_reason,
    },
];

/// Judges the branches of every INVITE of every server.
fn each_branch(court: &mut Court<'_>, judge: fn(&Story<'_>, &Transaction, &Branch) -> Option<(At, String)>) {
    for story in court.stories {
        for branch in &story.branches {
            let transaction = &story.transactions[branch.transaction];
            if transaction.method != "INVITE" || !story.is_judged(transaction) {
                continue;
            }
            if let Some((at, text)) = judge(story, transaction, branch) {
                court.accuse(story.time(at), &transaction.call_id, text);
            }
        }
    }
}

/// Whether a branch that should be cancelled from `since` on is: at once if it rings, else with its first
/// provisional response (RFC 3261 §9.1).
fn is_cancelled_since(
    story: &Story<'_>,
    transaction: &Transaction,
    branch: &Branch,
    since: At,
) -> Option<(At, String)> {
    let end = story.final_of(branch);
    if end.is_some_and(|end| end < since) || branch.failures.iter().any(|failure| *failure < since) {
        return None;
    }
    if story.time(since) + super::LATE >= story.waits_until(branch, since) {
        return None;
    }
    let first = story.first(&branch.responses, 100..700)?;
    // Without a provisional response there is nothing to cancel.
    if story.status(first) >= 200 {
        return None;
    }
    let due = first.max(since);
    let at = story.time(due);
    let in_vain = first > since && at + super::LATE >= story.waits_until(branch, first);
    let ended =
        end.is_some_and(|end| story.time(end) <= at) || branch.failures.iter().any(|f| story.time(*f) <= at);
    let cancelled = branch.cancels.first().is_some_and(|cancel| story.time(*cancel) <= at);
    if cancelled || in_vain || ended || !story.remembers(transaction, at) {
        return None;
    }
    Some((due, format!("{} was not cancelled", branch.id)))
}

fn losers_cancelled(court: &mut Court<'_>) {
    each_branch(court, |story, transaction, branch| {
        let accepted = story.first(&transaction.outs, 200..300);
        let begun = branch.sends[0];
        if let Some(accepted) = accepted.filter(|accepted| *accepted < begun) {
            return Some((begun, format!("{} was begun after a 2xx at {}", branch.id, story.time(accepted))));
        }
        let is_winner = story.final_of(branch).is_some_and(|at| story.status(at) < 300);
        if let Some(accepted) = accepted.filter(|_| !is_winner) {
            return is_cancelled_since(story, transaction, branch, accepted);
        }
        let others = transaction.branches.iter().map(|other| &story.branches[*other]);
        let declined = others.filter(|other| other.id != branch.id).filter_map(|other| {
            let at = story.final_of(other).filter(|at| story.status(*at) >= 600)?;
            let in_time = story.time(at) + super::LATE < story.waits_until(other, at);
            let failed = other.failures.iter().any(|failure| *failure < at);
            (in_time && !failed && at > begun).then_some(at)
        });
        is_cancelled_since(story, transaction, branch, declined.min()?)
    });
}

fn cancel_passes(court: &mut Court<'_>) {
    each_branch(court, |story, transaction, branch| {
        let cancel = *transaction.cancels.first()?;
        let over = story.first(&transaction.outs, 200..700).is_some_and(|out| out < cancel);
        if over || !story.remembers(transaction, story.time(cancel)) || branch.sends[0] > cancel {
            return None;
        }
        is_cancelled_since(story, transaction, branch, cancel)
    });
}

fn cancel_answered(court: &mut Court<'_>) {
    for story in court.stories {
        for transaction in story.transactions.iter().filter(|t| t.method == "CANCEL" && story.is_judged(t)) {
            let first = transaction.ins[0];
            let at = story.time(first);
            if is_of_nothing(story, transaction) {
                let text = "a CANCEL of a request that is not known was answered 200".to_owned();
                court.accuse(at, &transaction.call_id, text);
            }
            let of_this = |other: &&Transaction| other.method == "INVITE" && other.cancels.contains(&first);
            let Some(invite) = story.transactions.iter().find(of_this) else { continue };
            let alive = story.is_judged(invite) && story.remembers(invite, at) && !invite.branches.is_empty();
            let within =
                story.first(&invite.outs, 200..700).is_none_or(|out| story.time(out) + crate::phone::T1 > at);
            // Where there is no room, later copies may find that the INVITE has gone, by Timer I.
            let known = if court.plan().refuses() { crate::phone::T4 } else { crate::phone::LONG };
            let soon = transaction.outs.iter().filter(|out| story.time(**out) < at + known);
            let mut statuses: Vec<_> = soon.map(|out| story.status(*out)).collect();
            let answered = transaction.outs.first().is_some_and(|out| story.time(*out) == at);
            statuses.dedup();
            if alive && within && (!answered || statuses != [200]) {
                court.accuse(at, &transaction.call_id, format!("a CANCEL was answered {statuses:?}"));
            }
            let mut sent =
                transaction.branches.iter().map(|branch| story.time(story.branches[*branch].sends[0]));
            if let Some(sent) = sent.find(|sent| alive && within && *sent < at + known) {
                court.accuse(sent, &transaction.call_id, "a copy of a CANCEL went on".to_owned());
            }
        }
    }
}

/// Whether a CANCEL was answered 200 here though no request with its branch has come, or none that the server remembers (RFC
/// 3261 §9.2, §16.10).
fn is_of_nothing(story: &Story<'_>, transaction: &Transaction) -> bool {
    let accepted = story.first(&transaction.outs, 200..300).filter(|_| transaction.branches.is_empty());
    let Some(out) = accepted else { return false };
    let cancel = story.msg(transaction.ins[0]);
    let is_its = |other: &Transaction| {
        let asked = story.msg(other.ins[0]);
        let same = (asked.branch(), asked.sent_by()) == (cancel.branch(), cancel.sent_by());
        same && other.method != "CANCEL" && story.remembers(other, story.time(out))
    };
    !story.transactions.iter().any(|other| other.ins[0] < out && is_its(other))
}

fn cancel_form(court: &mut Court<'_>) {
    each_branch(court, |story, _, branch| {
        let invite = story.msg(branch.sends[0]);
        for &cancel in &branch.cancels {
            let provisional = story.first(&branch.responses, 100..200).is_some_and(|at| at < cancel);
            if !provisional {
                return Some((cancel, format!("{} was cancelled before a provisional response", branch.id)));
            }
            let (entry, msg) = (story.entry(cancel), story.msg(cancel));
            let same = |name: &str| msg.get(name) == invite.get(name);
            let fits = msg.uri() == invite.uri()
                && ["call-id", "from", "to"].iter().all(|name| same(name))
                && msg.list("route") == invite.list("route")
                && msg.cseq() == invite.cseq()
                && msg.list("via") == invite.list("via").into_iter().take(1).collect::<Vec<_>>()
                && entry.peer == story.last_copy(branch, cancel).peer
                && msg.body.is_empty();
            if !fits {
                return Some((cancel, format!("the CANCEL on {} is not that of its INVITE", branch.id)));
            }
        }
        let first = *branch.cancels.first()?;
        let ended = story.final_of(branch).is_some_and(|end| end < first);
        ended.then(|| (first, format!("{} was cancelled after its final response", branch.id)))
    });
}

fn cancel_has_a_reason(court: &mut Court<'_>) {
    each_branch(court, |story, transaction, branch| {
        let first = *branch.cancels.first()?;
        let at = story.time(first);
        let asked = transaction.cancels.iter().any(|cancel| *cancel < first);
        let accepted = story.first(&transaction.outs, 200..300).is_some_and(|out| out < first);
        let others = transaction.branches.iter().map(|other| &story.branches[*other]);
        let settled = others.filter(|other| other.id != branch.id).any(|other| {
            let statuses = other
                .responses
                .iter()
                .filter(|response| **response < first)
                .map(|response| story.status(*response));
            statuses.into_iter().any(|status| (200..300).contains(&status) || status >= 600)
        });
        let timer_c = at >= story.waits_until(branch, first);
        (!asked && !accepted && !settled && !timer_c)
            .then(|| (first, format!("{} was cancelled for no reason", branch.id)))
    });
}
