//! `lookup` and its relatives: contacts become targets (RFC 3261 §16.5).

use super::wait::{self, Task};
use super::{aor_key, method_bit, with_key};
use crate::core::outcome;
use crate::run::{Context, Run};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::ControlFlow;
use engine::Target;
use route::{Args, Outcome};

/// What becomes of the best contact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It becomes target 0.
    First,
    /// It becomes a further target, as the others do.
    Further,
}

pub(super) fn lookup(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    find_argument(run, args, Place::First)
}

pub(super) fn lookup_to_dset(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    find_argument(run, args, Place::Further)
}

fn find_argument(run: &mut Run<'_, '_>, args: &Args<'_>, place: Place) -> Outcome {
    let found = with_uri(run, args.str(0), args.str(1), |run, aor| {
        if wait::refreshes(run) {
            wait::refresh(run, aor, Task::Find(place))
        } else {
            find_key(run, aor, place)
        }
    });
    found.unwrap_or(Outcome::Code(-3))
}

/// Runs `with` with the key of `uri`, or of the Request-URI where that is empty.
fn with_uri<'r, 'm, T>(
    run: &mut Run<'r, 'm>,
    table: &[u8],
    uri: &[u8],
    with: impl FnOnce(&mut Run<'r, 'm>, &[u8]) -> T,
) -> Option<T> {
    if !uri.is_empty() {
        return with_key(run, table, uri, with);
    }
    let mut uri = core::mem::take(&mut run.scratch.uri);
    uri.clear();
    uri.extend_from_slice(run.request_uri());
    let done = with_key(run, table, &uri, with);
    run.scratch.uri = uri;
    done
}

fn find(run: &mut Run<'_, '_>, table: &[u8], uri: &[u8], place: Place) -> Outcome {
    with_uri(run, table, uri, |run, aor| find_key(run, aor, place)).unwrap_or(Outcome::Code(-3))
}

pub(super) fn find_key(run: &mut Run<'_, '_>, aor: &[u8], place: Place) -> Outcome {
    let message = run.message();
    let settings = &run.settings.registrar;
    let location = run.location;
    let Context::Request(cx) = &mut run.cx else { return Outcome::Code(-3) };
    let filter = settings.method_filtering && message.to_tag().is_none();
    let method = method_bit(message.method());
    let (mut taken, mut passed_over) = (0, 0);
    location.lookup(cx.now(), aor, &mut |binding| {
        if filter && binding.methods() != 0 && binding.methods() & method == 0 {
            passed_over += 1;
            return ControlFlow::Continue(());
        }
        let target = Target {
            destination: if binding.path().is_none() { binding.received() } else { None },
            q: binding.q(),
            path: binding.path(),
            ..Target::new(binding.contact())
        };
        taken += 1;
        if taken == 1 && place == Place::First {
            cx.set_request_target(&target);
        } else if cx.append_target(&target).is_err() {
            return ControlFlow::Break(());
        }
        if settings.append_branches { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    match (taken, passed_over) {
        (0, 0) => Outcome::False,
        (0, _) => Outcome::Code(-2),
        _ => Outcome::True,
    }
}

pub(super) fn lookup_branches(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let table = args.str(0);
    if !wait::refreshes(run) {
        return find_branches(run, table);
    }
    let mut keys = branch_keys(run, table);
    match keys.pop() {
        Some(first) => wait::refresh(run, &first, Task::FindAll { table: table.into(), rest: keys }),
        None => Outcome::Code(-3),
    }
}

/// The keys of all targets' users.
fn branch_keys(run: &mut Run<'_, '_>, table: &[u8]) -> Vec<Box<[u8]>> {
    let settings = &run.settings.registrar;
    let Some(cx) = run.request() else { return Vec::new() };
    let mut key = Vec::new();
    let mut keys: Vec<Box<[u8]>> = Vec::new();
    for target in cx.targets() {
        if aor_key(settings, table, target.uri, &mut key) && keys.iter().all(|known| **known != key[..]) {
            keys.push(key.as_slice().into());
        }
    }
    keys
}

pub(super) fn find_branches(run: &mut Run<'_, '_>, table: &[u8]) -> Outcome {
    let Some(cx) = run.request() else { return Outcome::Code(-3) };
    // Rarely called, and never with many targets: their URIs are copied.
    let branches: Vec<Vec<u8>> = cx.targets().skip(1).map(|target| target.uri.to_vec()).collect();
    cx.clear_targets();
    let mut found = find(run, table, &[], Place::First);
    for uri in branches {
        match find(run, table, &uri, Place::Further) {
            Outcome::True => found = Outcome::True,
            // A target that is no user of ours stays what it is.
            _ => {
                if let Some(cx) = run.request() {
                    let _ = cx.append_target(&Target::new(&uri));
                }
            }
        }
    }
    found
}

pub(super) fn registered(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let uri = match &run.cx {
        // The To lies in the message, which outlives the run.
        Context::Reply(_) if args.str(1).is_empty() => run.message().to().map_or(&[][..], |to| to.uri),
        _ => args.str(1),
    };
    let found = with_uri(run, args.str(0), uri, |run, aor| {
        if wait::refreshes(run) {
            wait::refresh(run, aor, Task::Registered)
        } else {
            outcome(is_registered(run, aor))
        }
    });
    found.unwrap_or(Outcome::False)
}

pub(super) fn is_registered(run: &Run<'_, '_>, aor: &[u8]) -> bool {
    run.location.lookup(run.now(), aor, &mut |_| ControlFlow::Break(())) > 0
}

pub(super) fn unregister(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let removed = with_key(run, args.str(0), args.str(1), |run, aor| {
        if wait::refreshes(run) { wait::refresh(run, aor, Task::Remove) } else { remove(run, aor) }
    });
    removed.unwrap_or(Outcome::False)
}

/// Removes all contacts, and waits for the commit where this route can.
pub(super) fn remove(run: &mut Run<'_, '_>, aor: &[u8]) -> Outcome {
    match run.location.remove(run.now(), aor, None) {
        0 => Outcome::Code(-3),
        _ if wait::commits(run) && wait::can_wait(run) => wait::persist(run, aor, Task::Removed),
        _ => Outcome::True,
    }
}
