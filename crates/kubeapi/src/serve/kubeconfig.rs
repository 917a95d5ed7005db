//! The kubeconfig. Requirement KA-001.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

use crate::files;

/// The name of the cluster, the user and the context.
const NAME: &str = "mainstay";

/// The kubeconfig cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the kubeconfig {path}: {source}")]
pub struct KubeconfigError {
    /// The file.
    pub path: PathBuf,
    /// What the system answered.
    pub source: io::Error,
}

/// Writes the kubeconfig with mode 0600 and returns its absolute path. Everything is embedded, so the file can be
/// copied anywhere.
pub(super) fn write(
    path: &Path,
    address: SocketAddr,
    authority_pem: &str,
    token: &SecretString,
) -> Result<PathBuf, KubeconfigError> {
    let failed = |source| KubeconfigError {
        path: path.to_owned(),
        source,
    };
    let absolute = std::path::absolute(path).map_err(failed)?;
    if let Some(directory) = absolute.parent() {
        files::private_directory(directory).map_err(failed)?;
    }
    files::write_private(&absolute, content(address, authority_pem, token).as_bytes()).map_err(failed)?;
    Ok(absolute)
}

/// JSON, which is YAML too: nothing in it needs quoting rules of its own.
fn content(address: SocketAddr, authority_pem: &str, token: &SecretString) -> String {
    // A wildcard address is for listening, not for reaching.
    let host = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    let server = format!("https://{}", SocketAddr::new(host, address.port()));
    let document = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": NAME,
        "clusters": [{"name": NAME, "cluster": {
            "server": server, "certificate-authority-data": STANDARD.encode(authority_pem),
        }}],
        "users": [{"name": NAME, "user": {"token": token.expose_secret()}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": "default"}}],
    });
    format!("{document:#}\n")
}
