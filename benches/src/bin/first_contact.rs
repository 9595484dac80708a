//! Time of the first operation between two PEs, which has to connect them: from a put of 8 bytes to
//! the end of the quiet after it.
//!
//! `shmrun -n 32 --nodes 16 first_contact`: pairs of PEs that have never talked do so once, one pair
//! after the other, in random order and with a pause before each. The target meanwhile
//!
//! * **waiting**: waits in `barrier_all`, as all other PEs do;
//! * **computing**: computes and makes no call of the library;
//! * **stopped**: is stopped (SIGSTOP) and continued after two seconds. `continued` is the part of
//!   the time after that.
//!
//! Pairs that a barrier may have connected are left out: those of one node, and those of two node
//! leaders. Samples go to standard output as CSV, percentiles to standard error. `SHMEM_SPIN`
//! decides whether waiting PEs poll or sleep. With `SHMEM_CONNECT=static` no contact is a first one.

use std::fs;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use clap::Parser;
use shmem::{Sum, SymSlice, alloc, barrier_all, my_pe, n_pes, node_of};
use shmem_benches::stats::percentile;

#[derive(Parser, Clone)]
#[command(about = "Time of the first operation between two PEs")]
struct Options {
    /// Pairs whose target waits, and as many whose target computes.
    #[arg(long, default_value_t = 150)]
    pairs: usize,
    /// Pairs whose target is stopped.
    #[arg(long, default_value_t = 10)]
    stops: usize,
    /// Milliseconds for which a target is stopped.
    #[arg(long, default_value_t = 2000)]
    stop_ms: u64,
    /// Milliseconds between two pairs.
    #[arg(long, default_value_t = 5)]
    pause_ms: u64,
    /// Seed of the order.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What the target does meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Waiting,
    Computing,
    Stopped,
}

/// One contact.
#[derive(Debug, Clone, Copy)]
struct Contact {
    case: Case,
    from: usize,
    to: usize,
}

/// Symmetric memory of the benchmark.
struct Memory {
    /// The target of the put.
    inbox: SymSlice<u64>,
    /// Tells a computing target that it may stop.
    done: SymSlice<u64>,
    /// Process of each PE.
    pids: SymSlice<u64>,
    /// Two for each contact: its time and, of stopped targets, that since they continued, in ns.
    times: SymSlice<u64>,
}

fn main() -> Result<(), shmem::Error> {
    let options = Options::parse();
    let _world = shmem::init()?;
    let (me, n) = (my_pe(), n_pes());
    let nodes: Vec<usize> = (0..n).map(node_of).collect();
    let plan = plan(&nodes, &options);
    if plan.is_empty() {
        if me == 0 {
            eprintln!("first_contact: no fresh pairs; try shmrun -n 32 --nodes 16");
        }
        barrier_all();
        shmem::global_exit(2);
    }
    let memory = Memory {
        inbox: alloc(1)?,
        done: alloc(1)?,
        pids: alloc(n)?,
        times: alloc(2 * plan.len())?,
    };
    let own = alloc(1)?;
    own.write(0, u64::from(std::process::id()));
    shmem::fcollect(memory.pids, own);

    for (i, contact) in plan.iter().enumerate() {
        barrier_all();
        let token = i as u64 + 1;
        if me == contact.from {
            sleep(Duration::from_millis(options.pause_ms));
            let times = touch(contact, token, &memory, &options);
            let times = times.map(|t| t.as_nanos() as u64);
            memory.times.at(2 * i..).write_from(&times);
            shmem::p(memory.done, token, contact.to);
        } else if me == contact.to && contact.case == Case::Computing {
            compute_until(memory.done, token);
        }
        barrier_all();
        if me == contact.to {
            assert_eq!(memory.inbox.read(0), token, "from PE {}", contact.from);
        }
    }

    // Only the PE that measured has written: the sum is its figure.
    let times = memory.times;
    shmem::reduce(times, times, Sum);
    if me == 0 {
        print(&plan, &times.to_vec(), &options);
    }
    barrier_all();
    Ok(())
}

/// All contacts in the order in which they happen, the same on every PE.
fn plan(node_of: &[usize], options: &Options) -> Vec<Contact> {
    let leads = |pe: usize| !node_of[..pe].contains(&node_of[pe]);
    let mut random = Random(options.seed);
    let mut pairs = Vec::new();
    for a in 0..node_of.len() {
        for b in a + 1..node_of.len() {
            if node_of[a] != node_of[b] && !(leads(a) && leads(b)) {
                pairs.push(if random.below(2) == 0 { (a, b) } else { (b, a) });
            }
        }
    }
    random.shuffle(&mut pairs);
    let stops = options.stops.min(pairs.len() / 3);
    let cases = std::iter::repeat_n(Case::Stopped, stops).chain(
        [Case::Waiting, Case::Computing]
            .into_iter()
            .cycle()
            .take(2 * options.pairs),
    );
    let mut plan: Vec<Contact> = cases
        .zip(pairs)
        .map(|(case, (from, to))| Contact { case, from, to })
        .collect();
    random.shuffle(&mut plan);
    plan
}

/// Talks to the target for the first time. Returns how long that took and, for a stopped target,
/// how long since it continued.
fn touch(contact: &Contact, token: u64, memory: &Memory, options: &Options) -> [Duration; 2] {
    let first = || {
        let start = Instant::now();
        shmem::put(memory.inbox, &[token], contact.to);
        shmem::quiet();
        (start, Instant::now())
    };
    if contact.case != Case::Stopped {
        let (start, end) = first();
        return [end - start, Duration::ZERO];
    }
    let pid = memory.pids.read(contact.to) as i32;
    signal(pid, libc::SIGSTOP);
    while state(pid) != Some('T') {
        sleep(Duration::from_millis(1));
    }
    thread::scope(|scope| {
        let waker = scope.spawn(|| {
            sleep(Duration::from_millis(options.stop_ms));
            let now = Instant::now();
            signal(pid, libc::SIGCONT);
            now
        });
        let (start, end) = first();
        let continued = waker.join().expect("the waker does not panic");
        // Contact that was made while the target was stopped took no time afterwards.
        [end - start, end.saturating_duration_since(continued)]
    })
}

/// Signals a PE of this program: with nodes on several machines the number may be a stranger's.
fn signal(pid: i32, signal: libc::c_int) {
    let own = fs::read_link("/proc/self/exe").ok();
    let theirs = fs::read_link(format!("/proc/{pid}/exe")).ok();
    if own.is_none() || own != theirs {
        eprintln!("first_contact: process {pid} is no PE on this machine; use --stops 0");
        shmem::global_exit(1);
    }
    // SAFETY: a signal to another process touches no memory of this one.
    unsafe { libc::kill(pid, signal) };
}

/// The letter of a process's state in `/proc`.
fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Computes until `token` lies in `word`. It is looked at as any memory of this PE, which calls
/// nothing that could serve the network.
fn compute_until(word: SymSlice<u64>, token: u64) {
    let mut x = token;
    while word.read(0) != token {
        for _ in 0..10_000 {
            x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005) ^ (x >> 33));
        }
    }
}

fn print(plan: &[Contact], times: &[u64], options: &Options) {
    let mut samples: [(&str, Vec<f64>); 4] =
        ["waiting", "computing", "stopped", "continued"].map(|name| (name, Vec::new()));
    println!("case,from,to,ns");
    for (contact, times) in plan.iter().zip(times.chunks_exact(2)) {
        let mut add = |which: usize, ns: u64| {
            let (name, list) = &mut samples[which];
            println!("{name},{},{},{ns}", contact.from, contact.to);
            list.push(ns as f64);
        };
        match contact.case {
            Case::Waiting => add(0, times[0]),
            Case::Computing => add(1, times[0]),
            Case::Stopped => {
                add(2, times[0]);
                add(3, times[1]);
            }
        }
    }
    eprintln!(
        "first contact, µs (targets stopped for {} ms)\n{:10} {:>6} {:>12} {:>12} {:>12}",
        options.stop_ms, "target", "pairs", "p50", "p99", "max"
    );
    for (name, list) in samples.iter().filter(|(_, list)| !list.is_empty()) {
        let [p50, p99, max] = [50.0, 99.0, 100.0].map(|p| percentile(list, p) / 1e3);
        eprintln!(
            "{name:10} {:6} {p50:12.1} {p99:12.1} {max:12.1}",
            list.len()
        );
    }
}

/// A generator (xorshift64*) that gives every PE the same numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        let mut x = self.0 ^ 0x9e37_79b9_7f4a_7c15;
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0 = x.wrapping_mul(0x2545_f491_4f6c_dd1d);
        ((u128::from(self.0) * n as u128) >> 64) as usize
    }

    fn shuffle<T>(&mut self, list: &mut [T]) {
        for i in (1..list.len()).rev() {
            list.swap(i, self.below(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: usize, stops: usize) -> Options {
        let text = format!("x --pairs {pairs} --stops {stops} --seed 7");
        Options::parse_from(text.split(' '))
    }

    #[test]
    fn every_contact_is_a_first_one() {
        let nodes: Vec<usize> = (0..32).map(|pe| pe / 2).collect();
        let plan = plan(&nodes, &options(150, 10));
        let count = |case| plan.iter().filter(|c| c.case == case).count();
        assert_eq!(
            [Case::Waiting, Case::Computing, Case::Stopped].map(count),
            [150, 150, 10]
        );
        let mut met = std::collections::HashSet::new();
        for c in &plan {
            assert!(met.insert((c.from.min(c.to), c.from.max(c.to))), "{c:?}");
            assert_ne!(nodes[c.from], nodes[c.to]);
            assert!(c.from % 2 == 1 || c.to % 2 == 1, "both lead: {c:?}");
        }
        assert!(plan.iter().any(|c| c.from < c.to) && plan.iter().any(|c| c.from > c.to));
    }

    #[test]
    fn small_jobs_do_what_they_can() {
        assert!(plan(&[0, 0, 0], &options(5, 5)).is_empty());
        assert!(plan(&[0, 1, 2], &options(5, 5)).is_empty(), "all lead");
        assert_eq!(plan(&[0, 0, 1, 1], &options(5, 5)).len(), 3);
    }
}
