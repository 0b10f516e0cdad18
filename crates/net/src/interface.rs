//! The machine's own addresses, for `listen=udp:eth0:5060` and for listeners on wildcard addresses.

use std::io;
use std::net::IpAddr;

/// One address of one network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The interface's name, such as `eth0`.
    pub name: String,
    /// The address.
    pub address: IpAddr,
}

/// Every address of every interface that is up, link-local IPv6 ones left out (they need a scope to be of use).
///
/// # Errors
///
/// What the system said when asked for them.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut found: Vec<Interface> = crate::sys::interface_addresses()?
        .into_iter()
        .filter(|(_, address)| !is_link_local(address))
        .map(|(name, address)| Interface { name, address })
        .collect();
    found.dedup();
    Ok(found)
}

fn is_link_local(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}
