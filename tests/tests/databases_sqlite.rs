//! What can happen to a file of SQLite: damage, a full disk, a disk that cannot be written, somebody else's lock.

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use end_to_end::{
    Crowd, House, PATIENCE, Phone, Promise, Scratch, Server, Signal, Sql, Start, contacts, final_answer,
    only_strowger,
};

/// A house whose file has bindings of many users, and whose server was killed, so that they are in the journal, or
/// has ended, so that they are in their table.
fn lived_in(was_killed: bool) -> House {
    let house = House::new(Sql::Sqlite, "1");
    let mut server = house.start().spawn();
    let mut crowd = Crowd::new(house.address(), 1_000, 7);
    crowd.load(Duration::from_millis(1_500));
    crowd.settle();
    if was_killed {
        server.kill_at_once();
    } else {
        server.stop(Signal::Terminate);
        assert!(server.wait_for_exit(PATIENCE).is_some_and(|status| status.success()), "{}", server.log());
    }
    // No page is free: damage on one of those would cost nothing.
    house.database.run("VACUUM;");
    // The log of changes is merged into the file, so that the damage is not healed from there.
    house.database.run("PRAGMA wal_checkpoint(TRUNCATE);");
    house
}

/// Refused with a message that names the file; the file is as it was.
fn expect_refusal(house: &House) {
    let file = house.database.file();
    let before = fs::read(&file).expect("the file is there");
    let (code, said) = house.start().begin().expect_refusal();
    assert!(matches!(code, Some(1 | 2)), "{code:?}:\n{said}");
    assert!(said.contains(&file.display().to_string()), "the file is not named:\n{said}");
    assert!(!said.contains("panicked"), "{said}");
    assert!(fs::read(&file).expect("the file is there") == before, "the damaged file was changed");
}

fn overwrite(file: &Path, at: u64, bytes: &[u8]) {
    let mut file = OpenOptions::new().write(true).open(file).expect("the file is there");
    file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(bytes)).expect("the file can be written");
}

#[test]
fn a_file_with_a_damaged_header_is_refused() {
    only_strowger!("the database is ours");
    let house = lived_in(true);
    overwrite(&house.database.file(), 0, &[0xa5; 100]);
    expect_refusal(&house);
}

#[test]
fn a_file_that_was_overwritten_in_the_middle_is_refused() {
    only_strowger!("the database is ours");
    let house = lived_in(false);
    let file = house.database.file();
    let length = fs::metadata(&file).expect("the file is there").len();
    let half = usize::try_from(length / 2).expect("a file of a test is small");
    overwrite(&file, length / 4, &vec![0xa5; half]);
    expect_refusal(&house);
}

/// What a database is made of: its file, and those of its journal.
fn parts(file: &Path) -> Vec<PathBuf> {
    let journal = (0..8).map(|number| PathBuf::from(format!("{}-changes-{number}", file.display())));
    std::iter::once(file.to_owned()).chain(journal.filter(|path| path.exists())).collect()
}

/// One page only, anywhere: refused; or everything is there, if no binding was on it; or what is not read is named, if it
/// is at the end of the journal, where nobody can tell damage from a write that was cut short.
fn a_damaged_page_costs_nothing_silently(was_killed: bool) {
    let house = lived_in(was_killed);
    let file = house.database.file();
    let read = |path: PathBuf| (fs::read(&path).expect("the file is there"), path);
    let whole: Vec<_> = parts(&file).into_iter().map(read).collect();
    assert_eq!(whole.len() > 1, was_killed, "a server that ends leaves no journal");
    let count = lasting(&house, &house.start().spawn());
    assert!(count > 0, "nobody is registered for long");
    for (bytes, damaged) in &whole {
        let (mut refused, mut started, mut told) = (0, 0, 0);
        let pages = if *damaged == file {
            1..bytes.len() / 4096
        } else {
            0..bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) / 4096 + 1
        };
        let last = pages.end - 1;
        for page in pages.clone().step_by(pages.len() / 12 + 1).chain([last - 1, last]) {
            // What the last server wrote would heal the file.
            for path in parts(&file)
                .into_iter()
                .chain(["-wal", "-shm"].map(|log| format!("{}{log}", file.display()).into()))
            {
                let _ = fs::remove_file(path);
            }
            for (bytes, path) in &whole {
                fs::write(path, bytes).expect("the file can be written");
            }
            overwrite(damaged, page as u64 * 4096, &[0xa5; 4096]);
            match became_ready(house.start().begin()) {
                None => refused += 1,
                Some(server) => {
                    started += 1;
                    let known = lasting(&house, &server);
                    let names_it = |line: &&str| {
                        line.contains("WARN") && line.contains(&format!("{}: ", damaged.display()))
                    };
                    let log = server.log();
                    let line = log.lines().find(names_it);
                    let damaged = damaged.display();
                    assert!(
                        known >= count || line.is_some(),
                        "page {page} of {damaged}: {known} of {count} users are left:\n{log}"
                    );
                    told += usize::from(line.is_some());
                }
            }
        }
        eprintln!("{}: {refused} refused, {started} started, {told} with a warning", damaged.display());
        assert!(refused > 0, "no damage of {} was ever found", damaged.display());
        assert_eq!(told > 0, *damaged != file, "the last page is damaged");
    }
}

/// How many users this server knows who will be registered for some minutes; some of the crowd's contacts expire
/// within seconds.
fn lasting(house: &House, _server: &Server) -> usize {
    let lasts = |contact: &String| {
        let after = contact.split("expires=").nth(1).unwrap_or_default();
        after
            .split(';')
            .next()
            .and_then(|seconds| seconds.parse().ok())
            .is_some_and(|seconds: u32| seconds > 300)
    };
    let phone =
        |number: usize| Phone::between(house.address(), ([127, 0, 0, 1], 0).into(), &format!("user{number}"));
    (0..1_000).filter(|number| contacts(&phone(*number)).iter().any(lasts)).count()
}

#[test]
fn a_damaged_page_of_the_table_never_costs_bindings_silently() {
    only_strowger!("the database is ours");
    a_damaged_page_costs_nothing_silently(false);
}

#[test]
fn a_damaged_page_of_the_journal_never_costs_bindings_silently() {
    only_strowger!("the database is ours");
    a_damaged_page_costs_nothing_silently(true);
}

/// The server when it is up; `None` when it has ended by itself.
fn became_ready(mut server: Server) -> Option<Server> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if server.has_ended() {
            let _ = server.expect_refusal();
            return None;
        }
        if server.answers_now() {
            return Some(server);
        }
    }
    panic!("it neither ends nor answers:\n{}", server.log());
}

#[test]
fn a_file_that_was_cut_short_is_refused() {
    only_strowger!("the database is ours");
    let house = lived_in(false);
    let file = house.database.file();
    let length = fs::metadata(&file).expect("the file is there").len();
    OpenOptions::new()
        .write(true)
        .open(&file)
        .and_then(|file| file.set_len(length / 2))
        .expect("a shorter file");
    expect_refusal(&house);
}

#[test]
fn a_file_that_is_no_database_is_refused() {
    only_strowger!("the database is ours");
    let house = House::new(Sql::Sqlite, "1");
    fs::write(house.database.file(), "the diary of a telephone exchange\n".repeat(200)).expect("a file");
    expect_refusal(&house);
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    only_strowger!("the database is ours");
    let house =
        House::new(Sql::Sqlite, "1").define("DB_URL", "\"sqlite:///no/such/directory/strowger.sqlite\"");
    let (code, said) = house.start().begin().expect_refusal();
    assert!(matches!(code, Some(1 | 2)), "{code:?}:\n{said}");
    assert!(said.contains("/no/such/directory"), "{said}");
}

/// A small disk of a test's own. Gone when it is dropped.
struct Disk {
    path: PathBuf,
    _scratch: Scratch,
}

impl Disk {
    /// `None` where the user may mount none.
    fn new(size: &str) -> Option<Self> {
        let scratch = Scratch::new("disk");
        let path = scratch.file("mounted");
        fs::create_dir(&path).expect("the scratch directory is writable");
        let options = format!("size={size},mode=755");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "strowger-e2e"]).arg(&path).output();
        if !mounted.is_ok_and(|mounted| mounted.status.success()) {
            eprintln!("skipped: mounting needs root");
            return None;
        }
        Some(Self { path, _scratch: scratch })
    }

    fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        let done =
            Command::new("mount").args(["-o", &options]).arg(&self.path).output().expect("mount is there");
        assert!(done.status.success(), "{done:?}");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A server that is being killed may hold it for a moment; it goes when that ends.
        let _ = Command::new("umount").arg("-l").arg(&self.path).output();
    }
}

/// A registrar with its file on that disk.
fn on(disk: &Disk, house: &House) -> Start {
    let url = format!("\"sqlite://{}/strowger.sqlite\"", disk.path.display());
    Start::configuration("registrar-db")
        .at(house.address())
        .state(&disk.path)
        .define("DB_MODE", "1")
        .define("DB_URL", &url)
}

#[test]
fn a_full_disk_refuses_registers_and_nothing_else() {
    only_strowger!("the database is ours");
    let Some(disk) = Disk::new("2m") else { return };
    let house = House::new(Sql::Sqlite, "1");
    let server = on(&disk, &house).spawn();
    let (alice, bob) = (Phone::new(&server, "alice"), Phone::new(&server, "bob"));
    bob.register();
    // Somebody else fills it up.
    let mut filler = fs::File::create(disk.path.join("filler")).expect("a file");
    while filler.write_all(&[0; 4096]).is_ok() {}
    let mut crowd = Crowd::new(house.address(), 2_000, 11);
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut unavailable = 0;
    while unavailable < 50 {
        assert!(Instant::now() < deadline, "the disk is full, and nobody notices:\n{}", server.log());
        unavailable += crowd.load(Duration::from_millis(200)).unavailable;
    }
    let invite = alice.request("INVITE", &bob.address_of_record());
    alice.send(&invite);
    let arrived = bob.expect_request("INVITE");
    bob.answer(&arrived, 486, "Busy Here");
    let answer = alice.expect_response(486, &invite);
    alice.acknowledge(&invite, &answer);
    let lines = server.log().lines().filter(|line| line.to_lowercase().contains("full")).count();
    assert!((1..=5).contains(&lines), "{lines} lines say why:\n{}", server.log());
    drop(filler);
    fs::remove_file(disk.path.join("filler")).expect("the file is ours");
    disk.remount("size=64m");
    let deadline = Instant::now() + Duration::from_secs(30);
    crowd.settle();
    while crowd.load(Duration::from_millis(300)).accepted == 0 {
        assert!(Instant::now() < deadline, "there is room, and nobody notices:\n{}", server.log());
    }
    crowd.settle();
    server.kill_at_once();
    let server = on(&disk, &house).spawn();
    crowd.check(Promise::WriteThrough);
    server.kill_at_once();
}

#[test]
fn a_full_disk_at_start_is_named() {
    only_strowger!("the database is ours");
    let Some(disk) = Disk::new("64k") else { return };
    let mut filler = fs::File::create(disk.path.join("filler")).expect("a file");
    while filler.write_all(&[0; 4096]).is_ok() {}
    let house = House::new(Sql::Sqlite, "1");
    let (code, said) = on(&disk, &house).begin().expect_refusal();
    assert!(matches!(code, Some(1 | 2)), "{code:?}:\n{said}");
    assert!(said.contains("strowger.sqlite"), "{said}");
}

#[test]
fn a_file_that_cannot_be_written_is_refused() {
    only_strowger!("the database is ours");
    let Some(disk) = Disk::new("16m") else { return };
    let house = House::new(Sql::Sqlite, "1");
    let server = on(&disk, &house).spawn();
    Phone::new(&server, "bob").register();
    server.kill_at_once();
    disk.remount("ro");
    let (code, said) = on(&disk, &house).begin().expect_refusal();
    assert!(matches!(code, Some(1 | 2)), "{code:?}:\n{said}");
    assert!(said.contains("strowger.sqlite"), "{said}");
    disk.remount("rw");
    let server = on(&disk, &house).spawn();
    assert_eq!(contacts(&Phone::new(&server, "bob")).len(), 1);
}

/// Somebody with `sqlite3` who has begun to write and thinks.
fn holder(file: &Path) -> Child {
    let mut command = Command::new("sqlite3");
    command.arg(file).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("sqlite3; `cargo xtask test` installs it");
    let input = child.stdin.as_mut().expect("invariant: its input is a pipe");
    writeln!(input, ".timeout 10000\nBEGIN IMMEDIATE;\nSELECT 'held';").expect("sqlite3 reads");
    let mut said = [0; 4];
    let output = child.stdout.as_mut().expect("invariant: its output is a pipe");
    std::io::Read::read_exact(output, &mut said).expect("sqlite3 holds the lock");
    child
}

#[test]
fn a_lock_of_somebody_else_delays_registers_and_nothing_else() {
    only_strowger!("the database is ours");
    let house = House::new(Sql::Sqlite, "1");
    let server = house.start().spawn();
    let (alice, bob) = (Phone::new(&server, "alice"), Phone::new(&server, "bob"));
    bob.register();
    let mut holder = holder(&house.database.file());
    let register = alice.register_request();
    alice.send(&register);
    let invite = alice.request("INVITE", &bob.address_of_record());
    alice.send(&invite);
    let arrived = bob.expect_request("INVITE");
    bob.answer(&arrived, 486, "Busy Here");
    let answer = alice.expect_response(486, &invite);
    alice.acknowledge(&invite, &answer);
    // It stays locked until the registrar gives up, or we do.
    let answer = alice.receive(PATIENCE);
    holder.kill().and_then(|()| holder.wait()).expect("a child of ours");
    if let Some(answer) = answer {
        assert_eq!(answer.status(), Some(503), "{answer}");
        assert!(answer.find("Retry-After").is_some(), "{answer}");
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let register = alice.register_request();
        alice.send(&register);
        let answer = final_answer(&alice, &register);
        if answer.status() == Some(200) {
            break;
        }
        assert!(Instant::now() < deadline, "the lock is gone:\n{answer}");
    }
}

#[test]
fn tables_that_vanish_while_it_runs_are_noticed() {
    only_strowger!("the database is ours");
    for table in ["strowger_journal", "location"] {
        let house = House::new(Sql::Sqlite, "1");
        let server = house.start().spawn();
        let (alice, bob) = (Phone::new(&server, "alice"), Phone::new(&server, "bob"));
        bob.register();
        house.database.run(&format!("DROP TABLE {table};"));
        // The rows of `location` are written some seconds after the commit.
        let deadline = Instant::now() + PATIENCE;
        let answer = loop {
            let register = alice.register_request();
            alice.send(&register);
            let answer = final_answer(&alice, &register);
            if answer.status() != Some(200) || Instant::now() > deadline {
                break answer;
            }
            assert_eq!(table, "location", "a commit without a journal: {answer}");
            std::thread::sleep(Duration::from_millis(200));
        };
        assert!(matches!(answer.status(), Some(500 | 503)), "{table}: {answer}");
        assert!(answer.find("Retry-After").is_some(), "{table}: {answer}");
        assert_eq!(contacts(&bob).len(), 1);
    }
}
