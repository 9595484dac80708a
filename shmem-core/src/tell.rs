//! What the library says about itself: version, name, and the messages that the user asks for.

use std::fmt::Write;

use shmem_node::machine::Size;
use shmem_node::settings::{self, Settings};

use crate::fault;
use crate::runtime::Runtime;
use crate::statics::Statics;

/// Version of OpenSHMEM that the library implements: major and minor.
///
/// # Spec
/// OpenSHMEM 1.6, `SHMEM_MAJOR_VERSION`, `SHMEM_MINOR_VERSION`.
pub const SPEC_VERSION: (u32, u32) = (1, 6);

/// Name and version of this library.
///
/// # Spec
/// OpenSHMEM 1.6, `SHMEM_VENDOR_STRING`; at most `SHMEM_MAX_NAME_LEN` (256) bytes with C's final NUL.
pub const VENDOR: &str = concat!("shmem ", env!("CARGO_PKG_VERSION"));

const _: () = assert!(VENDOR.len() < 256);

/// Version of OpenSHMEM that the library implements: major and minor. May be called at any time.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_info_get_version`.
pub fn info_version() -> (u32, u32) {
    SPEC_VERSION
}

/// Name and version of this library. May be called at any time.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_info_get_name`.
pub fn info_name() -> &'static str {
    VENDOR
}

/// What settings ask to be told when a PE has started for the `life`th time.
pub(crate) fn started(rt: &Runtime, settings: &Settings, life: u32) {
    if rt.me == 0 && life == 1 && (settings.version || settings.info) {
        let mut text = String::new();
        if settings.version {
            let (major, minor) = SPEC_VERSION;
            let _ = writeln!(text, "{VENDOR} (OpenSHMEM {major}.{minor})");
        }
        if settings.info {
            text += &settings::text(|name| std::env::var(name).ok());
        }
        print!("{text}");
    }
    if settings.debug {
        let statics = match rt.ranges.statics {
            Statics::Shared(stretches) => {
                let bytes: usize = stretches.iter().map(|s| s.len).sum();
                format!("{} of static data is symmetric", Size(bytes as u64))
            }
            Statics::Private(why) => format!("static data is private: {why}"),
        };
        fault::write(&format!(
            "PE {} of {} on node {} of {} (pid {}): initialised, heap of {} at {:#x}, {statics}",
            rt.me,
            rt.n_pes,
            rt.my_node,
            rt.node.n_nodes(),
            std::process::id(),
            Size(rt.ranges.heap_len as u64),
            rt.ranges.heap,
        ));
    }
}

/// The same when it has finalized.
pub(crate) fn finalized(me: usize) {
    if Settings::from_env().is_ok_and(|s| s.debug) {
        fault::write(&format!("PE {me}: finalized"));
    }
}
