//! What an endpoint's lock protects: the connections, the operations under way, and the device objects
//! of both. Each room of the endpoint adds what it does with them.

use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use hashbrown::HashMap;

use super::atomics::by_owner::books::ANSWER_MESSAGES;
use super::atomics::by_owner::owner::{Owner, RECEIVES};
use super::atomics::lines::Composer;
use super::awaited::TellLink;
use super::buffers::{INLINE_MAX, LocalSegment, Pool};
use super::config::{Directory, EndpointConfig, Transport};
use super::connecting::domain::XrcDomain;
use super::connecting::ud::{SEND_SLOTS, UdPort};
use super::error::ConnError;
use super::lock::Endpoint;
use super::operations::accounts::{Accounts, Gauge};
use super::operations::held::Held;
use super::operations::put_get::copied_on;
use super::operations::silent::Telling;
use super::operations::table::OpTable;
use super::peer::{Ahead, Peer};
use crate::UdAddress;
use crate::manager::Manager;
use crate::message::{MAX_LEN, packet_key};
use shmem_verbs::rng::Rng;
use shmem_verbs::{Completion, Cq, Hca, Qpn};

/// A datagram and its length.
type Sealed = ([u8; MAX_LEN], usize);

pub(super) struct Driver<H: Hca> {
    pub(super) hca: Arc<H>,
    pub(super) cq: Cq,
    /// Where completions are taken to; empty before the first poll, and during one.
    pub(super) batch: Box<[Completion]>,
    /// Longest payload that is copied while posting, in bytes.
    pub(super) max_inline: usize,
    /// Longest local buffer outside the segments that is copied, in bytes.
    pub(super) copied: usize,
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
    pub(super) peers: HashMap<u32, Peer>,
    pub(super) ops: OpTable,
    pub(super) pool: Pool,
    pub(super) segments: Vec<LocalSegment>,
    /// Work requests posted since the beginning: the clock of the connections' last uses.
    pub(super) posts: u64,
    /// Work requests of operations posted since the beginning, and those of them that do not tell.
    pub(super) requests: u64,
    pub(super) silent: u64,
    /// Peers whose connection is being drained, when operations have completed.
    pub(super) attention: Vec<u32>,
    pub(super) directory: Option<Arc<dyn Directory>>,
    /// Other endpoints of this PE that begin connections, and are closed with this one.
    pub(super) branches: Vec<Arc<Endpoint<H>>>,
    /// Datagrams that wait for the job's identity, without which nobody can say what they are;
    /// `None` once that is known.
    pub(super) sealed: Option<Vec<Sealed>>,
    /// RC work requests posted and not completed.
    pub(super) in_flight: u32,
    /// Which work requests tell of their completion.
    pub(super) telling: Telling,
    /// Those of which the device is not told yet.
    pub(super) held: Held,
    /// Peers towards which the last ones do not.
    pub(super) uncovered: Vec<u32>,
    /// If owners execute atomics: what this takes.
    pub(super) owner: Option<Owner>,
    /// Atomics that owners are to execute, and have not answered.
    pub(super) unanswered: u64,
    /// Completions taken ahead of time, see [`Driver::take_last_receives`].
    pub(super) late: Vec<Completion>,
    /// Peers that are to be connected before they are used.
    pub(super) ahead: Ahead,
    /// What each context has under way.
    pub(super) accounts: Accounts,
    /// Atomics that take several steps.
    pub(super) composer: Composer,
    /// How many of them have not ended.
    pub(super) composed: Gauge,
    pub(super) qps_created: u64,
    pub(super) qps_alive: u32,
    /// RC packets received when last looked at; only kept while closing.
    pub(super) rc_packets: u64,
    /// Inbound operations when last looked at.
    pub(super) inbound: u64,
    /// Told when that changes.
    pub(super) on_inbound: Option<Box<dyn Fn() + Send + Sync>>,
    /// Told of connections that open and close.
    pub(super) on_link: Option<TellLink>,
    /// Queue pairs that are in error, and why.
    pub(super) broken: HashMap<Qpn, ConnError>,
    /// Counts what happens to connections: as long as it is the same, they are.
    pub(super) changes: u64,
    /// Something has happened that another thread may be waiting for.
    pub(super) notify: bool,
    /// Tasks that are to be polled again when something has happened.
    pub(super) wakers: Vec<Waker>,
    /// An operation of this endpoint has written local memory.
    pub(super) fetched: bool,
    /// The HCA has failed, and why; and the same until somebody was told.
    pub(super) failure: Option<ConnError>,
    pub(super) untold_failure: Option<ConnError>,
    /// Nothing may be started any more.
    pub(super) closing: bool,
    /// Threads that sleep until `closed`.
    pub(super) await_end: u32,
    /// Queue pairs and registrations are gone.
    pub(super) closed: bool,
    /// How often the endpoint was opened before this.
    pub(super) opening: u64,
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
        let ud = UdPort::new(&**hca, cq, &config, &mut rng).inspect_err(|_| {
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
        let max_inline = (port.max_inline as usize).min(INLINE_MAX);
        let copied = config.copied.unwrap_or_else(|| copied_on(&port));
        let copied = copied.max(Pool::MAX);
        let held = Held::new(config.hold);
        let telling = Telling::new(
            config.signal_every,
            config.sq_depth,
            most_in_flight(&config),
        );
        let sealed = config.identity_later.then(Vec::new);
        if sealed.is_none() {
            hca.set_key(packet_key(config.job_key));
        }
        Ok(Self {
            hca: Arc::clone(hca),
            cq,
            batch: Box::default(),
            max_inline,
            copied,
            config,
            clock: Instant::now(),
            alarm: None,
            manager,
            xrc,
            address,
            ud: Some(ud),
            peers: HashMap::new(),
            ops: OpTable::default(),
            pool: Pool::new(),
            segments: Vec::new(),
            posts: 0,
            requests: 0,
            silent: 0,
            attention: Vec::new(),
            directory: None,
            branches: Vec::new(),
            sealed,
            in_flight: 0,
            telling,
            held,
            uncovered: Vec::new(),
            owner: by_owner.then(Owner::new),
            unanswered: 0,
            late: Vec::new(),
            ahead: Ahead::default(),
            accounts: Accounts::default(),
            composer: Composer::default(),
            composed,
            qps_created: 0,
            qps_alive: 0,
            rc_packets: 0,
            inbound: 0,
            on_inbound: None,
            on_link: None,
            broken: HashMap::new(),
            changes: 0,
            notify: false,
            wakers: Vec::new(),
            fetched: false,
            failure: None,
            untold_failure: None,
            closing: false,
            await_end: 0,
            closed: false,
            opening: 0,
        })
    }

    /// Goes on as `next`, after the end of this one. Threads that wait for that end, and what the HCA was
    /// told, stay.
    pub(super) fn replace(&mut self, next: Self) {
        let next = Self {
            await_end: self.await_end,
            opening: self.opening + 1,
            alarm: self.alarm,
            wakers: std::mem::take(&mut self.wakers),
            notify: true,
            ..next
        };
        *self = next;
    }

    /// Whether any operation is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.in_flight > 0 || self.unanswered > 0 || self.composed.get() > 0
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
}

const fn most_in_flight(config: &EndpointConfig) -> u32 {
    config.cq_depth - config.ud_depth - SEND_SLOTS
}

/// How many completions atomics that owners execute may have besides.
pub(super) const fn more_completions(by_owner: bool) -> u32 {
    if by_owner {
        RECEIVES + ANSWER_MESSAGES
    } else {
        0
    }
}
