//! A node's PMIx server as its agent's process sees it: started, listened to, ended, and cleaned up after.
//!
//! The server (serve.rs) is this program once more, executed by the agent and joined to it by a socket. It
//! ends when that does, and removes its directory. It is in nobody's process group of PEs, so that what
//! ends them leaves it time for that; a reaper spares it for a moment ([`is_server`]), and its agent removes
//! what it left should it have been killed. Where both were, whoever looks after a dead agent does, and at the latest
//! the next server on that machine ([`remove_abandoned`]).

mod dir;
mod serve;

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use rustix::net::SocketType;
use shmem_node::contract;

use super::NULL_FD;
use super::link::LinkIo;
use crate::frame::{FrameReader, Launch, OutBuf, PmixJob, ToServer};
use crate::sys::{self, Image, NotExecuted};
use dir::ServerDir;
pub(super) use dir::remove_abandoned;
pub(crate) use serve::serve;

/// How long it may take until it serves. It loads a library, perhaps from a file system that is busy, and
/// tells it of all processes of the job.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long its process may outlive its socket.
const DEATH: Duration = Duration::from_secs(1);

/// Number of the socket in the server.
const SOCKET_FD: i32 = 3;

/// What the server calls itself in listings.
const NAME: &CStr = c"shmrun-pmix";

/// The agent's end.
#[derive(Debug)]
pub(super) struct PmixIo {
    pub(super) link: LinkIo,
    pub(super) out: OutBuf,
    pub(super) reader: FrameReader,
    /// Its process; 0 once it was reaped.
    pub(super) pid: i32,
    /// When it has taken too long: to begin, or to end after it has closed its socket.
    pub(super) overdue: Option<u64>,
    /// Whether its end is no surprise.
    pub(super) may_end: bool,
    dir: ServerDir,
}

impl PmixIo {
    /// Starts the server of this node; its processes' variables are `env`.
    ///
    /// # Safety
    /// This process has a single thread.
    pub(super) unsafe fn start(launch: &Launch, env: &[CString], token: u64) -> io::Result<Self> {
        let id = &contract::hex(&launch.job_id)[..16];
        let dir = ServerDir::make(&format!("{id}-{}", launch.node))?;
        // SAFETY: as promised by the caller.
        let started = unsafe { execute(env) };
        let (pid, socket) = started.inspect_err(|_| dir.remove())?;
        let mut out = OutBuf::default();
        ToServer::Serve(job(launch, dir.path())).encode(out.tail());
        Ok(Self {
            link: LinkIo::socket(socket, token),
            out,
            reader: FrameReader::default(),
            pid,
            overdue: Some(sys::monotonic_ns() + PATIENCE.as_nanos() as u64),
            may_end: false,
            dir,
        })
    }

    /// Removes what the server has left, which has ended.
    pub(super) fn clean_up(&self) {
        self.dir.remove();
    }

    /// It serves no more, and its process will have ended in a moment: how that ended says more.
    pub(super) fn closed(&mut self) {
        self.link.close();
        self.overdue = Some(sys::monotonic_ns() + DEATH.as_nanos() as u64);
    }

    /// What it means that it takes too long.
    pub(super) fn late(&self) -> String {
        match self.link.is_open() {
            true => format!(
                "its PMIx server has not begun to serve within {} s",
                PATIENCE.as_secs()
            ),
            false => "its PMIx server serves no more".to_owned(),
        }
    }
}

/// What the server has to know.
fn job(launch: &Launch, dir: &Path) -> PmixJob {
    let layout = launch.layout();
    let own = sys::host_name();
    let name = |node| match (&launch.machines, launch.n_nodes) {
        (Some(_), _) => launch.host(node).to_owned(),
        (None, 1) => own.clone(),
        // What shares nothing must not look like one host.
        (None, _) => format!("{own}-node{node}"),
    };
    let nodes = 0..launch.n_nodes;
    PmixJob {
        namespace: format!("shmrun-{}", contract::hex(&launch.job_id)),
        node: launch.node,
        nodes: nodes
            .map(|node| (name(node), layout.ranks(node).len() as u32))
            .collect(),
        programs: launch.commands.iter().map(|c| c.procs).collect(),
        dir: dir.display().to_string(),
        library: launch.pmix.as_ref().and_then(|plan| plan.library.clone()),
    }
}

/// Executes this program as a server; gives its process id and our end of its socket.
///
/// # Safety
/// This process has a single thread.
unsafe fn execute(env: &[CString]) -> io::Result<(i32, std::os::fd::OwnedFd)> {
    let args = [c"shmrun".to_owned(), c"--pmix-server".to_owned()];
    let (ours, theirs) = sys::socketpair(SocketType::STREAM)?;
    let image = Image::new(c"/proc/self/exe", &args, env);
    let child = || {
        let placed = [
            (NULL_FD, 0, false),
            (NULL_FD, 1, false),
            (2, 2, false),
            (theirs.as_raw_fd(), SOCKET_FD, false),
        ];
        match sys::arrange_fds(&placed) {
            Ok(()) => image.exec(),
            Err(e) => NotExecuted::before("its descriptors")(e),
        }
    };
    // SAFETY: one thread, as promised by the caller; the child changes nothing that we own.
    let pid = unsafe { sys::fork_to_exec(child) }
        .map_err(|e| sys::naming("shmrun cannot execute itself")(io::Error::from(e)))?;
    Ok((pid, ours))
}

/// Whether a process is a PMIx server: it ends by itself, and must be let to.
pub(super) fn is_server(pid: i32) -> bool {
    let name = std::fs::read(format!("/proc/{pid}/comm"));
    name.is_ok_and(|name| name.trim_ascii_end() == NAME.to_bytes())
}

/// A variable as a PE gets it; one with a zero in it is none.
pub(super) fn variables(list: Vec<Vec<u8>>) -> Vec<CString> {
    list.into_iter()
        .filter_map(|v| CString::new(v).ok())
        .collect()
}

/// What Open MPI's own daemon would see to.
///
/// Release 4 starts one if it seems that there is none. Memory that processes share lies in files, whose names
/// in release 4 are the same on all nodes of a machine, and which stay behind when processes are killed.
const OPEN_MPI: [(&str, &str); 2] = [
    ("orte_local_daemon_uri", "1.0;tcp://127.0.0.1:1"),
    ("ess", "^singleton"),
];
/// Where processes outnumber cores. Else those that wait keep out the ones they wait for, for a whole time slice.
const OPEN_MPI_YIELD: (&str, &str) = ("mpi_yield_when_idle", "1");
const OPEN_MPI_DIRS: [&str; 4] = [
    "btl_vader_backing_directory",
    "btl_sm_backing_directory",
    "osc_sm_backing_directory",
    "osc_rdma_backing_directory",
];

impl PmixIo {
    /// Variables for Open MPI's programs besides PMIx's. Those that are set stay. `yields`: whether PEs that wait
    /// leave the processor to others.
    pub(super) fn for_open_mpi(&self, env: &[CString], yields: bool) -> Vec<CString> {
        let dir = self.dir.path().to_string_lossy();
        let dirs = OPEN_MPI_DIRS.map(|name| (name, &*dir));
        let yields = yields.then_some(OPEN_MPI_YIELD);
        let wanted = OPEN_MPI.iter().copied().chain(dirs).chain(yields);
        wanted
            .map(|(name, value)| (format!("OMPI_MCA_{name}="), value))
            .filter(|(name, _)| {
                !env.iter()
                    .any(|v| v.to_bytes().starts_with(name.as_bytes()))
            })
            .filter_map(|(name, value)| CString::new(name + value).ok())
            .collect()
    }
}
