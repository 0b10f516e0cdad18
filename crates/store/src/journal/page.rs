//! A page of the journal: changes of one table, in the order in which they were made.
//!
//! All numbers are little-endian. A page is the format's number (2), the records of the changes one after another, and the
//! CRC-32 of all that. A record is its kind, one byte, and
//!
//! - removed (0), the row goes: its identifier, 16 bytes;
//! - saved (1): sixteen marks, the row's numbers and its texts (see [`Draft::save`]). What the row saved before it has, too,
//!   is not repeated: the marks say so.
//!
//! A text is its length, 16 bits, and its bytes.

use std::ops::Range;

use crate::Contact;
use crate::batch::Batch;
use crate::ruid::Ruid;

const FORMAT: u8 = 2;
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
    /// Takes what an [`Encoder`](crate::Encoder) has written down for the `table`th table; the draft is empty then.
    pub fn push(&mut self, table: usize, draft: &mut Draft) {
        if draft.is_empty() {
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
        self.pages[at].bytes.extend_from_slice(&draft.bytes);
        draft.bytes.clear();
        draft.last = Last::default();
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

/// Records of one table in the order in which the changes were made, until [`Records`] takes them.
#[derive(Debug, Default)]
pub struct Draft {
    bytes: Vec<u8>,
    last: Last,
}

/// The row that was saved last; before the first one of a draft it is a row of nothing.
#[derive(Debug, Default)]
struct Last {
    is_there: bool,
    /// Where those of its texts that others may have are in the draft.
    texts: [Range<usize>; SHARED],
    others: Others,
}

/// Numbers that most rows have in common.
type Others = ([u32; 3], Option<u32>);

/// What a row has in common with the one that was saved before it: a bit for each text that it may have, the lowest first,
/// and one for its numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Same(u16);

impl Same {
    const OTHERS: u16 = 1 << SHARED;

    /// Whether it has this text, by its place in [`texts`].
    pub(crate) fn text(self, place: usize) -> bool {
        place < SHARED && self.0 & 1 << place != 0
    }
}

/// The mark of a row that names its methods.
const METHODS: u16 = Same::OTHERS << 1;
/// The mark of the first row that is saved in a draft: what it has in common it has with a row of nothing.
const FIRST: u16 = METHODS << 1;

/// Bytes of a saved row's kind, marks and numbers.
const NUMBERS: usize = 25;

impl Draft {
    /// Its bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Gives memory back that an empty draft does not need, beyond so many bytes.
    pub fn shrink_to(&mut self, bytes: usize) {
        self.bytes.shrink_to(bytes);
    }

    /// Appends the record of a row that goes.
    pub(crate) fn remove(&mut self, ruid: Ruid) {
        self.bytes.push(REMOVED);
        self.bytes.extend(ruid.bits().to_le_bytes());
    }

    /// What a row need not repeat.
    pub(crate) fn same(&self, row: &Contact<'_>) -> Same {
        let mut same = if others(row) == self.last.others { Same::OTHERS } else { 0 };
        for (place, (text, last)) in texts(row).into_iter().zip(&self.last.texts).enumerate() {
            let last = &self.bytes[last.clone()];
            same |= u16::from(text.len() == last.len() && (text.is_empty() || text == last)) << place;
        }
        Same(same)
    }

    /// Appends the record of a row that is saved, which has passed [`check`]: the marks, when it expires and when it was
    /// modified, in microseconds since 1970, 64 bits each; `q` in thousandths, 16 bits; `CSeq`; flags, `cflags`, `reg-id`
    /// and methods, 32 bits each; and the texts.
    pub(crate) fn save(&mut self, row: &Contact<'_>, same: Same) {
        let texts = texts(row);
        self.bytes.reserve(NUMBERS + 16 + texts.iter().map(|text| 2 + text.len()).sum::<usize>());
        let mut numbers = [0; NUMBERS];
        let mark = |is_set: bool, mark: u16| if is_set { mark } else { 0 };
        let marks = same.0 | mark(row.methods.is_some(), METHODS) | mark(!self.last.is_there, FIRST);
        self.last.is_there = true;
        numbers[0] = SAVED;
        numbers[1..3].copy_from_slice(&marks.to_le_bytes());
        numbers[3..11].copy_from_slice(&row.expires_unix_micros.to_le_bytes());
        numbers[11..19].copy_from_slice(&row.modified_unix_micros.to_le_bytes());
        numbers[19..21].copy_from_slice(&row.q.to_le_bytes());
        numbers[21..25].copy_from_slice(&row.cseq.to_le_bytes());
        self.bytes.extend_from_slice(&numbers);
        if same.0 & Same::OTHERS == 0 {
            self.last.others = others(row);
            let (others, methods) = self.last.others;
            for number in others.into_iter().chain([methods.unwrap_or(0)]) {
                self.bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        for (place, text) in texts.into_iter().enumerate() {
            if same.text(place) {
                continue;
            }
            let text = &text[..text.len().min(TEXT_MAX)];
            self.bytes.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes());
            if let Some(last) = self.last.texts.get_mut(place) {
                *last = self.bytes.len()..self.bytes.len() + text.len();
            }
            self.bytes.extend_from_slice(text);
        }
    }
}

/// Texts of a row.
const TEXTS: usize = 9;
/// The first of them, which rows may have in common.
const SHARED: usize = 6;

fn others(row: &Contact<'_>) -> Others {
    ([row.flags, row.cflags, row.reg_id], row.methods)
}

/// The texts of a row, in the order of a page.
pub(crate) fn texts<'a>(row: &Contact<'a>) -> [&'a [u8]; TEXTS] {
    [
        row.domain,
        row.received,
        row.path,
        row.user_agent,
        row.socket,
        row.instance,
        row.username,
        row.contact,
        row.call_id,
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
    let mut reader = Reader { rest: changes, last: Contact::default() };
    let [format] = reader.take().ok_or("it is too short")?;
    if format != FORMAT {
        return Err(format!(
            "it is of format {format}, which another version wrote: start and stop that one first"
        ));
    }
    while !reader.rest.is_empty() {
        reader.change(table, batch).ok_or("a change is not whole")?;
    }
    Ok(())
}

struct Reader<'a> {
    rest: &'a [u8],
    /// The row that was saved last.
    last: Contact<'a>,
}

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }

    fn number(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = u16::from_le_bytes(self.take()?);
        let (text, rest) = self.rest.split_at_checked(usize::from(length))?;
        self.rest = rest;
        Some(text)
    }

    fn change(&mut self, table: &str, batch: &mut Batch) -> Option<()> {
        match self.take()? {
            [REMOVED] => batch.note_row(table, Ruid::from_bits(u128::from_le_bytes(self.take()?)), None),
            [SAVED] => {
                self.last = self.saved()?;
                batch.save(table, &self.last);
            }
            _ => return None,
        }
        Some(())
    }

    /// What [`Draft::save`] put.
    fn saved(&mut self) -> Option<Contact<'a>> {
        let marks = u16::from_le_bytes(self.take()?);
        let last = if marks & FIRST == 0 { self.last } else { Contact::default() };
        let mut row = Contact {
            expires_unix_micros: u64::from_le_bytes(self.take()?),
            modified_unix_micros: u64::from_le_bytes(self.take()?),
            q: u16::from_le_bytes(self.take()?),
            cseq: self.number()?,
            ..last
        };
        if marks & Same::OTHERS == 0 {
            (row.flags, row.cflags, row.reg_id) = (self.number()?, self.number()?, self.number()?);
            row.methods = self.number().map(|methods| (marks & METHODS != 0).then_some(methods))?;
        }
        let texts = [
            &mut row.domain,
            &mut row.received,
            &mut row.path,
            &mut row.user_agent,
            &mut row.socket,
            &mut row.instance,
            &mut row.username,
            &mut row.contact,
            &mut row.call_id,
        ];
        for (place, text) in texts.into_iter().enumerate() {
            if !Same(marks).text(place) {
                *text = self.text()?;
            }
        }
        Some(row)
    }
}
