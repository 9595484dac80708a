//! What a key proves: who made a message, in a handshake of both sides and in every frame after it.
//!
//! All of it is HMAC-SHA-256 (RFC 2104), with a label for each use, so that what was made for one is of
//! no use for another.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// A key of 256 bits.
#[derive(Clone)]
pub(super) struct Key([u8; Self::LEN]);

/// Bytes of a whole code.
pub(super) const CODE: usize = 32;

impl Key {
    pub(super) const LEN: usize = 32;

    pub(super) fn new(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// The key of a secret of any length.
    pub(super) fn from_secret(secret: &[u8]) -> Self {
        let mut mac = hmac(b"shmem: key of an id");
        mac.update(secret);
        Self(mac.finalize().into_bytes().into())
    }

    pub(super) fn bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    fn with(&self, label: &str, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = hmac(&self.0);
        for part in std::iter::once(label.as_bytes()).chain(parts.iter().copied()) {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac
    }

    /// The code of `parts` for the use that `label` names.
    pub(super) fn mac(&self, label: &str, parts: &[&[u8]]) -> [u8; CODE] {
        self.with(label, parts).finalize().into_bytes().into()
    }

    /// Whether `code`, or what there is of it, is that. Takes as long whatever differs.
    pub(super) fn made(&self, label: &str, parts: &[&[u8]], code: &[u8]) -> bool {
        self.with(label, parts).verify_truncated_left(code).is_ok()
    }

    /// Another key, for one use.
    pub(super) fn derive(&self, label: &str, parts: &[&[u8]]) -> Self {
        Self(self.mac(label, parts))
    }
}

fn hmac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length")
}

#[cfg(test)]
mod tests {
    use super::*;
    use shmem_node::contract::hex;

    #[test]
    fn codes_are_those_of_hmac_sha_256() {
        // RFC 4231, test case 2: no label, no lengths.
        let mut mac = hmac(b"Jefe");
        mac.update(b"what do ya want for nothing?");
        assert_eq!(
            hex(&mac.finalize().into_bytes()),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    #[test]
    fn codes_depend_on_key_label_and_where_parts_end() {
        let (one, other) = (Key::new([1; 32]), Key::new([2; 32]));
        let code = one.mac("a", &[b"xy", b"z"]);
        assert!(one.made("a", &[b"xy", b"z"], &code));
        assert!(one.made("a", &[b"xy", b"z"], &code[..16]));
        assert!(!one.made("a", &[b"xy", b"z"], &[]));
        assert!(!other.made("a", &[b"xy", b"z"], &code));
        assert!(!one.made("b", &[b"xy", b"z"], &code));
        assert!(!one.made("a", &[b"x", b"yz"], &code));
        let mut wrong = code;
        wrong[31] ^= 1;
        assert!(!one.made("a", &[b"xy", b"z"], &wrong));
    }
}
