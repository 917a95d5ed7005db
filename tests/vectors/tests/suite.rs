//! The suite itself: what it covers, and that its files belong together.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{collections::BTreeSet, path::Path};

use mainstay_vectors::{Allowed, Golden, Suite};

/// What can be seen by requests to both servers. The others are about the process: its start, its files, its load.
const COVERED: [&str; 23] = [
    "KA-003", "KA-004", "KA-005", "KA-006", "KA-007", "KA-008", "KA-010", "KA-011", "KA-012", "KA-013",
    "KA-014", "KA-015", "KA-020", "KA-021", "KA-022", "KA-023", "KA-024", "KA-025", "KA-026", "KA-027",
    "KA-028", "KA-040", "KA-041",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_suite_covers_every_requirement_that_requests_can_show() {
    let suite = Suite::load(root()).unwrap();
    let covered: BTreeSet<&str> = suite
        .files
        .iter()
        .flat_map(|file| file.cases.iter().flat_map(|case| file.requirements_of(case)))
        .collect();
    for requirement in COVERED {
        assert!(covered.contains(requirement), "no case covers {requirement}");
    }
    let cases: usize = suite.files.iter().map(|file| file.cases.len()).sum();
    assert!(cases >= 400, "{cases} cases");
}

#[test]
fn every_case_has_an_answer_of_the_reference() {
    for file in Suite::load(root()).unwrap().files {
        let golden = Golden::read(root(), &file.name).unwrap();
        for case in &file.cases {
            let steps = golden.get(&case.name).unwrap_or_else(|| {
                panic!(
                    "{}: {:?} has none: run tests/reference/run --write-golden",
                    file.name, case.name
                )
            });
            assert!(
                steps.iter().all(|step| step.get("stopped").is_none()),
                "{}: {:?}",
                file.name,
                case.name
            );
        }
    }
}

#[test]
fn lists_of_differences_name_cases_that_exist() {
    let suite = Suite::load(root()).unwrap();
    let names: BTreeSet<String> = suite
        .files
        .iter()
        .flat_map(|file| {
            let cases = file
                .cases
                .iter()
                .map(|case| format!("{}: {}", file.name, case.name));
            cases.chain([file.name.clone(), format!("{}: shared", file.name)])
        })
        .collect();
    for name in Allowed::open(root()).unwrap() {
        assert!(names.contains(&name), "open.txt: {name:?}");
    }
    let document = root().join("../../docs/reference/api-differences.md");
    for difference in Allowed::load(root(), &document).unwrap().differences {
        assert!(
            difference.case == "*" || names.contains(&difference.case),
            "differences.yaml: {:?}",
            difference.case
        );
    }
}
