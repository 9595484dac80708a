//! Unit costs of this machine, from jobs that ran on it.
//!
//! A job's report says what processor time its agents had, what its PEs had in all and in init, and what memory they had at
//! the end; the launcher's parent knows what all processes had together. What is left for launcher, templates and guards is the
//! difference. Each of these is a sum over the job, agents and PEs, so that jobs of a few sizes tell the parts by least
//! squares. Two numbers are not read off but chosen so that these jobs take as long in the model as they did: the *pace*, what a
//! process takes of wall time for its processor time while all run, and the *turn*, after which another has the core.

use super::memory::Unit;
use super::{Connect, Costs, Machine, Scope, Shape, run};
use shmem_benches::stats::median;

/// What a job has shown: medians of its runs. Times in nanoseconds, memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// PEs.
    pub pes: u32,
    /// Nodes.
    pub nodes: u32,
    /// When connections were made.
    pub connect: Connect,
    /// From the start of the launcher to its end.
    pub hello: f64,
    /// Time of a PE in init, mean.
    pub init: f64,
    /// Processor time of all processes.
    pub cpu: f64,
    /// That of all agents.
    pub agents: f64,
    /// That of all PEs.
    pub of_pes: f64,
    /// That of a PE in init until it has its endpoint, mean.
    pub endpoint: f64,
    /// That of a PE in all of init, mean.
    pub in_init: f64,
    /// That of a PE in finalize, mean.
    pub in_finalize: f64,
    /// Proportional memory of all PEs.
    pub memory: f64,
    /// Messages of handshakes that were sent, by all PEs.
    pub messages: f64,
}

impl Measured {
    /// The job in the model, on a machine of so many cores.
    pub fn shape(&self, cores: usize) -> Shape {
        Shape {
            nodes: self.nodes,
            per_node: self.pes / self.nodes,
            degree: None,
            connect: self.connect,
            scope: Scope::All,
            machine: Machine::Emulating(cores),
        }
    }
}

/// What was fitted.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Fit {
    /// Unit costs.
    pub costs: Costs,
    /// Unit memory.
    pub memory: Unit,
    /// What a process takes of wall time for its processor time.
    pub pace: f64,
}

/// Of messages between agents there is no figure: what `pmi_collectives` shows, as in the model of PMI's exchanges.
const PIECE: f64 = 5_000.0;
const BYTE: f64 = 0.2;

/// Sending a datagram over the loopback device, or taking one in, and a write of a few bytes; `raw-sockets` measures
/// that.
const DATAGRAM: f64 = 3_000.0;
const WRITE: f64 = 5_000.0;

/// Turns that are tried.
const TURNS: [f64; 9] = [0.1e6, 0.2e6, 0.35e6, 0.5e6, 0.7e6, 1e6, 1.4e6, 2e6, 3e6];

/// Fits costs to jobs on this machine, of `cores` cores.
///
/// # Errors
/// There are too few jobs.
pub fn fit(jobs: &[Measured], cores: usize) -> Result<Fit, String> {
    let of = |connect| jobs.iter().filter(move |job| job.connect == connect);
    let jobs = Jobs {
        on_demand: of(Connect::OnDemand).collect(),
        connected: of(Connect::Static).collect(),
        cores,
    };
    let fit = jobs.fit();
    fit.ok_or_else(|| "too few jobs to fit costs to".to_owned())
}

/// Jobs by when connections were made. Costs are `None` that too few jobs tell.
struct Jobs<'a> {
    on_demand: Vec<&'a Measured>,
    connected: Vec<&'a Measured>,
    cores: usize,
}

/// What connections cost.
#[derive(Debug, Clone, Copy)]
struct Connections {
    /// Each connection that is made in init; it grows with the number of connections of a PE.
    contact: f64,
    deeper: f64,
    /// One that is made alone, but for its datagrams.
    queue_pair: f64,
    memory: f64,
}

fn numbers(job: &Measured) -> [f64; 2] {
    [f64::from(job.pes), f64::from(job.nodes)]
}

impl Jobs<'_> {
    /// The unknowns of one equation for each job, of its PEs and nodes.
    fn solved<const N: usize>(
        &self,
        factors: fn([f64; 2]) -> [f64; N],
        sum: fn(&Measured) -> f64,
    ) -> Option<[f64; N]> {
        let jobs = self.on_demand.iter();
        let rows: Vec<_> = jobs.map(|job| (factors(numbers(job)), sum(job))).collect();
        least_squares(&rows)
    }

    fn median(&self, of: fn(&Measured) -> f64) -> f64 {
        let all: Vec<f64> = self.on_demand.iter().map(|job| of(job)).collect();
        median(&all)
    }

    fn contacts(&self, job: &Measured) -> f64 {
        f64::from(job.shape(self.cores).all_contacts())
    }

    fn fit(&self) -> Option<Fit> {
        let connections = self.connections();
        let (costs, pace) = self.paced(self.costs(connections)?);
        let [program, pe] = self.solved(|[pes, _]| [1.0, pes], |job| job.memory)?;
        Some(Fit {
            costs: costs.at_pace(pace),
            memory: Unit {
                program,
                pe,
                queue_pair: connections.memory,
            },
            pace,
        })
    }

    /// What jobs that connect in init take more, and have more.
    fn connections(&self) -> Connections {
        let more = self.connected.iter().filter_map(|all| {
            let mut jobs = self.on_demand.iter();
            let same = jobs.find(|job| numbers(job) == numbers(all))?;
            let each = self.contacts(all);
            let contacts = f64::from(all.pes) * each;
            let (cpu, memory) = (all.cpu - same.cpu, all.memory - same.memory);
            Some((contacts, each.log2(), cpu, memory))
        });
        let more: Vec<_> = more.collect();
        let by_cpu = more
            .iter()
            .map(|&(contacts, deep, cpu, _)| ([contacts, contacts * deep], cpu));
        let by_cpu: Vec<_> = by_cpu.collect();
        let [contact, deeper] = least_squares(&by_cpu).unwrap_or_default();
        let by_memory: Vec<_> = more.iter().map(|m| ([m.0], m.3)).collect();
        let [memory] = least_squares(&by_memory).unwrap_or_default();
        // Of a connection that is made alone, the repetitions of many are no part.
        let least_deep = more.iter().map(|m| m.1).fold(f64::INFINITY, f64::min);
        let of_few = contact + deeper * least_deep.min(64.0);
        Connections {
            contact,
            deeper,
            queue_pair: (of_few - self.datagrams()).max(0.0),
            memory,
        }
    }

    /// Time for the messages of a connection: each is sent by one and taken in by the other.
    fn datagrams(&self) -> f64 {
        let messages = self
            .connected
            .iter()
            .map(|job| 2.0 * job.messages / (f64::from(job.pes) * self.contacts(job)));
        let messages: Vec<f64> = messages.collect();
        match messages.is_empty() {
            true => 0.0,
            false => (median(&messages) + f64::from(super::contact(true).farewell)) * DATAGRAM,
        }
    }

    /// Unit costs, of which the turn is the first that is tried.
    fn costs(&self, connections: Connections) -> Option<Costs> {
        // An agent's own, for each of its PEs, and for each PE of the job.
        let of_agents = |[pes, nodes]: [f64; 2]| [nodes, pes, pes * nodes];
        let [agent, reap, rank] = self.solved(of_agents, |job| job.agents)?;
        // Launcher, templates with guards, and forks.
        let others = |job: &Measured| job.cpu - job.agents - job.of_pes;
        let [launcher, template, fork] = self.solved(|[pes, nodes]| [1.0, nodes, pes], others)?;
        let endpoint = self.median(|job| job.endpoint);
        let in_init = self.median(|job| job.in_init);
        let in_finalize = self.median(|job| job.in_finalize);
        let of_a_pe = self.median(|job| job.of_pes / f64::from(job.pes));
        let rest = (of_a_pe - in_init - in_finalize).max(0.0);
        Some(Costs {
            launcher,
            // Of what an agent takes for itself, a part is the start of its children; a fork of a small process.
            start: agent / 4.0,
            shell: 0.0,
            agent: 3.0 * agent / 4.0,
            rank,
            piece: PIECE,
            byte: BYTE,
            reap,
            template,
            fork,
            main: rest / 2.0,
            endpoint,
            register: (in_init - endpoint).max(0.0),
            program: in_finalize / 2.0,
            exit: in_finalize / 2.0 + rest / 2.0,
            queue_pair: connections.queue_pair,
            contact: connections.contact,
            deeper: connections.deeper,
            datagram: DATAGRAM,
            write: WRITE,
            latency: 0.0,
            link_byte: 0.0,
            turn: TURNS[0],
        })
    }

    /// The costs with the turn, and the pace, with which the jobs take as long in the model as they did.
    fn paced(&self, mut costs: Costs) -> (Costs, f64) {
        let mut pace = 1.0;
        let mut best = f64::INFINITY;
        for turn in TURNS {
            let tried = Costs { turn, ..costs };
            let jobs = self.on_demand.iter();
            let outcomes: Vec<_> = jobs.map(|job| run(job.shape(self.cores), tried)).collect();
            let ratio = |of: fn(&Measured) -> f64, to: fn(&super::Outcome) -> f64| {
                let all = self.on_demand.iter().zip(&outcomes);
                median(&all.map(|(job, out)| of(job) / to(out)).collect::<Vec<_>>())
            };
            let hello = ratio(|job| job.hello, |out| out.hello);
            let init = ratio(|job| job.init, |out| out.init);
            let off = (init / hello).ln().abs();
            if off < best {
                (best, pace, costs) = (off, hello, tried);
            }
        }
        (costs, pace)
    }
}

/// The unknowns of equations between rows of factors and sums, by least squares of relative errors; none of them is
/// negative. `None` where equations are too few, or tell them not apart.
fn least_squares<const N: usize>(rows: &[([f64; N], f64)]) -> Option<[f64; N]> {
    if rows.len() < N {
        return None;
    }
    let mut matrix = [[0.0; N]; N];
    let mut sums = [0.0; N];
    for (factors, sum) in rows {
        let weight = 1.0 / sum.abs().max(1e-9);
        for i in 0..N {
            for j in 0..N {
                matrix[i][j] += factors[i] * factors[j] * weight * weight;
            }
            sums[i] += factors[i] * sum * weight * weight;
        }
    }
    // What would be negative is nothing, and the others are fitted without it.
    let mut out = [false; N];
    loop {
        let found = solve(matrix, sums, &out)?;
        match found.iter().position(|&x| x < 0.0) {
            Some(at) => out[at] = true,
            None => return Some(found),
        }
    }
}

/// Gauss's elimination, without the unknowns that are `out`.
fn solve<const N: usize>(
    mut matrix: [[f64; N]; N],
    mut sums: [f64; N],
    out: &[bool; N],
) -> Option<[f64; N]> {
    for i in (0..N).filter(|&i| out[i]) {
        matrix[i] = [0.0; N];
        matrix.iter_mut().for_each(|row| row[i] = 0.0);
        (matrix[i][i], sums[i]) = (1.0, 0.0);
    }
    for i in 0..N {
        let pivot = (i..N).max_by(|&a, &b| matrix[a][i].abs().total_cmp(&matrix[b][i].abs()))?;
        matrix.swap(i, pivot);
        sums.swap(i, pivot);
        let by = matrix[i][i];
        if by.abs() < 1e-300 {
            return None;
        }
        let pivot = matrix[i];
        for row in i + 1..N {
            let factor = matrix[row][i] / by;
            let columns = matrix[row].iter_mut().zip(pivot);
            columns.for_each(|(x, of_pivot)| *x -= factor * of_pivot);
            sums[row] -= factor * sums[i];
        }
    }
    let mut found = [0.0; N];
    for i in (0..N).rev() {
        let known: f64 = (i + 1..N).map(|j| matrix[i][j] * found[j]).sum();
        found[i] = (sums[i] - known) / matrix[i][i];
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equations_are_solved_and_nothing_is_negative() {
        let rows = |x: f64, y: f64| {
            [(1.0, 2.0), (3.0, 1.0), (5.0, 5.0)].map(|(a, b)| ([a, b], a * x + b * y))
        };
        let close = |found: Option<[f64; 2]>, of: [f64; 2]| {
            let found = found.expect("a solution");
            assert!(
                found.iter().zip(of).all(|(a, b)| (a - b).abs() < 1e-9),
                "{found:?}"
            );
        };
        close(least_squares(&rows(4.0, 7.0)), [4.0, 7.0]);
        close(least_squares(&rows(4.0, 0.0)), [4.0, 0.0]);
        let found = least_squares(&[([1.0, 1.0], 1.0), ([1.0, 3.0], 0.5)]).expect("a solution");
        assert!(found.iter().all(|&x| x >= 0.0), "{found:?}");
        assert_eq!(least_squares(&[([1.0, 1.0], 1.0)]), None);
        assert_eq!(least_squares(&[([1.0, 1.0], 1.0), ([2.0, 2.0], 2.0)]), None);
    }

    /// Jobs that the model itself has made come out as they went in.
    #[test]
    fn what_the_model_has_made_is_fitted_again() {
        let costs = Costs {
            latency: 0.0,
            link_byte: 0.0,
            piece: PIECE,
            byte: BYTE,
            turn: 1.4e6,
            ..Costs::round()
        };
        let jobs = [(64, 4), (64, 16), (256, 16), (256, 64), (512, 32)].map(|(pes, nodes)| {
            let blank = Measured {
                pes,
                nodes,
                connect: Connect::OnDemand,
                hello: 0.0,
                init: 0.0,
                cpu: 0.0,
                agents: 0.0,
                of_pes: 0.0,
                endpoint: costs.endpoint,
                in_init: costs.endpoint + costs.register,
                in_finalize: costs.program,
                memory: 0.0,
                messages: 0.0,
            };
            let outcome = run(blank.shape(2), costs);
            let [p, n] = [f64::from(pes), f64::from(nodes)];
            let of_pes =
                p * (costs.main + costs.endpoint + costs.register + costs.program + costs.exit);
            let agents = n * (costs.agent + costs.start) + p * costs.reap + costs.rank * n * p;
            Measured {
                hello: outcome.hello,
                init: outcome.init,
                cpu: costs.launcher + n * costs.template + p * costs.fork + of_pes + agents,
                agents,
                of_pes,
                memory: 1e6 + p * 1.3e5,
                ..blank
            }
        });
        let fit = fit(&jobs, 2).expect("a fit");
        for job in &jobs {
            let again = run(job.shape(2), fit.costs);
            let off = (again.hello / job.hello - 1.0).abs();
            assert!(off < 0.1, "{job:?}, {again:?}, {fit:?}");
        }
        assert!((fit.memory.pe - 1.3e5).abs() < 1.0, "{fit:?}");
        assert!((0.9..1.1).contains(&fit.pace), "{fit:?}");
    }
}
