//! Which datagrams are let in: those of this job, for this endpoint, of another PE of the job.
//!
//! Endpoints have numbers in connection messages. The one that a PE has published has the PE's; its
//! branches follow at distances of the number of PEs (`number_of`), so that whoever is asked for a
//! connection by a branch takes that for one more peer, and needs to know no more of branches.

#![forbid(unsafe_code)]

use super::message::{Codec, DecodeError, MAX_LEN, Message};
use super::stats::ConnectStats;

/// What identifies the job and this PE in it.
#[derive(Clone)]
pub struct Identity {
    /// The same for all PEs of the job, different between jobs.
    pub job_id: [u8; 16],
    /// Known only to the PEs of the job. Not copied, so that it is where its owner put it and nowhere
    /// else.
    pub job_key: &'static [u8; 32],
    /// PEs in the job.
    pub n_pes: u32,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key stays out of logs.
        f.debug_struct("Identity")
            .field("n_pes", &self.n_pes)
            .finish_non_exhaustive()
    }
}

/// Most branches of one PE.
pub const MAX_BRANCHES: u32 = 64;

/// The number of an endpoint in connection messages; `None` if there is none that great. Branch 0 is the
/// endpoint that peers know.
#[must_use]
pub const fn number_of(pe: u32, branch: u32, n_pes: u32) -> Option<u32> {
    match n_pes.checked_mul(branch) {
        Some(before) => before.checked_add(pe),
        None => None,
    }
}

/// The codec of the job, and who this endpoint is in it.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    codec: Codec,
    number: u32,
    n_pes: u32,
}

impl Admission {
    pub(super) fn new(identity: &Identity, number: u32) -> Self {
        Self {
            codec: Codec::new(&identity.job_id, identity.job_key),
            number,
            n_pes: identity.n_pes,
        }
    }

    /// This endpoint.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Whether connections with the endpoint of this number are for this one. Nobody asks branches, so they
    /// know each other not.
    fn is_peer(&self, number: u32) -> bool {
        let branch = |number: u32| number / self.n_pes;
        let other = number % self.n_pes != self.number % self.n_pes;
        let most = match branch(self.number) {
            0 => MAX_BRANCHES,
            _ => 0,
        };
        other && branch(number) <= most
    }

    /// The message in `bytes`; what is refused is counted.
    pub(super) fn admit(
        &self,
        bytes: &[u8],
        stats: &mut ConnectStats,
    ) -> Result<Message, DecodeError> {
        let message = self.codec.decode(bytes).inspect_err(|e| match e {
            DecodeError::WrongJob => stats.wrong_job += 1,
            DecodeError::BadMac => stats.bad_mac += 1,
            _ => stats.malformed += 1,
        })?;
        if message.dst_pe != self.number {
            stats.wrong_pe += 1;
            return Err(DecodeError::Field("destination PE"));
        }
        if !self.is_peer(message.src_pe) {
            stats.wrong_pe += 1;
            return Err(DecodeError::Field("source PE"));
        }
        Ok(message)
    }

    pub(super) fn encode(&self, message: &Message, out: &mut [u8; MAX_LEN]) -> usize {
        self.codec.encode(message, out)
    }
}
