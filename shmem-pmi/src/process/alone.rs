//! The server of a process that has none: a job of one process keeps its pairs itself.

use std::collections::HashMap;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::direct::{Direct, closed};
use super::error::Cause;
use super::work::Work;
use crate::client::calls::Spawned;
use crate::client::{Refusal, check_pair};
use crate::io::ConnectionError;
use crate::process_mapping::{self, ProcessMapping};
use crate::question::SpawnRequest;

/// Pairs and names of a job of one process.
#[derive(Debug, Default)]
pub(super) struct Alone {
    pairs: Mutex<Pairs>,
    put: Condvar,
}

#[derive(Debug, Default)]
struct Pairs {
    /// Not visible before the next fence.
    new: HashMap<String, Vec<u8>>,
    visible: HashMap<String, Vec<u8>>,
    attributes: HashMap<String, Vec<u8>>,
    names: HashMap<String, Vec<u8>>,
    finalized: bool,
}

impl Alone {
    fn lock(&self) -> MutexGuard<'_, Pairs> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Direct for Alone {
    fn check_open(&self, call: &'static str) -> Result<(), Cause> {
        match self.lock().finalized {
            true => Err(closed(call)),
            false => Ok(()),
        }
    }

    fn job_id(&self) -> Result<String, Cause> {
        Ok(format!("alone-{}", std::process::id()))
    }

    fn job_attr(&self, key: &str) -> Result<Option<Vec<u8>>, Cause> {
        let mapping = || ProcessMapping::from_nodes(&[0]).to_string().into_bytes();
        Ok((key == process_mapping::KEY).then(mapping))
    }

    fn put(&self, key: &str, value: &[u8]) -> Result<(), Cause> {
        check_pair(key, value).map_err(ConnectionError::from)?;
        self.lock().new.insert(key.to_owned(), value.to_vec());
        self.put.notify_all();
        Ok(())
    }

    fn get(&self, _: Option<u32>, key: &str) -> Result<Option<Vec<u8>>, Cause> {
        Ok(self.lock().visible.get(key).cloned())
    }

    /// Waits until another thread has put it, if none has yet.
    fn get_from(&self, owner: u32, key: &str) -> Result<Vec<u8>, Cause> {
        if owner != 0 {
            return Err(Cause::NotOffered {
                instead: "there is no other PE than 0 in this job",
            });
        }
        let mut pairs = self.lock();
        loop {
            if let Some(value) = pairs.new.get(key).or_else(|| pairs.visible.get(key)) {
                return Ok(value.clone());
            }
            let waited = self.put.wait(pairs);
            pairs = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn put_node_attr(&self, key: &str, value: &[u8]) -> Result<(), Cause> {
        check_pair(key, value).map_err(ConnectionError::from)?;
        let attributes = &mut self.lock().attributes;
        attributes.insert(key.to_owned(), value.to_vec());
        self.put.notify_all();
        Ok(())
    }

    fn node_attr(&self, key: &str, wait: bool) -> Result<Option<Vec<u8>>, Cause> {
        let mut pairs = self.lock();
        loop {
            let value = pairs.attributes.get(key).cloned();
            if value.is_some() || !wait {
                return Ok(value);
            }
            let waited = self.put.wait(pairs);
            pairs = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn publish(&self, name: &str, port: &[u8]) -> Result<(), Cause> {
        let names = &mut self.lock().names;
        if names.contains_key(name) {
            return Err(refused("publish", "the name is published already"));
        }
        names.insert(name.to_owned(), port.to_vec());
        Ok(())
    }

    fn lookup(&self, name: &str) -> Result<Vec<u8>, Cause> {
        let port = self.lock().names.get(name).cloned();
        port.ok_or_else(|| refused("lookup", "nobody has published the name"))
    }

    fn unpublish(&self, name: &str) -> Result<(), Cause> {
        let port = self.lock().names.remove(name);
        let unknown = || refused("unpublish", "nobody has published the name");
        port.map(drop).ok_or_else(unknown)
    }

    fn spawn(&self, _: &SpawnRequest) -> Result<Spawned, Cause> {
        Err(Cause::NotOffered {
            instead: "start the program under a process manager, such as shmrun -n 1",
        })
    }

    /// The process exits by itself.
    fn abort(&self, _: i32, _: &str) -> Result<(), Cause> {
        Ok(())
    }

    fn wait_hangup(&self) -> io::Result<()> {
        Ok(())
    }

    fn finalize(&self) -> Result<(), Cause> {
        self.lock().finalized = true;
        Ok(())
    }

    fn start_fence(&self) -> Result<Work, Cause> {
        let mut pairs = self.lock();
        let new = std::mem::take(&mut pairs.new);
        pairs.visible.extend(new);
        Ok(Work::Alone(Vec::new()))
    }

    fn start_gather(&self, _: u64, value: &[u8]) -> Result<Work, Cause> {
        Ok(Work::Alone(value.to_vec()))
    }

    fn ring(&self, _: u64, value: &[u8]) -> Result<[Vec<u8>; 2], Cause> {
        Ok([value.to_vec(), value.to_vec()])
    }
}

fn refused(command: &str, reason: &str) -> Cause {
    let refusal = Refusal {
        command: command.to_owned(),
        rc: 1,
        message: reason.to_owned(),
    };
    Cause::Connection(refusal.into())
}
