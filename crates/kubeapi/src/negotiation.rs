//! What a client accepts, and in what format it sends. Requirement KA-007.

use std::borrow::Cow;

use http::{HeaderMap, header};
use serde_json::{Value, json};

use crate::status::{ApiError, ApiResult, Reason};

/// Every form.
pub(crate) const FORMS: [Form; 5] = [
    Form::Plain,
    Form::Table,
    Form::Metadata,
    Form::MetadataList,
    Form::Discovery,
];

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

/// What an answer is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Yaml,
    /// Built-in kinds, and the metadata of every kind.
    Protobuf,
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

    /// How an answer to this clause is written, if this server writes so.
    fn encoding(&self) -> Option<Encoding> {
        match self.media {
            "application/json" | "application/*" | "*/*" => Some(Encoding::Json),
            "application/yaml" => Some(Encoding::Yaml),
            PROTOBUF => Some(Encoding::Protobuf),
            _ => None,
        }
    }

    /// The form asked for, if this server has it in this clause's encoding.
    fn form(&self) -> Option<Form> {
        let wanted = match (self.parameter("as"), self.parameter("g"), self.parameter("v")) {
            ("", _, _) => Form::Plain,
            ("Table", "meta.k8s.io", "v1" | "v1beta1") => Form::Table,
            ("PartialObjectMetadata", "meta.k8s.io", "v1" | "v1beta1") => Form::Metadata,
            ("PartialObjectMetadataList", "meta.k8s.io", "v1" | "v1beta1") => Form::MetadataList,
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => Form::Discovery,
            _ => return None,
        };
        // Tables and the aggregated discovery have no protobuf.
        let fits = self.encoding() != Some(Encoding::Protobuf)
            || matches!(wanted, Form::Plain | Form::Metadata | Form::MetadataList);
        fits.then_some(wanted)
    }
}

fn accept_header(headers: &HeaderMap) -> String {
    let texts: Vec<&str> = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    texts.join(",")
}

fn clauses(accept: &str) -> impl Iterator<Item = Clause<'_>> {
    accept.split(',').map(|text| Clause::parse(text.trim()))
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rendering {
    pub(crate) encoding: Encoding,
    pub(crate) form: Form,
    /// Whether the answer is a Table or metadata of `meta.k8s.io/v1beta1`, which reads as that of `v1`.
    pub(crate) beta: bool,
}

impl Rendering {
    /// What a client gets that says nothing.
    const PLAIN: Self = Self {
        encoding: Encoding::Json,
        form: Form::Plain,
        beta: false,
    };

    /// A document in the version that is wanted.
    pub(crate) fn version<'a>(&self, document: &'a Value) -> Cow<'a, Value> {
        if !self.beta
            || document
                .get("apiVersion")
                .is_none_or(|version| version != "meta.k8s.io/v1")
        {
            return Cow::Borrowed(document);
        }
        let mut document = document.clone();
        document["apiVersion"] = json!("meta.k8s.io/v1beta1");
        Cow::Owned(document)
    }
}

/// All that a client accepts and this server can write, the client's favourite first. What is of equal quality keeps the
/// client's order, but for wildcards, which come last. This is the one place where a header is weighed.
pub(crate) fn renderings(headers: &HeaderMap) -> Vec<Rendering> {
    let accept = accept_header(headers);
    if accept.trim().is_empty() {
        return vec![Rendering::PLAIN];
    }
    let mut clauses: Vec<Clause<'_>> = clauses(&accept).collect();
    clauses.sort_by(|left, right| {
        right
            .quality
            .total_cmp(&left.quality)
            .then(left.media.ends_with('*').cmp(&right.media.ends_with('*')))
    });
    clauses
        .iter()
        .filter_map(|clause| {
            Some(Rendering {
                encoding: clause.encoding()?,
                form: clause.form()?,
                beta: clause.parameter("g") == "meta.k8s.io" && clause.parameter("v") == "v1beta1",
            })
        })
        .collect()
}

/// Picks the first rendering in the client's order whose form is among `offered`. Of custom resources only the metadata have
/// protobuf.
///
/// # Errors
/// 406 with the reference's text when there is none.
pub(crate) fn accepted(headers: &HeaderMap, offered: &[Form], custom: bool) -> ApiResult<Rendering> {
    renderings(headers)
        .into_iter()
        .find(|rendering| {
            let written =
                !custom || rendering.encoding != Encoding::Protobuf || rendering.form != Form::Plain;
            written && offered.contains(&rendering.form)
        })
        .ok_or_else(|| none_of(OFFERED))
}

/// Whether a client accepts one of these media types, in whatever form; one that says nothing accepts all.
fn accepts(headers: &HeaderMap, produced: &[&str]) -> bool {
    let accept = accept_header(headers);
    accept.trim().is_empty()
        || clauses(&accept).any(|clause| clause.media == "*/*" || produced.contains(&clause.media))
}

/// Refuses a client that accepts no media type which the paths of built-in kinds are written in. Requirement KA-007.
///
/// # Errors
/// 406 that lists them; those of watches are among them where the path can be watched.
pub(crate) fn check_media_type(headers: &HeaderMap, produced: &[&str]) -> ApiResult<()> {
    if accepts(headers, produced) {
        return Ok(());
    }
    Err(ApiError::bare(
        Reason::NotAcceptable,
        format!(
            "406: Not Acceptable\n\nAvailable representations: {}",
            produced.join(", ")
        ),
    ))
}

/// 406 for a client that accepts none of these media types, where the reference has other words for it.
///
/// # Errors
/// That refusal.
pub(crate) fn check_accepted(headers: &HeaderMap, produced: &[&str]) -> ApiResult<()> {
    if accepts(headers, produced) {
        Ok(())
    } else {
        Err(none_of(&produced.join(", ")))
    }
}

/// The media types of objects.
pub(crate) const OBJECTS: [&str; 3] = ["application/json", "application/yaml", PROTOBUF];
/// The media types of collections, which can be watched.
pub(crate) const COLLECTIONS: [&str; 5] = [
    "application/json",
    "application/yaml",
    PROTOBUF,
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];

/// 406 for a watch that is wanted in an encoding that cannot be streamed.
pub(crate) fn check_stream(rendering: Rendering) -> ApiResult<()> {
    match rendering.encoding {
        Encoding::Json | Encoding::Protobuf => Ok(()),
        Encoding::Yaml => Err(none_of(
            "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch",
        )),
    }
}

fn none_of(offered: &str) -> Box<ApiError> {
    ApiError::new(
        Reason::NotAcceptable,
        format!("only the following media types are accepted: {offered}"),
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

    const ALL: [Form; 3] = [Form::Plain, Form::Table, Form::Metadata];
    const PROTOBUF_METADATA: &str =
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

    /// Encoding and form that a client gets of a kind; `None` for 406.
    fn chosen(text: &str, custom: bool) -> Option<(Encoding, Form)> {
        accepted(&accept(text), &ALL, custom)
            .ok()
            .map(|rendering| (rendering.encoding, rendering.form))
    }

    #[test]
    fn kubectl_gets_its_table_ka_007() {
        let headers = accept(
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
        );
        assert_eq!(accepted(&headers, &ALL, true).unwrap().form, Form::Table);
        assert_eq!(
            accepted(&headers, &[Form::Plain], true).unwrap().form,
            Form::Plain
        );
    }

    #[test]
    fn quality_orders_the_choices() {
        let table = "application/json;q=0.5,application/json;as=Table;v=v1;g=meta.k8s.io;q=0.9";
        assert_eq!(chosen(table, false), Some((Encoding::Json, Form::Table)));
        let yaml = "*/*, application/yaml";
        assert_eq!(chosen(yaml, false), Some((Encoding::Yaml, Form::Plain)));
    }

    /// Each as the reference chose.
    #[test]
    fn protobuf_is_written_where_the_client_likes_it_best_and_the_kind_has_it_ka_007() {
        const PROTOBUF_AND_JSON: &str = "application/vnd.kubernetes.protobuf,application/json";
        let json = Some((Encoding::Json, Form::Plain));
        let protobuf = Some((Encoding::Protobuf, Form::Plain));
        assert_eq!(chosen(PROTOBUF, false), protobuf);
        assert_eq!(chosen(PROTOBUF, true), None);
        assert_eq!(chosen(PROTOBUF_AND_JSON, false), protobuf);
        assert_eq!(chosen(PROTOBUF_AND_JSON, true), json);
        assert_eq!(
            chosen("application/json,application/vnd.kubernetes.protobuf", false),
            json
        );
        assert_eq!(chosen("*/*,application/vnd.kubernetes.protobuf", false), protobuf);
        assert_eq!(
            chosen("application/vnd.kubernetes.protobuf,application/yaml", true),
            Some((Encoding::Yaml, Form::Plain))
        );
        let metadata = Some((Encoding::Protobuf, Form::Metadata));
        assert_eq!(chosen(PROTOBUF_METADATA, false), metadata);
        assert_eq!(chosen(PROTOBUF_METADATA, true), metadata);
        let table = "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io";
        assert_eq!(chosen(table, false), None);
        assert_eq!(chosen(&format!("{table},application/json"), false), json);
    }

    #[test]
    fn yaml_cannot_be_streamed_ka_007() {
        let rendering = |text: &str| accepted(&accept(text), &ALL, false).unwrap();
        check_stream(rendering(PROTOBUF)).unwrap();
        check_stream(rendering("*/*")).unwrap();
        let refused = check_stream(rendering("application/yaml")).unwrap_err();
        assert_eq!(refused.reason, Reason::NotAcceptable);
    }

    #[test]
    fn a_media_type_that_no_path_has_is_refused_with_those_it_has_ka_007() {
        let refused = check_media_type(&accept("text/html"), &OBJECTS).unwrap_err();
        assert_eq!(
            refused.message,
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
             application/vnd.kubernetes.protobuf"
        );
        check_media_type(&accept("text/html, */*;q=0.1"), &OBJECTS).unwrap();
        check_media_type(&accept("application/json;as=Table"), &COLLECTIONS).unwrap();
        check_accepted(
            &accept("text/html, application/json;q=0.1"),
            &["application/json"],
        )
        .unwrap();
        assert_eq!(
            check_accepted(&accept("application/xml"), &["application/json"])
                .unwrap_err()
                .message,
            "only the following media types are accepted: application/json"
        );
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
