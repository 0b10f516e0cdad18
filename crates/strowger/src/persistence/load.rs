//! At start: every binding of the database into the location table, with progress for whoever waits.

use std::fmt;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant as SystemClock};

use indicatif::{ProgressBar, ProgressStyle};
use location::{Kept, Refusal};
use modules::DbMode;
use store::{StoreError, What};

use super::changes::Changes;
use super::keeper::Keeper;
use super::metrics::Metrics;
use super::rows::RowMaker;
use super::{BATCH_ROWS_MAX, REMOVALS_MAX};
use crate::clock::Time;
use crate::striped::Striped;

/// How often a log line tells how far it is, where there is no terminal.
const SAY_EVERY: Duration = Duration::from_secs(2);

/// Why the server does not start: the table, and what the database said.
#[derive(Debug)]
pub(crate) struct LoadError {
    pub(crate) table: String,
    pub(crate) error: StoreError,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot load the bindings of table {}: {}", self.table, self.error)
    }
}

/// Loads all tables and has changes recorded from now on. Rows that name nobody here, or that do not fit, are left out
/// and counted.
///
/// # Errors
///
/// What the database said: a server that starts without its bindings would be a surprise.
pub(crate) fn load(
    keeper: &mut dyn Keeper,
    location: &Striped,
    maker: &RowMaker,
    mode: DbMode,
    metrics: &Metrics,
    time: Time,
) -> Result<u64, LoadError> {
    let begin = SystemClock::now();
    let now = time.now();
    location.begin(now);
    location.track_changes(REMOVALS_MAX);
    let (mut loaded, mut left_out) = (0, LeftOut::default());
    for table in maker.tables() {
        let mut progress = Progress::new(table);
        let (mut key, mut foreign) = (Vec::new(), Changes::default());
        let visited = keeper.load(
            table,
            time.unix_micros(now),
            &mut |read, all| progress.tell(read, all),
            &mut |contact| {
                if !maker.key(table, contact, &mut key) {
                    left_out.nameless += 1;
                    return true;
                }
                // What others wrote is taken over below, before anything changes.
                match location.restore(now, &key, &Kept { is_foreign: false, ..maker.kept(contact) }) {
                    Err(refusal) => left_out.refused(refusal),
                    Ok(()) => {
                        loaded += 1;
                        if contact.is_foreign && mode != DbMode::DatabaseOnly {
                            foreign.push_row(What::Save, table, contact);
                            foreign.push_foreign(table, contact.ruid);
                        }
                    }
                }
                true
            },
        );
        progress.end();
        let failed = |error| LoadError { table: table.clone(), error };
        visited.map_err(failed)?;
        take_over(keeper, &foreign).map_err(failed)?;
    }
    Metrics::add(&metrics.left_out, left_out.count());
    if left_out.count() > 0 {
        tracing::error!("{left_out}");
    }
    tracing::info!("{loaded} bindings loaded in {:.1} s", begin.elapsed().as_secs_f64());
    Ok(loaded)
}

/// Has rows that another server wrote written as ours, so that each binding has one row that is known by its identifier.
fn take_over(keeper: &mut dyn Keeper, foreign: &Changes) -> Result<(), StoreError> {
    if foreign.is_empty() {
        return Ok(());
    }
    tracing::info!("taking over {} bindings that another server wrote", foreign.len() / 2);
    let mut from = 0;
    while from < foreign.len() {
        // An even number: a row and the one that it replaces stay together.
        let to = foreign.len().min(from + BATCH_ROWS_MAX / 2 * 2);
        keeper.write(foreign, from..to)?;
        from = to;
    }
    Ok(())
}

/// Rows that are in the database and not in the location table.
#[derive(Debug, Default)]
struct LeftOut {
    nameless: u64,
    too_many_contacts: u64,
    too_large: u64,
    full: u64,
}

impl LeftOut {
    fn refused(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::TooManyContacts { .. } => self.too_many_contacts += 1,
            Refusal::BindingTooLarge { .. } => self.too_large += 1,
            _ => self.full += 1,
        }
    }

    fn count(&self) -> u64 {
        self.nameless + self.too_many_contacts + self.too_large + self.full
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bindings of the database were left out:", self.count())?;
        let reasons = [
            (self.nameless, "without a user or a domain (is `use_domain` as it was when they were written?)"),
            (self.too_many_contacts, "beyond the contacts that one user may have"),
            (self.too_large, "longer than a binding may be"),
            (self.full, "beyond what the location table holds"),
        ];
        let mut separator = " ";
        for (count, reason) in reasons.iter().filter(|(count, _)| *count > 0) {
            write!(f, "{separator}{count} {reason}")?;
            separator = ", ";
        }
        Ok(())
    }
}

/// A bar on a terminal, else a line of the log now and then.
struct Progress<'t> {
    table: &'t str,
    bar: Option<ProgressBar>,
    said: SystemClock,
}

impl<'t> Progress<'t> {
    fn new(table: &'t str) -> Progress<'t> {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{msg} {bar:40} {human_pos}/{human_len} {per_sec}");
            let bar = ProgressBar::new(0).with_message(format!("Loading {table}"));
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Progress { table, bar, said: SystemClock::now() }
    }

    fn tell(&mut self, read: u64, all: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(all.max(read));
            bar.set_position(read);
        } else if self.said.elapsed() >= SAY_EVERY {
            self.said = SystemClock::now();
            tracing::info!("loading table {}: {read} of {all} bindings", self.table);
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
