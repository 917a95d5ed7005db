//! The embedded Kubernetes API: a tower service over `mainstay-store`.

pub mod field;
pub mod schema;
pub mod status;
