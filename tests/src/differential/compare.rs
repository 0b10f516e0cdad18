//! Differences between two servers' outcomes, and the list of those that are known.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::normal::{Normal, Plain};

/// How much of a line a difference shows: it is to be recognised, not to be read.
const SHOWN: usize = 160;

/// One difference in one case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// The case.
    pub case: String,
    /// What differs: `status` (of the answer), `relay` (what goes on), `smuggled` (readers that find in it what
    /// was to be removed), or the header fields and bodies of the `request` that goes on or of the `response`.
    pub what: String,
    /// What Strowger does.
    pub ours: String,
    /// What the other server does.
    pub theirs: String,
}

/// All differences of a case.
pub fn differences(case: &str, ours: &Normal, theirs: &Normal) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut differ = |what: &str, ours: String, theirs: String| {
        if ours != theirs {
            let (case, what) = (case.to_owned(), what.to_owned());
            found.push(Difference { case, what, ours: shown(&ours), theirs: shown(&theirs) });
        }
    };
    differ("status", ours.told(), theirs.told());
    differ("relay", ours.went_on(), theirs.went_on());
    differ("smuggled", ours.found_by(), theirs.found_by());
    for (what, ours, theirs) in
        [("request", &ours.forwarded, &theirs.forwarded), ("response", &ours.answers, &theirs.answers)]
    {
        for (ours, theirs) in ours.iter().zip(theirs).filter(|(ours, theirs)| ours.start == theirs.start) {
            let (ours, theirs) = apart(ours, theirs);
            differ(what, ours, theirs);
        }
    }
    found
}

/// The lines that only one of two messages has.
fn apart(ours: &Plain, theirs: &Plain) -> (String, String) {
    let only = |these: &Plain, those: &Plain| {
        let mut left = those.lines.clone();
        let missing = these.lines.iter().filter(|line| {
            let found = left.iter().position(|other| other == *line);
            found.map(|at| left.remove(at)).is_none()
        });
        let missing: Vec<String> = missing.map(|line| shown(line)).collect();
        if missing.is_empty() { "-".to_owned() } else { missing.join(" | ") }
    };
    let (first, second) = (only(ours, theirs), only(theirs, ours));
    if first == second && ours != theirs {
        return (format!("in another order: {first}"), second);
    }
    (first, second)
}

fn shown(text: &str) -> String {
    if text.len() <= 3 * SHOWN {
        return text.to_owned();
    }
    // What is left of escaped text is ASCII.
    format!("{}… ({} characters)", &text[..SHOWN], text.len())
}

/// The differences that are known: lines of the entry of `docs/differences.md`, profiles, case,
/// what, ours, theirs.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    lines: BTreeMap<Difference, (BTreeSet<String>, String)>,
}

impl Expected {
    /// The entry of what nobody has looked at yet.
    pub const NEW: &'static str = "?";

    /// Reads the list.
    ///
    /// # Panics
    ///
    /// When a line has not six columns.
    pub fn read(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let line = |line: &str| {
            let columns: Vec<&str> = line.split('\t').collect();
            let &[entry, profiles, case, what, ours, theirs] = columns.as_slice() else {
                panic!("a line of the list has six columns: {line}")
            };
            let own = str::to_owned;
            let difference =
                Difference { case: own(case), what: own(what), ours: own(ours), theirs: own(theirs) };
            (difference, (profiles.split(',').map(own).collect(), own(entry)))
        };
        Self { lines: lines.map(line).collect() }
    }

    /// The list of what was seen, each with the entry that it has here.
    #[must_use]
    pub fn renewed(&self, seen: &[(String, Difference)]) -> Self {
        let mut lines: BTreeMap<Difference, (BTreeSet<String>, String)> = BTreeMap::new();
        for (profile, difference) in seen {
            let entry = || {
                let known = self.lines.get(difference).map(|(_, entry)| entry.clone());
                (BTreeSet::new(), known.unwrap_or_else(|| Self::NEW.to_owned()))
            };
            lines.entry(difference.clone()).or_insert_with(entry).0.insert(profile.clone());
        }
        Self { lines }
    }

    /// What this list has of these profiles and the other has not, a line each.
    pub fn missing_from(&self, other: &Expected, profiles: &[&str]) -> Vec<String> {
        let mut missing = Vec::new();
        for (difference, (seen, entry)) in &self.lines {
            let known = other.lines.get(difference).map(|(profiles, _)| profiles);
            for profile in seen.iter().filter(|profile| profiles.contains(&profile.as_str())) {
                if known.is_none_or(|known| !known.contains(profile)) {
                    missing.push(format!("{entry}\t{profile}\t{difference}"));
                }
            }
        }
        missing
    }

    /// Every entry that is named.
    pub fn entries(&self) -> BTreeMap<String, usize> {
        let mut entries = BTreeMap::new();
        for (profiles, entry) in self.lines.values() {
            *entries.entry(entry.clone()).or_default() += profiles.len();
        }
        entries
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# What differs from Kamailio 5.6.3, and the entry of docs/differences.md that says why."
        )?;
        writeln!(f, "# entry\tprofiles\tcase\twhat\tours\ttheirs")?;
        for (difference, (profiles, entry)) in &self.lines {
            let profiles: Vec<&str> = profiles.iter().map(String::as_str).collect();
            writeln!(f, "{entry}\t{}\t{difference}", profiles.join(","))?;
        }
        Ok(())
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\t{}\t{}\t{}", self.case, self.what, self.ours, self.theirs)
    }
}
