//! Connections of one PE in the model: the real manager of connections, and what its driver does for it.

use std::collections::VecDeque;

use shmem_ib::connect::UdAddress;
use shmem_ib::connect::interface::{Action, Local};
use shmem_ib::connect::manager::{Identity, Manager};
use shmem_ib::connect::message::{MAX_LEN, Memory, Segment};
use shmem_ib::connect::retry::RetryPolicy;
use shmem_ib::verbs::{Mtu, Qkey, Qpn, Rkey, SrqNum};

/// The job's key; nobody listens.
static KEY: [u8; 32] = [7; 32];

/// How long a PE that goes waits for a sign of life, in nanoseconds: the runtime's.
const LINGER: u64 = 500_000_000;

/// What has been done to connections, to be paid for and passed on.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Datagrams, by the PE that they are for.
    pub(super) datagrams: Vec<(u32, Vec<u8>)>,
    /// Queue pairs made.
    pub(super) made: u32,
    /// Queue pairs taken to where they can send.
    pub(super) linked: u32,
    /// PEs to whom there is a way now.
    pub(super) opened: Vec<u32>,
}

/// The connections of one PE.
#[derive(Debug)]
pub(super) struct Connections {
    manager: Manager,
    queue_pairs: u32,
}

fn address(pe: u32) -> UdAddress {
    UdAddress {
        qpn: Qpn(1 + pe),
        qkey: Qkey(pe),
        ..UdAddress::default()
    }
}

impl Connections {
    /// Of a PE of a job of so many, whose memory is registered.
    pub(super) fn new(pe: u32, n_pes: u32) -> Self {
        let identity = Identity {
            job_id: [1; 16],
            job_key: &KEY,
            n_pes,
        };
        let segment = Segment {
            address: 1 << 32,
            size: 1 << 28,
            rkey: Rkey(pe),
            id: 0,
        };
        let memory = Memory {
            srqn: SrqNum::default(),
            segments: [segment].into_iter().collect(),
        };
        let local = Local {
            pe,
            ud: address(pe),
            mtu: Mtu::M4096,
            max_rd_atomic: 16,
            memory: Some(memory),
            max_qps: 0,
            leaving: false,
            retry: RetryPolicy::default(),
        };
        Self {
            manager: Manager::new(&identity, local, u64::from(pe) + 1),
            queue_pairs: 0,
        }
    }

    /// The program wants a connection.
    pub(super) fn connect(&mut self, now: f64, to: u32, node: u32) -> Done {
        self.manager.connect(now as u64, to, node, address(to));
        self.act(now)
    }

    /// A datagram has come.
    ///
    /// # Panics
    /// If it is none of this job, which is an error of what is modelled.
    pub(super) fn hear(&mut self, now: f64, bytes: &[u8]) -> Done {
        let heard = self.manager.handle_datagram(now as u64, bytes);
        heard.expect("a datagram of this job");
        self.act(now)
    }

    /// The PE goes, and says so to all with whom it has a connection.
    pub(super) fn leave(&mut self, now: f64) -> Done {
        self.manager.leave(now as u64, LINGER);
        while self.manager.say_bye(now as u64, usize::MAX) {}
        self.act(now)
    }

    /// Whether nobody needs it any more.
    pub(super) fn has_left(&self) -> bool {
        self.manager.has_left()
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, now: f64) -> Done {
        if self.timeout().is_some_and(|at| at <= now) {
            self.manager.handle_timeout(now as u64);
        }
        self.act(now)
    }

    /// When that has to be told.
    pub(super) fn timeout(&self) -> Option<f64> {
        // Rounded up, so that it is over when it is told.
        self.manager.next_timeout().map(|at| at as f64 + 1.0)
    }

    /// Whether there is a way to a PE.
    pub(super) fn is_open(&self, pe: u32) -> bool {
        self.manager.route(pe).is_some()
    }

    /// Whether one is wanted.
    pub(super) fn is_wanted(&self, pe: u32) -> bool {
        self.manager.is_wanted(pe)
    }

    /// With whom there are connections.
    pub(super) fn peers(&self) -> u32 {
        self.manager.linked_peers().len() as u32
    }

    /// Datagrams that were sent, and how many of them again.
    pub(super) fn sent(&self) -> [u64; 2] {
        let stats = self.manager.stats();
        [
            stats.offers_sent + stats.waits_sent + stats.byes_sent,
            stats.retransmissions + stats.byes_repeated,
        ]
    }

    fn act(&mut self, now: f64) -> Done {
        let mut done = Done::default();
        while let Some((peer, action)) = self.manager.poll_action() {
            match action {
                Action::Send { message, .. } => {
                    let mut bytes = [0; MAX_LEN];
                    let len = self.manager.encode(&message, &mut bytes);
                    done.datagrams.push((peer, bytes[..len].to_vec()));
                }
                Action::CreateQp => {
                    done.made += 1;
                    self.queue_pairs += 1;
                    let qpn = Qpn(self.queue_pairs);
                    self.manager.qp_created(now as u64, peer, qpn);
                }
                Action::LinkQp { .. } => done.linked += 1,
                Action::Opened { .. } => done.opened.push(peer),
                Action::PeerLeft { .. } | Action::DestroyQp(_) => {}
                other => panic!("nothing fails here: {other:?}"),
            }
        }
        done
    }
}

/// What a connection takes each of the two PEs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contact {
    /// Queue pairs.
    pub queue_pairs: u32,
    /// Datagrams that it sends or takes in until both may use the connection.
    pub datagrams: u32,
    /// The same until both have left.
    pub farewell: u32,
}

/// Has two PEs connect, of which `both` want it at the same time, or else one; and leave.
///
/// # Panics
/// If that does not come to an end: an error of what is modelled.
pub fn contact(both: bool) -> Contact {
    let mut pes = [0, 1].map(|pe| Connections::new(pe, 2));
    let mut queue_pairs = 0;
    let mut talk = |pes: &mut [Connections; 2], done: [Done; 2]| {
        let mut datagrams = 0;
        let mut under_way: VecDeque<(u32, Vec<u8>)> = VecDeque::new();
        let mut take = |done: Done, under_way: &mut VecDeque<_>| {
            queue_pairs += done.made;
            under_way.extend(done.datagrams);
        };
        for done in done {
            take(done, &mut under_way);
        }
        while let Some((to, bytes)) = under_way.pop_front() {
            datagrams += 1;
            take(pes[to as usize].hear(1.0, &bytes), &mut under_way);
        }
        datagrams
    };
    let first = pes[0].connect(1.0, 1, 1);
    let second = match both {
        true => pes[1].connect(1.0, 0, 0),
        false => Done::default(),
    };
    let datagrams = talk(&mut pes, [first, second]);
    assert!(pes[0].is_open(1), "it is connected");
    let byes = [pes[0].leave(1.0), pes[1].leave(1.0)];
    let farewell = talk(&mut pes, byes);
    assert!(pes.iter().all(Connections::has_left), "both have left");
    Contact {
        queue_pairs: queue_pairs / 2,
        // Each is sent by one, and taken in by the other.
        datagrams,
        farewell,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_takes_a_queue_pair_of_each_and_a_few_datagrams() {
        let one = contact(false);
        assert_eq!((one.queue_pairs, one.datagrams, one.farewell), (1, 2, 2));
        // Both say so, and both have to hear that the other is ready.
        let both = contact(true);
        assert_eq!((both.queue_pairs, both.datagrams, both.farewell), (1, 4, 2));
    }
}
