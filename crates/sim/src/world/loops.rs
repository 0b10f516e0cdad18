//! Users whose contacts lead back to the servers (RFC 5393 §4): `round0` is at `round0` and at `round1`, and so
//! is `round1`. A request for one of them loops and forks, until the servers see that it does.
//!
//! ```text
//!  caller ──▶ edge ──▶ home ──▶ round0@home.example ──▶ 482
//!              ▲         └────▶ round1@home.example;maddr=edge
//!              └──────────────────┘
//! ```

use super::{World, phone_address, server_address};
use crate::faults::{Loops, SECOND};
use crate::phone::{Keys, Phone, Task};
use crate::prng::Prng;

/// How names of such users begin.
pub const ROUND: &str = "round";
/// `max_contacts` of the home's configuration.
const CONTACTS_MAX: usize = 4;

impl World {
    /// Adds the phones that register what leads in circles, and the requests for them.
    pub(super) fn plan_loops(&mut self, prng: &mut Prng) {
        let Some(loops) = self.plan.loops else { return };
        let callers = self.phones.len() as u64;
        for number in 0..loops.users {
            let mut phone = self.round_phone(loops, number, prng);
            phone.register_until(prng.below(3 * SECOND), self.plan.active);
            self.phones.push(phone);
        }
        for _ in 0..loops.requests {
            let user = format!("{ROUND}{}", prng.below(loops.users as u64));
            let at = prng.between(4 * SECOND, self.plan.active);
            let task = if prng.chance(20) { Task::Ask("MESSAGE", user) } else { Task::Call(user) };
            let caller = prng.below(callers) as usize;
            self.phones[caller].plan(at, task);
        }
    }

    fn round_phone(&self, loops: Loops, number: usize, prng: &mut Prng) -> Phone {
        let seed = self.plan.seed;
        let home = server_address(self.plan.servers - 1);
        let address = phone_address(self.phones.len());
        let tcp = prng.chance(self.plan.tcp);
        let own = Prng::part(seed, &format!("round phone {number}"));
        let mut phone = Phone::new(address, format!("{ROUND}{number}"), tcp, server_address(0), home, own);
        if self.plan.digest.is_some() {
            phone.set_keys(Keys::draw(Prng::part(seed, &format!("round keys {number}"))));
        }
        let mut contacts = Vec::new();
        if loops.has_phones {
            contacts.push(phone.contact());
        }
        for other in 0..loops.users {
            contacts.push(self.way_back(loops, other, prng));
        }
        // Another name of the same way is another Request-URI: it spirals once more before it loops.
        if prng.chance(50) {
            contacts.push(format!("sip:{ROUND}{}@{home}", prng.below(loops.users as u64)));
        }
        contacts.truncate(CONTACTS_MAX);
        phone.lead_to(contacts);
        phone
    }

    /// A contact that leads to a user by way of the servers.
    fn way_back(&self, loops: Loops, user: usize, prng: &mut Prng) -> String {
        let is_by_edge = prng.chance(loops.by_edge) && self.plan.servers > 1;
        // RFC 3261 §16.4: whose address this is takes it off.
        let maddr = if is_by_edge { format!(";maddr={}", server_address(0).ip()) } else { String::new() };
        format!("sip:{ROUND}{user}@home.example{maddr}")
    }
}
