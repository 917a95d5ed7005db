//! What one evaluation may use. Everything is charged before it is done, so a hostile expression is
//! refused rather than run.

use std::time::{Duration, Instant};

use crate::error::{EvaluationError, EvaluationErrorKind};

/// Cost units one evaluation of a validation rule may use (Kubernetes' limit per rule).
pub const RULE_COST: u64 = 1_000_000;
/// Cost units all rules on one object may use together (Kubernetes' limit per object).
pub const OBJECT_COST: u64 = 10_000_000;
/// Bytes one evaluation may allocate in total, freed or not.
const MEMORY: u64 = 64 << 20;
/// Cost units one rule of a tool policy may use.
const POLICY_COST: u64 = 200_000;
/// Bytes one rule of a tool policy may allocate in total.
const POLICY_MEMORY: u64 = 16 << 20;
/// How much more than the model's cost a rule may walk over, so that what the model takes for cheap, such as the size of
/// a long text, stays bounded too.
const WORK_FACTOR: u64 = 8;
/// Charges between two looks at the clock.
const CHARGES_PER_LOOK: u32 = 64;

/// The allowance of one evaluation, or of several that share it.
#[derive(Debug, Clone)]
pub struct Budget {
    cost_limit: u64,
    cost_used: u64,
    work_limit: u64,
    work_used: u64,
    memory_limit: u64,
    memory_used: u64,
    deadline: Option<Instant>,
    charges: u32,
}

impl Budget {
    /// A budget of `cost` units and `memory` bytes of allocations, without a deadline.
    pub fn new(cost: u64, memory: u64) -> Self {
        Self {
            cost_limit: cost,
            cost_used: 0,
            work_limit: cost,
            work_used: 0,
            memory_limit: memory,
            memory_used: 0,
            deadline: None,
            charges: 0,
        }
    }

    /// What Kubernetes allows one rule: 1,000,000 units.
    pub fn per_rule() -> Self {
        Self::shared(RULE_COST)
    }

    /// What one rule of a tool policy gets.
    pub fn policy() -> Self {
        Self::new(POLICY_COST, POLICY_MEMORY)
    }

    /// A rule's budget out of what is left for its object (see [`OBJECT_COST`]): the smaller of the two.
    /// After the evaluation the caller subtracts [`Budget::used`] from its rest.
    pub fn shared(left_for_object: u64) -> Self {
        Self {
            work_limit: RULE_COST * WORK_FACTOR,
            ..Self::new(left_for_object.min(RULE_COST), MEMORY)
        }
    }

    /// The same budget that also ends at a moment of the process' clock.
    #[must_use]
    pub fn until(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// The same budget that also ends after `time`, counted from now.
    #[must_use]
    pub fn within(self, time: Duration) -> Self {
        match Instant::now().checked_add(time) {
            Some(deadline) => self.until(deadline),
            None => self,
        }
    }

    /// Cost units used so far. Never more than the limit.
    pub fn used(&self) -> u64 {
        self.cost_used
    }

    /// Cost units left.
    pub fn left(&self) -> u64 {
        self.cost_limit.saturating_sub(self.cost_used)
    }

    /// Bytes charged so far. Never more than the limit.
    pub fn memory_used(&self) -> u64 {
        self.memory_used
    }

    /// Takes cost units, or ends the evaluation.
    pub(crate) fn charge(&mut self, cost: u64) -> Result<(), EvaluationError> {
        if cost > self.left() {
            self.cost_used = self.cost_limit;
            return Err(too_expensive());
        }
        self.cost_used += cost;
        self.look(cost)
    }

    /// Gives back cost units that the model does not count.
    pub(crate) fn refund(&mut self, cost: u64) {
        self.cost_used = self.cost_used.saturating_sub(cost);
    }

    /// Takes what is about to be walked over besides what the model charges, or ends the evaluation.
    pub(crate) fn work(&mut self, units: u64) -> Result<(), EvaluationError> {
        if units > self.work_limit.saturating_sub(self.work_used) {
            return Err(too_expensive());
        }
        self.work_used += units;
        self.look(units)
    }

    /// Takes the work of walking over `bytes` bytes of text: a tenth each, at least one.
    pub(crate) fn work_text(&mut self, bytes: usize) -> Result<(), EvaluationError> {
        self.work(text_cost(bytes).max(1))
    }

    /// Looks at the clock now and then. What is large stands for long work, so it looks itself.
    fn look(&mut self, units: u64) -> Result<(), EvaluationError> {
        self.charges = self.charges.wrapping_add(1);
        if let Some(deadline) = self.deadline
            && (self.charges % CHARGES_PER_LOOK == 1 || units > 256)
            && Instant::now() >= deadline
        {
            return Err(EvaluationError::new(
                EvaluationErrorKind::DeadlineExceeded,
                "operation cancelled: deadline exceeded",
            ));
        }
        Ok(())
    }

    /// Takes memory that is about to be allocated, or ends the evaluation.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Result<(), EvaluationError> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        if bytes > self.memory_limit.saturating_sub(self.memory_used) {
            return Err(EvaluationError::new(
                EvaluationErrorKind::MemoryExceeded,
                "operation cancelled: actual memory limit exceeded",
            ));
        }
        self.memory_used += bytes;
        Ok(())
    }

    /// Takes the memory of a list or map of `count` entries.
    pub(crate) fn allocate_entries(&mut self, count: usize) -> Result<(), EvaluationError> {
        self.allocate(count.saturating_mul(size_of::<crate::Value>()).saturating_add(32))
    }
}

fn too_expensive() -> EvaluationError {
    EvaluationError::new(
        EvaluationErrorKind::CostExceeded,
        "operation cancelled: actual cost limit exceeded",
    )
}

/// Cost of walking over `bytes` bytes: Kubernetes' factor of one tenth, rounded up.
pub(crate) fn text_cost(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX).div_ceil(10)
}
