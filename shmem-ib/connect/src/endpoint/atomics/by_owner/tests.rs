//! Two endpoints whose requester misbehaves, or whose device has no inline data.

use super::books::WINDOW;
use super::message::{MAX_LEN, Message, Request};
use crate::atomic::{AtomicOp, Width};
use crate::endpoint::operations::table::{Op, OpKind};
use crate::endpoint::{Atomics, ConnError, ContextId, Refusal};
use crate::job::{Job, Plain, WORDS};
use shmem_verbs::{SendOp, Sge};

/// `n` PEs, whose devices take no more than `max_inline` bytes inline.
fn job(n: u32, max_inline: Option<usize>) -> Job {
    let job = Job::with(n, |config, _| config.atomics = Atomics::Owner);
    if let Some(max_inline) = max_inline {
        for pe in &job.pes {
            pe.endpoint.lock().copies.inline = max_inline;
        }
    }
    job
}

/// Has PE 0 send PE 1 a request as it is, whatever it says.
fn ask(job: &Job, segment: u8, offset: u64, what: Option<(AtomicOp, Width)>) -> ConnError {
    let kind = OpKind::Asked("request");
    let mut locked = job.pes[0].endpoint.lock();
    let mut target = locked.connected(1, 0, kind, 0, 8).expect("a connection");
    let id = locked.ops.insert(Op {
        waited: true,
        asks: true,
        ..Op::new(ContextId::DEFAULT, kind, 1, offset, 8)
    });
    let request = Message::Request(Request {
        token: id.to_bits(),
        segment,
        offset,
        what,
    });
    let posted = locked.post_message(id, &mut target, &request);
    posted.expect("room");
    locked.result(id).expect_err("it cannot be executed")
}

#[test]
fn impossible_requests_are_refused_and_change_nothing() {
    let job = job(2, None);
    let add = AtomicOp::Add(u64::MAX);
    let (w4, w8) = (Some((add, Width::W4)), Some((add, Width::W8)));
    let size = WORDS as u64 * 8;
    let cases = [
        (5, 0, w8, Refusal::NoSegment),
        (0, size, w8, Refusal::OutOfRange),
        (0, size - 4, w8, Refusal::OutOfRange),
        (0, size - 2, w4, Refusal::OutOfRange),
        (0, u64::MAX - 3, w8, Refusal::OutOfRange),
        (0, u64::MAX, w4, Refusal::OutOfRange),
        (0, 12, w8, Refusal::Misaligned),
        (0, 2, w4, Refusal::Misaligned),
        (0, 0, None, Refusal::Unknown),
    ];
    for (segment, at, what, expected) in cases {
        match ask(&job, segment, at, what) {
            ConnError::Refused { why, offset, .. } if why == expected && offset == at => {}
            e => panic!("{expected} was expected: {e}"),
        }
    }
    // The connection has not suffered.
    assert_eq!(
        job.pes[0].endpoint.fetch_add(1, 8, 3).expect("it is sound"),
        0
    );
    let sum: u64 = (0..WORDS as u64).map(|i| job.pes[1].word(i * 8)).sum();
    assert_eq!(sum, 3);
    assert_eq!(job.pes[1].endpoint.stats().atomics_served, 1);
}

#[test]
fn garbage_ends_its_connection_and_no_other() {
    for garbage in [&[0u8; 8][..], &[1, 9, 0, 0, 0, 0, 0, 0], &[1], &[1; 128]] {
        let job = job(3, None);
        {
            let mut locked = job.pes[0].endpoint.lock();
            let kind = OpKind::Asked("garbage");
            let mut target = locked.connected(1, 0, kind, 0, 8).expect("a connection");
            let id = locked
                .ops
                .insert(Op::new(ContextId::DEFAULT, kind, 1, 0, 0));
            let what = SendOp::Send { imm: None };
            let sge = Sge::default();
            // SAFETY: the data is inline.
            let posted = unsafe { locked.post_one(id, &mut target, what, sge, Some(garbage)) };
            posted.expect("room");
            locked.all_posted(id);
        }
        // The owner gives the connection up, which PE 0 finds out, one way or another.
        let error = job.pes[0].endpoint.fetch_add(1, 0, 1).map(drop);
        let later = job.pes[0].endpoint.quiet();
        assert!(error.is_err() || later.is_err(), "{garbage:?}");
        assert_eq!(
            job.pes[2].endpoint.fetch_add(1, 0, 1).expect("another one"),
            0
        );
    }
}

#[test]
fn who_asks_for_more_than_it_may_is_cut_off() {
    let job = job(2, None);
    job.pes[0]
        .endpoint
        .fetch_add(1, 8, 1)
        .expect("a connection");
    let request = Request {
        token: 1 << 40,
        segment: 0,
        offset: 0,
        what: Some((AtomicOp::Add(1), Width::W8)),
    };
    {
        // With the lock no answer leaves, as if PE 0 did not acknowledge them.
        let mut locked = job.pes[1].endpoint.lock();
        let qpn = locked.manager.rc_qp(0).expect("PE 0 has connected");
        for _ in 0..WINDOW {
            locked.serve(0, qpn, &request);
        }
        assert!(locked.qps.broken.is_empty());
        locked.serve(0, qpn, &request);
    }
    let error = job.pes[1]
        .endpoint
        .fetch_add(0, 0, 1)
        .expect_err("it was given up");
    assert!(matches!(error, ConnError::Conversation { .. }), "{error}");
    let error = job.pes[0]
        .endpoint
        .fetch_add(1, 8, 1)
        .expect_err("nobody is there");
    assert!(error.to_string().contains("PE 1"), "{error}");
}

#[test]
fn without_inline_data_messages_leave_from_registered_memory() {
    for max_inline in [0, 8, 48, MAX_LEN - 1] {
        let job = job(2, Some(max_inline));
        for pe in &job.pes {
            let (me, end) = (pe.number, &pe.endpoint);
            for i in 0..300u64 {
                end.add_nbi(1 - me, 0, 1).expect("a connection");
                if i % 3 == 0 {
                    assert_eq!(end.fetch_add(1 - me, 8, 1).expect("an answer"), i / 3);
                }
            }
            end.quiet().expect("all answers");
        }
        for pe in &job.pes {
            let seen = [0, 8].map(|at| pe.word(at));
            assert_eq!(seen, [300, 100], "with {max_inline} bytes inline");
        }
    }
}
