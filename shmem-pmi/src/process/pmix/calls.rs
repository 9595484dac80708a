//! What a process can ask of a PMIx server.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use shmem_pmix::abi::Scope;
use shmem_pmix::client::{Client, Patience, Whose};
use shmem_pmix::{Data, Library, Status, key};

use super::{PREFIX, Pmix, absent, failed};
use crate::client::calls::Spawned;
use crate::client::check_pair;
use crate::io::ConnectionError;
use crate::process::direct::{Direct, closed};
use crate::process::error::Cause;
use crate::process::keys;
use crate::process::work::Work;
use crate::process_mapping::{self, ProcessMapping};
use crate::question::SpawnRequest;

/// What a process learns of itself in init.
pub(in crate::process) struct Facts {
    pub(in crate::process) rank: u32,
    pub(in crate::process) size: u32,
    pub(in crate::process) appnum: i32,
    pub(in crate::process) spawned: bool,
}

/// The calls of one process, which requests hold, too.
#[derive(Debug)]
pub(in crate::process) struct Calls(Arc<Pmix>);

impl Calls {
    pub(in crate::process) fn init(library: &'static Library) -> Result<(Self, Facts), Cause> {
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
            // The caller that waits for this fence gets its failure.
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
