//! What expressions mean: each line is an expression and its value, or the error it ends with. The
//! values follow cel-go as Kubernetes configures it (KA-015, OM-487).

#![allow(clippy::unwrap_used, clippy::expect_used)]

use mainstay_cel::{Budget, CompileOptions, Value, Variables, compile};
use serde_json::json;

fn variables() -> Variables {
    Variables::new()
        .with(
            "self",
            json!({
                "name": "web", "count": 6, "ratio": 6.0, "text": "6", "big": 18446744073709551615u64,
                "items": [1, 2, 3], "words": ["b", "a"], "nothing": null,
                "labels": {"app": "web", "tier": "front"}, "nested": {"deep": {"leaf": true}},
            }),
        )
        .with("x", 5_i64)
}

fn outcome(source: &str) -> Result<Value, String> {
    let program = compile(source, &CompileOptions::with_variables(["self", "x", "unset"]))
        .unwrap_or_else(|error| panic!("{source}: {error}"));
    program
        .evaluate(&variables(), &mut Budget::per_rule())
        .map_err(|error| error.to_string())
}

/// Each expression is true.
fn hold(expressions: &[&str]) {
    for source in expressions {
        assert_eq!(outcome(source), Ok(Value::Bool(true)), "{source}");
    }
}

/// Each expression ends with this error.
fn fail(expressions: &[(&str, &str)]) {
    for (source, message) in expressions {
        assert_eq!(outcome(source), Err((*message).to_owned()), "{source}");
    }
}

#[test]
fn literals_and_arithmetic() {
    hold(&[
        "1 + 2 * 3 == 7",
        "(1 + 2) * 3 == 9",
        "7 / 2 == 3 && -7 / 2 == -3 && -7 % 3 == -1",
        "7.0 / 2.0 == 3.5",
        "7u - 2u == 5u",
        "0x10 == 16 && -0x10 == -16 && 0x10u == 16u",
        "-9223372036854775808 < 0",
        "1.0 / 0.0 > 1.0e300",
        "'a' + \"b\" == 'ab'",
        "b'a' + b'b' == b'ab'",
        "[1] + [2, 3] == [1, 2, 3]",
        "'\\u00e9' == 'é' && r'\\n' == '\\\\n' && '''a'b''' == \"a'b\"",
        "b'\\xff' != b'\\xfe'",
        "!false && !!true && - -1 == 1",
        "null == null",
        "{'a': 1, 2: 'b', true: 3u}[2] == 'b'",
    ]);
    fail(&[
        ("9223372036854775807 + x", "integer overflow"),
        ("-9223372036854775807 - x", "integer overflow"),
        ("9223372036854775807 * x", "integer overflow"),
        ("-(-9223372036854775807 - 1)", "integer overflow"),
        ("0u - 1u", "unsigned integer overflow"),
        ("1 / (x - 5)", "division by zero"),
        ("1 % (x - 5)", "modulus by zero"),
        ("1u / 0u", "division by zero"),
        ("1 + 1.0", "no such overload: _+_(int, double)"),
        ("'a' + 1", "no such overload: _+_(string, int)"),
        ("-'a'", "no such overload: -_(string)"),
        ("{'a': 1, 'a': 2}", "insert failed: key a already exists"),
    ]);
}

#[test]
fn d14_json_numbers_compare_by_value_and_text_is_an_error() {
    hold(&[
        "self.count > 5",
        "self.ratio > 5",
        "self.count == self.ratio",
        "type(self.count) == int && type(self.ratio) == double && type(self.big) == uint",
        "self.big > 9223372036854775807",
    ]);
    fail(&[("self.text > 5", "no such overload: _>_(string, int)")]);
}

#[test]
fn numbers_of_different_types_compare_exactly() {
    hold(&[
        "1 == 1u && 1u == 1.0 && 1 == 1.0",
        "1 < 1.5 && 2 > 1.5 && 1u < 1.5 && -1 < 1u && -1.5 < 0u",
        "9007199254740993 != 9007199254740992.0 && 9007199254740993 > 9007199254740992.0",
        "9223372036854775807 < 9223372036854775808.0",
        "18446744073709551615u < 18446744073709551616.0",
        "!(0.0 / 0.0 == 0.0 / 0.0) && !(0.0 / 0.0 < 1.0) && !(0.0 / 0.0 >= 1)",
        "1 != '1' && [1] == [1.0] && {'a': 1u} == {'a': 1}",
        "false < true && 'a' < 'b' && b'a' < b'b'",
        "1 in [1.0] && 1u in {1: 'a'} && 1.0 in {1: 'a'} && !(1.5 in {1: 'a'})",
    ]);
    fail(&[
        ("1 < 'a'", "no such overload: _<_(int, string)"),
        ("[1] < [2]", "no such overload: _<_(list, list)"),
    ]);
}

#[test]
fn logic_absorbs_errors_of_the_side_that_does_not_decide() {
    hold(&[
        "true || 1 / 0 > 0",
        "1 / 0 > 0 || true",
        "!(false && 1 / 0 > 0)",
        "!(1 / 0 > 0 && false)",
        "true ? true : 1 / 0 > 0",
        "[1, 0].exists(i, 1 / i == 1)",
        "[0, 1].exists(i, 1 / i == 1)",
        "![0, 2].all(i, 1 / i == 1)",
    ]);
    fail(&[
        ("false || 1 / 0 > 0", "division by zero"),
        ("1 / 0 > 0 && true", "division by zero"),
        ("[0, 1].all(i, 1 / i == 1)", "division by zero"),
        ("dyn(1) && true", "no such overload: _&&_(int, bool)"),
        ("dyn(1) ? 2 : 3", "no such overload: _?_:_(int)"),
        ("[0, 1].exists_one(i, 1 / i == 1)", "division by zero"),
    ]);
}

#[test]
fn selection_and_indexing() {
    hold(&[
        "self.name == 'web' && self['name'] == 'web'",
        "self.items[0] == 1 && self.items[2u] == 3 && self.items[1.0] == 2",
        "has(self.name) && !has(self.absent) && has(self.nested.deep.leaf) && has(self.nothing)",
        "!has(self.name.part)",
        "self.labels.app == 'web' && 'app' in self.labels && !('x' in self.labels)",
        "2 in self.items && !(4 in self.items)",
        "self.nothing == null",
    ]);
    fail(&[
        ("self.absent", "no such key: absent"),
        ("self['absent']", "no such key: absent"),
        ("self.items[3]", "index out of bounds: 3"),
        ("self.items[-1]", "index out of bounds: -1"),
        ("self.items['a']", "unsupported index type 'string' in list"),
        ("self.name.part", "no such key: part"),
        ("self.count[0]", "no such key: 0"),
        ("self.nothing['a']", "no such key: a"),
        ("unset", "no such attribute(s): unset"),
        ("1 in 2", "no such overload: @in(int, int)"),
    ]);
}

#[test]
fn macros_walk_lists_and_maps() {
    hold(&[
        "[1, 2].all(i, i > 0) && ![1, 2].all(i, i > 1) && [].all(i, false)",
        "[1, 2].exists(i, i > 1) && ![].exists(i, true)",
        "[1, 2].exists_one(i, i > 1) && ![1, 1].exists_one(i, i == 1) && [1, 2].existsOne(i, i == 1)",
        "[1, 2].map(i, i * 2) == [2, 4] && [1, 2].map(i, i > 1, i * 2) == [4]",
        "[1, 2, 3].filter(i, i % 2 == 1) == [1, 3]",
        "self.labels.all(k, k.size() > 2) && self.labels.map(k, k) == ['app', 'tier']",
        "self.labels.filter(k, k.startsWith('t')) == ['tier']",
        "cel.bind(a, 2, a * a) == 4 && cel.bind(a, 2, cel.bind(b, a + 1, a * b)) == 6",
        "[[1, 2], [3]].map(l, l.map(i, i + 1)) == [[2, 3], [4]]",
        "[1].all(x, x == 1) && x == 5",
        "[5, 6].all(i, v, v == i + 5) && self.labels.exists(k, v, k == 'app' && v == 'web')",
        "[5, 6].existsOne(i, v, i == 1) && [1, 2].transformList(i, v, i * v) == [0, 2]",
        "[1, 2].transformList(i, v, i > 0, v) == [2]",
        "{'a': 1}.transformMap(k, v, v + 1) == {'a': 2}",
        "{'a': 1, 'b': 2}.transformMap(k, v, v > 1, k) == {'b': 'b'}",
        "['x', 'y'].transformMapEntry(i, v, {v: i}) == {'x': 0, 'y': 1}",
    ]);
    fail(&[
        (
            "dyn(1).all(i, true)",
            "expression of type 'int' cannot be range of a comprehension",
        ),
        (
            "['x', 'x'].transformMapEntry(i, v, {v: i})",
            "insert failed: key x already exists",
        ),
        ("[1].filter(i, dyn(1))", "no such overload: _?_:_(int)"),
    ]);
}

#[test]
fn optional_values() {
    hold(&[
        "self.?name == optional.of('web') && self.?absent == optional.none()",
        "self.?absent.orValue('d') == 'd' && self.?name.orValue('d') == 'web'",
        "self.?nested.deep.leaf.value() && self.?absent.deep.leaf == optional.none()",
        "!self.?absent.hasValue() && self.?name.hasValue()",
        "self.items[?0].value() == 1 && self.items[?9] == optional.none()",
        "self.labels[?'app'].or(optional.of('x')).value() == 'web'",
        "self.?absent.or(optional.of('x')).value() == 'x'",
        "self.?name.optMap(n, n + '!').value() == 'web!' && !self.?absent.optMap(n, n).hasValue()",
        "self.?name.optFlatMap(n, optional.none()) == optional.none()",
        "[?self.?absent, ?self.?name, 'z'] == ['web', 'z']",
        "{?'a': self.?absent, ?'n': self.?name} == {'n': 'web'}",
        "!optional.ofNonZeroValue('').hasValue() && optional.ofNonZeroValue(3).value() == 3",
        "has(self.?nested.deep)",
        "self.?absent.orValue(1 / 1) == 1 && self.?name.orValue(1 / 0) == 'web'",
    ]);
    fail(&[
        ("self.?absent.value()", "optional.none() dereference"),
        (
            "[?1]",
            "cannot initialize optional entry from non-optional value of type int",
        ),
    ]);
}

#[test]
fn conversions() {
    hold(&[
        "int('-12') == -12 && int(3.9) == 3 && int(-3.9) == -3 && int(5u) == 5",
        "uint('7') == 7u && uint(7) == 7u && uint(7.9) == 7u",
        "double('1.5') == 1.5 && double(2) == 2.0",
        "string(1) == '1' && string(1.0) == '1' && string(true) == 'true' && string(1u) == '1'",
        "string(1000000.0) == '1e+06' && string(0.00001) == '1e-05' && string(123456.5) == '123456.5'",
        "string(b'ab') == 'ab' && bytes('ab') == b'ab'",
        "bool('true') && !bool('0')",
        "type(1) == int && type('a') == string && type([]) == list && type({}) == map && type(null) == null_type",
        "type(type(1)) == type && type(timestamp(0)) == google.protobuf.Timestamp",
        "type(duration('1s')) == google.protobuf.Duration && type(optional.none()) == optional_type",
        "dyn(1) == 1",
        "int(timestamp('1970-01-01T00:01:00Z')) == 60",
    ]);
    fail(&[
        ("int('a')", "type conversion error from 'string' to 'int'"),
        ("int(1e19)", "integer overflow"),
        ("uint(-1)", "unsigned integer overflow"),
        ("int(18446744073709551615u)", "integer overflow"),
        (
            "string(b'\\xff')",
            "invalid UTF-8 in bytes, cannot convert to string",
        ),
        ("bool('yes')", "type conversion error from 'string' to 'bool'"),
        (
            "timestamp('yesterday')",
            "type conversion error from 'string' to 'google.protobuf.Timestamp'",
        ),
        (
            "timestamp('2026-01-01 00:00:00Z')",
            "type conversion error from 'string' to 'google.protobuf.Timestamp'",
        ),
        (
            "duration('1 hour')",
            "type conversion error from 'string' to 'google.protobuf.Duration'",
        ),
        ("int([])", "no such overload: int(list)"),
    ]);
}

#[test]
fn times() {
    hold(&[
        "timestamp('2026-11-30T15:04:05.678Z').getFullYear() == 2026",
        "timestamp('2026-11-30T15:04:05.678Z').getMonth() == 10",
        "timestamp('2026-11-30T15:04:05.678Z').getDate() == 30",
        "timestamp('2026-11-30T15:04:05.678Z').getDayOfMonth() == 29",
        "timestamp('2026-11-30T15:04:05.678Z').getDayOfWeek() == 1",
        "timestamp('2026-11-30T15:04:05.678Z').getDayOfYear() == 333",
        "timestamp('2026-11-30T15:04:05.678Z').getHours() == 15",
        "timestamp('2026-11-30T15:04:05.678Z').getMinutes() == 4",
        "timestamp('2026-11-30T15:04:05.678Z').getSeconds() == 5",
        "timestamp('2026-11-30T15:04:05.678Z').getMilliseconds() == 678",
        "timestamp('2026-11-30T15:04:05Z').getHours('+02:30') == 17",
        "timestamp('2026-11-30T15:04:05Z').getHours('-08:00') == 7",
        "timestamp('2026-11-30T15:04:05Z').getMinutes('02:30') == 34",
        "timestamp('2026-11-30T15:04:05+01:00') == timestamp('2026-11-30T14:04:05Z')",
        "timestamp('2026-11-30T00:00:00Z') - timestamp('2026-11-29T00:00:00Z') == duration('24h')",
        "timestamp('2026-11-30T00:00:00Z') + duration('1h') > timestamp('2026-11-30T00:00:00Z')",
        "duration('1h30m') == duration('5400s') && duration('-1.5s') < duration('0')",
        "duration('1h30m').getHours() == 1 && duration('1h30m').getMinutes() == 90",
        "duration('1.5s').getMilliseconds() == 1500 && duration('90s').getSeconds() == 90",
        "string(duration('1h30m')) == '5400s' && string(duration('1.5s')) == '1.5s'",
        "string(timestamp('2026-11-30T15:04:05Z')) == '2026-11-30T15:04:05Z'",
        "string(timestamp('9999-12-31T23:59:59.5Z')) == '9999-12-31T23:59:59.5Z'",
        "string(timestamp('0001-01-01T00:00:00Z')) == '0001-01-01T00:00:00Z'",
        "timestamp('9999-12-31T23:59:59Z').getDate('-05:00') == 31",
        "int(timestamp('1969-12-31T23:59:59.5Z')) == -1",
        "duration('1us500ns') == duration('1.5us')",
    ]);
    fail(&[
        (
            "timestamp('9999-12-31T23:59:59Z') + duration('1s')",
            "timestamp overflow",
        ),
        (
            "timestamp(0).getHours('Mars/Olympus')",
            "unknown time zone Mars/Olympus",
        ),
        ("timestamp(0).getHours('+99:00')", "unknown time zone +99:00"),
        (
            "timestamp(0).getHours('../../etc/passwd')",
            "unknown time zone ../../etc/passwd",
        ),
        ("duration('2562047h') + duration('2562047h')", "duration overflow"),
    ]);
}

#[test]
fn texts() {
    hold(&[
        "size('héllo') == 5 && 'héllo'.size() == 5 && size(b'ab') == 2 && size([1]) == 1 && size({'a': 1}) == 1",
        "'hello'.startsWith('he') && 'hello'.endsWith('lo') && 'hello'.contains('ell') && !'hello'.contains('x')",
        "'hello'.matches('^h.*o$') && matches('hello', 'ell') && !'hello'.matches('^ell')",
        "'héllo'.charAt(1) == 'é' && 'ab'.charAt(2) == ''",
        "'héllo'.indexOf('l') == 2 && 'hello'.indexOf('l', 3) == 3 && 'a'.indexOf('b') == -1 && 'ab'.indexOf('') == 0",
        "'hello'.lastIndexOf('l') == 3 && 'hello'.lastIndexOf('l', 2) == 2 && 'hello'.lastIndexOf('') == 5",
        "'tacocat'.indexOf('a', 30) == -1 && 'tacocat'.lastIndexOf('a', 30) == -1",
        "['a', 'b'].join() == 'ab' && ['a', 'b'].join(', ') == 'a, b' && [].join('x') == ''",
        "'a,b,c'.split(',') == ['a', 'b', 'c'] && 'a,b,c'.split(',', 2) == ['a', 'b,c'] && 'a,b'.split(',', 0) == []",
        "'héy'.split('') == ['h', 'é', 'y'] && 'abc'.split('', 2) == ['a', 'bc']",
        "'héllo'.substring(1) == 'éllo' && 'héllo'.substring(1, 3) == 'él' && 'ab'.substring(2) == ''",
        "'aaa'.replace('a', 'b') == 'bbb' && 'aaa'.replace('a', 'b', 2) == 'bba' && 'ab'.replace('', '-') == '-a-b-'",
        "'HéLLO'.lowerAscii() == 'héllo' && 'héllo'.upperAscii() == 'HéLLO'",
        "'  a b \\n'.trim() == 'a b' && 'abc'.reverse() == 'cba'",
        "strings.quote('a\"b\\n') == '\"a\\\\\"b\\\\n\"'",
        "'a1b22'.find('[0-9]+') == '1' && 'abc'.find('[0-9]+') == ''",
        "'a1b22'.findAll('[0-9]+') == ['1', '22'] && 'a1b22'.findAll('[0-9]+', 1) == ['1']",
    ]);
    fail(&[
        ("'ab'.charAt(3)", "index out of range: 3"),
        (
            "'ab'.substring(2, 1)",
            "invalid substring range. start: 2, end: 1",
        ),
        ("'ab'.indexOf('a', -1)", "index out of range: -1"),
        ("'ab'.lastIndexOf('a', -1)", "index out of range: -1"),
        ("'tacocat'.substring(1, 50)", "index out of range: 50"),
        ("[1].join()", "no such overload: join(int)"),
        (
            "dyn(1).startsWith('a')",
            "no such overload: startsWith(int, string)",
        ),
        ("size(1)", "no such overload: size(int)"),
    ]);
}

#[test]
fn format_follows_its_clauses() {
    hold(&[
        "'%s is %d'.format(['a', 1]) == 'a is 1'",
        "'%.2f %f'.format([1.5, 2.71828]) == '1.50 2.718280' && '%.1f'.format([-1234567.25]) == '-1,234,567.2'",
        "'%f %f'.format(['Infinity', 'NaN']) == '∞ NaN'",
        "'%.6e'.format([1052.032911275]) == '1.052033\\u202f×\\u202f10⁰³'",
        "'%.1e'.format([0.0015]) == '1.5\\u202f×\\u202f10⁻⁰³'",
        "'%b %o %x %X'.format([5, 8, 255, 255]) == '101 10 ff FF'",
        "'%x'.format(['hi']) == '6869' && '%b'.format([true]) == '1' && '%x'.format([-255]) == '-ff'",
        "'100%%'.format([]) == '100%'",
        "'%s'.format([['abc', 3.14, null, [9, 8]]]) == '[\"abc\", 3.140000, null, [9, 8]]'",
        "'%s'.format([[timestamp(0)]]) == '[timestamp(\"1970-01-01T00:00:00Z\")]'",
        "'%s'.format([{'k1': b'xyz', 'k2': duration('2h'), 'k3': true}]) \
         == '{\"k1\":b\"xyz\", \"k2\":duration(\"7200s\"), \"k3\":true}'",
        "'%s %s'.format([duration('90s'), timestamp(0)]) == '90s 1970-01-01T00:00:00Z'",
        "'%s %s %s'.format([type(1), null, b'ab']) == 'int null ab'",
    ]);
    fail(&[
        ("'%d'.format([])", "index 0 out of range"),
        ("'%'.format([1])", "unexpected end of string"),
        (
            "'%d'.format(['a'])",
            "error during formatting: decimal clause can only be used on integers, was given string",
        ),
        (
            "'%f'.format([1])",
            "error during formatting: fixed-point clause can only be used on doubles, was given int",
        ),
        (
            "'%q'.format([1])",
            "could not parse formatting clause: unrecognized formatting clause \"q\"",
        ),
        (
            "'%.9999f'.format([1.0])",
            "could not parse formatting clause: error while parsing precision: error while converting precision to integer",
        ),
    ]);
}

#[test]
fn lists() {
    hold(&[
        "[1, 2, 2].isSorted() && ![2, 1].isSorted() && [].isSorted() && ['a', 'b'].isSorted()",
        "[1, 2].sum() == 3 && [1.5, 2.0].sum() == 3.5 && [].sum() == 0",
        "[duration('1s'), duration('2s')].sum() == duration('3s')",
        "[2, 1, 3].min() == 1 && [2, 1, 3].max() == 3",
        "[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2 && [1].indexOf(5) == -1",
        "[1, 2].reverse() == [2, 1]",
    ]);
    fail(&[
        ("[].min()", "min called on empty list"),
        ("[[1], [2]].isSorted()", "no such overload: isSorted(list, list)"),
    ]);
}

#[test]
fn sets() {
    hold(&[
        "sets.contains([1, 2, 3], [3, 1.0, 1]) && !sets.contains([1], [2]) && sets.contains([], [])",
        "sets.equivalent([1, 2, 2], [2u, 1]) && !sets.equivalent([1], [1, 2])",
        "sets.intersects([1, 2], [2, 3]) && !sets.intersects([1], [2]) && !sets.intersects([], [1])",
    ]);
    fail(&[(
        "sets.contains(dyn(1), [1])",
        "no such overload: sets.contains(int, list)",
    )]);
}
