//! SQLite: what every database must do, and what may happen to a file.
//!
//! Tests with tables that Kamailio's own scripts make need those; `cargo test -p store -- --ignored` runs them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod common;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::*;
use rusqlite::Connection;
use store::{Batch, Contact, Database, Records, StoreError, Url, What};

fn url(path: &Path) -> Url {
    Url::Sqlite(path.to_path_buf())
}

fn fresh() -> (Directory, PathBuf, Database) {
    let directory = Directory::new();
    let path = directory.path().join("state/strowger.sqlite");
    let database = Database::open(&url(&path), PATIENCE).unwrap();
    (directory, path, database)
}

fn execute(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

/// A file with Kamailio's own tables.
fn kamailio(path: &Path) {
    kamailio_scripts("db_sqlite", "kamailio-sqlite-modules", &mut |sql| execute(path, sql));
}

#[test]
fn bindings_are_kept() {
    bindings_come_back(&fresh().2);
}

#[test]
fn rows_are_replaced_and_removed_by_batches() {
    rows_are_replaced_and_removed(&fresh().2);
}

#[test]
fn a_journal_is_as_good_as_the_table() {
    a_journal_keeps_what_was_committed(&fresh().2, 150);
    a_journal_takes_what_fits(&fresh().2);
}

#[test]
fn a_damaged_journal_is_an_error_that_names_it() {
    let (_directory, path, database) = fresh();
    let tables = ["location".to_string()];
    let mut bindings = database.bindings(&[]).unwrap();
    let mut journal = bindings.journal(&tables).unwrap().unwrap();
    save_to(&mut bindings, &mut journal, &[bare("alice", "sip:a", now())]);
    save_to(&mut bindings, &mut journal, &[bare("bob", "sip:b", now())]);
    let file = path.with_file_name(format!("{}-changes-0", path.file_name().unwrap().to_str().unwrap()));
    let whole = std::fs::read(&file).unwrap();
    let damage = |user: &[u8]| {
        let mut bytes = whole.clone();
        let at = bytes.windows(user.len()).position(|text| text == user).unwrap();
        bytes[at] = b'x';
        std::fs::write(&file, bytes).unwrap();
        database.bindings(&[]).unwrap().recover(&tables)
    };
    let error = damage(b"alice").unwrap_err();
    assert!(
        matches!(&error, StoreError::Unfit(text) if text.contains("damaged") && text.contains("-changes-0")),
        "{error}"
    );
    // The last one may never have been answered.
    assert_eq!(damage(b"bob").unwrap(), 1);
}

#[test]
fn rows_that_are_refused_again_and_again_do_not_fill_the_disk() {
    let (_directory, path, database) = fresh();
    let tables = ["location".to_string()];
    let mut bindings = database.bindings(&[]).unwrap();
    let (mut journal, encoder) = bindings.journal(&tables).unwrap().unwrap();
    let (alice, mut rows) = (bare("alice", "sip:a", now()), Batch::default());
    rows.save("location", &alice);
    let mut records = Records::default();
    for _ in 0..5_000 {
        records.push(0, &mut record(&encoder, What::Save, &alice).unwrap());
    }
    journal.end_generation();
    // Refused at once, and not before the transaction is to be committed.
    let broken = [
        ("DROP TABLE location", "SELECT 1"),
        (
            "CREATE TABLE parent (id INTEGER PRIMARY KEY); CREATE TABLE child (id INTEGER REFERENCES parent (id) \
             DEFERRABLE INITIALLY DEFERRED); CREATE TRIGGER late AFTER INSERT ON location BEGIN INSERT INTO child \
             VALUES (7); END",
            "DROP TRIGGER late",
        ),
    ];
    for (breaks, mends) in broken.into_iter().rev() {
        execute(&path, breaks);
        for _ in 0..50 {
            bindings.commit(&mut journal, &mut records, &rows, false).unwrap_err();
        }
        execute(&path, mends);
    }
    let file = path.with_file_name(format!("{}-changes-0", path.file_name().unwrap().to_str().unwrap()));
    let length = std::fs::metadata(file).map_or(0, |file| file.len());
    assert!(length < 4 * records.bytes() as u64, "{length} bytes for {}", records.bytes());
}

#[test]
fn a_file_without_a_journal_has_none() {
    let (_directory, path, database) = fresh();
    execute(&path, "DROP TABLE strowger_journal");
    let tables = ["location".to_string()];
    let mut bindings = database.bindings(&[]).unwrap();
    assert_eq!(bindings.recover(&tables).unwrap(), 0);
    assert!(bindings.journal(&tables).unwrap().is_none());
    assert_eq!(database.create().unwrap(), ["strowger_journal"]);
}

#[test]
fn expired_rows_go_at_load() {
    expired_rows_are_removed(&fresh().2);
}

#[test]
fn any_bytes_of_any_length_are_kept() {
    a_bad_row_does_not_poison_the_batch(&fresh().2, true);
}

#[test]
fn users_are_added_changed_and_removed() {
    users_are_managed(&fresh().2, true);
}

#[test]
fn questions_find_rows() {
    questions_are_answered(&fresh().2);
}

#[test]
fn questions_have_a_limit() {
    too_many_questions_are_turned_away(&fresh().2);
}

#[test]
fn tables_that_do_not_fit_are_named() {
    let (_directory, path, database) = fresh();
    tables_are_checked_and_made(&database, &mut |sql| execute(&path, sql));
}

#[test]
#[ignore = "needs Kamailio's scripts: cargo test -p store -- --ignored"]
fn kamailios_own_tables_work_as_they_are() {
    let directory = Directory::new();
    let path = directory.path().join("k.sqlite");
    kamailio(&path);
    let database = Database::open(&url(&path), PATIENCE).unwrap();
    database.check(&[needed("location", "location"), needed("subscriber", "subscriber")]).unwrap();
    users_are_managed(&database, false);
    let now = now();
    let mut bindings = database.bindings(&[]).unwrap();
    let row = full(now);
    save(&mut bindings, &[row]);
    let all = load_all(&mut bindings, "location", now);
    // Days as doubles: exact to 40 microseconds.
    assert!(all[0].numbers[0].abs_diff(row.expires_unix_micros) <= 60, "{all:?}");
    assert_eq!(all[0].texts, written(&row).texts);
    let kind: String = Connection::open(&path)
        .unwrap()
        .query_row("SELECT typeof(expires) FROM location", [], |row| row.get(0))
        .unwrap();
    assert_eq!(kind, "real");
}

#[test]
#[ignore = "needs Kamailio's scripts: cargo test -p store -- --ignored"]
fn rows_of_a_kamailio_are_taken_over() {
    let directory = Directory::new();
    let path = directory.path().join("k.sqlite");
    kamailio(&path);
    let database = Database::open(&url(&path), PATIENCE).unwrap();
    foreign_rows_are_taken_over(&database, &mut |ruid, username, contact, age| {
        execute(
            &path,
            &format!(
                "INSERT INTO location (ruid, username, contact, expires, last_modified) VALUES \
                 ('{ruid}', '{username}', '{contact}', julianday('now', '+600 seconds'), \
                 julianday('now', '{} seconds'))",
                -age
            ),
        );
    });
}

#[test]
fn a_text_in_double_quotes_is_one_where_a_table_was_made_with_it_only() {
    let (_directory, path, _) = fresh();
    execute(
        &path,
        "ALTER TABLE location ADD COLUMN attrs TEXT DEFAULT \"none\" CHECK (attrs <> \"many\"); \
         CREATE INDEX by_attrs ON location (attrs || \"x\") WHERE attrs <> \"few\"; \
         CREATE VIEW fixed AS SELECT username, \"plain\" AS password FROM subscriber;",
    );
    let database = Database::open(&url(&path), PATIENCE).unwrap();
    database.check(&[needed("location", "location")]).unwrap();
    bindings_come_back(&database);
    let attrs: String = Connection::open(&path)
        .unwrap()
        .query_row("SELECT max(attrs) FROM location", [], |row| row.get(0))
        .unwrap();
    assert_eq!(attrs, "none");
    // A view and a trigger are statements that are read again each time.
    let selector = database.selector(1, 10).unwrap();
    let answer = ask(&selector, select("fixed", &["password"], &[("username", "alice")]), PATIENCE);
    assert!(matches!(&answer, Err(StoreError::Refused(text)) if text.contains("plain")), "{answer:?}");
    execute(
        &path,
        "CREATE TRIGGER late AFTER INSERT ON location BEGIN UPDATE location SET attrs = \"late\"; END",
    );
    let mut batch = Batch::default();
    batch.save("location", &bare("b", "sip:1", now()));
    let error = database.bindings(&[]).unwrap().write(&batch).unwrap_err();
    assert!(matches!(&error, StoreError::Refused(text) if text.contains("late")), "{error}");
}

#[test]
fn the_file_and_its_directory_are_for_the_owner_only() {
    let (_directory, path, _) = fresh();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
    let names: Vec<_> =
        std::fs::read_dir(path.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().contains(".new-")), "{names:?}");
}

#[test]
fn a_damaged_file_is_an_error_and_stays_as_it_is() {
    let directory = Directory::new();
    for (name, content) in
        [("text", &b"this is no database, it is a text, and a long one"[..]), ("empty", b"")]
    {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        let error = Database::open(&url(&path), PATIENCE).unwrap_err();
        assert!(matches!(&error, StoreError::Unfit(text) if text.contains(name)), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), content);
    }
}

#[test]
fn a_page_that_is_damaged_is_found_while_loading() {
    let (_directory, path, database) = fresh();
    let now = now();
    let names: Vec<String> = (0..2_000).map(|number| format!("sip:{number}@{}", "x".repeat(200))).collect();
    let mut batch = Batch::default();
    for name in &names {
        batch.save("location", &Contact { contact: name.as_bytes(), ..bare("a", "", now) });
    }
    let mut bindings = database.bindings(&[]).unwrap();
    bindings.write(&batch).unwrap();
    drop(bindings);
    execute(&path, "PRAGMA wal_checkpoint(TRUNCATE)");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 8192 * 4096;
    for page in (middle..middle + 40_960).step_by(4096) {
        bytes[page..page + 64].fill(0x5a);
    }
    std::fs::write(&path, &bytes).unwrap();
    let database = Database::open(&url(&path), PATIENCE).unwrap();
    let error =
        database.bindings(&[]).unwrap().load("location", now, &mut |_, _| {}, &mut |_| true).unwrap_err();
    assert!(matches!(&error, StoreError::Unfit(text) if text.contains(".recover")), "{error}");
}

#[test]
fn a_log_without_its_file_is_not_written_over() {
    let directory = Directory::new();
    let path = directory.path().join("lost.sqlite");
    std::fs::write(directory.path().join("lost.sqlite-wal"), b"pages").unwrap();
    let error = Database::open(&url(&path), PATIENCE).unwrap_err();
    assert!(matches!(&error, StoreError::Unfit(text) if text.contains("-wal")), "{error}");
    assert!(!path.exists());
}

#[test]
fn a_file_that_is_moved_away_is_not_written_any_more() {
    let (_directory, path, database) = fresh();
    let mut bindings = database.bindings(&[]).unwrap();
    save(&mut bindings, &[bare("a", "sip:1", now())]);
    let away = path.with_extension("away");
    for suffix in ["", "-wal", "-shm"] {
        let name = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
        let _ = std::fs::rename(name(&path), name(&away));
    }
    let mut batch = Batch::default();
    batch.save("location", &bare("b", "sip:1", now()));
    let error = bindings.write(&batch).unwrap_err();
    assert!(matches!(&error, StoreError::Unfit(text) if text.contains("gone")), "{error}");
    assert!(!path.exists());
    for suffix in ["", "-wal", "-shm"] {
        let name = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
        let _ = std::fs::rename(name(&away), name(&path));
    }
    bindings.write(&batch).unwrap();
    assert_eq!(load_all(&mut bindings, "location", now()).len(), 2);
}

#[test]
fn a_locked_file_is_away_and_comes_back() {
    let (_directory, path, _) = fresh();
    let database = Database::open(&url(&path), Duration::from_millis(200)).unwrap();
    let mut bindings = database.bindings(&[]).unwrap();
    let mut batch = Batch::default();
    batch.save("location", &bare("b", "sip:1", now()));
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = bindings.write(&batch).unwrap_err();
    assert!(matches!(&error, StoreError::Away(text) if text.contains("locked")), "{error}");
    other.execute_batch("COMMIT").unwrap();
    bindings.write(&batch).unwrap();
}

#[test]
fn a_full_disk_refuses_and_loses_nothing() {
    let (_directory, path, database) = fresh();
    let mut bindings = database.bindings(&[]).unwrap();
    save(&mut bindings, &[bare("a", "sip:1", now())]);
    drop(bindings);
    // A limit of the file itself; the connection that writes reads it from there when it is opened.
    let names: Vec<String> = (0..3_000).map(|number| format!("sip:{number}@{}", "x".repeat(300))).collect();
    let mut batch = Batch::default();
    for name in &names {
        batch.save("location", &Contact { contact: name.as_bytes(), ..bare("a", "", now()) });
    }
    let Some(full) = small_disk(&path) else { return };
    let database_there = Database::open(&url(&full.1), PATIENCE).unwrap();
    let mut bindings = database_there.bindings(&[]).unwrap();
    let error = bindings.write(&batch).unwrap_err();
    assert!(matches!(&error, StoreError::Refused(text) if text.contains("full")), "{error}");
    assert_eq!(load_all(&mut bindings, "location", now()).len(), 1);
    drop((bindings, database_there, database));
    full.0.unmount();
}

/// A file system of a few hundred kilobytes.
struct Mount(PathBuf);

impl Mount {
    fn unmount(&self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// A copy of the file on a small disk; `None` where none may be mounted.
fn small_disk(path: &Path) -> Option<(Mount, PathBuf)> {
    let point = path.parent().unwrap().join("small");
    std::fs::create_dir(&point).unwrap();
    let mut mount = std::process::Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=640k", "tmpfs"]).arg(&point);
    if !mount.output().is_ok_and(|output| output.status.success()) {
        return None;
    }
    let mount = Mount(point.clone());
    execute(path, "PRAGMA wal_checkpoint(TRUNCATE)");
    let copy = point.join("strowger.sqlite");
    std::fs::copy(path, &copy).unwrap();
    Some((mount, copy))
}

/// Says to the next test that it runs as somebody who may not write everything.
const CHILD: &str = "STORE_TEST_UNPRIVILEGED";

/// `nobody`, and `nogroup`.
const NOBODY: u32 = 65_534;

/// The administrator may write anything: for root it runs again in a process of somebody else's.
#[test]
fn a_file_that_may_not_be_written_refuses() {
    let directory = Directory::new();
    if std::fs::metadata(directory.path()).unwrap().uid() == 0 {
        assert!(std::env::var_os(CHILD).is_none(), "it is root's still");
        return run_as_nobody(&directory, "a_file_that_may_not_be_written_refuses");
    }
    let (_directory, path, _database) = fresh();
    execute(&path, "PRAGMA journal_mode=DELETE");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
    let database = Database::open(&url(&path), PATIENCE).unwrap();
    let mut batch = Batch::default();
    batch.save("location", &bare("b", "sip:1", now()));
    let error = database.bindings(&[]).unwrap().write(&batch).unwrap_err();
    assert!(matches!(&error, StoreError::Refused(text) if text.contains("written")), "{error}");
}

/// Runs one test of this program as a user without rights, with everything it needs in this directory: root's own may be
/// closed to others.
fn run_as_nobody(directory: &Directory, test: &str) {
    let place = directory.path().canonicalize().unwrap();
    std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(&place, Some(NOBODY), Some(NOBODY)).unwrap();
    let program = place.join("tests");
    // Not by ourselves: what another test starts meanwhile would hold it open for writing, and so keep it from being run.
    let copied =
        std::process::Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status();
    assert!(copied.unwrap().success());
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = std::process::Command::new(&program);
    command.args(["--exact", test, "--nocapture"]).current_dir(&place);
    command.env(CHILD, "1").env("TMPDIR", &place).uid(NOBODY).gid(NOBODY);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let is_done = output.status.success() && said.contains("1 passed");
    assert!(is_done, "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_table_that_is_dropped_refuses_and_serves_again_when_it_is_back() {
    let (_directory, path, database) = fresh();
    let selector = database.selector(1, 10).unwrap();
    let mut bindings = database.bindings(&[]).unwrap();
    save(&mut bindings, &[bare("a", "sip:1", now())]);
    execute(&path, "DROP TABLE location; DROP TABLE subscriber;");
    let mut batch = Batch::default();
    batch.save("location", &bare("b", "sip:1", now()));
    let error = bindings.write(&batch).unwrap_err();
    assert!(matches!(&error, StoreError::Refused(text) if text.contains("location")), "{error}");
    let question = || select("subscriber", &["ha1"], &[("username", "a")]);
    assert!(matches!(ask(&selector, question(), PATIENCE), Err(StoreError::Refused(_))));
    assert_eq!(database.create().unwrap(), ["location", "subscriber"]);
    bindings.write(&batch).unwrap();
    assert_eq!(ask(&selector, question(), PATIENCE).unwrap().len(), 0);
}

#[test]
fn a_question_is_answered_at_its_deadline_even_if_the_file_is_locked() {
    let (_directory, path, database) = fresh();
    execute(&path, "PRAGMA journal_mode=DELETE");
    let selector = database.selector(1, 10).unwrap();
    let question = || select("subscriber", &["ha1"], &[("username", "a")]);
    assert_eq!(ask(&selector, question(), PATIENCE).unwrap().len(), 0);
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let asked = std::time::Instant::now();
    let answer = ask(&selector, question(), Duration::from_millis(300));
    assert!(matches!(answer, Err(StoreError::Away(_))));
    // Not when who waits for the lock gives up.
    assert!(asked.elapsed() < PATIENCE, "{:?}", asked.elapsed());
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(ask(&selector, question(), PATIENCE).unwrap().len(), 0);
}

#[test]
fn questions_fail_at_once_while_the_file_is_gone_and_find_it_again() {
    let (_directory, path, database) = fresh();
    execute(&path, "PRAGMA journal_mode=DELETE");
    let selector = database.selector(1, 10).unwrap();
    let question = || select("subscriber", &["ha1"], &[("username", "a")]);
    assert!(ask(&selector, question(), PATIENCE).is_ok());
    let away = path.with_extension("away");
    std::fs::rename(&path, &away).unwrap();
    assert!(ask(&selector, question(), PATIENCE).is_err());
    let wait_until = |is_up: bool| {
        for _ in 0..500 {
            if selector.state().is_up == is_up {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("is_up is not {is_up}");
    };
    wait_until(false);
    let answer = ask(&selector, question(), FOR_EVER);
    assert!(matches!(answer, Err(StoreError::Away(_))), "{answer:?}");
    std::fs::rename(&away, &path).unwrap();
    wait_until(true);
    assert!(ask(&selector, question(), PATIENCE).is_ok());
    assert_eq!(selector.state().reconnects, 1);
}

#[test]
fn two_programs_write_one_file() {
    let (_directory, path, database) = fresh();
    let mut bindings = database.bindings(&[]).unwrap();
    let other = Database::open(&url(&path), PATIENCE).unwrap();
    let mut users = other.users().unwrap();
    for number in 0..50 {
        save(&mut bindings, &[bare("a", "sip:1", now())]);
        let user = store::User { username: format!("u{number}"), ..store::User::default() };
        users.add(&user).unwrap();
    }
    let mut count = 0;
    users.list(None, 1_000, &mut |_| count += 1).unwrap();
    assert_eq!(count, 50);
}
