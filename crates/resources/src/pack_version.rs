//! pack_version
