//! What a REGISTER with contacts will do, decided before anything is touched, so that it is done completely or
//! not at all (RFC 3261 §10.3 step 7).

use crate::binding::Binding;
use crate::order::Order;
use crate::policy::{AtLimit, Limits, Policy};
use crate::request::{CONTACTS_PER_REQUEST_MAX, Refusal, Update};
use crate::slots::Slots;
use sip::{Instant, SipUri, Uri};
use smallvec::SmallVec;

/// Steps that one REGISTER's parsing and comparing of URIs may take together, each the look at one parameter or at one
/// URI's address; it bounds the time that one datagram can cost. Past it contacts are compared by their bytes: what an
/// attacker gets of it is further bindings of his own, up to
/// [`Limits::contacts_per_aor_max`](crate::Limits::contacts_per_aor_max). Eight contacts of six parameters each, all
/// at one address and compared with eight bindings like them, stay below.
const COMPARISON_STEPS_MAX: u32 = 16_384;

/// What will happen for one Contact value.
pub(crate) enum Step<'a> {
    /// The contact is bound for `interval` seconds.
    Add { update: &'a Update<'a>, interval: u32 },
    /// The binding is updated to expire after `interval` seconds.
    Refresh { index: u32, update: &'a Update<'a>, interval: u32 },
    /// The binding stays as it is: the request is a retransmission of the one that made it so.
    Keep { index: u32 },
    /// The binding is removed.
    Remove { index: u32 },
    /// The contact to remove is not bound.
    Absent { update: &'a Update<'a> },
    /// Nothing: a later value of the same request is about it too.
    Nothing,
}

impl Step<'_> {
    fn index(&self) -> Option<u32> {
        match *self {
            Step::Refresh { index, .. } | Step::Keep { index } | Step::Remove { index } => Some(index),
            Step::Add { .. } | Step::Absent { .. } | Step::Nothing => None,
        }
    }
}

/// Everything that a request will do.
pub(crate) struct Plan<'a> {
    pub(crate) steps: SmallVec<[Step<'a>; 4]>,
    /// Bindings that make way for the request's own.
    pub(crate) evicted: SmallVec<[u32; 4]>,
}

/// Where a plan is made: the current bindings of one address-of-record, none of them expired.
pub(crate) struct Scene<'a> {
    pub(crate) slots: &'a Slots,
    pub(crate) order: &'a Order,
    pub(crate) now: Instant,
    pub(crate) hash: u32,
    pub(crate) head: u32,
    pub(crate) aor: &'a [u8],
    pub(crate) policy: &'a Policy,
    pub(crate) limits: &'a Limits,
}

impl Scene<'_> {
    /// Decides what `updates` will do (RFC 3261 §10.3 step 7).
    ///
    /// Several values for one contact in the same request: the last one counts, as if they were processed in
    /// turn. (By the letter the second would fail, its CSeq not being higher than that of the first; that rule
    /// defends against other requests out of order, not against this one.)
    pub(crate) fn plan<'u>(&self, updates: &'u [Update<'u>]) -> Result<Plan<'u>, Refusal> {
        if updates.len() > CONTACTS_PER_REQUEST_MAX {
            return Err(Refusal::TooManyContacts { limit: CONTACTS_PER_REQUEST_MAX });
        }
        let mut plan = Plan { steps: SmallVec::new(), evicted: SmallVec::new() };
        let mut comparison = Comparison::new(self.slots, self.head);
        let mut added: SmallVec<[Parsed<'u>; 4]> = SmallVec::new();
        for update in updates {
            let contact = comparison.parsed(update.contact);
            let step = self.step(update, &contact, &mut comparison)?;
            if updates.len() > 1 {
                forget_earlier(&mut plan.steps, &added, &step, &contact, &mut comparison);
                added.push(contact);
            }
            plan.steps.push(step);
        }
        self.make_room(&mut plan, updates)?;
        Ok(plan)
    }

    fn step<'u>(
        &self,
        update: &'u Update<'u>,
        contact: &Parsed<'u>,
        comparison: &mut Comparison<'_>,
    ) -> Result<Step<'u>, Refusal> {
        let interval = self.policy.grant(update)?;
        let bytes_max = self.limits.binding_bytes_max.min(usize::from(u16::MAX));
        if interval > 0 && Binding::bytes_needed(self.aor, update) > bytes_max {
            return Err(Refusal::BindingTooLarge { limit: bytes_max });
        }
        let Some(index) = comparison.matching(contact) else {
            if interval == 0 {
                return Ok(Step::Absent { update });
            }
            // It may have been there, and be gone by a request that came later.
            if self.order.is_overtaken_by_removal(update, self.hash) {
                return Err(Refusal::Overtaken);
            }
            return Ok(Step::Add { update, interval });
        };
        let binding = &self.slots.get(index).binding;
        if binding.call_id() == update.call_id && update.cseq <= binding.cseq() {
            // A retransmission (its 200 got lost) asks for what it already has: it is answered as the first was.
            let repeated = update.cseq == binding.cseq()
                && interval == binding.interval()
                && q_of(update, self.policy) == binding.q();
            // "If the value is higher ... it MUST update or remove. If not, the update MUST be aborted and the
            // request fails."
            return if repeated && interval > 0 {
                Ok(Step::Keep { index })
            } else {
                Err(Refusal::OutOfOrder)
            };
        }
        if self.order.is_overtaken_by(self.now, update, binding) {
            return Err(Refusal::Overtaken);
        }
        Ok(if interval == 0 { Step::Remove { index } } else { Step::Refresh { index, update, interval } })
    }

    /// Applies the limit of contacts: refuses the plan, or lets other bindings make way.
    fn make_room(&self, plan: &mut Plan<'_>, updates: &[Update<'_>]) -> Result<(), Refusal> {
        let count = |wanted: fn(&Step<'_>) -> bool| plan.steps.iter().filter(|step| wanted(step)).count();
        let added = count(|step| matches!(step, Step::Add { .. }));
        let removed = count(|step| matches!(step, Step::Remove { .. }));
        let kept = count(|step| matches!(step, Step::Refresh { .. } | Step::Keep { .. }));
        let limit = self.policy.contacts_max(self.limits);
        let others = self.slots.chain(self.head).count() - kept - removed;
        let leaving = match self.policy.at_limit {
            AtLimit::KeepOnlyNamed if added + kept > 0 => others,
            AtLimit::ReplaceOldest if added > 0 => (added + kept + others).saturating_sub(limit).min(others),
            _ => 0,
        };
        if added > 0 && added + kept + others - leaving > limit {
            return Err(Refusal::TooManyContacts { limit });
        }
        for _ in 0..leaving {
            let oldest = self
                .slots
                .chain(self.head)
                .filter(|(index, _)| !plan.evicted.contains(index))
                .filter(|(index, _)| plan.steps.iter().all(|step| step.index() != Some(*index)))
                .min_by_key(|(_, slot)| slot.binding.modified_at());
            let Some((index, slot)) = oldest else { break };
            // A late request must not push out what a newer one of the same client bound.
            let binding = &slot.binding;
            if updates.iter().any(|u| u.call_id == binding.call_id() && u.cseq <= binding.cseq()) {
                return Err(Refusal::OutOfOrder);
            }
            if updates.iter().any(|update| self.order.is_overtaken_by(self.now, update, binding)) {
                return Err(Refusal::Overtaken);
            }
            plan.evicted.push(index);
        }
        Ok(())
    }
}

/// The preference that a binding made by `update` gets.
pub(crate) fn q_of(update: &Update<'_>, policy: &Policy) -> u16 {
    update.q.unwrap_or(policy.default_q).min(1000)
}

/// Drops what earlier values of the same request (`contacts`, one for each step) do to the contact that `step` is about.
fn forget_earlier(
    steps: &mut [Step<'_>],
    contacts: &[Parsed<'_>],
    step: &Step<'_>,
    contact: &Parsed<'_>,
    comparison: &mut Comparison<'_>,
) {
    for (earlier, named) in steps.iter_mut().zip(contacts) {
        let same = match (&*earlier, step.index()) {
            (Step::Add { .. }, None) => comparison.same(named, contact),
            (_, Some(index)) => earlier.index() == Some(index),
            _ => false,
        };
        if same {
            *earlier = Step::Nothing;
        }
    }
}

/// The binding of `contact`: the one with the same bytes, else the first whose URI is equivalent. (URI comparison
/// is not transitive: both may exist. RFC 3261 §10.3 step 7, §19.1.4)
pub(crate) fn matching(slots: &Slots, head: u32, contact: &[u8]) -> Option<u32> {
    let mut comparison = Comparison::new(slots, head);
    let contact = comparison.parsed(contact);
    comparison.matching(&contact)
}

/// A contact, and what its URI is; `None` for what is no URI, or is too much to be parsed, and is only equal to itself.
struct Parsed<'a> {
    text: &'a [u8],
    uri: Option<Uri<'a>>,
    /// How many parameters and headers there are to be looked at, at most, and one.
    width: u32,
}

/// The comparisons of one request with the bindings of one address-of-record, which are parsed once, and only if their
/// bytes do not say it all.
struct Comparison<'a> {
    slots: &'a Slots,
    head: u32,
    bindings: Option<SmallVec<[(u32, Parsed<'a>); 2]>>,
    steps_left: u32,
}

impl<'a> Comparison<'a> {
    fn new(slots: &'a Slots, head: u32) -> Comparison<'a> {
        Comparison { slots, head, bindings: None, steps_left: COMPARISON_STEPS_MAX }
    }

    /// Takes the steps if there are so many left.
    fn take(&mut self, steps: u32) -> bool {
        let left = self.steps_left.checked_sub(steps);
        self.steps_left = left.unwrap_or(0);
        left.is_some()
    }

    fn parsed<'t>(&mut self, text: &'t [u8]) -> Parsed<'t> {
        let delimiters = text.iter().filter(|byte| matches!(byte, b';' | b'?' | b'&')).count();
        let width = 1 + u32::try_from(delimiters).unwrap_or(u32::MAX - 1);
        // The parser looks for each name among those before it.
        let affordable = self.take(width.saturating_mul(width) / 2);
        Parsed { text, uri: affordable.then(|| Uri::parse(text).ok()).flatten(), width }
    }

    fn matching(&mut self, contact: &Parsed<'_>) -> Option<u32> {
        let same_bytes = |binding: &crate::binding::Binding| binding.contact() == contact.text;
        if let Some((index, _)) = self.slots.chain(self.head).find(|(_, slot)| same_bytes(&slot.binding)) {
            return Some(index);
        }
        let bindings = self.bindings.take().unwrap_or_else(|| {
            let chain = self.slots.chain(self.head);
            chain.map(|(index, slot)| (index, self.parsed(slot.binding.contact()))).collect()
        });
        let found = bindings.iter().find(|(_, bound)| self.same(bound, contact)).map(|(index, _)| *index);
        self.bindings = Some(bindings);
        found
    }

    /// Whether two URIs name the same contact (RFC 3261 §19.1.4), as long as there are steps left.
    fn same(&mut self, a: &Parsed<'_>, b: &Parsed<'_>) -> bool {
        if a.text == b.text {
            return true;
        }
        let (Some(one), Some(other)) = (&a.uri, &b.uri) else { return false };
        let steps = match (one, other) {
            (Uri::Sip(one), Uri::Sip(other)) if differ(one, other) => 1,
            // Every parameter and header is searched for among those of the other, both ways.
            _ => (a.width + b.width).saturating_mul(a.width.max(b.width)),
        };
        self.take(steps) && steps > 1 && one.equivalent(other)
    }
}

/// Whether two URIs differ in what is compared first and quickly.
fn differ(a: &SipUri<'_>, b: &SipUri<'_>) -> bool {
    let users = match (a.user, b.user) {
        // Escapes may make equal what is not the same.
        (Some(a), Some(b)) => a != b && !a.contains(&b'%') && !b.contains(&b'%'),
        (a, b) => a.is_some() != b.is_some(),
    };
    users || a.port != b.port || a.secure != b.secure || !a.host.equivalent(&b.host)
}
