//! Who has started this process, as its environment tells, and who cannot be talked to.
//!
//! Under a launcher whose language the library does not speak, each process would believe to be a job of
//! its own: N wrong answers instead of one. So such launchers are refused, unless they have started
//! one process only, which is a job of one PE whoever has started it. Those that speak PMIx are where there
//! is no libpmix.

use super::error::Refused;
use super::mpi::Beside;
use shmem_node::contract::{ENV_NODE, ENV_PMI_FD};
use shmem_pmix::LoadError;
use shmem_pmix::key::ENV_NAMESPACE;

/// Address of a PMI-1 server that is connected to by TCP.
pub(super) const ENV_PMI_PORT: &str = "PMI_PORT";

/// Who is to be asked about the job.
#[derive(Debug, PartialEq, Eq)]
pub enum Launcher {
    /// The launch agent of `shmrun`, with the version of its contract.
    Agent(String),
    /// A process manager that speaks PMI-1, PMI-2 or PMIx.
    Pmi,
    /// Nobody, but MPI, which is initialised, knows the peers.
    Mpi,
    /// Nobody: this process is a job of one PE.
    Nobody,
}

impl Refused {
    /// With another way out before those that there are.
    fn or(mut self, way: &str) -> Self {
        self.text = self.text.replace(
            "Start the program with ",
            &format!("{way}start the program with "),
        );
        self
    }
}

/// What a launcher that we do not understand leaves in the environment.
struct Mark {
    /// The variable that gives it away.
    name: &'static str,
    /// Variables of which the first that is set says how many processes it has started.
    sizes: &'static [&'static str],
    /// Words for the launcher.
    who: &'static str,
    /// How the launcher could be understood, before the ways that always work; the `N` of `-n N` is the number of processes.
    instead: &'static str,
}

const SLURM_SIZES: [&str; 2] = ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"];

/// Looked for in this order: a launcher may itself have been started by one of those below it.
const MARKS: [Mark; 10] = [
    Mark {
        name: "OMPI_COMM_WORLD_RANK",
        sizes: &["OMPI_COMM_WORLD_SIZE"],
        who: "Open MPI's mpirun",
        instead: "",
    },
    Mark {
        name: "JSM_NAMESPACE_RANK",
        sizes: &["JSM_NAMESPACE_SIZE"],
        who: "jsrun",
        instead: "",
    },
    Mark {
        name: "PALS_RANKID",
        sizes: &["PALS_SIZE", "PMI_SIZE"],
        who: "HPE Cray's mpiexec, whose own PMI this library does not speak",
        instead: "",
    },
    Mark {
        name: "SLURM_PMIX_MAPPING_SERV",
        sizes: &SLURM_SIZES,
        who: "Slurm's srun --mpi=pmix",
        instead: "srun --mpi=pmi2 -n N PROGRAM, ",
    },
    Mark {
        name: "SLURM_STEP_ID",
        sizes: &SLURM_SIZES,
        who: "Slurm's srun without PMI (--mpi=none, or a default like that)",
        instead: "srun --mpi=pmi2 -n N PROGRAM, ",
    },
    // Only where the library is missing.
    Mark {
        name: ENV_NAMESPACE,
        sizes: &[],
        who: "a launcher that speaks PMIx",
        instead: "",
    },
    Mark {
        name: "PMIX_RANK",
        sizes: &[],
        who: "a launcher that speaks PMIx, but not to this process",
        instead: "",
    },
    Mark {
        name: "FLUX_TASK_RANK",
        sizes: &["FLUX_JOB_SIZE"],
        who: "Flux without PMI-1",
        instead: "flux run -o pmi=simple -n N PROGRAM, ",
    },
    Mark {
        name: "TORCHELASTIC_RUN_ID",
        sizes: &["WORLD_SIZE"],
        who: "torchrun",
        instead: "SHMEM_UNIQUE_ID_SECRET set to a secret for all, ",
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
    launcher_beside(lookup, None)
}

/// As [`launcher`], where `beside` is MPI in this process, which may know the peers.
///
/// # Errors
///
/// As [`launcher`].
pub fn launcher_beside(
    lookup: impl Fn(&str) -> Option<String>,
    beside: Option<&Beside>,
) -> Result<Launcher, Refused> {
    if let Some(version) = lookup(ENV_NODE) {
        return Ok(Launcher::Agent(version));
    }
    if [ENV_PMI_FD, ENV_PMI_PORT, ENV_NAMESPACE]
        .iter()
        .any(|name| lookup(name).is_some())
    {
        return Ok(Launcher::Pmi);
    }
    if beside.is_some_and(Beside::knows_peers) {
        return Ok(Launcher::Mpi);
    }
    let lonely = alone_or_refused(&lookup, "it cannot find its peers");
    lonely.map(|()| Launcher::Nobody).map_err(|refused| match beside {
        Some(mpi) if mpi.place.is_none() => refused.or(
            "The program has MPI: if that can, call MPI_Init before OpenSHMEM is initialised; or else ",
        ),
        _ => refused,
    })
}

/// Whether a process can do without its launcher, which speaks PMIx, because it is the only one.
///
/// # Errors
///
/// The process is not the only one, or nothing says so.
pub(super) fn check_alone(
    lookup: impl Fn(&str) -> Option<String>,
    why: &LoadError,
) -> Result<(), Refused> {
    let why = format!("it takes libpmix to find its peers, and {why}");
    alone_or_refused(&lookup, &why)
}

fn alone_or_refused(lookup: &dyn Fn(&str) -> Option<String>, why: &str) -> Result<(), Refused> {
    let Some(mark) = MARKS.iter().find(|mark| lookup(mark.name).is_some()) else {
        return Ok(());
    };
    let size = mark.sizes.iter().find_map(|name| lookup(name));
    let size = size.and_then(|text| text.trim().parse::<u64>().ok());
    let (name, who) = (mark.name, mark.who);
    let (found, n) = match size {
        Some(1) => return Ok(()),
        Some(n) => (format!("as one of {n} processes"), n.to_string()),
        None => (String::new(), "N".into()),
    };
    let found = format!("{found} ({name} is set)");
    let instead = mark.instead.replace("-n N", &format!("-n {n}"));
    let mut unset = name.to_owned();
    if name != ENV_NAMESPACE && lookup(ENV_NAMESPACE).is_some() {
        unset = format!("{ENV_NAMESPACE} and {name}");
    }
    let text = format!(
        "this process was started by {who}, {}: {why}. Start the program with {instead}shmrun -n {n} \
         PROGRAM or mpiexec.hydra -n {n} PROGRAM; or unset {unset} to run a single PE",
        found.trim_start()
    );
    Err(Refused { text })
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
        for pmi in [
            ("PMI_FD", "8"),
            ("PMI_PORT", "host:1"),
            ("PMIX_NAMESPACE", "slurm.pmix.1.0"),
        ] {
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
            "srun without PMI (",
            "as one of 8 processes (SLURM_STEP_ID is set): it cannot find its peers",
            "srun --mpi=pmi2 -n 8 PROGRAM, shmrun -n 8",
        ];
        said(&slurm, &parts);
        let open_mpi = [
            ("PMIX_RANK", "1"),
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            slurm[0],
        ];
        said(&open_mpi, &["Open MPI's mpirun", "mpiexec.hydra -n 2"]);
        let torchrun = [("TORCHELASTIC_RUN_ID", "x"), ("WORLD_SIZE", "4")];
        said(
            &torchrun,
            &["torchrun, as one of 4", "SHMEM_UNIQUE_ID_SECRET set"],
        );
        said(&[("PMIX_RANK", "1")], &["-n N PROGRAM", "unset PMIX_RANK"]);
        said(&[("PMI_RANK", "1"), ("PMI_SIZE", "4")], &["PMI_FD", "-n 4"]);
        let odd = [("SLURM_STEP_ID", "0"), ("SLURM_NTASKS", "many")];
        said(&odd, &["srun --mpi=pmi2 -n N"]);
    }

    #[test]
    fn without_libpmix_one_process_is_a_job_and_others_are_told_where_it_was_looked_for() {
        let why = LoadError::Nowhere {
            looked: "/opt/x/lib".into(),
        };
        let said = |env: &[(&'static str, &'static str)]| {
            let env = env.to_vec();
            let lookup = move |name: &str| {
                let found = env.iter().find(|(n, _)| *n == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            check_alone(lookup, &why).map_err(|refused| refused.to_string())
        };
        let namespace = ("PMIX_NAMESPACE", "a@1");
        let mark = ("OMPI_COMM_WORLD_RANK", "0");
        let size = |n| ("OMPI_COMM_WORLD_SIZE", n);
        assert_eq!(said(&[namespace, mark, size("1")]), Ok(()));
        for (env, parts) in [
            (
                &[namespace, mark, size("4")][..],
                [
                    "Open MPI's mpirun, as one of 4 processes",
                    "/opt/x/lib",
                    "unset PMIX_NAMESPACE and OMPI_COMM_WORLD_RANK",
                ],
            ),
            (
                &[
                    namespace,
                    ("SLURM_PMIX_MAPPING_SERV", "n1"),
                    ("SLURM_STEP_NUM_TASKS", "8"),
                ],
                [
                    "srun --mpi=pmix,",
                    "srun --mpi=pmi2 -n 8",
                    "SHMEM_PMIX_LIBRARY",
                ],
            ),
            (
                &[namespace],
                [
                    "a launcher that speaks PMIx",
                    "libpmix.so.2",
                    "unset PMIX_NAMESPACE to",
                ],
            ),
        ] {
            let text = said(env).unwrap_err();
            for part in parts {
                assert!(text.contains(part), "{text}");
            }
        }
    }
}
