//! What an endpoint's lock protects beside its branches: the connections, the operations under way, and the device objects
//! of both. Each room of the endpoint adds what it does with them.

use std::sync::Arc;
use std::time::Instant;

use hashbrown::HashMap;

use super::atomics::by_owner::owner::{Owner, more_completions};
use super::atomics::lines::Composer;
use super::awaited::{Awaited, LinkChange, TellLink};
use super::buffers::{INLINE_MAX, LocalSegment, Pool, copied_on};
use super::completions::Completions;
use super::config::{Directory, EndpointConfig, Transport};
use super::connecting::domain::XrcDomain;
use super::connecting::ud::{SEND_SLOTS, UdPort};
use super::error::ConnError;
use super::life::Life;
use super::notices::{Inbound, Notices};
use super::operations::accounts::{Accounts, Gauge, Mark};
use super::operations::held::Held;
use super::operations::sends::Sends;
use super::operations::silent::Telling;
use super::operations::table::{OpId, OpTable};
use super::peer::{Ahead, Peer};
use super::queue_pairs::QueuePairs;
use crate::UdAddress;
use crate::manager::Manager;
use crate::message::{MAX_LEN, packet_key};
use shmem_verbs::Hca;
use shmem_verbs::rng::Rng;

/// A datagram and its length.
type Sealed = ([u8; MAX_LEN], usize);

/// What is copied, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copies {
    /// Longest payload that is copied while posting.
    pub(super) inline: usize,
    /// Longest local buffer outside the segments that is copied.
    pub(super) buffer: usize,
}

pub(super) struct Driver<H: Hca> {
    pub(super) hca: Arc<H>,
    pub(super) completions: Completions,
    pub(super) copies: Copies,
    pub(super) config: EndpointConfig,
    clock: Instant,
    /// The deadline that the HCA knows.
    pub(super) alarm: Option<u64>,
    pub(super) manager: Manager,
    /// With transport XRC: this PE in the domain of its node.
    pub(super) xrc: Option<XrcDomain>,
    /// Where peers send connection messages to.
    pub(super) address: UdAddress,
    pub(super) ud: Option<UdPort>,
    pub(super) qps: QueuePairs,
    pub(super) peers: HashMap<u32, Peer>,
    pub(super) ops: OpTable,
    pub(super) sends: Sends,
    pub(super) pool: Pool,
    pub(super) segments: Vec<LocalSegment>,
    /// Peers whose connection is being drained, when operations have completed.
    pub(super) attention: Vec<u32>,
    pub(super) directory: Option<Arc<dyn Directory>>,
    /// Datagrams that wait for the job's identity, without which nobody can say what they are;
    /// `None` once that is known.
    pub(super) sealed: Option<Vec<Sealed>>,
    /// If owners execute atomics: what this takes.
    pub(super) owner: Option<Owner>,
    /// Atomics that owners are to execute, and have not answered.
    pub(super) unanswered: u64,
    /// Peers that are to be connected before they are used.
    pub(super) ahead: Ahead,
    /// What each context has under way.
    pub(super) accounts: Accounts,
    /// Atomics that take several steps.
    pub(super) composer: Composer,
    /// How many of them have not ended.
    pub(super) composed: Gauge,
    pub(super) inbound: Inbound,
    pub(super) notices: Notices,
    /// Told of connections that open and close.
    pub(super) on_link: Option<TellLink>,
    pub(super) life: Life,
}

impl<H: Hca> Driver<H> {
    /// Makes the queues of an endpoint. The settings have been checked.
    pub(super) fn open(
        hca: &Arc<H>,
        config: EndpointConfig,
        composed: Gauge,
    ) -> Result<Self, ConnError> {
        let port = hca.port();
        let by_owner = config.atomics.by_owner(&port);
        let mut rng = Rng::new(config.seed);
        let cq = hca
            .create_cq(config.cq_depth + more_completions(by_owner))
            .map_err(ConnError::verbs("create a completion queue"))?;
        let ud = UdPort::new(&**hca, cq, config.ud_depth, &mut rng).inspect_err(|_| {
            let _ = hca.destroy_cq(cq);
        })?;
        let address = ud.address;
        let identity = config.identity(config.job_id, config.job_key, by_owner);
        let seed = rng.next_u64();
        let xrc = match &config.transport {
            Transport::Rc => None,
            Transport::Xrc { domain } => match XrcDomain::new(&**hca, cq, domain.as_deref()) {
                Ok(domain) => Some(domain),
                Err(e) => {
                    ud.release(&**hca);
                    let _ = hca.destroy_cq(cq);
                    return Err(e);
                }
            },
        };
        let local = config.local(address, &port);
        let manager = match xrc {
            None => Manager::new(&identity, local, seed),
            Some(_) => Manager::of_nodes(&identity, local, seed),
        };
        let copied = config.copied.unwrap_or_else(|| copied_on(&port));
        let copies = Copies {
            inline: (port.max_inline as usize).min(INLINE_MAX),
            buffer: copied.max(Pool::MAX),
        };
        let telling = Telling::new(
            config.signal_every,
            config.sq_depth,
            most_in_flight(&config),
        );
        let sends = Sends::new(telling, Held::new(config.hold));
        let sealed = config.identity_later.then(Vec::new);
        if sealed.is_none() {
            hca.set_key(packet_key(config.job_key));
        }
        Ok(Self {
            hca: Arc::clone(hca),
            completions: Completions::new(cq),
            copies,
            config,
            clock: Instant::now(),
            alarm: None,
            manager,
            xrc,
            address,
            ud: Some(ud),
            qps: QueuePairs::default(),
            peers: HashMap::new(),
            ops: OpTable::default(),
            sends,
            pool: Pool::new(),
            segments: Vec::new(),
            attention: Vec::new(),
            directory: None,
            sealed,
            owner: by_owner.then(Owner::new),
            unanswered: 0,
            ahead: Ahead::default(),
            accounts: Accounts::default(),
            composer: Composer::default(),
            composed,
            inbound: Inbound::default(),
            notices: Notices::default(),
            on_link: None,
            life: Life::default(),
        })
    }

    /// Goes on as `next`, after the end of this one. Threads that wait for that end, and what the HCA was
    /// told, stay.
    pub(super) fn replace(&mut self, next: Self) {
        let next = Self {
            life: self.life.next(),
            alarm: self.alarm,
            notices: Notices {
                happened: true,
                wakers: std::mem::take(&mut self.notices.wakers),
                ..Notices::default()
            },
            ..next
        };
        *self = next;
    }

    /// Whether any operation is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.sends.in_flight > 0 || self.unanswered > 0 || self.composed.get() > 0
    }

    /// How many work requests of operations the completion queue has room for.
    pub(super) fn most_in_flight(&self) -> u32 {
        most_in_flight(&self.config)
    }

    pub(super) fn hca(&self) -> &H {
        &self.hca
    }

    pub(super) fn shared_hca(&self) -> Arc<H> {
        Arc::clone(&self.hca)
    }

    pub(super) fn now(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    /// How to call the peer of a number, which may be a branch of a PE.
    pub(super) fn describe(&self, number: u32) -> String {
        let pe = self.config.pe_of(number);
        self.directory
            .as_ref()
            .map_or_else(|| format!("PE {pe}"), |d| d.describe(pe))
    }

    /// The same, with the peer whose connection is used if that is another.
    pub(super) fn describe_way(&self, pe: u32) -> String {
        match self.manager.direct(pe) {
            Some(direct) if direct != pe => format!(
                "{}, reached through the queue pair of {},",
                self.describe(pe),
                self.describe(direct)
            ),
            _ => self.describe(pe),
        }
    }

    /// Tells who wants to know what became of the connection to `pe`.
    pub(super) fn tell_link(&self, pe: u32, change: LinkChange) {
        if let Some(tell) = &self.on_link {
            tell(self.config.pe_of(pe), change, self.qps.alive);
        }
    }

    /// What is left of operations towards a peer up to a mark, when so many peers come after it.
    pub(super) fn left(&self, pe: u32, mark: Mark, more: usize) -> Awaited {
        Awaited::Quiet {
            pe,
            operations: self.peers.get(&pe).map_or(0, |peer| peer.left(mark)),
            more: u32::try_from(more).unwrap_or(u32::MAX),
        }
    }

    /// An operation that is waited for.
    pub(super) fn awaited(&self, id: OpId) -> Awaited {
        self.ops
            .get(id)
            .map_or(Awaited::Room, |op| Awaited::Operation(op.pe))
    }
}

const fn most_in_flight(config: &EndpointConfig) -> u32 {
    config.cq_depth - config.ud_depth - SEND_SLOTS
}
