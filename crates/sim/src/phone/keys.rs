//! How a phone answers challenges (RFC 3261 §22.2, §22.3): rightly, wrongly, or not at all.

use super::Phone;
use super::client::Client;
use crate::digest::{self, Algorithm, Answer, Params, credentials_header};
use crate::prng::Prng;
use crate::text::Msg;
use crate::trace::Micros;

/// Challenges that one request answers, at most: the first one, a stale nonce, and that once more.
const ANSWERS_MAX: usize = 3;

/// What a phone makes of challenges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// It knows its password.
    Right,
    /// It has another one.
    Guesses,
    /// It knows its password, and makes its own nonces of those that it got.
    Forges,
    /// It does not answer.
    Ignores,
}

/// A nonce that a phone may use again.
#[derive(Clone, Debug)]
struct Nonce {
    text: String,
    algorithm: Algorithm,
    count: u32,
}

/// A phone's means of answering challenges.
#[derive(Clone, Debug)]
pub struct Keys {
    /// What it makes of challenges.
    pub manner: Manner,
    /// The strongest algorithm that it knows.
    strongest: Algorithm,
    prng: Prng,
    nonce: Option<Nonce>,
    /// Call-IDs of requests that answered challenges, and how often.
    answered: Vec<(String, usize)>,
}

impl Keys {
    /// Those of the seed.
    pub fn draw(mut prng: Prng) -> Keys {
        let manner = match prng.below(20) {
            0..14 => Manner::Right,
            14..16 => Manner::Guesses,
            16..19 => Manner::Forges,
            _ => Manner::Ignores,
        };
        let strongest = *prng.pick(&[Algorithm::Md5, Algorithm::Sha256, Algorithm::Sha256]);
        Keys { manner, strongest, prng, nonce: None, answered: Vec::new() }
    }

    /// Takes the first challenge that it can answer: the server puts the best first (RFC 8760 §2.4).
    fn learn(&mut self, challenges: &[Params]) -> bool {
        let known = |params: &Params| {
            let algorithm = Algorithm::named(params.get("algorithm"))?;
            let text = params.get("nonce")?.to_owned();
            (algorithm <= self.strongest).then_some(Nonce { text, algorithm, count: 0 })
        };
        let learnt = challenges.iter().find_map(known);
        let is_known = learnt.is_some();
        self.nonce = learnt.or(self.nonce.take());
        is_known
    }

    /// The credentials for a request, with the nonce used once more.
    fn credentials(&mut self, user: &str, method: &str, uri: &str) -> Option<String> {
        let nonce = self.nonce.as_mut()?;
        nonce.count += 1;
        let forged;
        let text = if self.manner == Manner::Forges && self.prng.chance(70) {
            forged = forge(&mut self.prng, &nonce.text);
            &forged
        } else {
            &nonce.text
        };
        let password =
            if self.manner == Manner::Guesses { "guess".to_owned() } else { digest::password(user) };
        let cnonce = self.prng.word();
        let answer = Answer {
            user,
            password: &password,
            nonce: text,
            algorithm: nonce.algorithm,
            count: nonce.count,
            cnonce: &cnonce,
            method,
            uri,
        };
        Some(answer.text())
    }

    /// Whether it may answer one more challenge to this call.
    fn may_answer(&mut self, call_id: &str) -> bool {
        if let Some((_, count)) = self.answered.iter_mut().find(|(known, _)| known == call_id) {
            *count += 1;
            return *count <= ANSWERS_MAX;
        }
        self.answered.push((call_id.to_owned(), 1));
        true
    }

    /// A request of this call was not challenged.
    pub(super) fn settled(&mut self, call_id: &str) {
        self.answered.retain(|(known, _)| known != call_id);
    }
}

/// Another nonce that looks like this one: a character of it is another one.
fn forge(prng: &mut Prng, nonce: &str) -> String {
    let at = prng.below(nonce.len() as u64) as usize;
    let put = *prng.pick(&['A', 'b', '7', 'q', '-']);
    nonce.chars().enumerate().map(|(place, old)| if place == at { put } else { old }).collect()
}

impl Phone {
    /// Gives the phone means to answer challenges.
    pub fn set_keys(&mut self, keys: Keys) {
        self.keys = Some(keys);
    }

    /// Adds credentials to a new request where a nonce of an earlier one may still do (RFC 3261 §22.3).
    pub(super) fn preempt(&mut self, msg: &mut Msg) {
        let (method, uri) = (msg.method().to_owned(), msg.uri().to_owned());
        let Some(keys) = self.keys.as_mut() else { return };
        if keys.prng.chance(60)
            && let Some(credentials) = keys.credentials(&self.user, &method, &uri)
        {
            msg.headers.push((credentials_header(&method).to_owned(), credentials));
        }
    }

    /// A request was challenged; whether it is sent again with an answer: a new one, with the next CSeq
    /// (§22.2).
    pub(super) fn answer_challenge(&mut self, now: Micros, client: &Client, response: &Msg) -> bool {
        let asked = &client.msg;
        let method = asked.method().to_owned();
        let name = if method == "REGISTER" { "www-authenticate" } else { "proxy-authenticate" };
        let challenges = digest::ours(response, name);
        let given_up = self
            .calls
            .iter()
            .any(|call| call.call_id == asked.call_id() && (call.cancel_wanted || call.over));
        let Some(keys) = self.keys.as_mut() else { return false };
        let gives_up = keys.manner == Manner::Ignores || given_up || asked.to_tag().is_some();
        if gives_up || !keys.learn(&challenges) || !keys.may_answer(asked.call_id()) {
            return false;
        }
        let uri = asked.uri().to_owned();
        let Some(credentials) = keys.credentials(&self.user, &method, &uri) else { return false };
        let cseq = if method == "REGISTER" {
            self.register_cseq += 1;
            self.register_cseq
        } else {
            asked.cseq() + 1
        };
        let (via, _) = self.via(if client.way.is_reliable() { "TCP" } else { "UDP" });
        let mut msg = asked.clone();
        msg.headers.retain(|(name, _)| *name != credentials_header(&method));
        for (name, value) in &mut msg.headers {
            match name.as_str() {
                "via" => value.clone_from(&via),
                "cseq" => *value = format!("{cseq} {method}"),
                _ => {}
            }
        }
        msg.headers.push((credentials_header(&method).to_owned(), credentials));
        self.begin(now, msg, client.way, None);
        true
    }
}
