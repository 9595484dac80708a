//! Chores that cargo has no command for: building the C library with its tools and their manual pages, installing
//! and packing them; measuring and drawing figures.
//!
//! `cargo xtask install --prefix DIR` is the program; the tests of the C library call the same
//! functions, so that what they test is what users get.
#![forbid(unsafe_code)]

pub mod archive;
pub mod build;
pub mod dist;
pub mod error;
pub mod figures;
pub mod glibc;
pub mod inner;
pub mod install;
pub mod object;
pub mod pages;
mod wheel;

/// Version of the project.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
