//! Rounds of PMI collectives that all processes begin at the same time, and what each cost.
//!
//! Before an operation process 0 sends a *plan* to all: when to begin, and for how long to compute.
//! After it, all send their figures to process 0. Both are allgathers, and neither is measured.
//! Clocks need no adjustment, since all nodes are emulated on one machine.

use std::borrow::Cow;
use std::hint::black_box;
use std::io;
use std::thread::sleep;
use std::time::Duration;

use shmem_node::sys::monotonic_ns;

use super::member::{Gathered, Member, Pmgr, text};
use crate::cpu::{Whose, cpu_time};
use crate::stats::median;
use crate::turns::Turns;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Put and fence: the paper's measure, in which nobody gets anything.
    Fence,
    /// Put, fence and gets.
    FenceGet,
    /// Allgather, and reading the values that `FenceGet` gets.
    Allgather,
    /// The allgather of the agents' primitives, and reading as many values of the copy of all that each gets.
    Primitives,
    /// The allgather of PMGR, which is over those, and the same reading.
    Pmgr,
    /// Put, start of a fence, computation, wait.
    Ifence(Meanwhile),
    /// Start of an allgather, computation, wait, and reading the same values.
    Iallgather(Meanwhile),
}

/// What a process does between the start of an operation and the wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Meanwhile {
    /// Nothing.
    Nothing,
    /// It sleeps: the launch agents have the processors for themselves.
    Sleep,
    /// It computes: the launch agents have to share.
    Spin,
}

impl Operation {
    /// All. In the round that warms up they come in this order: what blocks first, since computations are as long as that.
    pub const ALL: [Self; 11] = [
        Self::Fence,
        Self::FenceGet,
        Self::Allgather,
        Self::Primitives,
        Self::Pmgr,
        Self::Ifence(Meanwhile::Nothing),
        Self::Iallgather(Meanwhile::Nothing),
        Self::Ifence(Meanwhile::Sleep),
        Self::Iallgather(Meanwhile::Sleep),
        Self::Ifence(Meanwhile::Spin),
        Self::Iallgather(Meanwhile::Spin),
    ];

    /// Name in samples and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fence => "fence",
            Self::FenceGet => "fence+get",
            Self::Allgather => "allgather",
            Self::Primitives => "primitives",
            Self::Pmgr => "pmgr",
            Self::Ifence(Meanwhile::Nothing) => "ifence",
            Self::Iallgather(Meanwhile::Nothing) => "iallgather",
            Self::Ifence(Meanwhile::Sleep) => "ifence/sleep",
            Self::Iallgather(Meanwhile::Sleep) => "iallgather/sleep",
            Self::Ifence(Meanwhile::Spin) => "ifence/spin",
            Self::Iallgather(Meanwhile::Spin) => "iallgather/spin",
        }
    }

    /// What it does between start and wait; nothing where the operation blocks.
    pub fn meanwhile(self) -> Meanwhile {
        match self {
            Self::Ifence(meanwhile) | Self::Iallgather(meanwhile) => meanwhile,
            _ => Meanwhile::Nothing,
        }
    }

    /// The blocking operation that it replaces.
    pub fn blocking(self) -> Self {
        match self {
            Self::Ifence(_) => Self::Fence,
            Self::Iallgather(_) => Self::Allgather,
            other => other,
        }
    }
}

/// What to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Length of a value in bytes.
    pub bytes: usize,
    /// Rounds; each runs every operation once.
    pub rounds: usize,
    /// Values that a process gets after a fence.
    pub gets: usize,
    /// Length of a computation as multiple of the blocking operation.
    pub compute: f64,
    /// What is measured.
    pub operations: Vec<Operation>,
}

/// Columns of [`Row`] as CSV.
pub const HEADER: &str = "processes,nodes,bytes,gets,round,operation,compute_ns,span_ns,tail_ns,\
    visible_mean_ns,visible_median_ns,visible_max_ns,cpu_ns,agents_cpu_ns,late";

/// One operation of one round, over all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Row {
    /// For how long each computed.
    pub compute: u64,
    /// From the first start to the last end.
    pub span: u64,
    /// From the last start to the last end.
    pub tail: u64,
    /// Time inside calls of PMI but for the put, mean over processes.
    pub visible_mean: u64,
    /// The same, median over processes.
    pub visible_median: u64,
    /// The same, the longest of a process.
    pub visible_max: u64,
    /// Processor time of all processes, without what spins.
    pub cpu: u64,
    /// Processor time of all agents.
    pub agents: u64,
    /// Processes that got the plan after it had begun.
    pub late: u64,
}

/// What one process tells of one operation: nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Figures {
    start: u64,
    end: u64,
    visible: u64,
    cpu: u64,
    agent: u64,
    late: u64,
}

impl Figures {
    fn to_bytes(self) -> [u8; 48] {
        let words = [
            self.start,
            self.end,
            self.visible,
            self.cpu,
            self.agent,
            self.late,
        ];
        words_to_bytes(words)
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let [start, end, visible, cpu, agent, late] = words(bytes);
        Self {
            start,
            end,
            visible,
            cpu,
            agent,
            late,
        }
    }
}

fn words_to_bytes<const N: usize, const LEN: usize>(words: [u64; N]) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut words = [0; N];
    for (word, from) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = from.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b));
    }
    words
}

impl Row {
    fn of(all: &[Figures], compute: u64) -> Self {
        let first = all.iter().map(|f| f.start).min().unwrap_or(0);
        let last = all.iter().map(|f| f.start).max().unwrap_or(0);
        let end = all.iter().map(|f| f.end).max().unwrap_or(0);
        let visible: Vec<f64> = all.iter().map(|f| f.visible as f64).collect();
        let sum = |pick: fn(&Figures) -> u64| all.iter().map(pick).sum::<u64>();
        Self {
            compute,
            span: end - first,
            tail: end.saturating_sub(last),
            visible_mean: (visible.iter().sum::<f64>() / visible.len() as f64) as u64,
            visible_median: median(&visible) as u64,
            visible_max: visible.iter().copied().fold(0.0, f64::max) as u64,
            cpu: sum(|f| f.cpu),
            agents: sum(|f| f.agent),
            late: sum(|f| f.late),
        }
    }

    /// As CSV, after the columns that say what was run.
    pub fn csv(&self) -> String {
        format!(
            "{},{},{},{},{},{},{},{},{}",
            self.compute,
            self.span,
            self.tail,
            self.visible_mean,
            self.visible_median,
            self.visible_max,
            self.cpu,
            self.agents,
            self.late
        )
    }
}

/// A field of a row in CSV, by the name of its column.
///
/// # Errors
/// If there is none.
pub fn field<'a>(line: &'a str, name: &str) -> Result<&'a str, String> {
    let at = HEADER.split(',').position(|column| column == name);
    let found = at.and_then(|at| line.split(',').nth(at));
    found.ok_or_else(|| format!("{name} is missing in {line:?}"))
}

/// Runs all rounds. Process 0 gives each row to `tell`, with the round and the operation.
///
/// # Errors
/// The server refuses something or is gone; or a value is not what its process gave.
pub fn run(
    member: &Member,
    plan: &Plan,
    mut tell: impl FnMut(usize, Operation, Row),
) -> io::Result<()> {
    let mut spans: Vec<(Operation, Vec<f64>)> = Vec::new();
    // The slowest exchange so far: how long a plan may need until all have it.
    let mut exchange = 1_000_000;
    let turns = Turns {
        rounds: plan.rounds,
        warm_up: true,
    };
    turns.run(plan.operations.len(), |which, told_round| {
        let operation = plan.operations[which];
        let round = told_round.map_or(0, |round| round + 1);
        let blocking = spans.iter().find(|s| s.0 == operation.blocking());
        let compute = match (operation.meanwhile(), blocking) {
            (Meanwhile::Nothing, _) | (_, None) => 0.0,
            (_, Some((_, spans))) => median(spans) * plan.compute,
        };
        let begun = monotonic_ns();
        let (at, compute) = agree(member, begun + 2 * exchange, compute as u64)?;
        let late = begin(at);
        let mut figures = measure(member, plan, operation, round, compute)?;
        figures.late = u64::from(late);
        let told = monotonic_ns();
        if let Some(all) = collect(member, &figures)? {
            exchange = exchange.max(monotonic_ns() - told);
            let row = Row::of(&all, compute);
            if told_round.is_some() {
                tell(round, operation, row);
            }
            match spans.iter_mut().find(|s| s.0 == operation) {
                Some((_, spans)) => spans.push(row.span as f64),
                None => spans.push((operation, vec![row.span as f64])),
            }
        }
        Ok(())
    })
}

/// Process 0 tells all when to begin and for how long to compute.
fn agree(member: &Member, at: u64, compute: u64) -> io::Result<(u64, u64)> {
    let all = member.allgather(&words_to_bytes::<2, 16>([at, compute]))?;
    let [at, compute] = words(&value(&all, 0));
    Ok((at, compute))
}

/// Sleeps until `at`; says whether that was over.
fn begin(at: u64) -> bool {
    match at.checked_sub(monotonic_ns()) {
        Some(left) if left > 0 => {
            sleep(Duration::from_nanos(left));
            false
        }
        _ => true,
    }
}

/// Sends the figures of all to process 0.
fn collect(member: &Member, figures: &Figures) -> io::Result<Option<Vec<Figures>>> {
    let all = member.allgather(&figures.to_bytes())?;
    if member.rank() != 0 {
        return Ok(None);
    }
    let figures = (0..all.len()).map(|rank| Figures::from_bytes(&value(&all, rank)));
    Ok(Some(figures.collect()))
}

fn measure(
    member: &Member,
    plan: &Plan,
    operation: Operation,
    round: usize,
    compute: u64,
) -> io::Result<Figures> {
    let own = text(member.rank(), round, plan.bytes);
    let agent = || match member.leads() {
        true => member.agent_cpu(),
        false => 0,
    };
    let agent_before = agent();
    let cpu = || cpu_time(Whose::Own).as_nanos() as u64;
    let cpu_before = cpu();
    let start = monotonic_ns();
    let done = perform(member, plan, operation, &own, compute)?;
    let end = monotonic_ns();
    let cpu_after = cpu();
    if let Some((rank, seen)) = done.seen
        && seen != text(rank, round, plan.bytes).as_bytes()
    {
        let seen = String::from_utf8_lossy(&seen);
        let name = operation.name();
        return Err(io::Error::other(format!(
            "{name}, round {round}: the value of process {rank} is {seen:?}"
        )));
    }
    let spun = match operation.meanwhile() {
        Meanwhile::Spin => done.computed,
        _ => 0,
    };
    Ok(Figures {
        start,
        end,
        visible: end - start - done.put - done.computed,
        cpu: (cpu_after - cpu_before).saturating_sub(spun),
        agent: agent().saturating_sub(agent_before),
        late: 0,
    })
}

/// What a process got from an operation, and what it did meanwhile.
#[derive(Debug, Default)]
struct Done {
    /// Time that is not inside calls of the operation: the put before a fence, and computation.
    put: u64,
    computed: u64,
    /// The last value that it looked at, and whose it is.
    seen: Option<(usize, Vec<u8>)>,
}

fn perform(
    member: &Member,
    plan: &Plan,
    operation: Operation,
    own: &str,
    compute: u64,
) -> io::Result<Done> {
    let mut done = Done::default();
    if operation.blocking() == Operation::Fence || operation == Operation::FenceGet {
        let before = monotonic_ns();
        member.put(own)?;
        done.put = monotonic_ns() - before;
    }
    let own = own.as_bytes();
    match operation {
        Operation::Fence => member.fence()?,
        Operation::FenceGet => {
            member.fence()?;
            done.seen = get_some(member, plan.gets)?;
        }
        Operation::Allgather => done.seen = read_some(member, &member.allgather(own)?, plan.gets),
        Operation::Primitives => {
            let all = member.primitives()?.allgather(own);
            let all = all.map_err(io::Error::other)?;
            done.seen = last_of(member, plan.gets, |rank| all[rank].clone());
        }
        Operation::Pmgr => {
            let mut all = vec![0; plan.bytes * member.size()];
            let pmgr = Pmgr::over(member.primitives()?);
            pmgr.allgather(own, &mut all).map_err(io::Error::other)?;
            let value = |rank| all[plan.bytes * rank..][..plan.bytes].to_vec();
            done.seen = last_of(member, plan.gets, value);
        }
        Operation::Ifence(how) => {
            let request = member.ifence()?;
            done.computed = compute_for(how, compute);
            request.wait().map_err(io::Error::other)?;
        }
        Operation::Iallgather(how) => {
            let request = member.iallgather(own)?;
            done.computed = compute_for(how, compute);
            let all = request.wait().map_err(io::Error::other)?;
            done.seen = read_some(member, &all, plan.gets);
        }
    }
    Ok(done)
}

/// Computes or sleeps for `time`; says how long it really took.
fn compute_for(how: Meanwhile, time: u64) -> u64 {
    let start = monotonic_ns();
    match how {
        Meanwhile::Nothing => return 0,
        Meanwhile::Sleep => sleep(Duration::from_nanos(time)),
        Meanwhile::Spin => {
            let mut x = start;
            while monotonic_ns() - start < time {
                for _ in 0..100 {
                    x = black_box(x.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                }
            }
        }
    }
    monotonic_ns() - start
}

/// Gets the values of the next `gets` processes; gives the last.
fn get_some(member: &Member, gets: usize) -> io::Result<Option<(usize, Vec<u8>)>> {
    let mut last = None;
    for rank in next_ranks(member, gets) {
        last = Some((rank, member.get(rank)?));
    }
    Ok(last)
}

/// Reads the values of the next `gets` processes; gives the last.
fn read_some(member: &Member, all: &Gathered, gets: usize) -> Option<(usize, Vec<u8>)> {
    let last = last_of(member, gets, |rank| value(all, rank));
    last.map(|(rank, value)| (rank, value.into_owned()))
}

/// Reads the values of the next `gets` processes by `value`; gives the last.
fn last_of<T>(member: &Member, gets: usize, value: impl Fn(usize) -> T) -> Option<(usize, T)> {
    let all = next_ranks(member, gets).map(|rank| (rank, black_box(value(rank))));
    all.last()
}

/// The value of process `rank`.
fn value(all: &Gathered, rank: usize) -> Cow<'_, [u8]> {
    let value = all.value(rank as u32);
    value.expect("a value of each process")
}

fn next_ranks(member: &Member, gets: usize) -> impl Iterator<Item = usize> + use<> {
    let (rank, size) = (member.rank(), member.size());
    (1..=gets.min(size)).map(move |i| (rank + i) % size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_survive_the_way() {
        let figures = Figures {
            start: 1,
            end: u64::MAX,
            visible: 3,
            cpu: 1 << 40,
            agent: 5,
            late: 1,
        };
        let back = Figures::from_bytes(&figures.to_bytes());
        assert_eq!(back.to_bytes(), figures.to_bytes());
        assert_eq!((back.end, back.cpu), (u64::MAX, 1 << 40));
    }

    #[test]
    fn rows_sum_up() {
        let one = |start, end, visible| Figures {
            start,
            end,
            visible,
            cpu: 10,
            agent: 1,
            late: 0,
        };
        let row = Row::of(&[one(5, 40, 30), one(10, 50, 20), one(7, 45, 10)], 3);
        assert_eq!((row.span, row.tail), (45, 40));
        assert_eq!(
            (row.visible_mean, row.visible_median, row.visible_max),
            (20, 20, 30)
        );
        assert_eq!((row.cpu, row.agents), (30, 3));
        assert_eq!(row.csv().split(',').count() + 6, HEADER.split(',').count());
    }

    #[test]
    fn names_are_different() {
        let mut names = Operation::ALL.map(Operation::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Operation::ALL.len());
    }
}
