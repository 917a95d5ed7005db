//! Ranges of sizes and costs, which never overflow.

/// Part of a text's length that walking over it costs.
pub(crate) const TEXT: f64 = 0.1;
/// Part of a pattern's length that it costs per step over a text.
pub(crate) const PATTERN: f64 = 0.25;

/// The smallest and largest size of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

/// The smallest and largest cost of a part.
pub(crate) type Cost = Range;

impl Range {
    pub(crate) const UNKNOWN: Range = Range {
        min: 0,
        max: u64::MAX,
    };

    pub(crate) const fn fixed(size: u64) -> Self {
        Self { min: size, max: size }
    }

    /// The neutral element of [`Range::union`]; for an empty container the size 0.
    pub(crate) fn nothing(is_empty: bool) -> Self {
        Self {
            min: if is_empty { 0 } else { u64::MAX },
            max: 0,
        }
    }

    pub(crate) fn add(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    pub(crate) fn times(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    pub(crate) fn times_cost(self, cost: Cost) -> Cost {
        self.times(cost)
    }

    /// Each end times the factor, rounded up.
    pub(crate) fn scaled(self, factor: f64) -> Self {
        Self {
            min: scale(self.min, factor),
            max: scale(self.max, factor),
        }
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

/// A number times a factor, rounded up; what does not fit becomes the largest number.
pub(crate) fn scale(number: u64, factor: f64) -> u64 {
    // A float's conversion to an integer saturates.
    (number as f64 * factor).ceil() as u64
}
