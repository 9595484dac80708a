//! PMI's collectives in jobs beyond the size of a machine: the real clients and servers in virtual
//! time.
//!
//! `pmi_scale` prints, for 16,384 to 1,048,576 processes, the time of fence (put, fence), of fence
//! with gets, and of allgather, and what a process sees of `ifence` and `iallgather` with a
//! computation as long as the blocking operation. Only the servers on one path from the root are
//! there, see `shmem_benches::pmi::model`. `pmi_scale --check` runs smaller jobs both ways.
//!
//! `--cost NAME=NANOSECONDS` changes what the model takes for granted.

use std::process::ExitCode;

use clap::Parser;
use shmem_benches::pmi::model::{Call, Costs, Outcome, Scope, Shape, run};
use shmem_benches::table::time;
use shmem_pmi::server::{CachePolicy, Job, NodePlace, NodeServer};
use shmem_pmi::tree::{DegreePolicy, Tree};

#[derive(Parser)]
#[command(about = "PMI's collectives in virtual time")]
struct Options {
    /// Processes, separated by commas; multiples of those on a node.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "16384,32768,65536,131072,262144,524288,1048576"
    )]
    processes: Vec<u32>,
    /// Processes on a node.
    #[arg(long, default_value_t = 64)]
    per_node: u32,
    /// Length of a value in bytes.
    #[arg(long, default_value_t = 32)]
    bytes: usize,
    /// Values that a process gets after a fence.
    #[arg(long, default_value_t = 16)]
    gets: u32,
    /// A cost of the model. May be repeated.
    #[arg(long, value_name = "NAME=NANOSECONDS")]
    cost: Vec<String>,
    /// Every node beside the path alone, for smaller jobs.
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut costs = Costs::default();
    for text in &options.cost {
        if let Err(e) = costs.set(text) {
            eprintln!("pmi_scale: {e}");
            return ExitCode::FAILURE;
        }
    }
    let named = costs.named().map(|(name, cost)| format!("{name} {cost}"));
    println!("Costs in ns: {}.\n", named.join(", "));
    if options.check {
        check(&options, costs);
    } else {
        scale(&options, costs);
    }
    ExitCode::SUCCESS
}

fn shape(options: &Options, processes: u32, scope: Scope) -> Shape {
    Shape {
        nodes: (processes / options.per_node).max(1),
        per_node: options.per_node,
        bytes: options.bytes,
        cache: CachePolicy::Hcmab,
        scope,
    }
}

fn fence(_: u32) -> Vec<Call> {
    vec![Call::Put, Call::Fence]
}

fn allgather(_: u32) -> Vec<Call> {
    vec![Call::Iallgather, Call::WaitGather]
}

/// The jobs of a table, large ones.
fn scale(options: &Options, costs: Costs) {
    // First: later there is free memory that would be taken without a trace.
    let session = session_bytes(options.per_node);
    let gets = options.gets;
    println!(
        "| processes | nodes | degree | fence | fence + {gets} gets | allgather | fence / allgather | \
         visible of ifence | of fence | of iallgather | of allgather |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for &processes in &options.processes {
        let shape = shape(options, processes, Scope::Path);
        let size = shape.nodes * shape.per_node;
        let go = |calls: &dyn Fn(u32) -> Vec<Call>| run(shape, costs, calls);
        let (fenced, gathered) = (go(&fence), go(&allgather));
        let got = go(&|rank| {
            let get = |i| Call::Get((rank + i * shape.per_node + 1) % size);
            fence(rank).into_iter().chain((0..gets).map(get)).collect()
        });
        let ifenced = go(&|_| {
            let compute = Call::Compute(fenced.span);
            vec![Call::Put, Call::Ifence, compute, Call::WaitFence]
        });
        let igathered = go(&|_| {
            let compute = Call::Compute(gathered.span);
            vec![Call::Iallgather, compute, Call::WaitGather]
        });
        let degree = DegreePolicy::default().degree(shape.nodes, shape.per_node);
        println!(
            "| {size} | {} | {degree} | {} | {} | {} | {:.2} | {} | {:.4} % | {} | {:.4} % |",
            shape.nodes,
            time(fenced.span),
            time(got.span),
            time(gathered.span),
            fenced.span / gathered.span,
            time(ifenced.visible),
            100.0 * ifenced.visible / fenced.visible,
            time(igathered.visible),
            100.0 * igathered.visible / gathered.visible,
        );
    }
    println!();
    println!(
        "Memory of servers: {session} bytes for each of 65,536 sessions that have said nothing; peak of \
         this process {}.",
        resident("VmHWM:").map_or("unknown".to_owned(), |kib| format!("{} MiB", kib / 1024))
    );
}

/// The same jobs with all nodes and with the path alone.
fn check(options: &Options, costs: Costs) {
    println!("| processes | nodes | operation | every node | path | path / every |");
    println!("|---:|---:|---|---:|---:|---:|");
    for nodes in [2, 8, 32, 100, 128, 256] {
        for (name, calls) in [
            ("fence", fence as fn(u32) -> Vec<Call>),
            ("allgather", allgather),
        ] {
            let processes = nodes * options.per_node;
            let go = |scope| -> Outcome { run(shape(options, processes, scope), costs, &calls) };
            let (all, path) = (go(Scope::All).span, go(Scope::Path).span);
            println!(
                "| {processes} | {nodes} | {name} | {} | {} | {:.3} |",
                time(all),
                time(path),
                path / all
            );
        }
    }
}

/// Resident bytes of servers per process of a large job that has not begun to speak.
fn session_bytes(per_node: u32) -> u64 {
    let nodes = 65_536 / per_node.max(1);
    let tree = Tree::new(nodes, 16);
    let job = Job {
        size: nodes * per_node,
        ..Job::default()
    };
    let before = resident("VmRSS:").unwrap_or(0);
    let servers: Vec<_> = (0..nodes)
        .map(|node| {
            let ranks = |nodes: std::ops::Range<u32>| nodes.start * per_node..nodes.end * per_node;
            let place = NodePlace {
                ranks: ranks(node..node + 1).collect(),
                has_parent: node > 0,
                children: tree
                    .child_subtrees(node)
                    .map(|nodes| ranks(nodes).into())
                    .collect(),
            };
            NodeServer::new(job.clone(), place)
        })
        .collect();
    let after = resident("VmRSS:").unwrap_or(0);
    drop(servers);
    after.saturating_sub(before) * 1024 / u64::from(job.size.max(1))
}

/// A figure of this process in KiB.
fn resident(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}
