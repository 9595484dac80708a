//! The server of a process that has none: a job of one process keeps its pairs itself.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::error::Cause;
use crate::client::{ClientError, Refusal, check_pair};
use crate::io::ConnectionError;

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

    /// As other processes, it says nothing after finalize.
    pub(super) fn check_open(&self, command: &'static str) -> Result<(), Cause> {
        let state = "after finalize";
        match self.lock().finalized {
            true => Err(ConnectionError::from(ClientError::WrongState { command, state }).into()),
            false => Ok(()),
        }
    }

    pub(super) fn finalize(&self) {
        self.lock().finalized = true;
    }

    pub(super) fn put(&self, key: &str, value: &[u8]) -> Result<(), Cause> {
        check_pair(key, value).map_err(ConnectionError::from)?;
        self.lock().new.insert(key.to_owned(), value.to_vec());
        self.put.notify_all();
        Ok(())
    }

    pub(super) fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.lock().visible.get(key).cloned()
    }

    /// Waits until another thread has put it, if none has yet.
    pub(super) fn get_direct(&self, key: &str) -> Vec<u8> {
        let mut pairs = self.lock();
        loop {
            if let Some(value) = pairs.new.get(key).or_else(|| pairs.visible.get(key)) {
                return value.clone();
            }
            let waited = self.put.wait(pairs);
            pairs = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn fence(&self) {
        let mut pairs = self.lock();
        let new = std::mem::take(&mut pairs.new);
        pairs.visible.extend(new);
    }

    pub(super) fn put_node_attr(&self, key: &str, value: &[u8]) -> Result<(), Cause> {
        check_pair(key, value).map_err(ConnectionError::from)?;
        let attributes = &mut self.lock().attributes;
        attributes.insert(key.to_owned(), value.to_vec());
        self.put.notify_all();
        Ok(())
    }

    pub(super) fn node_attr(&self, key: &str, wait: bool) -> Option<Vec<u8>> {
        let mut pairs = self.lock();
        loop {
            let value = pairs.attributes.get(key).cloned();
            if value.is_some() || !wait {
                return value;
            }
            let waited = self.put.wait(pairs);
            pairs = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn publish(&self, name: &str, port: &[u8]) -> Result<(), Cause> {
        let names = &mut self.lock().names;
        if names.contains_key(name) {
            return Err(refused("publish", "the name is published already"));
        }
        names.insert(name.to_owned(), port.to_vec());
        Ok(())
    }

    pub(super) fn lookup(&self, name: &str) -> Result<Vec<u8>, Cause> {
        let port = self.lock().names.get(name).cloned();
        port.ok_or_else(|| refused("lookup", "nobody has published the name"))
    }

    pub(super) fn unpublish(&self, name: &str) -> Result<(), Cause> {
        let port = self.lock().names.remove(name);
        let unknown = || refused("unpublish", "nobody has published the name");
        port.map(drop).ok_or_else(unknown)
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
