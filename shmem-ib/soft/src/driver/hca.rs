//! The driver: one engine, one socket, and the threads that share them.
//!
//! # Who moves the wire
//! Two kinds of threads use an HCA: application threads, which post, and poll while they wait
//! for something; and one progress thread, which sleeps in [`wait`](shmem_verbs::Hca::wait) so that
//! peers are answered while the application computes. The engine is behind one mutex, never held while
//! sleeping.
//!
//! *A post* sends at once if nothing of that queue pair is in flight, or if a batch is
//! full. Otherwise it leaves the packet to the next poll, or to the acknowledgement that is sure to
//! come: a stream of small writes then leaves in trains rather than one system call each.
//!
//! *Sleeping*, and who tells whom of a new deadline, is in [`shmem_verbs::provider::sleep`].

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::config::SoftConfig;
use super::cutting::Cutting;
use super::faults::{FaultFilter, Parcel};
use super::outbox::{Next, Outbox};
use super::pages::Pages;
use super::socket::{Around, DATAGRAM_MAX, Frame, Socket, TRAIN_BYTES, secret, sleep};
use super::streams::links::Links;
use super::streams::sockets::{Epoll as StreamEpoll, How};
use crate::engine::Engine;
use crate::memory::RawMemory;
use crate::memory::mr::Memory;
use crate::stream::StreamConfig;
use crate::wire::{PACKET_MAX, STANDARD_MAX};
use crate::xrc::SharedWindow;
use shmem_verbs::provider::sleep::{Desk, Host, Polls, Ready, Rest, Watch};
use shmem_verbs::provider::{Event, Timer, Troubles};
use shmem_verbs::{AddressVector, Cq, Fabric, Failure, Mtu, VerbsError};

/// After so long without packets the memory that a bulk transfer has touched is given back.
const RELEASE_AFTER_NS: u64 = 20_000_000;
/// Datagrams received before the caller gets its turn, and while a timer is due.
const RECEIVES_PER_PUMP: usize = 16;
const MOST_RECEIVES: usize = 64;
/// Bytes sent before others get their turn. Requests are paced by acknowledgements, and so are answers
/// to READs of software HCAs, which ask for little at a time; others may ask for a gigabyte at once.
pub(super) const BYTES_PER_PUMP: usize = 1 << 20;
/// Bytes of packets that wait for one send call.
const TX_BUFFER: usize = 2 * TRAIN_BYTES;

/// A software HCA on a UDP socket. See the module's description for its use of threads.
#[derive(Debug)]
pub struct SoftHca {
    inner: Mutex<Inner>,
    pub(super) socket: Socket,
    pub(super) window: SharedWindow,
    pub(super) fabric: Fabric,
    pub(super) silent: bool,
    pub(super) event: Event,
    /// How sockets of streams are to be.
    pub(super) streams: How,
    /// Watches them. Made with the first.
    pub(super) epoll: OnceLock<StreamEpoll>,
    /// Made by the first sleeper.
    timer: OnceLock<Option<Timer>>,
    pub(super) polls: Polls,
    /// The engine's count of operations by peers, for those who do not hold the mutex.
    pub(super) inbound: AtomicU64,
    /// The kernel has no room for what is to be sent. Relaxed: whoever sleeps without knowing is
    /// woken.
    full: AtomicBool,
    pub(super) failed: OnceLock<Failure>,
    started: Instant,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) engine: Engine<RawMemory>,
    /// Whether routers may cut packets.
    cutting: Cutting,
    /// Packets to send; empty until the first.
    tx: Pages,
    /// Received datagrams; empty until the first sign of one.
    rx: Pages,
    /// The last datagram was a long packet, so that it is worth to look where the next one belongs.
    bulk: bool,
    /// More than the first pages of `rx` are in use.
    rx_bulky: bool,
    pub(super) outbox: Outbox,
    pub(super) links: Links,
    /// Sending has stopped so that others get their turn, and is to go on at once.
    pub(super) cut_short: bool,
    /// Nothing can be received.
    deaf: Troubles<()>,
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
        let socket = Socket::bind(config).map_err(failed(format!(
            "cannot bind a UDP socket to {} port {}",
            config.bind,
            match config.ports {
                (first, last) if first == last => first.to_string(),
                (first, last) => format!("{first} to {last}"),
            }
        )))?;
        let event = Event::new().map_err(failed("cannot make an event descriptor".into()))?;
        // SAFETY: the engine accesses only registered ranges and the shared window; `reg_mr` and
        // `SharedWindow` make their callers promise that these stay valid.
        let memory = unsafe { RawMemory::new() };
        let mut engine = Engine::new(socket.av(), config.mtu, config.seed, memory);
        engine.set_interop(config.interop);
        engine.set_lane(config.lane);
        // Faults keep packets back.
        engine.set_lending(!config.faults.any());
        if config.shares && !config.interop {
            engine.set_receive_buffer(socket.receive_buffer());
        }
        if let Some(from) = config.stream
            && !config.interop
            && config.mtu <= Mtu::M4096
        {
            engine.set_streams(StreamConfig::from_bytes(from));
        }
        engine.set_secret(secret().map_err(failed("cannot read random bytes".into()))?);
        let inner = Inner {
            engine,
            cutting: Cutting::default(),
            tx: Pages::none(),
            rx: Pages::none(),
            rx_bulky: false,
            bulk: false,
            // The kernel numbers the packets of a train that it takes apart, which breaks the ICRC.
            outbox: Outbox::new(socket.av().gid, config.interop),
            links: Links::default(),
            cut_short: false,
            deaf: Troubles::default(),
            faults: config.faults.any().then(|| FaultFilter::new(config.faults)),
            rest: Rest::default(),
        };
        Ok(Self {
            inner: Mutex::new(inner),
            socket,
            window: config.shared.unwrap_or(SharedWindow::NONE),
            fabric: if config.interop {
                Fabric::Roce
            } else {
                Fabric::Soft
            },
            silent: config.silent,
            event,
            streams: How::from(config),
            epoll: OnceLock::new(),
            timer: OnceLock::new(),
            polls: Polls::default(),
            inbound: AtomicU64::new(0),
            full: AtomicBool::new(false),
            failed: OnceLock::new(),
            started: Instant::now(),
        })
    }

    /// The timer descriptor, unless the kernel refuses it.
    pub(super) fn timer(&self) -> Option<&Timer> {
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
        let (mut busy, mut receives, mut left) = (false, 0, BYTES_PER_PUMP);
        inner.engine.polled();
        if inner.rx.is_empty() {
            inner.rx = Pages::new(DATAGRAM_MAX);
        }
        if inner.links.any() {
            let now = self.now();
            busy = self.pump_streams(inner, now);
        }
        // Before a timer acts, everything that has come by its time counts: this process may not
        // have run for a while, here included. So it is told the time before the last look.
        let looked_at = loop {
            let now = self.now();
            let executed = inner.engine.counters().rdma_inbound;
            if let Err(e) = self.receive(inner, now) {
                self.not_received(inner, now, &e);
                break Some(now);
            }
            busy = true;
            // The answer goes out before the look for more: a peer with one operation in flight
            // waits for it.
            self.transmit(inner, now, &mut left);
            receives += 1;
            if left == 0 {
                break None;
            }
            // Whoever waits for completions, or for the memory, looks at them before the next packet is
            // looked for.
            let changed = inner.engine.counters().rdma_inbound != executed;
            if changed || receives >= RECEIVES_PER_PUMP || inner.engine.unpolled() > 0 {
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
            if let Some(peer) = inner.engine.take_unheard() {
                self.unheard(inner, peer, now);
            }
            if inner.cutting.ends(now) {
                self.keep_whole(inner);
            }
            self.transmit(inner, now, &mut left);
        }
        busy || left == 0
    }

    /// Nothing comes back from a peer, or it asks for the same again and again: a router on the way may take no packets of
    /// this length.
    #[cold]
    fn unheard(&self, inner: &mut Inner, peer: AddressVector, now: u64) {
        let here = peer.gid == self.socket.av().gid || peer.gid.ip().is_loopback();
        // Devices of other makes know the numbers of packets, which are not those of the ICRC when these may be cut.
        if here || self.fabric != Fabric::Soft || !inner.cutting.begins(now) {
            return;
        }
        // Where the kernel refuses, nothing is worse than before.
        let _ = self.socket.let_cut();
    }

    #[cold]
    fn keep_whole(&self, inner: &mut Inner) {
        // Shorter packets than before went out as trains no more.
        inner.outbox.try_trains_again();
        let _ = self.socket.keep_whole();
    }

    /// Has the engine handle the next datagram.
    fn receive(&self, inner: &mut Inner, now: u64) -> io::Result<()> {
        let Inner {
            engine, rx, bulk, ..
        } = inner;
        if *bulk {
            let mut frame = Frame::EMPTY;
            engine.counters_mut().recv_calls += 1;
            let place = |src, front: &[u8], len| engine.place(src, front, len);
            // SAFETY: the engine names only registered memory, see `RawMemory::new`.
            if let Some(got) = unsafe { self.socket.receive_around(&mut frame, place)? } {
                let Around { src, place, tail } = got;
                engine.counters_mut().recv_calls += 1;
                let (head, tail) = (&frame.head[..place.head], &frame.tail[..tail]);
                engine.handle_placed(now, src, place, head, tail);
                return Ok(());
            }
        }
        engine.counters_mut().recv_calls += 1;
        let datagram = self.socket.receive(rx)?;
        let long = datagram.len > STANDARD_MAX;
        *bulk = long && datagram.packet_len == datagram.len;
        inner.rx_bulky |= long;
        for packet in rx[..datagram.len].chunks(datagram.packet_len.max(1)) {
            engine.handle_datagram(now, datagram.src, packet);
        }
        Ok(())
    }

    /// Most often there is just nothing to receive.
    fn not_received(&self, inner: &mut Inner, now: u64, error: &io::Error) {
        match error.kind() {
            io::ErrorKind::WouldBlock => inner.deaf.over(&()),
            io::ErrorKind::Interrupted => {}
            _ => {
                if inner.deaf.met((), now) {
                    let reason = format!("its socket receives nothing any more: {error}");
                    self.fail(&mut inner.rest, None, reason);
                }
            }
        }
    }

    /// Sends everything that may be sent, as far as the kernel has room, and until `left` bytes of datagrams are used
    /// up.
    pub(super) fn transmit(&self, inner: &mut Inner, now: u64, left: &mut usize) {
        loop {
            if inner.engine.streams_wait() {
                self.tend_streams(inner);
            }
            self.transmit_datagrams(inner, now, left);
            // Queue pairs that send by a stream have told so in their turn, and some may go back to datagrams.
            if !inner.engine.streams_wait() {
                return;
            }
            let spent = self.transmit_streams(inner, now);
            if spent || inner.engine.streams_wait() && !inner.engine.has_ready() {
                // More than one turn; or something is to be closed.
                self.tend_streams(inner);
                inner.cut_short |= spent || inner.engine.streams_wait();
                return;
            }
        }
    }

    fn transmit_datagrams(&self, inner: &mut Inner, now: u64, left: &mut usize) {
        // What waits lies in the buffer, and goes first.
        inner.cut_short = false;
        if !self.flush(inner, now) || !inner.engine.has_ready() {
            return;
        }
        if inner.tx.is_empty() {
            inner.tx = Pages::new(TX_BUFFER);
        }
        if let Some(mut filter) = inner.faults.take() {
            self.transmit_faulty(inner, now, left, &mut filter);
            inner.faults = Some(filter);
        } else {
            self.transmit_trains(inner, now, left);
        }
        let more = inner.engine.has_ready() && inner.outbox.waiting().is_empty();
        inner.cut_short = *left == 0 && more;
    }

    fn transmit_trains(&self, inner: &mut Inner, now: u64, left: &mut usize) {
        let mut at = 0;
        loop {
            let packet = match *left {
                0 => None,
                _ => inner.engine.poll_transmit(now, &mut inner.tx[at..]),
            };
            let mut due = packet.is_none();
            if let Some(t) = packet {
                inner.outbox.add(t.dst, at, t.len, t.lent);
                at += t.len;
                *left = left.saturating_sub(t.len);
                due = t.ends_burst || inner.outbox.is_due() || at + PACKET_MAX > inner.tx.len();
            }
            // What is due leaves while the next train is made: the peer works meanwhile.
            if due {
                if !self.flush(inner, now) {
                    return;
                }
                at = 0;
            }
            if packet.is_none() {
                return;
            }
        }
    }

    /// Hands to the kernel what waits for it; returns whether all of it is out of the buffer.
    fn flush(&self, inner: &mut Inner, now: u64) -> bool {
        let Inner {
            outbox, tx, engine, ..
        } = inner;
        while !outbox.waiting().is_empty() {
            engine.counters_mut().send_calls += 1;
            // SAFETY: what is lent lies in registered memory, see `RawMemory::new`, and `keep` lets nothing stay lent
            // for longer than the engine is locked.
            let answer = unsafe { self.socket.send(tx, outbox.waiting()) };
            let refused = answer.is_err();
            let next = outbox.answered(now, answer);
            if next == Next::Wait {
                outbox.keep(|at, lent| {
                    let gap = &mut tx[at..at + lent.len];
                    engine.memory_mut().read(lent.addr, gap);
                });
                // A thread that sleeps already does not watch for room yet.
                if !self.full.swap(true, Ordering::Relaxed) && inner.rest.anybody() {
                    self.event.signal();
                }
                return false;
            }
            engine.counters_mut().send_refusals += u64::from(refused);
            if let Next::Fail(refusal) = next {
                self.fail(&mut inner.rest, Some(refusal.dst), refusal.reason());
            }
        }
        if self.full.load(Ordering::Relaxed) {
            self.full.store(false, Ordering::Relaxed);
        }
        true
    }

    fn transmit_faulty(
        &self,
        inner: &mut Inner,
        now: u64,
        left: &mut usize,
        filter: &mut FaultFilter,
    ) {
        let mut out = Vec::new();
        while *left > 0
            && let Some(t) = inner.engine.poll_transmit(now, &mut inner.tx)
        {
            *left = left.saturating_sub(t.len);
            let parcel = Parcel {
                dst: t.dst,
                bytes: inner.tx[..t.len].to_vec(),
            };
            filter.pass(parcel, &mut out);
            for Parcel { dst, bytes } in out.drain(..) {
                inner.tx[..bytes.len()].copy_from_slice(&bytes);
                inner.outbox.add(dst, 0, bytes.len(), None);
                if !self.flush(inner, now) {
                    return; // What else was to go out is lost: that is what faults are for.
                }
            }
        }
    }

    /// This HCA serves nobody any more. Whoever sleeps is to hear of it.
    fn fail(&self, rest: &mut Rest, peer: Option<AddressVector>, reason: String) {
        let av = self.socket.av();
        let failure = Failure {
            device: format!("the software HCA at {av}"),
            peer,
            reason,
        };
        if self.failed.set(failure).is_ok() && rest.call() {
            self.event.signal();
        }
    }

    /// A completion queue has lost completions: whoever waits for those would wait for ever.
    #[cold]
    fn overrun(&self, inner: &mut Inner, cq: Cq) {
        let reason = format!("completion queue {cq} was full, and has lost completions");
        self.fail(&mut inner.rest, None, reason);
    }
}

/// The locked HCA.
pub(super) struct Locked<'a> {
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
        match self.cut_short || self.links.pending() {
            true => Some(0),
            false => self.engine.next_timeout(),
        }
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
        let Inner { rx, tx, outbox, .. } = &mut *self.inner;
        rx.release();
        if outbox.waiting().is_empty() {
            tx.release();
        }
    }
}

/// An HCA as its sleepers see it.
pub(super) struct Sleeper<'h>(pub(super) &'h SoftHca);

impl Host for Sleeper<'_> {
    type Desk<'a>
        = Locked<'a>
    where
        Self: 'a;

    fn now(&self) -> u64 {
        self.0.now()
    }

    fn lock(&self) -> Locked<'_> {
        self.0.lock()
    }

    fn polls(&self) -> &Polls {
        &self.0.polls
    }

    fn sleep(&self, watch: Watch, time: Duration) -> Ready {
        let socket = watch.wire.then_some(&self.0.socket);
        let timer = self.0.timer().filter(|_| watch.wire);
        let event = watch.event.then_some(&self.0.event);
        let room = self.0.full.load(Ordering::Relaxed);
        let streams = self.0.watched_streams().filter(|_| watch.wire);
        let [packet, event, timer, stream] = sleep(socket, room, streams, event, timer, time);
        Ready {
            packet: packet || stream,
            event,
            timer,
        }
    }

    fn arm(&self, delay: Duration) -> bool {
        let timer = self.0.timer.get().and_then(Option::as_ref);
        timer.is_some_and(|timer| {
            timer.arm(delay);
            true
        })
    }

    fn take_timer(&self) -> bool {
        self.0.timer().is_some_and(Timer::take)
    }

    fn raise(&self) {
        self.0.event.signal();
    }

    fn lower(&self) {
        self.0.event.take();
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if let Some(cq) = self.inner.engine.overrun() {
            self.hca.overrun(&mut self.inner, cq);
        }
    }
}
