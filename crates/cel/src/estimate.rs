//! What an expression can cost at most, from the sizes that its variables are declared with. The model is the
//! reference's, unit for unit: what a server accepts must not depend on which server it is (KA-015).

mod calls;
mod size;

use std::collections::HashMap;
use std::sync::Arc;

pub(crate) use self::size::{Cost, Range, scale};
use crate::check::{Checked, Fold, Part, PieceKind, StaticType};
use crate::declaration::Declaration;
use crate::value::Value;

const LIST: u64 = 10;
const MAP: u64 = 30;

/// The range of what an expression costs. Every path of it starts at `root`, whatever its variable is called.
pub(crate) fn estimate(checked: &Checked, root: &Declaration) -> Cost {
    Estimator {
        checked,
        root,
        paths: HashMap::new(),
        locals: Vec::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
    }
    .cost(checked.expression.root)
}

type Path = Vec<Arc<str>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Container {
    List,
    Map,
}

/// Sizes of the keys and values of a list or map that the expression makes.
#[derive(Clone, Copy, Debug)]
struct Entries {
    container: Container,
    key: Range,
    value: Range,
}

impl Entries {
    fn union(self, other: Self) -> Self {
        Self {
            container: self.container,
            key: self.key.union(other.key),
            value: self.value.union(other.value),
        }
    }
}

#[derive(Debug)]
struct Local {
    name: Arc<str>,
    path: Path,
    size: Option<Range>,
    entries: Option<Entries>,
}

struct Estimator<'a> {
    checked: &'a Checked,
    root: &'a Declaration,
    paths: HashMap<Part, Path>,
    locals: Vec<Local>,
    sizes: HashMap<Part, Range>,
    entries: HashMap<Part, Entries>,
}

impl Estimator<'_> {
    fn cost(&mut self, part: Part) -> Cost {
        let checked = self.checked;
        match checked.expression.kind(part) {
            Some(PieceKind::Name(name)) => {
                let path = match self.local(name) {
                    Some(local) => local.path.clone(),
                    None => vec![Arc::clone(name)],
                };
                self.paths.insert(part, path);
                Cost::fixed(1)
            }
            Some(PieceKind::Select { operand, field, test }) => self.select(part, *operand, field, *test),
            Some(PieceKind::Call {
                target,
                function,
                arguments,
            }) => self.call(part, *target, function, arguments),
            Some(PieceKind::List(items)) => self.list(part, items),
            Some(PieceKind::Map(items)) => self.map(part, items),
            Some(PieceKind::Fold(fold)) if self.is_binding(fold) => self.binding(part, fold),
            Some(PieceKind::Fold(fold)) => self.fold(part, fold),
            Some(PieceKind::Literal(_)) | None => Cost::fixed(0),
        }
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| *local.name == *name)
    }

    fn path(&self, part: Part) -> Path {
        if let Some(PieceKind::Name(name)) = self.checked.expression.kind(part)
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&part).cloned().unwrap_or_default()
    }

    fn extended(&self, part: Part, step: &str) -> Path {
        let mut path = self.path(part);
        path.push(step.into());
        path
    }

    fn select(&mut self, part: Part, operand: Part, field: &str, test: bool) -> Cost {
        if let Some(name) = self.checked.qualified(part) {
            self.paths.insert(part, vec![name.into()]);
            return Cost::fixed(1);
        }
        let mut cost = self.cost(operand);
        // Kubernetes does not charge for `has()` itself.
        if test {
            return cost;
        }
        if matches!(
            self.checked.type_of(operand),
            StaticType::Map(..) | StaticType::Object(_) | StaticType::Variable(_)
        ) {
            cost = cost.add(Cost::fixed(1));
        }
        let path = self.extended(operand, field);
        self.paths.insert(part, path);
        cost
    }

    fn list(&mut self, part: Part, items: &[(Part, bool)]) -> Cost {
        let mut cost = Cost::fixed(LIST);
        let mut value = Range::nothing(items.is_empty());
        for &(item, _) in items {
            cost = cost.add(self.cost(item));
            value = value.union(self.size_or_unknown(item));
        }
        let entries = Entries {
            container: Container::List,
            key: Range::fixed(1),
            value,
        };
        self.entries.insert(part, entries);
        cost
    }

    fn map(&mut self, part: Part, items: &[(Part, Part, bool)]) -> Cost {
        let mut cost = Cost::fixed(MAP);
        let mut key = Range::nothing(items.is_empty());
        let mut value = key;
        for &(of_key, of_value, _) in items {
            cost = cost.add(self.cost(of_key)).add(self.cost(of_value));
            key = key.union(self.size_or_unknown(of_key));
            value = value.union(self.size_or_unknown(of_value));
        }
        let entries = Entries {
            container: Container::Map,
            key,
            value,
        };
        self.entries.insert(part, entries);
        cost
    }

    /// Whether a loop only gives a value a name.
    fn is_binding(&self, fold: &Fold) -> bool {
        let kind = |part| self.checked.expression.kind(part);
        matches!(kind(fold.range), Some(PieceKind::List(items)) if items.is_empty())
            && matches!(kind(fold.condition), Some(PieceKind::Literal(Value::Bool(false))))
    }

    fn binding(&mut self, part: Part, fold: &Fold) -> Cost {
        let cost = self.cost(fold.range).add(self.cost(fold.initial));
        self.push_whole(&fold.accumulator, fold.initial);
        let cost = cost.add(self.cost(fold.result));
        // The body may be such a name itself, so its size is taken while the name is known.
        let size = self.size(fold.result);
        let entries = self.entry_sizes(fold.result);
        self.locals.pop();
        self.set_size(part, size);
        self.set_entries(part, entries);
        cost
    }

    fn push_whole(&mut self, name: &Arc<str>, value: Part) {
        let local = Local {
            name: Arc::clone(name),
            path: self.path(value),
            size: self.size(value),
            entries: self.entry_sizes(value),
        };
        self.locals.push(local);
    }

    fn fold(&mut self, part: Part, fold: &Fold) -> Cost {
        let mut cost = self.cost(fold.range).add(self.cost(fold.initial));
        self.push_whole(&fold.accumulator, fold.initial);
        let depth = self.locals.len();
        self.push_elements(fold);
        let condition = self.cost(fold.condition);
        let step = self.cost(fold.step);
        self.locals.truncate(depth);
        cost = cost.add(self.cost(fold.result));
        self.locals.pop();
        let count = self.size_or_unknown(fold.range);
        cost = cost.add(count.times_cost(step.add(condition)));
        match self.checked.expression.kind(fold.initial) {
            Some(PieceKind::Literal(_)) => {
                let size = self.size(fold.initial);
                self.set_size(part, size);
            }
            Some(PieceKind::List(_) | PieceKind::Map(_)) => {
                self.set_size(part, Some(count));
                let entries = self.entry_sizes(fold.step);
                self.set_entries(part, entries);
            }
            _ => {}
        }
        cost
    }

    fn push_elements(&mut self, fold: &Fold) {
        let entries = self.entry_sizes(fold.range);
        let container = match (entries, self.checked.type_of(fold.range)) {
            (Some(entries), _) => Some(entries.container),
            (None, StaticType::List(_)) => Some(Container::List),
            (None, _) => None,
        };
        let is_list = container == Some(Container::List);
        let key = entries.map(|entries| entries.key);
        let value = entries.map(|entries| entries.value);
        let mut push = |name: &Arc<str>, step: &str, size: Option<Range>| {
            let path = self.extended(fold.range, step);
            self.locals.push(Local {
                name: Arc::clone(name),
                path,
                size,
                entries: None,
            });
        };
        match &fold.second {
            Some(second) => {
                push(&fold.first, if is_list { "@indices" } else { "@keys" }, key);
                push(second, if is_list { "@items" } else { "@values" }, value);
            }
            None if is_list => push(&fold.first, "@items", value),
            None => push(&fold.first, "@keys", key),
        }
    }

    fn set_size(&mut self, part: Part, size: Option<Range>) {
        if let Some(size) = size {
            self.sizes.insert(part, size);
        }
    }

    fn set_entries(&mut self, part: Part, entries: Option<Entries>) {
        if let Some(entries) = entries {
            self.entries.insert(part, entries);
        }
    }

    /// The size of a part as far as the expression and the declarations tell it.
    fn size(&mut self, part: Part) -> Option<Range> {
        if let Some(size) = self.sizes.get(&part) {
            return Some(*size);
        }
        let kind = self.checked.expression.kind(part)?;
        let written = match kind {
            PieceKind::Literal(Value::String(text)) => Some(text.chars().count()),
            PieceKind::Literal(Value::Bytes(bytes)) => Some(bytes.len()),
            PieceKind::Literal(_) => Some(1),
            PieceKind::List(items) => Some(items.len()),
            PieceKind::Map(items) => Some(items.len()),
            _ => None,
        };
        if let Some(written) = written {
            return Some(Range::fixed(u64::try_from(written).unwrap_or(u64::MAX)));
        }
        let path = self.path(part);
        if let Some(size) = self.declared_size(&path) {
            self.sizes.insert(part, size);
            return Some(size);
        }
        if self.checked.type_of(part).is_scalar() {
            return Some(Range::fixed(1));
        }
        match kind {
            PieceKind::Name(name) => self.local(name)?.size,
            _ => None,
        }
    }

    /// The declared size at the end of a path. Its first step is taken for the root, as in the reference: all variables
    /// have the root's declaration.
    fn declared_size(&self, path: &[Arc<str>]) -> Option<Range> {
        let (_, below) = path.split_first()?;
        Some(Range {
            min: 0,
            max: self.root.at(below)?.max_elements(),
        })
    }

    fn size_or_unknown(&mut self, part: Part) -> Range {
        self.size(part).unwrap_or(Range::UNKNOWN)
    }

    fn entry_sizes(&self, part: Part) -> Option<Entries> {
        if let Some(entries) = self.entries.get(&part) {
            return Some(*entries);
        }
        match self.checked.expression.kind(part)? {
            PieceKind::Name(name) => self.local(name)?.entries,
            _ => None,
        }
    }
}
