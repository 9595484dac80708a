//! From command line and settings to a checked job: everything that can be refused is refused here,
//! before a process is started.

mod describe;
mod environment;
mod error;
mod files;
mod fit;
mod place;
mod pmix;
mod programs;
mod spawned;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use shmem_node::hca_address::{AddressError, AddressPlan, PortChoice, Shape};
use shmem_node::settings::Settings;
use shmem_pmi::tree::{DegreePolicy, Tree};

use crate::binding::{Binding, Topology};
use crate::cli::{Cli, StdinTo};
use crate::frame::{Command, EnvVar, InputTo, JobOptions, Launch, Machines, SpawnMode, Spawner};
use crate::limits::{Demand, launcher_threads};
use crate::plan::Layout;
use crate::report::{self, Launcher};
use crate::seeing;
use crate::sys;
pub(crate) use describe::describe;
use environment::environment;
pub(crate) use error::JobError;
pub(crate) use files::Files;
pub(crate) use fit::{check_machine, demand};
use place::Place;
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

/// What is to run where.
struct DraftJob {
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
    let draft = DraftJob {
        place,
        layout,
        commands,
        name,
        cwd,
        spawner: None,
    };
    let job = complete(cli, settings, start, draft)?;
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
fn complete(cli: &Cli, settings: &Settings, start: u64, draft: DraftJob) -> Result<Job, JobError> {
    let layout = &draft.layout;
    let files = Files::of(&draft.commands);
    if cli.respawn.unwrap_or(0) > 0
        && let Some(name) = files.linked()
    {
        return Err(JobError::Respawn { name });
    }
    let pmix = pmix::plan(cli, settings, &draft.commands)?;
    let spawn = match cli.respawn.unwrap_or(0) == 0 && pmix.is_none() {
        true => files.spawn_mode(&draft.name, settings.spawn)?,
        false => SpawnMode::Exec,
    };
    let degree = draft.degree(settings);
    let machines = draft.place.machines(cli, settings, layout)?;
    if machines.is_some() && settings.soft_netns.is_some() {
        return Err(JobError::Namespaces);
    }
    let input = input(cli, layout.n_pes())?;
    let binding = Binding {
        to: cli.inherited.bind_to,
        by: cli.inherited.map_by,
        report: cli.inherited.verbose,
    };
    let first_is_here = draft.place.first_is_here();
    let Secrets {
        job_id,
        job_key,
        address,
    } = Secrets::new()?;
    let launch = Launch {
        node: 0,
        n_nodes: layout.n_nodes(),
        n_pes: layout.n_pes(),
        degree,
        job_id,
        job_key,
        addresses: addresses(settings, layout, machines.is_none(), address)?,
        statics: files.statics(settings),
        // The cores that this process may use: all emulated nodes share them.
        spins: machines
            .is_none()
            .then(|| settings.spin.polls(layout.n_pes())),
        options: options(cli, settings, layout, binding, machines.is_none()),
        env: draft.environment(cli, machines.as_ref())?,
        machines,
        spawn,
        commands: draft.commands,
        cwd: draft.cwd.into_os_string().into_vec(),
        file_mask: sys::file_mask(),
        soft_limits: sys::soft_limits(),
        input,
        ignored: sys::ignored_signals(),
        spawner: draft.spawner,
        pmix,
    };
    check_here(&launch, first_is_here, settings, files.heap_need(settings))?;
    let facts = facts(&launch, &draft.name, start);
    Ok(Job {
        launch,
        first_is_here,
        allocation: draft.place.described(),
        notes: draft.place.notes,
        spawn_options: cli.spawn_options.clone(),
        output: None,
        facts,
    })
}

/// Whether the part of the job that is for this machine, which may run none, fits here. Other hosts look for themselves.
fn check_here(
    launch: &Launch,
    first_is_here: bool,
    settings: &Settings,
    heap: u64,
) -> Result<(), JobError> {
    let layout = launch.layout();
    let (here, shells) = match launch.machines {
        Some(_) if !first_is_here => return Ok(()),
        Some(_) => {
            let here = Layout::of(layout.ranks(0).len() as u32, 1);
            (here, launch.degree.min(layout.n_nodes() - 1))
        }
        None => (layout.clone(), 0),
    };
    let binding = &launch.options.binding;
    if binding.binds() {
        let pes = here.n_pes();
        binding.plan(&Topology::of_this_machine(), 0..pes, pes)?;
    }
    let demand = Demand {
        several: layout.n_nodes() > 1,
        pmix: launch.pmix.is_some(),
        shells,
        launcher: launcher_threads(launch.input != InputTo::Nobody),
        ..demand(&here, launch.degree, launch.input)
    };
    check_machine(&demand, settings, launch.statics, heap)
}

/// What the launcher knows of the job before it starts.
fn facts(launch: &Launch, name: &OsStr, start: u64) -> Launcher {
    Launcher {
        program: name.display().to_string(),
        n_pes: launch.n_pes,
        n_nodes: launch.n_nodes,
        degree: launch.degree,
        depth: Tree::new(launch.n_nodes, launch.degree).depth(),
        spawn: match launch.spawn {
            SpawnMode::Template { .. } => "template",
            SpawnMode::Exec => "exec",
        },
        start,
        planned: sys::monotonic_ns(),
        ..Launcher::default()
    }
}

impl DraftJob {
    /// Children of an agent.
    fn degree(&self, settings: &Settings) -> u32 {
        let (place, layout) = (&self.place, &self.layout);
        match settings.tree_degree {
            0 if !place.starts_everywhere() => layout.n_nodes().clamp(2, MAX_DEGREE),
            0 if place.hosts.is_some() => HOSTS_DEGREE,
            0 => DegreePolicy::default().degree(layout.n_nodes(), layout.max_per_node()),
            degree => degree,
        }
    }

    /// What PEs find in their environment beside that of their agents.
    fn environment(&self, cli: &Cli, machines: Option<&Machines>) -> Result<Vec<EnvVar>, JobError> {
        let alone = self.layout.n_nodes() == 1 && self.place.first_is_here();
        let far = machines.is_some() && !alone;
        let several = !cli.more.is_empty();
        let mut env = environment(&cli.inherited, several, far, std::env::vars_os())?;
        if let Some(machines) = machines
            && !environment::has_bare_env(&cli.inherited)
        {
            place::keep(&machines.shell.without, &mut env);
        }
        Ok(env)
    }
}

/// What nobody can guess of a job.
struct Secrets {
    job_id: [u8; 16],
    job_key: [u8; 32],
    address: u32,
}

impl Secrets {
    fn new() -> Result<Self, JobError> {
        let (mut job_id, mut job_key, mut address) = ([0; 16], [0; 32], [0; 4]);
        for bytes in [&mut job_id[..], &mut job_key, &mut address] {
            sys::random(bytes).map_err(|source| JobError::Os {
                what: "cannot get random bytes",
                source,
            })?;
        }
        Ok(Self {
            job_id,
            job_key,
            address: u32::from_le_bytes(address),
        })
    }
}

/// The addresses of the nodes, the random part of which is `random`.
fn addresses(
    settings: &Settings,
    layout: &Layout,
    one_machine: bool,
    random: u32,
) -> Result<AddressPlan, JobError> {
    let one_port = matches!(settings.soft_port, PortChoice::One(_));
    if settings.soft_interop && !one_port && layout.n_nodes() > 1 {
        return Err(AddressError::InteropPort.into());
    }
    let shape = Shape {
        n_nodes: layout.n_nodes(),
        n_pes: layout.n_pes(),
        per_machine: match one_machine {
            true => layout.n_pes(),
            false => layout.max_per_node(),
        },
        one_machine,
    };
    let plan = AddressPlan::choose(settings.soft_address, settings.soft_port, random, shape)?;
    Ok(plan)
}

/// What was asked for, for agents and launcher.
fn options(
    cli: &Cli,
    settings: &Settings,
    layout: &Layout,
    binding: Binding,
    one_machine: bool,
) -> JobOptions {
    JobOptions {
        report: !cli.report.is_empty(),
        report_each: cli.report.iter().any(|file| report::is_json(file)),
        calls: seeing::room(cli, layout.n_pes()),
        all_statuses: cli.inherited.verbose,
        raw_output: layout.n_pes() == 1 && !cli.inherited.label,
        label: cli.inherited.label,
        separate: cli.output.is_some(),
        progress: shows_progress(cli),
        respawns: cli.respawn.unwrap_or(0),
        timeout_s: cli.timeout,
        grace: settings.grace,
        pass_usr1: settings.pass_sigusr1,
        backtrace: cli.inherited.backtrace,
        bare_env: environment::has_bare_env(&cli.inherited),
        binding,
        heartbeat: settings.heartbeat_timeout,
        preparation: fit::preparation(settings, layout, one_machine),
        keep_going: cli.keep_going,
    }
}

/// Whether a terminal shows how far a start has come that takes long. Who tells of each step says more.
fn shows_progress(cli: &Cli) -> bool {
    use std::io::IsTerminal;
    let others = cli.inherited.verbose || cli.spawned;
    !cli.quiet && !others && std::io::stderr().is_terminal()
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
