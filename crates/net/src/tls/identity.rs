//! Whom a certificate names as a SIP domain (RFC 5922 §7).
//!
//! §7.1: hosts of URIs `sip:host` in subjectAltName; its DNS names "if and only if no other identity is found
//! that matches the 'sip' URI type"; the common name only where there is no subjectAltName at all (which it
//! says one MAY do: private CAs still issue such certificates). §7.2: whole names, without case, and no
//! wildcard of any form: a certificate for `*.example.org` is not one for `sip.example.org`. An address is
//! proved by its iPAddress value only.

use std::net::IpAddr;

use rustls::pki_types::{DnsName, ServerName};

use super::der::{AlternativeName, Facts};

/// The SIP domains that a certificate stands for (RFC 5922 §7.1).
pub(super) fn sip_domains<'a>(facts: &'a Facts<'_>) -> Vec<&'a str> {
    if !facts.has_alternative_names {
        return facts.common_name().filter(|name| DnsName::try_from(*name).is_ok()).into_iter().collect();
    }
    let mut domains: Vec<&str> = facts
        .names
        .iter()
        .filter_map(|name| match name {
            AlternativeName::Uri(uri) => domain_of_uri(uri),
            _ => None,
        })
        .collect();
    if domains.is_empty() {
        domains.extend(facts.names.iter().filter_map(|name| match name {
            AlternativeName::Dns(name) => Some(*name),
            _ => None,
        }));
    }
    domains
}

/// All that a certificate may be presented as, for logs and scripts: SIP domains and addresses.
pub(super) fn presented(facts: &Facts<'_>) -> Vec<String> {
    let addresses = facts.names.iter().filter_map(|name| match name {
        AlternativeName::Address(address) => Some(address.to_string()),
        _ => None,
    });
    sip_domains(facts).into_iter().map(str::to_owned).chain(addresses).collect()
}

/// Whether a certificate proves that its holder is `wanted`.
pub(super) fn proves(facts: &Facts<'_>, wanted: &ServerName<'_>) -> bool {
    match wanted {
        ServerName::DnsName(domain) => {
            sip_domains(facts).into_iter().any(|found| same_domain(found, domain.as_ref()))
        }
        ServerName::IpAddress(address) => {
            let address = IpAddr::from(*address);
            facts.names.contains(&AlternativeName::Address(address))
        }
        _ => false,
    }
}

/// The host of `sip:host`; none of a `sips` or other URI, nor of one with a user, which names a person (RFC
/// 5922 §7.1).
fn domain_of_uri(uri: &str) -> Option<&str> {
    let (scheme, rest) = uri.split_once(':')?;
    if !scheme.eq_ignore_ascii_case("sip") || rest.contains('@') {
        return None;
    }
    let host = rest.split([':', ';', '?']).next().unwrap_or_default();
    (!host.is_empty()).then_some(host)
}

/// Compares as DNS names, in their entirety (RFC 5922 §7.2, RFC 4343); the dot of the root means nothing.
fn same_domain(one: &str, other: &str) -> bool {
    let bare = |name: &str| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    bare(one) == bare(other)
}

/// What must be proved by the peer of a connection that we open: the domain, else the address.
///
/// `None` for a domain that is no host name.
pub(super) fn wanted(domain: Option<&[u8]>, address: IpAddr) -> Option<ServerName<'static>> {
    let Some(domain) = domain.filter(|domain| !domain.is_empty()) else {
        return Some(ServerName::IpAddress(address.to_canonical().into()));
    };
    let text = std::str::from_utf8(domain).ok()?;
    // A host of a SIP URI may be an address, in brackets if it is of IPv6 (RFC 3261 §25.1).
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    ServerName::try_from(bare.to_ascii_lowercase()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts<'a>(names: &[AlternativeName<'a>]) -> Facts<'a> {
        Facts { has_alternative_names: true, names: names.to_vec(), ..Facts::default() }
    }

    fn name(text: &str) -> ServerName<'static> {
        wanted(Some(text.as_bytes()), IpAddr::from([127, 0, 0, 1])).unwrap()
    }

    use AlternativeName::{Address, Dns, Uri};

    #[test]
    fn a_sip_uri_names_a_domain_and_then_dns_names_do_not_count() {
        let both = facts(&[Uri("sip:example.org"), Dns("proxy.example.org")]);
        assert!(proves(&both, &name("example.org")));
        assert!(!proves(&both, &name("proxy.example.org")));
    }

    #[test]
    fn dns_names_count_where_no_sip_uri_without_a_user_is() {
        let dns = facts(&[Uri("sip:alice@example.org"), Uri("https://example.net"), Dns("example.com")]);
        assert!(proves(&dns, &name("example.com")));
        assert!(!proves(&dns, &name("example.org")));
        assert!(!proves(&dns, &name("example.net")));
    }

    #[test]
    fn a_sips_uri_names_nobody() {
        assert!(!proves(&facts(&[Uri("sips:example.org")]), &name("example.org")));
    }

    #[test]
    fn schemes_and_names_are_compared_without_case_and_parameters() {
        assert!(proves(&facts(&[Uri("SIP:Example.ORG;transport=tls")]), &name("example.org")));
        assert!(proves(&facts(&[Uri("sip:example.org:5061")]), &name("EXAMPLE.org")));
        assert!(proves(&facts(&[Dns("Example.org")]), &name("example.org.")));
    }

    #[test]
    fn neither_suffixes_nor_wildcards_match() {
        for pattern in ["example.org", ".example.org", "*.example.org"] {
            assert!(!proves(&facts(&[Dns(pattern)]), &name("sip.example.org")), "{pattern}");
            assert!(
                !proves(&facts(&[Uri(&format!("sip:{pattern}"))]), &name("sip.example.org")),
                "{pattern}"
            );
        }
        assert!(!proves(&facts(&[Dns("sip.example.org")]), &name("example.org")));
    }

    #[test]
    fn an_address_is_proved_by_an_address_only() {
        let v4 = IpAddr::from([192, 0, 2, 1]);
        let wants = wanted(None, v4).unwrap();
        assert!(proves(&facts(&[Address(v4)]), &wants));
        assert!(!proves(&facts(&[Dns("192.0.2.1"), Uri("sip:192.0.2.1")]), &wants));
        assert!(!proves(&facts(&[Address(IpAddr::from([192, 0, 2, 2]))]), &wants));
        assert_eq!(wanted(Some(b"192.0.2.1"), IpAddr::from([127, 0, 0, 1])), Some(wants));
        let v6 = wanted(Some(b"[2001:db8::1]"), v4).unwrap();
        assert!(proves(&facts(&[Address("2001:db8::1".parse().unwrap())]), &v6));
        assert_eq!(wanted(None, "::ffff:192.0.2.1".parse().unwrap()), wanted(None, v4));
    }

    #[test]
    fn what_is_no_host_name_cannot_be_wanted() {
        let address = IpAddr::from([127, 0, 0, 1]);
        for bad in [&b"exa mple.org"[..], b"\xff\xfe", b"a..b", b"[not an address]"] {
            assert_eq!(wanted(Some(bad), address), None, "{bad:?}");
        }
        assert!(matches!(wanted(Some(b""), address), Some(ServerName::IpAddress(_))));
    }
}
