//! What a server refuses by itself (RFC 3261 §8.2, §16.3, §21.4, §21.5): only what there is something against.
//!
//! Other oracles judge what has to be refused; without this one a server that refuses everything would please
//! them all.

use super::registrar::CONTACTS_MAX;
use super::story::At;
use super::{Court, Oracle, Story, Transaction};
use crate::digest::{credentials_header, ours};
use crate::faults::{Plan, SECOND};
use crate::text::{Msg, uri_of, user_of};
use std::collections::BTreeSet;

pub(super) const ORACLES: &[Oracle] = &[Oracle {
    name: "refused-for-a-reason",
    section: "RFC 3261 §8.2, §16.3, §21.4, §21.5",
    says: "A server refuses by itself only what is wrong, and nothing for want of something that it has: room, the \
        addresses of names, its store. A 503 says when to come back.",
    judge: refused_for_a_reason,
}];

fn refused_for_a_reason(court: &mut Court<'_>) {
    for story in court.stories {
        for transaction in story.transactions.iter().filter(|transaction| story.is_judged(transaction)) {
            // What a branch was answered is its next hop's.
            let Some(out) = story.first(&transaction.outs, 300..700) else { continue };
            if !transaction.branches.is_empty() {
                continue;
            }
            let (method, status) = (&transaction.method, story.status(out));
            if !has_reason(court.plan(), story, transaction, out) {
                let text = format!("{method} was refused, {status}, for no reason");
                court.accuse(story.time(out), &transaction.call_id, text);
            }
            if status == 503 && story.msg(out).get("retry-after").is_none() {
                let text = format!("{method} was refused, 503, without a word on when to come back");
                court.accuse(story.time(out), &transaction.call_id, text);
            }
        }
    }
}

/// Whether there is anything that this refusal may stand for.
fn has_reason(plan: &Plan, story: &Story<'_>, transaction: &Transaction, out: At) -> bool {
    let asked = story.msg(transaction.ins[0]);
    match story.status(out) {
        401 | 407 => plan.digest.is_some(),
        483 => asked.get("max-forwards") == Some("0"),
        487 => !transaction.cancels.is_empty(),
        // `targets`, `bindings`, `loops-end` and `breadth-is-shared` judge these, as far as anybody can from outside.
        403 | 404 | 440 | 482 => true,
        // RFC 3261 §10.3 step 7: a REGISTER that is older than another one.
        500 if transaction.method == "REGISTER" => true,
        503 if transaction.method == "REGISTER" && has_many_contacts(story, asked) => true,
        // Who guesses is told to come back later; so is who shares his address, or his user.
        503 if plan.digest.is_some() && has_credentials(asked) => true,
        478 | 500.. => has_faults(plan),
        _ => false,
    }
}

/// Whether a server of this world may lack anything that it needs.
fn has_faults(plan: &Plan) -> bool {
    let is_store_slow = plan.store.failures > 0 || plan.store.slowest > SECOND;
    plan.refuses() || plan.dns > 0 || is_store_slow
}

fn has_credentials(msg: &Msg) -> bool {
    !ours(msg, credentials_header(msg.method())).is_empty()
}

/// Whether this user's REGISTERs name more contacts than a user may have.
fn has_many_contacts(story: &Story<'_>, register: &Msg) -> bool {
    let user = |msg: &Msg| user_of(uri_of(msg.get("to").unwrap_or(""))).to_owned();
    let owner = user(register);
    let of_user = story.transactions.iter().filter(|transaction| transaction.method == "REGISTER");
    let of_user = of_user.map(|transaction| story.msg(transaction.ins[0])).filter(|msg| user(msg) == owner);
    let contacts: BTreeSet<&str> = of_user.flat_map(|msg| msg.list("contact")).map(uri_of).collect();
    contacts.len() > CONTACTS_MAX
}
