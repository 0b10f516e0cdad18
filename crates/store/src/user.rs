//! A row of the `subscriber` table.

use std::fmt;

/// A row of `subscriber`. Where a secret is empty it is not stored (an empty text in columns that allow no
/// NULL).
#[derive(Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The user part of the address-of-record.
    pub username: String,
    /// Its domain, which is the realm, too.
    pub domain: String,
    /// The clear text, only if an administrator wants it kept.
    pub password: String,
    /// MD5 of `username:realm:password` in hexadecimal.
    pub ha1: String,
    /// MD5 of `username@domain:realm:password`.
    pub ha1b: String,
    /// SHA-256 of `username:realm:password`.
    pub ha1_sha256: String,
    /// SHA-512-256 of the same.
    pub ha1_sha512_256: String,
}

impl fmt::Debug for User {
    /// Who it is, never the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User")
            .field("username", &self.username)
            .field("domain", &self.domain)
            .finish_non_exhaustive()
    }
}
