//! What an endpoint is told: its place in the job, its limits, and where peers are.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::atomics::by_owner::books::ANSWER_SLOTS;
use super::atomics::by_owner::owner::more_completions;
use super::connecting::ud::SEND_SLOTS;
use super::error::ConnError;
use crate::UdAddress;
use crate::admission::{MAX_BRANCHES, number_of};
use crate::interface::Local;
use crate::manager::Identity;
use crate::retry::RetryPolicy;
use shmem_verbs::PortInfo;
use shmem_verbs::timeouts::ack_timeout;

/// Over what kind of connection peers are reached; the same in all PEs of a job.
#[derive(Clone, Debug, Default)]
pub enum Transport {
    /// A connection per peer.
    #[default]
    Rc,
    /// A connection per node, see [`xrc`](crate::xrc).
    Xrc {
        /// The XRC domain of the node: a file that all its PEs give. With `None` this PE is
        /// alone in its domain, and must be the only one of its node.
        domain: Option<Arc<OwnedFd>>,
    },
}

/// Who executes atomics on the memory of a PE for PEs that do not share it. The same in all PEs
/// of a job: those that differ do not connect.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Atomics {
    /// The HCA if its atomics are coherent with the processor's
    /// ([`PortInfo::atomics_coherent`]), else the owner.
    #[default]
    Auto,
    /// The HCA, in any case: only for programs whose words are never target of atomics of PEs
    /// that share memory and of others at a time.
    Hca,
    /// The PE whose memory it is. Not over XRC, whose SENDs do not reach every process.
    Owner,
}

impl Atomics {
    /// Whether the owner executes them, on this port.
    #[must_use]
    pub const fn by_owner(self, port: &PortInfo) -> bool {
        match self {
            Self::Auto => !port.atomics_coherent,
            Self::Hca => false,
            Self::Owner => true,
        }
    }
}

/// Settings of an [`Endpoint`](super::Endpoint).
#[derive(Clone)]
pub struct EndpointConfig {
    /// Number of this PE, below `n_pes`.
    pub pe: u32,
    /// PEs in the job.
    pub n_pes: u32,
    /// 0, or the number of a [branch](super::Endpoint::branch), at most [`MAX_BRANCHES`].
    pub branch: u32,
    /// How peers are reached.
    pub transport: Transport,
    /// Who executes atomics.
    pub atomics: Atomics,
    /// The same for all PEs of the job, different between jobs.
    pub job_id: [u8; 16],
    /// Secret of the job: who does not know it cannot connect.
    pub job_key: &'static [u8; 32],
    /// The two above do not count: they come later, with
    /// [`Endpoint::set_identity`](super::Endpoint::set_identity).
    pub identity_later: bool,
    /// How many endpoints the PEs of this job have had before this one and closed; the same in all of
    /// them. Connection messages that are from another life of the job are refused.
    pub life: u32,
    /// PSNs, the `Q_Key` and jitter follow from it; should differ between processes.
    pub seed: u64,
    /// A peer whose address stays unknown, or which gives no sign of life, for so long makes
    /// the operation fail.
    pub connect_deadline: Duration,
    /// From the first connection message to its first repetition; doubles up to 250 ms.
    pub connect_retry: Duration,
    /// How long [`close`](super::Endpoint::close) stays without a sign of life of the peers that
    /// have not said BYE. One that is given up too early may wait for an acknowledgement in vain.
    pub linger: Duration,
    /// Local ACK timeout of RC queue pairs: 4.096 us * 2^n, 1 to 31.
    pub rc_timeout: u8,
    /// Timeouts without progress before an RC queue pair fails, 0 to 7.
    pub rc_retry: u8,
    /// How often a SEND that finds no receive is repeated before an RC queue pair fails, 0 to 7; 7: as long as
    /// the peer lives. There are SENDs only where owners execute atomics.
    pub rnr_retry: u8,
    /// How long a peer whose SEND finds no receive waits before it repeats it, by the code of
    /// [`RcDest::min_rnr_timer`](shmem_verbs::RcDest::min_rnr_timer).
    pub rnr_timer: u8,
    /// READs and atomics that one connection may have outstanding; the port may allow fewer.
    pub max_rd_atomic: u8,
    /// RC queue pairs that may exist at a time; 0 is no limit. With a limit, the least recently
    /// used connections are closed when others are needed, and open again at their next use. Has
    /// no effect with XRC, which needs few.
    pub max_qps: u32,
    /// Unfinished operations that one connection may have.
    pub sq_depth: u32,
    /// Unfinished operations of the endpoint over all connections.
    pub cq_depth: u32,
    /// Of so many puts and gets one behind the other that nobody waits for, one tells of its completion; 1: all
    /// do.
    pub signal_every: u32,
    /// Of so many small non-blocking puts one behind the other the HCA is told at once, at most 16; 1: of each.
    pub hold: u32,
    /// Longest local buffer outside the registered segments, in bytes, that is copied instead of registered;
    /// at least 16 KiB. `None`: so much only, or 256 KiB where registering pins memory.
    pub copied: Option<usize>,
    /// Connection messages that may arrive at once; more are dropped, and sent again.
    pub ud_depth: u32,
    /// How often a waiting thread looks for completions before it yields its core, and later
    /// sleeps. Small if there are more PEs than cores.
    pub spin_rounds: u32,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        Self {
            pe: 0,
            n_pes: 1,
            branch: 0,
            transport: Transport::Rc,
            atomics: Atomics::Auto,
            job_id: [0; 16],
            job_key: &[0; 32],
            identity_later: false,
            life: 0,
            seed: 0,
            connect_deadline: Duration::from_secs(60),
            connect_retry: Duration::from_millis(1),
            linger: Duration::from_millis(500),
            // 2^20 * 4.096 us = 4.3 s, and seven of them before a peer counts as gone: with
            // thousands of PEs on a few cores a healthy one may not run for seconds. Not 7 times
            // more: Soft-RoCE takes that for "always".
            rc_timeout: 20,
            rc_retry: 6,
            // Without limit: peers post receives again as long as they live.
            rnr_retry: 7,
            // 0.16 ms. Receives are missing only while whoever makes progress there is behind, which takes
            // about so long to change.
            rnr_timer: 8,
            max_rd_atomic: 128,
            max_qps: 0,
            sq_depth: 256,
            cq_depth: 4096,
            signal_every: 16,
            hold: 16,
            copied: None,
            ud_depth: 32,
            spin_rounds: 200,
        }
    }
}

impl EndpointConfig {
    /// Whether all settings are in range, at this port.
    ///
    /// # Errors
    /// Which one is not.
    pub(super) fn check(&self, port: &PortInfo) -> Result<(), ConnError> {
        let by_owner = self.atomics.by_owner(port);
        let xrc = matches!(self.transport, Transport::Xrc { .. });
        if by_owner && xrc {
            return Err(ConnError::OwnerOverXrc);
        }
        // What atomics executed by the owner need besides, per queue pair and in all.
        let more_wr = if by_owner { ANSWER_SLOTS } else { 0 };
        let more_cqe = more_completions(by_owner);
        let (branch, n_pes) = (self.branch, self.n_pes);
        let last = number_of(n_pes.saturating_sub(1), branch, n_pes);
        let (sq, ud, cq) = (self.sq_depth, self.ud_depth, self.cq_depth);
        let fits_sq = sq > 0 && sq.saturating_add(more_wr) <= port.max_qp_wr;
        let least_cq = u64::from(ud) + u64::from(SEND_SLOTS);
        let fits_cq = u64::from(cq) > least_cq && cq.saturating_add(more_cqe) <= port.max_cqe;
        for (what, value, good, allowed) in [
            ("pe", self.pe, self.pe < n_pes, "below n_pes"),
            (
                "branch",
                branch,
                branch == 0 || branch <= MAX_BRANCHES && last.is_some() && !xrc,
                "at most 64, with fewer than 2^32 numbers in all, and none over XRC",
            ),
            (
                "rc_timeout",
                self.rc_timeout.into(),
                (1..=31).contains(&self.rc_timeout),
                "1 to 31",
            ),
            (
                "rc_retry",
                self.rc_retry.into(),
                self.rc_retry <= 7,
                "0 to 7",
            ),
            (
                "rnr_retry",
                self.rnr_retry.into(),
                self.rnr_retry <= 7,
                "0 to 7",
            ),
            (
                "rnr_timer",
                self.rnr_timer.into(),
                self.rnr_timer <= 31,
                "0 to 31",
            ),
            ("sq_depth", sq, fits_sq, "1 to the device's limit"),
            (
                "ud_depth",
                ud,
                ud > 0 && ud <= port.max_qp_wr,
                "1 to the device's limit",
            ),
            (
                "cq_depth",
                cq,
                fits_cq,
                "above ud_depth + 16, up to the device's limit",
            ),
            (
                "max_rd_atomic",
                self.max_rd_atomic.into(),
                self.max_rd_atomic > 0,
                "at least 1",
            ),
        ] {
            if !good {
                let value = value.into();
                return Err(ConnError::Config {
                    what,
                    value,
                    allowed,
                });
            }
        }
        Ok(())
    }

    /// This endpoint in connection messages, and in what peers are told over connections.
    pub(super) const fn number(&self) -> u32 {
        match number_of(self.pe, self.branch, self.n_pes) {
            Some(number) => number,
            None => panic!("checked when the endpoint is made"),
        }
    }

    /// The PE of a peer, which may be a branch.
    pub(super) const fn pe_of(&self, number: u32) -> u32 {
        number % self.n_pes
    }

    /// What this PE brings to every connection; it takes connection messages at `ud`.
    pub(super) fn local(&self, ud: UdAddress, port: &PortInfo) -> Local {
        Local {
            pe: self.number(),
            ud,
            mtu: port.active_mtu,
            max_rd_atomic: self.max_rd_atomic.min(port.max_rd_atomic).max(1),
            memory: None,
            max_qps: self.max_qps,
            leaving: false,
            retry: self.retry_policy(),
        }
    }

    /// When connection messages are repeated, and for how long.
    fn retry_policy(&self) -> RetryPolicy {
        let initial = nanos(self.connect_retry).max(1);
        let default = RetryPolicy::default();
        RetryPolicy {
            initial,
            max: default.max.max(initial),
            silence: nanos(self.connect_deadline).max(1),
            ..default
        }
    }

    /// Who this PE is in connection messages. PEs that would not understand each other's atomics, or use
    /// another transport, are strangers to each other, and so are the same PEs in different lives: what was recorded in one
    /// has no meaning in another.
    pub(super) fn identity(
        &self,
        mut job_id: [u8; 16],
        job_key: &'static [u8; 32],
        by_owner: bool,
    ) -> Identity {
        for (byte, life) in job_id.iter_mut().zip(self.life.to_be_bytes()) {
            *byte ^= life;
        }
        let over_xrc = matches!(self.transport, Transport::Xrc { .. });
        job_id[15] ^= u8::from(by_owner) | u8::from(over_xrc) << 1;
        Identity {
            job_id,
            job_key,
            n_pes: self.n_pes,
        }
    }

    /// After so long without progress an RC queue pair has certainly failed.
    pub(super) fn rc_give_up(&self) -> Duration {
        ack_timeout(self.rc_timeout) * (u32::from(self.rc_retry) + 1)
    }
}

impl std::fmt::Debug for EndpointConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key stays out of logs.
        f.debug_struct("EndpointConfig")
            .field("pe", &self.pe)
            .field("n_pes", &self.n_pes)
            .finish_non_exhaustive()
    }
}

/// A duration in the unit of the state machines.
pub(super) fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// What a [`Directory`] knows about the address of a PE.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// Here it is.
    Ready(UdAddress),
    /// It is being exchanged: wait and ask again.
    Pending,
    /// It will never be known; the text says why.
    Unknown(String),
}

/// Where PEs take connection messages. The job's bootstrap implements it.
///
/// [`describe`](Self::describe) and [`node`](Self::node) are called while the endpoint is locked:
/// they must not call the endpoint.
pub trait Directory: Send + Sync {
    /// The address of `pe`, without waiting.
    fn lookup(&self, pe: u32) -> Lookup;

    /// Waits until the address of `pe` may be known, at most `max`.
    fn wait(&self, pe: u32, max: Duration);

    /// The node of `pe`, for transports that connect to nodes. By default every PE is a node of
    /// its own.
    fn node(&self, pe: u32) -> u32 {
        pe
    }

    /// How to call `pe` in an error message, such as "PE 7 (node 3)".
    fn describe(&self, pe: u32) -> String {
        format!("PE {pe}")
    }
}
