//! Digest authentication as phones and oracles compute it (RFC 3261 §22.4, RFC 7616 §3.4, RFC 8760 §2),
//! written from these. With the server it shares the hash functions' crates and nothing else.

use crate::text::Msg;
use md5::{Digest as _, Md5};
use sha2::Sha256;

/// The realm of the simulator's servers.
pub const REALM: &str = "home.example";

/// A hash function of a challenge (RFC 8760 §2.3 names them).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// RFC 1321.
    Md5,
    /// RFC 6234.
    Sha256,
}

impl Algorithm {
    /// By its name in a challenge; MD5 where there is none (RFC 7616 §3.3).
    pub fn named(name: Option<&str>) -> Option<Algorithm> {
        match name {
            None => Some(Algorithm::Md5),
            Some(name) if name.eq_ignore_ascii_case("MD5") => Some(Algorithm::Md5),
            Some(name) if name.eq_ignore_ascii_case("SHA-256") => Some(Algorithm::Sha256),
            Some(_) => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Md5 => "MD5",
            Algorithm::Sha256 => "SHA-256",
        }
    }

    /// H(text), in hexadecimal.
    pub fn hash(self, text: &str) -> String {
        let bytes = match self {
            Algorithm::Md5 => Md5::digest(text).to_vec(),
            Algorithm::Sha256 => Sha256::digest(text).to_vec(),
        };
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// H(A1) of a user (RFC 7616 §3.4.2).
    pub fn secret(self, user: &str, password: &str) -> String {
        self.hash(&format!("{user}:{REALM}:{password}"))
    }
}

/// The password of a user, as the store has it.
pub fn password(user: &str) -> String {
    format!("secret of {user}")
}

/// A challenge or credentials: what follows `Digest`, names and values without quotes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params(Vec<(String, String)>);

impl Params {
    /// Reads a header's value; `None` if it is of another scheme (RFC 3261 §25.1, `credentials`,
    /// `challenge`).
    pub fn parse(value: &str) -> Option<Params> {
        let (scheme, rest) = value.trim().split_once(char::is_whitespace)?;
        if !scheme.eq_ignore_ascii_case("Digest") {
            return None;
        }
        let pair = |text: &str| {
            let (name, value) = text.split_once('=')?;
            let value = value.trim();
            let bare = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
            Some((name.trim().to_ascii_lowercase(), bare.to_owned()))
        };
        crate::text::commas(rest).into_iter().map(pair).collect::<Option<Vec<_>>>().map(Params)
    }

    /// A parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Whether they are for our realm.
    pub fn is_ours(&self) -> bool {
        self.get("realm") == Some(REALM)
    }
}

/// The headers of a name that are for our realm.
pub fn ours(msg: &Msg, name: &str) -> Vec<Params> {
    let values = msg.headers.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str());
    values.filter_map(Params::parse).filter(Params::is_ours).collect()
}

/// The header that answers a challenge to this method in our worlds: the home is a registrar to REGISTER
/// and a proxy to all else (RFC 3261 §22.1).
pub fn credentials_header(method: &str) -> &'static str {
    if method == "REGISTER" { "authorization" } else { "proxy-authorization" }
}

/// Credentials to be written.
#[derive(Clone, Debug)]
pub struct Answer<'a> {
    /// The user.
    pub user: &'a str,
    /// Its password.
    pub password: &'a str,
    /// The nonce of the challenge.
    pub nonce: &'a str,
    /// Its algorithm.
    pub algorithm: Algorithm,
    /// How often the nonce has been used, this time counted.
    pub count: u32,
    /// The phone's own nonce.
    pub cnonce: &'a str,
    /// The method of the request.
    pub method: &'a str,
    /// Its Request-URI.
    pub uri: &'a str,
}

impl Answer<'_> {
    /// The value of an Authorization header (RFC 7616 §3.4).
    pub fn text(&self) -> String {
        let secret = self.algorithm.secret(self.user, self.password);
        let count = format!("{:08x}", self.count);
        let response =
            response(self.algorithm, &secret, self.nonce, &count, self.cnonce, self.method, self.uri);
        format!(
            "Digest username=\"{}\", realm=\"{REALM}\", nonce=\"{}\", uri=\"{}\", response=\"{response}\", algorithm={}, \
             cnonce=\"{}\", qop=auth, nc={count}",
            self.user,
            self.nonce,
            self.uri,
            self.algorithm.name(),
            self.cnonce
        )
    }
}

/// RFC 7616 §3.4.1 with qop `auth`: KD(H(A1), nonce:nc:cnonce:qop:H(A2)).
fn response(
    algorithm: Algorithm,
    secret: &str,
    nonce: &str,
    count: &str,
    cnonce: &str,
    method: &str,
    uri: &str,
) -> String {
    let request = algorithm.hash(&format!("{method}:{uri}"));
    algorithm.hash(&format!("{secret}:{nonce}:{count}:{cnonce}:auth:{request}"))
}

/// Whether these credentials are right for a request of this method, by the password that the store has of
/// their user.
pub fn is_right(credentials: &Params, method: &str) -> bool {
    let of = |name: &str| credentials.get(name).unwrap_or("");
    let Some(algorithm) = Algorithm::named(credentials.get("algorithm")) else { return false };
    let secret = algorithm.secret(of("username"), &password(of("username")));
    let right = response(algorithm, &secret, of("nonce"), of("nc"), of("cnonce"), method, of("uri"));
    of("qop") == "auth" && right == of("response")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7616 §3.9.1: the same request by both algorithms.
    #[test]
    fn responses_are_those_of_the_rfc() {
        let realm = "http-auth@example.org";
        for (algorithm, right) in [
            (Algorithm::Md5, "8ca523f5e9506fed4657c9700eebdbec"),
            (Algorithm::Sha256, "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
        ] {
            let secret = algorithm.hash(&format!("Mufasa:{realm}:Circle of Life"));
            let (nonce, cnonce) = (
                "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v",
                "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ",
            );
            let response = response(algorithm, &secret, nonce, "00000001", cnonce, "GET", "/dir/index.html");
            assert_eq!(response, right);
        }
    }

    #[test]
    fn what_is_written_is_read_and_right() {
        let user = "u1";
        let password = password(user);
        let answer = Answer {
            user,
            password: &password,
            nonce: "n",
            algorithm: Algorithm::Sha256,
            count: 10,
            cnonce: "c",
            method: "INVITE",
            uri: "sip:u2@home.example",
        };
        let read = Params::parse(&answer.text()).unwrap();
        assert!(read.is_ours() && is_right(&read, "INVITE") && !is_right(&read, "REGISTER"));
        assert_eq!(read.get("nc"), Some("0000000a"));
        let guess = Params::parse(&Answer { password: "guess", ..answer }.text()).unwrap();
        assert!(!is_right(&guess, "INVITE"));
        assert_eq!(Params::parse("Basic x"), None);
    }
}
