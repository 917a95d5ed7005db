//! Which type may stand where another is wanted, and what that tells about types not yet known. The rules are those of
//! the reference's checker, whose messages users compare with.

use std::cell::Cell;

use super::types::StaticType;

/// Steps over types that one expression may take. A type can mention another twice, and that again, so without a bound
/// a short source could take for ever; beyond it everything fits and is `dyn`.
const STEPS: usize = 2_000_000;

/// What is known about type variables, by number.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    bound: Vec<Option<StaticType>>,
    /// What the variables bound since an attempt began were before.
    trail: Vec<(usize, Option<StaticType>)>,
    steps: Cell<usize>,
}

impl Bindings {
    /// A variable about which nothing is known.
    pub(crate) fn fresh(&mut self) -> StaticType {
        self.bound.push(None);
        StaticType::Variable(self.bound.len() - 1)
    }

    fn find(&self, variable: usize) -> Option<&StaticType> {
        self.bound.get(variable).and_then(Option::as_ref)
    }

    fn bind(&mut self, variable: usize, to: StaticType) {
        if let Some(slot) = self.bound.get_mut(variable) {
            self.trail.push((variable, slot.replace(to)));
        }
    }

    /// Whether there are no steps left; takes one.
    fn is_exhausted(&self) -> bool {
        let steps = self.steps.get();
        self.steps.set(steps.saturating_add(1));
        steps > STEPS
    }

    /// Keeps what an attempt bound if it `fits`, and takes it back otherwise.
    fn settle(&mut self, fits: bool) -> bool {
        if fits {
            self.trail.clear();
        }
        while let Some((variable, before)) = self.trail.pop() {
            if let Some(slot) = self.bound.get_mut(variable) {
                *slot = before;
            }
        }
        fits
    }

    /// The type with its known variables replaced; with `settle` unknown ones become `dyn`.
    pub(crate) fn resolve(&self, wanted: &StaticType, settle: bool) -> StaticType {
        wanted.replaced(&mut |part| match part {
            _ if self.is_exhausted() => Some(StaticType::Dyn),
            StaticType::Variable(number) => match self.find(*number) {
                Some(bound) => Some(self.resolve(bound, settle)),
                None => settle.then_some(StaticType::Dyn),
            },
            _ => None,
        })
    }

    /// Whether `given` may stand for `wanted`; remembers what that says about variables if it may.
    pub(crate) fn assign(&mut self, given: &StaticType, wanted: &StaticType) -> bool {
        let fits = self.fits(given, wanted);
        self.settle(fits)
    }

    /// [`Bindings::assign`] for all of two lists of the same length.
    pub(crate) fn assign_all(&mut self, given: &[StaticType], wanted: &[StaticType]) -> bool {
        if given.len() != wanted.len() {
            return false;
        }
        let fits = given
            .iter()
            .zip(wanted)
            .all(|(given, wanted)| self.fits(given, wanted));
        self.settle(fits)
    }

    fn fits(&mut self, given: &StaticType, wanted: &StaticType) -> bool {
        if self.is_exhausted() {
            return true;
        }
        if let StaticType::Variable(number) = wanted {
            match self.substitutes(given, *number) {
                Substitution::Valid => return true,
                Substitution::Contradicts => return false,
                Substitution::Impossible => {}
            }
        }
        if let StaticType::Variable(number) = given {
            return matches!(self.substitutes(wanted, *number), Substitution::Valid);
        }
        if given.is_dyn_or_error() || wanted.is_dyn_or_error() {
            return true;
        }
        if matches!(given, StaticType::Null) {
            return takes_null(wanted);
        }
        if matches!(wanted, StaticType::Null) {
            return takes_null(given);
        }
        match (given, wanted) {
            (StaticType::List(given), StaticType::List(wanted)) => self.fits(given, wanted),
            (StaticType::Map(given_key, given), StaticType::Map(wanted_key, wanted)) => {
                self.fits(given_key, wanted_key) && self.fits(given, wanted)
            }
            (StaticType::Opaque(name, given), StaticType::Opaque(other, wanted)) => {
                name == other
                    && given.len() == wanted.len()
                    && given
                        .iter()
                        .zip(wanted)
                        .all(|(given, wanted)| self.fits(given, wanted))
            }
            (StaticType::Type(_), StaticType::Type(_)) => true,
            _ => given == wanted,
        }
    }

    fn substitutes(&mut self, given: &StaticType, variable: usize) -> Substitution {
        if *given == StaticType::Variable(variable) {
            return Substitution::Valid;
        }
        if let Some(known) = self.find(variable).cloned() {
            if *given == known {
                return Substitution::Valid;
            }
            if !self.fits(given, &known) {
                return Substitution::Contradicts;
            }
            let general = most_general(given, &known).clone();
            if !self.mentions(&general, variable) {
                self.bind(variable, general);
            }
            return Substitution::Valid;
        }
        if self.mentions(given, variable) {
            return Substitution::Impossible;
        }
        self.bind(variable, given.clone());
        Substitution::Valid
    }

    /// Whether a type contains a variable, directly or through others.
    fn mentions(&self, within: &StaticType, variable: usize) -> bool {
        match within {
            _ if self.is_exhausted() => true,
            StaticType::Variable(number) if *number == variable => true,
            StaticType::Variable(number) => self
                .find(*number)
                .is_some_and(|bound| self.mentions(bound, variable)),
            StaticType::List(item) => self.mentions(item, variable),
            StaticType::Map(key, value) => self.mentions(key, variable) || self.mentions(value, variable),
            StaticType::Opaque(_, parameters) => parameters
                .iter()
                .any(|parameter| self.mentions(parameter, variable)),
            StaticType::Type(Some(inner)) => self.mentions(inner, variable),
            _ => false,
        }
    }
}

enum Substitution {
    Valid,
    /// The variable is known to be something else.
    Contradicts,
    /// The variable occurs in the type.
    Impossible,
}

fn takes_null(wanted: &StaticType) -> bool {
    matches!(
        wanted,
        StaticType::Null
            | StaticType::Opaque(..)
            | StaticType::Object(_)
            | StaticType::Duration
            | StaticType::Timestamp
    )
}

/// The wider one of two types that fit each other.
pub(crate) fn most_general<'a>(left: &'a StaticType, right: &'a StaticType) -> &'a StaticType {
    if is_at_most_as_specific(left, right) {
        left
    } else {
        right
    }
}

fn is_at_most_as_specific(left: &StaticType, right: &StaticType) -> bool {
    if left.is_dyn() || matches!(left, StaticType::Variable(_)) {
        return true;
    }
    if right.is_dyn() || matches!(right, StaticType::Variable(_)) {
        return false;
    }
    match (left, right) {
        (StaticType::List(left), StaticType::List(right)) => is_at_most_as_specific(left, right),
        (StaticType::Map(left_key, left), StaticType::Map(right_key, right)) => {
            is_at_most_as_specific(left_key, right_key) && is_at_most_as_specific(left, right)
        }
        (StaticType::Opaque(name, left), StaticType::Opaque(other, right)) => {
            name == other
                && left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| is_at_most_as_specific(left, right))
        }
        (StaticType::Type(_), StaticType::Type(_)) => true,
        _ => left == right,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_learns_its_type_and_keeps_the_wider_one() {
        let mut bindings = Bindings::default();
        let item = bindings.fresh();
        assert!(bindings.assign(&StaticType::Int, &item));
        assert!(!bindings.assign(&StaticType::String, &item));
        assert_eq!(bindings.resolve(&item, true), StaticType::Int);
        assert!(bindings.assign(&StaticType::Dyn, &item));
        assert_eq!(bindings.resolve(&item, true), StaticType::Dyn);
    }

    #[test]
    fn a_type_never_contains_itself() {
        let mut bindings = Bindings::default();
        let item = bindings.fresh();
        assert!(!bindings.assign(&StaticType::list(item.clone()), &item));
    }
}
