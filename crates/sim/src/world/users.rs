//! Users, as a store that is late, fails and lies tells of them; and who has overheard how they prove who
//! they are.

use super::World;
use super::loops::ROUND;
use crate::digest::{Algorithm, credentials_header, password};
use crate::faults::MILLI;
use crate::prng::Prng;
use crate::text::{Msg, uri_of, user_of};
use crate::trace::{Micros, ServerId, What};
use engine::{OwnedAnswer, Rows, Select};
use std::net::SocketAddr;

/// Where the thief is.
pub const THIEF: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 3, 0, 2)), 5060);
/// How far back a thief looks for what it may use again, in events.
const REMEMBERED: usize = 400;

impl World {
    /// Rows of the table `subscriber`, after so long.
    pub(super) fn select(&mut self, select: &Select) -> (Micros, OwnedAnswer) {
        let faults = self.plan.store;
        let after = self.users.below(faults.slowest + 1);
        if self.now < self.plan.active && self.users.chance(faults.failures) {
            let (fault, answer) = match (self.users.chance(faults.lies), self.users.chance(50)) {
                (true, _) => ("users denied", OwnedAnswer::Rows(Rows::default())),
                (false, true) => ("questions about users refused", OwnedAnswer::Refused),
                (false, false) => ("questions about users failed", OwnedAnswer::Failed),
            };
            self.count(fault);
            return (after, answer);
        }
        let name = select.keys.first().map_or("", |(_, name)| std::str::from_utf8(name).unwrap_or(""));
        let number = |prefix: &str| name.strip_prefix(prefix)?.parse::<usize>().ok();
        let round = self.plan.loops.map_or(0, |loops| loops.users);
        let is_user = number("u").is_some_and(|number| number < self.plan.users)
            || number(ROUND).is_some_and(|number| number < round);
        if !is_user {
            return (after, OwnedAnswer::Rows(Rows::default()));
        }
        let holds_hashes = self.plan.digest.as_ref().is_some_and(|digest| digest.holds_hashes);
        let value = |column: &str| {
            let text = match column {
                "username" => Some(name.to_owned()),
                "ha1" if holds_hashes => Some(Algorithm::Md5.secret(name, &password(name))),
                "ha1_sha256" if holds_hashes => Some(Algorithm::Sha256.secret(name, &password(name))),
                "password" if !holds_hashes => Some(password(name)),
                _ => None,
            };
            text.map(|text| text.into_bytes().into_boxed_slice())
        };
        let row = select.columns.iter().map(|column| value(column)).collect();
        (after, OwnedAnswer::Rows(Rows(vec![row])))
    }

    /// Somebody sends credentials that it has overheard.
    pub(super) fn replay(&mut self, server: ServerId, prng: &mut Prng) {
        let heard = self.trace.entries.iter().rev().take(REMEMBERED).filter(|entry| {
            let has = |msg: &Msg| msg.get(credentials_header(msg.method())).is_some();
            matches!(entry.what, What::Sent)
                && entry.msg.as_ref().is_some_and(|msg| msg.is_request() && has(msg))
        });
        let heard: Vec<_> = heard.filter_map(|entry| entry.msg.clone()).collect();
        if heard.is_empty() {
            return;
        }
        self.count("replays");
        let mut msg = Msg::clone(prng.pick::<std::rc::Rc<Msg>>(&heard));
        // Another call, that with the next count, another request of the call; the same but for whom it binds.
        let kind = prng.below(4);
        let word = prng.word();
        msg.headers.retain(|(name, _)| !matches!(name.as_str(), "via" | "record-route"));
        msg.headers.insert(0, ("via".to_owned(), format!("SIP/2.0/UDP {THIEF};branch=z9hG4bK{word};rport")));
        let method = msg.method().to_owned();
        let user = user_of(uri_of(msg.get("from").unwrap_or(""))).to_owned();
        let cseq = msg.cseq();
        for (name, value) in &mut msg.headers {
            match (name.as_str(), kind) {
                ("contact", _) => *value = format!("<sip:{user}@{THIEF}>"),
                ("call-id", 0 | 1) => *value = format!("theft-{word}"),
                ("cseq", 2) => *value = format!("{} {method}", cseq + 1),
                ("authorization" | "proxy-authorization", 1) => *value = counted_further(value),
                _ => {}
            }
        }
        let (to, bytes) = (self.servers[server].address, msg.bytes());
        let later = prng.below(2_000) * MILLI;
        self.send_later(THIEF, to, bytes, later);
    }
}

/// The same credentials with the next nonce count: whoever does not know the secret cannot make them right.
fn counted_further(credentials: &str) -> String {
    let Some((before, after)) = credentials.split_once("nc=") else { return credentials.to_owned() };
    let digits: String = after.chars().take_while(char::is_ascii_hexdigit).collect();
    let count = u32::from_str_radix(&digits, 16).unwrap_or(0);
    format!("{before}nc={:08x}{}", count + 1, &after[digits.len()..])
}
