//! Digest authentication (RFC 3261 §22, RFC 7616, RFC 8760): who gets through, who must, and what a challenge
//! says.

use super::story::At;
use super::{Court, Oracle, Story, Transaction};
use crate::digest::{Algorithm, Params, credentials_header, is_right, ours};
use crate::faults::{Digest, ROOMY, SECOND};
use crate::server::NONCE_EXPIRE;
use crate::text::{Msg, host_of, uri_of, user_of};
use crate::trace::{Micros, What};
use std::collections::BTreeMap;

/// How far the seconds of a nonce may be off: they are whole.
const ROUNDING: Micros = 2 * SECOND;
/// How long a script may wait for the store.
const PATIENCE: Micros = 8 * SECOND;

pub(super) const ORACLES: &[Oracle] = &[
    Oracle {
        name: "only-the-right-pass",
        section: "RFC 3261 §22.1, RFC 7616 §3.4",
        says: "A request that is challenged passes with right credentials of its user and a nonce that the server \
            gave lately, never else.",
        judge: only_the_right_pass,
    },
    Oracle {
        name: "used-once",
        section: "RFC 7616 §3.4, §5.5",
        says: "Credentials serve one request: with the same count of a nonce no other one passes.",
        judge: used_once,
    },
    Oracle {
        name: "the-right-pass",
        section: "RFC 3261 §22.2, RFC 7616 §3.3",
        says: "Who has right credentials, by a young nonce that is used once more, is not challenged again.",
        judge: the_right_pass,
    },
    Oracle {
        name: "challenge-form",
        section: "RFC 7616 §3.3, RFC 8760 §2.4",
        says: "A challenge names each algorithm, the best first, with one fresh nonce, and is stale to those who \
            know their secret.",
        judge: challenge_form,
    },
    Oracle {
        name: "never-challenged",
        section: "RFC 3261 §22.1",
        says: "No ACK and no CANCEL is challenged.",
        judge: never_challenged,
    },
];

/// What is known of the nonces of the home.
struct Nonces<'w> {
    story: &'w Story<'w>,
    digest: &'w Digest,
    /// When each was first given, and in which of the server's lives.
    given: BTreeMap<String, (At, usize)>,
    /// When the server began again.
    restarts: Vec<At>,
    /// When each of its lives began, and how far its wall clock was off then: nonces carry its time.
    clocks: &'w [(Micros, i64)],
}

impl<'w> Nonces<'w> {
    fn read(court: &Court<'w>) -> Option<Nonces<'w>> {
        let world = court.world;
        let digest = world.plan.digest.as_ref()?;
        let home = world.plan.servers - 1;
        let story = &court.stories[home];
        let restarted = |(at, entry): (At, &crate::trace::Entry)| {
            matches!(entry.what, What::Restarted(server) if server == home).then_some(at)
        };
        let restarts: Vec<At> = story.trace.entries.iter().enumerate().filter_map(restarted).collect();
        let clocks = &world.servers[home].clocks_in_use;
        let mut nonces = Nonces { story, digest, given: BTreeMap::new(), restarts, clocks };
        let outs = story.transactions.iter().flat_map(|transaction| &transaction.outs);
        for &out in outs.chain(&story.orphan_responses) {
            for challenge in challenges(story.msg(out)) {
                let life = nonces.life(out);
                let nonce = challenge.get("nonce").unwrap_or("").to_owned();
                let first = nonces.given.entry(nonce).or_insert((out, life));
                if out < first.0 {
                    *first = (out, life);
                }
            }
        }
        Some(nonces)
    }

    /// In which of its lives the server is.
    fn life(&self, at: At) -> usize {
        self.restarts.iter().filter(|restart| **restart < at).count()
    }

    /// A time as the server's wall clock showed it in one of its lives; only differences count.
    fn wall_clock(&self, life: usize, time: Micros) -> i64 {
        let offset = self.clocks.get(life).map_or(0, |(_, offset)| *offset);
        offset.saturating_add_unsigned(time)
    }

    /// Whether a nonce of one life may be taken for its own by another one: its time, in whole seconds and none of before
    /// the first full second of its life, is after the second in which the other one began. That is so if both began in
    /// the same second, or if the wall clock has been set back between them.
    fn is_taken_for_own(&self, given: Micros, life: usize, other: usize) -> bool {
        let second = |life: usize, time: Micros| self.wall_clock(life, time).div_euclid(SECOND as i64);
        let began = |life: usize| second(life, self.clocks.get(life).map_or(0, |(began, _)| *began));
        second(life, given).max(began(life) + 1) > began(other)
    }

    /// Whether a nonce that was given in another life was given at a moment that has come again since, to the microsecond, as
    /// the wall clock was set back: its time and the keyed hash of all that tells nonces apart are the same then, if the
    /// Call-ID is.
    fn is_moment_again(&self, first: At, life: usize, again: At) -> bool {
        let now = self.life(again);
        let moment = |life: usize, at: At| self.wall_clock(life, self.story.time(at));
        life != now && moment(life, first) == moment(now, again)
    }

    /// Requests that the home's script challenges: what comes from itself has been there before.
    fn challenged(&self) -> impl Iterator<Item = (&'w Transaction, &'w Msg)> {
        let (story, address) = (self.story, self.story.address);
        let asked = story.transactions.iter().filter(|t| story.is_judged(t));
        let asked = asked.map(move |transaction| (transaction, story.msg(transaction.ins[0])));
        asked.filter(move |(transaction, msg)| {
            let is_for_home = host_of(msg.uri()) == crate::digest::REALM && msg.to_tag().is_none();
            let is_new = story.entry(transaction.ins[0]).peer.ip() != address.ip();
            matches!(msg.method(), "REGISTER" | "INVITE") && is_for_home && is_new
        })
    }

    /// The first sign that a request got past the challenge.
    fn passed(&self, transaction: &Transaction) -> Option<At> {
        if transaction.method == "REGISTER" {
            return self.story.first(&transaction.outs, 200..300);
        }
        transaction.branches.first().map(|branch| self.story.branches[*branch].sends[0])
    }

    /// What is wrong with the credentials of a request at some time from `from` to `to`; `None`: nothing.
    /// `margin` is what is missing to the end of the nonce's life.
    fn fault(&self, msg: &Msg, from: At, to: At, margin: Micros) -> Option<&'static str> {
        let all = ours(msg, credentials_header(msg.method()));
        let [credentials] = &all[..] else { return Some("no credentials") };
        let of = |name: &str| credentials.get(name).unwrap_or("");
        let named = |header: &str| user_of(uri_of(msg.get(header).unwrap_or("")));
        let algorithm = Algorithm::named(credentials.get("algorithm"));
        if !is_right(credentials, msg.method()) {
            return Some("a wrong response");
        }
        if of("username") != named("from") || (msg.method() == "REGISTER" && of("username") != named("to")) {
            return Some("another user's credentials");
        }
        if of("uri") != msg.uri() {
            return Some("credentials for another URI");
        }
        if !algorithm.is_some_and(|algorithm| self.digest.algorithms.contains(&algorithm)) {
            return Some("an algorithm that was not offered");
        }
        let Some(&(given, life)) = self.given.get(of("nonce")) else { return Some("a nonce of nobody's") };
        let (now, made) = (self.life(to), self.story.time(given));
        let is_other_life = now != life && (margin > 0 || !self.is_taken_for_own(made, life, now));
        if given > to || is_other_life {
            return Some("a nonce of another life");
        }
        let age = self.wall_clock(now, self.story.time(from)) - self.wall_clock(life, made);
        (age.saturating_add_unsigned(margin) > (NONCE_EXPIRE + ROUNDING) as i64).then_some("an old nonce")
    }
}

/// The challenges of a response that the home made itself.
fn challenges(msg: &Msg) -> Vec<Params> {
    let name = match msg.status() {
        Some(401) => "www-authenticate",
        Some(407) => "proxy-authenticate",
        _ => return Vec::new(),
    };
    ours(msg, name)
}

fn only_the_right_pass(court: &mut Court<'_>) {
    let Some(nonces) = Nonces::read(court) else { return };
    for (transaction, msg) in nonces.challenged() {
        let Some(passed) = nonces.passed(transaction) else { continue };
        if let Some(fault) = nonces.fault(msg, transaction.ins[0], passed, 0) {
            let text = format!("{} passed with {fault}", transaction.method);
            court.accuse(nonces.story.time(passed), &transaction.call_id, text);
        }
    }
}

fn used_once(court: &mut Court<'_>) {
    let Some(nonces) = Nonces::read(court) else { return };
    let mut used = BTreeMap::new();
    for (transaction, msg) in nonces.challenged() {
        let Some(passed) = nonces.passed(transaction) else { continue };
        for credentials in ours(msg, credentials_header(msg.method())) {
            let of = |name: &str| credentials.get(name).unwrap_or("").to_owned();
            let request = (msg.call_id(), msg.cseq(), msg.get("contact"));
            // A server that begins again has forgotten all counts. So it must not take nonces of its earlier life:
            // `only-the-right-pass` sees to that, but for lives of less than a second, which nothing tells apart.
            let life = nonces.life(passed);
            let first = *used.entry((of("nonce"), of("nc"), life)).or_insert(request);
            if first != request {
                let text = format!("{} passed with credentials of {first:?}", transaction.method);
                court.accuse(nonces.story.time(passed), &transaction.call_id, text);
            }
        }
    }
}

fn the_right_pass(court: &mut Court<'_>) {
    let plan = court.plan();
    // A store that lies says that there is no such user; a table of nonces that is small forgets some.
    if plan.sizes != ROOMY || (plan.store.failures > 0 && plan.store.lies > 0) {
        return;
    }
    let Some(nonces) = Nonces::read(court) else { return };
    // A store that once refuses is taken for one that lacks the columns of stronger hashes, and stays so.
    let is_stronger = nonces.digest.algorithms.contains(&Algorithm::Sha256);
    if plan.store.failures > 0 && nonces.digest.holds_hashes && is_stronger {
        return;
    }
    let story = nonces.story;
    // When requests with each nonce came, and with which count.
    let mut uses: BTreeMap<String, Vec<(Micros, u32)>> = BTreeMap::new();
    let all = story.transactions.iter().flat_map(|transaction| &transaction.ins);
    for &at in all {
        for credentials in ours(story.msg(at), credentials_header(story.msg(at).method())) {
            uses.entry(credentials.get("nonce").unwrap_or("").to_owned())
                .or_default()
                .push((story.time(at), count_of(&credentials)));
        }
    }
    for (transaction, msg) in nonces.challenged() {
        let first = transaction.ins[0];
        let Some(out) = story.first(&transaction.outs, 200..700) else { continue };
        let is_refused =
            matches!(story.status(out), 400 | 401 | 403 | 407) && transaction.branches.is_empty();
        let is_late = story.time(out) > story.time(first) + PATIENCE;
        if !is_refused || is_late || nonces.life(first) != nonces.life(out) {
            continue;
        }
        if nonces.fault(msg, out, out, PATIENCE).is_some() {
            continue;
        }
        for credentials in ours(msg, credentials_header(msg.method())) {
            let (came, count) = (story.time(first), count_of(&credentials));
            // One with this count or a higher one that came before or meanwhile may have used it up.
            let used = uses.get(credentials.get("nonce").unwrap_or("")).into_iter().flatten();
            let others = used.filter(|(at, other)| *at <= story.time(out) && *other >= count).count();
            if others <= 1 {
                let text = format!("{} of {} with right credentials", story.status(out), transaction.method);
                court.accuse(came, &transaction.call_id, text);
            }
        }
    }
}

fn count_of(credentials: &Params) -> u32 {
    credentials.get("nc").and_then(|count| u32::from_str_radix(count, 16).ok()).unwrap_or(0)
}

fn challenge_form(court: &mut Court<'_>) {
    let Some(nonces) = Nonces::read(court) else { return };
    let story = nonces.story;
    for transaction in &story.transactions {
        let asked = story.msg(transaction.ins[0]);
        let knows =
            ours(asked, credentials_header(asked.method())).iter().any(|c| is_right(c, asked.method()));
        let mut seen: Vec<(At, String)> = Vec::new();
        // What is gathered from branches (RFC 3261 §16.7 item 7) may be this server's own challenges, of a request that
        // came back.
        let is_own = transaction.branches.is_empty();
        for &out in transaction.outs.iter().filter(|_| is_own) {
            let challenges = challenges(story.msg(out));
            let Some(first) = challenges.first() else { continue };
            let algorithms: Vec<_> =
                challenges.iter().map(|c| Algorithm::named(c.get("algorithm"))).collect();
            let offered: Vec<_> = nonces.digest.algorithms.iter().map(|algorithm| Some(*algorithm)).collect();
            let same = |name: &str| challenges.iter().all(|c| c.get(name) == first.get(name));
            let is_stale = first.get("stale").is_some_and(|stale| stale.eq_ignore_ascii_case("true"));
            let given = first.get("nonce").and_then(|nonce| nonces.given.get(nonce));
            let is_fresh = given.is_some_and(|&(at, life)| {
                let is_copy = at == out || story.entry(at).bytes == story.entry(out).bytes;
                is_copy || nonces.is_moment_again(at, life, out)
            });
            let wrong = match () {
                () if algorithms != offered => "other algorithms than are offered",
                () if !same("nonce") || !same("stale") => "several nonces",
                () if !is_fresh => "a nonce that was given before",
                () if first.get("qop") != Some("auth") => "no qop",
                () if is_stale && !knows => "stale=true though the response was wrong",
                () => continue,
            };
            seen.push((out, format!("{} with {wrong}", story.msg(out).label())));
        }
        for (out, text) in seen {
            court.accuse(story.time(out), &transaction.call_id, text);
        }
    }
}

fn never_challenged(court: &mut Court<'_>) {
    let Some(nonces) = Nonces::read(court) else { return };
    let story = nonces.story;
    let outs = story.transactions.iter().flat_map(|transaction| &transaction.outs);
    for &out in outs.chain(&story.orphan_responses) {
        let msg = story.msg(out);
        if matches!(msg.method(), "ACK" | "CANCEL") && !challenges(msg).is_empty() {
            court.accuse(story.time(out), msg.call_id(), format!("{} was challenged", msg.method()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::story::rig::Script;

    #[test]
    fn a_moment_comes_again_only_to_the_microsecond_and_in_another_life() {
        let mut script = Script::default();
        script.happened(SECOND, What::Sent, false, "");
        script.happened(50 * SECOND, What::Restarted(0), false, "");
        script.happened(61 * SECOND, What::Sent, false, "");
        script.happened(61 * SECOND + 1, What::Sent, false, "");
        let story = script.story();
        let digest = Digest { algorithms: vec![Algorithm::Md5], holds_hashes: false, replays: 0 };
        let clocks = [(0, 0), (50 * SECOND, -60 * SECOND as i64)];
        let given = BTreeMap::new();
        let nonces = Nonces { story: &story, digest: &digest, given, restarts: vec![1], clocks: &clocks };
        assert!(nonces.is_moment_again(0, 0, 2));
        assert!(!nonces.is_moment_again(0, 0, 3) && !nonces.is_moment_again(2, 1, 2));
    }
}
