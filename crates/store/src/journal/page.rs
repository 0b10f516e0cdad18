//! A page of the journal: changes of one table, in the order in which they were made.
//!
//! All numbers are little-endian. A page is the format's number (1), the changes one after another, and the
//! CRC-32 of all that. A change is its kind, one byte, and
//!
//! - removed (0), a row of ours goes: its identifier, 16 bytes;
//! - foreign (1), somebody else's row goes: its `ruid`;
//! - saved (2): the row's numbers (see [`save`]) and its texts.
//!
//! A text is its length, 16 bits, and its bytes.

use crate::Contact;
use crate::batch::Batch;
use crate::ruid::Ruid;

const FORMAT: u8 = 1;
const REMOVED: u8 = 0;
const FOREIGN: u8 = 1;
const SAVED: u8 = 2;

/// A page is ended when it has so many bytes: packets of MariaDB have a limit.
const PAGE_BYTES: usize = 512 << 10;

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
pub(crate) struct Page {
    pub(crate) table: String,
    pub(crate) generation: i32,
    pub(crate) changes: Vec<u8>,
}

/// Pages in the making, of one generation.
#[derive(Debug)]
pub(crate) struct Pages {
    generation: i32,
    /// The last one of each table can be written on.
    open: Vec<Page>,
    full: Vec<Page>,
}

impl Pages {
    pub(crate) fn new(generation: i32) -> Pages {
        Pages { generation, open: Vec::new(), full: Vec::new() }
    }

    /// Notes that a row of ours goes.
    pub(crate) fn remove(&mut self, table: &str, ruid: Ruid) {
        self.begin(table, REMOVED).extend(ruid.bits().to_le_bytes());
    }

    /// Notes that somebody else's row goes.
    pub(crate) fn remove_ruid(&mut self, table: &str, ruid: &[u8]) {
        put_text(self.begin(table, FOREIGN), ruid);
    }

    /// Notes a row that is saved, which has passed [`check`].
    pub(crate) fn save(&mut self, table: &str, contact: &Contact<'_>) {
        save(self.begin(table, SAVED), contact);
    }

    /// Begins a change, on another page if that one is full.
    fn begin(&mut self, table: &str, kind: u8) -> &mut Vec<u8> {
        let at = self.open.iter().position(|page| page.table == table).unwrap_or_else(|| {
            let changes = Vec::with_capacity(PAGE_BYTES / 8);
            self.open.push(Page { table: table.to_string(), generation: self.generation, changes });
            self.open.len() - 1
        });
        let Page { table, generation, changes } = &mut self.open[at];
        if changes.len() >= PAGE_BYTES {
            let full = std::mem::take(changes);
            self.full.push(sealed(Page { table: table.clone(), generation: *generation, changes: full }));
        }
        if changes.is_empty() {
            changes.push(FORMAT);
        }
        changes.push(kind);
        changes
    }

    /// The pages, in the order in which they are to be written.
    pub(crate) fn end(self) -> Vec<Page> {
        self.full.into_iter().chain(self.open.into_iter().map(sealed)).collect()
    }
}

fn sealed(mut page: Page) -> Page {
    page.changes.extend(crc32fast::hash(&page.changes).to_le_bytes());
    page
}

fn put_text(bytes: &mut Vec<u8>, text: &[u8]) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    bytes.extend(length.to_le_bytes());
    bytes.extend_from_slice(&text[..usize::from(length)]);
}

fn save(bytes: &mut Vec<u8>, row: &Contact<'_>) {
    bytes.extend(row.expires_unix_micros.to_le_bytes());
    bytes.extend(row.modified_unix_micros.to_le_bytes());
    bytes.extend(row.q.to_le_bytes());
    for number in [row.cseq, row.flags, row.cflags, row.reg_id, row.methods.unwrap_or(0)] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.push(u8::from(row.methods.is_some()));
    for text in texts(row) {
        put_text(bytes, text);
    }
}

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
            [FOREIGN] => batch.remove_ruid(table, self.text()?),
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
