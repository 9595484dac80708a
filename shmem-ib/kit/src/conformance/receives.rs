//! Checks of receives that are missing, too short, or may not be written.

use super::Fabric;
use super::harness::{Link, Options, Region, state};
use shmem_verbs::{Access, Hca, QpAttr, QpState, SendOp, WcStatus};

const SEND: SendOp = SendOp::Send { imm: None };

/// Both sides have failed.
fn both_failed<F: Fabric>(l: &Link<'_, F>) {
    for side in [&l.a, &l.b] {
        let failed = || state(side.hca, side.qp) == QpState::Err;
        l.wait_until("the failure of a queue pair", failed);
    }
}

/// How a receive of `b` fails, and the send of `a` for it.
fn receive_fails<F: Fabric>(
    fabric: &F,
    l: &Link<'_, F>,
    (sent, received): (u64, u64),
    expected: (WcStatus, WcStatus),
) {
    let (send, receive) = (l.next(&l.a), l.next(&l.b));
    assert_eq!((send.wr_id, receive.wr_id), (sent, received));
    let got = (send.status, receive.status);
    let vague = got == (WcStatus::RemOpErr, WcStatus::LocQpOpErr)
        && fabric.forgives(
            fabric.lapses().vague_receive_errors,
            "receives fail with an operation error",
        );
    assert!(vague || got == expected, "{send:?} {receive:?}");
}

/// The receiver reports its length error, the sender an invalid request; both fail.
pub fn a_send_longer_than_its_receive<F: Fabric>(fabric: &F) {
    for len in [9, 9000] {
        let l = Link::new(fabric, Options::default());
        l.b.mem.fill(0, &[0x5a; 64]);
        l.b.receive(1, &[l.b.mem.sge(1000, len - 1)]);
        l.b.receive(2, &[l.b.mem.sge(0, 64)]);
        l.a.post(3, SEND, l.a.mem.sge(0, len));
        l.a.post(4, SEND, l.a.mem.sge(0, 8));
        let expected = (WcStatus::RemInvReqErr, WcStatus::LocLenErr);
        receive_fails(fabric, &l, (3, 1), expected);
        l.expect_failure(4, WcStatus::WrFlushErr);
        l.expect_failure_at_b(2, WcStatus::WrFlushErr);
        both_failed(&l);
        assert_eq!(l.b.mem.bytes(0, 64), [0x5a; 64]);
        assert_eq!(l.b.mem.bytes(1000 + len - 1, 8), [0; 8]);
    }
}

/// A receive whose buffer may not be written: the receiver names it, the sender learns that the
/// other side could not.
pub fn a_receive_that_may_not_be_written<F: Fabric>(fabric: &F) {
    let l = Link::new(fabric, Options::default());
    let source = Region::new(l.b.hca, 64, Access::NONE);
    l.b.receive(1, &[source.sge(0, 64)]);
    l.a.mem.set_word(0, 5);
    l.a.post(2, SEND, l.a.mem.sge(0, 8));
    let expected = (WcStatus::RemOpErr, WcStatus::LocProtErr);
    receive_fails(fabric, &l, (2, 1), expected);
    both_failed(&l);
    assert_eq!(source.word(0), 0);
}

/// A SEND and a WRITE with immediate data wait until there is a receive; what was posted before
/// them completes.
pub fn receiver_not_ready_is_waited_for<F: Fabric>(fabric: &F) {
    let l = Link::new(fabric, Options::default());
    let mtu = l.options.mtu.bytes();
    for len in [8, 2 * mtu + 5] {
        let data = super::harness::pattern(len, len as u64);
        l.a.mem.fill(0, &data);
        l.b.mem.fill(0, &vec![0; len + 8]);
        l.a.post(1, l.write_to_b(40_000), l.a.mem.sge(0, 8));
        l.a.post(2, SEND, l.a.mem.sge(0, len));
        l.a.post(3, l.write_to_b(40_008), l.a.mem.sge(0, 8));
        l.expect(1);
        l.expect_silence(&l.a);
        assert_eq!(l.b.mem.word(40_008), 0, "a later request overtook the SEND");
        l.b.receive(4, &[l.b.mem.sge(0, len)]);
        l.expect(2);
        l.expect(3);
        assert_eq!(l.expect_at_b(4).byte_len as usize, len);
        assert_eq!(l.b.mem.bytes(0, len), data);

        let (raddr, rkey, imm) = (l.b.mem.at(40_000), l.b.mem.mr.rkey, Some(9));
        l.a.post(5, SendOp::Write { raddr, rkey, imm }, l.a.mem.sge(0, len));
        l.expect_silence(&l.a);
        l.b.receive(6, &[]);
        l.expect(5);
        assert_eq!(l.expect_at_b(6).imm, imm);
        assert_eq!(l.b.mem.bytes(40_000, len), data);
        l.b.mem.fill(40_000, &vec![0; len + 8]);
    }
}

/// Without a receive within the budget the sender fails; the receiver is as before.
pub fn receiver_not_ready_for_too_long<F: Fabric>(fabric: &F) {
    for rnr_retry in [0, 2] {
        let l = Link::new(
            fabric,
            Options {
                rnr: (1, rnr_retry),
                ..Options::default()
            },
        );
        l.a.post(1, l.write_to_b(0), l.a.mem.sge(0, 8));
        l.a.post(2, SEND, l.a.mem.sge(0, 8));
        l.a.post(3, l.write_to_b(0), l.a.mem.sge(0, 8));
        l.expect(1);
        l.expect_failure(2, WcStatus::RnrRetryExcErr);
        l.expect_failure(3, WcStatus::WrFlushErr);
        assert_eq!(state(l.a.hca, l.a.qp), QpState::Err);
        assert_eq!(state(l.b.hca, l.b.qp), QpState::Rts);
    }
}

/// A receive that a message has begun to fill is flushed like those behind it.
pub fn a_broken_message_flushes_its_receive<F: Fabric>(fabric: &F) {
    let l = Link::new(
        fabric,
        Options {
            len: 1 << 20,
            ..Options::default()
        },
    );
    l.b.receive(1, &[l.b.mem.sge(0, 1 << 20)]);
    l.b.receive(2, &[l.b.mem.sge(0, 64)]);
    l.a.mem.fill(0, &[7; 64]);
    l.a.post(3, SEND, l.a.mem.sge(0, 1 << 20));
    let begun = || l.b.mem.bytes(0, 1) == [7];
    l.wait_until("the first packet", begun);
    l.b.hca.modify_qp(l.b.qp, &QpAttr::Err).expect("to ERR");
    let c = l.next(&l.b);
    assert_eq!(c.wr_id, 1);
    // On a fast way the message may have been complete.
    let ends = [WcStatus::WrFlushErr, WcStatus::Success];
    assert!(ends.contains(&c.status), "{c:?}");
    l.expect_failure_at_b(2, WcStatus::WrFlushErr);
    l.expect_silence(&l.b);
}
