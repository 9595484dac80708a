//! Slurm's allocations.
//!
//! Inside a step `srun` sets `SLURM_NTASKS`, `SLURM_NNODES` and `SLURM_TASKS_PER_NODE` to what the step has,
//! while `SLURM_JOB_*` stay those of the job. A step of one task, say an interactive shell, may start the job
//! on all of the allocation, whose tasks are then counted by its processors.
//!
//! # srun as a remote shell
//! Each agent is a step of one task that shares what the job has with all others (`--overlap`, `--mem=0`),
//! bound to nothing, for agents and PEs use all of the node. Output is passed on as it comes
//! (`--unbuffered`; else only by lines). Variables by which the job's script tells `srun` how its steps are
//! to be are kept from it, since this is no step of theirs; PEs get them all the same.

use shmem_node::settings::Batch;

use super::{Allocation, AllocationError, Surroundings, hostlist, number, shown, var};
use crate::hosts::Host;
use crate::remote::RemoteShell;

const NODES: &str = "SLURM_JOB_NODELIST";
const TASKS: &str = "SLURM_TASKS_PER_NODE";
const CPUS: &str = "SLURM_JOB_CPUS_PER_NODE";

/// The job that this process is in.
pub(super) fn read(around: &impl Surroundings) -> Result<Option<Allocation>, AllocationError> {
    let Some(job) = var(around, "SLURM_JOB_ID").or_else(|| var(around, "SLURM_JOBID")) else {
        return Ok(None);
    };
    let step = number(around, "SLURM_STEP_NUM_TASKS")?;
    if let Some(tasks @ 2..) = step
        // The shell on a terminal is the first of the tasks, and the others have nothing to do.
        && var(around, "SLURM_PTY_PORT").is_none()
    {
        return Err(AllocationError::Task {
            by: "srun",
            tasks,
            once: "salloc",
            instead: format!("srun --mpi=pmi2 -n {tasks} PROGRAM"),
            rank: number(around, "SLURM_PROCID")?.unwrap_or(0),
        });
    }
    let old = "SLURM_NODELIST";
    let named = [NODES, old]
        .into_iter()
        .find_map(|n| Some((n, var(around, n)?)));
    let Some((name, list)) = named else {
        return Err(AllocationError::Unclear {
            what: format!("Slurm job {job} does not say which nodes it has: {NODES} is not set"),
        });
    };
    let names = hostlist::expand(&list).map_err(|why| AllocationError::Value {
        name,
        value: shown(&list),
        why,
    })?;
    // Those of the step are for other nodes than the job's, and of other tasks.
    let of_job = step.is_none();
    let counted = if of_job { [TASKS, CPUS] } else { [CPUS, CPUS] };
    let mut source = format!("{name}={}", shown(&list));
    let mut slots: Vec<Option<u32>> = vec![None; names.len()];
    for name in counted {
        let Some(text) = var(around, name) else {
            continue;
        };
        let counts = hostlist::counts(&text).map_err(|why| AllocationError::Value {
            name,
            value: shown(&text),
            why,
        })?;
        if counts.len() == names.len() && counts.iter().all(|&n| n > 0) {
            source += &format!(", {name}={}", shown(&text));
            slots = counts.into_iter().map(Some).collect();
            break;
        }
    }
    let tasks = if of_job {
        number(around, "SLURM_NTASKS")?
    } else {
        None
    };
    if let Some(tasks) = tasks {
        source += &format!(", SLURM_NTASKS={tasks}");
    }
    let mut notes = Vec::new();
    if let Some(groups @ 2..) = number(around, "SLURM_HET_SIZE")? {
        notes.push(format!(
            "Slurm job {job} has {groups} groups of nodes; shmrun uses those of the first"
        ));
    }
    let host = |(name, slots)| Host {
        slots,
        ..Host::new(name)
    };
    Ok(Some(Allocation {
        batch: Batch::Slurm,
        job,
        hosts: names.into_iter().zip(slots).map(host).collect(),
        tasks: tasks.filter(|&n| n > 0),
        source,
        own_name: var(around, "SLURMD_NODENAME"),
        notes,
    }))
}

/// What asks `srun` for another kind of step, beside what its options here say.
const OF_OTHER_STEPS: &[&str] = &[
    "SLURM_BCAST",
    "SLURM_CORE_SPEC",
    "SLURM_CPUS_PER_GPU",
    "SLURM_CPUS_PER_TASK",
    "SLURM_CPU_BIND",
    "SLURM_CPU_BIND_LIST",
    "SLURM_CPU_BIND_TYPE",
    "SLURM_CPU_BIND_VERBOSE",
    "SLURM_DISTRIBUTION",
    "SLURM_EXACT",
    "SLURM_EXCLUSIVE",
    "SLURM_GPUS_PER_TASK",
    "SLURM_GPU_BIND",
    "SLURM_HINT",
    "SLURM_HOSTFILE",
    "SLURM_IMMEDIATE",
    "SLURM_LABELIO",
    "SLURM_MEM_BIND",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_GPU",
    "SLURM_MEM_PER_NODE",
    "SLURM_NTASKS_PER_CORE",
    "SLURM_NTASKS_PER_GPU",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_NTASKS_PER_SOCKET",
    "SLURM_NTASKS_PER_TRES",
    "SLURM_OVERCOMMIT",
    "SLURM_RESV_PORTS",
    "SLURM_THREADS_PER_CORE",
    "SLURM_TIMELIMIT",
    "SLURM_TRES_PER_TASK",
    "SLURM_WAIT",
    "SRUN_CPUS_PER_TASK",
    "SRUN_EXPORT_ENV",
];

/// How a process is started on a node of the job.
pub(super) fn starter() -> RemoteShell {
    const OPTIONS: &str = "srun --overlap --nodes=1 --ntasks=1 --nodelist={host} --mpi=none --mem=0 \
         --cpu-bind=none --export=ALL --input=all --output=all --error=all --unbuffered --quiet {command}";
    RemoteShell {
        words: OPTIONS.split_whitespace().map(str::to_owned).collect(),
        without: OF_OTHER_STEPS.iter().map(|&name| name.to_owned()).collect(),
        ..RemoteShell::default()
    }
}
