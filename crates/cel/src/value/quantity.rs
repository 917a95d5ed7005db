//! Quantities (`1500m`, `2Gi`, `1e3`) as Kubernetes reads, compares and adds them.

mod canonical;

use std::cmp::Ordering;

pub use canonical::{Notation, canonical_quantity};

/// Digits that surely fit 64 bits.
const SAFE_DIGITS: usize = 18;
/// The largest quantity with a binary suffix, in thousand millionths.
const MAX_BINARY: i128 = (i64::MAX as i128) * NANO;
const NANO: i128 = 1_000_000_000;

const WRONG_FORM: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const WRONG_SUFFIX: &str = "unable to parse quantity's suffix";
const WRONG_NUMBER: &str = "unable to parse numeric part of quantity";

/// An amount of a resource.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    amount: Amount,
}

#[derive(Clone, Copy, Debug)]
enum Amount {
    /// `value` · 10^`scale`
    Small { value: i64, scale: i32 },
    /// What does not fit, in thousand millionths; ends on both sides at `i128::MAX`, so that every amount has a negative.
    Large { nanos: i128 },
}

impl Quantity {
    /// A whole number.
    pub(crate) fn from_int(value: i64) -> Self {
        Self {
            amount: Amount::Small { value, scale: 0 },
        }
    }

    /// Reads a quantity.
    ///
    /// # Errors
    /// The reference's explanation for a text that is none.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err(WRONG_FORM);
        }
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, rest) = unsigned.split_at(digits(unsigned));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(digits(rest)),
            None => ("", rest),
        };
        let whole = whole.trim_start_matches('0');
        let (base, exponent) = suffix_of(suffix)?;
        let factor: i64 = if base == Base::Binary {
            1_i64.checked_shl(exponent.unsigned_abs()).ok_or(WRONG_SUFFIX)?
        } else {
            1
        };
        // Beyond 32 bits it is zero or without end in any case.
        let scale = match base {
            Base::Binary => 0,
            Base::Decimal => exponent,
        }
        .saturating_sub(i32::try_from(fraction.len()).unwrap_or(i32::MAX));
        let is_short = match base {
            Base::Decimal => whole.len() + fraction.len() <= SAFE_DIGITS,
            Base::Binary => {
                let lost = usize::try_from(exponent * 3 / 10).unwrap_or(SAFE_DIGITS) + 1;
                fraction.is_empty() && whole.len() + lost <= 15
            }
        };
        let shifted = format!("{whole}{fraction}");
        if is_short && scale >= -9 {
            let number: i64 = if shifted.is_empty() {
                0
            } else {
                shifted.parse().map_err(|_| WRONG_NUMBER)?
            };
            if let Some(value) = number.checked_mul(factor) {
                let value = if negative { -value } else { value };
                return Ok(Self {
                    amount: Amount::Small { value, scale },
                });
            }
        }
        if whole.is_empty() && fraction.is_empty() && !unsigned.starts_with('0') {
            return Err(WRONG_NUMBER);
        }
        let mut nanos = nanos(&shifted, factor, scale);
        if base == Base::Binary {
            nanos = nanos.min(MAX_BINARY);
        }
        Ok(Self {
            amount: Amount::Large {
                nanos: if negative { -nanos } else { nanos },
            },
        })
    }

    fn nanos(self) -> i128 {
        match self.amount {
            Amount::Large { nanos } => nanos,
            Amount::Small { value, scale } => {
                let power = u32::try_from(scale.saturating_add(9)).unwrap_or(0);
                let nanos = match 10_i128.checked_pow(power) {
                    Some(factor) => i128::from(value).saturating_mul(factor),
                    None => i128::from(value.signum()).saturating_mul(i128::MAX),
                };
                nanos.max(-i128::MAX)
            }
        }
    }

    /// -1, 0 or 1.
    pub fn sign(self) -> i64 {
        i64::try_from(self.nanos().signum()).unwrap_or(0)
    }

    /// Which of two is larger.
    pub fn compare(self, other: Self) -> Ordering {
        self.nanos().cmp(&other.nanos())
    }

    /// The whole number it is, as the reference knows it: `1000m` is none.
    pub(crate) fn as_int(self) -> Option<i64> {
        match self.amount {
            Amount::Small { value, scale } => {
                let power = u32::try_from(scale).ok()?;
                10_i64.checked_pow(power)?.checked_mul(value)
            }
            Amount::Large { .. } => None,
        }
    }

    pub(crate) fn as_float(self) -> f64 {
        match self.amount {
            Amount::Small { value, scale } => value as f64 * 10_f64.powi(scale),
            Amount::Large { nanos } => nanos as f64 / 1e9,
        }
    }

    /// Whether nothing is left over when it is counted in ones.
    pub fn is_whole(self) -> bool {
        self.nanos() % NANO == 0
    }

    /// Whether it is a multiple of `unit`; never of nothing.
    pub fn is_multiple_of(self, unit: Self) -> bool {
        self.nanos().checked_rem(unit.nanos()) == Some(0)
    }

    /// The sum; what is too large for it stays at the end of what there is.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let small = match (self.amount, other.amount) {
            (Amount::Small { value: 0, .. }, Amount::Small { .. }) => return other,
            (Amount::Small { .. }, Amount::Small { value: 0, .. }) => return self,
            (
                Amount::Small { value, scale },
                Amount::Small {
                    value: added,
                    scale: other,
                },
            ) => add_small((value, scale), (added, other)),
            _ => None,
        };
        let amount = match small {
            Some((value, scale)) => Amount::Small { value, scale },
            None => Amount::Large {
                nanos: self.nanos().saturating_add(other.nanos()).max(-i128::MAX),
            },
        };
        Self { amount }
    }

    pub(crate) fn subtract(self, other: Self) -> Self {
        let negated = match other.amount {
            Amount::Small { value, scale } if value != i64::MIN => Amount::Small { value: -value, scale },
            _ => Amount::Large {
                nanos: other.nanos().saturating_neg(),
            },
        };
        self.plus(Self { amount: negated })
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.compare(*other).is_eq()
    }
}

fn add_small(left: (i64, i32), right: (i64, i32)) -> Option<(i64, i32)> {
    let (high, low) = if left.1 >= right.1 {
        (left, right)
    } else {
        (right, left)
    };
    let factor = 10_i64.checked_pow(u32::try_from(high.1.checked_sub(low.1)?).ok()?)?;
    Some((high.0.checked_mul(factor)?.checked_add(low.0)?, low.1))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Base {
    Decimal,
    Binary,
}

fn suffix_of(suffix: &str) -> Result<(Base, i32), &'static str> {
    let known = match suffix {
        "Ki" => (Base::Binary, 10),
        "Mi" => (Base::Binary, 20),
        "Gi" => (Base::Binary, 30),
        "Ti" => (Base::Binary, 40),
        "Pi" => (Base::Binary, 50),
        "Ei" => (Base::Binary, 60),
        "n" => (Base::Decimal, -9),
        "u" => (Base::Decimal, -6),
        "m" => (Base::Decimal, -3),
        "" => (Base::Decimal, 0),
        "k" => (Base::Decimal, 3),
        "M" => (Base::Decimal, 6),
        "G" => (Base::Decimal, 9),
        "T" => (Base::Decimal, 12),
        "P" => (Base::Decimal, 15),
        "E" => (Base::Decimal, 18),
        other => {
            let letters = other
                .bytes()
                .take_while(|byte| b"eEinumkKMGTP".contains(byte))
                .count();
            let number = &other[letters..];
            let unsigned = number.strip_prefix(['-', '+']).unwrap_or(number);
            if !unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(WRONG_FORM);
            }
            if letters != 1 || !other.starts_with(['e', 'E']) {
                return Err(WRONG_SUFFIX);
            }
            (Base::Decimal, number.parse().map_err(|_| WRONG_SUFFIX)?)
        }
    };
    Ok(known)
}

/// `digits` · `factor` · 10^`scale` in thousand millionths, rounded up.
fn nanos(digits: &str, factor: i64, scale: i32) -> i128 {
    let mut value: i128 = 0;
    for digit in digits.bytes() {
        value = value
            .saturating_mul(10)
            .saturating_add(i128::from(digit.saturating_sub(b'0')));
    }
    value = value.saturating_mul(i128::from(factor));
    let power = scale.saturating_add(9);
    match (u32::try_from(power), 10_i128.checked_pow(power.unsigned_abs())) {
        (Ok(_), Some(factor)) => value.saturating_mul(factor),
        (Ok(_), None) if value == 0 => 0,
        (Ok(_), None) => i128::MAX,
        (Err(_), Some(divisor)) => value / divisor + i128::from(value % divisor != 0),
        (Err(_), None) => i128::from(value != 0),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn exponents_at_the_ends_of_32_bits_are_tiny_or_huge() {
        let read = |text| Quantity::parse(text).unwrap();
        let (tiny, huge) = (read("0.1e-2147483648"), read("1e2147483647"));
        assert!(tiny.compare(read("0")).is_gt());
        assert!(tiny.compare(read("2n")).is_lt());
        assert_eq!(tiny.sign(), 1);
        assert!(huge.plus(read("0.1")).compare(read("1E")).is_gt());
        assert!(read("0.1").subtract(huge).compare(read("-1E")).is_lt());
        assert!(read("0").plus(huge).compare(read("1E")).is_gt());
    }

    /// An exponent, at the ends of 32 bits as often as between.
    fn exponent() -> impl Strategy<Value = i32> {
        prop_oneof![
            -40..=40,
            i32::MIN..=i32::MIN + 20,
            i32::MAX - 20..=i32::MAX,
            any::<i32>()
        ]
    }

    proptest! {
        #[test]
        fn no_text_makes_the_arithmetic_fail(
            left in "[+-]?[0-9]{0,20}(\\.[0-9]{0,12})?",
            right in "[+-]?[0-9]{0,20}(\\.[0-9]{0,12})?",
            suffix in "|[numkMGTPE]|[KMGTPE]i|.{0,3}",
            exponent in exponent(),
        ) {
            let read: Vec<Quantity> = [format!("{left}{suffix}"), format!("{right}e{exponent}"), left, right]
                .iter()
                .filter_map(|text| Quantity::parse(text).ok())
                .collect();
            for one in &read {
                let _any_answer = (one.sign(), one.as_int(), one.as_float());
                for other in &read {
                    prop_assert_eq!(one.compare(*other), other.compare(*one).reverse());
                    // Where nothing is cut off, a sum lies on the side of what was added.
                    let (grown, shrunk) = (one.plus(*other).compare(*one), one.subtract(*other).compare(*one));
                    match other.sign() {
                        0 => prop_assert!(grown.is_eq() && shrunk.is_eq()),
                        1 => prop_assert!(grown.is_ge() && shrunk.is_le()),
                        _ => prop_assert!(grown.is_le() && shrunk.is_ge()),
                    }
                }
            }
        }

        #[test]
        fn a_larger_exponent_makes_no_smaller_quantity(
            number in "[0-9]{1,20}(\\.[0-9]{0,12})?",
            low in exponent(),
            high in exponent(),
        ) {
            let (low, high) = (low.min(high), low.max(high));
            let read = |exponent: i32| Quantity::parse(&format!("{number}e{exponent}")).unwrap();
            prop_assert!(read(low).compare(read(high)).is_le());
            let negative = |exponent: i32| Quantity::parse(&format!("-{number}e{exponent}")).unwrap();
            prop_assert!(negative(high).compare(negative(low)).is_le());
            prop_assert!(negative(high).compare(read(low)).is_le());
        }
    }

    #[test]
    fn quantities_are_compared_by_what_they_stand_for() {
        let read = |text| Quantity::parse(text).unwrap();
        assert_eq!(read("200M"), read("0.2G"));
        assert_eq!(read("1Ki"), read("1024"));
        assert_eq!(read("1.5Gi"), read("1536Mi"));
        assert!(read("500Mi").compare(read("1Gi")).is_lt());
        assert_eq!(read("50k").plus(read("20")), read("50.02k"));
        assert_eq!(read("0.1n"), read("1n"), "rounds up");
        assert_eq!(read("1000m").as_int(), None);
        assert!(read("1000m").is_whole() && !read("100m").is_whole());
        assert!(read("6Mi").is_multiple_of(read("2Mi")) && !read("3Mi").is_multiple_of(read("2Mi")));
        assert!(!read("1").is_multiple_of(read("0")));
        assert_eq!(read("50k").as_int(), Some(50_000));
        for wrong in ["", "x", "1x", "1.2.3", "--1", "1Kii", "1 "] {
            assert!(Quantity::parse(wrong).is_err(), "{wrong}");
        }
    }
}
