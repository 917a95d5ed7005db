//! `url`, `isURL` and the parts of URLs.

use crate::error::EvaluationError;
use crate::evaluate::Context;
use crate::value::{Extension, Url, Value};

type Evaluated = Result<Value, EvaluationError>;

pub(super) fn url(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match arguments {
        [Value::String(text)] => {
            context.budget.work_text(text.len())?;
            context.budget.allocate(text.len())?;
            match Url::parse(text) {
                Ok(url) => Ok(Value::extension(Extension::Url(url))),
                Err(reason) => Err(EvaluationError::argument(format!(
                    "URL parse error during conversion from string: {reason}"
                ))),
            }
        }
        _ => Err(EvaluationError::no_overload("url", arguments)),
    }
}

pub(super) fn is_url(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match arguments {
        [Value::String(text)] => {
            context.budget.work_text(text.len())?;
            Ok(Value::Bool(Url::parse(text).is_ok()))
        }
        _ => Err(EvaluationError::no_overload("isURL", arguments)),
    }
}

fn part(
    context: &mut Context<'_>,
    name: &str,
    arguments: &[Value],
    part: impl Fn(&Url) -> &str,
) -> Evaluated {
    if let [Value::Extension(extension)] = arguments
        && let Extension::Url(url) = &**extension
    {
        let part = part(url);
        context.budget.allocate(part.len())?;
        return Ok(Value::from(part));
    }
    Err(EvaluationError::no_overload(name, arguments))
}

pub(super) fn scheme(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    part(context, "getScheme", arguments, |url| &url.scheme)
}

pub(super) fn host(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    part(context, "getHost", arguments, |url| &url.host)
}

pub(super) fn hostname(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    part(context, "getHostname", arguments, Url::hostname)
}

pub(super) fn port(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    part(context, "getPort", arguments, Url::port)
}

pub(super) fn escaped_path(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    part(context, "getEscapedPath", arguments, |url| &url.escaped_path)
}

pub(super) fn query(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    if let [Value::Extension(extension)] = arguments
        && let Extension::Url(url) = &**extension
    {
        let query = url.query();
        for (key, values) in &query {
            context.budget.allocate(key.len())?;
            context.budget.allocate_entries(values.len().saturating_add(2))?;
        }
        return Ok(Value::map(query.into_iter().map(|(key, values)| {
            (key, Value::list(values.into_iter().map(Value::from).collect()))
        })));
    }
    Err(EvaluationError::no_overload("getQuery", arguments))
}
