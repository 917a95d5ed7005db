//! How this crate signs what it writes: `managedFields` name it, so that a conflict or a diff says who it was.

use kube::api::{PatchParams, PostParams};

use crate::FIELD_MANAGER;

/// For objects that are created or replaced.
pub(crate) fn post() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

/// For merge patches.
pub(crate) fn patch() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// For what is applied whole; fields that somebody else took are taken back.
pub(crate) fn apply() -> PatchParams {
    PatchParams::apply(FIELD_MANAGER).force()
}
