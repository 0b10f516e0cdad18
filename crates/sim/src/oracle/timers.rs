//! Retransmissions (RFC 3261 §17, Table 4; RFC 6026; RFC 4320).

use super::story::At;
use super::{Branch, Court, LATE, Oracle, Story, Transaction};
use crate::faults::SECOND;
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
        name: "answered",
        section: "RFC 3261 §8.2, §16.7 item 5, RFC 4320 §4.2",
        says: "A request that is no INVITE gets a final response: at once where it goes nowhere, else with the first \
            2xx or the last failure of its branches, unless that is a 408 or too late.",
        judge: answered,
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
            reaches T2, and then, if nothing else has come of it.",
        judge: trying_when_late,
    },
    Oracle {
        name: "same-bytes",
        section: "RFC 3261 §17.1.1.2, §17.2.1",
        says: "What is sent again is what was sent; a copy of an INVITE that rings is answered as it was last.",
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
    let unanswered = |copy: &&At| {
        let at = story.time(**copy);
        let is_due = acked.is_none_or(|ack| **copy < ack)
            && at + LATE < first.at + LONG
            && story.remembers(transaction, at);
        is_due && !outs.iter().any(|out| *out > **copy && story.time(*out) == at)
    };
    if let Some(copy) = copies.iter().find(unanswered).filter(|_| is_stateful) {
        return Some((story.time(*copy), "a copy of an INVITE that has failed was not answered".to_owned()));
    }
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
            // T1 + 2*T1 + 4*T1: then the interval is T2.
            let due = story.time(transaction.ins[0]) + 7 * T1;
            for &out in transaction.outs.iter().filter(|out| story.status(**out) < 200) {
                let (status, at) = (story.status(out), story.time(out));
                if status != 100 || at < due {
                    let text = format!("{} was answered {status} too early", transaction.method);
                    court.accuse(at, &transaction.call_id, text);
                }
            }
            if is_silent(story, transaction, due + LATE) {
                let text = format!("{} was not answered 100 after 3.5 s", transaction.method);
                court.accuse(due, &transaction.call_id, text);
            }
        }
    }
}

/// Whether a request that was sent on with state had no response at all by then.
fn is_silent(story: &Story<'_>, transaction: &Transaction, then: Micros) -> bool {
    // A CANCEL that belongs to nothing is sent on without state (RFC 3261 §16.10).
    let has_state = transaction.method != "CANCEL" && !transaction.branches.is_empty();
    let answered = transaction.outs.first().is_some_and(|out| story.time(*out) <= then);
    has_state && !answered && story.remembers(transaction, then)
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
        for transaction in story.transactions.iter().filter(|transaction| story.is_judged(transaction)) {
            let found =
                answered_otherwise(story, transaction).or_else(|| rings_otherwise(story, transaction));
            if let Some((at, text)) = found {
                court.accuse(at, &transaction.call_id, text);
            }
        }
    }
}

/// A final response that is sent again and has become another. Copies of a 2xx to an INVITE are the callee's (RFC 6026
/// §7.1); a REGISTER is answered anew each time, with what is bound then, and so is what is challenged (RFC 3261 §8.2.7
/// leaves no more than the tag to be the same).
fn answered_otherwise(story: &Story<'_>, transaction: &Transaction) -> Option<(Micros, String)> {
    let from = match transaction.method.as_str() {
        "REGISTER" => return None,
        "INVITE" => 300,
        _ => 200,
    };
    let mut first: Vec<At> = Vec::new();
    for &out in &transaction.outs {
        let status = story.status(out);
        if status < from || (status == 407 && transaction.branches.is_empty()) {
            continue;
        }
        let is_same = |known: &&At| {
            let same_tag = story.msg(**known).to_tag() == story.msg(out).to_tag();
            let same_way = story.entry(**known).peer == story.entry(out).peer;
            story.status(**known) == status && same_tag && same_way
        };
        match first.iter().find(is_same) {
            Some(known) if story.entry(*known).bytes != story.entry(out).bytes => {
                return Some((story.time(out), format!("a copy of {} differs", story.msg(out).label())));
            }
            Some(_) => {}
            None => first.push(out),
        }
    }
    None
}

/// A copy of an INVITE that is answered with another provisional response than the last one, or not at all (RFC 3261
/// §17.2.1).
fn rings_otherwise(story: &Story<'_>, transaction: &Transaction) -> Option<(Micros, String)> {
    if transaction.method != "INVITE" {
        return None;
    }
    let responses = || transaction.branches.iter().flat_map(|branch| &story.branches[*branch].responses);
    for &copy in transaction.ins.iter().skip(1) {
        let at = story.time(copy);
        let last = transaction.outs.iter().rfind(|out| **out < copy).copied();
        let Some(last) = last.filter(|last| story.status(*last) < 200) else { continue };
        if !story.remembers(transaction, at) {
            continue;
        }
        let next = transaction.outs.iter().find(|out| **out > copy && story.time(**out) == at).copied();
        let Some(next) = next else {
            return Some((at, "a copy of an INVITE that rings was not answered".to_owned()));
        };
        let is_other = story.entry(next).bytes != story.entry(last).bytes;
        if is_other && !responses().any(|response| copy < *response && *response < next) {
            let (next, last) = (story.msg(next).label(), story.msg(last).label());
            return Some((at, format!("a copy of an INVITE was answered {next} after {last}")));
        }
    }
    None
}

/// How long a server may take to answer a request that it does not send on: it asks the store for a user, twice where it
/// reads it again, and for a commit; or names.
const PATIENCE: Micros = 12 * SECOND;

fn answered(court: &mut Court<'_>) {
    for story in court.stories {
        // What becomes of a CANCEL `cancel-answered` judges.
        let is_other = |t: &&Transaction| !matches!(&*t.method, "INVITE" | "CANCEL") && story.is_judged(t);
        for transaction in story.transactions.iter().filter(is_other) {
            let Some((due, why)) = answer_due(court, story, transaction) else { continue };
            let is_answered =
                story.first(&transaction.outs, 200..700).is_some_and(|out| story.time(out) <= due);
            if !is_answered && story.remembers(transaction, due) {
                let text = format!("{} was not answered though {why}", transaction.method);
                court.accuse(due, &transaction.call_id, text);
            }
        }
    }
}

/// When a request that is no INVITE must have its answer, and why; `None` where silence is right: a 408 is sent to nobody,
/// and nothing when its client has given up (RFC 4320 §4.2).
fn answer_due(
    court: &Court<'_>,
    story: &Story<'_>,
    transaction: &Transaction,
) -> Option<(Micros, &'static str)> {
    let begun = story.time(*transaction.ins.first()?);
    let given_up = begun + LONG - LATE;
    if transaction.branches.is_empty() {
        return Some((begun + PATIENCE, "it went nowhere"));
    }
    let mut ends = Vec::new();
    for branch in transaction.branches.iter().map(|branch| &story.branches[*branch]) {
        // RFC 3261 §16.9; a shard hears of its own ways only.
        let failed = branch.failures.first().filter(|failure| story.is_given_up(branch, **failure + 1));
        if failed.is_some() && court.plan().shards > 1 {
            return None;
        }
        let failed = failed.map(|failure| (story.time(*failure), 503));
        let end = story.final_of(branch).map(|at| (story.time(at), story.status(at)));
        let is_in_time =
            |end: &(Micros, u16)| end.0 < given_up && end.0 + LATE < story.time(branch.sends[0]) + LONG;
        ends.push(failed.or(end).filter(is_in_time));
    }
    let accepted = ends.iter().flatten().filter(|(_, status)| *status < 300).map(|(at, _)| *at).min();
    if let Some(at) = accepted {
        return Some((at, "it was accepted"));
    }
    let ends: Vec<(Micros, u16)> = ends.into_iter().collect::<Option<_>>()?;
    let last = ends.iter().map(|(at, _)| *at).max()?;
    // A target whose name is still asked for has not failed: only then all have (RFC 3261 §16.7 item 5).
    let last = story.names_until(transaction, last).unwrap_or(last);
    if last >= given_up {
        return None;
    }
    // A 408 is better than what is of a higher class (RFC 3261 §16.7 item 6).
    let is_better = |status: u16| status < 500 && status != 408 || status >= 600;
    let has_408 = ends.iter().any(|(_, status)| *status == 408);
    let is_heard = !has_408 || ends.iter().any(|(_, status)| is_better(*status));
    is_heard.then_some((last, "all of its branches had failed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Plan;
    use crate::oracle::story::rig::Script;
    use crate::trace::What;
    use crate::world::World;

    const INVITE: &str = "INVITE sip:u@home.example SIP/2.0\r\n";
    const REST: &str = "Via: SIP/2.0/UDP 10.1.0.1:5060;branch=z9hG4bK1\r\nFrom: <sip:a@b>;tag=1\r\n\
        To: <sip:u@home.example>\r\nCall-ID: a\r\nCSeq: 1 INVITE\r\n\r\n";

    /// An INVITE, an answer, a copy of it, and what that was answered.
    fn twice(first: &str, second: Option<&str>) -> Script {
        let mut script = Script::default();
        script.received(0, &format!("{INVITE}{REST}"));
        script.sent(0, &format!("SIP/2.0 {first}\r\n{REST}"));
        script.received(T1, &format!("{INVITE}{REST}"));
        if let Some(second) = second {
            script.sent(T1, &format!("SIP/2.0 {second}\r\n{REST}"));
        }
        script
    }

    #[test]
    fn a_copy_of_an_invite_is_answered_as_it_was_last() {
        let rings = |first, second| {
            let script = twice(first, second);
            let story = script.story();
            rings_otherwise(&story, &story.transactions[0]).is_none()
        };
        assert!(rings("180 Ringing", Some("180 Ringing")));
        assert!(!rings("180 Ringing", Some("100 Trying")) && !rings("180 Ringing", None));
        assert!(rings("486 Busy Here", None));
    }

    /// A MESSAGE for two targets: one fails after a second, the name of the other one is asked for until `until`. When it
    /// has to be answered.
    fn due_with_a_name(until: Micros) -> Option<Micros> {
        const MESSAGE: &str = "MESSAGE sip:u@home.example SIP/2.0\r\n";
        const OWN_VIA: &str = "Via: SIP/2.0/UDP 10.0.0.1:5060;branch=z9hG4bKours\r\n";
        let rest = REST.replace("INVITE", "MESSAGE");
        let mut script = Script::default();
        script.received(0, &format!("{MESSAGE}{rest}"));
        script.sent(0, &format!("{MESSAGE}{OWN_VIA}{rest}"));
        script.happened(0, What::Asked(0, until), false, "");
        // What is asked at another moment is asked for others.
        script.happened(SECOND / 2, What::Asked(0, 20 * SECOND), false, "");
        script.received(SECOND, &format!("SIP/2.0 404 -\r\n{OWN_VIA}{rest}"));
        let plan = (1..).map(Plan::of).find(|plan| plan.shards == 1).expect("a seed with one shard");
        let world = World::bare(plan);
        let stories = [script.story()];
        let court = Court { world: &world, stories: &stories, oracle: &ORACLES[5], found: Vec::new() };
        answer_due(&court, &stories[0], &stories[0].transactions[0]).map(|(due, _)| due)
    }

    #[test]
    fn a_target_whose_name_is_asked_for_has_not_failed() {
        assert_eq!(due_with_a_name(SECOND / 5), Some(SECOND));
        assert_eq!(due_with_a_name(3 * SECOND), Some(3 * SECOND));
        // Nobody waits for a name for ever.
        assert_eq!(due_with_a_name(30 * SECOND), Some(4 * SECOND + LATE));
    }

    #[test]
    fn a_failure_that_is_sent_again_stays_the_same() {
        let same = |second| {
            let script = twice("486 Busy Here", Some(second));
            let story = script.story();
            answered_otherwise(&story, &story.transactions[0]).is_none()
        };
        assert!(same("486 Busy Here") && !same("486 Busy"));
    }
}
