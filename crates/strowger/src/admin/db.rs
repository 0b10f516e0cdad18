//! `strowger db`: making and checking the tables of a database.

use clap::Subcommand;
use store::{Needed, Url};

use super::{AdminError, MakeFile, Place, counted};
use crate::databases;

/// `strowger db`.
#[derive(Debug, Subcommand)]
pub(crate) enum Databases {
    /// Make the tables that are missing, as Kamailio has them; what is there stays as it is.
    Create(Place),
    /// Check that the tables are there, with versions and columns that fit.
    Check(Place),
}

/// Kamailio's tables that the modules know.
const KINDS: [&str; 8] =
    ["location", "subscriber", "domain", "domain_attrs", "address", "trusted", "dbaliases", "uri"];

/// Runs a command; returns what to print.
///
/// # Errors
///
/// See [`AdminError`].
pub(crate) fn run(command: &Databases) -> Result<String, AdminError> {
    match command {
        Databases::Create(place) => create(place),
        Databases::Check(place) => check(place),
    }
}

/// The databases that are meant, with the tables that each must have.
fn wanted(place: &Place) -> Result<Vec<(Url, Vec<Needed>)>, AdminError> {
    let state = place.state();
    let all = || KINDS.map(|kind| Needed { table: kind.to_owned(), kind, columns: Vec::new() }).to_vec();
    if place.file.is_none() {
        let url = Url::parse(place.db.as_deref().unwrap_or("sqlite:"), &state)?;
        return Ok(vec![(url, all())]);
    }
    let settings = place.settings()?;
    let urls = databases::urls(&settings, &state)?;
    if urls.is_empty() {
        return Err(AdminError::line("the configuration names no database (db_url); there is nothing to do"));
    }
    let needed = |index: usize| databases::needed(&settings, index);
    Ok(urls.into_iter().enumerate().map(|(index, url)| (url, needed(index))).collect())
}

fn create(place: &Place) -> Result<String, AdminError> {
    let mut said = String::new();
    for (url, needed) in wanted(place)? {
        let database = place.open(&url, MakeFile::Yes)?;
        let mut made = database.create()?;
        made.extend(database.create_needed(&needed)?);
        said += &match made.len() {
            0 => format!("{url}: all tables are there\n"),
            count => format!("{url}: {} made: {}\n", counted(count, "table"), made.join(", ")),
        };
    }
    Ok(said)
}

fn check(place: &Place) -> Result<String, AdminError> {
    let mut said = String::new();
    for (url, needed) in wanted(place)? {
        place.open(&url, MakeFile::No)?.check(&needed)?;
        let names: Vec<&str> = needed.iter().map(|table| table.table.as_str()).collect();
        said += &format!("{url}: {} fit: {}\n", counted(names.len(), "table"), names.join(", "));
    }
    Ok(said)
}
