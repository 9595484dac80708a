//! How a process becomes one of a job.

use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};

use shmem_pmix::Library;

use super::alone::Alone;
use super::connect::{Node, introduce, share};
use super::environment::{self, Environment, Found};
use super::error::{Cause, ProcessError};
use super::mpi::{self, Beside};
use super::server::Server;
use super::slots::Slots;
use super::{Backend, Inner, Member, Process, launchers, pmix};
use crate::client::{Client, RankFrom, calls};
use crate::id::{self, Ended, UniqueId};
use crate::io::{Connection, ConnectionError};

impl Process {
    /// Makes this process one of a job, as its environment says.
    ///
    /// # Errors
    ///
    /// A variable makes no sense, what it names is not there, or the server refuses this process; a
    /// launcher that cannot be talked to has started several processes.
    pub fn init() -> Result<Self, ProcessError> {
        Self::init_as(Environment::read)
    }

    /// As [`Process::init`], for a process that ends the job because its settings make no sense: all
    /// `SHMEM_*` variables are ignored but `SHMEM_PMI`, if that makes sense. Peers may wait for ever
    /// for a process that never introduced itself, since its end is no failure to every server.
    ///
    /// # Errors
    ///
    /// As [`Process::init`].
    pub fn init_despite_settings() -> Result<Self, ProcessError> {
        Self::init_as(Environment::read_despite_settings)
    }

    fn init_as(
        read: impl FnOnce(
            &dyn Fn(&str) -> Option<String>,
            Option<&Beside>,
        ) -> Result<Environment, Cause>,
    ) -> Result<Self, ProcessError> {
        let error = |rank, server, cause| ProcessError {
            rank,
            server,
            call: "init",
            cause: Box::new(cause),
        };
        let beside = Beside::now();
        let environment = read(&environment::variable, beside.as_ref());
        let environment = environment.map_err(|cause| error(None, None, cause))?;
        let server = environment.found.server();
        let failed = |cause| error(Some(environment.rank), Some(server), cause);
        match &environment.found {
            Found::Alone => return Ok(Self::alone()),
            &Found::Mpi { fd } => return Self::over_mpi(fd).map_err(failed),
            Found::Pmix { library } => {
                let library = match Library::load(library.as_deref()) {
                    Ok(library) => library,
                    Err(_) if beside.as_ref().is_some_and(Beside::knows_peers) => {
                        return Self::over_mpi(None).map_err(failed);
                    }
                    // A single process can do without.
                    Err(why) => {
                        launchers::check_alone(environment::variable, &why)
                            .map_err(|refused| failed(refused.into()))?;
                        return Ok(Self::alone());
                    }
                };
                let checks = environment.checks_mpi.then_some(beside).flatten();
                return Self::at_pmix(library, checks.as_ref()).map_err(failed);
            }
            _ => {}
        }
        let inherits = matches!(server, Server::Pmi1 | Server::Pmi2);
        let is_shared = inherits && beside.is_some();
        let (connection, facts, node) = introduce(&environment, is_shared).map_err(failed)?;
        let backend = match node {
            Some(Node { tables, store }) => Backend::Shmrun {
                connection,
                store,
                slots: Slots::new(tables.gather(), tables.n_pes(), facts.first_request.0),
            },
            None => Backend::Plain(connection),
        };
        let inner = Inner {
            server,
            rank: facts.rank,
            size: facts.size,
            appnum: facts.appnum,
            spawned: environment.spawned || facts.spawner.is_some(),
            next: Mutex::new(facts.first_request.0),
            backend,
            is_shared,
            member: None,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    fn over_mpi(fd: Option<RawFd>) -> Result<Self, Cause> {
        let (mut calls, rank, size) = mpi::Calls::init()?;
        // Only to be watched: nothing depends on it.
        calls.watched = fd.and_then(|fd| share(fd).ok());
        let inner = Inner {
            server: Server::Mpi,
            rank,
            size,
            appnum: -1,
            spawned: false,
            next: Mutex::new(0),
            backend: Backend::Direct(Box::new(calls)),
            is_shared: true,
            member: None,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    fn at_pmix(library: &'static Library, beside: Option<&Beside>) -> Result<Self, Cause> {
        let (calls, facts) = pmix::Calls::init(library)?;
        if let Some(mpi) = beside {
            mpi.check_place((facts.rank, facts.size), "the PMIx server")?;
        }
        let inner = Inner {
            server: Server::Pmix,
            rank: facts.rank,
            size: facts.size,
            appnum: facts.appnum,
            spawned: facts.spawned,
            next: Mutex::new(0),
            backend: Backend::Direct(Box::new(calls)),
            is_shared: false,
            member: None,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Makes this process one of a job without a launcher, of which all processes have the id. Waits until all have
    /// come. `on_end` is called by another thread when the job ends before this process has left it.
    ///
    /// # Errors
    ///
    /// The host of the id cannot be reached, or has another key; the place is not one of the job, or is taken; the others
    /// have not come in time.
    pub fn join(
        id: &UniqueId,
        place: id::Place<'_>,
        on_end: impl FnOnce(Ended) + Send + 'static,
    ) -> Result<Self, ProcessError> {
        let server = Server::Id;
        let failed = |cause| ProcessError {
            rank: Some(place.rank),
            server: Some(server),
            call: "join",
            cause: Box::new(cause),
        };
        let joined = id::join(id, place, on_end).map_err(|why| failed(why.into()))?;
        let (rank, size) = (place.rank, place.size);
        let client = Client::pmi1(RankFrom::Environment { rank, size });
        let socket = |e| failed(ConnectionError::Socket(e).into());
        let connection = Connection::new(joined.socket, client, None).map_err(socket)?;
        let facts = connection.call(&calls::Initialise);
        let facts = facts.map_err(|why| failed(why.into()))?;
        let inner = Inner {
            server,
            rank,
            size,
            appnum: facts.appnum,
            spawned: false,
            next: Mutex::new(facts.first_request.0),
            backend: Backend::Plain(connection),
            is_shared: false,
            member: Some(Member {
                nodes: joined.nodes,
                at: joined.member,
            }),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// A job of this process alone, whatever the environment says.
    pub fn alone() -> Self {
        let inner = Inner {
            server: Server::Alone,
            rank: 0,
            size: 1,
            appnum: 0,
            spawned: false,
            next: Mutex::new(0),
            backend: Backend::Direct(Box::new(Alone::default())),
            is_shared: false,
            member: None,
        };
        Self {
            inner: Arc::new(inner),
        }
    }
}
