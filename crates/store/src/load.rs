//! What is done with the rows of a location table, whichever database they come from.

use std::collections::HashMap;

use crate::Contact;
use crate::batch::Stored;
use crate::ruid::{PREFIX, Ruid};

/// `progress` is told after so many rows.
const PROGRESS_ROWS: u64 = 16_384;

/// Rows removed in one transaction, so that nobody waits long for it.
pub(crate) const REMOVE_STEP: usize = 5_000;

/// Expired rows that one load removes at most; those beyond are skipped and removed by the next one.
const EXPIRED_MAX: usize = 4_000_000;

/// `received` and the like of more rows than this for one address-of-record are not looked at.
const ROWS_MAX: usize = 10_000;

/// A load: what is asked for, and how far it is.
pub(crate) struct Load<'a> {
    pub(crate) table: &'a str,
    now: u64,
    progress: &'a mut dyn FnMut(u64, u64),
    visit: &'a mut dyn FnMut(&Contact<'_>) -> bool,
    total: u64,
    read: u64,
    visited: u64,
    /// The row that counts for each binding: when it was updated, and its number. Only if there are rows of
    /// others.
    winners: Option<HashMap<Ruid, (u64, i64)>>,
    expired: Vec<i64>,
    losers: Vec<i64>,
}

impl<'a> Load<'a> {
    pub(crate) fn new(
        table: &'a str,
        now: u64,
        progress: &'a mut dyn FnMut(u64, u64),
        visit: &'a mut dyn FnMut(&Contact<'_>) -> bool,
    ) -> Load<'a> {
        Load {
            table,
            now,
            progress,
            visit,
            total: 0,
            read: 0,
            visited: 0,
            winners: None,
            expired: Vec::new(),
            losers: Vec::new(),
        }
    }

    /// There are so many rows.
    pub(crate) fn begin(&mut self, total: u64) {
        self.total = total;
        (self.progress)(0, total);
    }

    /// A row of the first pass, which is made only if there are rows of others: finds out which of two rows
    /// counts.
    pub(crate) fn weigh(&mut self, id: i64, modified: u64, username: &[u8], domain: &[u8], contact: &[u8]) {
        let ruid = Ruid::of(self.table, username, domain, contact);
        let best = self.winners.get_or_insert_default().entry(ruid).or_insert((modified, id));
        *best = (*best).max((modified, id));
    }

    /// A row, with `ruid` as it is stored; false when no more are wanted.
    pub(crate) fn row(&mut self, id: i64, contact: &mut Contact<'_>) -> bool {
        !self.is_live(id, contact) || self.live_row(id, contact)
    }

    /// Takes a row that comes in no order.
    pub(crate) fn stage(&mut self, staged: &mut Staged, id: i64, contact: &Contact<'_>) {
        if self.is_live(id, contact) {
            staged.has_foreign |= !contact.ruid.starts_with(PREFIX.as_bytes());
            staged.rows.push((id, Stored::put(&mut staged.bytes, contact)));
        }
    }

    /// Visits the rows that came in no order, in order.
    pub(crate) fn visit_staged(&mut self, staged: &Staged) {
        let mut order: Vec<(u64, i64, usize)> = Vec::with_capacity(staged.rows.len());
        for (at, (id, stored)) in staged.rows.iter().enumerate() {
            let row = stored.contact(&staged.bytes);
            order.push((row.modified_unix_micros, *id, at));
            if staged.has_foreign {
                self.weigh(*id, row.modified_unix_micros, row.username, row.domain, row.contact);
            }
        }
        order.sort_unstable();
        for (_, id, at) in order {
            if !self.live_row(id, &mut staged.rows[at].1.contact(&staged.bytes)) {
                return;
            }
        }
    }

    /// Counts a row; an expired one is noted and goes.
    fn is_live(&mut self, id: i64, contact: &Contact<'_>) -> bool {
        self.read += 1;
        if self.read.is_multiple_of(PROGRESS_ROWS) {
            (self.progress)(self.read, self.total.max(self.read));
        }
        if contact.expires_unix_micros <= self.now {
            if self.expired.len() < EXPIRED_MAX {
                self.expired.push(id);
            }
            return false;
        }
        true
    }

    /// A row that has not expired; false when no more are wanted.
    fn live_row(&mut self, id: i64, contact: &mut Contact<'_>) -> bool {
        let ruid = Ruid::of(self.table, contact.username, contact.domain, contact.contact);
        if let Some((_, winner)) = self.winners.as_ref().and_then(|winners| winners.get(&ruid))
            && *winner != id
        {
            self.losers.push(id);
            return true;
        }
        contact.is_foreign = ruid.text().as_str().as_bytes() != contact.ruid;
        self.visited += 1;
        (self.visit)(contact)
    }

    /// All rows were read.
    pub(crate) fn end(&mut self) {
        (self.progress)(self.read, self.read);
    }

    /// Rows that go because they had expired.
    pub(crate) fn take_expired(&mut self) -> Vec<i64> {
        std::mem::take(&mut self.expired)
    }

    /// Rows that go because a later one for the same binding was visited.
    pub(crate) fn take_losers(&mut self) -> Vec<i64> {
        std::mem::take(&mut self.losers)
    }

    pub(crate) fn visited(&self) -> u64 {
        self.visited
    }
}

/// Rows that came in no order, kept until all are there. SQLite sorts wide rows four times more slowly.
#[derive(Default)]
pub(crate) struct Staged {
    bytes: Vec<u8>,
    rows: Vec<(i64, Stored)>,
    has_foreign: bool,
}

/// The rows of one address-of-record.
pub(crate) struct Rows<'a> {
    pub(crate) table: &'a str,
    pub(crate) username: &'a [u8],
    pub(crate) domain: &'a [u8],
    rows: Vec<(i64, OwnedContact)>,
}

/// A row that owns its texts.
struct OwnedContact {
    texts: [Box<[u8]>; 10],
    rest: Contact<'static>,
}

impl OwnedContact {
    fn of(row: &Contact<'_>) -> OwnedContact {
        OwnedContact {
            texts: [
                row.username.into(),
                row.domain.into(),
                row.contact.into(),
                row.received.into(),
                row.path.into(),
                row.call_id.into(),
                row.user_agent.into(),
                row.socket.into(),
                row.instance.into(),
                row.ruid.into(),
            ],
            rest: Contact {
                expires_unix_micros: row.expires_unix_micros,
                q: row.q,
                cseq: row.cseq,
                modified_unix_micros: row.modified_unix_micros,
                flags: row.flags,
                cflags: row.cflags,
                methods: row.methods,
                reg_id: row.reg_id,
                ..Contact::default()
            },
        }
    }

    fn contact(&self) -> Contact<'_> {
        let [username, domain, contact, received, path, call_id, user_agent, socket, instance, ruid] =
            &self.texts;
        Contact {
            username,
            domain,
            contact,
            received,
            path,
            call_id,
            user_agent,
            socket,
            instance,
            ruid,
            ..self.rest
        }
    }
}

impl<'a> Rows<'a> {
    pub(crate) fn new(table: &'a str, username: &'a [u8], domain: &'a [u8]) -> Rows<'a> {
        Rows { table, username, domain, rows: Vec::new() }
    }

    /// Forgets what was read by an attempt that failed.
    pub(crate) fn restart(&mut self) {
        self.rows.clear();
    }

    /// A row that was found; false when no more are wanted. Databases may compare without regard to case: it
    /// need not be the right one.
    pub(crate) fn row(&mut self, id: i64, contact: &Contact<'_>) -> bool {
        if contact.username == self.username && contact.domain == self.domain {
            self.rows.push((id, OwnedContact::of(contact)));
        }
        self.rows.len() < ROWS_MAX
    }

    /// Visits what was found, in order; returns the rows that a later one for the same contact replaces.
    pub(crate) fn visit(&mut self, visit: &mut dyn FnMut(&Contact<'_>)) -> Vec<i64> {
        self.rows.sort_by_key(|(id, row)| (row.rest.modified_unix_micros, *id));
        let mut losers = Vec::new();
        let mut latest: HashMap<&[u8], i64> = HashMap::new();
        for (id, row) in &self.rows {
            if let Some(earlier) = latest.insert(&row.texts[2], *id) {
                losers.push(earlier);
            }
        }
        for (id, row) in &self.rows {
            let mut contact = row.contact();
            if latest.get(contact.contact) == Some(id) {
                let ruid = Ruid::of(self.table, contact.username, contact.domain, contact.contact);
                contact.is_foreign = ruid.text().as_str().as_bytes() != contact.ruid;
                visit(&contact);
            }
        }
        losers
    }
}

/// The condition for rows that others wrote.
pub(crate) fn foreign_condition(ruid: &str) -> String {
    format!("{ruid} NOT LIKE '{PREFIX}%'")
}

/// Preference in thousandths of what is stored; Kamailio stores -1 for none, which counts as 1.
pub(crate) fn q_thousandths(q: f64) -> u16 {
    if (0.0..=1.0).contains(&q) { (q * 1000.0).round() as u16 } else { 1000 }
}
