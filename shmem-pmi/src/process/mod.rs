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
mod init;
mod keys;
pub mod launchers;
mod mpi;
mod pairs;
mod pmix;
mod primitives;
mod request;
mod server;
mod slots;
mod work;

use std::sync::{Arc, Mutex};

use shmem_node::kvs::Reader;
use shmem_node::text;

pub use collective::Ring;
pub use error::{Cause, ProcessError, Refused};
pub use mpi::Beside;
pub use request::{Outcome, Request};
pub use server::Server;
pub use work::Gathered;

use crate::client::Call;
use crate::client::calls::{self, Spawned};
use crate::id::{self, JoinError, UniqueId};
use crate::io::Connection;
use crate::question::SpawnRequest;
use direct::Direct;
use slots::Slots;

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
    backend: Backend,
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
enum Backend {
    Shmrun {
        connection: Connection,
        slots: Arc<Slots>,
        /// The pairs that fences have made visible.
        store: Reader,
    },
    Plain(Connection),
    /// There is no connection: libpmix has it, or there is no server.
    Direct(Box<dyn Direct>),
}

impl Inner {
    fn connection(&self) -> Option<&Connection> {
        match &self.backend {
            Backend::Shmrun { connection, .. } | Backend::Plain(connection) => Some(connection),
            Backend::Direct(_) => None,
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

    /// Tells the host that this process waits for others again: takes [`Process::leave`] back.
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
        let outcome = match &self.inner.backend {
            Backend::Shmrun { connection, .. } => ask(connection),
            Backend::Plain(connection) => {
                self.inner.check_shared(call).and_then(|()| ask(connection))
            }
            Backend::Direct(calls) => calls.check_open(call).and_then(|()| direct(&**calls)),
        };
        outcome.map_err(|cause| self.inner.error(call, cause))
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
        match &self.inner.backend {
            Backend::Shmrun { connection, .. } | Backend::Plain(connection) => {
                connection.wait_hangup()
            }
            Backend::Direct(calls) => calls.wait_hangup(),
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
