//! The allocation that `shmrun` is in: which hosts a batch system has given to the job, how many tasks each
//! of them is for, and how that batch system starts a process on one of them.
//!
//! Everything is read from what the batch systems document: variables, files that these name, and for Flux
//! two of its commands. How they are looked up is somebody else's ([`Surroundings`]), so this is pure.
//!
//! | batch system | found by | hosts and tasks | agents are started by |
//! |---|---|---|---|
//! | Flux | `FLUX_URI` | `flux resource R` | `ssh` |
//! | Slurm | `SLURM_JOB_ID` | `SLURM_JOB_NODELIST`, `SLURM_TASKS_PER_NODE`, `SLURM_NTASKS` | `srun --overlap` |
//! | LSF | `LSB_JOBID` | `LSB_DJOB_HOSTFILE`, `LSB_MCPU_HOSTS`, `LSB_HOSTS` | `blaunch` |
//! | PBS, Torque | `PBS_JOBID` | `PBS_NODEFILE` | `ssh`, and `pbs_attach` where there is one |
//! | Grid Engine | `PE_HOSTFILE` | `PE_HOSTFILE` | `qrsh -inherit` |
//!
//! Flux is looked for first, since it may run as a job of another one. `flux exec` is no way to start agents: it
//! keeps what a command writes until its buffer is full, and drops what follows a zero byte. Nor are
//! `pbsdsh` and `pbs_tmrsh`, which pass no standard input.

mod flux;
pub mod hostlist;
mod others;
mod slurm;

use std::collections::HashMap;
use std::io;

use shmem_node::settings::{AllocationChoice, Batch};

use crate::hosts::{Host, HostsError};
use crate::remote::RemoteShell;

/// Where allocations are described.
pub trait Surroundings {
    /// The value of a variable.
    fn var(&self, name: &str) -> Option<String>;

    /// The content of a file.
    ///
    /// # Errors
    /// When it cannot be read.
    fn file(&self, path: &str) -> io::Result<String>;

    /// What a command writes.
    ///
    /// # Errors
    /// What to say when it fails.
    fn output(&self, words: &[&str]) -> Result<String, String>;

    /// Where a command is that can be executed.
    fn command(&self, name: &str) -> Option<String>;
}

/// Hosts that a batch system has given to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// Whose they are.
    pub batch: Batch,
    /// Number of the job.
    pub job: String,
    /// The hosts, with a slot for each task that is meant for them.
    pub hosts: Vec<Host>,
    /// Tasks of the job, if they are not as many as slots.
    pub tasks: Option<u32>,
    /// What all of this was read from.
    pub source: String,
    /// What the batch system calls this machine, if it says so.
    pub own_name: Option<String>,
    /// What the user should know of it.
    pub notes: Vec<String>,
}

/// An allocation that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocationError {
    /// A variable says what cannot be understood.
    #[error("{name}={value}: {why}; SHMEM_ALLOCATION=none does without the allocation")]
    Value {
        /// The variable.
        name: &'static str,
        /// Its value, or the beginning of it.
        value: String,
        /// What is wrong.
        why: String,
    },
    /// Variables that do not go together.
    #[error("{what}; SHMEM_ALLOCATION=none does without the allocation, --hosts names hosts")]
    Unclear {
        /// What is missing or wrong.
        what: String,
    },
    /// A file cannot be read.
    #[error("{name}={path}: {why}; SHMEM_ALLOCATION=none does without the allocation")]
    File {
        /// The variable that names it.
        name: &'static str,
        /// Its path.
        path: String,
        /// Why.
        why: String,
    },
    /// A file has something else in it.
    #[error("the hosts of the {} job: {error}", batch_name(*batch))]
    Hosts {
        /// Whose.
        batch: Batch,
        /// What.
        error: HostsError,
    },
    /// One was asked for where there is none.
    #[error("this is no {} job: {name} is not set", batch_name(*batch))]
    Absent {
        /// Whose.
        batch: Batch,
        /// What would tell.
        name: &'static str,
    },
    /// This is one of many tasks, all of which would start the job.
    #[error(
        "{by} has started shmrun {tasks} times, and each would start the whole job; start shmrun once, in the \
         job's script or behind {once}, or start the program itself: {instead}"
    )]
    Task {
        /// Who has.
        by: &'static str,
        /// How often.
        tasks: u32,
        /// What starts one.
        once: &'static str,
        /// What starts the program without shmrun.
        instead: String,
        /// Which of them this is.
        rank: u32,
    },
}

impl AllocationError {
    /// Whether another process says it, too.
    pub fn is_told_by_another(&self) -> bool {
        matches!(self, Self::Task { rank: 1.., .. })
    }
}

/// What a batch system is called in messages.
pub fn batch_name(batch: Batch) -> &'static str {
    match batch {
        Batch::Slurm => "Slurm",
        Batch::Pbs => "PBS",
        Batch::Lsf => "LSF",
        Batch::Flux => "Flux",
        Batch::Sge => "Grid Engine",
    }
}

/// The variable without which there is no allocation of a batch system.
fn marker(batch: Batch) -> &'static str {
    match batch {
        Batch::Slurm => "SLURM_JOB_ID",
        Batch::Pbs => "PBS_JOBID",
        Batch::Lsf => "LSB_JOBID",
        Batch::Flux => "FLUX_URI",
        Batch::Sge => "PE_HOSTFILE",
    }
}

/// Finds the allocation that this process is in.
///
/// # Errors
/// When there is one that cannot be used, or not the one that was asked for.
pub fn find(
    choice: AllocationChoice,
    around: &impl Surroundings,
) -> Result<Option<Allocation>, AllocationError> {
    let read = |batch| match batch {
        Batch::Slurm => slurm::read(around),
        Batch::Pbs => others::pbs(around),
        Batch::Lsf => others::lsf(around),
        Batch::Flux => flux::read(around),
        Batch::Sge => others::sge(around),
    };
    match choice {
        AllocationChoice::None => Ok(None),
        AllocationChoice::Of(batch) => match read(batch)? {
            Some(found) => Ok(Some(found)),
            None => Err(AllocationError::Absent {
                batch,
                name: marker(batch),
            }),
        },
        AllocationChoice::Auto => {
            for batch in [
                Batch::Flux,
                Batch::Slurm,
                Batch::Lsf,
                Batch::Pbs,
                Batch::Sge,
            ] {
                if let Some(found) = read(batch)? {
                    return Ok(Some(found));
                }
            }
            Ok(None)
        }
    }
}

impl Allocation {
    /// `Slurm job 12`.
    pub fn name(&self) -> String {
        let job = match self.batch {
            Batch::Flux => "instance",
            _ => "job",
        };
        format!("{} {job} {}", batch_name(self.batch), self.job)
    }

    /// Names of its hosts, for people.
    pub fn host_names(&self) -> String {
        hostlist::fold(self.hosts.iter().map(|h| h.name.as_str()))
    }

    /// How its batch system starts a process on a host. What else there is to know of starts is for the
    /// caller to fill in.
    pub fn starter(&self, around: &impl Surroundings) -> RemoteShell {
        let shell = |words: &str| RemoteShell {
            words: words.split_whitespace().map(str::to_owned).collect(),
            ..RemoteShell::default()
        };
        match self.batch {
            Batch::Slurm => slurm::starter(),
            Batch::Flux => shell("ssh"),
            Batch::Lsf => shell("blaunch {host} {command}"),
            Batch::Sge => shell("qrsh -inherit -V {host} {command}"),
            Batch::Pbs => RemoteShell {
                before: match around.command("pbs_attach") {
                    Some(attach) => vec![attach, "-j".into(), self.job.clone()],
                    None => Vec::new(),
                },
                ..shell("ssh")
            },
        }
    }

    /// Whether an agent that the batch system has started may start others in the same way. It is not
    /// documented of `blaunch`, and `qrsh -inherit` is for the first host alone.
    pub fn starts_everywhere(&self) -> bool {
        !matches!(self.batch, Batch::Lsf | Batch::Sge)
    }

    /// Its hosts by their names.
    pub fn by_name(&self) -> ByName<'_> {
        let mut all = ByName::default();
        for host in &self.hosts {
            all.full.entry(&host.name).or_insert(host);
            all.short.entry(without_domain(&host.name)).or_insert(host);
        }
        all
    }
}

/// Hosts of an allocation, to be found as a user may name them: with or without their domains.
#[derive(Debug, Default)]
pub struct ByName<'a> {
    full: HashMap<&'a str, &'a Host>,
    short: HashMap<&'a str, &'a Host>,
}

impl<'a> ByName<'a> {
    /// The host of this name.
    pub fn get(&self, name: &str) -> Option<&'a Host> {
        let found = self.full.get(name).or_else(|| self.short.get(name));
        found
            .or_else(|| self.full.get(without_domain(name)))
            .copied()
    }
}

fn without_domain(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// Whether two names are of one machine of an allocation, one of them perhaps without its domain.
pub fn same_host(a: &str, b: &str) -> bool {
    a == b || without_domain(a) == b || without_domain(b) == a
}

/// The beginning of a value, for a message.
fn shown(value: &str) -> String {
    const SHOWN: usize = 80;
    match value.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &value[..end]),
        None => value.to_owned(),
    }
}

/// A variable with a value that is not empty.
fn var(around: &impl Surroundings, name: &str) -> Option<String> {
    around.var(name).filter(|value| !value.trim().is_empty())
}

/// A number that a variable holds.
fn number(around: &impl Surroundings, name: &'static str) -> Result<Option<u32>, AllocationError> {
    let parse = |value: String| {
        value.trim().parse().map_err(|_| AllocationError::Value {
            name,
            value: shown(&value),
            why: "this is no number".into(),
        })
    };
    var(around, name).map(parse).transpose()
}

#[cfg(test)]
mod tests;
