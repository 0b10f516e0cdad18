//! Changes of location tables, gathered until they are written in one transaction.

use std::collections::HashMap;

use crate::Contact;
use crate::ruid::Ruid;

/// What is to be done with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It is written: the binding is new or changed. It replaces what is stored for its address-of-record and
    /// contact.
    Save,
    /// What is stored for this address-of-record and contact goes; no other field is read.
    Remove,
    /// The row with this [`Contact::ruid`] goes: one that somebody else wrote. No other field is read.
    RemoveRuid,
}

/// A change of a location table.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The table.
    pub table: &'a str,
    /// What is to be done.
    pub what: What,
    /// With which row.
    pub contact: Contact<'a>,
}

/// Texts of a row, in the order of [`Stored::texts`].
const TEXTS: usize = 10;

/// Changes to be written in one transaction, in this order; buffers are kept from batch to batch.
///
/// A row that is changed again replaces what was noted for it, so a batch names each row once, and who
/// retries a batch does not make it longer by noting the same rows again. Texts that were replaced by longer
/// ones stay in the buffer until [`Batch::clear`].
#[derive(Debug, Default)]
pub struct Batch {
    tables: Vec<TableChanges>,
    bytes: Vec<u8>,
}

/// What happens to one table: first it is emptied, if at all; the rest is about different rows, in any order.
#[derive(Debug, Default)]
pub(crate) struct TableChanges {
    pub(crate) name: String,
    pub(crate) is_cleared: bool,
    rows: Vec<(Ruid, Option<Stored>)>,
    index: HashMap<Ruid, usize>,
    /// Rows of others that go, by what their `ruid` says.
    pub(crate) foreign: Vec<Box<str>>,
}

/// A row; its texts lie one after another in a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    start: usize,
    /// Bytes from `start` on that are its own.
    room: u32,
    ends: [u32; TEXTS],
    expires_unix_micros: u64,
    modified_unix_micros: u64,
    q: u16,
    cseq: u32,
    flags: u32,
    cflags: u32,
    methods: Option<u32>,
    reg_id: u32,
}

impl Stored {
    fn texts<'a>(contact: &Contact<'a>) -> [&'a [u8]; TEXTS] {
        [
            contact.username,
            contact.domain,
            contact.contact,
            contact.received,
            contact.path,
            contact.call_id,
            contact.user_agent,
            contact.socket,
            contact.instance,
            contact.ruid,
        ]
    }

    /// Appends a row's texts.
    pub(crate) fn put(bytes: &mut Vec<u8>, contact: &Contact<'_>) -> Stored {
        let (start, mut end) = (bytes.len(), 0);
        let ends = Stored::texts(contact).map(|text| {
            bytes.extend_from_slice(text);
            end = u32::try_from(bytes.len() - start).unwrap_or(u32::MAX);
            end
        });
        Stored::new(start, end, ends, contact)
    }

    /// Puts a row's texts in the place of this one's, if there is room.
    fn put_over(&self, bytes: &mut [u8], contact: &Contact<'_>) -> Option<Stored> {
        let texts = Stored::texts(contact);
        let room = bytes.get_mut(self.start..self.start + self.room as usize)?;
        if texts.iter().map(|text| text.len()).sum::<usize>() > room.len() {
            return None;
        }
        let mut end = 0;
        let ends = texts.map(|text| {
            room[end..end + text.len()].copy_from_slice(text);
            end += text.len();
            end as u32
        });
        Some(Stored::new(self.start, self.room, ends, contact))
    }

    fn new(start: usize, room: u32, ends: [u32; TEXTS], contact: &Contact<'_>) -> Stored {
        Stored {
            start,
            room,
            ends,
            expires_unix_micros: contact.expires_unix_micros,
            modified_unix_micros: contact.modified_unix_micros,
            q: contact.q,
            cseq: contact.cseq,
            flags: contact.flags,
            cflags: contact.cflags,
            methods: contact.methods,
            reg_id: contact.reg_id,
        }
    }

    pub(crate) fn contact<'a>(&self, bytes: &'a [u8]) -> Contact<'a> {
        let text = |index: usize| {
            let from = if index == 0 { 0 } else { self.ends[index - 1] as usize };
            bytes.get(self.start + from..self.start + self.ends[index] as usize).unwrap_or_default()
        };
        Contact {
            username: text(0),
            domain: text(1),
            contact: text(2),
            received: text(3),
            path: text(4),
            call_id: text(5),
            user_agent: text(6),
            socket: text(7),
            instance: text(8),
            expires_unix_micros: self.expires_unix_micros,
            modified_unix_micros: self.modified_unix_micros,
            q: self.q,
            cseq: self.cseq,
            flags: self.flags,
            cflags: self.cflags,
            methods: self.methods,
            reg_id: self.reg_id,
            ruid: text(9),
            is_foreign: false,
        }
    }
}

impl TableChanges {
    fn note(&mut self, ruid: Ruid, contact: Option<&Contact<'_>>, bytes: &mut Vec<u8>) {
        match self.index.entry(ruid) {
            std::collections::hash_map::Entry::Occupied(at) => {
                let (_, stored) = &mut self.rows[*at.get()];
                *stored = contact.map(|contact| {
                    let over = stored.and_then(|stored| stored.put_over(bytes, contact));
                    over.unwrap_or_else(|| Stored::put(bytes, contact))
                });
            }
            std::collections::hash_map::Entry::Vacant(at) => {
                at.insert(self.rows.len());
                self.rows.push((ruid, contact.map(|contact| Stored::put(bytes, contact))));
            }
        }
    }

    fn empty(&mut self) {
        self.is_cleared = false;
        self.rows.clear();
        self.index.clear();
        self.foreign.clear();
    }

    fn len(&self) -> usize {
        self.rows.len() + self.foreign.len() + usize::from(self.is_cleared)
    }
    /// Rows of ours that go.
    pub(crate) fn removals(&self) -> impl Iterator<Item = Ruid> + '_ {
        self.rows.iter().filter(|(_, stored)| stored.is_none()).map(|(ruid, _)| *ruid)
    }
}

impl Batch {
    /// Notes a change.
    pub fn note(&mut self, change: &Change<'_>) {
        match change.what {
            What::Save => self.save(change.table, &change.contact),
            What::Remove => self.remove(change.table, &change.contact),
            What::RemoveRuid => self.remove_ruid(change.table, change.contact.ruid),
        }
    }

    /// Notes a [`What::Save`].
    pub fn save(&mut self, table: &str, contact: &Contact<'_>) {
        self.note_row(table, ruid_of(table, contact), Some(&Contact { ruid: b"", ..*contact }));
    }

    /// Notes a [`What::Remove`].
    pub fn remove(&mut self, table: &str, contact: &Contact<'_>) {
        self.note_row(table, ruid_of(table, contact), None);
    }

    /// Notes a [`What::RemoveRuid`].
    pub fn remove_ruid(&mut self, table: &str, ruid: &[u8]) {
        if let Some(ours) = Ruid::parse(ruid) {
            return self.note_row(table, ours, None);
        }
        // It was read from a table: what is no text cannot be there.
        let Ok(text) = std::str::from_utf8(ruid) else { return };
        let at = self.table_at(table);
        let foreign = &mut self.tables[at].foreign;
        if !foreign.iter().rev().take(16).any(|noted| **noted == *text) {
            foreign.push(text.into());
        }
    }

    /// Notes that a row of ours is saved or, without a contact, goes.
    pub(crate) fn note_row(&mut self, table: &str, ruid: Ruid, contact: Option<&Contact<'_>>) {
        let at = self.table_at(table);
        self.tables[at].note(ruid, contact, &mut self.bytes);
    }

    /// Notes that everything that the table holds goes: what follows is all there is.
    pub fn clear_table(&mut self, table: &str) {
        let at = self.table_at(table);
        let changes = &mut self.tables[at];
        changes.empty();
        changes.is_cleared = true;
    }

    /// Changes noted.
    pub fn len(&self) -> usize {
        self.tables.iter().map(TableChanges::len).sum()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all changes and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.tables.iter_mut().for_each(TableChanges::empty);
    }

    fn table_at(&mut self, name: &str) -> usize {
        self.tables.iter().position(|table| table.name == name).unwrap_or_else(|| {
            self.tables.push(TableChanges { name: name.to_string(), ..TableChanges::default() });
            self.tables.len() - 1
        })
    }

    /// The tables that change.
    pub(crate) fn changes(&self) -> impl Iterator<Item = &TableChanges> {
        self.tables.iter().filter(|table| table.len() > 0)
    }

    /// The rows of a table that are written, with their identifiers.
    pub(crate) fn saves<'a>(
        &'a self,
        table: &'a TableChanges,
    ) -> impl Iterator<Item = (Ruid, Contact<'a>)> + 'a {
        table.rows.iter().filter_map(|(ruid, stored)| Some((*ruid, stored.as_ref()?.contact(&self.bytes))))
    }
}

pub(crate) fn ruid_of(table: &str, contact: &Contact<'_>) -> Ruid {
    Ruid::of(table, contact.username, contact.domain, contact.contact)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contact(user: &'static str, agent: &'static str) -> Contact<'static> {
        Contact {
            username: user.as_bytes(),
            contact: b"sip:c",
            user_agent: agent.as_bytes(),
            ..Contact::default()
        }
    }

    fn saved(batch: &Batch) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        batch
            .changes()
            .flat_map(|table| batch.saves(table))
            .map(|(_, contact)| (text(contact.username), text(contact.user_agent)))
            .collect()
    }

    #[test]
    fn the_last_change_of_a_row_counts() {
        let mut batch = Batch::default();
        batch.save("location", &contact("a", "1"));
        batch.save("location", &contact("b", "1"));
        batch.save("location", &contact("a", "2"));
        batch.remove("location", &contact("b", ""));
        batch.remove("location", &contact("c", ""));
        batch.save("location", &contact("c", "3"));
        assert_eq!(batch.len(), 3);
        assert_eq!(saved(&batch), [("a".into(), "2".into()), ("c".into(), "3".into())]);
        assert_eq!(batch.changes().map(|table| table.removals().count()).sum::<usize>(), 1);
    }

    #[test]
    fn a_row_that_changes_again_takes_no_more_room() {
        let mut batch = Batch::default();
        batch.save("location", &contact("a", "agent 1"));
        batch.save("location", &contact("b", "agent"));
        let before = batch.bytes.len();
        for agent in ["agent 2", "", "agent 3"] {
            batch.save("location", &contact("a", agent));
        }
        assert_eq!(batch.bytes.len(), before);
        batch.save("location", &contact("a", "another agent"));
        assert!(batch.bytes.len() > before);
        assert_eq!(saved(&batch), [("a".into(), "another agent".into()), ("b".into(), "agent".into())]);
    }

    #[test]
    fn clearing_a_table_forgets_what_was_noted_for_it_only() {
        let mut batch = Batch::default();
        batch.save("location", &contact("a", "1"));
        batch.save("other", &contact("b", "1"));
        batch.remove_ruid("location", b"uloc-1");
        batch.clear_table("location");
        batch.save("location", &contact("c", "1"));
        assert_eq!(batch.len(), 3);
        assert_eq!(saved(&batch), [("c".into(), "1".into()), ("b".into(), "1".into())]);
        batch.clear();
        assert!(batch.is_empty() && batch.changes().next().is_none());
    }

    #[test]
    fn removing_by_an_identifier_of_ours_is_removing_the_row() {
        let mut batch = Batch::default();
        batch.save("location", &contact("a", "1"));
        let ruid = Ruid::of("location", b"a", b"", b"sip:c").text();
        batch.remove_ruid("location", ruid.as_str().as_bytes());
        assert_eq!(batch.len(), 1);
        assert!(saved(&batch).is_empty());
    }

    #[test]
    fn all_fields_come_back() {
        let whole = Contact {
            username: b"a",
            domain: b"d",
            contact: b"sip:c",
            received: b"r",
            path: b"p",
            expires_unix_micros: 1,
            q: 2,
            call_id: b"i",
            cseq: 3,
            modified_unix_micros: 4,
            flags: 5,
            cflags: 6,
            user_agent: b"u",
            socket: b"s",
            methods: Some(7),
            instance: b"n",
            reg_id: 8,
            ruid: b"",
            is_foreign: false,
        };
        let mut batch = Batch::default();
        batch.save("location", &contact("x", "y"));
        batch.save("location", &whole);
        let table = batch.changes().next().unwrap();
        assert_eq!(batch.saves(table).nth(1).unwrap().1, whole);
    }
}
