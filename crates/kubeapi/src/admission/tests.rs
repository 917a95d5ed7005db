//! Policies on plain values.
