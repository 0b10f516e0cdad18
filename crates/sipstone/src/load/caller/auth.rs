//! Challenges and credentials of callers (RFC 3261 §22.2, §22.3).

use super::super::digest::{self, Challenge, Credentials};
use super::super::message::{Kept, hex};
use super::super::users::Names;
use super::super::worker::{Hashed, Shared, mix};
use rand::Rng;
use sip::{HeaderName, Message};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

/// Most requests with one nonce: its count has eight hex digits, and ends before they do.
const NONCE_USES_MAX: u32 = u32::MAX - 1;

/// Buffers and nonces of the callers of a worker.
#[derive(Default)]
pub(super) struct Desk {
    /// For whatever is put together before it is exchanged with what it replaces.
    pub(super) scratch: Vec<u8>,
    /// A request that replaces another one which is needed to write it.
    pub(super) next: Kept,
    ink: Ink,
    /// With `cached`: the last challenge, by user and by whether it was to a REGISTER. At most two per user.
    nonces: HashMap<u64, Nonce, BuildHasherDefault<Hashed>>,
}

/// Buffers for credentials.
#[derive(Default)]
struct Ink {
    credentials: Vec<u8>,
    name: Vec<u8>,
    password: Vec<u8>,
}

/// A registrar and a proxy challenge with different headers, and maybe different realms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Register,
    Call,
}

/// Where a user's nonce is; no two share a place.
fn place(user: u32, purpose: Purpose) -> u64 {
    mix(u64::from(user) << 1 | u64::from(purpose == Purpose::Register))
}

struct Nonce {
    challenge: Challenge,
    uses: u32,
    cnonce: [u8; 16],
}

/// Whether a challenge is kept for the next requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cache {
    Keep,
    Forget,
}

/// The challenge of a 401 or 407; `None` if it cannot be met.
pub(super) fn challenge_of(answer: &Message<'_>, status: u16) -> Option<Challenge> {
    let proxy = status == 407;
    let name = if proxy { HeaderName::ProxyAuthenticate } else { HeaderName::WwwAuthenticate };
    digest::choose(answer.headers(name).map(|header| header.value), proxy).ok()
}

impl Desk {
    /// Writes the answer to a challenge into the credentials, for the request that is kept.
    pub(super) fn meet(
        &mut self,
        shared: &mut Shared,
        challenge: Challenge,
        (user, purpose): (u32, Purpose),
        kept: &Kept,
        cache: Cache,
    ) {
        let cnonce = hex::<16>(shared.rng.random());
        let mut nonce = Nonce { challenge, uses: 0, cnonce };
        self.ink.write(&shared.names, user, &mut nonce, kept);
        if cache == Cache::Keep {
            self.nonces.insert(place(user, purpose), nonce);
        }
    }

    /// Writes credentials with the nonce that this user had last, if there is one.
    pub(super) fn reuse(&mut self, shared: &Shared, (user, purpose): (u32, Purpose), kept: &Kept) -> Reused {
        match self.nonces.get_mut(&place(user, purpose)) {
            Some(nonce) if nonce.uses < NONCE_USES_MAX => {
                self.ink.write(&shared.names, user, nonce, kept);
                Reused::Yes
            }
            _ => Reused::No,
        }
    }

    /// Puts the credentials into a request, which gets this step and CSeq.
    pub(super) fn apply(&mut self, kept: &mut Kept, step: u8, cseq: u8) {
        kept.renew(step, cseq, &self.ink.credentials, &mut self.scratch);
    }
}

impl Ink {
    fn write(&mut self, names: &Names, user: u32, nonce: &mut Nonce, kept: &Kept) {
        nonce.uses += 1;
        self.name.clear();
        names.write_name(user, &mut self.name);
        self.password.clear();
        names.password(user, &mut self.password);
        self.credentials.clear();
        let credentials = Credentials { name: &self.name, password: &self.password };
        let (method, uri) = (kept.method(), kept.uri());
        nonce.challenge.authorize(
            &credentials,
            method,
            uri,
            nonce.uses,
            &nonce.cnonce,
            &mut self.credentials,
        );
    }
}

/// Whether there was a nonce to use again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reused {
    Yes,
    No,
}
