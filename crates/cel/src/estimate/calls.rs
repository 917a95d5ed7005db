//! What calls cost.

use super::size::{PATTERN, TEXT, scale};
use super::{Cost, Estimator, LIST, Path, Range};
use crate::check::{Part, PieceKind, StaticType};
use crate::value::Value;

/// Longest pattern of a named format, for the estimate.
const FORMAT_PATTERN: u64 = 128;
/// Longest named format's name.
const FORMAT_NAME: u64 = 64;

/// What a call costs, and the size of its result where that is known.
#[derive(Clone, Copy)]
struct Call {
    cost: Cost,
    result: Option<Range>,
}

impl Call {
    fn cost(cost: Cost) -> Self {
        Self { cost, result: None }
    }

    fn sized(cost: Cost, result: Range) -> Self {
        Self {
            cost,
            result: Some(result),
        }
    }
}

impl Estimator<'_> {
    pub(super) fn call(
        &mut self,
        part: Part,
        target: Option<Part>,
        function: &str,
        arguments: &[Part],
    ) -> Cost {
        if let ("dyn", [argument]) = (function, arguments) {
            let cost = Cost::fixed(1).add(self.cost(*argument));
            let size = self.size(*argument);
            let entries = self.entry_sizes(*argument);
            self.set_size(part, size);
            self.set_entries(part, entries);
            return cost;
        }
        let mut costs = Vec::with_capacity(arguments.len());
        for &argument in arguments {
            costs.push(self.cost(argument));
            // Sizes are taken here, where the names of macros around are known.
            self.size(argument);
        }
        let checked = self.checked;
        let overloads = checked.overloads(part);
        if overloads.is_empty() {
            return Cost::fixed(0);
        }
        // A function of a namespace (`sets.contains`) has no target, although it is written like one.
        let (function, target) = match checked.qualified(part) {
            Some(qualified) => (qualified, None),
            None => (function, target),
        };
        let mut sum = Cost::fixed(0);
        if let Some(target) = target {
            sum = self.cost(target);
            self.size(target);
        }
        let mut range = Range {
            min: u64::MAX,
            max: 0,
        };
        let mut result: Option<Range> = None;
        for overload in overloads {
            let call = self.overload(part, function, overload, target, arguments, &costs);
            range = range.union(call.cost);
            if let Some(size) = call.result {
                result = Some(result.map_or(size, |before| before.union(size)));
            }
            if let (Some(step), Some(&container)) = (index_step(overload), arguments.first()) {
                result = self.entry_sizes(container).map(|entries| entries.value);
                let path = self.extended(container, step);
                self.paths.insert(part, path);
            }
            if result.is_none() {
                result = self.size(part);
            }
        }
        self.set_size(part, result);
        sum.add(range)
    }

    fn overload(
        &mut self,
        part: Part,
        function: &str,
        overload: &str,
        target: Option<Part>,
        arguments: &[Part],
        costs: &[Cost],
    ) -> Call {
        let sum = costs.iter().fold(Cost::fixed(0), |sum, cost| sum.add(*cost));
        let with_arguments = |call: Call| Call {
            cost: call.cost.add(sum),
            result: call.result,
        };
        if let Some(call) = self.list_extension(overload, target, arguments) {
            return with_arguments(call);
        }
        if let Some(call) = self.library(function, overload, target, arguments) {
            return with_arguments(call);
        }
        match overload {
            "logical_or" | "logical_and" => {
                let (left, right) = (part_cost(costs, 0), part_cost(costs, 1));
                Call::cost(Cost {
                    min: left.min,
                    max: left.add(right).max,
                })
            }
            "conditional" => self.conditional(part, arguments, costs),
            _ => with_arguments(self.standard(part, overload, target, arguments)),
        }
    }

    fn conditional(&mut self, part: Part, arguments: &[Part], costs: &[Cost]) -> Call {
        let cost = part_cost(costs, 0).add(part_cost(costs, 1).union(part_cost(costs, 2)));
        let &[_, yes, no] = arguments else {
            return Call::cost(cost);
        };
        if let (Some(yes), Some(no)) = (self.entry_sizes(yes), self.entry_sizes(no)) {
            self.set_entries(part, Some(yes.union(no)));
        }
        let size = self.size_or_unknown(yes).union(self.size_or_unknown(no));
        Call::sized(cost, size)
    }

    fn standard(&mut self, part: Part, overload: &str, target: Option<Part>, arguments: &[Part]) -> Call {
        match (overload, target, arguments) {
            ("string_format", Some(target), _) => Call::cost(self.size_or_unknown(target).scaled(TEXT)),
            ("string_to_bytes", _, [text]) => {
                let size = self.size_or_unknown(*text);
                let result = Range {
                    min: size.min,
                    max: size.max.wrapping_mul(4),
                };
                Call::sized(size.scaled(TEXT), result)
            }
            ("bytes_to_string", _, [bytes]) => {
                let size = self.size_or_unknown(*bytes);
                let result = Range {
                    min: size.min / 4,
                    max: size.max,
                };
                Call::sized(size.scaled(TEXT), result)
            }
            ("strings_quote", _, [text]) => {
                let size = self.size_or_unknown(*text);
                let result = Range {
                    min: size.min.wrapping_add(2),
                    max: size.max.wrapping_mul(2).wrapping_add(2),
                };
                Call::sized(size.scaled(TEXT), result)
            }
            ("starts_with_string" | "ends_with_string", _, [prefix]) => {
                Call::cost(self.size_or_unknown(*prefix).scaled(TEXT))
            }
            ("in_list", _, [_, list]) => Call::cost(self.size_or_unknown(*list)),
            ("matches_string", Some(text), [pattern]) => Call::cost(self.matching(text, *pattern)),
            ("matches", None, [text, pattern]) => Call::cost(self.matching(*text, *pattern)),
            ("contains_string", Some(text), [wanted]) => {
                let text = self.size_or_unknown(text).scaled(TEXT);
                Call::cost(text.times(self.size_or_unknown(*wanted).scaled(TEXT)))
            }
            ("add_string" | "add_bytes" | "add_list", _, [left, right]) => {
                let size = self.size_or_unknown(*left).add(self.size_or_unknown(*right));
                if let (Some(left), Some(right)) = (self.entry_sizes(*left), self.entry_sizes(*right)) {
                    self.set_entries(part, Some(left.union(right)));
                }
                let cost = if overload == "add_list" {
                    Cost::fixed(1)
                } else {
                    size.scaled(TEXT)
                };
                Call::sized(cost, size)
            }
            (
                "less_string"
                | "greater_string"
                | "less_equals_string"
                | "greater_equals_string"
                | "less_bytes"
                | "greater_bytes"
                | "less_equals_bytes"
                | "greater_equals_bytes"
                | "equals"
                | "not_equals",
                _,
                [left, right],
            ) => {
                let shorter = self
                    .size_or_unknown(*left)
                    .max
                    .min(self.size_or_unknown(*right).max);
                let range = Range {
                    min: u64::from(shorter > 0),
                    max: shorter,
                };
                Call::cost(range.scaled(TEXT))
            }
            _ => Call::cost(Cost::fixed(1)),
        }
    }

    fn matching(&mut self, text: Part, pattern: Part) -> Cost {
        let text = self.size_or_unknown(text).add(Range::fixed(1)).scaled(TEXT);
        text.times(self.size_or_unknown(pattern).scaled(PATTERN))
    }

    /// cel-go's functions on lists and sets.
    fn list_extension(&mut self, overload: &str, target: Option<Part>, arguments: &[Part]) -> Option<Call> {
        let allocating =
            |factor: f64, size: Range| Call::sized(size.scaled(factor).add(Cost::fixed(1 + LIST)), size);
        Some(match (overload, target, arguments) {
            ("list_sets_contains_list" | "list_sets_intersects_list", _, [left, right]) => {
                let product = self.size_or_unknown(*left).times(self.size_or_unknown(*right));
                Call::cost(product.add(Cost::fixed(1)))
            }
            ("list_sets_equivalent_list", _, [left, right]) => {
                let product = self.size_or_unknown(*left).times(self.size_or_unknown(*right));
                Call::cost(product.scaled(2.0).add(Cost::fixed(1)))
            }
            ("list_slice", Some(list), [start, end]) => {
                let size = self.size_or_unknown(list);
                let start = self.literal_int(*start).unwrap_or(0);
                let end = self.literal_int(*end).unwrap_or(size.max);
                allocating(1.0, Range::fixed(end.wrapping_sub(start)))
            }
            ("list_flatten" | "list_flatten_int", Some(list), _) => {
                let depth = match arguments.first() {
                    Some(&depth) => self.literal_int(depth).unwrap_or(u64::MAX),
                    None => 1,
                };
                allocating(depth as f64, self.size_or_unknown(list))
            }
            ("lists_range", _, [count]) => {
                allocating(1.0, Range::fixed(self.literal_int(*count).unwrap_or(u64::MAX)))
            }
            ("list_reverse", Some(list), _) => allocating(1.0, self.size_or_unknown(list)),
            ("list_distinct", Some(list), _) => {
                let size = self.size_or_unknown(list);
                allocating(2.0, size.times(size))
            }
            (name, Some(list), _) if name.ends_with("_sort") || name.ends_with("_sortByAssociatedKeys") => {
                let sorted = arguments.first().copied().unwrap_or(list);
                let size = self.size_or_unknown(sorted);
                let is_text = name.starts_with("list_string_") || name.starts_with("list_bytes_");
                allocating(if is_text { 2.0 + TEXT } else { 2.0 }, size.times(size))
            }
            _ => return None,
        })
    }

    fn literal_int(&self, part: Part) -> Option<u64> {
        match self.checked.expression.kind(part)? {
            PieceKind::Literal(Value::Int(number)) => Some(u64::try_from(*number).unwrap_or(0)),
            _ => None,
        }
    }

    /// Kubernetes' functions, by name.
    fn library(
        &mut self,
        function: &str,
        overload: &str,
        target: Option<Part>,
        arguments: &[Part],
    ) -> Option<Call> {
        let text = |size: Range| Call::cost(size.scaled(TEXT));
        Some(match (function, target, arguments) {
            ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(target), _) => {
                let size = self.size_or_unknown(target);
                match self.item_size(target) {
                    Some(Some(item)) => Call::cost(size.times_cost(Cost::fixed(1).add(item.scaled(TEXT)))),
                    Some(None) => Call::cost(size),
                    None => text(size),
                }
            }
            ("url", _, [argument]) => {
                let size = self.size_or_unknown(*argument);
                Call::sized(size.scaled(TEXT), size)
            }
            ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(target), _) => {
                let size = self.size_or_unknown(target);
                Call::sized(size.scaled(TEXT), size)
            }
            ("replace", Some(target), [from, to, ..]) => {
                let size = self.size_or_unknown(target);
                let result = replaced_size(size, self.size_or_unknown(*from), self.size_or_unknown(*to));
                Call::sized(size.scaled(2.0 * TEXT), result)
            }
            ("split", Some(target), _) => {
                let size = self.size_or_unknown(target);
                let limit = arguments
                    .get(1)
                    .and_then(|&limit| match self.checked.expression.kind(limit) {
                        // A negative limit, which means none, counts as the largest number.
                        Some(PieceKind::Literal(Value::Int(limit))) => Some(limit.cast_unsigned()),
                        _ => None,
                    });
                let result = Range {
                    min: 0,
                    max: limit.unwrap_or(size.max),
                };
                Call::sized(size.scaled(2.0 * TEXT), result)
            }
            ("join", Some(target), _) => {
                let size = self.joined_size(target, arguments.first().copied());
                Call::sized(size.scaled(TEXT), size)
            }
            ("find" | "findAll", Some(target), [pattern, ..]) => {
                let max = self.size_or_unknown(target).max;
                Call::sized(self.matching(target, *pattern), Range { min: 0, max })
            }
            ("ip", _, _) if overload == "cidr_ip" => Call::cost(Cost::fixed(1)),
            (
                "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver",
                _,
                [argument, ..],
            ) => text(self.size_or_unknown(*argument)),
            ("ip.isCanonical", _, [argument]) => {
                Call::cost(self.size_or_unknown(*argument).scaled(2.0 * TEXT))
            }
            ("containsIP" | "containsCIDR", _, [argument]) => {
                let address = Range { min: 4, max: 16 };
                let mut cost = address.add(address).scaled(TEXT);
                if function == "containsCIDR" {
                    cost = cost.add(address.scaled(TEXT)).add(Cost::fixed(1));
                }
                if overload.ends_with("_string") {
                    cost = cost.add(self.size_or_unknown(*argument).scaled(TEXT));
                }
                Call::cost(cost)
            }
            ("validate", _, [argument]) => {
                let pattern = FORMAT_PATTERN as f64 * PATTERN;
                Call::cost(self.size_or_unknown(*argument).scaled(TEXT).scaled(pattern))
            }
            (
                "masked"
                | "prefixLength"
                | "family"
                | "isUnspecified"
                | "isLoopback"
                | "isLinkLocalMulticast"
                | "isLinkLocalUnicast"
                | "isGlobalUnicast"
                | "sign"
                | "asInteger"
                | "isInteger"
                | "asApproximateFloat"
                | "isGreaterThan"
                | "isLessThan"
                | "compareTo"
                | "add"
                | "sub"
                | "major"
                | "minor"
                | "patch"
                | "getScheme"
                | "getHostname"
                | "getHost"
                | "getPort"
                | "getEscapedPath"
                | "getQuery",
                _,
                _,
            ) => Call::cost(Cost::fixed(1)),
            ("_==_", _, [left, right]) => return self.library_equality(*left, *right),
            _ => return None,
        })
    }

    fn library_equality(&mut self, left: Part, right: Part) -> Option<Call> {
        let found = self.checked.type_of(left);
        if found != self.checked.type_of(right) {
            return None;
        }
        let name = match found {
            StaticType::Object(name) | StaticType::Opaque(name, _) => name,
            _ => return None,
        };
        match &**name {
            "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver" => {
                Some(Call::cost(Cost::fixed(1)))
            }
            "kubernetes.NamedFormat" => Some(Call::cost(Range {
                min: scale(1, TEXT),
                max: scale(FORMAT_NAME, TEXT),
            })),
            "kubernetes.URL" => {
                // Only the right side counts in the reference too.
                let max = self.size(right).map_or(1, |size| size.max);
                Some(Call::cost(Range { min: 1, max }.scaled(TEXT)))
            }
            _ => None,
        }
    }

    /// The size of a container's items: nothing for what is no container, no size for items that are no texts.
    fn item_size(&mut self, container: Part) -> Option<Option<Range>> {
        let item = self.checked.type_of(container).first_parameter()?;
        if !matches!(item, StaticType::String | StaticType::Bytes) {
            return Some(None);
        }
        Some(Some(self.items_at(&self.path(container))))
    }

    fn items_at(&self, container: &Path) -> Range {
        let mut path = container.clone();
        if path.is_empty() {
            return Range::UNKNOWN;
        }
        path.push("@items".into());
        self.declared_size(&path).unwrap_or(Range::UNKNOWN)
    }

    fn joined_size(&mut self, list: Part, separator: Option<Part>) -> Range {
        let count = self.size_or_unknown(list);
        let mut size = Range::fixed(0);
        if self.checked.type_of(list).first_parameter().is_some() {
            size = count.times(self.items_at(&self.path(list)));
        }
        if let Some(separator) = separator {
            let gaps = Range {
                min: count.min.saturating_sub(1),
                max: count.max.saturating_sub(1),
            };
            size = size.add(self.size_or_unknown(separator).times(gaps));
        }
        size
    }
}

fn part_cost(costs: &[Cost], index: usize) -> Cost {
    costs.get(index).copied().unwrap_or(Cost::fixed(0))
}

fn index_step(overload: &str) -> Option<&'static str> {
    match overload {
        "index_list" => Some("@items"),
        "index_map" => Some("@values"),
        _ => None,
    }
}

/// The size of a text in which one text is replaced by another: the most and fewest replacements with the longest and
/// shortest text.
fn replaced_size(text: Range, from: Range, to: Range) -> Range {
    let fitting = |length: u64, part: u64| (length as f64 / part as f64).ceil() as u64;
    let (mut count, mut kept) = (Range::fixed(0), Range::fixed(0));
    if from.min == 0 {
        // An empty text is found around every character.
        count.max = text.max.saturating_add(1);
        kept.max = text.max;
    } else if to.max <= from.min {
        kept.max = text.max;
    } else {
        count.max = fitting(text.max, from.min);
    }
    if from.max == 0 {
        count.min = text.min.saturating_add(1);
        kept.min = text.min;
    } else if from.max <= to.min {
        kept.min = text.min;
    } else {
        count.min = fitting(text.min, from.max);
    }
    count.times(to).add(kept)
}
