//! What a PE tells about its init and finalize, where settings ask for it.

use std::fmt::Write;

use shmem_node::machine::Size;
use shmem_node::settings::{self, Settings};

use shmem_mpi::{Mpi, State};

use crate::attach::Attached;
use crate::fault;
use crate::pmi::Pmi;
use crate::runtime::Runtime;
use crate::statics::Statics;
use crate::stderr;
use crate::version::{SPEC_VERSION, VENDOR};

/// What settings ask to be told when a PE has started for the `life`th time.
pub(super) fn started(rt: &Runtime, settings: &Settings, life: u32) {
    if rt.me == 0 && life == 1 && (settings.version || settings.info) {
        let mut text = String::new();
        if settings.version {
            let (major, minor) = SPEC_VERSION;
            let _ = writeln!(text, "{VENDOR} (OpenSHMEM {major}.{minor})");
        }
        if settings.info {
            text += &settings::text(settings::Given::by_environment);
        }
        print!("{text}");
    }
    if settings.debug {
        let statics = match rt.ranges.statics {
            Statics::Shared(stretches) => {
                let bytes: usize = stretches.iter().map(|s| s.len).sum();
                format!("{} of static data is symmetric", Size(bytes as u64))
            }
            Statics::Private(why) => format!("static data is private: {why}"),
        };
        stderr::write(&format!(
            "PE {} of {} on node {} of {} (pid {}): initialised, heap of {} at {:#x}, {statics}",
            rt.me,
            rt.n_pes,
            rt.nodes.mine,
            rt.node.n_nodes(),
            std::process::id(),
            Size(rt.ranges.heap_len as u64),
            rt.ranges.heap,
        ));
    }
}

/// MPI that has begun without the launcher, and so as a world of this process alone: nothing fails where ranks are used,
/// but every process does all the work. Foreign launchers' jobs are refused then.
pub(super) fn mpi_is_alone(attached: &Attached, mpi: &'static Mpi) {
    let of_shmrun = matches!(attached.pmi, Pmi::Agent(_)) && attached.node.n_pes() > 1;
    if of_shmrun
        && mpi.state() == State::Initialised
        && mpi.world().is_ok_and(|world| world.size() == 1)
    {
        fault::complain(
            "MPI says that this process is rank 0 of 1: shmrun could not see that the program uses this MPI library. \
             shmrun --pmix starts scripts, interpreters and programs that load Open MPI",
        );
    }
}

/// What they ask to be told when it has finalized.
pub(super) fn finalized(me: usize) {
    if Settings::from_env().is_ok_and(|s| s.debug) {
        stderr::write(&format!("PE {me}: finalized"));
    }
}
