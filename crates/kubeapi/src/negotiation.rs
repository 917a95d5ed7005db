//! What a client accepts, and in what format it sends. Requirement KA-007.

use http::{HeaderMap, header};

use crate::status::{ApiError, ApiResult, Reason};

/// The shape an answer is wanted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The object or list as it is.
    Plain,
    /// `meta.k8s.io/v1 Table`
    Table,
    /// `meta.k8s.io/v1 PartialObjectMetadata`
    Metadata,
    /// `meta.k8s.io/v1 PartialObjectMetadataList`
    MetadataList,
    /// `apidiscovery.k8s.io/v2 APIGroupDiscoveryList`
    Discovery,
}

/// The format of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFormat {
    Json,
    Yaml,
    /// Built-in kinds only.
    Protobuf,
}

/// The kind of a patch, by its content type. Requirement KA-027.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchFormat {
    /// RFC 6902
    Json,
    /// RFC 7396
    Merge,
    /// Strategic merge, for built-in kinds only.
    Strategic,
    /// Server-side apply, JSON or YAML.
    Apply,
}

const ACCEPTED: &str = "application/json, application/yaml";
/// What the reference names to a client that accepts nothing else; it names protobuf for custom resources too.
const OFFERED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// One clause of an `Accept` header.
struct Clause<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().unwrap_or("");
        let parameters: Vec<(&str, &str)> = parts
            .filter_map(|part| part.split_once('='))
            .map(|(name, value)| (name.trim(), value.trim().trim_matches('"')))
            .collect();
        let quality = parameters
            .iter()
            .find(|(name, _)| *name == "q")
            .and_then(|(_, value)| value.parse().ok())
            .unwrap_or(1.0);
        Self {
            media,
            parameters,
            quality,
        }
    }

    fn parameter(&self, name: &str) -> &str {
        self.parameters
            .iter()
            .find(|(parameter, _)| *parameter == name)
            .map_or("", |(_, value)| value)
    }

    fn is_json(&self) -> bool {
        matches!(self.media, "application/json" | "application/*" | "*/*")
    }

    /// The form asked for, if this server has it.
    fn form(&self, offered: &[Form]) -> Option<Form> {
        if !self.is_json() {
            return None;
        }
        let wanted = match (self.parameter("as"), self.parameter("g"), self.parameter("v")) {
            ("", _, _) => Form::Plain,
            ("Table", "meta.k8s.io", "v1" | "v1beta1") => Form::Table,
            ("PartialObjectMetadata", "meta.k8s.io", "v1" | "v1beta1") => Form::Metadata,
            ("PartialObjectMetadataList", "meta.k8s.io", "v1" | "v1beta1") => Form::MetadataList,
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => Form::Discovery,
            _ => return None,
        };
        offered.contains(&wanted).then_some(wanted)
    }
}

/// Picks the first form in the client's order of preference that is among `offered`.
///
/// # Errors
/// 406 with the reference's text when there is none.
pub(crate) fn accepted_form(headers: &HeaderMap, offered: &[Form]) -> ApiResult<Form> {
    let texts: Vec<&str> = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    let joined = texts.join(",");
    if joined.trim().is_empty() {
        return Ok(Form::Plain);
    }
    let mut clauses: Vec<Clause<'_>> = joined.split(',').map(|text| Clause::parse(text.trim())).collect();
    // Stable, so that equal quality keeps the client's order.
    clauses.sort_by(|left, right| right.quality.total_cmp(&left.quality));
    clauses
        .iter()
        .find_map(|clause| clause.form(offered))
        .ok_or_else(not_acceptable)
}

fn not_acceptable() -> Box<ApiError> {
    ApiError::new(
        Reason::NotAcceptable,
        format!("only the following media types are accepted: {OFFERED}"),
    )
}

fn media_type(headers: &HeaderMap) -> String {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .map(|media| media.trim().to_ascii_lowercase())
        .unwrap_or_default()
}

/// The format of the body of a create, update or delete. Custom resources have no protobuf.
///
/// # Errors
/// 415 with the reference's text.
pub(crate) fn body_format(headers: &HeaderMap, custom: bool) -> ApiResult<BodyFormat> {
    match media_type(headers).as_str() {
        "" | "application/json" => Ok(BodyFormat::Json),
        "application/yaml" | "application/x-yaml" => Ok(BodyFormat::Yaml),
        PROTOBUF if !custom => Ok(BodyFormat::Protobuf),
        _ => {
            let accepted = if custom {
                ACCEPTED.to_owned()
            } else {
                format!("{ACCEPTED}, {PROTOBUF}")
            };
            Err(ApiError::new(
                Reason::UnsupportedMediaType,
                format!(
                    "the body of the request was in an unknown format - accepted media types include: {accepted}"
                ),
            ))
        }
    }
}

/// The kind of patch that the content type names.
///
/// # Errors
/// 415 with the reference's text, which lists what the kind supports.
pub(crate) fn patch_format(headers: &HeaderMap, strategic: bool) -> ApiResult<PatchFormat> {
    match media_type(headers).as_str() {
        "application/json-patch+json" => Ok(PatchFormat::Json),
        "application/merge-patch+json" => Ok(PatchFormat::Merge),
        "application/strategic-merge-patch+json" if strategic => Ok(PatchFormat::Strategic),
        "application/apply-patch+yaml" => Ok(PatchFormat::Apply),
        "application/strategic-merge-patch+json" => Err(ApiError::new(
            Reason::UnsupportedMediaType,
            "the body of the request was in an unknown format - accepted media types include: \
             application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
        )),
        _ => Err(ApiError::bare(
            Reason::UnsupportedMediaType,
            "415: Unsupported Media Type",
        )),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn accept(text: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, text.parse().unwrap());
        headers
    }

    #[test]
    fn kubectl_gets_its_table_ka_007() {
        let headers = accept(
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
        );
        assert_eq!(
            accepted_form(&headers, &[Form::Plain, Form::Table]).unwrap(),
            Form::Table
        );
        assert_eq!(accepted_form(&headers, &[Form::Plain]).unwrap(), Form::Plain);
    }

    #[test]
    fn quality_orders_the_choices() {
        let headers = accept("application/json;q=0.5,application/json;as=Table;v=v1;g=meta.k8s.io;q=0.9");
        assert_eq!(
            accepted_form(&headers, &[Form::Plain, Form::Table]).unwrap(),
            Form::Table
        );
    }

    #[test]
    fn protobuf_alone_is_not_acceptable_ka_007() {
        let headers = accept("application/vnd.kubernetes.protobuf");
        assert_eq!(
            accepted_form(&headers, &[Form::Plain]).unwrap_err().reason,
            Reason::NotAcceptable
        );
        let headers = accept("application/vnd.kubernetes.protobuf, */*");
        assert_eq!(accepted_form(&headers, &[Form::Plain]).unwrap(), Form::Plain);
    }

    #[test]
    fn a_strategic_patch_of_a_custom_resource_is_unsupported_ka_027() {
        let mut headers = HeaderMap::new();
        headers.insert(
            header::CONTENT_TYPE,
            "application/strategic-merge-patch+json".parse().unwrap(),
        );
        assert_eq!(patch_format(&headers, true).unwrap(), PatchFormat::Strategic);
        assert_eq!(
            patch_format(&headers, false).unwrap_err().reason,
            Reason::UnsupportedMediaType
        );
    }
}
