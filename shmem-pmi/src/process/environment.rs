//! Which PMI server a process has, as its environment tells.

use std::os::fd::RawFd;

use shmem_node::contract::{
    self, Descriptors, ENV_LOCAL_RANK, ENV_NODE, ENV_PMI_FD, ENV_PMI_ID, ENV_PMI_JOBID,
};
use shmem_node::contract::{ENV_PMI_RANK, ENV_PMI_SIZE};
use shmem_node::settings::{Pmi, Settings};
use shmem_pmix::key::{ENV_NAMESPACE, ENV_RANK};

use super::error::Cause;
use super::launchers::{self, ENV_PMI_PORT, Launcher};
use super::mpi::Beside;
use super::server::Server;

/// Setting of the version.
const ENV_PMI: &str = "SHMEM_PMI";
/// Setting of the library.
const ENV_PMIX_LIBRARY: &str = "SHMEM_PMIX_LIBRARY";

/// Present in processes that another job has started.
const ENV_PMI_SPAWNED: &str = "PMI_SPAWNED";

/// What there is in every step of Slurm. Its PMI server, which also sets `PMI_JOBID`, speaks both
/// versions, and PMI-2 better. Hydra's, which steps of Slurm may have instead, does not set that.
const ENV_SLURM_STEP: &str = "SLURM_STEP_ID";

/// How to get at the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// `local` is the process's position on its node.
    Shmrun {
        /// Where the descriptors of the process are.
        fds: Descriptors,
        fd: RawFd,
        local: u32,
    },
    Pmi1 {
        fd: RawFd,
    },
    Pmi1Port {
        address: String,
        id: u32,
    },
    Pmi2 {
        fd: RawFd,
    },
    /// With the library that the settings name.
    Pmix {
        library: Option<String>,
    },
    /// Messages of MPI, which is initialised, and may have a server at this descriptor.
    Mpi {
        fd: Option<RawFd>,
    },
    Alone,
}

impl Found {
    pub(super) fn server(&self) -> Server {
        match self {
            Self::Shmrun { .. } => Server::Shmrun,
            Self::Pmi1 { .. } => Server::Pmi1,
            Self::Pmi1Port { .. } => Server::Pmi1Port,
            Self::Pmi2 { .. } => Server::Pmi2,
            Self::Pmix { .. } => Server::Pmix,
            Self::Mpi { .. } => Server::Mpi,
            Self::Alone => Server::Alone,
        }
    }
}

/// What the environment says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Environment {
    pub(super) found: Found,
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) job_id: Option<String>,
    pub(super) spawned: bool,
    /// MPI, if it is initialised, must have the same ranks: nobody has said that it need not.
    pub(super) checks_mpi: bool,
}

impl Environment {
    /// Reads the environment through `lookup`, which gives the value of a variable; `beside` is MPI in this process.
    pub(super) fn read(
        lookup: &dyn Fn(&str) -> Option<String>,
        beside: Option<&Beside>,
    ) -> Result<Self, Cause> {
        let settings = Settings::parse(lookup)?;
        Self::with(settings.pmi, settings.pmix_library, lookup, beside)
    }

    /// As [`Environment::read`] where settings make no sense.
    pub(super) fn read_despite_settings(
        lookup: &dyn Fn(&str) -> Option<String>,
        beside: Option<&Beside>,
    ) -> Result<Self, Cause> {
        let only = |name: &str| {
            let needed = [ENV_PMI, ENV_PMIX_LIBRARY].contains(&name);
            needed.then(|| lookup(name)).flatten()
        };
        let settings = Settings::parse(only).ok();
        let (pmi, library) = settings.map_or((Pmi::Auto, None), |settings| {
            (settings.pmi, settings.pmix_library)
        });
        Self::with(pmi, library, lookup, beside)
    }

    fn with(
        pmi: Pmi,
        library: Option<String>,
        lookup: impl Fn(&str) -> Option<String>,
        beside: Option<&Beside>,
    ) -> Result<Self, Cause> {
        let place = beside.and_then(|mpi| mpi.place);
        let other_thread = || beside.and_then(|mpi| mpi.is_of_another_thread.clone());
        let over_mpi = |(rank, size), fd| Self {
            found: Found::Mpi { fd },
            rank,
            size,
            job_id: None,
            spawned: false,
            checks_mpi: true,
        };
        if pmi == Pmi::Mpi {
            if let Some(why) = other_thread() {
                return Err(why.into());
            }
            let found = place.map(|place| over_mpi(place, None));
            return found.ok_or(Cause::Variable {
                name: ENV_PMI,
                value: "mpi".into(),
                expected: "a program that has called MPI_Init before it initialises OpenSHMEM, and not yet MPI_Finalize",
            });
        }
        if pmi == Pmi::Pmix {
            if lookup(ENV_NAMESPACE).is_none() {
                return Err(Cause::Variable {
                    name: ENV_PMI,
                    value: "pmix".into(),
                    expected: "a launcher that speaks PMIx, which would set PMIX_NAMESPACE",
                });
            }
            return Self::pmix(library, &lookup, false);
        }
        let fd = number::<RawFd>(&lookup, ENV_PMI_FD, "a descriptor")?;
        let port = lookup(ENV_PMI_PORT);
        let id = || number::<u32>(&lookup, ENV_PMI_ID, "the number of a process");
        let of_slurm = [ENV_SLURM_STEP, ENV_PMI_JOBID].map(&lookup);
        let of_slurm = of_slurm.iter().all(Option::is_some);
        let to_come = beside.filter(|mpi| mpi.is_to_come);
        let found = match (fd, port) {
            (Some(fd), _) => match (pmi, lookup(ENV_NODE)) {
                (Pmi::Auto, Some(version)) => {
                    let fds = contract::offered(&version)?;
                    let local = number(&lookup, ENV_LOCAL_RANK, "a position on the node")?;
                    Found::Shmrun {
                        fd,
                        fds,
                        local: local.unwrap_or(0),
                    }
                }
                (Pmi::V2, _) => Found::Pmi2 { fd },
                (Pmi::Auto, None) => {
                    if let Some(why) = other_thread() {
                        // MPI has the descriptor, and this thread may not use MPI instead.
                        return Err(why.into());
                    } else if place.is_some() {
                        // MPI has the descriptor, and this library finds its peers without.
                        Found::Mpi { fd: Some(fd) }
                    } else if of_slurm && let Some(mpi) = to_come {
                        return Err(Cause::MpiFirst {
                            library: mpi.library.clone(),
                            server: "Slurm's PMI server, which takes one client",
                            setting: "2",
                        });
                    } else if of_slurm && beside.is_none() {
                        Found::Pmi2 { fd }
                    } else {
                        // What MPI speaks that shares it: a server takes one version from a process.
                        Found::Pmi1 { fd }
                    }
                }
                (Pmi::V1 | Pmi::Pmix | Pmi::Mpi, _) => Found::Pmi1 { fd },
            },
            (None, Some(_))
                if pmi == Pmi::Auto && (place.is_some() || other_thread().is_some()) =>
            {
                if let Some(why) = other_thread() {
                    return Err(why.into());
                }
                Found::Mpi { fd: None }
            }
            (None, Some(address)) => Found::Pmi1Port {
                id: id()?.ok_or(Cause::Absent {
                    name: ENV_PMI_ID,
                    given: ENV_PMI_PORT,
                })?,
                address,
            },
            (None, None) => match launchers::launcher_beside(&lookup, beside)? {
                Launcher::Nobody => Found::Alone,
                Launcher::Mpi => Found::Mpi { fd: None },
                Launcher::Pmi if pmi == Pmi::Auto => {
                    if let Some(mpi) = beside.filter(|mpi| mpi.must_be_first) {
                        return Err(Cause::MpiFirst {
                            library: mpi.library.clone(),
                            server: "the PMIx server",
                            setting: "pmix",
                        });
                    }
                    return Self::pmix(library, &lookup, true);
                }
                Launcher::Pmi => {
                    return Err(Cause::Variable {
                        name: ENV_PMI,
                        value: lookup(ENV_PMI).unwrap_or_default(),
                        expected: "pmix or auto, since the launcher speaks PMIx only",
                    });
                }
                // It leaves PMI to PMIx.
                Launcher::Agent(_) if pmi == Pmi::Auto && lookup(ENV_NAMESPACE).is_some() => {
                    return Self::pmix(library, &lookup, true);
                }
                Launcher::Agent(_) => {
                    return Err(Cause::Absent {
                        name: ENV_PMI_FD,
                        given: ENV_NODE,
                    });
                }
            },
        };
        let rank = match number(&lookup, ENV_PMI_RANK, "a rank")? {
            None if found != Found::Alone => id()?,
            rank => rank,
        };
        let size = number(&lookup, ENV_PMI_SIZE, "a number of processes")?;
        if let (&Found::Mpi { fd }, Some((of_mpi, beside))) = (&found, place.zip(beside)) {
            let told = (rank.unwrap_or(of_mpi.0), size.unwrap_or(of_mpi.1));
            beside.check_place(told, "the launcher")?;
            return Ok(over_mpi(of_mpi, fd));
        }
        // A PMI-1 server over an inherited socket tells neither.
        if let Found::Pmi1 { .. } = found {
            for (name, known) in [
                (ENV_PMI_RANK, rank.is_some()),
                (ENV_PMI_SIZE, size.is_some()),
            ] {
                if !known {
                    let given = ENV_PMI_FD;
                    return Err(Cause::Absent { name, given });
                }
            }
        }
        // Without a server, nobody stands behind what else is said.
        let (rank, size) = match found {
            Found::Alone => (0, 1),
            _ => (rank.unwrap_or(0), size.unwrap_or(1)),
        };
        Ok(Self {
            spawned: lookup(ENV_PMI_SPAWNED).is_some_and(|text| !matches!(&text[..], "" | "0")),
            job_id: lookup(ENV_PMI_JOBID),
            found,
            rank,
            size,
            checks_mpi: pmi == Pmi::Auto,
        })
    }

    /// A process at a PMIx server, which is asked for all else.
    fn pmix(
        library: Option<String>,
        lookup: &impl Fn(&str) -> Option<String>,
        checks_mpi: bool,
    ) -> Result<Self, Cause> {
        Ok(Self {
            found: Found::Pmix { library },
            rank: number(lookup, ENV_RANK, "a rank")?.unwrap_or(0),
            size: 1,
            job_id: None,
            spawned: false,
            checks_mpi,
        })
    }
}

/// A variable of this process.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

fn number<T: std::str::FromStr>(
    lookup: &impl Fn(&str) -> Option<String>,
    name: &'static str,
    expected: &'static str,
) -> Result<Option<T>, Cause> {
    let Some(value) = lookup(name) else {
        return Ok(None);
    };
    let parsed = value.trim().parse().map(Some);
    parsed.map_err(|_| Cause::Variable {
        name,
        value,
        expected,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(variables: &[(&str, &str)], name: &str) -> Option<String> {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    }

    fn read(variables: &[(&str, &str)]) -> Result<Environment, Cause> {
        Environment::read(&|name| get(variables, name), None)
    }

    #[test]
    fn a_server_is_found_despite_settings() {
        let place = [FD, ("PMI_RANK", "1"), ("PMI_SIZE", "2")];
        for (setting, found) in [
            (&[("SHMEM_SPIN", "abc")][..], Found::Pmi1 { fd: 7 }),
            (&[("SHMEM_PMI", "3")], Found::Pmi1 { fd: 7 }),
            (
                &[("SHMEM_SPIN", "abc"), ("SHMEM_PMI", "2")],
                Found::Pmi2 { fd: 7 },
            ),
        ] {
            let all = [&place, setting].concat();
            assert!(matches!(read(&all), Err(Cause::Settings(_))));
            let read = Environment::read_despite_settings(&|name| get(&all, name), None).unwrap();
            assert_eq!((read.found, read.rank, read.size), (found, 1, 2));
        }
    }

    const FD: (&str, &str) = ("PMI_FD", "7");

    #[test]
    fn the_server_is_chosen_as_documented() {
        let found = |variables: &[_]| {
            let place = [("PMI_RANK", "0"), ("PMI_SIZE", "1")];
            read(&[variables, &place].concat()).unwrap().found
        };
        assert_eq!(found(&[]), Found::Alone);
        assert_eq!(found(&[FD]), Found::Pmi1 { fd: 7 });
        assert_eq!(found(&[FD, ("SHMEM_PMI", "2")]), Found::Pmi2 { fd: 7 });
        let slurm = ("SLURM_STEP_ID", "0");
        let job = ("PMI_JOBID", "42.0");
        assert_eq!(found(&[FD, slurm, job]), Found::Pmi2 { fd: 7 });
        // Hydra inside of an allocation.
        assert_eq!(found(&[FD, slurm]), Found::Pmi1 { fd: 7 });
        assert_eq!(
            found(&[FD, slurm, job, ("SHMEM_PMI", "1")]),
            Found::Pmi1 { fd: 7 }
        );
        let fds = Descriptors::below(64);
        let offer = contract::node_env(fds).1;
        let node = ("SHMEM_NODE", &offer[..]);
        assert_eq!(
            found(&[FD, node]),
            Found::Shmrun {
                fd: 7,
                fds,
                local: 0
            }
        );
        assert_eq!(
            found(&[FD, node, slurm]),
            Found::Shmrun {
                fd: 7,
                fds,
                local: 0
            }
        );
        assert_eq!(
            found(&[FD, node, ("SHMEM_PMI", "1")]),
            Found::Pmi1 { fd: 7 }
        );
        assert_eq!(
            found(&[FD, node, ("SHMEM_PMI", "2")]),
            Found::Pmi2 { fd: 7 }
        );
        let port = ("PMI_PORT", "vm:4711");
        let address = "vm:4711".to_owned();
        assert_eq!(
            found(&[port, ("PMI_ID", "3")]),
            Found::Pmi1Port { address, id: 3 }
        );
        assert_eq!(found(&[port, FD]), Found::Pmi1 { fd: 7 });
        let pmix = |library: Option<&str>| Found::Pmix {
            library: library.map(str::to_owned),
        };
        let namespace = ("PMIX_NAMESPACE", "prterun-vm-1@1");
        assert_eq!(found(&[namespace, slurm]), pmix(None));
        let library = ("SHMEM_PMIX_LIBRARY", "/l/libpmix.so");
        assert_eq!(found(&[namespace, library]), pmix(Some("/l/libpmix.so")));
        let chosen = ("SHMEM_PMI", "pmix");
        for pmi in [&[FD][..], &[FD, node], &[port, ("PMI_ID", "3")]] {
            assert_ne!(found(&[pmi, &[namespace]].concat()), pmix(None));
            assert_eq!(found(&[pmi, &[namespace, chosen]].concat()), pmix(None));
        }
        let rank = [namespace, ("PMIX_RANK", "3")];
        assert_eq!(read(&rank).unwrap().rank, 3);
    }

    #[test]
    fn mpi_that_is_initialised_comes_before_a_server_that_it_uses() {
        let beside = |place| Beside {
            library: "/l/libmpi.so.12".into(),
            place,
            is_of_another_thread: None,
            is_to_come: place.is_none(),
            must_be_first: false,
        };
        let read = |variables: &[(&str, &str)], place| {
            let lookup = |name: &str| get(variables, name);
            Environment::read(&lookup, Some(&beside(place)))
                .map(|read| (read.found, read.rank, read.size))
        };
        let (at_fd, without) = (Found::Mpi { fd: Some(7) }, Found::Mpi { fd: None });
        let told = [FD, ("PMI_RANK", "1"), ("PMI_SIZE", "4")];
        assert_eq!(read(&told, Some((1, 4))).unwrap(), (at_fd.clone(), 1, 4));
        let slurm = [&told[..], &[("SLURM_STEP_ID", "0"), ("PMI_JOBID", "42.0")]].concat();
        assert_eq!(read(&slurm, Some((1, 4))).unwrap(), (at_fd.clone(), 1, 4));
        // Shared: MPI has not begun yet, and speaks PMI-1. Slurm's server does not bear that.
        assert_eq!(read(&told, None).unwrap(), (Found::Pmi1 { fd: 7 }, 1, 4));
        let text = read(&slurm, None).unwrap_err().to_string();
        assert!(text.contains("one client: call MPI_Init before"), "{text}");
        let port = [("PMI_PORT", "vm:1"), ("PMI_ID", "3")];
        assert_eq!(read(&port, Some((3, 4))).unwrap(), (without.clone(), 3, 4));
        // PMIx has room for two, and shmrun a channel for each.
        let pmix = [("PMIX_NAMESPACE", "a@1")];
        assert_eq!(
            read(&pmix, Some((1, 4))).unwrap().0,
            Found::Pmix { library: None }
        );
        let fds = Descriptors::below(1024);
        let offer = contract::node_env(fds).1;
        let shmrun = [&told[..], &[("SHMEM_NODE", &offer)]].concat();
        assert_eq!(
            read(&shmrun, Some((1, 4))).unwrap().0,
            Found::Shmrun {
                fd: 7,
                fds,
                local: 0
            }
        );
        // Nobody else knows the peers.
        let none = [("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "4")];
        assert_eq!(read(&none, Some((1, 4))).unwrap(), (without.clone(), 1, 4));
        assert_eq!(read(&[], Some((1, 4))).unwrap(), (without.clone(), 1, 4));
        assert_eq!(read(&[], Some((0, 1))).unwrap(), (Found::Alone, 0, 1));
        let text = read(&none, Some((0, 1))).unwrap_err().to_string();
        assert!(text.contains("srun --mpi=pmi2 -n 4"), "{text}");
        let text = read(&none, None).unwrap_err().to_string();
        assert!(text.contains("call MPI_Init before"), "{text}");
        let open_mpi = Beside {
            must_be_first: true,
            ..beside(None)
        };
        for (pmi, says) in [("auto", "call MPI_Init before"), ("pmix", "")] {
            let all = [&pmix[..], &[("SHMEM_PMI", pmi)]].concat();
            let read = Environment::read(&|name| get(&all, name), Some(&open_mpi));
            let text = read.err().map(|e| e.to_string()).unwrap_or_default();
            assert!(
                text.contains(says) && text.is_empty() == says.is_empty(),
                "{text}"
            );
        }
        // This thread may not use MPI, which has the descriptor.
        let elsewhere = Beside {
            is_of_another_thread: Some(shmem_mpi::Error::Thread {
                call: "MPI_Comm_rank",
                level: shmem_mpi::ThreadLevel::Funneled,
            }),
            is_to_come: false,
            ..beside(None)
        };
        for (pmi, refused) in [("auto", true), ("mpi", true), ("1", false)] {
            for server in [&told[..], &port] {
                let all = [server, &[("SHMEM_PMI", pmi)]].concat();
                let read = Environment::read(&|name| get(&all, name), Some(&elsewhere));
                let text = read.err().map(|e| e.to_string()).unwrap_or_default();
                let says = text.contains("initialise OpenSHMEM in that thread");
                assert_eq!((says, !text.is_empty()), (refused, refused), "{text}");
            }
        }
        // Of another launcher.
        let text = read(&told, Some((0, 1))).unwrap_err().to_string();
        for part in ["rank 0 of 1", "PE 1 of 4", "/l/libmpi.so.12"] {
            assert!(text.contains(part), "{text}");
        }
        let chosen = [&told[..], &[("SHMEM_PMI", "1")]].concat();
        assert_eq!(
            read(&chosen, Some((0, 1))).unwrap(),
            (Found::Pmi1 { fd: 7 }, 1, 4)
        );
        let chosen = [&shmrun[..], &[("SHMEM_PMI", "mpi")]].concat();
        assert_eq!(
            read(&chosen, Some((1, 4))).unwrap(),
            (without.clone(), 1, 4)
        );
        let text = read(&chosen, None).unwrap_err().to_string();
        assert!(
            text.contains("SHMEM_PMI=mpi") && text.contains("MPI_Init before"),
            "{text}"
        );
    }

    #[test]
    fn facts_have_defaults() {
        let facts = |variables: &[_]| {
            let read = read(variables).unwrap();
            (read.rank, read.size, read.spawned)
        };
        assert_eq!(facts(&[]), (0, 1, false));
        // PMI-2 tells them.
        assert_eq!(facts(&[FD, ("SHMEM_PMI", "2")]), (0, 1, false));
        assert_eq!(
            facts(&[FD, ("PMI_ID", "2"), ("PMI_SIZE", "4"), ("PMI_SPAWNED", "1")]),
            (2, 4, true)
        );
        assert_eq!(
            facts(&[FD, ("PMI_ID", "2"), ("PMI_RANK", "1"), ("PMI_SIZE", "3")]),
            (1, 3, false)
        );
        // One process is a job, whoever has started it.
        assert_eq!(
            facts(&[("PMI_RANK", "0"), ("PMI_SIZE", "1")]),
            (0, 1, false)
        );
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let offer = contract::node_env(Descriptors::below(1024)).1;
        for (variables, parts) in [
            (&[("PMI_FD", "seven")][..], ["PMI_FD=seven", "descriptor"]),
            (&[FD, ("PMI_RANK", "-1")], ["PMI_RANK=-1", "rank"]),
            (&[("PMI_PORT", "vm:1")], ["PMI_PORT", "PMI_ID"]),
            (&[FD], ["PMI_FD", "PMI_RANK is not"]),
            (&[FD, ("PMI_ID", "0")], ["PMI_FD", "PMI_SIZE is not"]),
            (&[FD, ("PMI_SIZE", "2")], ["PMI_FD", "PMI_RANK is not"]),
            (&[("SHMEM_NODE", &offer)], ["SHMEM_NODE", "PMI_FD is not"]),
            (
                &[("PMI_RANK", "3"), ("PMI_SIZE", "4")],
                ["PMI_RANK", "shmrun -n 4"],
            ),
            (
                &[("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "4")],
                ["srun --mpi=pmi2 -n 4", "unset SLURM_STEP_ID"],
            ),
            (
                &[("SHMEM_PMI", "3")],
                ["SHMEM_PMI=3", "auto, 1, 2, pmix or mpi"],
            ),
            (
                &[("SHMEM_PMI", "pmix")],
                ["SHMEM_PMI=pmix", "PMIX_NAMESPACE"],
            ),
            (
                &[("SHMEM_PMI", "2"), ("PMIX_NAMESPACE", "a@1")],
                ["SHMEM_PMI=2", "pmix or auto"],
            ),
            (&[FD, ("SHMEM_NODE", "0")], ["contract", "0"]),
            (
                &[FD, ("SHMEM_NODE", &offer), ("SHMEM_LOCAL_RANK", "x")],
                ["SHMEM_LOCAL_RANK=x", "position"],
            ),
        ] {
            let text = read(variables).unwrap_err().to_string();
            for part in parts {
                assert!(text.contains(part), "{text}");
            }
        }
    }
}
