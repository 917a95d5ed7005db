//! Operators: which there are, and the nodes they become.

use super::Checker;
use crate::ast::{BinaryOperator, Kind, Node};
use crate::error::CompileError;
use crate::value::Type;

impl Checker<'_> {
    /// The node of an operator whose parts are checked.
    pub(super) fn operation(
        &self,
        operator: Operator,
        parts: Vec<Node>,
        offset: usize,
    ) -> Result<Kind, CompileError> {
        let incomplete = || self.error(offset, "Syntax error: incomplete operator");
        match operator {
            Operator::Not | Operator::Negate => {
                let [operand] = <[Node; 1]>::try_from(parts).map_err(|_| incomplete())?;
                let operand = Box::new(operand);
                Ok(if operator == Operator::Not {
                    Kind::Not(operand)
                } else {
                    Kind::Negate(operand)
                })
            }
            Operator::Conditional => {
                let parts = <[Node; 3]>::try_from(parts).map_err(|_| incomplete())?;
                self.must_be_bool(&parts[0], "_?_:_")?;
                Ok(Kind::Conditional(Box::new(parts)))
            }
            Operator::And | Operator::Or => {
                let parts = <[Node; 2]>::try_from(parts).map_err(|_| incomplete())?;
                let name = if operator == Operator::And { "_&&_" } else { "_||_" };
                self.must_be_bool(&parts[0], name)?;
                self.must_be_bool(&parts[1], name)?;
                let parts = Box::new(parts);
                Ok(if operator == Operator::And {
                    Kind::And(parts)
                } else {
                    Kind::Or(parts)
                })
            }
            Operator::Binary(binary) => {
                let parts = <[Node; 2]>::try_from(parts).map_err(|_| incomplete())?;
                Ok(Kind::Binary(binary, Box::new(parts)))
            }
        }
    }

    /// Refuses a part that can never be a boolean where one is needed.
    fn must_be_bool(&self, node: &Node, operator: &str) -> Result<(), CompileError> {
        match node.known_type() {
            Some(known) if known != Type::Bool => Err(self.error(
                node.offset,
                format!(
                    "expected type 'bool' but found '{}' (operand of {operator})",
                    known.name()
                ),
            )),
            _ => Ok(()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Not,
    Negate,
    And,
    Or,
    Conditional,
    Binary(BinaryOperator),
}

/// The operator behind one of the parser's function names.
pub(super) fn operator(name: &str) -> Option<Operator> {
    Some(match name {
        "!_" => Operator::Not,
        "-_" => Operator::Negate,
        "_&&_" => Operator::And,
        "_||_" => Operator::Or,
        "_?_:_" => Operator::Conditional,
        "_+_" => Operator::Binary(BinaryOperator::Add),
        "_-_" => Operator::Binary(BinaryOperator::Subtract),
        "_*_" => Operator::Binary(BinaryOperator::Multiply),
        "_/_" => Operator::Binary(BinaryOperator::Divide),
        "_%_" => Operator::Binary(BinaryOperator::Remainder),
        "_==_" => Operator::Binary(BinaryOperator::Equal),
        "_!=_" => Operator::Binary(BinaryOperator::NotEqual),
        "_<_" => Operator::Binary(BinaryOperator::Less),
        "_<=_" => Operator::Binary(BinaryOperator::LessOrEqual),
        "_>_" => Operator::Binary(BinaryOperator::Greater),
        "_>=_" => Operator::Binary(BinaryOperator::GreaterOrEqual),
        "@in" => Operator::Binary(BinaryOperator::In),
        _ => return None,
    })
}
