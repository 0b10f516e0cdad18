//! The registrar and what finds its bindings (RFC 3261 §10.3, §16.5), against a model that is kept beside
//! it: for each contact, what it may be bound to. As long as an answer is awaited there are several
//! possibilities; a 200 leaves one.

use super::story::At;
use super::{Court, Oracle, Story, Transaction};
use crate::faults::{Keeping, SECOND};
use crate::text::{Msg, param, uri_of, user_of};
use crate::trace::{Micros, Shard, What};
use std::collections::BTreeMap;

/// How far seconds may be off: they are rounded.
const ROUNDING: Micros = 2 * SECOND;
/// How long a REGISTER may wait for its user's secret (`query_timeout`, twice where it is read again): its
/// bindings begin then.
const WAIT_FOR_SECRET: Micros = 4 * SECOND;
/// How long a 200 may wait for the commit (`commit_timeout`).
const HELD: Micros = 2 * SECOND;
/// `default_expires` of the servers' configurations (s).
const DEFAULT_EXPIRES: u64 = 300;
/// `min_expires` of the servers' configurations (s): shorter intervals are made as long.
const MIN_EXPIRES: u64 = 30;
/// `max_contacts` of the servers' configurations.
pub(super) const CONTACTS_MAX: usize = 4;

pub(super) const ORACLES: &[Oracle] = &[
    Oracle {
        name: "bindings",
        section: "RFC 3261 §10.3 steps 7 and 8",
        says: "A 200 to REGISTER names exactly what is bound: updates are applied wholly or not, in order of \
            CSeq, and stay. With write-back a server that dies loses nothing older than the flush interval, but \
            what its commits failed for; what has been committed stays.",
        judge: |court| judge(court, Question::Answers),
    },
    Oracle {
        name: "targets",
        section: "RFC 3261 §16.5, §10.3",
        says: "A request goes to contacts that are bound to its user, is not refused while there is one, and an INVITE has \
            not failed before all of them were tried.",
        judge: |court| judge(court, Question::Targets),
    },
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Question {
    Answers,
    Targets,
}

/// A contact of a user.
type Key = (String, String);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Bound {
    expires_at: Micros,
    call_id: String,
    cseq: u32,
}

/// What a contact may be bound to.
#[derive(Clone, Debug, Default)]
struct Contact {
    /// `None`: not at all.
    possible: Vec<Option<Bound>>,
    /// What it may have been since its last 200, for a server that dies.
    since: Vec<(Micros, Option<Bound>)>,
    /// Requests about it that wait for their answer.
    pending: usize,
    /// How many requests about it there have been.
    touched: usize,
}

impl Contact {
    fn add(&mut self, at: Micros, bound: Option<Bound>) {
        if !self.possible.contains(&bound) {
            self.possible.push(bound);
        }
        // It may be refused: what was possible before is so still.
        self.since.extend(self.possible.iter().map(|bound| (at, bound.clone())));
    }

    fn may_be_bound(&self, now: Micros, rounding: Micros) -> bool {
        self.possible.iter().flatten().any(|bound| bound.expires_at + rounding > now)
    }

    fn must_be_bound(&self, now: Micros, rounding: Micros) -> bool {
        self.possible
            .iter()
            .all(|bound| bound.as_ref().is_some_and(|bound| bound.expires_at > now + rounding))
    }
}

/// One REGISTER.
struct Attempt {
    /// What each contact becomes by it.
    changes: Vec<(Key, Option<Bound>)>,
    /// How often each had been touched then.
    touched: Vec<usize>,
    answered: bool,
    /// It is known what has become of it.
    settled: bool,
}

struct Model<'w> {
    contacts: BTreeMap<Key, Contact>,
    attempts: BTreeMap<usize, Attempt>,
    story: &'w Story<'w>,
    keeping: Keeping,
    /// How far the store may be behind, if its commits do not fail.
    window: Micros,
    /// What was bound before this is in the store (write-back).
    committed: Micros,
    /// When a commit failed last.
    commit_failed: Micros,
    /// How far the server's wall clock was off at each of its starts that is still to come, the next one last.
    clocks: Vec<i64>,
    /// The same at its last one.
    clock: i64,
    /// How far times of bindings may be off.
    rounding: Micros,
    /// How long a REGISTER may wait whose answer is held back, if answers are; each copy of it waits for one of
    /// its own.
    held: Option<Micros>,
    /// Whether nothing keeps the server from trying a contact: it has room, and needs neither names nor connections.
    has_all: bool,
}

fn judge(court: &mut Court<'_>, question: Question) {
    let plan = court.plan().clone();
    let home = plan.servers - 1;
    let story = &court.stories[home];
    // What the store may be behind: a flush, a commit, and all of it again.
    let window = 3 * SECOND + 2 * plan.store.slowest;
    let holds_answers = plan.holds_answers && plan.keeping == Keeping::WriteThrough;
    // A 200 that is held back says what was bound when it was written.
    let read = plan.digest.as_ref().map_or(0, |_| (2 * plan.store.slowest).min(WAIT_FOR_SECRET));
    let held = holds_answers.then_some(HELD + read);
    let rounding = ROUNDING + held.unwrap_or(read);
    let mut model = Model {
        contacts: BTreeMap::new(),
        attempts: BTreeMap::new(),
        story,
        keeping: plan.keeping,
        window,
        committed: 0,
        commit_failed: 0,
        clocks: court.world.servers[home].clocks_in_use.iter().skip(1).rev().map(|clock| clock.1).collect(),
        clock: 0,
        rounding,
        held,
        has_all: !plan.refuses() && plan.dns == 0 && plan.tcp == 0 && plan.link.mtu == 0,
    };
    let mut owners = BTreeMap::new();
    for (number, transaction) in story.transactions.iter().enumerate() {
        for at in transaction.ins.iter().chain(&transaction.outs) {
            owners.insert(*at, number);
        }
    }
    for (at, entry) in story.trace.entries.iter().enumerate() {
        match entry.what {
            What::Restarted(server) if server == home => model.restart(entry.at),
            What::ShardRestarted(server, shard) if server == home => model.restart_shard(shard),
            What::Committed(server, upto) if server == home => model.committed = model.committed.max(upto),
            What::CommitFailed(server) if server == home => model.commit_failed = entry.at,
            _ => {}
        }
        let Some(&number) = owners.get(&at) else { continue };
        let transaction = &story.transactions[number];
        let msg = story.msg(at);
        let is_noise = transaction.call_id.starts_with(crate::noise::CALL_ID);
        let found = match (transaction.method.as_str(), msg.is_request()) {
            // Noise has a user of its own.
            ("REGISTER", true) if !is_noise => model.asked(number, at, msg),
            ("REGISTER", false) if !is_noise => {
                model.answered(number, at, msg).filter(|_| question == Question::Answers)
            }
            (_, true) if !is_noise => {
                model.looked_up(number, at, msg).filter(|_| question == Question::Targets)
            }
            _ => None,
        };
        if let Some(text) = found {
            court.accuse(entry.at, &transaction.call_id, text);
        }
    }
}

/// The contacts of a REGISTER: URI and seconds; `None` for `*`.
fn contacts_of(msg: &Msg) -> Option<Vec<(String, u64)>> {
    let all = msg.list("contact");
    if all == ["*"] {
        return None;
    }
    let header = msg.get("expires").and_then(|value| value.parse().ok()).unwrap_or(DEFAULT_EXPIRES);
    let seconds =
        |value: &str| param(value, "expires").and_then(|value| value.parse().ok()).unwrap_or(header);
    Some(all.into_iter().map(|value| (uri_of(value).to_owned(), seconds(value))).collect())
}

impl Model<'_> {
    fn user(msg: &Msg) -> String {
        user_of(uri_of(msg.get("to").unwrap_or(""))).to_owned()
    }

    fn of_user<'k>(&'k self, user: &'k str) -> impl Iterator<Item = (&'k Key, &'k Contact)> {
        self.contacts.iter().filter(move |((owner, _), _)| owner == user)
    }

    /// A REGISTER came, or a copy of one.
    fn asked(&mut self, number: usize, at: At, msg: &Msg) -> Option<String> {
        let (now, user) = (self.story.time(at), Model::user(msg));
        let bound = |seconds: u64| {
            (seconds > 0).then(|| Bound {
                expires_at: now + seconds.max(MIN_EXPIRES) * SECOND,
                call_id: msg.call_id().to_owned(),
                cseq: msg.cseq(),
            })
        };
        let changes: Vec<(Key, Option<Bound>)> = match contacts_of(msg) {
            Some(contacts) => {
                contacts.into_iter().map(|(uri, seconds)| ((user.clone(), uri), bound(seconds))).collect()
            }
            None => self.of_user(&user).map(|(key, _)| (key.clone(), None)).collect(),
        };
        let mut attempt =
            Attempt { changes: Vec::new(), touched: Vec::new(), answered: false, settled: false };
        for (key, after) in changes {
            let contact = self.contacts.entry(key.clone()).or_insert_with(|| Contact {
                possible: vec![None],
                since: vec![(now, None)],
                ..Contact::default()
            });
            // RFC 3261 §10.3 step 7: what is not newer changes nothing.
            let is_newer = |known: &Option<Bound>| {
                known.as_ref().is_none_or(|known| {
                    known.call_id != msg.call_id() || known.cseq < msg.cseq() || known.expires_at <= now
                })
            };
            if !contact.possible.iter().any(is_newer) {
                continue;
            }
            contact.add(now, after.clone());
            contact.touched += 1;
            contact.pending += 1;
            attempt.touched.push(contact.touched);
            attempt.changes.push((key, after));
        }
        if let Some(known) = self.attempts.get(&number).filter(|known| !known.answered) {
            // A copy of one that waits.
            for (key, _) in &known.changes {
                if let Some(contact) = self.contacts.get_mut(key) {
                    contact.pending = contact.pending.saturating_sub(1);
                }
            }
        }
        self.attempts.insert(number, attempt);
        None
    }

    /// The answer to a REGISTER.
    fn answered(&mut self, number: usize, at: At, msg: &Msg) -> Option<String> {
        let now = self.story.time(at);
        let status = msg.status()?;
        if status < 200 {
            return None;
        }
        let is_last_word = self.is_last_word(number, at);
        let attempt = self.attempts.get_mut(&number)?;
        let is_copy = std::mem::replace(&mut attempt.answered, true);
        let settles = !attempt.settled && is_last_word;
        attempt.settled |= settles;
        for ((key, after), touched) in attempt.changes.iter().zip(&attempt.touched) {
            let Some(contact) = self.contacts.get_mut(key) else { continue };
            if !is_copy {
                contact.pending = contact.pending.saturating_sub(1);
            }
            if !settles {
                continue;
            }
            // With another one on its way at the same time, either may be the last.
            let is_alone = contact.touched == *touched && contact.pending == 0;
            if status < 300 && is_alone {
                // A copy of what is bound already leaves it as it is.
                let same = |known: &Bound| {
                    after.as_ref().is_some_and(|a| (&a.call_id, a.cseq) == (&known.call_id, known.cseq))
                };
                contact.possible.retain(|known| known == after || known.as_ref().is_some_and(same));
                if contact.possible.is_empty() {
                    contact.possible.push(after.clone());
                }
                // In write-back the store may have what was before, still.
                if self.keeping != Keeping::WriteBack {
                    contact.since.clear();
                }
                let left = contact.possible.iter().map(|bound| (now, bound.clone()));
                contact.since.extend(left);
            } else if status >= 300 && is_alone {
                contact.possible.retain(|bound| bound != after || after.is_none());
                if contact.possible.is_empty() {
                    contact.possible.push(None);
                }
                let left = contact.possible.iter().map(|bound| (now, bound.clone()));
                contact.since.extend(left);
            }
        }
        if status >= 300 || is_copy {
            return None;
        }
        self.compare(now, number, msg)
    }

    /// Whether an answer says what has become of its REGISTER. One that was held back does not while a copy
    /// waits for its own, nor if another copy was answered otherwise: each is applied, or undone, by itself (RFC
    /// 3261 §10.3 step 7).
    fn is_last_word(&self, number: usize, at: At) -> bool {
        let Some(held) = self.held else { return true };
        let (story, transaction) = (self.story, &self.story.transactions[number]);
        let said = transaction.outs.iter().filter(|out| **out <= at).map(|out| story.status(*out));
        let finals: Vec<bool> = said.filter(|status| *status >= 200).map(|status| status < 300).collect();
        let mut unanswered = transaction.ins.iter().skip(finals.len()).filter(|copy| **copy < at);
        let is_awaited = unanswered.any(|copy| story.time(*copy) + held > story.time(at));
        !is_awaited && finals.iter().all(|is_ok| Some(is_ok) == finals.first())
    }

    /// The contacts that a 200 names, beside those of the model.
    fn compare(&self, now: Micros, number: usize, ok: &Msg) -> Option<String> {
        let user = Model::user(ok);
        let ins = &self.story.transactions[number].ins;
        // Which copy of the REGISTER a 200 that was held back answers is not to be seen.
        let asked = if self.held.is_some() { ins.first() } else { ins.last() };
        let begun = self.story.time(*asked?);
        let named: BTreeMap<&str, Option<u64>> = ok
            .list("contact")
            .into_iter()
            .map(|value| (uri_of(value), param(value, "expires").and_then(|value| value.parse().ok())))
            .collect();
        if named.len() > CONTACTS_MAX {
            return Some(format!("a 200 names {} contacts where {CONTACTS_MAX} may be", named.len()));
        }
        // What it names is what was bound when it was written; others may have come since.
        let is_calm = self
            .of_user(&user)
            .all(|(_, c)| c.pending == 0 && c.since.iter().all(|(at, _)| *at <= begun || *at == now));
        if !is_calm {
            return None;
        }
        for ((_, uri), contact) in self.of_user(&user) {
            let seconds = named.get(uri.as_str());
            if seconds.is_none() && contact.must_be_bound(now, self.rounding) {
                return Some(format!("a 200 does not name {uri}, which is bound"));
            }
            if seconds.is_some() && !contact.may_be_bound(now, self.rounding) {
                return Some(format!("a 200 names {uri}, which is not bound"));
            }
            if let (Some(Some(seconds)), [Some(bound)]) = (seconds, &contact.possible[..]) {
                let left = bound.expires_at.saturating_sub(now);
                if left.abs_diff(seconds * SECOND) > self.rounding {
                    return Some(format!(
                        "a 200 says that {uri} is bound for {seconds} s, not {} s",
                        left / SECOND
                    ));
                }
            }
        }
        let unknown =
            named.keys().find(|uri| !self.contacts.contains_key(&(user.clone(), (**uri).to_owned())));
        unknown.map(|uri| format!("a 200 names {uri}, which nobody has bound"))
    }

    /// A request for a user came.
    fn looked_up(&self, number: usize, at: At, msg: &Msg) -> Option<String> {
        let transaction = &self.story.transactions[number];
        let now = self.story.time(at);
        let user = user_of(msg.uri()).trim_start_matches("second-");
        let is_first = transaction.ins.first() == Some(&at) && msg.to_tag().is_none();
        let is_user = user.starts_with('u') && msg.uri().contains("home.example");
        if !is_first || !is_user || transaction.method == "CANCEL" {
            return None;
        }
        // A second try behind a failure route goes to another user.
        for branch in transaction.branches.iter().map(|branch| &self.story.branches[*branch]) {
            let sent = self.story.entry(branch.sends[0]);
            if sent.at != now {
                continue;
            }
            let uri = self.story.msg(branch.sends[0]).uri();
            let contact = self.contacts.get(&(user.to_owned(), uri.to_owned()));
            if !contact.is_some_and(|contact| contact.may_be_bound(now, self.rounding)) {
                return Some(format!("a request for {user} went to {uri}, which is not bound"));
            }
        }
        let refused =
            transaction.outs.iter().any(|out| self.story.status(*out) == 404 && self.story.time(*out) == now);
        let is_second = user_of(msg.uri()) != user;
        if let Some(uri) = self.untried(transaction, user, now).filter(|_| !is_second) {
            return Some(format!("a call of {user} failed, and {uri}, which is bound, was not tried"));
        }
        let bound = self.of_user(user).find(|(_, contact)| contact.must_be_bound(now, self.rounding));
        if let Some(((_, uri), _)) = bound.filter(|_| refused && !is_second) {
            return Some(format!("a request for {user} was refused though {uri} is bound"));
        }
        None
    }

    /// A contact of a user that an INVITE, which came now and failed, was not sent to (RFC 3261 §16.6, §16.7 item 6): none is
    /// left out but for another's 2xx or 6xx, for a CANCEL, or for want of something.
    fn untried<'m>(&'m self, transaction: &Transaction, user: &'m str, now: Micros) -> Option<&'m str> {
        let story = self.story;
        let failure = story.first(&transaction.outs, 200..700)?;
        let branches = || transaction.branches.iter().map(|branch| &story.branches[*branch]);
        let is_decided = branches().flat_map(|branch| &branch.responses).any(|response| {
            let status = story.status(*response);
            (200..300).contains(&status) || status >= 600
        });
        let has_failed = transaction.method == "INVITE" && story.status(failure) >= 300 && self.has_all;
        if !has_failed || is_decided || !transaction.cancels.is_empty() || branches().next().is_none() {
            return None;
        }
        let bound = self.of_user(user).filter(|(_, contact)| contact.must_be_bound(now, self.rounding));
        let mut uris = bound.map(|((_, uri), _)| uri.as_str());
        uris.find(|uri| branches().all(|branch| story.msg(branch.sends[0]).uri() != *uri))
    }

    /// A shard died: what waited for its answer there gets none. Bindings are not its own, and stay.
    fn restart_shard(&mut self, shard: Shard) {
        let story = self.story;
        let is_gone = |number: &usize| story.transactions[*number].shard == Some(shard);
        for (_, attempt) in self.attempts.iter_mut().filter(|(number, _)| is_gone(number)) {
            if !std::mem::replace(&mut attempt.answered, true) {
                for (key, _) in &attempt.changes {
                    if let Some(contact) = self.contacts.get_mut(key) {
                        contact.pending = contact.pending.saturating_sub(1);
                        contact.touched += 1;
                    }
                }
            }
            attempt.settled = true;
        }
    }

    /// The server died: what its store may hold is what may be bound now, as long as the wall clock says.
    fn restart(&mut self, now: Micros) {
        let (keeping, rounding) = (self.keeping, self.rounding);
        let (window, committed, commit_failed) = (self.window, self.committed, self.commit_failed);
        let clock = self.clocks.pop().unwrap_or(self.clock);
        let forward = clock - std::mem::replace(&mut self.clock, clock);
        for contact in self.contacts.values_mut() {
            contact.pending = 0;
            contact.touched += 1;
            contact.possible = match keeping {
                Keeping::Memory => vec![None],
                // Since its last 200, any of what was tried.
                Keeping::WriteThrough => contact.since.iter().map(|(_, bound)| bound.clone()).collect(),
                Keeping::WriteBack => {
                    let is_recent = |at: Micros| at >= committed && at.max(commit_failed) + window > now;
                    let settled = contact.since.iter().map(|(at, _)| *at).filter(|at| !is_recent(*at)).max();
                    let may_be = contact.since.iter().filter(|(at, _)| *at >= settled.unwrap_or(0));
                    may_be.map(|(_, bound)| bound.clone()).collect()
                }
            };
            // What had ended is removed some time, and was perhaps not yet: a clock that goes back brings it back.
            if contact.possible.iter().flatten().any(|bound| bound.expires_at <= now + rounding) {
                contact.possible.push(None);
            }
            for bound in contact.possible.iter_mut().flatten() {
                bound.expires_at = bound.expires_at.saturating_add_signed(-forward);
            }
            contact.since = contact.possible.iter().map(|bound| (now, bound.clone())).collect();
        }
        for attempt in self.attempts.values_mut() {
            (attempt.answered, attempt.settled) = (true, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::story::rig::Script;

    const REGISTER: &str = "REGISTER sip:home.example SIP/2.0\r\nVia: SIP/2.0/UDP 10.1.0.1:5060;branch=z9hG4bK1\r\n\
        From: <sip:u@home.example>;tag=1\r\nTo: <sip:u@home.example>\r\nCall-ID: a\r\nCSeq: 1 REGISTER\r\n";

    const CONTACT: &str = "Contact: <sip:u@10.1.0.1:5060>;expires=60\r\n\r\n";

    fn answer(status: u16) -> String {
        let (_, headers) = REGISTER.split_once("\r\n").unwrap();
        format!("SIP/2.0 {status} -\r\n{headers}{}", if status == 200 { CONTACT } else { "\r\n" })
    }

    /// Whether the contact of a story's REGISTERs may be bound in the end, and may be not.
    fn may_be(script: &Script, held: Option<Micros>) -> (bool, bool) {
        let story = script.story();
        let mut model = Model {
            contacts: BTreeMap::new(),
            attempts: BTreeMap::new(),
            story: &story,
            keeping: Keeping::WriteThrough,
            window: 0,
            committed: 0,
            commit_failed: 0,
            clocks: Vec::new(),
            clock: 0,
            rounding: 0,
            held,
            has_all: false,
        };
        for at in 0..script.trace().entries.len() {
            let msg = story.msg(at);
            let wrong = if msg.is_request() { model.asked(0, at, msg) } else { model.answered(0, at, msg) };
            assert_eq!(wrong, None);
        }
        let contact = model.contacts.values().next().unwrap();
        (contact.possible.iter().any(Option::is_some), contact.possible.contains(&None))
    }

    /// A REGISTER that binds, a copy of it while its answer is held back, and both answers.
    fn twice(first: u16, second: u16) -> Script {
        let bind = format!("{REGISTER}{CONTACT}");
        let mut script = Script::default();
        script.received(SECOND, &bind);
        script.received(2 * SECOND, &bind);
        script.sent(2 * SECOND + 1, &answer(first));
        script.sent(3 * SECOND, &answer(second));
        script
    }

    #[test]
    fn a_200_that_was_held_back_says_nothing_of_a_copy_that_still_waits() {
        assert_eq!(may_be(&twice(200, 503), Some(HELD)), (true, true));
        assert_eq!(may_be(&twice(200, 200), Some(HELD)), (true, false));
    }

    #[test]
    fn where_nothing_is_held_back_the_first_answer_says_all() {
        assert_eq!(may_be(&twice(200, 200), None), (true, false));
    }
}
