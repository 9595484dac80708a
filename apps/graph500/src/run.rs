//! The benchmark as a whole: edges, kernel 1, roots, searches, validation.

use crate::construction::Graph;
use crate::coordination::{Coordination, OpenShmem};
use crate::error::Error;
use crate::generator::{Edge, Generator, share};
use crate::golden::{self, Golden, same};
use crate::hybrid::Library;
use crate::mailbox::Mailbox;
use crate::memory::{self, Needs};
use crate::node::Nodes;
use crate::options::Options;
use crate::partition::Partition;
use crate::report::{Report, Run};
use crate::roots;
use crate::search::Searches;
use crate::validation::Validation;
use shmem::Team;
use std::fmt;
use std::io::{self, Write};
use std::time::Instant;

/// Runs the benchmark. The job has been joined, and `mpi` is for the hybrid variant. Collective.
///
/// # Errors
/// Why it cannot run, or what is wrong with a result.
pub fn run(options: &Options, mpi: Option<&Library>) -> Result<Report, Error> {
    let (scale, n_pes) = (options.scale, shmem::n_pes());
    let vertices = 1usize << scale;
    if n_pes > vertices {
        return Err(Error::Pes { scale, n_pes });
    }
    let partition = Partition::new(vertices, n_pes);
    let nodes = Nodes::of_job();
    let needs = Needs {
        scale,
        edge_factor: options.edge_factor,
        validation: !(options.skip_validation || options.skip_searches),
        hybrid: options.hybrid,
    };
    memory::check(needs, &partition, &nodes)?;
    let mut mailbox = Mailbox::new(&nodes)?;
    let report = match mpi {
        None => {
            let coordination = OpenShmem::new(&mailbox);
            Benchmark::new(options, partition, &nodes).run(&mut mailbox, coordination)?
        }
        Some(library) => {
            let coordination = library.coordination()?;
            Benchmark::new(options, partition, &nodes).run(&mut mailbox, coordination)?
        }
    };
    mailbox.free()?;
    Ok(report)
}

struct Benchmark<'a> {
    options: &'a Options,
    partition: Partition,
    nodes: &'a Nodes,
    golden: Option<&'static Golden>,
}

impl<'a> Benchmark<'a> {
    fn new(options: &'a Options, partition: Partition, nodes: &'a Nodes) -> Self {
        let golden = golden::of(options.scale, options.edge_factor);
        Self {
            options,
            partition,
            nodes,
            golden: golden.filter(|_| options.check),
        }
    }

    fn run(
        &self,
        mailbox: &mut Mailbox,
        mut coordination: impl Coordination,
    ) -> Result<Report, Error> {
        let options = self.options;
        let (edges, generation) = timed(|| Ok(self.edges()))?;
        self.say(format_args!(
            "graph_generation:               {generation:.6} s"
        ));
        let (graph, construction) =
            timed(|| Graph::build(&edges, self.partition, self.nodes, &mut coordination))?;
        self.say(format_args!(
            "construction_time:              {construction:.6} s"
        ));
        let mut report = Report {
            scale: options.scale,
            edge_factor: options.edge_factor,
            n_pes: self.partition.n_pes(),
            nodes: self.nodes.leaders().len(),
            algorithm: options.algorithm,
            hybrid: options.hybrid,
            generation,
            construction,
            runs: Vec::new(),
        };
        if let Some(golden) = self.golden {
            self.check_graph(golden, &edges, &graph)?;
        }
        if !options.skip_searches {
            let roots = roots::choose(&graph, options.roots as usize);
            if roots.is_empty() {
                return Err(Error::NoRoots);
            }
            report.runs = self.searches(&graph, &edges, &roots, mailbox, &mut coordination)?;
            if let Some(golden) = self.golden {
                check_searches(golden, &report.runs)?;
                self.say(format_args!("All values are those of the reference."));
            }
        }
        graph.free()?;
        Ok(report)
    }

    /// This PE's share.
    fn edges(&self) -> Vec<Edge> {
        let all = self.options.edge_factor << self.options.scale;
        let share = share(all, self.nodes.me(), self.partition.n_pes());
        let mut edges = vec![[0; 2]; (share.end - share.start) as usize];
        Generator::new(self.options.scale).fill(share.start, &mut edges);
        edges
    }

    fn searches(
        &self,
        graph: &Graph,
        edges: &[Edge],
        roots: &[u32],
        mailbox: &mut Mailbox,
        coordination: &mut impl Coordination,
    ) -> Result<Vec<Run>, Error> {
        let algorithm = self.options.algorithm;
        let mut searches = Searches::new(graph, self.nodes)?;
        let validation = if self.options.skip_validation {
            None
        } else {
            Some(Validation::new(&self.partition, self.nodes)?)
        };
        // To warm up: connections are made, and pages touched.
        searches.clear();
        searches.run(roots[0], algorithm, mailbox, coordination)?;
        let mut runs = Vec::with_capacity(roots.len());
        for (i, &root) in roots.iter().enumerate() {
            self.say(format_args!("Running BFS {i}"));
            searches.clear();
            let (found, seconds) = timed(|| searches.run(root, algorithm, mailbox, coordination))?;
            self.say(format_args!("Time for BFS {i} is {seconds:.6}"));
            let nedge = searches.count_edges(coordination)?;
            let mut run = Run {
                root,
                seconds,
                nedge,
                levels: found.levels,
                from_below: found.from_below,
                validation: None,
            };
            self.say(format_args!("TEPS for BFS {i} is {:.6e}", run.teps()));
            if let Some(validation) = &validation {
                self.say(format_args!("Validating BFS {i}"));
                let predecessors = searches.predecessors();
                let ((), seconds) = timed(|| {
                    let checked = validation.check(edges, predecessors, root, nedge);
                    checked.map_err(|refusal| Error::Invalid { root, refusal })
                })?;
                self.say(format_args!("Validate time for BFS {i} is {seconds:.6}"));
                run.validation = Some(seconds);
            }
            runs.push(run);
        }
        if let Some(validation) = validation {
            validation.free()?;
        }
        searches.free()?;
        Ok(runs)
    }

    /// Compares the edges, and what can be known of vertices without a search.
    fn check_graph(&self, golden: &Golden, edges: &[Edge], graph: &Graph) -> Result<(), Error> {
        let world = Team::world();
        // The hash of all edges in order, from PE to PE.
        let mut hash = golden::HASH;
        for pe in 0..self.partition.n_pes() {
            if pe == self.nodes.me() {
                hash = golden::hash(hash, edges);
            }
            hash = world.broadcast_value(hash, pe);
        }
        same("the hash of the edges", &hash, &golden.fnv)?;
        let loops = world.sum(golden::loops(edges));
        same("loops", &loops, &golden.loops)?;
        let mine = self.partition.range(self.nodes.me()).len();
        let degrees = &graph.degrees()[..mine];
        let isolated = degrees.iter().filter(|&&degree| degree == 0).count() as u64;
        same("isolated vertices", &world.sum(isolated), &golden.isolated)?;
        let largest = u64::from(degrees.iter().copied().max().unwrap_or(0));
        let largest = world.max(largest);
        same("the largest degree", &largest, &golden.max_degree)?;
        Ok(())
    }

    /// On standard error of PE 0, as the reference: it is no part of the results.
    fn say(&self, line: fmt::Arguments<'_>) {
        if self.nodes.me() == 0 && !self.options.quiet {
            say(line);
        }
    }
}

/// A line on standard error, which nobody may read any longer.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Compares what searches have found; some may not have been made.
fn check_searches(golden: &Golden, runs: &[Run]) -> Result<(), Error> {
    for search in golden.searches {
        let (index, Some(run)) = (search.index, runs.get(search.index)) else {
            continue;
        };
        same(&format!("root {index}"), &run.root, &search.root)?;
        same(
            &format!("edges of search {index}"),
            &run.nedge,
            &golden.nedge,
        )?;
        let visited = run.levels.iter().sum();
        same(
            &format!("vertices of search {index}"),
            &visited,
            &golden.visited,
        )?;
        if !search.levels.is_empty() {
            let what = format!("levels of search {index}");
            same(&what, &&run.levels[..], &search.levels)?;
        }
    }
    Ok(())
}

/// What `work` gives, and how long it took on the slowest PE. All PEs begin together. An error, which may be of this PE
/// alone, is given at once: others may be waiting within `work`, until the job ends.
fn timed<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<(T, f64), Error> {
    shmem::barrier_all();
    let start = Instant::now();
    let made = work()?;
    let seconds = start.elapsed().as_secs_f64();
    Ok((made, Team::world().max(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[shmem::test(pes = 2)]
    fn an_error_of_one_pe_waits_for_nobody(world: &shmem::World) {
        let fails = world.my_pe() == 1;
        let outcome = timed(|| if fails { Err(Error::NoRoots) } else { Ok(()) });
        assert_eq!(outcome.is_err(), fails);
        if fails {
            // The other one is still in there.
            let _ = world.max(0.0);
        }
    }
}
