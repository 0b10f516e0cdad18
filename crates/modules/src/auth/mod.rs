//! `auth`: challenges, nonces and credentials of digest authentication (RFC 3261 §22, RFC 7616, RFC 8760).
//!
//! - [`settings`] is what the configuration says; [`functions`] what scripts call.
//! - [`verify`] finds the credentials that are for a realm of ours and judges their nonce, their `uri`, their count and
//!   their response; where the secret comes from is the caller's business (`auth_db`, or the script itself).
//! - [`challenge`] writes challenges, [`identity`] compares who is authenticated with who is named.

mod challenge;
pub(crate) mod functions;
mod guard;
mod identity;
mod nonce;
mod settings;
pub(crate) mod verify;
mod window;

pub use guard::Guard;
pub use settings::AuthSettings;
pub use window::NonceWindow;

pub(crate) use functions::role_of;
pub(crate) use guard::{Admission, Attempt, GuardLimits, Pass};
pub(crate) use identity::{Identity, is_identity, split_username, without_escapes};
pub(crate) use nonce::{Nonce, NonceKey, NonceText};
pub(crate) use settings::read;
pub(crate) use window::{Count, NonceUse};

use crate::auth_db::{Job, Users};
use crate::run::Environment;
use crate::settings::Settings;
use crate::table::Module;
use alloc::boxed::Box;
use sip::digest::Algorithm;
use smallvec::SmallVec;

pub(crate) static MODULE: Module = Module {
    name: "auth",
    doc: "Digest authentication: challenges, nonces, credentials.",
    functions: functions::FUNCTIONS,
    parameters: settings::PARAMETERS,
    variables: &[],
};

/// Return codes of the functions that authenticate; 1 is success.
pub(crate) mod code {
    /// The response is wrong.
    pub(crate) const PASSWORD: i32 = -2;
    /// There is no such user.
    pub(crate) const USER: i32 = -3;
    /// The nonce is too old, or none of ours.
    pub(crate) const STALE: i32 = -4;
    /// There are no credentials for the realm, or none that were asked for.
    pub(crate) const NONE: i32 = -5;
    /// The nonce was used before, with this count.
    pub(crate) const REUSED: i32 = -6;
    /// Not evaluated: too many wrong attempts.
    pub(crate) const SLOWED: i32 = -7;
    /// The user is authenticated, and is not who From (or To) names.
    pub(crate) const MISMATCH: i32 = -8;
}

/// Algorithms in the order of preference.
pub(crate) type Algorithms = SmallVec<[Algorithm; 3]>;

/// What came of credentials, on one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuthCounters {
    /// Challenges sent (401, 407).
    pub challenged: u64,
    /// Credentials that were right.
    pub accepted: u64,
    /// Wrong passwords and users that there are not.
    pub wrong: u64,
    /// Right ones with a nonce that was too old, or whose count was used before.
    pub stale: u64,
    /// Not evaluated: too many wrong ones came before.
    pub slowed: u64,
}

/// What a shard keeps for authentication.
pub(crate) struct Shard {
    /// What nonces are signed with.
    pub(crate) key: NonceKey,
    /// The users that it remembers.
    pub(crate) users: Users,
    pub(crate) counters: AuthCounters,
}

impl Shard {
    pub(crate) fn new(settings: &Settings, environment: &Environment) -> Shard {
        let secret = settings.auth.secret.as_deref().unwrap_or(&environment.nonce_key);
        Shard {
            key: NonceKey::new(secret),
            users: Users::new(settings.auth_db.cache_max.max(1), &environment.nonce_key),
            counters: AuthCounters::default(),
        }
    }
}

/// What one run of a script knows of authentication; it survives a suspension.
#[derive(Default)]
pub(crate) struct Authentication {
    /// The credentials were right, but for their nonce.
    pub(crate) stale: bool,
    /// Credentials were not evaluated: seconds until the next attempt.
    pub(crate) later: Option<u32>,
    /// What `auth_algorithm` chose.
    pub(crate) algorithms: Option<Algorithms>,
    /// What is asked of the database.
    pub(crate) job: Option<Box<Job>>,
}

impl core::fmt::Debug for Authentication {
    // No identities in logs.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Authentication").field("stale", &self.stale).finish_non_exhaustive()
    }
}
