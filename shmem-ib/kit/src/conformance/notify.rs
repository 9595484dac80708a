//! Checks of completion channels and of changed registrations.

use super::Fabric;
use super::harness::{Link, Options, Region, qp_init};
use shmem_verbs::{
    Access, CompChannel, Completion, Cq, Hca, QpType, Qpn, RecvWr, Rereg, SendOp, SendWr,
    VerbsError, WcStatus,
};

/// A queue pair of `b` that reports to a CQ with a channel, connected with one of `a`.
struct Announced<'f, F: Fabric> {
    l: Link<'f, F>,
    channel: CompChannel,
    cq: Cq,
    qp: Qpn,
}

impl<'f, F: Fabric> Announced<'f, F> {
    fn new(fabric: &'f F) -> Self {
        let l = Link::unconnected(fabric, QpType::Rc, Options::default());
        let channel = l.b.hca.create_comp_channel().expect("a channel");
        let cq = l.b.hca.create_cq(256, Some(channel)).expect("create_cq");
        let qp =
            l.b.hca
                .create_qp(&qp_init(l.b.hca, QpType::Rc, cq, &l.options));
        let qp = qp.expect("create_qp");
        l.connect_pair(l.a.qp, qp);
        Self { l, channel, cq, qp }
    }

    fn receive(&self, wr_id: u64) {
        let sges = [self.l.b.mem.sge(0, 64)];
        let wr = RecvWr { wr_id, sges: &sges };
        // SAFETY: regions are never freed.
        unsafe { self.l.b.hca.post_recv(self.qp, &wr) }.expect("post_recv");
    }

    /// Sends from `a`, and waits until it has arrived at `b`.
    fn send(&self, wr_id: u64, solicited: bool) {
        self.receive(wr_id);
        let sges = [self.l.a.mem.sge(0, 8)];
        self.l.a.post_wr(&SendWr {
            solicited,
            ..SendWr::new(wr_id, SendOp::Send { imm: None }, &sges)
        });
        self.l.expect(wr_id);
    }

    fn event(&self) -> Option<Cq> {
        self.l.b.hca.get_cq_event(self.channel)
    }

    fn arm(&self, solicited_only: bool) {
        let armed = self.l.b.hca.req_notify_cq(self.cq, solicited_only);
        armed.expect("req_notify_cq");
    }

    fn polled(&self) -> usize {
        let mut out = [Completion::EMPTY; 32];
        self.l.b.hca.poll_cq(self.cq, &mut out)
    }
}

/// One announcement for each time that it was asked for, at the next completion.
pub fn completion_channels_announce_once<F: Fabric>(fabric: &F) {
    let x = Announced::new(fabric);
    x.send(1, false);
    assert_eq!(x.event(), None, "nobody asked");
    x.arm(false);
    assert_eq!(x.event(), None, "what is there already does not count");
    assert_eq!(x.polled(), 1);
    x.send(2, false);
    x.send(3, false);
    assert_eq!(x.event(), Some(x.cq));
    assert_eq!(x.event(), None, "asked for once");
    assert_eq!(x.polled(), 2);
    x.send(4, false);
    assert_eq!(x.event(), None);
    // Own requests complete here as well as receives.
    x.arm(false);
    let sges = [x.l.b.mem.sge(0, 8)];
    let (raddr, rkey) = (x.l.a.mem.at(0), x.l.a.mem.mr.rkey);
    let op = SendOp::Read { raddr, rkey };
    x.l.b.post_on(x.qp, 5, op, sges[0]);
    x.l.wait_until("an announcement", || x.event() == Some(x.cq));
}

/// Asked for solicited completions only, a queue announces those and errors.
pub fn solicited_completions_and_errors_announce<F: Fabric>(fabric: &F) {
    let x = Announced::new(fabric);
    x.arm(true);
    x.send(1, false);
    assert_eq!(x.event(), None, "not solicited");
    x.send(2, true);
    assert_eq!(x.event(), Some(x.cq));
    x.arm(true);
    x.receive(3);
    let to_err = x.l.b.hca.modify_qp(x.qp, &shmem_verbs::QpAttr::Err);
    to_err.expect("to ERR");
    let lapsed = fabric.lapses().errors_not_solicited;
    if !fabric.forgives(lapsed, "errors count as not solicited") {
        let announced = || x.event() == Some(x.cq);
        x.l.wait_until("the announcement of a flushed receive", announced);
    }
}

/// A channel stays as long as a queue uses it, and a queue without one cannot announce.
pub fn completion_channels_and_their_queues<F: Fabric>(fabric: &F) {
    let [hca, _] = fabric.hcas();
    let channel = hca.create_comp_channel().expect("a channel");
    let cq = hca.create_cq(8, Some(channel)).expect("create_cq");
    let busy = hca.destroy_comp_channel(channel);
    assert!(matches!(busy, Err(VerbsError::Busy { .. })), "{busy:?}");
    hca.destroy_cq(cq).expect("destroy_cq");
    hca.destroy_comp_channel(channel).expect("nobody uses it");
    let silent = hca.create_cq(8, None).expect("create_cq");
    let refused = hca.req_notify_cq(silent, false);
    assert!(
        matches!(refused, Err(VerbsError::InvalidAttr { .. })),
        "{refused:?}"
    );
    if fabric.holds(
        fabric.beyond().checks_handles,
        "numbers of what is gone are not checked",
    ) {
        let gone = hca.create_cq(8, Some(channel));
        assert!(
            matches!(gone, Err(VerbsError::NoSuchChannel(_))),
            "{gone:?}"
        );
        let gone = hca.comp_channel_fd(channel);
        assert!(gone.is_err(), "{gone:?}");
        assert_eq!(hca.get_cq_event(channel), None);
    }
}

/// Range and rights of a registration change; what is no longer covered is refused, under the old
/// key too.
pub fn changed_registrations<F: Fabric>(fabric: &F) {
    let mut l = Link::new(fabric, Options::default());
    let len = l.options.len;
    let start = l.b.mem.mr.addr;
    let rereg = |l: &mut Link<'_, F>, from: usize, len: usize, access| {
        let at = std::ptr::with_exposed_provenance_mut::<u8>(start as usize + from);
        let change = Rereg {
            range: Some((at, len)),
            access,
        };
        // SAFETY: within the region, which is never freed.
        unsafe { l.b.hca.rereg_mr(&mut l.b.mem.mr, change) }
    };
    let write = |l: &Link<'_, F>, at: usize, rkey| SendOp::Write {
        raddr: start + at as u64,
        rkey: match rkey {
            Some(rkey) => rkey,
            None => l.b.mem.mr.rkey,
        },
        imm: None,
    };
    let reconnect = |l: &Link<'_, F>| {
        for (side, qp) in [(&l.a, l.a.qp), (&l.b, l.b.qp)] {
            let reset = side.hca.modify_qp(qp, &shmem_verbs::QpAttr::Reset);
            reset.expect("to RESET");
        }
        l.connect();
    };
    let first = l.b.mem.mr.rkey;
    rereg(&mut l, 1000, 1000, None).expect("a part");
    assert_eq!((l.b.mem.mr.addr, l.b.mem.mr.len), (start + 1000, 1000));
    l.a.post(1, write(&l, 1000, None), l.a.mem.sge(0, 1000));
    l.expect(1);
    let mut refused = vec![write(&l, 1000, None), write(&l, 999, None)];
    if l.b.mem.mr.rkey != first {
        refused.push(write(&l, 1500, Some(first)));
    }
    for (id, op) in (2..).zip(refused) {
        let len = if id == 2 { 1001 } else { 8 };
        l.a.post(id, op, l.a.mem.sge(0, len));
        l.expect_failure(id, WcStatus::RemAccessErr);
        reconnect(&l);
    }
    // Everything again, but only for reading.
    let reading = Access::LOCAL_WRITE | Access::REMOTE_READ;
    rereg(&mut l, 0, len, Some(reading)).expect("all of it");
    l.a.post(10, l.read_from_b(0), l.a.mem.sge(0, 8));
    l.expect(10);
    l.a.post(11, write(&l, 0, None), l.a.mem.sge(0, 8));
    l.expect_failure(11, WcStatus::RemAccessErr);
    reconnect(&l);
    // What is refused changes nothing.
    let before = l.b.mem.mr;
    let nothing = rereg(&mut l, 0, 0, None);
    assert!(
        matches!(nothing, Err(VerbsError::BadRegistration { .. })),
        "{nothing:?}"
    );
    assert_eq!(l.b.mem.mr, before);
    l.a.post(12, l.read_from_b(len - 8), l.a.mem.sge(0, 8));
    l.expect(12);
    if fabric.holds(
        fabric.beyond().checks_handles,
        "numbers of what is gone are not checked",
    ) {
        let region = Region::new(l.b.hca, 64, Access::ALL);
        let mut gone = region.mr;
        l.b.hca.dereg_mr(&gone).expect("dereg_mr");
        // SAFETY: the region is never freed.
        let got = unsafe { l.b.hca.rereg_mr(&mut gone, Rereg::default()) };
        assert!(matches!(got, Err(VerbsError::NoSuchMr(_))), "{got:?}");
    }
}
