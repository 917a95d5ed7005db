//! The role `demo`: what its first argument names.

use async_trait::async_trait;
use mainstay_workload::{Role, RoleError, WorkloadContext};

use super::{faults, orders};

/// The most lines that `demo count` writes.
const MOST: u32 = 10_000;

/// What there is to choose from.
const KNOWN: &str = "`orders`, `count NUMBER`, `faults KIND`";

/// `demo orders` serves until it is told to end; `demo count NUMBER` ends by itself, as the Pods of a Job do; `demo faults
/// KIND` fails.
#[derive(Debug)]
pub(crate) struct Demo;

#[async_trait]
impl Role for Demo {
    async fn run(&self, context: WorkloadContext) -> Result<(), RoleError> {
        let arguments: Vec<&str> = context.arguments.iter().map(String::as_str).collect();
        match arguments.as_slice() {
            ["orders"] => orders::serve(&context).await,
            ["count", number] => count(&context, number),
            ["faults", kind @ ..] => faults::fail(&context, kind).await,
            [other, ..] => Err(RoleError::new(format!(
                "there is no demo `{other}` with these arguments; known: {KNOWN}"
            ))),
            [] => Err(RoleError::new(format!(
                "name a demo as the second argument; known: {KNOWN}"
            ))),
        }
    }
}

/// Writes the numbers up to `number` into the log.
fn count(context: &WorkloadContext, number: &str) -> Result<(), RoleError> {
    let last: u32 = number
        .parse()
        .ok()
        .filter(|last| *last <= MOST)
        .ok_or_else(|| RoleError::new(format!("`demo count {number}`: not a number from 0 to {MOST}")))?;
    context.readiness.ready();
    for counted in 1..=last {
        context.log.line(counted.to_string());
    }
    Ok(())
}
