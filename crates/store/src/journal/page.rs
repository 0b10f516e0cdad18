//! A page of the journal: changes of one table, in the order in which they were made.
//!
//! All numbers are little-endian. A page is the format's number (1), the records of the changes one after another, and the
//! CRC-32 of all that. A record is its kind, one byte, and
//!
//! - removed (0), the row goes: its identifier, 16 bytes;
//! - saved (1): the row's numbers (see [`save`]) and its texts.
//!
//! A text is its length, 16 bits, and its bytes.

use crate::Contact;
use crate::batch::Batch;
use crate::ruid::Ruid;

const FORMAT: u8 = 1;
const REMOVED: u8 = 0;
const SAVED: u8 = 1;

/// A page gets no more records when it has so many bytes: packets of MariaDB have a limit.
const PAGE_BYTES: usize = 512 << 10;

/// Buffers of pages that are kept for the next ones.
const SPARE_MAX: usize = 16;

/// The longest text of a page.
const TEXT_MAX: usize = u16::MAX as usize;

/// Whether a page can hold a row.
///
/// # Errors
///
/// Why not, in a sentence.
pub(crate) fn check(row: &Contact<'_>) -> Result<(), String> {
    if texts(row).iter().any(|text| text.len() > TEXT_MAX) {
        return Err(format!("a text is longer than {TEXT_MAX} bytes"));
    }
    Ok(())
}

/// A page that is to be written.
#[derive(Debug)]
pub(crate) struct Page<'a> {
    pub(crate) table: &'a str,
    pub(crate) generation: i32,
    pub(crate) changes: &'a [u8],
}

/// Records on their way into the journal: kept until they are committed, then cleared.
#[derive(Debug, Default)]
pub struct Records {
    /// In the order in which they are to be written.
    pages: Vec<Open>,
    spare: Vec<Vec<u8>>,
}

/// A page in the making.
#[derive(Debug)]
struct Open {
    /// Its place among the journal's tables.
    table: usize,
    bytes: Vec<u8>,
    /// Its checksum is there: it gets no more records.
    is_sealed: bool,
}

impl Records {
    /// Adds what an [`Encoder`](crate::Encoder) has written down for the `table`th table, one record or more.
    pub fn push(&mut self, table: usize, records: &[u8]) {
        if records.is_empty() {
            return;
        }
        // The last one of each table can be written on.
        let open = self.pages.iter().rposition(|page| page.table == table);
        let open = open.filter(|&at| !self.pages[at].is_sealed && self.pages[at].bytes.len() < PAGE_BYTES);
        let at = open.unwrap_or_else(|| {
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.push(FORMAT);
            self.pages.push(Open { table, bytes, is_sealed: false });
            self.pages.len() - 1
        });
        self.pages[at].bytes.extend_from_slice(records);
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Bytes of all of them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.pages.iter().map(|page| page.bytes.len()).sum()
    }

    /// Forgets them: they are committed.
    pub fn clear(&mut self) {
        for page in self.pages.drain(..) {
            if self.spare.len() < SPARE_MAX {
                let mut bytes = page.bytes;
                bytes.clear();
                bytes.shrink_to(2 * PAGE_BYTES);
                self.spare.push(bytes);
            }
        }
    }

    /// The pages as they are written, each with its table. What comes later goes on others.
    pub(crate) fn seal(&mut self) -> impl Iterator<Item = (usize, &[u8])> {
        for page in self.pages.iter_mut().filter(|page| !page.is_sealed) {
            page.is_sealed = true;
            page.bytes.extend(crc32fast::hash(&page.bytes).to_le_bytes());
        }
        self.pages.iter().map(|page| (page.table, &page.bytes[..]))
    }
}

/// Appends the record of a row that goes.
pub(crate) fn remove(bytes: &mut Vec<u8>, ruid: Ruid) {
    bytes.push(REMOVED);
    bytes.extend(ruid.bits().to_le_bytes());
}

/// Appends the record of a row that is saved, which has passed [`check`].
pub(crate) fn save(bytes: &mut Vec<u8>, row: &Contact<'_>) {
    let texts = texts(row);
    bytes.reserve(NUMBERS + texts.iter().map(|text| 2 + text.len()).sum::<usize>());
    let mut numbers = [0; NUMBERS];
    numbers[0] = SAVED;
    numbers[1..9].copy_from_slice(&row.expires_unix_micros.to_le_bytes());
    numbers[9..17].copy_from_slice(&row.modified_unix_micros.to_le_bytes());
    numbers[17..19].copy_from_slice(&row.q.to_le_bytes());
    let others = [row.cseq, row.flags, row.cflags, row.reg_id, row.methods.unwrap_or(0)];
    for (place, number) in numbers[19..39].chunks_exact_mut(4).zip(others) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    numbers[39] = u8::from(row.methods.is_some());
    bytes.extend_from_slice(&numbers);
    for text in texts {
        bytes.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes());
        bytes.extend_from_slice(&text[..text.len().min(TEXT_MAX)]);
    }
}

/// Bytes of a saved row's kind and numbers.
const NUMBERS: usize = 40;

fn texts<'a>(row: &Contact<'a>) -> [&'a [u8]; 9] {
    [
        row.username,
        row.domain,
        row.contact,
        row.received,
        row.path,
        row.call_id,
        row.user_agent,
        row.socket,
        row.instance,
    ]
}

/// Notes the changes of a page, after those of earlier ones.
///
/// # Errors
///
/// What is wrong with a page that nobody wrote so.
pub(crate) fn read(table: &str, page: &[u8], batch: &mut Batch) -> Result<(), String> {
    let (changes, check) = page.split_last_chunk().ok_or("it is too short")?;
    if crc32fast::hash(changes) != u32::from_le_bytes(*check) {
        return Err("its checksum is wrong".to_string());
    }
    let mut reader = Reader(changes);
    let [format] = reader.take().ok_or("it is too short")?;
    if format != FORMAT {
        return Err(format!("it is of format {format}, which a later version wrote"));
    }
    while !reader.0.is_empty() {
        reader.change(table, batch).ok_or("a change is not whole")?;
    }
    Ok(())
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn number(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = u16::from_le_bytes(self.take()?);
        let (text, rest) = self.0.split_at_checked(usize::from(length))?;
        self.0 = rest;
        Some(text)
    }

    fn change(&mut self, table: &str, batch: &mut Batch) -> Option<()> {
        match self.take()? {
            [REMOVED] => batch.note_row(table, Ruid::from_bits(u128::from_le_bytes(self.take()?)), None),
            [SAVED] => batch.save(table, &self.saved()?),
            _ => return None,
        }
        Some(())
    }

    /// What [`save`] put.
    fn saved(&mut self) -> Option<Contact<'a>> {
        let mut row = Contact {
            expires_unix_micros: u64::from_le_bytes(self.take()?),
            modified_unix_micros: u64::from_le_bytes(self.take()?),
            q: u16::from_le_bytes(self.take()?),
            cseq: self.number()?,
            flags: self.number()?,
            cflags: self.number()?,
            reg_id: self.number()?,
            ..Contact::default()
        };
        let methods = self.number()?;
        row.methods = (self.take()? != [0]).then_some(methods);
        row.username = self.text()?;
        row.domain = self.text()?;
        row.contact = self.text()?;
        row.received = self.text()?;
        row.path = self.text()?;
        row.call_id = self.text()?;
        row.user_agent = self.text()?;
        row.socket = self.text()?;
        row.instance = self.text()?;
        Some(row)
    }
}
