//! A process of a parallel job, whoever its process manager is: the facade of this crate.
//!
//! [`Process::init`] finds the server in the environment and speaks to it what it understands:
//!
//! | environment | server |
//! |---|---|
//! | `SHMEM_NODE` and `PMI_FD` | `shmrun`: PMI-2 with extensions; results are read from shared memory |
//! | `PMI_FD` | PMI-1.1, as of `mpiexec.hydra`; PMI-2.0 under Slurm (`SLURM_STEP_ID` and `PMI_JOBID`) |
//! | `PMI_PORT` and `PMI_ID` | PMI-1.1 over TCP, as of `mpiexec.hydra -pmi-port` |
//! | `PMIX_NAMESPACE` | PMIx, as of `prterun`, Open MPI's `mpirun` and `srun --mpi=pmix`, through libpmix |
//! | none of these | none: a job of this process alone |
//!
//! Where several are there, the first of the table wins: PMI takes no library, no thread and no descriptors
//! but one. libpmix is loaded when it is to be used, and by nothing else.
//!
//! Where the process has MPI, and has initialised it, messages of MPI take the place of a PMI-1 or PMI-2 server, which
//! MPI speaks to itself, and of none ([`Server::Mpi`]). Where it has MPI and has not initialised it yet, both
//! speak to the same server, one after the other ([`Process::is_shared`]).
//!
//! With none, a launcher that speaks neither may nevertheless have started several processes, of
//! which each would take itself for a job; where the environment shows that, init fails
//! ([`launchers`]).
//!
//! `SHMEM_PMI=1` and `SHMEM_PMI=2` choose the plain version instead, at any server of PMI;
//! `SHMEM_PMI=pmix` chooses PMIx where there is PMI, too, and `SHMEM_PMI=mpi` messages of MPI.
//!
//! # Completion
//!
//! * [`put`](Process::put) returns when the server has the pair. It becomes visible, to all PEs
//!   alike, when a fence that all PEs have joined after it is complete; [`get`](Process::get) sees it
//!   from then on. A key that is put again has its new value after the next fence, except with the
//!   PMI-2 of `mpiexec.hydra` and with PMIx, which may keep the first.
//! * [`fence`](Process::fence) returns when all PEs have joined it.
//! * [`allgather`](Process::allgather) returns when all PEs have joined it and their values can be
//!   read ("Non-blocking PMI Extensions for Fast MPI Startup", section IV.A).
//! * [`ifence`](Process::ifence), [`iallgather`](Process::iallgather) return at once; the operation
//!   is complete when [`Request::wait`] returns or [`Request::test`] says so (the same, sections IV.B
//!   to IV.E). Several may be under way; they complete in the order in which they were started. A
//!   value that was handed over may be changed as soon as the call returns.
//! * Collective operations (`fence`, `ifence`, `allgather`, `iallgather`, `ring`) are called by all
//!   PEs in the same order. With several threads it is the caller who sees to that.
//! * [`get_from`](Process::get_from) needs no fence: it returns when that PE has put the key.
//!
//! At a PMIx server a pair may be visible before its fence is over.
//!
//! What a server does not have is made of what it has: an allgather of put, split fence and gets
//! with keys that begin with `-shmem-`; a ring of put, fence and two gets. On a server without
//! extensions, calls that other threads make during a fence wait for its end.
//!
//! # Example
//!
//! Each PE tells all others where it listens, and works meanwhile:
//!
//! ```
//! use shmem_pmi::process::Process;
//!
//! let pmi = Process::init()?;
//! let request = pmi.iallgather(b"127.0.0.1:4711")?;
//! // ... what does not need the addresses ...
//! let addresses = request.wait()?;
//! for rank in 0..pmi.size() {
//!     assert_eq!(addresses.value(rank).as_deref(), Some(&b"127.0.0.1:4711"[..]));
//! }
//! pmi.finalize()?;
//! # Ok::<(), shmem_pmi::process::ProcessError>(())
//! ```

mod alone;
mod collective;
mod connect;
mod direct;
mod environment;
mod error;
mod keys;
pub mod launchers;
mod mpi;
mod pmix;
mod primitives;
mod request;
mod shelf;

use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};

use shmem_node::kvs::Reader;
use shmem_node::text;
use shmem_pmix::Library;

pub use collective::Ring;
pub use environment::Server;
pub use error::{Cause, ProcessError};
pub use mpi::Beside;
pub use request::{Gathered, Outcome, Request};

use crate::client::calls::{self, Spawned};
use crate::client::{Call, Client, RankFrom};
use crate::id::{self, Ended, JoinError, UniqueId};
use crate::io::{Connection, ConnectionError};
use crate::question::SpawnRequest;
use alone::Alone;
use connect::{Node, introduce};
use direct::Direct;
use environment::{Environment, Found};
use shelf::Shelf;

/// A process of a parallel job and its connection to the process manager.
///
/// For any number of threads. A process can be one only once, because what the launcher left is
/// taken: a second [`Process::init`] fails, also after [`Process::finalize`], and so it does beside a
/// library that has taken it, such as `shmem`. PMIx lets a process be one as often as it likes; then all
/// processes of the job do it as often.
#[derive(Debug)]
pub struct Process {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    server: Server,
    rank: u32,
    size: u32,
    appnum: i32,
    spawned: bool,
    /// Number of this PE's next collective operation, from which keys are made; those of former
    /// processes of the PE count. Held while one is started, so that the calls it consists of stay
    /// together.
    next: Mutex<u64>,
    way: Way,
    /// MPI is in this process, and is going to use the connection, or does.
    is_shared: bool,
    /// In a job without a launcher.
    member: Option<Member>,
}

/// A process of a job without a launcher.
#[derive(Debug)]
struct Member {
    /// The node of each rank.
    nodes: Vec<u32>,
    at: Arc<id::Member>,
}

/// How the server is made use of.
#[derive(Debug)]
enum Way {
    Shmrun {
        connection: Connection,
        shelf: Arc<Shelf>,
        /// The pairs that fences have made visible.
        store: Reader,
    },
    Plain(Connection),
    /// There is no connection: libpmix has it, or there is no server.
    Direct(Box<dyn Direct>),
}

impl Inner {
    fn connection(&self) -> Option<&Connection> {
        match &self.way {
            Way::Shmrun { connection, .. } | Way::Plain(connection) => Some(connection),
            Way::Direct(_) => None,
        }
    }

    /// Whether the connection is a descriptor that MPI, which is in this process, has begun to use for itself.
    fn is_given_over(&self) -> bool {
        matches!(self.server, Server::Pmi1 | Server::Pmi2) && mpi::has_taken_over()
    }

    /// An error where MPI has ended the connection that it shares.
    fn check_shared(&self, call: &'static str) -> Result<(), Cause> {
        match self.is_shared && self.is_given_over() && mpi::is_finalized() {
            true => Err(Cause::EndedByMpi { call }),
            false => Ok(()),
        }
    }

    fn error(&self, call: &'static str, cause: Cause) -> ProcessError {
        ProcessError {
            rank: Some(self.rank),
            server: Some(self.server),
            call,
            cause: Box::new(cause),
        }
    }
}

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
    /// As there.
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
        let way = match node {
            Some(Node { tables, store }) => Way::Shmrun {
                connection,
                store,
                shelf: Shelf::new(tables.gather(), tables.n_pes(), facts.first_request.0),
            },
            None => Way::Plain(connection),
        };
        let inner = Inner {
            server,
            rank: facts.rank,
            size: facts.size,
            appnum: facts.appnum,
            spawned: environment.spawned || facts.spawner.is_some(),
            next: Mutex::new(facts.first_request.0),
            way,
            is_shared,
            member: None,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    fn over_mpi(fd: Option<RawFd>) -> Result<Self, Cause> {
        let (calls, rank, size) = mpi::Calls::init(fd)?;
        let inner = Inner {
            server: Server::Mpi,
            rank,
            size,
            appnum: -1,
            spawned: false,
            next: Mutex::new(0),
            way: Way::Direct(Box::new(calls)),
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
            way: Way::Direct(Box::new(calls)),
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
            way: Way::Plain(connection),
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

    /// The node of each rank, where the server has told it with the place: in a job without a launcher.
    pub fn nodes(&self) -> Option<&[u32]> {
        self.inner.member.as_ref().map(|member| &member.nodes[..])
    }

    /// The id of a job without a launcher.
    pub fn id(&self) -> Option<&UniqueId> {
        self.inner.member.as_ref().map(|member| member.at.id())
    }

    /// Tells the host of a job without a launcher that this process waits for nobody any more: the job may go on or end
    /// without it, unless it returns.
    pub fn leave(&self) {
        if let Some(member) = &self.inner.member {
            member.at.leaves();
        }
    }

    /// Takes that back.
    ///
    /// # Errors
    ///
    /// The job has ended, or its host has.
    pub fn return_again(&self) -> Result<(), ProcessError> {
        let Some(member) = &self.inner.member else {
            return Ok(());
        };
        let returned: Result<(), JoinError> = member.at.returns();
        returned.map_err(|why| self.inner.error("return", why.into()))
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
            way: Way::Direct(Box::new(Alone::default())),
            is_shared: false,
            member: None,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Whether MPI, which is in this process, uses the same way to its peers: the launcher's descriptor, or MPI is the
    /// way itself. Then calls are only to be made where the program makes none of MPI meanwhile, and not after
    /// `MPI_Finalize`: all of them while OpenSHMEM is being initialised, for example. None may be under way when MPI's turn
    /// has come.
    pub fn is_shared(&self) -> bool {
        self.inner.is_shared
    }

    /// Whether the connection has ended because MPI, which shares it, has come to its end, and not because the server has died. To
    /// be asked after [`Process::wait_hangup`]; waits until it is certain, which may take some seconds.
    pub fn was_ended_by_mpi(&self) -> bool {
        let may_be = matches!(self.server(), Server::Pmi1 | Server::Pmi2 | Server::Mpi);
        may_be && mpi::has_closed()
    }

    /// The kind of server.
    pub fn server(&self) -> Server {
        self.inner.server
    }

    /// Rank of this process in the job.
    pub fn rank(&self) -> u32 {
        self.inner.rank
    }

    /// Number of processes in the job.
    pub fn size(&self) -> u32 {
        self.inner.size
    }

    /// Number of this program among those of the job, from 0; -1 if the server does not say.
    pub fn appnum(&self) -> i32 {
        self.inner.appnum
    }

    /// Whether another job has started this one.
    pub fn spawned(&self) -> bool {
        self.inner.spawned
    }

    /// Longest value of [`Process::put`] in bytes: at most 1023, with PMI-1 at most 600.
    pub fn value_max(&self) -> usize {
        let max = |connection: &Connection| connection.submit(|client| Ok(client.value_max()));
        self.inner
            .connection()
            .and_then(|connection| max(connection).ok())
            .unwrap_or(crate::wire::MAX_VALUE - 1)
    }

    /// Makes a call at the server: the one or the other, as it is spoken to.
    fn either<C: Call>(
        &self,
        method: &'static str,
        call: C,
        direct: impl FnOnce(&dyn Direct) -> Result<C::Reply, Cause>,
    ) -> Result<C::Reply, ProcessError> {
        self.at_server_or(method, |connection| Ok(connection.call(&call)?), direct)
    }

    fn at_server_or<T>(
        &self,
        call: &'static str,
        ask: impl FnOnce(&Connection) -> Result<T, Cause>,
        direct: impl FnOnce(&dyn Direct) -> Result<T, Cause>,
    ) -> Result<T, ProcessError> {
        let outcome = match &self.inner.way {
            Way::Shmrun { connection, .. } => ask(connection),
            Way::Plain(connection) => self.inner.check_shared(call).and_then(|()| ask(connection)),
            Way::Direct(calls) => calls.check_open(call).and_then(|()| direct(&**calls)),
        };
        outcome.map_err(|cause| self.inner.error(call, cause))
    }

    /// The job's id; with PMI-1 the name of its key-value space.
    ///
    /// # Errors
    ///
    /// This and all methods below: the connection fails, the server refuses, or the call cannot be
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

    /// The same, where it is known which PE has put it. A PMIx server finds keys by that only; if it
    /// says that a PE of another node has not put the key, that may take half a minute.
    ///
    /// # Errors
    ///
    /// As [`Process::job_id`].
    pub fn get_of(&self, owner: u32, key: &str) -> Result<Option<Vec<u8>>, ProcessError> {
        self.get_visible(Some(owner), key)
    }

    fn get_visible(&self, owner: Option<u32>, key: &str) -> Result<Option<Vec<u8>>, ProcessError> {
        if let Way::Shmrun { store, .. } = &self.inner.way
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
    /// whoever put that.
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

    /// Starts another job, and returns when it runs.
    ///
    /// # Errors
    ///
    /// As [`Process::job_id`]; there is no server, or it cannot start the job.
    pub fn spawn(&self, request: SpawnRequest) -> Result<Spawned, ProcessError> {
        let ask = |connection: &Connection| Ok(connection.call(&calls::Spawn(&request))?);
        self.at_server_or("spawn", ask, |direct| direct.spawn(&request))
    }

    /// Ends the whole job and this process, with an exit status.
    pub fn abort(&self, exit_code: i32, message: &str) -> ! {
        // Where nobody listens, the job ends nevertheless.
        text::say(format_args!("PE {} aborts: {message}", self.rank()));
        // If nobody can be told, the launcher sees this process end without a goodbye.
        let _ = self.abort_job(exit_code, message);
        std::process::exit(exit_code)
    }

    /// Has the server end the whole job, and returns: for a process that is about to exit anyway. Any
    /// thread may call it, also while others wait. The server may end this process before it returns.
    ///
    /// # Errors
    ///
    /// Nobody could be told.
    pub fn abort_job(&self, exit_code: i32, message: &str) -> Result<(), ProcessError> {
        if let Some(member) = &self.inner.member {
            member.at.ends_job(exit_code, message);
            return Ok(());
        }
        let abort = |connection: &Connection| Ok(connection.abort(exit_code, message)?);
        let own = |direct: &dyn Direct| direct.abort(exit_code, message);
        self.at_server_or("abort", abort, own)
    }

    /// Sleeps until the server closes the connection, as it does when it dies: for a thread that
    /// watches it while the others of this process do not talk to it. Without a server it returns
    /// at once. A connection that MPI has or shares ends when that is finalized, too
    /// ([`Process::was_ended_by_mpi`]).
    ///
    /// # Errors
    ///
    /// The socket cannot be watched; MPI has a server that this library cannot see.
    pub fn wait_hangup(&self) -> std::io::Result<()> {
        match &self.inner.way {
            Way::Shmrun { connection, .. } | Way::Plain(connection) => connection.wait_hangup(),
            Way::Direct(calls) => calls.wait_hangup(),
        }
    }

    /// Takes leave of the server; no call can be made after it. A process that ends without has
    /// failed, in the eyes of some process managers. Some PMIx servers (PRRTE's) have its keys as long as it
    /// is there; where others may still get them, a fence must come first. Where MPI has taken the connection over, it
    /// takes leave for both.
    ///
    /// # Errors
    ///
    /// As [`Process::job_id`].
    pub fn finalize(&self) -> Result<(), ProcessError> {
        if self.inner.is_given_over() {
            return Ok(());
        }
        self.either("finalize", calls::Finalize, |direct| direct.finalize())
    }
}
