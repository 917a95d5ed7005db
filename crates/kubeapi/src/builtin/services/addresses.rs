//! The addresses of Services, and the versions they are of. Requirement KA-010.

use serde_json::{Value, json};

use crate::{
    builtin::validation::{Field, services::check_addresses},
    field::{FieldError, FieldPath},
};

/// `10.96.0.0/12`, the range that clusters use by default.
const RANGE_START: u32 = 0x0A60_0000;
const RANGE_SIZE: u32 = 1 << 20;
/// The first addresses belong to the API server and the name service.
const RESERVED: u32 = 16;

/// Gives a Service that needs an address one, or checks that the one it asks for is free. `in_use` tells whether another
/// Service has an address. The choice depends on the Service's name, so that a Service made again gets its address again
/// if that is still free.
///
/// A Service that has one keeps it, which `old` tells.
///
/// # Errors
/// If what is asked for is no address, lies outside the range or is taken, if no address is left, or if addresses of a
/// version are wanted that there is not.
pub fn allocate(
    service: &mut Value,
    old: Option<&Value>,
    in_use: impl Fn(&str) -> bool,
) -> Result<(), Vec<FieldError>> {
    let at = FieldPath::of("spec.clusterIPs");
    let before = old.map(|old| Field::of(old, "spec"));
    let mut errors = Vec::new();
    if let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut)
        && !spec.contains_key("clusterIPs")
        && let Some(address) = spec.get("clusterIP").filter(|address| **address != "").cloned()
    {
        spec.insert("clusterIPs".to_owned(), json!([address]));
    }
    check_addresses(&Field::of(service, "spec"), before.as_ref(), &mut errors);
    if !errors.is_empty() {
        return Err(errors);
    }
    settle_families(service, old)?;
    let has_address = |spec: &Field<'_>| spec.text_of("type") != "ExternalName" && spec.has("clusterIPs");
    if before.as_ref().is_some_and(has_address) {
        return Ok(());
    }
    let seed = format!(
        "{}/{}",
        service
            .pointer("/metadata/namespace")
            .and_then(Value::as_str)
            .unwrap_or_default(),
        service
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default()
    );
    let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) else {
        return Ok(());
    };
    if spec.get("type").and_then(Value::as_str) == Some("ExternalName") {
        return Ok(());
    }
    let first = |value: Option<&Value>| match value {
        Some(Value::Array(list)) => list
            .first()
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        Some(Value::String(address)) => address.clone(),
        _ => String::new(),
    };
    let asked = match first(spec.get("clusterIP")) {
        address if address.is_empty() => first(spec.get("clusterIPs")),
        address => address,
    };
    let address = match asked.as_str() {
        "" => choose(&seed, in_use).ok_or_else(|| {
            vec![FieldError::invalid(
                &at,
                json!([]),
                "failed to allocate IP: range is full",
            )]
        })?,
        "None" => asked,
        _ => {
            let refuse = |reason: &str| {
                let detail = format!("failed to allocate IP {asked}: {reason}");
                vec![FieldError::invalid(&at, json!([asked]), detail)]
            };
            let number = asked.parse::<std::net::Ipv4Addr>().map(u32::from).ok();
            match number.and_then(|number| number.checked_sub(RANGE_START)) {
                Some(offset) if offset < RANGE_SIZE => {}
                _ => {
                    return Err(refuse(
                        "the provided IP is not in the valid range. The range of valid IPs is 10.96.0.0/12",
                    ));
                }
            }
            if in_use(&asked) {
                return Err(refuse("provided IP is already allocated"));
            }
            asked
        }
    };
    spec.insert("clusterIP".to_owned(), json!(address));
    spec.insert("clusterIPs".to_owned(), json!([address]));
    Ok(())
}

fn choose(seed: &str, in_use: impl Fn(&str) -> bool) -> Option<String> {
    // FNV-1a: stable between versions of the program, unlike the hashers of the standard library.
    let hash = seed.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let usable = RANGE_SIZE - RESERVED - 1;
    (0..usable)
        .map(|step| RANGE_START + RESERVED + (hash % usable + step) % usable)
        .map(|number| std::net::Ipv4Addr::from(number).to_string())
        .find(|address| !in_use(address))
}

/// The versions of a Service's addresses. There is one here; a headless Service without a selector is whatever its
/// endpoints are.
fn settle_families(service: &mut Value, old: Option<&Value>) -> Result<(), Vec<FieldError>> {
    let field = Field::of(service, "spec");
    if field.text_of("type") == "ExternalName" {
        return Ok(());
    }
    let is_open = field.text_of("clusterIP") == "None" && !field.has("selector");
    let before = old.and_then(|old| old.pointer("/spec/ipFamilyPolicy")?.as_str());
    let policy = match (field.text_of("ipFamilyPolicy"), before) {
        ("", Some(before)) => before,
        ("", None) if is_open => "RequireDualStack",
        ("", None) => "SingleStack",
        (stated, _) => stated,
    }
    .to_owned();
    let mut families: Vec<String> = field
        .child("ipFamilies")
        .items()
        .map(|family| family.text().to_owned())
        .collect();
    let mut errors = Vec::new();
    let refused = field.child("ipFamilyPolicy");
    let mut refuse = |detail: &str| refused.invalid_as(&mut errors, json!(policy), detail);
    if policy == "SingleStack" {
        for (list, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
            if field.child(list).count() == 2 {
                refuse(&format!(
                    "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                ));
            }
        }
    }
    let addresses = field.child("clusterIPs");
    for (index, address) in addresses.items().enumerate() {
        if address.text() == "None" {
            break;
        }
        if index < families.len() {
            continue;
        }
        if address.text().contains(':') {
            let detail = "IPv6 is not configured on this cluster";
            address.invalid_as(&mut errors, addresses.value.clone(), detail);
        } else {
            families.push("IPv4".to_owned());
        }
    }
    if errors.is_empty() && !is_open {
        if policy == "RequireDualStack" {
            let detail = "this cluster is not configured for dual-stack services";
            refused.invalid_as(&mut errors, json!(policy), detail);
        }
        for family in field
            .child("ipFamilies")
            .items()
            .filter(|family| family.text() == "IPv6")
        {
            family.invalid(&mut errors, "not configured on this cluster");
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    if families.is_empty() {
        families.push("IPv4".to_owned());
    }
    if let ([only], true) = (&families[..], is_open && policy != "SingleStack") {
        let other = if only == "IPv4" { "IPv6" } else { "IPv4" };
        families.push(other.to_owned());
    }
    if let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("ipFamilyPolicy".to_owned(), json!(policy));
        spec.insert("ipFamilies".to_owned(), json!(families));
    }
    Ok(())
}
