//! What the library says of itself: the version of OpenSHMEM, its own, and its name.

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
#[must_use]
pub fn info_version() -> (u32, u32) {
    SPEC_VERSION
}

/// Name and version of this library. May be called at any time.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_info_get_name`.
#[must_use]
pub fn info_name() -> &'static str {
    VENDOR
}
