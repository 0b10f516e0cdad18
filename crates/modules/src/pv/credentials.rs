//! Variables of credentials (RFC 3261 §22): those that authenticated the request, or else the first that it has.

use crate::auth::{role_of, split_username};
use crate::run::Run;
use crate::text::put_unfolded;
use route::{Sink, Subscript};
use sip::digest::{Credentials, Presented, Role, presented};

/// The credentials that the variables speak of. Without any that were found right, a REGISTER's Authorization goes before
/// its Proxy-Authorization, and of other requests it is the other way round.
fn credentials<'m>(run: &mut Run<'_, 'm>) -> Option<Credentials<'m>> {
    let message = run.message();
    let authorized = run.state().authorized.last().copied();
    let roles = match role_of(run) {
        Role::Server => [Role::Server, Role::Proxy],
        Role::Proxy => [Role::Proxy, Role::Server],
    };
    let all = || roles.into_iter().flat_map(|role| presented(&message, role));
    let right = all().find(|presented| Some(presented.header.line.start) == authorized);
    let any = || all().find(|presented| presented.credentials.is_ok());
    right.or_else(any).and_then(|Presented { credentials, .. }| credentials.ok())
}

/// Puts a part of them; nothing for an empty one.
fn put(run: &mut Run<'_, '_>, out: &mut Sink<'_>, part: for<'c> fn(&Credentials<'c>) -> &'c [u8]) {
    if let Some(credentials) = credentials(run) {
        let part = part(&credentials);
        if !part.is_empty() {
            put_unfolded(out, part);
        }
    }
}

macro_rules! parts {
    ($($name:ident: $part:expr;)*) => {$(
        pub(super) fn $name(run: &mut Run<'_, '_>, _: &Subscript<'_>, out: &mut Sink<'_>) {
            put(run, out, $part);
        }
    )*};
}

parts! {
    username: |credentials| credentials.username;
    user: |credentials| split_username(credentials.username).0;
    domain: |credentials| split_username(credentials.username).1.unwrap_or_default();
    realm: |credentials| credentials.realm;
    uri: |credentials| credentials.uri;
    nonce: |credentials| credentials.nonce;
    cnonce: |credentials| credentials.cnonce;
    response: |credentials| credentials.response;
    opaque: |credentials| credentials.opaque;
    algorithm: |credentials| credentials.algorithm.name().as_bytes();
}
