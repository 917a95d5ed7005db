//! Label selectors.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// The selector as a list request takes it.
pub fn text(selector: &LabelSelector) -> String {
    let mut parts: Vec<String> =
        selector.match_labels.iter().flatten().map(|(name, value)| format!("{name}={value}")).collect();
    for expression in selector.match_expressions.iter().flatten() {
        let values = expression.values.clone().unwrap_or_default().join(",");
        parts.push(match expression.operator.as_str() {
            "In" => format!("{} in ({values})", expression.key),
            "NotIn" => format!("{} notin ({values})", expression.key),
            "DoesNotExist" => format!("!{}", expression.key),
            _ => expression.key.clone(),
        });
    }
    parts.join(",")
}

/// Whether `labels` hold every pair of `wanted`. An empty selector selects nothing, as a Service's does.
pub fn selects(wanted: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    !wanted.is_empty() && wanted.iter().all(|(name, value)| labels.get(name) == Some(value))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;

    use super::*;

    #[test]
    fn labels_and_expressions_are_joined() {
        let selector = LabelSelector {
            match_labels: Some([("app".to_owned(), "orders".to_owned())].into()),
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: "tier".to_owned(),
                operator: "In".to_owned(),
                values: Some(vec!["a".to_owned(), "b".to_owned()]),
            }]),
        };
        assert_eq!(text(&selector), "app=orders,tier in (a,b)");
    }

    #[test]
    fn an_empty_selector_selects_nothing() {
        assert!(!selects(&BTreeMap::new(), &[("a".to_owned(), "b".to_owned())].into()));
    }
}
