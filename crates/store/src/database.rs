//! One database: opening it, checking that its tables fit, making them.

use std::sync::Arc;
use std::time::Duration;

use crate::bindings::Names;
use crate::health::Health;
use crate::session::{Session, check_name};
use crate::{Bindings, Selector, StoreError, Url, Users, check, mysql, postgres, sqlite};

/// A table that is needed, and what for.
#[derive(Clone, Debug)]
pub struct Needed {
    /// Its name, as the configuration says it.
    pub table: String,
    /// Kamailio's name for its kind, whose version and columns it must have: `location`, `subscriber`,
    /// `domain`, `domain_attrs`, `address`, `trusted`, `dbaliases`, `uri`.
    pub kind: &'static str,
    /// Columns that the configuration names otherwise: (Kamailio's name, the name here).
    pub columns: Vec<(String, String)>,
}

/// A database that is there.
#[derive(Clone, Debug)]
pub struct Database {
    url: Url,
    patience: Duration,
}

impl Database {
    /// Opens the database. A file of SQLite is made with all tables if there is none; a damaged one is never
    /// replaced. Tables of PostgreSQL and MariaDB are made by [`Database::create`].
    ///
    /// `patience` is also how long each later call waits: for a connection, for an answer, and for SQLite's
    /// lock.
    ///
    /// # Errors
    ///
    /// [`StoreError::Away`] if it does not answer in `patience`; [`StoreError::Unfit`] for what is no
    /// database.
    pub fn open(url: &Url, patience: Duration) -> Result<Database, StoreError> {
        let database = Database { url: url.clone(), patience };
        match url {
            Url::Sqlite(path) => sqlite::prepare(path, patience)?,
            // Any question finds out whether somebody is there.
            Url::Postgres(_) | Url::MySql(_) => drop(database.session()?.columns("version")?),
        }
        Ok(database)
    }

    /// Where it is.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Checks that these tables are there with a version and columns that fit.
    ///
    /// Versions next to the expected one are accepted if all columns are there that are used.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unfit`] names the tables, what is wrong, and what to do.
    pub fn check(&self, needed: &[Needed]) -> Result<(), StoreError> {
        check::check(&mut *self.session()?, &self.url.to_string(), needed)
    }

    /// The names of a table's columns, in order; none if there is no such table.
    ///
    /// # Errors
    ///
    /// As the database says.
    pub fn columns(&self, table: &str) -> Result<Vec<String>, StoreError> {
        let columns = self.session()?.columns(check_name(table)?)?;
        Ok(columns.into_iter().map(|column| column.name).collect())
    }

    /// Makes the tables that are missing; returns their names.
    ///
    /// # Errors
    ///
    /// As the database says.
    pub fn create(&self) -> Result<Vec<String>, StoreError> {
        self.create_needed(&[])
    }

    /// The same, and tables that the configuration needs under names of its own.
    ///
    /// # Errors
    ///
    /// As the database says.
    pub fn create_needed(&self, needed: &[Needed]) -> Result<Vec<String>, StoreError> {
        check::create(&mut *self.session()?, needed, true)
    }

    /// The same for a file that is to work without being asked: one of Kamailio's gets no journal, whose rows would
    /// be behind what has been committed.
    ///
    /// # Errors
    ///
    /// As the database says.
    pub fn complete(&self, needed: &[Needed]) -> Result<Vec<String>, StoreError> {
        check::create(&mut *self.session()?, needed, false)
    }

    /// The location tables, for one thread. `columns` are those that the configuration names otherwise:
    /// (Kamailio's name, the name here).
    ///
    /// # Errors
    ///
    /// When no connection can be had.
    pub fn bindings(&self, columns: &[(String, String)]) -> Result<Bindings, StoreError> {
        let names = Names::new(columns)?;
        let (name, patience) = (self.url.to_string(), self.patience);
        match &self.url {
            Url::Sqlite(path) => Ok(Bindings::new(sqlite::SqliteBindings::new(path, patience, names)?)),
            Url::Postgres(url) => postgres::bindings(url, &name, patience, names),
            Url::MySql(url) => mysql::bindings(url, &name, patience, names),
        }
    }

    /// Answers questions with at most `connections` connections; `waiting_max` questions may wait for one.
    ///
    /// # Errors
    ///
    /// When the system refuses a thread.
    pub fn selector(&self, connections: usize, waiting_max: usize) -> Result<Selector, StoreError> {
        let health = Arc::new(Health::new(format!("the database {}", self.url)));
        match &self.url {
            Url::Sqlite(path) => {
                sqlite::start_selector(path.clone(), self.patience, connections, waiting_max, health)
            }
            Url::Postgres(url) => postgres::start_selector(url, connections, waiting_max, health),
            Url::MySql(url) => mysql::start_selector(url, connections, waiting_max, health),
        }
    }

    /// The users, in the table `subscriber`.
    ///
    /// # Errors
    ///
    /// When no connection can be had; [`StoreError::Unfit`] if there is no such table.
    pub fn users(&self) -> Result<Users, StoreError> {
        self.users_in("subscriber", &[])
    }

    /// The users in a table of another name, or with columns of other names: (Kamailio's name, the name
    /// here).
    ///
    /// # Errors
    ///
    /// As [`Database::users`].
    pub fn users_in(&self, table: &str, columns: &[(String, String)]) -> Result<Users, StoreError> {
        Users::new(self.session()?, table, Names::new(columns)?)
    }

    /// All rows of a table, for one that is read whole (`domain`, `address`): texts, `None` for NULL.
    ///
    /// # Errors
    ///
    /// As the database says; [`StoreError::Refused`] for more than `rows_max` rows.
    pub fn rows(
        &self,
        table: &str,
        columns: &[&str],
        rows_max: usize,
    ) -> Result<Vec<Vec<Option<String>>>, StoreError> {
        let mut session = self.session()?;
        let dialect = session.dialect();
        let mut selected = Vec::new();
        for column in columns {
            selected.push(dialect.as_text(&dialect.quote(check_name(column)?)));
        }
        let sql = format!(
            "SELECT {} FROM {} LIMIT {}",
            selected.join(", "),
            dialect.quote(check_name(table)?),
            rows_max.saturating_add(1).min(i64::MAX as usize)
        );
        let mut rows = Vec::new();
        session.query(&sql, &[], &mut |row| {
            let text = |text: &Option<&[u8]>| text.map(|text| String::from_utf8_lossy(text).into_owned());
            rows.push(row.iter().map(text).collect());
            rows.len() <= rows_max
        })?;
        if rows.len() > rows_max {
            return Err(StoreError::Refused(format!(
                "the table {table} has more than {rows_max} rows; remove those that are not used"
            )));
        }
        Ok(rows)
    }

    fn session(&self) -> Result<Box<dyn Session>, StoreError> {
        Ok(match &self.url {
            Url::Sqlite(path) => Box::new(sqlite::SqliteSession::new(path, self.patience)),
            Url::Postgres(url) => postgres::session(url, &self.url.to_string(), self.patience)?,
            Url::MySql(url) => mysql::session(url, &self.url.to_string(), self.patience)?,
        })
    }
}
