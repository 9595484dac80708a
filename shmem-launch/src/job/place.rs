//! Where a job runs: on hosts that were named, on those of the allocation that `shmrun` is in, or on this
//! machine; and what starts agents there.
//!
//! Hosts that are named win over an allocation, but those that are of it are started by its batch system. In
//! an allocation `--nodes K` takes the first K of its hosts; nodes are emulated only where it has a single
//! one, which is this machine. An allocation's slots are the tasks that it was asked for, unless `--ppn` says
//! how many PEs a host is to have. What is done differently from what an allocation offers is said.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use shmem_node::settings::{AllocationChoice, Batch, LauncherChoice, Settings};

use super::error::{JobError, PlaceError};
use crate::allocation::{self, Allocation, ByName, Surroundings, batch_name};
use crate::cli::Cli;
use crate::frame::{EnvVar, Machine, Machines};
use crate::given_file;
use crate::hosts::{self, Host};
use crate::plan::{Layout, PlanError};
use crate::program;
use crate::remote::RemoteShell;
use crate::sys;

/// The environment of this process, and its machine.
struct Here {
    patience: Duration,
}

impl Surroundings for Here {
    fn var(&self, name: &str) -> Option<String> {
        std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
    }

    fn file(&self, path: &str) -> std::io::Result<String> {
        given_file::read_text(Path::new(path))
    }

    fn output(&self, words: &[&str]) -> Result<String, String> {
        output(words, self.patience)
    }

    fn command(&self, name: &str) -> Option<String> {
        let path = program::find(OsStr::new(name), std::env::var_os("PATH")).ok()?;
        path.into_os_string().into_string().ok()
    }
}

/// What a command writes, if it ends well and within some time.
fn output(words: &[&str], patience: Duration) -> Result<String, String> {
    use std::io::Read;
    use std::os::fd::AsFd;
    let (name, args) = words.split_first().ok_or("no command")?;
    let mut child = Command::new(name)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| e.to_string())?;
    let mut pipe = child.stdout.take().ok_or("it has no output")?;
    let (mut text, mut buf) = (Vec::new(), [0; 8 << 10]);
    let until = Instant::now() + patience;
    let read = loop {
        let left = until.saturating_duration_since(Instant::now());
        if !sys::poll_readable(pipe.as_fd(), left) {
            break Err(format!(
                "it does not answer within {} s",
                patience.as_secs_f64()
            ));
        }
        match pipe.read(&mut buf) {
            Ok(0) => break Ok(()),
            Ok(n) => text.extend_from_slice(&buf[..n]),
            Err(e) => break Err(e.to_string()),
        }
    };
    if read.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().map_err(|e| e.to_string())?;
    read?;
    match status.success() {
        true => String::from_utf8(text).map_err(|e| e.to_string()),
        false => Err(status.to_string()),
    }
}

/// Where a job runs.
#[derive(Debug)]
pub(super) struct Place {
    /// The hosts, with a node on each; none if all nodes are on this machine.
    pub(super) hosts: Option<Vec<Host>>,
    /// What the user should know.
    pub(super) notes: Vec<String>,
    allocation: Option<Allocation>,
    /// Whether the hosts are those of the allocation, without having been named.
    of_allocation: bool,
    /// What starts agents, and whether these may do the same.
    shell: RemoteShell,
    starts_everywhere: bool,
    own_name: String,
}

impl Place {
    /// Where the command line, the settings and the batch system say.
    pub(super) fn find(cli: &Cli, settings: &Settings) -> Result<Self, PlaceError> {
        let mut notes = Vec::new();
        let named = match (&cli.inherited.hosts, &cli.inherited.hostfile) {
            (Some(list), _) => Some(hosts::parse_list(list)?),
            (None, Some(file)) => {
                let name = file.display().to_string();
                let text = given_file::read_text(file.as_ref()).map_err(|source| {
                    PlaceError::HostFile {
                        file: name.clone(),
                        source,
                    }
                })?;
                let parsed = hosts::parse_file(&name, &text)?;
                notes = parsed.notes;
                Some(parsed.hosts)
            }
            (None, None) => None,
        };
        let mut place = match named {
            Some(hosts) => Self::on(hosts, settings)?,
            None => Self::unnamed(cli, settings)?,
        };
        place.notes.splice(0..0, notes);
        Ok(place)
    }

    /// On hosts that were named.
    pub(super) fn on(mut hosts: Vec<Host>, settings: &Settings) -> Result<Self, PlaceError> {
        let around = here(settings);
        let choice = match &settings.launcher {
            LauncherChoice::Fork => return Err(PlaceError::Fork),
            // What cannot be done without an allocation is asked of its batch system.
            LauncherChoice::Of(batch) => AllocationChoice::Of(*batch),
            _ => settings.allocation,
        };
        let allocation = match allocation::find(choice, &around) {
            Err(_) if choice == AllocationChoice::Auto => None,
            found => found?,
        };
        let mut notes = Vec::new();
        let strangers = |of: ByName<'_>| hosts.iter().all(|h| of.get(&h.name).is_none());
        if let (Some(of), LauncherChoice::Auto) = (&allocation, &settings.launcher)
            && strangers(of.by_name())
        {
            notes.push(format!(
                "the hosts that were named are used instead of {} ({})",
                of.name(),
                of.host_names()
            ));
        }
        let (shell, starts_everywhere) =
            starter(&mut hosts, allocation.as_ref(), settings, &around)?;
        Ok(Self {
            hosts: Some(hosts),
            notes,
            allocation,
            of_allocation: false,
            shell,
            starts_everywhere,
            own_name: sys::host_name(),
        })
    }

    /// On the hosts of the allocation, or on this machine.
    fn unnamed(cli: &Cli, settings: &Settings) -> Result<Self, PlaceError> {
        let around = here(settings);
        let fork = settings.launcher == LauncherChoice::Fork;
        let found = match fork {
            true => None,
            false => allocation::find(settings.allocation, &around)?,
        };
        let mut place = Self {
            hosts: None,
            notes: Vec::new(),
            allocation: None,
            of_allocation: true,
            shell: RemoteShell::default(),
            starts_everywhere: true,
            own_name: sys::host_name(),
        };
        let Some(found) = found else {
            let options = [
                ("--launcher", cli.inherited.launcher.is_some() && !fork),
                ("--remote-shmrun", cli.inherited.remote_shmrun.is_some()),
            ];
            return match options.into_iter().find(|(_, given)| *given) {
                Some((option, _)) => Err(PlaceError::NoHosts { option }),
                None => Ok(place),
            };
        };
        let mut hosts = found.hosts.clone();
        place.notes.clone_from(&found.notes);
        place.allocation = Some(found);
        let nodes = cli.inherited.nodes.unwrap_or(hosts.len() as u32);
        if let [only] = &hosts[..]
            && place.is_here(only)
            && settings.launcher == LauncherChoice::Auto
        {
            if nodes > 1 {
                let of = place.allocation_name();
                let what =
                    format!("{nodes} nodes are emulated on this machine, the only host of {of}");
                place.notes.push(what);
            }
            return Ok(place);
        }
        if nodes as usize > hosts.len() {
            return Err(PlaceError::FewHosts {
                nodes,
                have: hosts.len(),
                of: place.allocation_name(),
            });
        }
        hosts.truncate(nodes as usize);
        let (shell, starts_everywhere) =
            starter(&mut hosts, place.allocation.as_ref(), settings, &around)?;
        place.hosts = Some(hosts);
        place.shell = shell;
        place.starts_everywhere = starts_everywhere;
        Ok(place)
    }

    fn allocation_name(&self) -> String {
        self.allocation
            .as_ref()
            .map_or_else(String::new, Allocation::name)
    }

    /// Whether a host is this machine, which needs nothing to start an agent.
    fn is_here(&self, host: &Host) -> bool {
        let (name, own) = (host.name.as_str(), self.own_name.as_str());
        let by_batch = self.allocation.as_ref().is_some_and(|a| match &a.own_name {
            Some(own) => name == own,
            None => a.by_name().get(name).is_some() && allocation::same_host(name, own),
        });
        by_batch || hosts::is_this_machine(name, own)
    }

    pub(super) fn first_is_here(&self) -> bool {
        let first = self.hosts.as_ref().and_then(|hosts| hosts.first());
        first.is_none_or(|host| self.is_here(host))
    }

    pub(super) fn starts_everywhere(&self) -> bool {
        self.starts_everywhere
    }

    /// Which ranks are where, and what to say of it.
    pub(super) fn layout(&mut self, n: Option<u32>, cli: &Cli) -> Result<Layout, JobError> {
        let (nodes, ppn) = (cli.inherited.nodes, cli.inherited.ppn);
        let layout = match (&mut self.hosts, &self.allocation) {
            (Some(hosts), Some(of)) if self.of_allocation => {
                if ppn.is_some() {
                    hosts.iter_mut().for_each(|h| h.slots = ppn);
                }
                let tasks = of.tasks.filter(|_| nodes.is_none() && ppn.is_none());
                on_allocation(n.or(tasks), hosts, nodes, of)?
            }
            (Some(hosts), _) => Layout::on_hosts(n, hosts, ppn)?,
            // A single host that is this machine.
            (None, Some(of)) if nodes.is_none() && ppn.is_none() => {
                let layout = on_allocation(n.or(of.tasks), &of.hosts, None, of)?;
                Layout::of(layout.n_pes(), 1)
            }
            (None, _) => Layout::new(n, nodes, ppn)?,
        };
        self.note_unused(&layout);
        Ok(layout)
    }

    /// Says that hosts of the allocation have no part in the job.
    fn note_unused(&mut self, layout: &Layout) {
        let (Some(hosts), Some(of)) = (&self.hosts, &self.allocation) else {
            return;
        };
        let used = &hosts[..layout.n_nodes() as usize];
        let known = of.by_name();
        let used: Vec<&str> = used
            .iter()
            .filter_map(|h| known.get(&h.name))
            .map(|h| h.name.as_str())
            .collect();
        if !used.is_empty() && used.len() < of.hosts.len() {
            self.notes.push(format!(
                "the job runs on {} of the {} hosts of {}: {}",
                used.len(),
                of.hosts.len(),
                of.name(),
                allocation::hostlist::fold(used)
            ));
        }
    }

    /// For `--dry-run`.
    pub(super) fn described(&self) -> Option<String> {
        let of = self.allocation.as_ref()?;
        let slots: u64 = of
            .hosts
            .iter()
            .map(|h| u64::from(h.slots.unwrap_or(1)))
            .sum();
        let tasks = of.tasks.map_or(slots, u64::from);
        Some(format!(
            "{} has {} hosts with {tasks} tasks: {} (from {})",
            of.name(),
            of.hosts.len(),
            of.host_names(),
            of.source
        ))
    }

    /// The hosts that have PEs, and how their agents are started.
    pub(super) fn machines(
        &self,
        cli: &Cli,
        settings: &Settings,
        layout: &Layout,
    ) -> Result<Option<Machines>, PlaceError> {
        let Some(hosts) = &self.hosts else {
            return Ok(None);
        };
        // A typing mistake is better told once than by every host.
        if layout.n_nodes() > 1 || !self.first_is_here() {
            let command = self.shell.words.first().map_or("", String::as_str);
            program::find(OsStr::new(command), std::env::var_os("PATH"))
                .map_err(PlaceError::NoLauncher)?;
        }
        let shmrun: OsString = match &cli.inherited.remote_shmrun {
            Some(typed) => typed.clone(),
            None => std::env::current_exe()
                .map_err(PlaceError::Path)?
                .into_os_string(),
        };
        let machine = |(node, host): (u32, &Host)| Machine {
            name: host.name.clone(),
            pes: layout.ranks(node).len() as u32,
            target: host.target.clone(),
        };
        Ok(Some(Machines {
            hosts: (0..layout.n_nodes()).zip(hosts).map(machine).collect(),
            shell: RemoteShell {
                shmrun: shmrun.into_vec(),
                timeout_ns: settings.launcher_timeout.as_nanos() as u64,
                starts: settings.launcher_starts,
                retries: settings.launcher_retries,
                ..self.shell.clone()
            },
        }))
    }
}

fn here(settings: &Settings) -> Here {
    Here {
        patience: settings.launcher_timeout,
    }
}

/// What starts agents on these hosts, and whether these may start others in the same way. The hosts learn
/// what it calls them.
fn starter(
    hosts: &mut [Host],
    allocation: Option<&Allocation>,
    settings: &Settings,
    around: &Here,
) -> Result<(RemoteShell, bool), PlaceError> {
    let command = |words: &[String]| RemoteShell {
        words: words.to_vec(),
        ..RemoteShell::default()
    };
    let stranger = |of: &Allocation| {
        let known = of.by_name();
        hosts.iter().find(|h| known.get(&h.name).is_none())
    };
    let of = match (&settings.launcher, allocation) {
        (LauncherChoice::Command(words), _) => return Ok((command(words), true)),
        (LauncherChoice::Of(batch), Some(of)) if of.batch == *batch => match stranger(of) {
            Some(host) => {
                return Err(PlaceError::NotOfAllocation {
                    host: host.name.clone(),
                    of: of.name(),
                    launcher: batch_word(*batch),
                });
            }
            None => of,
        },
        (LauncherChoice::Of(batch), _) => {
            // Another one's allocation is used.
            let of = allocation::find(AllocationChoice::Of(*batch), around)?;
            let launcher = LauncherChoice::Of(*batch);
            let settings = Settings {
                launcher,
                ..settings.clone()
            };
            return starter(hosts, of.as_ref(), &settings, around);
        }
        (_, Some(of)) if stranger(of).is_none() => of,
        _ => return Ok((command(&["ssh".into()]), true)),
    };
    let known = of.by_name();
    for host in hosts {
        if let Some(known) = known.get(&host.name).filter(|_| host.target.is_none()) {
            host.target = known.target.clone().or_else(|| {
                let name = known.name.clone();
                (name != host.name).then_some(name)
            });
        }
    }
    Ok((of.starter(around), of.starts_everywhere()))
}

/// What a batch system is called in settings.
fn batch_word(batch: Batch) -> &'static str {
    let word = Batch::WORDS.into_iter().find(|(_, of)| *of == batch);
    word.map_or(batch_name(batch), |(word, _)| word)
}

/// PEs on hosts of an allocation. With a number of nodes each is to have some.
fn on_allocation(
    n: Option<u32>,
    hosts: &[Host],
    nodes: Option<u32>,
    of: &Allocation,
) -> Result<Layout, JobError> {
    let slots = |h: &Host| h.slots.unwrap_or(1);
    let room: u64 = hosts.iter().map(|h| u64::from(slots(h))).sum();
    if let Some(n) = n
        && u64::from(n) > room
    {
        let (of, hosts, slots) = (of.name(), of.hosts.len(), room);
        return Err(PlaceError::FewTasks {
            n,
            slots,
            hosts,
            of,
        }
        .into());
    }
    if let (Some(n), Some(_)) = (n, nodes) {
        let even = Layout::new(Some(n), Some(hosts.len() as u32), None)?;
        let fits = |(node, host): (u32, &Host)| even.ranks(node).len() as u32 <= slots(host);
        if (0..).zip(hosts).all(fits) {
            return Ok(even);
        }
    }
    Layout::on_hosts(n, hosts, None).map_err(|e: PlanError| e.into())
}

/// PEs get variables all the same that are none of what starts agents.
pub(super) fn keep(without: &[String], env: &mut Vec<EnvVar>) {
    for name in without {
        if let Some(value) = std::env::var_os(name)
            && env.iter().all(|(known, _)| known != name.as_bytes())
        {
            env.push((name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        }
    }
}
