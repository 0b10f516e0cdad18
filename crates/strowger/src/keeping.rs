//! What a server keeps beyond its own memory, put together: databases, the persister, what scripts may ask.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use modules::{DbMode, Settings};
use store::{SelectorState, Url};

use crate::asks::Asks;
use crate::clock::Time;
use crate::configuration::Loaded;
use crate::databases::Databases;
use crate::persistence::{self, DatabaseKeeper, Keeper, Metrics, PersistenceState, Plan, RowMaker, Running};
use crate::server::StartError;
use crate::services::Shared;
use crate::state::Lock;
use crate::striped::Striped;

/// The table of bindings where the configuration names none.
const MAIN_TABLE: &str = "location";

/// See the module's documentation.
pub(crate) struct Keeping {
    pub(crate) databases: Arc<Databases>,
    persistence: Option<Running>,
    /// Held as long as the server runs.
    _lock: Option<Lock>,
    time: Time,
}

/// What it counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeepingState {
    /// `None` in memory mode.
    pub(crate) persistence: Option<PersistenceState>,
    /// `None` without databases.
    pub(crate) selectors: Option<SelectorState>,
}

impl Keeping {
    /// Opens the databases, reads domains, addresses and bindings, and starts the persister.
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong and what to do: a server that starts without what it should know would be a
    /// surprise.
    pub(crate) fn open(
        loaded: &Loaded,
        state: &Path,
        listeners: &[engine::Listener],
        location: &Striped,
        shared: &Shared,
        time: Time,
    ) -> Result<Keeping, StartError> {
        let settings = &*loaded.settings;
        // Before it is opened: whoever has the file has the lock.
        let lock = lock_bindings(settings, state)?;
        let databases = Arc::new(Databases::open(settings, state, &loaded.directory)?);
        let reading = databases.read_tables(settings, shared);
        if !reading.wrong.is_empty() {
            return Err(StartError(reading.wrong.join("; ")));
        }
        let persistence = start_persister(settings, &databases, listeners, location, time)?;
        Ok(Keeping { databases, persistence, _lock: lock, time })
    }

    /// Where a shard's questions go.
    pub(crate) fn asks(&self) -> Asks {
        Asks::new(self.databases.selectors(), self.persister(), self.time)
    }

    /// The way to the thread that writes bindings; `None` in memory mode.
    pub(crate) fn persister(&self) -> Option<persistence::Persister> {
        self.persistence.as_ref().map(|running| running.persister.clone())
    }

    /// What was counted.
    pub(crate) fn state(&self) -> KeepingState {
        KeepingState {
            persistence: self.persistence.as_ref().map(|running| running.persister.state()),
            selectors: self.databases.selector_state(),
        }
    }

    /// Writes what is left, for at most `timeout`; nothing is written after this.
    pub(crate) fn flush(&mut self, timeout: Duration) {
        if let Some(running) = &mut self.persistence {
            running.stop(timeout);
        }
    }
}

/// Two servers that write the bindings of one file would each undo what the other did.
fn lock_bindings(settings: &Settings, state: &Path) -> Result<Option<Lock>, StartError> {
    let Some(place) = bindings_at(settings) else { return Ok(None) };
    let urls = crate::databases::urls(settings, state).map_err(|error| StartError(error.to_string()))?;
    match urls.get(usize::from(place)) {
        Some(Url::Sqlite(file)) => {
            crate::state::make_for(file, state)?;
            Lock::of_database(file).map(Some)
        }
        _ => Ok(None),
    }
}

/// The place of the database of bindings; `None` in memory mode.
fn bindings_at(settings: &Settings) -> Option<u16> {
    settings.persistence.database.filter(|_| settings.persistence.mode != DbMode::Memory)
}

fn start_persister(
    settings: &Settings,
    databases: &Databases,
    listeners: &[engine::Listener],
    location: &Striped,
    time: Time,
) -> Result<Option<Running>, StartError> {
    let database = bindings_at(settings).and_then(|place| databases.database(place));
    let Some(database) = database else { return Ok(None) };
    let wanted = &settings.persistence;
    let failed = |error: store::StoreError| StartError(error.to_string());
    let bindings = database.bindings(&location_columns(settings)).map_err(failed)?;
    let tables = location_tables(settings);
    let keeper = DatabaseKeeper::new(bindings, &tables, wanted.mode).map_err(failed)?;
    if wanted.mode == DbMode::WriteThrough && !keeper.has_journal() {
        tracing::info!(
            "the database {} has no table strowger_journal, so each commit writes the rows themselves; `strowger db \
             create` makes it, and commits cost less",
            database.url()
        );
    }
    let maker = RowMaker::new(settings.registrar.clone(), tables, listeners, time);
    let mut keeper: Box<dyn Keeper> = Box::new(keeper);
    let metrics = Arc::new(Metrics::default());
    persistence::load(&mut *keeper, location, &maker, wanted.mode, &metrics, time)
        .map_err(|error| StartError(error.to_string()))?;
    let plan = Plan {
        mode: wanted.mode,
        flush_interval: wanted.flush_interval,
        commit_timeout: wanted.commit_timeout,
        database: database.url().to_string(),
    };
    persistence::start(keeper, plan, location.clone(), maker, metrics, time)
        .map(Some)
        .map_err(|error| StartError(format!("cannot start the thread that writes bindings: {error}")))
}

/// The location tables that the configuration names.
pub(crate) fn location_tables(settings: &Settings) -> Vec<String> {
    let tables = &settings.persistence.tables;
    if tables.is_empty() { vec![MAIN_TABLE.to_owned()] } else { tables.clone() }
}

/// The names that it gives to their columns: Kamailio's name, the name here.
pub(crate) fn location_columns(settings: &Settings) -> Vec<(String, String)> {
    let needed = settings.tables_needed();
    let columns = needed.iter().find(|table| table.kind == "location").map(|table| &table.columns[..]);
    columns
        .unwrap_or_default()
        .iter()
        .map(|(kamailio, here)| ((*kamailio).to_owned(), here.clone()))
        .collect()
}
