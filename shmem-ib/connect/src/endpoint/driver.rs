//! What an endpoint's lock protects: the connection manager, the queue pairs, and the
//! operations under way. Executes the manager's actions on the HCA and handles completions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use super::accounts::{Accounts, Gauge};
use super::amo::{ANSWER_MESSAGES, ANSWER_SLOTS, Owner, RECEIVES};
use super::buffers::{LocalSegment, Pool};
use super::compose::Composer;
use super::config::{Directory, EndpointConfig, Transport};
use super::contact::Ahead;
use super::error::ConnError;
use super::ops::{OpId, OpTable};
use super::peer::Peer;
use super::ud::UdPort;
use super::xrc::XrcDomain;
use crate::UdAddress;
use crate::interface::Failure;
use crate::manager::Manager;
use crate::message::{MAX_LEN, Message};
use shmem_verbs::rng::Rng;
use shmem_verbs::{
    Access, Completion, Cq, Hca, Psn, QpAttr, QpInit, QpType, Qpn, VerbsError, WcStatus,
};

/// Most completions taken from the HCA at a time.
const BATCH: usize = 32;

/// Datagrams kept until the job's identity is known.
const SEALED_MAX: usize = 64;

/// A datagram and its length.
type Sealed = ([u8; MAX_LEN], usize);

/// What a `wr_id` stands for: the upper 8 bits say which kind, the others which one.
pub(super) const KIND_SHIFT: u32 = 56;
pub(super) const KIND_RC: u64 = 0;
const KIND_UD_RECV: u64 = 1;
const KIND_UD_SEND: u64 = 2;
const KIND_AMO_RECV: u64 = 3;
const KIND_AMO_SENT: u64 = 4;

pub(super) fn ud_recv_id(slot: u32) -> u64 {
    KIND_UD_RECV << KIND_SHIFT | u64::from(slot)
}

fn ud_send_id(slot: u32) -> u64 {
    KIND_UD_SEND << KIND_SHIFT | u64::from(slot)
}

pub(super) fn amo_recv_id(slot: u32) -> u64 {
    KIND_AMO_RECV << KIND_SHIFT | u64::from(slot)
}

pub(super) fn amo_sent_id(slot: u16) -> u64 {
    KIND_AMO_SENT << KIND_SHIFT | u64::from(slot)
}

pub(super) struct Driver<H> {
    pub(super) hca: Arc<H>,
    pub(super) cq: Cq,
    /// Where completions are taken to; empty before the first poll, and during one.
    batch: Box<[Completion]>,
    /// Longest payload that is copied while posting, in bytes.
    pub(super) max_inline: usize,
    pub(super) config: EndpointConfig,
    clock: Instant,
    /// The deadline that the HCA knows.
    alarm: Option<u64>,
    pub(super) manager: Manager,
    /// With transport XRC: this PE in its node.
    pub(super) xrc: Option<XrcDomain>,
    /// XRC initiators that are in error, for peers that are reached over them later.
    pub(super) broken_qps: HashMap<Qpn, ConnError>,
    /// Where peers send connection messages to.
    pub(super) address: UdAddress,
    pub(super) ud: Option<UdPort>,
    pub(super) peers: HashMap<u32, Peer>,
    pub(super) ops: OpTable,
    pub(super) pool: Pool,
    pub(super) segments: Vec<LocalSegment>,
    /// Work requests posted since the beginning: the clock of the connections' last uses.
    pub(super) posts: u64,
    /// Peers whose connection is being drained when operations have completed.
    pub(super) attention: Vec<u32>,
    pub(super) directory: Option<Arc<dyn Directory>>,
    /// Datagrams that wait for the job's identity, without which nobody can say what they are;
    /// `None` once that is known.
    pub(super) sealed: Option<Vec<Sealed>>,
    /// RC work requests posted and not completed.
    pub(super) in_flight: u32,
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
    rc_packets: u64,
    /// Inbound operations when last looked at.
    inbound: u64,
    /// Told when that changes.
    pub(super) on_inbound: Option<Box<dyn Fn() + Send + Sync>>,
    /// Something has happened that another thread may be waiting for.
    pub(super) notify: bool,
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
            .create_cq(config.cq_depth + more_completions(by_owner), None)
            .map_err(ConnError::verbs("create a completion queue"))?;
        let ud = UdPort::new(&**hca, cq, &config, &mut rng, ud_recv_id).inspect_err(|_| {
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
        let max_inline = (port.max_inline as usize).min(super::rma::INLINE_MAX);
        let sealed = config.identity_later.then(Vec::new);
        Ok(Self {
            hca: Arc::clone(hca),
            cq,
            batch: Box::default(),
            max_inline,
            config,
            clock: Instant::now(),
            alarm: None,
            manager,
            xrc,
            broken_qps: HashMap::new(),
            address,
            ud: Some(ud),
            peers: HashMap::new(),
            ops: OpTable::default(),
            pool: Pool::new(),
            segments: Vec::new(),
            posts: 0,
            attention: Vec::new(),
            directory: None,
            sealed,
            in_flight: 0,
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
            notify: false,
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
            notify: true,
            ..next
        };
        *self = next;
    }

    /// Whether any operation is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.in_flight > 0 || self.unanswered > 0 || self.composed.get() > 0
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

    pub(super) fn describe(&self, pe: u32) -> String {
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

    /// When a connection timer is due.
    fn deadline(&mut self) -> Option<u64> {
        if self.closed {
            return None;
        }
        self.manager.next_timeout()
    }

    /// Has the HCA wake a thread for the next deadline, if it is not the one that it knows.
    pub(super) fn set_alarm(&mut self) {
        let next = self.deadline();
        if next != self.alarm {
            self.alarm = next;
            let now = self.now();
            let after = next.map(|at| Duration::from_nanos(at.saturating_sub(now)));
            self.hca.set_alarm(after);
        }
    }

    /// Takes completions and lets timers act. Returns whether anything happened, operations of
    /// peers included.
    pub(super) fn poll(&mut self) -> bool {
        if self.closed {
            return false;
        }
        let mut busy = self.poll_once();
        // What closing connections took ahead of time must not wait until the next packet comes.
        while !self.late.is_empty() {
            busy |= self.poll_once();
        }
        busy
    }

    fn poll_once(&mut self) -> bool {
        // Kept between calls: filling it anew would cost a poller as much as the rest of this.
        let mut batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            batch = vec![Completion::EMPTY; BATCH].into_boxed_slice();
        }
        let mut busy = self.take_late();
        loop {
            let n = self.hca.poll_cq(self.cq, &mut batch);
            busy |= n > 0;
            for completion in &batch[..n] {
                self.completed(completion);
            }
            self.take_late();
            if n < BATCH {
                break;
            }
        }
        self.batch = batch;
        if !self.ahead.is_idle() {
            self.connect_more();
        }
        if self.composer.is_held_up() {
            self.resume_steps();
        }
        if self.has_answers() {
            self.send_answers();
        }
        if self.unanswered > 0 {
            self.probe_silent();
        }
        if self.closing {
            self.note_rc_traffic();
        }
        if let Some(at) = self.deadline() {
            let now = self.now();
            if at <= now {
                self.manager.handle_timeout(now);
                self.act();
                busy = true;
            }
        }
        let inbound = self.hca.inbound();
        let executed = self.owner.as_mut().is_some_and(Owner::has_executed);
        if inbound != self.inbound || executed {
            self.inbound = inbound;
            busy = true;
            if let Some(tell) = &self.on_inbound {
                tell();
            }
        }
        if !self.attention.is_empty() {
            self.attend();
        }
        if self.manager.is_short() {
            self.make_room();
            self.act();
        }
        // Another thread may have found what the one that closes sleeps for.
        self.notify |= self.closing && self.manager.has_left();
        self.look_for_failure();
        busy
    }

    /// While this PE leaves, RC packets tell that peers still have operations under way.
    fn note_rc_traffic(&mut self) {
        let c = self.hca.counters();
        let others = c.ud_received + c.dropped + c.icrc_errors;
        let packets = c.packets_received.saturating_sub(others);
        if packets != self.rc_packets {
            self.rc_packets = packets;
            let now = self.now();
            self.manager.traffic_seen(now);
        }
    }

    /// Handles completions that were taken ahead of time; returns whether there were any.
    fn take_late(&mut self) -> bool {
        let any = !self.late.is_empty();
        while !self.late.is_empty() {
            for completion in std::mem::take(&mut self.late) {
                self.completed(&completion);
            }
        }
        any
    }

    fn completed(&mut self, completion: &Completion) {
        let which = completion.wr_id & ((1 << KIND_SHIFT) - 1);
        match completion.wr_id >> KIND_SHIFT {
            KIND_RC => self.rc_completed(OpId::from_bits(which), completion.status),
            KIND_UD_RECV => self.datagram(which as u32, completion),
            KIND_AMO_RECV => self.message_received(which as u32, completion),
            KIND_AMO_SENT => self.answer_sent(which as u16, completion),
            _ => {
                if let Some(ud) = &mut self.ud {
                    ud.sent(which as u32);
                }
                if !matches!(completion.status, WcStatus::Success | WcStatus::WrFlushErr) {
                    self.datagrams_failed("sending", completion.status);
                }
            }
        }
    }

    fn datagram(&mut self, slot: u32, completion: &Completion) {
        let Some(ud) = &self.ud else { return };
        match completion.status {
            WcStatus::Success => {}
            WcStatus::WrFlushErr => return,
            status => return self.datagrams_failed("receiving", status),
        }
        let (bytes, len) = ud.received(slot, completion);
        // The slot was taken from the queue by this completion, so there is room for it.
        let _ = ud.post_receive(&*self.hca, slot, ud_recv_id(slot));
        match &mut self.sealed {
            None => self.datagram_in(&bytes[..len]),
            // As for one that finds no receive: it will be sent again.
            Some(sealed) if sealed.len() == SEALED_MAX => {}
            Some(sealed) => sealed.push((bytes, len)),
        }
    }

    fn datagram_in(&mut self, bytes: &[u8]) {
        let now = self.now();
        // What is not for us is dropped silently, and counted by the manager.
        let _ = self.manager.handle_datagram(now, bytes);
        self.act();
    }

    /// From here on messages can be read and written.
    pub(super) fn set_identity(&mut self, job_id: [u8; 16], job_key: &'static [u8; 32]) {
        let Some(sealed) = self.sealed.take() else {
            return;
        };
        let by_owner = self.owner.is_some();
        let identity = self.config.identity(job_id, job_key, by_owner);
        self.manager.set_identity(&identity);
        for (bytes, len) in sealed {
            self.datagram_in(&bytes[..len]);
        }
    }

    /// Executes what the manager wants done.
    pub(super) fn act(&mut self) {
        while let Some((pe, action)) = self.manager.poll_action() {
            self.perform(pe, action);
        }
    }

    pub(super) fn send(&mut self, to: &UdAddress, message: &Message) {
        let mut bytes = [0; MAX_LEN];
        let len = self.manager.encode(message, &mut bytes);
        if let Some(ud) = &mut self.ud {
            ud.send(&*self.hca, to, &bytes[..len], ud_send_id);
        }
    }

    /// Operations towards `pe` may be posted to `qpn` from now on.
    pub(super) fn opened(&mut self, pe: u32, qpn: Qpn) {
        self.posts += 1;
        let peer = self.peers.entry(pe).or_default();
        peer.open = Some(qpn);
        peer.draining = false;
        peer.entitled = peer.waiters;
        peer.used = self.posts;
        peer.left = false;
        if let Some(error) = self.broken_qps.get(&qpn) {
            peer.broken.get_or_insert_with(|| error.clone());
        }
        self.notify = true;
    }

    pub(super) fn qp_init(&self, ty: QpType) -> QpInit {
        QpInit {
            max_send_wr: self.config.sq_depth + self.owner.as_ref().map_or(0, |_| ANSWER_SLOTS),
            max_inline: self.max_inline as u32,
            ..QpInit::new(ty, self.cq)
        }
    }

    pub(super) fn create_qp(&mut self, init: &QpInit, attr: QpAttr) -> Result<Qpn, VerbsError> {
        let qpn = self.hca.create_qp(init)?;
        if let Err(e) = self.hca.modify_qp(qpn, &attr) {
            let _ = self.hca.destroy_qp(qpn);
            return Err(e);
        }
        self.qps_created += 1;
        self.qps_alive += 1;
        Ok(qpn)
    }

    /// Moves a queue pair from RTR to RTS.
    pub(super) fn start_sending(
        &self,
        qpn: Qpn,
        sq_psn: Psn,
        max_rd_atomic: u8,
    ) -> Result<(), VerbsError> {
        let rts = QpAttr::Rts {
            sq_psn,
            timeout: self.config.rc_timeout,
            retry_cnt: self.config.rc_retry,
            // Without limit: peers post receives again as long as they live.
            rnr_retry: if self.owner.is_some() { 7 } else { 0 },
            max_rd_atomic,
        };
        self.hca.modify_qp(qpn, &rts)
    }

    pub(super) fn destroy_qp(&mut self, qpn: Qpn) -> bool {
        self.take_last_receives(qpn);
        let gone = self.hca.destroy_qp(qpn).is_ok();
        self.qps_alive -= u32::from(gone);
        gone
    }

    pub(super) fn connect_failed(&mut self, pe: u32, failure: Failure) {
        let name = self.describe(pe);
        let peer = self.peers.entry(pe).or_default();
        peer.failures += 1;
        peer.failure = Some(match failure {
            Failure::Silence { nanos, sent } => ConnError::Unreachable {
                peer: name,
                address: peer.address.map_or_else(|| "?".into(), |a| a.to_string()),
                sent,
                silent: Duration::from_millis(nanos / 1_000_000),
            },
            Failure::QueuePair(why) => ConnError::QueuePair { peer: name, why },
            Failure::PeerLeft => ConnError::PeerLeft { peer: name },
        });
        self.notify = true;
    }

    /// The connection to `pe` is beyond repair.
    pub(super) fn broke(&mut self, pe: u32, error: ConnError) {
        match self.peers.get(&pe).and_then(|peer| peer.open) {
            Some(qpn) => self.broke_over(pe, qpn, error),
            None => {
                let peer = self.peers.entry(pe).or_default();
                peer.broken.get_or_insert(error);
                self.expect_no_answers(pe);
                self.notify = true;
            }
        }
    }

    /// Queue pair `qpn`, which leads to `pe`, is beyond repair, and so it is for all who share it.
    pub(super) fn broke_over(&mut self, pe: u32, qpn: Qpn, error: ConnError) {
        if self.xrc.is_some() {
            self.broken_qps.entry(qpn).or_insert_with(|| error.clone());
        }
        let mut sharers = self.reached_over(pe, qpn);
        if !sharers.contains(&pe) {
            sharers.push(pe);
        }
        for sharer in sharers {
            let peer = self.peers.entry(sharer).or_default();
            peer.broken.get_or_insert_with(|| error.clone());
            self.expect_no_answers(sharer);
        }
        self.notify = true;
    }

    /// The peer's entry if its connection is open and sound, and does not make room for another.
    pub(super) fn usable(&self, pe: u32) -> Result<Option<&Peer>, ConnError> {
        if self.closing {
            return Err(self.over());
        }
        let Some(peer) = self.peers.get(&pe) else {
            return Ok(None);
        };
        if let Some(error) = &peer.broken {
            return Err(error.clone());
        }
        if peer.left && peer.open.is_some() {
            let peer = self.describe(pe);
            return Err(ConnError::PeerLeft { peer });
        }
        Ok((peer.open.is_some() && !peer.draining).then_some(peer))
    }

    /// Destroys all queue pairs and registrations. Operations under way are forgotten.
    pub(super) fn tear_down(&mut self) {
        self.closing = true;
        self.closed = true;
        let mut quiet = true;
        for qpn in self.manager.queue_pairs() {
            // Without this the HCA might still use the buffers that are freed below.
            quiet &= self.destroy_qp(qpn);
        }
        if let Some(ud) = self.ud.take() {
            ud.release(&*self.hca);
        }
        for id in self.ops.unfinished() {
            self.lose(id);
        }
        if quiet {
            self.pool.release(&*self.hca);
            if let Some(owner) = self.owner.take() {
                owner.release(&*self.hca);
            }
        }
        for segment in self.segments.drain(..) {
            let _ = self.hca.dereg_mr(&segment.mr);
        }
        if let Some(xrc) = self.xrc.take() {
            xrc.release(&*self.hca);
        }
        // What still reports to it could not be destroyed, and ends with the HCA.
        let _ = self.hca.destroy_cq(self.cq);
        self.peers.clear();
        (self.in_flight, self.unanswered) = (0, 0);
        self.composer = Composer::default();
        self.notify = true;
    }
}

/// How many completions atomics that owners execute may have besides.
pub(super) const fn more_completions(by_owner: bool) -> u32 {
    if by_owner {
        RECEIVES + ANSWER_MESSAGES
    } else {
        0
    }
}

pub(super) const INIT: QpAttr = QpAttr::Init {
    access: Access::ALL,
    qkey: None,
};

/// An XRC initiator answers nobody.
pub(super) const INIT_INITIATOR: QpAttr = QpAttr::Init {
    access: Access::NONE,
    qkey: None,
};
