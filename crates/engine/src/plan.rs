//! What a script has decided about one request so far: its targets (RFC 3261 §16.5), record routing, hops.

use crate::context::{RelayError, Target};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use sip::{Edits, Uri};

/// Bytes of URIs and parameters that one request's targets may take together; past it targets are refused.
pub(crate) const PLAN_BYTES_MAX: usize = 65_536;
/// q of a target that names none (RFC 3261 §16.6: highest first).
pub(crate) const Q_DEFAULT: u16 = 1_000;

type Span = Range<usize>;

/// One target; `uri` is `None` where it is the received Request-URI.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlannedTarget {
    pub(crate) uri: Option<Span>,
    pub(crate) destination: Option<Span>,
    pub(crate) path: Option<Span>,
    pub(crate) q: u16,
    /// Whether a branch has been made of it, or it was found unroutable.
    pub(crate) tried: bool,
}

/// Where one request shall go and how.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    bytes: Vec<u8>,
    pub(crate) targets: Vec<PlannedTarget>,
    record_route: Option<Span>,
    /// Own Route values that were taken off the front.
    pub(crate) routes_removed: usize,
    /// Whether the last Route value became the Request-URI (the previous hop was a strict router).
    pub(crate) last_route_removed: bool,
    /// Whether it is known that no Route value is left.
    pub(crate) routes_gone: bool,
    /// Max-Forwards to be written.
    pub(crate) max_forwards: Option<u32>,
    /// Breadth that is left (RFC 5393 §5.3.3).
    pub(crate) breadth: u32,
    /// Where the request would go, for loop detection.
    pub(crate) loop_hash: u64,
    /// Whether §16.3 was checked.
    pub(crate) validated: bool,
    /// The edits that count for what was relayed.
    pub(crate) relayed: Option<sip::Mark>,
    /// Whether something left without state.
    pub(crate) forwarded: bool,
    /// The status that was replied.
    pub(crate) replied: Option<u16>,
    /// Why the last relay failed.
    pub(crate) error: Option<RelayError>,
    /// An INVITE that was cancelled on the way.
    pub(crate) cancelled: Option<crate::table::EntryId>,
}

impl Plan {
    pub(crate) fn clear(&mut self) {
        let mut bytes = core::mem::take(&mut self.bytes);
        let mut targets = core::mem::take(&mut self.targets);
        bytes.clear();
        targets.clear();
        targets.push(PlannedTarget { q: Q_DEFAULT, ..PlannedTarget::default() });
        *self = Plan { bytes, targets, ..Plan::default() };
    }

    pub(crate) fn slice(&self, span: &Option<Span>) -> Option<&[u8]> {
        span.as_ref().and_then(|span| self.bytes.get(span.clone()))
    }

    /// Remembers bytes; `None` past [`PLAN_BYTES_MAX`].
    pub(crate) fn keep(&mut self, bytes: &[u8]) -> Option<Span> {
        let start = self.bytes.len();
        if start + bytes.len() > PLAN_BYTES_MAX {
            return None;
        }
        self.bytes.extend_from_slice(bytes);
        Some(start..self.bytes.len())
    }

    pub(crate) fn uri(&self, target: usize) -> Option<&[u8]> {
        self.targets.get(target).and_then(|target| self.slice(&target.uri))
    }

    pub(crate) fn destination(&self, target: usize) -> Option<&[u8]> {
        self.targets.get(target).and_then(|target| self.slice(&target.destination))
    }

    pub(crate) fn path(&self, target: usize) -> Option<&[u8]> {
        self.targets.get(target).and_then(|target| self.slice(&target.path))
    }

    pub(crate) fn set_uri(&mut self, target: usize, uri: &[u8]) {
        if let Some(span) = self.keep(uri)
            && let Some(target) = self.targets.get_mut(target)
        {
            target.uri = Some(span);
            target.tried = false;
        }
    }

    /// A destination is kept as a URI: `host:port` gets `sip:` before it.
    pub(crate) fn set_destination(&mut self, target: usize, destination: Option<&[u8]>) {
        let span = destination.and_then(|text| self.keep_destination(text));
        let changed = self.slice(&span) != self.destination(target);
        if let Some(target) = self.targets.get_mut(target) {
            target.destination = span;
            target.tried &= !changed;
        }
    }

    /// Whether a target is in the set (RFC 3261 §16.5), by the equality of URIs (§19.1.4).
    pub(crate) fn contains(&self, wanted: &Target<'_>, request_uri: &[u8]) -> bool {
        let parsed = Uri::parse(wanted.uri).ok();
        self.targets.iter().any(|target| {
            let uri = self.slice(&target.uri).unwrap_or(request_uri);
            let same_uri = uri == wanted.uri
                || match (&parsed, Uri::parse(uri)) {
                    (Some(wanted), Ok(uri)) => wanted.equivalent(&uri),
                    _ => false,
                };
            same_uri
                && self.slice(&target.path) == wanted.path
                && match (self.slice(&target.destination), wanted.destination) {
                    (None, None) => true,
                    // A destination may have got its scheme here.
                    (Some(kept), Some(wanted)) => {
                        kept == wanted || kept.strip_prefix(b"sip:") == Some(wanted)
                    }
                    _ => false,
                }
        })
    }

    pub(crate) fn record_route(&self) -> Option<&[u8]> {
        self.slice(&self.record_route)
    }

    pub(crate) fn set_record_route(&mut self, params: &[u8]) {
        self.record_route = self.keep(params);
    }

    pub(crate) fn planned(&mut self, target: &Target<'_>) -> Option<PlannedTarget> {
        Some(PlannedTarget {
            uri: Some(self.keep(target.uri)?),
            destination: match target.destination {
                Some(destination) => Some(self.keep_destination(destination)?),
                None => None,
            },
            path: match target.path {
                Some(path) => Some(self.keep(path)?),
                None => None,
            },
            q: target.q,
            tried: false,
        })
    }

    fn keep_destination(&mut self, text: &[u8]) -> Option<Span> {
        let has_scheme = text.get(..4).is_some_and(|start| start.eq_ignore_ascii_case(b"sip:"))
            || text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"sips:"));
        if has_scheme {
            return self.keep(text);
        }
        let scheme = self.keep(b"sip:")?;
        let rest = self.keep(text)?;
        Some(scheme.start..rest.end)
    }

    /// Whether targets wait for their turn.
    pub(crate) fn has_untried(&self) -> bool {
        self.targets.iter().any(|target| !target.tried)
    }
}

/// A request's edits and plan, kept together while a transaction needs them.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) edits: Edits,
    pub(crate) plan: Plan,
}

/// Free [`Work`]s kept for reuse, at most.
const FREE_WORKS_MAX: usize = 256;

/// Free [`Work`]s.
#[derive(Debug, Default)]
#[allow(clippy::vec_box)] // They move between scripts and transactions; their size is large.
pub(crate) struct Works(Vec<Box<Work>>);

impl Works {
    pub(crate) fn take(&mut self) -> Box<Work> {
        let mut work = self.0.pop().unwrap_or_default();
        work.edits.clear();
        work.plan.clear();
        work
    }

    pub(crate) fn give(&mut self, work: Box<Work>) {
        if self.0.len() < FREE_WORKS_MAX {
            self.0.push(work);
        }
    }
}
