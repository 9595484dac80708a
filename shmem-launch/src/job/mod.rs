//! From command line and settings to a checked job: everything that can be refused is refused here,
//! before a process is started.

mod environment;
mod place;
mod pmix;
mod programs;
mod spawned;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use shmem_node::hca_address::{AddressError, AddressPlan, PortChoice, Shape};
use shmem_node::settings::{HeapCommit, HeapPages, HeapRegister, Settings, Spawn, StaticsSize};
use shmem_node::template::marker::{self, Marker, StaticsRoom};
use shmem_pmi::tree::{DegreePolicy, Tree};

use crate::binding::{self, Binding, TooFew, Topology};
use crate::cli::{Cli, StdinTo};
use crate::exit::{LAUNCHER, NOT_EXECUTABLE, USAGE};
use crate::frame::{Command, InputTo, JobOptions, Launch, SpawnMode, Spawner};
use crate::limits::{self, Demand, LimitError, launcher_threads};
use crate::memory::{self, MemoryError, Need};
use crate::plan::{Layout, PlanError};
use crate::program::ProgramError;
use crate::report::Launcher;
use crate::seeing;
use crate::sys;
use environment::environment;
use place::{Place, PlaceError};
pub(crate) use spawned::prepare_spawned;

/// A checked job, ready to be started.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) launch: Launch,
    /// Whether node 0 is on this machine, so that its agent is forked.
    pub(crate) first_is_here: bool,
    /// The allocation that it uses, for people.
    pub(crate) allocation: Option<String>,
    /// What the user should know before it starts.
    pub(crate) notes: Vec<String>,
    /// Options for launchers of jobs that this one spawns.
    pub(crate) spawn_options: Vec<OsString>,
    /// Where the files of PEs' output are.
    pub(crate) output: Option<PathBuf>,
    pub(crate) facts: Launcher,
}

/// Children of an agent where each is on a host of its own, unless it was set: remote shells that are
/// started together wait for their connections together, so the tree is flatter than one of forks.
const HOSTS_DEGREE: u32 = 16;

/// Most children of an agent, where all are to be started by one.
const MAX_DEGREE: u32 = 128;

/// A job that is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum JobError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(
        "SHMEM_SOFT_NETNS is for nodes that are emulated on one machine; leave it out with --hosts"
    )]
    Namespaces,
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error(transparent)]
    Binding(#[from] TooFew),
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error("--chdir {dir}: {source}")]
    Chdir { dir: String, source: std::io::Error },
    #[error("{name}: {why}")]
    NoTemplate { name: String, why: String },
    #[error(
        "--respawn: {name} is an OpenSHMEM program: what the memory of a process held would be lost, and \
         other PEs may be reading it; leave --respawn out"
    )]
    Respawn { name: String },
    #[error(
        "--respawn: a process that uses PMIx cannot be started again; leave --respawn or --pmix out"
    )]
    RespawnPmix,
    #[error("the spawned job's {key} '{value}': {why}")]
    Info {
        key: &'static str,
        value: String,
        why: String,
    },
    #[error("--stdin {rank}: there is no such PE; ranks are from 0 to {last}")]
    Stdin { rank: u32, last: u32 },
    #[error("--env {0}: a variable needs a name before the =")]
    Env(String),
    #[error(
        "--env {name}: settings are the same for all programs of a job; set it with --genv {name}=VALUE"
    )]
    SettingOfOne { name: String },
    #[error("{what}: {source}")]
    Os {
        what: &'static str,
        source: std::io::Error,
    },
}

impl JobError {
    /// Whether another process says it, too.
    pub(crate) fn is_told_by_another(&self) -> bool {
        matches!(self, Self::Place(PlaceError::Allocation(e)) if e.is_told_by_another())
    }

    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::Plan(_)
            | Self::Address(_)
            | Self::Env(_)
            | Self::Binding(_)
            | Self::SettingOfOne { .. }
            | Self::Stdin { .. }
            | Self::Chdir { .. }
            | Self::Respawn { .. }
            | Self::RespawnPmix
            | Self::Info { .. }
            | Self::Namespaces => USAGE,
            Self::Place(e) => e.status(),
            Self::Program(e) => e.status(),
            Self::NoTemplate { .. } => NOT_EXECUTABLE,
            Self::Limit(e) => e.status(),
            Self::Memory(_) | Self::Os { .. } => LAUNCHER,
        }
    }
}

/// What is to run where.
struct Outline {
    place: Place,
    layout: Layout,
    commands: Vec<Command>,
    /// The first program, as typed.
    name: OsString,
    cwd: PathBuf,
    spawner: Option<Spawner>,
}

/// Makes a job of what was typed and set.
pub(crate) fn prepare(cli: &Cli, settings: &Settings, start: u64) -> Result<Job, JobError> {
    let output = cli.output.as_ref().map(std::path::absolute).transpose();
    let output = output.map_err(|source| JobError::Os {
        what: "--output",
        source,
    })?;
    let mut place = Place::find(cli, settings)?;
    let layout = place.layout(programs::total(cli)?, cli)?;
    if let Some(dir) = cli.chdir.as_ref().filter(|_| cli.more.is_empty()) {
        std::env::set_current_dir(Path::new(dir)).map_err(|source| JobError::Chdir {
            dir: dir.display().to_string(),
            source,
        })?;
    }
    let cwd = working_directory()?;
    let name = cli.command.first().cloned().unwrap_or_default();
    let commands = programs::typed(cli, &cwd, layout.n_pes())?;
    let outline = Outline {
        place,
        layout,
        commands,
        name,
        cwd,
        spawner: None,
    };
    let job = complete(cli, settings, start, outline)?;
    Ok(Job { output, ..job })
}

/// `.` where it has been removed: agents of this machine are in it all the same.
fn working_directory() -> Result<PathBuf, JobError> {
    match std::env::current_dir() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(PathBuf::from(".")),
        found => found.map_err(|source| JobError::Os {
            what: "cannot tell the working directory",
            source,
        }),
    }
}

/// Checks what is to run, and adds what the settings say.
fn complete(cli: &Cli, settings: &Settings, start: u64, outline: Outline) -> Result<Job, JobError> {
    let Outline {
        place,
        layout,
        commands,
        name,
        cwd,
        spawner,
    } = outline;
    let files = Files::of(&commands);
    let statics = files.statics(settings);
    let heap = files.heap_need(settings);
    let respawns = cli.respawn.unwrap_or(0);
    if respawns > 0
        && let Some(name) = files.linked()
    {
        return Err(JobError::Respawn { name });
    }
    let pmix = pmix::plan(cli, settings, &commands)?;
    let spawn = match &files.0[..] {
        [(_, file)] if respawns == 0 && pmix.is_none() => {
            spawn_mode(&name, file, cli.inherited.spawn.unwrap_or(settings.spawn))?
        }
        _ => SpawnMode::Exec,
    };
    let degree = match cli.inherited.tree_degree.unwrap_or(settings.tree_degree) {
        0 if !place.starts_everywhere() => layout.n_nodes().clamp(2, MAX_DEGREE),
        0 if place.hosts.is_some() => HOSTS_DEGREE,
        0 => DegreePolicy::default().degree(layout.n_nodes(), layout.max_per_node()),
        degree => degree,
    };
    let first_is_here = place.first_is_here();
    let machines = place.machines(cli, settings, &layout)?;
    if machines.is_some() && settings.soft_netns.is_some() {
        return Err(JobError::Namespaces);
    }
    // The cores that this process may use: all emulated nodes share them.
    let spins = match machines {
        Some(_) => None,
        None => Some(settings.spin.polls(layout.n_pes())),
    };
    let input = input(cli, layout.n_pes())?;
    let binding = Binding {
        to: cli.inherited.bind_to,
        by: cli.inherited.map_by,
        report: cli.inherited.report_bindings,
    };
    if first_is_here && binding.binds() {
        let here = match machines {
            Some(_) => layout.ranks(0).len() as u32,
            None => layout.n_pes(),
        };
        binding.plan(&Topology::of_this_machine(), 0..here, here)?;
    }
    let on_machine = |here: &Layout, shells| {
        let demand = Demand {
            several: layout.n_nodes() > 1,
            pmix: pmix.is_some(),
            shells,
            launcher: launcher_threads(input != InputTo::Nobody),
            ..demand(here, degree, input)
        };
        check_machine(&demand, settings, statics, heap)
    };
    match machines {
        // Each host looks for itself; this one may run none.
        Some(_) if !first_is_here => {}
        Some(_) => {
            let here = Layout::of(layout.ranks(0).len() as u32, 1);
            on_machine(&here, degree.min(layout.n_nodes() - 1))?;
        }
        None => on_machine(&layout, 0)?,
    }

    let mut random = [0; 16 + 32 + 4];
    sys::random(&mut random).map_err(|source| JobError::Os {
        what: "cannot get random bytes",
        source,
    })?;
    let (job_id, rest) = random.split_first_chunk::<16>().expect("52 bytes");
    let (job_key, rest) = rest.split_first_chunk::<32>().expect("36 bytes");
    let random_address = u32::from_le_bytes(*rest.first_chunk().expect("4 bytes"));
    let one_port = matches!(settings.soft_port, PortChoice::One(_));
    if settings.soft_interop && !one_port && layout.n_nodes() > 1 {
        return Err(AddressError::InteropPort.into());
    }
    let addresses = AddressPlan::choose(
        settings.soft_address,
        settings.soft_port,
        random_address,
        Shape {
            n_nodes: layout.n_nodes(),
            n_pes: layout.n_pes(),
            per_machine: match machines {
                Some(_) => layout.max_per_node(),
                None => layout.n_pes(),
            },
            one_machine: machines.is_none(),
        },
    )?;
    let far = machines.is_some() && (layout.n_nodes() > 1 || !first_is_here);
    let several = !cli.more.is_empty();
    let mut env = environment(&cli.inherited, several, far, std::env::vars_os())?;
    if let Some(machines) = &machines
        && !environment::has_bare_env(&cli.inherited)
    {
        place::keep(&machines.shell.without, &mut env);
    }
    let preparation = preparation(settings, &layout, machines.is_none());
    let launch = Launch {
        node: 0,
        n_nodes: layout.n_nodes(),
        n_pes: layout.n_pes(),
        degree,
        job_id: *job_id,
        job_key: *job_key,
        machines,
        addresses,
        statics,
        spins,
        options: JobOptions {
            report: cli.report.is_some() || cli.report_json.is_some(),
            report_each: cli.report_json.is_some(),
            calls: seeing::room(cli, layout.n_pes()),
            all_statuses: cli.print_all_exitcodes,
            raw_output: layout.n_pes() == 1 && !cli.inherited.label,
            label: cli.inherited.label,
            separate: cli.output.is_some(),
            progress: shows_progress(cli),
            respawns,
            timeout_s: cli.timeout,
            grace: settings.grace,
            pass_usr1: settings.pass_sigusr1,
            backtrace: cli.inherited.backtrace,
            bare_env: environment::has_bare_env(&cli.inherited),
            binding,
            heartbeat: settings.heartbeat_timeout,
            preparation,
            keep_going: cli.keep_going,
        },
        spawn,
        commands,
        env,
        cwd: cwd.into_os_string().into_vec(),
        file_mask: sys::file_mask(),
        soft_limits: sys::soft_limits(),
        input,
        ignored: sys::ignored_signals(),
        spawner,
        pmix,
    };
    let facts = Launcher {
        program: name.display().to_string(),
        n_pes: layout.n_pes(),
        n_nodes: layout.n_nodes(),
        degree,
        depth: Tree::new(layout.n_nodes(), degree).depth(),
        spawn: match spawn {
            SpawnMode::Template { .. } => "template",
            SpawnMode::Exec => "exec",
        },
        start,
        planned: sys::monotonic_ns(),
        ..Launcher::default()
    };
    Ok(Job {
        launch,
        first_is_here,
        allocation: place.described(),
        notes: place.notes,
        spawn_options: cli.spawn_options.clone(),
        output: None,
        facts,
    })
}

/// Whether a terminal shows how far a start has come that takes long. Who tells of each step says more.
fn shows_progress(cli: &Cli) -> bool {
    use std::io::IsTerminal;
    let others = cli.verbose || cli.spawned || cli.inherited.report_bindings;
    !cli.no_progress && !others && std::io::stderr().is_terminal()
}

/// How long an agent may take to make its node, during which it says nothing. Nearly always that takes no
/// time, but memory that is reserved takes a second for some GB, and many nodes of a machine wait for each other.
fn preparation(settings: &Settings, layout: &Layout, one_machine: bool) -> Duration {
    const LEAST: Duration = Duration::from_secs(40);
    const NODE: Duration = Duration::from_millis(50);
    const BYTES_PER_MS: u64 = 256 << 10;
    let (pes, nodes) = match one_machine {
        true => (layout.n_pes(), layout.n_nodes()),
        false => (layout.max_per_node(), 1),
    };
    let reserved = match settings.heap_commit {
        HeapCommit::Lazy => 0,
        HeapCommit::Reserve => settings.symmetric_size.saturating_mul(pes.into()),
    };
    LEAST + NODE * nodes + Duration::from_millis(reserved / BYTES_PER_MS)
}

/// Who gets standard input. That of a spawned job's launcher is its link.
fn input(cli: &Cli, n_pes: u32) -> Result<InputTo, JobError> {
    match cli.stdin {
        _ if cli.spawned => Ok(InputTo::Nobody),
        StdinTo::None => Ok(InputTo::Nobody),
        StdinTo::All => Ok(InputTo::All),
        StdinTo::Rank(rank) if rank < n_pes => Ok(InputTo::Rank(rank)),
        StdinTo::Rank(rank) => Err(JobError::Stdin {
            rank,
            last: n_pes - 1,
        }),
    }
}

/// What the files of a job's programs say, each with its path.
pub(crate) struct Files(Vec<(PathBuf, std::io::Result<marker::Program>)>);

impl Files {
    pub(crate) fn of(commands: &[Command]) -> Self {
        let mut all: Vec<(PathBuf, _)> = Vec::new();
        for command in commands {
            let path = Path::new(OsStr::from_bytes(&command.program));
            if all.iter().all(|(known, _)| known != path) {
                all.push((path.into(), marker::read(path)));
            }
        }
        Self(all)
    }

    /// The room for static data that the settings or the files ask for: that of the program with most. If several
    /// programs need any, each may take it; then PEs compare their layouts.
    fn statics(&self, settings: &Settings) -> StaticsRoom {
        let unreadable = marker::Program {
            marker: Marker::Absent,
            statics: None,
        };
        // What is not linked with `shmem` may start a program that is: a script, `env`, `numactl`, `perf`.
        let unused_is_free = settings.heap_commit == HeapCommit::Lazy
            && settings.heap_pages != HeapPages::Huge
            && settings.heap_register != HeapRegister::Whole;
        let guess = settings.statics_size == StaticsSize::Auto && unused_is_free;
        let rooms = self.0.iter().map(|(_, file)| {
            let file = file.as_ref().unwrap_or(&unreadable);
            match file.marker {
                Marker::Absent if guess => StaticsRoom::UNKNOWN,
                _ => StaticsRoom::of(settings.statics_size, file),
            }
        });
        let of_both = |one: StaticsRoom, other: StaticsRoom| StaticsRoom {
            bytes: one.bytes.max(other.bytes),
            layout: if one.layout == other.layout {
                one.layout
            } else {
                0
            },
        };
        let needed = rooms.filter(|room| room.bytes > 0);
        needed.reduce(of_both).unwrap_or_default()
    }

    /// Bytes of a heap for which a machine must have memory: none where the programs are known not to be
    /// linked with `shmem`, since its heaps are never touched.
    pub(crate) fn heap_need(&self, settings: &Settings) -> u64 {
        // Only of an ELF program it is known; a script may execute anything.
        let foreign = |file: &std::io::Result<marker::Program>| {
            let file = file.as_ref();
            file.is_ok_and(|f| f.marker == Marker::Absent && f.statics.is_some())
        };
        match settings.heap_commit {
            HeapCommit::Lazy if self.0.iter().all(|(_, file)| foreign(file)) => 0,
            _ => settings.symmetric_size,
        }
    }

    /// A program that is linked with `shmem`.
    fn linked(&self) -> Option<String> {
        let linked = |file: &&(_, std::io::Result<marker::Program>)| {
            file.1.as_ref().is_ok_and(|f| f.marker != Marker::Absent)
        };
        let found = self.0.iter().find(linked);
        found.map(|(path, _): &(PathBuf, _)| path.display().to_string())
    }
}

fn spawn_mode(
    name: &OsStr,
    file: &std::io::Result<marker::Program>,
    choice: Spawn,
) -> Result<SpawnMode, JobError> {
    if choice == Spawn::Exec {
        return Ok(SpawnMode::Exec);
    }
    let refuse = |why: String| {
        Err(JobError::NoTemplate {
            name: name.display().to_string(),
            why,
        })
    };
    match (file.as_ref().map(|f| &f.marker), choice) {
        (Ok(Marker::Current), _) => Ok(SpawnMode::Template {
            may_execute: choice == Spawn::Auto,
        }),
        (Ok(Marker::Other(version)), _) => refuse(format!(
            "was built with a version of shmem that shares memory in another way ({version}, this \
             shmrun has {}); use the shmrun that belongs to it",
            shmem_node::contract::NODE_CONTRACT
        )),
        (_, Spawn::Auto) => Ok(SpawnMode::Exec),
        (Ok(_), _) => refuse(
            "cannot be a template because it is not linked with shmem; use --spawn auto or exec"
                .into(),
        ),
        (Err(e), _) => refuse(format!(
            "cannot be read to see if it can be a template: {e}"
        )),
    }
}

/// What PEs on one machine need of its memory.
fn need(pes: u32, nodes: u32, settings: &Settings, statics: StaticsRoom, heap_size: u64) -> Need {
    Need {
        pes: pes.into(),
        nodes: nodes.into(),
        heap_size,
        statics: statics.bytes,
        heap_commit: settings.heap_commit,
        heap_pages: settings.heap_pages,
    }
}

/// What the part of a job with this layout starts on its machine, if it is the whole job and has PMI.
pub(crate) fn demand(here: &Layout, degree: u32, input: InputTo) -> Demand {
    Demand {
        pes: here.n_pes(),
        nodes: here.n_nodes(),
        max_per_node: here.max_per_node(),
        children: degree,
        inputs: input.most(here.max_per_node()),
        several: here.n_nodes() > 1,
        pmix: false,
        shells: 0,
        launcher: 0,
    }
}

/// Whether the part of a job that runs on this machine fits there.
pub(crate) fn check_machine(
    demand: &Demand,
    settings: &Settings,
    statics: StaticsRoom,
    heap: u64,
) -> Result<(), JobError> {
    if let Some(machine) = memory::Machine::read() {
        let need = need(demand.pes, demand.nodes, settings, statics, heap);
        memory::check(need, machine)?;
    }
    limits::check(demand, &limits::read(demand.tasks()))?;
    Ok(())
}

/// For `--verbose` and `--dry-run`.
pub(crate) fn describe(job: &Job) -> String {
    use std::fmt::Write;
    let l = &job.launch;
    let layout = l.layout();
    let tree = Tree::new(l.n_nodes, l.degree);
    let mut out = String::new();
    let mut first_rank = 0;
    for command in l.commands.iter().filter(|_| l.commands.len() > 1) {
        let _ = writeln!(
            out,
            "shmrun: PEs {first_rank} to {}: {}",
            first_rank + command.procs - 1,
            String::from_utf8_lossy(&command.program)
        );
        first_rank += command.procs;
    }
    let name = match &l.commands[..] {
        [one] => String::from_utf8_lossy(&one.program).into_owned(),
        several => format!("{} programs", several.len()),
    };
    let _ = writeln!(
        out,
        "shmrun: {name}: {} PEs on {} nodes, started by {}; tree of degree {} and depth {}",
        l.n_pes,
        l.n_nodes,
        job.facts.spawn,
        l.degree,
        tree.depth()
    );
    if let Some(allocation) = &job.allocation {
        let _ = writeln!(out, "shmrun: {allocation}");
    }
    const SHOWN: u32 = 64;
    for node in 0..l.n_nodes.min(SHOWN) {
        let ranks = layout.ranks(node);
        let parent = tree
            .parent(node)
            .map_or("shmrun".into(), |p| format!("node {p}"));
        let host = match l.host(node) {
            "" => String::new(),
            host => format!(" on host {host}"),
        };
        let address = match l.addresses {
            AddressPlan::Known(addresses) => addresses.of(node, ranks.start).to_string(),
            AddressPlan::Routed { .. } => "of the route to node 0".into(),
            AddressPlan::Network(network) => format!("in {network}"),
        };
        let how = match &l.machines {
            Some(_) if node == 0 && job.first_is_here => " without a remote shell".into(),
            Some(m) => format!(": {}", m.shell.shown(l.target(node))),
            None => String::new(),
        };
        let _ = writeln!(
            out,
            "shmrun: node {node}{host}: PEs {} to {}, address {address}, started by {parent}{how}",
            ranks.start,
            ranks.end - 1,
        );
    }
    if l.n_nodes > SHOWN {
        let _ = writeln!(out, "shmrun: and {} more nodes", l.n_nodes - SHOWN);
    }
    // On other hosts it is for their agents to find out.
    if job.first_is_here && l.options.binding.binds() {
        let machine = Topology::of_this_machine();
        let pes = l.on_machine().0;
        let bindings = l.options.binding.plan(&machine, 0..pes, pes);
        let bindings = bindings.unwrap_or_default();
        for rank in 0..pes.min(SHOWN) {
            if let Some(cpus) = bindings.of(rank) {
                let line = binding::describe(rank, cpus, &machine);
                let _ = writeln!(out, "shmrun: {line}");
            }
        }
        if pes > SHOWN {
            let _ = writeln!(out, "shmrun: and {} more PEs", pes - SHOWN);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_executed_and_cannot_be_templates() {
        let file = marker::read(Path::new("/bin/sh"));
        let spawn_mode = |choice| spawn_mode(OsStr::new("sh"), &file, choice);
        assert_eq!(spawn_mode(Spawn::Auto).unwrap(), SpawnMode::Exec);
        assert_eq!(spawn_mode(Spawn::Exec).unwrap(), SpawnMode::Exec);
        let e = spawn_mode(Spawn::Template).unwrap_err();
        assert_eq!(e.status(), NOT_EXECUTABLE);
        assert!(e.to_string().contains("--spawn auto"), "{e}");
    }
}
