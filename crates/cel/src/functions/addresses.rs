//! `ip`, `cidr` and what can be asked of addresses and networks.

use std::net::IpAddr;

use crate::error::EvaluationError;
use crate::evaluate::Context;
use crate::value::{Extension, Network, Value};

type Evaluated = Result<Value, EvaluationError>;

/// An address without a zone that is not an IPv4 address in IPv6's clothes; else the reference's explanation.
fn parse_address(text: &str) -> Result<IpAddr, String> {
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) => (address, Some(zone)),
        None => (text, None),
    };
    let parsed = address.parse::<IpAddr>().map_err(|_| {
        format!("IP Address {text:?} parse error during conversion from string: ParseAddr({text:?}): unable to parse IP")
    })?;
    if zone.is_some() {
        return Err(format!("IP address {text:?} with zone value is not allowed"));
    }
    if is_mapped(parsed) {
        return Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed"));
    }
    Ok(parsed)
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

fn parse_network(text: &str) -> Result<Network, String> {
    let refuse = |reason: &str| {
        format!(
            "network address parse error during conversion from string: netip.ParsePrefix({text:?}): {reason}"
        )
    };
    let (address, bits) = text.rsplit_once('/').ok_or_else(|| refuse("no '/'"))?;
    let address: IpAddr = address
        .parse()
        .map_err(|_| refuse(&format!("ParseAddr({address:?}): unable to parse IP")))?;
    let is_number = !bits.is_empty()
        && bits.bytes().all(|byte| byte.is_ascii_digit())
        && (bits.len() == 1 || !bits.starts_with('0'));
    if !is_number {
        return Err(refuse(&format!("bad bits after slash: {bits:?}")));
    }
    let most = if address.is_ipv4() { 32 } else { 128 };
    match bits.parse() {
        Ok(prefix) if prefix <= most => {
            if is_mapped(address) {
                return Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed"));
            }
            Ok(Network { address, prefix })
        }
        _ => Err(refuse("prefix length out of range")),
    }
}

fn text<'a>(
    context: &mut Context<'_>,
    name: &str,
    arguments: &'a [Value],
) -> Result<&'a str, EvaluationError> {
    match arguments {
        [Value::String(text)] => {
            context.budget.work_text(text.len())?;
            Ok(text)
        }
        _ => Err(EvaluationError::no_overload(name, arguments)),
    }
}

fn as_address(value: &Value) -> Option<IpAddr> {
    match value {
        Value::Extension(extension) => match **extension {
            Extension::Ip(address) => Some(address),
            _ => None,
        },
        _ => None,
    }
}

fn as_network(value: &Value) -> Option<Network> {
    match value {
        Value::Extension(extension) => match **extension {
            Extension::Cidr(network) => Some(network),
            _ => None,
        },
        _ => None,
    }
}

fn to_network(text: &str) -> Result<Network, EvaluationError> {
    parse_network(text).map_err(|reason| {
        EvaluationError::argument(format!(
            "network address parse error during conversion from string: {reason}"
        ))
    })
}

pub(super) fn ip(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let address = parse_address(text(context, "ip", arguments)?).map_err(EvaluationError::argument)?;
    Ok(Value::extension(Extension::Ip(address)))
}

pub(super) fn is_ip(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    Ok(Value::Bool(
        parse_address(text(context, "isIP", arguments)?).is_ok(),
    ))
}

pub(super) fn is_canonical(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let text = text(context, "ip.isCanonical", arguments)?;
    let address = parse_address(text).map_err(EvaluationError::argument)?;
    Ok(Value::Bool(address.to_string() == text))
}

fn asked(name: &str, arguments: &[Value], ask: impl Fn(IpAddr) -> Value) -> Evaluated {
    match arguments {
        [value] => match as_address(value) {
            Some(address) => Ok(ask(address)),
            None => Err(EvaluationError::no_overload(name, arguments)),
        },
        _ => Err(EvaluationError::no_overload(name, arguments)),
    }
}

pub(super) fn family(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    asked("family", arguments, |address| {
        Value::Int(if address.is_ipv4() { 4 } else { 6 })
    })
}

pub(super) fn is_unspecified(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    asked("isUnspecified", arguments, |address| {
        Value::Bool(address.is_unspecified())
    })
}

pub(super) fn is_loopback(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    asked("isLoopback", arguments, |address| {
        Value::Bool(address.is_loopback())
    })
}

fn link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

pub(super) fn is_link_local_unicast(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    asked("isLinkLocalUnicast", arguments, |address| {
        Value::Bool(link_local(address))
    })
}

pub(super) fn is_link_local_multicast(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    asked("isLinkLocalMulticast", arguments, |address| {
        Value::Bool(match address {
            IpAddr::V4(address) => address.octets().starts_with(&[224, 0, 0]),
            IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
        })
    })
}

pub(super) fn is_global_unicast(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    asked("isGlobalUnicast", arguments, |address| {
        let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
        Value::Bool(
            !address.is_unspecified()
                && !is_broadcast
                && !address.is_loopback()
                && !address.is_multicast()
                && !link_local(address),
        )
    })
}

pub(super) fn cidr(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let network = to_network(text(context, "cidr", arguments)?)?;
    Ok(Value::extension(Extension::Cidr(network)))
}

pub(super) fn is_cidr(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    Ok(Value::Bool(
        parse_network(text(context, "isCIDR", arguments)?).is_ok(),
    ))
}

pub(super) fn contains_ip(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let [network, other] = arguments else {
        return Err(EvaluationError::no_overload("containsIP", arguments));
    };
    let address = match other {
        Value::String(text) => {
            context.budget.work_text(text.len())?;
            Some(parse_address(text).map_err(EvaluationError::argument)?)
        }
        other => as_address(other),
    };
    match (as_network(network), address) {
        (Some(network), Some(address)) => Ok(Value::Bool(network.contains(address))),
        _ => Err(EvaluationError::no_overload("containsIP", arguments)),
    }
}

pub(super) fn contains_cidr(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let [network, other] = arguments else {
        return Err(EvaluationError::no_overload("containsCIDR", arguments));
    };
    let other = match other {
        Value::String(text) => {
            context.budget.work_text(text.len())?;
            Some(to_network(text)?)
        }
        other => as_network(other),
    };
    match (as_network(network), other) {
        (Some(network), Some(other)) => Ok(Value::Bool(network.contains_network(other))),
        _ => Err(EvaluationError::no_overload("containsCIDR", arguments)),
    }
}

fn of_network(name: &str, arguments: &[Value], ask: impl Fn(Network) -> Value) -> Evaluated {
    match arguments {
        [value] => match as_network(value) {
            Some(network) => Ok(ask(network)),
            None => Err(EvaluationError::no_overload(name, arguments)),
        },
        _ => Err(EvaluationError::no_overload(name, arguments)),
    }
}

pub(super) fn prefix_length(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    of_network("prefixLength", arguments, |network| {
        Value::Int(i64::from(network.prefix))
    })
}

pub(super) fn masked(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    of_network("masked", arguments, |network| {
        Value::extension(Extension::Cidr(network.masked()))
    })
}

/// The address of a network, as a member function.
pub(super) fn address(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    of_network("ip", arguments, |network| {
        Value::extension(Extension::Ip(network.address))
    })
}
