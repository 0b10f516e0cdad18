//! What the worst REGISTER costs: as many contacts as it may name, compared with as many bindings as there may be, all
//! at one address and with as many parameters as fit.
//!
//! ```text
//! cargo run --release -p location --example worst
//! ```
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use location::{CONTACTS_PER_REQUEST_MAX, Limits, Policy, Register, Seeds, Table, Update};
use sip::Instant;
use std::time::Instant as Clock;

/// The registrar's `contact_max_size`, in bytes.
const CONTACT_BYTES: usize = 512;
/// Requests measured; the fastest counts, as the others were disturbed.
const ROUNDS: u32 = 200;

fn main() {
    let limits = Limits::default();
    for params in [0, 4, 8, 16, 32, 62] {
        let bound: Vec<String> = (0..limits.contacts_per_aor_max).map(|n| contact(params, n)).collect();
        let named: Vec<String> = (0..CONTACTS_PER_REQUEST_MAX).map(|n| contact(params, 1_000 + n)).collect();
        let mut best = f64::INFINITY;
        for _ in 0..ROUNDS {
            let mut table = Table::new(limits, Seeds([1, 2, 3, 4]));
            for contact in &bound {
                register(&mut table, &[contact]);
            }
            let named: Vec<&String> = named.iter().collect();
            let before = Clock::now();
            register(&mut table, &named);
            best = best.min(before.elapsed().as_secs_f64());
        }
        println!("{params:>3} parameters: {:7.1} µs", best * 1e6);
    }
}

/// Contacts that differ in their last parameter, so that all the others are looked at before that is found out.
fn contact(params: usize, n: usize) -> String {
    let mut uri = String::from("sip:a@192.0.2.1");
    for param in 0..params {
        let next = format!(";p{param}=x");
        if uri.len() + next.len() + 8 > CONTACT_BYTES {
            break;
        }
        uri += &next;
    }
    uri + &format!(";z={n}")
}

fn register(table: &mut Table, contacts: &[&String]) {
    let updates: Vec<Update<'_>> = contacts
        .iter()
        .map(|contact| Update { expires: Some(600), ..Update::new(contact.as_bytes(), b"c", 1) })
        .collect();
    let _ = table.register(
        Instant::from_micros(1),
        b"sip:a@example.org",
        &Register::Bind(&updates),
        &Policy::default(),
    );
}
