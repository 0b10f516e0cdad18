//! Location tables in PostgreSQL.
//!
//! A batch for one table is one statement, which commits by itself: one round trip and one flush of the
//! server's log.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgConnection, PgHasArrayType, PgTypeInfo};
use sqlx::{Encode, Row as _, Type};

use super::copy::{FIELDS, Fields, Reader};
use super::{Postgres, bytes, driver, fault};
use crate::batch::{Batch, TableChanges};
use crate::bindings::Names;
use crate::fault::{Cause, Fault};
use crate::journal::{Ledger, PAGES_READ, Page, TABLE};
use crate::load::{Load, REMOVE_STEP, Rows, foreign_condition, q_thousandths};
use crate::location::{COLUMNS, Shape, signed, unsigned};
use crate::remote::{Driver, Link, step};
use crate::ruid::Ruid;
use crate::session::{Dialect, Format, Session};
use crate::time::Zone;
use crate::{Contact, StoreError, Written};

/// Rows of one statement at most.
const CHUNK_ROWS: usize = 5_000;

/// PostgreSQL counts from 2000-01-01: so many microseconds after 1970.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// Sorting a large table in memory is several times faster than on disk.
const SORT_MEMORY: &str = "256MB";

/// A local time, as a `timestamp`.
#[derive(Clone, Copy)]
struct Civil(i64);

impl Type<sqlx::Postgres> for Civil {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(1114))
    }
}

impl PgHasArrayType for Civil {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(1115))
    }
}

impl Encode<'_, sqlx::Postgres> for Civil {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(&(self.0 - EPOCH_MICROS).to_be_bytes());
        Ok(IsNull::No)
    }
}

/// The connection that writes.
pub(crate) struct PostgresBindings {
    link: Link<Postgres>,
    names: Names,
    zone: Zone,
    shapes: HashMap<String, Arc<Shape>>,
}

impl fmt::Debug for PostgresBindings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresBindings").finish_non_exhaustive()
    }
}

/// What happens to one table, column by column.
struct Part<'a> {
    shape: Arc<Shape>,
    is_cleared: bool,
    removals: Vec<String>,
    contacts: Vec<Contact<'a>>,
    table: &'a str,
    ruid: Vec<String>,
    username: Vec<&'a str>,
    domain: Vec<Option<&'a str>>,
    contact: Vec<&'a str>,
    received: Vec<Option<&'a str>>,
    path: Vec<Option<&'a str>>,
    expires: Vec<Civil>,
    q: Vec<f64>,
    call_id: Vec<&'a str>,
    cseq: Vec<i32>,
    modified: Vec<Civil>,
    flags: Vec<i32>,
    cflags: Vec<i32>,
    user_agent: Vec<Cow<'a, str>>,
    socket: Vec<Option<&'a str>>,
    methods: Vec<Option<i32>>,
    instance: Vec<Option<&'a str>>,
    reg_id: Vec<i32>,
}

impl PostgresBindings {
    pub(crate) fn new(
        url: &str,
        name: &str,
        patience: Duration,
        names: Names,
    ) -> Result<PostgresBindings, Fault> {
        let mut link = Link::new(driver(url, true)?, name, patience)?;
        link.keep_order();
        link.ensure_open()?;
        Ok(PostgresBindings { link, names, zone: Zone::system(), shapes: HashMap::new() })
    }

    pub(crate) fn shape(&mut self, table: &str) -> Result<Arc<Shape>, Fault> {
        if let Some(shape) = self.shapes.get(table) {
            return Ok(Arc::clone(shape));
        }
        let columns = self.link.columns(table)?;
        let shape = Shape::new(Dialect::Postgres, table, &self.names, &columns)?;
        if !matches!((shape.expires, shape.modified), (Format::Time(_), Format::Time(_))) {
            return Err(Fault::other(StoreError::Unfit(format!(
                "the columns expires and last_modified of the table {table} must be of the type \
                 TIMESTAMP WITHOUT TIME ZONE, as in Kamailio's tables"
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
        if username.contains('\0') || domain.contains('\0') {
            return Ok(());
        }
        let shape = self.shape(rows.table)?;
        let column = shape.column("domain");
        let or_null = if domain.is_empty() { format!(" OR {column} IS NULL") } else { String::new() };
        let sql = format!(
            "SELECT {} FROM {} WHERE {} = $1 AND ({column} = $2{or_null})",
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
            let mut fields: Fields<'_> = [None; FIELDS];
            for (at, field) in fields.iter_mut().enumerate().take(row.len()) {
                *field = bytes(row, at);
            }
            let (id, contact) = contact_of(&fields, &mut self.zone);
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
        let until = until.map(|until| Civil(self.zone.civil(until)));
        let limit = until.map_or(String::new(), |_| format!(" AND {} <= $2", shape.column("expires")));
        let sql = format!("DELETE FROM {} WHERE {} = ANY($1){limit}", shape.table, shape.column("id"));
        for part in ids.chunks(REMOVE_STEP) {
            self.again_if_lost(|this| {
                this.link.run(async |connection| {
                    let mut query = sqlx::query(&sql).bind(part);
                    if let Some(until) = until {
                        query = query.bind(until);
                    }
                    query.execute(connection).await.map_err(|error| fault(&error))
                })
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
            "SELECT id, changes FROM {TABLE} WHERE table_name = $1 AND id > $2 ORDER BY id LIMIT {PAGES_READ}"
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
            parts.push(Part::new(shape, batch, changes, &mut self.zone, &mut written));
        }
        if let ([], Ledger { pages, trim: None }) = (&parts[..], ledger)
            && let [page] = &pages[..]
        {
            self.link.run(async |connection| append(connection, page).await)?;
            return Ok(written);
        }
        let one = matches!(&parts[..], [part] if part.is_one_statement());
        if one && ledger.is_empty() {
            let part = &parts[0];
            let sql = part.sql();
            let rows = 0..part.ruid.len();
            let removals = &part.removals[..];
            let done = self.link.run(async |connection| part.put(connection, &sql, removals, rows).await);
            match done {
                Ok(()) => {
                    written.rows += part.ruid.len() + part.removals.len();
                    return Ok(written);
                }
                // One of the rows does not fit: find out which.
                Err(bad) if matches!(bad.cause, Cause::Data | Cause::Duplicate) => {}
                Err(other) => return Err(other),
            }
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
        let mut part = Part {
            shape,
            is_cleared: changes.is_cleared,
            removals,
            contacts: Vec::new(),
            table: &changes.name,
            ruid: Vec::new(),
            username: Vec::new(),
            domain: Vec::new(),
            contact: Vec::new(),
            received: Vec::new(),
            path: Vec::new(),
            expires: Vec::new(),
            q: Vec::new(),
            call_id: Vec::new(),
            cseq: Vec::new(),
            modified: Vec::new(),
            flags: Vec::new(),
            cflags: Vec::new(),
            user_agent: Vec::new(),
            socket: Vec::new(),
            methods: Vec::new(),
            instance: Vec::new(),
            reg_id: Vec::new(),
        };
        for (ruid, contact) in batch.saves(changes) {
            if let Err(reason) = part.push(ruid, contact, zone) {
                written.leave_out(&changes.name, &contact, reason);
            }
        }
        part
    }

    fn push(&mut self, ruid: Ruid, row: Contact<'a>, zone: &mut Zone) -> Result<(), String> {
        let shape = Arc::clone(&self.shape);
        let fitted = shape.fit(&row)?;
        let never = row.expires_unix_micros >= Contact::NEVER;
        self.ruid.push(ruid.text().as_str().to_string());
        self.username.push(fitted.username);
        self.domain.push(fitted.domain);
        self.contact.push(fitted.contact);
        self.received.push(fitted.received);
        self.path.push(fitted.path);
        self.expires.push(Civil(zone.civil(if never { 0 } else { row.expires_unix_micros })));
        self.q.push(f64::from(row.q) / 1000.0);
        self.call_id.push(fitted.call_id);
        self.cseq.push(signed(row.cseq));
        self.modified.push(Civil(zone.civil(row.modified_unix_micros)));
        self.flags.push(signed(row.flags));
        self.cflags.push(signed(row.cflags));
        self.user_agent.push(fitted.user_agent);
        self.socket.push(fitted.socket);
        let methods = row.methods.map(signed);
        self.methods.push(if shape.is_nullable(16) { methods } else { Some(methods.unwrap_or(-1)) });
        self.instance.push(fitted.instance);
        self.reg_id.push(signed(row.reg_id));
        self.contacts.push(row);
        Ok(())
    }

    fn is_one_statement(&self) -> bool {
        !self.is_cleared && self.ruid.len() <= CHUNK_ROWS && self.removals.len() <= CHUNK_ROWS
    }

    /// Removals and upserts in one statement; no row is named in both.
    fn sql(&self) -> String {
        let shape = &self.shape;
        let ruid = shape.column("ruid");
        format!(
            "WITH gone AS (DELETE FROM {table} WHERE {ruid} = ANY($19::text[])) \
             INSERT INTO {table} ({columns}) SELECT fresh.*{constants} FROM unnest($1::text[], $2::text[], \
             $3::text[], $4::text[], $5::text[], $6::text[], $7::timestamp[], $8::float8[], $9::text[], \
             $10::int4[], $11::timestamp[], $12::int4[], $13::int4[], $14::text[], $15::text[], $16::int4[], \
             $17::text[], \
             $18::int4[]) AS fresh ON CONFLICT ({ruid}) DO UPDATE SET {updates}",
            table = shape.table,
            columns = shape.insert_list(),
            constants = shape.constant_list(),
            updates = shape.update_list(|name| format!("excluded.{name}"))
        )
    }

    async fn put(
        &self,
        connection: &mut PgConnection,
        sql: &str,
        removals: &[String],
        rows: Range<usize>,
    ) -> Result<(), Fault> {
        let at = |range: &Range<usize>| range.clone();
        let query = sqlx::query(sql)
            .bind(&self.ruid[at(&rows)])
            .bind(&self.username[at(&rows)])
            .bind(&self.domain[at(&rows)])
            .bind(&self.contact[at(&rows)])
            .bind(&self.received[at(&rows)])
            .bind(&self.path[at(&rows)])
            .bind(&self.expires[at(&rows)])
            .bind(&self.q[at(&rows)])
            .bind(&self.call_id[at(&rows)])
            .bind(&self.cseq[at(&rows)])
            .bind(&self.modified[at(&rows)])
            .bind(&self.flags[at(&rows)])
            .bind(&self.cflags[at(&rows)])
            .bind(&self.user_agent[at(&rows)])
            .bind(&self.socket[at(&rows)])
            .bind(&self.methods[at(&rows)])
            .bind(&self.instance[at(&rows)])
            .bind(&self.reg_id[at(&rows)])
            .bind(removals);
        query.execute(connection).await.map(|_| ()).map_err(|error| fault(&error))
    }
}

async fn run(connection: &mut PgConnection, sql: &str) -> Result<(), Fault> {
    Postgres::execute(connection, sql, &[]).await.map(|_| ())
}

/// Everything in one transaction.
async fn write_parts(
    connection: &mut PgConnection,
    patience: Duration,
    parts: &[Part<'_>],
    ledger: &Ledger,
    written: &mut Written,
) -> Result<(), Fault> {
    step(patience, run(connection, "BEGIN")).await?;
    for part in parts {
        if part.is_cleared {
            step(patience, run(connection, &format!("DELETE FROM {}", part.shape.table))).await?;
            written.rows += 1;
        }
        let sql = part.sql();
        for removals in part.removals.chunks(CHUNK_ROWS) {
            step(patience, part.put(connection, &sql, removals, 0..0)).await?;
            written.rows += removals.len();
        }
        write_rows(connection, patience, part, &sql, written).await?;
    }
    for page in &ledger.pages {
        step(patience, append(connection, page)).await?;
    }
    if let Some((tables, generation)) = &ledger.trim {
        step(patience, trim(connection, tables, *generation)).await?;
    }
    step(patience, run(connection, "COMMIT")).await
}

async fn append(connection: &mut PgConnection, page: &Page) -> Result<(), Fault> {
    let sql = format!("INSERT INTO {TABLE} (table_name, generation, changes) VALUES ($1, $2, $3)");
    let query = sqlx::query(&sql).bind(&page.table).bind(page.generation).bind(&page.changes);
    query.execute(connection).await.map(|_| ()).map_err(|error| fault(&error))
}

async fn trim(connection: &mut PgConnection, tables: &[String], generation: i32) -> Result<(), Fault> {
    let sql = format!("DELETE FROM {TABLE} WHERE table_name = ANY($1) AND generation <= $2");
    let query = sqlx::query(&sql).bind(tables).bind(generation);
    query.execute(connection).await.map(|_| ()).map_err(|error| fault(&error))
}

/// The rows of one table; those that the database refuses are found by halving.
async fn write_rows(
    connection: &mut PgConnection,
    patience: Duration,
    part: &Part<'_>,
    sql: &str,
    written: &mut Written,
) -> Result<(), Fault> {
    let count = part.ruid.len();
    let starts = (0..count).step_by(CHUNK_ROWS);
    let mut todo: Vec<Range<usize>> = starts.map(|start| start..(start + CHUNK_ROWS).min(count)).collect();
    while let Some(rows) = todo.pop() {
        step(patience, run(connection, "SAVEPOINT rows")).await?;
        match step(patience, part.put(connection, sql, &[], rows.clone())).await {
            Ok(()) => {
                step(patience, run(connection, "RELEASE SAVEPOINT rows")).await?;
                written.rows += rows.len();
            }
            Err(bad) if matches!(bad.cause, Cause::Data | Cause::Duplicate) => {
                step(patience, run(connection, "ROLLBACK TO SAVEPOINT rows")).await?;
                if rows.len() == 1 {
                    written.leave_out(part.table, &part.contacts[rows.start], bad.error.to_string());
                    continue;
                }
                let middle = rows.start + rows.len() / 2;
                todo.push(middle..rows.end);
                todo.push(rows.start..middle);
            }
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

/// The columns, each in the one type that is read.
fn select_list(shape: &Shape) -> String {
    let cast = |(name, quoted): (&&str, &String)| match *name {
        "id" | "cseq" | "flags" | "cflags" | "methods" | "reg_id" => format!("{quoted}::int8"),
        "q" => format!("{quoted}::float8"),
        "expires" | "last_modified" => quoted.clone(),
        _ => format!("{quoted}::text"),
    };
    let all: Vec<String> = COLUMNS.iter().zip(&shape.names).map(cast).collect();
    all.join(", ")
}

async fn load_rows(
    connection: &mut PgConnection,
    patience: Duration,
    shape: &Shape,
    zone: &mut Zone,
    load: &mut Load<'_>,
) -> Result<(), Fault> {
    // One snapshot for all of it; a sort may take longer than any other statement.
    let begin = format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = 0; \
         SET LOCAL work_mem = '{SORT_MEMORY}'"
    );
    step(patience, run(connection, &begin)).await?;
    let (id, modified, table) = (shape.column("id"), shape.column("last_modified"), &shape.table);
    let foreign = foreign_condition(shape.column("ruid"));
    let counts = format!("SELECT count(*)::text, coalesce(bool_or({foreign}), false)::text FROM {table}");
    let slow = patience * 10;
    let counts = step(slow, Postgres::query(connection, &counts, &[])).await?;
    let count = |at: usize| counts.first().and_then(|row| row.get(at)?.as_deref()).unwrap_or_default();
    load.begin(std::str::from_utf8(count(0)).ok().and_then(|total| total.parse().ok()).unwrap_or(0));
    if count(1) == b"true" {
        let sql = format!(
            "SELECT {id}::int8, {modified}, {}::text, {}::text, {}::text FROM {table}",
            shape.column("username"),
            shape.column("domain"),
            shape.column("contact")
        );
        stream(connection, slow, &sql, &mut |fields| {
            let modified = time_of(fields[1], zone);
            let text = |at: usize| fields[at].unwrap_or_default();
            load.weigh(int(fields[0]).unwrap_or(0), modified, text(2), text(3), text(4));
            true
        })
        .await?;
    }
    let sql = format!("SELECT {} FROM {table} ORDER BY {modified}, {id}", select_list(shape));
    stream(connection, slow, &sql, &mut |fields| {
        let (id, mut contact) = contact_of(fields, zone);
        load.row(id, &mut contact)
    })
    .await?;
    load.end();
    Ok(())
}

/// Visits the rows of a query; the first may take `patience`, and each next one, too.
async fn stream(
    connection: &mut PgConnection,
    patience: Duration,
    query: &str,
    visit: &mut dyn FnMut(&Fields<'_>) -> bool,
) -> Result<(), Fault> {
    let sql = format!("COPY ({query}) TO STDOUT (FORMAT BINARY)");
    let opened = async { connection.copy_out_raw(&sql).await.map_err(|error| fault(&error)) };
    let mut pieces = step(patience, opened).await?;
    let mut reader = Reader::default();
    loop {
        let piece = async { pieces.try_next().await.map_err(|error| fault(&error)) };
        let Some(piece) = step(patience, piece).await? else { return Ok(()) };
        if !reader.feed(&piece, visit)? {
            return Ok(());
        }
    }
}

fn int(field: Option<&[u8]>) -> Option<i64> {
    Some(i64::from_be_bytes(field?.try_into().ok()?))
}

fn time_of(field: Option<&[u8]>, zone: &mut Zone) -> u64 {
    match int(field) {
        // The two infinities.
        Some(i64::MAX) => Contact::NEVER,
        Some(micros) => zone.unix(micros.saturating_add(EPOCH_MICROS)),
        None => 0,
    }
}

fn contact_of<'a>(fields: &Fields<'a>, zone: &mut Zone) -> (i64, Contact<'a>) {
    let text = |at: usize| fields[at].unwrap_or_default();
    let number = |at: usize| int(fields[at]).map_or(0, unsigned);
    let expires = time_of(fields[7], zone);
    let q = fields[8].and_then(|bytes| bytes.try_into().ok()).map_or(1.0, f64::from_be_bytes);
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
        cseq: number(10),
        modified_unix_micros: time_of(fields[11], zone),
        flags: number(12),
        cflags: number(13),
        user_agent: text(14),
        socket: text(15),
        methods: int(fields[16]).map(unsigned),
        instance: text(17),
        reg_id: number(18),
        is_foreign: false,
    };
    (int(fields[0]).unwrap_or(0), contact)
}
