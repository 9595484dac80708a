//! What processes tell each other by keys, other jobs by names, and the server of the job.

use super::error::ProcessError;
use super::{Backend, Direct, Process};
use crate::client::calls;
use crate::io::Connection;

impl Process {
    /// Longest value of [`Process::put`] in bytes: at most 1023, with PMI-1 at most 600.
    pub fn value_max(&self) -> usize {
        let max = |connection: &Connection| connection.submit(|client| Ok(client.value_max()));
        self.inner
            .connection()
            .and_then(|connection| max(connection).ok())
            .unwrap_or(crate::wire::MAX_VALUE - 1)
    }

    /// The job's id; with PMI-1 the name of its key-value space.
    ///
    /// # Errors
    ///
    /// Of this and all methods that refer to it: the connection fails, the server refuses, or the call cannot be
    /// made, for example after [`Process::finalize`].
    pub fn job_id(&self) -> Result<String, ProcessError> {
        self.either("job_id", calls::JobId, |direct| direct.job_id())
    }

    /// An attribute of the job, such as `PMI_process_mapping` or `universeSize`; `None` if there is
    /// no such.
    ///
    /// # Errors
    ///
    /// As [`Process::job_id`].
    pub fn job_attr(&self, key: &str) -> Result<Option<Vec<u8>>, ProcessError> {
        let own = |direct: &dyn Direct| direct.job_attr(key);
        self.either("job_attr", calls::JobAttr(key), own)
    }

    /// Publishes a key to the processes of this node, at once. Not with PMI-1.
    ///
    /// # Errors
    ///
    /// As [`Process::job_id`].
    pub fn put_node_attr(&self, key: &str, value: &[u8]) -> Result<(), ProcessError> {
        let own = |direct: &dyn Direct| direct.put_node_attr(key, value);
        self.either("put_node_attr", calls::PutNodeAttr(key, value), own)
    }

    /// A key that a process of this node publishes; `None` if nobody has. With `wait`, waits until
    /// somebody does: for ever, if it is put on another node; where the server has no extensions,
    /// other threads' calls wait, too. Not with PMI-1.
    ///
    /// # Errors
    ///
    /// As [`Process::job_id`].
    pub fn node_attr(&self, key: &str, wait: bool) -> Result<Option<Vec<u8>>, ProcessError> {
        let own = |direct: &dyn Direct| direct.node_attr(key, wait);
        self.either("node_attr", calls::NodeAttr(key, wait), own)
    }

    /// Puts a pair, which becomes visible with the next fence. Keys have 1 to 63 bytes, values 1 to
    /// [`Process::value_max`]; not all servers carry blanks, newlines, `;`, `\` and `=`, so binary
    /// values must be encoded.
    ///
    /// # Errors
    ///
    /// As [`Process::job_id`]; a key or value that the server could not carry.
    pub fn put(&self, key: &str, value: &[u8]) -> Result<(), ProcessError> {
        let own = |direct: &dyn Direct| direct.put(key, value);
        self.either("put", calls::Put(key, value), own)
    }

    /// The value of a key, if a fence has made one visible. Under shmrun it is read from shared
    /// memory, and the agent is asked only if it is not there (see `SHMEM_PMI_STORE`).
    ///
    /// # Errors
    ///
    /// As [`Process::job_id`]; the server is one of PMIx: then [`Process::get_of`] does.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, ProcessError> {
        self.get_visible(None, key)
    }

    /// The value of a key of which it is known which PE has put it. A PMIx server finds keys by that only; if it
    /// says that a PE of another node has not put the key, that may take half a minute.
    ///
    /// # Errors
    ///
    /// As [`Process::job_id`].
    pub fn get_of(&self, owner: u32, key: &str) -> Result<Option<Vec<u8>>, ProcessError> {
        self.get_visible(Some(owner), key)
    }

    fn get_visible(&self, owner: Option<u32>, key: &str) -> Result<Option<Vec<u8>>, ProcessError> {
        if let Backend::Shmrun { store, .. } = &self.inner.backend
            && let Some(value) = store.get_vec(key.as_bytes())
        {
            return Ok(Some(value));
        }
        let own = |direct: &dyn Direct| direct.get(owner, key);
        self.either("get", calls::Get(key), own)
    }

    /// The value of a key from the PE that puts it, as soon as it has put it: without any fence
    /// (direct exchange). Waits until then. Only under shmrun, at PMIx servers, and alone.
    ///
    /// Have only that PE put the key: once a fence has made it visible, it has one value in the job,
    /// from whichever PE.
    ///
    /// # Errors
    ///
    /// As [`Process::job_id`]; that PE ends without putting the key; or the server has no extensions:
    /// then `put`, `fence` and [`Process::get`] do.
    pub fn get_from(&self, owner: u32, key: &str) -> Result<Vec<u8>, ProcessError> {
        let own = |direct: &dyn Direct| direct.get_from(owner, key);
        self.either("get_from", calls::GetFrom(owner, key), own)
    }

    /// Publishes where a service is to be found, for other jobs.
    ///
    /// # Errors
    ///
    /// As [`Process::put`]; somebody else has published the name.
    pub fn publish(&self, name: &str, port: &[u8]) -> Result<(), ProcessError> {
        let own = |direct: &dyn Direct| direct.publish(name, port);
        self.either("publish", calls::Publish(name, port), own)
    }

    /// Where a service is to be found.
    ///
    /// # Errors
    ///
    /// As [`Process::job_id`]; nobody has published the name.
    pub fn lookup(&self, name: &str) -> Result<Vec<u8>, ProcessError> {
        self.either("lookup", calls::Lookup(name), |direct| direct.lookup(name))
    }

    /// Takes a service name back.
    ///
    /// # Errors
    ///
    /// As [`Process::lookup`].
    pub fn unpublish(&self, name: &str) -> Result<(), ProcessError> {
        let own = |direct: &dyn Direct| direct.unpublish(name);
        self.either("unpublish", calls::Unpublish(name), own)
    }
}
