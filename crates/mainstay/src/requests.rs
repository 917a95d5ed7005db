//! Reading objects of any kind: as they are, or as the rows that the server makes of them.

use futures::Stream;
use http::header::ACCEPT;
use kube::{Client, core::WatchEvent};
use serde_json::Value;
use url::form_urlencoded::Serializer;

use crate::{applying::cause, kinds::Served, terminal::Failure};

/// How many objects are asked for at once.
const PAGE: usize = 500;
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// What is read of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The object.
    Object,
    /// The rows that the server shows of it.
    Table,
}

impl Form {
    fn accept(self) -> &'static str {
        match self {
            Form::Object => "application/json",
            Form::Table => TABLE,
        }
    }
}

/// Which objects of a kind are meant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    /// The namespace; all of them when absent.
    pub(crate) namespace: Option<String>,
    /// Label selector.
    pub(crate) labels: Option<String>,
    /// Field selector.
    pub(crate) fields: Option<String>,
}

/// What a list came to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listed {
    /// One answer for each page.
    pub(crate) pages: Vec<Value>,
    /// Where a watch goes on.
    pub(crate) version: String,
}

impl Listed {
    /// The objects of the pages.
    pub(crate) fn items(self) -> Vec<Value> {
        self.pages
            .into_iter()
            .flat_map(|mut page| match page.get_mut("items").map(Value::take) {
                Some(Value::Array(items)) => items,
                _ => Vec::new(),
            })
            .collect()
    }
}

/// Reads the objects of a kind, page by page.
///
/// # Errors
///
/// What the server answers.
pub(crate) async fn list(
    client: &Client,
    kind: &Served,
    query: &Query,
    form: Form,
) -> Result<Listed, Failure> {
    let mut listed = Listed::default();
    let mut next = String::new();
    loop {
        let mut words = selection(query);
        words.append_pair("limit", &PAGE.to_string());
        if !next.is_empty() {
            words.append_pair("continue", &next);
        }
        let path = format!("{}?{}", kind.path(query.namespace.as_deref()), words.finish());
        let mut page: Value = ask(client, &path, form)
            .await
            .map_err(|error| refused(kind, &error))?;
        if form == Form::Object {
            complete(&mut page, kind);
        }
        let metadata = |name: &str| {
            let found = page.pointer(&format!("/metadata/{name}")).and_then(Value::as_str);
            found.unwrap_or_default().to_owned()
        };
        next = metadata("continue");
        listed.version = metadata("resourceVersion");
        listed.pages.push(page);
        if next.is_empty() {
            return Ok(listed);
        }
    }
}

/// The items of a list do not say what they are; the list does.
fn complete(page: &mut Value, kind: &Served) {
    let api_version = kind.resource().api_version;
    let items = page.get_mut("items").and_then(Value::as_array_mut);
    for item in items.into_iter().flatten().filter_map(Value::as_object_mut) {
        item.entry("apiVersion")
            .or_insert_with(|| Value::from(api_version.as_str()));
        item.entry("kind")
            .or_insert_with(|| Value::from(kind.kind.as_str()));
    }
}

/// Reads one object.
///
/// # Errors
///
/// What the server answers, when there is none too.
pub(crate) async fn get(
    client: &Client,
    kind: &Served,
    namespace: Option<&str>,
    name: &str,
    form: Form,
) -> Result<Value, Failure> {
    find(client, kind, namespace, name, form)
        .await?
        .ok_or_else(|| Failure::new(format!("{} \"{name}\" not found", kind.title())))
}

/// Reads one object, if there is one.
///
/// # Errors
///
/// What else the server answers.
pub(crate) async fn find(
    client: &Client,
    kind: &Served,
    namespace: Option<&str>,
    name: &str,
    form: Form,
) -> Result<Option<Value>, Failure> {
    let path = format!("{}/{name}", kind.path(namespace));
    match ask(client, &path, form).await {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(refused(kind, &error)),
    }
}

/// Watches the objects of a kind from `version` on.
///
/// # Errors
///
/// What the server answers.
pub(crate) async fn watch(
    client: &Client,
    kind: &Served,
    query: &Query,
    version: &str,
    form: Form,
) -> kube::Result<impl Stream<Item = kube::Result<WatchEvent<Value>>> + use<>> {
    let mut words = selection(query);
    words
        .append_pair("watch", "1")
        .append_pair("resourceVersion", version);
    if form == Form::Object {
        // They move the version on while nothing happens that the selection matches.
        words.append_pair("allowWatchBookmarks", "true");
    }
    let path = format!("{}?{}", kind.path(query.namespace.as_deref()), words.finish());
    let request = http::Request::get(path)
        .header(ACCEPT, form.accept())
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    client.request_events::<Value>(request).await
}

fn selection(query: &Query) -> Serializer<'static, String> {
    let mut words = Serializer::new(String::new());
    for (name, value) in [("labelSelector", &query.labels), ("fieldSelector", &query.fields)] {
        if let Some(value) = value {
            words.append_pair(name, value);
        }
    }
    words
}

async fn ask(client: &Client, path: &str, form: Form) -> kube::Result<Value> {
    let request = http::Request::get(path)
        .header(ACCEPT, form.accept())
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    client.request(request).await
}

/// The failure of a request about a kind.
pub(crate) fn refused(kind: &Served, error: &kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) => Failure::new(status.message.clone()),
        other => Failure::new(format!("{}: {}", kind.title(), cause(other))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_are_written_so_that_the_server_reads_them() {
        let query = Query {
            namespace: None,
            labels: Some("a in (b,c)".to_owned()),
            fields: Some("metadata.name=x".to_owned()),
        };
        assert_eq!(
            selection(&query).finish(),
            "labelSelector=a+in+%28b%2Cc%29&fieldSelector=metadata.name%3Dx"
        );
    }

    #[test]
    fn the_items_of_all_pages_are_taken_together() {
        let listed = Listed {
            pages: vec![json!({"items": [1, 2]}), json!({"items": [3]}), json!({})],
            version: String::new(),
        };
        assert_eq!(listed.items(), [json!(1), json!(2), json!(3)]);
    }
}
