//! Checks of shared receive queues.

use super::Fabric;
use super::harness::{Link, Options, Side, is_invalid, qp_init};
use shmem_verbs::{
    Hca, QpAttr, QpInit, QpType, Qpn, RecvWr, SendOp, SrqInit, SrqKind, VerbsError, WcStatus,
};

const SEND: SendOp = SendOp::Send { imm: None };

fn shared<F: Fabric>(fabric: &F) -> Link<'_, F> {
    let options = Options {
        srq: true,
        ..Options::default()
    };
    Link::new(fabric, options)
}

fn create<F: Fabric>(l: &Link<'_, F>, side: &Side<'_, F::H>) -> Qpn {
    let init = QpInit {
        srq: side.srq,
        ..qp_init(side.hca, QpType::Rc, side.cq, &l.options)
    };
    side.hca.create_qp(&init).expect("create_qp")
}

/// Queue pairs take receives from one queue, in its order, each message one.
pub fn shared_receives_serve_many_queue_pairs<F: Fabric>(fabric: &F) {
    const PAIRS: usize = 5;
    const EACH: u64 = 8;
    const SLOT: usize = 1500;
    let l = shared(fabric);
    let pairs: Vec<(Qpn, Qpn)> = (0..PAIRS)
        .map(|_| (create(&l, &l.a), create(&l, &l.b)))
        .collect();
    for (qa, qb) in &pairs {
        l.connect_pair(*qa, *qb);
    }
    let total = PAIRS as u64 * EACH;
    for id in 0..total {
        l.b.receive(id, &[l.b.mem.sge(SLOT * id as usize, SLOT)]);
    }
    let len = |i: u64, pair: usize| 1 + i as usize * 100 + pair;
    for i in 0..EACH {
        for (pair, (qa, _)) in pairs.iter().enumerate() {
            l.a.mem.fill(1000 * pair, &vec![pair as u8 + 1; 1000]);
            l.a.post_on(*qa, i, SEND, l.a.mem.sge(1000 * pair, len(i, pair)));
        }
    }
    let (mut next, mut ids) = ([0; PAIRS], Vec::new());
    for _ in 0..total {
        let c = l.next(&l.b);
        assert_eq!(c.status, WcStatus::Success, "{c:?}");
        let known = pairs.iter().position(|(_, qb)| *qb == c.qpn);
        let pair = known.expect("one of the queue pairs");
        assert_eq!(c.byte_len as usize, len(next[pair], pair), "{c:?}");
        let got = l.b.mem.bytes(SLOT * c.wr_id as usize, c.byte_len as usize);
        assert!(got.iter().all(|b| *b == pair as u8 + 1), "{c:?}");
        next[pair] += 1;
        ids.push(c.wr_id);
    }
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..total), "each receive is used once");
}

/// Without a receive in the shared queue the sender waits as it does for one of its own.
pub fn shared_receives_run_out<F: Fabric>(fabric: &F) {
    let l = shared(fabric);
    l.b.receive(1, &[l.b.mem.sge(0, 8)]);
    l.a.post(1, SEND, l.a.mem.sge(0, 8));
    l.a.post(2, SEND, l.a.mem.sge(0, 8));
    l.expect(1);
    l.expect_at_b(1);
    l.expect_silence(&l.a);
    l.b.receive(2, &[l.b.mem.sge(0, 8)]);
    l.expect(2);
    l.expect_at_b(2);
}

/// A failed queue pair takes no more receives; those in the shared queue are for the others.
pub fn shared_receives_outlive_a_failed_queue_pair<F: Fabric>(fabric: &F) {
    let l = shared(fabric);
    let (qa, qb) = (create(&l, &l.a), create(&l, &l.b));
    l.connect_pair(qa, qb);
    l.b.receive(1, &[l.b.mem.sge(0, 8)]);
    l.b.hca.modify_qp(l.b.qp, &QpAttr::Err).expect("to ERR");
    l.expect_silence(&l.b);
    l.a.post_on(qa, 2, SEND, l.a.mem.sge(0, 8));
    l.expect(2);
    assert_eq!(l.expect_at_b(1).qpn, qb);
}

/// A queue pair with a shared queue has none of its own; the shared one stays as long as it.
pub fn shared_receives_and_their_users<F: Fabric>(fabric: &F) {
    let l = shared(fabric);
    let (hca, srq) = (l.b.hca, l.b.srq.expect("a shared receive queue"));
    let sges = [l.b.mem.sge(0, 8)];
    let wr = RecvWr {
        wr_id: 1,
        sges: &sges,
    };
    // SAFETY: regions are never freed.
    let own = unsafe { hca.post_recv(l.b.qp, &wr) };
    assert!(
        matches!(own, Err(VerbsError::SharedReceives { .. })),
        "{own:?}"
    );
    let busy = hca.destroy_srq(srq);
    assert!(matches!(busy, Err(VerbsError::Busy { .. })), "{busy:?}");
    assert!(
        hca.srq_num(srq).expect("srq_num").0 < 1 << 24,
        "it is longer than 24 bits"
    );
    if fabric.holds(
        fabric.beyond().exact_depths,
        "queues may hold more than was asked for",
    ) {
        // SAFETY: regions are never freed.
        let post = || unsafe { hca.post_srq_recv(srq, &wr) };
        for _ in 0..l.options.depth {
            post().expect("there is room");
        }
        let full = post();
        assert!(
            matches!(full, Err(VerbsError::Exhausted { .. })),
            "{full:?}"
        );
    }
    let list = vec![sges[0]; l.options.max_sge as usize + 1];
    let wr = RecvWr {
        wr_id: 1,
        sges: &list,
    };
    // SAFETY: regions are never freed.
    let long = unsafe { hca.post_srq_recv(srq, &wr) };
    assert!(
        matches!(long, Err(VerbsError::TooManySges { .. })),
        "{long:?}"
    );
    hca.destroy_qp(l.b.qp).expect("destroy_qp");
    hca.destroy_srq(srq).expect("nobody uses it any more");
    if fabric.checks_handles() {
        let gone = hca.destroy_srq(srq);
        assert!(matches!(gone, Err(VerbsError::NoSuchSrq(_))), "{gone:?}");
        let init = QpInit {
            srq: Some(srq),
            ..QpInit::new(QpType::Rc, l.b.cq)
        };
        let gone = hca.create_qp(&init);
        assert!(matches!(gone, Err(VerbsError::NoSuchSrq(_))), "{gone:?}");
    }
    let refused = hca.create_srq(&SrqInit {
        max_wr: u32::MAX,
        max_sge: 1,
        kind: SrqKind::Basic,
    });
    is_invalid(refused);
}
