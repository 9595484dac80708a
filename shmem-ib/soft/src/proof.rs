//! What packets of a job have that those of strangers lack.
//!
//! Any user of a host can send from the address and port of a PE there, and queue pair numbers are few. So the ICRC of every
//! packet between connected queue pairs has a *salt* that only holders of the job's key can compute: 32 bits, which differ for each
//! direction of each connection. A packet without it is dropped as a damaged one is, before anything that depends on its queue
//! pair happens: nothing tells a stranger whether that exists. An invitation, which makes a process connect, carries a MAC of
//! 128 bits beside it.
//!
//! An HCA without a key sends the ICRC that RoCEv2 has.

#![forbid(unsafe_code)]

use std::hash::Hasher as _;

use siphasher::sip128::{Hash128, Hasher128 as _, SipHasher24};

use crate::wire::{Flow, Mac};
use shmem_verbs::{AddressVector, Psn, Qpn};

/// The key of a job for packets.
#[derive(Clone, Copy, Default)]
pub(crate) struct Proof {
    key: Option<[u8; 16]>,
}

/// One direction of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Direction {
    pub(crate) flow: Flow,
    /// The receiver's queue pair.
    pub(crate) to: Qpn,
}

impl Direction {
    pub(crate) const fn new(src: AddressVector, dst: AddressVector, to: Qpn) -> Self {
        let flow = Flow { src, dst };
        Self { flow, to }
    }
}

/// What a hash is for.
const SALT: u8 = 1;
const INVITE: u8 = 2;

impl Proof {
    pub(crate) const fn new(key: [u8; 16]) -> Self {
        Self { key: Some(key) }
    }

    fn hash(&self, purpose: u8, direction: &Direction, rest: &[u8]) -> Hash128 {
        let key = self.key.unwrap_or_default();
        let mut hasher = SipHasher24::new_with_key(&key);
        hasher.write(&[purpose]);
        for end in [&direction.flow.src, &direction.flow.dst] {
            hasher.write(&end.gid.0);
            hasher.write(&end.udp_port.to_be_bytes());
        }
        hasher.write(&direction.to.0.to_be_bytes());
        hasher.write(rest);
        hasher.finish128()
    }

    /// What the ICRC of packets in this direction is changed by; 0 without a key.
    pub(crate) fn salt(&self, direction: &Direction) -> u32 {
        match self.key {
            Some(_) => self.hash(SALT, direction, &[]).h1 as u32,
            None => 0,
        }
    }

    /// The code of an invitation with this text of the queue pair whose first request had the number `first`.
    pub(crate) fn of_invite(&self, direction: &Direction, first: Psn, text: &[u8]) -> Mac {
        let mut rest = [0; 64];
        rest[..4].copy_from_slice(&first.0.to_be_bytes());
        rest[4..4 + text.len()].copy_from_slice(text);
        let hash = self.hash(INVITE, direction, &rest[..4 + text.len()]);
        hash.as_u128().to_be_bytes()
    }
}

impl std::fmt::Debug for Proof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Proof")
    }
}
