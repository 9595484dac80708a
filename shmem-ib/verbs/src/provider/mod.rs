//! What implementations of [`Hca`](crate::Hca) have in common, and programs have no use for.
//!
//! `checks`: what every implementation refuses alike. [`sleep`]: how threads sleep on an HCA, and are
//! woken. [`Slots`]: objects by number. [`EventQueue`]: events that nobody has taken. [`Troubles`]: what
//! may go wrong for a while. [`Event`], [`Timer`], [`Epoll`]: descriptors that wake sleepers.

pub mod checks;
mod event_queue;
mod fds;
pub mod sleep;
mod slots;

pub use event_queue::EventQueue;
pub use fds::{Epoll, Event, Timer};
pub use slots::{MAX_SLOTS, Slots};

pub use crate::failure::{LASTING_NS, Troubles};
