//! Differences between two answers, and those that are accepted.

use std::{collections::BTreeSet, path::Path};

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde_json::Value;

/// One place where two answers to a case differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// `STEP/POINTER`, the step counted from 0.
    pub place: String,
    /// What the reference answers; none if it has nothing there.
    pub reference: Option<String>,
    /// What the server under test answers.
    pub embedded: Option<String>,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "(nothing)".to_owned());
        write!(
            formatter,
            "{}\n      - reference: {}\n      + embedded:  {}",
            self.place,
            side(&self.reference),
            side(&self.embedded)
        )
    }
}

/// The differences between the answers to the steps of a case.
pub fn differences(reference: &[Value], embedded: &[Value]) -> Vec<Difference> {
    let stopped =
        [reference, embedded].map(|answers| answers.first().and_then(|answer| answer.get("stopped")));
    if stopped != [None, None] {
        let [reference, embedded] = stopped.map(|reason| reason.map(Value::to_string));
        return if reference == embedded {
            Vec::new()
        } else {
            vec![Difference {
                place: "stopped".to_owned(),
                reference,
                embedded,
            }]
        };
    }
    let mut found = Vec::new();
    for step in 0..reference.len().max(embedded.len()) {
        let (expected, given) = (reference.get(step), embedded.get(step));
        let statuses = [expected, given].map(|answer| answer.and_then(|answer| answer.get("status")));
        if let [Some(one), Some(other)] = statuses
            && one != other
        {
            // The bodies have nothing in common then.
            found.push(Difference {
                place: step.to_string(),
                reference: expected.map(summary),
                embedded: given.map(summary),
            });
            continue;
        }
        compare(&step.to_string(), expected, given, &mut found);
    }
    found
}

/// The status of an answer with its message, or with its body.
fn summary(answer: &Value) -> String {
    let status = answer.get("status").unwrap_or(&Value::Null);
    let body = answer.get("body").unwrap_or(&Value::Null);
    match (body.get("reason"), body.get("message")) {
        (reason, Some(message)) => format!("{status} {} {message}", reason.unwrap_or(&Value::Null)),
        _ => format!("{status} {body}"),
    }
}

fn compare(place: &str, reference: Option<&Value>, embedded: Option<&Value>, found: &mut Vec<Difference>) {
    match (reference, embedded) {
        (Some(Value::Object(reference)), Some(Value::Object(embedded))) => {
            let keys: BTreeSet<&String> = reference.keys().chain(embedded.keys()).collect();
            for key in keys {
                let place = format!("{place}/{}", key.replace('~', "~0").replace('/', "~1"));
                compare(&place, reference.get(key), embedded.get(key), found);
            }
        }
        (Some(Value::Array(reference)), Some(Value::Array(embedded)))
            if reference.len() == embedded.len()
                || reference.iter().chain(embedded).any(Value::is_object) =>
        {
            for index in 0..reference.len().max(embedded.len()) {
                compare(
                    &format!("{place}/{index}"),
                    reference.get(index),
                    embedded.get(index),
                    found,
                );
            }
        }
        (reference, embedded) if reference == embedded => {}
        (reference, embedded) => found.push(Difference {
            place: place.to_owned(),
            reference: reference.map(Value::to_string),
            embedded: embedded.map(Value::to_string),
        }),
    }
}

/// The differences that are accepted: `differences.yaml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allowed {
    /// Each with its reason.
    pub differences: Vec<AllowedDifference>,
}

/// A difference that users can live with.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllowedDifference {
    /// `FILE: CASE`, `FILE` for all its cases, or `*` for every case, which needs `words`.
    pub case: String,
    /// Places below this one; absent, everywhere in the case.
    #[serde(default)]
    pub place: String,
    /// The difference is in these words and in nothing else; absent, in whatever it is.
    pub words: Option<Words>,
    /// The heading of `docs/reference/api-differences.md` that explains it.
    pub reason: String,
}

/// A wording of the reference, and ours.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Words {
    /// What the reference says.
    pub reference: String,
    /// What the server under test says.
    pub embedded: String,
}

impl Words {
    /// Whether the sides are equal once our words are put into those of the reference.
    fn explain(&self, difference: &Difference) -> bool {
        // The sides of a difference are JSON.
        let quoted = |text: &str| {
            let text = Value::from(text).to_string();
            text.trim_matches('"').to_owned()
        };
        let embedded = difference.embedded.as_deref().unwrap_or_default();
        difference.reference.as_deref().is_some_and(|reference| {
            embedded.replace(&quoted(&self.embedded), &quoted(&self.reference)) == reference
        })
    }
}

impl Allowed {
    /// Reads `differences.yaml`, and checks that every reason is explained in the document for users.
    ///
    /// # Errors
    /// A file cannot be read, or a reason is not a heading of the document.
    pub fn load(root: &Path, document: &Path) -> anyhow::Result<Self> {
        let path = root.join("differences.yaml");
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let allowed: Self = serde_saphyr::from_str(&text).context("differences.yaml")?;
        let document = std::fs::read_to_string(document)
            .with_context(|| format!("cannot read {}", document.display()))?;
        for difference in &allowed.differences {
            ensure!(
                document
                    .lines()
                    .any(|line| line.trim_start_matches('#').trim() == difference.reason),
                "differences.yaml, {:?}: {:?} is no heading of the document of differences",
                difference.case,
                difference.reason
            );
            ensure!(
                difference.case != "*" || difference.words.is_some(),
                "differences.yaml, {:?}: an entry for every case needs `words`",
                difference.reason
            );
        }
        Ok(allowed)
    }

    /// The cases of `open.txt`: known to differ and to be put right, so neither accepted nor a reason to stop. Each is
    /// `FILE: CASE`; a case leaves the list with the change that puts it right.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(root: &Path) -> anyhow::Result<BTreeSet<String>> {
        let path = root.join("open.txt");
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(str::to_owned)
            .collect())
    }

    /// The entry that accepts a difference of a case.
    pub fn entry(&self, file: &str, case: &str, difference: &Difference) -> Option<usize> {
        self.differences.iter().position(|allowed| {
            let same_case = match allowed.case.split_once(": ") {
                Some((allowed_file, allowed_case)) => allowed_file == file && allowed_case == case,
                None => allowed.case == "*" || allowed.case == file,
            };
            same_case
                && allowed
                    .words
                    .as_ref()
                    .is_none_or(|words| words.explain(difference))
                && (allowed.place.is_empty()
                    || difference.place == allowed.place
                    || difference
                        .place
                        .strip_prefix(&allowed.place)
                        .is_some_and(|rest| rest.starts_with('/')))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Allowed, AllowedDifference, Words, differences};

    #[test]
    fn a_difference_names_its_place_and_both_sides() {
        let reference = [
            json!({"status": 200}),
            json!({"status": 404, "body": {"code": 404}}),
        ];
        let embedded = [
            json!({"status": 200}),
            json!({"status": 404, "body": {"code": 400, "x": 1}}),
        ];
        let found: Vec<String> = differences(&reference, &embedded)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            found,
            [
                "1/body/code\n      - reference: 404\n      + embedded:  400",
                "1/body/x\n      - reference: (nothing)\n      + embedded:  1",
            ]
        );
        let other = [
            json!({"status": 201, "body": {"kind": "Pod"}}),
            reference[1].clone(),
        ];
        assert_eq!(
            differences(&reference, &other)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>(),
            ["0\n      - reference: 200 null\n      + embedded:  201 {\"kind\":\"Pod\"}"]
        );
        assert_eq!(differences(&reference, &reference), []);
        assert_eq!(differences(&reference, &reference[..1]).len(), 1);
    }

    #[test]
    fn an_accepted_difference_is_one_of_its_case_and_place_only() {
        let allowed = Allowed {
            differences: vec![AllowedDifference {
                case: "lists: limit".to_owned(),
                place: "1/body".to_owned(),
                words: None,
                reason: "because".to_owned(),
            }],
        };
        let found = differences(
            &[json!({}), json!({"body": {"a": 1}, "bodyguard": 1})],
            &[json!({}), json!({})],
        );
        let accepted: Vec<_> = found
            .iter()
            .map(|difference| allowed.entry("lists", "limit", difference))
            .collect();
        assert_eq!(accepted, [Some(0), None]);
        assert_eq!(allowed.entry("lists", "other", &found[0]), None);
    }

    #[test]
    fn an_accepted_wording_accepts_no_other_difference() {
        let allowed = Allowed {
            differences: vec![AllowedDifference {
                case: "*".to_owned(),
                place: String::new(),
                words: Some(Words {
                    reference: "value: ".to_owned(),
                    embedded: "value: \"object\": ".to_owned(),
                }),
                reason: "because".to_owned(),
            }],
        };
        let body = |message: &str| [json!({"body": {"message": message}})];
        let accepted = |reference: &str, embedded: &str| {
            let found = differences(&body(reference), &body(embedded));
            allowed.entry("cel", "any", &found[0])
        };
        assert_eq!(
            accepted("spec: value: no", "spec: value: \"object\": no"),
            Some(0)
        );
        assert_eq!(accepted("spec: value: no", "spec: value: \"object\": yes"), None);
        assert_eq!(accepted("spec: value: no", "spec: value: no!"), None);
    }
}
