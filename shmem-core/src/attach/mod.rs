//! How a process comes to its job: its number, the memory of its node, and a way to the process manager.
//!
//! There is a way in for each kind of start. [`shmrun`] takes what a launch agent has prepared; [`foreign`]
//! does without an agent, under other launchers that speak PMI or PMIx; [`alone`] makes a job of one PE. Only
//! `foreign` may wait, for PEs of the same node.

mod alone;
mod attached;
mod foreign;
mod segment;
mod shmrun;

use shmem_node::settings::Settings;
use shmem_pmi::process::launchers::{self, Launcher};

pub(crate) use self::attached::{Attached, attached, exit_ends_job, process_exits, set_pe};
use crate::error::Error;

/// What ties this process to its job: found when this is called first.
pub(crate) fn attach(settings: &Settings) -> Result<&'static Attached, Error> {
    attached::attached_or(|| match found_launcher()? {
        Launcher::Agent(version) => shmrun::attach(&version),
        Launcher::Pmi => foreign::join(settings),
        Launcher::Nobody => alone::alone(settings),
    })
}

/// In a template: does what is the same for all PEs that it forks. What goes wrong they find out themselves.
pub(crate) fn prepare() {
    if let Ok(Launcher::Agent(version)) = found_launcher() {
        shmrun::prepare(&version);
    }
}

/// What the environment sets. If that makes no sense, and the launcher would not notice, it is told.
pub(crate) fn settings() -> Result<Settings, Error> {
    let settings = Settings::from_env().map_err(Error::from);
    settings.inspect_err(|why| {
        if attached().is_none() && matches!(found_launcher(), Ok(Launcher::Pmi)) {
            foreign::refuse_settings(why);
        }
    })
}

fn found_launcher() -> Result<Launcher, Error> {
    let found = launchers::launcher(|name| std::env::var(name).ok());
    found.map_err(|refused| Error::Launch(refused.to_string()))
}
