//! Why a job is refused, and the exit status that says so.

use crate::allocation::AllocationError;
use crate::binding::TooFew;
use crate::exit::{LAUNCHER, NOT_EXECUTABLE, USAGE};
use crate::hosts::HostsError;
use crate::limits::LimitError;
use crate::memory::MemoryError;
use crate::plan::PlanError;
use crate::program::ProgramError;
use shmem_node::hca_address::AddressError;

/// Hosts that a job cannot have.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum PlaceError {
    #[error(transparent)]
    Hosts(#[from] HostsError),
    #[error("--hostfile {file}: {source}")]
    HostFile {
        file: String,
        source: std::io::Error,
    },
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    #[error("{option} is for jobs on several hosts; name them with --hosts or --hostfile")]
    NoHosts { option: &'static str },
    #[error(
        "--launcher fork keeps all nodes on this machine, and hosts were named; leave one of them out (--nodes K \
         emulates K nodes)"
    )]
    Fork,
    #[error(
        "host {host} is not one of {of}, and cannot be reached by --launcher {launcher}; --launcher ssh may reach it"
    )]
    NotOfAllocation {
        host: String,
        of: String,
        launcher: &'static str,
    },
    #[error(
        "--nodes {nodes}: {of} has {have} hosts; ask it for more, or emulate nodes on this machine with --launcher fork"
    )]
    FewHosts { nodes: u32, have: usize, of: String },
    #[error(
        "{n} PEs are more than the {slots} tasks of {of}; ask for as many tasks, lower -n, or say with --ppn how many \
         PEs each of its {hosts} hosts is to have"
    )]
    FewTasks {
        n: u32,
        slots: u64,
        hosts: usize,
        of: String,
    },
    #[error("what starts agents on other hosts (--launcher, SHMEM_LAUNCHER) cannot be used: {0}")]
    NoLauncher(ProgramError),
    #[error("cannot tell the path of shmrun (--remote-shmrun gives that on other hosts): {0}")]
    Path(std::io::Error),
}

impl PlaceError {
    pub(super) fn status(&self) -> u8 {
        match self {
            Self::NoLauncher(e) => e.status(),
            Self::Path(_) => LAUNCHER,
            _ => USAGE,
        }
    }
}

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
