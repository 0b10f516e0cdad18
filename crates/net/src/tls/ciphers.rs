//! Cipher lists as OpenSSL writes them, for the suites that `rustls` has (all with forward secrecy and AEAD).

use rustls::crypto::aws_lc_rs::cipher_suite as suites;
use rustls::{CipherSuite, SupportedCipherSuite};

/// A suite, its two names, and the groups of OpenSSL that it belongs to.
struct Known {
    suite: SupportedCipherSuite,
    openssl: &'static str,
    iana: &'static str,
    groups: &'static [&'static str],
}

/// Groups that all suites of TLS 1.2 here belong to.
const COMMON: &[&str] = &["ALL", "DEFAULT", "HIGH", "ECDHE", "EECDH", "kECDHE", "kEECDH", "TLSv1.2"];

const ECDSA_AES: &[&str] = &["aECDSA", "ECDSA", "AES", "AESGCM"];
const RSA_AES: &[&str] = &["aRSA", "AES", "AESGCM"];

/// In the order in which they are preferred where a list does not say.
const KNOWN: [Known; 9] = [
    Known {
        suite: suites::TLS13_AES_256_GCM_SHA384,
        openssl: "TLS_AES_256_GCM_SHA384",
        iana: "TLS13_AES_256_GCM_SHA384",
        groups: &[],
    },
    Known {
        suite: suites::TLS13_AES_128_GCM_SHA256,
        openssl: "TLS_AES_128_GCM_SHA256",
        iana: "TLS13_AES_128_GCM_SHA256",
        groups: &[],
    },
    Known {
        suite: suites::TLS13_CHACHA20_POLY1305_SHA256,
        openssl: "TLS_CHACHA20_POLY1305_SHA256",
        iana: "TLS13_CHACHA20_POLY1305_SHA256",
        groups: &[],
    },
    Known {
        suite: suites::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        openssl: "ECDHE-ECDSA-AES256-GCM-SHA384",
        iana: "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        groups: ECDSA_AES,
    },
    Known {
        suite: suites::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        openssl: "ECDHE-ECDSA-AES128-GCM-SHA256",
        iana: "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        groups: ECDSA_AES,
    },
    Known {
        suite: suites::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        openssl: "ECDHE-ECDSA-CHACHA20-POLY1305",
        iana: "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        groups: &["aECDSA", "ECDSA", "CHACHA20"],
    },
    Known {
        suite: suites::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        openssl: "ECDHE-RSA-AES256-GCM-SHA384",
        iana: "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        groups: RSA_AES,
    },
    Known {
        suite: suites::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        openssl: "ECDHE-RSA-AES128-GCM-SHA256",
        iana: "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        groups: RSA_AES,
    },
    Known {
        suite: suites::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        openssl: "ECDHE-RSA-CHACHA20-POLY1305",
        iana: "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        groups: &["aRSA", "CHACHA20"],
    },
];

impl Known {
    fn is_tls13(&self) -> bool {
        self.suite.tls13().is_some()
    }

    /// Whether a word of a list means this suite: its name, a group, or several joined by `+`.
    fn matches(&self, word: &str) -> bool {
        word.split('+').all(|part| {
            let is = |name: &&str| name.eq_ignore_ascii_case(part);
            let length = match part {
                "AES128" => return self.openssl.contains("AES128"),
                "AES256" => return self.openssl.contains("AES256"),
                _ => part.len(),
            };
            length > 0
                && ([self.openssl, self.iana].iter().any(is)
                    || (!self.is_tls13() && COMMON.iter().chain(self.groups).any(is)))
        })
    }
}

/// What a list came to.
#[derive(Debug)]
pub(super) struct Chosen {
    /// The suites, the preferred one first.
    pub(super) suites: Vec<SupportedCipherSuite>,
    /// Words that mean nothing here.
    pub(super) unknown: Vec<String>,
}

/// The name that OpenSSL has for a suite of ours.
pub(super) fn name(suite: CipherSuite) -> &'static str {
    KNOWN.iter().find(|known| known.suite.suite() == suite).map(|known| known.openssl).unwrap_or_default()
}

/// All suites.
pub(super) fn all() -> Vec<SupportedCipherSuite> {
    KNOWN.iter().map(|known| known.suite).collect()
}

/// The suites of a list such as `ECDHE-RSA-AES128-GCM-SHA256:ECDHE+AESGCM:!aRSA`; `None` if it names none at
/// all.
///
/// A list that names no suite of TLS 1.3 leaves all of those, as OpenSSL has it. `!word` and `-word` take away,
/// `+word` and `@word` only order and are skipped.
pub(super) fn choose(list: &str) -> Option<Chosen> {
    let mut chosen: Vec<usize> = Vec::new();
    let mut banned: Vec<usize> = Vec::new();
    let mut unknown = Vec::new();
    let found = |word: &str| (0..KNOWN.len()).filter(|at| KNOWN[*at].matches(word)).collect::<Vec<_>>();
    for word in list.split([':', ',', ' ', ';']).filter(|word| !word.is_empty()) {
        match (word.as_bytes()[0], &word[1..]) {
            (b'!', word) => {
                let taken = found(word);
                chosen.retain(|at| !taken.contains(at));
                banned.extend(taken);
            }
            (b'-', word) => {
                let taken = found(word);
                chosen.retain(|at| !taken.contains(at));
            }
            (b'+' | b'@', _) => {}
            _ => {
                let new = found(word);
                if new.is_empty() {
                    unknown.push(word.to_owned());
                }
                let fresh = |at: &usize| !chosen.contains(at) && !banned.contains(at);
                let new: Vec<usize> = new.into_iter().filter(fresh).collect();
                chosen.extend(new);
            }
        }
    }
    if chosen.is_empty() {
        return None;
    }
    if !chosen.iter().any(|at| KNOWN[*at].is_tls13()) {
        let tls13 = (0..KNOWN.len()).filter(|at| KNOWN[*at].is_tls13() && !banned.contains(at));
        chosen.splice(0..0, tls13.collect::<Vec<_>>());
    }
    Some(Chosen { suites: chosen.into_iter().map(|at| KNOWN[at].suite).collect(), unknown })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::CipherSuite as C;

    fn names(list: &str) -> Vec<C> {
        choose(list).unwrap().suites.iter().map(SupportedCipherSuite::suite).collect()
    }

    fn tls12(list: &str) -> Vec<C> {
        let is_tls12 = |suite: &SupportedCipherSuite| suite.tls13().is_none();
        let chosen = choose(list).unwrap().suites;
        chosen.iter().filter(|suite| is_tls12(suite)).map(SupportedCipherSuite::suite).collect()
    }

    #[test]
    fn names_keep_their_order_and_tls_1_3_stays() {
        assert_eq!(
            names("ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384"),
            [
                C::TLS13_AES_256_GCM_SHA384,
                C::TLS13_AES_128_GCM_SHA256,
                C::TLS13_CHACHA20_POLY1305_SHA256,
                C::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
                C::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            ]
        );
    }

    #[test]
    fn a_list_may_name_suites_of_tls_1_3() {
        assert_eq!(names("TLS_AES_128_GCM_SHA256"), [C::TLS13_AES_128_GCM_SHA256]);
    }

    #[test]
    fn groups_combinations_and_exclusions() {
        assert_eq!(tls12("HIGH").len(), 6);
        assert_eq!(tls12("ALL:!aRSA").len(), 3);
        assert_eq!(tls12("!aRSA:ALL").len(), 3);
        assert_eq!(tls12("-aRSA:ALL:!aNULL:!MD5:@STRENGTH:+HIGH").len(), 6);
        assert_eq!(tls12("aRSA+CHACHA20"), [C::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256]);
        assert_eq!(tls12("EECDH+AES256").len(), 2);
        assert_eq!(tls12("ecdhe-ecdsa-chacha20-poly1305").len(), 1);
    }

    #[test]
    fn unknown_words_are_told_and_skipped() {
        let chosen = choose("AES256-SHA:ECDHE-RSA-AES128-GCM-SHA256:DES-CBC3-SHA").unwrap();
        assert_eq!(chosen.unknown, ["AES256-SHA", "DES-CBC3-SHA"]);
        assert_eq!(chosen.suites.len(), 4);
    }

    #[test]
    fn a_list_without_any_suite_is_none() {
        for list in ["", "AES256-SHA", "ALL:!ALL", "!HIGH", "+", ":::", "NULL"] {
            assert!(choose(list).is_none(), "{list}");
        }
    }
}
