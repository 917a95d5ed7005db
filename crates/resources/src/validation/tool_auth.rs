//! Authentication of tool handlers: the stanza with the deprecated fields folded in, and its rules (OM-066 … OM-072,
//! OM-276).

use super::Finding;
use crate::omnia::{
    reference::SecretKey,
    tool_registry::{
        Handler, HandlerType,
        auth::{Auth, AuthType},
        transport::LegacyAuthType,
    },
};

/// The authentication of a handler: its stanza, else its deprecated fields as an equivalent stanza, else none.
///
/// A handler with both is invalid; then the stanza is returned.
#[must_use]
pub fn effective(handler: &Handler) -> Auth {
    if let Some(auth) = &handler.auth {
        return auth.clone();
    }
    let (kind, secret_ref) = match handler.kind {
        HandlerType::Http => handler
            .http_config
            .as_ref()
            .map(|config| (config.auth_type, config.auth_secret_ref.clone())),
        HandlerType::OpenApi => handler
            .open_api_config
            .as_ref()
            .map(|config| (config.auth_type, config.auth_secret_ref.clone())),
        _ => None,
    }
    .unwrap_or((None, None));
    legacy(kind, secret_ref)
}

fn legacy(kind: Option<LegacyAuthType>, secret_ref: Option<SecretKey>) -> Auth {
    let kind = match (kind, &secret_ref) {
        (None, None) => AuthType::None,
        (Some(LegacyAuthType::Basic), _) => AuthType::Basic,
        // A Secret without a type means bearer.
        (Some(LegacyAuthType::Bearer) | None, _) => AuthType::Bearer,
    };
    Auth {
        kind,
        secret_ref,
        ..Auth::default()
    }
}

/// Why a handler of this type cannot use this kind of authentication (OM-071, OM-276). An agent with such a handler
/// does not start; the registry itself stays valid.
#[must_use]
pub fn unsupported(handler: &Handler) -> Option<String> {
    let auth = effective(handler);
    let network = matches!(
        handler.kind,
        HandlerType::Http | HandlerType::OpenApi | HandlerType::Grpc | HandlerType::Mcp
    );
    (auth.kind != AuthType::None && !network).then(|| {
        format!(
            "auth.type {} is not supported on {} handlers",
            auth.kind, handler.kind
        )
    })
}

pub(super) fn check(findings: &mut Vec<Finding>, field: &str, handler: &Handler) {
    legacy_conflicts(findings, field, handler);
    let auth = effective(handler);
    let (path, from_stanza) = match &handler.auth {
        Some(_) => (format!("{field}.auth"), true),
        None => (
            format!("{field}.{}.authSecretRef", handler.kind.block().unwrap_or("auth")),
            false,
        ),
    };
    if auth.secret_ref.is_some() && auth.connection_ref.is_some() {
        findings.push(Finding::new(
            path.clone(),
            "secretRef and connectionRef cannot be combined",
        ));
    }
    if matches!(auth.kind, AuthType::Bearer | AuthType::Basic)
        && auth.secret_ref.is_none()
        && auth.connection_ref.is_none()
    {
        let message = if from_stanza {
            format!("{} needs secretRef or connectionRef", auth.kind)
        } else {
            format!("authType {} needs authSecretRef", auth.kind)
        };
        findings.push(Finding::new(path.clone(), message));
    }
    if auth.kind == AuthType::ServiceAccount && auth.service_account.is_none() {
        findings.push(Finding::new(
            path.clone(),
            "serviceAccount.audience is required for type serviceAccount",
        ));
    }
    if auth.kind == AuthType::WorkloadIdentity && auth.workload_identity.is_none() {
        findings.push(Finding::new(
            path.clone(),
            "workloadIdentity is required for type workloadIdentity",
        ));
    }
    if auth.connection_ref.is_some() && handler.sandbox.is_some() {
        findings.push(Finding::new(
            format!("{field}.auth.connectionRef"),
            "is not permitted on a handler that addresses a sandbox",
        ));
    }
    secret_headers(findings, field, handler, &auth);
}

fn legacy_conflicts(findings: &mut Vec<Finding>, field: &str, handler: &Handler) {
    if handler.auth.is_none() {
        return;
    }
    let http = handler
        .http_config
        .as_ref()
        .is_some_and(|config| config.auth_type.is_some() || config.auth_secret_ref.is_some());
    let open_api = handler
        .open_api_config
        .as_ref()
        .is_some_and(|config| config.auth_type.is_some() || config.auth_secret_ref.is_some());
    for (present, block) in [(http, "httpConfig"), (open_api, "openAPIConfig")] {
        if present {
            findings.push(Finding::new(
                format!("{field}.{block}"),
                "authType and authSecretRef cannot be combined with auth",
            ));
        }
    }
}

/// OM-043, DD-12: the header that carries the credential belongs to `auth`, and `Authorization` does in any case.
fn secret_headers(findings: &mut Vec<Finding>, field: &str, handler: &Handler, auth: &Auth) {
    let Some(config) = &handler.http_config else {
        return;
    };
    let owned = auth
        .workload_identity
        .as_ref()
        .map(|identity| identity.header.as_str());
    for header in config.headers_from_secret.keys() {
        let message = if header.eq_ignore_ascii_case("Authorization") {
            "Authorization is owned by auth"
        } else if owned.is_some_and(|owned| header.eq_ignore_ascii_case(owned)) {
            "this header is owned by auth.workloadIdentity.header"
        } else {
            continue;
        };
        findings.push(Finding::new(
            format!("{field}.httpConfig.headersFromSecret[{header}]"),
            message,
        ));
    }
}
