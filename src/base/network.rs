//! Networks by their addresses, as in `10.0.0.0/8` or `fd00::/8`.

use core::fmt::{self, Display};
use std::net::IpAddr;

/// All addresses that begin with the same bits. A single address is a network too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Bits behind the prefix are 0.
    address: IpAddr,
    /// Up to 32 with IPv4, up to 128 with IPv6.
    prefix_len: u32,
}

impl Network {
    /// Reads an address, or an address, a slash and how many of its first bits count. `None` for
    /// anything else; other bits of the address are ignored.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = str::from_utf8(text).ok()?;
        let (address, prefix_len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix_len = match prefix_len {
            Some(len) if len.bytes().all(|c| c.is_ascii_digit()) => len.parse().ok()?,
            Some(_) => return None,
            None => most,
        };
        (prefix_len <= most).then(|| Self { address: prefix(address, prefix_len), prefix_len })
    }

    /// Whether an address belongs to it. An IPv4 address in the form of IPv6 (`::ffff:1.2.3.4`) is
    /// taken for what it is.
    pub fn contains(&self, address: IpAddr) -> bool {
        prefix(address.to_canonical(), self.prefix_len) == self.address
            && address.to_canonical().is_ipv4() == self.address.is_ipv4()
    }
}

/// An address with nothing but its first bits.
fn prefix(address: IpAddr, len: u32) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let behind = 32_u32.saturating_sub(len);
            let kept = u32::MAX.checked_shl(behind).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & kept).into())
        }
        IpAddr::V6(v6) => {
            let behind = 128_u32.saturating_sub(len);
            let kept = u128::MAX.checked_shl(behind).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & kept).into())
        }
    }
}

/// As [`Network::parse`] reads it.
impl Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, address: &str) -> bool {
        let network = Network::parse(network.as_bytes()).expect(network);
        network.contains(address.parse().expect(address))
    }

    #[test]
    fn the_first_bits_decide() {
        assert!(contains("10.0.0.0/8", "10.255.1.2") && !contains("10.0.0.0/8", "11.0.0.0"));
        assert!(contains("10.1.2.3/31", "10.1.2.2") && !contains("10.1.2.3/31", "10.1.2.4"));
        assert!(contains("10.1.2.3", "10.1.2.3") && !contains("10.1.2.3", "10.1.2.2"));
        assert!(contains("0.0.0.0/0", "255.1.2.3"));
        assert!(contains("fd00::/8", "fdff::1") && !contains("fd00::/8", "fe00::1"));
        assert!(contains("::/0", "fe80::1") && contains("::1", "::1") && !contains("::1", "::2"));
    }

    #[test]
    fn families_are_apart_and_an_embedded_ipv4_address_is_one() {
        assert!(!contains("0.0.0.0/0", "::1") && !contains("::/0", "1.2.3.4"));
        assert!(contains("1.2.3.0/24", "::ffff:1.2.3.4") && !contains("::/0", "::ffff:1.2.3.4"));
    }

    #[test]
    fn what_is_shown_can_be_read_and_nonsense_cannot() {
        for (text, shown) in [
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("10.1.2.3", "10.1.2.3/32"),
            ("fd00::1/8", "fd00::/8"),
            ("1.2.3.4/0", "0.0.0.0/0"),
            ("::1", "::1/128"),
        ] {
            let network = Network::parse(text.as_bytes()).expect(text);
            assert_eq!(network.to_string(), shown);
            assert_eq!(Network::parse(shown.as_bytes()), Some(network));
        }
        for text in ["", "x", "1.2.3", "1.2.3.4/33", "::/129", "1.2.3.4/", "1.2.3.4/+8", "/8"] {
            assert_eq!(Network::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Network::parse(b"\xff"), None);
    }
}
