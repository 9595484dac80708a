//! Symmetric memory as a program sees it: handles to arrays, and addresses.

pub(crate) mod address;
pub(crate) mod array;
pub(crate) mod element;
