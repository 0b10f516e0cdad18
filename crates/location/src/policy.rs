//! What a registrar decides for itself: sizes of the table, bounds of expiration intervals, contacts per
//! address-of-record (RFC 3261 §10.3 steps 6 and 7).

use crate::request::{Refusal, Update};

/// RFC 3261 §10.3 step 7: an interval of one hour (seconds) or more is never too brief.
pub const ONE_HOUR_SECS: u32 = 3600;

/// Sizes that one [`Table`](crate::Table) never exceeds; a request that would is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bindings in the table. Default 4,000,000; at most 4,294,967,294. Past it: [`Refusal::TableFull`].
    pub bindings_max: usize,
    /// Bytes of all bindings' strings together. Default 2 GiB less one. Past it: [`Refusal::TableFull`].
    pub bytes_max: usize,
    /// Bytes of one binding's strings together, its address-of-record included. Default 4,096; at most 65,535.
    /// Past it: [`Refusal::BindingTooLarge`].
    pub binding_bytes_max: usize,
    /// Bindings of one address-of-record, whatever the policy says (its "unlimited" included). Default 32: it
    /// bounds the URI comparisons that one request can cause. Past it: [`Refusal::TooManyContacts`].
    pub contacts_per_aor_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            bindings_max: 4_000_000,
            bytes_max: 0x7fff_ffff,
            binding_bytes_max: 4096,
            contacts_per_aor_max: 32,
        }
    }
}

impl Limits {
    /// Each table's share when `stripes` tables hold together what one may: the sums are divided, what concerns
    /// one binding or one address-of-record stays. Stripes fill unevenly, by a percent or so, and the fullest
    /// refuses first.
    pub fn per_stripe(self, stripes: usize) -> Limits {
        let stripes = stripes.max(1);
        Limits {
            bindings_max: self.bindings_max.div_ceil(stripes),
            bytes_max: self.bytes_max.div_ceil(stripes),
            ..self
        }
    }
}

/// What happens to a requested interval below the registrar's minimum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BelowMinimum {
    /// 423 (Interval Too Brief) with Min-Expires, if the interval is below one hour (RFC 3261 §10.3 step 7).
    #[default]
    Refuse,
    /// The minimum is granted instead, as Kamailio's `min_expires` does.
    Raise,
}

/// What happens to a new contact when its address-of-record already has as many as it may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtLimit {
    /// The request is refused with [`Refusal::TooManyContacts`]; refreshing what is bound still works.
    #[default]
    Refuse,
    /// The bindings refreshed longest ago make way.
    ReplaceOldest,
    /// Every binding that the request does not name is removed, below the limit too (Kamailio's `save` flag
    /// 0x04). A phone that moved leaves nothing behind.
    KeepOnlyNamed,
}

/// A registrar's rules for one REGISTER, cheap to pass with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Interval (seconds) for a contact that asks for none. Default 3,600.
    pub default_expires: u32,
    /// Shortest interval (seconds); 0: none. Default 60. See [`below_minimum`](Policy::below_minimum).
    pub min_expires: u32,
    /// Longest interval granted (seconds); 0: as long as asked. Default 0. It wins over `min_expires`.
    pub max_expires: u32,
    /// Preference (thousandths, at most 1,000) of a contact that has no `q`. Default 1,000; RFC 3261 §10.2.1.2
    /// names no default.
    pub default_q: u16,
    /// Bindings of the address-of-record; 0: as many as [`Limits::contacts_per_aor_max`]. Default 0.
    pub max_contacts: usize,
    /// What happens to a new contact past `max_contacts`. Default: refuse.
    pub at_limit: AtLimit,
    /// What happens to an interval below `min_expires`. Default: refuse.
    pub below_minimum: BelowMinimum,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            default_expires: 3600,
            min_expires: 60,
            max_expires: 0,
            default_q: 1000,
            max_contacts: 0,
            at_limit: AtLimit::Refuse,
            below_minimum: BelowMinimum::Refuse,
        }
    }
}

impl Policy {
    /// The interval (seconds) granted to `update`; 0 removes its binding (RFC 3261 §10.3 step 7).
    ///
    /// The registrar's own default is never too brief: it is raised to the minimum.
    ///
    /// # Errors
    ///
    /// [`Refusal::IntervalTooBrief`] for a requested interval above zero, below one hour and below the minimum,
    /// under [`BelowMinimum::Refuse`].
    pub(crate) fn grant(&self, update: &Update<'_>) -> Result<u32, Refusal> {
        let requested = match update.expires {
            Some(0) => return Ok(0),
            Some(seconds) => seconds,
            // "If there is neither, a locally-configured default value MUST be taken."
            None => self.default_expires.max(self.min_expires).max(1),
        };
        let granted = if requested >= self.min_expires {
            requested
        } else {
            match self.below_minimum {
                BelowMinimum::Raise => self.min_expires,
                // "If and only if" below one hour: a longer minimum cannot refuse a longer interval.
                BelowMinimum::Refuse if requested < ONE_HOUR_SECS => {
                    return Err(Refusal::IntervalTooBrief { min_expires: self.min_expires });
                }
                BelowMinimum::Refuse => requested,
            }
        };
        Ok(if self.max_expires == 0 { granted } else { granted.min(self.max_expires) })
    }

    /// Bindings that an address-of-record may have under this policy and `limits`.
    pub(crate) fn contacts_max(&self, limits: &Limits) -> usize {
        if self.max_contacts == 0 {
            limits.contacts_per_aor_max
        } else {
            self.max_contacts.min(limits.contacts_per_aor_max)
        }
    }
}
