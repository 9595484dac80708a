//! The driver: one engine, one socket, and the threads that share them.
//!
//! # Who moves the wire
//! Two kinds of threads use an HCA: application threads, which post, and poll while they wait
//! for something; and one progress thread, which sleeps in [`Hca::wait`] so that peers are
//! answered while the application computes. The engine is behind one mutex, never held while
//! sleeping.
//!
//! *A post* sends at once if nothing of that queue pair is in flight, or if a batch is
//! full. Otherwise it leaves the packet to the next poll, or to the acknowledgement that is sure to
//! come: a stream of small writes then leaves in trains rather than one system call each.
//!
//! *Sleeping*, and who tells whom of a new deadline, is in `rest`.

use std::io;
use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::engine::{Doorbell, Engine};
use super::faults::{FaultFilter, Faults, Parcel};
use super::memory::RawMemory;
use super::notify::{Notifier, Told};
use super::socket::{
    DATAGRAM_MAX, Event, Pages, Socket, TRAIN_BYTES, TRAIN_PACKETS, TX_TRAINS, Timer, Train, sleep,
};
use super::xrc::{self, SharedWindow};
use crate::rest::{self, Desk, Host, Polls, Ready, Rest, Watch};
use crate::verbs::{
    Access, AddressVector, AsyncEvent, CompChannel, Completion, Counters, Cq, Fabric, Gid, Hca, Mr,
    Mtu, PortInfo, QpAttr, QpInit, QpState, Qpn, RecvWr, Rereg, SendWr, Srq, SrqInit, SrqNum,
    VerbsError, Wake, Xrcd,
};
use crate::wire::PACKET_MAX;

/// UDP port of RoCEv2; a hardware device may be behind it.
const ROCE_PORT: u16 = 4791;
/// After so long without packets the memory that a bulk transfer has touched is given back.
const RELEASE_AFTER_NS: u64 = 20_000_000;
/// Datagrams received before the caller gets its turn, and while a timer is due.
const RECEIVES_PER_PUMP: usize = 16;
const MOST_RECEIVES: usize = 64;
/// Bytes of packets that wait for one send call.
const TX_BUFFER: usize = 2 * TRAIN_BYTES;

/// How a software HCA is to be.
#[derive(Clone, Copy, Debug)]
pub struct SoftConfig {
    /// Address to bind to, and by which peers find this port. Not the unspecified one.
    pub bind: IpAddr,
    /// UDP port to bind to; 0: any. 4791 is the one of RoCEv2.
    pub port: u16,
    /// Payload per packet: [`Mtu::M4096`] on the loopback, [`Mtu::M1024`] on Ethernet.
    pub mtu: Mtu,
    /// Whether peers may be RoCEv2 devices of other makes. Then each packet is sent as a datagram
    /// of its own, and a packet is taken from any UDP port of its sender and with any IPv4
    /// identification ([`crate::wire::icrc::solve_ip_id`] says what that costs). All ports in use
    /// have to be the same, usually 4791.
    pub interop: bool,
    /// Memory that all processes of the XRC domains opened here share, if there is any: see
    /// [`super::xrc`].
    pub shared: Option<SharedWindow>,
    /// Tells nothing of what peers do to the memory, as RDMA devices do not: for tests of those who
    /// have to look for themselves then. See [`PortInfo::notices_inbound`].
    pub silent: bool,
    /// Packets to mistreat, for tests.
    pub faults: Faults,
    /// Decides keys, queue pair numbers and jitter. Keys are as secret as this.
    pub seed: u64,
}

impl SoftConfig {
    /// A port on the loopback, without faults.
    #[must_use]
    pub fn loopback(seed: u64) -> Self {
        Self {
            bind: IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
            port: 0,
            mtu: Mtu::M4096,
            interop: false,
            shared: None,
            silent: false,
            faults: Faults::default(),
            seed,
        }
    }
}

/// A software HCA on a UDP socket. See the module's description for its use of threads.
#[derive(Debug)]
pub struct SoftHca {
    inner: Mutex<Inner>,
    pub(super) socket: Socket,
    pub(super) notifier: Notifier,
    window: SharedWindow,
    fabric: Fabric,
    silent: bool,
    event: Event,
    /// Made by the first sleeper.
    timer: OnceLock<Option<Timer>>,
    polls: Polls,
    /// The engine's count of operations by peers, for those who do not hold the mutex.
    inbound: AtomicU64,
    started: Instant,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(super) engine: Engine<RawMemory>,
    pub(super) told: Told,
    /// Packets to send; empty until the first.
    tx: Pages,
    /// Received datagrams; empty until the first sign of one.
    rx: Pages,
    /// More than the first pages of `rx` are in use.
    rx_bulky: bool,
    /// Whether the kernel takes trains.
    trains: bool,
    faults: Option<FaultFilter>,
    pub(super) rest: Rest,
}

impl SoftHca {
    /// Opens a port.
    ///
    /// # Errors
    /// The address is unspecified, or cannot be bound to.
    pub fn open(config: &SoftConfig) -> Result<Self, VerbsError> {
        if config.bind.is_unspecified() || config.bind.is_multicast() {
            return Err(VerbsError::Io {
                what: format!("cannot bind a software HCA to {}", config.bind),
                source: io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "packets are signed with the address: give the one by which peers find it",
                ),
            });
        }
        let failed = |what: String| move |source| VerbsError::Io { what, source };
        let socket = Socket::bind(config.bind, config.port).map_err(failed(format!(
            "cannot bind a UDP socket to {} port {}",
            config.bind, config.port
        )))?;
        let event = Event::new().map_err(failed("cannot make an event descriptor".into()))?;
        // SAFETY: the engine accesses only registered ranges and the shared window; `reg_mr` and
        // `SharedWindow` make their callers promise that these stay valid.
        let memory = unsafe { RawMemory::new() };
        let mut engine = Engine::new(socket.av(), config.mtu, config.seed, memory);
        engine.set_interop(config.interop);
        let inner = Inner {
            engine,
            told: Told::default(),
            tx: Pages::none(),
            rx: Pages::none(),
            rx_bulky: false,
            // The kernel numbers the packets of a train that it takes apart, which breaks the ICRC.
            trains: !config.interop,
            faults: config.faults.any().then(|| FaultFilter::new(config.faults)),
            rest: Rest::default(),
        };
        Ok(Self {
            inner: Mutex::new(inner),
            socket,
            notifier: Notifier::default(),
            window: config.shared.unwrap_or(SharedWindow::NONE),
            fabric: if config.interop {
                Fabric::Roce
            } else {
                Fabric::Soft
            },
            silent: config.silent,
            event,
            timer: OnceLock::new(),
            polls: Polls::default(),
            inbound: AtomicU64::new(0),
            started: Instant::now(),
        })
    }

    /// The timer descriptor, unless the kernel refuses it.
    fn timer(&self) -> Option<&Timer> {
        self.timer.get_or_init(|| Timer::new().ok()).as_ref()
    }

    pub(super) fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    pub(super) fn lock(&self) -> Locked<'_> {
        Locked {
            hca: self,
            // The engine keeps its invariants at every point where it could panic.
            inner: self.inner.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Receives, lets timers act, and sends. Returns whether anything happened.
    pub(super) fn pump(&self, inner: &mut Inner) -> bool {
        let (mut busy, mut receives) = (false, 0);
        if inner.rx.is_empty() {
            inner.rx = Pages::new(DATAGRAM_MAX);
        }
        // Before a timer acts, everything that has come by its time counts: this process may not
        // have run for a while, here included. So it is told the time before the last look.
        let looked_at = loop {
            let now = self.now();
            inner.engine.counters_mut().recv_calls += 1;
            let Ok(datagram) = self.socket.receive(&mut inner.rx) else {
                break Some(now);
            };
            busy = true;
            inner.rx_bulky |= datagram.len > 4096;
            let bytes = &inner.rx[..datagram.len];
            for packet in bytes.chunks(datagram.packet_len.max(1)) {
                inner.engine.handle_datagram(now, datagram.src, packet);
            }
            // The answer goes out before the look for more: a peer with one operation in flight
            // waits for it.
            self.transmit(inner, now);
            receives += 1;
            if receives >= RECEIVES_PER_PUMP || inner.engine.unpolled() > 0 {
                let due = inner.engine.next_timeout().is_some_and(|at| at <= now);
                if !due || receives >= MOST_RECEIVES {
                    break (receives >= MOST_RECEIVES).then_some(now);
                }
            }
        };
        if busy && !self.silent {
            // Under the lock, so it never goes back. Relaxed: it only tells that something came;
            // whoever wants to see what has to look with acquiring loads anyway.
            let inbound = inner.engine.counters().rdma_inbound;
            self.inbound.store(inbound, Ordering::Relaxed);
        }
        // Posts may have been left for this call even if nothing has come.
        if let Some(now) = looked_at {
            busy |= inner.engine.handle_timeout(now);
            self.transmit(inner, now);
        }
        busy
    }

    /// Sends everything that may be sent.
    fn transmit(&self, inner: &mut Inner, now: u64) {
        if !inner.engine.has_ready() {
            return;
        }
        if inner.tx.is_empty() {
            inner.tx = Pages::new(TX_BUFFER);
        }
        if let Some(mut filter) = inner.faults.take() {
            self.transmit_faulty(inner, now, &mut filter);
            inner.faults = Some(filter);
            return;
        }
        let mut trains = Trains::new(self.socket.av().gid, inner.trains);
        let mut at = 0;
        loop {
            let packet = inner.engine.poll_transmit(now, &mut inner.tx[at..]);
            let mut due = packet.is_none();
            if let Some(t) = packet {
                trains.add(t.dst, at, t.len);
                at += t.len;
                due = t.ends_burst || trains.is_due() || at + PACKET_MAX > inner.tx.len();
            }
            // What is due leaves while the next train is made: the peer works meanwhile.
            if due {
                self.send(inner, trains.as_slice());
                trains.clear(inner.trains);
                at = 0;
            }
            if packet.is_none() {
                return;
            }
        }
    }

    fn send(&self, inner: &mut Inner, mut trains: &[Train]) {
        while !trains.is_empty() {
            inner.engine.counters_mut().send_calls += 1;
            match self.socket.send(&inner.tx, trains) {
                Ok(sent) => trains = &trains[sent.max(1)..],
                Err(e) => {
                    let unsupported = matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EIO));
                    if unsupported && trains[0].packets > 1 {
                        // No segmentation offload on this way: packet by packet from now on.
                        inner.trains = false;
                        self.send_singly(inner, &trains[0]);
                    }
                    // Otherwise the packets of the first train are lost, and will be repeated.
                    trains = &trains[1..];
                }
            }
        }
    }

    fn send_singly(&self, inner: &mut Inner, train: &Train) {
        let mut start = train.start;
        let end = train.start + train.len;
        while start < end {
            let len = train.packet_len.min(end - start);
            let single = Train {
                start,
                len,
                packet_len: len,
                packets: 1,
                ..*train
            };
            inner.engine.counters_mut().send_calls += 1;
            let _ = self.socket.send(&inner.tx, &[single]);
            start += len;
        }
    }

    fn transmit_faulty(&self, inner: &mut Inner, now: u64, filter: &mut FaultFilter) {
        let mut out = Vec::new();
        while let Some(t) = inner.engine.poll_transmit(now, &mut inner.tx) {
            let parcel = Parcel {
                dst: t.dst,
                bytes: inner.tx[..t.len].to_vec(),
            };
            filter.pass(parcel, &mut out);
            for parcel in out.drain(..) {
                let len = parcel.bytes.len();
                let single = Train {
                    dst: parcel.dst,
                    start: 0,
                    len,
                    packet_len: len,
                    packets: 1,
                };
                inner.engine.counters_mut().send_calls += 1;
                let _ = self.socket.send(&parcel.bytes, &[single]);
            }
        }
    }
}

/// The locked HCA.
pub(crate) struct Locked<'a> {
    hca: &'a SoftHca,
    inner: MutexGuard<'a, Inner>,
}

impl Deref for Locked<'_> {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.inner
    }
}

impl Desk for Locked<'_> {
    fn rest(&mut self) -> &mut Rest {
        &mut self.rest
    }

    fn next_timeout(&mut self) -> Option<u64> {
        self.engine.next_timeout()
    }

    fn has_unpolled(&self) -> bool {
        self.engine.unpolled() > 0
    }

    fn pump(&mut self) -> bool {
        self.hca.pump(&mut self.inner)
    }

    fn tidy_at(&self, now: u64) -> Option<u64> {
        self.rx_bulky.then_some(now + RELEASE_AFTER_NS)
    }

    fn tidy(&mut self) {
        self.rx_bulky = false;
        let Inner { rx, tx, .. } = &mut *self.inner;
        rx.release();
        tx.release();
    }
}

impl Host for SoftHca {
    type Desk<'a> = Locked<'a>;

    fn now(&self) -> u64 {
        self.now()
    }

    fn lock(&self) -> Locked<'_> {
        self.lock()
    }

    fn polls(&self) -> &Polls {
        &self.polls
    }

    fn sleep(&self, watch: Watch, time: Duration) -> Ready {
        let socket = watch.wire.then_some(&self.socket);
        let timer = self.timer().filter(|_| watch.wire);
        let event = watch.event.then_some(&self.event);
        let (packet, event, timer) = sleep(socket, event, timer, time);
        Ready {
            packet,
            event,
            timer,
        }
    }

    fn arm(&self, delay: Duration) -> bool {
        let timer = self.timer.get().and_then(Option::as_ref);
        timer.is_some_and(|timer| {
            timer.arm(delay);
            true
        })
    }

    fn take_timer(&self) -> bool {
        self.timer().is_some_and(Timer::take)
    }

    fn raise(&self) {
        self.event.signal();
    }

    fn lower(&self) {
        self.event.take();
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.hca.tell(&mut self.inner);
    }
}

/// Collects packets into trains.
struct Trains {
    list: SmallVec<[Train; 8]>,
    own: Gid,
    enabled: bool,
    /// The last train ended with a shorter packet.
    closed: bool,
}

impl Trains {
    fn new(own: Gid, enabled: bool) -> Self {
        Self {
            list: SmallVec::new(),
            own,
            enabled,
            closed: false,
        }
    }

    fn clear(&mut self, enabled: bool) {
        self.list.clear();
        self.enabled = enabled;
        self.closed = false;
    }

    /// Whether waiting for more packets is of no use.
    fn is_due(&self) -> bool {
        let full = |t: &Train| t.packets == TRAIN_PACKETS || t.len + t.packet_len > TRAIN_BYTES;
        self.list.len() == TX_TRAINS || self.list.last().is_some_and(full)
    }

    fn as_slice(&self) -> &[Train] {
        &self.list
    }

    /// Appends the packet at `start`, behind the one added before.
    fn add(&mut self, dst: AddressVector, start: usize, len: usize) {
        if self.enabled
            && !self.closed
            && let Some(last) = self.list.last_mut()
            && last.dst == dst
            && len <= last.packet_len
            && last.packets < TRAIN_PACKETS
            && last.len + len <= TRAIN_BYTES
            && may_segment(self.own, dst)
        {
            self.closed = len < last.packet_len;
            last.len += len;
            last.packets += 1;
            return;
        }
        self.closed = false;
        self.list.push(Train {
            dst,
            start,
            len,
            packet_len: len,
            packets: 1,
        });
    }
}

/// A train that is segmented on its way gets IP identifications other than 0, which are in the
/// ICRC. Software HCAs do not see them; a device behind the port of RoCEv2 does. On the way to
/// this machine itself nothing is segmented.
fn may_segment(own: Gid, dst: AddressVector) -> bool {
    dst.udp_port != ROCE_PORT || dst.gid == own || dst.gid.ip().is_loopback()
}

impl Hca for SoftHca {
    fn port(&self) -> PortInfo {
        let port = *self.lock().engine.port();
        PortInfo {
            notices_inbound: port.notices_inbound && !self.silent,
            ..port
        }
    }

    fn fabric(&self) -> Fabric {
        self.fabric
    }

    unsafe fn reg_mr(&self, addr: *mut u8, len: usize, access: Access) -> Result<Mr, VerbsError> {
        self.lock()
            .engine
            .reg_mr(addr.expose_provenance() as u64, len as u64, access)
    }

    fn dereg_mr(&self, mr: &Mr) -> Result<(), VerbsError> {
        self.lock().engine.dereg_mr(mr)
    }

    unsafe fn rereg_mr(&self, mr: &mut Mr, change: Rereg) -> Result<(), VerbsError> {
        let range = change.range.map(|(addr, len)| {
            let addr = addr.expose_provenance() as u64;
            (addr, len as u64)
        });
        self.lock().engine.rereg_mr(mr, range, change.access)
    }

    fn create_cq(&self, depth: u32, channel: Option<CompChannel>) -> Result<Cq, VerbsError> {
        self.lock().engine.create_announcing_cq(depth, channel)
    }

    fn destroy_cq(&self, cq: Cq) -> Result<(), VerbsError> {
        self.lock().engine.destroy_cq(cq)
    }

    fn create_comp_channel(&self) -> Result<CompChannel, VerbsError> {
        self.new_channel()
    }

    fn destroy_comp_channel(&self, channel: CompChannel) -> Result<(), VerbsError> {
        self.lock().engine.destroy_comp_channel(channel)
    }

    fn req_notify_cq(&self, cq: Cq, solicited_only: bool) -> Result<(), VerbsError> {
        self.lock().engine.req_notify_cq(cq, solicited_only)
    }

    fn get_cq_event(&self, channel: CompChannel) -> Option<Cq> {
        self.next_cq_event(channel)
    }

    fn comp_channel_fd(&self, channel: CompChannel) -> Result<BorrowedFd<'_>, VerbsError> {
        self.channel_fd(channel)
    }

    fn create_srq(&self, init: &SrqInit) -> Result<Srq, VerbsError> {
        self.lock().engine.create_srq(init)
    }

    fn arm_srq(&self, srq: Srq, limit: u32) -> Result<(), VerbsError> {
        self.lock().engine.arm_srq(srq, limit)
    }

    fn srq_num(&self, srq: Srq) -> Result<SrqNum, VerbsError> {
        self.lock().engine.srq_num(srq)
    }

    fn destroy_srq(&self, srq: Srq) -> Result<(), VerbsError> {
        self.lock().engine.destroy_srq(srq)
    }

    unsafe fn post_srq_recv(&self, srq: Srq, wr: &RecvWr<'_>) -> Result<(), VerbsError> {
        self.lock().engine.post_srq_recv(srq, wr)
    }

    fn open_xrcd(&self, domain: Option<BorrowedFd<'_>>) -> Result<Xrcd, VerbsError> {
        xrc::open(&mut self.lock().engine, domain, self.window)
    }

    fn close_xrcd(&self, xrcd: Xrcd) -> Result<(), VerbsError> {
        self.lock().engine.close_xrcd(xrcd)
    }

    fn create_qp(&self, init: &QpInit) -> Result<Qpn, VerbsError> {
        self.lock().engine.create_qp(init)
    }

    fn modify_qp(&self, qp: Qpn, attr: &QpAttr) -> Result<(), VerbsError> {
        let mut inner = self.lock();
        inner.engine.modify_qp(qp, attr)?;
        if *attr == QpAttr::Resume {
            // What was posted meanwhile would otherwise wait for the next poll.
            let now = self.now();
            self.transmit(&mut inner, now);
            rest::announce(self, &mut inner, now);
        }
        Ok(())
    }

    fn query_qp(&self, qp: Qpn) -> Result<QpState, VerbsError> {
        self.lock().engine.query_qp(qp)
    }

    fn inbound_mark(&self, qp: Qpn) -> Option<u32> {
        if self.silent {
            return None;
        }
        self.lock().engine.inbound_mark(qp)
    }

    fn destroy_qp(&self, qp: Qpn) -> Result<(), VerbsError> {
        self.lock().engine.destroy_qp(qp)
    }

    unsafe fn post_send(&self, qp: Qpn, wr: &SendWr<'_>) -> Result<(), VerbsError> {
        let mut inner = self.lock();
        if inner.engine.post_send(qp, wr)? == Doorbell::Now {
            let now = self.now();
            self.transmit(&mut inner, now);
            rest::announce(self, &mut inner, now);
        }
        Ok(())
    }

    unsafe fn post_recv(&self, qp: Qpn, wr: &RecvWr<'_>) -> Result<(), VerbsError> {
        self.lock().engine.post_recv(qp, wr)
    }

    fn poll_cq(&self, cq: Cq, out: &mut [Completion]) -> usize {
        self.polls.bump();
        let mut inner = self.lock();
        if inner.engine.cq_is_empty(cq) {
            self.pump(&mut inner);
            if inner.rest.anybody() {
                let now = self.now();
                rest::announce(self, &mut inner, now);
            }
        }
        inner.engine.poll_cq(cq, out)
    }

    fn poll_async(&self) -> Option<AsyncEvent> {
        self.next_async()
    }

    fn async_fd(&self) -> Result<BorrowedFd<'_>, VerbsError> {
        self.event_fd()
    }

    fn wait(&self, max: Duration) -> Wake {
        self.timer(); // so that posters find it from the first sleep on
        rest::wait(self, None, max)
    }

    fn wakes(&self) -> u64 {
        rest::wakes(self)
    }

    fn wait_since(&self, wakes: u64, max: Duration) -> Wake {
        self.timer();
        rest::wait(self, Some(wakes), max)
    }

    fn set_alarm(&self, after: Option<Duration>) {
        rest::set_alarm(self, after);
    }

    fn wake(&self) {
        rest::wake(self);
    }

    fn counters(&self) -> Counters {
        let mut counters = self.lock().engine.counters();
        if self.silent {
            (counters.rdma_inbound, counters.packets_received) = (0, 0);
        }
        counters
    }

    fn inbound(&self) -> u64 {
        self.inbound.load(Ordering::Relaxed)
    }
}
