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

mod calls;

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use shmem_pmix::abi::Scope;
use shmem_pmix::client::{Client, Fence, Patience, Whose};
use shmem_pmix::{Library, Status};

pub(super) use calls::Calls;

use super::error::Cause;
use super::keys;
use crate::client::check_pair;
use crate::io::ConnectionError;

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
struct Pmix {
    client: Client,
    size: u32,
    prefix: String,
    /// Held while something is asked for.
    asking: Mutex<()>,
    fences: Mutex<Fences>,
    node_of: OnceLock<Option<Vec<u32>>>,
    finalized: AtomicBool,
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
