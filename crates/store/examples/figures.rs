//! How fast a database is: `cargo run --release -p store --example figures -- URL [ROWS]`.
//!
//! It writes generated bindings in batches and one by one, loads them, and asks for a user's secrets. The
//! database should be an empty one: its table `location` is emptied first.

use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use store::{Batch, Bindings, Contact, Database, Select, StoreError, Url, User};

const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> Result<(), StoreError> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "sqlite:figures.sqlite".to_string());
    let rows: usize = arguments.next().and_then(|rows| rows.parse().ok()).unwrap_or(1_000_000);
    let database = Database::open(&Url::parse(&url, Path::new("."))?, PATIENCE)?;
    database.create()?;
    let mut bindings = database.bindings(&[])?;
    let mut batch = Batch::default();
    batch.clear_table("location");
    bindings.write(&batch)?;

    for (what, size) in [("new rows", 10_000), ("the same rows again", 10_000)] {
        let begun = Instant::now();
        write(&mut bindings, rows, size)?;
        report(&format!("{what}, {size} in a batch"), rows, begun.elapsed());
    }
    for size in [1, 10, 100, 1_000] {
        let (begun, count) = (Instant::now(), (size * 200).min(rows));
        write(&mut bindings, count, size)?;
        let commits = count / size;
        report(&format!("commits of {size} rows"), commits, begun.elapsed());
    }
    let begun = Instant::now();
    let visited = bindings.load("location", now(), &mut |_, _| {}, &mut |_| true)?;
    report("rows loaded", visited as usize, begun.elapsed());
    ask(&database)
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

fn report(what: &str, count: usize, took: Duration) {
    let seconds = took.as_secs_f64();
    println!("{what:40} {count:9} in {seconds:7.3} s = {:10.0} per second", count as f64 / seconds);
}

fn write(bindings: &mut Bindings, rows: usize, size: usize) -> Result<(), StoreError> {
    let mut batch = Batch::default();
    let now = now();
    for first in (0..rows).step_by(size) {
        batch.clear();
        for number in first..(first + size).min(rows) {
            // Not in the order of the users, as phones do not register in it.
            let number = number * 7_919 % rows;
            let (user, host) =
                (format!("user{number:07}"), format!("192.0.{}.{}", number / 256 % 256, number % 256));
            let contact = format!("sip:{user}@{host}:5060;transport=udp");
            let call_id = format!("{number:032x}@{host}");
            batch.save(
                "location",
                &Contact {
                    username: user.as_bytes(),
                    domain: b"example.com",
                    contact: contact.as_bytes(),
                    expires_unix_micros: now + 3_600_000_000,
                    q: 1000,
                    call_id: call_id.as_bytes(),
                    cseq: 1,
                    modified_unix_micros: now + number as u64,
                    user_agent: b"Example Phone 5.1.2",
                    socket: b"udp:192.0.2.1:5060",
                    ..Contact::default()
                },
            );
        }
        bindings.write(&batch)?;
    }
    Ok(())
}

fn ask(database: &Database) -> Result<(), StoreError> {
    let user = User { username: "figures".into(), ha1: "0".repeat(32), ..User::default() };
    // It may be there from an earlier run.
    let _ = database.users()?.add(&user);
    let selector = database.selector(2, 100_000)?;
    let begun = Instant::now();
    let (sender, receiver) = mpsc::channel();
    const QUESTIONS: usize = 20_000;
    for _ in 0..QUESTIONS {
        let select = Select {
            table: "subscriber".into(),
            columns: ["ha1".into()].into(),
            keys: vec![
                ("username".into(), b"figures".as_slice().into()),
                ("domain".into(), b"".as_slice().into()),
            ],
            rows_max: 1,
        };
        let sender = sender.clone();
        let reply = move |found: store::Selected| {
            let _ = sender.send(found.is_ok_and(|rows| rows.len() == 1));
        };
        selector.ask(select, begun + PATIENCE, Box::new(reply));
    }
    drop(sender);
    let answered = receiver.iter().filter(|good| *good).count();
    report("questions for a user's secret", answered, begun.elapsed());
    Ok(())
}
