//! OpenAI's models at Azure, and what a provider is asked for only where it is known to take it.

use super::*;
use crate::{config::AzureConfig, request::ResponseFormat};

/// A request as the server got it: path with query, headers, body.
type Asked = Arc<Mutex<Vec<(String, HeaderMap, Value)>>>;

/// A server that notes everything and answers `hi` in Chat Completions.
async fn noting() -> (String, Asked) {
    let asked: Asked = Arc::default();
    let noted = Arc::clone(&asked);
    let app = Router::new().fallback(move |request: HttpRequest<Body>| {
        let noted = Arc::clone(&noted);
        async move {
            let (parts, body) = request.into_parts();
            let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
            let body = serde_json::from_slice(&body).unwrap();
            noted
                .lock()
                .unwrap()
                .push((parts.uri.to_string(), parts.headers, body));
            Response::builder()
                .header("content-type", STREAM)
                .body(Body::from(streamed()))
                .unwrap()
        }
    });
    let base = serve(app).await;
    (base.trim_end_matches("/v1").to_owned(), asked)
}

#[tokio::test]
async fn azure_is_asked_at_its_deployment_with_its_version_and_its_own_header_or_244() {
    let (base, asked) = noting().await;
    let azure = ProviderConfig {
        azure: Some(AzureConfig {
            deployment: Some("desk".to_owned()),
            api_version: None,
        }),
        ..config(format!("{base}/"))
    };
    let model = build(&azure, &context(&[("KEY", "azure-key")])).unwrap();
    // The family stays OpenAI's: errors and records go by the entry, and only telemetry tells them apart.
    assert_eq!((model.name(), model.service()), ("main", "azure.ai.openai"));
    assert_eq!(complete(&*model, hello()).await.unwrap().text, "hi");
    let asked = asked.lock().unwrap();
    let (path, headers, body) = &asked[0];
    assert_eq!(
        path,
        "/openai/deployments/desk/chat/completions?api-version=2024-02-15-preview"
    );
    assert_eq!(headers["api-key"], "azure-key");
    assert!(!headers.contains_key("authorization"));
    assert_eq!(body["model"], "m");
}

#[tokio::test]
async fn azure_needs_the_address_of_its_resource_or_244() {
    let azure = ProviderConfig {
        azure: Some(AzureConfig::default()),
        base_url: None,
        ..config(String::new())
    };
    let error = build(&azure, &context(&[("OPENAI_BASE_URL", "http://elsewhere")])).unwrap_err();
    assert_eq!(error.reason(), "ProviderFieldMissing");
    let plain = build(&config("http://h".to_owned()), &context(&[])).unwrap();
    assert_eq!(plain.service(), "openai");
}

#[tokio::test]
async fn an_answer_in_json_is_asked_for_where_the_provider_lists_it_or_201_om_182() {
    let schema = Arc::new(json!({"type": "object", "properties": {"id": {"type": "integer"}}}));
    let request = Request {
        response_format: ResponseFormat::Schema {
            name: "answer".to_owned(),
            schema: Arc::clone(&schema),
        },
        ..hello()
    };
    let (base, asked) = noting().await;
    for capabilities in [vec![], vec!["text"], vec!["text", "json"]] {
        let config = ProviderConfig {
            capabilities: capabilities.into_iter().map(str::to_owned).collect(),
            ..config(format!("{base}/v1"))
        };
        let model = build(&config, &context(&[("KEY", "k")])).unwrap();
        complete(&*model, request.clone()).await.unwrap();
    }
    let asked = asked.lock().unwrap();
    let formats: Vec<Option<&Value>> = asked
        .iter()
        .map(|(_, _, body)| body.get("response_format"))
        .collect();
    assert_eq!(formats[..2], [None, None]);
    assert_eq!(formats[2].unwrap()["json_schema"]["schema"], *schema);
}
