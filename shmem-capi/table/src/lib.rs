//! OpenSHMEM 1.6 as a table, and what is made of it.
//!
//! The C library has 1800 functions that are 220 routines in their types and widths. They are
//! written down once, in [`routines`], with [`types`] and [`constants`]; the [`headers`], their
//! type-generic names ([`generics`]), the functions that the library [`exports`], and the page on
//! [`coverage`] are rendered from there, so none of them can drift from the others.
#![forbid(unsafe_code)]

pub mod constants;
pub mod coverage;
pub mod exports;
pub mod generics;
pub mod headers;
pub mod proto;
pub mod routines;
pub mod types;
