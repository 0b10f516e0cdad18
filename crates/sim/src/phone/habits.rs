//! How a phone behaves, drawn once for its life.

use crate::prng::Prng;
use crate::text::Spelling;
use crate::trace::Micros;

/// A second.
const SECOND: Micros = 1_000_000;

/// What phones write into Max-Forwards.
const HOPS: [Option<u32>; 10] =
    [Some(70), Some(70), Some(70), Some(70), Some(12), Some(4), Some(2), Some(1), Some(0), None];

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct Habits {
    /// Its Via asks for the source port (RFC 3581).
    pub rport: bool,
    /// Its Via names an address that it is not seen at, as behind a NAT.
    pub hides: bool,
    /// It sends its requests from another port than it listens at, which its Via names (RFC 3261 §18.2.2).
    pub elsewhere: bool,
    /// Its preference as a contact, 1 to 9 tenths.
    pub q: u64,
    /// Max-Forwards of its requests; `None`: it knows no such thing, as by RFC 2543.
    pub max_forwards: Option<u32>,
    /// Percent of INVITEs that it accepts.
    pub accepts: u64,
    /// Percent of requests that it never answers.
    pub deaf: u64,
    /// Longest time from INVITE to answer (µs).
    pub slow: Micros,
    /// Percent of calls that it gives up while they ring.
    pub impatient: u64,
    /// Bytes of its bodies, at most.
    pub body_bytes: u64,
    /// Longest call (µs).
    pub talks: Micros,
    /// How it writes its requests.
    pub spelling: Spelling,
    /// It registers once, for an hour, and asks for nothing odd.
    pub steady: bool,
}

impl Habits {
    /// Habits of the seed.
    pub fn draw(prng: &mut Prng) -> Habits {
        Habits {
            rport: prng.chance(60),
            hides: prng.chance(20),
            elsewhere: false,
            q: prng.between(1, 9).min(5),
            max_forwards: *prng.pick(&HOPS),
            accepts: *prng.pick(&[100, 90, 50, 10]),
            deaf: *prng.pick(&[0, 0, 0, 10, 60]),
            slow: *prng.pick(&[0, 1, 6, 40]) * SECOND,
            impatient: *prng.pick(&[0, 20, 70]),
            body_bytes: *prng.pick(&[0, 0, 200, 900, 3_000]),
            talks: *prng.pick(&[1, 10, 60]) * SECOND,
            spelling: *prng.pick(&[
                Spelling::Plain,
                Spelling::Plain,
                Spelling::Compact,
                Spelling::Shouted,
                Spelling::Folded,
            ]),
            steady: false,
        }
    }

    /// A phone that answers every call after `slow` and hangs up after `talks`.
    pub fn plain(slow: Micros, talks: Micros) -> Habits {
        Habits {
            rport: true,
            hides: false,
            elsewhere: false,
            q: 5,
            max_forwards: Some(70),
            accepts: 100,
            deaf: 0,
            slow,
            impatient: 0,
            body_bytes: 0,
            talks,
            spelling: Spelling::Plain,
            steady: true,
        }
    }

    /// How long a caller waits: few wait beyond Timer C.
    pub fn patience(&self, prng: &mut Prng) -> Micros {
        if prng.chance(self.impatient) {
            prng.between(1, 12_000) * 1_000
        } else {
            *prng.pick(&[60, 120, 400]) * SECOND
        }
    }

    /// A body of letters.
    pub fn body(&self, prng: &mut Prng) -> String {
        let bytes = prng.below(self.body_bytes + 1) as usize;
        let letters = ["v=0\r\n", "\r\n\r\n", "a: b\r\n", "x", "0"];
        let mut body = String::new();
        while body.len() < bytes {
            let piece: &str = letters[prng.below(letters.len() as u64) as usize];
            body.push_str(piece);
        }
        body
    }

    /// The status that answers an INVITE; `None`: silence.
    pub fn answer(&self, prng: &mut Prng) -> Option<u16> {
        if prng.chance(self.deaf) {
            return None;
        }
        if prng.chance(self.accepts) {
            return Some(200);
        }
        Some(*prng.pick(&[486, 486, 603, 480, 404, 500, 503, 302, 401, 407, 408, 600, 488]))
    }
}
