//! Who is authenticated, and whether it is who the request names (RFC 3261 §22.1; §10.3 step 3 and 4 for REGISTER).

use crate::run::Run;
use crate::uri_parts::{UriParts, split_once};
use sip::Method;
use smallvec::SmallVec;

/// Which names are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// None.
    Unchecked,
    /// As `auth_check` does: From; of a REGISTER also To; of a PUBLISH also To and the Request-URI.
    All,
    /// The same, but nothing for INVITE, BYE, PRACK, UPDATE and MESSAGE, whose From may be anonymous.
    NotCalls,
    /// As `pv_auth_check` does: of a REGISTER To, otherwise From.
    One,
}

impl Identity {
    /// What the flags of `auth_check` mean.
    pub(crate) fn of_flags(flags: i64) -> Identity {
        match flags & 3 {
            1 => Identity::All,
            3 => Identity::NotCalls,
            _ => Identity::Unchecked,
        }
    }
}

/// A user name, or a realm, as tables have it: what was quoted in credentials may have escapes (RFC 3261 §25.1
/// `quoted-pair`).
pub(crate) fn without_escapes(quoted: &[u8]) -> SmallVec<[u8; 64]> {
    if !quoted.contains(&b'\\') {
        return SmallVec::from_slice(quoted);
    }
    let mut plain = SmallVec::new();
    let mut bytes = quoted.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' => plain.extend(bytes.next().copied()),
            _ => plain.push(byte),
        }
    }
    plain
}

/// The user and the domain of a user name in credentials, without escapes.
pub(crate) fn split_username(username: &[u8]) -> (&[u8], Option<&[u8]>) {
    split_once(username, b'@').map_or((username, None), |(user, domain)| (user, Some(domain)))
}

/// Whether the names that `identity` compares are the user's, all without escapes; with `use_domain` also their domain, which
/// must be that of the user name, or the realm where it has none.
pub(crate) fn is_identity(
    run: &Run<'_, '_>,
    identity: Identity,
    username: &[u8],
    realm: &[u8],
    use_domain: bool,
) -> bool {
    let message = run.message();
    let method = message.method();
    let calls =
        matches!(method, Method::Invite | Method::Bye | Method::Prack | Method::Update | Method::Message);
    let (user, domain) = split_username(username);
    let domain = use_domain.then(|| domain.unwrap_or(realm));
    let is_user = |uri: &[u8]| is_of(run, uri, user, domain);
    let from = || message.from().is_ok_and(|from| is_user(from.uri));
    let to = || message.to().is_ok_and(|to| is_user(to.uri));
    match (identity, method) {
        (Identity::Unchecked, _) => true,
        (Identity::NotCalls, _) if calls => true,
        (Identity::One, Method::Register) => to(),
        (Identity::All | Identity::NotCalls, Method::Register) => from() && to(),
        (Identity::All | Identity::NotCalls, Method::Publish) => {
            from() && to() && is_user(message.request_uri())
        }
        _ => from(),
    }
}

fn is_of(run: &Run<'_, '_>, uri: &[u8], user: &[u8], domain: Option<&[u8]>) -> bool {
    let Some(parts) = UriParts::parse(uri) else { return false };
    let named = parts.plain_user().unwrap_or_default();
    let host = parts.host.strip_prefix(&*run.settings.auth.realm_prefix).unwrap_or(parts.host);
    !user.is_empty() && named == user && domain.is_none_or(|domain| domain.eq_ignore_ascii_case(host))
}
