//! Query options of every verb, read once.

use std::time::Duration;

use http::Uri;
use serde_json::json;

use crate::{
    field::{FieldError, FieldPath},
    request::Verb,
    schema::formats,
    status::{ApiError, ApiResult, Reason},
};

/// The longest field manager, in bytes.
const MANAGER_LENGTH: usize = 128;

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
    /// What the client named is neither.
    Unknown,
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
    /// How long the client waits for an answer; zero is as if it were absent.
    pub(crate) timeout: Option<Duration>,
    pub(crate) dry_run: DryRun,
    pub(crate) field_manager: String,
    pub(crate) field_validation: FieldValidation,
    pub(crate) force: Option<bool>,
    pub(crate) grace_period_seconds: Option<i64>,
    pub(crate) propagation_policy: Option<String>,
    pub(crate) orphan_dependents: Option<bool>,
    pub(crate) include_object: String,
    pub(crate) verbose: bool,
    /// What is wrong with the options of a write, whatever write it is.
    faults: Vec<FieldError>,
    /// A `resourceVersionMatch` that is none.
    unknown_match: String,
    /// Every pair as it came, for the options of single subresources such as `log`.
    pub(crate) pairs: Vec<(String, String)>,
}

/// What a value of `timeout` asks for; `None` for zero and less.
fn timeout(value: &str) -> ApiResult<Option<Duration>> {
    let asked = formats::parse_go_duration(value).ok_or_else(|| {
        ApiError::new(
            Reason::BadRequest,
            format!("invalid timeout specified in the request URL - time: invalid duration {value:?}"),
        )
    })?;
    Ok(Duration::try_from(asked).ok().filter(|asked| !asked.is_zero()))
}

impl QueryOptions {
    /// Checks the `timeout` of a request whose other options mean nothing.
    ///
    /// # Errors
    /// 400 for one that is no duration.
    pub(crate) fn check_timeout(uri: &Uri) -> ApiResult<()> {
        let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map(|pairs| pairs.0)
            .unwrap_or_default();
        for (_, value) in pairs
            .iter()
            .filter(|(name, value)| name == "timeout" && !value.is_empty())
        {
            timeout(value)?;
        }
        Ok(())
    }

    /// Reads the options.
    ///
    /// # Errors
    /// 400 for a value that is not of its option's type. Values that are none of those allowed are kept for
    /// [`QueryOptions::check_write`] and [`QueryOptions::check_list`].
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
            "watch" => self.watch = flag(value),
            "labelSelector" => value.clone_into(&mut self.label_selector),
            "fieldSelector" => value.clone_into(&mut self.field_selector),
            "resourceVersion" => value.clone_into(&mut self.resource_version),
            "resourceVersionMatch" if !value.is_empty() => {
                self.resource_version_match = Some(match value {
                    "Exact" => ResourceVersionMatch::Exact,
                    "NotOlderThan" => ResourceVersionMatch::NotOlderThan,
                    _ => {
                        value.clone_into(&mut self.unknown_match);
                        ResourceVersionMatch::Unknown
                    }
                });
            }
            "limit" if !value.is_empty() => {
                let limit: i64 = number(value)?;
                // The reference treats a negative limit as none.
                self.limit = usize::try_from(limit).unwrap_or(0);
            }
            "continue" => value.clone_into(&mut self.continuation),
            "allowWatchBookmarks" => self.allow_watch_bookmarks = flag(value),
            "sendInitialEvents" => self.send_initial_events = Some(flag(value)),
            "timeoutSeconds" if !value.is_empty() => {
                let seconds: i64 = number(value)?;
                self.timeout_seconds = u64::try_from(seconds).ok();
            }
            "timeout" if !value.is_empty() => {
                self.timeout = timeout(value)?;
            }
            "dryRun" if !value.is_empty() => {
                if value != "All" {
                    self.faults.push(FieldError::not_supported(
                        &FieldPath::of(name),
                        json!([value]),
                        &["All"],
                    ));
                }
                self.dry_run = DryRun::All;
            }
            "fieldManager" => {
                value.clone_into(&mut self.field_manager);
                self.check_manager();
            }
            "fieldValidation" => {
                self.field_validation = match value {
                    "" | "Warn" => FieldValidation::Warn,
                    "Ignore" => FieldValidation::Ignore,
                    "Strict" => FieldValidation::Strict,
                    _ => {
                        self.faults.push(FieldError::not_supported(
                            &FieldPath::of(name),
                            json!(value),
                            &["", "Ignore", "Strict", "Warn"],
                        ));
                        FieldValidation::Warn
                    }
                };
            }
            "force" => self.force = Some(flag(value)),
            "gracePeriodSeconds" if !value.is_empty() => self.grace_period_seconds = Some(number(value)?),
            "propagationPolicy" if !value.is_empty() => self.propagation_policy = Some(value.to_owned()),
            "orphanDependents" => self.orphan_dependents = Some(flag(value)),
            "includeObject" => value.clone_into(&mut self.include_object),
            "verbose" => self.verbose = true,
            _ => {}
        }
        Ok(())
    }
}

/// A boolean as the reference's query conversion reads it: only `false` and `0` are false.
fn flag(value: &str) -> bool {
    !matches!(value, "0" | "false")
}

fn number(value: &str) -> ApiResult<i64> {
    value.parse().map_err(|_not_a_number| {
        ApiError::new(
            Reason::BadRequest,
            format!("strconv.ParseInt: parsing {value:?}: invalid syntax"),
        )
    })
}

impl QueryOptions {
    fn check_manager(&mut self) {
        let path = FieldPath::of("fieldManager");
        if self.field_manager.len() > MANAGER_LENGTH {
            let detail = format!("may not be more than {MANAGER_LENGTH} bytes");
            self.faults.push(FieldError::too_long(&path, detail));
        }
        let hidden = self
            .field_manager
            .char_indices()
            .find(|(_, character)| character.is_control());
        if let Some((at, character)) = hidden {
            let detail = format!(
                "invalid character U+{:04X} (at position {at})",
                u32::from(character)
            );
            self.faults
                .push(FieldError::invalid(&path, json!(self.field_manager), detail));
        }
    }

    /// Refuses options of a write that are none.
    ///
    /// # Errors
    /// 422 in the name of the options that the verb takes.
    pub(crate) fn check_write(&self, verb: Verb) -> ApiResult<()> {
        let kind = match verb {
            Verb::Create => "CreateOptions",
            Verb::Update => "UpdateOptions",
            Verb::Patch => "PatchOptions",
            Verb::Delete | Verb::DeleteCollection => "DeleteOptions",
            Verb::Get | Verb::List | Verb::Watch => return Ok(()),
        };
        // A deletion knows `dryRun` alone.
        let deletes = kind == "DeleteOptions";
        let faults: Vec<FieldError> = self
            .faults
            .iter()
            .filter(|fault| !deletes || fault.path.as_str() == "dryRun")
            .cloned()
            .collect();
        if faults.is_empty() {
            Ok(())
        } else {
            Err(ApiError::invalid_options(kind, &faults))
        }
    }

    /// Refuses combinations of list and watch options that contradict each other.
    pub(crate) fn check_list(&self, watch: bool) -> ApiResult<()> {
        let path = FieldPath::of("resourceVersionMatch");
        let mut errors = Vec::new();
        let mut forbid = |path: &FieldPath, text: &str| errors.push(FieldError::forbidden(path, text));
        let stated = self.resource_version_match;
        if self.send_initial_events.is_some() {
            if !watch {
                forbid(
                    &FieldPath::of("sendInitialEvents"),
                    "sendInitialEvents is forbidden for list",
                );
            } else if stated != Some(ResourceVersionMatch::NotOlderThan) {
                forbid(
                    &path,
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                );
                let value = match stated {
                    Some(ResourceVersionMatch::Unknown) => Some(json!(self.unknown_match)),
                    Some(_) => Some(json!("Exact")),
                    None => None,
                };
                errors.extend(value.map(|value| FieldError::not_supported(&path, value, &["NotOlderThan"])));
            }
        } else if stated.is_some() && watch {
            forbid(
                &path,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            );
        } else if stated.is_some() {
            if self.resource_version.is_empty() {
                forbid(
                    &path,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                );
            }
            if !self.continuation.is_empty() {
                forbid(
                    &path,
                    "resourceVersionMatch is forbidden when continue is provided",
                );
            }
            if stated == Some(ResourceVersionMatch::Unknown) {
                errors.push(FieldError::not_supported(
                    &path,
                    json!(self.unknown_match),
                    &["Exact", "NotOlderThan", ""],
                ));
            } else if stated == Some(ResourceVersionMatch::Exact) && self.resource_version == "0" {
                forbid(
                    &path,
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                );
            }
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(ApiError::invalid_options("ListOptions", &errors))
        }
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
        let refused = parse("fieldValidation=Sometimes").unwrap();
        assert_eq!(
            refused.check_write(Verb::Patch).unwrap_err().message,
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"Sometimes\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""
        );
        assert!(refused.check_write(Verb::Delete).is_ok());
    }

    #[test]
    fn a_watch_flag_may_stand_without_a_value() {
        assert!(parse("watch").unwrap().watch);
        assert!(!parse("watch=false").unwrap().watch);
        assert!(parse("watch=maybe").unwrap().watch);
        assert_eq!(parse("limit=x").unwrap_err().reason, Reason::BadRequest);
    }

    #[test]
    fn initial_events_need_the_match_rule_ka_026() {
        let options = parse("watch=1&sendInitialEvents=true").unwrap();
        assert_eq!(options.check_list(true).unwrap_err().reason, Reason::Invalid);
        let options = parse("watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan").unwrap();
        assert!(options.check_list(true).is_ok());
    }
}
