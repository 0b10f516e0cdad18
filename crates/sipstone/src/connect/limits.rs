//! Whether ports and descriptors suffice, before anything is opened.
//!
//! A connection is told from others by both addresses and both ports, so one source address has as many
//! connections to one target as it has ports: by Linux's default about 28,000.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Descriptors for everything else.
const OTHERS: u64 = 64;

/// Ports of a source that are left to other programs.
const PORTS_LEFT: u32 = 64;

/// What cannot be had; the sentence says how it can.
pub type Lack = String;

/// Lets this process open so many connections, by raising its soft limit of descriptors if need be.
///
/// # Errors
/// The hard limit is below.
pub fn descriptors(connections: u32) -> Result<(), Lack> {
    let wanted = u64::from(connections) + OTHERS;
    let cannot = |what: &str| {
        format!(
            "{connections} connections need {wanted} descriptors, and {what}: raise the limit (`ulimit -n {wanted}` as root, \
             LimitNOFILE of a service), or take fewer connections"
        )
    };
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(|error| cannot(&error.to_string()))?;
    if soft >= wanted {
        return Ok(());
    }
    // Root may raise the hard limit too.
    let raised = setrlimit(Resource::RLIMIT_NOFILE, wanted, hard.max(wanted));
    raised.map_err(|_| cannot(&format!("this process may have {hard}")))
}

/// The ports that the system gives to one source address.
#[must_use]
pub fn ports_of_a_source() -> u32 {
    std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|text| ports(&text))
        .unwrap_or(28_232)
}

fn ports(range: &str) -> Option<u32> {
    let mut ends = range.split_whitespace().map(str::parse::<u32>);
    let (low, high) = (ends.next()?.ok()?, ends.next()?.ok()?);
    (high >= low).then(|| high - low + 1)
}

/// The source addresses for so many connections: those given, if they have the ports; on loopback, where every
/// address of 127.0.0.0/8 is one's own, as many as it takes.
///
/// # Errors
/// Too few ports.
pub fn sources(
    target: SocketAddr,
    connections: u32,
    given: &[IpAddr],
    route: IpAddr,
    ports: u32,
) -> Result<Vec<IpAddr>, Lack> {
    let usable = ports.saturating_sub(PORTS_LEFT).max(1);
    let needed = connections.div_ceil(usable).max(1);
    let loopback = matches!(target.ip(), IpAddr::V4(ip) if ip.is_loopback());
    let sources = if !given.is_empty() {
        given.to_vec()
    } else if loopback && needed > 1 {
        let first = u32::from(Ipv4Addr::new(127, 0, 0, 1));
        (0..needed).map(|n| IpAddr::V4(Ipv4Addr::from(first + n))).collect()
    } else {
        vec![route]
    };
    let have = u32::try_from(sources.len()).unwrap_or(u32::MAX);
    if have >= needed {
        return Ok(sources);
    }
    Err(format!(
        "{connections} connections need {needed} source addresses, for each has {usable} ports to one target: give {needed} with \
         --source (first add them to this host), or widen net.ipv4.ip_local_port_range"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed(connections: u32, target: &str, given: &[&str]) -> Result<usize, Lack> {
        let target: SocketAddr = target.parse().unwrap();
        let given: Vec<IpAddr> = given.iter().map(|ip| ip.parse().unwrap()).collect();
        sources(target, connections, &given, target.ip(), 28_232).map(|list| list.len())
    }

    #[test]
    fn ports_of_a_range_are_counted_with_both_ends() {
        assert_eq!(ports("32768\t60999\n"), Some(28_232));
        assert_eq!(ports("5 5"), Some(1));
        assert_eq!((ports("9 5"), ports("x"), ports("")), (None, None, None));
        assert!(ports_of_a_source() > 0);
    }

    #[test]
    fn loopback_has_as_many_sources_as_it_takes() {
        assert_eq!(needed(28_000, "127.0.0.1:5060", &[]), Ok(1));
        assert_eq!(needed(50_000, "127.0.0.1:5060", &[]), Ok(2));
        assert_eq!(needed(1_000_000, "127.0.0.1:5060", &[]), Ok(36));
    }

    #[test]
    fn too_few_ports_elsewhere_are_told_with_the_remedy() {
        let error = needed(50_000, "192.0.2.1:5060", &[]).unwrap_err();
        assert!(error.contains("need 2 source addresses") && error.contains("--source"), "{error}");
        assert!(needed(50_000, "127.0.0.1:5060", &["127.0.0.9"]).is_err(), "given ones are not added to");
        assert_eq!(needed(50_000, "192.0.2.1:5060", &["192.0.2.2", "192.0.2.3"]), Ok(2));
        assert_eq!(needed(50_000, "[::1]:5060", &["::1", "::2"]), Ok(2));
    }

    #[test]
    fn descriptors_that_nobody_may_have_are_refused() {
        assert!(descriptors(1).is_ok());
        // The kernel's own ceiling (fs.nr_open) is below this.
        let error = descriptors(u32::MAX).unwrap_err();
        assert!(error.contains("ulimit -n"), "{error}");
    }
}
