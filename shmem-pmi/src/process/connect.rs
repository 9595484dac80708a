//! From what the environment says to a server that has accepted this process.

use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use shmem_node::contract::{Descriptors, ENV_LOCAL_RANK};
use shmem_node::kvs::Reader;
use shmem_node::segment::SegmentError;
use shmem_node::sys;
use shmem_node::tables::NodeTables;

use super::environment::{Environment, Found};
use super::error::Cause;
use crate::client::calls::{Initialise, Initialised};
use crate::client::{Client, ClientConfig, RankFrom};
use crate::io::Connection;

/// Takes a descriptor that the launcher has left, and leaves it open for MPI, which will look for it at its number.
pub(super) fn share(fd: RawFd) -> Result<OwnedFd, Cause> {
    let inherited = inherit(fd)?;
    let own = inherited.try_clone();
    std::mem::forget(inherited);
    own.map_err(|source| Cause::Descriptor { fd, source })
}

/// Takes a descriptor that the launcher has left.
fn inherit(fd: RawFd) -> Result<OwnedFd, Cause> {
    sys::inherit(fd).map_err(|source| Cause::Descriptor { fd, source })
}

/// The memory that the processes of a node share, under shmrun.
pub(super) struct Node {
    pub(super) tables: NodeTables,
    pub(super) store: Reader,
}

impl Node {
    fn attach(fds: Descriptors, local: u32) -> Result<Self, Cause> {
        let of_node = |why: SegmentError| match why.replaced(fds) {
            Some(replaced) => Cause::Replaced(replaced),
            None => why.into(),
        };
        let lent = |fd| sys::lent(fd).map_err(|source| Cause::Descriptor { fd, source });
        let (tables_fd, heap_fd) = (lent(fds.tables())?, lent(fds.heap())?);
        let tables = NodeTables::attach(tables_fd).map_err(of_node)?;
        let local = local as usize;
        if local >= tables.n_local() {
            return Err(Cause::Variable {
                name: ENV_LOCAL_RANK,
                value: local.to_string(),
                expected: "a position among the processes of this node",
            });
        }
        let store = tables.kvs(heap_fd, local).map_err(of_node)?;
        // They stay where they are, for OpenSHMEM in this process, but not for programs that this one executes.
        for (fd, lent) in [(fds.tables(), tables_fd), (fds.heap(), heap_fd)] {
            sys::close_on_exec(lent).map_err(|source| Cause::Descriptor { fd, source })?;
        }
        Ok(Self { tables, store })
    }
}

/// Connects to the server and introduces this process. `shares`: MPI is going to use the same descriptor.
pub(super) fn introduce(
    environment: &Environment,
    shares: bool,
) -> Result<(Connection, Initialised, Option<Node>), Cause> {
    let config = |extensions| ClientConfig {
        rank: environment.rank,
        job_id: environment.job_id.clone(),
        extensions,
    };
    let socket = |fd, client| {
        let source = |source| Cause::Descriptor { fd, source };
        let own = match shares {
            true => share(fd)?,
            false => inherit(fd)?,
        };
        Connection::new(own, client, None).map_err(source)
    };
    let told = RankFrom::Environment {
        rank: environment.rank,
        size: environment.size,
    };
    let mut node = None;
    let connection = match &environment.found {
        Found::Shmrun { fd, fds, local } => {
            node = Some(Node::attach(*fds, *local)?);
            socket(*fd, Client::new(config(true)))?
        }
        Found::Pmi2 { fd } => socket(*fd, Client::new(config(false)))?,
        Found::Pmi1 { fd } => socket(*fd, Client::pmi1(told))?,
        Found::Pmi1Port { address, id } => {
            static CONNECTED: AtomicBool = AtomicBool::new(false);
            let connect = |source| Cause::Connect {
                address: address.clone(),
                source,
            };
            if CONNECTED.swap(true, Ordering::Relaxed) {
                let twice = std::io::Error::other("this process has connected before");
                return Err(connect(twice));
            }
            Connection::connect(address, Client::pmi1(RankFrom::Server { id: *id }), None)
                .map_err(connect)?
        }
        Found::Pmix { .. } | Found::Mpi { .. } | Found::Alone => {
            unreachable!("asked for a server with a connection")
        }
    };
    let facts = connection.call(&Initialise);
    let facts = facts.map_err(|why| match shares && super::mpi::is_finalized() {
        true => Cause::EndedByMpi { call: "init" },
        false => why.into(),
    })?;
    Ok((connection, facts, node))
}
