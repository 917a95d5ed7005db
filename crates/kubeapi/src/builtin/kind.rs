//! What the server knows about one kind.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::{
    definitions::{self, Reader},
    strategy::Strategy,
};
use crate::{
    crd, custom,
    field::{FieldError, FieldErrorKind, FieldPath},
    schema::{self, Node, Rules},
};

/// Everything the server knows about one kind in one version. Built once and shared.
#[derive(Clone, Debug)]
pub struct KindInfo {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind, such as `ToolRegistry`.
    pub kind: String,
    /// The kind of its list.
    pub list_kind: String,
    /// The resource name in paths.
    pub plural: String,
    /// The singular resource name.
    pub singular: String,
    /// Short names for `kubectl`.
    pub short_names: Vec<String>,
    /// Groups of kinds such as `all`.
    pub categories: Vec<String>,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// What can be done with it, in the order in which discovery lists it.
    pub verbs: Vec<String>,
    /// Whether `status` is a subresource.
    pub status: bool,
    /// Where `scale` reads and writes, if it is a subresource.
    pub scale: Option<ScalePaths>,
    /// Further subresources, for discovery.
    pub subresources: Vec<Subresource>,
    /// `GROUP/PLURAL`, the place of its objects in the store; the core group is empty.
    pub storage_resource: String,
    /// The version in which objects are stored.
    pub storage_version: String,
    /// The structure of an object.
    pub node: Arc<Node>,
    /// The compiled `x-kubernetes-validations`, if the schema has any.
    pub rules: Option<Arc<Rules>>,
    /// The columns of `kubectl get`.
    pub columns: Vec<Column>,
    /// The fields that a field selector may name, beside `metadata.name` and `metadata.namespace`.
    pub selectable_fields: Vec<String>,
    /// Whether it comes from a custom resource definition.
    pub custom: bool,
    /// The warning that requests to a deprecated version get.
    pub deprecation_warning: Option<String>,
    /// The name of its schema among the OpenAPI definitions.
    pub definition: String,
    /// The published schema of a custom kind; built-in kinds are published from the data.
    pub document: Option<Arc<Value>>,
    /// Defaults and rules of a built-in kind that no schema states.
    pub strategy: Strategy,
}

/// The JSON paths of a `scale` subresource.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScalePaths {
    /// Such as `.spec.replicas`.
    pub spec_replicas: String,
    /// Such as `.status.replicas`.
    pub status_replicas: String,
    /// Such as `.status.selector`; a text. `None` for the built-in kinds, whose selector is an object in `.spec.selector`.
    #[serde(default)]
    pub label_selector: Option<String>,
}

/// A subresource beside `status` and `scale`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Subresource {
    /// Such as `log`.
    pub name: String,
    /// The group of the kind it speaks.
    pub group: String,
    /// The version of that kind.
    pub version: String,
    /// The kind it speaks.
    pub kind: String,
    /// What can be done with it.
    pub verbs: Vec<String>,
}

/// A column of a Table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The heading.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub type_: String,
    /// `name` for the column with the object's name.
    pub format: String,
    /// What it shows.
    pub description: String,
    /// Columns above 0 are shown with `-o wide` only.
    pub priority: i32,
    /// Where the cell comes from.
    pub source: ColumnSource,
}

/// Where a cell comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnSource {
    /// A JSON path in the object, such as `.status.phase`.
    JsonPath(String),
    /// A function for the built-in kind.
    Builtin,
}

impl KindInfo {
    /// `GROUP/VERSION`, or the bare version in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The decoder's text for a value of the wrong type, which is a 400: anywhere in a built-in kind, in the metadata of
    /// a custom one.
    pub fn decode_error(&self, object: &Value) -> Option<String> {
        let detail = if self.custom {
            let metadata = object.get("metadata").unwrap_or(&Value::Null);
            let object_meta = definitions::object_meta();
            schema::decode_error(&object_meta, metadata)
                .or_else(|| schema::embedded_decode_error(&self.node, &object_meta, object))
        } else {
            schema::decode_error(&self.node, object).or_else(|| {
                custom::is_definition(self)
                    .then(|| crd::decode_error(object))
                    .flatten()
            })
        }?;
        Some(format!(
            "{} in version {:?} cannot be handled as a {}: {detail}",
            self.kind, self.version, self.kind
        ))
    }

    /// Fills in what is absent: the defaults of the schema, then those that depend on other fields.
    pub fn default_object(&self, object: &mut Value) {
        schema::default_object(&self.node, object);
        self.strategy.default(object);
    }

    /// Everything that is wrong with the values of `object`, but for its own metadata. On an update, `old` is the object
    /// as it was: faults that it had already and that the update left alone do not count (custom kinds), and immutable
    /// fields are compared (built-in kinds).
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        self.validate_with_warnings(object, old, &mut Vec::new())
    }

    /// As [`KindInfo::validate`]; broken rules on what the update left alone become warnings.
    pub fn validate_with_warnings(
        &self,
        object: &Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Vec<FieldError> {
        if !self.custom {
            return self.strategy.validate(object, old);
        }
        let mut errors = schema::validate_update(&self.node, object, old);
        errors.extend(schema::validate_embedded(&self.node, object));
        // Duplicates that were there before the update do not count.
        if old.is_none_or(|old| schema::validate_lists(&self.node, old).is_empty()) {
            errors.extend(schema::validate_lists(&self.node, object));
        }
        if let Some(rules) = &self.rules {
            // Rules rely on types, sizes and required fields; other faults do not keep them from running.
            if errors.iter().any(keeps_rules_from_running) {
                let detail = "some validation rules were not checked because the object was invalid; correct the existing \
                              errors to complete validation";
                errors.push(FieldError::invalid(&FieldPath::root(), Value::Null, detail));
            } else {
                let found = rules.judge(object, old);
                errors.extend(found.errors);
                warnings.extend(found.unchanged.iter().map(ToString::to_string));
            }
        }
        errors
    }
}

fn keeps_rules_from_running(error: &FieldError) -> bool {
    matches!(
        error.kind,
        FieldErrorKind::NotSupported
            | FieldErrorKind::Required
            | FieldErrorKind::TooLong
            | FieldErrorKind::TooMany
            | FieldErrorKind::TypeInvalid
    )
}

/// A kind as `data/kinds.json` describes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct KindData {
    group: String,
    version: String,
    kind: String,
    plural: String,
    singular: String,
    definition: String,
    namespaced: bool,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
    verbs: Vec<String>,
    #[serde(default)]
    status: bool,
    scale: Option<ScalePaths>,
    #[serde(default)]
    subresources: Vec<Subresource>,
    #[serde(default)]
    fields: Vec<String>,
    deprecation_warning: Option<String>,
    /// Where its objects are stored, if that is the place of another kind.
    storage: Option<String>,
    columns: Vec<ColumnData>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ColumnData {
    name: String,
    #[serde(rename = "type")]
    type_: String,
    #[serde(default)]
    format: String,
    description: DescriptionData,
    #[serde(default)]
    priority: i32,
}

/// A text, or the place among the published definitions where it stands.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum DescriptionData {
    Text(String),
    Published { definition: String, property: String },
}

impl KindData {
    pub(super) fn build(self, reader: &mut Reader) -> KindInfo {
        let node = reader.definition(&self.definition);
        let storage_resource = self
            .storage
            .unwrap_or_else(|| format!("{}/{}", self.group, self.plural));
        let columns = self
            .columns
            .into_iter()
            .map(|column| Column {
                name: column.name,
                type_: column.type_,
                format: column.format,
                description: match column.description {
                    DescriptionData::Text(text) => text,
                    DescriptionData::Published { definition, property } => {
                        definitions::description(&definition, &property)
                    }
                },
                priority: column.priority,
                source: ColumnSource::Builtin,
            })
            .collect();
        KindInfo {
            list_kind: format!("{}List", self.kind),
            strategy: Strategy::of(&format!("{}/{}", self.group, self.plural)),
            storage_version: self.version.clone(),
            storage_resource,
            node,
            rules: None,
            columns,
            selectable_fields: self.fields,
            custom: false,
            deprecation_warning: self.deprecation_warning,
            document: None,
            group: self.group,
            version: self.version,
            kind: self.kind,
            plural: self.plural,
            singular: self.singular,
            short_names: self.short_names,
            categories: self.categories,
            namespaced: self.namespaced,
            verbs: self.verbs,
            status: self.status,
            scale: self.scale,
            subresources: self.subresources,
            definition: self.definition,
        }
    }
}

#[cfg(test)]
mod tests;
