//! Checks of what the operations do.

use super::Fabric;
use super::harness::{Link, Options, pattern};
use shmem_verbs::{Hca, Mtu, QpType, SendOp, SendWr, WcOpcode};

const SIZES: [usize; 20] = [
    0,
    1,
    3,
    4,
    7,
    8,
    9,
    255,
    256,
    257,
    1024,
    4095,
    4096,
    4097,
    8192,
    12_289,
    65_541,
    262_144,
    1 << 20,
    8 << 20,
];

/// MTUs of paths to try, each once: none goes beyond those of the ports.
fn mtus<F: Fabric>(fabric: &F) -> Vec<Mtu> {
    let [a, b] = fabric.hcas().map(|hca| hca.port().active_mtu);
    let mut mtus: Vec<_> = [Mtu::M61440, Mtu::M4096, Mtu::M1024]
        .map(|mtu| mtu.min(a).min(b))
        .into();
    mtus.dedup();
    mtus
}

/// Sizes of at most 2048 packets: more are not another case.
fn sizes(mtu: Mtu) -> impl Iterator<Item = usize> {
    let fits = move |size: &usize| *size <= 2048 * mtu.bytes();
    SIZES.into_iter().filter(fits)
}

/// WRITEs of 0 B to 8 MiB bring every byte and change no other.
pub fn writes_of_all_sizes<F: Fabric>(fabric: &F) {
    all_sizes(fabric, WcOpcode::Write);
}

/// READs of 0 B to 8 MiB bring every byte and change no other.
pub fn reads_of_all_sizes<F: Fabric>(fabric: &F) {
    all_sizes(fabric, WcOpcode::Read);
}

fn all_sizes<F: Fabric>(fabric: &F, opcode: WcOpcode) {
    let read = opcode == WcOpcode::Read;
    for mtu in mtus(fabric) {
        let link = Link::new(
            fabric,
            Options {
                len: (8 << 20) + 64,
                mtu,
                ..Options::default()
            },
        );
        for (i, size) in sizes(mtu).enumerate() {
            let (from, to) = (i % 8, i % 5 + 1);
            let data = pattern(size, i as u64 + 1);
            let (a, b) = (&link.a.mem, &link.b.mem);
            let (source, target, op, local) = match read {
                true => (b, a, link.read_from_b(from), a.sge(to, size)),
                false => (a, b, link.write_to_b(to), a.sge(from, size)),
            };
            source.fill(from, &data);
            target.fill(0, &vec![0xa5; size + 16]);
            link.a.post(i as u64, op, local);
            let c = link.expect(i as u64);
            assert_eq!(c.opcode, opcode);
            assert!(!read || c.byte_len as usize == size, "{c:?}");
            assert!(
                target.bytes(to, size) == data,
                "payload of {size} bytes differs"
            );
            assert_eq!(target.bytes(0, to), vec![0xa5; to], "before {size} bytes");
            assert_eq!(target.bytes(to + size, 8), [0xa5; 8], "after {size} bytes");
        }
    }
}

/// Fetch-and-add and compare-and-swap change the word and bring its old value.
pub fn atomics_return_old_values<F: Fabric>(fabric: &F) {
    let link = Link::new(fabric, Options::default());
    let (raddr, rkey) = (link.b.mem.at(64), link.b.mem.mr.rkey);
    link.b.mem.set_word(64, u64::MAX - 1);
    let ops = [
        (SendOp::fetch_add(raddr, rkey, 3), u64::MAX - 1, 1),
        (SendOp::fetch_add(raddr, rkey, u64::MAX), 1, 0),
        (
            SendOp::CmpSwap {
                raddr,
                rkey,
                compare: 5,
                swap: 77,
            },
            0,
            0,
        ),
        (
            SendOp::CmpSwap {
                raddr,
                rkey,
                compare: 0,
                swap: 1 << 60,
            },
            0,
            1 << 60,
        ),
        (SendOp::fetch_add(raddr, rkey, 0), 1 << 60, 1 << 60),
    ];
    for (i, (op, old, new)) in ops.into_iter().enumerate() {
        link.a.mem.set_word(16, 0xdead);
        link.a.post(i as u64, op, link.a.mem.sge(16, 8));
        let c = link.expect(i as u64);
        assert_eq!(c.opcode, WcOpcode::from(&op));
        assert_eq!(link.a.mem.word(16), old, "old value of {op:?}");
        assert_eq!(link.b.mem.word(64), new, "new value of {op:?}");
    }
    assert_eq!((link.b.mem.word(56), link.b.mem.word(72)), (0, 0));
}

/// Only signaled requests complete, and their completion covers those before.
pub fn unsignaled_requests_complete_silently<F: Fabric>(fabric: &F) {
    let link = Link::new(
        fabric,
        Options {
            depth: 16,
            ..Options::default()
        },
    );
    for round in 0..20_u64 {
        for i in 0..10_u64 {
            let offset = 8 * i as usize;
            link.a.mem.set_word(offset, round * 100 + i);
            let sges = [link.a.mem.sge(offset, 8)];
            let wr = SendWr {
                signaled: i == 9,
                ..SendWr::new(i, link.write_to_b(offset), &sges)
            };
            // SAFETY: regions are never freed.
            unsafe { link.a.hca.post_send(link.a.qp, &wr) }.expect("post_send");
        }
        link.expect(9);
        for i in 0..10 {
            assert_eq!(link.b.mem.word(8 * i), round * 100 + i as u64);
        }
    }
    link.expect_silence(&link.a);
}

/// A list of requests is what they are one by one: in order, each with its own buffer, payload and completion.
pub fn lists_of_requests<F: Fabric>(fabric: &F) {
    let link = Link::new(
        fabric,
        Options {
            depth: 64,
            ..Options::default()
        },
    );
    for (round, n) in (0_u64..).zip([1, 2, 15, 16, 17, 33, 40]) {
        let words: Vec<[u8; 8]> = (0..n).map(|i| (round * 1000 + i).to_ne_bytes()).collect();
        let sges: Vec<_> = (0..n as usize)
            .map(|i| {
                link.a.mem.fill(8 * i, &words[i]);
                [link.a.mem.sge(8 * i, 8)]
            })
            .collect();
        // Every third one brings its payload along; of the others every fourth tells, and so does the last.
        let requests: Vec<SendWr<'_>> = (0..n)
            .map(|i| SendWr {
                inline: (i % 3 == 0).then_some(&words[i as usize][..]),
                signaled: i % 4 == 0 || i == n - 1,
                ..SendWr::new(i, link.write_to_b(8 * i as usize), &sges[i as usize])
            })
            .collect();
        // SAFETY: regions are never freed.
        let posted = unsafe { link.a.hca.post_send_list(link.a.qp, &requests) };
        posted.expect("post_send_list");
        for i in (0..n).filter(|i| i % 4 == 0 || *i == n - 1) {
            link.expect(i);
        }
        for i in 0..n {
            assert_eq!(link.b.mem.word(8 * i as usize), round * 1000 + i, "of {n}");
        }
    }
    link.expect_silence(&link.a);
}

/// WRITEs to one place take effect in order; READs and atomics see all WRITEs before them.
pub fn requests_of_one_queue_keep_their_order<F: Fabric>(fabric: &F) {
    let link = Link::new(fabric, Options::default());
    let (raddr, rkey) = (link.b.mem.at(0), link.b.mem.mr.rkey);
    for round in 1..=30_u64 {
        for i in 0..8_usize {
            link.a.mem.set_word(8 * i, round * 10 + i as u64);
            link.a
                .post(i as u64, link.write_to_b(0), link.a.mem.sge(8 * i, 8));
        }
        link.a.post(8, link.read_from_b(0), link.a.mem.sge(512, 8));
        link.a
            .post(9, SendOp::fetch_add(raddr, rkey, 1), link.a.mem.sge(520, 8));
        link.a.post(10, link.read_from_b(0), link.a.mem.sge(528, 8));
        for i in 0..=10 {
            link.expect(i);
        }
        let last = round * 10 + 7;
        assert_eq!(link.a.mem.word(520), last);
        assert_eq!(link.a.mem.word(528), last + 1);
        // The READ may see the atomic after it, too: it was not fenced.
        assert!([last, last + 1].contains(&link.a.mem.word(512)));
    }
}

/// Inline payload may be overwritten as soon as the post returns.
pub fn inline_payload_is_copied<F: Fabric>(fabric: &F) {
    let link = Link::new(fabric, Options::default());
    let max = link.options.max_inline as usize;
    let sizes = [0, 1, 8, 63, 64, 65, 256, max];
    for (i, len) in sizes.into_iter().filter(|len| *len <= max).enumerate() {
        let data = pattern(len, i as u64 + 1);
        let mut source = data.clone();
        let wr = SendWr {
            inline: Some(&source),
            ..SendWr::new(i as u64, link.write_to_b(1024 * i), &[])
        };
        // SAFETY: inline payload is copied by the post.
        unsafe { link.a.hca.post_send(link.a.qp, &wr) }.expect("post_send");
        source.fill(0);
        link.expect(i as u64);
        assert_eq!(link.b.mem.bytes(1024 * i, len), data);
    }
}

/// Many READs and atomics posted at once complete in order, whatever `max_rd_atomic` is.
pub fn outstanding_reads_and_atomics<F: Fabric>(fabric: &F) {
    for max_rd_atomic in [1, 2, 16] {
        let link = Link::new(
            fabric,
            Options {
                max_rd_atomic,
                ..Options::default()
            },
        );
        let (raddr, rkey) = (link.b.mem.at(0), link.b.mem.mr.rkey);
        let data = pattern(32 * 1024, 3);
        link.b.mem.fill(1024, &data);
        for i in 0..60_u64 {
            let slot = 8 * i as usize;
            if i % 3 == 0 {
                let op = link.read_from_b(1024 + 500 * i as usize);
                link.a
                    .post(i, op, link.a.mem.sge(1024 + 500 * i as usize, 500));
            } else {
                link.a.post(
                    i,
                    SendOp::fetch_add(raddr, rkey, 1),
                    link.a.mem.sge(slot, 8),
                );
            }
        }
        let mut added = 0;
        for i in 0..60_u64 {
            link.expect(i);
            if i % 3 == 0 {
                let at = 500 * i as usize;
                assert_eq!(link.a.mem.bytes(1024 + at, 500), data[at..at + 500]);
            } else {
                assert_eq!(link.a.mem.word(8 * i as usize), added);
                added += 1;
            }
        }
        assert_eq!(link.b.mem.word(0), 40);
    }
}

/// Both ends write, read and add at the same time.
pub fn both_directions_at_once<F: Fabric>(fabric: &F) {
    const HALF: usize = 1 << 19;
    let link = Link::new(
        fabric,
        Options {
            len: 3 << 20,
            ..Options::default()
        },
    );
    let sides = [(&link.a, &link.b), (&link.b, &link.a)];
    for (i, (me, _)) in sides.iter().enumerate() {
        me.mem.fill(0, &pattern(HALF, i as u64 + 10));
    }
    for round in 0..4 {
        for (me, peer) in sides {
            let (rkey, at) = (peer.mem.mr.rkey, |offset| peer.mem.at(offset));
            let write = SendOp::write(at(HALF), rkey);
            me.post(0, write, me.mem.sge(0, HALF));
            me.post(
                1,
                SendOp::Read { raddr: at(0), rkey },
                me.mem.sge(2 * HALF, HALF),
            );
            let add = SendOp::fetch_add(at(3 * HALF), rkey, 1);
            me.post(2, add, me.mem.sge(3 * HALF + 8, 8));
        }
        for (me, _) in sides {
            for wr_id in 0..3 {
                let c = link.next(me);
                assert_eq!((c.wr_id, c.status), (wr_id, shmem_verbs::WcStatus::Success));
            }
            assert_eq!(me.mem.word(3 * HALF + 8), round);
        }
        for (me, peer) in sides {
            let theirs = peer.mem.bytes(0, HALF);
            assert!(
                me.mem.bytes(HALF, HALF) == theirs,
                "what was written differs"
            );
            assert!(
                me.mem.bytes(2 * HALF, HALF) == theirs,
                "what was read differs"
            );
        }
    }
}

/// Sequence numbers pass 2^24 within WRITEs, READs and atomics.
pub fn psn_wraps<F: Fabric>(fabric: &F) {
    for psn in [0xff_ffff, 0xff_fffe, 0xff_ff80] {
        let options = Options {
            psn,
            len: 3 << 20,
            mtu: Mtu::M1024,
            ..Options::default()
        };
        let link = Link::new(fabric, options);
        let data = pattern(1 << 20, u64::from(psn));
        link.a.mem.fill(0, &data);
        let (raddr, rkey) = (link.b.mem.at(2 << 20), link.b.mem.mr.rkey);
        link.a.post(
            0,
            SendOp::fetch_add(raddr, rkey, 1),
            link.a.mem.sge(2 << 20, 8),
        );
        link.a
            .post(1, link.write_to_b(0), link.a.mem.sge(0, 1 << 20));
        link.a.post(
            2,
            SendOp::fetch_add(raddr, rkey, 1),
            link.a.mem.sge(2 << 20, 8),
        );
        link.a
            .post(3, link.read_from_b(0), link.a.mem.sge(1 << 20, 1 << 20));
        for i in 0..4 {
            link.expect(i);
        }
        assert!(link.a.mem.bytes(1 << 20, 1 << 20) == data);
        assert_eq!((link.b.mem.word(2 << 20), link.a.mem.word(2 << 20)), (2, 1));
    }
}

/// Queue pairs between the same ports do not disturb each other.
pub fn many_queue_pairs<F: Fabric>(fabric: &F) {
    const N: usize = 24;
    let link = Link::unconnected(
        fabric,
        QpType::Rc,
        Options {
            len: 1 << 20,
            ..Options::default()
        },
    );
    let make = |side: &super::Side<'_, F::H>| {
        let init = super::harness::qp_init(side.hca, QpType::Rc, side.cq, &link.options);
        side.hca.create_qp(&init).expect("create_qp")
    };
    let pairs: Vec<_> = (0..N).map(|_| (make(&link.a), make(&link.b))).collect();
    for (qa, qb) in &pairs {
        link.connect_pair(*qa, *qb);
    }
    link.a.mem.fill(0, &pattern(N * 20_000, 4));
    for (i, (qa, _)) in pairs.iter().enumerate() {
        let (op, sge) = (
            link.write_to_b(i * 20_000),
            link.a.mem.sge(i * 20_000, 20_000),
        );
        link.a.post_on(*qa, i as u64, op, sge);
    }
    let mut seen = [false; N];
    for _ in 0..N {
        let c = link.next(&link.a);
        assert_eq!(c.status, shmem_verbs::WcStatus::Success, "{c:?}");
        assert_eq!(c.qpn, pairs[c.wr_id as usize].0);
        assert!(
            !std::mem::replace(&mut seen[c.wr_id as usize], true),
            "{c:?} came twice"
        );
    }
    assert!(link.b.mem.bytes(0, N * 20_000) == pattern(N * 20_000, 4));
    for (qa, qb) in pairs {
        link.a.hca.destroy_qp(qa).expect("destroy_qp");
        link.b.hca.destroy_qp(qb).expect("destroy_qp");
    }
}
