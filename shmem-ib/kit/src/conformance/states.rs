//! Checks of queue pair states.

use super::Fabric;
use super::harness::{Link, Options, state};
use shmem_verbs::{
    Access, Hca, Psn, Qkey, QpAttr, QpState, QpType, RcDest, RecvWr, SendWr, VerbsError, WcStatus,
};

/// Sends need RTS, receives need INIT.
pub fn posts_need_their_state<F: Fabric>(fabric: &F) {
    let l = Link::unconnected(fabric, QpType::Rc, Options::default());
    let send = || {
        let (op, sge) = (l.write_to_b(0), l.a.mem.sge(0, 8));
        let sges = [sge];
        let wr = SendWr::new(1, op, &sges);
        // SAFETY: regions are never freed.
        unsafe { l.a.hca.post_send(l.a.qp, &wr) }
    };
    let recv = || {
        let wr = RecvWr {
            wr_id: 1,
            sges: &[l.a.mem.sge(0, 64)],
        };
        // SAFETY: regions are never freed.
        unsafe { l.a.hca.post_recv(l.a.qp, &wr) }
    };
    assert!(matches!(
        send(),
        Err(VerbsError::WrongState {
            state: QpState::Reset,
            ..
        })
    ));
    assert!(matches!(
        recv(),
        Err(VerbsError::WrongState {
            state: QpState::Reset,
            ..
        })
    ));
    l.init(&l.a, l.a.qp);
    assert!(matches!(
        send(),
        Err(VerbsError::WrongState {
            state: QpState::Init,
            ..
        })
    ));
    recv().expect("receives may be posted from INIT on");
    l.rtr(&l.a, l.a.qp, &l.b, l.b.qp);
    assert!(matches!(
        send(),
        Err(VerbsError::WrongState {
            state: QpState::Rtr,
            ..
        })
    ));
    l.rts(&l.a, l.a.qp);
    send().expect("sends may be posted in RTS");
}

/// Transitions that the table does not have, and attributes out of range.
pub fn illegal_transitions<F: Fabric>(fabric: &F) {
    let l = Link::unconnected(fabric, QpType::Rc, Options::default());
    let (hca, qp) = (l.a.hca, l.a.qp);
    let rts = |timeout, retry_cnt| QpAttr::Rts {
        sq_psn: Psn(0),
        timeout,
        retry_cnt,
        rnr_retry: 7,
        max_rd_atomic: 1,
    };
    let dest = RcDest {
        av: l.b.hca.port().av,
        qpn: l.b.qp,
        rq_psn: Psn(0),
        mtu: l.options.mtu,
        max_dest_rd_atomic: 1,
        min_rnr_timer: 1,
    };
    let transition = |attr: &QpAttr| {
        let before = state(hca, qp);
        let got = hca.modify_qp(qp, attr);
        assert!(
            matches!(got, Err(VerbsError::Transition { .. })),
            "{attr:?}: {got:?}"
        );
        assert_eq!(state(hca, qp), before);
    };
    let range = |attr: &QpAttr| {
        let got = hca.modify_qp(qp, attr);
        assert!(
            matches!(got, Err(VerbsError::InvalidAttr { .. })),
            "{attr:?}: {got:?}"
        );
    };
    transition(&rts(14, 7));
    transition(&QpAttr::Rtr { dest: Some(dest) });
    transition(&QpAttr::Init {
        access: Access::ALL,
        qkey: Some(Qkey(1)),
    });
    l.init(&l.a, qp);
    transition(&QpAttr::Init {
        access: Access::ALL,
        qkey: None,
    });
    transition(&rts(14, 7));
    transition(&QpAttr::Rtr { dest: None });
    range(&QpAttr::Rtr {
        dest: Some(RcDest {
            rq_psn: Psn(1 << 24),
            ..dest
        }),
    });
    range(&QpAttr::Rtr {
        dest: Some(RcDest {
            max_dest_rd_atomic: 255,
            ..dest
        }),
    });
    l.rtr(&l.a, qp, &l.b, l.b.qp);
    range(&rts(32, 7));
    range(&rts(14, 8));
    l.rts(&l.a, qp);
    transition(&rts(14, 7));
    hca.modify_qp(qp, &QpAttr::Err).expect("ERR from anywhere");
    transition(&rts(14, 7));
    hca.modify_qp(qp, &QpAttr::Reset)
        .expect("RESET from anywhere");
    assert_eq!(state(hca, qp), QpState::Reset);

    let l = Link::unconnected(fabric, QpType::Ud, Options::default());
    let init = |qkey| {
        l.a.hca.modify_qp(
            l.a.qp,
            &QpAttr::Init {
                access: Access::NONE,
                qkey,
            },
        )
    };
    assert!(matches!(init(None), Err(VerbsError::Transition { .. })));
    assert!(matches!(
        init(Some(Qkey(1 << 31))),
        Err(VerbsError::InvalidAttr { .. })
    ));
    init(Some(Qkey(5))).expect("RESET to INIT");
    let got = l.a.hca.modify_qp(l.a.qp, &QpAttr::Rtr { dest: Some(dest) });
    assert!(matches!(got, Err(VerbsError::Transition { .. })), "{got:?}");
}

/// A queue pair in INIT drops requests silently; from RTR on it serves them.
pub fn requests_are_served_from_rtr_on<F: Fabric>(fabric: &F) {
    let l = Link::unconnected(fabric, QpType::Rc, Options::default());
    for side in [&l.a, &l.b] {
        l.init(side, side.qp);
    }
    l.rtr(&l.a, l.a.qp, &l.b, l.b.qp);
    l.rts(&l.a, l.a.qp);
    l.a.mem.set_word(0, 99);
    l.a.post(1, l.write_to_b(0), l.a.mem.sge(0, 8));
    l.a.post(2, l.read_from_b(0), l.a.mem.sge(8, 8));
    for _ in 0..5 {
        l.tick();
    }
    assert_eq!(
        l.b.mem.word(0),
        0,
        "a queue pair in INIT executed a request"
    );
    l.rtr(&l.b, l.b.qp, &l.a, l.a.qp);
    l.expect(1);
    l.expect(2);
    assert_eq!((l.b.mem.word(0), l.a.mem.word(8)), (99, 99));
    assert_eq!(state(l.b.hca, l.b.qp), QpState::Rtr);
}

/// The move to ERR flushes both queues in order.
pub fn error_state_flushes<F: Fabric>(fabric: &F) {
    let l = Link::new(
        fabric,
        Options {
            len: 1 << 20,
            ..Options::default()
        },
    );
    for wr_id in 100..103 {
        let wr = RecvWr {
            wr_id,
            sges: &[l.a.mem.sge(0, 64)],
        };
        // SAFETY: regions are never freed.
        unsafe { l.a.hca.post_recv(l.a.qp, &wr) }.expect("post_recv");
    }
    // The peer does not exist any more, so that nothing completes by itself.
    l.b.hca.destroy_qp(l.b.qp).expect("destroy_qp");
    for wr_id in 0..3 {
        l.a.post(wr_id, l.write_to_b(0), l.a.mem.sge(0, 8));
    }
    l.a.hca.modify_qp(l.a.qp, &QpAttr::Err).expect("to ERR");
    let all: Vec<_> = (0..6).map(|_| l.next(&l.a)).collect();
    assert!(
        all.iter().all(|c| c.status == WcStatus::WrFlushErr),
        "{all:?}"
    );
    // By their numbers: of a failure the opcode is undefined.
    let ids = |recv| {
        let of_queue = all.iter().filter(|c| (c.wr_id >= 100) == recv);
        of_queue.map(|c| c.wr_id).collect::<Vec<_>>()
    };
    assert_eq!(
        (ids(false), ids(true)),
        (vec![0, 1, 2], vec![100, 101, 102])
    );
    let wr = RecvWr {
        wr_id: 103,
        sges: &[l.a.mem.sge(0, 64)],
    };
    // SAFETY: regions are never freed.
    unsafe { l.a.hca.post_recv(l.a.qp, &wr) }.expect("post_recv");
    let lapsed = fabric.lapses().late_receives_stay;
    if !fabric.forgives(lapsed, "receives posted after the failure stay") {
        l.expect_failure(103, WcStatus::WrFlushErr);
    }
}

/// A queue pair that was reset connects again and works.
pub fn reset_queue_pair_works_again<F: Fabric>(fabric: &F) {
    let mut l = Link::new(fabric, Options::default());
    for round in 0..3 {
        l.a.mem.set_word(0, round + 1);
        l.a.post(round, l.write_to_b(0), l.a.mem.sge(0, 8));
        l.expect(round);
        assert_eq!(l.b.mem.word(0), round + 1);
        for side in [&l.a, &l.b] {
            side.hca
                .modify_qp(side.qp, &QpAttr::Reset)
                .expect("to RESET");
        }
        // A late answer to a packet that was repeated must not look like one of the new life.
        l.options.psn += 0x1000;
        l.connect();
    }
}
