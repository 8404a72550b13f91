//! The address of a client, behind proxies that are trusted to say it.

use std::net::IpAddr;

use http::HeaderMap;
use ipnet::IpNet;

/// A text that is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("web: {text:?} is no network of addresses: write it as 10.0.0.0/8 or 2001:db8::/32")]
pub struct BadNetwork {
    /// What was given.
    pub text: String,
}

/// The proxies in front of the service, whose `X-Forwarded-For` is believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    networks: Vec<IpNet>,
}

impl TrustedProxies {
    /// No proxy: the address of a client is that of its connection.
    pub fn none() -> Self {
        Self::default()
    }

    /// The networks of the proxies, such as `10.0.0.0/8`, or single addresses.
    ///
    /// # Errors
    /// [`BadNetwork`].
    pub fn new<'a>(networks: impl IntoIterator<Item = &'a str>) -> Result<Self, BadNetwork> {
        let parsed = networks.into_iter().map(|text| {
            let single = || text.parse::<IpAddr>().map(IpNet::from);
            text.parse::<IpNet>().or_else(|_| single()).map_err(|_| BadNetwork { text: text.to_owned() })
        });
        Ok(Self { networks: parsed.collect::<Result<_, _>>()? })
    }

    fn has(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address))
    }

    /// The address of the client: the peer of the connection, or, while that is a trusted proxy, the address before
    /// it in `X-Forwarded-For`. The header may be invented left of the first address that is not a trusted proxy, so
    /// the rest is not read.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        let values: Vec<&str> =
            headers.get_all("x-forwarded-for").iter().map(|value| value.to_str().unwrap_or("?")).collect();
        let hops = values.iter().rev().flat_map(|value| value.rsplit(','));
        for hop in hops {
            if !self.has(client) {
                break;
            }
            let Some(address) = address_of(hop.trim()) else { break };
            client = address;
        }
        client
    }
}

/// The subject that an address belongs to: of IPv6 the network of 64 bits, which is one subscriber's. It is written
/// without colons, which separate the parts of a key.
pub(super) fn subject(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{a:x}-{b:x}-{c:x}-{d:x}/64")
        }
    }
}

/// An address, which some proxies write with its port.
fn address_of(hop: &str) -> Option<IpAddr> {
    let with_port = || hop.parse::<std::net::SocketAddr>().map(|address| address.ip()).ok();
    let in_brackets = || hop.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    hop.parse::<IpAddr>().ok().or_else(with_port).or_else(in_brackets).map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn client(proxies: &[&str], peer: &str, forwarded: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append("x-forwarded-for", HeaderValue::from_str(value).unwrap());
        }
        let proxies = TrustedProxies::new(proxies.iter().copied()).unwrap();
        proxies.client(peer.parse().unwrap(), &headers).to_string()
    }

    #[test]
    fn a_header_of_a_stranger_is_not_believed() {
        assert_eq!(client(&[], "203.0.113.7", &["198.51.100.1"]), "203.0.113.7");
        assert_eq!(client(&["10.0.0.0/8"], "203.0.113.7", &["198.51.100.1"]), "203.0.113.7");
    }

    #[test]
    fn the_last_address_that_no_trusted_proxy_has_is_the_client() {
        let proxies = &["10.0.0.0/8", "2001:db8::1"];
        assert_eq!(client(proxies, "10.0.0.1", &["203.0.113.7"]), "203.0.113.7");
        assert_eq!(client(proxies, "10.0.0.1", &["1.2.3.4, 203.0.113.7, 10.9.9.9"]), "203.0.113.7");
        assert_eq!(client(proxies, "10.0.0.1", &["1.2.3.4", "203.0.113.7", "10.9.9.9"]), "203.0.113.7");
        assert_eq!(client(proxies, "2001:db8::1", &["203.0.113.7:4711"]), "203.0.113.7");
        assert_eq!(client(proxies, "::ffff:10.0.0.1", &["[2001:db8::9]:80"]), "2001:db8::9");
        assert_eq!(client(proxies, "10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(client(proxies, "10.0.0.1", &["10.0.0.3, 10.0.0.2"]), "10.0.0.3");
    }

    #[test]
    fn what_is_no_address_ends_the_walk() {
        let proxies = &["10.0.0.0/8"];
        for bad in ["unknown", "", "1.2.3.4.5", "203.0.113.7,", "_hidden"] {
            assert_eq!(client(proxies, "10.0.0.1", &[bad]), "10.0.0.1", "{bad:?}");
        }
        assert_eq!(client(proxies, "10.0.0.1", &["203.0.113.7", "?, 10.0.0.2"]), "10.0.0.2");
        assert_eq!(TrustedProxies::new(["10.0.0.0/33"]), Err(BadNetwork { text: "10.0.0.0/33".to_owned() }));
    }

    #[test]
    fn a_subscriber_of_ipv6_is_one_subject() {
        let subject = |text: &str| subject(text.parse().unwrap());
        assert_eq!(subject("2001:db8:1:2:3:4:5:6"), subject("2001:db8:1:2:ffff::1"));
        assert_ne!(subject("2001:db8:1:2::1"), subject("2001:db8:1:3::1"));
        assert_eq!(subject("203.0.113.7"), "203.0.113.7");
    }
}
