//! Under another launcher that speaks PMI or PMIx: Hydra (`mpiexec.hydra`, MPICH's `mpiexec`), Slurm's
//! `srun`, Open MPI's `mpirun`, PRRTE's `prterun`, and what is like them.
//!
//! Such a launcher tells each process its rank, the size of the job, and, in the job attribute
//! `PMI_process_mapping` or by PMIx's own means, which ranks share a node. The first PE of a node makes the node segment and
//! gives it to the others ([`shmem_node::rendezvous`]). Only PEs of one node wait for each other here,
//! as they do at the end of init anyway; but where a server has no process mapping, all PEs tell
//! each other their machines first, and that waits for all. Where MPI is initialised in the same process its messages may take the
//! server's place, and where it is there the server may be shared with it: then all is exchanged here, and waits for all.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use shmem_node::hca_address::{AddressPlan, HcaAddresses, Shape};
use shmem_node::own_address::{self, Hints};
use shmem_node::rendezvous::{self, Host, Meeting, RendezvousError};
use shmem_node::segment::NodeView;
use shmem_node::settings::Settings;
use shmem_pmi::id::Place;
use shmem_pmi::process::{Process, ProcessError, Server};
use shmem_pmi::process_mapping::{self, ProcessMapping};

use super::alone;
use super::attached::{Attached, check_size};
use super::by_id::Start;
use super::segment::{self, Node};
use crate::error::Error;
use crate::pmi::{Foreign, Identity, Pmi, give_up};

/// Where hosts' names are found, as launchers tell them: of other hosts, and of this one.
const OTHER_HOSTS: [&str; 1] = ["SLURM_LAUNCH_NODE_IPADDR"];
const OWN_NAMES: [&str; 4] = [
    "PMI_HOSTNAME",
    "PMIX_HOSTNAME",
    "MPIR_CVAR_CH3_INTERFACE_HOSTNAME",
    "SLURMD_NODENAME",
];

fn failed(what: &'static str) -> impl FnOnce(ProcessError) -> Error {
    move |e| Error::Launch(format!("cannot {what}: {e}"))
}

fn apart(me: u32) -> impl FnOnce(RendezvousError) -> Error {
    move |e| Error::Launch(format!("PE {me} cannot share memory with its node: {e}"))
}

/// Introduces this process to the PMI server, and gets the node segment.
pub(super) fn join(settings: &Settings) -> Result<Attached, Error> {
    let process = Process::init().map_err(failed("talk to the launcher's PMI server"))?;
    if process.server() == Server::Alone {
        return alone::alone(settings);
    }
    let me = process.rank();
    share(settings, Foreign::new(process, me))
}

/// The same without a launcher: one of the job's processes is the server.
pub(super) fn join_by_id(settings: &Settings, start: &Start) -> Result<Attached, Error> {
    share(settings, by_id(settings, start)?)
}

/// As [`refuse_settings`]; `settings` are those that make sense.
pub(super) fn refuse_settings_by_id(settings: &Settings, start: &Start, why: &Error) {
    if let Ok(foreign) = by_id(settings, start) {
        foreign.init_failed(why);
    }
}

fn by_id(settings: &Settings, start: &Start) -> Result<Foreign, Error> {
    let name = settings.emulated_node.as_deref().unwrap_or_default();
    let place = Place {
        rank: start.rank,
        size: start.size,
        machine: &format!("{} {name}", machine()),
        patience: settings.init_timeout,
    };
    Foreign::join(&start.id, place)
}

fn share(settings: &Settings, foreign: Foreign) -> Result<Attached, Error> {
    let me = foreign.process().rank();
    let foreign = Arc::new(foreign);
    let ((node, heap, xrc), identity) = foreign
        .watch()
        .and_then(|()| share_node(settings, foreign.process()))
        .inspect_err(|why| foreign.init_failed(why))?;
    if let Some(made_up) = identity {
        foreign.identify(made_up);
    }
    let pmi = Pmi::Foreign(foreign);
    Ok(Attached::new(me as usize, node, heap, Some(xrc), pmi))
}

/// Ends the job because settings of this process make no sense, before it has talked to the server:
/// some servers let go such a process, and its peers would wait.
pub(super) fn refuse_settings(why: &Error) {
    if let Ok(process) = Process::init_despite_settings() {
        give_up(&process, why);
    }
}

/// The memory of a node, mapped, and the files of its heaps and its XRC domain.
type Shared = (NodeView, OwnedFd, OwnedFd);

/// Meets the PEs of this node. PE 0 of a job of several nodes makes up the job's identity, too.
fn share_node(settings: &Settings, process: &Process) -> Result<(Shared, Option<Identity>), Error> {
    let (me, n_pes) = (process.rank(), process.size());
    check_size(n_pes as usize)?;
    if settings.soft_netns.is_some() {
        return Err(Error::Launch(
            "SHMEM_SOFT_NETNS is for jobs that shmrun starts: unset it".into(),
        ));
    }
    let (node_of, n_nodes) = nodes(process)?;
    let Some(&number) = node_of.get(me as usize) else {
        return Err(Error::Launch(format!(
            "the launcher says that this process is PE {me} of {n_pes}"
        )));
    };
    let ranks: Vec<u32> = (0u32..)
        .zip(&node_of)
        .filter(|&(_, &node)| node == number)
        .map(|(rank, _)| rank)
        .collect();
    // Slurm's name is a number that another controller on the same machine may have given, too; a step's
    // launcher has a port of its own.
    let launcher = std::env::var("SLURM_STEP_LAUNCHER_PORT").unwrap_or_default();
    let job = process.job_id().map_err(failed("ask for the job's name"))?;
    let meeting = Meeting {
        job: format!("{job}:{launcher}"),
        node: number,
        ranks,
        n_pes,
        patience: settings.init_timeout,
    };
    let shared = if meeting.ranks[0] == me {
        let meets_at = process.id().map(|id| id.address().0.to_owned());
        make_node(settings, &meeting, (&node_of, n_nodes), meets_at)?
    } else {
        join_node(&meeting, me, &node_of)?
    };
    let identity = match me == 0 && n_nodes > 1 && process.id().is_none() {
        true => Some(segment::random_identity()?),
        false => None,
    };
    Ok((shared, identity))
}

/// The first PE of a node makes the memory of the node, and gives it to the others. `other` is a host of the job.
fn make_node(
    settings: &Settings,
    meeting: &Meeting,
    (node_of, n_nodes): (&[u32], u32),
    other: Option<String>,
) -> Result<Shared, Error> {
    let (me, n_local) = (meeting.ranks[0], meeting.ranks.len() as u32);
    // First: a process that comes early must not wait longer than needed.
    let host = match n_local {
        1 => None,
        _ => Some(Host::open(meeting).map_err(apart(me))?),
    };
    let made = addresses(settings, node_of, n_nodes, other).and_then(|addresses| {
        let node = Node {
            node_of,
            n_nodes,
            number: meeting.node,
            // A job that emulates nodes has all of them on this machine.
            on_machine: match settings.emulated_node {
                Some(_) => meeting.n_pes,
                None => n_local,
            },
            addresses,
        };
        segment::make(settings, &node)
    });
    let segment = match made {
        Ok(segment) => segment,
        Err(e) => {
            // PEs that wait here see this PE end, which prints its error first.
            std::mem::forget(host);
            return Err(e);
        }
    };
    if let Some(host) = host {
        host.share(&segment).map_err(apart(me))?;
    }
    let (heap, xrc) = segment::descriptors(&segment)?;
    Ok((*segment.view(), heap, xrc))
}

/// The other PEs of a node get the memory that the first one has made.
fn join_node(meeting: &Meeting, me: u32, node_of: &[u32]) -> Result<Shared, Error> {
    let shared = rendezvous::join(meeting, me).map_err(apart(me))?;
    let node = NodeView::attach(shared.tables.as_fd(), shared.heap.as_fd())?;
    if node.node_of() != node_of {
        return Err(Error::Launch(format!(
            "PE {me} and the first PE of its node have different lists of the nodes of the job"
        )));
    }
    Ok((node, shared.heap, shared.xrc))
}

/// The node of each rank, numbered from 0 in the order in which they come, and how many there are.
fn nodes(process: &Process) -> Result<(Vec<u32>, u32), Error> {
    let n_pes = process.size();
    if n_pes == 1 {
        return Ok((vec![0], 1));
    }
    if let Some(nodes) = process.nodes() {
        return Ok(renumbered(nodes.to_vec()));
    }
    let mapping = process
        .job_attr(process_mapping::KEY)
        .map_err(failed("ask for the process mapping"))?;
    let mapping = mapping.and_then(|text| String::from_utf8(text).ok()?.parse().ok());
    Ok(match mapping {
        Some(mapping) => {
            let mapping: ProcessMapping = mapping;
            renumbered(mapping.to_nodes(n_pes))
        }
        None => renumbered(machines(process)?),
    })
}

/// Gives nodes consecutive numbers in the order of their first ranks.
fn renumbered<T: Eq + std::hash::Hash>(nodes: Vec<T>) -> (Vec<u32>, u32) {
    let mut numbers = std::collections::HashMap::new();
    let node_of = nodes.into_iter().map(|node| {
        let next = numbers.len() as u32;
        *numbers.entry(node).or_insert(next)
    });
    let node_of = node_of.collect();
    (node_of, numbers.len() as u32)
}

/// The machine of each rank, exchanged through the key-value space.
fn machines(process: &Process) -> Result<Vec<Vec<u8>>, Error> {
    const EXCHANGE: &str = "exchange the names of the machines";
    let key = |rank: u32| format!("shmem-machine-{rank}");
    process
        .put(&key(process.rank()), machine().as_bytes())
        .and_then(|()| process.fence())
        .map_err(failed(EXCHANGE))?;
    let all = (0..process.size()).map(|rank| match process.get_of(rank, &key(rank)) {
        Ok(Some(machine)) => Ok(machine),
        Ok(None) => Err(Error::Launch(format!(
            "PE {rank} has not told PMI on which machine it is"
        ))),
        Err(e) => Err(failed(EXCHANGE)(e)),
    });
    all.collect()
}

/// What tells this machine, as its kernel runs now, from others: those that share it share memory. Names
/// of hosts may be equal by mistake, and containers of one machine may have several.
fn machine() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let net = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    let text = format!("{}{}", boot.trim(), net.display());
    // What PMI-1 can carry.
    text.replace(|c: char| !c.is_ascii_alphanumeric(), "-")
}

/// The addresses of this node's software HCAs; `other` is a host of the job.
fn addresses(
    settings: &Settings,
    node_of: &[u32],
    n_nodes: u32,
    other: Option<String>,
) -> Result<HcaAddresses, Error> {
    if n_nodes == 1 {
        return Ok(HcaAddresses::shared(Ipv4Addr::LOCALHOST.into()));
    }
    let mut counts = vec![0u32; n_nodes as usize];
    for &node in node_of {
        counts[node as usize] += 1;
    }
    // Whether nodes share a machine is not known; they go well with one address, because each PE has
    // a port of its own.
    let shape = Shape {
        n_nodes,
        n_pes: node_of.len() as u32,
        per_machine: counts.into_iter().max().unwrap_or(1),
        one_machine: false,
    };
    let plan = AddressPlan::choose(settings.soft_address, settings.soft_port, 0, shape)
        .map_err(|e| Error::Launch(e.to_string()))?;
    let shared = |ip: IpAddr| HcaAddresses::shared(ip);
    match plan {
        AddressPlan::Known(addresses) => Ok(addresses),
        AddressPlan::Network(network) => own_address::within(network, "this machine")
            .map(shared)
            .map_err(Error::Launch),
        AddressPlan::Routed { .. } => {
            let set = |name: &&str| std::env::var(name).ok();
            let others: Vec<String> = OTHER_HOSTS.iter().filter_map(set).chain(other).collect();
            let others: Vec<&str> = others.iter().map(String::as_str).collect();
            let own_name = OWN_NAMES.iter().find_map(set).unwrap_or_default();
            Ok(shared(own_address::find(&Hints {
                others: &others,
                own_name: &own_name,
            })))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_numbered_as_they_come() {
        assert_eq!(renumbered(vec![5, 5, 2, 5, 9]), (vec![0, 0, 1, 0, 2], 3));
        let names = ["b", "a", "b"].map(str::to_owned).to_vec();
        assert_eq!(renumbered(names), (vec![0, 1, 0], 2));
        assert!(!machine().is_empty());
        assert!(machine().len() < 600);
    }
}
