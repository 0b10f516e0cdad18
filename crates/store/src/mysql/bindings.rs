//! Location tables in MariaDB and MySQL.
//!
//! Rows are written by statements for 256, 32, 4 or 1 of them, so that the server prepares four and not
//! hundreds.

use std::time::Duration;

use futures_util::TryStreamExt;
use sqlx::mysql::MySqlConnection;

use super::{MySql, bytes, fault};
use crate::fault::Fault;
use crate::journal::{PAGES_READ, Page, TABLE};
use crate::location::{COLUMNS, Shape, signed};
use crate::remote::{Driver, Fields, Fresh, Tables, step};
use crate::session::{Dialect, Format};
use crate::time::{Zone, civil_text, parse_civil};

/// Rows of one statement, largest first.
const SIZES: [usize; 4] = [256, 32, 4, 1];

/// Bytes of texts in one statement at most; `max_allowed_packet` is 16 MiB by default, and 1 MiB at least
/// where anything is to work.
const PACKET_BYTES: usize = 768 * 1024;

/// Identifiers of one statement that removes rows, largest first.
const REMOVAL_SIZES: [usize; 3] = [256, 16, 1];

impl Tables for MySql {
    const TIME_TYPE: &'static str = "DATETIME";
    const HOLDS_NUL: bool = true;
    const SNAPSHOT: &'static str = "START TRANSACTION WITH CONSISTENT SNAPSHOT";

    fn selected(_: &str, quoted: &str) -> String {
        Dialect::MySql.as_text(quoted)
    }

    fn count_sql(table: &str, condition: &str) -> String {
        format!("SELECT CAST(count(*) AS CHAR), CAST(coalesce(max({condition}), 0) AS CHAR) FROM {table}")
    }

    fn integer(field: Option<&[u8]>) -> Option<i64> {
        std::str::from_utf8(field?).ok()?.parse().ok()
    }

    fn real(field: Option<&[u8]>) -> Option<f64> {
        std::str::from_utf8(field?).ok()?.parse().ok()
    }

    fn time(field: Option<&[u8]>, zone: &mut Zone) -> u64 {
        field.and_then(parse_civil).map_or(0, |civil| zone.unix(civil))
    }

    async fn stream(
        connection: &mut MySqlConnection,
        patience: Duration,
        query: &str,
        visit: &mut dyn FnMut(&Fields<'_>) -> bool,
    ) -> Result<(), Fault> {
        let mut rows = sqlx::query(query).fetch(connection);
        loop {
            let row = async { rows.try_next().await.map_err(|error| fault(&error)) };
            let Some(row) = step(patience, row).await? else { return Ok(()) };
            // Of a field that is not there nothing is read.
            if !visit(&std::array::from_fn(|at| bytes(&row, at))) {
                return Ok(());
            }
        }
    }

    async fn remove_ids(
        connection: &mut MySqlConnection,
        shape: &Shape,
        ids: &[i64],
        until: Option<i64>,
    ) -> Result<(), Fault> {
        // Numbers and a time of ours: nothing that would have to be bound.
        let list: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let limit = until.map_or(String::new(), |until| {
            format!(" AND {} <= '{}'", shape.column("expires"), civil_text(until, 6))
        });
        let (table, id, list) = (&shape.table, shape.column("id"), list.join(","));
        let sql = format!("DELETE FROM {table} WHERE {id} IN ({list}){limit}");
        Self::execute(connection, &sql, &[]).await.map(drop)
    }

    async fn remove(
        connection: &mut MySqlConnection,
        patience: Duration,
        shape: &Shape,
        mut ruids: &[String],
    ) -> Result<(), Fault> {
        while let Some(size) = REMOVAL_SIZES.into_iter().find(|size| *size <= ruids.len()) {
            let (these, others) = ruids.split_at(size);
            ruids = others;
            let places = vec!["?"; size].join(",");
            let sql = format!("DELETE FROM {} WHERE {} IN ({places})", shape.table, shape.column("ruid"));
            let query = these.iter().fold(sqlx::query(&sql), |query, ruid| query.bind(ruid));
            let done = async { query.execute(&mut *connection).await.map_err(|error| fault(&error)) };
            step(patience, done).await?;
        }
        Ok(())
    }

    fn statement_rows(rows: &[Fresh<'_>]) -> usize {
        let fits = |size: &usize| {
            let bytes = rows.get(..*size).map(|rows| rows.iter().map(row_bytes).sum::<usize>());
            bytes.is_some_and(|bytes| bytes <= PACKET_BYTES)
        };
        SIZES.into_iter().find(fits).unwrap_or(1)
    }

    fn fewer_rows(rows: usize) -> usize {
        // Sizes that are prepared anyway: 32 eights, 4 of 8, …
        SIZES.into_iter().find(|size| *size < rows).unwrap_or(1)
    }

    /// A statement that fails is undone, the transaction goes on.
    async fn put(
        connection: &mut MySqlConnection,
        patience: Duration,
        shape: &Shape,
        rows: &[Fresh<'_>],
    ) -> Result<(), Fault> {
        step(patience, upsert(connection, shape, rows)).await
    }

    async fn pages(
        connection: &mut MySqlConnection,
        table: &str,
        after: i64,
    ) -> Result<Vec<(i64, Vec<u8>)>, Fault> {
        let sql = format!(
            "SELECT CAST(id AS SIGNED), changes FROM {TABLE} WHERE table_name = ? AND id > ? ORDER BY id \
             LIMIT {PAGES_READ}"
        );
        let query = sqlx::query_as(&sql).bind(table).bind(after);
        query.fetch_all(connection).await.map_err(|error| fault(&error))
    }

    async fn append(connection: &mut MySqlConnection, page: &Page<'_>) -> Result<(), Fault> {
        let sql = format!("INSERT INTO {TABLE} (table_name, generation, changes) VALUES (?, ?, ?)");
        let query = sqlx::query(&sql).bind(page.table).bind(page.generation).bind(page.changes);
        query.execute(connection).await.map(drop).map_err(|error| fault(&error))
    }

    async fn trim(
        connection: &mut MySqlConnection,
        patience: Duration,
        tables: &[String],
        generation: i32,
    ) -> Result<(), Fault> {
        let sql = format!("DELETE FROM {TABLE} WHERE table_name = ? AND generation <= ?");
        for table in tables {
            let query = sqlx::query(&sql).bind(table).bind(generation);
            let done = async { query.execute(&mut *connection).await.map_err(|error| fault(&error)) };
            step(patience, done).await?;
        }
        Ok(())
    }
}

/// About as many bytes as a row takes.
fn row_bytes(row: &Fresh<'_>) -> usize {
    let contact = &row.contact;
    let texts = [
        contact.username,
        contact.domain,
        contact.contact,
        contact.received,
        contact.path,
        contact.call_id,
        contact.instance,
        contact.socket,
    ];
    texts.iter().map(|text| text.len()).sum::<usize>() + row.fitted.user_agent.len() + 200
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

async fn upsert(connection: &mut MySqlConnection, shape: &Shape, rows: &[Fresh<'_>]) -> Result<(), Fault> {
    let time = |civil, format| civil_text(civil, if let Format::Time(digits) = format { digits } else { 0 });
    let sql = upsert_sql(shape, rows.len());
    let mut query = sqlx::query(&sql);
    for row in rows {
        let (contact, fitted) = (&row.contact, &row.fitted);
        query = query
            .bind(row.ruid.as_str())
            .bind(fitted.username)
            .bind(fitted.domain)
            .bind(fitted.contact)
            .bind(fitted.received)
            .bind(fitted.path)
            .bind(time(row.expires, shape.expires))
            .bind(f64::from(contact.q) / 1000.0)
            .bind(fitted.call_id)
            .bind(signed(contact.cseq))
            .bind(time(row.modified, shape.modified))
            .bind(signed(contact.flags))
            .bind(signed(contact.cflags))
            .bind(&*fitted.user_agent)
            .bind(fitted.socket)
            .bind(row.methods)
            .bind(fitted.instance)
            .bind(signed(contact.reg_id));
    }
    query.execute(connection).await.map(drop).map_err(|error| fault(&error))
}
