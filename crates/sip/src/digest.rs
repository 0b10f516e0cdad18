//! Digest authentication, the server's side (RFC 3261 §22, RFC 2617, RFC 7616, RFC 8760).
//!
//! ```text
//! Challenge::write ──401/407──▶ phone ──Authorization──▶ find ──▶ Credentials::is_right(HA1, method)
//! ```
//!
//! Nothing here knows a secret longer than it takes to hash, nothing allocates but the writing of a challenge,
//! and no comparison with a secret takes longer for a better guess. Nonces are opaque here: who makes them
//! checks them.

mod challenge;
mod credentials;
mod hash;
mod mac;
mod presented;

pub use challenge::Challenge;
pub use credentials::{CREDENTIALS_BYTES_MAX, Credentials, CredentialsError};
pub use hash::{Algorithm, HEX_MAX, Hex};
pub use mac::{MAC_BYTES, MacKey, same_mac};
pub use presented::{Found, Presented, Role, find, presented};
