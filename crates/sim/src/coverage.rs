//! Which states and transitions the seeds have met, as seen from outside.

use crate::faults::Plan;
use crate::oracle::{Branch, Story, Transaction};
use crate::text::user_of;
use crate::world::World;
use std::collections::BTreeMap;

/// How often each point was met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(pub BTreeMap<String, u64>);

impl Coverage {
    /// Counts what one run met.
    pub fn count(&mut self, world: &World, stories: &[Story<'_>]) {
        for story in stories {
            for transaction in story.transactions.iter().filter(|transaction| story.is_judged(transaction)) {
                self.transaction(story, transaction);
            }
            for branch in &story.branches {
                let transaction = &story.transactions[branch.transaction];
                self.branch(story, transaction, branch);
            }
        }
        for server in &world.servers {
            for counters in server.counters() {
                self.counters(counters);
            }
            for (name, count) in server.judged_credentials() {
                self.met(format!("credentials: {name}"), count);
            }
        }
        let ends = world.trace.entries.iter().filter(|entry| matches!(entry.what, crate::trace::What::Ended));
        self.met("stream: last word".to_owned(), ends.count() as u64);
        self.faults(&world.plan);
        for (name, count) in &world.struck {
            self.met(format!("fault struck: {name}"), *count);
        }
    }

    /// Faults that the plan has, so that none falls away unseen; whether they hit something is counted apart.
    fn faults(&mut self, plan: &Plan) {
        let planned = [
            ("kills", plan.kills as u64),
            ("kills about commits", plan.kills_about_commits as u64),
            ("drains", plan.drains as u64),
            ("shard restarts", plan.shard_restarts as u64),
            ("restarts of one shard of several", plan.lone_restarts as u64),
            ("clock jumps", plan.clock_jumps as u64),
            ("clock steps", plan.clock_steps as u64),
            ("partitions", plan.partitions as u64),
            ("noise", plan.noise as u64),
            ("worlds with a small MTU", u64::from(plan.link.mtu > 0)),
            ("worlds with changes of tables", u64::from(plan.changes)),
            ("worlds with faults of names", u64::from(plan.dns > 0)),
            ("replays", plan.digest.as_ref().map_or(0, |digest| digest.replays as u64)),
        ];
        for (name, count) in planned {
            self.met(format!("fault: {name}"), count);
        }
    }

    /// Adds what another run met.
    pub fn add(&mut self, other: &Coverage) {
        for (point, count) in &other.0 {
            *self.0.entry(point.clone()).or_default() += count;
        }
    }

    fn met(&mut self, point: String, count: u64) {
        if count > 0 {
            *self.0.entry(point).or_default() += count;
        }
    }

    fn transaction(&mut self, story: &Story<'_>, transaction: &Transaction) {
        let kind = kind(&transaction.method);
        let mut state = "begin".to_owned();
        let mut events: Vec<(usize, String)> = Vec::new();
        events.extend(transaction.ins.iter().skip(1).map(|at| (*at, "copy".to_owned())));
        events.extend(transaction.outs.iter().map(|at| (*at, class(story.status(*at)))));
        events.extend(transaction.cancels.iter().map(|at| (*at, "cancel".to_owned())));
        events.extend(transaction.acks.iter().map(|at| (*at, "ack".to_owned())));
        events.sort();
        for (_, event) in events {
            self.met(format!("server {kind}: {state} - {event}"), 1);
            if event.ends_with("xx") || event == "ack" {
                state = event;
            }
        }
        self.met(format!("server {kind}: {} branches", transaction.branches.len().min(3)), 1);
        self.met(format!("server {kind}: another user"), u64::from(is_tried_again(story, transaction)));
    }

    fn branch(&mut self, story: &Story<'_>, transaction: &Transaction, branch: &Branch) {
        let kind = kind(&transaction.method);
        let mut state = "calling".to_owned();
        let mut events: Vec<(usize, String)> = Vec::new();
        events.extend(branch.sends.iter().skip(1).map(|at| (*at, "again".to_owned())));
        events.extend(branch.responses.iter().map(|at| (*at, class(story.status(*at)))));
        events.extend(branch.cancels.iter().map(|at| (*at, "cancelled".to_owned())));
        events.extend(branch.failures.iter().map(|at| (*at, "unreachable".to_owned())));
        events.sort();
        for (_, event) in events {
            self.met(format!("client {kind}: {state} - {event}"), 1);
            let is_state = event.ends_with("xx") || event == "cancelled";
            if is_state && !state.ends_with("final") {
                state = if matches!(event.as_str(), "1xx" | "cancelled") {
                    event
                } else {
                    format!("{event} final")
                };
            }
        }
        let transport = if story.entry(branch.sends[0]).reliable { "stream" } else { "datagram" };
        self.met(format!("client {kind}: by {transport}"), 1);
    }

    fn counters(&mut self, counters: &engine::Counters) {
        let counted = [
            ("parse errors", counters.parse_errors),
            ("invalid requests", counters.invalid_requests),
            ("invalid responses", counters.invalid_responses),
            ("too large", counters.too_large),
            ("foreign responses", counters.foreign_responses),
            ("stray responses", counters.stray_responses),
            ("forwarded without state", counters.forwarded_stateless),
            ("timeouts", counters.timeouts),
            ("ack timeouts", counters.ack_timeouts),
            ("transport errors", counters.transport_errors),
            ("table full", counters.table_full),
            ("too many wait", counters.suspended_full),
            ("loops", counters.loops),
            ("too many hops", counters.too_many_hops),
            ("resolves", counters.resolves),
            ("resolve failures", counters.resolve_failures),
            ("held back", counters.held_back),
            ("cancels", counters.cancels_out),
        ];
        for (name, count) in counted {
            self.met(format!("counter: {name}"), count);
        }
    }
}

/// Whether the home's failure route has tried another user.
fn is_tried_again(story: &Story<'_>, transaction: &Transaction) -> bool {
    let asked = transaction.ins.first().map_or("", |at| user_of(story.msg(*at).uri()));
    let Some(first) = asked.strip_prefix("second-") else { return false };
    let mut tried =
        transaction.branches.iter().map(|branch| story.msg(story.branches[*branch].sends[0]).uri());
    tried.any(|uri| user_of(uri) != first && user_of(uri) != asked)
}

fn kind(method: &str) -> &str {
    match method {
        "INVITE" | "CANCEL" | "REGISTER" => method,
        _ => "other",
    }
}

fn class(status: u16) -> String {
    format!("{}xx", status / 100)
}

impl Coverage {
    /// The text of a floor: each point with nine tenths of what was met, so that small changes of chance do
    /// not count.
    pub fn floor(&self, seeds: u64) -> String {
        let mut text = format!(
            "# What seeds 1 to {seeds} meet at least: nine tenths of what they met when this was written (SIM_BLESS=1).\n"
        );
        for (point, count) in &self.0 {
            text.push_str(&format!("{} {point}\n", (count * 9).div_ceil(10)));
        }
        text
    }

    /// The lines of a floor that are not reached.
    pub fn below(&self, floor: &str) -> Vec<String> {
        let lines = floor.lines().filter(|line| !line.starts_with('#'));
        let fallen = lines.filter_map(|line| {
            let (least, point) = line.split_once(' ')?;
            let met = self.0.get(point).copied().unwrap_or(0);
            let least: u64 = least.parse().ok()?;
            (met < least).then(|| format!("{point}: {met}, not {least}"))
        });
        fallen.collect()
    }
}
