//! Checks of sends, immediate data and fences: what arrives, and in which receive.

use super::Fabric;
use super::harness::{Link, Options, pattern};
use shmem_verbs::{SendOp, SendWr, WcOpcode};

const SEND: SendOp = SendOp::Send { imm: None };

/// SENDs of 0 B to 1 MiB fill one receive each, and no byte beyond.
pub fn sends_of_all_sizes<F: Fabric>(fabric: &F) {
    let l = Link::new(
        fabric,
        Options {
            len: (1 << 20) + 64,
            ..Options::default()
        },
    );
    let mtu = l.options.mtu.bytes();
    let sizes = [
        0,
        1,
        3,
        4,
        255,
        256,
        mtu - 1,
        mtu,
        mtu + 1,
        3 * mtu,
        70_001,
        1 << 20,
    ];
    for (i, size) in sizes.into_iter().enumerate() {
        let (from, to, id) = (i % 8, i % 5 + 1, i as u64);
        let data = pattern(size, id + 1);
        l.a.mem.fill(from, &data);
        l.b.mem.fill(0, &vec![0xa5; size + 16]);
        l.b.receive(id, &[l.b.mem.sge(to, size + 3)]);
        l.a.post(id, SEND, l.a.mem.sge(from, size));
        assert_eq!(l.expect(id).opcode, WcOpcode::Send);
        let c = l.expect_at_b(id);
        assert_eq!((c.opcode, c.qpn), (WcOpcode::Recv, l.b.qp));
        assert_eq!((c.byte_len as usize, c.imm), (size, None));
        assert!(
            l.b.mem.bytes(to, size) == data,
            "payload of {size} bytes differs"
        );
        assert_eq!(l.b.mem.bytes(0, to), vec![0xa5; to], "before {size} bytes");
        assert_eq!(l.b.mem.bytes(to + size, 8), [0xa5; 8], "after {size} bytes");
    }
}

/// Each message takes one receive, in the order of posting, whatever else is in the queue and
/// whatever the network does.
pub fn sends_take_receives_in_order<F: Fabric>(fabric: &F) {
    const N: u64 = 60;
    const SLOT: usize = 12_000;
    let l = Link::new(
        fabric,
        Options {
            len: 1 << 20,
            ..Options::default()
        },
    );
    for round in 0..3 {
        for i in 0..N {
            l.b.receive(1000 + i, &[l.b.mem.sge(SLOT * i as usize, SLOT)]);
        }
        let len = |i: u64| (i as usize * 1999) % SLOT;
        for i in 0..N {
            let at = SLOT * i as usize;
            l.a.mem.fill(at, &pattern(len(i), 100 * round + i + 1));
            let op = match i % 5 {
                3 => l.read_from_b(0),
                4 => l.write_to_b(SLOT * N as usize),
                _ => SEND,
            };
            let sge = match i % 5 {
                3 => l.a.mem.sge(SLOT * N as usize, 4000),
                4 => l.a.mem.sge(SLOT * N as usize + 4096, 3000),
                _ => l.a.mem.sge(at, len(i)),
            };
            l.a.post(i, op, sge);
        }
        for i in 0..N {
            l.expect(i);
        }
        let sent: Vec<u64> = (0..N).filter(|i| i % 5 < 3).collect();
        for (slot, &i) in sent.iter().enumerate() {
            let c = l.expect_at_b(1000 + slot as u64);
            assert_eq!(c.byte_len as usize, len(i), "{c:?}");
            let expected = pattern(len(i), 100 * round + i + 1);
            assert!(
                l.b.mem.bytes(SLOT * slot, len(i)) == expected,
                "message {i}"
            );
        }
        l.expect_silence(&l.b);
        // Those that nobody used stay for what comes: WRITEs with immediate data use them up.
        for slot in sent.len() as u64..N {
            let (raddr, rkey, imm) = (l.b.mem.at(0), l.b.mem.mr.rkey, Some(slot as u32));
            l.a.post(slot, SendOp::Write { raddr, rkey, imm }, l.a.mem.sge(0, 1));
            l.expect(slot);
            assert_eq!(l.expect_at_b(1000 + slot).imm, imm);
        }
    }
}

/// Immediate data of a SEND comes with its payload; that of a WRITE completes a receive whose
/// buffers stay as they are.
pub fn immediate_data_of_sends_and_writes<F: Fabric>(fabric: &F) {
    let l = Link::new(fabric, Options::default());
    let mtu = l.options.mtu.bytes();
    for (i, len) in [0, 1, mtu, 3 * mtu + 5].into_iter().enumerate() {
        let imm = Some(0x0102_0304 << i);
        let data = pattern(len, i as u64 + 1);
        l.a.mem.fill(0, &data);
        l.b.mem.fill(0, &vec![0; 2 * (len + 8)]);
        l.b.receive(1, &[l.b.mem.sge(0, len)]);
        l.a.post(10, SendOp::Send { imm }, l.a.mem.sge(0, len));
        l.expect(10);
        let c = l.expect_at_b(1);
        assert_eq!(
            (c.opcode, c.byte_len as usize, c.imm),
            (WcOpcode::Recv, len, imm)
        );
        assert_eq!(l.b.mem.bytes(0, len), data);

        l.b.mem.fill(0, &vec![0; len]);
        let (at, region) = (30_000, &l.b.mem);
        l.b.receive(2, &[region.sge(0, len)]);
        let (raddr, rkey) = (region.at(at), region.mr.rkey);
        l.a.post(11, SendOp::Write { raddr, rkey, imm }, l.a.mem.sge(0, len));
        assert_eq!(l.expect(11).opcode, WcOpcode::Write);
        let c = l.expect_at_b(2);
        assert_eq!(c.opcode, WcOpcode::RecvRdmaWithImm);
        assert_eq!((c.byte_len as usize, c.imm), (len, imm));
        assert_eq!(region.bytes(at, len), data);
        assert_eq!(region.bytes(0, len), vec![0; len]);
    }
    // A receive without buffers is enough for a WRITE.
    l.b.receive(3, &[]);
    let (raddr, rkey, imm) = (l.b.mem.at(0), l.b.mem.mr.rkey, Some(7));
    l.a.post(12, SendOp::Write { raddr, rkey, imm }, l.a.mem.sge(0, 100));
    l.expect(12);
    assert_eq!(l.expect_at_b(3).imm, Some(7));
}

/// Inline payload of a SEND may be overwritten as soon as the post returns.
pub fn inline_sends<F: Fabric>(fabric: &F) {
    let l = Link::new(fabric, Options::default());
    let max = l.options.max_inline as usize;
    let sizes = [0, 1, 64, 65, 256, max];
    for (i, len) in sizes.into_iter().filter(|len| *len <= max).enumerate() {
        let data = pattern(len, i as u64 + 1);
        let mut source = data.clone();
        l.b.receive(1, &[l.b.mem.sge(0, 256)]);
        l.a.post_wr(&SendWr {
            inline: Some(&source),
            ..SendWr::new(2, SEND, &[])
        });
        source.fill(0);
        l.expect(2);
        assert_eq!(l.expect_at_b(1).byte_len as usize, len);
        assert_eq!(l.b.mem.bytes(0, len), data);
    }
}

/// A queue that signals everything does so.
pub fn everything_signaled<F: Fabric>(fabric: &F) {
    let l = Link::new(
        fabric,
        Options {
            sq_sig_all: true,
            ..Options::default()
        },
    );
    for i in 0..10 {
        let sges = [l.a.mem.sge(0, 8)];
        l.a.post_wr(&SendWr {
            signaled: false,
            ..SendWr::new(i, l.write_to_b(0), &sges)
        });
    }
    for i in 0..10 {
        l.expect(i);
    }
}

/// A fenced request sends what an earlier READ or atomic has brought.
pub fn fenced_requests_see_what_was_read<F: Fabric>(fabric: &F) {
    let l = Link::new(fabric, Options::default());
    let (raddr, rkey) = (l.b.mem.at(8), l.b.mem.mr.rkey);
    for round in 1..=20_u64 {
        l.a.mem.fill(0, &[0; 16]);
        l.b.mem.set_word(0, round);
        l.b.mem.set_word(8, 100 * round);
        l.b.receive(round, &[l.b.mem.sge(64, 16)]);
        l.a.post(1, l.read_from_b(0), l.a.mem.sge(0, 8));
        let add = SendOp::fetch_add(raddr, rkey, 1);
        l.a.post(2, add, l.a.mem.sge(8, 8));
        let sges = [l.a.mem.sge(0, 16)];
        l.a.post_wr(&SendWr {
            fence: true,
            ..SendWr::new(3, SEND, &sges)
        });
        for i in 1..=3 {
            l.expect(i);
        }
        l.expect_at_b(round);
        assert_eq!((l.b.mem.word(64), l.b.mem.word(72)), (round, 100 * round));
    }
}
