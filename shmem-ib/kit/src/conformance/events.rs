//! Checks of asynchronous events and of the life of completion queues.

use super::Fabric;
use super::harness::{Link, Options, qp_init};
use shmem_verbs::{
    AsyncEvent, Completion, Hca, QpAttr, QpInit, QpState, QpType, SendOp, VerbsError, WcStatus,
};

/// A responder that refuses a request has no completion to say so.
pub fn responder_errors_give_events<F: Fabric>(fabric: &F) {
    let len = Options::default().len;
    let l = Link::new(fabric, Options::default());
    l.a.post(1, l.write_to_b(len - 7), l.a.mem.sge(0, 8));
    l.expect_failure(1, WcStatus::RemAccessErr);
    let lapsed = fabric.lapses().no_responder_events;
    if fabric.forgives(lapsed, "responders that refuse give no event") {
        return;
    }
    let event = AsyncEvent::QpAccessErr(l.b.qp);
    l.expect_event(&l.b, event);

    let posts = fabric.beyond().posts_misaligned_atomics;
    if !fabric.holds(posts, "misaligned atomics may be refused at the post") {
        return;
    }
    let l = Link::new(fabric, Options::default());
    let (raddr, rkey) = (l.b.mem.at(4), l.b.mem.mr.rkey);
    let misaligned = SendOp::FetchAdd {
        raddr,
        rkey,
        add: 1,
    };
    l.a.post(1, misaligned, l.a.mem.sge(0, 8));
    l.expect_failure(1, WcStatus::RemInvReqErr);
    let event = AsyncEvent::QpReqErr(l.b.qp);
    l.expect_event(&l.b, event);
    l.expect_silence(&l.b);
    assert_eq!(l.events(&l.b, event), 1, "repetitions are no news");
}

/// The first packet of the peer is told to a queue pair that waits for it in RTR.
pub fn establishment_gives_an_event<F: Fabric>(fabric: &F) {
    if !fabric.holds(
        fabric.beyond().tells_establishment,
        "no event when a connection is established",
    ) {
        return;
    }
    let l = Link::unconnected(fabric, QpType::Rc, Options::default());
    for side in [&l.a, &l.b] {
        l.init(side, side.qp);
    }
    l.rtr(&l.a, l.a.qp, &l.b, l.b.qp);
    l.rts(&l.a, l.a.qp);
    l.rtr(&l.b, l.b.qp, &l.a, l.a.qp);
    let event = AsyncEvent::CommEst(l.b.qp);
    l.expect_silence(&l.b);
    assert_eq!(l.events(&l.b, event), 0);
    for wr_id in 1..4 {
        l.a.post(wr_id, l.write_to_b(0), l.a.mem.sge(0, 8));
        l.expect(wr_id);
    }
    l.expect_event(&l.b, event);
    assert_eq!(l.events(&l.b, event), 1);
    assert_eq!(l.events(&l.a, AsyncEvent::CommEst(l.a.qp)), 0);
}

/// A completion that finds its queue full is lost; queue and queue pair fail with events.
pub fn overflowing_completion_queue<F: Fabric>(fabric: &F) {
    if !fabric.holds(
        fabric.beyond().exact_depths,
        "queues may hold more than was asked for",
    ) {
        return;
    }
    let l = Link::unconnected(fabric, QpType::Rc, Options::default());
    let (hca, options) = (l.a.hca, Options::default());
    let cq = hca.create_cq(2, None).expect("create_cq");
    let init = QpInit {
        send_cq: cq,
        ..qp_init(hca, QpType::Rc, l.a.cq, &options)
    };
    let qp = hca.create_qp(&init).expect("create_qp");
    l.connect_pair(qp, l.b.qp);
    for wr_id in 0..5 {
        l.a.post_on(qp, wr_id, l.write_to_b(0), l.a.mem.sge(0, 8));
    }
    l.expect_event(&l.a, AsyncEvent::CqErr(cq));
    l.expect_event(&l.a, AsyncEvent::QpFatal(qp));
    assert_eq!(hca.query_qp(qp).expect("query"), QpState::Err);
    let mut out = [Completion::EMPTY; 8];
    assert_eq!(hca.poll_cq(cq, &mut out), 2);
    let first: Vec<_> = out[..2].iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(first, [(0, WcStatus::Success), (1, WcStatus::Success)]);
    // It stays failed although there is room now.
    l.a.post_on(qp, 9, l.write_to_b(0), l.a.mem.sge(0, 8));
    l.expect_silence(&l.a);
    assert_eq!(hca.poll_cq(cq, &mut out), 0);
    assert_eq!(l.events(&l.a, AsyncEvent::CqErr(cq)), 1);
}

/// A completion queue can go when nobody reports to it any more, and its number names nothing.
pub fn completion_queues_in_use<F: Fabric>(fabric: &F) {
    let [hca, _] = fabric.hcas();
    let (one, two) = (hca.create_cq(16, None), hca.create_cq(16, None));
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
    if fabric.holds(
        fabric.beyond().checks_handles,
        "numbers of what is gone are not checked",
    ) {
        let again = hca.create_cq(16, None).expect("create_cq");
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
