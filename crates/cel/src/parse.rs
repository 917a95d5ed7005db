//! The only file that knows the `cel` crate: it parses with that crate's Pratt parser and turns the
//! tree into [`Syntax`]. Nothing of that crate's evaluator is used.
//!
//! The parser bounds the nesting of brackets but not chains (`a ? b : c ? d : …`, `a.b.c.…`), and its
//! tree is dropped by recursion; so the tokens are counted first and a source that would make a deep
//! tree is refused before it is parsed.

mod diagnosis;

use std::sync::Arc;

pub(crate) use self::diagnosis::diagnose;
use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, SelectExpr,
    SourceInfo, operators,
};
use cel::parser::PrattParser;
use cel::parser::pratt_parser::{Lexer, TokenKind};

use crate::ast::{FoldKind, SelectMode};
use crate::compile::CompileOptions;
use crate::error::CompileError;
use crate::syntax::{FoldSyntax, Form, Syntax};
use crate::value::Value;

/// Nesting of brackets the parser is allowed; each level costs it several stack frames.
const BRACKET_LIMIT: u16 = 64;

/// Parses an expression within the limits of the options.
pub(crate) fn parse(source: &str, options: &CompileOptions) -> Result<Syntax, CompileError> {
    if source.len() > options.max_source_bytes {
        return Err(CompileError::whole(format!(
            "expression code point size exceeds limit: size: {}, limit {}",
            source.len(),
            options.max_source_bytes
        )));
    }
    refuse_deep(source, options)?;
    let tree = parser(options)
        .parse(source)
        .map_err(|errors| first_error(source, errors))?;
    let lowering = Lowering {
        source,
        positions: positions(source, options),
        options,
    };
    let mut left = options.max_nodes;
    lowering.expression(tree, 0, &mut left)
}

fn parser(options: &CompileOptions) -> PrattParser {
    PrattParser::default()
        .max_recursion_depth(BRACKET_LIMIT)
        .max_expression_node_count(options.max_nodes.saturating_mul(4))
        .enable_optional_syntax(true)
        .enable_ident_escape_syntax(true)
}

fn first_error(source: &str, errors: cel::ParseErrors) -> CompileError {
    let Some(error) = errors.errors.into_iter().next() else {
        return CompileError::whole("Syntax error");
    };
    let (Ok(line), Ok(column)) = (usize::try_from(error.pos.0), usize::try_from(error.pos.1)) else {
        return CompileError::whole(error.msg);
    };
    if line == 0 {
        return CompileError::whole(error.msg);
    }
    let line_start: usize = source.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let offset = line_start + column.saturating_sub(1);
    // The reference has other words for the variable of these two macros.
    let before = source.get(..offset).unwrap_or_default().trim_end();
    let is_listing = before.ends_with(".map(") || before.ends_with(".filter(");
    let message = if is_listing && error.msg == "argument must be a simple name" {
        "argument is not an identifier".to_owned()
    } else {
        error.msg
    };
    CompileError::at(source, offset, message)
}

/// Where each node stands. The parser gives positions away only together with an error, and numbers
/// nodes in the order it reads them: the same source with a stray bracket behind it has the same
/// numbers and ends with the wanted error.
fn positions(source: &str, options: &CompileOptions) -> Option<Arc<SourceInfo>> {
    let mut broken = String::with_capacity(source.len() + 2);
    broken.push_str(source);
    broken.push_str("\n)");
    parser(options)
        .parse(&broken)
        .err()?
        .errors
        .into_iter()
        .find_map(|error| error.source_info)
}

/// An upper bound of the tree's depth from the tokens alone.
fn refuse_deep(source: &str, options: &CompileOptions) -> Result<(), CompileError> {
    #[derive(Clone, Copy, Default)]
    struct Level {
        /// Operators, selections and brackets in a row; `&&` and `||` start anew since the parser
        /// balances them.
        links: usize,
        /// Conditionals, which nest to the right whatever stands between them.
        conditionals: usize,
    }
    let mut lexer = Lexer::new(source);
    let mut levels = vec![Level::default()];
    let mut settled = 0_usize;
    let mut previous = TokenKind::TokComma;
    // Each token is at least one byte, except the end.
    for _ in 0..=source.len() {
        let token = lexer.lex();
        let nested = levels.len() > 1;
        let Some(level) = levels.last_mut() else { break };
        match token.kind {
            TokenKind::TokWhitespace | TokenKind::TokComment => continue,
            TokenKind::TokEnd => break,
            TokenKind::TokLeftParen | TokenKind::TokLeftBracket | TokenKind::TokLeftBrace => {
                level.links += 1;
                settled += level.links + level.conditionals;
                levels.push(Level::default());
            }
            TokenKind::TokRightParen | TokenKind::TokRightBracket | TokenKind::TokRightBrace if nested => {
                levels.pop();
                if let Some(level) = levels.last() {
                    settled -= level.links + level.conditionals;
                }
            }
            TokenKind::TokComma => *level = Level::default(),
            TokenKind::TokLogicalAnd | TokenKind::TokLogicalOr => level.links = 0,
            // `.?`, `[?` and `{?` are optional access, not conditionals.
            TokenKind::TokQuestion
                if !matches!(
                    previous,
                    TokenKind::TokDot
                        | TokenKind::TokLeftBracket
                        | TokenKind::TokLeftBrace
                        | TokenKind::TokComma
                ) =>
            {
                level.conditionals += 1;
            }
            TokenKind::TokDot
            | TokenKind::TokMinus
            | TokenKind::TokPlus
            | TokenKind::TokAsterisk
            | TokenKind::TokSlash
            | TokenKind::TokPercent
            | TokenKind::TokExclamation
            | TokenKind::TokEqualEqual
            | TokenKind::TokExclamationEqual
            | TokenKind::TokLess
            | TokenKind::TokLessEqual
            | TokenKind::TokGreater
            | TokenKind::TokGreaterEqual
            | TokenKind::TokIn => level.links += 1,
            _ => {}
        }
        previous = token.kind;
        let here = levels.last().map_or(0, |level| level.links + level.conditionals);
        if settled + here > options.max_depth {
            return Err(CompileError::at(
                source,
                token.start,
                format!("expression recursion limit exceeded: {}", options.max_depth),
            ));
        }
    }
    Ok(())
}

struct Lowering<'a> {
    source: &'a str,
    positions: Option<Arc<SourceInfo>>,
    options: &'a CompileOptions,
}

impl Lowering<'_> {
    fn offset(&self, id: u64) -> usize {
        self.positions
            .as_ref()
            .and_then(|positions| positions.offset_for(id))
            .map_or(0, |(start, _)| usize::try_from(start).unwrap_or(0))
    }

    fn error(&self, offset: usize, message: impl Into<String>) -> CompileError {
        CompileError::at(self.source, offset, message)
    }

    fn expression(&self, node: IdedExpr, depth: usize, left: &mut usize) -> Result<Syntax, CompileError> {
        let offset = self.offset(node.id);
        self.count(offset, depth, left)?;
        let depth = depth + 1;
        let form = match node.expr {
            Expr::Unspecified => return Err(self.error(offset, "Syntax error: incomplete expression")),
            Expr::Literal(literal) => Form::Literal(literal_value(literal)),
            Expr::Ident(name) => Form::Name(match name.strip_prefix('.') {
                Some(absolute) => absolute.to_owned(),
                None => name,
            }),
            Expr::Select(select) => self.select(select, depth, left)?,
            Expr::Call(call) => self.call(call, offset, depth, left)?,
            Expr::Comprehension(comprehension) => self.comprehension(*comprehension, offset, depth, left)?,
            Expr::List(list) => self.list(list, depth, left)?,
            Expr::Map(map) => self.map(map, offset, depth, left)?,
            Expr::Struct(message) => {
                return Err(self.error(
                    offset,
                    format!(
                        "undeclared reference to '{}' (in container '')",
                        message.type_name
                    ),
                ));
            }
        };
        Ok(Syntax { offset, form })
    }

    fn count(&self, offset: usize, depth: usize, left: &mut usize) -> Result<(), CompileError> {
        let CompileOptions {
            max_depth, max_nodes, ..
        } = self.options;
        if depth > *max_depth {
            return Err(self.error(
                offset,
                format!("expression recursion limit exceeded: {max_depth}"),
            ));
        }
        *left = left
            .checked_sub(1)
            .ok_or_else(|| self.error(offset, format!("expression node limit exceeded: {max_nodes}")))?;
        Ok(())
    }

    fn select(&self, select: SelectExpr, depth: usize, left: &mut usize) -> Result<Form, CompileError> {
        let operand = self.expression(*select.operand, depth, left)?;
        Ok(Form::Select {
            operand: Box::new(operand),
            field: select.field,
            mode: if select.test {
                SelectMode::Test
            } else {
                SelectMode::Plain
            },
        })
    }

    fn expressions(
        &self,
        nodes: Vec<IdedExpr>,
        depth: usize,
        left: &mut usize,
    ) -> Result<Vec<Syntax>, CompileError> {
        // A loop, since the frames of iterator adapters would multiply with the nesting.
        let mut lowered = Vec::with_capacity(nodes.len());
        for node in nodes {
            lowered.push(self.expression(node, depth, left)?);
        }
        Ok(lowered)
    }

    fn list(&self, list: ListExpr, depth: usize, left: &mut usize) -> Result<Form, CompileError> {
        let mut items = Vec::with_capacity(list.elements.len());
        for (index, element) in list.elements.into_iter().enumerate() {
            let optional = list.optional_indices.contains(&index);
            items.push((self.expression(element, depth, left)?, optional));
        }
        Ok(Form::List(items))
    }

    fn map(&self, map: MapExpr, offset: usize, depth: usize, left: &mut usize) -> Result<Form, CompileError> {
        let mut items = Vec::with_capacity(map.entries.len());
        for entry in map.entries {
            match entry.expr {
                EntryExpr::MapEntry(entry) => items.push((
                    self.expression(entry.key, depth, left)?,
                    self.expression(entry.value, depth, left)?,
                    entry.optional,
                )),
                EntryExpr::StructField(_) => return Err(self.error(offset, "Syntax error: field in a map")),
            }
        }
        Ok(Form::Map(items))
    }

    fn call(
        &self,
        call: CallExpr,
        offset: usize,
        depth: usize,
        left: &mut usize,
    ) -> Result<Form, CompileError> {
        let CallExpr {
            func_name,
            target,
            args,
        } = call;
        let target = match target {
            Some(target) => Some(Box::new(self.expression(*target, depth, left)?)),
            None => None,
        };
        let arguments = self.expressions(args, depth, left)?;
        match target {
            Some(target) => self.member_call(target, func_name, arguments, offset),
            None => self.plain_call(func_name, arguments, offset),
        }
    }

    fn plain_call(
        &self,
        function: String,
        arguments: Vec<Syntax>,
        offset: usize,
    ) -> Result<Form, CompileError> {
        let optional = function == operators::OPT_INDEX;
        if function != operators::OPT_SELECT && function != operators::INDEX && !optional {
            return Ok(Form::Call {
                target: None,
                function,
                arguments,
            });
        }
        let [operand, key] = <[Syntax; 2]>::try_from(arguments)
            .map_err(|_| self.error(offset, "Syntax error: incomplete selection"))?;
        let operand = Box::new(operand);
        if function != operators::OPT_SELECT {
            let index = Box::new(key);
            return Ok(Form::Index {
                operand,
                index,
                optional,
            });
        }
        match key.form {
            Form::Literal(Value::String(field)) => Ok(Form::Select {
                operand,
                field: field.to_string(),
                mode: SelectMode::Optional,
            }),
            _ => Err(self.error(offset, "Syntax error: expected a field after '.?'")),
        }
    }

    /// The macros that the parser does not expand: two variables, `cel.bind`, the optional ones.
    fn member_call(
        &self,
        target: Box<Syntax>,
        function: String,
        arguments: Vec<Syntax>,
        offset: usize,
    ) -> Result<Form, CompileError> {
        let kind = match (function.as_str(), arguments.len()) {
            ("all", 3) => FoldKind::All,
            ("exists", 3) => FoldKind::Exists,
            ("exists_one" | "existsOne", 3) => FoldKind::ExistsOne,
            ("transformList", 3 | 4) => FoldKind::List,
            ("transformMap", 3 | 4) => FoldKind::Map,
            ("transformMapEntry", 3 | 4) => FoldKind::MapEntries,
            ("sortBy", 2) => return self.sort_by(*target, arguments, offset),
            ("bind", 3) if matches!(&target.form, Form::Name(name) if name == "cel") => {
                let mut arguments = arguments.into_iter();
                if let (Some(name), Some(value), Some(body)) =
                    (arguments.next(), arguments.next(), arguments.next())
                {
                    let name = self.variable(name)?;
                    return Ok(Form::Bind {
                        name,
                        value: Box::new(value),
                        body: Box::new(body),
                    });
                }
                return Err(self.error(offset, "Syntax error: incomplete cel.bind()"));
            }
            ("optMap" | "optFlatMap", 2) => {
                let flat = function == "optFlatMap";
                let mut arguments = arguments.into_iter();
                if let (Some(name), Some(body)) = (arguments.next(), arguments.next()) {
                    let name = self.variable(name)?;
                    return Ok(Form::OptionalMap {
                        operand: target,
                        name,
                        body: Box::new(body),
                        flat,
                    });
                }
                return Err(self.error(offset, "Syntax error: incomplete optMap()"));
            }
            _ => {
                return Ok(Form::Call {
                    target: Some(target),
                    function,
                    arguments,
                });
            }
        };
        let mut arguments = arguments.into_iter();
        let (Some(first), Some(second), Some(third)) = (arguments.next(), arguments.next(), arguments.next())
        else {
            return Err(self.error(offset, "Syntax error: incomplete macro"));
        };
        let (condition, step) = match arguments.next() {
            Some(step) => (Some(third), step),
            None => (None, third),
        };
        let second_offset = second.offset;
        let (first, second) = (self.variable(first)?, self.variable(second)?);
        if first == second {
            return Err(self.error(second_offset, format!("duplicate variable name: {first}")));
        }
        Ok(Form::Fold(Box::new(FoldSyntax {
            range: *target,
            kind,
            first,
            second: Some(second),
            condition,
            step,
        })))
    }

    fn sort_by(&self, range: Syntax, arguments: Vec<Syntax>, offset: usize) -> Result<Form, CompileError> {
        let [name, step] = <[Syntax; 2]>::try_from(arguments)
            .map_err(|_| self.error(offset, "Syntax error: incomplete macro"))?;
        Ok(Form::Fold(Box::new(FoldSyntax {
            range,
            kind: FoldKind::SortBy,
            first: self.variable(name)?,
            second: None,
            condition: None,
            step,
        })))
    }

    fn variable(&self, name: Syntax) -> Result<String, CompileError> {
        match name.form {
            Form::Name(text) => Ok(text),
            _ => Err(self.error(name.offset, "argument must be a simple name")),
        }
    }

    /// Recognises the macro that the parser expanded, by the accumulator's first value and the step.
    fn comprehension(
        &self,
        comprehension: ComprehensionExpr,
        offset: usize,
        depth: usize,
        left: &mut usize,
    ) -> Result<Form, CompileError> {
        let ComprehensionExpr {
            iter_range,
            iter_var,
            accu_init,
            loop_step,
            ..
        } = comprehension;
        let unknown = || self.error(offset, "Syntax error: unknown macro");
        let Expr::Call(step) = loop_step.expr else {
            return Err(unknown());
        };
        let mut parts = step.args.into_iter();
        let (kind, condition, step) = match accu_init.expr {
            Expr::Literal(LiteralValue::Boolean(start)) => {
                let kind = if *start.inner() {
                    FoldKind::All
                } else {
                    FoldKind::Exists
                };
                (kind, None, parts.nth(1).ok_or_else(unknown)?)
            }
            Expr::Literal(LiteralValue::Int(_)) => {
                (FoldKind::ExistsOne, None, parts.next().ok_or_else(unknown)?)
            }
            Expr::List(_) if step.func_name == operators::ADD => {
                (FoldKind::List, None, appended(parts.nth(1)).ok_or_else(unknown)?)
            }
            Expr::List(_) => {
                let condition = parts.next().ok_or_else(unknown)?;
                let Some(IdedExpr {
                    expr: Expr::Call(add),
                    ..
                }) = parts.next()
                else {
                    return Err(unknown());
                };
                (
                    FoldKind::List,
                    Some(condition),
                    appended(add.args.into_iter().nth(1)).ok_or_else(unknown)?,
                )
            }
            _ => return Err(unknown()),
        };
        Ok(Form::Fold(Box::new(FoldSyntax {
            range: self.expression(iter_range, depth, left)?,
            kind,
            first: iter_var,
            second: None,
            condition: match condition {
                Some(condition) => Some(self.expression(condition, depth, left)?),
                None => None,
            },
            step: self.expression(step, depth, left)?,
        })))
    }
}

/// The single element of the list that `map` and `filter` append.
fn appended(list: Option<IdedExpr>) -> Option<IdedExpr> {
    match list?.expr {
        Expr::List(list) => list.elements.into_iter().next(),
        _ => None,
    }
}

fn literal_value(literal: LiteralValue) -> Value {
    match literal {
        LiteralValue::Boolean(value) => Value::Bool(*value.inner()),
        LiteralValue::Bytes(value) => Value::Bytes(value.inner().into()),
        LiteralValue::Double(value) => Value::Double(*value.inner()),
        LiteralValue::Int(value) => Value::Int(*value.inner()),
        LiteralValue::Null => Value::Null,
        LiteralValue::String(value) => Value::String(value.inner().into()),
        LiteralValue::UInt(value) => Value::Uint(*value.inner()),
    }
}
