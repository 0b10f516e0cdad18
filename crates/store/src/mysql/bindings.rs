//! Location tables in MariaDB and MySQL.
//!
//! Rows are written by statements for 256, 32, 4 or 1 of them, so that the server prepares four and not
//! hundreds.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use sqlx::mysql::{MySqlConnection, MySqlRow};

use super::{MySql, bytes, driver, fault};
use crate::batch::{Batch, TableChanges};
use crate::bindings::Names;
use crate::fault::{Cause, Fault};
use crate::journal::{Ledger, PAGES_READ, Page, TABLE};
use crate::load::{Load, REMOVE_STEP, Rows, foreign_condition, q_thousandths};
use crate::location::{COLUMNS, Fitted, Shape, signed, unsigned};
use crate::remote::{Driver, Link, step};
use crate::session::{Dialect, Format, Session};
use crate::time::{Zone, civil_text, parse_civil};
use crate::{Contact, StoreError, Written};

/// Rows of one statement, largest first.
const SIZES: [usize; 4] = [256, 32, 4, 1];

/// Bytes of texts in one statement at most; `max_allowed_packet` is 16 MiB by default, and 1 MiB at least
/// where anything is to work.
const PACKET_BYTES: usize = 768 * 1024;

/// Identifiers of one statement that removes rows, largest first.
const REMOVAL_SIZES: [usize; 3] = [256, 16, 1];

/// The connection that writes.
pub(crate) struct MySqlBindings {
    link: Link<MySql>,
    names: Names,
    zone: Zone,
    shapes: HashMap<String, Arc<Shape>>,
}

impl fmt::Debug for MySqlBindings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MySqlBindings").finish_non_exhaustive()
    }
}

/// A row as its statement wants it.
struct Fresh<'a> {
    ruid: String,
    contact: Contact<'a>,
    fitted: Fitted<'a>,
    expires: String,
    modified: String,
    methods: Option<i32>,
}

impl Fresh<'_> {
    /// About as many bytes as it takes.
    fn bytes(&self) -> usize {
        let row = &self.contact;
        let texts =
            [row.username, row.domain, row.contact, row.received, row.path, row.call_id, row.instance];
        texts.iter().map(|text| text.len()).sum::<usize>()
            + self.fitted.user_agent.len()
            + row.socket.len()
            + 200
    }
}

/// What happens to one table.
struct Part<'a> {
    shape: Arc<Shape>,
    table: &'a str,
    is_cleared: bool,
    removals: Vec<String>,
    rows: Vec<Fresh<'a>>,
}

impl MySqlBindings {
    pub(crate) fn new(
        url: &str,
        name: &str,
        patience: Duration,
        names: Names,
    ) -> Result<MySqlBindings, Fault> {
        let mut link = Link::new(driver(url)?, name, patience)?;
        link.keep_order();
        link.ensure_open()?;
        Ok(MySqlBindings { link, names, zone: Zone::system(), shapes: HashMap::new() })
    }

    pub(crate) fn shape(&mut self, table: &str) -> Result<Arc<Shape>, Fault> {
        if let Some(shape) = self.shapes.get(table) {
            return Ok(Arc::clone(shape));
        }
        let columns = self.link.columns(table)?;
        let shape = Shape::new(Dialect::MySql, table, &self.names, &columns)?;
        if !matches!((shape.expires, shape.modified), (Format::Time(_), Format::Time(_))) {
            return Err(Fault::other(StoreError::Unfit(format!(
                "the columns expires and last_modified of the table {table} must be of the type DATETIME, \
                 as in Kamailio's tables"
            ))));
        }
        let shape = Arc::new(shape);
        self.shapes.insert(table.to_string(), Arc::clone(&shape));
        Ok(shape)
    }

    pub(crate) fn load(&mut self, load: &mut Load<'_>) -> Result<(), Fault> {
        let table = load.table;
        let shape = self.shape(table)?;
        let zone = &mut self.zone;
        let done = self.link.run_steps(async |connection, patience| {
            load_rows(connection, patience, &shape, zone, load).await
        });
        // It may have ended in the middle of a stream or of a transaction.
        self.link.close();
        done?;
        let (expired, losers, now) = (load.take_expired(), load.take_losers(), load.now);
        self.remove_rows(table, &expired, Some(now))?;
        self.remove_rows(table, &losers, None)
    }

    pub(crate) fn read(&mut self, rows: &mut Rows<'_>) -> Result<(), Fault> {
        // What is no text there, no row has.
        let (Ok(username), Ok(domain)) =
            (std::str::from_utf8(rows.username), std::str::from_utf8(rows.domain))
        else {
            return Ok(());
        };
        let shape = self.shape(rows.table)?;
        let column = shape.column("domain");
        let or_null = if domain.is_empty() { format!(" OR {column} IS NULL") } else { String::new() };
        let sql = format!(
            "SELECT {} FROM {} WHERE {} = ? AND ({column} = ?{or_null})",
            select_list(&shape),
            shape.table,
            shape.column("username")
        );
        let found = self.again_if_lost(|this| {
            this.link.run(async |connection| {
                let query = sqlx::query(&sql).bind(username).bind(domain);
                query.fetch_all(connection).await.map_err(|error| fault(&error))
            })
        })?;
        rows.restart();
        for row in &found {
            let (id, contact) = contact_of(row, &mut self.zone);
            if !rows.row(id, &contact) {
                break;
            }
        }
        Ok(())
    }

    /// Removes rows by their numbers, in steps; with `until` only those that expire by then.
    pub(crate) fn remove_rows(&mut self, table: &str, ids: &[i64], until: Option<u64>) -> Result<(), Fault> {
        if ids.is_empty() {
            return Ok(());
        }
        let shape = self.shape(table)?;
        let limit = until.map_or(String::new(), |until| {
            format!(" AND {} <= '{}'", shape.column("expires"), civil_text(self.zone.civil(until), 6))
        });
        for part in ids.chunks(REMOVE_STEP) {
            // Numbers and a time of ours: nothing that would have to be bound.
            let list: Vec<String> = part.iter().map(ToString::to_string).collect();
            let sql = format!(
                "DELETE FROM {} WHERE {} IN ({}){limit}",
                shape.table,
                shape.column("id"),
                list.join(",")
            );
            self.again_if_lost(|this| {
                this.link.run(async |connection| MySql::execute(connection, &sql, &[]).await)
            })?;
        }
        Ok(())
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

    pub(crate) fn place(&self) -> String {
        self.link.name().to_string()
    }

    pub(crate) fn has_table(&mut self, table: &str) -> Result<bool, Fault> {
        Ok(!self.link.columns(table)?.is_empty())
    }

    pub(crate) fn pages(&mut self, table: &str, after: i64) -> Result<Vec<(i64, Vec<u8>)>, Fault> {
        let sql = format!(
            "SELECT CAST(id AS SIGNED), changes FROM {TABLE} WHERE table_name = ? AND id > ? ORDER BY id \
             LIMIT {PAGES_READ}"
        );
        self.link.run(async |connection| {
            let query = sqlx::query_as(&sql).bind(table).bind(after);
            query.fetch_all(connection).await.map_err(|error| fault(&error))
        })
    }

    pub(crate) fn write(&mut self, batch: &Batch, ledger: &Ledger) -> Result<Written, Fault> {
        let done = self.again_if_lost(|this| this.write_once(batch, ledger));
        if done.is_err() {
            // The table may be another one when it is tried again.
            self.shapes.clear();
        }
        done
    }

    fn write_once(&mut self, batch: &Batch, ledger: &Ledger) -> Result<Written, Fault> {
        let mut written = Written::default();
        let mut parts = Vec::new();
        for changes in batch.changes() {
            let shape = self.shape(&changes.name)?;
            parts.push(part(shape, batch, changes, &mut self.zone, &mut written));
        }
        if let ([], Ledger { pages, trim: None }) = (&parts[..], ledger)
            && let [page] = &pages[..]
        {
            self.link.run(async |connection| append(connection, page).await)?;
            return Ok(written);
        }
        let done = self.link.run_steps(async |connection, patience| {
            write_parts(connection, patience, &parts, ledger, &mut written).await
        });
        if done.is_err() {
            // The transaction ends with its connection.
            self.link.close();
        }
        done.map(|()| written)
    }
}

fn part<'a>(
    shape: Arc<Shape>,
    batch: &'a Batch,
    changes: &'a TableChanges,
    zone: &mut Zone,
    written: &mut Written,
) -> Part<'a> {
    let digits = |format| if let Format::Time(digits) = format { digits } else { 0 };
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
        let expires = zone.civil(if never { 0 } else { contact.expires_unix_micros });
        let methods = contact.methods.map(signed);
        rows.push(Fresh {
            ruid: ruid.text().as_str().to_string(),
            expires: civil_text(expires, digits(shape.expires)),
            modified: civil_text(zone.civil(contact.modified_unix_micros), digits(shape.modified)),
            methods: if shape.is_nullable(16) { methods } else { Some(methods.unwrap_or(-1)) },
            contact,
            fitted,
        });
    }
    Part { shape, table: &changes.name, is_cleared: changes.is_cleared, removals, rows }
}

fn upsert_sql(shape: &Shape, rows: usize) -> String {
    let places = vec!["?"; COLUMNS.len() - 1].join(", ");
    let row = format!("({places}{})", shape.constant_list());
    format!(
        "INSERT INTO {} ({}) VALUES {} ON DUPLICATE KEY UPDATE {}",
        shape.table,
        shape.insert_list(),
        vec![row; rows].join(", "),
        shape.update_list(|name| format!("VALUES({name})"))
    )
}

async fn put(connection: &mut MySqlConnection, shape: &Shape, rows: &[Fresh<'_>]) -> Result<(), Fault> {
    let sql = upsert_sql(shape, rows.len());
    let mut query = sqlx::query(&sql);
    for row in rows {
        let (contact, fitted) = (&row.contact, &row.fitted);
        query = query
            .bind(&row.ruid)
            .bind(fitted.username)
            .bind(fitted.domain)
            .bind(fitted.contact)
            .bind(fitted.received)
            .bind(fitted.path)
            .bind(&row.expires)
            .bind(f64::from(contact.q) / 1000.0)
            .bind(fitted.call_id)
            .bind(signed(contact.cseq))
            .bind(&row.modified)
            .bind(signed(contact.flags))
            .bind(signed(contact.cflags))
            .bind(&*fitted.user_agent)
            .bind(fitted.socket)
            .bind(row.methods)
            .bind(fitted.instance)
            .bind(signed(contact.reg_id));
    }
    query.execute(connection).await.map(|_| ()).map_err(|error| fault(&error))
}

async fn run(connection: &mut MySqlConnection, sql: &str) -> Result<(), Fault> {
    MySql::execute(connection, sql, &[]).await.map(|_| ())
}

/// Everything in one transaction.
async fn write_parts(
    connection: &mut MySqlConnection,
    patience: Duration,
    parts: &[Part<'_>],
    ledger: &Ledger,
    written: &mut Written,
) -> Result<(), Fault> {
    step(patience, run(connection, "BEGIN")).await?;
    for part in parts {
        let shape = &part.shape;
        if part.is_cleared {
            step(patience, run(connection, &format!("DELETE FROM {}", shape.table))).await?;
            written.rows += 1;
        }
        let mut rest = &part.removals[..];
        while let Some(size) = REMOVAL_SIZES.into_iter().find(|size| *size <= rest.len()) {
            let (these, others) = rest.split_at(size);
            rest = others;
            let places = vec!["?"; size].join(",");
            let sql = format!("DELETE FROM {} WHERE {} IN ({places})", shape.table, shape.column("ruid"));
            let query = these.iter().fold(sqlx::query(&sql), |query, ruid| query.bind(ruid));
            let done = async { query.execute(&mut *connection).await.map_err(|error| fault(&error)) };
            step(patience, done).await?;
            written.rows += size;
        }
        write_rows(connection, patience, part, written).await?;
    }
    for page in &ledger.pages {
        step(patience, append(connection, page)).await?;
    }
    if let Some((tables, generation)) = &ledger.trim {
        for table in tables {
            step(patience, trim(connection, table, *generation)).await?;
        }
    }
    step(patience, run(connection, "COMMIT")).await
}

async fn append(connection: &mut MySqlConnection, page: &Page) -> Result<(), Fault> {
    let sql = format!("INSERT INTO {TABLE} (table_name, generation, changes) VALUES (?, ?, ?)");
    let query = sqlx::query(&sql).bind(&page.table).bind(page.generation).bind(&page.changes);
    query.execute(connection).await.map(|_| ()).map_err(|error| fault(&error))
}

async fn trim(connection: &mut MySqlConnection, table: &str, generation: i32) -> Result<(), Fault> {
    let sql = format!("DELETE FROM {TABLE} WHERE table_name = ? AND generation <= ?");
    let query = sqlx::query(&sql).bind(table).bind(generation);
    query.execute(connection).await.map(|_| ()).map_err(|error| fault(&error))
}

/// Cuts rows into statements of the known sizes that fit into a packet.
fn statements(rows: &[Fresh<'_>]) -> Vec<Range<usize>> {
    let mut cuts = Vec::new();
    let mut start = 0;
    while start < rows.len() {
        let fits = |size: &usize| {
            let end = start + size;
            let texts = rows.get(start..end).map(|rows| rows.iter().map(Fresh::bytes).sum::<usize>());
            *size == 1 || texts.is_some_and(|bytes| bytes <= PACKET_BYTES)
        };
        let size = SIZES.into_iter().find(fits).unwrap_or(1);
        cuts.push(start..start + size);
        start += size;
    }
    cuts
}

/// The rows of one table; those that the database refuses are found one by one. A statement that fails is
/// undone, the transaction goes on.
async fn write_rows(
    connection: &mut MySqlConnection,
    patience: Duration,
    part: &Part<'_>,
    written: &mut Written,
) -> Result<(), Fault> {
    let mut todo = statements(&part.rows);
    todo.reverse();
    while let Some(range) = todo.pop() {
        let rows = &part.rows[range.clone()];
        match step(patience, put(connection, &part.shape, rows)).await {
            Ok(()) => written.rows += rows.len(),
            Err(bad) if matches!(bad.cause, Cause::Data | Cause::Duplicate) => {
                if let [row] = rows {
                    written.leave_out(part.table, &row.contact, bad.error.to_string());
                } else {
                    // Sizes that are prepared anyway: 32 eights, 4 of 8, …
                    let smaller = SIZES.into_iter().find(|size| *size < rows.len()).unwrap_or(1);
                    todo.extend(
                        range.clone().step_by(smaller).map(|at| at..(at + smaller).min(range.end)).rev(),
                    );
                }
            }
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

/// The columns, each as a text.
fn select_list(shape: &Shape) -> String {
    let all: Vec<String> = shape.names.iter().map(|name| Dialect::MySql.as_text(name)).collect();
    all.join(", ")
}

async fn load_rows(
    connection: &mut MySqlConnection,
    patience: Duration,
    shape: &Shape,
    zone: &mut Zone,
    load: &mut Load<'_>,
) -> Result<(), Fault> {
    // A sort may take longer than any other statement.
    let slow = patience * 10;
    step(patience, run(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")).await?;
    let (id, modified, table) = (shape.column("id"), shape.column("last_modified"), &shape.table);
    let foreign = foreign_condition(shape.column("ruid"));
    let counts =
        format!("SELECT CAST(count(*) AS CHAR), CAST(coalesce(max({foreign}), 0) AS CHAR) FROM {table}");
    let counts = step(slow, MySql::query(connection, &counts, &[])).await?;
    let count = |at: usize| counts.first().and_then(|row| row.get(at)?.as_deref()).unwrap_or_default();
    load.begin(std::str::from_utf8(count(0)).ok().and_then(|total| total.parse().ok()).unwrap_or(0));
    if count(1) == b"1" {
        let columns =
            [id, modified, shape.column("username"), shape.column("domain"), shape.column("contact")];
        let columns = columns.map(|name| Dialect::MySql.as_text(name)).join(", ");
        stream(connection, slow, &format!("SELECT {columns} FROM {table}"), &mut |row| {
            let text = |at: usize| bytes(row, at).unwrap_or_default();
            load.weigh(number(row, 0).unwrap_or(0), time_of(row, 1, zone), text(2), text(3), text(4));
            true
        })
        .await?;
    }
    let sql = format!("SELECT {} FROM {table} ORDER BY {modified}, {id}", select_list(shape));
    stream(connection, slow, &sql, &mut |row| {
        let (id, mut contact) = contact_of(row, zone);
        load.row(id, &mut contact)
    })
    .await?;
    load.end();
    Ok(())
}

async fn stream(
    connection: &mut MySqlConnection,
    patience: Duration,
    sql: &str,
    visit: &mut dyn FnMut(&MySqlRow) -> bool,
) -> Result<(), Fault> {
    let mut rows = sqlx::query(sql).fetch(connection);
    loop {
        let row = async { rows.try_next().await.map_err(|error| fault(&error)) };
        match step(patience, row).await? {
            Some(row) if visit(&row) => {}
            _ => return Ok(()),
        }
    }
}

fn number(row: &MySqlRow, at: usize) -> Option<i64> {
    std::str::from_utf8(bytes(row, at)?).ok()?.parse().ok()
}

fn time_of(row: &MySqlRow, at: usize, zone: &mut Zone) -> u64 {
    bytes(row, at).and_then(parse_civil).map_or(0, |civil| zone.unix(civil))
}

fn contact_of<'a>(row: &'a MySqlRow, zone: &mut Zone) -> (i64, Contact<'a>) {
    let text = |at: usize| bytes(row, at).unwrap_or_default();
    let unsigned_at = |at: usize| number(row, at).map_or(0, unsigned);
    let expires = time_of(row, 7, zone);
    let q = std::str::from_utf8(text(8)).ok().and_then(|q| q.parse().ok()).unwrap_or(1.0);
    let contact = Contact {
        ruid: text(1),
        username: text(2),
        domain: text(3),
        contact: text(4),
        received: text(5),
        path: text(6),
        expires_unix_micros: if expires == 0 { Contact::NEVER } else { expires },
        q: q_thousandths(q),
        call_id: text(9),
        cseq: unsigned_at(10),
        modified_unix_micros: time_of(row, 11, zone),
        flags: unsigned_at(12),
        cflags: unsigned_at(13),
        user_agent: text(14),
        socket: text(15),
        methods: number(row, 16).map(unsigned),
        instance: text(17),
        reg_id: unsigned_at(18),
        is_foreign: false,
    };
    (number(row, 0).unwrap_or(0), contact)
}
