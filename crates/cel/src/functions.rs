//! The functions that expressions can call, one table.
//!
//! A function charges for what it walks over before it does so; the evaluator has charged one for the
//! call itself.

mod convert;
mod format;
mod lists;
mod optional;
mod sets;
mod strings;
mod times;

use std::fmt;

use crate::error::EvaluationError;
use crate::evaluate::Context;
use crate::patterns;
use crate::value::{Type, Value};

type Implementation = fn(&mut Context<'_>, &[Value]) -> Result<Value, EvaluationError>;

/// One function in one style of call.
pub(crate) struct Function {
    name: &'static str,
    /// Called as `target.name(…)`; the target is then the first argument.
    member: bool,
    /// Fewest and most arguments, the target included.
    arguments: (usize, usize),
    /// Type of the result where it is always the same.
    pub(crate) result: Option<Type>,
    /// Index of the argument that is a regular expression.
    pub(crate) pattern: Option<usize>,
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
        call,
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
    global("int", 1, Some(Type::Int), convert::int),
    global("uint", 1, Some(Type::Uint), convert::uint),
    global("double", 1, Some(Type::Double), convert::double),
    global("string", 1, Some(Type::String), convert::string),
    global("bytes", 1, Some(Type::Bytes), convert::bytes),
    global("bool", 1, Some(Type::Bool), convert::bool),
    global("timestamp", 1, Some(Type::Timestamp), convert::timestamp),
    global("duration", 1, Some(Type::Duration), convert::duration),
    global("dyn", 1, None, convert::dynamic),
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
];
