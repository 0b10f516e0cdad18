//! Intervals that differ a little (RFC 3261 §10.3 step 7: "The registrar MAY choose an expiration less than the requested
//! expiration interval"), so that phones that registered together do not all come back together.
//!
//! The choice follows from the request: a copy of it gets the same interval, and is known for one.

use crate::settings::RegistrarSettings;
use location::Update;

/// Sets the interval that `update` asks for to the one that it shall get, within `expires_range` below what was asked for,
/// or `default_expires_range` about the default.
pub(super) fn spread(settings: &RegistrarSettings, update: &mut Update<'_>) {
    let policy = &settings.policy;
    match update.expires {
        // What is no less than the shortest interval stays so: a phone is not refused for our choice.
        Some(asked) if asked > policy.min_expires && settings.expires_range_percent > 0 => {
            let lowest = asked - percent(asked, settings.expires_range_percent);
            update.expires = Some(choose(update, lowest.max(policy.min_expires).max(1), asked));
        }
        None if settings.default_expires_range_percent > 0 => {
            let default = policy.default_expires;
            let width = percent(default, settings.default_expires_range_percent);
            let lowest = (default - width).max(policy.min_expires).max(1);
            update.expires = Some(choose(update, lowest, default.saturating_add(width)));
        }
        _ => {}
    }
}

fn percent(seconds: u32, percent: u8) -> u32 {
    u32::try_from(u64::from(seconds) * u64::from(percent.min(100)) / 100).unwrap_or(seconds)
}

/// A number from `lowest` to `highest` that only the request decides.
fn choose(update: &Update<'_>, lowest: u32, highest: u32) -> u32 {
    let Some(width) = highest.checked_sub(lowest) else { return lowest };
    // FNV-1a. Whoever chooses the Call-ID chooses the interval, among those that would be granted anyway.
    let parts = [update.call_id, &update.cseq.to_be_bytes(), update.contact];
    let bytes = parts.iter().flat_map(|part| part.iter());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    // Its last bits depend on the last bytes alone: folded.
    let mixed = (hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32;
    lowest + (((mixed * (u64::from(width) + 1)) >> 32) as u32)
}
