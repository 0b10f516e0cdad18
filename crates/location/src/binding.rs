//! One binding: numbers, and one block of bytes that holds all its strings (RFC 3261 §10.3 step 7).

use crate::request::Update;
use alloc::boxed::Box;
use alloc::vec::Vec;
use sip::Instant;

/// Blocks are sized in multiples of this (bytes), which the allocator would round up to anyway; so a Call-ID a
/// little longer than the last one still fits.
const BLOCK_GRANULE: usize = 16;
/// A block is given back when it is larger than what it holds by more than this (bytes).
const BLOCK_SLACK_MAX: usize = 256;

const AOR: usize = 0;
const CONTACT: usize = 1;
const CALL_ID: usize = 2;
const RECEIVED: usize = 3;
const PATH: usize = 4;
const INSTANCE: usize = 5;
const USER_AGENT: usize = 6;
const FIELDS: usize = 7;

/// Bytes of [`Binding::numbers`].
pub(crate) const NUMBERS: usize = 3 * 8 + 4 * 4 + 2 * (FIELDS + 1);

/// A contact that an address-of-record is bound to, until it expires.
#[derive(Clone)]
pub struct Binding {
    block: Box<[u8]>,
    expires_at: Instant,
    pub(crate) modified_at: Instant,
    flow: u64,
    lengths: [u16; FIELDS],
    q: u16,
    cseq: u32,
    reg_id: u32,
    methods: u32,
    flags: u32,
}

/// What a registrar decided about an update.
#[derive(Clone, Copy)]
pub(crate) struct Granted {
    pub(crate) modified_at: Instant,
    pub(crate) expires_at: Instant,
    pub(crate) q: u16,
}

impl Binding {
    /// The content of a free slot.
    pub(crate) fn vacant() -> Binding {
        Binding {
            block: Box::default(),
            expires_at: Instant::ZERO,
            modified_at: Instant::ZERO,
            flow: 0,
            lengths: [0; FIELDS],
            q: 0,
            cseq: 0,
            reg_id: 0,
            methods: 0,
            flags: 0,
        }
    }

    /// Bytes that the strings of `update` need under `aor`.
    pub(crate) fn bytes_needed(aor: &[u8], update: &Update<'_>) -> usize {
        fields(aor, update).iter().map(|field| field.len()).sum()
    }

    /// Bytes of the block, used or not.
    pub(crate) fn block_bytes(&self) -> usize {
        self.block.len()
    }

    /// Bytes that the block will have once `needed` bytes are stored in it.
    pub(crate) fn block_bytes_after(&self, needed: usize) -> usize {
        if self.block_fits(needed) { self.block.len() } else { Binding::vacant_block_bytes(needed) }
    }

    /// Bytes of the block of a new binding with `needed` bytes of strings.
    pub(crate) fn vacant_block_bytes(needed: usize) -> usize {
        needed.next_multiple_of(BLOCK_GRANULE)
    }

    fn block_fits(&self, needed: usize) -> bool {
        needed <= self.block.len() && self.block.len() - needed <= BLOCK_SLACK_MAX
    }

    /// Stores everything that `update` says, in the old block if it fits. The caller checked the length against
    /// [`Limits::binding_bytes_max`](crate::Limits), which never exceeds `u16::MAX`.
    pub(crate) fn write(&mut self, aor: &[u8], update: &Update<'_>, granted: Granted) {
        let fields = fields(aor, update);
        let needed = fields.iter().map(|field| field.len()).sum::<usize>();
        if self.block_fits(needed) {
            let mut rest = &mut self.block[..];
            for field in fields {
                let (head, tail) = rest.split_at_mut(field.len());
                head.copy_from_slice(field);
                rest = tail;
            }
        } else {
            let mut block = Vec::with_capacity(needed.next_multiple_of(BLOCK_GRANULE));
            for field in fields {
                block.extend_from_slice(field);
            }
            block.resize(needed.next_multiple_of(BLOCK_GRANULE), 0);
            self.block = block.into_boxed_slice();
        }
        self.lengths = fields.map(|field| u16::try_from(field.len()).unwrap_or(0));
        self.expires_at = granted.expires_at;
        self.modified_at = granted.modified_at;
        self.q = granted.q;
        self.flow = update.flow;
        self.cseq = update.cseq;
        self.reg_id = update.reg_id;
        self.methods = update.methods;
        self.flags = update.flags;
    }

    /// All strings, one after another.
    pub(crate) fn strings(&self) -> &[u8] {
        let used = self.lengths.iter().map(|&length| usize::from(length)).sum::<usize>();
        self.block.get(..used).unwrap_or(&[])
    }

    /// Everything but the strings.
    pub(crate) fn numbers(&self) -> [u8; NUMBERS] {
        let mut numbers = [0; NUMBERS];
        let mut rest = &mut numbers[..];
        let mut put = |bytes: &[u8]| {
            let (place, others) = core::mem::take(&mut rest).split_at_mut(bytes.len());
            place.copy_from_slice(bytes);
            rest = others;
        };
        for number in [self.expires_at.as_micros(), self.modified_at.as_micros(), self.flow] {
            put(&number.to_le_bytes());
        }
        for number in [self.cseq, self.reg_id, self.methods, self.flags] {
            put(&number.to_le_bytes());
        }
        for number in self.lengths.iter().chain([&self.q]) {
            put(&number.to_le_bytes());
        }
        numbers
    }

    /// The binding with these [`numbers`](Binding::numbers), and strings of which the first are its own; with those it takes.
    pub(crate) fn unpack<'a>(numbers: &[u8; NUMBERS], strings: &'a [u8]) -> Option<(Binding, &'a [u8])> {
        let mut rest = &numbers[..];
        let mut micros = || take(&mut rest).map(u64::from_le_bytes);
        let (expires_at, modified_at, flow) = (micros()?, micros()?, micros()?);
        let mut number = || take(&mut rest).map(u32::from_le_bytes);
        let (cseq, reg_id, methods, flags) = (number()?, number()?, number()?, number()?);
        let mut lengths = [0; FIELDS];
        for length in &mut lengths {
            *length = take(&mut rest).map(u16::from_le_bytes)?;
        }
        let q = take(&mut rest).map(u16::from_le_bytes)?;
        let strings = strings.get(..lengths.iter().map(|&length| usize::from(length)).sum())?;
        let mut block = Vec::with_capacity(Binding::vacant_block_bytes(strings.len()));
        block.extend_from_slice(strings);
        block.resize(Binding::vacant_block_bytes(strings.len()), 0);
        let binding = Binding {
            block: block.into_boxed_slice(),
            expires_at: Instant::from_micros(expires_at),
            modified_at: Instant::from_micros(modified_at),
            flow,
            lengths,
            q,
            cseq,
            reg_id,
            methods,
            flags,
        };
        Some((binding, strings))
    }

    fn field(&self, which: usize) -> &[u8] {
        let start = self.lengths[..which].iter().map(|&length| usize::from(length)).sum::<usize>();
        let end = start + usize::from(self.lengths[which]);
        self.block.get(start..end).unwrap_or(&[])
    }

    /// The address-of-record, in the canonical form that it was registered under (RFC 3261 §10.3 step 5).
    pub fn aor(&self) -> &[u8] {
        self.field(AOR)
    }

    /// The contact's URI, as last registered.
    pub fn contact(&self) -> &[u8] {
        self.field(CONTACT)
    }

    /// The Call-ID of the last REGISTER that updated this binding.
    pub fn call_id(&self) -> &[u8] {
        self.field(CALL_ID)
    }

    /// The CSeq number of the last REGISTER that updated this binding.
    pub fn cseq(&self) -> u32 {
        self.cseq
    }

    /// Where the REGISTER came from, as a URI, if that is not what the contact says.
    pub fn received(&self) -> Option<&[u8]> {
        some(self.field(RECEIVED))
    }

    /// The Path values joined by commas (RFC 3327), if there were any.
    pub fn path(&self) -> Option<&[u8]> {
        some(self.field(PATH))
    }

    /// The `+sip.instance` (RFC 5626 §4.1), if there was one.
    pub fn instance(&self) -> Option<&[u8]> {
        some(self.field(INSTANCE))
    }

    /// The User-Agent, if there was one.
    pub fn user_agent(&self) -> Option<&[u8]> {
        some(self.field(USER_AGENT))
    }

    /// The `reg-id` (RFC 5626 §4.2), if there was one.
    pub fn reg_id(&self) -> Option<u32> {
        (self.reg_id != 0).then_some(self.reg_id)
    }

    /// The contact's preference in thousandths, 0 to 1,000 (RFC 3261 §10.2.1.2).
    pub fn q(&self) -> u16 {
        self.q
    }

    /// The socket or connection that the REGISTER came through, in the caller's numbering.
    pub fn flow(&self) -> u64 {
        self.flow
    }

    /// The methods of the Allow header, in the caller's numbering.
    pub fn methods(&self) -> u32 {
        self.methods
    }

    /// The caller's own flags.
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// When the binding ceases to exist.
    pub fn expires_at(&self) -> Instant {
        self.expires_at
    }

    /// When the binding was last updated; of contacts of one REGISTER each is a microsecond before the one above it, so
    /// that their order is in their times.
    pub fn modified_at(&self) -> Instant {
        self.modified_at
    }

    /// Whether the binding no longer exists at `now`.
    pub fn is_expired(&self, now: Instant) -> bool {
        self.expires_at <= now
    }

    /// Seconds left at `now`, rounded up: what the `expires` parameter of the 200 says (RFC 3261 §10.3 step 8).
    pub fn expires_in(&self, now: Instant) -> u32 {
        let micros = self.expires_at.as_micros().saturating_sub(now.as_micros());
        u32::try_from(micros.div_ceil(1_000_000)).unwrap_or(u32::MAX)
    }

    /// The interval (seconds) granted when the binding was last updated.
    pub fn interval(&self) -> u32 {
        u32::try_from(self.expires_at.since(self.modified_at).as_secs()).unwrap_or(u32::MAX)
    }
}

impl PartialEq for Binding {
    // What else is in the block says nothing.
    fn eq(&self, other: &Binding) -> bool {
        let numbers = |b: &Binding| {
            (b.expires_at, b.modified_at, b.flow, b.lengths, b.q, b.cseq, b.reg_id, b.methods, b.flags)
        };
        numbers(self) == numbers(other) && self.strings() == other.strings()
    }
}

impl Eq for Binding {}

impl core::fmt::Debug for Binding {
    // Users' identities stay out of logs: only what identifies nobody is shown.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Binding")
            .field("q", &self.q)
            .field("cseq", &self.cseq)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

fn fields<'a>(aor: &'a [u8], update: &Update<'a>) -> [&'a [u8]; FIELDS] {
    [aor, update.contact, update.call_id, update.received, update.path, update.instance, update.user_agent]
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, others) = rest.split_first_chunk()?;
    *rest = others;
    Some(*taken)
}

fn some(field: &[u8]) -> Option<&[u8]> {
    (!field.is_empty()).then_some(field)
}
