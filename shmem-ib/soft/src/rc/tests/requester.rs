//! Tests of the requester alone: what it sends, and when.

use super::*;
use shmem_verbs::{Lkey, Rkey, SendWr, Sge};

const MTU: u32 = 1024;
const PSN: Psn = Psn(0xff_fff0);

fn requester(max_rd_atomic: u8, give_up_ns: Option<u64>) -> Requester {
    Requester::new(
        PSN,
        Limits {
            mtu: MTU,
            max_rd_atomic,
            give_up_ns,
            min_resends: 3,
            rnr_retry: 7,
        },
        1,
    )
}

fn write(wr_id: u64, len: u32) -> Wqe {
    wqe(wr_id, SendOp::write(0, Rkey(1)), len)
}

fn read(wr_id: u64, len: u32) -> Wqe {
    wqe(
        wr_id,
        SendOp::Read {
            raddr: 1 << 40,
            rkey: Rkey(1),
        },
        len,
    )
}

fn add(wr_id: u64) -> Wqe {
    wqe(wr_id, SendOp::fetch_add(0, Rkey(1), 1), 8)
}

fn wqe(wr_id: u64, op: SendOp, len: u32) -> Wqe {
    let sge = Sge {
        addr: 0x10_0000,
        len,
        lkey: Lkey(1),
    };
    Wqe::new(&SendWr::new(wr_id, op, &[sge]), false)
}

/// Everything that may be sent now: offset from the first PSN, opcode, whether again.
fn sent(r: &mut Requester, now: u64) -> Vec<(i32, Opcode, bool)> {
    let mut out = Vec::new();
    while let Some(q) = r.poll(now) {
        out.push((q.psn.since(PSN), q.opcode, q.again));
    }
    out
}

fn psns(r: &mut Requester, now: u64) -> Vec<i32> {
    sent(r, now).into_iter().map(|(psn, ..)| psn).collect()
}

fn ids(done: &[Done]) -> Vec<u64> {
    assert!(
        done.iter().all(|d| d.status == WcStatus::Success),
        "{done:?}"
    );
    done.iter().map(|d| d.wr_id).collect()
}

#[test]
fn one_ack_completes_everything_before_it() {
    let (mut r, mut done) = (requester(4, None), Vec::new());
    for (i, len) in [0, 1, 1024, 1025, 3000].into_iter().enumerate() {
        r.post(write(i as u64, len));
    }
    use Opcode::{WriteFirst as F, WriteLast as L, WriteMiddle as M, WriteOnly as O};
    let expected = [O, O, O, F, L, F, M, L];
    let got = sent(&mut r, 0);
    assert_eq!(got.iter().map(|s| s.1).collect::<Vec<_>>(), expected);
    assert_eq!(
        got.iter().map(|s| s.0).collect::<Vec<_>>(),
        (0..8).collect::<Vec<_>>()
    );
    // Up to the middle of the fourth: three are complete.
    r.on_ack(10, PSN.add(3), &mut done);
    assert_eq!(ids(&done), [0, 1, 2]);
    r.on_ack(20, PSN.add(7), &mut done);
    assert_eq!(ids(&done), [0, 1, 2, 3, 4]);
    assert!(r.deadline().is_none() && r.len() == 0 && r.is_quiet());
}

#[test]
fn acks_that_cannot_be_are_ignored() {
    let (mut r, mut done) = (requester(4, None), Vec::new());
    r.post(write(0, 8));
    r.post(write(1, 8));
    assert_eq!(psns(&mut r, 0), [0, 1]);
    for psn in [
        PSN.add(Psn::MASK),
        PSN.add(2),
        PSN.add(1 << 22),
        PSN.add(1 << 23),
    ] {
        r.on_ack(1, psn, &mut done);
        r.on_nak_sequence(1, PSN.add(3), &mut done);
    }
    assert!(done.is_empty() && r.deadline().is_some());
    assert!(
        psns(&mut r, 2).is_empty(),
        "something was sent again for no reason"
    );
}

/// The answer of `len` bytes with this PSN has come.
fn is_answered(r: &mut Requester, now: u64, psn: u32, len: u32, done: &mut Vec<Done>) {
    let to = r.on_response(now, PSN.add(psn), len, false, done);
    assert!(to.is_some_and(|to| to.fits));
    r.on_response_stored(now, PSN.add(psn), len, done);
}

#[test]
fn reads_take_one_psn_per_response_packet_and_respect_the_limit() {
    let (mut r, mut done) = (requester(2, None), Vec::new());
    r.post(read(0, 3 * MTU + 1));
    r.post(write(1, 1));
    r.post(add(2));
    r.post(add(3));
    r.post(write(4, 1));
    // The third READ or atomic waits, and with it everything behind.
    assert_eq!(psns(&mut r, 0), [0, 4, 5]);
    for i in 0..4 {
        let len = if i == 3 { 1 } else { MTU };
        for (other, fits) in [(len + 1, false), (len - 1, false), (len, true)] {
            let to = r.on_response(1, PSN.add(i), other, false, &mut done);
            let to = to.expect("the expected response");
            assert_eq!((to.sges.len(), to.offset, to.fits), (1, i * MTU, fits));
        }
        r.on_response_stored(1, PSN.add(i), len, &mut done);
    }
    assert_eq!(ids(&done), [0]);
    assert_eq!(psns(&mut r, 1), [6, 7]);
    // An answer acknowledges the WRITE before it.
    assert!(
        r.on_response(2, PSN.add(5), 8, false, &mut done)
            .expect("the atomic's answer")
            .atomic
    );
    assert_eq!(ids(&done), [0, 1]);
}

#[test]
fn big_reads_are_asked_for_in_pieces() {
    let mut r = requester(16, None);
    r.post(read(0, 400 * MTU));
    let mut lens = Vec::new();
    while let Some(q) = r.poll(0) {
        let Ext::Reth(reth) = q.ext else {
            panic!("{q:?}")
        };
        assert_eq!(
            reth.va,
            (1 << 40) + u64::from(q.psn.since(PSN) as u32 * MTU)
        );
        lens.push(reth.len);
    }
    // The first window is two bursts of 60 packets, as a piece is.
    assert_eq!(lens, [120 * MTU]);
}

#[test]
fn nak_goes_back_once() {
    let (mut r, mut done) = (requester(4, None), Vec::new());
    for i in 0..6 {
        r.post(write(i, 1));
    }
    assert_eq!(psns(&mut r, 0).len(), 6);
    r.on_nak_sequence(1, PSN.add(2), &mut done);
    assert_eq!(ids(&done), [0, 1]);
    let again = sent(&mut r, 1);
    assert_eq!(again.iter().map(|s| s.0).collect::<Vec<_>>(), [2, 3, 4, 5]);
    assert!(again.iter().all(|s| s.2));
    r.on_nak_sequence(2, PSN.add(2), &mut done);
    assert!(
        psns(&mut r, 2).is_empty(),
        "a doubled NAK caused another repetition"
    );
    // After progress another loss counts again.
    r.on_ack(3, PSN.add(3), &mut done);
    r.on_nak_sequence(3, PSN.add(4), &mut done);
    assert_eq!(psns(&mut r, 3), [4, 5]);
}

#[test]
fn ack_behind_an_unanswered_read_means_its_answer_was_lost() {
    let (mut r, mut done) = (requester(4, None), Vec::new());
    r.post(write(0, 1));
    r.post(read(1, 2 * MTU));
    r.post(write(2, 1));
    assert_eq!(psns(&mut r, 0), [0, 1, 3]);
    // The second response packet comes without the first.
    assert_eq!(r.on_response(1, PSN.add(2), MTU, false, &mut done), None);
    assert_eq!(ids(&done), [0]);
    assert_eq!(psns(&mut r, 1), [1, 3]);
    // The first arrives, the second is lost, and the ACK of the WRITE shows it.
    is_answered(&mut r, 2, 1, MTU, &mut done);
    r.on_ack(3, PSN.add(3), &mut done);
    assert_eq!(ids(&done), [0], "a READ must not complete without its data");
    let q = r.poll(3).expect("the rest of the READ");
    let Ext::Reth(reth) = q.ext else {
        panic!("{q:?}")
    };
    assert_eq!(
        (q.psn, reth.va, reth.len),
        (PSN.add(2), (1 << 40) + u64::from(MTU), MTU)
    );
}

#[test]
fn a_timeout_repeats_one_packet_and_nothing_more_if_it_was_needless() {
    let (mut r, mut done) = (requester(4, None), Vec::new());
    for i in 0..4 {
        r.post(write(i, 1));
    }
    assert_eq!(psns(&mut r, 0).len(), 4);
    let at = r.deadline().expect("a timer");
    assert_eq!(r.on_timeout(at - 1), Expiry::NotDue);
    assert_eq!(r.on_timeout(at), Expiry::Resend);
    assert_eq!(psns(&mut r, at), [0]);
    // The second packet was not repeated, so its first copy has arrived.
    r.on_ack(at, PSN.add(1), &mut done);
    assert_eq!(ids(&done), [0, 1]);
    r.post(write(4, 1));
    assert_eq!(psns(&mut r, at), [4], "the others are under way");
    // One of these was lost: the next timeout begins there.
    let at = r.deadline().expect("a timer");
    assert_eq!(r.on_timeout(at), Expiry::Resend);
    assert_eq!(psns(&mut r, at), [2]);
    r.on_ack(at, PSN.add(2), &mut done);
    assert_eq!(
        psns(&mut r, at),
        [3, 4],
        "the answer may be to the repetition"
    );
    r.on_ack(at, PSN.add(4), &mut done);
    assert_eq!(ids(&done), [0, 1, 2, 3, 4]);
    assert!(r.deadline().is_none() && r.is_quiet());
}

#[test]
fn a_needless_timeout_forgets_no_answer_that_is_to_come() {
    for answered in 1..4 {
        let (mut r, mut done) = (requester(4, None), Vec::new());
        r.post(write(0, 1));
        r.post(add(1));
        r.post(read(2, MTU));
        r.post(add(3));
        assert_eq!(psns(&mut r, 0), [0, 1, 2, 3]);
        let mut now = 0;
        for _ in 0..2 {
            now = r.deadline().expect("a timer");
            assert_eq!(r.on_timeout(now), Expiry::Resend);
            assert_eq!(psns(&mut r, now), [0]);
        }
        for psn in 1..=answered {
            let len = if psn == 2 { MTU } else { 8 };
            is_answered(&mut r, now, psn, len, &mut done);
            assert!(psns(&mut r, now).is_empty(), "nothing is repeated");
        }
        let ended: Vec<u64> = (0..=u64::from(answered)).collect();
        assert_eq!(ids(&done), ended);
        // What follows an answer that did not come shows that it was lost.
        r.post(write(4, 1));
        assert_eq!(psns(&mut r, now), [4]);
        r.on_ack(now, PSN.add(4), &mut done);
        let lost: Vec<i32> = (answered as i32 + 1..4).collect();
        assert_eq!(psns(&mut r, now).first(), lost.first());
    }
}

#[test]
fn timeouts_double_and_end_with_the_budget() {
    let mut r = requester(4, Some(100_000_000));
    r.post(write(0, 1));
    assert_eq!(psns(&mut r, 5), [0]);
    let (mut times, mut now) = (Vec::new(), 5);
    loop {
        let at = r.deadline().expect("a timer");
        assert!(at > now);
        now = at;
        match r.on_timeout(at) {
            Expiry::Resend => assert_eq!(psns(&mut r, at), [0]),
            Expiry::GiveUp => break,
            other => panic!("{other:?}"),
        }
        times.push(at);
    }
    assert_eq!(
        now, 100_000_005,
        "the budget counts from the first transmission"
    );
    assert!((3..6).contains(&times.len()), "{times:?}");
    assert!(
        times.windows(3).all(|w| w[2] - w[1] > w[1] - w[0]),
        "{times:?}"
    );
    let mut done = Vec::new();
    r.fail(now, r.oldest(), WcStatus::RetryExcErr, &mut done);
    assert_eq!((done.len(), done[0].status), (1, WcStatus::RetryExcErr));
    assert!(r.deadline().is_none());
}

/// A process that was stopped for longer than the budget repeats before it gives up, and its peer, which
/// may have been stopped as well, has what is left of the budget to answer.
#[test]
fn a_late_look_at_the_clock_is_not_silence_of_the_peer() {
    const BUDGET: u64 = 5_000_000_000;
    let mut r = requester(4, Some(BUDGET));
    r.post(write(0, 1));
    assert_eq!(psns(&mut r, 0), [0]);
    let went_on = 300_000_000_000;
    let left = BUDGET - r.deadline().expect("a timer");
    let mut now = went_on;
    while r.on_timeout(now) == Expiry::Resend {
        assert_eq!(psns(&mut r, now), [0]);
        now = r.deadline().expect("a timer");
    }
    assert_eq!(now, went_on + left);
}

/// One that could not be scheduled for longer than the budget, but not for long, repeats, too.
#[test]
fn a_short_budget_is_no_reason_to_give_up_unheard() {
    let mut r = requester(4, Some(100_000_000));
    r.post(write(0, 1));
    assert_eq!(psns(&mut r, 0), [0]);
    let mut now = 900_000_000;
    for _ in 0..3 {
        assert_eq!(r.on_timeout(now), Expiry::Resend);
        assert_eq!(psns(&mut r, now), [0]);
        let at = r.deadline().expect("a timer");
        assert!(at >= now + 8_000_000, "no time to answer");
        now = at;
    }
    assert_eq!(r.on_timeout(now), Expiry::GiveUp);
}

#[test]
fn receiver_not_ready_waits_as_told() {
    let (mut r, mut done) = (requester(4, Some(50_000_000)), Vec::new());
    r.post(write(0, 1));
    r.post(write(1, 1));
    assert_eq!(psns(&mut r, 0), [0, 1]);
    assert!(!r.on_rnr(10, PSN.add(1), 1_000_000, &mut done));
    assert_eq!(ids(&done), [0]);
    assert!(psns(&mut r, 10).is_empty());
    assert_eq!(r.deadline(), Some(1_000_010));
    assert_eq!(r.on_timeout(1_000_009), Expiry::NotDue);
    assert_eq!(r.on_timeout(1_000_010), Expiry::RnrOver);
    assert_eq!(psns(&mut r, 1_000_010), [1]);
}

#[test]
fn failure_blames_the_right_request() {
    let (mut r, mut done) = (requester(4, None), Vec::new());
    for i in 0..5 {
        r.post(write(i, 1500));
    }
    r.post(write(5, 1));
    assert_eq!(psns(&mut r, 0).len(), 11);
    r.fail(1, PSN.add(5), WcStatus::RemAccessErr, &mut done);
    let got: Vec<_> = done.iter().map(|d| (d.wr_id, d.status)).collect();
    use WcStatus::{RemAccessErr as E, Success as S, WrFlushErr as F};
    assert_eq!(got, [(0, S), (1, S), (2, E), (3, F), (4, F), (5, F)]);
}

#[test]
fn the_window_bounds_what_is_in_flight() {
    let (mut r, mut done) = (requester(4, None), Vec::new());
    r.post(write(0, 1000 * MTU));
    // 1000 packets are a burst of 2 and 17 bursts of 58 or 59.
    assert_eq!(psns(&mut r, 0).len(), 2 + 2 * 59);
    r.on_ack(1, PSN.add(119), &mut done);
    let n = psns(&mut r, 1).len();
    assert_eq!(n, 4 * 59, "the window doubles per round trip at first");
    let mut next = 120 + n as u32;
    for round in 0..20 {
        r.on_ack(2 + round, PSN.add(next - 1), &mut done);
        next += psns(&mut r, 2 + round).len() as u32;
        assert!(r.flight.cur.since(r.una) <= 240);
    }
    assert_eq!(next, 1000);
}

#[test]
fn whatever_the_window_its_last_packet_asks_for_an_acknowledgement() {
    let (mut r, mut done) = (requester(4, None), Vec::new());
    r.post(write(0, 5000 * MTU));
    let (mut next, mut rounds) = (0, 0);
    while r.una != PSN.add(5000) {
        let mut last = None;
        while let Some(q) = r.poll(rounds) {
            next = q.psn.add(1).since(PSN) as u32;
            last = Some(q.ack_req);
        }
        assert_eq!(last, Some(true), "packet {next} of round {rounds}");
        // Losses of all sizes let the window take many values.
        let missing = [0, 1, 7][rounds as usize % 3].min(next - 1);
        if missing > 0 && PSN.add(next - missing).since(r.una) > 0 {
            r.on_nak_sequence(rounds, PSN.add(next - missing), &mut done);
        } else {
            r.on_ack(rounds, PSN.add(next - 1), &mut done);
        }
        rounds += 1;
    }
    assert_eq!(ids(&done), [0]);
}

fn send(wr_id: u64, len: u32) -> Wqe {
    wqe(wr_id, SendOp::Send { imm: None }, len)
}

fn with_rnr_retry(rnr_retry: u8) -> Requester {
    let mut r = requester(4, None);
    r.limits.rnr_retry = rnr_retry;
    r
}

#[test]
fn messages_have_their_opcodes_and_headers() {
    let rkey = Rkey(9);
    let cases = [
        (
            SendOp::Send { imm: None },
            Opcode::SendOnly,
            Opcode::SendLast,
        ),
        (
            SendOp::Send { imm: Some(5) },
            Opcode::SendOnlyImm,
            Opcode::SendLastImm,
        ),
        (
            SendOp::Write {
                raddr: 64,
                rkey,
                imm: Some(5),
            },
            Opcode::WriteOnlyImm,
            Opcode::WriteLastImm,
        ),
    ];
    for (op, only, last) in cases {
        let mut r = requester(4, None);
        r.post(wqe(0, op, MTU));
        r.post(wqe(1, op, 2 * MTU + 1));
        let mut got = Vec::new();
        while let Some(q) = r.poll(0) {
            assert_eq!(q.ext.kind(), q.opcode.ext(), "{op:?}");
            got.push(q.opcode);
        }
        let write = matches!(op, SendOp::Write { .. });
        let (first, middle) = match write {
            true => (Opcode::WriteFirst, Opcode::WriteMiddle),
            false => (Opcode::SendFirst, Opcode::SendMiddle),
        };
        assert_eq!(got, [only, first, middle, last], "{op:?}");
    }
}

#[test]
fn rnr_naks_are_counted_until_there_is_progress() {
    let (mut r, mut done) = (with_rnr_retry(2), Vec::new());
    r.post(send(0, 1));
    r.post(send(1, 1));
    let mut now = 0;
    assert_eq!(psns(&mut r, now), [0, 1]);
    for _ in 0..2 {
        assert!(!r.on_rnr(now, PSN, 100, &mut done));
        // Another copy of the same NAK does not count.
        assert!(!r.on_rnr(now, PSN, 100, &mut done));
        now += 100;
        assert_eq!(r.on_timeout(now), Expiry::RnrOver);
        assert_eq!(psns(&mut r, now), [0, 1]);
    }
    r.on_ack(now, PSN, &mut done);
    assert_eq!(ids(&done), [0]);
    for _ in 0..2 {
        assert!(!r.on_rnr(now, PSN.add(1), 100, &mut done));
        now += 100;
        r.on_timeout(now);
        assert_eq!(psns(&mut r, now), [1]);
    }
    assert!(
        r.on_rnr(now, PSN.add(1), 100, &mut done),
        "the budget is two"
    );
    assert!(with_rnr_retry(0).rnr.naks == 0);
    let mut r = with_rnr_retry(0);
    r.post(send(0, 1));
    psns(&mut r, 0);
    assert!(r.on_rnr(0, PSN, 100, &mut done), "no retry means none");
}

#[test]
fn rnr_without_end_outlasts_the_silence_budget() {
    let mut r = requester(4, Some(50_000_000));
    let mut done = Vec::new();
    r.post(send(0, 1));
    let mut now = 0;
    for _ in 0..100 {
        assert_eq!(psns(&mut r, now), [0]);
        assert!(!r.on_rnr(now, PSN, 400_000_000, &mut done));
        now = r.deadline().expect("the end of the wait");
        assert_eq!(r.on_timeout(now), Expiry::RnrOver);
    }
}

#[test]
fn rnr_behind_an_unanswered_read_repeats_the_read() {
    let (mut r, mut done) = (with_rnr_retry(0), Vec::new());
    r.post(read(0, 1));
    r.post(send(1, 1));
    assert_eq!(psns(&mut r, 0), [0, 1]);
    assert!(!r.on_rnr(1, PSN.add(1), 10, &mut done));
    assert_eq!(psns(&mut r, 1), [0, 1], "the answer to the READ was lost");
}

#[test]
fn an_ack_that_overtakes_nothing_and_ghosts_of_earlier_ones_change_nothing() {
    let (mut r, mut done) = (requester(4, None), Vec::new());
    r.post(send(0, 1));
    r.post(send(1, 1));
    assert_eq!(psns(&mut r, 0), [0, 1]);
    r.on_ack(1, PSN, &mut done);
    // The same again, one for a packet not sent yet, and negative ones of the past.
    r.post(send(2, 1));
    for ghost in [PSN, PSN.add(2)] {
        r.on_ack(2, ghost, &mut done);
        assert!(!r.on_rnr(2, ghost, 10, &mut done));
        assert!(!r.concerns(ghost));
    }
    assert_eq!((ids(&done), psns(&mut r, 2)), (vec![0], vec![2]));
}

#[test]
fn a_fenced_request_waits_for_answers_and_not_for_acknowledgements() {
    let (mut r, mut done) = (requester(4, None), Vec::new());
    r.post(write(0, 1));
    r.post(read(1, 1));
    r.post(Wqe {
        fence: true,
        ..write(2, 1)
    });
    r.post(write(3, 1));
    assert_eq!(psns(&mut r, 0), [0, 1]);
    r.on_ack(1, PSN, &mut done);
    assert_eq!(psns(&mut r, 1), []);
    is_answered(&mut r, 2, 1, 1, &mut done);
    assert_eq!(psns(&mut r, 2), [2, 3]);
    // WRITEs alone hold up no fence.
    r.post(Wqe {
        fence: true,
        ..write(4, 1)
    });
    assert_eq!(psns(&mut r, 3), [4]);
}

#[test]
fn unsignaled_requests_hold_their_places_until_a_signaled_one_ends() {
    let (mut r, mut done) = (requester(4, None), Vec::new());
    for i in 0..3 {
        r.post(Wqe {
            signaled: i == 2,
            ..write(i, 1)
        });
    }
    assert_eq!(psns(&mut r, 0), [0, 1, 2]);
    r.on_ack(1, PSN.add(1), &mut done);
    assert_eq!((done.len(), r.len()), (0, 3));
    r.on_ack(2, PSN.add(2), &mut done);
    assert_eq!((ids(&done), r.len()), (vec![2], 0));
}
