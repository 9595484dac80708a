//! Who has started this process, as its environment tells, and who cannot be talked to.
//!
//! Under a launcher whose language the library does not speak, each process would believe to be a job of
//! its own: N wrong answers instead of one. So such launchers are refused, unless they have started
//! one process only, which is a job of one PE whoever has started it.

use shmem_node::contract::{ENV_NODE, ENV_PMI_FD};

/// Address of a PMI-1 server that is connected to by TCP.
pub(super) const ENV_PMI_PORT: &str = "PMI_PORT";

/// Who is to be asked about the job.
#[derive(Debug, PartialEq, Eq)]
pub enum Launcher {
    /// The launch agent of `shmrun`, with the version of its contract.
    Agent(String),
    /// A process manager that speaks PMI-1 or PMI-2.
    Pmi,
    /// Nobody: this process is a job of one PE.
    Nobody,
}

/// A launcher that cannot be talked to has started several processes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this process was started by {who}, {found}: it cannot find its peers. Start the program with \
     {instead}shmrun -n {n} PROGRAM or mpiexec.hydra -n {n} PROGRAM; or unset {name} to run a single PE"
)]
pub struct Refused {
    /// The variable that gives it away.
    name: &'static str,
    who: &'static str,
    found: String,
    /// How it could be understood.
    instead: String,
    /// Number of processes.
    n: String,
}

/// What a launcher that we do not understand leaves in the environment.
struct Mark {
    /// The variable that gives it away.
    name: &'static str,
    /// Variables of which the first that is set says how many processes it has started.
    sizes: &'static [&'static str],
    who: &'static str,
    /// How it could be understood, before the ways that always work; `N` is the number of processes.
    instead: &'static str,
}

/// Looked for in this order: a launcher may itself have been started by one of those below it.
const MARKS: [Mark; 7] = [
    Mark {
        name: "OMPI_COMM_WORLD_RANK",
        sizes: &["OMPI_COMM_WORLD_SIZE"],
        who: "Open MPI's mpirun, which speaks PMIx only",
        instead: "",
    },
    Mark {
        name: "JSM_NAMESPACE_RANK",
        sizes: &["JSM_NAMESPACE_SIZE"],
        who: "jsrun, which speaks PMIx only",
        instead: "",
    },
    Mark {
        name: "PALS_RANKID",
        sizes: &["PALS_SIZE", "PMI_SIZE"],
        who: "HPE Cray's mpiexec, whose own PMI this library does not speak",
        instead: "",
    },
    // Slurm's tasks may have both marks: srun --mpi=pmix.
    Mark {
        name: "SLURM_STEP_ID",
        sizes: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        who: "Slurm's srun without PMI-2 (--mpi=none, --mpi=pmix, or a default like that)",
        instead: "srun --mpi=pmi2 -n N PROGRAM, ",
    },
    Mark {
        name: "PMIX_RANK",
        sizes: &[],
        who: "a launcher that speaks PMIx only (mpirun, prterun)",
        instead: "",
    },
    Mark {
        name: "FLUX_TASK_RANK",
        sizes: &["FLUX_JOB_SIZE"],
        who: "Flux without PMI-1",
        instead: "flux run -o pmi=simple -n N PROGRAM, ",
    },
    Mark {
        name: "PMI_RANK",
        sizes: &["PMI_SIZE"],
        who: "a launcher whose PMI server is neither at PMI_FD nor at PMI_PORT",
        instead: "",
    },
];

/// Who has started this process; `lookup` gives the value of a variable.
///
/// # Errors
///
/// Somebody who cannot be talked to, with more than one process.
pub fn launcher(lookup: impl Fn(&str) -> Option<String>) -> Result<Launcher, Refused> {
    if let Some(version) = lookup(ENV_NODE) {
        return Ok(Launcher::Agent(version));
    }
    if lookup(ENV_PMI_FD).is_some() || lookup(ENV_PMI_PORT).is_some() {
        return Ok(Launcher::Pmi);
    }
    let Some(mark) = MARKS.iter().find(|mark| lookup(mark.name).is_some()) else {
        return Ok(Launcher::Nobody);
    };
    let size = mark.sizes.iter().find_map(|name| lookup(name));
    let size = size.and_then(|text| text.trim().parse::<u64>().ok());
    let (name, who) = (mark.name, mark.who);
    let (found, n) = match size {
        Some(1) => return Ok(Launcher::Nobody),
        Some(n) => (
            format!("as one of {n} processes ({name} is set)"),
            n.to_string(),
        ),
        None => (format!("({name} is set)"), "N".into()),
    };
    Err(Refused {
        name,
        who,
        found,
        instead: mark.instead.replace('N', &n),
        n,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(env: &[(&str, &str)]) -> Result<Launcher, String> {
        let lookup = |name: &str| {
            let found = env.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        launcher(lookup).map_err(|e| e.to_string())
    }

    #[test]
    fn those_who_can_be_talked_to() {
        assert_eq!(found(&[]), Ok(Launcher::Nobody));
        let agent = [("SHMEM_NODE", "5"), ("PMI_FD", "3"), ("PMI_RANK", "0")];
        assert_eq!(found(&agent), Ok(Launcher::Agent("5".into())));
        for pmi in [("PMI_FD", "8"), ("PMI_PORT", "host:1")] {
            // Also inside an allocation of Slurm.
            let step = [pmi, ("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "4")];
            assert_eq!(found(&step), Ok(Launcher::Pmi));
        }
    }

    #[test]
    fn one_process_is_a_job() {
        for env in [
            [("SLURM_STEP_ID", "3"), ("SLURM_STEP_NUM_TASKS", "1")],
            [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")],
        ] {
            assert_eq!(found(&env), Ok(Launcher::Nobody), "{env:?}");
        }
        // Not in a step: a shell in an allocation, a batch script.
        assert_eq!(found(&[("SLURM_NTASKS", "8")]), Ok(Launcher::Nobody));
    }

    #[test]
    fn the_others_are_refused_with_what_helps() {
        let said = |env: &[(&str, &str)], parts: &[&str]| {
            let text = found(env).unwrap_err();
            for part in parts {
                assert!(text.contains(part), "{env:?}: {text}");
            }
        };
        let slurm = [("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "8")];
        let parts = [
            "srun without PMI-2",
            "as one of 8 processes (SLURM_STEP_ID is set)",
            "srun --mpi=pmi2 -n 8 PROGRAM, shmrun -n 8",
        ];
        said(&slurm, &parts);
        let pmix = [slurm[0], slurm[1], ("PMIX_RANK", "3")];
        said(&pmix, &parts);
        let open_mpi = [
            ("PMIX_RANK", "1"),
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            slurm[0],
        ];
        said(&open_mpi, &["Open MPI's mpirun", "mpiexec.hydra -n 2"]);
        said(&[("PMIX_RANK", "1")], &["-n N PROGRAM", "unset PMIX_RANK"]);
        said(&[("PMI_RANK", "1"), ("PMI_SIZE", "4")], &["PMI_FD", "-n 4"]);
        let odd = [("SLURM_STEP_ID", "0"), ("SLURM_NTASKS", "many")];
        said(&odd, &["srun --mpi=pmi2 -n N"]);
    }
}
