//! What stands between the kernels and how PEs agree: on counts, on sums, and that a level is over.
//!
//! Data go one-sided in any case. Here is what MPI has routines for and OpenSHMEM has not, or has other ones: with
//! [`OpenShmem`] a barrier that does not wait is made of signals, and places are reserved by fetch-add; the
//! [hybrid variant](crate::hybrid) takes `MPI_Ibarrier`, `MPI_Allreduce` and `MPI_Alltoallv` for the same.

use crate::arrival::Arrival;
use crate::error::Error;
use crate::generator::Edge;
use crate::mailbox::{Mailbox, PACKET};
use crate::partition::Partition;
use crate::shared;
use shmem::{SymSlice, Team};
use std::sync::atomic::Ordering::Relaxed;

/// How PEs agree. All methods are collective unless they say otherwise.
pub trait Coordination {
    /// Brings each end of each edge that is no loop to the owner of that end, but for those of this PE itself.
    ///
    /// # Errors
    /// If there is no room, or the communication fails.
    fn distribute(&mut self, edges: &[Edge], partition: &Partition) -> Result<HalfEdges, Error>;

    /// The sums of the values of all PEs. Memory that a PE of the node has written before is seen after it.
    ///
    /// # Errors
    /// If the communication fails; as those below.
    fn sums(&mut self, values: [u64; 2]) -> Result<[u64; 2], Error>;

    /// Says that this PE has sent all packets of a level, and returns at once.
    ///
    /// # Errors
    /// As [`sums`](Self::sums).
    fn enter(&mut self) -> Result<(), Error>;

    /// Whether all PEs have. Not collective; does not wait.
    ///
    /// # Errors
    /// As [`sums`](Self::sums).
    fn test(&mut self) -> Result<bool, Error>;

    /// Gives the core away until a packet has come or [`test`](Self::test) is worth another try. Not collective.
    fn wait(&mut self, mailbox: &mut Mailbox);
}

/// Edges as their ends see them, gathered from other PEs: words with the place of a vertex among this PE's above, and the
/// vertex at the other end below.
#[derive(Debug)]
pub enum HalfEdges {
    /// In symmetric memory, as many as are said.
    Symmetric(SymSlice<u64>, usize),
    /// In memory of this PE alone.
    Private(Vec<u64>),
}

impl HalfEdges {
    /// Calls `each` with every half-edge: the vertex's place, and the other vertex.
    pub fn for_each(&self, mut each: impl FnMut(u32, u32)) {
        let mut word = |word: u64| each((word >> 32) as u32, word as u32);
        match self {
            Self::Symmetric(array, len) => {
                let all = shared::own(array.at(..*len)).iter();
                all.for_each(|atomic| word(atomic.load(Relaxed)));
            }
            Self::Private(words) => words.iter().for_each(|&half| word(half)),
        }
    }

    /// Gives the room back. Collective.
    ///
    /// # Errors
    /// If the runtime finds its heap damaged.
    pub fn free(self) -> Result<(), shmem::Error> {
        match self {
            Self::Symmetric(array, _) => shmem::free(array),
            Self::Private(_) => Ok(()),
        }
    }
}

/// A half-edge as a word.
#[inline(always)]
pub(crate) fn half(local: usize, other: u32) -> u64 {
    (local as u64) << 32 | u64::from(other)
}

/// Calls `each` for both ends of every edge that is no loop: the owner, the vertex's place there, the other vertex.
#[inline(always)]
pub(crate) fn ends(edges: &[Edge], partition: &Partition, mut each: impl FnMut(usize, usize, u32)) {
    for &[a, b] in edges {
        if a != b {
            let (of_a, of_b) = (partition.owner(a), partition.owner(b));
            each(of_a, partition.local(a, of_a), b);
            each(of_b, partition.local(b, of_b), a);
        }
    }
}

/// How many half-edges are for each PE, without those for this one.
pub(crate) fn counts(edges: &[Edge], partition: &Partition, me: usize) -> Vec<usize> {
    let mut counts = vec![0; partition.n_pes()];
    if partition.n_pes() > 1 {
        ends(edges, partition, |owner, _, _| counts[owner] += 1);
    }
    counts[me] = 0;
    counts
}

/// With what OpenSHMEM has.
#[derive(Debug)]
pub struct OpenShmem {
    arrival: Arrival,
}

impl OpenShmem {
    /// With the words of this mailbox.
    #[must_use]
    pub fn new(mailbox: &Mailbox) -> Self {
        Self {
            arrival: Arrival::new(mailbox.barrier_words()),
        }
    }
}

impl Coordination for OpenShmem {
    /// Places are reserved by a fetch-add on the owner's count; when all have reserved, that is what an owner gets,
    /// and when it has made room, packets are put to their places.
    fn distribute(&mut self, edges: &[Edge], partition: &Partition) -> Result<HalfEdges, Error> {
        let (me, n_pes) = (shmem::my_pe(), partition.n_pes());
        let counts = counts(edges, partition, me);
        let reserved = shmem::alloc::<u64>(1)?;
        let mut places = vec![0u64; n_pes];
        shmem::nbi(|ops| {
            // Not all begin with the same PE.
            let (before, after) = places.split_at_mut(me);
            for (place, pe) in after.iter_mut().zip(me..).chain(before.iter_mut().zip(0..)) {
                if counts[pe] > 0 {
                    ops.atomic_fetch_add(place, reserved, counts[pe] as u64, pe);
                }
            }
        });
        shmem::sync_all();
        let mine = reserved.read(0) as usize;
        let most = Team::world().max(mine);
        let room = shmem::alloc_uninit::<u64>(most)?;
        let mut packets: Vec<Vec<u64>> = counts
            .iter()
            .map(|&count| Vec::with_capacity(count.min(PACKET)))
            .collect();
        let mut send = |packet: &mut Vec<u64>, pe: usize| {
            let start = places[pe] as usize;
            // Short enough to be copied where it leaves for another node: nothing is waited for.
            shmem::put(room.at(start..start + packet.len()), packet, pe);
            places[pe] += packet.len() as u64;
            packet.clear();
        };
        if n_pes > 1 {
            ends(edges, partition, |owner, local, other| {
                if owner != me {
                    let packet = &mut packets[owner];
                    packet.push(half(local, other));
                    if packet.len() == PACKET {
                        send(packet, owner);
                    }
                }
            });
            for (pe, packet) in packets.iter_mut().enumerate() {
                send(packet, pe);
            }
        }
        shmem::barrier_all();
        shmem::free(reserved)?;
        Ok(HalfEdges::Symmetric(room, mine))
    }

    fn sums(&mut self, values: [u64; 2]) -> Result<[u64; 2], Error> {
        Ok(Team::world().sum(values))
    }

    fn enter(&mut self) -> Result<(), Error> {
        self.arrival.enter();
        Ok(())
    }

    fn test(&mut self) -> Result<bool, Error> {
        Ok(self.arrival.test())
    }

    fn wait(&mut self, mailbox: &mut Mailbox) {
        mailbox.wait(self.arrival.awaited());
    }
}
