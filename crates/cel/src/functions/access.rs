//! `authorizer.group('apps').resource('deployments').check('create').allowed()` and its relatives.

use std::sync::Arc;

use super::named_formats::{label, subdomain};
use crate::error::EvaluationError;
use crate::evaluate::Context;
use crate::value::{Access, Authorize, Extension, ResourceCheck, Value};

type Evaluated = Result<Value, EvaluationError>;

fn made(access: Access) -> Evaluated {
    Ok(Value::extension(Extension::Access(access)))
}

/// The target of a call, with the texts that it is called with.
fn called<'a, const COUNT: usize>(
    name: &str,
    arguments: &'a [Value],
) -> Result<(&'a Access, [&'a str; COUNT]), EvaluationError> {
    let refused = || EvaluationError::no_overload(name, arguments);
    let Some((Value::Extension(extension), rest)) = arguments.split_first() else {
        return Err(refused());
    };
    let Extension::Access(access) = &**extension else {
        return Err(refused());
    };
    let texts: Option<Vec<&str>> = rest.iter().map(Value::as_str).collect();
    let texts = texts
        .and_then(|texts| texts.try_into().ok())
        .ok_or_else(refused)?;
    Ok((access, texts))
}

fn authorizer<'a>(
    name: &str,
    access: &'a Access,
    arguments: &[Value],
) -> Result<&'a Arc<dyn Authorize>, EvaluationError> {
    match access {
        Access::Authorizer(authorizer) => Ok(authorizer),
        _ => Err(EvaluationError::no_overload(name, arguments)),
    }
}

fn must_not_be_empty(what: &str, text: &str) -> Result<(), EvaluationError> {
    if text.trim().is_empty() {
        return Err(EvaluationError::argument(format!("{what} must not be empty")));
    }
    Ok(())
}

pub(super) fn path(_context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let (access, [path]) = called("path", arguments)?;
    let authorizer = authorizer("path", access, arguments)?;
    must_not_be_empty("path", path)?;
    made(Access::Path(Arc::clone(authorizer), path.into()))
}

pub(super) fn group(_context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let (access, [group]) = called("group", arguments)?;
    let authorizer = authorizer("group", access, arguments)?;
    made(Access::Group(Arc::clone(authorizer), group.into()))
}

pub(super) fn service_account(_context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let (access, [namespace, name]) = called("serviceAccount", arguments)?;
    let authorizer = authorizer("serviceAccount", access, arguments)?;
    if !subdomain(name, false).is_empty() {
        return Err(EvaluationError::argument("Invalid service account name"));
    }
    if !label(namespace, false).is_empty() {
        return Err(EvaluationError::argument("Invalid service account namespace"));
    }
    made(Access::Authorizer(authorizer.service_account(namespace, name)))
}

pub(super) fn resource(_context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let (access, [resource]) = called("resource", arguments)?;
    let Access::Group(authorizer, group) = access else {
        return Err(EvaluationError::no_overload("resource", arguments));
    };
    must_not_be_empty("resource", resource)?;
    let check = ResourceCheck {
        group: group.to_string(),
        resource: resource.to_owned(),
        ..ResourceCheck::default()
    };
    made(Access::Resource(Arc::clone(authorizer), Box::new(check)))
}

/// The same check with one more thing said.
fn refined(name: &str, arguments: &[Value], part: impl Fn(&mut ResourceCheck) -> &mut String) -> Evaluated {
    let (access, [text]) = called(name, arguments)?;
    let Access::Resource(authorizer, check) = access else {
        return Err(EvaluationError::no_overload(name, arguments));
    };
    let mut check = check.clone();
    text.clone_into(part(&mut check));
    made(Access::Resource(Arc::clone(authorizer), check))
}

pub(super) fn subresource(_context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    refined("subresource", arguments, |check| &mut check.subresource)
}

pub(super) fn namespace(_context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    refined("namespace", arguments, |check| &mut check.namespace)
}

pub(super) fn name(_context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    refined("name", arguments, |check| &mut check.name)
}

pub(super) fn field_selector(_context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    refined("fieldSelector", arguments, |check| &mut check.field_selector)
}

pub(super) fn label_selector(_context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    refined("labelSelector", arguments, |check| &mut check.label_selector)
}

pub(super) fn check(_context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let (access, [verb]) = called("check", arguments)?;
    match access {
        Access::Path(authorizer, path) => made(Access::Decision(authorizer.path(path, verb))),
        Access::Resource(authorizer, check) => made(Access::Decision(authorizer.resource(check, verb))),
        _ => Err(EvaluationError::no_overload("check", arguments)),
    }
}

fn told(name: &str, arguments: &[Value], part: impl Fn(&crate::value::AccessDecision) -> Value) -> Evaluated {
    match called(name, arguments)? {
        (Access::Decision(decision), []) => Ok(part(decision)),
        _ => Err(EvaluationError::no_overload(name, arguments)),
    }
}

pub(super) fn allowed(_context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    told("allowed", arguments, |decision| Value::Bool(decision.allowed))
}

pub(super) fn reason(_context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    told("reason", arguments, |decision| {
        Value::from(decision.reason.as_str())
    })
}

pub(super) fn errored(_context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    told("errored", arguments, |decision| {
        Value::Bool(decision.error.is_some())
    })
}

pub(super) fn error(_context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    told("error", arguments, |decision| {
        Value::from(decision.error.as_deref().unwrap_or_default())
    })
}
