//! The CA and the server's certificate. Requirement KA-001.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls::{
    ServerConfig,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use crate::files;

/// How long certificates are valid.
const VALID: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);
/// How far certificates reach back, for clocks that are not set exactly.
const BACKDATED: SignedDuration = SignedDuration::from_hours(24);
/// The names of the API inside a cluster and on the machine.
const NAMES: [&str; 5] = [
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read or written.
    #[error("cannot keep certificates in {path}: {source}")]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// A certificate cannot be made.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// A file is there and holds no certificate or key.
    #[error("{path} holds no certificate or key ({detail}); remove its directory to have new ones made")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// The certificate and key do not work together.
    #[error("the server's certificate cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// What TLS needs.
pub(super) struct Certificates {
    pub(super) config: Arc<ServerConfig>,
    pub(super) authority_pem: String,
}

/// Loads the CA and makes or loads the server's certificate in `directory`. An address beyond loopback gets a
/// certificate of its own, made by the same CA.
pub(super) fn load_or_make(
    directory: &Path,
    address: IpAddr,
    now: Timestamp,
) -> Result<Certificates, CertificateError> {
    files::private_directory(directory).map_err(|source| CertificateError::File {
        path: directory.to_owned(),
        source,
    })?;
    let (authority_pem, authority_key) = pair(directory, "ca", || make_authority(now))?;
    let extra = (!address.is_loopback() && !address.is_unspecified()).then_some(address);
    let name = extra.map_or_else(
        || "server".to_owned(),
        |address| format!("server-{}", address.to_string().replace(':', "-")),
    );
    let (server_pem, server_key) = pair(directory, &name, || make_server(&authority_key, extra, now))?;
    let chain = read_certificates(directory, &name, &server_pem)?;
    let key = PrivateKeyDer::from_pem_slice(server_key.as_bytes())
        .map_err(|error| malformed(directory, &format!("{name}.key"), &error.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Certificates {
        config: Arc::new(config),
        authority_pem,
    })
}

fn malformed(directory: &Path, file: &str, detail: &str) -> CertificateError {
    CertificateError::Malformed {
        path: directory.join(file),
        detail: detail.to_owned(),
    }
}

fn read_certificates(
    directory: &Path,
    name: &str,
    pem: &str,
) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| malformed(directory, &format!("{name}.crt"), &error.to_string()))
}

/// The certificate and key kept under `name`, or those that `make` makes.
fn pair(
    directory: &Path,
    name: &str,
    make: impl FnOnce() -> Result<(String, String), CertificateError>,
) -> Result<(String, String), CertificateError> {
    let (certificate_path, key_path) = (
        directory.join(format!("{name}.crt")),
        directory.join(format!("{name}.key")),
    );
    let read = |path: &PathBuf| {
        files::read_if_there(path).map_err(|source| CertificateError::File {
            path: path.clone(),
            source,
        })
    };
    if let (Some(certificate), Some(key)) = (read(&certificate_path)?, read(&key_path)?) {
        return Ok((certificate, key));
    }
    let (certificate, key) = make()?;
    for (path, content) in [(key_path, &key), (certificate_path, &certificate)] {
        files::write_private(&path, content.as_bytes()).map_err(|source| CertificateError::File {
            path: path.clone(),
            source,
        })?;
    }
    Ok((certificate, key))
}

fn parameters(common_name: &str, now: Timestamp) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    parameters.distinguished_name = name;
    let date = |time: Timestamp| {
        let date = time.to_zoned(jiff::tz::TimeZone::UTC).date();
        let (month, day) = (date.month().unsigned_abs(), date.day().unsigned_abs());
        rcgen::date_time_ymd(i32::from(date.year()), month, day)
    };
    parameters.not_before = date(now.saturating_sub(BACKDATED).unwrap_or(now));
    parameters.not_after = date(now.saturating_add(VALID).unwrap_or(now));
    parameters
}

/// What the CA is called and may do: all that a certificate it signs takes from it, beside its key.
fn authority_parameters(now: Timestamp) -> CertificateParams {
    let mut parameters = parameters("mainstay-ca", now);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    parameters
}

fn make_authority(now: Timestamp) -> Result<(String, String), CertificateError> {
    let key = KeyPair::generate()?;
    let certificate = authority_parameters(now).self_signed(&key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn make_server(
    authority_key: &str,
    extra: Option<IpAddr>,
    now: Timestamp,
) -> Result<(String, String), CertificateError> {
    let issuer = Issuer::new(authority_parameters(now), KeyPair::from_pem(authority_key)?);
    let key = KeyPair::generate()?;
    let mut parameters = parameters("mainstay-kubeapi", now);
    for name in NAMES {
        parameters
            .subject_alt_names
            .push(SanType::DnsName(name.try_into()?));
    }
    let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    parameters
        .subject_alt_names
        .extend(loopback.into_iter().chain(extra).map(SanType::IpAddress));
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    parameters.use_authority_key_identifier_extension = true;
    let certificate = parameters.signed_by(&key, &issuer)?;
    Ok((certificate.pem(), key.serialize_pem()))
}
