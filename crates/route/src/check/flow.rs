//! Who calls whom: routes that nobody uses, and functions that are reached from where they cannot work.

use super::title;
use crate::catalogue::{Contexts, RouteKind};
use crate::compile::Compiler;
use crate::diagnostic::{Diagnostic, Span};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

/// Checks the whole program. Without `readable`, part of the file is missing: nothing is called unused.
pub(super) fn check(compiler: &mut Compiler<'_>, readable: bool) {
    let reach = reach(compiler);
    contexts(compiler, &reach);
    if readable && !compiler.diagnostics.has_errors() {
        unused(compiler);
    }
    compiler.report_harmless();
}

/// From which kinds of blocks each route is reached.
fn reach(compiler: &Compiler<'_>) -> Vec<Contexts> {
    let routes = &compiler.program.routes;
    let mut reach: Vec<Contexts> = routes
        .iter()
        .map(|route| {
            let root = route.kind != RouteKind::Request || route.name.is_none();
            if root { route.kind.context() } else { Contexts::NONE }
        })
        .collect();
    // Each round spreads the kinds one call further; no chain is longer than there are routes.
    for _ in 0..routes.len() {
        let mut changed = false;
        for call in &compiler.route_calls {
            let from = reach.get(call.from).copied().unwrap_or_default();
            if let Some(to) = reach.get_mut(call.to).filter(|to| !to.contains(from)) {
                *to = *to | from;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    reach
}

fn unused(compiler: &mut Compiler<'_>) {
    let mut used = vec![false; compiler.program.routes.len()];
    let called = compiler.route_calls.iter().filter(|call| call.from != call.to).map(|call| call.to);
    for at in called.chain(compiler.armed_routes.iter().copied()) {
        if let Some(slot) = used.get_mut(at) {
            *slot = true;
        }
    }
    for (route, used) in compiler.program.routes.iter().zip(used) {
        let by_name = matches!(
            route.kind,
            RouteKind::Request | RouteKind::Reply | RouteKind::Failure | RouteKind::Branch
        );
        // A name that is computed may be any of them.
        let dynamic = route.kind == RouteKind::Request && compiler.dynamic_calls;
        if used || route.name.is_none() || !by_name || dynamic {
            continue;
        }
        let what = title(route.kind, route.name.as_deref());
        let message = format!("nothing uses `{what}`");
        compiler.diagnostics.push(Diagnostic::note("unused-route", message, route.span));
    }
}

fn contexts(compiler: &mut Compiler<'_>, reach: &[Contexts]) {
    let calls = core::mem::take(&mut compiler.function_calls);
    for call in &calls {
        let Some(route) = compiler.program.routes.get(call.from) else { continue };
        let Some(decl) = compiler.catalogue.function(call.function) else { continue };
        let sub = route.kind == RouteKind::Request && route.name.is_some();
        let reached = reach.get(call.from).copied().unwrap_or_default();
        let reached = if reached == Contexts::NONE { route.kind.context() } else { reached };
        let wrong: Vec<RouteKind> = RouteKind::ALL
            .into_iter()
            .filter(|kind| reached.allows(*kind) && !decl.contexts.allows(*kind))
            .collect();
        let Some(first) = wrong.first() else { continue };
        let works = RouteKind::ALL.into_iter().any(|kind| reached.allows(kind) && decl.contexts.allows(kind));
        let help = format!("`{}` works in: {}", decl.name, decl.contexts);
        if works {
            // The script may well ask first what kind of message it has.
            let message =
                format!("`{}` does nothing when this route is called from `{}`", decl.name, first.keyword());
            let via = via(compiler, call.from, *first, reach);
            let mut finding = Diagnostic::note("context", message, call.span).help(help);
            if let Some(span) = via {
                finding = finding.also(span, "it is called from here");
            }
            compiler.diagnostics.push(finding);
            continue;
        }
        let place = title(route.kind, route.name.as_deref());
        let message = format!("`{}` cannot be used in `{place}`", decl.name);
        let mut finding = Diagnostic::error("context", message, call.span).help(help);
        if sub && let Some(span) = via(compiler, call.from, *first, reach) {
            finding = finding.also(span, format!("the route is called from here, in `{}`", first.keyword()));
        }
        compiler.diagnostics.push(finding);
    }
}

/// A call that brings this kind into the route.
fn via(compiler: &Compiler<'_>, route: usize, kind: RouteKind, reach: &[Contexts]) -> Option<Span> {
    let brings = |from: usize| reach.get(from).is_some_and(|kinds| kinds.allows(kind));
    compiler.route_calls.iter().find(|call| call.to == route && brings(call.from)).map(|call| call.span)
}
