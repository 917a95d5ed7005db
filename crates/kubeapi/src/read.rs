//! Reading: get and list. Requirements KA-024, KA-025, KA-028.

mod continuation;
mod list;
mod shape;

pub(crate) use list::{ListQuery, Selection};
pub(crate) use shape::Shape;

use bytes::Bytes;
use http::StatusCode;
use mainstay_store::kube::{HistoryError, Key};

use crate::{
    answer::Answer,
    api::Api,
    negotiation::Form,
    present::View,
    request::QueryOptions,
    status::{ApiError, ApiResult, Reason},
};

impl Api {
    /// Answers a get.
    pub(crate) fn get(
        &self,
        view: &View,
        key: &Key,
        form: Form,
        options: &QueryOptions,
    ) -> ApiResult<Answer> {
        self.check_not_ahead(&options.resource_version)?;
        let stored = self
            .store()
            .get(key)
            .ok_or_else(|| ApiError::not_found(&view.kind.group, &view.kind.plural, &key.name))?;
        if form == Form::Plain {
            return Ok(Answer::encoded(
                StatusCode::OK,
                view.bytes(&stored.value, stored.revision)?,
            ));
        }
        let object = view.value(&stored.value, stored.revision)?;
        let shape = Shape::new(self, view, form, &options.include_object);
        Ok(Answer::encoded(StatusCode::OK, Bytes::from(shape.object(&object).to_string())).in_form(form))
    }

    /// Refuses a version that does not exist yet, as a get or list must. Requirement KA-025.
    pub(crate) fn check_not_ahead(&self, resource_version: &str) -> ApiResult<()> {
        let Some(wanted) = parse_version(resource_version)? else {
            return Ok(());
        };
        let current = self.store().revision();
        if wanted > current {
            Err(too_large(wanted, current))
        } else {
            Ok(())
        }
    }
}

/// A `resourceVersion` of a read; `None` for none.
pub(crate) fn parse_version(text: &str) -> ApiResult<Option<u64>> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_not_a_number| {
        ApiError::new(
            Reason::Unknown,
            format!("resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"),
        )
    })
}

/// 504 for a version that the server has not reached; clients recognise the cause and try again.
pub(crate) fn too_large(wanted: u64, current: u64) -> Box<ApiError> {
    let mut error = ApiError::new(
        Reason::Timeout,
        format!("Timeout: Too large resource version: {wanted}, current: {current}"),
    );
    error.causes = vec![crate::status::Cause {
        reason: "ResourceVersionTooLarge".to_owned(),
        message: "Too large resource version".to_owned(),
        field: String::new(),
    }];
    error.retry_after_seconds = Some(1);
    error
}

/// What a client hears whose version cannot be read or watched from: 410 for one that is forgotten, 504 for one that is
/// not there yet, 503 while the server ends, 500 for a disk that fails. The last is logged, since nobody else learns the
/// cause.
pub(crate) fn history_failure(error: &HistoryError) -> Box<ApiError> {
    match error {
        HistoryError::Compacted { revision, oldest } => ApiError::new(
            Reason::Expired,
            format!("too old resource version: {revision} ({oldest})"),
        ),
        HistoryError::Future { revision, current } => too_large(*revision, *current),
        HistoryError::Storage(fault) => {
            tracing::error!(%fault, "{error}");
            ApiError::new(Reason::InternalError, format!("Internal error occurred: {error}"))
        }
        HistoryError::Closed => {
            let mut refusal = ApiError::new(
                Reason::ServiceUnavailable,
                format!("Internal error occurred: {error}"),
            );
            refusal.retry_after_seconds = Some(1);
            refusal
        }
    }
}
