//! What the values of options mean: times, rates, delays, shapes, targets, source addresses, weights.
//!
//! Every parser here is pure and answers a bad value with one sentence that says what would be right; `clap` puts the
//! option's name in front of it. Ranges that depend on more than one option are checked in [`super::workload`].

use crate::spec::{Delay, Scenario, Shape, Transport};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

/// Longest time that an option takes: a day.
pub(super) const LONGEST: Duration = Duration::from_secs(86_400);
/// Highest rate that an option takes, operations a second.
pub(super) const RATE_MAX: f64 = 10_000_000.0;
/// Most operations of one burst.
pub(super) const BURST_MAX: u32 = 100_000;
/// Most source addresses of one host.
pub(super) const SOURCES_MAX: usize = 256;
/// Most classes of one mix.
pub(super) const CLASSES_MAX: usize = 16;
/// Most overload factors of one search.
pub(super) const FACTORS_MAX: usize = 8;
/// Where an exponential delay without a given limit is cut off, as a multiple of its mean: one draw in 22,000 is
/// longer.
const EXPONENTIAL_CUT: u32 = 10;
/// A time with its unit: `500ms`, `30s`, `2m`, `1h`; at most a day.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let wanted = || format!("{text:?} is no time: write it with its unit, as in 500ms, 30s or 2m");
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wanted)?;
    let (number, unit) = text.split_at(unit_at);
    let unit_s = match unit {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(wanted()),
    };
    let seconds = number.parse::<f64>().map_err(|_| wanted())? * unit_s;
    if seconds > LONGEST.as_secs_f64() {
        return Err(format!("{text} is longer than a day, the longest time allowed"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// A time above zero.
pub(super) fn positive_duration(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time.is_zero() { Err("it must be longer than nothing".into()) } else { Ok(time) }
}

/// Operations a second: `500`, `0.5`, `2.5k`, `1M`; above zero.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let (number, factor) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1e3),
        None => text.strip_suffix('M').map_or((text, 1.0), |number| (number, 1e6)),
    };
    let rate = number.parse::<f64>().map(|number| number * factor).ok().filter(|rate| rate.is_finite());
    match rate {
        None => Err(format!("{text:?} is no rate: write operations a second, as in 500, 0.5 or 2k")),
        Some(rate) if rate <= 0.0 => Err("a rate must be above zero".into()),
        Some(rate) if rate > RATE_MAX => {
            Err(format!("{text} is above 10M a second, the highest rate allowed"))
        }
        Some(rate) => Ok(rate),
    }
}

/// Rates with commas between them, in the order given.
pub(super) fn rates(text: &str) -> Result<Vec<f64>, String> {
    text.split(',').map(|one| rate(one.trim())).collect()
}

/// A share: `2%` or `0.02`; from 0.1 % to 50 %.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse::<f64>(),
    };
    match number {
        Ok(share) if (0.001..=0.5).contains(&share) => Ok(share),
        Ok(_) => Err(format!("{text} is not between 0.1% and 50%")),
        Err(_) => Err(format!("{text:?} is no share: write it as 2% or 0.02")),
    }
}

/// Multiples of the peak with commas between them, each above 1 and at most 10.
pub(super) fn factors(text: &str) -> Result<Vec<f64>, String> {
    let factors = text
        .split(',')
        .map(|one| match one.trim().parse::<f64>() {
            Ok(factor) if factor > 1.0 && factor <= 10.0 => Ok(factor),
            _ => Err(format!("{one:?} is no multiple of the peak above 1 and up to 10")),
        })
        .collect::<Result<Vec<f64>, String>>()?;
    if factors.len() > FACTORS_MAX {
        return Err(format!("at most {FACTORS_MAX} multiples of the peak can be tried"));
    }
    Ok(factors)
}

/// A delay: `8s`, `exp:8.5s` (exponential with this mean), `exp:8.5s:38s` (never longer than this), `none`.
pub(super) fn delay(text: &str) -> Result<Delay, String> {
    if text == "none" {
        return Ok(Delay::None);
    }
    let Some(exponential) = text.strip_prefix("exp:") else {
        let time = duration(text)?;
        return Ok(if time.is_zero() { Delay::None } else { Delay::Constant(time) });
    };
    let (mean, max) = match exponential.split_once(':') {
        Some((mean, max)) => (positive_duration(mean)?, duration(max)?),
        None => {
            let mean = positive_duration(exponential)?;
            (mean, mean * EXPONENTIAL_CUT)
        }
    };
    // A cut below the mean would be drawn again more often than not, and the mean would no longer mean anything.
    if max < mean {
        return Err(format!("in {text:?} the longest time is below the mean"));
    }
    Ok(Delay::Exponential { mean, max })
}

/// How operations follow each other: `poisson`, `uniform`, `burst:N`, `ramp:FROM`.
pub(super) fn shape(text: &str) -> Result<Shape, String> {
    match text.split_once(':') {
        None if text == "poisson" => Ok(Shape::Poisson),
        None if text == "uniform" => Ok(Shape::Uniform),
        Some(("burst", size)) => match size.parse::<u32>() {
            Ok(size) if (1..=BURST_MAX).contains(&size) => Ok(Shape::Burst { size }),
            _ => Err(format!("{size:?} is no size of a burst from 1 to {BURST_MAX}")),
        },
        Some(("ramp", from)) => Ok(Shape::Ramp { from: rate(from)? }),
        _ => Err(format!("{text:?} is no shape: there are poisson, uniform, burst:N and ramp:FROM")),
    }
}

/// The target as it was written, before its name is looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TargetName {
    /// Name or address, an IPv6 address without brackets.
    pub host: String,
    /// The port, if one was written.
    pub port: Option<u16>,
    /// The transport, if one was written.
    pub transport: Option<Transport>,
}

impl TargetName {
    /// Host and, if it was written, port, as they stand in a URI: `[::1]:5060`.
    #[must_use]
    pub(super) fn domain(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        match self.port {
            Some(port) => format!("{host}:{port}"),
            None => host,
        }
    }

    /// Looks the name up; of several addresses, the first. Without a port, the one of `transport`.
    ///
    /// # Errors
    /// The name is not known, or the resolver did not answer.
    pub(super) fn resolve(&self, transport: Transport) -> Result<SocketAddr, String> {
        let port = self.port.unwrap_or(transport.default_port());
        let mut found = (self.host.as_str(), port)
            .to_socket_addrs()
            .map_err(|error| format!("the target {} cannot be found: {error}", self.host))?;
        found.next().ok_or_else(|| format!("the target {} has no address", self.host))
    }
}

impl FromStr for TargetName {
    type Err = String;

    /// `HOST`, `HOST:PORT`, `[::1]:5060`, `sip:HOST[:PORT][;transport=tcp]`, `sips:HOST[:PORT]`.
    fn from_str(text: &str) -> Result<TargetName, String> {
        let (uri, secure) = match text.strip_prefix("sips:") {
            Some(uri) => (uri, true),
            None => (text.strip_prefix("sip:").unwrap_or(text), false),
        };
        let (place, parameters) = uri.split_once(';').unwrap_or((uri, ""));
        let mut named = secure.then_some(Transport::Tls);
        for parameter in parameters.split(';').filter(|one| !one.is_empty()) {
            named = match parameter.split_once('=') {
                Some(("transport", value)) => Some(secured(transport(value)?, secure)),
                _ => return Err(format!("the parameter {parameter:?} is not known: only transport is")),
            };
        }
        if place.contains('@') {
            return Err(format!("{text:?} has a user part: a target is a server, HOST or HOST:PORT"));
        }
        let (host, port) = host_and_port(place).ok_or_else(|| {
            format!("{text:?} is no target: write HOST, HOST:PORT, [::1]:5060 or sip:HOST:PORT")
        })?;
        Ok(TargetName { host, port, transport: named })
    }
}

/// A transport by its name.
pub(super) fn transport(text: &str) -> Result<Transport, String> {
    let known = [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Ws, Transport::Wss];
    known.into_iter().find(|transport| text.eq_ignore_ascii_case(transport.id())).ok_or_else(|| {
        format!("{text:?} is no transport that is supported: there are udp, tcp, tls, ws and wss")
    })
}

/// What a `sips:` URI makes of a transport (RFC 3261 §26.2.2, RFC 7118 §5.2).
fn secured(transport: Transport, secure: bool) -> Transport {
    match transport {
        Transport::Tcp if secure => Transport::Tls,
        Transport::Ws if secure => Transport::Wss,
        transport => transport,
    }
}

/// Splits host and port; `None` if it is neither.
fn host_and_port(text: &str) -> Option<(String, Option<u16>)> {
    let port = |digits: &str| digits.parse::<u16>().ok().filter(|port| *port > 0);
    if let Some(rest) = text.strip_prefix('[') {
        let (address, rest) = rest.split_once(']')?;
        address.parse::<Ipv6Addr>().ok()?;
        return match rest.strip_prefix(':') {
            Some(digits) => Some((address.into(), Some(port(digits)?))),
            None => rest.is_empty().then(|| (address.into(), None)),
        };
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Some((text.into(), None));
    }
    let (host, digits) = text.split_once(':').map_or((text, None), |(host, digits)| (host, Some(digits)));
    let named = !host.is_empty()
        && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
    if !named {
        return None;
    }
    match digits {
        Some(digits) => Some((host.into(), Some(port(digits)?))),
        None => Some((host.into(), None)),
    }
}

/// Addresses to send from: single ones and ranges `A-B`, with commas between them; at most 256.
pub(super) fn sources(text: &str) -> Result<Vec<IpAddr>, String> {
    let address = |text: &str| {
        text.trim()
            .parse::<IpAddr>()
            .map_err(|_| format!("{text:?} is no IP address: write 127.0.0.1 or 10.0.0.1-10.0.0.9"))
    };
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (address(first)?, address(last)?),
            None => (address(part)?, address(part)?),
        };
        let (low, high) = match (first, last) {
            (IpAddr::V4(low), IpAddr::V4(high)) => (u128::from(low.to_bits()), u128::from(high.to_bits())),
            (IpAddr::V6(low), IpAddr::V6(high)) => (low.to_bits(), high.to_bits()),
            _ => {
                return Err(format!(
                    "the range {part:?} begins with one family of addresses and ends with the other"
                ));
            }
        };
        if high < low {
            return Err(format!("the range {part:?} ends before it begins"));
        }
        if high - low >= SOURCES_MAX as u128 || all.len() >= SOURCES_MAX {
            return Err(format!("{text:?} has more than {SOURCES_MAX} addresses"));
        }
        all.extend((low..=high).map(|bits| match (first, u32::try_from(bits)) {
            (IpAddr::V4(_), Ok(bits)) => IpAddr::V4(Ipv4Addr::from_bits(bits)),
            _ => IpAddr::V6(Ipv6Addr::from_bits(bits)),
        }));
    }
    if all.len() > SOURCES_MAX {
        return Err(format!("{text:?} has more than {SOURCES_MAX} addresses"));
    }
    Ok(all)
}

/// Weights of scenarios: `invite=7,register=3`.
pub(super) fn weights(text: &str) -> Result<Vec<(Scenario, f64)>, String> {
    let mut all: Vec<(Scenario, f64)> = Vec::new();
    for part in text.split(',') {
        let (id, weight) = part.split_once('=').ok_or_else(|| {
            format!("{part:?} is no weight: write SCENARIO=WEIGHT, as in invite=7,register=3")
        })?;
        let scenario = scenario(id.trim())?;
        let weight = weight.trim().parse::<f64>().ok().filter(|weight| weight.is_finite() && *weight > 0.0);
        let weight = weight.ok_or_else(|| format!("the weight in {part:?} is no number above zero"))?;
        if all.iter().any(|(other, _)| *other == scenario) {
            return Err(format!("{} stands in the mix twice", scenario.facts().id));
        }
        all.push((scenario, weight));
    }
    if all.len() > CLASSES_MAX {
        return Err(format!("a mix has at most {CLASSES_MAX} scenarios"));
    }
    Ok(all)
}

/// A scenario by its id.
pub(super) fn scenario(id: &str) -> Result<Scenario, String> {
    Scenario::of_id(id).ok_or_else(|| {
        let known: Vec<&str> = crate::scenario::ALL.iter().map(|scenario| scenario.facts().id).collect();
        format!("no scenario is called {id:?}; there are {}", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_need_a_unit() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("24h"), Ok(LONGEST));
        assert!(duration("30").unwrap_err().contains("unit"));
        for bad in ["", "s", "1x", "-1s", "1.2.3s", "25h", "1e9s", "nans"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert!(positive_duration("0s").is_err());
    }

    #[test]
    fn rates_take_thousands() {
        assert_eq!(rate("500"), Ok(500.0));
        assert_eq!(rate("2.5k"), Ok(2500.0));
        assert_eq!(rate("1M"), Ok(1_000_000.0));
        for bad in ["0", "-5", "nan", "inf", "1kk", "fast", "", "11M"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
        assert_eq!(rates("1k, 2k"), Ok(vec![1000.0, 2000.0]));
    }

    #[test]
    fn shares_and_factors_are_bounded() {
        assert_eq!(share("2%"), Ok(0.02));
        assert_eq!(share("0.05"), Ok(0.05));
        assert!(share("60%").is_err() && share("0").is_err() && share("x").is_err());
        assert_eq!(factors("1.1,1.5,2"), Ok(vec![1.1, 1.5, 2.0]));
        assert!(factors("1").is_err() && factors("2,x").is_err() && factors("2,2,2,2,2,2,2,2,2").is_err());
    }

    #[test]
    fn delays_are_constant_or_exponential() {
        let s = Duration::from_secs;
        assert_eq!(delay("8s"), Ok(Delay::Constant(s(8))));
        assert_eq!(delay("0s"), Ok(Delay::None));
        assert_eq!(delay("exp:2s"), Ok(Delay::Exponential { mean: s(2), max: s(20) }));
        assert_eq!(delay("exp:8s:38s"), Ok(Delay::Exponential { mean: s(8), max: s(38) }));
        assert!(delay("exp:8s:2s").is_err() && delay("exp:0s").is_err() && delay("soon").is_err());
    }

    #[test]
    fn shapes_check_their_numbers() {
        assert_eq!(shape("burst:50"), Ok(Shape::Burst { size: 50 }));
        assert_eq!(shape("ramp:1k"), Ok(Shape::Ramp { from: 1000.0 }));
        assert!(shape("burst:0").is_err() && shape("ramp:0").is_err() && shape("sine").is_err());
    }

    #[test]
    fn targets_are_hosts_ports_and_uris() {
        let target = |text: &str| text.parse::<TargetName>();
        let of = |host: &str, port| Ok(TargetName { host: host.into(), port, transport: None });
        let over = |text: &str| target(text).unwrap().transport;
        assert_eq!(target("127.0.0.1:5070"), of("127.0.0.1", Some(5070)));
        assert_eq!(target("sip.example.com"), of("sip.example.com", None));
        assert_eq!(target("sip:10.0.0.1"), of("10.0.0.1", None));
        assert_eq!(over("sip:10.0.0.1;transport=UDP"), Some(Transport::Udp));
        assert_eq!(over("10.0.0.1:5061;transport=tls"), Some(Transport::Tls));
        assert_eq!(over("sips:10.0.0.1"), Some(Transport::Tls));
        assert_eq!(over("sips:10.0.0.1;transport=ws"), Some(Transport::Wss));
        assert_eq!(target("[::1]:5060"), of("::1", Some(5060)));
        assert_eq!(target("::1"), of("::1", None));
        assert_eq!(target("::1").unwrap().domain(), "[::1]");
        assert_eq!(target("[::1]:99").unwrap().domain(), "[::1]:99");
        assert_eq!(
            target("127.0.0.1:5070").unwrap().resolve(Transport::Tls).unwrap().to_string(),
            "127.0.0.1:5070"
        );
        assert_eq!(target("[::1]").unwrap().resolve(Transport::Udp).unwrap().to_string(), "[::1]:5060");
    }

    #[test]
    fn other_targets_say_what_is_wrong() {
        let error = |text: &str| text.parse::<TargetName>().unwrap_err();
        assert!(error("sip:h;transport=sctp").contains("tcp, tls, ws and wss"));
        assert!(error("sip:bob@h").contains("user part"));
        assert!(error("sip:h;lr").contains("not known"));
        for bad in ["", "sip:", ":5060", "h:", "h:0", "h:70000", "[::1", "[x]:5060", "a b", "h:5060:1"] {
            assert!(bad.parse::<TargetName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn sources_are_ranges_with_a_limit() {
        assert_eq!(sources("127.0.0.1-127.0.0.3,10.0.0.1").unwrap().len(), 4);
        assert_eq!(sources("::1-::3").unwrap().len(), 3);
        assert_eq!(sources("10.0.0.0-10.0.0.255").unwrap().len(), 256);
        for bad in ["", "x", "10.0.0.9-10.0.0.1", "10.0.0.1-::1", "10.0.0.0-10.0.1.0", "::-ffff::"] {
            assert!(sources(bad).is_err(), "{bad}");
        }
        assert!(sources("10.0.0.0-10.0.0.255,10.0.1.1").is_err());
    }

    #[test]
    fn weights_name_known_scenarios_once() {
        assert_eq!(
            weights("invite=7, register=3"),
            Ok(vec![(Scenario::Invite, 7.0), (Scenario::Register, 3.0)])
        );
        assert!(weights("dance=1").unwrap_err().contains("invite-notfound"));
        for bad in ["invite", "invite=0", "invite=x", "invite=1,invite=2", ""] {
            assert!(weights(bad).is_err(), "{bad}");
        }
    }
}
