//! Retransmissions (RFC 3261 §17, Table 4; RFC 6026; RFC 4320).

use super::story::At;
use super::{Branch, Court, LATE, Oracle, Story, Transaction};
use crate::phone::{LONG, T1, T2};
use crate::trace::Micros;

pub(super) const ORACLES: &[Oracle] = &[
    Oracle {
        name: "timer-a",
        section: "RFC 3261 §17.1.1.2",
        says: "An INVITE is sent again after T1, 2*T1, 4*T1, … until a response or Timer B; never on a \
            reliable transport.",
        judge: |court| each_branch(court, "INVITE"),
    },
    Oracle {
        name: "timer-e",
        section: "RFC 3261 §17.1.2.2",
        says: "A request that is no INVITE is sent again after T1, 2*T1, … T2, and after T2 once a \
            provisional response came.",
        judge: |court| each_branch(court, ""),
    },
    Oracle {
        name: "timer-e-of-cancel",
        section: "RFC 3261 §9.1, §17.1.2.2",
        says: "A CANCEL is a request of its own, sent again as such.",
        judge: timer_e_of_cancel,
    },
    Oracle {
        name: "timer-g",
        section: "RFC 3261 §17.2.1",
        says: "A failure is sent again after T1, 2*T1, … T2 until its ACK or Timer H, and whenever the \
            INVITE comes again.",
        judge: timer_g,
    },
    Oracle {
        name: "no-408",
        section: "RFC 4320 §4.2",
        says: "A request that is no INVITE gets no 408: nobody would hear it in time.",
        judge: no_408,
    },
    Oracle {
        name: "nothing-late",
        section: "RFC 3261 §17.1.2.2, RFC 4320 §4.2",
        says: "A request that is no INVITE gets no final response any more when its client's Timer F has fired.",
        judge: nothing_late,
    },
    Oracle {
        name: "trying-when-late",
        section: "RFC 4320 §4.1",
        says: "A request that is no INVITE gets no provisional response but 100, and that not before Timer E \
            reaches T2.",
        judge: trying_when_late,
    },
    Oracle {
        name: "same-bytes",
        section: "RFC 3261 §17.1.1.2, §17.2.1",
        says: "What is sent again is what was sent.",
        judge: same_bytes,
    },
];

/// What a client transaction does.
struct Course<'a> {
    sends: &'a [At],
    /// The first provisional response, and the first final one.
    provisional: Option<At>,
    end: Option<At>,
    invite: bool,
    /// When the transport failed.
    failures: &'a [At],
    /// Nothing needs to be sent after this.
    until: Micros,
}

/// What is wrong with the times of these requests.
fn course_fault(story: &Story<'_>, course: &Course<'_>) -> Option<(Micros, String)> {
    let first = story.entry(*course.sends.first()?);
    if first.reliable {
        // An INVITE whose connection breaks goes once more, at once: its receiver takes that for a copy (§17.2.3).
        let replaces = |at: At| {
            let ends = |failure: &&At| story.time(**failure) == story.time(at) && story.is_break(**failure);
            course.invite && course.failures.iter().any(|failure| *failure < at && ends(&failure))
        };
        let mut copies = course.sends[1..].iter().filter(|at| story.time(**at) > first.at).enumerate();
        let (_, again) = copies.find(|(place, at)| *place > 0 || !replaces(**at))?;
        return Some((story.time(*again), "sent again on a reliable transport".to_owned()));
    }
    let stopped = if course.invite { course.provisional } else { None }.into_iter().chain(course.end).min();
    let (mut due, mut interval, mut last) = (first.at + T1, T1, first.at);
    for &again in &course.sends[1..] {
        let at = story.time(again);
        if stopped.is_some_and(|stopped| stopped < again) {
            return Some((at, "sent again though a response had come".to_owned()));
        }
        if at < due || at > due + LATE {
            return Some((
                at,
                format!("sent again after {} ms, not {} ms", (at - last) / 1_000, (due - last) / 1_000),
            ));
        }
        if at > course.until.saturating_add(LATE) {
            return Some((at, "sent again after Timer B, F or the end of its transaction".to_owned()));
        }
        last = at;
        interval = next_interval(story, course, again, interval);
        due = at + interval;
    }
    let is_over =
        stopped.is_some_and(|stopped| story.time(stopped) <= due + LATE) || due + LATE >= course.until;
    (!is_over).then(|| (due, format!("not sent again at {} ms", (due - first.at) / 1_000)))
}

fn next_interval(story: &Story<'_>, course: &Course<'_>, again: At, interval: Micros) -> Micros {
    if course.invite {
        return interval * 2;
    }
    if course
        .provisional
        .is_some_and(|provisional| provisional < again && story.time(provisional) <= story.time(again))
    {
        return T2;
    }
    (interval * 2).min(T2)
}

fn each_branch(court: &mut Court<'_>, method: &str) {
    for story in court.stories {
        for branch in &story.branches {
            let transaction = &story.transactions[branch.transaction];
            // A CANCEL that belongs to nothing here goes on without state (RFC 3261 §16.10), its sender repeats
            // it.
            let is_stateless = transaction.method == "CANCEL";
            if (transaction.method == "INVITE") != (method == "INVITE")
                || is_stateless
                || !story.is_judged(transaction)
            {
                continue;
            }
            let begun = story.time(branch.sends[0]);
            let course = Course {
                sends: &branch.sends,
                provisional: story.first(&branch.responses, 100..200),
                end: story.first(&branch.responses, 200..700),
                invite: method == "INVITE",
                failures: &branch.failures,
                until: until(story, transaction, branch, begun),
            };
            if let Some((at, text)) = course_fault(story, &course) {
                court.accuse(
                    at,
                    &transaction.call_id,
                    format!("{} on {}: {text}", transaction.method, branch.id),
                );
            }
        }
    }
}

/// Timers B and F, transport errors, and kills end everything.
fn until(story: &Story<'_>, transaction: &Transaction, branch: &Branch, begun: Micros) -> Micros {
    let failed = branch.failures.first().map_or(Micros::MAX, |failure| story.time(*failure));
    (begun + LONG).min(failed).min(transaction.forgotten.unwrap_or(Micros::MAX))
}

fn timer_e_of_cancel(court: &mut Court<'_>) {
    for story in court.stories {
        for branch in story.branches.iter().filter(|branch| !branch.cancels.is_empty()) {
            let transaction = &story.transactions[branch.transaction];
            if transaction.method != "INVITE" || !story.is_judged(transaction) {
                continue;
            }
            let begun = story.time(branch.cancels[0]);
            // The end of the INVITE makes the CANCEL pointless.
            let pointless = story.final_of(branch).map_or(Micros::MAX, |end| story.time(end));
            let course = Course {
                sends: &branch.cancels,
                provisional: story.first(&branch.cancel_responses, 100..200),
                end: story.first(&branch.cancel_responses, 200..700),
                invite: false,
                failures: &[],
                until: until(story, transaction, branch, begun).min(pointless),
            };
            if let Some((at, text)) = course_fault(story, &course) {
                court.accuse(at, &transaction.call_id, format!("CANCEL on {}: {text}", branch.id));
            }
        }
    }
}

fn timer_g(court: &mut Court<'_>) {
    for story in court.stories {
        for transaction in story.transactions.iter().filter(|t| t.method == "INVITE" && story.is_judged(t)) {
            // Where the table was full, nothing remembers the 503.
            let refused = story.first(&transaction.outs, 503..504).is_some() && court.plan().refuses();
            if let Some((at, text)) = timer_g_fault(story, transaction).filter(|_| !refused) {
                court.accuse(at, &transaction.call_id, text);
            }
        }
    }
}

fn timer_g_fault(story: &Story<'_>, transaction: &Transaction) -> Option<(Micros, String)> {
    let outs: Vec<At> = transaction.outs.iter().copied().filter(|out| story.status(*out) >= 300).collect();
    let first = story.entry(*outs.first()?);
    let acked = transaction.acks.iter().copied().find(|ack| *ack > outs[0]);
    let is_stateful = !transaction.branches.is_empty() || story.first(&transaction.outs, 100..101).is_some();
    let mut copies = transaction.ins.clone();
    copies.retain(|copy| *copy > outs[0]);
    let (mut due, mut interval) = (first.at + T1, T1);
    for &out in &outs[1..] {
        let at = story.time(out);
        // Each copy of the INVITE asks for one.
        let copy = copies.iter().position(|copy| *copy < out && story.time(*copy) == at);
        let asked = copy.map(|copy| copies.remove(copy)).is_some();
        if first.reliable && !asked {
            return Some((at, "a failure was sent again on a reliable transport".to_owned()));
        }
        if acked.is_some_and(|ack| ack < out) && is_stateful {
            return Some((at, "a failure was sent again after its ACK".to_owned()));
        }
        if is_stateful && at > first.at + LONG + LATE {
            return Some((at, "a failure was sent again after Timer H".to_owned()));
        }
        if asked {
            continue;
        }
        if at < due || at > due + LATE {
            return Some((
                at,
                format!(
                    "a failure was sent again {} ms after the first, not {} ms",
                    (at - first.at) / 1_000,
                    (due - first.at) / 1_000
                ),
            ));
        }
        interval = (interval * 2).min(T2);
        due = at + interval;
    }
    let is_stateful = !transaction.branches.is_empty() || story.first(&transaction.outs, 100..101).is_some();
    let acked = acked.is_some_and(|ack| story.time(ack) <= due + LATE);
    let is_over = due + LATE >= first.at + LONG || !story.remembers(transaction, due + LATE);
    (is_stateful && !first.reliable && !acked && !is_over).then(|| {
        (due, format!("a failure was not sent again {} ms after the first", (due - first.at) / 1_000))
    })
}

fn no_408(court: &mut Court<'_>) {
    for story in court.stories {
        for transaction in story.transactions.iter().filter(|t| t.method != "INVITE" && story.is_judged(t)) {
            if let Some(out) = story.first(&transaction.outs, 408..409) {
                court.accuse(
                    story.time(out),
                    &transaction.call_id,
                    format!("{} was answered 408", transaction.method),
                );
            }
        }
    }
}

fn nothing_late(court: &mut Court<'_>) {
    for story in court.stories {
        // A CANCEL of nothing is answered through us without state, and a request without a branch by us, at once.
        let relayed = |t: &&Transaction| !matches!(&*t.method, "INVITE" | "CANCEL") && !t.branches.is_empty();
        for transaction in story.transactions.iter().filter(|t| story.is_judged(t)).filter(relayed) {
            let given_up = story.time(transaction.ins[0]) + LONG;
            let Some(out) = story.first(&transaction.outs, 200..700) else { continue };
            let at = story.time(out);
            if at >= given_up && story.remembers(transaction, at) {
                let text = format!("{} was answered {} too late", transaction.method, story.status(out));
                court.accuse(at, &transaction.call_id, text);
            }
        }
    }
}

fn trying_when_late(court: &mut Court<'_>) {
    for story in court.stories {
        for transaction in story.transactions.iter().filter(|t| t.method != "INVITE" && story.is_judged(t)) {
            let begun = story.time(transaction.ins[0]);
            for &out in transaction.outs.iter().filter(|out| story.status(**out) < 200) {
                let (status, at) = (story.status(out), story.time(out));
                // T1 + 2*T1 + 4*T1: then the interval is T2.
                if status != 100 || at < begun + 7 * T1 {
                    court.accuse(
                        at,
                        &transaction.call_id,
                        format!("{} was answered {status} too early", transaction.method),
                    );
                }
            }
        }
    }
}

fn same_bytes(court: &mut Court<'_>) {
    for story in court.stories {
        for branch in &story.branches {
            let transaction = &story.transactions[branch.transaction];
            if !story.is_judged(transaction) {
                continue;
            }
            for copies in [&branch.sends, &branch.cancels] {
                let peer = copies.first().map(|at| story.entry(*at).peer);
                let differs = |at: &&At| {
                    Some(story.entry(**at).peer) == peer
                        && story.entry(**at).bytes != story.entry(copies[0]).bytes
                };
                if let Some(at) = copies.iter().find(differs) {
                    court.accuse(
                        story.time(*at),
                        &transaction.call_id,
                        format!("a copy on {} differs", branch.id),
                    );
                }
            }
        }
    }
}
