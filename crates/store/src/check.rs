//! Whether tables are there, of a version and with columns that fit; and making those that are missing.

use crate::bindings::Names;
use crate::schema::{Presence, TABLES, TableSpec, table};
use crate::session::{Dialect, Session, check_name};
use crate::{Needed, StoreError, journal};

/// Checks tables; every fault of every table is named.
///
/// # Errors
///
/// [`StoreError::Unfit`]; [`StoreError::Wrong`] for names that are none.
pub(crate) fn check(session: &mut dyn Session, place: &str, needed: &[Needed]) -> Result<(), StoreError> {
    let mut faults = Vec::new();
    for needed in needed {
        if let Some(fault) = check_one(session, needed)? {
            faults.push(fault);
        }
    }
    if faults.is_empty() {
        return Ok(());
    }
    Err(StoreError::Unfit(format!(
        "the database {place} does not fit: {}. `strowger db create --db URL` makes tables that are missing; \
         for a database of Kamailio's do what its `kamdbctl` offers, and have a backup first",
        faults.join("; ")
    )))
}

fn spec(needed: &Needed) -> Result<&'static TableSpec, StoreError> {
    table(needed.kind).ok_or_else(|| {
        StoreError::Wrong(format!("{} is no kind of table that this server knows", needed.kind))
    })
}

fn check_one(session: &mut dyn Session, needed: &Needed) -> Result<Option<String>, StoreError> {
    let spec = spec(needed)?;
    let names = Names::new(&needed.columns)?;
    let name = check_name(&needed.table)?;
    let columns = session.columns(name)?;
    if columns.is_empty() {
        return Ok(Some(format!("there is no table {name}")));
    }
    let missing: Vec<&str> = spec
        .columns
        .iter()
        .filter(|column| matches!(column.2, Presence::Full | Presence::Nullable))
        .map(|column| names.here(column.0))
        .filter(|here| !columns.iter().any(|column| column.name.eq_ignore_ascii_case(here)))
        .collect();
    let expected = spec.own_version(session.dialect());
    let found = version(session, name)?;
    let version = match found {
        Some(found) if spec.accepts(found, session.dialect()) => None,
        Some(found) => Some(format!("it has version {found} where {expected} is expected")),
        None => Some(format!("the table version says nothing about it, where {expected} is expected")),
    };
    let missing = (!missing.is_empty()).then(|| format!("it lacks the columns {}", missing.join(", ")));
    let faults: Vec<String> = version.into_iter().chain(missing).collect();
    Ok((!faults.is_empty()).then(|| format!("the table {name}: {}", faults.join(", and "))))
}

/// The version that the table `version` tells.
fn version(session: &mut dyn Session, name: &str) -> Result<Option<u32>, StoreError> {
    let dialect = session.dialect();
    if session.columns("version")?.is_empty() {
        return Ok(None);
    }
    let sql = format!(
        "SELECT {} FROM {} WHERE table_name = {}",
        dialect.as_text("table_version"),
        dialect.quote("version"),
        dialect.place(1)
    );
    let mut found = None;
    session.query(&sql, &[Some(name)], &mut |row| {
        let text = row.first().copied().flatten().and_then(|text| std::str::from_utf8(text).ok());
        found = text.and_then(|text| text.parse().ok());
        true
    })?;
    Ok(found)
}

/// Makes the tables of all kinds that are missing, and those that are needed under other names. Beside a `location` of
/// Kamailio's a journal is made only if `adds_journal`: its rows would be behind what has been committed.
pub(crate) fn create(
    session: &mut dyn Session,
    needed: &[Needed],
    adds_journal: bool,
) -> Result<Vec<String>, StoreError> {
    let own = table("location").map(|location| location.own_version(session.dialect()));
    let adds_journal = adds_journal || version(session, "location")?.is_none_or(|found| Some(found) == own);
    let mut wanted: Vec<(&'static TableSpec, String, Names)> = Vec::new();
    for table in TABLES.iter().filter(|table| adds_journal || table.name != journal::TABLE) {
        wanted.push((table, table.name.to_string(), Names::default()));
    }
    for needed in needed {
        let (spec, names) = (spec(needed)?, Names::new(&needed.columns)?);
        check_name(&needed.table)?;
        match wanted.iter_mut().find(|(_, name, _)| *name == needed.table) {
            Some(known) => *known = (spec, needed.table.clone(), names),
            None => wanted.push((spec, needed.table.clone(), names)),
        }
    }
    let dialect = session.dialect();
    let mut statements = Vec::new();
    let mut made = Vec::new();
    for (spec, name, names) in wanted {
        if session.columns(&name)?.is_empty() {
            forget_version(session, dialect, &name, &mut statements)?;
            statements.extend(spec.statements(dialect, &name, &|column| names.here(column).to_string()));
            made.push(name);
        }
    }
    session.execute_all(&statements)?;
    Ok(made)
}

/// A version of a table that was dropped would be in the way of the new one's.
fn forget_version(
    session: &mut dyn Session,
    dialect: Dialect,
    name: &str,
    statements: &mut Vec<String>,
) -> Result<(), StoreError> {
    if version(session, name)?.is_some() {
        statements.push(format!("DELETE FROM {} WHERE table_name = '{name}'", dialect.quote("version")));
    }
    Ok(())
}
