//! Who makes a call that is only asked about: `--identity`.

use mainstay_tools::policy::Identity;
use serde_json::{Value, json};

use crate::terminal::Failure;

/// The words that a NAME=VALUE begins with.
const NAMES: &str = "origin, subject, endUser, workspace, agent or claims.NAME";

/// An identity, and whether anything of it was said.
#[derive(Debug, PartialEq)]
pub(super) struct Asker {
    identity: Identity,
    said: bool,
}

impl Asker {
    /// Reads what was given: JSON objects and NAME=VALUE, a later one over an earlier one. What is not said is as with
    /// `mainstay chat` on this machine.
    pub(super) fn read(given: &[String]) -> Result<Self, Failure> {
        let mut identity = Identity {
            origin: "token".to_owned(),
            subject: "local".to_owned(),
            ..Identity::default()
        };
        for text in given {
            let failure = |why: String| Failure::new(format!("`--identity {text}`: {why}"));
            if text.trim_start().starts_with('{') {
                identity = overlaid(&identity, text).map_err(failure)?;
                continue;
            }
            let (name, value) = text
                .split_once('=')
                .ok_or_else(|| failure("neither a JSON object nor of the form NAME=VALUE".to_owned()))?;
            let field = match name {
                "origin" => &mut identity.origin,
                "subject" => &mut identity.subject,
                "endUser" => &mut identity.end_user,
                "workspace" => &mut identity.workspace,
                "agent" => &mut identity.agent,
                _ => {
                    let claim = name
                        .strip_prefix("claims.")
                        .filter(|claim| !claim.is_empty())
                        .ok_or_else(|| failure(format!("the name is none of {NAMES}")))?;
                    // Lists, numbers and booleans are written as JSON; everything else is a text.
                    let value = match serde_json::from_str(value) {
                        Ok(
                            value @ (Value::Array(_) | Value::Number(_) | Value::Bool(_) | Value::Object(_)),
                        ) => value,
                        _ => Value::from(value),
                    };
                    identity.claims.insert(claim.to_owned(), value);
                    continue;
                }
            };
            value.clone_into(field);
        }
        Ok(Self {
            identity,
            said: !given.is_empty(),
        })
    }

    /// For a decision by files.
    pub(super) fn into_identity(self) -> Identity {
        self.identity
    }

    /// For a question to the running server, which knows the agent and its workspace itself: the caller, or `null` for
    /// who asks.
    pub(super) fn as_caller(&self) -> Result<Value, Failure> {
        if !self.said {
            return Ok(Value::Null);
        }
        for (name, value) in [
            ("agent", &self.identity.agent),
            ("workspace", &self.identity.workspace),
        ] {
            if !value.is_empty() {
                return Err(
                    Failure::new(format!("`--identity {name}=…` is known to the running server"))
                        .with_hint("leave it out with `--agent`, or test files with `-f`"),
                );
            }
        }
        Ok(json!({
            "origin": self.identity.origin, "subject": self.identity.subject, "end_user": self.identity.end_user,
            "claims": self.identity.claims
        }))
    }
}

fn overlaid(identity: &Identity, text: &str) -> Result<Identity, String> {
    let over: Value = serde_json::from_str(text).map_err(|error| format!("not valid JSON: {error}"))?;
    let mut whole = serde_json::to_value(identity).map_err(|error| error.to_string())?;
    for (name, value) in over.as_object().into_iter().flatten() {
        let known = whole
            .get_mut(name)
            .ok_or_else(|| format!("there is no field `{name}`; it is one of {NAMES}"))?;
        *known = value.clone();
    }
    serde_json::from_value(whole).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn read(given: &[&str]) -> Result<Asker, Failure> {
        Asker::read(&given.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn om_502_an_identity_is_read_from_json_and_from_pairs() {
        let asker = read(&[
            r#"{"endUser": "ada", "claims": {"team": "desk"}}"#,
            "subject=u1",
            "claims.level=3",
            r#"claims.roles=["admin"]"#,
            "claims.name=null",
        ])
        .unwrap();
        let identity = asker.into_identity();
        assert_eq!(
            (
                identity.origin.as_str(),
                identity.subject.as_str(),
                identity.end_user.as_str()
            ),
            ("token", "u1", "ada")
        );
        assert_eq!(
            json!(identity.claims),
            json!({"team": "desk", "level": 3, "roles": ["admin"], "name": "null"})
        );
    }

    #[test]
    fn what_cannot_be_an_identity_is_named() {
        for (given, expected) in [
            ("ada", "neither a JSON object nor of the form NAME=VALUE"),
            ("user=ada", "the name is none of origin,"),
            ("claims.=x", "the name is none of origin,"),
            ("{\"user\": 1}", "there is no field `user`"),
            ("{\"subject\": 1}", "invalid type"),
            ("{", "not valid JSON"),
        ] {
            let failure = read(&[given]).unwrap_err();
            assert!(failure.text.contains(expected), "{given}: {failure}");
        }
    }

    #[test]
    fn the_server_knows_agent_and_workspace_itself() {
        assert_eq!(read(&[]).unwrap().as_caller().unwrap(), Value::Null);
        assert!(read(&["agent=x"]).unwrap().as_caller().is_err());
        assert_eq!(
            read(&["endUser=ada"]).unwrap().as_caller().unwrap()["end_user"],
            "ada"
        );
    }
}
