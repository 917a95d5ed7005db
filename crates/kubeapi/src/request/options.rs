//! Query options of every verb, read once.

use http::Uri;

use crate::status::{ApiError, ApiResult, Reason};

/// `dryRun`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DryRun {
    /// The write is made.
    #[default]
    Off,
    /// Everything but the write is done.
    All,
}

/// `fieldValidation`. Requirement KA-014.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// Unknown and duplicate fields are dropped silently.
    Ignore,
    /// They are dropped with a `Warning` header.
    #[default]
    Warn,
    /// They refuse the request.
    Strict,
}

/// `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourceVersionMatch {
    /// State at this very version.
    Exact,
    /// State at this version or a later one.
    NotOlderThan,
}

/// The options of a request's query.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueryOptions {
    pub(crate) watch: bool,
    pub(crate) label_selector: String,
    pub(crate) field_selector: String,
    pub(crate) resource_version: String,
    pub(crate) resource_version_match: Option<ResourceVersionMatch>,
    pub(crate) limit: usize,
    pub(crate) continuation: String,
    pub(crate) allow_watch_bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
    pub(crate) timeout_seconds: Option<u64>,
    pub(crate) dry_run: DryRun,
    pub(crate) field_manager: String,
    pub(crate) field_validation: FieldValidation,
    pub(crate) force: Option<bool>,
    pub(crate) grace_period_seconds: Option<i64>,
    pub(crate) propagation_policy: Option<String>,
    pub(crate) orphan_dependents: Option<bool>,
    pub(crate) include_object: String,
    pub(crate) verbose: bool,
    /// Every pair as it came, for the options of single subresources such as `log`.
    pub(crate) pairs: Vec<(String, String)>,
}

impl QueryOptions {
    /// Reads the options.
    ///
    /// # Errors
    /// 400 for a value that is not of its option's type, 422 for `dryRun` and `fieldValidation`.
    pub(crate) fn parse(uri: &Uri) -> ApiResult<Self> {
        let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|_refused| ApiError::new(Reason::BadRequest, "the query of the request is malformed"))?
            .0;
        let mut options = Self::default();
        for (name, value) in &pairs {
            options.set(name, value)?;
        }
        options.pairs = pairs;
        Ok(options)
    }

    /// The first value of an option that only one subresource knows.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.pairs
            .iter()
            .find(|(pair, _)| pair == name)
            .map(|(_, value)| value.as_str())
    }

    fn set(&mut self, name: &str, value: &str) -> ApiResult<()> {
        match name {
            "watch" => self.watch = flag(name, value)?,
            "labelSelector" => value.clone_into(&mut self.label_selector),
            "fieldSelector" => value.clone_into(&mut self.field_selector),
            "resourceVersion" => value.clone_into(&mut self.resource_version),
            "resourceVersionMatch" if !value.is_empty() => {
                self.resource_version_match = Some(match value {
                    "Exact" => ResourceVersionMatch::Exact,
                    "NotOlderThan" => ResourceVersionMatch::NotOlderThan,
                    _ => {
                        return Err(list_options_invalid(format!(
                            "resourceVersionMatch: Unsupported value: {value:?}: supported values: \"Exact\", \
                             \"NotOlderThan\", \"\""
                        )));
                    }
                });
            }
            "limit" if !value.is_empty() => {
                let limit: i64 = number(name, value)?;
                // The reference treats a negative limit as none.
                self.limit = usize::try_from(limit).unwrap_or(0);
            }
            "continue" => value.clone_into(&mut self.continuation),
            "allowWatchBookmarks" => self.allow_watch_bookmarks = flag(name, value)?,
            "sendInitialEvents" => self.send_initial_events = Some(flag(name, value)?),
            "timeoutSeconds" if !value.is_empty() => {
                let seconds: i64 = number(name, value)?;
                self.timeout_seconds = u64::try_from(seconds).ok();
            }
            "dryRun" if !value.is_empty() => {
                if value != "All" {
                    return Err(options_invalid(format!(
                        "dryRun: Unsupported value: [{value:?}]: supported values: \"All\""
                    )));
                }
                self.dry_run = DryRun::All;
            }
            "fieldManager" => value.clone_into(&mut self.field_manager),
            "fieldValidation" => {
                self.field_validation = match value {
                    "" | "Warn" => FieldValidation::Warn,
                    "Ignore" => FieldValidation::Ignore,
                    "Strict" => FieldValidation::Strict,
                    _ => {
                        return Err(options_invalid(format!(
                            "fieldValidation: Unsupported value: {value:?}: supported values: \"Ignore\", \"Strict\", \
                             \"Warn\""
                        )));
                    }
                };
            }
            "force" => self.force = Some(flag(name, value)?),
            "gracePeriodSeconds" if !value.is_empty() => {
                self.grace_period_seconds = Some(number(name, value)?)
            }
            "propagationPolicy" if !value.is_empty() => self.propagation_policy = Some(value.to_owned()),
            "orphanDependents" => self.orphan_dependents = Some(flag(name, value)?),
            "includeObject" => value.clone_into(&mut self.include_object),
            "verbose" => self.verbose = true,
            _ => {}
        }
        Ok(())
    }
}

/// A boolean as the reference's query conversion reads it: present without a value means true.
fn flag(name: &str, value: &str) -> ApiResult<bool> {
    match value {
        "" | "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(ApiError::new(
            Reason::BadRequest,
            format!("invalid value {value:?} of the query option {name:?}"),
        )),
    }
}

fn number(name: &str, value: &str) -> ApiResult<i64> {
    value.parse().map_err(|_not_a_number| {
        ApiError::new(
            Reason::BadRequest,
            format!("invalid value {value:?} of the query option {name:?}"),
        )
    })
}

/// 422 for list options, as `ListOptions.meta.k8s.io "" is invalid: …`.
pub(super) fn list_options_invalid(detail: String) -> Box<ApiError> {
    options_error("ListOptions.meta.k8s.io", &detail)
}

fn options_invalid(detail: String) -> Box<ApiError> {
    options_error("CreateOptions.meta.k8s.io", &detail)
}

fn options_error(kind: &str, detail: &str) -> Box<ApiError> {
    ApiError::new(Reason::Invalid, format!("{kind} \"\" is invalid: {detail}"))
}

impl QueryOptions {
    /// Refuses combinations of list and watch options that contradict each other.
    pub(crate) fn check_list(&self, watch: bool) -> ApiResult<()> {
        let refuse = |text: &str| Err(list_options_invalid(text.to_owned()));
        if self.send_initial_events.is_some() {
            if !watch {
                return refuse("sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list");
            }
            if self.resource_version_match != Some(ResourceVersionMatch::NotOlderThan) {
                return refuse(
                    "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to \
                     NotOlderThan",
                );
            }
            return Ok(());
        }
        if self.resource_version_match.is_none() {
            return Ok(());
        }
        if watch {
            return refuse(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            );
        }
        if self.resource_version.is_empty() {
            return refuse(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            );
        }
        if !self.continuation.is_empty() {
            return refuse(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided",
            );
        }
        if self.resource_version_match == Some(ResourceVersionMatch::Exact) && self.resource_version == "0" {
            return refuse(
                "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            );
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn parse(query: &str) -> ApiResult<QueryOptions> {
        QueryOptions::parse(&format!("/x?{query}").parse().unwrap())
    }

    #[test]
    fn an_absent_field_validation_is_warn_ka_014() {
        assert_eq!(parse("").unwrap().field_validation, FieldValidation::Warn);
        assert_eq!(
            parse("fieldValidation=Strict").unwrap().field_validation,
            FieldValidation::Strict
        );
        assert_eq!(
            parse("fieldValidation=Sometimes").unwrap_err().reason,
            Reason::Invalid
        );
    }

    #[test]
    fn a_watch_flag_may_stand_without_a_value() {
        assert!(parse("watch").unwrap().watch);
        assert!(!parse("watch=false").unwrap().watch);
        assert_eq!(parse("watch=maybe").unwrap_err().reason, Reason::BadRequest);
    }

    #[test]
    fn initial_events_need_the_match_rule_ka_026() {
        let options = parse("watch=1&sendInitialEvents=true").unwrap();
        assert_eq!(options.check_list(true).unwrap_err().reason, Reason::Invalid);
        let options = parse("watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan").unwrap();
        assert!(options.check_list(true).is_ok());
    }
}
