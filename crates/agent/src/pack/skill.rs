//! The skills of a pack (OM-549, OM-567): instructions that a model reads only when it needs them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Pack;

/// One skill whose instructions stand in the pack itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// What it is for; the model chooses by it.
    pub description: String,
    /// What the model reads when it activates the skill.
    pub instructions: String,
}

/// All skills of a pack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Skills {
    /// Those that stand in the pack, by name. Of several with one name the first is used.
    pub inline: BTreeMap<String, Skill>,
    /// Names that stand there more than once.
    pub repeated: BTreeSet<String>,
    /// Paths of those that stand in files beside the pack, which a SkillSource would bring.
    pub paths: Vec<String>,
}

impl Skills {
    /// The skills of `pack`, whose form its schema has checked.
    pub fn of(pack: &Pack) -> Self {
        let mut skills = Self::default();
        for skill in &pack.skills {
            let text = |key: &str| skill.get(key).and_then(Value::as_str).map(str::to_owned);
            if let Some(path) = skill.as_str().map(str::to_owned).or_else(|| text("path")) {
                skills.paths.push(path);
                continue;
            }
            let (Some(name), Some(description), Some(instructions)) =
                (text("name"), text("description"), text("instructions"))
            else {
                continue;
            };
            if skills.inline.contains_key(&name) {
                skills.repeated.insert(name);
                continue;
            }
            let skill = Skill {
                description,
                instructions,
            };
            skills.inline.insert(name, skill);
        }
        skills
    }

    /// Whether the pack names none at all.
    pub fn is_empty(&self) -> bool {
        self.inline.is_empty() && self.paths.is_empty()
    }
}
