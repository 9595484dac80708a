//! The programs of a job, found where they are to run.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::environment::is_setting;
use super::{JobError, environment};
use crate::cli::{Cli, Segment};
use crate::frame::Command;
use crate::plan::PlanError;
use crate::program::{self, ProgramError};
use shmem_node::contract::MAX_PES;

/// Finds a program as seen from the directory in which it is to run.
pub(super) fn locate(
    dir: &Path,
    name: &OsStr,
    path: Option<OsString>,
) -> Result<PathBuf, ProgramError> {
    if name.as_bytes().contains(&b'/') {
        return program::find(dir.join(name).as_os_str(), None);
    }
    let path = path.unwrap_or_else(|| "/bin:/usr/bin".into());
    // What it was split at cannot be in any of them; a directory that has it is not searched.
    let dirs = std::env::split_paths(&path).map(|of| dir.join(of));
    program::find(name, Some(std::env::join_paths(dirs).unwrap_or(path)))
}

/// The processes of all programs together, if there are several: each has one where it was not said.
pub(super) fn total(cli: &Cli) -> Result<Option<u32>, PlanError> {
    if cli.more.is_empty() {
        return Ok(cli.pes);
    }
    let mut all = 0u64;
    for program in cli.programs() {
        let procs = program.pes.unwrap_or(1);
        if procs == 0 {
            return Err(PlanError::Zero { option: "-n" });
        }
        all += u64::from(procs);
    }
    match u32::try_from(all) {
        Ok(n) if n <= MAX_PES => Ok(Some(n)),
        _ => Err(PlanError::TooMany {
            n: all,
            option: "-n",
        }),
    }
}

/// The programs that were typed. `cwd` is the working directory of the job; a single program has all
/// `n_pes`, and no directory and variables but those of the job.
pub(super) fn typed(cli: &Cli, cwd: &Path, n_pes: u32) -> Result<Vec<Command>, JobError> {
    let all = cli.programs();
    let several = all.len() > 1;
    let path = std::env::var_os("PATH");
    let one = |program: &Segment| {
        let dir = program.chdir.as_ref().filter(|_| several);
        let dir = dir.map(|dir| cwd.join(dir));
        if let Some(Err(source)) = dir.as_ref().map(std::fs::read_dir) {
            return Err(JobError::Chdir {
                dir: dir.unwrap_or_default().display().to_string(),
                source,
            });
        }
        let name = program.command.first().map_or(OsStr::new(""), |n| n);
        // A path that was typed stays as it is: it is what the program finds as its own name.
        let found = match &dir {
            Some(dir) => locate(dir, name, path.clone())?,
            None => program::find(name, path.clone())?,
        };
        let env = match several {
            true => environment::typed(&program.env, std::env::vars_os())?,
            false => Vec::new(),
        };
        let setting = |name: &[u8]| is_setting(OsStr::from_bytes(name));
        if let Some((name, _)) = env.iter().find(|(name, _)| setting(name)) {
            let name = String::from_utf8_lossy(name).into_owned();
            return Err(JobError::SettingOfOne { name });
        }
        Ok(Command {
            procs: match several {
                true => program.pes.unwrap_or(1),
                false => n_pes,
            },
            program: found.into_os_string().into_vec(),
            argv: program
                .command
                .iter()
                .map(|a| a.as_bytes().to_vec())
                .collect(),
            dir: dir.map(|dir| dir.into_os_string().into_vec()),
            env,
        })
    };
    all.iter().map(one).collect()
}
