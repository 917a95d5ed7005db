//! Rules of `status.conditions` (OM-007).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Longest message that the condition type of Kubernetes takes, in bytes.
pub const MESSAGE_LIMIT: usize = 32_768;

/// `status` of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// It does not.
    False,
    /// It cannot be judged.
    Unknown,
}

impl ConditionStatus {
    /// The word used in objects.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ConditionStatus::True => "True",
            ConditionStatus::False => "False",
            ConditionStatus::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(value: bool) -> Self {
        if value {
            ConditionStatus::True
        } else {
            ConditionStatus::False
        }
    }
}

/// A condition as a controller decides it: without the time, which [`set_condition`] keeps or moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCondition {
    /// One of [`crate::condition_types`].
    pub kind: &'static str,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// One of [`crate::reasons`].
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
}

impl NewCondition {
    /// A condition that holds.
    #[must_use]
    pub fn met(kind: &'static str, reason: &'static str, message: impl Into<String>) -> NewCondition {
        NewCondition {
            kind,
            status: ConditionStatus::True,
            reason,
            message: message.into(),
        }
    }

    /// A condition that does not hold.
    #[must_use]
    pub fn unmet(kind: &'static str, reason: &'static str, message: impl Into<String>) -> NewCondition {
        NewCondition {
            kind,
            status: ConditionStatus::False,
            reason,
            message: message.into(),
        }
    }

    /// A condition that cannot be judged.
    #[must_use]
    pub fn unknown(kind: &'static str, reason: &'static str, message: impl Into<String>) -> NewCondition {
        NewCondition {
            kind,
            status: ConditionStatus::Unknown,
            reason,
            message: message.into(),
        }
    }
}

/// Adds or replaces a condition. `lastTransitionTime` moves to `now` only when the status changes. The list stays
/// in the order in which types were first set. Returns whether the status changed, a new type included.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    new: NewCondition,
    observed_generation: Option<i64>,
    now: &Time,
) -> bool {
    let mut condition = Condition {
        type_: new.kind.to_owned(),
        status: new.status.as_str().to_owned(),
        reason: new.reason.to_owned(),
        message: cut(new.message, MESSAGE_LIMIT),
        observed_generation,
        last_transition_time: now.clone(),
    };
    match conditions
        .iter_mut()
        .find(|existing| existing.type_ == condition.type_)
    {
        Some(existing) => {
            let changed = existing.status != condition.status;
            if !changed {
                condition.last_transition_time = existing.last_transition_time.clone();
            }
            *existing = condition;
            changed
        }
        None => {
            conditions.push(condition);
            true
        }
    }
}

/// Removes a condition that does not apply. Returns whether it was there.
pub fn remove_condition(conditions: &mut Vec<Condition>, kind: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != kind);
    conditions.len() != before
}

/// The condition of a type.
#[must_use]
pub fn find_condition<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// A text of at most `limit` bytes, with an ellipsis in place of what is left out.
#[must_use]
pub fn cut(mut message: String, limit: usize) -> String {
    if message.len() > limit {
        message.truncate(message.floor_char_boundary(limit.saturating_sub('…'.len_utf8())));
        message.push('…');
    }
    message
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{condition_types, reasons};

    fn at(second: i64) -> Time {
        Time(jiff::Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn the_transition_time_moves_only_when_the_status_changes_om_007() {
        let mut conditions = Vec::new();
        assert!(set_condition(
            &mut conditions,
            NewCondition::unmet(condition_types::READY, reasons::RUNTIME_NOT_READY, "a"),
            Some(1),
            &at(1)
        ));
        assert!(!set_condition(
            &mut conditions,
            NewCondition::unmet(condition_types::READY, reasons::PROVIDER_NOT_READY, "b"),
            Some(2),
            &at(2)
        ));
        let ready = find_condition(&conditions, "Ready").unwrap();
        assert_eq!(
            (
                &ready.last_transition_time,
                ready.reason.as_str(),
                ready.message.as_str()
            ),
            (&at(1), "ProviderNotReady", "b")
        );
        assert_eq!(ready.observed_generation, Some(2));
        assert!(set_condition(
            &mut conditions,
            NewCondition::met(condition_types::READY, reasons::RUNTIME_READY, "c"),
            Some(2),
            &at(3)
        ));
        assert_eq!(
            find_condition(&conditions, "Ready").unwrap().last_transition_time,
            at(3)
        );
        assert_eq!(conditions.len(), 1);
    }

    #[test]
    fn a_condition_that_does_not_apply_is_removed_om_007() {
        let mut conditions = Vec::new();
        set_condition(
            &mut conditions,
            NewCondition::met(
                condition_types::POLICY_BOUND,
                reasons::POLICY_SELECTS_REGISTRY,
                "",
            ),
            None,
            &at(1),
        );
        assert!(remove_condition(&mut conditions, condition_types::POLICY_BOUND));
        assert!(conditions.is_empty());
        assert!(!remove_condition(&mut conditions, condition_types::POLICY_BOUND));
    }

    #[test]
    fn a_message_is_cut_to_what_the_schema_takes() {
        let mut conditions = Vec::new();
        set_condition(
            &mut conditions,
            NewCondition::unmet("Ready", "Reason", "ü".repeat(40_000)),
            None,
            &at(1),
        );
        let message = &conditions[0].message;
        assert!(
            message.len() <= MESSAGE_LIMIT && message.ends_with('…'),
            "{}",
            message.len()
        );
    }
}
