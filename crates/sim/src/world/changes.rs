//! What an administrator changes while calls are up: tables, and the configuration.
//!
//! The server reads its tables again when it is told to (`SIGHUP`, `reload` on the control socket), all of
//! one table or nothing of it. Its configuration file it reads when it starts; so a new one goes in by a
//! server that drains and is replaced, and one that `strowger check` refuses does not go in at all.

use super::{Event, Fault, World};
use crate::faults::SECOND;
use crate::prng::Prng;
use crate::server::Edition;
use crate::trace::{Micros, ServerId, What};

/// Something that an administrator does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// Has the tables read again, of which this edition is there now.
    Tables(Edition),
    /// Says that users have changed: what is remembered of them is to be read again.
    Users,
    /// Replaces the server by one with this configuration, after so long.
    Configuration(Edition, Micros),
}

impl World {
    pub(super) fn plan_changes(&mut self, prng: &mut Prng) {
        if !self.plan.changes {
            return;
        }
        let home = self.plan.servers - 1;
        for _ in 0..prng.between(1, 6) {
            let at = prng.between(SECOND, self.plan.active);
            let edition = *prng.pick(&[Edition::One, Edition::Two, Edition::Two, Edition::Wrong]);
            let change = match prng.below(20) {
                0..12 => Change::Tables(edition),
                12..14 => Change::Users,
                _ => Change::Configuration(edition, prng.between(1, 40) * SECOND),
            };
            self.at(at, Event::Fault(Fault::Change(home, change)));
        }
    }

    pub(super) fn change(&mut self, server: ServerId, change: Change) {
        let address = self.servers[server].address;
        let (what, is_taken) = match change {
            Change::Tables(edition) => {
                (format!("tables {}", edition.name()), self.servers[server].read_tables(self.now, edition))
            }
            Change::Users => {
                self.servers[server].users_changed();
                ("other users".to_owned(), true)
            }
            Change::Configuration(edition, after) => {
                let is_taken = self.servers[server].set_configuration(edition);
                if is_taken {
                    self.strike(Fault::Drain(server));
                    self.at(self.now + after, Event::Fault(Fault::Replace(server)));
                }
                (format!("configuration {}", edition.name()), is_taken)
            }
        };
        self.count(match (change, is_taken) {
            (Change::Tables(_), true) => "tables changed",
            (Change::Tables(_), false) => "tables refused",
            (Change::Users, _) => "users changed",
            (Change::Configuration(..), true) => "configurations changed",
            (Change::Configuration(..), false) => "configurations refused",
        });
        let taken = if is_taken { "is given" } else { "refuses" };
        self.note(What::Note(format!("{address} {taken} {what}")), address, address);
    }
}
