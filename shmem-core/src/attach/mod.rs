//! How a process comes to its job: its number, the memory of its node, and a way to the process manager.
//!
//! There is a way in for each kind of start. [`shmrun`] takes what a launch agent has prepared; [`foreign`]
//! does without an agent, under other launchers that speak PMI or PMIx or have started MPI, and without any launcher where there is an
//! id ([`by_id`]); [`alone`] makes a job of one PE. Only `foreign` may wait, for PEs of the same node, and with an id for all.

mod alone;
mod attached;
mod by_id;
mod foreign;
mod segment;
mod shmrun;

use shmem_node::contract::ENV_NODE;
use shmem_node::segment::NodeView;
use shmem_node::settings::Settings;
use shmem_pmi::process::Beside;
use shmem_pmi::process::launchers::{self, Launcher};

pub(crate) use self::attached::{Attached, attached, exit_ends_job, process_exits, set_pe};
pub(crate) use self::by_id::Start;
use crate::error::Error;

/// What ties this process to its job: found when this is called first. `start` says which job, if the environment
/// does not.
pub(crate) fn attach(
    settings: &Settings,
    start: Option<&Start>,
) -> Result<&'static Attached, Error> {
    let attached = attached::attached_or(|| {
        if let Some(start) = started_by(settings, start)? {
            return foreign::join_by_id(settings, &start);
        }
        match found_launcher()? {
            Launcher::Agent(version) => shmrun::attach(&version),
            Launcher::Pmi | Launcher::Mpi => foreign::join(settings),
            Launcher::Nobody => alone::alone(settings),
        }
    })?;
    check_same_job(start)?;
    Ok(attached)
}

/// Whether the job that this process belongs to, if it does, is the one of `start`: it can be a PE of one only.
pub(crate) fn check_same_job(start: Option<&Start>) -> Result<(), Error> {
    let (Some(start), Some(attached)) = (start, attached()) else {
        return Ok(());
    };
    let same = attached.pmi.is_of(&start.id)
        && (attached.me, attached.node.n_pes()) == (start.rank as usize, start.size as usize);
    match same {
        true => Ok(()),
        false => Err(Error::Launch(format!(
            "this process is PE {} of {} of another job, and can only become that again: a process can be a PE of one job. \
             Start a new process for each job",
            attached.me,
            attached.node.n_pes()
        ))),
    }
}

/// In a template: does what is the same for all PEs that it forks, and returns the memory of its node. What goes
/// wrong they find out themselves.
pub(crate) fn prepare() -> Option<NodeView> {
    match found_launcher() {
        Ok(Launcher::Agent(version)) => shmrun::prepare(&version),
        _ => None,
    }
}

/// What the environment sets. If that makes no sense, and the launcher would not notice, it is told; without a
/// launcher the other processes of the job are.
pub(crate) fn settings(start: Option<&Start>) -> Result<Settings, Error> {
    let settings = Settings::from_env().map_err(Error::from);
    settings.inspect_err(|why| {
        if attached().is_some() {
            return;
        }
        let sensible = by_id::settings_alone(variable);
        if let Ok(Some(start)) = started_by(&sensible, start) {
            foreign::refuse_settings_by_id(&sensible, &start, why);
        } else if matches!(found_launcher(), Ok(Launcher::Pmi | Launcher::Mpi)) {
            foreign::refuse_settings(why);
        }
    })
}

/// Whether this PE compares the collectives that it calls with those of other PEs.
pub(crate) fn compares(settings: &Settings) -> bool {
    settings.check.unwrap_or(cfg!(debug_assertions))
}

/// The job without a launcher that an argument of init or else the environment names.
fn started_by(settings: &Settings, start: Option<&Start>) -> Result<Option<Start>, Error> {
    match start {
        Some(start) => Ok(Some(start.clone())),
        None => Start::from_environment(settings, variable),
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn found_launcher() -> Result<Launcher, Error> {
    // An agent of ours is asked whatever else there is.
    let beside = match variable(ENV_NODE) {
        Some(_) => None,
        None => Beside::now(),
    };
    let found = launchers::launcher_beside(variable, beside.as_ref());
    found.map_err(|refused| Error::Launch(refused.to_string()))
}
