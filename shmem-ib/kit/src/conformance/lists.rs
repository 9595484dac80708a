//! Checks of lists of local buffers.

use super::Fabric;
use super::harness::{Link, Options, Region, Side, pattern, state};
use shmem_verbs::{Access, Hca, Lkey, QpState, RecvWr, SendOp, SendWr, Sge, VerbsError, WcStatus};

const SEND: SendOp = SendOp::Send { imm: None };

/// Four buffers in disorder, of together `len` bytes.
fn split<H: Hca>(side: &Side<'_, H>, len: usize, shares: [usize; 4]) -> [Sge; 4] {
    let places = [100_003, 7, 200_001, 60_000];
    let mut left = len;
    std::array::from_fn(|i| {
        let part = match i {
            3 => left,
            _ => (len * shares[i] / 100).min(left),
        };
        left -= part;
        side.mem.sge(places[i], part)
    })
}

fn put<H: Hca>(side: &Side<'_, H>, sges: &[Sge], data: &[u8]) {
    let mut at = 0;
    for sge in sges {
        let offset = (sge.addr - side.mem.at(0)) as usize;
        side.mem.fill(offset, &data[at..at + sge.len as usize]);
        at += sge.len as usize;
    }
}

fn get<H: Hca>(side: &Side<'_, H>, sges: &[Sge]) -> Vec<u8> {
    let part = |sge: &Sge| {
        let offset = (sge.addr - side.mem.at(0)) as usize;
        side.mem.bytes(offset, sge.len as usize)
    };
    sges.iter().flat_map(part).collect()
}

/// WRITEs and SENDs gather, READs and receives scatter, wherever packets and buffers end.
pub fn gathered_and_scattered<F: Fabric>(fabric: &F) {
    let l = Link::new(
        fabric,
        Options {
            len: 1 << 20,
            ..Options::default()
        },
    );
    let mtu = l.options.mtu.bytes();
    let shares = [
        [25, 25, 25, 25],
        [1, 0, 70, 29],
        [0, 99, 0, 1],
        [50, 50, 0, 0],
    ];
    for (i, len) in [0, 5, mtu, mtu + 1, 2 * mtu - 1, 50_003]
        .into_iter()
        .enumerate()
    {
        for (j, shares) in shares.into_iter().enumerate() {
            let data = pattern(len, 1 + (10 * i + j) as u64);
            let (from, to) = (split(&l.a, len, shares), split(&l.b, len, [30, 3, 0, 67]));
            put(&l.a, &from, &data);
            l.a.post_wr(&SendWr::new(1, l.write_to_b(500_000), &from));
            l.expect(1);
            assert!(l.b.mem.bytes(500_000, len) == data, "WRITE of {len} bytes");

            l.b.receive(2, &to);
            l.a.post_wr(&SendWr::new(3, SEND, &from));
            l.expect(3);
            assert_eq!(l.expect_at_b(2).byte_len as usize, len);
            assert!(get(&l.b, &to) == data, "SEND of {len} bytes");

            put(&l.a, &from, &vec![0; len]);
            l.a.post_wr(&SendWr::new(4, l.read_from_b(500_000), &from));
            assert_eq!(l.expect(4).byte_len as usize, len);
            assert!(get(&l.a, &from) == data, "READ of {len} bytes");
        }
    }
}

/// Longer lists than the queues were created for are refused.
pub fn lists_that_are_too_long<F: Fabric>(fabric: &F) {
    let max_sge = fabric.hcas()[0].port().max_sge.min(6);
    let l = Link::new(
        fabric,
        Options {
            max_sge,
            ..Options::default()
        },
    );
    let sges = vec![l.a.mem.sge(0, 8); max_sge as usize + 1];
    let too_many = |got: Result<(), VerbsError>| {
        assert!(
            matches!(got, Err(VerbsError::TooManySges { .. })),
            "{got:?}"
        );
    };
    // SAFETY: regions are never freed.
    unsafe {
        let wr = SendWr::new(1, l.write_to_b(0), &sges);
        too_many(l.a.hca.post_send(l.a.qp, &wr));
        let wr = RecvWr {
            wr_id: 1,
            sges: &sges,
        };
        too_many(l.a.hca.post_recv(l.a.qp, &wr));
    }
    l.a.post_wr(&SendWr::new(2, l.write_to_b(0), &sges[1..]));
    l.expect(2);
}

/// One buffer without the right needed spoils the whole request.
pub fn one_bad_buffer_of_a_list<F: Fabric>(fabric: &F) {
    let read_only = |l: &Link<'_, F>| Region::new(l.a.hca, 64, Access::NONE).sge(0, 8);
    let unknown = |l: &Link<'_, F>| {
        let sge = l.a.mem.sge(512, 8);
        Sge {
            lkey: Lkey(sge.lkey.0 ^ 0x100),
            ..sge
        }
    };
    for case in 0..3 {
        let l = Link::new(fabric, Options::default());
        let bad = if case == 1 {
            read_only(&l)
        } else {
            unknown(&l)
        };
        let sges = [l.a.mem.sge(0, 8), bad, l.a.mem.sge(64, 8)];
        let op = match case {
            0 => l.write_to_b(0),
            1 => l.read_from_b(0),
            _ => SEND,
        };
        l.b.mem.fill(0, &[3; 64]);
        l.b.receive(7, &[l.b.mem.sge(0, 64)]);
        l.a.post_wr(&SendWr::new(1, op, &sges));
        l.a.post(2, l.write_to_b(0), l.a.mem.sge(0, 8));
        l.expect_local_failure(1);
        l.expect_failure(2, WcStatus::WrFlushErr);
        assert_eq!(state(l.a.hca, l.a.qp), QpState::Err);
        // A READ fails when its answer comes: what was behind it is on its way already.
        let from = if case == 1 { 8 } else { 0 };
        assert_eq!(l.b.mem.bytes(from, 64 - from), vec![3; 64 - from]);
    }
}
