//! What an administrator does to the `subscriber` table.

use std::fmt;

use crate::bindings::Names;
use crate::fault::{Cause, Fault};
use crate::session::{Column, Row, Session, check_name};
use crate::{StoreError, User};

/// The columns that hold secrets, as Kamailio and we call them.
const SECRETS: [&str; 5] = ["password", "ha1", "ha1b", "ha1_sha256", "ha1_sha512_256"];

/// The users, for one thread.
pub struct Users {
    session: Box<dyn Session>,
    table: String,
    names: Names,
    columns: Vec<Column>,
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users").field("table", &self.table).finish_non_exhaustive()
    }
}

impl Users {
    pub(crate) fn new(mut session: Box<dyn Session>, table: &str, names: Names) -> Result<Users, StoreError> {
        let columns = session.columns(check_name(table)?)?;
        if columns.is_empty() {
            return Err(StoreError::Unfit(format!(
                "there is no table {table} in the database; `strowger db create --db URL` makes it"
            )));
        }
        for name in ["username", "domain"] {
            let here = names.here(name);
            if !columns.iter().any(|column| column.name.eq_ignore_ascii_case(here)) {
                return Err(StoreError::Unfit(format!("the table {table} has no column {here}")));
            }
        }
        Ok(Users { session, table: table.to_string(), names, columns })
    }

    /// Adds a user; returns which of the secrets the table has no column for.
    ///
    /// # Errors
    ///
    /// [`StoreError::Wrong`] if there is one already.
    pub fn add(&mut self, user: &User) -> Result<Vec<&'static str>, StoreError> {
        if self.is_there(user)? {
            return Err(there_already(user));
        }
        let dialect = self.session.dialect();
        let mut columns = vec![self.quoted("username"), self.quoted("domain")];
        let mut values = vec![Some(user.username.as_str()), Some(user.domain.as_str())];
        let (stored, missing) = self.secrets(user);
        for (column, value) in &stored {
            columns.push(dialect.quote(column));
            values.push(*value);
        }
        let places: Vec<String> = (1..=values.len()).map(|number| dialect.place(number)).collect();
        let table = dialect.quote(&self.table);
        let sql = format!("INSERT INTO {table} ({}) VALUES ({})", columns.join(", "), places.join(", "));
        match self.session.execute(&sql, &values) {
            Err(Fault { cause: Cause::Duplicate, .. }) => Err(there_already(user)),
            Err(fault) => Err(fault.error),
            Ok(_) => Ok(missing),
        }
    }

    /// Replaces the secrets of a user.
    ///
    /// # Errors
    ///
    /// [`StoreError::Wrong`] if there is none.
    pub fn passwd(&mut self, user: &User) -> Result<Vec<&'static str>, StoreError> {
        let dialect = self.session.dialect();
        let (stored, missing) = self.secrets(user);
        let mut values = Vec::new();
        let mut parts = Vec::new();
        for (column, value) in &stored {
            values.push(*value);
            parts.push(format!("{} = {}", dialect.quote(column), dialect.place(values.len())));
        }
        if parts.is_empty() {
            return Err(StoreError::Unfit(format!("the table {} has no column for a secret", self.table)));
        }
        values.extend([Some(user.username.as_str()), Some(user.domain.as_str())]);
        let (table, condition) = (dialect.quote(&self.table), self.condition(values.len() - 1));
        let sql = format!("UPDATE {table} SET {} WHERE {condition}", parts.join(", "));
        if self.session.execute(&sql, &values)? == 0 {
            return Err(StoreError::Wrong(format!(
                "there is no user {}; `strowger user add` makes one",
                shown(&user.username, &user.domain)
            )));
        }
        Ok(missing)
    }

    /// Removes a user; false if there was none.
    ///
    /// # Errors
    ///
    /// As the database says.
    pub fn remove(&mut self, username: &str, domain: &str) -> Result<bool, StoreError> {
        let table = self.session.dialect().quote(&self.table);
        let sql = format!("DELETE FROM {table} WHERE {}", self.condition(1));
        Ok(self.session.execute(&sql, &[Some(username), Some(domain)])? > 0)
    }

    /// Visits all users by domain and name, `limit` at most.
    ///
    /// # Errors
    ///
    /// As the database says.
    pub fn list(
        &mut self,
        domain: Option<&str>,
        limit: usize,
        visit: &mut dyn FnMut(&User),
    ) -> Result<(), StoreError> {
        let dialect = self.session.dialect();
        let (name, realm) = (self.quoted("username"), self.quoted("domain"));
        let mut selected = vec![dialect.as_text(&name), dialect.as_text(&realm)];
        let mut secrets = Vec::new();
        for secret in SECRETS {
            if let Some(column) = self.column(secret) {
                selected.push(dialect.as_text(&dialect.quote(&column.name)));
                secrets.push(secret);
            }
        }
        let condition = domain.map_or(String::new(), |_| format!(" WHERE {realm} = {}", dialect.place(1)));
        let sql = format!(
            "SELECT {} FROM {}{condition} ORDER BY {}, {} LIMIT {}",
            selected.join(", "),
            dialect.quote(&self.table),
            dialect.as_bytes(&realm),
            dialect.as_bytes(&name),
            i64::try_from(limit).unwrap_or(i64::MAX)
        );
        let values: Vec<Option<&str>> = domain.iter().map(|domain| Some(*domain)).collect();
        self.session.query(&sql, &values, &mut |row| {
            visit(&user_of(row, &secrets));
            true
        })?;
        Ok(())
    }

    fn is_there(&mut self, user: &User) -> Result<bool, StoreError> {
        let table = self.session.dialect().quote(&self.table);
        let sql = format!("SELECT 1 FROM {table} WHERE {} LIMIT 1", self.condition(1));
        let mut found = false;
        self.session.query(&sql, &[Some(&user.username), Some(&user.domain)], &mut |_| {
            found = true;
            false
        })?;
        Ok(found)
    }

    fn column(&self, name: &str) -> Option<&Column> {
        let here = self.names.here(name);
        self.columns.iter().find(|column| column.name.eq_ignore_ascii_case(here))
    }

    fn quoted(&self, name: &str) -> String {
        self.session.dialect().quote(self.names.here(name))
    }

    /// One user; the name is the value with number `first`, the domain the next one.
    fn condition(&self, first: usize) -> String {
        let dialect = self.session.dialect();
        let (name, domain) = (dialect.place(first), dialect.place(first + 1));
        format!("{} = {name} AND {} = {domain}", self.quoted("username"), self.quoted("domain"))
    }

    /// What is stored in each column that is there, and the secrets that there is no column for.
    fn secrets<'a>(&self, user: &'a User) -> (Vec<(String, Option<&'a str>)>, Vec<&'static str>) {
        let all = [&user.password, &user.ha1, &user.ha1b, &user.ha1_sha256, &user.ha1_sha512_256];
        let mut stored = Vec::new();
        let mut missing = Vec::new();
        for (name, value) in SECRETS.into_iter().zip(all) {
            match self.column(name) {
                Some(column) if value.is_empty() && column.is_nullable => {
                    stored.push((column.name.clone(), None));
                }
                Some(column) => stored.push((column.name.clone(), Some(value.as_str()))),
                None if !value.is_empty() => missing.push(name),
                None => {}
            }
        }
        (stored, missing)
    }
}

fn user_of(row: &Row<'_>, secrets: &[&str]) -> User {
    let text = |at: Option<usize>| {
        let bytes = at.and_then(|at| *row.get(at)?).unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    };
    let secret = |name: &str| text(secrets.iter().position(|secret| *secret == name).map(|at| at + 2));
    User {
        username: text(Some(0)),
        domain: text(Some(1)),
        password: secret("password"),
        ha1: secret("ha1"),
        ha1b: secret("ha1b"),
        ha1_sha256: secret("ha1_sha256"),
        ha1_sha512_256: secret("ha1_sha512_256"),
    }
}

fn shown(username: &str, domain: &str) -> String {
    if domain.is_empty() { username.to_string() } else { format!("{username}@{domain}") }
}

fn there_already(user: &User) -> StoreError {
    StoreError::Wrong(format!(
        "there is a user {} already; `strowger user passwd` changes the password",
        shown(&user.username, &user.domain)
    ))
}
