//! Checks of datagrams.

use super::Fabric;
use super::harness::{Link, Options, Side, pattern};
use crate::verbs::{
    Access, GRH_LEN, Hca, Psn, Qkey, QpAttr, QpType, RecvWr, SendOp, SendWr, VerbsError, WcOpcode,
    WcStatus,
};

const KEY: Qkey = Qkey(0x1357_2468);

fn pair<F: Fabric>(fabric: &F) -> Link<'_, F> {
    let link = Link::unconnected(fabric, QpType::Ud, Options::default());
    for side in [&link.a, &link.b] {
        let attrs = [
            QpAttr::Init {
                access: Access::NONE,
                qkey: Some(KEY),
            },
            QpAttr::Rtr { dest: None },
            QpAttr::Rts {
                sq_psn: Psn(0xff_ffff),
                timeout: 0,
                retry_cnt: 0,
                rnr_retry: 7,
                max_rd_atomic: 0,
            },
        ];
        for attr in attrs {
            side.hca.modify_qp(side.qp, &attr).expect("modify_qp");
        }
    }
    link
}

fn receive<H: Hca>(side: &Side<'_, H>, wr_id: u64, offset: usize, len: usize) {
    let wr = RecvWr {
        wr_id,
        sges: &[side.mem.sge(offset, len)],
    };
    // SAFETY: regions are never freed.
    unsafe { side.hca.post_recv(side.qp, &wr) }.expect("post_recv");
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
    receive(&l.b, 5, 1000, 512);
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
    receive(&l.a, 6, 2000, 512);
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
    receive(&l.b, 1, 1000, 256);
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
    for (i, len) in [0, 1, 2, 3, 4, 255, 512, mtu - 1, mtu]
        .into_iter()
        .enumerate()
    {
        let data = pattern(len, i as u64 + 1);
        receive(&l.b, i as u64, 8192, GRH_LEN + mtu);
        send(&l.a, &l.b, KEY, &data).expect("post_send");
        l.expect(7);
        let c = l.next(&l.b);
        assert_eq!((c.wr_id, c.byte_len as usize), (i as u64, GRH_LEN + len));
        assert_eq!(l.b.mem.bytes(8192 + GRH_LEN, len), data);
    }
    let got = send(&l.a, &l.b, KEY, &vec![0; mtu + 1]);
    assert!(matches!(got, Err(VerbsError::TooLong { .. })), "{got:?}");
}
