//! The functions that expressions can call, one table.
//!
//! The evaluator charges what a call costs by the reference's model (`costs`) before it is made; a function only tells
//! what it walks over, so that nothing runs on and on that the model takes for cheap.

mod access;
mod addresses;
mod convert;
mod format;
mod list_extensions;
mod lists;
mod named_formats;
mod optional;
mod quantities;
mod sets;
mod strings;
mod times;
mod urls;

use std::fmt;

use crate::budget::Budget;
use crate::error::EvaluationError;
use crate::evaluate::Context;
use crate::patterns;
use crate::value::{Type, Value};

pub(crate) use list_extensions::sorted;
pub use named_formats::NamedFormat;

type Implementation = fn(&mut Context<'_>, &[Value]) -> Result<Value, EvaluationError>;

/// One function in one style of call.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    /// Called as `target.name(…)`; the target is then the first argument.
    member: bool,
    /// Fewest and most arguments, the target included.
    arguments: (usize, usize),
    /// Type of the result where it is always the same.
    pub(crate) result: Option<Type>,
    /// Index of the argument that is a regular expression.
    pub(crate) pattern: Option<usize>,
    /// Whether it converts one value to a type; of a literal that is done beforehand.
    pub(crate) is_conversion: bool,
    pub(crate) call: Implementation,
}

impl fmt::Debug for Function {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Function")
            .field("name", &self.name)
            .field("member", &self.member)
            .finish()
    }
}

impl Function {
    /// Applies a conversion to one value.
    pub(crate) fn convert(&self, value: &Value) -> Result<Value, EvaluationError> {
        let mut budget = Budget::per_rule();
        (self.call)(&mut Context::new(&mut budget), std::slice::from_ref(value))
    }
}

/// What the table knows about a call.
pub(crate) enum Lookup {
    Found(&'static Function),
    /// There is such a function, but not with so many arguments or in this style.
    WrongArguments,
    Unknown,
}

/// Finds the function of a call; `arguments` counts the target of a member call.
pub(crate) fn find(name: &str, member: bool, arguments: usize) -> Lookup {
    let mut known = false;
    for function in TABLE {
        if function.name == name {
            known = true;
            let (fewest, most) = function.arguments;
            if function.member == member && (fewest..=most).contains(&arguments) {
                return Lookup::Found(function);
            }
        }
    }
    if known {
        Lookup::WrongArguments
    } else {
        Lookup::Unknown
    }
}

/// Whether there is a function of this name in this style, whatever its arguments.
pub(crate) fn is_known(name: &str, member: bool) -> bool {
    TABLE
        .iter()
        .any(|function| function.name == name && function.member == member)
}

const fn global(
    name: &'static str,
    arguments: usize,
    result: Option<Type>,
    call: Implementation,
) -> Function {
    Function {
        name,
        member: false,
        arguments: (arguments, arguments),
        result,
        pattern: None,
        is_conversion: false,
        call,
    }
}

const fn global_range(
    name: &'static str,
    arguments: (usize, usize),
    result: Option<Type>,
    call: Implementation,
) -> Function {
    Function {
        name,
        member: false,
        arguments,
        result,
        pattern: None,
        is_conversion: false,
        call,
    }
}

/// `arguments` without the target.
const fn member(
    name: &'static str,
    arguments: (usize, usize),
    result: Option<Type>,
    call: Implementation,
) -> Function {
    Function {
        name,
        member: true,
        arguments: (arguments.0 + 1, arguments.1 + 1),
        result,
        pattern: None,
        is_conversion: false,
        call,
    }
}

const fn conversion(name: &'static str, result: Type, call: Implementation) -> Function {
    Function {
        is_conversion: true,
        ..global(name, 1, Some(result), call)
    }
}

const fn with_pattern(function: Function) -> Function {
    Function {
        pattern: Some(1),
        ..function
    }
}

static TABLE: &[Function] = &[
    // Conversions
    conversion("int", Type::Int, convert::int),
    conversion("uint", Type::Uint, convert::uint),
    conversion("double", Type::Double, convert::double),
    conversion("string", Type::String, convert::string),
    conversion("bytes", Type::Bytes, convert::bytes),
    conversion("bool", Type::Bool, convert::bool),
    conversion("timestamp", Type::Timestamp, convert::timestamp),
    conversion("duration", Type::Duration, convert::duration),
    Function {
        is_conversion: true,
        ..global("dyn", 1, None, convert::dynamic)
    },
    global("type", 1, Some(Type::Type), convert::type_of),
    // Standard
    global("size", 1, Some(Type::Int), strings::size),
    member("size", (0, 0), Some(Type::Int), strings::size),
    member("startsWith", (1, 1), Some(Type::Bool), strings::starts_with),
    member("endsWith", (1, 1), Some(Type::Bool), strings::ends_with),
    member("contains", (1, 1), Some(Type::Bool), strings::contains),
    with_pattern(global("matches", 2, Some(Type::Bool), patterns::matches)),
    with_pattern(member("matches", (1, 1), Some(Type::Bool), patterns::matches)),
    // Times
    member("getFullYear", (0, 1), Some(Type::Int), times::full_year),
    member("getMonth", (0, 1), Some(Type::Int), times::month),
    member("getDate", (0, 1), Some(Type::Int), times::date),
    member("getDayOfMonth", (0, 1), Some(Type::Int), times::day_of_month),
    member("getDayOfWeek", (0, 1), Some(Type::Int), times::day_of_week),
    member("getDayOfYear", (0, 1), Some(Type::Int), times::day_of_year),
    member("getHours", (0, 1), Some(Type::Int), times::hours),
    member("getMinutes", (0, 1), Some(Type::Int), times::minutes),
    member("getSeconds", (0, 1), Some(Type::Int), times::seconds),
    member("getMilliseconds", (0, 1), Some(Type::Int), times::milliseconds),
    // Strings, as cel-go's extension library
    member("charAt", (1, 1), Some(Type::String), strings::char_at),
    member("indexOf", (1, 2), Some(Type::Int), strings::index_of),
    member("lastIndexOf", (1, 2), Some(Type::Int), strings::last_index_of),
    member("join", (0, 1), Some(Type::String), strings::join),
    member("split", (1, 2), Some(Type::List), strings::split),
    member("substring", (1, 2), Some(Type::String), strings::substring),
    member("replace", (2, 3), Some(Type::String), strings::replace),
    member("lowerAscii", (0, 0), Some(Type::String), strings::lower_ascii),
    member("upperAscii", (0, 0), Some(Type::String), strings::upper_ascii),
    member("trim", (0, 0), Some(Type::String), strings::trim),
    member("reverse", (0, 0), None, strings::reverse),
    member("format", (1, 1), Some(Type::String), format::format),
    global("strings.quote", 1, Some(Type::String), strings::quote),
    // Regular expressions and lists, as Kubernetes adds them
    with_pattern(member("find", (1, 1), Some(Type::String), patterns::find)),
    with_pattern(member("findAll", (1, 2), Some(Type::List), patterns::find_all)),
    member("isSorted", (0, 0), Some(Type::Bool), lists::is_sorted),
    member("sum", (0, 0), None, lists::sum),
    member("min", (0, 0), None, lists::min),
    member("max", (0, 0), None, lists::max),
    // Lists as sets, as Kubernetes enables them
    global("sets.contains", 2, Some(Type::Bool), sets::contains),
    global("sets.equivalent", 2, Some(Type::Bool), sets::equivalent),
    global("sets.intersects", 2, Some(Type::Bool), sets::intersects),
    // Optional values
    global("optional.of", 1, Some(Type::Optional), optional::of),
    global("optional.none", 0, Some(Type::Optional), optional::none),
    global(
        "optional.ofNonZeroValue",
        1,
        Some(Type::Optional),
        optional::of_non_zero,
    ),
    member("hasValue", (0, 0), Some(Type::Bool), optional::has_value),
    member("value", (0, 0), None, optional::value),
    member("first", (0, 0), Some(Type::Optional), optional::first),
    member("last", (0, 0), Some(Type::Optional), optional::last),
    global("optional.unwrap", 1, Some(Type::List), optional::unwrap),
    member("unwrapOpt", (0, 0), Some(Type::List), optional::unwrap),
    // Lists, as cel-go's extension library
    member("slice", (2, 2), Some(Type::List), list_extensions::slice),
    member("flatten", (0, 1), Some(Type::List), list_extensions::flatten),
    member("sort", (0, 0), Some(Type::List), list_extensions::sort),
    global("lists.range", 1, Some(Type::List), list_extensions::range),
    member("distinct", (0, 0), Some(Type::List), list_extensions::distinct),
    // URLs
    global("url", 1, Some(Type::Url), urls::url),
    global("isURL", 1, Some(Type::Bool), urls::is_url),
    member("getScheme", (0, 0), Some(Type::String), urls::scheme),
    member("getHost", (0, 0), Some(Type::String), urls::host),
    member("getHostname", (0, 0), Some(Type::String), urls::hostname),
    member("getPort", (0, 0), Some(Type::String), urls::port),
    member("getEscapedPath", (0, 0), Some(Type::String), urls::escaped_path),
    member("getQuery", (0, 0), Some(Type::Map), urls::query),
    // Addresses and networks
    global("ip", 1, Some(Type::Ip), addresses::ip),
    member("ip", (0, 0), Some(Type::Ip), addresses::address),
    global("isIP", 1, Some(Type::Bool), addresses::is_ip),
    global("ip.isCanonical", 1, Some(Type::Bool), addresses::is_canonical),
    member("family", (0, 0), Some(Type::Int), addresses::family),
    member(
        "isUnspecified",
        (0, 0),
        Some(Type::Bool),
        addresses::is_unspecified,
    ),
    member("isLoopback", (0, 0), Some(Type::Bool), addresses::is_loopback),
    member(
        "isLinkLocalMulticast",
        (0, 0),
        Some(Type::Bool),
        addresses::is_link_local_multicast,
    ),
    member(
        "isLinkLocalUnicast",
        (0, 0),
        Some(Type::Bool),
        addresses::is_link_local_unicast,
    ),
    member(
        "isGlobalUnicast",
        (0, 0),
        Some(Type::Bool),
        addresses::is_global_unicast,
    ),
    global("cidr", 1, Some(Type::Cidr), addresses::cidr),
    global("isCIDR", 1, Some(Type::Bool), addresses::is_cidr),
    member("containsIP", (1, 1), Some(Type::Bool), addresses::contains_ip),
    member("containsCIDR", (1, 1), Some(Type::Bool), addresses::contains_cidr),
    member("prefixLength", (0, 0), Some(Type::Int), addresses::prefix_length),
    member("masked", (0, 0), Some(Type::Cidr), addresses::masked),
    // Quantities and versions
    global("quantity", 1, Some(Type::Quantity), quantities::quantity),
    global("isQuantity", 1, Some(Type::Bool), quantities::is_quantity),
    global("sign", 1, Some(Type::Int), quantities::sign),
    member("asInteger", (0, 0), Some(Type::Int), quantities::as_integer),
    member("isInteger", (0, 0), Some(Type::Bool), quantities::is_integer),
    member(
        "asApproximateFloat",
        (0, 0),
        Some(Type::Double),
        quantities::as_float,
    ),
    member("add", (1, 1), Some(Type::Quantity), quantities::add),
    member("sub", (1, 1), Some(Type::Quantity), quantities::subtract),
    member(
        "isGreaterThan",
        (1, 1),
        Some(Type::Bool),
        quantities::is_greater_than,
    ),
    member("isLessThan", (1, 1), Some(Type::Bool), quantities::is_less_than),
    member("compareTo", (1, 1), Some(Type::Int), quantities::compare_to),
    global_range("semver", (1, 2), Some(Type::Version), quantities::semver),
    global_range("isSemver", (1, 2), Some(Type::Bool), quantities::is_semver),
    member("major", (0, 0), Some(Type::Int), quantities::major),
    member("minor", (0, 0), Some(Type::Int), quantities::minor),
    member("patch", (0, 0), Some(Type::Int), quantities::patch),
    // Named formats
    global("format.named", 1, Some(Type::Optional), named_formats::by_name),
    global(
        "format.dns1123Label",
        0,
        Some(Type::Format),
        named_formats::dns1123_label,
    ),
    global(
        "format.dns1123Subdomain",
        0,
        Some(Type::Format),
        named_formats::dns1123_subdomain,
    ),
    global(
        "format.dns1035Label",
        0,
        Some(Type::Format),
        named_formats::dns1035_label,
    ),
    global(
        "format.qualifiedName",
        0,
        Some(Type::Format),
        named_formats::qualified,
    ),
    global(
        "format.dns1123LabelPrefix",
        0,
        Some(Type::Format),
        named_formats::dns1123_label_prefix,
    ),
    global(
        "format.dns1123SubdomainPrefix",
        0,
        Some(Type::Format),
        named_formats::dns1123_subdomain_prefix,
    ),
    global(
        "format.dns1035LabelPrefix",
        0,
        Some(Type::Format),
        named_formats::dns1035_label_prefix,
    ),
    global(
        "format.labelValue",
        0,
        Some(Type::Format),
        named_formats::value_of_label,
    ),
    global("format.uri", 0, Some(Type::Format), named_formats::uri),
    global("format.uuid", 0, Some(Type::Format), named_formats::uuid),
    global("format.byte", 0, Some(Type::Format), named_formats::byte),
    global("format.date", 0, Some(Type::Format), named_formats::date),
    global("format.datetime", 0, Some(Type::Format), named_formats::datetime),
    member("validate", (1, 1), Some(Type::Optional), named_formats::validate),
    // Authorisation
    member("path", (1, 1), Some(Type::PathCheck), access::path),
    member("group", (1, 1), Some(Type::GroupCheck), access::group),
    member(
        "serviceAccount",
        (2, 2),
        Some(Type::Authorizer),
        access::service_account,
    ),
    member("resource", (1, 1), Some(Type::ResourceCheck), access::resource),
    member(
        "subresource",
        (1, 1),
        Some(Type::ResourceCheck),
        access::subresource,
    ),
    member("namespace", (1, 1), Some(Type::ResourceCheck), access::namespace),
    member("name", (1, 1), Some(Type::ResourceCheck), access::name),
    member(
        "fieldSelector",
        (1, 1),
        Some(Type::ResourceCheck),
        access::field_selector,
    ),
    member(
        "labelSelector",
        (1, 1),
        Some(Type::ResourceCheck),
        access::label_selector,
    ),
    member("check", (1, 1), Some(Type::Decision), access::check),
    member("allowed", (0, 0), Some(Type::Bool), access::allowed),
    member("reason", (0, 0), Some(Type::String), access::reason),
    member("errored", (0, 0), Some(Type::Bool), access::errored),
    member("error", (0, 0), Some(Type::String), access::error),
];
