//! Checks of requests that must fail, and how.

use super::Fabric;
use super::harness::{Link, Options, Region, is_invalid, state};
use shmem_verbs::{
    Access, Hca, Qkey, QpAttr, QpState, QpType, Qpn, Rkey, SendOp, SendWr, Sge, VerbsError,
    WcStatus,
};

/// Posts `op` and two WRITEs behind it; expects `op` to fail with `status`, the WRITEs to be
/// flushed, and both queue pairs to be in ERR.
fn fails<F: Fabric>(link: &Link<'_, F>, op: SendOp, sge: Sge, status: WcStatus) {
    link.b.mem.fill(0, &[0x33; 64]);
    link.a.post(1, op, sge);
    link.a.post(2, link.write_to_b(0), link.a.mem.sge(0, 64));
    link.a.post(3, link.write_to_b(0), link.a.mem.sge(0, 64));
    link.expect_failure(1, status);
    link.expect_failure(2, WcStatus::WrFlushErr);
    link.expect_failure(3, WcStatus::WrFlushErr);
    assert_eq!(state(link.a.hca, link.a.qp), QpState::Err);
    // A kernel may send its answer before the queue pair fails.
    let failed = || state(link.b.hca, link.b.qp) == QpState::Err;
    link.wait_until("the failure of the queue pair that answered", failed);
    assert_eq!(
        link.b.mem.bytes(0, 64),
        [0x33; 64],
        "a flushed WRITE was executed"
    );
    // A post to a failed queue pair is flushed as well.
    link.a.post(4, link.write_to_b(0), link.a.mem.sge(0, 64));
    link.expect_failure(4, WcStatus::WrFlushErr);
}

/// Wrong key, range beyond the region, and rights that the region does not give.
pub fn remote_access_errors<F: Fabric>(fabric: &F) {
    let len = Options::default().len;
    let link = || Link::new(fabric, Options::default());
    let l = link();
    let rkey = Rkey(l.b.mem.mr.rkey.0 ^ 0x100);
    let op = SendOp::write(l.b.mem.at(0), rkey);
    fails(&l, op, l.a.mem.sge(0, 8), WcStatus::RemAccessErr);
    let l = link();
    fails(
        &l,
        l.write_to_b(len - 7),
        l.a.mem.sge(0, 8),
        WcStatus::RemAccessErr,
    );
    let l = link();
    fails(
        &l,
        l.write_to_b(len - 8192),
        l.a.mem.sge(0, 8193),
        WcStatus::RemAccessErr,
    );
    let l = link();
    fails(
        &l,
        l.read_from_b(len - 7),
        l.a.mem.sge(0, 8),
        WcStatus::RemAccessErr,
    );
    let l = link();
    let (raddr, rkey) = (l.b.mem.at(len), l.b.mem.mr.rkey);
    let op = SendOp::fetch_add(raddr, rkey, 1);
    fails(&l, op, l.a.mem.sge(0, 8), WcStatus::RemAccessErr);
    let l = link();
    let op = SendOp::Read {
        raddr: u64::MAX - 3,
        rkey: l.b.mem.mr.rkey,
    };
    fails(&l, op, l.a.mem.sge(0, 8), WcStatus::RemAccessErr);

    let rw = Access::LOCAL_WRITE;
    for (given, wanted) in [
        (rw | Access::REMOTE_READ | Access::REMOTE_ATOMIC, 0),
        (rw | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC, 1),
        (rw | Access::REMOTE_WRITE | Access::REMOTE_READ, 2),
        (rw | Access::REMOTE_WRITE | Access::REMOTE_READ, 3),
    ] {
        let l = link();
        let region = Region::new(l.b.hca, 4096, given);
        let (raddr, rkey) = (region.at(0), region.mr.rkey);
        let op = [
            SendOp::write(raddr, rkey),
            SendOp::Read { raddr, rkey },
            SendOp::fetch_add(raddr, rkey, 1),
            SendOp::CmpSwap {
                raddr,
                rkey,
                compare: 0,
                swap: 1,
            },
        ][wanted];
        fails(&l, op, l.a.mem.sge(0, 8), WcStatus::RemAccessErr);
        assert_eq!(region.word(0), 0);
    }
}

/// Rights that the region gives but the queue pair does not.
pub fn missing_rights_of_the_queue_pair<F: Fabric>(fabric: &F) {
    for wanted in 0..3 {
        let qp_access = [
            Access::REMOTE_READ,
            Access::REMOTE_WRITE,
            Access::REMOTE_WRITE,
        ][wanted];
        let l = Link::new(
            fabric,
            Options {
                qp_access,
                ..Options::default()
            },
        );
        let (raddr, rkey) = (l.b.mem.at(1024), l.b.mem.mr.rkey);
        let op = [
            SendOp::write(raddr, rkey),
            SendOp::Read { raddr, rkey },
            SendOp::fetch_add(raddr, rkey, 1),
        ][wanted];
        l.a.post(1, op, l.a.mem.sge(0, 8));
        let c = l.next(&l.a);
        // Devices differ in whether the request or the access is to blame.
        assert!(
            matches!(c.status, WcStatus::RemInvReqErr | WcStatus::RemAccessErr),
            "{op:?}: {c:?}"
        );
        assert_eq!(l.b.mem.word(1024), 0);
    }
}

/// After a deregistration its keys are void, locally and for peers.
pub fn deregistered_memory_is_gone<F: Fabric>(fabric: &F) {
    let l = Link::new(fabric, Options::default());
    let region = Region::new(l.b.hca, 4096, Access::ALL);
    let (raddr, rkey) = (region.at(0), region.mr.rkey);
    l.a.post(1, SendOp::write(raddr, rkey), l.a.mem.sge(0, 8));
    l.expect(1);
    l.b.hca.dereg_mr(&region.mr).expect("dereg_mr");
    if fabric.checks_handles() {
        let again = l.b.hca.dereg_mr(&region.mr);
        assert!(matches!(again, Err(VerbsError::NoSuchMr(_))), "{again:?}");
    }
    fails(
        &l,
        SendOp::write(raddr, rkey),
        l.a.mem.sge(0, 8),
        WcStatus::RemAccessErr,
    );
}

/// A local buffer that its lkey does not cover, or that may not be written.
pub fn local_protection_error<F: Fabric>(fabric: &F) {
    let len = Options::default().len;
    let check = |op: &dyn Fn(&Link<'_, F>) -> SendOp, sge: &dyn Fn(&Link<'_, F>) -> Sge| {
        let l = Link::new(fabric, Options::default());
        l.a.post(1, op(&l), sge(&l));
        l.a.post(2, l.write_to_b(0), l.a.mem.sge(0, 8));
        l.expect_local_failure(1);
        l.expect_failure(2, WcStatus::WrFlushErr);
        assert_eq!(state(l.a.hca, l.a.qp), QpState::Err);
    };
    let beyond = |l: &Link<'_, F>| Sge {
        addr: l.a.mem.at(len) - 4,
        ..l.a.mem.sge(0, 8)
    };
    let bad_key = |l: &Link<'_, F>| {
        let sge = l.a.mem.sge(0, 8);
        Sge {
            lkey: shmem_verbs::Lkey(sge.lkey.0 ^ 0x100),
            ..sge
        }
    };
    check(&|l| l.write_to_b(0), &beyond);
    check(&|l| l.read_from_b(0), &beyond);
    check(&|l| l.write_to_b(0), &bad_key);
    check(&|l| l.read_from_b(0), &|l| {
        Region::new(l.a.hca, 64, Access::NONE).sge(0, 64)
    });
    // Reading from a region without any right is fine.
    let l = Link::new(fabric, Options::default());
    let source = Region::new(l.a.hca, 64, Access::NONE);
    source.set_word(0, 7);
    l.a.post(1, l.write_to_b(0), source.sge(0, 8));
    l.expect(1);
    assert_eq!(l.b.mem.word(0), 7);
}

/// Atomics need an aligned word.
pub fn misaligned_atomic<F: Fabric>(fabric: &F) {
    let l = Link::new(fabric, Options::default());
    let (raddr, rkey) = (l.b.mem.at(4), l.b.mem.mr.rkey);
    let op = SendOp::fetch_add(raddr, rkey, 1);
    let posts = fabric.beyond().posts_misaligned_atomics;
    if !fabric.holds(posts, "misaligned atomics may be refused at the post") {
        let sges = [l.a.mem.sge(0, 8)];
        // SAFETY: regions are never freed.
        let posted = unsafe { l.a.hca.post_send(l.a.qp, &SendWr::new(1, op, &sges)) };
        if posted.is_ok() {
            l.expect_failure(1, WcStatus::RemInvReqErr);
        }
        return;
    }
    fails(&l, op, l.a.mem.sge(0, 8), WcStatus::RemInvReqErr);
}

/// A full send queue refuses posts until something has completed.
pub fn full_send_queue<F: Fabric>(fabric: &F) {
    if !fabric.holds(
        fabric.beyond().exact_depths,
        "queues may hold more than was asked for",
    ) {
        return;
    }
    let l = Link::new(
        fabric,
        Options {
            depth: 4,
            len: 1 << 20,
            ..Options::default()
        },
    );
    let sges = [l.a.mem.sge(0, 200_000)];
    let wr = |wr_id| SendWr::new(wr_id, l.write_to_b(0), &sges);
    // SAFETY: regions are never freed.
    let post = |wr_id| unsafe { l.a.hca.post_send(l.a.qp, &wr(wr_id)) };
    for i in 0..4 {
        post(i).expect("there is room for four");
    }
    let refused = post(4);
    assert!(
        matches!(refused, Err(VerbsError::QueueFull { depth: 4, .. })),
        "{refused:?}"
    );
    l.expect(0);
    post(4).expect("there is room for one");
    for i in 1..5 {
        l.expect(i);
    }
}

/// Requests whose form is wrong are refused at the post.
pub fn requests_that_no_queue_takes<F: Fabric>(fabric: &F) {
    let l = Link::new(fabric, Options::default());
    let av = l.b.hca.port().av;
    let ud = SendOp::UdSend {
        av,
        qpn: l.b.qp,
        qkey: Qkey(1),
        imm: None,
    };
    let (raddr, rkey) = (l.b.mem.at(0), l.b.mem.mr.rkey);
    let max = u64::from(l.options.max_inline);
    let data = vec![0; l.options.max_inline as usize + 1];
    let post = |op, sge, inline| {
        let sges = [sge];
        let wr = SendWr {
            inline,
            ..SendWr::new(0, op, &sges)
        };
        // SAFETY: regions are never freed.
        unsafe { l.a.hca.post_send(l.a.qp, &wr) }
    };
    let sge = l.a.mem.sge(0, 8);
    assert!(matches!(
        post(ud, sge, None),
        Err(VerbsError::WrongType { .. })
    ));
    let got = post(l.write_to_b(0), sge, Some(&data));
    assert!(
        matches!(got, Err(VerbsError::TooLong { len, max: most, .. }) if (len, most) == (max + 1, max)),
        "{got:?}"
    );
    let got = post(l.read_from_b(0), sge, Some(&data[..8]));
    is_invalid(got);
    let got = post(SendOp::fetch_add(raddr, rkey, 1), l.a.mem.sge(0, 4), None);
    is_invalid(got);
    let huge = Sge {
        len: u32::MAX,
        ..sge
    };
    assert!(matches!(
        post(l.write_to_b(0), huge, None),
        Err(VerbsError::TooLong { .. })
    ));
    // None of these has harmed the queue.
    l.a.post(1, l.write_to_b(0), sge);
    l.expect(1);
}

/// A peer whose queue pair is gone, or never listened, exhausts the retries.
pub fn destroyed_peer_exhausts_retries<F: Fabric>(fabric: &F) {
    let options = Options {
        timeout: (10, 2),
        ..Options::default()
    };
    let l = Link::new(fabric, options);
    l.b.hca.destroy_qp(l.b.qp).expect("destroy_qp");
    l.a.post(2, l.write_to_b(0), l.a.mem.sge(0, 8));
    l.a.post(3, l.read_from_b(0), l.a.mem.sge(0, 8));
    l.expect_failure(2, WcStatus::RetryExcErr);
    l.expect_failure(3, WcStatus::WrFlushErr);
    assert_eq!(state(l.a.hca, l.a.qp), QpState::Err);

    let l = Link::unconnected(fabric, QpType::Rc, options);
    for side in [&l.a, &l.b] {
        l.init(side, side.qp);
    }
    l.rtr(&l.a, l.a.qp, &l.b, l.b.qp);
    l.rts(&l.a, l.a.qp);
    l.a.post(1, l.write_to_b(0), l.a.mem.sge(0, 8));
    l.expect_failure(1, WcStatus::RetryExcErr);
    assert_eq!(state(l.b.hca, l.b.qp), QpState::Init);
}

/// Objects that do not exist and limits that cannot be.
pub fn nonsense_is_refused<F: Fabric>(fabric: &F) {
    let [hca, _] = fabric.hcas();
    assert!(hca.create_cq(0).is_err());
    assert!(hca.create_cq(u32::MAX).is_err());
    let cq = hca.create_cq(16).expect("create_cq");
    let init = |cq, depth| {
        let options = Options {
            depth,
            ..Options::default()
        };
        super::harness::qp_init(hca, QpType::Rc, cq, &options)
    };
    assert!(matches!(
        hca.create_qp(&init(cq, u32::MAX)),
        Err(VerbsError::InvalidAttr {
            what: "max_send_wr",
            ..
        })
    ));
    if fabric.checks_handles() {
        let bad_cq = shmem_verbs::Cq(cq.0 + 1000);
        assert!(matches!(
            hca.create_qp(&init(bad_cq, 1)),
            Err(VerbsError::NoSuchCq(_))
        ));
        let nobody = Qpn(0xfffffe);
        assert!(matches!(
            hca.modify_qp(nobody, &QpAttr::Reset),
            Err(VerbsError::NoSuchQp(_))
        ));
        assert!(matches!(
            hca.destroy_qp(nobody),
            Err(VerbsError::NoSuchQp(_))
        ));
    }
    let mut word = 0_u64;
    let at = std::ptr::from_mut(&mut word).cast();
    // SAFETY: `word` is alive; a registration that succeeded would end with this HCA, and no
    // peer knows its key.
    let reg = |len, access| unsafe { hca.reg_mr(at, len, access) };
    assert!(matches!(
        reg(0, Access::ALL),
        Err(VerbsError::BadRegistration { .. })
    ));
    assert!(matches!(
        reg(8, Access::REMOTE_WRITE),
        Err(VerbsError::BadRegistration { .. })
    ));
}
