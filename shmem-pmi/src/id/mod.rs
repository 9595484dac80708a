//! Jobs without a launcher: processes that share nothing but an id.
//!
//! A [`UniqueId`] is a key of 256 bits and the place where the job's processes meet. One of them hosts the job: a
//! thread of that process listens there, lets in who has the key, and is the job's PMI server. The process that
//! made the id is the host ([`UniqueId::on`]), or PE 0 is ([`UniqueId::at`]).
//!
//! * `unique_id`: the id, as text and bytes.
//! * `auth`: what a key proves; `hello`: the handshake and the frames after it.
//! * `host`, `guest`: both ends, as pure machines.
//! * `serve`, `join`: their sockets and threads.

mod auth;
mod guest;
mod hello;
mod host;
mod join;
mod serve;
mod unique_id;

use std::net::IpAddr;
use std::time::Duration;

pub use join::{Ended, JoinError, Place};
pub use serve::{let_end_be_told, let_others_leave};
pub use unique_id::{IdError, Listener, MakeError, UniqueId};

pub(crate) use join::{Member, join};

/// Most processes of a job: what an id's host keeps of each is small, and its descriptors are few.
pub const MAX_SIZE: u32 = 1 << 18;

impl UniqueId {
    /// Makes an id, and listens for the processes of its job at `address`, an address of this machine that all of them
    /// reach. **This process hosts the job**: a thread of it does. The job ends when this process does, unless
    /// all have finalized by then. `patience` is how long the first to come waits for the last.
    ///
    /// # Errors
    /// The address is not one of this machine; the system refuses a socket, a thread or random bytes.
    pub fn on(address: IpAddr, patience: Duration) -> Result<Self, MakeError> {
        serve::make(address, patience)
    }
}

#[cfg(test)]
mod tests;
