//! What servers are configured with: the files of `crates/sim/conf`, each in more than one edition, and the
//! tables that a server reads while it runs.

use super::Role;
use crate::faults::{Keeping, Plan};
use modules::{Domains, Settings};
use route::{NoFiles, Program};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An edition of a configuration file or of a table. They differ in what a server visibly does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Edition {
    /// What servers begin with.
    One,
    /// Another one.
    Two,
    /// One with an error: it is refused, and what was in use stays.
    Wrong,
}

impl Edition {
    /// How it names itself in what passes through it.
    pub fn name(self) -> &'static str {
        match self {
            Edition::One => "one",
            Edition::Two => "two",
            Edition::Wrong => "wrong",
        }
    }
}

/// A configuration that has been read.
pub(super) type Configured = (Arc<Program>, Arc<Settings>);

/// By what they were read with; `None`: refused.
type Read = BTreeMap<String, Option<Configured>>;

thread_local! {
    /// Configurations that have been read: they are the same in thousands of worlds.
    static CONFIGURATIONS: RefCell<Read> = const { RefCell::new(BTreeMap::new()) };
}

/// The configuration of server `index`; `None` if it is refused, as `strowger check` refuses it.
pub(super) fn read(plan: &Plan, role: Role, index: usize, edition: Edition) -> Option<Configured> {
    let next = if index + 2 >= plan.servers {
        "home.example".to_owned()
    } else {
        format!("edge{}.example", index + 1)
    };
    let next = format!("\"sip:{next}:5060\"");
    let mode = match plan.keeping {
        Keeping::Memory => "0",
        Keeping::WriteThrough => "1",
        Keeping::WriteBack => "2",
    };
    let mut defines = vec![("NEXT", next.as_str()), ("DB_MODE", mode)];
    if plan.keeping != Keeping::Memory {
        defines.push(("WITH_STORE", ""));
    }
    if plan.lax_edges && role == Role::Edge {
        defines.push(("WITHOUT_MAXFWD", ""));
    }
    if plan.changes {
        defines.push(("WITH_CHANGES", ""));
    }
    let algorithms;
    if let Some(digest) = &plan.digest {
        let names: Vec<_> = digest.algorithms.iter().map(|algorithm| algorithm.name()).collect();
        algorithms = format!("\"{}\"", names.join(","));
        defines.push(("WITH_DIGEST", ""));
        defines.push(("ALGORITHMS", &algorithms));
        if !digest.holds_hashes {
            defines.push(("WITH_PASSWORDS", ""));
        }
    }
    match edition {
        Edition::One => {}
        Edition::Two => defines.push(("EDITION_TWO", "")),
        Edition::Wrong => defines.push(("EDITION_WRONG", "")),
    }
    let (name, text) = match role {
        Role::Home => ("home.cfg", include_str!("../../conf/home.cfg")),
        Role::Edge => ("edge.cfg", include_str!("../../conf/edge.cfg")),
    };
    CONFIGURATIONS.with_borrow_mut(|read| {
        read.entry(format!("{name} {defines:?}")).or_insert_with(|| load(name, text, &defines)).clone()
    })
}

fn load(name: &str, text: &str, defines: &[(&str, &str)]) -> Option<Configured> {
    let catalogue = modules::catalogue();
    let loaded = route::load(text, name, &catalogue, &NoFiles, defines).ok()?;
    let settings = Settings::from_program(&loaded.program).ok()?;
    Some((Arc::new(loaded.program), Arc::new(settings)))
}

/// The tables `domain` and `domain_attrs` in an edition, as a database has them.
///
/// # Errors
///
/// What the server says of a table that makes no sense.
pub(super) fn domains(settings: &Settings, edition: Edition) -> Result<Domains, String> {
    let row = |columns: &[&str]| columns.iter().map(|text| Some((*text).to_owned())).collect::<Vec<_>>();
    let mut rows = vec![row(&["home.example", "home"])];
    if edition == Edition::Wrong {
        rows.push(row(&["no domain", "home"]));
    }
    let second = if edition == Edition::One { "u0" } else { "u1" };
    let attributes = [row(&["home", "mark", "2", edition.name()]), row(&["home", "second", "2", second])];
    Domains::from_rows(&settings.domain, &rows, &attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_wrong_is_refused() {
        for seed in 1..=40 {
            let plan = Plan { changes: true, ..Plan::of(seed) };
            for (role, index) in [(Role::Home, plan.servers - 1), (Role::Edge, 0)] {
                for edition in [Edition::One, Edition::Two, Edition::Wrong] {
                    let is_right = role == Role::Edge || edition != Edition::Wrong;
                    assert_eq!(read(&plan, role, index, edition).is_some(), is_right, "{plan:?} {edition:?}");
                }
            }
        }
        let (_, settings) =
            read(&Plan { changes: true, ..Plan::of(1) }, Role::Home, 0, Edition::One).unwrap();
        assert!(domains(&settings, Edition::Two).is_ok() && domains(&settings, Edition::Wrong).is_err());
    }
}
