//! What implementations of [`Hca`](crate::Hca) have in common, and programs have no use for.
//!
//! `checks`: what every implementation refuses alike. [`sleep`]: how threads sleep on an HCA, and are
//! woken. [`Slots`]: objects by number. [`Troubles`]: what
//! may go wrong for a while. [`Event`], [`Timer`]: descriptors that wake sleepers.

pub mod checks;
mod fds;
pub mod sleep;
mod slots;

pub use fds::{Event, Timer};
pub use slots::{MAX_SLOTS, Slots};

pub use crate::failure::{LASTING_NS, Troubles};
