//! The credentials of a message (RFC 3261 §22.2, §22.3): one header field each, for as many realms as there are
//! on the way.

use super::{Credentials, CredentialsError};
use crate::HeaderName;
use crate::message::{Header, Message};

/// As whom a server asks for credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A user agent server, a registrar, a redirect server (RFC 3261 §22.2).
    Server,
    /// A proxy (RFC 3261 §22.3).
    Proxy,
}

impl Role {
    /// The status of its challenges.
    pub fn status(self) -> u16 {
        match self {
            Role::Server => 401,
            Role::Proxy => 407,
        }
    }

    /// The header field of its challenges.
    pub fn challenge_header(self) -> HeaderName {
        match self {
            Role::Server => HeaderName::WwwAuthenticate,
            Role::Proxy => HeaderName::ProxyAuthenticate,
        }
    }

    /// The header field of the credentials for it.
    pub fn credentials_header(self) -> HeaderName {
        match self {
            Role::Server => HeaderName::Authorization,
            Role::Proxy => HeaderName::ProxyAuthorization,
        }
    }
}

/// A header field with credentials.
#[derive(Clone, Debug)]
pub struct Presented<'a> {
    /// The header field.
    pub header: Header<'a>,
    /// What is in it.
    pub credentials: Result<Credentials<'a>, CredentialsError>,
}

/// Digest credentials and the header field that they stand in.
#[derive(Clone, Debug)]
pub struct Found<'a> {
    /// The header field.
    pub header: Header<'a>,
    /// What is in it.
    pub credentials: Credentials<'a>,
}

/// All header fields with credentials for this role, in order, those of other schemes included.
pub fn presented<'a>(message: &Message<'a>, role: Role) -> impl Iterator<Item = Presented<'a>> + use<'a> {
    message.headers(role.credentials_header()).map(|header| {
        let credentials = Credentials::parse(header.value);
        Presented { header, credentials }
    })
}

/// The first digest credentials for `realm`; `None` if there are none.
///
/// # Errors
///
/// There are none for this realm that can be read, and some digest credentials (the first such are told about)
/// cannot be read: they may be for this realm. Those of other schemes are no error.
pub fn find<'a>(
    message: &Message<'a>,
    role: Role,
    realm: &[u8],
) -> Result<Option<Found<'a>>, CredentialsError> {
    let mut unread = None;
    for Presented { header, credentials } in presented(message, role) {
        match credentials {
            Ok(credentials) if credentials.is_for(realm) => return Ok(Some(Found { header, credentials })),
            Ok(_) | Err(CredentialsError::Scheme) => {}
            Err(error) => unread = unread.or(Some(error)),
        }
    }
    unread.map_or(Ok(None), Err)
}
