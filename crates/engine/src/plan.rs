//! What a script has decided about one request so far: its targets (RFC 3261 §16.5), record routing, hops.

use crate::context::{RelayError, Target};
use crate::io::ListenerId;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::ops::Range;
use core::time::Duration;
use sip::{Edits, Uri};
use smallvec::SmallVec;

/// Bytes of URIs and parameters that one request's targets may take together; past it targets are refused.
pub(crate) const PLAN_BYTES_MAX: usize = 65_536;
/// q of a target that names none (RFC 3261 §16.6: highest first).
pub(crate) const Q_DEFAULT: u16 = 1_000;

/// Parameters that are looked at while one request's targets are parsed and compared, at most; past it targets are
/// compared by their bytes. Sixteen targets of four parameters each, all at one address, stay below by half.
const COMPARISON_STEPS_MAX: u32 = 16_384;

type Span = Range<usize>;

/// Whether bytes can stand where a URI stands: no white space, no control characters, no angle brackets.
fn is_uri_text(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'<' | b'>') || !byte.is_ascii())
}

/// Parses a URI as long as there are steps left: the parser looks for each parameter's name among those before it.
fn parse<'a>(uri: &'a [u8], steps_left: &mut u32) -> Option<Uri<'a>> {
    let width = 1 + uri.iter().filter(|byte| matches!(byte, b';' | b'?' | b'&')).count() as u32;
    *steps_left = steps_left.saturating_sub(width.saturating_mul(width) / 2);
    if *steps_left > 0 { Uri::parse(uri).ok() } else { None }
}

/// Whether two URIs are equal (RFC 3261 §19.1.4), as long as there are steps left.
fn equal(a: &Uri<'_>, b: &Uri<'_>, steps_left: &mut u32) -> bool {
    if let (Uri::Sip(a), Uri::Sip(b)) = (a, b)
        && (a.port != b.port || !a.host.equivalent(&b.host))
    {
        return false;
    }
    // Every parameter and header is searched for among those of the other.
    let width = |uri: &Uri<'_>| match uri {
        Uri::Sip(uri) => (1 + uri.params.into_iter().count() + uri.header_pairs().count()) as u32,
        Uri::Tel(uri) => (1 + uri.params.into_iter().count()) as u32,
        Uri::Other { .. } => 1,
    };
    let (x, y) = (width(a), width(b));
    *steps_left = steps_left.saturating_sub((x + y).saturating_mul(x.max(y)));
    *steps_left > 0 && a.equivalent(b)
}

/// One target; `uri` is `None` where it is the received Request-URI.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlannedTarget {
    pub(crate) uri: Option<Span>,
    pub(crate) destination: Option<Span>,
    pub(crate) path: Option<Span>,
    pub(crate) q: u16,
    /// Whether `destination` came with the target: it is where a contact's connection leads, not a choice of the script.
    pub(crate) registered: bool,
    /// Whether a branch has been made of it, or it was found unroutable.
    pub(crate) tried: bool,
}

/// Where one request shall go and how.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    bytes: Vec<u8>,
    pub(crate) targets: Vec<PlannedTarget>,
    record_route: Option<Span>,
    /// Own Route values that were taken off the front.
    pub(crate) routes_removed: usize,
    /// Whether the last Route value became the Request-URI (the previous hop was a strict router).
    pub(crate) last_route_removed: bool,
    /// Whether it is known that no Route value is left: all were taken off, or the script removed the header.
    pub(crate) routes_gone: bool,
    /// The listener that the last own Route named: the one to leave by (thesis §3.4.1).
    pub(crate) way_out: Option<ListenerId>,
    /// The peer of the connection that it named (RFC 5626 §5.3).
    pub(crate) connection: Option<SocketAddr>,
    /// Max-Forwards to be written.
    pub(crate) max_forwards: Option<u32>,
    /// Breadth that is left (RFC 5393 §5.3.3).
    pub(crate) breadth: u32,
    /// Whether our Via asks for `rport`.
    pub(crate) local_rport: bool,
    /// Timer C of the branches to come if the script has set it.
    pub(crate) ringing: Option<Duration>,
    /// Timers B and F of the branches to come if the script has set them.
    pub(crate) silence: Option<Duration>,
    /// Where the request would go, for loop detection.
    pub(crate) loop_hash: u64,
    /// Whether §16.3 was checked.
    pub(crate) validated: bool,
    /// The edits that count for what was relayed.
    pub(crate) relayed: Option<sip::Mark>,
    /// Whether the addresses of a name have one order, however they were told.
    pub(crate) ordered: bool,
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
        if !is_uri_text(uri) {
            return;
        }
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
            target.registered = false;
            target.tried &= !changed;
        }
    }

    /// Marks targets that are in the set already as tried (RFC 3261 §16.5: "any given URI MUST NOT be added to the set
    /// more than once"), by the equality of URIs (§19.1.4), past [`COMPARISON_STEPS_MAX`] by their bytes. Of two that
    /// are the same, the one that was tried goes first, then the one that was added first.
    pub(crate) fn drop_duplicates(&mut self, request_uri: &[u8]) {
        let count = self.targets.len();
        if count < 2 {
            return;
        }
        let mut dropped: SmallVec<[usize; 8]> = SmallVec::new();
        {
            let uri = |target: &PlannedTarget| self.slice(&target.uri).unwrap_or(request_uri);
            let mut steps_left = COMPARISON_STEPS_MAX;
            let parsed: SmallVec<[Option<Uri<'_>>; 4]> =
                self.targets.iter().map(|target| parse(uri(target), &mut steps_left)).collect();
            for (place, target) in self.targets.iter().enumerate().filter(|(_, target)| !target.tried) {
                let same = |(at, other): (usize, &PlannedTarget)| {
                    let earlier = other.tried || (at < place && !dropped.contains(&at));
                    at != place
                        && earlier
                        && self.slice(&target.path) == self.slice(&other.path)
                        && self.slice(&target.destination) == self.slice(&other.destination)
                        && (uri(target) == uri(other)
                            || match (parsed.get(place), parsed.get(at)) {
                                (Some(Some(uri)), Some(Some(other))) => equal(uri, other, &mut steps_left),
                                _ => false,
                            })
                };
                if self.targets.iter().enumerate().any(same) {
                    dropped.push(place);
                }
            }
        }
        for place in dropped {
            if let Some(target) = self.targets.get_mut(place) {
                target.tried = true;
            }
        }
    }

    pub(crate) fn record_route(&self) -> Option<&[u8]> {
        self.slice(&self.record_route)
    }

    pub(crate) fn set_record_route(&mut self, params: &[u8]) {
        self.record_route = self.keep(params);
    }

    pub(crate) fn planned(&mut self, target: &Target<'_>) -> Option<PlannedTarget> {
        let path = target.path.unwrap_or(b"");
        if !is_uri_text(target.uri) || path.iter().any(u8::is_ascii_control) {
            return None;
        }
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
            registered: target.destination.is_some(),
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
