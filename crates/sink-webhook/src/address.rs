//! The table of addresses that are not public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range of addresses, such as `10.0.0.0/8`, `fd00::/8`, or one address.
///
/// ```
/// use keylane_webhook::Network;
///
/// let network: Network = "10.0.0.0/8".parse()?;
/// assert!(network.contains("10.1.2.3".parse()?) && !network.contains("11.0.0.1".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    base: IpAddr,
    bits: u32,
}

/// The text is not a range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no range of addresses: write one such as 10.0.0.0/8 or fd00::/8, or a single address")]
#[non_exhaustive]
pub struct NetworkError {
    /// The text.
    pub text: String,
}

impl Network {
    /// Whether the address is in this range. An IPv4 address in IPv6 form counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let shift = |width: u32| width - self.bits;
        match (self.base, address.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                (base.to_bits() ^ address.to_bits()).checked_shr(shift(32)).unwrap_or(0) == 0
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                (base.to_bits() ^ address.to_bits()).checked_shr(shift(128)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl std::str::FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let error = || NetworkError { text: text.to_owned() };
        let (base, bits) = text.split_once('/').map_or((text, None), |(base, bits)| (base, Some(bits)));
        let base: IpAddr = base.parse().map_err(|_| error())?;
        let width = if base.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(width), str::parse).map_err(|_| error())?;
        if bits > width { Err(error()) } else { Ok(Self { base, bits }) }
    }
}

/// The kind of an address that is not public, or `None` for a public address. An IPv4 address within an IPv6
/// address (mapped, translated, 6to4) counts as that IPv4 address.
pub fn not_public(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => not_public_v4(address),
        IpAddr::V6(address) => not_public_v6(address),
    }
}

fn not_public_v4(address: Ipv4Addr) -> Option<&'static str> {
    Some(match address.octets() {
        [0, ..] => "of this network",
        [127, ..] => "a loopback address",
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => "a private address",
        [100, 64..=127, ..] => "an address of carrier-grade NAT",
        [169, 254, ..] => "a link-local address",
        // One cloud serves its metadata at an address that is public elsewhere.
        [168, 63, 129, 16] => "an address of cloud metadata",
        [192, 0, 0, _] => "an address for protocols",
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => "an address for documentation",
        [198, 18..=19, ..] => "an address for benchmarks",
        [224..=239, ..] => "a multicast address",
        [240..=255, ..] => "a reserved address",
        _ => return None,
    })
}

fn not_public_v6(address: Ipv6Addr) -> Option<&'static str> {
    let part = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    Some(match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => "of this network",
        [0, 0, 0, 0, 0, 0, 0, 1] => "a loopback address",
        // Mapped and compatible IPv4 addresses, and those of NAT64.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => return not_public_v4(part(high, low)),
        [0x2002, high, low, ..] => return not_public_v4(part(high, low)),
        [0x64, 0xff9b, ..] => "an address that is translated",
        [0x2001, 0, ..] => "an address of Teredo",
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => "an address for documentation",
        [0x100, 0, 0, 0, ..] => "an address that is discarded",
        [0xfc00..=0xfdff, ..] => "a unique local address",
        [0xfe80..=0xfebf, ..] => "a link-local address",
        [0xfec0..=0xfeff, ..] => "a site-local address",
        [0xff00..=0xffff, ..] => "a multicast address",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_public_is_known() {
        let table = [
            ("127.0.0.1", true),
            ("127.255.255.254", true),
            ("0.0.0.0", true),
            ("10.0.0.1", true),
            ("172.15.255.255", false),
            ("172.16.0.1", true),
            ("172.31.255.255", true),
            ("172.32.0.1", false),
            ("192.168.1.1", true),
            ("169.254.169.254", true),
            ("168.63.129.16", true),
            ("100.63.255.255", false),
            ("100.64.0.1", true),
            ("100.100.100.200", true),
            ("192.0.0.192", true),
            ("224.0.0.1", true),
            ("255.255.255.255", true),
            ("1.1.1.1", false),
            ("93.184.216.34", false),
            ("::", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("::ffff:169.254.169.254", true),
            ("::ffff:1.1.1.1", false),
            ("::127.0.0.1", true),
            ("::ffff:0:10.0.0.1", true),
            ("64:ff9b::10.0.0.1", true),
            ("64:ff9b::1.1.1.1", false),
            ("64:ff9b:1::1", true),
            ("2002:7f00:1::", true),
            ("2002:101:101::", false),
            ("2001:0:1::", true),
            ("fd00:ec2::254", true),
            ("fe80::1", true),
            ("fec0::1", true),
            ("ff02::1", true),
            ("2606:4700:4700::1111", false),
        ];
        for (address, refused) in table {
            assert_eq!(not_public(address.parse().unwrap()).is_some(), refused, "{address}");
        }
    }

    #[test]
    fn a_range_contains_its_addresses() {
        let table = [
            ("127.0.0.0/8", "127.9.9.9", true),
            ("127.0.0.0/8", "::ffff:127.0.0.1", true),
            ("127.0.0.0/8", "128.0.0.1", false),
            ("0.0.0.0/0", "10.0.0.1", true),
            ("0.0.0.0/0", "::1", false),
            ("10.0.0.7", "10.0.0.7", true),
            ("10.0.0.7", "10.0.0.6", false),
            ("fd00::/8", "fdff::1", true),
            ("::/0", "fe80::1", true),
            ("::1", "::1", true),
        ];
        for (network, address, expected) in table {
            let network: Network = network.parse().unwrap();
            assert_eq!(network.contains(address.parse().unwrap()), expected, "{network:?} {address}");
        }
        for text in ["", "10.0.0.0/33", "10.0.0.0/", "x/8", "::/129", "10.0.0.0/-1"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
