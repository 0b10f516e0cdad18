//! Changes written down for the journal by whoever makes them, while the binding is in the processor's cache.
//!
//! Each stripe of the location table has a sheet, written while the stripe is held, and taken by the persister while all stripes
//! that share it are held: what one REGISTER changes is on one sheet, and goes into one transaction. There are fewer sheets than
//! stripes, so that the end of each is still in the cache when the next record is written there.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use location::{Binding, Change};
use store::{Draft, Encoder, Records};

use super::rows::RowMaker;
use crate::striped::{STRIPES, Striped};

/// Sheets: two shards seldom want the same one.
const SHEETS: usize = 32;

/// Stripes that share a sheet, one after another.
pub(super) const SHEET_STRIPES: usize = STRIPES / SHEETS;

/// Bytes that wait on one sheet; past it the journal is given up until the tables have all rows. Over all sheets 64 MB,
/// some 500,000 changes: they wait here while the database is away.
const SHEET_BYTES_MAX: usize = (64 << 20) / SHEETS;

/// Bytes of a sheet that are kept for what comes next.
const SHEET_BYTES_KEPT: usize = 64 << 10;

/// Refusals remembered on each sheet until whoever made the change asks; past it the oldest is forgotten.
const REFUSED_MAX: usize = 512;

/// What no table can hold.
#[derive(Debug)]
struct Refused {
    aor: Box<[u8]>,
    contact: Box<[u8]>,
}

#[derive(Debug, Default)]
struct Sheet {
    /// Of each table, what was written down since the sheet was taken.
    tables: Vec<Draft>,
    /// How many changes.
    changes: usize,
    refused: VecDeque<Refused>,
    /// How many were refused since the sheet was taken, and why the last one was.
    refusals: (u64, String),
    /// There was no room for some change.
    is_overfull: bool,
}

/// What all stripes share.
struct Shared {
    maker: RowMaker,
    encoder: Encoder,
    sheets: Vec<Mutex<Sheet>>,
    /// Refusals remembered on all sheets.
    refused: AtomicUsize,
}

/// The recorders of all stripes; clones are the same.
#[derive(Clone)]
pub(crate) struct Recorders(Arc<Shared>);

impl fmt::Debug for Recorders {
    // What is on the sheets identifies users.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorders(..)")
    }
}

/// The recorder of one stripe.
struct Recorder {
    shared: Arc<Shared>,
    stripe: usize,
}

/// What was on a sheet beside the records.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) changes: usize,
    /// Changes that no table can hold.
    pub(super) refusals: u64,
    /// Why the last of them was refused.
    pub(super) reason: String,
    /// Records are missing: rows have to be written instead.
    pub(super) is_overfull: bool,
}

impl Recorders {
    /// Has every change of `location` recorded from now on.
    pub(super) fn start(location: &Striped, maker: RowMaker, encoder: Encoder) -> Recorders {
        let tables = maker.tables().len();
        let drafts = || (0..tables).map(|_| Draft::default()).collect();
        let sheet = || Mutex::new(Sheet { tables: drafts(), ..Sheet::default() });
        let sheets = (0..SHEETS).map(|_| sheet()).collect();
        let shared = Arc::new(Shared { maker, encoder, sheets, refused: AtomicUsize::new(0) });
        location.record_changes(&mut |stripe| Box::new(Recorder { shared: shared.clone(), stripe }));
        Recorders(shared)
    }

    /// Moves what a sheet holds, that of the stripes from `first` on, to `records`.
    pub(super) fn take(&self, location: &Striped, first: usize, records: &mut Records) -> Taken {
        // With the stripes: no REGISTER is half on the sheet.
        location.hold::<SHEET_STRIPES, _>(first, || {
            let mut sheet = self.0.sheet(first);
            for (table, draft) in sheet.tables.iter_mut().enumerate() {
                records.push(table, draft);
                draft.shrink_to(SHEET_BYTES_KEPT);
            }
            let (refusals, reason) = std::mem::take(&mut sheet.refusals);
            Taken {
                changes: std::mem::take(&mut sheet.changes),
                refusals,
                reason,
                is_overfull: std::mem::take(&mut sheet.is_overfull),
            }
        })
    }

    /// Whether some change was refused, and nobody has asked yet.
    pub(crate) fn have_refused(&self) -> bool {
        self.0.refused.load(Ordering::Acquire) > 0
    }

    /// Whether a change of `aor` was refused since this was last asked: of one of these contacts, or of any.
    pub(crate) fn take_refused(&self, location: &Striped, aor: &[u8], contacts: Option<&[Binding]>) -> bool {
        if !self.have_refused() {
            return false;
        }
        let mut sheet = self.0.sheet(location.stripe_of(aor));
        let is_it = |refused: &Refused| {
            let named = |contacts: &[Binding]| contacts.iter().any(|one| one.contact() == &*refused.contact);
            *refused.aor == *aor && contacts.is_none_or(named)
        };
        let before = sheet.refused.len();
        sheet.refused.retain(|refused| !is_it(refused));
        let found = before - sheet.refused.len();
        self.0.refused.fetch_sub(found, Ordering::AcqRel);
        found > 0
    }
}

impl Shared {
    /// The sheet of a stripe.
    fn sheet(&self, stripe: usize) -> MutexGuard<'_, Sheet> {
        self.sheets[stripe / SHEET_STRIPES].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl location::Recorder for Recorder {
    fn record(&mut self, change: Change<'_>) {
        let Shared { maker, encoder, refused, .. } = &*self.shared;
        let mut sheet = self.shared.sheet(self.stripe);
        let sheet = &mut *sheet;
        let (Change::Saved(binding) | Change::Removed(binding)) = change;
        let (stored, row) = maker.row(binding);
        let table = maker.table_place(stored.table);
        let Some(draft) = sheet.tables.get_mut(table) else { return };
        sheet.changes += 1;
        if sheet.is_overfull || draft.len() >= SHEET_BYTES_MAX {
            sheet.is_overfull = true;
            return;
        }
        let Change::Saved(_) = change else { return encoder.remove(table, &row, draft) };
        if let Err(reason) = encoder.save(table, &row, draft) {
            sheet.refusals = (sheet.refusals.0 + 1, reason);
            if sheet.refused.len() >= REFUSED_MAX {
                sheet.refused.pop_front();
            } else {
                refused.fetch_add(1, Ordering::AcqRel);
            }
            sheet.refused.push_back(Refused { aor: binding.aor().into(), contact: binding.contact().into() });
        }
    }
}
