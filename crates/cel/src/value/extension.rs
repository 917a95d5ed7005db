//! Values of Kubernetes' libraries.

use std::net::IpAddr;

use super::{Access, LazyFields, Quantity, Type, Url, Version};
use crate::functions::NamedFormat;

/// A value that only functions of Kubernetes' libraries make.
#[derive(Clone, Debug, PartialEq)]
pub enum Extension {
    /// `kubernetes.URL`
    Url(Url),
    /// `net.IP`
    Ip(IpAddr),
    /// `net.CIDR`
    Cidr(Network),
    /// `kubernetes.Quantity`
    Quantity(Quantity),
    /// `kubernetes.Semver`
    Version(Version),
    /// `kubernetes.NamedFormat`
    Format(&'static NamedFormat),
    /// A value of the authorisation library
    Access(Access),
    /// An object whose fields are found out when they are asked for
    Fields(LazyFields),
}

impl Extension {
    pub(crate) fn type_of(&self) -> Type {
        match self {
            Extension::Url(_) => Type::Url,
            Extension::Ip(_) => Type::Ip,
            Extension::Cidr(_) => Type::Cidr,
            Extension::Quantity(_) => Type::Quantity,
            Extension::Version(_) => Type::Version,
            Extension::Format(_) => Type::Format,
            Extension::Access(access) => access.type_of(),
            Extension::Fields(_) => Type::Fields,
        }
    }

    /// How many elements the cost model counts: the bytes of an address, one for everything else.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Extension::Ip(IpAddr::V4(_)) => 4,
            Extension::Ip(IpAddr::V6(_)) => 16,
            Extension::Cidr(network) => u64::from(network.prefix).div_ceil(8),
            _ => 1,
        }
    }
}

/// A network: an address and how many of its bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The address as it was written, with the bits that do not count.
    pub address: IpAddr,
    /// How many bits count.
    pub prefix: u8,
}

impl Network {
    /// The address without the bits that do not count.
    pub(crate) fn masked(self) -> Self {
        let address = match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX
                    .checked_shl(32_u32.saturating_sub(u32::from(self.prefix)))
                    .unwrap_or(0);
                IpAddr::from((u32::from(address) & mask).to_be_bytes())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX
                    .checked_shl(128_u32.saturating_sub(u32::from(self.prefix)))
                    .unwrap_or(0);
                IpAddr::from((u128::from(address) & mask).to_be_bytes())
            }
        };
        Self { address, ..self }
    }

    /// Whether an address lies in the network.
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        let other = Self { address, ..self };
        self.address.is_ipv4() == address.is_ipv4() && self.masked() == other.masked()
    }

    /// Whether a whole network lies in the network.
    pub(crate) fn contains_network(self, other: Self) -> bool {
        self.prefix <= other.prefix && self.contains(other.address)
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.address, self.prefix)
    }
}
