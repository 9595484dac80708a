//! The calls of a process at a PMIx server, made of libpmix's.
//!
//! PMIx knows whose a key is and finds it by that only; keys of ours begin with [`PREFIX`] and the number of
//! this process's inits, since a server may not let go of what a former one has put. Values are byte objects.
//!
//! What a fence has collected is known at every node afterwards, with some servers; others ask the owner's
//! when a key is first got, and that knows it as long as the owner is there. Of the latter none says at once that a key of another node is not there, so that
//! is believed when [`ANSWER`] has passed. One thread asks at a time, and never for ever: libpmix answers all
//! that wait for keys of the same PE with what the first of them is told.
//!
//! One fence is under way at a time: a server counts who has joined, and would take a second one of
//! the same processes for that of others. Those behind it start when somebody waits for or tests any.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use shmem_pmix::abi::Scope;
use shmem_pmix::client::{Client, Fence, Patience, Whose};
use shmem_pmix::{Data, Library, Status, key};

use super::direct::{Direct, closed};
use super::error::Cause;
use super::keys;
use super::request::Work;
use crate::client::calls::Spawned;
use crate::client::check_pair;
use crate::io::ConnectionError;
use crate::process_mapping::{self, ProcessMapping};
use crate::question::SpawnRequest;

/// What keys of ours begin with.
const PREFIX: &str = "shmem";
/// Variable with the release of the server's library.
const ENV_VERSION: &str = "PMIX_VERSION";
/// How long a server may take to ask another for what a PE has put before the last fence.
const ANSWER: Duration = Duration::from_secs(30);
/// How long a key of this node may not be found although a fence is over: OpenPMIx 4.2's store says so
/// now and then while it grows.
const STORED: Duration = Duration::from_secs(2);
/// For how many seconds it is asked before another thread has its turn.
const TURN: u16 = 5;
/// Shortest and longest sleep between two looks for an attribute of the node.
const FIRST_NAP: Duration = Duration::from_micros(500);
const LAST_NAP: Duration = Duration::from_millis(20);

/// A process at a PMIx server.
#[derive(Debug)]
pub(super) struct Pmix {
    client: Client,
    size: u32,
    prefix: String,
    /// Held while something is asked for.
    asking: Mutex<()>,
    fences: Mutex<Fences>,
    node_of: OnceLock<Option<Vec<u32>>>,
    finalized: AtomicBool,
}

/// What it learns of itself in init.
pub(super) struct Facts {
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) appnum: i32,
    pub(super) spawned: bool,
}

/// Fences in the order of their starts.
#[derive(Debug, Default)]
struct Fences {
    under_way: Option<Arc<Fence>>,
    later: VecDeque<Arc<Later>>,
}

/// A fence that is started when those before it are over.
type Later = OnceLock<Result<Arc<Fence>, Status>>;

/// A fence of this process, and what is to be got after it.
#[derive(Debug)]
pub(super) struct Started {
    job: Arc<Pmix>,
    fence: Arc<Later>,
    /// Of an allgather: its number, and the length of this PE's value.
    gather: Option<(u64, usize)>,
}

/// The calls of one process, which requests hold, too.
#[derive(Debug)]
pub(super) struct Calls(Arc<Pmix>);

impl Calls {
    pub(super) fn init(library: &'static Library) -> Result<(Self, Facts), Cause> {
        static INITS: AtomicU32 = AtomicU32::new(0);
        let client = Client::init(library).map_err(|status| failed("init", status, library))?;
        let told = |whose, name: &str| {
            let data = client.get(whose, name, Patience::Known);
            data.map_err(|status| failed(name, status, library))
        };
        let rank = client.rank();
        let size = told(Whose::Job, key::JOB_SIZE)?.and_then(|data| data.u32());
        let Some(size) = size.filter(|&size| rank < size) else {
            let what = format!("size of the job of which this is process {rank}");
            return Err(failed(&what, Status::NOT_FOUND, library));
        };
        let appnum = told(Whose::Rank(rank), key::APPNUM)?.and_then(|data| data.u32());
        let spawned = told(Whose::Job, key::SPAWNED)?;
        let facts = Facts {
            rank,
            size,
            appnum: appnum.and_then(|n| n.try_into().ok()).unwrap_or(-1),
            spawned: spawned.is_some_and(|data| data == Data::Bool(true)),
        };
        let life = INITS.fetch_add(1, Ordering::Relaxed);
        let job = Pmix {
            client,
            size,
            prefix: format!("{PREFIX}{life}."),
            asking: Mutex::default(),
            fences: Mutex::default(),
            node_of: OnceLock::new(),
            finalized: AtomicBool::new(false),
        };
        Ok((Self(Arc::new(job)), facts))
    }
}

fn failed(what: &str, status: Status, library: &Library) -> Cause {
    let server = std::env::var(ENV_VERSION);
    Cause::Pmix {
        what: what.to_owned(),
        status,
        server: server.unwrap_or_else(|_| "an unknown release".to_owned()),
        library: format!("{} ({})", library.version(), library.path().display()),
    }
}

impl Pmix {
    fn failed<'a>(&'a self, what: &'a str) -> impl FnOnce(Status) -> Cause + 'a {
        move |status| failed(what, status, self.client.library())
    }

    fn name(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn put(&self, scope: Scope, key: &str, value: &[u8]) -> Result<(), Cause> {
        check_pair(key, value).map_err(ConnectionError::from)?;
        self.put_unchecked(scope, key, value)
    }

    fn put_unchecked(&self, scope: Scope, key: &str, value: &[u8]) -> Result<(), Cause> {
        let put = self.client.put(scope, &self.name(key), value);
        put.and_then(|()| self.client.commit())
            .map_err(self.failed(&format!("put of key `{key}` ({} bytes)", value.len())))
    }

    fn get(&self, owner: u32, key: &str, patience: Patience) -> Result<Option<Vec<u8>>, Cause> {
        let failed = |status| self.failed(&format!("get of key `{key}` of PE {owner}"))(status);
        let whose = Whose::Rank(owner);
        let _turn = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let data = self.client.get(whose, &self.name(key), patience);
        let Some(data) = data.map_err(failed)? else {
            return Ok(None);
        };
        let bytes = data.into_bytes();
        bytes.map(Some).ok_or_else(|| failed(Status::TYPE_MISMATCH))
    }

    /// A key that a fence has made visible; `None` if it has not.
    fn get_fenced(&self, owner: u32, key: &str) -> Result<Option<Vec<u8>>, Cause> {
        let begun = Instant::now();
        let mut nap = FIRST_NAP;
        loop {
            let found = self.look(owner, key)?;
            let patience = match () {
                () if found.is_some() || owner == self.client.rank() => return Ok(found),
                () if self.shares_node(owner) => STORED,
                () => ANSWER,
            };
            if begun.elapsed() >= patience {
                return Ok(None);
            }
            std::thread::sleep(nap);
            nap = (nap * 2).min(LAST_NAP);
        }
    }

    /// Asks for a key, at other nodes for [`TURN`] seconds.
    fn look(&self, owner: u32, key: &str) -> Result<Option<Vec<u8>>, Cause> {
        let found = self.get(owner, key, Patience::Node)?;
        if found.is_some() || self.shares_node(owner) {
            return Ok(found);
        }
        self.get(owner, key, Patience::Seconds(TURN))
    }

    /// Asks again and again.
    fn await_value<T>(mut ask: impl FnMut() -> Result<Option<T>, Cause>) -> Result<T, Cause> {
        let mut nap = FIRST_NAP;
        loop {
            if let Some(value) = ask()? {
                return Ok(value);
            }
            std::thread::sleep(nap);
            nap = (nap * 2).min(LAST_NAP);
        }
    }

    fn fences(&self) -> MutexGuard<'_, Fences> {
        self.fences.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the next fence if none is under way.
    fn advance(&self, fences: &mut Fences) {
        while fences
            .under_way
            .as_ref()
            .is_none_or(|fence| fence.is_over())
        {
            fences.under_way = None;
            let Some(next) = fences.later.pop_front() else {
                return;
            };
            let started = self.client.start_fence();
            fences.under_way = started.as_ref().ok().cloned();
            let _ = next.set(started);
        }
    }

    fn start(self: &Arc<Self>, gather: Option<(u64, usize)>) -> Started {
        let fence = Arc::new(Later::new());
        let mut fences = self.fences();
        fences.later.push_back(Arc::clone(&fence));
        self.advance(&mut fences);
        drop(fences);
        Started {
            job: Arc::clone(self),
            fence,
            gather,
        }
    }

    /// Waits for a fence, and for those before it.
    fn wait(&self, fence: &Later) -> Result<(), Status> {
        loop {
            let mut fences = self.fences();
            self.advance(&mut fences);
            let before = fences.under_way.clone();
            drop(fences);
            match (fence.get(), before) {
                (Some(started), _) => {
                    let outcome = started.clone().and_then(|fence| fence.wait());
                    // Whoever waits for the next finds it under way.
                    self.advance(&mut self.fences());
                    return outcome;
                }
                // Whether it failed, who waits for it is told.
                (None, Some(before)) => drop(before.wait()),
                (None, None) => return Err(Status::INVALID_OPERATION),
            }
        }
    }

    /// The node of each rank; `None` if the server's answers do not make a whole.
    fn node_of(&self) -> Option<&Vec<u32>> {
        let node_of = self.node_of.get_or_init(|| {
            let nodes = self.client.nodes().ok()?;
            let mut node_of = vec![None; self.size as usize];
            for (number, node) in (0u32..).zip(&nodes) {
                for rank in self.client.ranks_of(node).ok()? {
                    *node_of.get_mut(rank as usize)? = Some(number);
                }
            }
            node_of.into_iter().collect()
        });
        node_of.as_ref()
    }

    fn shares_node(&self, other: u32) -> bool {
        let me = self.client.rank();
        let node = |rank: u32| self.node_of()?.get(rank as usize);
        other == me || node(me).is_some_and(|own| node(other) == Some(own))
    }
}

impl Started {
    /// Waits for the fence; of an allgather, gets the values of all PEs.
    pub(super) fn wait(&self) -> Result<Option<Vec<u8>>, Cause> {
        let ended = self.job.wait(&self.fence);
        ended.map_err(self.job.failed("fence"))?;
        let Some((number, len)) = self.gather else {
            return Ok(None);
        };
        let mut all = Vec::with_capacity(len * self.job.size as usize);
        for rank in 0..self.job.size {
            let key = keys::key('g', number, rank, 0);
            let value = self.job.get_fenced(rank, &key)?;
            let value = value.ok_or_else(|| absent(rank, key))?;
            if value.len() != len {
                return Err(keys::other_length(rank, value.len(), len));
            }
            all.extend_from_slice(&value);
        }
        Ok(Some(all))
    }

    pub(super) fn is_over(&self) -> bool {
        self.job.advance(&mut self.job.fences());
        let started = self.fence.get();
        started.is_some_and(|fence| fence.as_ref().map_or(true, |fence| fence.is_over()))
    }
}

fn absent(rank: u32, key: String) -> Cause {
    let fault = "is not there after the fence";
    Cause::Contribution { rank, key, fault }
}

impl Direct for Calls {
    fn check_open(&self, call: &'static str) -> Result<(), Cause> {
        match self.0.finalized.load(Ordering::Acquire) {
            true => Err(closed(call)),
            false => Ok(()),
        }
    }

    fn job_id(&self) -> Result<String, Cause> {
        Ok(self.0.client.namespace())
    }

    fn job_attr(&self, key: &str) -> Result<Option<Vec<u8>>, Cause> {
        let name = match key {
            process_mapping::KEY => {
                let mapping = |nodes: &Vec<u32>| ProcessMapping::from_nodes(nodes).to_string();
                return Ok(self.0.node_of().map(mapping).map(String::into_bytes));
            }
            "universeSize" => key::UNIV_SIZE,
            other => other,
        };
        let data = self.0.client.get(Whose::Job, name, Patience::Known);
        let data = data.map_err(self.0.failed(name))?;
        Ok(data.and_then(|data| match data.number() {
            Some(number) => Some(number.to_string().into_bytes()),
            None => data.into_bytes(),
        }))
    }

    fn put_node_attr(&self, key: &str, value: &[u8]) -> Result<(), Cause> {
        check_pair(key, value).map_err(ConnectionError::from)?;
        self.0
            .put_unchecked(Scope::Local, &format!("@{key}"), value)
    }

    /// PMIx does not tell when somebody puts a key, unless it is known who will.
    fn node_attr(&self, key: &str, wait: bool) -> Result<Option<Vec<u8>>, Cause> {
        let key = format!("@{key}");
        let look = || {
            for rank in (0..self.0.size).filter(|&rank| self.0.shares_node(rank)) {
                if let Some(value) = self.0.get(rank, &key, Patience::Node)? {
                    return Ok(Some(value));
                }
            }
            Ok(None)
        };
        match wait {
            true => Pmix::await_value(look).map(Some),
            false => look(),
        }
    }

    fn put(&self, key: &str, value: &[u8]) -> Result<(), Cause> {
        self.0.put(Scope::Global, key, value)
    }

    fn get(&self, owner: Option<u32>, key: &str) -> Result<Option<Vec<u8>>, Cause> {
        match owner {
            Some(rank) => self.0.get_fenced(rank, key),
            None => Err(Cause::NotOffered {
                instead: "PMIx finds a key by the PE that has put it: use get_of",
            }),
        }
    }

    fn get_from(&self, owner: u32, key: &str) -> Result<Vec<u8>, Cause> {
        Pmix::await_value(|| self.0.look(owner, key))
    }

    fn publish(&self, name: &str, port: &[u8]) -> Result<(), Cause> {
        check_pair(name, port).map_err(ConnectionError::from)?;
        let published = self.0.client.publish(&format!("{PREFIX}.{name}"), port);
        published.map_err(self.0.failed(&format!("publish `{name}`")))
    }

    fn lookup(&self, name: &str) -> Result<Vec<u8>, Cause> {
        let what = format!("lookup of `{name}`");
        let found = self.0.client.lookup(&format!("{PREFIX}.{name}"));
        let bytes = found.map_err(self.0.failed(&what))?.into_bytes();
        bytes.ok_or_else(|| self.0.failed(&what)(Status::TYPE_MISMATCH))
    }

    fn unpublish(&self, name: &str) -> Result<(), Cause> {
        // The library says nothing of names that nobody has published.
        self.lookup(name)?;
        let taken = self.0.client.unpublish(&format!("{PREFIX}.{name}"));
        taken.map_err(self.0.failed(&format!("unpublish `{name}`")))
    }

    fn spawn(&self, _: &SpawnRequest) -> Result<Spawned, Cause> {
        Err(Cause::NotOffered {
            instead: "jobs are spawned under shmrun, mpiexec.hydra and srun --mpi=pmi2",
        })
    }

    fn abort(&self, exit_code: i32, message: &str) -> Result<(), Cause> {
        let ended = self.0.client.abort(exit_code, message);
        ended.map_err(self.0.failed("abort"))
    }

    fn wait_hangup(&self) -> io::Result<()> {
        self.0.client.wait_for_loss().map_err(io::Error::other)
    }

    fn finalize(&self) -> Result<(), Cause> {
        loop {
            let last = self.0.fences().later.back().cloned();
            let Some(last) = last else { break };
            // What failed was to be told to who waits for it.
            let _ = self.0.wait(&last);
        }
        if self.0.finalized.swap(true, Ordering::AcqRel) {
            return Err(closed("finalize"));
        }
        self.0.client.finalize().map_err(self.0.failed("finalize"))
    }

    fn start_fence(&self) -> Result<Work, Cause> {
        Ok(Work::Pmix(self.0.start(None)))
    }

    fn start_gather(&self, number: u64, value: &[u8]) -> Result<Work, Cause> {
        let key = keys::key('g', number, self.0.client.rank(), 0);
        self.0.put_unchecked(Scope::Global, &key, value)?;
        Ok(Work::Pmix(self.0.start(Some((number, value.len())))))
    }

    fn ring(&self, number: u64, value: &[u8]) -> Result<[Vec<u8>; 2], Cause> {
        let (me, size) = (self.0.client.rank(), self.0.size);
        self.put(&keys::key('r', number, me, 0), value)?;
        self.0.start(None).wait()?;
        let of = |rank| {
            let key = keys::key('r', number, rank, 0);
            let value = self.0.get_fenced(rank, &key)?;
            value.ok_or_else(|| absent(rank, key))
        };
        Ok([of((me + size - 1) % size)?, of((me + 1) % size)?])
    }
}
