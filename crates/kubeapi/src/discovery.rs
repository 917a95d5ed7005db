//! Discovery: which groups, versions and resources there are, in both forms that clients ask for. Requirement KA-004.

use std::{cmp::Ordering, collections::BTreeMap};

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::builtin::{KindInfo, Kinds};

/// `/api`: the versions of the core group.
pub fn core_versions() -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}],
    })
}

/// `/apis`: every group but the core group.
pub fn groups(kinds: &Kinds) -> Value {
    let groups: Vec<Value> = ordered(kinds)
        .into_iter()
        .filter(|group| !group.name.is_empty())
        .map(|group| group.document())
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`; `None` if there is no such group.
pub fn group(kinds: &Kinds, name: &str) -> Option<Value> {
    let group = ordered(kinds)
        .into_iter()
        .find(|group| group.name == name && !name.is_empty())?;
    let mut document = group.document();
    if let Some(fields) = document.as_object_mut() {
        fields.insert("kind".to_owned(), json!("APIGroup"));
        fields.insert("apiVersion".to_owned(), json!("v1"));
    }
    Some(document)
}

/// `/api/v1` and `/apis/GROUP/VERSION`: the resources of a group version; `None` if there is none.
pub fn resources(kinds: &Kinds, group: &str, version: &str) -> Option<Value> {
    let resources: Vec<Value> = of_version(kinds, group, version)
        .flat_map(plain_resources)
        .collect();
    if resources.is_empty() {
        return None;
    }
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    let mut document =
        json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": resources});
    // The reference leaves it out in the core group, whose document predates the field.
    if let (false, Some(fields)) = (group.is_empty(), document.as_object_mut()) {
        fields.insert("apiVersion".to_owned(), json!("v1"));
    }
    Some(document)
}

/// `/api` as an aggregated document (`apidiscovery.k8s.io/v2`).
pub fn aggregated_core(kinds: &Kinds) -> Value {
    aggregated(kinds, true)
}

/// `/apis` as an aggregated document (`apidiscovery.k8s.io/v2`).
pub fn aggregated_groups(kinds: &Kinds) -> Value {
    aggregated(kinds, false)
}

fn aggregated(kinds: &Kinds, core: bool) -> Value {
    let items: Vec<Value> = ordered(kinds)
        .iter()
        .filter(|group| group.name.is_empty() == core)
        .map(|group| {
            let versions: Vec<Value> = group
                .versions
                .iter()
                .map(|version| {
                    let resources: Vec<Value> = of_version(kinds, &group.name, version)
                        .map(aggregated_resource)
                        .collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if core {
                json!({})
            } else {
                json!({"name": group.name})
            };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

/// A group and its versions, the preferred one first.
struct Group {
    name: String,
    versions: Vec<String>,
}

impl Group {
    fn document(&self) -> Value {
        let versions: Vec<Value> = self
            .versions
            .iter()
            .map(|version| json!({"groupVersion": format!("{}/{version}", self.name), "version": version}))
            .collect();
        json!({"name": self.name, "preferredVersion": versions.first(), "versions": versions})
    }
}

/// The groups: built-in ones in the order of the data, then custom ones by name.
fn ordered(kinds: &Kinds) -> Vec<Group> {
    let mut builtin: Vec<Group> = Vec::new();
    let mut custom: BTreeMap<&str, Group> = BTreeMap::new();
    for info in kinds.all() {
        let group = match builtin.iter().position(|group| group.name == info.group) {
            Some(at) => &mut builtin[at],
            None if info.custom => custom.entry(&info.group).or_insert_with(|| Group {
                name: info.group.clone(),
                versions: Vec::new(),
            }),
            None => {
                builtin.push(Group {
                    name: info.group.clone(),
                    versions: Vec::new(),
                });
                let last = builtin.len() - 1;
                &mut builtin[last]
            }
        };
        if !group.versions.contains(&info.version) {
            group.versions.push(info.version.clone());
        }
    }
    builtin.extend(custom.into_values());
    for group in &mut builtin {
        group
            .versions
            .sort_by(|left, right| compare_versions(right, left));
    }
    builtin
}

/// The order of Kubernetes versions: stable before beta before alpha, each by number; others after them by name.
pub(crate) fn compare_versions(left: &str, right: &str) -> Ordering {
    match (parse_version(left), parse_version(right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (None, None) => right.cmp(left),
    }
}

/// `v2beta1` is (beta, 2, 1).
fn parse_version(version: &str) -> Option<(u8, u32, u32)> {
    let rest = version.strip_prefix('v')?;
    let (major, stage, minor) = match rest
        .split_once("beta")
        .map(|parts| (parts, 1))
        .or_else(|| rest.split_once("alpha").map(|parts| (parts, 0)))
    {
        Some(((major, minor), stage)) => (major, stage, minor.parse().ok()?),
        None => (rest, 2, 0),
    };
    Some((stage, major.parse().ok()?, minor))
}

fn of_version<'kinds>(
    kinds: &'kinds Kinds,
    group: &'kinds str,
    version: &'kinds str,
) -> impl Iterator<Item = &'kinds KindInfo> {
    kinds
        .all()
        .iter()
        .map(AsRef::as_ref)
        .filter(move |info| info.group == group && info.version == version)
}

/// A subresource as discovery shows it: its name, the kind it speaks, its verbs.
struct Shown<'info> {
    name: &'info str,
    group: &'info str,
    version: &'info str,
    kind: &'info str,
    verbs: Vec<&'info str>,
}

fn subresources(info: &KindInfo) -> Vec<Shown<'_>> {
    let mut shown: Vec<Shown<'_>> = info
        .subresources
        .iter()
        .map(|sub| Shown {
            name: &sub.name,
            group: &sub.group,
            version: &sub.version,
            kind: &sub.kind,
            verbs: sub.verbs.iter().map(String::as_str).collect(),
        })
        .collect();
    let verbs = || vec!["get", "patch", "update"];
    if info.scale.is_some() {
        shown.push(Shown {
            name: "scale",
            group: "autoscaling",
            version: "v1",
            kind: "Scale",
            verbs: verbs(),
        });
    }
    if info.status {
        shown.push(Shown {
            name: "status",
            group: &info.group,
            version: &info.version,
            kind: &info.kind,
            verbs: verbs(),
        });
    }
    // Those of a custom kind come the other way round on the reference: the status, then the scale.
    if info.custom {
        shown.reverse();
    } else {
        shown.sort_by_key(|sub| sub.name);
    }
    shown
}

/// The entries of a kind and its subresources in an `APIResourceList`.
fn plain_resources(info: &KindInfo) -> Vec<Value> {
    let mut entry = Map::new();
    entry.insert("name".to_owned(), json!(info.plural));
    entry.insert("singularName".to_owned(), json!(info.singular));
    entry.insert("namespaced".to_owned(), json!(info.namespaced));
    entry.insert("kind".to_owned(), json!(info.kind));
    entry.insert("verbs".to_owned(), json!(info.verbs));
    if !info.short_names.is_empty() {
        entry.insert("shortNames".to_owned(), json!(info.short_names));
    }
    if !info.categories.is_empty() {
        entry.insert("categories".to_owned(), json!(info.categories));
    }
    // What is answered and never stored has no version that it is stored in.
    if info.verbs.iter().any(|verb| verb == "list") {
        entry.insert("storageVersionHash".to_owned(), json!(storage_version_hash(info)));
    }
    let mut entries = vec![Value::Object(entry)];
    for sub in subresources(info) {
        let mut entry = json!({
            "name": format!("{}/{}", info.plural, sub.name),
            "singularName": "",
            "namespaced": info.namespaced,
            "kind": sub.kind,
            "verbs": sub.verbs,
        });
        let foreign = sub.group != info.group || sub.version != info.version;
        if let (true, Some(fields)) = (foreign, entry.as_object_mut()) {
            fields.insert("group".to_owned(), json!(sub.group));
            fields.insert("version".to_owned(), json!(sub.version));
        }
        entries.push(entry);
    }
    entries
}

fn aggregated_resource(info: &KindInfo) -> Value {
    // Of a built-in kind the reference says nothing where group and version are those of the document.
    let response = |group: &str, version: &str, kind: &str| {
        if !info.custom && group == info.group && version == info.version {
            json!({"group": "", "version": "", "kind": kind})
        } else {
            json!({"group": group, "version": version, "kind": kind})
        }
    };
    let mut entry = Map::new();
    entry.insert("resource".to_owned(), json!(info.plural));
    entry.insert(
        "responseKind".to_owned(),
        response(&info.group, &info.version, &info.kind),
    );
    entry.insert(
        "scope".to_owned(),
        json!(if info.namespaced { "Namespaced" } else { "Cluster" }),
    );
    entry.insert("singularResource".to_owned(), json!(info.singular));
    entry.insert("verbs".to_owned(), json!(info.verbs));
    if !info.short_names.is_empty() {
        entry.insert("shortNames".to_owned(), json!(info.short_names));
    }
    if !info.categories.is_empty() {
        entry.insert("categories".to_owned(), json!(info.categories));
    }
    let shown: Vec<Value> = subresources(info)
        .iter()
        .map(|sub| {
            json!({
                "subresource": sub.name,
                "responseKind": response(sub.group, sub.version, sub.kind),
                "verbs": sub.verbs,
            })
        })
        .collect();
    if !shown.is_empty() {
        entry.insert("subresources".to_owned(), Value::Array(shown));
    }
    Value::Object(entry)
}

/// Tells clients that the stored form may have changed: eight bytes of a digest of the storage version.
fn storage_version_hash(info: &KindInfo) -> String {
    use base64::Engine as _;
    let digest = Sha256::digest(format!("{}/{}/{}", info.group, info.storage_version, info.kind));
    base64::engine::general_purpose::STANDARD.encode(&digest[..8])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn named<'list>(list: &'list Value, field: &str, name: &str) -> &'list Value {
        list.as_array()
            .expect("a list")
            .iter()
            .find(|entry| entry[field] == name)
            .expect(name)
    }

    #[test]
    fn the_resources_of_a_version_carry_verbs_short_names_and_subresources() {
        // KA-004
        let kinds = Kinds::builtin();
        let core = resources(&kinds, "", "v1").expect("the core group");
        assert_eq!(core["groupVersion"], "v1");
        let pods = named(&core["resources"], "name", "pods");
        assert_eq!(pods["shortNames"], json!(["po"]));
        assert_eq!(pods["categories"], json!(["all"]));
        assert_eq!(pods["singularName"], "pod");
        assert_eq!(
            named(&core["resources"], "name", "pods/status")["verbs"],
            json!(["get", "patch", "update"])
        );
        let apps = resources(&kinds, "apps", "v1").expect("apps");
        let scale = named(&apps["resources"], "name", "deployments/scale");
        assert_eq!(
            (&scale["group"], &scale["kind"]),
            (&json!("autoscaling"), &json!("Scale"))
        );
        assert_eq!(resources(&kinds, "apps", "v9"), None);
    }

    #[test]
    fn groups_name_their_preferred_version() {
        // KA-004
        let kinds = Kinds::builtin();
        let apps = group(&kinds, "apps").expect("apps");
        assert_eq!(apps["preferredVersion"]["groupVersion"], "apps/v1");
        assert_eq!(apps["kind"], "APIGroup");
        assert_eq!(group(&kinds, ""), None);
        assert!(
            groups(&kinds)["groups"]
                .as_array()
                .expect("groups")
                .iter()
                .all(|group| group["name"] != "")
        );
    }

    #[test]
    fn the_aggregated_form_nests_subresources() {
        // KA-004
        let document = aggregated_groups(&Kinds::builtin());
        let apps = document["items"]
            .as_array()
            .expect("items")
            .iter()
            .find(|item| item["metadata"]["name"] == "apps");
        let resources = &apps.expect("apps")["versions"][0]["resources"];
        let deployments = named(resources, "resource", "deployments");
        assert_eq!(
            deployments["responseKind"],
            json!({"group": "", "version": "", "kind": "Deployment"})
        );
        assert_eq!(
            named(&deployments["subresources"], "subresource", "scale")["responseKind"]["kind"],
            "Scale"
        );
        assert_eq!(
            aggregated_core(&Kinds::builtin())["items"]
                .as_array()
                .expect("items")
                .len(),
            1
        );
    }

    #[test]
    fn versions_are_ordered_by_stability_and_number() {
        let mut versions = vec!["v1alpha1", "v2", "v1beta2", "v10", "foo", "v1", "v1beta1"];
        versions.sort_by(|left, right| compare_versions(right, left));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "foo"]
        );
    }
}
