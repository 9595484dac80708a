//! MPI beside this library in one process: an exchange over its messages, and the rules of a server's descriptor that both
//! use.
//!
//! A launcher leaves one descriptor for PMI, and most servers take one client there. Which of the two libraries comes
//! first decides:
//!
//! * MPI is initialised: it knows all processes, and this library needs no server. What all have put goes around in
//!   collective calls of MPI, over a duplicate of `MPI_COMM_WORLD`; ranks are MPI's. Every call of MPI is made
//!   by the thread that calls a method here, before the method returns: other threads of this library never call it, so
//!   that any thread level will do.
//! * MPI is there and not initialised: this library speaks PMI-1, which Hydra takes from both, one after the other; Slurm
//!   does not, so this order is refused there. It must be silent when MPI speaks ([`super::Process::is_shared`]), and leaves `finalize` to MPI,
//!   since that ends the connection for both.
//!
//! After `MPI_Finalize` nothing of this can be used.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use shmem_mpi::{Comm, Interface, Mpi, ReduceOp, State};
use shmem_node::sys;

use super::direct::{Direct, closed};
use super::error::Cause;
use super::keys;
use super::work::Work;
use crate::client::calls::Spawned;
use crate::client::check_pair;
use crate::io::ConnectionError;
use crate::process_mapping::{self, ProcessMapping};
use crate::question::SpawnRequest;

/// How long `MPI_Finalize` may take after it has said goodbye to the launcher.
const ENDING: Duration = Duration::from_secs(20);
const NAP: Duration = Duration::from_millis(100);

/// MPI in this process, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beside {
    /// File of the library.
    pub(super) library: String,
    /// Rank and number of processes, between `MPI_Init` and `MPI_Finalize`.
    pub(super) place: Option<(u32, u32)>,
    /// Why the place is not known although MPI is initialised: this thread may not ask.
    pub(super) is_of_another_thread: Option<shmem_mpi::Error>,
    /// MPI is not initialised yet.
    pub(super) is_to_come: bool,
    /// MPI cannot be initialised once another has used libpmix: Open MPI's release 5 takes its own
    /// name in the job from a PMIx that it has initialised itself, and from no other.
    pub(super) must_be_first: bool,
}

impl Beside {
    /// What there is now. Loads nothing. An MPI that cannot be used is none.
    pub fn now() -> Option<Self> {
        let mpi = Mpi::in_process().ok().flatten()?;
        let (mut place, mut is_of_another_thread) = (None, None);
        if mpi.state() == State::Initialised {
            match mpi.world() {
                Ok(world) => place = Some((world.rank(), world.size())),
                Err(why) => is_of_another_thread = Some(why),
            }
        }
        Some(Self {
            library: mpi.path().display().to_string(),
            place,
            is_of_another_thread,
            is_to_come: mpi.state() == State::Before,
            must_be_first: mpi.state() == State::Before
                && wants_pmix_untouched(mpi.library_version()),
        })
    }

    /// Whether MPI is initialised, and knows of more than this process.
    pub fn knows_peers(&self) -> bool {
        self.place.is_some_and(|(_, size)| size > 1)
    }

    /// Whether MPI agrees with what somebody else says of rank and size, if it says anything.
    pub(super) fn check_place(&self, told: (u32, u32), server: &'static str) -> Result<(), Cause> {
        match self.place {
            Some(mpi) if mpi != told => Err(Cause::OtherRanks {
                mpi,
                told,
                server,
                library: self.library.clone(),
            }),
            _ => Ok(()),
        }
    }
}

/// Whether a library of this version can only be initialised when libpmix is not.
fn wants_pmix_untouched(version: &str) -> bool {
    let release = version.strip_prefix("Open MPI v");
    let major = release.and_then(|numbers| numbers.split('.').next()?.parse::<u32>().ok());
    major.is_some_and(|major| major >= 5)
}

/// Whether MPI has taken over a descriptor for PMI that it shares with this library: it says `finalize` there, or
/// has.
pub(super) fn has_taken_over() -> bool {
    let mpi = Mpi::in_process().ok().flatten();
    mpi.is_some_and(|mpi| mpi.interface() != Interface::OpenMpi && mpi.state() != State::Before)
}

/// Whether MPI, if there is any, has come to its end.
pub(super) fn is_finalized() -> bool {
    let mpi = Mpi::in_process().ok().flatten();
    mpi.is_some_and(|mpi| mpi.state() == State::Finalized)
}

/// Whether it was MPI that has closed the descriptor, by its end, and not a server that has died. MPI closes it a little
/// before it says that it has come to its end; that is waited for.
pub(super) fn has_closed() -> bool {
    if !has_taken_over() {
        return false;
    }
    let begun = Instant::now();
    while !is_finalized() {
        if begun.elapsed() > ENDING {
            return false;
        }
        std::thread::sleep(NAP);
    }
    true
}

/// The calls of a process whose peers MPI knows.
pub(super) struct Calls {
    mpi: &'static Mpi,
    rank: u32,
    size: u32,
    /// Name of the job: the same at all processes, and different from that of other jobs.
    job: String,
    node_of: Vec<u32>,
    pairs: Mutex<Pairs>,
    finalized: AtomicBool,
    /// What MPI talks to its server by, to see whether that lives.
    pub(super) watched: Option<OwnedFd>,
}

#[derive(Default)]
struct Pairs {
    /// Not visible before the next fence.
    new: Vec<(String, Vec<u8>)>,
    visible: HashMap<String, Vec<u8>>,
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Calls({:?}, rank {} of {})",
            self.mpi, self.rank, self.size
        )
    }
}

impl Calls {
    /// Collective. MPI is initialised.
    pub(super) fn init() -> Result<(Self, u32, u32), Cause> {
        let mpi = Mpi::in_process()?;
        let call = "MPI_Comm_dup";
        let mpi = mpi.ok_or(shmem_mpi::Error::NotInitialised { call })?;
        let world = mpi.world()?.duplicate()?;
        let (rank, size) = (world.rank(), world.size());
        let node_of = node_of(&world)?;
        let job = job(&world)?;
        world.free()?;
        let calls = Self {
            mpi,
            rank,
            size,
            job,
            node_of,
            pairs: Mutex::default(),
            finalized: AtomicBool::new(false),
            watched: None,
        };
        Ok((calls, rank, size))
    }

    fn pairs(&self) -> MutexGuard<'_, Pairs> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs collective calls over a communicator of their own, of which nothing is left: MPI may be finalized after
    /// any call here.
    fn with_world<T>(
        &self,
        run: impl FnOnce(&Comm) -> Result<T, shmem_mpi::Error>,
    ) -> Result<T, Cause> {
        let world = self.mpi.world()?.duplicate()?;
        let outcome = run(&world)?;
        world.free()?;
        Ok(outcome)
    }

    fn gather_all(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Cause> {
        self.with_world(|world| gather(world, bytes))
    }
}

/// The node of each rank, by its first rank: that of the processes that share memory in MPI's eyes.
fn node_of(world: &Comm) -> Result<Vec<u32>, shmem_mpi::Error> {
    let node = world.split_shared()?;
    let mut first = [world.rank()];
    node.allreduce_in_place(&mut first, ReduceOp::Min)?;
    node.free()?;
    let mut firsts = vec![0; world.size() as usize];
    world.allgather(&first, &mut firsts)?;
    Ok(firsts)
}

/// A name that rank 0 makes up.
fn job(world: &Comm) -> Result<String, shmem_mpi::Error> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let mut words = [
        u64::from(std::process::id()),
        since.unwrap_or_default().as_nanos() as u64,
    ];
    world.broadcast(&mut words, 0)?;
    Ok(format!("mpi-{:x}-{:x}", words[0], words[1]))
}

/// The bytes of all, of any length.
fn gather(world: &Comm, bytes: &[u8]) -> Result<Vec<Vec<u8>>, shmem_mpi::Error> {
    let n = world.size() as usize;
    let mut lens = vec![0u64; n];
    world.allgather(&[bytes.len() as u64], &mut lens)?;
    let longest = lens.iter().max().copied().unwrap_or(0) as usize;
    if longest == 0 {
        return Ok(vec![Vec::new(); n]);
    }
    let mut padded = bytes.to_vec();
    padded.resize(longest, 0);
    let mut all = vec![0u8; longest * n];
    world.allgather(&padded, &mut all)?;
    let parts = all.chunks_exact(longest).zip(lens);
    Ok(parts
        .map(|(part, len)| part[..len as usize].to_vec())
        .collect())
}

/// Pairs as bytes: of each key and value the length, as four bytes, and the bytes.
fn packed(pairs: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in pairs {
        for part in [key.as_bytes(), value] {
            bytes.extend((part.len() as u32).to_be_bytes());
            bytes.extend(part);
        }
    }
    bytes
}

/// The opposite; `None` where the bytes end too early.
fn unpacked(mut bytes: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
    let mut part = || -> Option<Option<Vec<u8>>> {
        if bytes.is_empty() {
            return Some(None);
        }
        let (len, rest) = bytes.split_first_chunk::<4>()?;
        let (part, rest) = rest.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        bytes = rest;
        Some(Some(part.to_vec()))
    };
    let mut pairs = Vec::new();
    while let Some(key) = part()? {
        pairs.push((String::from_utf8(key).ok()?, part()??));
    }
    Some(pairs)
}

impl Direct for Calls {
    fn check_open(&self, call: &'static str) -> Result<(), Cause> {
        match self.finalized.load(Ordering::Acquire) {
            true => Err(closed(call)),
            false => Ok(()),
        }
    }

    fn job_id(&self) -> Result<String, Cause> {
        Ok(self.job.clone())
    }

    fn job_attr(&self, key: &str) -> Result<Option<Vec<u8>>, Cause> {
        let mapping = || ProcessMapping::from_nodes(&self.node_of).to_string();
        Ok((key == process_mapping::KEY).then(|| mapping().into_bytes()))
    }

    fn put_node_attr(&self, _: &str, _: &[u8]) -> Result<(), Cause> {
        Err(NEEDS_A_SERVER)
    }

    fn node_attr(&self, _: &str, _: bool) -> Result<Option<Vec<u8>>, Cause> {
        Err(NEEDS_A_SERVER)
    }

    fn put(&self, key: &str, value: &[u8]) -> Result<(), Cause> {
        check_pair(key, value).map_err(ConnectionError::from)?;
        self.pairs().new.push((key.to_owned(), value.to_vec()));
        Ok(())
    }

    fn get(&self, _: Option<u32>, key: &str) -> Result<Option<Vec<u8>>, Cause> {
        Ok(self.pairs().visible.get(key).cloned())
    }

    fn get_from(&self, _: u32, _: &str) -> Result<Vec<u8>, Cause> {
        Err(NEEDS_A_SERVER)
    }

    fn publish(&self, _: &str, _: &[u8]) -> Result<(), Cause> {
        Err(MPI_HAS_IT)
    }

    fn lookup(&self, _: &str) -> Result<Vec<u8>, Cause> {
        Err(MPI_HAS_IT)
    }

    fn unpublish(&self, _: &str) -> Result<(), Cause> {
        Err(MPI_HAS_IT)
    }

    fn spawn(&self, _: &SpawnRequest) -> Result<Spawned, Cause> {
        Err(MPI_HAS_IT)
    }

    /// MPI says why in its own words. After its end the launcher sees the status of this process.
    fn abort(&self, exit_code: i32, _: &str) -> Result<(), Cause> {
        Err(self.mpi.abort(exit_code).into())
    }

    fn wait_hangup(&self) -> io::Result<()> {
        match &self.watched {
            Some(fd) => sys::wait_hangup(fd.as_fd()),
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn finalize(&self) -> Result<(), Cause> {
        match self.finalized.swap(true, Ordering::AcqRel) {
            true => Err(closed("finalize")),
            false => Ok(()),
        }
    }

    /// Done when it returns, as all collective operations here.
    fn start_fence(&self) -> Result<Work, Cause> {
        let new = std::mem::take(&mut self.pairs().new);
        let all = self.gather_all(&packed(&new))?;
        for (rank, bytes) in (0u32..).zip(all) {
            let pairs = unpacked(&bytes).ok_or(Cause::Contribution {
                rank,
                key: String::new(),
                fault: "is damaged",
            })?;
            self.pairs().visible.extend(pairs);
        }
        Ok(Work::Alone(Vec::new()))
    }

    fn start_gather(&self, _: u64, value: &[u8]) -> Result<Work, Cause> {
        let all = self.gather_all(value)?;
        let odd = (0u32..)
            .zip(&all)
            .find(|(_, other)| other.len() != value.len());
        match odd {
            Some((rank, other)) => Err(keys::other_length(rank, other.len(), value.len())),
            None => Ok(Work::Alone(all.concat())),
        }
    }

    fn ring(&self, _: u64, value: &[u8]) -> Result<[Vec<u8>; 2], Cause> {
        let mut all = self.gather_all(value)?;
        let (me, size) = (self.rank as usize, self.size as usize);
        let right = all[(me + 1) % size].clone();
        Ok([all.swap_remove((me + size - 1) % size), right])
    }
}

const NEEDS_A_SERVER: Cause = Cause::NotOffered {
    instead: "over MPI pairs are exchanged by put, fence and get",
};

const MPI_HAS_IT: Cause = Cause::NotOffered {
    instead: "MPI has it: MPI_Publish_name, MPI_Lookup_name, MPI_Comm_spawn",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_survive_the_way() {
        let pairs = vec![
            ("a".to_owned(), b"1".to_vec()),
            ("key".to_owned(), Vec::new()),
            ("-".to_owned(), vec![0, 255, 10]),
        ];
        assert_eq!(unpacked(&packed(&pairs)), Some(pairs.clone()));
        assert_eq!(unpacked(b""), Some(Vec::new()));
        let bytes = packed(&pairs);
        assert_eq!(unpacked(&bytes[..bytes.len() - 1]), None);
        assert_eq!(unpacked(&[255; 4]), None);
    }

    #[test]
    fn open_mpi_5_is_known_by_its_words() {
        let version =
            "Open MPI v5.0.11, package: Open MPI user@localhost Distribution, ident: 5.0.11";
        assert!(wants_pmix_untouched(version));
        assert!(!wants_pmix_untouched(
            "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4"
        ));
        assert!(!wants_pmix_untouched("MPICH Version:      5.0.2"));
    }

    #[test]
    fn who_says_nothing_contradicts_nobody() {
        let beside = |place| Beside {
            library: String::new(),
            place,
            is_of_another_thread: None,
            is_to_come: false,
            must_be_first: false,
        };
        assert!(beside(None).check_place((1, 4), "x").is_ok());
        assert!(beside(Some((1, 4))).check_place((1, 4), "x").is_ok());
        assert!(beside(Some((0, 4))).check_place((1, 4), "x").is_err());
    }
}
