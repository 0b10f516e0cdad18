//! `lookup` and its relatives: contacts become targets (RFC 3261 §16.5).

use super::{method_bit, with_key};
use crate::core::outcome;
use crate::run::{Context, Run};
use alloc::vec::Vec;
use core::ops::ControlFlow;
use engine::Target;
use route::{Args, Outcome};

/// What becomes of the best contact.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
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
    if !args.str(1).is_empty() {
        return find(run, args.str(0), args.str(1), place);
    }
    let mut uri = core::mem::take(&mut run.scratch.uri);
    uri.clear();
    uri.extend_from_slice(run.request_uri());
    let found = find(run, args.str(0), &uri, place);
    run.scratch.uri = uri;
    found
}

fn find(run: &mut Run<'_, '_>, table: &[u8], uri: &[u8], place: Place) -> Outcome {
    with_key(run, table, uri, |run, aor| find_key(run, aor, place)).unwrap_or(Outcome::Code(-3))
}

fn find_key(run: &mut Run<'_, '_>, aor: &[u8], place: Place) -> Outcome {
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
    let Some(cx) = run.request() else { return Outcome::Code(-3) };
    // Rarely called, and never with many targets: their URIs are copied.
    let branches: Vec<Vec<u8>> = cx.targets().skip(1).map(|target| target.uri.to_vec()).collect();
    cx.clear_targets();
    let mut found = find_argument(run, args, Place::First);
    for uri in branches {
        match find(run, args.str(0), &uri, Place::Further) {
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
    let mut uri = core::mem::take(&mut run.scratch.uri);
    uri.clear();
    if !args.str(1).is_empty() {
        uri.extend_from_slice(args.str(1));
    } else if matches!(run.cx, Context::Reply(_)) {
        uri.extend_from_slice(run.message().to().map_or(&[], |to| to.uri));
    } else {
        uri.extend_from_slice(run.request_uri());
    }
    let found = with_key(run, args.str(0), &uri, |run, aor| {
        run.location.lookup(run.now(), aor, &mut |_| ControlFlow::Break(())) > 0
    });
    run.scratch.uri = uri;
    outcome(found.unwrap_or(false))
}

pub(super) fn unregister(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let removed =
        with_key(run, args.str(0), args.str(1), |run, aor| run.location.remove(run.now(), aor, None));
    match removed {
        None => Outcome::False,
        Some(0) => Outcome::Code(-3),
        Some(_) => Outcome::True,
    }
}
