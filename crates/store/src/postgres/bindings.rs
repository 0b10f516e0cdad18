//! Location tables in PostgreSQL.
//!
//! Rows go into a statement as one array for each column. A batch for one table is one statement, which commits
//! by itself: one round trip and one flush of the server's log.

use std::time::Duration;

use futures_util::TryStreamExt;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgConnection, PgHasArrayType, PgTypeInfo};
use sqlx::{Encode, Type};

use super::copy::Reader;
use super::{Postgres, fault};
use crate::Contact;
use crate::fault::Fault;
use crate::journal::{PAGES_READ, Page, TABLE};
use crate::location::{Shape, signed};
use crate::remote::{Fields, Fresh, Part, Tables, run, step};
use crate::time::Zone;

/// Rows of one statement at most.
const CHUNK_ROWS: usize = 5_000;

/// PostgreSQL counts from 2000-01-01: so many microseconds after 1970.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

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

impl Tables for Postgres {
    const TIME_TYPE: &'static str = "TIMESTAMP WITHOUT TIME ZONE";
    const HOLDS_NUL: bool = false;
    // Sorting a large table in memory is several times faster than on disk.
    const SNAPSHOT: &'static str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
                                    SET LOCAL statement_timeout = 0; SET LOCAL work_mem = '256MB'";

    fn selected(name: &str, quoted: &str) -> String {
        match name {
            "id" | "cseq" | "flags" | "cflags" | "methods" | "reg_id" => format!("{quoted}::int8"),
            "q" => format!("{quoted}::float8"),
            "expires" | "last_modified" => quoted.to_string(),
            _ => format!("{quoted}::text"),
        }
    }

    fn count_sql(table: &str, condition: &str) -> String {
        format!("SELECT count(*)::text, coalesce(bool_or({condition}), false)::text FROM {table}")
    }

    fn integer(field: Option<&[u8]>) -> Option<i64> {
        Some(i64::from_be_bytes(field?.try_into().ok()?))
    }

    fn real(field: Option<&[u8]>) -> Option<f64> {
        Some(f64::from_be_bytes(field?.try_into().ok()?))
    }

    fn time(field: Option<&[u8]>, zone: &mut Zone) -> u64 {
        match Self::integer(field) {
            // The two infinities.
            Some(i64::MAX) => Contact::NEVER,
            Some(micros) => zone.unix(micros.saturating_add(EPOCH_MICROS)),
            None => 0,
        }
    }

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

    async fn remove_ids(
        connection: &mut PgConnection,
        shape: &Shape,
        ids: &[i64],
        until: Option<i64>,
    ) -> Result<(), Fault> {
        let limit = until.map_or(String::new(), |_| format!(" AND {} <= $2", shape.column("expires")));
        let sql = format!("DELETE FROM {} WHERE {} = ANY($1){limit}", shape.table, shape.column("id"));
        let mut query = sqlx::query(&sql).bind(ids);
        if let Some(until) = until {
            query = query.bind(Civil(until));
        }
        query.execute(connection).await.map(drop).map_err(|error| fault(&error))
    }

    async fn write_at_once(connection: &mut PgConnection, part: &Part<'_>) -> Result<bool, Fault> {
        let is_one = !part.is_cleared && part.rows.len() <= CHUNK_ROWS && part.removals.len() <= CHUNK_ROWS;
        if is_one {
            change(connection, &part.shape, &part.removals, &part.rows).await?;
        }
        Ok(is_one)
    }

    async fn remove(
        connection: &mut PgConnection,
        patience: Duration,
        shape: &Shape,
        ruids: &[String],
    ) -> Result<(), Fault> {
        for ruids in ruids.chunks(CHUNK_ROWS) {
            step(patience, change(connection, shape, ruids, &[])).await?;
        }
        Ok(())
    }

    fn statement_rows(rows: &[Fresh<'_>]) -> usize {
        rows.len().min(CHUNK_ROWS)
    }

    fn fewer_rows(rows: usize) -> usize {
        rows.div_ceil(2)
    }

    async fn put(
        connection: &mut PgConnection,
        patience: Duration,
        shape: &Shape,
        rows: &[Fresh<'_>],
    ) -> Result<(), Fault> {
        run::<Self>(connection, patience, "SAVEPOINT rows").await?;
        let done = step(patience, change(connection, shape, &[], rows)).await;
        match &done {
            Ok(()) => run::<Self>(connection, patience, "RELEASE SAVEPOINT rows").await?,
            Err(bad) if bad.is_about_values() => {
                run::<Self>(connection, patience, "ROLLBACK TO SAVEPOINT rows").await?;
            }
            Err(_) => {}
        }
        done
    }

    async fn pages(
        connection: &mut PgConnection,
        table: &str,
        after: i64,
    ) -> Result<Vec<(i64, Vec<u8>)>, Fault> {
        let sql = format!(
            "SELECT id, changes FROM {TABLE} WHERE table_name = $1 AND id > $2 ORDER BY id LIMIT {PAGES_READ}"
        );
        let query = sqlx::query_as(&sql).bind(table).bind(after);
        query.fetch_all(connection).await.map_err(|error| fault(&error))
    }

    async fn append(connection: &mut PgConnection, page: &Page<'_>) -> Result<(), Fault> {
        let sql = format!("INSERT INTO {TABLE} (table_name, generation, changes) VALUES ($1, $2, $3)");
        let query = sqlx::query(&sql).bind(page.table).bind(page.generation).bind(page.changes);
        query.execute(connection).await.map(drop).map_err(|error| fault(&error))
    }

    async fn trim(
        connection: &mut PgConnection,
        patience: Duration,
        tables: &[String],
        generation: i32,
    ) -> Result<(), Fault> {
        let sql = format!("DELETE FROM {TABLE} WHERE table_name = ANY($1) AND generation <= $2");
        let query = sqlx::query(&sql).bind(tables).bind(generation);
        let done = async { query.execute(connection).await.map(drop).map_err(|error| fault(&error)) };
        step(patience, done).await
    }
}

/// Removals and upserts in one statement; no row is named in both.
async fn change(
    connection: &mut PgConnection,
    shape: &Shape,
    removals: &[String],
    rows: &[Fresh<'_>],
) -> Result<(), Fault> {
    let sql = change_sql(shape);
    let query = sqlx::query(&sql)
        .bind(column(rows, |row| row.ruid.as_str()))
        .bind(column(rows, |row| row.fitted.username))
        .bind(column(rows, |row| row.fitted.domain))
        .bind(column(rows, |row| row.fitted.contact))
        .bind(column(rows, |row| row.fitted.received))
        .bind(column(rows, |row| row.fitted.path))
        .bind(column(rows, |row| Civil(row.expires)))
        .bind(column(rows, |row| f64::from(row.contact.q) / 1000.0))
        .bind(column(rows, |row| row.fitted.call_id))
        .bind(column(rows, |row| signed(row.contact.cseq)))
        .bind(column(rows, |row| Civil(row.modified)))
        .bind(column(rows, |row| signed(row.contact.flags)))
        .bind(column(rows, |row| signed(row.contact.cflags)))
        .bind(column(rows, |row| &*row.fitted.user_agent))
        .bind(column(rows, |row| row.fitted.socket))
        .bind(column(rows, |row| row.methods))
        .bind(column(rows, |row| row.fitted.instance))
        .bind(column(rows, |row| signed(row.contact.reg_id)))
        .bind(removals);
    query.execute(connection).await.map(drop).map_err(|error| fault(&error))
}

fn column<'a, T>(rows: &'a [Fresh<'a>], value: impl Fn(&'a Fresh<'a>) -> T) -> Vec<T> {
    rows.iter().map(value).collect()
}

fn change_sql(shape: &Shape) -> String {
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
