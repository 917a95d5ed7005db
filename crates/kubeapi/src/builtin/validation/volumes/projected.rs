//! Volumes that are put together from several sources.

use serde_json::{Value, json};

use super::{check_defaults, check_downward_file, check_file_path, check_item, check_user};
use crate::{
    builtin::{
        strategy::labels,
        validation::{Errors, Field},
    },
    names,
};

/// Times of a token, in seconds.
const LEAST_EXPIRATION: i64 = 10 * 60;
const MOST_EXPIRATION: i64 = 1 << 32;
/// Times of a certificate, in seconds; the second is for signers of Kubernetes.
const LEAST_CERTIFICATE: i64 = 3600;
const MOST_CERTIFICATE: i64 = 91 * 86_400;
const MOST_KUBERNETES_CERTIFICATE: i64 = 86_400;
const KEY_TYPES: [&str; 6] = [
    "RSA3072",
    "RSA4096",
    "ECDSAP256",
    "ECDSAP384",
    "ECDSAP521",
    "ED25519",
];
const CONFLICT: &str = "conflicting duplicate paths";

/// The paths of the files, of which each is there once.
struct Paths<'volume, 'object> {
    volume: &'volume Field<'object>,
    taken: Vec<&'object str>,
}

impl<'object> Paths<'_, 'object> {
    fn take(&mut self, path: &'object str, shown: &str, errors: &mut Errors) {
        if self.taken.contains(&path) {
            self.volume.invalid_as(errors, json!(shown), CONFLICT);
        } else {
            self.taken.push(path);
        }
    }
}

pub(super) fn check(field: &Field<'_>, errors: &mut Errors) {
    check_defaults(field, errors);
    let mut paths = Paths {
        volume: field,
        taken: Vec::new(),
    };
    for source in field.child("sources").items() {
        let mut count = 0;
        let mut given = |name: &str| {
            let found = source.child(name);
            count += usize::from(found.is_set());
            found.is_set().then_some(found)
        };
        for name in ["secret", "configMap"] {
            let Some(part) = given(name) else { continue };
            part.child("name").demand(errors);
            for item in part.child("items").items() {
                check_item(&item, errors);
                let path = item.text_of("path");
                if !path.is_empty() {
                    paths.take(path, part.text_of("name"), errors);
                }
            }
        }
        if let Some(part) = given("downwardAPI") {
            for item in part.child("items").items() {
                check_downward_file(&item.at(part.path.clone()), errors);
                let path = item.text_of("path");
                if !path.is_empty() {
                    paths.take(path, path, errors);
                }
            }
        }
        if let Some(part) = given("serviceAccountToken") {
            check_token(&part, field, errors);
        }
        if let Some(part) = given("clusterTrustBundle") {
            check_trust(&part, errors);
            let path = part.text_of("path");
            paths.take(path, path, errors);
        }
        if let Some(part) = given("podCertificate") {
            check_certificate(&part, &mut paths, errors);
        }
        if count > 1 {
            source.forbidden(errors, "may not specify more than 1 volume type per source");
        }
    }
}

fn check_token(part: &Field<'_>, volume: &Field<'_>, errors: &mut Errors) {
    let expiration = part.child("expirationSeconds");
    match expiration.number() {
        None => expiration.required(errors, ""),
        Some(seconds) if seconds < LEAST_EXPIRATION => {
            expiration.invalid(errors, "may not specify a duration less than 10 minutes");
        }
        Some(seconds) if seconds > MOST_EXPIRATION => {
            expiration.invalid(errors, "may not specify a duration larger than 2^32 seconds");
        }
        Some(_) => {}
    }
    // The reference names the volume.
    let path = part.child("path").at(volume.path.child("path"));
    if path.demand(errors) {
        check_file_path(&path, errors);
    }
    check_user(&part.child("user"), errors);
}

fn check_trust(part: &Field<'_>, errors: &mut Errors) {
    let (name, signer, selector) = (
        part.child("name"),
        part.child("signerName"),
        part.child("labelSelector"),
    );
    match (name.is_set(), signer.is_set()) {
        (true, true) => part.invalid(errors, "only one of name and signerName may be used"),
        (true, false) => {
            if name.text().is_empty() {
                name.required(errors, "must be a valid object name");
            }
            // The name of a bundle of a signer begins with the signer's name.
            let own = name.text().rsplit(':').next().unwrap_or_default();
            for message in names::subdomain(own) {
                name.invalid(errors, format!("not a valid clustertrustbundlename: {message}"));
            }
            if selector.is_set() {
                selector.invalid(errors, "labelSelector must be unset if name is specified");
            }
        }
        (false, true) => {
            if signer.text().is_empty() {
                signer.required(errors, "must be a valid signer name");
            }
            check_signer(&signer, errors);
            labels::validate_selector(selector.value, &selector.path, errors);
        }
        (false, false) => part.required(errors, "either name or signerName must be specified"),
    }
    let path = part.child("path");
    path.demand(errors);
    check_user(&part.child("user"), errors);
    check_file_path(&path, errors);
}

fn check_signer(signer: &Field<'_>, errors: &mut Errors) {
    const DOMAIN_LENGTH: usize = 253;
    const LONGEST: usize = 571;
    if !signer.demand(errors) {
        return;
    }
    let text = signer.text();
    let parts: Vec<&str> = text.split('/').collect();
    let [domain, path] = parts[..] else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        signer.invalid(errors, detail);
        return;
    };
    if domain.len() > DOMAIN_LENGTH {
        signer.too_long(errors, DOMAIN_LENGTH);
    }
    check_labels(signer, domain, names::label, errors);
    if !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        signer.invalid_as(errors, json!(domain), detail);
    }
    check_labels(signer, path, names::subdomain, errors);
    if text.len() > LONGEST {
        signer.too_long(errors, LONGEST);
    }
}

/// One wrong label is enough to be told of.
fn check_labels(signer: &Field<'_>, part: &str, rule: fn(&str) -> Vec<String>, errors: &mut Errors) {
    let wrong = part
        .split('.')
        .map(|label| (label, rule(label)))
        .find(|(_, messages)| !messages.is_empty());
    let Some((label, messages)) = wrong else { return };
    for message in messages {
        let detail = format!("validating label {label:?}: {message}");
        signer.invalid_as(errors, json!(part), detail);
    }
}

fn check_certificate<'object>(part: &Field<'object>, paths: &mut Paths<'_, 'object>, errors: &mut Errors) {
    let signer = part.child("signerName");
    check_signer(&signer, errors);
    check_user(&part.child("user"), errors);
    let key = part.child("keyType");
    if !KEY_TYPES.contains(&key.text()) {
        key.not_supported(errors, &KEY_TYPES);
    }
    let domain = signer.text().split('/').next().unwrap_or_default();
    let of_kubernetes = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
    let most = if of_kubernetes {
        MOST_KUBERNETES_CERTIFICATE
    } else {
        MOST_CERTIFICATE
    };
    let expiration = part.child("maxExpirationSeconds");
    match expiration.number() {
        Some(seconds) if seconds < LEAST_CERTIFICATE => {
            let detail = format!("if provided, maxExpirationSeconds must be >= {LEAST_CERTIFICATE}");
            expiration.invalid(errors, detail);
        }
        Some(seconds) if seconds > most => {
            let detail = format!("if provided, maxExpirationSeconds must be <= {most}");
            expiration.invalid(errors, detail);
        }
        _ => {}
    }
    let mut is_given = false;
    for name in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
        let path: Field<'object> = part.child(name);
        if path.value == &Value::Null || path.text().is_empty() {
            continue;
        }
        is_given = true;
        check_file_path(&path, errors);
        paths.take(path.text(), path.text(), errors);
    }
    if !is_given {
        let detail = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
        part.required(errors, detail);
    }
}
