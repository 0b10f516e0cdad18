//! A REGISTER request as the location service sees it, and the reasons to refuse one (RFC 3261 §10.3).

use sip::Instant;

/// Contacts that one REGISTER may name; it bounds the URI comparisons that one datagram can cause.
/// Past it: [`Refusal::TooManyContacts`].
pub const CONTACTS_PER_REQUEST_MAX: usize = 16;

/// What a REGISTER asks for (RFC 3261 §10.3 steps 6 to 8).
#[derive(Clone, Copy, Debug)]
pub enum Register<'a> {
    /// No Contact: the current bindings are asked for.
    Query,
    /// One update per Contact value, in the order of the message.
    Bind(&'a [Update<'a>]),
    /// `Contact: *` with `Expires: 0`; build it with [`Register::star`].
    RemoveAll {
        /// The request's Call-ID.
        call_id: &'a [u8],
        /// The request's CSeq number.
        cseq: u32,
        /// See [`Update::waiting_since`].
        waiting_since: Option<Instant>,
    },
}

impl<'a> Register<'a> {
    /// The request of a REGISTER with `Contact: *`, checked (RFC 3261 §10.3 step 6, §10.2.2).
    ///
    /// `contacts` counts all Contact values, the `*` included; of `request` counts what all its contacts would have in
    /// common, its `expires` being the Expires header's value.
    ///
    /// # Errors
    ///
    /// [`Refusal::StarWithOthers`] if there is another Contact value, [`Refusal::StarExpiresNotZero`] if the
    /// Expires header is absent or not zero.
    pub fn star(contacts: usize, request: &Update<'a>) -> Result<Register<'a>, Refusal> {
        if contacts > 1 {
            return Err(Refusal::StarWithOthers);
        }
        if request.expires != Some(0) {
            return Err(Refusal::StarExpiresNotZero);
        }
        let Update { call_id, cseq, waiting_since, .. } = *request;
        Ok(Register::RemoveAll { call_id, cseq, waiting_since })
    }
}

/// One Contact value of a REGISTER, with what else the binding remembers of the request.
///
/// Strings that are absent are empty. [`Update::new`] fills everything that is optional.
#[derive(Clone, Copy, Debug)]
pub struct Update<'a> {
    /// The Contact's URI, without angle brackets and header parameters.
    pub contact: &'a [u8],
    /// The requested interval (seconds): the Contact's `expires` parameter, else the Expires header, else `None`
    /// (RFC 3261 §10.3 step 7). Zero removes the binding.
    pub expires: Option<u32>,
    /// The Contact's `q` in thousandths (at most 1,000), `None` if it has none.
    pub q: Option<u16>,
    /// The request's Call-ID.
    pub call_id: &'a [u8],
    /// The request's CSeq number.
    pub cseq: u32,
    /// When the request came, if it has waited since (for its user's secret, say). It counts as of that moment: its
    /// interval begins there, and it is refused where a request that came later has overtaken it
    /// ([`Refusal::Overtaken`]).
    pub waiting_since: Option<Instant>,
    /// Where the request came from, as a URI, if the contact alone does not lead back there (NAT); empty: none.
    pub received: &'a [u8],
    /// The Path header's values joined by commas (RFC 3327); empty: none.
    pub path: &'a [u8],
    /// The Contact's `+sip.instance` (RFC 5626 §4.1); empty: none.
    pub instance: &'a [u8],
    /// The User-Agent header; empty: none.
    pub user_agent: &'a [u8],
    /// The Contact's `reg-id` (RFC 5626 §4.2); 0: none.
    pub reg_id: u32,
    /// The socket or connection that the request came through: a number that only the caller understands.
    pub flow: u64,
    /// Methods of the Allow header, one bit each, as the caller numbers them.
    pub methods: u32,
    /// Flags of the caller's own.
    pub flags: u32,
}

impl<'a> Update<'a> {
    /// An update of `contact` by the request with `call_id` and `cseq`, everything else absent.
    pub fn new(contact: &'a [u8], call_id: &'a [u8], cseq: u32) -> Update<'a> {
        Update {
            contact,
            expires: None,
            q: None,
            call_id,
            cseq,
            waiting_since: None,
            received: &[],
            path: &[],
            instance: &[],
            user_agent: &[],
            reg_id: 0,
            flow: 0,
            methods: 0,
            flags: 0,
        }
    }
}

/// A binding as a store gives it back: see [`Table::restore`](crate::Table::restore).
#[derive(Clone, Copy, Debug)]
pub struct Kept<'a> {
    /// Its strings and numbers; `expires` and `q` are not read.
    pub update: Update<'a>,
    /// Its preference in thousandths.
    pub q: u16,
    /// When it ceases to exist.
    pub expires_at: Instant,
    /// When it was last updated.
    pub modified_at: Instant,
    /// Whether another writer wrote it: it counts as changed, so that the store gets it again in the persister's own form.
    pub is_foreign: bool,
}

/// Whose fault a refusal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The client asked for something that it may not have.
    Peer,
    /// A size of this server is exhausted.
    Us,
}

/// Why a REGISTER changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The interval is too brief: 423 with `Min-Expires: min_expires` (RFC 3261 §10.3 step 7).
    IntervalTooBrief {
        /// The shortest interval (seconds) that the registrar honours.
        min_expires: u32,
    },
    /// The CSeq is not higher than that of a binding with the same Call-ID (RFC 3261 §10.3 steps 6 and 7).
    OutOfOrder,
    /// The request waited, and meanwhile one that came later has changed what it would change: "REGISTER requests MUST be
    /// processed by a registrar in the order that they are received" (RFC 3261 §10.3).
    Overtaken,
    /// `Contact: *` beside another Contact (RFC 3261 §10.3 step 6).
    StarWithOthers,
    /// `Contact: *` with an expiration other than zero, or none (RFC 3261 §10.3 step 6).
    StarExpiresNotZero,
    /// The address-of-record would have more bindings than it may, or the request names too many contacts.
    TooManyContacts {
        /// The number that may not be exceeded.
        limit: usize,
    },
    /// The strings of one binding are longer than [`Limits::binding_bytes_max`](crate::Limits).
    BindingTooLarge {
        /// The number of bytes that may not be exceeded.
        limit: usize,
    },
    /// The table has as many bindings, or bytes, as it may.
    TableFull,
}

impl Refusal {
    /// The status code that the refused request is answered with.
    ///
    /// RFC 3261 §10.3 gives no code of its own to an update out of order; "if any one of them fails, the request
    /// MUST fail with a 500", as does a request out of order within a dialog (§12.2.2). One that was overtaken may come
    /// again with a higher CSeq (add Retry-After). Too many contacts are a
    /// 503, as from Kamailio: the condition passes when a binding expires (add Retry-After).
    pub fn status(&self) -> u16 {
        match self {
            Refusal::IntervalTooBrief { .. } => 423,
            Refusal::OutOfOrder | Refusal::Overtaken => 500,
            Refusal::StarWithOthers | Refusal::StarExpiresNotZero => 400,
            Refusal::TooManyContacts { .. } | Refusal::TableFull => 503,
            Refusal::BindingTooLarge { .. } => 513,
        }
    }

    /// Whose fault it is.
    pub fn blame(&self) -> Blame {
        match self {
            Refusal::TableFull | Refusal::Overtaken => Blame::Us,
            _ => Blame::Peer,
        }
    }

    /// Whether the same request may succeed later.
    pub fn retryable(&self) -> bool {
        matches!(self, Refusal::TooManyContacts { .. } | Refusal::TableFull | Refusal::Overtaken)
    }
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Refusal::IntervalTooBrief { min_expires } => {
                write!(f, "the interval is below the minimum of {min_expires} s")
            }
            Refusal::OutOfOrder => f.write_str("the CSeq is not higher than the binding's"),
            Refusal::Overtaken => f.write_str("a request that came later was done first"),
            Refusal::StarWithOthers => f.write_str("\"*\" must be the only Contact"),
            Refusal::StarExpiresNotZero => f.write_str("\"*\" needs Expires: 0"),
            Refusal::TooManyContacts { limit } => write!(f, "more than {limit} contacts"),
            Refusal::BindingTooLarge { limit } => write!(f, "a binding longer than {limit} bytes"),
            Refusal::TableFull => f.write_str("the location table is full"),
        }
    }
}

impl core::error::Error for Refusal {}
