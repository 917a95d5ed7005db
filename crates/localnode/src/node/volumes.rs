//! What the volumes of a Pod hold: a pure function over the Pod and what it refers to.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapVolumeSource, DownwardAPIVolumeFile, KeyToPath, Pod, ProjectedVolumeSource, Secret,
    SecretVolumeSource, Volume,
};
use kube::ResourceExt;

use super::environment::{ConfigError, field_value, key_missing};
use super::objects::Objects;
use super::tokens::TokenKey;

/// Mode of a file for which none is given.
const MODE: i32 = 0o644;

/// The content of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// A folder that the containers may write.
    Empty,
    /// Files that follow the objects they come from.
    Files(BTreeMap<String, FileContent>),
}

/// One file of a volume.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct FileContent {
    pub(crate) bytes: Vec<u8>,
    pub(crate) mode: u32,
}

impl std::fmt::Debug for FileContent {
    // May be of a Secret.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} bytes, mode {:o}", self.bytes.len(), self.mode)
    }
}

/// The contents of all volumes of a Pod, by name.
pub(crate) fn contents(pod: &Pod, objects: &Objects) -> Result<BTreeMap<String, Content>, ConfigError> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
    volumes
        .into_iter()
        .flatten()
        .map(|volume| Ok((volume.name.clone(), content(pod, volume, objects)?)))
        .collect()
}

fn content(pod: &Pod, volume: &Volume, objects: &Objects) -> Result<Content, ConfigError> {
    let place = format!("volume {:?}", volume.name);
    let mut files = Files {
        pod,
        objects,
        place,
        found: BTreeMap::new(),
    };
    if volume.empty_dir.is_some() {
        return Ok(Content::Empty);
    }
    if let Some(source) = &volume.config_map {
        let ConfigMapVolumeSource {
            name,
            items,
            default_mode,
            optional,
        } = source;
        files.config_map(name, items.as_deref(), default_mode.unwrap_or(MODE), *optional)?;
    } else if let Some(source) = &volume.secret {
        let SecretVolumeSource {
            secret_name,
            items,
            default_mode,
            optional,
        } = source;
        let name = secret_name.as_deref().unwrap_or("");
        files.secret(name, items.as_deref(), default_mode.unwrap_or(MODE), *optional)?;
    } else if let Some(source) = &volume.downward_api {
        files.downward(source.items.as_deref(), source.default_mode.unwrap_or(MODE))?;
    } else if let Some(source) = &volume.projected {
        files.projected(source)?;
    } else {
        return Err(ConfigError::Unsupported {
            place: files.place,
            what: "a kind of volume other than configMap, secret, emptyDir, downwardAPI and projected",
        });
    }
    Ok(Content::Files(files.found))
}

struct Files<'a> {
    pod: &'a Pod,
    objects: &'a Objects,
    place: String,
    found: BTreeMap<String, FileContent>,
}

impl Files<'_> {
    fn projected(&mut self, source: &ProjectedVolumeSource) -> Result<(), ConfigError> {
        let mode = source.default_mode.unwrap_or(MODE);
        for projection in source.sources.iter().flatten() {
            if let Some(map) = &projection.config_map {
                self.config_map(&map.name, map.items.as_deref(), mode, map.optional)?;
            } else if let Some(secret) = &projection.secret {
                self.secret(&secret.name, secret.items.as_deref(), mode, secret.optional)?;
            } else if let Some(downward) = &projection.downward_api {
                self.downward(downward.items.as_deref(), mode)?;
            } else if let Some(source) = &projection.service_account_token {
                let key = TokenKey::of(source);
                let Some(token) = self.objects.tokens.get(&key) else {
                    return Err(ConfigError::TokenMissing {
                        place: self.place.clone(),
                    });
                };
                self.add(&source.path, token.text.as_bytes().to_vec(), mode)?;
            } else {
                let place = self.place.clone();
                return Err(ConfigError::Unsupported {
                    place,
                    what: "a projection other than configMap, secret, downwardAPI and serviceAccountToken",
                });
            }
        }
        Ok(())
    }

    fn config_map(
        &mut self,
        name: &str,
        items: Option<&[KeyToPath]>,
        mode: i32,
        optional: Option<bool>,
    ) -> Result<(), ConfigError> {
        let objects = self.objects;
        let map: &ConfigMap = match objects.config_maps.get(name) {
            Some(map) => map,
            None if optional == Some(true) => return Ok(()),
            None => {
                return Err(ConfigError::ConfigMapMissing {
                    name: name.to_owned(),
                });
            }
        };
        let text = map
            .data
            .iter()
            .flatten()
            .map(|(key, value)| (key, value.as_bytes()));
        let binary = map
            .binary_data
            .iter()
            .flatten()
            .map(|(key, value)| (key, value.0.as_slice()));
        let data: BTreeMap<&String, &[u8]> = text.chain(binary).collect();
        self.keys("ConfigMap", name, &data, items, mode, optional)
    }

    fn secret(
        &mut self,
        name: &str,
        items: Option<&[KeyToPath]>,
        mode: i32,
        optional: Option<bool>,
    ) -> Result<(), ConfigError> {
        let objects = self.objects;
        let secret: &Secret = match objects.secrets.get(name) {
            Some(secret) => secret,
            None if optional == Some(true) => return Ok(()),
            None => {
                return Err(ConfigError::SecretMissing {
                    name: name.to_owned(),
                });
            }
        };
        let data: BTreeMap<&String, &[u8]> = secret
            .data
            .iter()
            .flatten()
            .map(|(key, value)| (key, value.0.as_slice()))
            .collect();
        self.keys("Secret", name, &data, items, mode, optional)
    }

    fn keys(
        &mut self,
        kind: &'static str,
        name: &str,
        data: &BTreeMap<&String, &[u8]>,
        items: Option<&[KeyToPath]>,
        mode: i32,
        optional: Option<bool>,
    ) -> Result<(), ConfigError> {
        let Some(items) = items.filter(|items| !items.is_empty()) else {
            for (key, value) in data {
                self.add(key, value.to_vec(), mode)?;
            }
            return Ok(());
        };
        for item in items {
            match data.get(&item.key) {
                Some(value) => self.add(&item.path, value.to_vec(), item.mode.unwrap_or(mode))?,
                None if optional == Some(true) => {}
                None => {
                    let namespace = self.pod.namespace().unwrap_or_default();
                    return Err(key_missing(kind, &namespace, name, &item.key));
                }
            }
        }
        Ok(())
    }

    fn downward(&mut self, items: Option<&[DownwardAPIVolumeFile]>, mode: i32) -> Result<(), ConfigError> {
        for item in items.unwrap_or_default() {
            let place = format!("{} file {:?}", self.place, item.path);
            let Some(field) = &item.field_ref else {
                return Err(ConfigError::Unsupported {
                    place,
                    what: "resourceFieldRef",
                });
            };
            let value = field_value(self.pod, field, place)?;
            self.add(&item.path, value.into_bytes(), item.mode.unwrap_or(mode))?;
        }
        Ok(())
    }

    fn add(&mut self, path: &str, bytes: Vec<u8>, mode: i32) -> Result<(), ConfigError> {
        if !is_inside(path) {
            return Err(ConfigError::Path {
                place: self.place.clone(),
                path: path.to_owned(),
            });
        }
        let mode = u32::try_from(mode & 0o777).unwrap_or(0o644);
        self.found.insert(path.to_owned(), FileContent { bytes, mode });
        Ok(())
    }
}

/// True for a relative path that stays where it is put. Names beginning with `..` are those of the update itself.
pub(crate) fn is_inside(path: &str) -> bool {
    let mut parts = Path::new(path).components().peekable();
    parts.peek().is_some()
        && parts
            .all(|part| matches!(part, Component::Normal(name) if !name.to_string_lossy().starts_with("..")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::node::tokens::Token;

    fn contents_of(volume: serde_json::Value) -> Result<Content, ConfigError> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "p", "namespace": "ns", "labels": { "app": "x" } },
            "spec": { "containers": [], "volumes": [volume] },
        }))
        .unwrap();
        let map = json!({ "metadata": { "name": "cm" }, "data": { "a": "1", "b": "2" }, "binaryData": { "c": "/w==" } });
        let secret = json!({ "metadata": { "name": "s" }, "data": { "token": "czNjcmV0" } });
        let objects = Objects {
            config_maps: [("cm".to_owned(), Arc::new(serde_json::from_value(map).unwrap()))].into(),
            secrets: [("s".to_owned(), Arc::new(serde_json::from_value(secret).unwrap()))].into(),
            tokens: [(
                TokenKey::of(&serde_json::from_value(json!({ "audience": "crm", "path": "" })).unwrap()),
                Token {
                    text: "jwt".into(),
                    serial: 1,
                },
            )]
            .into(),
        };
        contents(&pod, &objects).map(|mut contents| contents.remove("v").unwrap())
    }

    fn shown(content: Content) -> Vec<(String, String, u32)> {
        let Content::Files(files) = content else {
            panic!("no files")
        };
        let show = |file: FileContent| (String::from_utf8_lossy(&file.bytes).into_owned(), file.mode);
        files
            .into_iter()
            .map(|(path, file)| (path, show(file)))
            .map(|(path, (text, mode))| (path, text, mode))
            .collect()
    }

    #[test]
    fn keys_become_files_and_items_choose_and_place_them() {
        let all = shown(contents_of(json!({ "name": "v", "configMap": { "name": "cm" } })).unwrap());
        let names: Vec<&str> = all.iter().map(|(path, ..)| path.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        let items =
            json!([{ "key": "a", "path": "deep/one.txt" }, { "key": "b", "path": "two", "mode": 0o400 }]);
        let source =
            json!({ "name": "v", "configMap": { "name": "cm", "defaultMode": 0o600, "items": items } });
        let chosen = shown(contents_of(source).unwrap());
        assert_eq!(
            chosen,
            [
                ("deep/one.txt".into(), "1".into(), 0o600),
                ("two".into(), "2".into(), 0o400)
            ]
        );
    }

    #[test]
    fn projections_share_a_volume_and_optional_ones_may_be_missing() {
        let sources = json!([
            { "configMap": { "name": "cm", "items": [{ "key": "a", "path": "a" }] } },
            { "secret": { "name": "s" } },
            { "downwardAPI": { "items": [{ "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } }] } },
            { "secret": { "name": "gone", "optional": true } },
            { "serviceAccountToken": { "audience": "crm", "path": "tokens/crm" } },
        ]);
        let files = shown(contents_of(json!({ "name": "v", "projected": { "sources": sources } })).unwrap());
        let expected = [
            ("a".into(), "1".into(), 0o644),
            ("labels".into(), "app=\"x\"".into(), 0o644),
            ("token".into(), "s3cret".into(), 0o644),
            ("tokens/crm".into(), "jwt".into(), 0o644),
        ];
        assert_eq!(files, expected);
        assert_eq!(
            contents_of(json!({ "name": "v", "emptyDir": {} })).unwrap(),
            Content::Empty
        );
    }

    #[test]
    fn missing_objects_keys_and_bad_paths_are_named() {
        let text = |volume| contents_of(volume).unwrap_err().to_string();
        assert_eq!(
            text(json!({ "name": "v", "secret": { "secretName": "gone" } })),
            "secret \"gone\" not found"
        );
        let items = json!([{ "key": "no", "path": "x" }]);
        let missing_key = json!({ "name": "v", "configMap": { "name": "cm", "items": items } });
        assert_eq!(text(missing_key), "couldn't find key no in ConfigMap ns/cm");
        for path in ["../x", "/x", "a/../../x", "..data", ""] {
            let items = json!([{ "key": "a", "path": path }]);
            let bad = text(json!({ "name": "v", "configMap": { "name": "cm", "items": items } }));
            assert!(bad.contains("volume \"v\""), "{bad}");
        }
        let sources = json!([{ "serviceAccountToken": { "audience": "other", "path": "t" } }]);
        let token = text(json!({ "name": "v", "projected": { "sources": sources } }));
        assert!(token.contains("volume \"v\""), "{token}");
        let host = text(json!({ "name": "v", "hostPath": { "path": "/etc" } }));
        assert!(host.starts_with("volume \"v\" uses"), "{host}");
    }
}
