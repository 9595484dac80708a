//! What `--verbose` and `--dry-run` print of a job.

use std::fmt::Write;

use shmem_node::hca_address::AddressPlan;
use shmem_pmi::tree::Tree;

use super::Job;
use crate::binding::{self, Topology};
use crate::frame::Launch;

/// Nodes that have a line, and PEs.
const SHOWN: u32 = 64;

/// The programs, the tree and the nodes; and what would be bound where if the job does not run, since agents report that
/// otherwise.
pub(crate) fn describe(job: &Job, runs: bool) -> String {
    let mut out = String::new();
    programs(&mut out, job);
    for node in 0..job.launch.n_nodes.min(SHOWN) {
        describe_node(&mut out, job, node);
    }
    if job.launch.n_nodes > SHOWN {
        let _ = writeln!(out, "shmrun: and {} more nodes", job.launch.n_nodes - SHOWN);
    }
    // On other hosts it is for their agents to find out.
    if !runs && job.first_is_here && job.launch.options.binding.binds() {
        bindings(&mut out, &job.launch);
    }
    out
}

fn programs(out: &mut String, job: &Job) {
    let l = &job.launch;
    let tree = Tree::new(l.n_nodes, l.degree);
    let mut first_rank = 0;
    for command in l.commands.iter().filter(|_| l.commands.len() > 1) {
        let _ = writeln!(
            out,
            "shmrun: PEs {first_rank} to {}: {}",
            first_rank + command.procs - 1,
            String::from_utf8_lossy(&command.program)
        );
        first_rank += command.procs;
    }
    let name = match &l.commands[..] {
        [one] => String::from_utf8_lossy(&one.program).into_owned(),
        several => format!("{} programs", several.len()),
    };
    let _ = writeln!(
        out,
        "shmrun: {name}: {} PEs on {} nodes, started by {}; tree of degree {} and depth {}",
        l.n_pes,
        l.n_nodes,
        job.facts.spawn,
        l.degree,
        tree.depth()
    );
    if let Some(allocation) = &job.allocation {
        let _ = writeln!(out, "shmrun: {allocation}");
    }
}

fn describe_node(out: &mut String, job: &Job, node: u32) {
    let l = &job.launch;
    let ranks = l.layout().ranks(node);
    let parent = Tree::new(l.n_nodes, l.degree)
        .parent(node)
        .map_or("shmrun".into(), |p| format!("node {p}"));
    let host = match l.host(node) {
        "" => String::new(),
        host => format!(" on host {host}"),
    };
    let address = match l.addresses {
        AddressPlan::Known(addresses) => addresses.of(node, ranks.start).to_string(),
        AddressPlan::Routed { .. } => "of the route to node 0".into(),
        AddressPlan::Network(network) => format!("in {network}"),
    };
    let how = match &l.machines {
        Some(_) if node == 0 && job.first_is_here => " without a remote shell".into(),
        Some(m) => format!(": {}", m.shell.shown(l.target(node))),
        None => String::new(),
    };
    let _ = writeln!(
        out,
        "shmrun: node {node}{host}: PEs {} to {}, address {address}, started by {parent}{how}",
        ranks.start,
        ranks.end - 1,
    );
}

fn bindings(out: &mut String, l: &Launch) {
    let machine = Topology::of_this_machine();
    let pes = l.on_machine().0;
    let bindings = l.options.binding.plan(&machine, 0..pes, pes);
    let bindings = bindings.unwrap_or_default();
    for rank in 0..pes.min(SHOWN) {
        if let Some(cpus) = bindings.of(rank) {
            let line = binding::describe(rank, cpus, &machine);
            let _ = writeln!(out, "shmrun: {line}");
        }
    }
    if pes > SHOWN {
        let _ = writeln!(out, "shmrun: and {} more PEs", pes - SHOWN);
    }
}
