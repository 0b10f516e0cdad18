//! Location tables in PostgreSQL and MariaDB: loaded whole, read by address-of-record, written in transactions.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Driver, Link, run, step};
use crate::batch::{Batch, TableChanges};
use crate::bindings::{LocationTables, Names};
use crate::fault::{Cause, Fault};
use crate::journal::{Ledger, Page};
use crate::load::{Load, REMOVE_STEP, Rows, foreign_condition, q_thousandths};
use crate::location::{COLUMNS, Fitted, Shape, signed, unsigned};
use crate::ruid::RuidText;
use crate::session::{Format, Session};
use crate::time::Zone;
use crate::{Contact, StoreError, Written};

/// A row's fields as the server wrote them, `None` for NULL: those of [`COLUMNS`], or the first few of them.
pub(crate) type Fields<'a> = [Option<&'a [u8]>; COLUMNS.len()];

/// What happens to one table: first it is emptied, if at all; the rest is about different rows.
pub(crate) struct Part<'a> {
    pub(crate) shape: Arc<Shape>,
    table: &'a str,
    pub(crate) is_cleared: bool,
    /// Identifiers of rows that go.
    pub(crate) removals: Vec<String>,
    /// Rows that are written.
    pub(crate) rows: Vec<Fresh<'a>>,
}

/// A row as the table can hold it.
pub(crate) struct Fresh<'a> {
    pub(crate) ruid: RuidText,
    pub(crate) contact: Contact<'a>,
    pub(crate) fitted: Fitted<'a>,
    /// A civil time, as `modified`.
    pub(crate) expires: i64,
    pub(crate) modified: i64,
    pub(crate) methods: Option<i32>,
}

/// How a kind of database keeps location tables, as far as each has its own way.
pub(crate) trait Tables: Driver {
    /// What columns with times must be.
    const TIME_TYPE: &'static str;

    /// Whether a text may have a NUL in it.
    const HOLDS_NUL: bool;

    /// Begins a transaction that sees one state of all tables, for a load.
    const SNAPSHOT: &'static str;

    /// A column, quoted, in the one type in which it is read.
    fn selected(name: &str, quoted: &str) -> String;

    /// How many rows there are, and whether (`true` or `1`) this condition holds for one of them.
    fn count_sql(table: &str, condition: &str) -> String;

    /// What a field of [`Tables::selected`] says, if it is a number.
    fn integer(field: Option<&[u8]>) -> Option<i64>;

    /// The same with a fraction.
    fn real(field: Option<&[u8]>) -> Option<f64>;

    /// A time in microseconds since 1970, 0 if there is none.
    fn time(field: Option<&[u8]>, zone: &mut Zone) -> u64;

    /// Visits the rows of a query until `visit` returns false; each may take `patience`.
    async fn stream(
        connection: &mut Self::Connection,
        patience: Duration,
        query: &str,
        visit: &mut dyn FnMut(&Fields<'_>) -> bool,
    ) -> Result<(), Fault>;

    /// Removes rows by their numbers; with `until`, a civil time, only those that expire by then.
    async fn remove_ids(
        connection: &mut Self::Connection,
        shape: &Shape,
        ids: &[i64],
        until: Option<i64>,
    ) -> Result<(), Fault>;

    /// Does all of a part by one statement, which commits by itself; does nothing and returns false where no
    /// statement can.
    async fn write_at_once(_: &mut Self::Connection, _: &Part<'_>) -> Result<bool, Fault> {
        Ok(false)
    }

    /// Removes rows by their identifiers.
    async fn remove(
        connection: &mut Self::Connection,
        patience: Duration,
        shape: &Shape,
        ruids: &[String],
    ) -> Result<(), Fault>;

    /// How many of these rows, at least one, go into one statement.
    fn statement_rows(rows: &[Fresh<'_>]) -> usize;

    /// How many rows go into one when this many, at least two, were refused: fewer.
    fn fewer_rows(rows: usize) -> usize;

    /// Writes rows by one statement. The transaction goes on if their values are refused.
    async fn put(
        connection: &mut Self::Connection,
        patience: Duration,
        shape: &Shape,
        rows: &[Fresh<'_>],
    ) -> Result<(), Fault>;

    /// The first pages of a table's journal after this one, in order.
    async fn pages(
        connection: &mut Self::Connection,
        table: &str,
        after: i64,
    ) -> Result<Vec<(i64, Vec<u8>)>, Fault>;

    /// Puts a page at the journal's end.
    async fn append(connection: &mut Self::Connection, page: &Page<'_>) -> Result<(), Fault>;

    /// Removes these tables' pages of this generation and earlier ones.
    async fn trim(
        connection: &mut Self::Connection,
        patience: Duration,
        tables: &[String],
        generation: i32,
    ) -> Result<(), Fault>;
}

/// The connection that writes, and what it knows of the tables.
pub(crate) struct RemoteBindings<D: Tables> {
    link: Link<D>,
    names: Names,
    zone: Zone,
    shapes: HashMap<String, Arc<Shape>>,
}

impl<D: Tables> fmt::Debug for RemoteBindings<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteBindings").field("name", &self.link.name()).finish_non_exhaustive()
    }
}

impl<D: Tables> RemoteBindings<D> {
    pub(crate) fn new(
        driver: D,
        name: &str,
        patience: Duration,
        names: Names,
    ) -> Result<RemoteBindings<D>, Fault> {
        let mut link = Link::new(driver, name, patience)?;
        link.keep_order();
        link.ensure_open()?;
        Ok(RemoteBindings { link, names, zone: Zone::system(), shapes: HashMap::new() })
    }

    fn shape_of(&mut self, table: &str) -> Result<Arc<Shape>, Fault> {
        if let Some(shape) = self.shapes.get(table) {
            return Ok(Arc::clone(shape));
        }
        let columns = self.link.columns(table)?;
        let shape = Shape::new(D::DIALECT, table, &self.names, &columns)?;
        if !matches!((shape.expires, shape.modified), (Format::Time(_), Format::Time(_))) {
            return Err(Fault::other(StoreError::Unfit(format!(
                "the columns expires and last_modified of the table {table} must be of the type {}, as in \
                 Kamailio's tables",
                D::TIME_TYPE
            ))));
        }
        let shape = Arc::new(shape);
        self.shapes.insert(table.to_string(), Arc::clone(&shape));
        Ok(shape)
    }

    /// A connection that stood idle may have been closed by the other side: the call is made once more on a
    /// new one.
    fn again_if_lost<T>(&mut self, mut call: impl FnMut(&mut Self) -> Result<T, Fault>) -> Result<T, Fault> {
        let is_fresh = !self.link.is_open();
        match call(self) {
            Err(lost) if lost.cause == Cause::Lost && !is_fresh && !lost.is_late() => call(self),
            done => done,
        }
    }

    fn write_once(&mut self, batch: &Batch, ledger: &Ledger<'_>) -> Result<Written, Fault> {
        let mut written = Written::default();
        let mut parts = Vec::new();
        for changes in batch.changes() {
            let shape = self.shape_of(&changes.name)?;
            parts.push(Part::new(shape, batch, changes, &mut self.zone, &mut written));
        }
        if let ([], Ledger { pages, trim: None }) = (&parts[..], ledger)
            && let [page] = &pages[..]
        {
            self.link.run(async |connection| D::append(connection, page).await)?;
            return Ok(written);
        }
        if let [part] = &parts[..]
            && ledger.is_empty()
        {
            match self.link.run(async |connection| D::write_at_once(connection, part).await) {
                Ok(true) => {
                    written.rows += part.rows.len() + part.removals.len();
                    return Ok(written);
                }
                Ok(false) => {}
                // One of the rows does not fit: find out which.
                Err(bad) if bad.is_about_values() => {}
                Err(other) => return Err(other),
            }
        }
        let done = self.link.run_steps(async |connection, patience| {
            write_parts::<D>(connection, patience, &parts, ledger, &mut written).await
        });
        if done.is_err() {
            // The transaction ends with its connection.
            self.link.close();
        }
        done.map(|()| written)
    }
}

impl<D: Tables> LocationTables for RemoteBindings<D> {
    fn take_over(&mut self, tables: &[String]) -> Result<Vec<String>, Fault> {
        self.again_if_lost(|this| this.link.take_over(tables))
    }

    fn claim(&mut self, tables: &[String]) -> Result<Option<String>, Fault> {
        self.link.claim(tables)
    }

    fn load(&mut self, load: &mut Load<'_>) -> Result<(), Fault> {
        let shape = self.shape_of(load.table)?;
        let zone = &mut self.zone;
        let done = self.link.run_steps(async |connection, patience| {
            load_rows::<D>(connection, patience, &shape, zone, load).await
        });
        // It may have ended in the middle of a stream or of a transaction.
        self.link.close();
        done
    }

    fn read(&mut self, rows: &mut Rows<'_>) -> Result<(), Fault> {
        // What is no text there, no row has.
        let text = |bytes| {
            std::str::from_utf8(bytes).ok().filter(|text: &&str| D::HOLDS_NUL || !text.contains('\0'))
        };
        let (Some(username), Some(domain)) = (text(rows.username), text(rows.domain)) else { return Ok(()) };
        let shape = self.shape_of(rows.table)?;
        let column = shape.column("domain");
        let or_null = if domain.is_empty() { format!(" OR {column} IS NULL") } else { String::new() };
        let sql = format!(
            "SELECT {} FROM {} WHERE {} = {} AND ({column} = {}{or_null})",
            select_list::<D>(&shape, &COLUMNS),
            shape.table,
            shape.column("username"),
            D::DIALECT.place(1),
            D::DIALECT.place(2)
        );
        let values = [Some(username), Some(domain)];
        let found = self.again_if_lost(|this| {
            this.link.run(async |connection| D::query(connection, &sql, &values).await)
        })?;
        rows.restart();
        for row in &found {
            let mut fields = Fields::default();
            for (field, value) in fields.iter_mut().zip(row) {
                *field = value.as_deref();
            }
            let (id, contact) = contact_of::<D>(&fields, &mut self.zone);
            if !rows.row(id, &contact) {
                break;
            }
        }
        Ok(())
    }

    fn remove_rows(&mut self, table: &str, ids: &[i64], until: Option<u64>) -> Result<(), Fault> {
        if ids.is_empty() {
            return Ok(());
        }
        let shape = self.shape_of(table)?;
        let until = until.map(|until| self.zone.civil(until));
        for ids in ids.chunks(REMOVE_STEP) {
            self.again_if_lost(|this| {
                this.link.run(async |connection| D::remove_ids(connection, &shape, ids, until).await)
            })?;
        }
        Ok(())
    }

    fn write(&mut self, batch: &Batch, ledger: &Ledger<'_>) -> Result<Written, Fault> {
        let done = self.again_if_lost(|this| this.write_once(batch, ledger));
        if done.is_err() {
            // The table may be another one when it is tried again.
            self.shapes.clear();
        }
        done
    }

    fn pages(&mut self, table: &str, after: i64) -> Result<Vec<(i64, Vec<u8>)>, Fault> {
        self.link.run(async |connection| D::pages(connection, table, after).await)
    }

    fn has_table(&mut self, table: &str) -> Result<bool, Fault> {
        Ok(!self.link.columns(table)?.is_empty())
    }

    fn shape(&mut self, table: &str) -> Result<Option<Arc<Shape>>, Fault> {
        self.shape_of(table).map(Some)
    }

    fn place(&self) -> String {
        self.link.name().to_string()
    }
}

impl<'a> Part<'a> {
    fn new(
        shape: Arc<Shape>,
        batch: &'a Batch,
        changes: &'a TableChanges,
        zone: &mut Zone,
        written: &mut Written,
    ) -> Part<'a> {
        let removals = changes.removals().map(|ruid| ruid.text().as_str().to_string());
        let removals = removals.chain(changes.foreign.iter().map(ToString::to_string)).collect();
        let mut rows = Vec::new();
        for (ruid, contact) in batch.saves(changes) {
            let fitted = match shape.fit(&contact) {
                Ok(fitted) => fitted,
                Err(reason) => {
                    written.leave_out(&changes.name, &contact, reason);
                    continue;
                }
            };
            let never = contact.expires_unix_micros >= Contact::NEVER;
            let methods = contact.methods.map(signed);
            rows.push(Fresh {
                ruid: ruid.text(),
                expires: zone.civil(if never { 0 } else { contact.expires_unix_micros }),
                modified: zone.civil(contact.modified_unix_micros),
                methods: if shape.is_nullable(16) { methods } else { Some(methods.unwrap_or(-1)) },
                contact,
                fitted,
            });
        }
        Part { shape, table: &changes.name, is_cleared: changes.is_cleared, removals, rows }
    }
}

/// Everything in one transaction.
async fn write_parts<D: Tables>(
    connection: &mut D::Connection,
    patience: Duration,
    parts: &[Part<'_>],
    ledger: &Ledger<'_>,
    written: &mut Written,
) -> Result<(), Fault> {
    run::<D>(connection, patience, "BEGIN").await?;
    for part in parts {
        if part.is_cleared {
            run::<D>(connection, patience, &format!("DELETE FROM {}", part.shape.table)).await?;
            written.rows += 1;
        }
        D::remove(connection, patience, &part.shape, &part.removals).await?;
        written.rows += part.removals.len();
        write_rows::<D>(connection, patience, part, written).await?;
    }
    for page in &ledger.pages {
        step(patience, D::append(connection, page)).await?;
    }
    if let Some((tables, generation)) = ledger.trim {
        D::trim(connection, patience, tables, generation).await?;
    }
    run::<D>(connection, patience, "COMMIT").await
}

/// The rows of one table; those that the database refuses are found by ever smaller statements.
async fn write_rows<D: Tables>(
    connection: &mut D::Connection,
    patience: Duration,
    part: &Part<'_>,
    written: &mut Written,
) -> Result<(), Fault> {
    let mut rest = &part.rows[..];
    while !rest.is_empty() {
        let (first, others) = rest.split_at(D::statement_rows(rest));
        rest = others;
        let mut todo = vec![first];
        while let Some(rows) = todo.pop() {
            match D::put(connection, patience, &part.shape, rows).await {
                Ok(()) => written.rows += rows.len(),
                Err(bad) if bad.is_about_values() => match rows {
                    [row] => written.leave_out(part.table, &row.contact, bad.error.to_string()),
                    _ => todo.extend(rows.rchunks(D::fewer_rows(rows.len()))),
                },
                Err(other) => return Err(other),
            }
        }
    }
    Ok(())
}

fn select_list<D: Tables>(shape: &Shape, columns: &[&str]) -> String {
    let all: Vec<String> = columns.iter().map(|name| D::selected(name, shape.column(name))).collect();
    all.join(", ")
}

async fn load_rows<D: Tables>(
    connection: &mut D::Connection,
    patience: Duration,
    shape: &Shape,
    zone: &mut Zone,
    load: &mut Load<'_>,
) -> Result<(), Fault> {
    run::<D>(connection, patience, D::SNAPSHOT).await?;
    // A sort may take longer than any other statement.
    let slow = patience * 10;
    let table = &shape.table;
    let counts = D::count_sql(table, &foreign_condition(shape.column("ruid")));
    let counts = step(slow, D::query(connection, &counts, &[])).await?;
    let count = |at: usize| counts.first().and_then(|row| row.get(at)?.as_deref()).unwrap_or_default();
    load.begin(std::str::from_utf8(count(0)).ok().and_then(|total| total.parse().ok()).unwrap_or(0));
    if matches!(count(1), b"true" | b"1") {
        let columns = select_list::<D>(shape, &["id", "last_modified", "username", "domain", "contact"]);
        D::stream(connection, slow, &format!("SELECT {columns} FROM {table}"), &mut |fields| {
            let text = |at: usize| fields[at].unwrap_or_default();
            let (id, modified) = (D::integer(fields[0]).unwrap_or(0), D::time(fields[1], zone));
            load.weigh(id, modified, text(2), text(3), text(4));
            true
        })
        .await?;
    }
    let sql = format!(
        "SELECT {} FROM {table} ORDER BY {}, {}",
        select_list::<D>(shape, &COLUMNS),
        shape.column("last_modified"),
        shape.column("id")
    );
    D::stream(connection, slow, &sql, &mut |fields| {
        let (id, mut contact) = contact_of::<D>(fields, zone);
        load.row(id, &mut contact)
    })
    .await?;
    load.end();
    Ok(())
}

fn contact_of<'a, D: Tables>(fields: &Fields<'a>, zone: &mut Zone) -> (i64, Contact<'a>) {
    let text = |at: usize| fields[at].unwrap_or_default();
    let number = |at: usize| D::integer(fields[at]).map_or(0, unsigned);
    let expires = D::time(fields[7], zone);
    let contact = Contact {
        ruid: text(1),
        username: text(2),
        domain: text(3),
        contact: text(4),
        received: text(5),
        path: text(6),
        expires_unix_micros: if expires == 0 { Contact::NEVER } else { expires },
        q: q_thousandths(D::real(fields[8]).unwrap_or(1.0)),
        call_id: text(9),
        cseq: number(10),
        modified_unix_micros: D::time(fields[11], zone),
        flags: number(12),
        cflags: number(13),
        user_agent: text(14),
        socket: text(15),
        methods: D::integer(fields[16]).map(unsigned),
        instance: text(17),
        reg_id: number(18),
        is_foreign: false,
    };
    (D::integer(fields[0]).unwrap_or(0), contact)
}
