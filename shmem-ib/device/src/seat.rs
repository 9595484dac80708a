//! Where on its machine a process runs, which decides about the device that it takes: its number among those
//! of the machine, and how far it is from memory and devices.

#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

use super::sysfs::{Places, line};

/// How far a NUMA node is from itself, as firmware tells it.
const HERE: u32 = 10;

/// A process on its machine.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Seat {
    /// The number of its node in the job.
    pub node: usize,
    /// Its number among the processes of its node.
    pub local: usize,
    /// How far each NUMA node is from where it may run.
    pub numa: Vec<NumaNode>,
}

/// A NUMA node, as one process sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NumaNode {
    /// Its number.
    pub number: u32,
    /// How far it is from the nearest processor of the process, as firmware tells it: 10 is here.
    pub distance: u32,
    /// Whether the process may run there.
    pub allowed: bool,
}

impl Seat {
    /// That of the calling thread.
    #[must_use]
    pub fn here(places: &Places, node: usize, local: usize) -> Self {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        Self {
            node,
            local,
            numa: numa(&places.nodes, &status),
        }
    }

    /// How far a device at that NUMA node is. One of which nobody knows is near.
    #[must_use]
    pub fn distance(&self, numa: Option<u32>) -> u32 {
        let node = self.numa.iter().find(|n| Some(n.number) == numa);
        node.map_or(HERE, |n| n.distance)
    }

    /// Where it may run, as text; `None` where that is everywhere.
    #[must_use]
    pub fn bound(&self) -> Option<String> {
        if self.numa.iter().all(|n| n.allowed) {
            return None;
        }
        let numbers = self.numa.iter().filter(|n| n.allowed);
        let numbers: Vec<_> = numbers.map(|n| n.number.to_string()).collect();
        Some(format!("NUMA node {}", numbers.join(", ")))
    }

    /// Whose turn it is of `count` equal ports that are near: a number below `count`.
    ///
    /// Which other processes are as near nobody asks. Launchers give neighbours to one NUMA node (a block each) or to
    /// one after the other (in a circle); either way every `count` times as many processes as there are groups
    /// of them take each port equally often: from one to the next the turn goes on by one, from one round of the
    /// circle to the next by a step that has no factor in common with `count`.
    #[must_use]
    pub fn turn(&self, count: usize) -> usize {
        let count = count.max(1);
        let allowed = self.numa.iter().filter(|n| n.allowed).count().max(1);
        let groups = (self.numa.len() / allowed).max(1);
        let more = (0..count).find(|more| common_factor(groups + more, count) == 1);
        let rounds = self.local / groups;
        (self.local + rounds * more.unwrap_or(0)) % count
    }
}

const fn common_factor(a: usize, b: usize) -> usize {
    match b {
        0 => a,
        _ => common_factor(b, a % b),
    }
}

/// The nodes that have processors, as a thread with this `/proc/.../status` sees them. Empty where the machine
/// does not tell.
fn numa(nodes: &Path, status: &str) -> Vec<NumaNode> {
    let allowed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .map(list)
        .unwrap_or_default();
    let mut numbers: Vec<u32> = fs::read_dir(nodes)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            name.strip_prefix("node")?.parse().ok()
        })
        .collect();
    numbers.sort_unstable();
    let dir = |number: u32| nodes.join(format!("node{number}"));
    let with_processors: Vec<(u32, Vec<u32>)> = numbers
        .iter()
        .map(|&number| (number, list(&line(&dir(number).join("cpulist")))))
        .filter(|(_, processors)| !processors.is_empty())
        .collect();
    let is_allowed = |processors: &[u32]| processors.iter().any(|p| allowed.contains(p));
    // A row has the distances to all nodes, in the order of their numbers.
    let rows: Vec<Vec<u32>> = with_processors
        .iter()
        .filter(|(_, processors)| is_allowed(processors))
        .map(|(number, _)| {
            let text = line(&dir(*number).join("distance"));
            text.split_whitespace()
                .filter_map(|d| d.parse().ok())
                .collect()
        })
        .collect();
    let view = |(number, processors): &(u32, Vec<u32>)| {
        let at = numbers.iter().position(|n| n == number).unwrap_or(0);
        let nearest = rows.iter().filter_map(|row| row.get(at).copied()).min();
        NumaNode {
            number: *number,
            distance: nearest.unwrap_or(HERE),
            allowed: rows.is_empty() || is_allowed(processors),
        }
    };
    with_processors.iter().map(view).collect()
}

/// The numbers of a list such as `0-3,8`. What is none is left out.
fn list(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        // More processors than any machine has are a damaged file.
        Some(first..=last).filter(|r: &std::ops::RangeInclusive<u32>| *r.end() < 1 << 16)
    };
    text.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A process bound to some of so many NUMA nodes, each as far from all others.
    pub(crate) fn seat(local: usize, nodes: u32, bound: &[u32]) -> Seat {
        let view = |number| {
            let allowed = bound.contains(&number);
            NumaNode {
                number,
                distance: if allowed { HERE } else { 21 },
                allowed,
            }
        };
        Seat {
            node: 0,
            local,
            numa: (0..nodes).map(view).collect(),
        }
    }

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(list("0-3,8"), [0, 1, 2, 3, 8]);
        assert_eq!(list("7\n"), [7]);
        assert!(list("").is_empty() && list("x-3").is_empty());
        assert!(list("3-1,0-4294967295").is_empty());
    }

    #[test]
    fn nodes_and_distances_are_read() {
        let dir = std::env::temp_dir().join(format!("shmem-seat-{}", std::process::id()));
        let file = |path: &str, text: &str| {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().expect("a directory")).expect("a place for tests");
            fs::write(path, text).expect("a place for tests");
        };
        file("node0/cpulist", "0-3\n");
        file("node0/distance", "10 21 12\n");
        file("node1/cpulist", "4-7\n");
        file("node1/distance", "21 10 31\n");
        // Memory only.
        file("node2/cpulist", "\n");
        file("node2/distance", "12 31 10\n");
        file("possible", "0-2\n");
        let see = |list: &str| numa(&dir, &format!("Name:\tx\nCpus_allowed_list:\t{list}\n"));
        let second = see("5-6");
        assert_eq!(
            second
                .iter()
                .map(|n| (n.number, n.distance, n.allowed))
                .collect::<Vec<_>>(),
            [(0, 21, false), (1, 10, true)]
        );
        let seat = |numa| Seat {
            numa,
            ..Seat::default()
        };
        assert_eq!(seat(second).bound().as_deref(), Some("NUMA node 1"));
        let both = seat(see("0-7"));
        assert_eq!((both.bound(), both.distance(Some(1))), (None, 10));
        assert_eq!(both.distance(None), 10);
        // Who does not know where it may run may run everywhere.
        assert_eq!(seat(numa(&dir, "")).bound(), None);
        fs::remove_dir_all(&dir).expect("it is there");
        assert!(see("0").is_empty());
        // This machine, whatever it is.
        let here = Seat::here(&Places::default(), 3, 4);
        assert_eq!((here.node, here.local), (3, 4));
    }

    #[test]
    fn turns_are_even_however_a_launcher_deals_out_processes() {
        for groups in 1..=8_u32 {
            for count in 1..=9_usize {
                let per_group = 2 * count * groups as usize;
                let all = per_group * groups as usize;
                let block = |i: usize| (i / per_group) as u32;
                let circle = |i: usize| (i % groups as usize) as u32;
                for group in 0..groups {
                    for (how, of) in [
                        ("block", &block as &dyn Fn(usize) -> u32),
                        ("circle", &circle),
                    ] {
                        let mut taken = vec![0; count];
                        for i in (0..all).filter(|i| of(*i) == group) {
                            taken[seat(i, groups, &[group]).turn(count)] += 1;
                        }
                        let least = taken.iter().min().expect("not empty");
                        let most = taken.iter().max().expect("not empty");
                        assert_eq!(
                            least, most,
                            "{groups} NUMA nodes, {count} ports, {how}: {taken:?}"
                        );
                    }
                }
                // Few in a row differ, and those that may run everywhere go round.
                let free: Vec<u32> = (0..groups).collect();
                for i in 0..count {
                    assert_eq!(seat(i, groups, &free).turn(count), i);
                }
            }
        }
    }
}
