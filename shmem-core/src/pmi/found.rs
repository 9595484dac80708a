//! What is found where PEs publish their UD addresses, whichever way they do.

use shmem_ib::connect::Published;

/// What is known of a PE's address.
pub(crate) enum Found {
    /// The exchange is under way.
    Pending,
    /// What the PE has published.
    Address(Published),
    /// It will never be known: why.
    Unknown(String),
}

/// Understands what a PE has published.
pub(super) fn read(bytes: &[u8]) -> Found {
    let Ok(bytes) = <&[u8; Published::LEN]>::try_from(bytes) else {
        return Found::Unknown(format!("its address has {} bytes", bytes.len()));
    };
    match Published::from_bytes(bytes) {
        Ok(peer) => Found::Address(peer),
        Err(e) => Found::Unknown(e.to_string()),
    }
}
