//! What a REGISTER with contacts will do, decided before anything is touched, so that it is done completely or
//! not at all (RFC 3261 §10.3 step 7).

use crate::binding::Binding;
use crate::policy::{AtLimit, Limits, Policy};
use crate::request::{CONTACTS_PER_REQUEST_MAX, Refusal, Update};
use crate::slots::{NONE, Slots};
use sip::Uri;
use smallvec::SmallVec;

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
    /// Nothing: the contact to remove is not bound, or a later value of the same request is about it too.
    Nothing,
}

impl Step<'_> {
    fn index(&self) -> Option<u32> {
        match *self {
            Step::Refresh { index, .. } | Step::Keep { index } | Step::Remove { index } => Some(index),
            Step::Add { .. } | Step::Nothing => None,
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
        for update in updates {
            let step = self.step(update)?;
            if updates.len() > 1 {
                forget_earlier(&mut plan.steps, &step, update);
            }
            plan.steps.push(step);
        }
        self.make_room(&mut plan, updates)?;
        Ok(plan)
    }

    fn step<'u>(&self, update: &'u Update<'u>) -> Result<Step<'u>, Refusal> {
        let interval = self.policy.grant(update)?;
        let bytes_max = self.limits.binding_bytes_max.min(usize::from(u16::MAX));
        if interval > 0 && Binding::bytes_needed(self.aor, update) > bytes_max {
            return Err(Refusal::BindingTooLarge { limit: bytes_max });
        }
        let Some(index) = matching(self.slots, self.head, update.contact) else {
            return Ok(if interval == 0 { Step::Nothing } else { Step::Add { update, interval } });
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
            plan.evicted.push(index);
        }
        Ok(())
    }
}

/// The preference that a binding made by `update` gets.
pub(crate) fn q_of(update: &Update<'_>, policy: &Policy) -> u16 {
    update.q.unwrap_or(policy.default_q).min(1000)
}

/// Drops what earlier values of the same request do to the contact that `update` is about.
fn forget_earlier(steps: &mut [Step<'_>], step: &Step<'_>, update: &Update<'_>) {
    for earlier in steps {
        let same = match (&*earlier, step.index()) {
            (Step::Add { update: added, .. }, None) => same_contact(added.contact, update.contact),
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
    let same_bytes = slots.chain(head).find(|(_, slot)| slot.binding.contact() == contact);
    let found = same_bytes.or_else(|| {
        let uri = (head != NONE).then(|| Uri::parse(contact).ok())??;
        slots.chain(head).find(|(_, slot)| names(slot.binding.contact(), &uri))
    });
    found.map(|(index, _)| index)
}

/// Whether two URIs name the same contact (RFC 3261 §19.1.4); what is no URI is only equal to itself.
fn same_contact(a: &[u8], b: &[u8]) -> bool {
    a == b || Uri::parse(b).is_ok_and(|uri| names(a, &uri))
}

/// Whether `text` is a URI equivalent to `uri`.
fn names(text: &[u8], uri: &Uri<'_>) -> bool {
    Uri::parse(text).is_ok_and(|parsed| parsed.equivalent(uri))
}
