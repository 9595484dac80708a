//! What processors do each in their own way: copies in assembly, and orders of memory. Every architecture has the
//! same functions, in a file of its own.
//!
//! The C library's routines are called as machine code. The compiler knows what `memmove` and `memset` do, and may
//! reason about a call of them as about any access of the program's own, which must not race; what a
//! block of assembly calls it knows nothing about.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    path = "other.rs"
)]
mod own;

pub use own::{ORDERS_DEVICES, acquire_of_devices, full_fence};
pub(super) use own::{bulk, few, load_1, load_2, load_4, load_8, zero};
