//! Requests while tables and configurations are changed (RFC 3261 §16.2: one request, one response context).

use super::story::At;
use super::{Court, Oracle, Story, Transaction};
use crate::server::{CONFIGURATION_HEADER, Edition, SECOND_HEADER, TABLE_HEADER};
use crate::text::Msg;
use crate::trace::Micros;
use std::collections::BTreeSet;

pub(super) const ORACLES: &[Oracle] = &[Oracle {
    name: "one-edition",
    section: "RFC 3261 §16.2",
    says: "A request is served by one edition of configuration and tables, one that was in use, and \
        never by a mix.",
    judge: one_edition,
}];

fn one_edition(court: &mut Court<'_>) {
    if !court.plan().changes {
        return;
    }
    let home = court.plan().servers - 1;
    let (story, server) = (&court.stories[home], &court.world.servers[home]);
    for transaction in story.transactions.iter().filter(|transaction| story.is_judged(transaction)) {
        let found = wrong_edition(story, transaction, TABLE_HEADER, &server.tables_in_use).or_else(|| {
            wrong_edition(story, transaction, CONFIGURATION_HEADER, &server.configurations_in_use)
        });
        if let Some((at, text)) = found {
            court.accuse(story.time(at), &transaction.call_id, text);
        }
    }
}

/// What is wrong with the editions that the branches of a request name in `header`.
fn wrong_edition(
    story: &Story<'_>,
    transaction: &Transaction,
    header: &str,
    in_use: &[(Micros, Edition)],
) -> Option<(At, String)> {
    let first = *transaction.ins.first()?;
    let before = story.msg(first).list(header).len();
    // A request within a dialog is not for the home's users: it is passed on as it is.
    if story.msg(first).to_tag().is_some() {
        return None;
    }
    let mut named = BTreeSet::new();
    for branch in transaction.branches.iter().map(|branch| &story.branches[*branch]) {
        let sent = branch.sends[0];
        let msg = story.msg(sent);
        let here: Vec<&str> =
            added(msg, header, before).into_iter().chain(added_second(msg, story, first, header)).collect();
        if here.is_empty() {
            continue;
        }
        named.extend(here.iter().copied());
        if named.len() > 1 {
            return Some((sent, format!("{} is served by a mix of {named:?}", transaction.method)));
        }
        let was_in_use = may_be(in_use, story.time(first), story.time(sent));
        if !was_in_use.contains(here[0]) {
            return Some((
                sent,
                format!("{} is served by {here:?}, in use were {was_in_use:?}", transaction.method),
            ));
        }
    }
    None
}

/// The values of a header behind the first `before`, which earlier hops added.
fn added<'m>(msg: &'m Msg, header: &str, before: usize) -> Vec<&'m str> {
    msg.list(header).split_off(before.min(msg.list(header).len()))
}

/// What the failure route says of the tables, which it knows from the beginning of the call.
fn added_second<'m>(msg: &'m Msg, story: &Story<'_>, first: At, header: &str) -> Vec<&'m str> {
    if header != TABLE_HEADER {
        return Vec::new();
    }
    added(msg, SECOND_HEADER, story.msg(first).list(SECOND_HEADER).len())
}

/// The editions that were in use at some time between the two.
fn may_be(in_use: &[(Micros, Edition)], from: Micros, to: Micros) -> BTreeSet<&'static str> {
    let until = |place: usize| in_use.get(place + 1).map_or(Micros::MAX, |(at, _)| *at);
    // What is wrong is never in use.
    let fits = |(place, (at, edition)): &(usize, &(Micros, Edition))| {
        *at <= to && until(*place) >= from && *edition != Edition::Wrong
    };
    in_use.iter().enumerate().filter(fits).map(|(_, (_, edition))| edition.name()).collect()
}
