//! The expression with its macros written out, as the reference's checker and cost estimate see it: what a macro makes
//! has types and costs of its own.

use std::sync::Arc;

use crate::ast::{FoldKind, SelectMode};
use crate::syntax::{FoldSyntax, Form, Syntax};
use crate::value::Value;

/// The variable in which a macro gathers its result. Nobody can write this name.
pub(crate) const ACCUMULATOR: &str = "@result";
/// Most parts of an expression with its macros written out.
pub(crate) const MAX_PIECES: usize = 200_000;
const SORTED: &str = "@__sortBy_input__";

/// Index of a part in its expression.
pub(crate) type Part = usize;

/// One part with its place in the source.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) offset: usize,
    pub(crate) kind: PieceKind,
}

#[derive(Debug)]
pub(crate) enum PieceKind {
    Literal(Value),
    Name(Arc<str>),
    Select {
        operand: Part,
        field: Arc<str>,
        /// `has(operand.field)`
        test: bool,
    },
    Call {
        target: Option<Part>,
        function: Arc<str>,
        arguments: Vec<Part>,
    },
    List(Vec<(Part, bool)>),
    Map(Vec<(Part, Part, bool)>),
    Fold(Fold),
}

impl PieceKind {
    /// The parts that it is made of.
    pub(crate) fn parts(&self) -> Vec<Part> {
        match self {
            PieceKind::Literal(_) | PieceKind::Name(_) => Vec::new(),
            PieceKind::Select { operand, .. } => vec![*operand],
            PieceKind::Call {
                target, arguments, ..
            } => target.iter().chain(arguments).copied().collect(),
            PieceKind::List(items) => items.iter().map(|(item, _)| *item).collect(),
            PieceKind::Map(items) => items.iter().flat_map(|(key, value, _)| [*key, *value]).collect(),
            PieceKind::Fold(fold) => vec![fold.range, fold.initial, fold.condition, fold.step, fold.result],
        }
    }
}

/// A loop: `accumulator` starts as `initial` and becomes `step` for each element of `range` while `condition` holds.
#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) range: Part,
    pub(crate) first: Arc<str>,
    pub(crate) second: Option<Arc<str>>,
    pub(crate) accumulator: Arc<str>,
    pub(crate) initial: Part,
    pub(crate) condition: Part,
    pub(crate) step: Part,
    pub(crate) result: Part,
}

/// All parts of one expression; each stands behind its own parts.
#[derive(Debug)]
pub(crate) struct Expression {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) root: Part,
}

impl Expression {
    pub(crate) fn kind(&self, part: Part) -> Option<&PieceKind> {
        self.pieces.get(part).map(|piece| &piece.kind)
    }

    pub(crate) fn offset(&self, part: Part) -> usize {
        self.pieces.get(part).map_or(0, |piece| piece.offset)
    }

    /// How deep its parts are nested.
    pub(crate) fn depth(&self) -> usize {
        let mut depths: Vec<usize> = Vec::with_capacity(self.pieces.len());
        for piece in &self.pieces {
            let below = piece
                .kind
                .parts()
                .into_iter()
                .filter_map(|part| depths.get(part))
                .max();
            depths.push(below.map_or(1, |depth| depth + 1));
        }
        depths.get(self.root).copied().unwrap_or(1)
    }

    /// Writes out the macros of a parsed expression; `None` when that makes too many parts. The macros of optional values
    /// write their operand twice, so a chain of them doubles with each.
    pub(crate) fn expand(source: &str, syntax: &Syntax) -> Option<Self> {
        let mut builder = Builder {
            source,
            pieces: Vec::new(),
        };
        let root = builder.expand(syntax);
        (builder.pieces.len() < MAX_PIECES).then_some(Self {
            pieces: builder.pieces,
            root,
        })
    }
}

struct Builder<'a> {
    source: &'a str,
    pieces: Vec<Piece>,
}

impl Builder<'_> {
    fn add(&mut self, offset: usize, kind: PieceKind) -> Part {
        self.pieces.push(Piece { offset, kind });
        self.pieces.len() - 1
    }

    fn name(&mut self, offset: usize, name: &str) -> Part {
        self.add(offset, PieceKind::Name(name.into()))
    }

    fn literal(&mut self, offset: usize, value: impl Into<Value>) -> Part {
        self.add(offset, PieceKind::Literal(value.into()))
    }

    fn call(&mut self, offset: usize, function: &str, arguments: Vec<Part>) -> Part {
        self.add(
            offset,
            PieceKind::Call {
                target: None,
                function: function.into(),
                arguments,
            },
        )
    }

    fn member(&mut self, offset: usize, target: Part, function: &str, arguments: Vec<Part>) -> Part {
        self.add(
            offset,
            PieceKind::Call {
                target: Some(target),
                function: function.into(),
                arguments,
            },
        )
    }

    /// The reference says that a call stands at its bracket; the parser gives the start of a plain function's name.
    fn bracket(&self, offset: usize, name: &str) -> usize {
        let Some(rest) = self.source.get(offset..).and_then(|rest| rest.strip_prefix(name)) else {
            return offset;
        };
        let behind = offset + name.len();
        behind + (rest.len() - rest.trim_start().len())
    }

    fn expand(&mut self, syntax: &Syntax) -> Part {
        let offset = syntax.offset;
        if self.pieces.len() >= MAX_PIECES {
            return self.literal(offset, Value::Null);
        }
        match &syntax.form {
            Form::Literal(value) => self.literal(offset, value.clone()),
            Form::Name(name) => self.name(offset, name),
            Form::Select { operand, field, mode } => self.select(offset, operand, field, *mode),
            Form::Index {
                operand,
                index,
                optional,
            } => {
                let arguments = vec![self.expand(operand), self.expand(index)];
                self.call(offset, if *optional { "_[?_]" } else { "_[_]" }, arguments)
            }
            Form::Call {
                target,
                function,
                arguments,
            } => self.written_call(offset, target.as_deref(), function, arguments),
            Form::List(items) => {
                let mut parts = Vec::with_capacity(items.len());
                for (value, optional) in items {
                    parts.push((self.expand(value), *optional));
                }
                self.add(offset, PieceKind::List(parts))
            }
            Form::Map(items) => {
                let mut parts = Vec::with_capacity(items.len());
                for (key, value, optional) in items {
                    parts.push((self.expand(key), self.expand(value), *optional));
                }
                self.add(offset, PieceKind::Map(parts))
            }
            Form::Fold(fold) => self.fold(offset, fold),
            Form::Bind { name, value, body } => self.unknown_bind(offset, name, value, body),
            Form::OptionalMap {
                operand,
                name,
                body,
                flat,
            } => self.optional_map(offset, operand, name, body, *flat),
        }
    }

    fn select(&mut self, offset: usize, operand: &Syntax, field: &str, mode: SelectMode) -> Part {
        let operand = self.expand(operand);
        match mode {
            SelectMode::Optional => {
                let name = self.literal(offset, field);
                self.call(offset, "_?._", vec![operand, name])
            }
            _ => {
                let test = mode == SelectMode::Test;
                let offset = if test { self.bracket(offset, "has") } else { offset };
                self.add(
                    offset,
                    PieceKind::Select {
                        operand,
                        field: field.into(),
                        test,
                    },
                )
            }
        }
    }

    fn written_call(
        &mut self,
        offset: usize,
        target: Option<&Syntax>,
        function: &str,
        arguments: &[Syntax],
    ) -> Part {
        let target = target.map(|target| self.expand(target));
        let mut parts = Vec::with_capacity(arguments.len());
        for argument in arguments {
            parts.push(self.expand(argument));
        }
        match target {
            Some(target) => self.member(offset, target, function, parts),
            None => {
                let offset = self.bracket(offset, function);
                self.call(offset, function, parts)
            }
        }
    }

    /// Kubernetes does not enable `cel.bind`; there it is a member function of a name that nobody declared.
    fn unknown_bind(&mut self, offset: usize, name: &str, value: &Syntax, body: &Syntax) -> Part {
        let before = self.source.get(..offset).unwrap_or_default();
        let start = before.rfind("cel").unwrap_or(offset);
        let target = self.name(start, "cel");
        let arguments = vec![
            self.name(self.behind(offset), name),
            self.expand(value),
            self.expand(body),
        ];
        self.member(offset, target, "bind", arguments)
    }

    /// Where the first argument of a call stands whose bracket is at `offset`.
    fn behind(&self, offset: usize) -> usize {
        let rest = self.source.get(offset + 1..).unwrap_or_default();
        offset + 1 + (rest.len() - rest.trim_start().len())
    }

    /// Whether `exists_one` was written as `existsOne`, which Kubernetes only knows with two variables.
    fn is_camel_case(&self, offset: usize) -> bool {
        let before = self.source.get(..offset).unwrap_or_default();
        before.trim_end().ends_with("existsOne")
    }

    fn accumulator(&mut self, offset: usize) -> Part {
        self.name(offset, ACCUMULATOR)
    }

    /// `step` where there is no condition or it holds, else the accumulator as it is.
    fn guarded(&mut self, offset: usize, condition: Option<&Syntax>, step: Part) -> Part {
        match condition {
            Some(condition) => {
                let condition = self.expand(condition);
                let unchanged = self.accumulator(offset);
                self.call(offset, "_?_:_", vec![condition, step, unchanged])
            }
            None => step,
        }
    }

    fn fold(&mut self, offset: usize, fold: &FoldSyntax) -> Part {
        let range = self.expand(&fold.range);
        if fold.kind == FoldKind::ExistsOne && fold.second.is_none() && self.is_camel_case(offset) {
            let arguments = vec![
                self.name(self.behind(offset), &fold.first),
                self.expand(&fold.step),
            ];
            return self.member(offset, range, "existsOne", arguments);
        }
        if fold.kind == FoldKind::SortBy {
            return self.sort_by(offset, range, fold);
        }
        let initial = match fold.kind {
            FoldKind::All => self.literal(offset, true),
            FoldKind::Exists => self.literal(offset, false),
            FoldKind::ExistsOne => self.literal(offset, 0_i64),
            FoldKind::List | FoldKind::SortBy => self.add(offset, PieceKind::List(Vec::new())),
            FoldKind::Map | FoldKind::MapEntries => self.add(offset, PieceKind::Map(Vec::new())),
        };
        let condition = match fold.kind {
            FoldKind::All => {
                let gathered = self.accumulator(offset);
                self.call(offset, "@not_strictly_false", vec![gathered])
            }
            FoldKind::Exists => {
                let gathered = self.accumulator(offset);
                let not = self.call(offset, "!_", vec![gathered]);
                self.call(offset, "@not_strictly_false", vec![not])
            }
            _ => self.literal(offset, true),
        };
        let written = self.expand(&fold.step);
        let gathered = self.accumulator(offset);
        let step = match fold.kind {
            FoldKind::All => self.call(offset, "_&&_", vec![gathered, written]),
            FoldKind::Exists => self.call(offset, "_||_", vec![gathered, written]),
            FoldKind::ExistsOne => {
                let one = self.literal(offset, 1_i64);
                let more = self.call(offset, "_+_", vec![gathered, one]);
                let unchanged = self.accumulator(offset);
                self.call(offset, "_?_:_", vec![written, more, unchanged])
            }
            FoldKind::List | FoldKind::SortBy => {
                let item = self.add(offset, PieceKind::List(vec![(written, false)]));
                let longer = self.call(offset, "_+_", vec![gathered, item]);
                self.guarded(offset, fold.condition.as_ref(), longer)
            }
            FoldKind::Map => {
                let key = self.name(offset, &fold.first);
                let larger = self.call(offset, "cel.@mapInsert", vec![gathered, key, written]);
                self.guarded(offset, fold.condition.as_ref(), larger)
            }
            FoldKind::MapEntries => {
                let larger = self.call(offset, "cel.@mapInsert", vec![gathered, written]);
                self.guarded(offset, fold.condition.as_ref(), larger)
            }
        };
        let mut result = self.accumulator(offset);
        if fold.kind == FoldKind::ExistsOne {
            let one = self.literal(offset, 1_i64);
            result = self.call(offset, "_==_", vec![result, one]);
        }
        self.add(
            offset,
            PieceKind::Fold(Fold {
                range,
                first: fold.first.as_str().into(),
                second: fold.second.as_deref().map(Into::into),
                accumulator: ACCUMULATOR.into(),
                initial,
                condition,
                step,
                result,
            }),
        )
    }

    /// `body` with `value` under a name.
    fn bind(&mut self, offset: usize, name: &str, value: Part, body: Part) -> Part {
        let range = self.add(offset, PieceKind::List(Vec::new()));
        let condition = self.literal(offset, false);
        let step = self.name(offset, name);
        self.add(
            offset,
            PieceKind::Fold(Fold {
                range,
                first: "#unused".into(),
                second: None,
                accumulator: name.into(),
                initial: value,
                condition,
                step,
                result: body,
            }),
        )
    }

    fn sort_by(&mut self, offset: usize, range: Part, fold: &FoldSyntax) -> Part {
        let list = self.name(offset, SORTED);
        let initial = self.add(offset, PieceKind::List(Vec::new()));
        let condition = self.literal(offset, true);
        let key = self.expand(&fold.step);
        let gathered = self.accumulator(offset);
        let item = self.add(offset, PieceKind::List(vec![(key, false)]));
        let step = self.call(offset, "_+_", vec![gathered, item]);
        let result = self.accumulator(offset);
        let keys = self.add(
            offset,
            PieceKind::Fold(Fold {
                range: list,
                first: fold.first.as_str().into(),
                second: None,
                accumulator: ACCUMULATOR.into(),
                initial,
                condition,
                step,
                result,
            }),
        );
        let target = self.name(offset, SORTED);
        let sorted = self.member(offset, target, "@sortByAssociatedKeys", vec![keys]);
        self.bind(offset, SORTED, range, sorted)
    }

    fn optional_map(
        &mut self,
        offset: usize,
        operand: &Syntax,
        name: &str,
        body: &Syntax,
        flat: bool,
    ) -> Part {
        let tested = self.expand(operand);
        let has = self.member(offset, tested, "hasValue", Vec::new());
        let taken = self.expand(operand);
        let value = self.member(offset, taken, "value", Vec::new());
        let body = self.expand(body);
        let mut bound = self.bind(offset, name, value, body);
        if !flat {
            bound = self.call(offset, "optional.of", vec![bound]);
        }
        let none = self.call(offset, "optional.none", Vec::new());
        self.call(offset, "_?_:_", vec![has, bound, none])
    }
}
