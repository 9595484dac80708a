//! Starting the process that starts PEs: the program itself as a template, or a spawner, which executes
//! one program for each PE. A spawner is started once more for a PE that is to be started again.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::net::SocketType;

use shmem_node::contract::{self, Descriptors};
use shmem_node::cpus::Bindings;
use shmem_node::segment::NodeSegment;
use shmem_node::settings::Settings;
use shmem_node::template::TemplateStart;
use shmem_node::template::exec::{self, Program, Recipe};

use super::NULL_FD;
use super::address;
use super::group::Group;
use super::parts::Parts;
use crate::exit::Cause;
use crate::frame::{Command, Launch, SpawnMode};
use crate::program;
use crate::sys::{self, Image, NotExecuted};

/// The setting that an agent fills in for its PEs, if it is left to it.
const ENV_SOFT_MTU: &str = "SHMEM_SOFT_MTU";

/// Values by name.
type Environment = BTreeMap<Vec<u8>, Vec<u8>>;

/// The environment of the PEs but for what differs between them.
fn environment(parts: &Parts<'_>, settings: &Settings, fds: Descriptors) -> Environment {
    let launch = parts.launch;
    let mut common = vec![contract::node_env(fds)];
    if serves_pmi(launch) {
        common.extend(contract::pmi_env(fds, &launch.job_id, launch.n_pes));
    }
    let first = launch.layout().ranks(launch.node).start;
    // Every PE of the node is behind the same interface.
    if settings.soft_mtu == 0
        && launch.n_nodes > 1
        && let Some(mtu) = address::path_mtu(parts.addresses.of(launch.node, first))
    {
        common.push((ENV_SOFT_MTU, mtu.to_string()));
    }
    let inherited = std::env::vars_os().filter(|(name, _)| {
        // What describes our own place in another job would mislead the PEs.
        let name = name.as_bytes();
        let foreign = parts.far && (name.starts_with(b"SHMEM_") || name.starts_with(b"SMA_"));
        !launch.options.bare_env && !foreign && !contract::is_place(name)
    });
    let inherited = inherited.map(|(n, v)| (n.into_vec(), v.into_vec()));
    let common = common.into_iter().map(|(n, v)| (n.into(), v.into_bytes()));
    inherited
        .chain(launch.env.iter().cloned())
        .chain(common)
        .collect()
}

/// As programs find it.
fn strings(environment: &Environment) -> io::Result<Vec<CString>> {
    let join = |(name, value): (&Vec<u8>, &Vec<u8>)| {
        CString::new([name, &b"="[..], value].concat()).map_err(|_| {
            let name = String::from_utf8_lossy(name);
            invalid(format!("variable {name} has a NUL byte"))
        })
    };
    environment.iter().map(join).collect()
}

/// Whether the PEs find PMI, or PMIx: MPICH's programs refuse to run where they see both.
fn serves_pmi(launch: &Launch) -> bool {
    launch.pmix.is_none()
}

fn text(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| invalid("an argument has a NUL byte".into()))
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

fn program(command: &Command, first_rank: u32, all: &Environment) -> io::Result<Program> {
    let env = (!command.env.is_empty()).then(|| {
        let mut env = all.clone();
        env.extend(command.env.iter().cloned());
        strings(&env)
    });
    let args = command.argv.iter().map(|a| text(a));
    Ok(Program {
        first_rank,
        path: text(&command.program)?,
        args: args.collect::<io::Result<Vec<_>>>()?,
        dir: command.dir.as_deref().map(text).transpose()?,
        env: env.transpose()?,
    })
}

/// Puts descriptors, process group and signals in order in a forked child.
fn arrange(
    fds: Descriptors,
    theirs: &OwnedFd,
    cloexec: bool,
    group: &Group,
    segment: &NodeSegment,
    messages: Option<BorrowedFd<'_>>,
    ignored: u64,
) -> Result<(), NotExecuted> {
    let null = NULL_FD;
    let messages = messages.map_or(null, |messages| messages.as_raw_fd());
    let placed = [
        (null, 0, false),
        (null, 1, false),
        (2, 2, false),
        (segment.tables_fd().as_raw_fd(), fds.tables(), false),
        (segment.heap_fd().as_raw_fd(), fds.heap(), false),
        (segment.xrc_fd().as_raw_fd(), fds.xrc(), false),
        (messages, fds.agent(), false),
        // A spawner's PEs must not inherit it; a template needs it after exec.
        (theirs.as_raw_fd(), fds.template(), cloexec),
        (null, fds.pmi(), false),
    ];
    group.join()?;
    sys::arrange_fds(&placed).map_err(NotExecuted::before("its descriptors"))?;
    sys::reset_signals(ignored);
    Ok(())
}

/// What starts the PEs of a node.
#[derive(Debug)]
pub(super) enum PeStarter {
    /// The program itself.
    Template(Recipe),
    /// A spawner.
    Spawner(Recipe),
}

impl PeStarter {
    /// What the launch frame asks for.
    pub(super) fn of(
        parts: &Parts<'_>,
        settings: &Settings,
        bindings: Bindings,
    ) -> io::Result<Self> {
        let launch = parts.launch;
        let mut programs = Vec::with_capacity(launch.commands.len());
        let fds = Descriptors::below(sys::descriptors_of_programs());
        let environment = environment(parts, settings, fds);
        let mut first_rank = 0;
        for command in &launch.commands {
            programs.push(program(command, first_rank, &environment)?);
            first_rank += command.procs;
        }
        let mut recipe = Recipe {
            programs,
            env: strings(&environment)?,
            more_env: Vec::new(),
            own_env: Vec::new(),
            fds,
            pmi: serves_pmi(launch),
            n_local: launch.layout().ranks(launch.node).len() as u32,
            bindings: Bindings::default(),
        };
        Ok(match launch.spawn {
            SpawnMode::Template { may_execute } => {
                let start = TemplateStart {
                    socket: fds.template(),
                    n_local: recipe.n_local,
                    may_execute,
                };
                let start = format!("{}={start}", contract::ENV_TEMPLATE);
                recipe.env.push(text(start.as_bytes())?);
                let bindings = format!("{}={bindings}", contract::ENV_BINDINGS);
                recipe.env.push(text(bindings.as_bytes())?);
                Self::Template(recipe)
            }
            SpawnMode::Exec => Self::Spawner(Recipe { bindings, ..recipe }),
        })
    }

    /// What PEs find in their environment, but for what differs between them.
    pub(super) fn environment(&self) -> &[CString] {
        let (Self::Template(recipe) | Self::Spawner(recipe)) = self;
        &recipe.env
    }

    /// Adds variables: for all PEs, and for each of the node.
    pub(super) fn add_environment(&mut self, common: Vec<CString>, own: Vec<Vec<CString>>) {
        let (Self::Template(recipe) | Self::Spawner(recipe)) = self;
        recipe.more_env = common;
        recipe.own_env = own;
    }

    /// The recipe of a spawner.
    pub(super) fn into_recipe(self) -> Option<Recipe> {
        match self {
            Self::Template(_) => None,
            Self::Spawner(recipe) => Some(recipe),
        }
    }

    /// Starts it, with the socket for the PEs' `messages` and `ignored` signals; gives its process id and our end of
    /// its own socket.
    ///
    /// # Safety
    /// This process has a single thread.
    pub(super) unsafe fn run(
        &self,
        group: &Group,
        segment: &NodeSegment,
        messages: Option<BorrowedFd<'_>>,
        ignored: u64,
    ) -> Result<(i32, OwnedFd), Cause> {
        let failed = |e: io::Error| Cause::from(format!("{CANNOT_START}: {e}"));
        let recipe = match self {
            Self::Spawner(recipe) => {
                // SAFETY: as promised by the caller.
                let started = unsafe { spawner(recipe, group, segment, messages, ignored) };
                return started.map_err(failed);
            }
            Self::Template(recipe) => recipe,
        };
        let Program { path, args, .. } = &recipe.programs[0];
        let (ours, theirs) = sys::socketpair(SocketType::SEQPACKET).map_err(failed)?;
        sys::set_nonblocking(ours.as_fd()).map_err(failed)?;
        let image = Image::new(path, args, &recipe.env);
        let child = || match arrange(
            recipe.fds, &theirs, false, group, segment, messages, ignored,
        ) {
            Ok(()) => image.exec(),
            Err(e) => e,
        };
        // SAFETY: one thread, as promised by the caller; the child changes nothing that we own.
        let pid = unsafe { sys::fork_to_exec(child) }.map_err(|e| not_executed(path, e))?;
        let _ = sys::set_group(pid, group.id());
        Ok((pid, ours))
    }
}

/// What cannot be done, in messages.
pub(super) const CANNOT_START: &str = "cannot start the process that starts the PEs";

/// Why a program was not executed.
fn not_executed(path: &CStr, e: NotExecuted) -> Cause {
    let file = Path::new(OsStr::from_bytes(path.to_bytes()));
    let refused = e.before.is_none().then(|| program::refused(file, e.errno));
    match refused.flatten() {
        Some(e) => e.into(),
        None => format!("{CANNOT_START}: {e}").into(),
    }
}

/// Starts a spawner, of PEs without messages if there is no socket for them; gives its process id and our end of its
/// own socket.
///
/// # Safety
/// This process has a single thread.
pub(super) unsafe fn spawner(
    recipe: &Recipe,
    group: &Group,
    segment: &NodeSegment,
    messages: Option<BorrowedFd<'_>>,
    ignored: u64,
) -> io::Result<(i32, OwnedFd)> {
    let (ours, theirs) = sys::socketpair(SocketType::SEQPACKET)?;
    sys::set_nonblocking(ours.as_fd())?;
    let child = || {
        if let Err(e) = arrange(recipe.fds, &theirs, true, group, segment, messages, ignored) {
            crate::log!("shmrun: {CANNOT_START}: {e}");
            return 1;
        }
        sys::set_name(c"shmrun-spawner");
        // As its PEs are to have them. A core file of this process would have what the agent knew.
        sys::restore_limits();
        sys::be_undumpable();
        // SAFETY: the socket was put there just now and nobody else owns it here.
        let socket = unsafe { sys::own(recipe.fds.template()) };
        match exec::serve(socket.as_fd(), recipe) {
            Ok(()) => 0,
            Err(e) => {
                crate::log!("shmrun: the process that starts the PEs failed: {e}");
                1
            }
        }
    };
    // SAFETY: one thread, as promised by the caller.
    let pid = unsafe { sys::fork(child)? };
    let _ = sys::set_group(pid, group.id());
    Ok((pid, ours))
}
