//! `sipstone scenarios`: the table of what can be offered.

use super::exit::{Exit, Refusal};
use super::mix::PRESETS;
use super::result;
use crate::scenario::ALL;
use crate::spec::{Auth, Proxy, Scenario};
use clap::Args;
use std::fmt::Write;

/// List the scenarios and mixes: what each sends, what counts as success, what is timed
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  sipstone scenarios")]
pub(super) struct ScenariosArgs {}

pub(super) fn scenarios(_: &ScenariosArgs) -> Result<Exit, Refusal> {
    result::print(&table())?;
    Ok(Exit::Fine)
}

/// The table, as text.
fn table() -> String {
    let mut text = String::from(
        "Messages at the server, in + out, of one operation (a challenge is --auth challenge):\n\n",
    );
    let _ = writeln!(
        text,
        "  {:<16} {:<10} {:<10} {:<10} timed",
        "scenario", "stateless", "stateful", "challenge"
    );
    for scenario in ALL {
        let facts = scenario.facts();
        let stateful =
            if facts.messages.2 { count(scenario, Proxy::Stateful, Auth::None) } else { "".into() };
        let _ = writeln!(
            text,
            "  {:<16} {:<10} {:<10} {:<10} {}",
            facts.id,
            count(scenario, Proxy::Stateless, Auth::None),
            stateful,
            count(scenario, Proxy::Stateful, Auth::Challenge),
            facts.latency,
        );
        let registered = if facts.preamble { "; the users are registered first" } else { "" };
        let _ = writeln!(text, "    {}\n    success: {}{registered}", facts.summary, facts.success);
    }
    text.push_str("\nMixes:\n\n");
    for preset in &PRESETS {
        let _ = writeln!(text, "  {:<16} {}", format!("mix:{}", preset.name), preset.summary);
    }
    text.push_str(
        "  --mix A=W,B=W    scenarios with weights of your own, as in --mix 'invite=7,register=3'\n",
    );
    text
}

fn count(scenario: Scenario, proxy: Proxy, auth: Auth) -> String {
    let (messages_in, messages_out) = scenario.messages(proxy, auth, false);
    format!("{messages_in} + {messages_out}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_scenario_and_mix() {
        let text = table();
        for name in super::super::mix::names() {
            assert!(text.contains(&name), "{name}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    }
}
