//! Jobs that PEs spawn (`MPI_Comm_spawn`): what is passed on to their launcher, and what it makes of the
//! request.
//!
//! | info key | what it does |
//! |---|---|
//! | `wdir` | working directory of a program |
//! | `path` | directories, with colons between them, in which a program without slash is looked for |
//! | `host`, `hosts` | hosts to run on, as for `--hosts`; those of all programs together |
//!
//! Others are hints for other launchers and have no effect. Without hosts, a spawned job gets nodes
//! like those of the job that spawned it, but no more than it has processes; slots of hosts do not
//! count, since the other job uses them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use shmem_node::contract::ENV_PMI_SPAWNED;
use shmem_node::settings::Settings;
use shmem_pmi::question::SpawnCommand;

use super::{DraftJob, Job, JobError, Place, complete, programs, working_directory};
use crate::cli::Cli;
use crate::frame::{Command, SpawnedJob, Spawner};
use crate::hosts::{self, Host};
use crate::plan::Layout;

/// The value of an info key.
fn info<'a>(command: &'a SpawnCommand, keys: &[&str]) -> Option<&'a OsStr> {
    let mut pairs = command.info.iter();
    let pair = pairs.find(|(key, _)| keys.iter().any(|k| k.as_bytes() == key))?;
    Some(OsStr::from_bytes(&pair.1))
}

/// The hosts that the programs name, those of each once.
fn wanted_hosts(commands: &[SpawnCommand]) -> Result<Option<Vec<Host>>, JobError> {
    let mut all: Vec<Host> = Vec::new();
    for list in commands.iter().filter_map(|c| info(c, &["hosts", "host"])) {
        let value = list.to_string_lossy();
        let named = hosts::parse_list(&value).map_err(|e| JobError::Info {
            key: "host",
            why: e.to_string(),
            value: value.into_owned(),
        })?;
        for host in named {
            if all.iter().all(|h| h.name != host.name) {
                all.push(host);
            }
        }
    }
    Ok((!all.is_empty()).then_some(all))
}

/// A program to start, found where the request says. `cwd` is the working directory of the job.
fn command(wanted: &SpawnCommand, cwd: &Path) -> Result<Command, JobError> {
    let dir = info(wanted, &["wdir"]).map(|dir| cwd.join(dir));
    // What stands in the request is meant as seen from there.
    let place = dir.as_deref().unwrap_or(cwd);
    let bad = |key, value: &dyn std::fmt::Display, why: &dyn std::fmt::Display| JobError::Info {
        key,
        value: value.to_string(),
        why: why.to_string(),
    };
    if let Err(e) = std::fs::read_dir(place) {
        return Err(bad("wdir", &place.display(), &e));
    }
    let path = info(wanted, &["path"]).map(OsStr::to_owned);
    let path = path.or_else(|| std::env::var_os("PATH"));
    let program = programs::locate(place, OsStr::from_bytes(&wanted.program), path)?;
    let argv = std::iter::once(&wanted.program).chain(&wanted.args);
    Ok(Command {
        procs: wanted.procs,
        program: program.into_os_string().into_vec(),
        argv: argv.cloned().collect(),
        dir: dir.map(|dir| dir.into_os_string().into_vec()),
        env: Vec::new(),
    })
}

/// Makes a job of what a PE asked for. `cli` holds what the job inherits that it belongs to.
pub(crate) fn prepare_spawned(
    cli: &Cli,
    settings: &Settings,
    start: u64,
    job: &SpawnedJob,
) -> Result<Job, JobError> {
    let cwd = working_directory()?;
    let commands = job.request.commands.iter();
    let commands: Vec<Command> = commands
        .map(|wanted| command(wanted, &cwd))
        .collect::<Result<_, _>>()?;
    // The launcher that passes this on has checked the sum.
    let total: u32 = commands.iter().map(|c| c.procs).sum();
    let mut place = match wanted_hosts(&job.request.commands)? {
        Some(hosts) => Place::on(hosts, settings)?,
        None => Place::find(cli, settings)?,
    };
    let layout = match &mut place.hosts {
        Some(hosts) => {
            hosts.iter_mut().for_each(|host| host.slots = None);
            Layout::on_hosts(Some(total), hosts, None)?
        }
        None => {
            let ppn = cli.inherited.ppn.map(|ppn| total.div_ceil(ppn.max(1)));
            let nodes = cli.inherited.nodes.or(ppn).unwrap_or(1);
            Layout::of(total, nodes.clamp(1, total))
        }
    };
    let mut cli = cli.clone();
    cli.inherited
        .env
        .push(format!("{ENV_PMI_SPAWNED}=1").into());
    let first = job.request.commands.first();
    let draft = DraftJob {
        place,
        layout,
        commands,
        name: first.map_or_else(OsString::new, |c| OsString::from_vec(c.program.clone())),
        cwd,
        spawner: Some(Spawner {
            job_id: job.spawner.clone(),
            preputs: job.request.preputs.clone(),
        }),
    };
    complete(&cli, settings, start, draft)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shmem_pmi::question::SpawnRequest;

    fn wanted(program: &str, procs: u32, info: &[(&str, &str)]) -> SpawnCommand {
        SpawnCommand {
            program: program.into(),
            args: vec![b"two words".to_vec()],
            procs,
            info: info
                .iter()
                .map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec()))
                .collect(),
        }
    }

    fn cli(line: &str) -> Cli {
        Cli::parse_args(line.split_whitespace().map(OsString::from)).unwrap()
    }

    #[test]
    fn options_are_passed_on_and_understood() {
        let given = cli("shmrun -n 4 --nodes 2 -l -x A=b --timeout 9 -x SHMEM_SPAWN=exec prog x");
        let args = ["shmrun".into(), "--spawned".into()]
            .into_iter()
            .chain(given.spawn_options);
        let theirs = Cli::parse_args(args).unwrap();
        assert!(theirs.spawned && theirs.inherited.label && theirs.command.is_empty());
        assert_eq!(
            (theirs.inherited.nodes, theirs.pes, theirs.timeout),
            (Some(2), None, None)
        );
        assert_eq!(theirs.inherited, given.inherited);
    }

    #[test]
    fn programs_are_found_as_the_request_says() {
        let cwd = std::env::current_dir().unwrap();
        let found = command(&wanted("sh", 2, &[]), &cwd).unwrap();
        assert!(found.program.ends_with(b"/sh") && found.dir.is_none());
        assert_eq!(found.argv, [b"sh".to_vec(), b"two words".to_vec()]);
        let found = command(&wanted("./sh", 1, &[("wdir", "/bin"), ("odd", "")]), &cwd).unwrap();
        assert_eq!(found.program, b"/bin/./sh");
        assert_eq!(found.dir, Some(b"/bin".to_vec()));
        let path = [("path", "/nonexistent:/bin")];
        let found = command(&wanted("sh", 1, &path), &cwd).unwrap();
        assert_eq!(found.program, b"/bin/sh");
        for (program, info) in [
            ("sh", ("path", "/nonexistent")),
            ("no-such-program", ("odd", "")),
            ("sh", ("wdir", "/nonexistent")),
        ] {
            assert!(command(&wanted(program, 1, &[info]), &cwd).is_err());
        }
    }

    #[test]
    fn a_spawned_job_has_the_nodes_of_its_parent_as_far_as_it_fills_them() {
        let settings = Settings::parse(|_| None).unwrap();
        let prepared = |line: &str, commands: Vec<SpawnCommand>| {
            let job = SpawnedJob {
                number: 1,
                spawner: "ab.0".into(),
                request: SpawnRequest {
                    commands,
                    preputs: vec![(b"k".to_vec(), b"v".to_vec())],
                },
            };
            prepare_spawned(&cli(line), &settings, 0, &job)
                .unwrap()
                .launch
        };
        let launch = prepared("shmrun --spawned --nodes 4", vec![wanted("sh", 2, &[])]);
        assert_eq!((launch.n_pes, launch.n_nodes), (2, 2));
        assert!(
            launch
                .env
                .contains(&(b"PMI_SPAWNED".to_vec(), b"1".to_vec()))
        );
        let spawner = launch.spawner.unwrap();
        assert_eq!((&spawner.job_id[..], spawner.preputs.len()), ("ab.0", 1));
        let two = vec![wanted("sh", 2, &[]), wanted("true", 3, &[])];
        let launch = prepared("shmrun --spawned --ppn 2", two);
        assert_eq!((launch.n_pes, launch.n_nodes), (5, 3));
        assert_eq!(launch.commands[1].procs, 3);
    }
}
