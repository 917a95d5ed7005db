//! Conflicts: fields that another manager owns and whose value would change.

use std::collections::BTreeMap;

use super::element::{PathElement, path_text};
use super::field_set::FieldSet;
use super::managers::ManagerId;
use crate::status::{ApiError, Cause, Reason};

/// One contested path.
#[derive(Clone, Debug)]
pub(super) struct Conflict {
    pub(super) manager: ManagerId,
    pub(super) path: Vec<PathElement>,
}

/// The conflicts of a set of contested paths per manager, in the order of the messages.
pub(super) fn conflicts_of(contested: &BTreeMap<ManagerId, FieldSet>) -> Vec<Conflict> {
    let mut managers: Vec<(&ManagerId, &FieldSet)> = contested.iter().collect();
    managers.sort_by_key(|(manager, _)| manager.sort_text());
    managers
        .into_iter()
        .flat_map(|(manager, set)| {
            set.paths().into_iter().map(|path| Conflict {
                manager: manager.clone(),
                path,
            })
        })
        .collect()
}

/// The 409 that tells the user whom to ask.
pub(super) fn conflict_error(conflicts: &[Conflict]) -> Box<ApiError> {
    let message = match conflicts {
        [only] => format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            describe(&only.manager),
            path_text(&only.path)
        ),
        many => {
            let mut lines = Vec::new();
            let mut previous = None;
            for conflict in many {
                if previous != Some(&conflict.manager) {
                    lines.push(format!("conflicts with {}:", describe(&conflict.manager)));
                    previous = Some(&conflict.manager);
                }
                lines.push(format!("- {}", path_text(&conflict.path)));
            }
            format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n"))
        }
    };
    let mut error = ApiError::new(Reason::Conflict, message);
    error.causes = conflicts
        .iter()
        .map(|conflict| Cause {
            reason: "FieldManagerConflict".to_owned(),
            message: format!("conflict with {}", describe(&conflict.manager)),
            field: path_text(&conflict.path),
        })
        .collect();
    error
}

fn describe(manager: &ManagerId) -> String {
    let mut text = format!("{:?}", manager.name);
    if !manager.subresource.is_empty() {
        text.push_str(&format!(" with subresource {:?}", manager.subresource));
    }
    if !manager.applied {
        text.push_str(&format!(" using {}", manager.api_version));
    }
    text
}
