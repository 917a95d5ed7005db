//! Versions of prompt packs: their order, the channels they serve (OM-306 … OM-310), and which of them an agent uses
//! (OM-257, OM-265, OM-266).

mod selection;

use std::cmp::Ordering;

use jiff::Timestamp;
use semver::Version;
use thiserror::Error;

pub use self::selection::{PackCandidate, Selection, select};

/// A text that is not a version.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is not a semantic version: {cause}")]
pub struct VersionError {
    text: String,
    cause: String,
}

/// Parses a version: semantic versioning with an optional leading `v`. Leading zeros, which the schema's pattern lets
/// through, do not count.
///
/// # Errors
///
/// [`VersionError`], which quotes the text.
pub fn parse(text: &str) -> Result<Version, VersionError> {
    let bare = text.strip_prefix('v').unwrap_or(text);
    let (rest, build) = match bare.split_once('+') {
        Some((rest, build)) => (rest, Some(build)),
        None => (bare, None),
    };
    let (core, pre) = match rest.split_once('-') {
        Some((core, pre)) => (core, Some(pre)),
        None => (rest, None),
    };
    let mut normal = without_leading_zeros(core);
    if let Some(pre) = pre {
        normal.push('-');
        normal.push_str(&without_leading_zeros(pre));
    }
    if let Some(build) = build {
        normal.push('+');
        normal.push_str(build);
    }
    Version::parse(&normal).map_err(|error| VersionError {
        text: text.to_owned(),
        cause: error.to_string(),
    })
}

fn without_leading_zeros(identifiers: &str) -> String {
    let plain = |identifier: &str| {
        let numeric = !identifier.is_empty() && identifier.bytes().all(|byte| byte.is_ascii_digit());
        match identifier.trim_start_matches('0') {
            "" if numeric => "0".to_owned(),
            trimmed if numeric => trimmed.to_owned(),
            _ => identifier.to_owned(),
        }
    };
    identifiers.split('.').map(plain).collect::<Vec<_>>().join(".")
}

/// Precedence of two versions (OM-310): build metadata does not count.
#[must_use]
pub fn precedence(left: &Version, right: &Version) -> Ordering {
    left.cmp_precedence(right)
}

/// One version of a pack, as the controller of PromptPacks sees it.
#[derive(Clone, Debug)]
pub struct PackVersion {
    /// Name of the object.
    pub name: String,
    /// The version.
    pub version: Version,
    /// When the object was created.
    pub created: Timestamp,
}

impl PackVersion {
    /// Order on a channel: precedence, then the later-created, then the greater name (OM-308).
    fn channel_order(&self, other: &PackVersion) -> Ordering {
        precedence(&self.version, &other.version)
            .then_with(|| self.created.cmp(&other.created))
            .then_with(|| self.name.cmp(&other.name))
    }
}

/// Whether a valid version serves a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is the highest on at least one channel.
    Serves,
    /// Another version with a higher precedence serves its channels.
    NewerVersion {
        /// Object that serves.
        by: String,
    },
    /// Another object with the same precedence was created later and serves.
    Duplicate {
        /// Object that serves.
        by: String,
    },
}

/// Judges a valid version among its **validated** siblings: only these compete, so that a bad publish never takes a
/// working version away (OM-307).
#[must_use]
pub fn standing(own: &PackVersion, validated_siblings: &[PackVersion]) -> Standing {
    let all = || {
        std::iter::once(own).chain(
            validated_siblings
                .iter()
                .filter(|sibling| sibling.name != own.name),
        )
    };
    let highest = all()
        .max_by(|left, right| left.channel_order(right))
        .unwrap_or(own);
    let highest_stable = all()
        .filter(|version| version.version.pre.is_empty())
        .max_by(|left, right| left.channel_order(right));
    if highest.name == own.name || highest_stable.is_some_and(|stable| stable.name == own.name) {
        return Standing::Serves;
    }
    // A stable version is told of the one that serves the stable channel, which is its own.
    let by = match highest_stable {
        Some(stable) if own.version.pre.is_empty() => stable,
        _ => highest,
    };
    if precedence(&own.version, &by.version) == Ordering::Equal {
        Standing::Duplicate { by: by.name.clone() }
    } else {
        Standing::NewerVersion { by: by.name.clone() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn version(name: &str, text: &str, created: i64) -> PackVersion {
        PackVersion {
            name: name.into(),
            version: parse(text).unwrap(),
            created: Timestamp::from_second(created).unwrap(),
        }
    }

    fn standing_of(index: usize, versions: &[PackVersion]) -> Standing {
        let siblings: Vec<_> = versions
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != index)
            .map(|(_, version)| version.clone())
            .collect();
        standing(&versions[index], &siblings)
    }

    #[test]
    fn versions_are_ordered_by_precedence_om_310() {
        let ordered = [
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-2",
            "v1.0.0-11",
            "1.0.0",
            "1.2.0",
            "1.10.0",
            "v2.0.0",
        ];
        let mut sorted: Vec<_> = ordered.iter().map(|text| parse(text).unwrap()).collect();
        sorted.sort_by(precedence);
        let texts: Vec<_> = sorted.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "1.0.0-2",
                "1.0.0-11",
                "1.0.0-alpha",
                "1.0.0-alpha.1",
                "1.0.0-alpha.beta",
                "1.0.0",
                "1.2.0",
                "1.10.0",
                "2.0.0"
            ]
        );
        assert_eq!(
            precedence(&parse("v1.0.0+a").unwrap(), &parse("1.0.0+b").unwrap()),
            Ordering::Equal
        );
        assert_eq!(parse("01.002.0-rc.010").unwrap(), parse("1.2.0-rc.10").unwrap());
        for text in [
            "",
            "1",
            "1.2",
            "1.2.3.4",
            "vv1.2.3",
            "1.2.x",
            "1.2.3-",
            "99999999999999999999999.0.0",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_stable_and_a_newer_prerelease_serve_at_the_same_time_v_45() {
        let versions = [version("a", "1.0.0", 1), version("b", "1.1.0-rc.1", 2)];
        assert_eq!(standing_of(0, &versions), Standing::Serves);
        assert_eq!(standing_of(1, &versions), Standing::Serves);
        let with_release = [versions[0].clone(), versions[1].clone(), version("c", "1.1.0", 3)];
        assert_eq!(
            standing_of(0, &with_release),
            Standing::NewerVersion { by: "c".into() }
        );
        assert_eq!(
            standing_of(1, &with_release),
            Standing::NewerVersion { by: "c".into() }
        );
        assert_eq!(standing_of(2, &with_release), Standing::Serves);
    }

    #[test]
    fn the_later_created_of_two_equal_versions_serves_v_46() {
        let versions = [version("a", "1.0.0+a", 1), version("b", "1.0.0+b", 2)];
        assert_eq!(standing_of(0, &versions), Standing::Duplicate { by: "b".into() });
        assert_eq!(standing_of(1, &versions), Standing::Serves);
        let same_second = [version("a", "1.0.0", 1), version("b", "1.0.0", 1)];
        assert_eq!(
            standing_of(0, &same_second),
            Standing::Duplicate { by: "b".into() },
            "the greater name wins"
        );
    }

    #[test]
    fn without_its_newer_sibling_a_version_serves_again_om_309() {
        assert_eq!(standing_of(0, &[version("a", "1.0.0", 1)]), Standing::Serves);
    }

    proptest! {
        #[test]
        fn exactly_one_version_serves_each_channel(parts in proptest::collection::vec((0u64..3, 0u64..3, 0u8..3, 0i64..3), 1..8)) {
            let versions: Vec<_> = parts
                .into_iter()
                .enumerate()
                .map(|(index, (major, minor, pre, created))| {
                    let suffix = if pre == 0 { String::new() } else { format!("-rc.{pre}") };
                    version(&format!("p{index}"), &format!("{major}.{minor}.0{suffix}"), created)
                })
                .collect();
            let serving: Vec<_> =
                (0..versions.len()).filter(|index| standing_of(*index, &versions) == Standing::Serves).collect();
            let stable = serving.iter().filter(|index| versions[**index].version.pre.is_empty()).count();
            let has_stable = versions.iter().any(|version| version.version.pre.is_empty());
            prop_assert_eq!(stable, usize::from(has_stable));
            prop_assert!(serving.len() - stable <= 1);
            prop_assert!(!serving.is_empty());
        }
    }
}
