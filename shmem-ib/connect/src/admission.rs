//! Which datagrams are let in: those of this job, for this PE, of another PE of the job.

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

/// The codec of the job, and who this PE is in it.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    codec: Codec,
    pe: u32,
    n_pes: u32,
}

impl Admission {
    pub(super) fn new(identity: &Identity, pe: u32) -> Self {
        Self {
            codec: Codec::new(&identity.job_id, identity.job_key),
            pe,
            n_pes: identity.n_pes,
        }
    }

    /// This PE.
    pub(super) fn pe(&self) -> u32 {
        self.pe
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
        if message.dst_pe != self.pe {
            stats.wrong_pe += 1;
            return Err(DecodeError::Field("destination PE"));
        }
        if message.src_pe >= self.n_pes || message.src_pe == self.pe {
            stats.wrong_pe += 1;
            return Err(DecodeError::Field("source PE"));
        }
        Ok(message)
    }

    pub(super) fn encode(&self, message: &Message, out: &mut [u8; MAX_LEN]) -> usize {
        self.codec.encode(message, out)
    }
}
