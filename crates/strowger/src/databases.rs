//! The databases that a configuration names: opened and checked once at start, before anything is served.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant as SystemClock};

use modules::{Addresses, Domains, Settings};
use store::{Database, Needed, Selector, SelectorState, StoreError, Url};

use crate::reload::{Read, Reading};
use crate::server::StartError;
use crate::services::Shared;
use crate::state;

/// Connections that answer scripts' questions, for each database.
const CONNECTIONS: usize = 4;

/// Questions that may wait for one of them; the next one fails at once.
const WAITING_MAX: usize = 1_024;

/// How long a database may take to answer one call.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long the start waits for a database that is away: both may have been started together.
const START_WAIT: Duration = Duration::from_secs(10);

/// The pause before it is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// One of them.
#[derive(Debug)]
struct Opened {
    database: Database,
    /// Made if scripts ask for rows.
    selector: Option<Selector>,
}

/// All of them, in the order of [`Settings::databases`].
#[derive(Debug, Default)]
pub(crate) struct Databases {
    opened: Vec<Opened>,
    /// Where the configuration is: names of files in it are relative to that.
    directory: PathBuf,
}

/// Reads the URLs of a configuration; nothing is connected.
///
/// # Errors
///
/// What to write instead of the first that is none.
pub(crate) fn urls(settings: &Settings, state: &Path) -> Result<Vec<Url>, StoreError> {
    settings.databases.iter().map(|url| Url::parse(&url.0, state)).collect()
}

impl Databases {
    /// Opens all, makes files of SQLite that are not there, and checks the tables that the configuration needs.
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong and what to do.
    pub(crate) fn open(settings: &Settings, state: &Path, directory: &Path) -> Result<Databases, StartError> {
        let urls = urls(settings, state).map_err(|error| StartError(error.to_string()))?;
        let mut opened = Vec::new();
        for (index, url) in urls.iter().enumerate() {
            if let Url::Sqlite(file) = url {
                state::make_for(file, state)?;
            }
            let database = open_patiently(url)?;
            let tables = needed(settings, index);
            if matches!(url, Url::Sqlite(_)) {
                // It needs no set-up: tables of names of one's own included.
                database.complete(&tables).map_err(|error| StartError(error.to_string()))?;
            }
            // Who says that the version does not count has a table that differs, and knows it.
            let checked: Vec<Needed> = tables
                .iter()
                .filter(|table| table.kind != "subscriber" || settings.auth_db.version_check)
                .cloned()
                .collect();
            database.check(&checked).map_err(|error| StartError(error.to_string()))?;
            // Location tables, domains and addresses are read whole; the others are asked row by row.
            let is_asked =
                tables.iter().any(|table| matches!(table.kind, "subscriber" | "dbaliases" | "uri"));
            let selector = is_asked.then(|| database.selector(CONNECTIONS, WAITING_MAX)).transpose();
            let selector = selector.map_err(|error| StartError(error.to_string()))?;
            opened.push(Opened { database, selector });
        }
        Ok(Databases { opened, directory: directory.to_owned() })
    }

    /// The one of that place.
    pub(crate) fn database(&self, place: u16) -> Option<&Database> {
        self.opened.get(usize::from(place)).map(|opened| &opened.database)
    }

    /// Who answers scripts' questions, in the order of the databases.
    pub(crate) fn selectors(&self) -> Vec<Option<Selector>> {
        self.opened.iter().map(|opened| opened.selector.clone()).collect()
    }

    /// The sum of what the selectors counted, `is_up` if all are; `None` if there are none.
    pub(crate) fn selector_state(&self) -> Option<SelectorState> {
        let states = self.opened.iter().filter_map(|opened| opened.selector.as_ref()).map(Selector::state);
        states.reduce(|sum, state| SelectorState {
            answered: sum.answered + state.answered,
            refused: sum.refused + state.refused,
            failed: sum.failed + state.failed,
            full: sum.full + state.full,
            reconnects: sum.reconnects + state.reconnects,
            waiting: sum.waiting + state.waiting,
            is_up: sum.is_up && state.is_up,
        })
    }

    /// Whether there is any user; `None` if no configuration asks for users, or nobody knows.
    pub(crate) fn have_users(&self, settings: &Settings) -> Option<bool> {
        let needed = settings.tables_needed();
        let table = needed.iter().find(|table| table.kind == "subscriber")?;
        let columns: Vec<(String, String)> =
            table.columns.iter().map(|(kamailio, here)| ((*kamailio).to_owned(), here.clone())).collect();
        let mut users = self.database(table.database)?.users_in(&table.table, &columns).ok()?;
        let mut any = false;
        users.list(None, 1, &mut |_| any = true).ok()?;
        Some(any)
    }

    /// Reads the tables of domains and addresses, at start and again when an administrator says so. If one cannot be read,
    /// or says what cannot be, what was read before stays.
    pub(crate) fn read_tables(&self, settings: &Settings, shared: &Shared) -> Reading {
        let mut reading = Reading::default();
        match self.domains(settings) {
            Ok(Some(domains)) => {
                let wanted = &settings.domain;
                let from = vec![wanted.table.clone(), wanted.attributes_table.clone()];
                reading.read.push(Read { what: "domains", from, count: domains.len() });
                shared.set_domains(domains);
            }
            Ok(None) => {}
            Err(error) => reading.wrong.push(format!("the domains stay as they are: {error}")),
        }
        match self.addresses(settings) {
            Ok(Some((addresses, count))) => {
                let from = origins_of_addresses(settings);
                reading.read.push(Read { what: "addresses", from, count });
                shared.set_addresses(addresses);
            }
            Ok(None) => {}
            Err(error) => reading.wrong.push(format!("the groups of addresses stay as they are: {error}")),
        }
        reading
    }

    /// The domains; `None` if the configuration has no use for them.
    fn domains(&self, settings: &Settings) -> Result<Option<Domains>, String> {
        let wanted = &settings.domain;
        let Some(database) = wanted.database.and_then(|place| self.database(place)) else { return Ok(None) };
        let rows = rows_of(database, &wanted.table, &wanted.columns, Domains::ROWS_MAX)?;
        let columns = &wanted.attributes_columns;
        let attributes = rows_of(database, &wanted.attributes_table, columns, Domains::ATTRIBUTES_MAX)?;
        Domains::from_rows(wanted, &rows, &attributes).map(Some)
    }

    /// The groups of addresses, from their tables or from a file, and how many entries these have.
    fn addresses(&self, settings: &Settings) -> Result<Option<(Addresses, usize)>, String> {
        let wanted = &settings.permissions;
        let database = wanted.database.and_then(|place| self.database(place));
        let read = |is_wanted: bool, table: &str, columns: &[String]| match database {
            Some(database) if is_wanted => rows_of(database, table, columns, Addresses::ROWS_MAX),
            _ => Ok(Vec::new()),
        };
        let trusted = read(wanted.reads_trusted(), &wanted.trusted_table, &wanted.trusted_columns)?;
        if let Some(name) = &wanted.address_file {
            let path = self.directory.join(name);
            let text = fs::read_to_string(&path)
                .map_err(|error| format!("cannot read address_file {}: {error}", path.display()))?;
            let found = Addresses::from_file(wanted, &text, &trusted)?;
            let count = found.len() + trusted.len();
            return Ok(Some((found, count)));
        }
        let rows = read(wanted.reads_addresses(), &wanted.table, &wanted.columns)?;
        if database.is_none() {
            return Ok(None);
        }
        let found = Addresses::from_rows(wanted, &rows, &trusted)?;
        Ok(Some((found, rows.len() + trusted.len())))
    }
}

/// The file and the tables that addresses are in.
fn origins_of_addresses(settings: &Settings) -> Vec<String> {
    let wanted = &settings.permissions;
    let tables = [(wanted.reads_addresses(), &wanted.table), (wanted.reads_trusted(), &wanted.trusted_table)];
    let tables = tables.into_iter().filter(|(is_read, _)| *is_read).map(|(_, table)| table);
    wanted.address_file.iter().chain(tables).cloned().collect()
}

/// All rows of a table.
fn rows_of(
    database: &Database,
    table: &str,
    columns: &[String],
    rows_max: usize,
) -> Result<Vec<Vec<Option<String>>>, String> {
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    database.rows(table, &columns, rows_max).map_err(|error| error.to_string())
}

/// The tables that the `index`th database must have.
pub(crate) fn needed(settings: &Settings, index: usize) -> Vec<Needed> {
    let all = settings.tables_needed();
    let of_this = all.into_iter().filter(|table| usize::from(table.database) == index);
    let owned = |(kamailio, here): (&str, String)| (kamailio.to_owned(), here);
    of_this
        .map(|table| Needed {
            table: table.table,
            kind: table.kind,
            columns: table.columns.into_iter().map(owned).collect(),
        })
        .collect()
}

/// Opens a database, trying again for some seconds while it is away.
fn open_patiently(url: &Url) -> Result<Database, StartError> {
    let begin = SystemClock::now();
    let mut said = false;
    loop {
        match Database::open(url, PATIENCE) {
            Ok(database) => return Ok(database),
            Err(StoreError::Away(why)) if begin.elapsed() < START_WAIT => {
                if !said {
                    said = true;
                    tracing::warn!(
                        "the database {url} is away: {why}; trying again for {} s",
                        START_WAIT.as_secs()
                    );
                }
                thread::sleep(RETRY_PAUSE);
            }
            Err(StoreError::Away(why)) => {
                return Err(StartError(format!(
                    "the database {url} is away: {why}; start it, or correct db_url in the configuration"
                )));
            }
            Err(error) => return Err(StartError(error.to_string())),
        }
    }
}
