//! Changes on their way to the database: drained from the location table, kept until they are committed.

use std::ops::Range;

use location::Binding;
use store::{Change, Contact, What};

use super::rows::RowMaker;

/// One change; its strings are in the buffer that all share.
#[derive(Debug)]
struct Item {
    what: What,
    /// The key in the location service, before its row's strings.
    start: usize,
    lengths: [u16; FIELDS],
    numbers: Numbers,
}

#[derive(Clone, Copy, Debug)]
struct Numbers {
    expires_unix_micros: u64,
    modified_unix_micros: u64,
    cseq: u32,
    cflags: u32,
    methods: Option<u32>,
    reg_id: u32,
    q: u16,
}

const FIELDS: usize = 11;

/// Changes in the order in which they were made; the memory is kept from batch to batch.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    bytes: Vec<u8>,
    items: Vec<Item>,
}

impl Changes {
    /// Adds what became of a binding.
    pub(crate) fn push(&mut self, what: What, binding: &Binding, maker: &RowMaker) {
        let (stored, contact) = maker.row(binding);
        self.push_row(what, maker.table_name(stored.table), &contact);
    }

    /// Adds the removal of a row that the location table knows nothing of.
    pub(crate) fn push_stale(&mut self, table: &str, contact: &Contact<'_>) {
        let named = Contact {
            username: contact.username,
            domain: contact.domain,
            contact: contact.contact,
            ..Contact::default()
        };
        self.push_row(What::Remove, table, &named);
    }

    /// Adds the removal of a row that somebody else wrote, to be replaced by one of ours.
    pub(crate) fn push_foreign(&mut self, table: &str, ruid: &[u8]) {
        self.push_row(What::RemoveRuid, table, &Contact { ruid, ..Contact::default() });
    }

    /// Adds a row.
    pub(crate) fn push_row(&mut self, what: What, table: &str, contact: &Contact<'_>) {
        let fields = [
            table.as_bytes(),
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
        ];
        let numbers = Numbers {
            expires_unix_micros: contact.expires_unix_micros,
            modified_unix_micros: contact.modified_unix_micros,
            cseq: contact.cseq,
            cflags: contact.cflags,
            methods: contact.methods,
            reg_id: contact.reg_id,
            q: contact.q,
        };
        let start = self.bytes.len();
        let mut lengths = [0; FIELDS];
        for (field, length) in fields.iter().zip(&mut lengths) {
            // The location table holds no longer ones.
            *length = u16::try_from(field.len()).unwrap_or(u16::MAX);
            self.bytes.extend_from_slice(&field[..usize::from(*length)]);
        }
        self.items.push(Item { what, start, lengths, numbers });
    }

    /// The `index`th.
    pub(crate) fn row(&self, index: usize) -> Option<Change<'_>> {
        let item = self.items.get(index)?;
        let mut rest = self.bytes.get(item.start..)?;
        let mut fields: [&[u8]; FIELDS] = [&[]; FIELDS];
        for (field, &length) in fields.iter_mut().zip(&item.lengths) {
            (*field, rest) = rest.split_at_checked(usize::from(length))?;
        }
        let [table, username, domain, contact, received, path, call_id, user_agent, socket, instance, ruid] =
            fields;
        let Numbers { expires_unix_micros, modified_unix_micros, cseq, cflags, methods, reg_id, q } =
            item.numbers;
        let contact = Contact {
            username,
            domain,
            contact,
            received,
            path,
            expires_unix_micros,
            q,
            call_id,
            cseq,
            modified_unix_micros,
            cflags,
            user_agent,
            socket,
            methods,
            instance,
            reg_id,
            ruid,
            ..Contact::default()
        };
        Some(Change { table: std::str::from_utf8(table).ok()?, what: item.what, contact })
    }

    /// Those in `range`, which is one of what is there.
    pub(crate) fn rows(&self, range: Range<usize>) -> impl ExactSizeIterator<Item = Change<'_>> {
        range.map(|index| self.row(index).expect("invariant: what was pushed can be read"))
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Forgets all; memory beyond what a usual batch needs is given back.
    pub(crate) fn clear(&mut self) {
        /// About what 10,000 changes take.
        const KEPT_BYTES: usize = 8 << 20;
        self.bytes.clear();
        self.items.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.items.shrink_to(super::BATCH_ROWS_MAX);
    }
}
