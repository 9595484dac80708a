//! What a server does that is spoken to by calls and not over a connection of this crate: [`super::alone`]
//! and [`super::pmix`].

use std::fmt;
use std::io;

use super::error::Cause;
use super::work::Work;
use crate::client::ClientError;
use crate::client::calls::Spawned;
use crate::io::ConnectionError;
use crate::question::SpawnRequest;

/// The calls of a process, as [`super::Process`] has them.
pub(super) trait Direct: fmt::Debug + Send + Sync {
    /// An error after finalize.
    fn check_open(&self, call: &'static str) -> Result<(), Cause>;
    fn job_id(&self) -> Result<String, Cause>;
    fn job_attr(&self, key: &str) -> Result<Option<Vec<u8>>, Cause>;
    fn put_node_attr(&self, key: &str, value: &[u8]) -> Result<(), Cause>;
    fn node_attr(&self, key: &str, wait: bool) -> Result<Option<Vec<u8>>, Cause>;
    fn put(&self, key: &str, value: &[u8]) -> Result<(), Cause>;
    /// The owner is who has put it, if that is known.
    fn get(&self, owner: Option<u32>, key: &str) -> Result<Option<Vec<u8>>, Cause>;
    fn get_from(&self, owner: u32, key: &str) -> Result<Vec<u8>, Cause>;
    fn publish(&self, name: &str, port: &[u8]) -> Result<(), Cause>;
    fn lookup(&self, name: &str) -> Result<Vec<u8>, Cause>;
    fn unpublish(&self, name: &str) -> Result<(), Cause>;
    fn spawn(&self, request: &SpawnRequest) -> Result<Spawned, Cause>;
    fn abort(&self, exit_code: i32, message: &str) -> Result<(), Cause>;
    /// As [`super::Process::wait_hangup`].
    fn wait_hangup(&self) -> io::Result<()>;
    fn finalize(&self) -> Result<(), Cause>;
    fn start_fence(&self) -> Result<Work, Cause>;
    /// Starts the allgather with the number `number` among all collective operations.
    fn start_gather(&self, number: u64, value: &[u8]) -> Result<Work, Cause>;
    /// The values of the PEs to the left and to the right.
    fn ring(&self, number: u64, value: &[u8]) -> Result<[Vec<u8>; 2], Cause>;
}

/// A call that was made after finalize.
pub(super) fn closed(command: &'static str) -> Cause {
    let state = "after finalize";
    ConnectionError::from(ClientError::WrongState { command, state }).into()
}
