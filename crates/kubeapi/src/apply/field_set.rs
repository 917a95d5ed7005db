//! Sets of field paths, kept as a trie. A path is a member of its own right; that a child of it is in the set
//! says nothing about the path itself.

use std::collections::{BTreeMap, BTreeSet};

use super::element::PathElement;

/// A set of field paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    pub(super) members: BTreeSet<PathElement>,
    pub(super) children: BTreeMap<PathElement, FieldSet>,
}

impl FieldSet {
    /// The set of the paths made of field names only, for example `[["spec"], ["metadata", "labels"]]`.
    pub fn of_names<'a, P>(paths: impl IntoIterator<Item = P>) -> Self
    where
        P: IntoIterator<Item = &'a str>,
    {
        let mut set = Self::default();
        for path in paths {
            let elements: Vec<PathElement> = path.into_iter().map(PathElement::field).collect();
            set.insert(&elements);
        }
        set
    }

    /// Adds a path; the empty path is the object itself, which nobody owns.
    pub fn insert(&mut self, path: &[PathElement]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    /// Whether the path itself is in the set.
    pub fn has(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.members.contains(last),
            [first, rest @ ..] => self.children.get(first).is_some_and(|child| child.has(rest)),
        }
    }

    /// Whether no path is in the set.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(Self::is_empty)
    }

    /// The paths below `element`, when there are any.
    pub(super) fn below(&self, element: &PathElement) -> Option<&Self> {
        self.children.get(element).filter(|child| !child.is_empty())
    }

    /// The paths in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut result = self.clone();
        result.add_all(other);
        result
    }

    fn add_all(&mut self, other: &Self) {
        self.members.extend(other.members.iter().cloned());
        for (element, child) in &other.children {
            self.children.entry(element.clone()).or_default().add_all(child);
        }
    }

    /// The paths in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let members = self.members.intersection(&other.members).cloned().collect();
        let children = self
            .children
            .iter()
            .filter_map(|(element, child)| {
                let common = child.intersection(other.children.get(element)?);
                (!common.is_empty()).then(|| (element.clone(), common))
            })
            .collect();
        Self { members, children }
    }

    /// The paths that are not in `other`; what `other` has below a path does not count for the path.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let members = self.members.difference(&other.members).cloned().collect();
        let children = self
            .children
            .iter()
            .filter_map(|(element, child)| {
                let rest = match other.children.get(element) {
                    Some(removed) => child.difference(removed),
                    None => child.clone(),
                };
                (!rest.is_empty()).then(|| (element.clone(), rest))
            })
            .collect();
        Self { members, children }
    }

    /// The paths that are neither in `other` nor below a path in `other`.
    #[must_use]
    pub fn recursive_difference(&self, other: &Self) -> Self {
        let members = self.members.difference(&other.members).cloned().collect();
        let children = self
            .children
            .iter()
            .filter(|(element, _)| !other.members.contains(*element))
            .filter_map(|(element, child)| {
                let rest = match other.children.get(element) {
                    Some(removed) => child.recursive_difference(removed),
                    None => child.clone(),
                };
                (!rest.is_empty()).then(|| (element.clone(), rest))
            })
            .collect();
        Self { members, children }
    }

    /// Every path, in order: at each level first the members, then what is below.
    pub fn paths(&self) -> Vec<Vec<PathElement>> {
        let mut result = Vec::new();
        self.collect(&mut Vec::new(), &mut result);
        result
    }

    fn collect(&self, prefix: &mut Vec<PathElement>, result: &mut Vec<Vec<PathElement>>) {
        for member in &self.members {
            let mut path = prefix.clone();
            path.push(member.clone());
            result.push(path);
        }
        for (element, child) in &self.children {
            prefix.push(element.clone());
            child.collect(prefix, result);
            prefix.pop();
        }
    }
}
