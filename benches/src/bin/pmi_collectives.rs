//! PMI's collectives in turn, among the processes of a job under `shmrun`: fence, fence with gets, allgather, and the
//! non-blocking ones with nothing, sleep and computation to hide behind.
//!
//! `shmrun -n 64 --nodes 4 pmi_collectives --length 32` prints a line of CSV for each operation of each round, with the
//! columns of `shmem_benches::pmi::rounds::HEADER`.
//!
//! *Span* is the time from the first start of a process to the last end; *visible* the time that a process spends inside
//! calls of PMI, but for the put before a fence. Processor times are of all processes together, and of all agents
//! together.
//!
//! Processes compute only where each has a core of its own; where they outnumber the cores a computation would measure
//! how the system shares them.

use std::io;
use std::process::ExitCode;

use clap::Parser;
use shmem_benches::pmi::member::Member;
use shmem_benches::pmi::rounds::{self, Meanwhile, Operation, Plan};

#[derive(Parser)]
#[command(about = "PMI's collectives in turn, among the processes of a job")]
struct Options {
    /// Length of a value: 8 to 1023.
    #[arg(long, default_value_t = 32)]
    length: usize,
    /// Rounds; each runs every operation once.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Values that a process gets after a fence, and reads after an allgather; at most all.
    #[arg(long, default_value_t = 16)]
    gets: usize,
    /// Length of a computation as multiple of the blocking operation's span.
    #[arg(long, default_value_t = 1.0)]
    compute: f64,
    /// Only these operations, by the names that are printed.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Compute even where processes outnumber cores.
    #[arg(long)]
    spin: bool,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("pmi_collectives: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> io::Result<()> {
    let operations = chosen(&options.only).map_err(io::Error::other)?;
    let member = Member::join()?;
    let gets = options.gets.min(member.size());
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let spins = options.spin || cores >= member.size();
    let plan = Plan {
        bytes: options.length,
        rounds: options.rounds,
        gets,
        compute: options.compute,
        operations: operations
            .into_iter()
            .filter(|operation| spins || operation.meanwhile() != Meanwhile::Spin)
            .collect(),
    };
    let job = format!(
        "{},{},{},{gets}",
        member.size(),
        member.nodes(),
        options.length
    );
    rounds::run(&member, &plan, |round, operation, row| {
        println!("{job},{round},{},{}", operation.name(), row.csv());
    })?;
    member.finalize()
}

/// The operations of these names; all without a name.
fn chosen(only: &[String]) -> Result<Vec<Operation>, String> {
    let all = Operation::ALL;
    if only.is_empty() {
        return Ok(all.into());
    }
    let names = || all.map(Operation::name).join(", ");
    if let Some(unknown) = only
        .iter()
        .find(|name| !all.iter().any(|o| o.name() == **name))
    {
        return Err(format!("{unknown} is none of {}", names()));
    }
    let wanted = |o: &Operation| only.iter().any(|name| name == o.name());
    Ok(all.into_iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_chosen_by_name_and_keep_their_order() {
        let only =
            |names: &[&str]| chosen(&names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        assert_eq!(only(&[]), Ok(Operation::ALL.into()));
        assert_eq!(
            only(&["allgather", "fence"]),
            Ok(vec![Operation::Fence, Operation::Allgather])
        );
        assert!(only(&["fench"]).is_err_and(|e| e.contains("fench is none of fence, ")));
    }
}
