//! `mainstay get`

use kube::Client;
use serde_json::Value;

use crate::{
    arguments::GetArguments,
    cluster,
    following::{self, News},
    kinds::{Kinds, Served},
    output::{self, Output, Rows},
    requests::{self, Form, Query},
    targets::{self, Target},
    terminal::{self, Failure},
};

/// Prints objects, and with `--watch` each of their changes.
pub(crate) async fn run(arguments: &GetArguments) -> Result<(), Failure> {
    let client = cluster::client(&arguments.cluster).await?;
    let kinds = Kinds::discover(&client).await?;
    let targets = targets::parse(&kinds, &arguments.words, "get")?;
    let mut query = targets::query(&arguments.place, client.default_namespace());
    query.fields.clone_from(&arguments.field_selector);
    let named = targets.iter().any(|target| target.name.is_some());
    if named && (query.namespace.is_none() || query.labels.is_some() || query.fields.is_some()) {
        return Err(Failure::new(
            "an object that is named cannot be selected by namespaces, labels or fields as well",
        ));
    }
    if arguments.watch {
        let [target] = targets.as_slice() else {
            return Err(Failure::new("only one kind or object can be watched at a time"));
        };
        return watch(&client, target, query, arguments).await;
    }
    match &arguments.output {
        Some(Output::Table { .. }) | None => tables(&client, &targets, &query, arguments).await,
        Some(other) => objects(&client, &targets, &query, other, arguments.show_managed_fields).await,
    }
}

fn wide(arguments: &GetArguments) -> bool {
    arguments.output == Some(Output::Table { wide: true })
}

/// Targets in groups of one kind, in their order.
fn by_kind(targets: &[Target]) -> Vec<(&Served, Vec<&str>)> {
    let mut groups: Vec<(&Served, Vec<&str>)> = Vec::new();
    for target in targets {
        let name = target.name.as_deref();
        match groups.iter_mut().find(|(kind, _)| **kind == target.kind) {
            Some((_, names)) => names.extend(name),
            None => groups.push((&target.kind, name.into_iter().collect())),
        }
    }
    groups
}

async fn tables(
    client: &Client,
    targets: &[Target],
    query: &Query,
    arguments: &GetArguments,
) -> Result<(), Failure> {
    let groups = by_kind(targets);
    let several = groups.len() > 1;
    let mut missing = Vec::new();
    let mut printed = 0;
    for (kind, names) in groups {
        let mut pages = Vec::new();
        if names.is_empty() {
            pages = requests::list(client, kind, query, Form::Table).await?.pages;
        }
        for name in names {
            match requests::get(client, kind, query.namespace.as_deref(), name, Form::Table).await {
                Ok(table) => pages.push(table),
                // The others are shown all the same.
                Err(failure) => missing.push(failure),
            }
        }
        let prefix = if several {
            format!("{}/", kind.title())
        } else {
            String::new()
        };
        let mut rows = Rows::new(
            wide(arguments),
            kind.namespaced && query.namespace.is_none(),
            prefix,
        );
        let any = pages.iter().any(|page| {
            page.get("rows")
                .and_then(Value::as_array)
                .is_some_and(|rows| !rows.is_empty())
        });
        if any && printed > 0 {
            terminal::data("");
        }
        printed += rows.put(&pages);
    }
    conclude(printed, missing, targets, query)
}

async fn objects(
    client: &Client,
    targets: &[Target],
    query: &Query,
    output: &Output,
    managed_fields: bool,
) -> Result<(), Failure> {
    let mut found = Vec::new();
    let mut missing = Vec::new();
    for target in targets {
        match &target.name {
            None => {
                let items = requests::list(client, &target.kind, query, Form::Object)
                    .await?
                    .items();
                found.extend(items.into_iter().map(|item| (target.kind.clone(), item)));
            }
            Some(name) => {
                let object = requests::get(
                    client,
                    &target.kind,
                    query.namespace.as_deref(),
                    name,
                    Form::Object,
                )
                .await;
                match object {
                    Ok(object) => found.push((target.kind.clone(), object)),
                    Err(failure) => missing.push(failure),
                }
            }
        }
    }
    let single = targets.len() == 1 && targets.iter().all(|target| target.name.is_some());
    if !(single && found.is_empty()) {
        output::print_objects(output, found, single, managed_fields)?;
    }
    conclude(1, missing, targets, query)
}

/// Says what was not found.
fn conclude(printed: usize, missing: Vec<Failure>, targets: &[Target], query: &Query) -> Result<(), Failure> {
    terminal::all(missing)?;
    if printed == 0 {
        let titles: Vec<String> = targets.iter().map(|target| target.kind.title()).collect();
        let place = match &query.namespace {
            Some(namespace) if targets.iter().any(|target| target.kind.namespaced) => {
                format!(" in namespace {namespace}")
            }
            _ => String::new(),
        };
        terminal::message(format!("no {}{place}", titles.join(", ")));
    }
    Ok(())
}

/// Prints what is there and then every change, until the server or the reader ends it.
async fn watch(
    client: &Client,
    target: &Target,
    mut query: Query,
    arguments: &GetArguments,
) -> Result<(), Failure> {
    let kind = &target.kind;
    let form = match &arguments.output {
        Some(Output::Table { .. }) | None => Form::Table,
        Some(_) => Form::Object,
    };
    if let Some(name) = &target.name {
        // One that is missing is a mistake, as it is without `--watch`.
        requests::get(client, kind, query.namespace.as_deref(), name, Form::Object).await?;
        query.fields = Some(format!("metadata.name={name}"));
    }
    let mut rows = Rows::new(
        wide(arguments),
        kind.namespaced && query.namespace.is_none(),
        String::new(),
    );
    let show = |rows: &mut Rows, value: Value| match (form, &arguments.output) {
        (Form::Object, Some(output)) => output::print_objects(
            output,
            vec![(kind.clone(), value)],
            true,
            arguments.show_managed_fields,
        ),
        _ => {
            rows.put(&[value]);
            Ok(())
        }
    };
    following::follow(client, kind, &query, form, |news| match (news, form) {
        (News::Listed(listed), Form::Table) => {
            rows.put(&listed.pages);
            Ok(())
        }
        (News::Listed(listed), Form::Object) => {
            let mut items = listed.items().into_iter();
            items.try_for_each(|item| show(&mut rows, item))
        }
        (News::Changed(value) | News::Gone(value), _) => show(&mut rows, value),
    })
    .await
}
