//! Checks of datagrams.

use super::Fabric;
use super::harness::{Link, Options, Side, pattern, state};
use shmem_verbs::{
    GRH_LEN, Hca, Psn, Qkey, QpAttr, QpState, QpType, SendOp, SendWr, VerbsError, WcOpcode,
    WcStatus,
};

const KEY: Qkey = Qkey(0x1357_2468);

fn pair<F: Fabric>(fabric: &F) -> Link<'_, F> {
    pair_with(fabric, Options::default())
}

fn pair_with<F: Fabric>(fabric: &F, options: Options) -> Link<'_, F> {
    let link = Link::unconnected(fabric, QpType::Ud, options);
    for side in [&link.a, &link.b] {
        for attr in QpAttr::of_ud(KEY, Psn(0xff_ffff)) {
            side.hca.modify_qp(side.qp, &attr).expect("modify_qp");
        }
    }
    link
}

fn send<H: Hca>(
    from: &Side<'_, H>,
    to: &Side<'_, H>,
    qkey: Qkey,
    data: &[u8],
) -> Result<(), VerbsError> {
    let op = SendOp::UdSend {
        av: to.hca.port().av,
        qpn: to.qp,
        qkey,
        imm: None,
    };
    from.mem.fill(0, data);
    let sge = from.mem.sge(0, data.len());
    let sges = [sge];
    let wr = SendWr::new(7, op, &sges);
    // SAFETY: regions are never freed.
    unsafe { from.hca.post_send(from.qp, &wr) }
}

/// A datagram arrives behind the GRH; its completion says from where, so that it can be
/// answered.
pub fn datagrams_arrive_with_their_source<F: Fabric>(fabric: &F) {
    let l = pair(fabric);
    l.b.receive(5, &[l.b.mem.sge(1000, 512)]);
    send(&l.a, &l.b, KEY, b"hello").expect("post_send");
    let sent = l.expect(7);
    assert_eq!(sent.opcode, WcOpcode::Send);
    let c = l.next(&l.b);
    assert_eq!(
        (c.wr_id, c.status, c.opcode),
        (5, WcStatus::Success, WcOpcode::Recv)
    );
    assert_eq!(c.byte_len as usize, GRH_LEN + 5);
    assert_eq!(c.src, Some((l.a.hca.port().av, l.a.qp)));
    assert_eq!(l.b.mem.bytes(1000 + GRH_LEN, 5), b"hello");
    // The answer goes to where the completion says.
    let (av, qpn) = c.src.expect("a source");
    l.a.receive(6, &[l.a.mem.sge(2000, 512)]);
    let wr = SendWr {
        inline: Some(b"and back"),
        signaled: false,
        ..SendWr::new(
            8,
            SendOp::UdSend {
                av,
                qpn,
                qkey: KEY,
                imm: None,
            },
            &[],
        )
    };
    // SAFETY: inline payload is copied.
    unsafe { l.b.hca.post_send(l.b.qp, &wr) }.expect("post_send");
    let c = l.next(&l.a);
    assert_eq!((c.wr_id, c.src), (6, Some((l.b.hca.port().av, l.b.qp))));
    assert_eq!(l.a.mem.bytes(2000 + GRH_LEN, 8), b"and back");
    l.expect_silence(&l.b);
}

/// Wrong key, no receive, or too small a receive: the datagram vanishes.
pub fn datagrams_without_key_or_buffer_are_dropped<F: Fabric>(fabric: &F) {
    let l = pair(fabric);
    send(&l.a, &l.b, KEY, b"nobody waits").expect("post_send");
    l.expect(7);
    l.expect_silence(&l.b);
    l.b.receive(1, &[l.b.mem.sge(1000, 256)]);
    send(&l.a, &l.b, Qkey(KEY.0 ^ 1), b"wrong key").expect("post_send");
    l.expect(7);
    l.expect_silence(&l.b);
    assert_eq!(l.b.mem.bytes(1000, 256), [0; 256]);
    send(&l.a, &l.b, KEY, b"right key").expect("post_send");
    assert_eq!(l.next(&l.b).wr_id, 1);
    assert_eq!(l.b.mem.bytes(1000 + GRH_LEN, 9), b"right key");
}

/// Datagrams of 0 bytes up to the MTU, and not more.
pub fn datagrams_of_all_sizes<F: Fabric>(fabric: &F) {
    let l = pair(fabric);
    let mtu = l.options.mtu.bytes();
    let sizes = [0, 1, 2, 3, 4, 255, 512, mtu - 1, mtu];
    for (i, len) in sizes.into_iter().filter(|len| *len <= mtu).enumerate() {
        let data = pattern(len, i as u64 + 1);
        l.b.receive(i as u64, &[l.b.mem.sge(8192, GRH_LEN + mtu)]);
        send(&l.a, &l.b, KEY, &data).expect("post_send");
        l.expect(7);
        let c = l.next(&l.b);
        assert_eq!((c.wr_id, c.byte_len as usize), (i as u64, GRH_LEN + len));
        assert_eq!(l.b.mem.bytes(8192 + GRH_LEN, len), data);
    }
    let too_long = l.a.hca.port().active_mtu.bytes() + 1;
    let got = send(&l.a, &l.b, KEY, &vec![0; too_long]);
    assert!(matches!(got, Err(VerbsError::TooLong { .. })), "{got:?}");
}

/// Immediate data comes with the completion.
pub fn datagrams_carry_immediate_data<F: Fabric>(fabric: &F) {
    let l = pair(fabric);
    for (wr_id, imm) in [(1, Some(0)), (2, None), (3, Some(u32::MAX))] {
        l.b.receive(wr_id, &[l.b.mem.sge(1000, 256)]);
        let op = to_b(&l, imm);
        l.a.post_wr(&SendWr {
            inline: Some(b"data"),
            ..SendWr::new(7, op, &[])
        });
        l.expect(7);
        let c = l.expect_at_b(wr_id);
        assert_eq!((c.imm, c.byte_len as usize), (imm, GRH_LEN + 4));
        assert_eq!(l.b.mem.bytes(1000 + GRH_LEN, 4), b"data");
    }
}

fn to_b<F: Fabric>(l: &Link<'_, F>, imm: Option<u32>) -> SendOp {
    SendOp::UdSend {
        av: l.b.hca.port().av,
        qpn: l.b.qp,
        qkey: KEY,
        imm,
    }
}

/// Header and payload go over the buffers as one.
pub fn datagrams_gather_and_scatter<F: Fabric>(fabric: &F) {
    let l = pair(fabric);
    let data = pattern(200, 3);
    l.a.mem.fill(0, &data[..77]);
    l.a.mem.fill(500, &data[77..]);
    let split = [(2000, 13), (3000, GRH_LEN - 13 + 50), (4000, 150)];
    let sges = split.map(|(offset, len)| l.b.mem.sge(offset, len));
    l.b.receive(1, &sges);
    let from = [l.a.mem.sge(0, 77), l.a.mem.sge(500, 123)];
    l.a.post_wr(&SendWr::new(7, to_b(&l, None), &from));
    l.expect(7);
    assert_eq!(l.expect_at_b(1).byte_len as usize, GRH_LEN + 200);
    assert_eq!(l.b.mem.bytes(3000 + GRH_LEN - 13, 50), data[..50]);
    assert_eq!(l.b.mem.bytes(4000, 150), data[50..]);
}

/// Datagrams take receives of a shared receive queue.
pub fn datagrams_into_shared_receives<F: Fabric>(fabric: &F) {
    let options = Options {
        srq: true,
        ..Options::default()
    };
    let l = pair_with(fabric, options);
    for i in 0..4 {
        l.b.receive(i, &[l.b.mem.sge(1000 * i as usize, 256)]);
    }
    for i in 0..4 {
        send(&l.a, &l.b, KEY, &[i as u8; 9]).expect("post_send");
        l.expect(7);
        assert_eq!(l.expect_at_b(i).qpn, l.b.qp);
        assert_eq!(l.b.mem.bytes(1000 * i as usize + GRH_LEN, 9), [i as u8; 9]);
    }
}

/// A local error moves a UD queue pair to SQE: its sends are flushed, its receives go on.
pub fn a_datagram_that_cannot_be_sent_stops_only_the_send_queue<F: Fabric>(fabric: &F) {
    let l = pair(fabric);
    let good = l.a.mem.sge(0, 8);
    let bad = shmem_verbs::Sge {
        lkey: shmem_verbs::Lkey(good.lkey.0 ^ 0x100),
        ..good
    };
    l.a.post(1, to_b(&l, None), bad);
    l.expect_local_failure(1);
    l.a.post(2, to_b(&l, None), good);
    l.expect_failure(2, WcStatus::WrFlushErr);
    let state = state(l.a.hca, l.a.qp);
    if fabric.forgives(
        fabric.lapses().local_failures_flush,
        "a UD queue pair fails as a whole",
    ) {
        assert_eq!(state, QpState::Err);
        return;
    }
    assert_eq!(state, QpState::Sqe);
    l.a.receive(3, &[l.a.mem.sge(1000, 256)]);
    send(&l.b, &l.a, KEY, b"still there").expect("post_send");
    l.expect(3);
    assert_eq!(l.a.mem.bytes(1000 + GRH_LEN, 11), b"still there");
}
