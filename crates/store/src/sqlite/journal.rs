//! The journal of an SQLite database: files of its own beside the database's.
//!
//! Pages in a table would be written twice, to SQLite's own log and from there to their place, in pieces of 4 KiB with a
//! checksum each. Here a commit is one write at the end of a file and one flush, a thirtieth of that in processor time.
//!
//! There are up to [`SLOTS_MAX`] files, `FILE-changes-0`, `FILE-changes-1` and so on. A generation begins in one that is
//! idle, which is written again from its start, and ends it when its rows are in their tables. A file begins with a sector
//! that says whose it is:
//!
//! ```text
//! 0   "strowger"    16  format (1)           24  turn, 64 bits
//! 8   in use: 1     20  database's number    32  CRC-32 of all that
//! ```
//!
//! The turn counts on whenever a file is begun: what is left of an earlier one is not of this turn. Commits follow from
//! byte 4,096 on, each at a multiple of 8:
//!
//! ```text
//! 0   turn, 64 bits               24  CRC-32 of the pages
//! 8   its own place, 64 bits      28  CRC-32 of this head
//! 16  bytes of pages, 64 bits     32  pages
//! ```
//!
//! and a page is the length of its table's name (16 bits), its own length (32 bits), the name, and itself
//! ([`crate::journal::page`]). All numbers are little-endian. Behind a commit there is room for a head, filled with zeros
//! before the commit counts; its own head is written last. So a process that is killed leaves whole commits and behind them
//! zeros, or the head of an earlier turn at the beginning. Anything else in that place is what the machine was writing when
//! it failed, which was never answered, or was answered and is damaged: nobody can tell, so it is left out with a warning.
//! Where another commit follows, the file is damaged and nothing is left out.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::create::{beside, sync_directory};
use super::{FileId, fault};
use crate::StoreError;
use crate::fault::{Cause, Fault};
use crate::journal::{PAGES_READ, Page};

/// Generations whose rows are not all written, at most: more than two only while the database fails again and again, and
/// then a file takes several.
const SLOTS_MAX: usize = 8;

const MAGIC: &[u8; 8] = b"strowger";
const FORMAT: u32 = 1;

/// Bytes of the first sector that say something.
const TITLE: usize = 36;

/// Where commits begin.
const BEGIN: u64 = 4_096;

/// Bytes of a commit before its pages.
const HEAD: usize = 32;

/// Pages of one commit have so many bytes at most: more than was ever written.
const COMMIT_BYTES_MAX: u64 = 1 << 30;

/// A file grows in such steps, filled with zeros: a flush of what was written over is cheaper than one of what was added.
const GROWTH: u64 = 256 << 10;

/// A file that was mostly unused in its last turn is cut, if it has more bytes than this.
const KEPT_BYTES: u64 = 4 << 20;

/// The files of one database, for the one who writes them.
#[derive(Debug)]
pub(super) struct JournalFiles {
    database: PathBuf,
    /// Tells this database's files from those of another one that had its name.
    number: u32,
    slots: Vec<Slot>,
    /// The one that is written, and its last generation.
    current: Option<(usize, i32)>,
    /// Pages that were there when the files were opened, in order.
    found: Vec<Found>,
}

/// One file.
#[derive(Debug)]
struct Slot {
    path: PathBuf,
    file: File,
    id: FileId,
    turn: u64,
    /// Its bytes.
    length: u64,
    /// Where the next commit goes.
    end: u64,
    /// What is behind the end may look like a commit: one failed.
    is_torn: bool,
    /// The last generation of its pages.
    generation: i32,
    /// It may not be written over: its pages are wanted still,
    is_live: bool,
    /// for these tables.
    tables: BTreeSet<String>,
}

/// Where the last commit is.
pub(super) struct Appended {
    slot: usize,
    begin: u64,
}

/// A page that an earlier run has left.
#[derive(Debug)]
struct Found {
    slot: usize,
    table: String,
    at: u64,
    length: usize,
}

impl JournalFiles {
    /// Opens those that are there.
    pub(super) fn open(database: &Path, connection: &Connection) -> Result<JournalFiles, Fault> {
        let number = number_of(connection).map_err(|error| fault(database, &error))?;
        let mut files = JournalFiles {
            database: database.to_path_buf(),
            number,
            slots: Vec::new(),
            current: None,
            found: Vec::new(),
        };
        for path in (0..SLOTS_MAX).map(|slot| slot_path(database, slot)).filter(|path| path.exists()) {
            let slot = files.open_slot(&path)?;
            files.slots.extend(slot);
        }
        for at in files.live() {
            files.find_pages(at)?;
        }
        Ok(files)
    }

    /// The files that may not be written over, those that were begun earlier first.
    fn live(&self) -> Vec<usize> {
        let mut live: Vec<usize> = (0..self.slots.len()).filter(|&at| self.slots[at].is_live).collect();
        live.sort_by_key(|&at| self.slots[at].turn);
        live
    }

    /// A file that is there; `None` if it is another database's.
    fn open_slot(&self, path: &Path) -> Result<Option<Slot>, Fault> {
        let at = |error: io::Error| failed(path, &error);
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(at)?;
        let mut title = [0; TITLE];
        let length = file.metadata().map_err(at)?.len();
        if length > 0 {
            let read = length.min(TITLE as u64) as usize;
            file.read_exact_at(&mut title[..read], 0).map_err(at)?;
        }
        let mut slot = Slot::new(path.to_path_buf(), file, length)?;
        // It was being made, and nothing was ever committed to it.
        if length <= BEGIN && title == [0; TITLE] {
            return Ok(Some(slot));
        }
        let Some(Title { number, turn, is_live }) = Title::read(&title) else {
            return Err(damaged(path, "what it begins with is not what was written there"));
        };
        if number != self.number && is_live {
            let old = beside(path, ".old");
            tracing::warn!(
                "{} belongs to another database than {}: it is kept as {} and not read",
                path.display(),
                self.database.display(),
                old.display()
            );
            fs::rename(path, &old).map_err(at)?;
            return Ok(None);
        }
        (slot.turn, slot.is_live) = (turn, is_live);
        Ok(Some(slot))
    }

    /// Notes the pages of a file.
    fn find_pages(&mut self, at: usize) -> Result<(), Fault> {
        let slot = &mut self.slots[at];
        let path = slot.path.clone();
        let at_path = |error: io::Error| failed(&path, &error);
        let length = slot.length;
        while let Some(head) = slot.head(slot.end, length).map_err(at_path)? {
            let mut pages = vec![0; head.length as usize];
            slot.file.read_exact_at(&mut pages, slot.end + HEAD as u64).map_err(at_path)?;
            if crc32fast::hash(&pages) != head.pages_crc {
                break;
            }
            let begin = slot.end + HEAD as u64;
            let (mut rest, mut place) = (&pages[..], begin);
            while !rest.is_empty() {
                let Some((table, length, others)) = split_page(rest) else {
                    return Err(damaged(&slot.path, "pages of a commit are not whole"));
                };
                place += (rest.len() - others.len() - length) as u64;
                slot.tables.insert(table.to_string());
                self.found.push(Found { slot: at, table: table.to_string(), at: place, length });
                place += length as u64;
                rest = others;
            }
            slot.end = (begin + head.length).next_multiple_of(8);
        }
        if slot.follows(slot.end + 8, length).map_err(at_path)? {
            return Err(damaged(
                &slot.path,
                &format!("the commit at byte {} is not what was written", slot.end),
            ));
        }
        if let Some(remains) = slot.remains().map_err(at_path)? {
            tracing::warn!("{}", left_out(&slot.path, slot.end, &remains));
        }
        slot.is_torn = true;
        if slot.tables.is_empty() {
            // Its first commit is not whole.
            slot.end_turn(self.number).map_err(at_path)?;
        }
        Ok(())
    }

    /// The first pages of a table after this one, with their numbers.
    pub(super) fn pages(&self, table: &str, after: i64) -> Result<Vec<(i64, Vec<u8>)>, Fault> {
        let after = usize::try_from(after).unwrap_or(0);
        let found = self.found.iter().enumerate().skip(after).filter(|(_, found)| found.table == table);
        let read = |(at, found): (usize, &Found)| {
            let mut page = vec![0; found.length];
            let slot = &self.slots[found.slot];
            let read = slot.file.read_exact_at(&mut page, found.at);
            read.map(|()| (at as i64 + 1, page)).map_err(|error| failed(&slot.path, &error))
        };
        found.take(PAGES_READ).map(read).collect()
    }

    /// Gives up the pages of the last [`append`](JournalFiles::append), since what belongs to them has failed: they come again,
    /// with others, in the same place.
    pub(super) fn take_back(&mut self, appended: Appended) {
        let Appended { slot, begin } = appended;
        let slot = &mut self.slots[slot];
        (slot.end, slot.is_torn) = (begin, true);
    }

    /// Has these pages on disk when it returns, all of them or, after an error, perhaps; says where, if there are any.
    pub(super) fn append(&mut self, pages: &[Page<'_>]) -> Result<Option<Appended>, Fault> {
        let Some(first) = pages.first() else { return Ok(None) };
        let at = self.slot_for(first.generation)?;
        let slot = &mut self.slots[at];
        let begin = slot.end;
        let done = slot.append(pages, self.number);
        if done.is_err() {
            slot.is_torn = true;
        }
        done.map_err(|error| failed(&slot.path, &error))?;
        slot.generation = first.generation;
        Ok(Some(Appended { slot: at, begin }))
    }

    /// The file for pages of this generation.
    fn slot_for(&mut self, generation: i32) -> Result<usize, Fault> {
        if let Some((at, _)) = self.current
            && FileId::of(&self.slots[at].path).ok() != Some(self.slots[at].id)
        {
            // Somebody has removed it: rows of what was in it are written from memory, in time.
            tracing::warn!("{} is gone or another file: a new one is begun", self.slots[at].path.display());
            self.slots.remove(at);
            self.found.clear();
            self.current = None;
        }
        if let Some((at, of)) = self.current
            && of == generation
            && self.slots[at].is_live
        {
            return Ok(at);
        }
        let idle = self.slots.iter().position(|slot| !slot.is_live);
        let last = self.slots.len().saturating_sub(1);
        let at = match idle {
            Some(at) => at,
            None if self.slots.len() >= SLOTS_MAX => self.current.map_or(last, |(at, _)| at),
            None => self.make_slot()?,
        };
        if !self.slots[at].is_live {
            let turn = 1 + self.slots.iter().map(|slot| slot.turn).max().unwrap_or(0);
            let slot = &mut self.slots[at];
            (slot.turn, slot.end, slot.is_torn) = (turn, BEGIN, false);
        }
        self.current = Some((at, generation));
        Ok(at)
    }

    /// A new file, which is on disk with its name.
    fn make_slot(&mut self) -> Result<usize, Fault> {
        let is_free = |path: &PathBuf| self.slots.iter().all(|slot| slot.path != *path);
        let path =
            (0..SLOTS_MAX).map(|slot| slot_path(&self.database, slot)).find(is_free).unwrap_or_default();
        let at = |error: io::Error| failed(&path, &error);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let file = file.open(&path).map_err(at)?;
        let title = Title { number: self.number, turn: 0, is_live: false };
        let made = file.write_all_at(&title.bytes(), 0).and_then(|()| file.set_len(BEGIN));
        let directory =
            path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        made.and_then(|()| file.sync_all()).and_then(|()| sync_directory(directory)).map_err(at)?;
        self.slots.push(Slot::new(path, file, BEGIN)?);
        Ok(self.slots.len() - 1)
    }

    /// Gives up these tables' pages of this generation and earlier ones, and the files that nobody wants any more.
    pub(super) fn trim(&mut self, tables: &[String], generation: i32) -> Result<(), Fault> {
        self.found.retain(|found| !tables.contains(&found.table));
        // The oldest goes first: whoever is interrupted must not leave it behind without what came after it.
        for at in self.live() {
            let slot = &mut self.slots[at];
            if slot.generation > generation {
                continue;
            }
            slot.tables.retain(|table| !tables.contains(table));
            if slot.tables.is_empty() {
                slot.end_turn(self.number).map_err(|error| failed(&slot.path, &error))?;
            }
        }
        Ok(())
    }
}

impl Drop for JournalFiles {
    /// Files that nobody wants are of no use to anybody, and a surprise in a backup.
    fn drop(&mut self) {
        for slot in self.slots.iter().filter(|slot| !slot.is_live) {
            // One that stays says that it is idle.
            let _ = fs::remove_file(&slot.path);
        }
    }
}

impl Slot {
    /// A file of this length, idle.
    fn new(path: PathBuf, file: File, length: u64) -> Result<Slot, Fault> {
        Ok(Slot {
            id: FileId::of(&path)?,
            path,
            file,
            turn: 0,
            length,
            end: BEGIN,
            is_torn: false,
            generation: i32::MIN,
            is_live: false,
            tables: BTreeSet::new(),
        })
    }

    /// Puts a commit at the end, and flushes it.
    fn append(&mut self, pages: &[Page<'_>], number: u32) -> io::Result<()> {
        if self.is_torn {
            self.cut()?;
            self.is_torn = false;
        }
        if !self.is_live {
            let title = Title { number, turn: self.turn, is_live: true };
            self.file.write_all_at(&title.bytes(), 0)?;
        }
        let mut crc = crc32fast::Hasher::new();
        let mut place = self.end + HEAD as u64;
        for page in pages {
            let mut start = Vec::with_capacity(6 + page.table.len());
            start.extend((page.table.len() as u16).to_le_bytes());
            start.extend((page.changes.len() as u32).to_le_bytes());
            start.extend(page.table.as_bytes());
            for part in [&start[..], page.changes] {
                crc.update(part);
                self.file.write_all_at(part, place)?;
                place += part.len() as u64;
            }
        }
        let length = place - self.end - HEAD as u64;
        let next = place.next_multiple_of(8);
        if place > self.length {
            let grown = place.next_multiple_of(GROWTH);
            self.file.write_all_at(&vec![0; (grown - place) as usize], place)?;
            self.length = grown;
        } else {
            // In what an earlier turn has left there.
            let room = (next + HEAD as u64).min(self.length) - place;
            self.file.write_all_at(&[0; HEAD + 7][..room as usize], place)?;
        }
        let head = Head { length, pages_crc: crc.finalize() };
        self.file.write_all_at(&head.bytes(self.turn, self.end), self.end)?;
        self.file.sync_data()?;
        self.is_live = true;
        self.tables.extend(pages.iter().map(|page| page.table.to_string()));
        self.end = next;
        Ok(())
    }

    /// Ends the file where the last commit does.
    fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.end)?;
        self.length = self.end;
        Ok(())
    }

    /// Says that all of it may be written over.
    fn end_turn(&mut self, number: u32) -> io::Result<()> {
        let title = Title { number, turn: self.turn, is_live: false };
        self.file.write_all_at(&title.bytes(), 0)?;
        if self.length > KEPT_BYTES && self.end < self.length / 4 {
            self.cut()?;
        }
        self.file.sync_data()?;
        self.is_live = false;
        Ok(())
    }

    /// The head of a commit at this place, in a file of this length; `None` if there is none.
    fn head(&self, place: u64, length: u64) -> io::Result<Option<Head>> {
        let mut bytes = [0; HEAD];
        if place + HEAD as u64 > length {
            return Ok(None);
        }
        self.file.read_exact_at(&mut bytes, place)?;
        let head = Head::read(&bytes, self.turn, place);
        Ok(head.filter(|head| place + HEAD as u64 + head.length <= length))
    }

    /// What is behind the last whole commit, if that is neither nothing nor an earlier turn's.
    fn remains(&self) -> io::Result<Option<Remains>> {
        let mut bytes = [0; HEAD];
        let there = self.length.saturating_sub(self.end).min(HEAD as u64) as usize;
        self.file.read_exact_at(&mut bytes[..there], self.end)?;
        if bytes == [0; HEAD] {
            return Ok(None);
        }
        if let Some(head) = Head::read(&bytes, self.turn, self.end) {
            return Ok(Some(Remains::Commit(HEAD as u64 + head.length)));
        }
        let turn = u64_at(&bytes, 0).unwrap_or(0);
        let is_earlier = turn < self.turn && Head::read(&bytes, turn, self.end).is_some();
        Ok((!is_earlier).then_some(Remains::Bytes(self.length - self.end)))
    }

    /// Whether a commit of this turn begins here or behind.
    fn follows(&self, from: u64, length: u64) -> io::Result<bool> {
        const STEP: u64 = 1 << 20;
        let (mut place, mut bytes) = (from, Vec::new());
        while place + (HEAD as u64) <= length {
            let step = STEP.min(length - place);
            bytes.resize(step as usize, 0);
            self.file.read_exact_at(&mut bytes, place)?;
            for (at, word) in bytes.chunks_exact(8).enumerate() {
                if word == self.turn.to_le_bytes() && self.head(place + 8 * at as u64, length)?.is_some() {
                    return Ok(true);
                }
            }
            place += step;
        }
        Ok(false)
    }
}

/// What is left of a commit that is not whole.
enum Remains {
    /// So many bytes, by its head.
    Commit(u64),
    /// Its head cannot be read: it is somewhere in so many bytes.
    Bytes(u64),
}

/// What a file begins with.
struct Title {
    number: u32,
    turn: u64,
    is_live: bool,
}

impl Title {
    fn bytes(&self) -> [u8; TITLE] {
        let mut bytes = [0; TITLE];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..16].copy_from_slice(&u64::from(self.is_live).to_le_bytes());
        bytes[16..20].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.turn.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..32]);
        bytes[32..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn read(bytes: &[u8; TITLE]) -> Option<Title> {
        let number = u32_at(bytes, 20)?;
        let title = Title { number, turn: u64_at(bytes, 24)?, is_live: u64_at(bytes, 8)? != 0 };
        (title.bytes() == *bytes).then_some(title)
    }
}

/// What a commit begins with.
struct Head {
    length: u64,
    pages_crc: u32,
}

impl Head {
    fn bytes(&self, turn: u64, place: u64) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..8].copy_from_slice(&turn.to_le_bytes());
        bytes[8..16].copy_from_slice(&place.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.length.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.pages_crc.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn read(bytes: &[u8; HEAD], turn: u64, place: u64) -> Option<Head> {
        let head = Head { length: u64_at(bytes, 16)?, pages_crc: u32_at(bytes, 24)? };
        (head.bytes(turn, place) == *bytes && head.length <= COMMIT_BYTES_MAX).then_some(head)
    }
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The first page's table and length, and what is behind it.
fn split_page(bytes: &[u8]) -> Option<(&str, usize, &[u8])> {
    let (name, rest) = bytes.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (name, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*name)))?;
    let length = u32::from_le_bytes(*length) as usize;
    Some((std::str::from_utf8(name).ok()?, length, rest.get(length..)?))
}

fn slot_path(database: &Path, slot: usize) -> PathBuf {
    beside(database, &format!("-changes-{slot}"))
}

/// Files beside a database that hold what it lacks, of which one is there.
pub(super) fn left_behind(database: &Path) -> Option<PathBuf> {
    (0..SLOTS_MAX).map(|slot| slot_path(database, slot)).find(|path| path.exists())
}

/// The number in the database's header that is nobody else's to use (`PRAGMA user_version`), given to it when it is first asked
/// for.
fn number_of(connection: &Connection) -> rusqlite::Result<u32> {
    let number = || connection.query_row("PRAGMA user_version", [], |row| row.get::<_, i32>(0));
    if number()? == 0 {
        let random: i64 = connection.query_row("SELECT random()", [], |row| row.get(0))?;
        let given = (random & i64::from(i32::MAX)).max(1);
        connection.execute_batch(&format!("PRAGMA user_version = {given}"))?;
    }
    Ok(number()?.cast_unsigned())
}

/// The line that says what is not read.
fn left_out(path: &Path, at: u64, remains: &Remains) -> String {
    let what = match remains {
        Remains::Commit(bytes) => {
            format!("the commit of {bytes} bytes at byte {at} is not whole, and none follows")
        }
        Remains::Bytes(bytes) => {
            format!("the last {bytes} bytes, from byte {at} on, do not begin with a commit")
        }
    };
    format!(
        "the journal {}: {what}; it is left out. A commit was being written there when the server or the machine failed, and \
         nobody was told of it; or the disk has failed since, and changes of bindings that were answered are lost",
        path.display()
    )
}

fn damaged(path: &Path, what: &str) -> Fault {
    Fault::other(StoreError::Unfit(format!(
        "the journal {} is damaged ({what}): it holds the last changes of bindings, which would be lost; restore a \
         backup, or move the file away to give them up",
        path.display()
    )))
}

/// What an error of the system means.
fn failed(path: &Path, error: &io::Error) -> Fault {
    let name = path.display();
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Fault::refused(format!("the disk that holds {name} is full; make room on it"))
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Fault::refused(format!(
            "the journal {name} cannot be written; give the server's user the right to write it and its directory"
        )),
        io::ErrorKind::NotFound => Fault::new(
            Cause::Other,
            StoreError::Refused(format!("the journal {name} cannot be made: its directory is gone")),
        ),
        _ => {
            Fault::refused(format!("the disk that holds {name} fails ({error}); look into the system's log"))
        }
    }
}

#[cfg(test)]
mod tests;
