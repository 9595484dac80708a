//! What the requester asks for when answers to READs are lost, before a responder that is as strict as
//! devices of other makes.

use super::*;
use shmem_verbs::rng::Rng;
use shmem_verbs::{Lkey, Rkey, SendWr, Sge};

const MTU: u32 = 1024;
const PSN: Psn = Psn(0xff_fff0);

fn read(wr_id: u64, len: u32) -> Wqe {
    let op = SendOp::Read {
        raddr: 1 << 40,
        rkey: Rkey(1),
    };
    let sge = Sge {
        addr: 0x10_0000,
        len,
        lkey: Lkey(1),
    };
    Wqe::new(&SendWr::new(wr_id, op, &[sge]), false)
}

/// A responder that remembers what READs it executed, as devices do.
struct Executed {
    seed: u64,
    /// First PSN and PSNs of each, counted from the first of all.
    reads: Vec<(i32, i32)>,
}

impl Executed {
    fn expected(&self) -> i32 {
        self.reads.last().map_or(0, |(first, n)| first + n)
    }

    /// The PSNs of the response to a request, if it was its turn or was executed before.
    fn take(&mut self, first: i32, n: i32) -> std::ops::Range<i32> {
        if first > self.expected() {
            return 0..0; // Ahead of its turn: one before it was lost.
        }
        if first == self.expected() {
            self.reads.push((first, n));
        }
        let within = |&(f, m): &(i32, i32)| f <= first && first + n <= f + m;
        assert!(
            self.reads.iter().any(within),
            "seed {}: {first}+{n} is no part of one request among {:?}",
            self.seed,
            self.reads
        );
        first..first + n
    }
}

#[test]
fn a_repeated_read_is_part_of_one_that_the_responder_knows() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let limits = Limits {
            mtu: MTU,
            max_rd_atomic: 4,
            give_up_ns: None,
            min_resends: 3,
            rnr_retry: 7,
        };
        let mut r = Requester::new(PSN, limits, seed);
        let (mut peer, mut done) = (
            Executed {
                seed,
                reads: Vec::new(),
            },
            Vec::new(),
        );
        let lens: Vec<u32> = (0..6).map(|_| 1 + rng.below(700 * 1024) as u32).collect();
        for (i, len) in lens.iter().enumerate() {
            r.post(read(i as u64, *len));
        }
        let mut now = 0;
        while done.len() < lens.len() {
            let mut answers = Vec::new();
            while let Some(q) = r.poll(now) {
                let Ext::Reth(reth) = q.ext else {
                    panic!("{q:?} in a queue of READs")
                };
                if rng.below(20) > 0 {
                    let packets = reth.len.div_ceil(MTU) as i32;
                    answers.extend(peer.take(q.psn.since(PSN), packets));
                }
            }
            now += 1000;
            let answered = !answers.is_empty();
            for psn in answers {
                let psn = PSN.add(psn as u32);
                if rng.below(100) > 0 && r.on_response(now, psn, MTU, false, &mut done).is_some() {
                    r.on_response_stored(now, psn, MTU, &mut done);
                }
            }
            if !answered && let Some(at) = r.deadline() {
                now = now.max(at);
                r.on_timeout(now);
            }
        }
        let succeeded =
            |(i, d): (usize, &Done)| (d.wr_id, d.status) == (i as u64, WcStatus::Success);
        assert!(
            done.iter().enumerate().all(succeeded),
            "seed {seed}: {done:?}"
        );
    }
}
