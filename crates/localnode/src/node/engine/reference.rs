//! Names of images: which are valid, when they are pulled, and with which credentials.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use bollard::auth::DockerCredentials;
use k8s_openapi::api::core::v1::{Container, Secret};
use serde::Deserialize;

/// The registry of a name that names none.
const USUAL_REGISTRY: &str = "docker.io";

/// An image by name: `registry/path:tag@digest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::node) struct ImageName {
    /// Without tag and digest.
    pub(in crate::node) name: String,
    pub(in crate::node) tag: Option<String>,
    pub(in crate::node) digest: Option<String>,
}

impl ImageName {
    /// Reads a name as container engines do; `None` where they would refuse it.
    pub(in crate::node) fn parse(text: &str) -> Option<Self> {
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.to_owned())),
            None => (text, None),
        };
        let start = rest.rfind('/').map_or(0, |at| at + 1);
        let (name, tag) = match rest[start..].split_once(':') {
            Some((last, tag)) => (&rest[..start + last.len()], Some(tag.to_owned())),
            None => (rest, None),
        };
        let parsed = Self {
            name: name.to_owned(),
            tag,
            digest,
        };
        parsed.is_valid().then_some(parsed)
    }

    fn is_valid(&self) -> bool {
        let tag_is_valid = self.tag.as_ref().is_none_or(|tag| {
            let mut letters = tag.chars();
            let first = letters
                .next()
                .is_some_and(|first| first.is_ascii_alphanumeric() || first == '_');
            first
                && tag.len() <= 128
                && letters.all(|letter| letter.is_ascii_alphanumeric() || "_.-".contains(letter))
        });
        let digest_is_valid = self.digest.as_ref().is_none_or(|digest| {
            digest.split_once(':').is_some_and(|(algorithm, hash)| {
                !algorithm.is_empty() && hash.len() >= 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
            })
        });
        let path = self.path();
        let parts_are_valid = path.split('/').all(|part| {
            let inner = part
                .bytes()
                .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-'));
            let edges = [part.bytes().next(), part.bytes().last()];
            inner
                && edges
                    .iter()
                    .all(|edge| edge.is_some_and(|byte| byte.is_ascii_alphanumeric()))
        });
        tag_is_valid && digest_is_valid && parts_are_valid && self.name.len() <= 255
    }

    /// The registry, where the name begins with one.
    fn named_registry(&self) -> Option<&str> {
        let (first, _) = self.name.split_once('/')?;
        (first == "localhost" || first.contains(['.', ':'])).then_some(first)
    }

    fn path(&self) -> &str {
        match self.named_registry() {
            Some(registry) => &self.name[registry.len() + 1..],
            None => &self.name,
        }
    }

    fn registry(&self) -> &str {
        self.named_registry().unwrap_or(USUAL_REGISTRY)
    }

    /// What a registry is asked for beside the name.
    pub(in crate::node) fn version(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.clone(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => "latest".to_owned(),
        }
    }
}

/// When an image is asked for from its registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

impl PullPolicy {
    /// As the container says; otherwise by its tag, as Kubernetes does.
    pub(in crate::node) fn of(container: &Container, image: Option<&ImageName>) -> Self {
        match container.image_pull_policy.as_deref() {
            Some("Always") => Self::Always,
            Some("Never") => Self::Never,
            Some("IfNotPresent") => Self::IfNotPresent,
            _ => match image {
                Some(ImageName {
                    tag, digest: None, ..
                }) if tag.as_deref().unwrap_or("latest") == "latest" => Self::Always,
                _ => Self::IfNotPresent,
            },
        }
    }
}

/// Credentials for registries, from Secrets of the types `kubernetes.io/dockerconfigjson` and `kubernetes.io/dockercfg`.
#[derive(Clone, Default)]
pub(in crate::node) struct Keyring(BTreeMap<String, Entry>);

impl fmt::Debug for Keyring {
    // Holds passwords.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "credentials for {} registries", self.0.len())
    }
}

#[derive(Clone, Default, Deserialize)]
struct Entry {
    username: Option<String>,
    password: Option<String>,
    auth: Option<String>,
    identitytoken: Option<String>,
}

#[derive(Deserialize)]
struct File {
    auths: BTreeMap<String, Entry>,
}

impl Keyring {
    /// Adds what a Secret holds. What it holds for a registry that another one named before stays unused.
    pub(in crate::node) fn add(&mut self, secret: &Secret) {
        let data = |key: &str| secret.data.as_ref().and_then(|data| data.get(key));
        let entries = match (data(".dockerconfigjson"), data(".dockercfg")) {
            (Some(text), _) => serde_json::from_slice::<File>(&text.0)
                .map(|file| file.auths)
                .ok(),
            (None, Some(text)) => serde_json::from_slice(&text.0).ok(),
            (None, None) => None,
        };
        for (registry, entry) in entries.into_iter().flatten() {
            self.0.entry(place(&registry)).or_insert(entry);
        }
    }

    /// The credentials for an image: those of the longest place that its name lies in.
    pub(in crate::node) fn of(&self, image: &ImageName) -> Option<DockerCredentials> {
        let whole = format!("{}/{}", image.registry(), image.path());
        let fits = |place: &str| {
            whole
                .strip_prefix(place)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let (registry, entry) = self
            .0
            .iter()
            .filter(|(place, _)| fits(place))
            .max_by_key(|(place, _)| place.len())?;
        let decoded = entry.auth.as_ref().and_then(|auth| {
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(auth.trim())
                .ok()?;
            let text = String::from_utf8(bytes).ok()?;
            let (user, password) = text.split_once(':')?;
            Some((user.to_owned(), password.to_owned()))
        });
        let (user, password) = decoded.unzip();
        Some(DockerCredentials {
            username: entry.username.clone().or(user),
            password: entry.password.clone().or(password),
            identitytoken: entry.identitytoken.clone(),
            serveraddress: Some(registry.clone()),
            ..DockerCredentials::default()
        })
    }
}

/// The place that an entry is for: without a scheme, an API's version, and other names of the usual registry.
fn place(registry: &str) -> String {
    let bare = registry
        .strip_prefix("https://")
        .or_else(|| registry.strip_prefix("http://"))
        .unwrap_or(registry)
        .trim_end_matches('/');
    let bare = ["/v1", "/v2"]
        .iter()
        .find_map(|version| bare.strip_suffix(version))
        .unwrap_or(bare);
    match bare {
        "index.docker.io" | "registry-1.docker.io" => USUAL_REGISTRY.to_owned(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_of_images_are_read_as_engines_do_ka_051() {
        let digest = format!("sha256:{}", "0".repeat(64));
        for (text, name, tag, with_digest) in [
            ("nginx", "nginx", None, false),
            ("nginx:1.27", "nginx", Some("1.27"), false),
            ("localhost:5000/a/b:x", "localhost:5000/a/b", Some("x"), false),
            ("localhost:5000/a", "localhost:5000/a", None, false),
            ("Example.com/a", "Example.com/a", None, false),
        ] {
            let parsed = ImageName::parse(text).unwrap();
            assert_eq!(
                (parsed.name.as_str(), parsed.tag.as_deref()),
                (name, tag),
                "{text}"
            );
            assert_eq!(parsed.digest.is_some(), with_digest);
        }
        let pinned = ImageName::parse(&format!("ghcr.io/a/b:1@{digest}")).unwrap();
        assert_eq!(pinned.version(), digest);
        for bad in [
            "",
            "Nginx",
            "a b",
            "a:",
            "a//b",
            "a:b:c",
            "-a",
            "a@sha256:short",
            "a:.x",
            "http://a/b",
        ] {
            assert_eq!(ImageName::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_image_is_pulled_by_policy_and_without_one_by_its_tag_ka_051() {
        let policy = |image: &str, policy: Option<&str>| {
            let container = Container {
                image_pull_policy: policy.map(str::to_owned),
                ..Container::default()
            };
            PullPolicy::of(&container, ImageName::parse(image).as_ref())
        };
        assert_eq!(policy("a", None), PullPolicy::Always);
        assert_eq!(policy("a:latest", None), PullPolicy::Always);
        assert_eq!(policy("a:1", None), PullPolicy::IfNotPresent);
        assert_eq!(
            policy(&format!("a@sha256:{}", "0".repeat(64)), None),
            PullPolicy::IfNotPresent
        );
        assert_eq!(policy("a", Some("Never")), PullPolicy::Never);
        assert_eq!(policy("a:1", Some("Always")), PullPolicy::Always);
    }

    #[test]
    fn credentials_are_those_of_the_longest_place_and_are_never_shown_ka_051() {
        let auth = base64::engine::general_purpose::STANDARD.encode("me:s3cret:x");
        let file = json!({ "auths": {
            "https://index.docker.io/v1/": { "auth": auth },
            "ghcr.io": { "username": "all", "password": "p" },
            "ghcr.io/team": { "username": "team", "password": "p" },
        } });
        let encoded = base64::engine::general_purpose::STANDARD.encode(file.to_string());
        let secret = json!({ "metadata": { "name": "s" }, "data": { ".dockerconfigjson": encoded } });
        let mut keyring = Keyring::default();
        keyring.add(&serde_json::from_value(secret).unwrap());
        let of = |image: &str| {
            let found = keyring.of(&ImageName::parse(image).unwrap());
            found.map(|found| {
                (
                    found.username.unwrap_or_default(),
                    found.password.unwrap_or_default(),
                )
            })
        };
        let pair = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(of("nginx:1"), pair("me", "s3cret:x"));
        assert_eq!(of("ghcr.io/team/a"), pair("team", "p"));
        assert_eq!(of("ghcr.io/teams/a"), pair("all", "p"));
        assert_eq!(of("quay.io/a/b"), None);
        assert!(!format!("{keyring:?}").contains("s3cret"));
    }
}
