use super::*;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span;

/// A directory of a test's own, with a database in it.
struct Rig {
    directory: PathBuf,
    connection: Connection,
}

impl Rig {
    fn new() -> Rig {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("strowger-journal-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).unwrap();
        let connection = Connection::open(directory.join("db")).unwrap();
        Rig { directory, connection }
    }

    fn database(&self) -> PathBuf {
        self.directory.join("db")
    }

    fn open(&self) -> JournalFiles {
        self.try_open().unwrap()
    }

    fn try_open(&self) -> Result<JournalFiles, Fault> {
        JournalFiles::open(&self.database(), &self.connection)
    }

    fn slot(&self, slot: usize) -> PathBuf {
        slot_path(&self.database(), slot)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn append(files: &mut JournalFiles, generation: i32, pages: &[(&str, &[u8])]) -> Appended {
    let pages: Vec<Page<'_>> =
        pages.iter().map(|(table, changes)| Page { table, generation, changes }).collect();
    files.append(&pages).unwrap().expect("there are pages")
}

/// All pages of a table.
fn pages(files: &JournalFiles, table: &str) -> Vec<Vec<u8>> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let more = files.pages(table, after).unwrap();
        let Some((last, _)) = more.last() else { return all };
        after = *last;
        all.extend(more.into_iter().map(|(_, page)| page));
    }
}

fn tables(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

/// As `kill -9`.
fn kill(files: JournalFiles) {
    std::mem::forget(files);
}

/// Takes what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Visit for Log {
    fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
        writeln!(self.0.lock().unwrap(), "{value:?}").unwrap();
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        write!(self.0.lock().unwrap(), "{} ", event.metadata().level()).unwrap();
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

impl Rig {
    /// The pages of `location` that are there when the first file has these bytes, and what the log says.
    fn read(&self, bytes: &[u8]) -> (Vec<Vec<u8>>, String) {
        fs::write(self.slot(0), bytes).unwrap();
        let log = Log::default();
        let files = tracing::subscriber::with_default(log.clone(), || self.open());
        let found = pages(&files, "location");
        kill(files);
        let said = log.0.lock().unwrap().clone();
        (found, said)
    }

    /// A file that was used before: before two new commits, after the first of them and after the second; and where the
    /// second begins and ends.
    fn used_again(&self) -> ([Vec<u8>; 3], [u64; 2]) {
        let mut files = self.open();
        for length in [700, 90, 4_000] {
            append(&mut files, 1, &[("location", &vec![b'o'; length])]);
        }
        files.trim(&tables(&["location"]), 1).unwrap();
        let unused = fs::read(self.slot(0)).unwrap();
        append(&mut files, 2, &[("location", b"first")]);
        let begin = files.slots[0].end;
        let first = fs::read(self.slot(0)).unwrap();
        append(&mut files, 2, &[("location", b"second"), ("phones", b"third")]);
        let end = files.slots[0].end;
        kill(files);
        let whole = fs::read(self.slot(0)).unwrap();
        assert!(whole[end as usize + HEAD + 8] == b'o', "what was there before is still behind them");
        // The title is the first that is written.
        let unused = [&whole[..BEGIN as usize], &unused[BEGIN as usize..]].concat();
        ([unused, first, whole], [begin, end])
    }
}

#[test]
fn what_was_committed_is_there_after_a_crash_in_its_order() {
    let rig = Rig::new();
    let mut files = rig.open();
    let mut expected = Vec::new();
    for number in 0..100_u8 {
        let page = vec![number; usize::from(number) * 37 % 501];
        append(&mut files, i32::from(number / 30), &[("phones", b"x"), ("location", &page)]);
        expected.push(page);
    }
    kill(files);
    let files = rig.open();
    assert_eq!(pages(&files, "location"), expected);
    assert_eq!(pages(&files, "phones").len(), 100);
    assert!(pages(&files, "others").is_empty());
}

#[test]
fn a_generation_goes_and_its_file_is_used_again() {
    let rig = Rig::new();
    let mut files = rig.open();
    for generation in 1..=20 {
        append(&mut files, generation, &[("location", &generation.to_le_bytes()), ("location", &[7; 5_000])]);
        append(&mut files, generation, &[("location", &generation.to_le_bytes())]);
        files.trim(&tables(&["location"]), generation - 1).unwrap();
        kill(std::mem::replace(&mut files, rig.open()));
        assert_eq!(pages(&files, "location").len(), 3, "{generation}");
        assert_eq!(pages(&files, "location")[2], generation.to_le_bytes());
        // As a run that went on: generations are not read again.
        files.current = files.slots.iter().position(|slot| slot.is_live).map(|at| (at, generation));
        let (at, _) = files.current.unwrap();
        files.slots[at].generation = generation;
        assert!(files.slots.len() <= 2);
    }
    files.trim(&tables(&["location"]), 20).unwrap();
    assert!(pages(&files, "location").is_empty());
    drop(files);
    assert!(left_behind(&rig.database()).is_none(), "what nobody wants is removed at the end");
}

#[test]
fn a_generation_that_never_goes_costs_nothing_but_room() {
    let rig = Rig::new();
    let mut files = rig.open();
    for generation in 1..=50 {
        append(&mut files, generation, &[("location", &generation.to_le_bytes())]);
    }
    assert_eq!(files.slots.len(), SLOTS_MAX);
    kill(files);
    let mut files = rig.open();
    let expected: Vec<_> = (1..=50_i32).map(|generation| generation.to_le_bytes().to_vec()).collect();
    let mut found = pages(&files, "location");
    // All are there; those behind the limit are in the file of the eighth.
    assert_eq!(found, expected);
    files.trim(&tables(&["location"]), i32::MAX).unwrap();
    found = pages(&files, "location");
    assert!(found.is_empty());
}

#[test]
fn pages_of_a_table_that_nobody_asks_for_stay() {
    let rig = Rig::new();
    let mut files = rig.open();
    append(&mut files, 1, &[("phones", b"one"), ("location", b"two")]);
    kill(files);
    let mut files = rig.open();
    files.trim(&tables(&["location"]), i32::MAX).unwrap();
    append(&mut files, 1, &[("location", b"three")]);
    files.trim(&tables(&["location"]), 1).unwrap();
    drop(files);
    let files = rig.open();
    assert_eq!(pages(&files, "phones"), [b"one"]);
}

#[test]
fn a_commit_that_was_cut_short_was_never_answered() {
    let rig = Rig::new();
    let mut files = rig.open();
    append(&mut files, 1, &[("location", b"first")]);
    let begin = files.slots[0].end;
    append(&mut files, 1, &[("location", b"second"), ("phones", b"third")]);
    let end = files.slots[0].end;
    kill(files);
    let mut whole = fs::read(rig.slot(0)).unwrap();
    whole.truncate(end as usize);
    for length in begin..end {
        // Cut, or never written over what was there.
        for fill in [None, Some(0_u8), Some(0xa5)] {
            let mut bytes = whole[..length as usize].to_vec();
            if let Some(fill) = fill {
                bytes.resize(whole.len() + 100, fill);
            }
            let (found, said) = rig.read(&bytes);
            // What lacks may be what fills it up only.
            let is_whole =
                bytes.starts_with(&whole) || whole[length as usize..].iter().all(|byte| *byte == 0);
            assert!(found == [b"first".to_vec()] || is_whole, "{length}");
            let has_begun = bytes.len() > begin as usize && bytes[begin as usize] != 0;
            assert_eq!(
                said.contains(&format!("byte {begin}")),
                has_begun && found.len() == 1,
                "{length}: {said}"
            );
            // It goes on where that began.
            let mut files = rig.open();
            append(&mut files, 2, &[("location", b"fourth")]);
            kill(files);
            assert_eq!(*pages(&rig.open(), "location").last().unwrap(), b"fourth", "{length}");
            let _ = fs::remove_file(rig.slot(1));
        }
    }
}

#[test]
fn a_damaged_commit_is_an_error_that_names_the_file() {
    let rig = Rig::new();
    let mut files = rig.open();
    append(&mut files, 1, &[("location", b"first of all")]);
    let end = files.slots[0].end;
    append(&mut files, 1, &[("location", b"second")]);
    kill(files);
    let whole = fs::read(rig.slot(0)).unwrap();
    let bytes = (0..TITLE as u64).chain(BEGIN..BEGIN + HEAD as u64 + 6 + 8 + 12);
    for at in bytes.filter(|at| *at < end) {
        for bit in [1, 0x80] {
            let mut bytes = whole.clone();
            bytes[at as usize] ^= bit;
            fs::write(rig.slot(0), &bytes).unwrap();
            let fault = rig.try_open().map(|files| pages(&files, "location")).unwrap_err();
            let text = fault.error.to_string();
            assert!(matches!(fault.error, StoreError::Unfit(_)), "{at}: {text}");
            assert!(text.contains("db-changes-0"), "{text}");
            assert!(fs::read(rig.slot(0)).unwrap() == bytes, "it stays as it is");
        }
    }
}

#[test]
fn a_process_that_is_killed_while_it_writes_leaves_nothing_to_tell() {
    let rig = Rig::new();
    let (files, [begin, end]) = rig.used_again();
    for (from, to, before, after) in
        [(BEGIN, begin, &files[0], &files[1]), (begin, end, &files[1], &files[2])]
    {
        // Its head is the last that is written.
        for length in from + HEAD as u64..=to + HEAD as u64 {
            let mut bytes = before.clone();
            let written = from as usize + HEAD..length as usize;
            bytes[written.clone()].copy_from_slice(&after[written]);
            let (found, said) = rig.read(&bytes);
            assert_eq!((found.len(), &*said), (usize::from(from == begin), ""), "{length}");
        }
    }
    assert_eq!(rig.read(&files[2]), (vec![b"first".to_vec(), b"second".to_vec()], String::new()));
}

#[test]
fn damage_of_the_last_commit_is_told_with_file_and_byte() {
    let rig = Rig::new();
    let ([.., whole], [begin, _]) = rig.used_again();
    let length = HEAD + 8 + 2 * 6 + "second".len() + "phones".len() + "third".len();
    for at in begin as usize..begin as usize + length {
        for bit in [1, 0x80] {
            let mut bytes = whole.clone();
            bytes[at] ^= bit;
            let (found, said) = rig.read(&bytes);
            assert_eq!(found, [b"first"], "{at}");
            let what = if at < begin as usize + HEAD {
                format!("the last {} bytes, from byte {begin} on", bytes.len() as u64 - begin)
            } else {
                format!("the commit of {length} bytes at byte {begin}")
            };
            let file = rig.slot(0).display().to_string();
            assert!(said.starts_with("WARN ") && said.lines().count() == 1, "{at}: {said}");
            assert!(said.contains(&file) && said.contains(&what), "{at}: {said}");
        }
    }
    // The only one of its file.
    let mut bytes = whole;
    bytes[BEGIN as usize + HEAD] ^= 1;
    bytes[begin as usize..].fill(0);
    let (found, said) = rig.read(&bytes);
    assert!(found.is_empty() && said.contains(&format!("byte {BEGIN}")), "{said}");
}

#[test]
fn files_of_another_database_are_kept_and_not_read() {
    let rig = Rig::new();
    let mut files = rig.open();
    append(&mut files, 1, &[("location", b"of the first")]);
    kill(files);
    rig.connection.execute_batch("PRAGMA user_version = 77").unwrap();
    let mut files = rig.open();
    assert!(pages(&files, "location").is_empty());
    append(&mut files, 1, &[("location", b"of the second")]);
    kill(files);
    assert_eq!(pages(&rig.open(), "location"), [b"of the second"]);
    assert!(rig.directory.join("db-changes-0.old").exists());
}

#[test]
fn a_file_that_somebody_removes_is_made_again() {
    let rig = Rig::new();
    let mut files = rig.open();
    append(&mut files, 1, &[("location", b"first")]);
    fs::remove_file(rig.slot(0)).unwrap();
    append(&mut files, 1, &[("location", b"second")]);
    append(&mut files, 2, &[("location", b"third")]);
    kill(files);
    assert_eq!(pages(&rig.open(), "location"), [&b"second"[..], b"third"]);
}

#[test]
fn a_commit_that_failed_leaves_nothing_behind_its_successor() {
    let rig = Rig::new();
    let mut files = rig.open();
    append(&mut files, 1, &[("location", b"first")]);
    let end = files.slots[0].end;
    append(&mut files, 1, &[("location", &[1; 3_000])]);
    append(&mut files, 1, &[("location", &[2; 3_000])]);
    // As if the last two had been one that failed.
    (files.slots[0].end, files.slots[0].is_torn) = (end, true);
    append(&mut files, 1, &[("location", b"second")]);
    kill(files);
    assert_eq!(pages(&rig.open(), "location"), [&b"first"[..], b"second"]);
}

#[test]
fn whoever_is_interrupted_while_files_end_leaves_the_newest() {
    let rig = Rig::new();
    let mut files = rig.open();
    append(&mut files, 1, &[("location", b"first")]);
    append(&mut files, 2, &[("location", b"second")]);
    files.trim(&tables(&["location"]), 1).unwrap();
    // In the file of the first one, which comes before that of the second.
    append(&mut files, 3, &[("location", b"third")]);
    kill(files);
    let mut files = rig.open();
    assert_eq!(pages(&files, "location"), [&b"second"[..], b"third"]);
    // The disk fails when the older one ends.
    files.slots[1].file = File::open(rig.slot(1)).unwrap();
    files.trim(&tables(&["location"]), i32::MAX).unwrap_err();
    kill(files);
    assert_eq!(pages(&rig.open(), "location"), [&b"second"[..], b"third"]);
}

#[test]
fn what_is_taken_back_is_written_over() {
    let rig = Rig::new();
    let mut files = rig.open();
    append(&mut files, 1, &[("location", b"first")]);
    for _ in 0..100 {
        let appended = append(&mut files, 1, &[("location", &[1; 100_000])]);
        files.take_back(appended);
    }
    append(&mut files, 1, &[("location", b"second")]);
    kill(files);
    assert_eq!(pages(&rig.open(), "location"), [&b"first"[..], b"second"]);
    assert!(fs::metadata(rig.slot(0)).unwrap().len() < 1_000_000);
}

#[test]
fn a_large_file_is_cut_when_it_is_mostly_unused() {
    let rig = Rig::new();
    let mut files = rig.open();
    append(&mut files, 1, &[("location", &vec![1; 3 * KEPT_BYTES as usize])]);
    files.trim(&tables(&["location"]), 1).unwrap();
    append(&mut files, 2, &[("location", b"little")]);
    let length = |rig: &Rig| fs::metadata(rig.slot(0)).unwrap().len();
    assert!(length(&rig) > 3 * KEPT_BYTES);
    files.trim(&tables(&["location"]), 2).unwrap();
    assert!(length(&rig) < 2 * BEGIN, "{}", length(&rig));
}
