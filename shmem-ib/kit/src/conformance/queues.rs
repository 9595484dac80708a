//! Checks of the life of completion queues, and of what is in them.

use super::Fabric;
use super::harness::{Link, Options, qp_init, state};
use shmem_verbs::{Completion, Hca, QpAttr, QpInit, QpState, QpType, VerbsError, WcStatus};

/// A completion that finds its queue full is lost; the queue and the queue pair have failed.
pub fn overflowing_completion_queue<F: Fabric>(fabric: &F) {
    if !fabric.holds(
        fabric.beyond().exact_depths,
        "queues may hold more than was asked for",
    ) {
        return;
    }
    let l = Link::unconnected(fabric, QpType::Rc, Options::default());
    let (hca, options) = (l.a.hca, Options::default());
    let cq = hca.create_cq(2).expect("create_cq");
    let init = QpInit {
        send_cq: cq,
        ..qp_init(hca, QpType::Rc, l.a.cq, &options)
    };
    let qp = hca.create_qp(&init).expect("create_qp");
    l.connect_pair(qp, l.b.qp);
    for wr_id in 0..5 {
        l.a.post_on(qp, wr_id, l.write_to_b(0), l.a.mem.sge(0, 8));
    }
    l.wait_until("the failure of the queue pair", || {
        state(hca, qp) == QpState::Err
    });
    let mut out = [Completion::EMPTY; 8];
    assert_eq!(hca.poll_cq(cq, &mut out), 2);
    let first: Vec<_> = out[..2].iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(first, [(0, WcStatus::Success), (1, WcStatus::Success)]);
    // It stays failed although there is room now.
    l.a.post_on(qp, 9, l.write_to_b(0), l.a.mem.sge(0, 8));
    l.expect_silence(&l.a);
    assert_eq!(hca.poll_cq(cq, &mut out), 0);
    l.wait_until("the failure of the HCA", || hca.failure().is_some());
}

/// A completion queue can go when nobody reports to it any more, and its number names nothing.
pub fn completion_queues_in_use<F: Fabric>(fabric: &F) {
    let [hca, _] = fabric.hcas();
    let (one, two) = (hca.create_cq(16), hca.create_cq(16));
    let (send_cq, recv_cq) = (one.expect("create_cq"), two.expect("create_cq"));
    let init = QpInit {
        recv_cq,
        ..QpInit::new(QpType::Rc, send_cq)
    };
    let qp = hca.create_qp(&init).expect("create_qp");
    for cq in [send_cq, recv_cq] {
        let got = hca.destroy_cq(cq);
        assert!(matches!(got, Err(VerbsError::Busy { .. })), "{got:?}");
    }
    hca.destroy_qp(qp).expect("destroy_qp");
    for cq in [send_cq, recv_cq] {
        hca.destroy_cq(cq).expect("nobody uses it any more");
    }
    if fabric.checks_handles() {
        let again = hca.create_cq(16).expect("create_cq");
        assert!(again != send_cq && again != recv_cq);
        let gone = hca.create_qp(&init);
        assert!(matches!(gone, Err(VerbsError::NoSuchCq(_))), "{gone:?}");
        assert_eq!(hca.poll_cq(send_cq, &mut [Completion::EMPTY; 1]), 0);
    }
}

/// Completions that were not polled vanish with their queue pair.
pub fn destroyed_queue_pairs_leave_nothing<F: Fabric>(fabric: &F) {
    if !fabric.holds(
        fabric.beyond().forgets_the_destroyed,
        "completions may outlive their queue pair",
    ) {
        return;
    }
    let l = Link::unconnected(fabric, QpType::Rc, Options::default());
    let options = Options::default();
    let make = |side: &super::Side<'_, F::H>| {
        let init = qp_init(side.hca, QpType::Rc, side.cq, &options);
        side.hca.create_qp(&init).expect("create_qp")
    };
    let other = (make(&l.a), make(&l.b));
    l.connect();
    l.connect_pair(other.0, other.1);
    // Each failure gives its completion at once, without anybody who polls.
    for (qp, wr_id) in [(l.a.qp, 1), (other.0, 2)] {
        l.a.hca.modify_qp(qp, &QpAttr::Err).expect("to ERR");
        l.a.post_on(qp, wr_id, l.write_to_b(0), l.a.mem.sge(0, 8));
    }
    l.a.hca.destroy_qp(l.a.qp).expect("destroy_qp");
    let c = l.next(&l.a);
    assert_eq!((c.wr_id, c.qpn), (2, other.0), "{c:?}");
    l.expect_silence(&l.a);
}
