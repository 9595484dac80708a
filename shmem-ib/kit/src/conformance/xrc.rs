//! Checks of XRC: initiators, targets, and the receive queues and memory that packets name.

use std::fs::File;
use std::os::fd::AsFd;

use super::Fabric;
use super::harness::{Link, Options, Side, is_invalid, pattern, qp_init, state};
use shmem_verbs::{
    Cq, Hca, QpInit, QpState, QpType, Qpn, RecvWr, SendOp, SendWr, Sge, Srq, SrqInit, SrqKind,
    SrqNum, VerbsError, WcOpcode, WcStatus, Xrcd,
};

const SEND: SendOp = SendOp::Send { imm: None };

/// A link whose `a` has an initiator and whose `b` has the target of it.
struct XrcLink<'f, F: Fabric> {
    l: Link<'f, F>,
    ini: Qpn,
    tgt: Qpn,
    xrcd: Xrcd,
}

fn srq<H: Hca>(hca: &H, xrcd: Xrcd, cq: Cq) -> (Srq, SrqNum) {
    let init = SrqInit {
        max_wr: 64,
        max_sge: 4,
        kind: SrqKind::Xrc { xrcd, cq },
    };
    let srq = hca.create_srq(&init).expect("create_srq");
    (srq, hca.srq_num(srq).expect("srq_num"))
}

fn receive<H: Hca>(side: &Side<'_, H>, srq: Srq, wr_id: u64, sge: Sge) {
    let sges = [sge];
    let wr = RecvWr { wr_id, sges: &sges };
    // SAFETY: regions are never freed.
    unsafe { side.hca.post_srq_recv(srq, &wr) }.expect("post_srq_recv");
}

impl<'f, F: Fabric> XrcLink<'f, F> {
    /// Connected; the target is in a private domain. `None` on HCAs without XRC.
    fn new(fabric: &'f F) -> Option<Self> {
        let l = Link::unconnected(fabric, QpType::Rc, Options::default());
        if !fabric.holds(l.a.hca.port().xrc && l.b.hca.port().xrc, "no XRC") {
            return None;
        }
        let xrcd = l.b.hca.open_xrcd(None).expect("open_xrcd");
        Some(Self::within(l, xrcd))
    }

    fn within(l: Link<'f, F>, xrcd: Xrcd) -> Self {
        let (ini, tgt) = Self::pair(&l, xrcd);
        let link = Self { l, ini, tgt, xrcd };
        link.connect(ini, tgt);
        link
    }

    fn pair(l: &Link<'f, F>, xrcd: Xrcd) -> (Qpn, Qpn) {
        let ini = QpInit {
            max_recv_wr: 0,
            ..qp_init(l.a.hca, QpType::XrcIni, l.a.cq, &l.options)
        };
        let tgt = QpInit {
            xrcd: Some(xrcd),
            ..QpInit::new(QpType::XrcTgt, l.b.cq)
        };
        let ini = l.a.hca.create_qp(&ini).expect("an initiator");
        (ini, l.b.hca.create_qp(&tgt).expect("a target"))
    }

    fn connect(&self, ini: Qpn, tgt: Qpn) {
        let l = &self.l;
        l.init(&l.b, tgt);
        l.rtr(&l.b, tgt, &l.a, ini);
        l.init(&l.a, ini);
        l.rtr(&l.a, ini, &l.b, tgt);
        l.rts(&l.a, ini);
    }

    /// The target fails.
    fn expect_failed_target(&self) {
        let failed = || state(self.l.b.hca, self.tgt) == QpState::Err;
        self.l.wait_until("the failure of a target", failed);
    }

    /// Posts to the initiator, for the owner of `srqn`.
    fn post(&self, wr_id: u64, op: SendOp, srqn: SrqNum, sge: Sge) {
        let sges = [sge];
        let wr = SendWr {
            srqn: Some(srqn),
            ..SendWr::new(wr_id, op, &sges)
        };
        // SAFETY: regions are never freed.
        unsafe { self.l.a.hca.post_send(self.ini, &wr) }.expect("post_send");
    }

    /// A new initiator and target instead of those that have failed.
    fn renew(&mut self) {
        for (side, qp) in [(&self.l.a, self.ini), (&self.l.b, self.tgt)] {
            side.hca.destroy_qp(qp).expect("destroy_qp");
        }
        (self.ini, self.tgt) = Self::pair(&self.l, self.xrcd);
        self.connect(self.ini, self.tgt);
    }
}

/// Each message goes to the receive queue that it names, and completes where that queue reports to.
pub fn xrc_sends_reach_the_queue_they_name<F: Fabric>(fabric: &F) {
    const SLOT: usize = 10_000;
    let Some(x) = XrcLink::new(fabric) else {
        return;
    };
    let (a, b) = (&x.l.a, &x.l.b);
    let other_cq = b.hca.create_cq(64).expect("create_cq");
    let queues = [
        srq(b.hca, x.xrcd, b.cq),
        srq(b.hca, x.xrcd, other_cq),
        srq(b.hca, x.xrcd, b.cq),
    ];
    let numbers: std::collections::HashSet<SrqNum> = queues.iter().map(|q| q.1).collect();
    assert_eq!(numbers.len(), queues.len(), "numbers are unique");
    for (i, len) in [1, 5000, 0, 256, 9999].into_iter().enumerate() {
        let data = pattern(len, i as u64);
        a.mem.fill(0, &data);
        for (q, (queue, srqn)) in queues.iter().enumerate() {
            let id = (10 * i + q) as u64;
            receive(b, *queue, id, b.mem.sge(q * SLOT, SLOT));
            let imm = (len == 256).then_some(0xabc);
            x.post(id, SendOp::Send { imm }, *srqn, a.mem.sge(0, len));
            x.l.expect(id);
            let c = match q {
                1 => {
                    let mut out = [shmem_verbs::Completion::EMPTY; 2];
                    x.l.wait_until("the other CQ", || b.hca.poll_cq(other_cq, &mut out) == 1);
                    out[0]
                }
                _ => x.l.next(b),
            };
            assert_eq!((c.wr_id, c.status), (id, WcStatus::Success), "{c:?}");
            assert_eq!((c.byte_len as usize, c.imm), (len, imm), "{c:?}");
            assert_eq!((c.srqn, c.qpn), (Some(*srqn), x.tgt), "{c:?}");
            assert_eq!(b.mem.bytes(q * SLOT, len), data);
        }
    }
}

/// RDMA and atomics work as on an RC queue pair; a write with immediate data takes a receive.
pub fn xrc_reads_writes_and_atomics<F: Fabric>(fabric: &F) {
    let Some(x) = XrcLink::new(fabric) else {
        return;
    };
    let (a, b) = (&x.l.a, &x.l.b);
    let (queue, srqn) = srq(b.hca, x.xrcd, b.cq);
    for (i, len) in [1, 4096, 20_000].into_iter().enumerate() {
        let data = pattern(len, 7 + i as u64);
        a.mem.fill(0, &data);
        x.post(1, x.l.write_to_b(40), srqn, a.mem.sge(0, len));
        x.post(2, x.l.read_from_b(40), srqn, a.mem.sge(30_000, len));
        x.l.expect(1);
        x.l.expect(2);
        assert_eq!(b.mem.bytes(40, len), data);
        assert_eq!(a.mem.bytes(30_000, len), data);
    }
    b.mem.set_word(64, 5);
    let (raddr, rkey) = (b.mem.at(64), b.mem.mr.rkey);
    let add = SendOp::fetch_add(raddr, rkey, 10);
    let swap = SendOp::CmpSwap {
        raddr,
        rkey,
        compare: 15,
        swap: 99,
    };
    x.post(3, add, srqn, a.mem.sge(0, 8));
    x.post(4, swap, srqn, a.mem.sge(8, 8));
    x.l.expect(3);
    x.l.expect(4);
    let old = [a.mem.word(0), a.mem.word(8)];
    assert_eq!((old, b.mem.word(64)), ([5, 15], 99));
    receive(b, queue, 9, b.mem.sge(0, 0));
    let with_imm = SendOp::Write {
        raddr,
        rkey,
        imm: Some(77),
    };
    x.post(5, with_imm, srqn, a.mem.sge(0, 8));
    x.l.expect(5);
    let c = x.l.expect_at_b(9);
    assert_eq!((c.opcode, c.imm), (WcOpcode::RecvRdmaWithImm, Some(77)));
    assert_eq!((c.srqn, c.byte_len), (Some(srqn), 8), "{c:?}");
}

/// No receive in the queue: the initiator waits. No such queue: it fails, as does the target.
pub fn xrc_queues_that_are_empty_or_gone<F: Fabric>(fabric: &F) {
    let Some(mut x) = XrcLink::new(fabric) else {
        return;
    };
    let (queue, srqn) = srq(x.l.b.hca, x.xrcd, x.l.b.cq);
    x.post(1, SEND, srqn, x.l.a.mem.sge(0, 8));
    x.l.expect_silence(&x.l.a);
    receive(&x.l.b, queue, 2, x.l.b.mem.sge(0, 8));
    x.l.expect(1);
    x.l.expect_at_b(2);
    x.l.b.hca.destroy_srq(queue).expect("destroy_srq");
    for (id, op) in [(3, SEND), (4, x.l.write_to_b(0)), (5, x.l.read_from_b(0))] {
        x.post(id, op, srqn, x.l.a.mem.sge(0, 8));
        x.l.expect_failure(id, WcStatus::RemInvReqErr);
        x.expect_failed_target();
        x.renew();
    }
    // Rights and ranges are checked as on RC.
    let (_, srqn) = srq(x.l.b.hca, x.xrcd, x.l.b.cq);
    let beyond = x.l.write_to_b(x.l.options.len - 4);
    x.post(6, beyond, srqn, x.l.a.mem.sge(0, 8));
    x.l.expect_failure(6, WcStatus::RemAccessErr);
    x.expect_failed_target();
}

/// A target in one process of a domain serves memory of another.
pub fn xrc_reaches_memory_of_the_whole_domain<F: Fabric>(fabric: &F) {
    if !fabric.holds(
        fabric.beyond().domains_span_hcas,
        "an XRC domain is within one device",
    ) {
        return;
    }
    let l = Link::unconnected(fabric, QpType::Rc, Options::default());
    let name = format!("xrcd-{}-{:x}", std::process::id(), l.a.mem.mr.addr);
    let path = std::env::temp_dir().join(name);
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .expect("a file in the temporary directory");
    std::fs::remove_file(&path).expect("remove it");
    // Both are in the domain: `a` is initiator, and owner of memory that it reaches through `b`.
    let [of_a, of_b] = [&l.a, &l.b].map(|s| s.hca.open_xrcd(Some(file.as_fd())).expect("open"));
    let again = l.b.hca.open_xrcd(Some(file.as_fd())).expect("open again");
    assert_eq!(again, of_b, "the same file is the same domain");
    l.b.hca.close_xrcd(again).expect("once too many");
    let (_, at_a) = srq(l.a.hca, of_a, l.a.cq);
    let (_, at_b) = srq(l.b.hca, of_b, l.b.cq);
    assert_ne!(at_a, at_b);
    let mut x = XrcLink::within(l, of_b);
    let len = 9000;
    let data = pattern(len, 3);
    x.l.a.mem.fill(0, &data);
    let (raddr, rkey) = (x.l.a.mem.at(20_000), x.l.a.mem.mr.rkey);
    let write = SendOp::write(raddr, rkey);
    let read = SendOp::Read { raddr, rkey };
    x.post(1, write, at_a, x.l.a.mem.sge(0, len));
    x.post(2, read, at_a, x.l.a.mem.sge(40_000, len));
    x.l.expect(1);
    x.l.expect(2);
    assert_eq!(x.l.a.mem.bytes(20_000, len), data);
    assert_eq!(x.l.a.mem.bytes(40_000, len), data);
    let raddr = x.l.a.mem.at(0);
    x.l.a.mem.set_word(0, 40);
    let add = SendOp::fetch_add(raddr, rkey, 2);
    x.post(3, add, at_a, x.l.a.mem.sge(8, 8));
    x.l.expect(3);
    assert_eq!((x.l.a.mem.word(8), x.l.a.mem.word(0)), (40, 42));
    // The number says whose memory is meant: a key of one process names nothing in the other.
    x.post(4, write, at_b, x.l.a.mem.sge(0, 8));
    x.l.expect_failure(4, WcStatus::RemAccessErr);
    x.renew();
    x.post(5, x.l.write_to_b(0), at_a, x.l.a.mem.sge(0, 8));
    x.l.expect_failure(5, WcStatus::RemAccessErr);
    x.renew();
    // What is deregistered there is gone here.
    x.l.a.hca.dereg_mr(&x.l.a.mem.mr).expect("dereg_mr");
    let mem = super::Region::new(x.l.a.hca, 4096, shmem_verbs::Access::ALL);
    x.post(6, read, at_a, mem.sge(0, 8));
    x.l.expect_failure(6, WcStatus::RemAccessErr);
    x.renew();
    // And what is registered afterwards is there, with the rights that it has.
    mem.set_word(128, 11);
    let (raddr, rkey) = (mem.at(128), mem.mr.rkey);
    x.post(7, SendOp::Read { raddr, rkey }, at_a, mem.sge(0, 8));
    x.l.expect(7);
    assert_eq!(mem.word(0), 11);
}

/// Verbs that an XRC queue pair does not have, and domains that are in use.
pub fn xrc_refusals<F: Fabric>(fabric: &F) {
    let Some(x) = XrcLink::new(fabric) else {
        return;
    };
    let (a, b) = (&x.l.a, &x.l.b);
    let (queue, srqn) = srq(b.hca, x.xrcd, b.cq);
    let sges = [b.mem.sge(0, 8)];
    let recv = RecvWr {
        wr_id: 1,
        sges: &sges,
    };
    for (side, qp) in [(a, x.ini), (b, x.tgt)] {
        // SAFETY: regions are never freed.
        let got = unsafe { side.hca.post_recv(qp, &recv) };
        assert!(matches!(got, Err(VerbsError::WrongType { .. })), "{got:?}");
    }
    let op = x.l.write_to_b(0);
    let named = SendWr {
        srqn: Some(srqn),
        ..SendWr::new(1, op, &sges)
    };
    // SAFETY: regions are never freed.
    let got = unsafe { b.hca.post_send(x.tgt, &named) };
    assert!(matches!(got, Err(VerbsError::WrongType { .. })), "{got:?}");
    // SAFETY: regions are never freed.
    let got = unsafe { a.hca.post_send(x.ini, &SendWr::new(1, op, &sges)) };
    is_invalid(got);
    x.l.connect();
    // SAFETY: regions are never freed.
    let got = unsafe { a.hca.post_send(a.qp, &named) };
    is_invalid(got);
    let tgt = QpInit::new(QpType::XrcTgt, b.cq);
    let got = b.hca.create_qp(&tgt);
    is_invalid(got);
    let busy = |what: &str| {
        let got = b.hca.close_xrcd(x.xrcd);
        assert!(
            matches!(got, Err(VerbsError::Busy { .. })),
            "{what}: {got:?}"
        );
    };
    busy("a target and a queue");
    b.hca.destroy_qp(x.tgt).expect("destroy_qp");
    busy("a queue");
    let got = b.hca.destroy_cq(b.cq);
    assert!(matches!(got, Err(VerbsError::Busy { .. })), "{got:?}");
    b.hca.destroy_srq(queue).expect("destroy_srq");
    b.hca.close_xrcd(x.xrcd).expect("close_xrcd");
    if fabric.checks_handles() {
        let tgt = QpInit {
            xrcd: Some(x.xrcd),
            ..tgt
        };
        let gone = b.hca.create_qp(&tgt);
        assert!(matches!(gone, Err(VerbsError::NoSuchXrcd(_))), "{gone:?}");
    }
}
