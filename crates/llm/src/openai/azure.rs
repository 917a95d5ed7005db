//! OpenAI's models as Azure serves them (OR-244): the deployment in the path, the version of the API in the query, the
//! key in a header of its own.

use url::Url;

use super::Endpoints;
use crate::transport;

/// Version of the API where none is configured (OR-033).
pub(crate) const DEFAULT_API_VERSION: &str = "2024-02-15-preview";

/// The first version that takes the limit of an answer by its newer name.
const NEWER_LIMIT_NAME: &str = "2024-12-01";

/// How one resource of Azure is spoken to.
#[derive(Debug, PartialEq)]
pub(crate) struct AzureEndpoints {
    pub(crate) endpoints: Endpoints,
    /// Whether the limit of an answer is sent as `max_completion_tokens`.
    pub(crate) newer_limit_name: bool,
}

/// The endpoints of `deployment` at the resource `base`, which may also be the URL of its deployment, of one of the two
/// formats, or of the version-less API (`…/openai/v1`). An `api-version` of the base wins over `api_version`.
pub(crate) fn endpoints(
    base: &str,
    deployment: &str,
    api_version: Option<&str>,
) -> Result<AzureEndpoints, String> {
    let url = transport::base_url(base)?;
    let path = url.path().trim_end_matches('/');
    let path = path
        .strip_suffix("/chat/completions")
        .or_else(|| path.strip_suffix("/responses"))
        .unwrap_or(path)
        .to_owned();
    let version = version(&url).or_else(|| api_version.map(str::to_owned));
    let below = |prefix: &str, segments: &[&str], version: Option<&str>| -> Result<Url, String> {
        let mut url = url.clone();
        let others: Vec<(String, String)> = url
            .query_pairs()
            .filter(|(name, _)| name != "api-version")
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        url.set_query(None);
        if !others.is_empty() || version.is_some() {
            let mut query = url.query_pairs_mut();
            query.extend_pairs(others);
            query.extend_pairs(version.map(|version| ("api-version", version)));
        }
        url.set_path(prefix);
        // A name is one part of the path, whatever is in it.
        url.path_segments_mut()
            .map_err(|()| "it cannot have a path".to_owned())?
            .pop_if_empty()
            .extend(segments);
        Ok(url)
    };
    if path.ends_with("/openai/v1") {
        let version = version.as_deref();
        return Ok(AzureEndpoints {
            endpoints: Endpoints {
                chat: below(&path, &["chat", "completions"], version)?,
                responses: below(&path, &["responses"], version)?,
            },
            newer_limit_name: true,
        });
    }
    let version = version.unwrap_or_else(|| DEFAULT_API_VERSION.to_owned());
    let (root, named) = match path.split_once("/openai/deployments/") {
        Some((root, _)) => (root.to_owned(), Some(path.as_str())),
        None => (path.strip_suffix("/openai").unwrap_or(&path).to_owned(), None),
    };
    let chat = match named {
        Some(named) => below(named, &["chat", "completions"], Some(&version))?,
        None => below(
            &root,
            &["openai", "deployments", deployment, "chat", "completions"],
            Some(&version),
        )?,
    };
    Ok(AzureEndpoints {
        endpoints: Endpoints {
            chat,
            responses: below(&root, &["openai", "responses"], Some(&version))?,
        },
        newer_limit_name: version.as_str() >= NEWER_LIMIT_NAME,
    })
}

fn version(url: &Url) -> Option<String> {
    url.query_pairs()
        .find(|(name, value)| name == "api-version" && !value.is_empty())
        .map(|(_, value)| value.into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_endpoint_follows_from_resource_deployment_and_version_or_244() {
        const HOST: &str = "https://desk.openai.azure.com";
        let classic = "/openai/deployments/gpt/chat/completions?api-version=";
        for (base, version, chat, newer) in [
            (HOST.to_owned(), None, format!("{HOST}{classic}2024-02-15-preview"), false),
            (format!("{HOST}/"), Some("2024-10-21"), format!("{HOST}{classic}2024-10-21"), false),
            (format!("{HOST}/openai/"), Some("2025-01-01-preview"), format!("{HOST}{classic}2025-01-01-preview"), true),
            (
                format!("{HOST}/openai/deployments/other/?api-version=2024-06-01"),
                Some("2024-10-21"),
                format!("{HOST}/openai/deployments/other/chat/completions?api-version=2024-06-01"),
                false,
            ),
            (
                format!("{HOST}/openai/deployments/other/chat/completions?api-version=2024-06-01"),
                None,
                format!("{HOST}/openai/deployments/other/chat/completions?api-version=2024-06-01"),
                false,
            ),
            (
                "http://gateway/team/?tier=a".to_owned(),
                None,
                "http://gateway/team/openai/deployments/gpt/chat/completions?tier=a&api-version=2024-02-15-preview"
                    .to_owned(),
                false,
            ),
            (format!("{HOST}/openai/v1/"), None, format!("{HOST}/openai/v1/chat/completions"), true),
            (
                format!("{HOST}/openai/v1"),
                Some("preview"),
                format!("{HOST}/openai/v1/chat/completions?api-version=preview"),
                true,
            ),
        ] {
            let found = endpoints(&base, "gpt", version).unwrap();
            assert_eq!((found.endpoints.chat.as_str(), found.newer_limit_name), (chat.as_str(), newer), "{base}");
        }
    }

    #[test]
    fn responses_are_not_of_one_deployment_or_244() {
        let found = endpoints(
            "https://h/openai/deployments/gpt",
            "gpt",
            Some("2025-04-01-preview"),
        )
        .unwrap();
        assert_eq!(
            found.endpoints.responses.as_str(),
            "https://h/openai/responses?api-version=2025-04-01-preview"
        );
    }

    #[test]
    fn a_deployment_is_one_part_of_the_path() {
        let found = endpoints("https://h", "a/b?c", None).unwrap();
        assert_eq!(
            found.endpoints.chat.path(),
            "/openai/deployments/a%2Fb%3Fc/chat/completions"
        );
        assert!(endpoints("desk.openai.azure.com", "gpt", None).is_err());
    }
}
