//! Allocations of which a file or a variable lists the hosts, and nothing else is to be known: those of PBS
//! and Torque, LSF, and Grid Engine.

use shmem_node::settings::Batch;

use super::{Allocation, AllocationError, Surroundings, number, shown, var};
use crate::hosts::{self, Host};

/// The file that a variable names.
fn file(
    around: &impl Surroundings,
    name: &'static str,
) -> Result<Option<(String, String)>, AllocationError> {
    let Some(path) = var(around, name) else {
        return Ok(None);
    };
    match around.file(&path) {
        Ok(text) => Ok(Some((path, text))),
        Err(e) => Err(AllocationError::File {
            name,
            path,
            why: e.to_string(),
        }),
    }
}

fn allocation(
    batch: Batch,
    job: String,
    hosts: Vec<Host>,
    tasks: Option<u32>,
    source: String,
) -> Allocation {
    // Lists of batch systems have a line for every slot.
    let counted = |host: Host| Host {
        slots: host.slots.or(Some(1)),
        ..host
    };
    Allocation {
        batch,
        job,
        hosts: hosts.into_iter().map(counted).collect(),
        tasks,
        source,
        own_name: None,
        notes: Vec::new(),
    }
}

/// A list of hosts in a file with a line for each slot.
fn lines(
    batch: Batch,
    name: &'static str,
    (path, text): &(String, String),
) -> Result<(Vec<Host>, String), AllocationError> {
    match hosts::parse_file(path, text) {
        Ok(parsed) => Ok((parsed.hosts, format!("{name}={path}"))),
        Err(error) => Err(AllocationError::Hosts { batch, error }),
    }
}

/// The PBS or Torque job that this process is in.
pub(super) fn pbs(around: &impl Surroundings) -> Result<Option<Allocation>, AllocationError> {
    const NODES: &str = "PBS_NODEFILE";
    let Some(job) = var(around, "PBS_JOBID") else {
        return Ok(None);
    };
    let Some(found) = file(around, NODES)? else {
        return Err(AllocationError::Unclear {
            what: format!("PBS job {job} does not say which hosts it has: {NODES} is not set"),
        });
    };
    let (hosts, source) = lines(Batch::Pbs, NODES, &found)?;
    Ok(Some(allocation(Batch::Pbs, job, hosts, None, source)))
}

/// The LSF job that this process is in.
pub(super) fn lsf(around: &impl Surroundings) -> Result<Option<Allocation>, AllocationError> {
    const FILE: &str = "LSB_DJOB_HOSTFILE";
    const COUNTED: &str = "LSB_MCPU_HOSTS";
    const NAMES: &str = "LSB_HOSTS";
    let Some(job) = var(around, "LSB_JOBID") else {
        return Ok(None);
    };
    let tasks = number(around, "LSB_DJOB_NUMPROC")?;
    let (hosts, source) = if let Some(found) = file(around, FILE)? {
        lines(Batch::Lsf, FILE, &found)?
    } else if let Some(text) = var(around, COUNTED) {
        let words: Vec<&str> = text.split_whitespace().collect();
        if words.len() % 2 == 1 {
            return Err(AllocationError::Value {
                name: COUNTED,
                value: shown(&text),
                why: "names and numbers should alternate".into(),
            });
        }
        let pairs = words
            .chunks_exact(2)
            .map(|pair| format!("{}:{}\n", pair[0], pair[1]));
        let found = (COUNTED.to_owned(), pairs.collect());
        (
            lines(Batch::Lsf, COUNTED, &found)?.0,
            format!("{COUNTED}={}", shown(&text)),
        )
    } else if let Some(text) = var(around, NAMES) {
        let found = (
            NAMES.to_owned(),
            text.split_whitespace().collect::<Vec<_>>().join("\n"),
        );
        (
            lines(Batch::Lsf, NAMES, &found)?.0,
            format!("{NAMES}={}", shown(&text)),
        )
    } else {
        return Err(AllocationError::Unclear {
            what: format!(
                "LSF job {job} does not say which hosts it has: neither {FILE} nor {COUNTED} nor {NAMES} is set"
            ),
        });
    };
    Ok(Some(allocation(Batch::Lsf, job, hosts, tasks, source)))
}

/// The Grid Engine job that this process is in, if it has a parallel environment: `HOST SLOTS QUEUE
/// PROCESSORS` on each line.
pub(super) fn sge(around: &impl Surroundings) -> Result<Option<Allocation>, AllocationError> {
    const HOSTS: &str = "PE_HOSTFILE";
    let Some((path, text)) = file(around, HOSTS)? else {
        return Ok(None);
    };
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, slots) = (words.next()?, words.next().unwrap_or("1"));
        Some(format!("{name} slots={slots}"))
    };
    let listed: Vec<String> = text.lines().map(|l| line(l).unwrap_or_default()).collect();
    let (hosts, source) = lines(Batch::Sge, HOSTS, &(path, listed.join("\n")))?;
    let job = var(around, "JOB_ID").unwrap_or_else(|| "of unknown number".into());
    let tasks = number(around, "NSLOTS")?;
    Ok(Some(allocation(Batch::Sge, job, hosts, tasks, source)))
}
