//! One RC connection, which the input may break and make again.

use shmem_ib::soft::Engine;
use shmem_ib::soft::VecMemory;
use shmem_ib::verbs::{
    Access, Completion, Cq, Lkey, Mr, Mtu, Psn, QpAttr, QpInit, QpState, QpType, Qpn, RcDest,
    RcStart, RecvWr, Sge, VerbsError, WcOpcode,
};
use shmem_ib_kit::sim::{Place, Reference, Sums};

use super::layout::{AREA, LOCAL, MAX_LEN, RECEIVES, SHARED_WORDS, area, base, local, receives};
use crate::Choices;

/// One end of a connection.
pub(super) struct End {
    pub(super) qpn: Qpn,
    cq: Cq,
    pub(super) alive: bool,
    pub(super) reference: Reference,
    /// Offset of the local buffers.
    local: usize,
    node: usize,
    lkey: Lkey,
    /// Receive buffers that are not posted; the opposite direction sends into them.
    idle: Vec<u64>,
    direction: usize,
}

impl End {
    /// Both queues have vanished without completions.
    fn forget(&mut self) {
        self.reference.forget();
        self.idle = (0..RECEIVES as u64).collect();
    }
}

pub(super) struct Pair {
    pub(super) ends: [End; 2],
    mtu: Mtu,
    max_rd_atomic: u8,
    /// The requesters never give up.
    patient: bool,
    /// Somebody has changed a state, or forged a packet of a peer.
    pub(super) disturbed: bool,
}

impl Pair {
    pub(super) fn new(
        engines: &mut [Engine<VecMemory>; 2],
        mrs: &[Mr; 2],
        index: usize,
        choices: &mut Choices<'_>,
    ) -> Self {
        let depth = 1 + choices.below(32) as u32;
        let mut end = |node: usize| {
            let engine = &mut engines[node];
            let cq = engine.create_cq(2048).expect("a CQ");
            let init = QpInit {
                max_send_wr: depth,
                max_recv_wr: RECEIVES as u32,
                max_inline: 64,
                ..QpInit::new(QpType::Rc, cq)
            };
            let (direction, peer) = (2 * index + node, 1 - node);
            let place = Place {
                local: base(node) + local(direction) as u64,
                local_len: LOCAL,
                lkey: mrs[node].lkey,
                remote: base(peer) + area(direction) as u64,
                remote_len: AREA,
                shared: base(peer),
                shared_words: SHARED_WORDS,
                rkey: mrs[peer].rkey,
                max_len: MAX_LEN,
                receives: base(peer) + receives(direction) as u64,
                sends: true,
            };
            End {
                qpn: engine.create_qp(&init).expect("a queue pair"),
                cq,
                alive: true,
                reference: Reference::new(place),
                local: local(direction),
                node,
                lkey: mrs[node].lkey,
                idle: (0..RECEIVES as u64).collect(),
                direction,
            }
        };
        let ends = [end(0), end(1)];
        let mut pair = Self {
            ends,
            mtu: [Mtu::M256, Mtu::M512][choices.below(2) as usize],
            max_rd_atomic: 1 + choices.below(4) as u8,
            patient: choices.below(4) != 0,
            disturbed: false,
        };
        for end in &mut pair.ends {
            if !pair.patient {
                end.reference.may_fail();
            }
        }
        pair.connect(engines, choices);
        pair
    }

    /// From RESET to RTS on both sides.
    fn connect(&mut self, engines: &mut [Engine<VecMemory>; 2], choices: &mut Choices<'_>) {
        let psns = [(); 2].map(|()| Psn::new(0_u32.wrapping_sub(choices.below(256) as u32)));
        for me in 0..2 {
            let peer = 1 - me;
            let dest = RcDest {
                av: engines[peer].port().av,
                qpn: self.ends[peer].qpn,
                rq_psn: psns[peer],
                mtu: self.mtu,
                max_dest_rd_atomic: self.max_rd_atomic,
                min_rnr_timer: 1 + choices.below(12) as u8,
            };
            let (timeout, retry_cnt) = if self.patient { (0, 7) } else { (8, 2) };
            let start = RcStart {
                timeout,
                retry_cnt,
                rnr_retry: if self.patient { 7 } else { 2 },
                ..RcStart::new(dest, psns[me])
            };
            for attr in start.attrs() {
                engines[me]
                    .modify_qp(self.ends[me].qpn, &attr)
                    .expect("a legal transition");
            }
        }
    }

    pub(super) fn post(&mut self, engine: &mut Engine<VecMemory>, me: usize, c: &mut Choices<'_>) {
        let end = &mut self.ends[me];
        if !end.alive {
            return;
        }
        let memory = engine.memory_mut();
        let Some(mut proposal) = end.reference.propose(memory, |n| c.below(n)) else {
            return;
        };
        proposal.signal(end.reference.outstanding() % 4 == 3);
        let data: Vec<u8> = {
            let at = end.local + proposal.data.start;
            memory.bytes()[at..at + proposal.data.len()].to_vec()
        };
        let sges = [proposal.sge()];
        let wr = proposal.wr(&sges, proposal.inline.then_some(&data[..]));
        match engine.post_send(end.qpn, &wr) {
            Ok(_) => end.reference.posted(proposal, engine.memory_mut()),
            Err(VerbsError::QueueFull { .. }) => {}
            Err(VerbsError::WrongState { .. }) => assert!(self.disturbed),
            Err(e) => panic!("{e}"),
        }
    }

    pub(super) fn poll(
        &mut self,
        engine: &mut Engine<VecMemory>,
        me: usize,
        most: usize,
        sums: &mut Sums,
    ) {
        let mut out = [Completion::EMPTY; 8];
        let n = engine.poll_cq(self.ends[me].cq, &mut out[..most]);
        for c in &out[..n] {
            assert_eq!(c.qpn, self.ends[me].qpn);
            let memory = engine.memory_mut();
            let right = if matches!(c.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm) {
                self.ends[me].idle.push(c.wr_id);
                self.ends[1 - me].reference.receive(c, memory)
            } else {
                self.ends[me].reference.complete(c, memory, sums)
            };
            right.unwrap_or_else(|e| panic!("end {me}: {e}"));
        }
    }

    /// Posts up to `most` receive buffers.
    pub(super) fn post_receives(&mut self, engine: &mut Engine<VecMemory>, me: usize, most: usize) {
        let end = &mut self.ends[me];
        for _ in 0..most {
            let Some(wr_id) = end.idle.pop() else {
                return;
            };
            let at = receives(end.direction ^ 1) + wr_id as usize * MAX_LEN;
            let sge = Sge {
                addr: base(end.node) + at as u64,
                len: MAX_LEN as u32,
                lkey: end.lkey,
            };
            let wr = RecvWr {
                wr_id,
                sges: &[sge],
            };
            if let Err(e) = engine.post_recv(end.qpn, &wr) {
                assert!(self.disturbed, "end {me}: {e}");
                end.idle.push(wr_id);
                return;
            }
        }
    }

    fn poll_all(&mut self, engines: &mut [Engine<VecMemory>; 2], sums: &mut [Sums; 2]) {
        for me in 0..2 {
            for _ in 0..256 {
                self.poll(&mut engines[me], me, 8, &mut sums[1 - me]);
            }
        }
    }

    /// Requests may fail from now on.
    fn disturb(&mut self) {
        self.disturbed = true;
        self.ends.iter_mut().for_each(|e| e.reference.may_fail());
    }

    /// Values may be wrong from now on.
    pub(super) fn distrust(&mut self) {
        self.disturbed = true;
        self.ends.iter_mut().for_each(|e| e.reference.distrust());
    }

    /// Changes the state of end `me`, or takes it away. Returns whether what was connected is now
    /// connected anew.
    pub(super) fn interfere(
        &mut self,
        engines: &mut [Engine<VecMemory>; 2],
        sums: &mut [Sums; 2],
        me: usize,
        c: &mut Choices<'_>,
    ) -> bool {
        self.disturb();
        let what = c.below(8);
        if what > 0 {
            self.poll_all(engines, sums);
        }
        let qpn = self.ends[me].qpn;
        match what {
            0..3 => {
                let done = engines[me].modify_qp(qpn, &QpAttr::Err);
                assert_eq!(done.is_ok(), self.ends[me].alive, "{done:?}");
            }
            3 => {
                let done = engines[me].modify_qp(qpn, &QpAttr::Reset);
                assert_eq!(done.is_ok(), self.ends[me].alive, "{done:?}");
                self.ends[me].forget();
            }
            4 | 5 if self.ends.iter().all(|e| e.alive) => {
                for (end, engine) in self.ends.iter_mut().zip(engines.iter_mut()) {
                    let reset = engine.modify_qp(end.qpn, &QpAttr::Reset);
                    reset.expect("it exists");
                    end.forget();
                }
                self.distrust();
                self.connect(engines, c);
                return true;
            }
            6 => {
                let done = engines[me].destroy_qp(qpn);
                assert_eq!(done.is_ok(), self.ends[me].alive, "{done:?}");
                self.ends[me].alive = false;
                self.ends[me].forget();
                assert!(engines[me].query_qp(qpn).is_err());
            }
            _ => {
                // Some transition, most often an illegal one, which must change nothing.
                let before = engines[me].query_qp(qpn);
                let attr = match c.below(3) {
                    0 => QpAttr::Init {
                        access: Access::ALL,
                        qkey: None,
                    },
                    1 => QpAttr::Rtr { dest: None },
                    _ => QpAttr::Rts {
                        sq_psn: Psn::new(c.below(256) as u32),
                        timeout: c.below(64) as u8,
                        retry_cnt: c.below(16) as u8,
                        rnr_retry: c.below(16) as u8,
                        max_rd_atomic: c.below(32) as u8,
                    },
                };
                let refused = engines[me].modify_qp(qpn, &attr).is_err();
                let after = engines[me].query_qp(qpn);
                assert!(!refused || before.ok() == after.ok());
            }
        }
        false
    }

    /// Whether every request has been executed exactly once.
    pub(super) fn is_sure(&self) -> bool {
        self.patient && !self.disturbed
    }

    /// Requests without completion.
    pub(super) fn outstanding(&self) -> usize {
        self.ends.iter().map(|e| e.reference.outstanding()).sum()
    }

    /// After the network was healed and everything has come to an end.
    pub(super) fn check(&mut self, engines: &mut [Engine<VecMemory>; 2], sums: &mut [Sums; 2]) {
        self.poll_all(engines, sums);
        for me in 0..2 {
            let end = &self.ends[me];
            if !end.alive {
                continue;
            }
            let state = engines[me].query_qp(end.qpn).expect("it is alive");
            let undisturbed = self.is_sure();
            if undisturbed {
                assert_eq!(end.reference.unreceived(), 0, "of what end {me} has sent");
                assert_eq!(state, QpState::Rts);
                let memory = engines[1 - me].memory_mut();
                let same = end.reference.check(memory);
                same.unwrap_or_else(|e| panic!("end {me}: {e}"));
            }
            // A patient requester of a peer that has gone tries for ever.
            if undisturbed || !self.patient || state == QpState::Err {
                let stuck = end.reference.awaits_completion();
                assert!(!stuck, "end {me} in {state:?} has requests without an end");
            }
        }
    }
}
