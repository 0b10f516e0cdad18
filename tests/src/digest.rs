//! Digest authentication as a phone does it (RFC 7616, RFC 8760, RFC 3261 §22), with every part open to be malformed.

use std::fmt::Write as _;

use md5::Md5;
use sha2::digest::Digest as Hash;
use sha2::{Sha256, Sha512_256};

use crate::{Message, PATIENCE, Phone, unique};

/// A hash that SIP knows (RFC 8760 §2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// RFC 2617.
    Md5,
    /// RFC 7616.
    Sha256,
    /// RFC 7616.
    Sha512_256,
}

impl Algorithm {
    /// All of them, the strongest first.
    pub const ALL: [Algorithm; 3] = [Algorithm::Sha512_256, Algorithm::Sha256, Algorithm::Md5];

    /// Its name in `algorithm`.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Md5 => "MD5",
            Algorithm::Sha256 => "SHA-256",
            Algorithm::Sha512_256 => "SHA-512-256",
        }
    }

    /// The hash of a text, in lower-case hexadecimal.
    pub fn hash(self, text: &str) -> String {
        match self {
            Algorithm::Md5 => hexadecimal(&Md5::digest(text)),
            Algorithm::Sha256 => hexadecimal(&Sha256::digest(text)),
            Algorithm::Sha512_256 => hexadecimal(&Sha512_256::digest(text)),
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A challenge of a 401 or 407.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// Whether a proxy asks (407).
    pub is_proxys: bool,
    /// The parameters in their order: names as written, values without quotes.
    pub parameters: Vec<(String, String)>,
}

impl Challenge {
    /// The challenges of an answer, in their order.
    pub fn all(answer: &Message) -> Vec<Challenge> {
        let lines = answer.headers.iter().filter_map(|(name, value)| {
            let is_proxys = name.eq_ignore_ascii_case("Proxy-Authenticate");
            let value = value.strip_prefix("Digest ")?;
            (is_proxys || name.eq_ignore_ascii_case("WWW-Authenticate")).then_some((is_proxys, value))
        });
        lines.map(|(is_proxys, value)| Challenge { is_proxys, parameters: parameters(value) }).collect()
    }

    /// The challenge with this algorithm.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn find(answer: &Message, algorithm: Algorithm) -> Challenge {
        let mut found = Challenge::all(answer).into_iter();
        found
            .find(|challenge| challenge.algorithm() == Some(algorithm))
            .unwrap_or_else(|| panic!("no challenge for {} in:\n{answer}", algorithm.name()))
    }

    /// A parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let mut found = self.parameters.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.as_str())
    }

    /// Its algorithm: MD5 where it does not say (RFC 7616 §3.3); `None` if it is one that we do not know.
    pub fn algorithm(&self) -> Option<Algorithm> {
        let name = self.parameter("algorithm").unwrap_or("MD5");
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }

    /// Whether the credentials were right but for the age of their nonce.
    pub fn is_stale(&self) -> bool {
        self.parameter("stale").is_some_and(|stale| stale.eq_ignore_ascii_case("true"))
    }
}

/// `name=value, name="value with, commas"` as pairs.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim_matches([' ', ',', '\t']).to_owned();
        let after = after.trim_start();
        let (value, left) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once(',').unwrap_or((after, "")),
        };
        found.push((name, value.trim().to_owned()));
        rest = left;
    }
    found
}

/// A user who knows a password.
#[derive(Clone, Debug)]
pub struct Subscriber {
    /// The name in the credentials.
    pub user: String,
    /// The password.
    pub password: String,
}

/// Credentials to be written: made to fit a challenge, and open to be made wrong.
#[derive(Clone, Debug)]
pub struct Digest {
    /// `username`.
    pub user: String,
    /// The password.
    pub password: String,
    /// `realm`.
    pub realm: String,
    /// `nonce`.
    pub nonce: String,
    /// `uri`.
    pub uri: String,
    /// The method that is hashed.
    pub method: String,
    /// The algorithm that is computed with.
    pub algorithm: Algorithm,
    /// What `algorithm` says, if it is there.
    pub algorithm_name: Option<String>,
    /// `qop`; `None` as RFC 2069 had it.
    pub qop: Option<String>,
    /// `cnonce`.
    pub cnonce: String,
    /// `nc`.
    pub count: u32,
    /// `opaque`.
    pub opaque: Option<String>,
    /// Whether it is for a proxy.
    pub is_proxys: bool,
}

impl Digest {
    /// The right answer to a challenge of this request.
    ///
    /// # Panics
    ///
    /// When the challenge is not one that can be answered.
    pub fn to(challenge: &Challenge, request: &Message, subscriber: &Subscriber) -> Self {
        let algorithm = challenge.algorithm().expect("an algorithm that RFC 8760 names");
        let value = |name: &str| challenge.parameter(name).map(str::to_owned);
        Self {
            user: subscriber.user.clone(),
            password: subscriber.password.clone(),
            realm: value("realm").expect("a challenge has a realm (RFC 7616 §3.3)"),
            nonce: value("nonce").expect("a challenge has a nonce (RFC 7616 §3.3)"),
            uri: request.uri().to_owned(),
            method: request.method().to_owned(),
            algorithm,
            algorithm_name: value("algorithm"),
            qop: value("qop").map(|_| "auth".to_owned()),
            cnonce: unique(),
            count: 1,
            opaque: value("opaque"),
            is_proxys: challenge.is_proxys,
        }
    }

    /// `response` (RFC 7616 §3.4.1).
    pub fn response(&self) -> String {
        let hash = |text: &str| self.algorithm.hash(text);
        let user = hash(&format!("{}:{}:{}", self.user, self.realm, self.password));
        let request = hash(&format!("{}:{}", self.method, self.uri));
        let nonce = &self.nonce;
        match &self.qop {
            None => hash(&format!("{user}:{nonce}:{request}")),
            Some(qop) => hash(&format!("{user}:{nonce}:{:08x}:{}:{qop}:{request}", self.count, self.cnonce)),
        }
    }

    /// The parameters, in the order in which most write them: names, and values as they are written.
    pub fn parameters(&self) -> Vec<(String, String)> {
        let quoted = |text: &str| format!("\"{text}\"");
        let mut pairs = vec![
            ("username", quoted(&self.user)),
            ("realm", quoted(&self.realm)),
            ("nonce", quoted(&self.nonce)),
            ("uri", quoted(&self.uri)),
            ("response", quoted(&self.response())),
        ];
        pairs.extend(self.algorithm_name.iter().map(|name| ("algorithm", name.clone())));
        if let Some(qop) = &self.qop {
            pairs.push(("cnonce", quoted(&self.cnonce)));
            pairs.push(("qop", qop.clone()));
            pairs.push(("nc", format!("{:08x}", self.count)));
        }
        pairs.extend(self.opaque.iter().map(|opaque| ("opaque", quoted(opaque))));
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The value of the header field.
    pub fn value(&self) -> String {
        written(&self.parameters())
    }

    /// The name of the header field.
    pub fn header(&self) -> &'static str {
        if self.is_proxys { "Proxy-Authorization" } else { "Authorization" }
    }

    /// The request again, as a new one (RFC 3261 §22.2), with these credentials.
    pub fn apply(&self, phone: &Phone, request: &Message) -> Message {
        again(phone, request).set(self.header(), self.value())
    }
}

/// The value of a header field with these parameters.
pub fn written(parameters: &[(String, String)]) -> String {
    let pairs: Vec<String> = parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!("Digest {}", pairs.join(", "))
}

/// A request again in a new transaction, with the next CSeq.
pub fn again(phone: &Phone, request: &Message) -> Message {
    let number = request.header("CSeq").split(' ').next().and_then(|number| number.parse::<u32>().ok());
    let next = number.unwrap_or_default() + 1;
    request.clone().set("Via", phone.via()).set("CSeq", format!("{next} {}", request.method()))
}

impl Subscriber {
    /// One with this password.
    pub fn new(user: &str, password: &str) -> Self {
        Self { user: user.to_owned(), password: password.to_owned() }
    }

    /// Sends a request, which must be challenged, and returns the answer with the challenges. An INVITE's is
    /// acknowledged.
    ///
    /// # Panics
    ///
    /// When it is not challenged.
    pub fn challenged(&self, phone: &Phone, request: &Message) -> Message {
        phone.send(request);
        let answer = final_answer(phone, request);
        assert!(matches!(answer.status(), Some(401 | 407)), "no challenge to {}:\n{answer}", request.start);
        answer
    }

    /// Sends a request, answers the challenge that it gets with this algorithm, and returns what it sent last and the
    /// answer to that.
    pub fn authenticated(
        &self,
        phone: &Phone,
        request: &Message,
        algorithm: Algorithm,
    ) -> (Message, Message) {
        let answer = self.challenged(phone, request);
        let challenge = Challenge::find(&answer, algorithm);
        let with = Digest::to(&challenge, request, self).apply(phone, request);
        phone.send(&with);
        let answer = final_answer(phone, &with);
        (with, answer)
    }

    /// Registers, which must succeed; returns the credentials' digest for later use.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub fn register(&self, phone: &Phone) -> Digest {
        let request = phone.register_request();
        let answer = self.challenged(phone, &request);
        let challenge = Challenge::find(&answer, Algorithm::Md5);
        let digest = Digest::to(&challenge, &request, self);
        let with = digest.apply(phone, &request);
        phone.send(&with);
        phone.expect_response(200, &with);
        digest
    }
}

/// The next final answer to this request; a refusal of an INVITE is acknowledged.
///
/// # Panics
///
/// When none comes.
pub fn final_answer(phone: &Phone, request: &Message) -> Message {
    loop {
        let answer = phone.receive(PATIENCE);
        let answer = answer.unwrap_or_else(|| panic!("no answer to {}", request.start));
        let is_ours =
            answer.find("Call-ID") == request.find("Call-ID") && answer.find("CSeq") == request.find("CSeq");
        let Some(status) = answer.status() else { panic!("a request came:\n{answer}") };
        if status < 200 || !is_ours {
            continue;
        }
        if status >= 300 && request.method() == "INVITE" {
            phone.acknowledge(request, &answer);
        }
        return answer;
    }
}
