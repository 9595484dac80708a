//! What a PE finds out about its job, whichever way PEs publish it: the job's identity, and the UD addresses of PEs.

use shmem_ib::connect::Published;

/// What identifies the job in connection messages: its name, and its key, which lies where no core file
/// holds it.
pub(crate) type Identity = ([u8; 16], &'static [u8; 32]);

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
