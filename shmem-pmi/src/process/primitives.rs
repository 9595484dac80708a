//! The way from a process to the primitives of its node agents, for programs that ask for them.

use super::{Backend, Inner, Process};
use crate::client::{Client, ClientError};
use crate::io::{Connection, ConnectionError};
use crate::papers::primitives::{Primitives, Starter};

impl Starter for Inner {
    fn start(
        &self,
        connection: &Connection,
        calls: &mut dyn FnMut(&mut Client) -> Result<(), ClientError>,
    ) -> Result<(), ConnectionError> {
        self.collective(connection, |client, _| calls(client))
    }
}

impl Process {
    /// The primitives of the node agents for this PE: send and receive, and collectives with data of any length.
    /// `None` where the server has no extensions, or there is none.
    ///
    /// They take part in the order of collective operations: all PEs call them, and fences,
    /// allgathers and rings, in the same order.
    pub fn primitives(&self) -> Option<Primitives<'_>> {
        match &self.inner.backend {
            Backend::Shmrun { connection, .. } => {
                let (rank, size) = (self.rank(), self.size());
                Some(Primitives::started_by(&*self.inner, connection, rank, size))
            }
            Backend::Plain(_) | Backend::Direct(_) => None,
        }
    }
}
