//! The spawner: starts programs that cannot be templates, by one exec per PE.
//!
//! It is a process of its own so that starting a PE never copies the launch agent's descriptors. A template in which
//! forks would lose something does the same with its own program.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use rustix::fs::{Mode, OFlags};

use super::lost::Lost;
use super::message::{PeSpec, Refusal, Step};
use super::requests::serve_requests;
use crate::contract::{self, Descriptors};
use crate::cpus::Bindings;
use crate::sys;

/// What to execute.
#[derive(Debug, Clone)]
pub struct Program {
    /// Rank of its first PE; it has those up to the first of the next program.
    pub first_rank: u32,
    /// File.
    pub path: CString,
    /// Arguments, the program's name first.
    pub args: Vec<CString>,
    /// Working directory, if it is not that of the spawner.
    pub dir: Option<CString>,
    /// Its environment, if it is not that of all: `NAME=value` strings.
    pub env: Option<Vec<CString>>,
}

/// What all PEs of the node share.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// The programs of the job, in the order of ranks; the first has rank 0.
    pub programs: Vec<Program>,
    /// The environment: `NAME=value` strings.
    pub env: Vec<CString>,
    /// More for the PEs of all programs.
    pub more_env: Vec<CString>,
    /// And for each PE of the node; none where there are no such.
    pub own_env: Vec<Vec<CString>>,
    /// Where PEs find their descriptors.
    pub fds: Descriptors,
    /// Whether PEs find PMI.
    pub pmi: bool,
    /// PEs of the node.
    pub n_local: u32,
    /// What they are bound to.
    pub bindings: Bindings,
}

impl Recipe {
    fn program(&self, rank: u32) -> &Program {
        let after = self.programs.partition_point(|p| p.first_rank <= rank);
        &self.programs[after.max(1) - 1]
    }
}

/// Serves spawn requests until the launch agent says that there are no more, or goes away.
///
/// The tables and heap descriptors must already be at their numbers and inheritable, standard
/// input must be empty, and the working directory, the process group and what becomes of signals those
/// of the PEs.
///
/// # Errors
/// When the socket fails or a request is malformed. A program that cannot be executed is reported
/// to the agent and is no error here.
///
/// # Panics
/// If the recipe has no program.
pub fn serve(sock: BorrowedFd<'_>, recipe: &Recipe) -> io::Result<()> {
    serve_instead(sock, recipe, Lost::default())
}

/// The same in a template whose forks would have `lost` something.
pub(super) fn serve_instead(sock: BorrowedFd<'_>, recipe: &Recipe, lost: Lost) -> io::Result<()> {
    let place = Place::of(&recipe.programs)?;
    serve_requests(sock, recipe.fds, lost, |pe, fds| {
        let entered = place.enter(recipe.program(pe.rank));
        entered.map_err(|e| Refusal::of(Step::Enter, &e))?;
        spawn(recipe, pe, fds).map(Some)
    })
    .map(drop)
}

/// Where the spawner began, if some programs are to work elsewhere. It goes to the directory of each PE's program before it
/// starts the PE, because the C library has a child of `posix_spawn` do so only from glibc 2.29 on.
struct Place(Option<OwnedFd>);

impl Place {
    fn of(programs: &[Program]) -> io::Result<Self> {
        let elsewhere = programs.iter().any(|p| p.dir.is_some());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = || rustix::fs::open(c".", flags, Mode::empty());
        Ok(Self(elsewhere.then(open).transpose()?))
    }

    fn enter(&self, program: &Program) -> io::Result<()> {
        match (&program.dir, &self.0) {
            (Some(dir), _) => rustix::process::chdir(dir.as_c_str())?,
            (None, Some(start)) => rustix::process::fchdir(start)?,
            (None, None) => {}
        }
        Ok(())
    }
}

/// The shell that runs scripts which do not say what is to run them, as execvp(3) has it.
const SHELL: &CStr = c"/bin/sh";

/// Executes the program of one PE.
fn spawn(recipe: &Recipe, pe: &PeSpec, fds: &[OwnedFd]) -> Result<i32, Refusal> {
    // What it starts is bound to the same.
    let bound = recipe.bindings.of(pe.local).map_or(Ok(()), sys::bind_to);
    bound.map_err(|e| Refusal::of(Step::Bind, &e))?;
    execute(recipe, pe, fds).map_err(|e| Refusal::of(Step::Start, &e))
}

fn execute(recipe: &Recipe, pe: &PeSpec, fds: &[OwnedFd]) -> io::Result<i32> {
    let program = recipe.program(pe.rank);
    let place: Vec<CString> = contract::rank_env(pe.rank)
        .into_iter()
        .chain(contract::mpi_env(pe.local, recipe.n_local))
        .filter(|_| recipe.pmi)
        .chain([contract::place_env(pe.local)])
        .map(|(name, value)| CString::new(format!("{name}={value}")))
        .collect::<Result<_, _>>()?;
    let own = recipe.own_env.get(pe.local as usize).into_iter().flatten();
    let env = program.env.as_ref().unwrap_or(&recipe.env);
    let env = env.iter().chain(&recipe.more_env).chain(own);
    let envp = pointers(env.chain(&place));
    let argv = pointers(&program.args);
    let targets = [1, 2, recipe.fds.pmi(), 0];
    let mut pid = 0;
    // SAFETY: all pointers outlive the calls; the two objects are initialised before use and
    // destroyed once. Received descriptors are close-on-exec, their duplicates are not.
    let errno = unsafe {
        let mut actions: libc::posix_spawn_file_actions_t = std::mem::zeroed();
        let mut attr: libc::posix_spawnattr_t = std::mem::zeroed();
        libc::posix_spawn_file_actions_init(&mut actions);
        libc::posix_spawnattr_init(&mut attr);
        for (fd, to) in fds.iter().zip(targets) {
            libc::posix_spawn_file_actions_adddup2(&mut actions, fd.as_raw_fd(), to);
        }
        let mut execute = |path: &CStr, argv: &[*const libc::c_char]| {
            let (argv, envp) = (argv.as_ptr().cast(), envp.as_ptr().cast());
            libc::posix_spawn(&mut pid, path.as_ptr(), &actions, &attr, argv, envp)
        };
        let mut errno = execute(&program.path, &argv);
        if errno == libc::ENOEXEC && is_text(&program.path) {
            let rest = argv.iter().skip(1);
            let script = [SHELL.as_ptr(), program.path.as_ptr()];
            let argv: Vec<_> = script.iter().chain(rest).copied().collect();
            errno = execute(SHELL, &argv);
        }
        libc::posix_spawn_file_actions_destroy(&mut actions);
        libc::posix_spawnattr_destroy(&mut attr);
        errno
    };
    if errno == 0 {
        Ok(pid)
    } else {
        Err(io::Error::from_raw_os_error(errno))
    }
}

/// Whether a file may be a script: it begins with text.
fn is_text(path: &CStr) -> bool {
    let mut head = Vec::new();
    let file = File::open(OsStr::from_bytes(path.to_bytes()));
    let read = file.and_then(|file| file.take(256).read_to_end(&mut head));
    read.is_ok_and(|n| n > 0) && !head.starts_with(b"\x7fELF") && !head.contains(&0)
}

fn pointers<'a>(strings: impl IntoIterator<Item = &'a CString>) -> Vec<*const libc::c_char> {
    strings
        .into_iter()
        .map(|s| CStr::as_ptr(s))
        .chain([ptr::null()])
        .collect()
}
