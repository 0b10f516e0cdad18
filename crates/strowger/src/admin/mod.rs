//! What an administrator does from the command line: users, contacts, databases, and what a server reads again.
//!
//! Every command gives a text to print, or one sentence that says what to do. A server that runs is asked or told over
//! its control socket; it need not run.

pub(crate) mod contacts;
pub(crate) mod db;
mod password;
pub(crate) mod reload;
mod table;
#[cfg(test)]
mod tests;
mod user_table;
pub(crate) mod users;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use modules::Settings;
use store::{Database, StoreError, Url};

use crate::configuration::{self, LoadError, Loaded};
use crate::state;

pub(crate) use contacts::Contacts;
pub(crate) use db::Databases;
pub(crate) use reload::Reload;
pub(crate) use users::Users;

/// How long a database may take to answer the command line.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum AdminError {
    /// One sentence that says what to do.
    Line(String),
    /// A configuration file that cannot be loaded.
    Configuration(LoadError),
}

impl AdminError {
    fn line(text: impl fmt::Display) -> AdminError {
        AdminError::Line(text.to_string())
    }
}

impl From<StoreError> for AdminError {
    fn from(error: StoreError) -> AdminError {
        AdminError::Line(error.to_string())
    }
}

impl From<LoadError> for AdminError {
    fn from(error: LoadError) -> AdminError {
        AdminError::Configuration(error)
    }
}

/// Which server, and which database.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Place {
    /// The database: sqlite:PATH, postgres://USER@HOST/NAME or mysql://USER@HOST/NAME.
    ///
    /// By default that of the configuration, or the one in the state directory. A password in it can be seen by other
    /// users of this machine while the command runs: better name the configuration file.
    #[arg(long, value_name = "URL", conflicts_with = "file")]
    pub(crate) db: Option<String>,

    /// The server's configuration file, which names the database (db_url).
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// Define an identifier, as `#!define` does: NAME or NAME=VALUE.
    #[arg(short = 'A', long = "define", value_name = "NAME[=VALUE]")]
    pub(crate) defines: Vec<String>,

    /// The server's state directory.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) state_dir: Option<PathBuf>,
}

impl Place {
    fn state(&self) -> PathBuf {
        state::directory(self.state_dir.as_deref())
    }

    /// The configuration: the file's, or the built-in one.
    fn load(&self) -> Result<Loaded, AdminError> {
        Ok(configuration::load(self.file.as_deref(), &self.defines)?)
    }

    /// What it sets.
    fn settings(&self) -> Result<std::sync::Arc<Settings>, AdminError> {
        Ok(self.load()?.settings)
    }

    /// The database: what `--db` says, else what the configuration has for `kind`, else the one in the state directory.
    fn url(&self, settings: &Settings, kind: &str) -> Result<Url, AdminError> {
        let state = self.state();
        if let Some(text) = &self.db {
            return Ok(Url::parse(text, &state)?);
        }
        let needed = settings.tables_needed();
        let place = needed.iter().find(|table| table.kind == kind).map(|table| usize::from(table.database));
        match place.and_then(|place| settings.databases.get(place)) {
            Some(url) => Ok(Url::parse(&url.0, &state)?),
            None if self.file.is_some() => Err(AdminError::line(
                "the configuration names no database for this; set db_url of its module, or give --db URL",
            )),
            None => Ok(Url::parse("sqlite:", &state)?),
        }
    }

    /// Opens a database. A file of SQLite is made if `make` says so.
    fn open(&self, url: &Url, make: MakeFile) -> Result<Database, AdminError> {
        if let Url::Sqlite(file) = url {
            match make {
                MakeFile::Yes => state::make_for(file, &self.state()).map_err(AdminError::line)?,
                MakeFile::No if !file.exists() => return Err(no_such_file(file)),
                MakeFile::No => {}
            }
        }
        Ok(Database::open(url, PATIENCE)?)
    }
}

/// Whether a file of SQLite that is not there is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MakeFile {
    Yes,
    No,
}

fn no_such_file(file: &Path) -> AdminError {
    AdminError::Line(format!(
        "there is no database {}; `strowger user add NAME` makes it, --db URL, -f FILE or --state-dir DIRECTORY name \
         another",
        file.display()
    ))
}

/// What is said of a list that ends before its time.
const THERE_ARE_MORE: &str = "there are more: --limit 0 lists all";

/// The same where the list is for programs: an array of all that was asked for, and this beside it.
fn note_that_there_are_more() {
    eprintln!("strowger: {THERE_ARE_MORE}");
}

/// A count and what is counted: `1 user`, `2 users`.
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
