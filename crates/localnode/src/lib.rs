//! localnode
