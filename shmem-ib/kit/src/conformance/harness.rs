//! What the checks share: registered buffers, connected queue pairs, waiting.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use super::Fabric;
use shmem_verbs::{
    Access, AddressVector, Completion, Cq, Hca, Mr, Mtu, Psn, QpAttr, QpInit, QpState, QpType, Qpn,
    RcDest, RecvWr, SendOp, SendWr, Sge, Srq, SrqInit, SrqKind, VerbsError, WcStatus,
};

/// How long a check waits for completions before it fails. Generous: where others keep the processors, megabytes over a
/// simulated network that loses packets take a minute.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Registered memory.
#[derive(Debug)]
pub struct Region {
    words: *mut u64,
    len: usize,
    /// The registration.
    pub mr: Mr,
}

impl Region {
    /// Zeroed memory, registered with `access`.
    ///
    /// # Panics
    /// If it cannot be registered.
    pub fn new<H: Hca>(hca: &H, len: usize, access: Access) -> Self {
        let words = Box::leak(vec![0_u64; len.div_ceil(8)].into_boxed_slice()).as_mut_ptr();
        // SAFETY: the memory was leaked: it stays mapped. Accesses below are raw.
        let mr = unsafe { hca.reg_mr(words.cast(), len, access) }.expect("reg_mr");
        Self { words, len, mr }
    }

    /// Address of the byte at `offset`.
    #[must_use]
    pub fn at(&self, offset: usize) -> u64 {
        assert!(offset <= self.len);
        self.mr.addr + offset as u64
    }

    /// A local buffer within.
    #[must_use]
    pub fn sge(&self, offset: usize, len: usize) -> Sge {
        Sge {
            addr: self.at(offset),
            len: len as u32,
            lkey: self.mr.lkey,
        }
    }

    /// Copies `data` to `offset`.
    pub fn fill(&self, offset: usize, data: &[u8]) {
        assert!(offset + data.len() <= self.len);
        let to = self.words.cast::<u8>().wrapping_add(offset);
        // SAFETY: within the leaked allocation, which only raw pointers refer to.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
    }

    /// The bytes at `offset`.
    #[must_use]
    pub fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.len);
        let mut out = vec![0; len];
        let from = self.words.cast::<u8>().wrapping_add(offset);
        // SAFETY: within the leaked allocation.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), len) };
        out
    }

    /// The word at `offset`.
    #[must_use]
    pub fn word(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.bytes(offset, 8).try_into().expect("eight bytes"))
    }

    /// Writes the word at `offset`.
    pub fn set_word(&self, offset: usize, word: u64) {
        self.fill(offset, &word.to_ne_bytes());
    }
}

/// Bytes that differ by position and by `salt`.
pub(super) fn pattern(len: usize, salt: u64) -> Vec<u8> {
    let mut rng = shmem_verbs::rng::Rng::new(salt);
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        out.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    out.truncate(len);
    out
}

/// How a [`Link`] is to be.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes registered on each side.
    pub len: usize,
    /// Rights of the registrations.
    pub mr_access: Access,
    /// Rights of the queue pairs.
    pub qp_access: Access,
    /// Depth of the send queues.
    pub depth: u32,
    /// READs and atomics in flight.
    pub max_rd_atomic: u8,
    /// Local ACK timeout and retries.
    pub timeout: (u8, u8),
    /// First PSN of both sides.
    pub psn: u32,
    /// Payload per packet, at most the MTU of the ports.
    pub mtu: Mtu,
    /// Local buffers per work request.
    pub max_sge: u32,
    /// Receives come from a shared receive queue on each side.
    pub srq: bool,
    /// Timer code of RNR NAKs and how often to try again.
    pub rnr: (u8, u8),
    /// Bytes of inline payload, at most what the ports have.
    pub max_inline: u32,
    /// Every send request is signaled.
    pub sq_sig_all: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            len: 1 << 16,
            mr_access: Access::ALL,
            qp_access: Access::ALL,
            depth: 64,
            max_rd_atomic: 4,
            timeout: (18, 7),
            psn: 0x12_3456,
            mtu: Mtu::M4096,
            max_sge: 4,
            srq: false,
            rnr: (12, 7),
            max_inline: 256,
            sq_sig_all: false,
        }
    }
}

/// One end of a [`Link`].
#[derive(Debug)]
pub struct Side<'f, H> {
    /// The HCA.
    pub hca: &'f H,
    /// Its CQ for everything.
    pub cq: Cq,
    /// Its shared receive queue, if it has one.
    pub srq: Option<Srq>,
    /// Its queue pair.
    pub qp: Qpn,
    /// Its memory.
    pub mem: Region,
    pub(super) stash: RefCell<VecDeque<Completion>>,
}

impl<'f, H: Hca> Side<'f, H> {
    pub(super) fn new(hca: &'f H, ty: QpType, options: &Options) -> Self {
        let cq = hca.create_cq(4096).expect("create_cq");
        let srq = options.srq.then(|| {
            let init = SrqInit {
                max_wr: options.depth,
                max_sge: options.max_sge,
                kind: SrqKind::Basic,
            };
            hca.create_srq(&init).expect("create_srq")
        });
        let init = QpInit {
            srq,
            ..qp_init(hca, ty, cq, options)
        };
        let qp = hca.create_qp(&init).expect("create_qp");
        let mem = Region::new(hca, options.len, options.mr_access);
        Self {
            hca,
            cq,
            srq,
            qp,
            mem,
            stash: RefCell::default(),
        }
    }

    /// Posts a request.
    pub fn post(&self, wr_id: u64, op: SendOp, sge: Sge) {
        self.post_on(self.qp, wr_id, op, sge);
    }

    /// Posts a request to another queue pair of this side.
    pub fn post_on(&self, qp: Qpn, wr_id: u64, op: SendOp, sge: Sge) {
        let sges = [sge];
        let wr = SendWr::new(wr_id, op, &sges);
        // SAFETY: regions are never freed.
        unsafe { self.hca.post_send(qp, &wr) }.expect("post_send");
    }

    /// Posts a request as it is. Its buffers lie in regions.
    pub fn post_wr(&self, wr: &SendWr<'_>) {
        // SAFETY: regions are never freed.
        unsafe { self.hca.post_send(self.qp, wr) }.expect("post_send");
    }

    /// Posts a receive of these buffers, which lie in regions.
    pub fn receive(&self, wr_id: u64, sges: &[Sge]) {
        let wr = RecvWr { wr_id, sges };
        // SAFETY: regions are never freed.
        let posted = unsafe {
            match self.srq {
                Some(srq) => self.hca.post_srq_recv(srq, &wr),
                None => self.hca.post_recv(self.qp, &wr),
            }
        };
        posted.expect("post a receive");
    }

    /// Takes what has completed.
    pub fn poll(&self) {
        let mut out = [Completion::EMPTY; 16];
        loop {
            let n = self.hca.poll_cq(self.cq, &mut out);
            self.stash.borrow_mut().extend(&out[..n]);
            if n < out.len() {
                return;
            }
        }
    }
}

/// A queue pair on `hca`, which may be the one to limit the inline payload.
pub(super) fn qp_init<H: Hca>(hca: &H, ty: QpType, cq: Cq, options: &Options) -> QpInit {
    QpInit {
        max_send_wr: options.depth,
        max_recv_wr: options.depth,
        max_send_sge: options.max_sge,
        max_recv_sge: options.max_sge,
        max_inline: options.max_inline.min(hca.port().max_inline),
        sq_sig_all: options.sq_sig_all,
        ..QpInit::new(ty, cq)
    }
}

/// The state of a queue pair, which the HCA tells when it refuses what no state allows.
///
/// # Panics
/// There is no such queue pair.
#[must_use]
pub fn state<H: Hca>(hca: &H, qp: Qpn) -> QpState {
    let nobody = RcDest {
        av: AddressVector::default(),
        qpn: Qpn(0),
        rq_psn: Psn(0),
        mtu: Mtu::M256,
        max_dest_rd_atomic: 0,
        min_rnr_timer: 0,
    };
    match hca.modify_qp(qp, &QpAttr::Rtr { dest: Some(nobody) }) {
        Err(VerbsError::Transition { from, .. }) => from,
        // Here a peer is due, but not one of that number.
        Err(VerbsError::InvalidAttr { .. }) => QpState::Init,
        other => panic!("the state of QP {qp}: {other:?}"),
    }
}

/// Expects that attributes are refused.
///
/// # Panics
/// They are not.
#[track_caller]
pub(super) fn is_invalid<T: Debug>(got: Result<T, VerbsError>) {
    assert!(
        matches!(got, Err(VerbsError::InvalidAttr { .. })),
        "{got:?}"
    );
}

/// Two connected queue pairs with memory.
#[derive(Debug)]
pub struct Link<'f, F: Fabric> {
    fabric: &'f F,
    /// One end.
    pub a: Side<'f, F::H>,
    /// The other.
    pub b: Side<'f, F::H>,
    /// What was asked for.
    pub options: Options,
}

impl<'f, F: Fabric> Link<'f, F> {
    /// Makes both sides, in RESET.
    pub fn unconnected(fabric: &'f F, ty: QpType, mut options: Options) -> Self {
        let [a, b] = fabric.hcas();
        let ports = [a.port(), b.port()];
        for port in ports {
            options.mtu = options.mtu.min(port.active_mtu);
            options.max_inline = options.max_inline.min(port.max_inline);
        }
        let (a, b) = (Side::new(a, ty, &options), Side::new(b, ty, &options));
        Self {
            fabric,
            a,
            b,
            options,
        }
    }

    /// Makes and connects both sides.
    pub fn new(fabric: &'f F, options: Options) -> Self {
        let link = Self::unconnected(fabric, QpType::Rc, options);
        link.connect();
        link
    }

    /// Connects both sides.
    pub fn connect(&self) {
        self.connect_pair(self.a.qp, self.b.qp);
    }

    /// Connects a queue pair of `a` with one of `b`.
    pub fn connect_pair(&self, qa: Qpn, qb: Qpn) {
        for (side, qp, peer, peer_qp) in [(&self.a, qa, &self.b, qb), (&self.b, qb, &self.a, qa)] {
            self.init(side, qp);
            self.rtr(side, qp, peer, peer_qp);
            self.rts(side, qp);
        }
    }

    /// RESET to INIT.
    pub fn init(&self, side: &Side<'_, F::H>, qp: Qpn) {
        let init = QpAttr::Init {
            access: self.options.qp_access,
            qkey: None,
        };
        side.hca.modify_qp(qp, &init).expect("RESET to INIT");
    }

    /// INIT to RTR.
    pub fn rtr(&self, side: &Side<'_, F::H>, qp: Qpn, peer: &Side<'_, F::H>, peer_qp: Qpn) {
        let dest = RcDest {
            av: peer.hca.port().av,
            qpn: peer_qp,
            rq_psn: Psn(self.options.psn),
            mtu: self.options.mtu,
            max_dest_rd_atomic: self.options.max_rd_atomic,
            min_rnr_timer: self.options.rnr.0,
        };
        side.hca
            .modify_qp(qp, &QpAttr::Rtr { dest: Some(dest) })
            .expect("INIT to RTR");
    }

    /// RTR to RTS.
    pub fn rts(&self, side: &Side<'_, F::H>, qp: Qpn) {
        let rts = QpAttr::Rts {
            sq_psn: Psn(self.options.psn),
            timeout: self.options.timeout.0,
            retry_cnt: self.options.timeout.1,
            rnr_retry: self.options.rnr.1,
            max_rd_atomic: self.options.max_rd_atomic,
        };
        side.hca.modify_qp(qp, &rts).expect("RTR to RTS");
    }

    /// A WRITE from `a` to `b`'s memory.
    pub fn write_to_b(&self, offset: usize) -> SendOp {
        SendOp::write(self.b.mem.at(offset), self.b.mem.mr.rkey)
    }

    /// A READ from `b`'s memory.
    pub fn read_from_b(&self, offset: usize) -> SendOp {
        SendOp::Read {
            raddr: self.b.mem.at(offset),
            rkey: self.b.mem.mr.rkey,
        }
    }

    /// Lets time pass and polls both sides.
    pub fn tick(&self) {
        self.a.poll();
        self.b.poll();
        self.fabric.advance();
    }

    /// Waits until `done` holds.
    ///
    /// # Panics
    /// If it does not within [`PATIENCE`].
    pub fn wait_until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            assert!(start.elapsed() < PATIENCE, "still waiting for {what}");
            self.tick();
        }
    }

    /// Waits for the next completion of a side.
    pub fn next(&self, side: &Side<'_, F::H>) -> Completion {
        self.wait_until("a completion", || !side.stash.borrow().is_empty());
        side.stash.borrow_mut().pop_front().expect("there is one")
    }

    /// Waits for the next completion of `a`, which has to be the success of `wr_id`.
    pub fn expect(&self, wr_id: u64) -> Completion {
        let c = self.next(&self.a);
        assert_eq!((c.wr_id, c.status), (wr_id, WcStatus::Success), "{c:?}");
        c
    }

    /// Waits for the next completion of `a`, which has to be a failure of `wr_id`.
    pub fn expect_failure(&self, wr_id: u64, status: WcStatus) {
        let c = self.next(&self.a);
        assert_eq!((c.wr_id, c.status), (wr_id, status), "{c:?}");
    }

    /// Waits for the next completion of `a`, which has to be a protection error of `wr_id`.
    pub fn expect_local_failure(&self, wr_id: u64) {
        let lapsed = self.fabric.lapses().local_failures_flush;
        let c = self.next(&self.a);
        let forgiven = c.status == WcStatus::WrFlushErr
            && self
                .fabric
                .forgives(lapsed, "local failures complete as flushed");
        assert!(
            c.wr_id == wr_id && (forgiven || c.status == WcStatus::LocProtErr),
            "{c:?}"
        );
    }

    /// Waits for the next completion of `b`, which has to be the success of `wr_id`.
    pub fn expect_at_b(&self, wr_id: u64) -> Completion {
        let c = self.next(&self.b);
        assert_eq!((c.wr_id, c.status), (wr_id, WcStatus::Success), "{c:?}");
        c
    }

    /// Waits for the next completion of `b`, which has to be a failure of `wr_id`.
    pub fn expect_failure_at_b(&self, wr_id: u64, status: WcStatus) {
        let c = self.next(&self.b);
        assert_eq!((c.wr_id, c.status), (wr_id, status), "{c:?}");
    }

    /// Lets some time pass in which no completion may come to a side.
    pub fn expect_silence(&self, side: &Side<'_, F::H>) {
        for _ in 0..50 {
            self.tick();
        }
        assert!(
            side.stash.borrow().is_empty(),
            "unexpected: {:?}",
            side.stash.borrow()
        );
    }
}
