//! Containers that are added to a Pod that runs.

use super::{Errors, Field, containers, containers::Surroundings};

/// What such a container may not have.
const FORBIDDEN: [&str; 9] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

/// What is wrong with these containers of a Pod.
pub(super) fn check(spec: &Field<'_>, surroundings: &Surroundings<'_>, errors: &mut Errors) {
    const DETAIL: &str = "cannot be set for an Ephemeral Container";
    let others: Vec<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| spec.child(list).items())
        .map(|container| container.text_of("name"))
        .collect();
    let mut names = others.clone();
    for container in spec.child("ephemeralContainers").items() {
        containers::check_common(&container, surroundings, errors);
        containers::check_image_of_pod(&container, errors);
        let name = container.child("name");
        if names.contains(&name.text()) {
            name.duplicate(errors);
        } else {
            names.push(name.text());
        }
        let target = container.child("targetContainerName");
        if !target.text().is_empty() && !others.contains(&target.text()) {
            target.not_found(errors, "");
        }
        for field in FORBIDDEN {
            let field = container.child(field);
            // The structure of what is asked for is always there.
            if field
                .value
                .as_object()
                .map_or(field.is_set(), |fields| !fields.is_empty())
            {
                field.forbidden(errors, DETAIL);
            }
        }
        for mount in container.child("volumeMounts").items() {
            for name in ["subPath", "subPathExpr"] {
                if !mount.text_of(name).is_empty() {
                    mount.child(name).forbidden(errors, DETAIL);
                }
            }
        }
    }
}
