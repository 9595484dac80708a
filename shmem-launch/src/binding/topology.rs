//! Which processors of a machine share what, read from /sys.
//!
//! Only those count that are online and on which this process may run. What a file does not tell (some
//! containers and virtual machines have none) is taken for a machine of one socket whose processors share
//! nothing else.

use std::collections::BTreeMap;
use std::path::Path;

use shmem_node::cpus::Cpus;

use super::Level;

/// A processor, and the first processors of what it belongs to, as the names of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cpu {
    number: u32,
    core: u32,
    cache: u32,
    numa: u32,
    socket: u32,
}

/// The processors of a machine, neighbours beside each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topology {
    cpus: Vec<Cpu>,
}

impl Topology {
    /// That of this machine, for this process.
    pub fn of_this_machine() -> Self {
        let all = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        let allowed = Cpus::allowed().unwrap_or_else(|| (0..all).collect());
        Self::read(Path::new("/sys"), &allowed)
    }

    /// Reads it from what is mounted at /sys.
    pub fn read(sys: &Path, allowed: &Cpus) -> Self {
        let system = sys.join("devices/system");
        let online = Cpus::read(&system.join("cpu/online"));
        let present = online.map_or_else(|| allowed.clone(), |online| online.and(allowed));
        let mut numa = BTreeMap::new();
        for node in Cpus::read(&system.join("node/online"))
            .iter()
            .flat_map(Cpus::iter)
        {
            let cpus = Cpus::read(&system.join(format!("node/node{node}/cpulist")));
            let cpus = cpus.unwrap_or_default();
            // The number of the node, which memory without processors may have left out of turn, is not
            // needed; its first processor names it as all else.
            numa.extend(cpus.iter().filter_map(|cpu| Some((cpu, cpus.first()?))));
        }
        let cpu = |number: u32| {
            let dir = system.join(format!("cpu/cpu{number}"));
            let first = |files: &[&str]| {
                let sets = files.iter().filter_map(|file| Cpus::read(&dir.join(file)));
                sets.filter(|set| set.contains(number))
                    .find_map(|set| set.first())
            };
            let socket = first(&[
                "topology/package_cpus_list",
                // Before Linux 5.8.
                "topology/core_siblings_list",
            ]);
            let socket = socket.unwrap_or_default();
            Cpu {
                number,
                core: first(&["topology/core_cpus_list", "topology/thread_siblings_list"])
                    .unwrap_or(number),
                cache: last_cache(&dir)
                    .and_then(|set| set.first())
                    .unwrap_or(socket),
                numa: numa.get(&number).copied().unwrap_or(socket),
                socket,
            }
        };
        let mut cpus: Vec<Cpu> = present.iter().map(cpu).collect();
        cpus.sort_by_key(|c| (c.socket, c.numa, c.cache, c.core, c.number));
        Self { cpus }
    }

    /// The objects of a level, neighbours beside each other.
    pub fn objects(&self, level: Level) -> Vec<Cpus> {
        let mut out: Vec<(Option<u32>, Cpus)> = Vec::new();
        for cpu in &self.cpus {
            let name = cpu.name(level);
            match out.iter_mut().rev().find(|(other, _)| *other == name) {
                Some((_, cpus)) => cpus.extend([cpu.number]),
                None => out.push((name, [cpu.number].into_iter().collect())),
            }
        }
        out.into_iter().map(|(_, cpus)| cpus).collect()
    }

    /// The object of a level to which a processor belongs: its number among [`Topology::objects`].
    pub fn object_of(&self, cpu: u32, level: Level) -> Option<usize> {
        self.objects(level)
            .iter()
            .position(|cpus| cpus.contains(cpu))
    }
}

impl Cpu {
    fn name(&self, level: Level) -> Option<u32> {
        match level {
            Level::None => None,
            Level::Hwthread => Some(self.number),
            Level::Core => Some(self.core),
            Level::L3cache => Some(self.cache),
            Level::Numa => Some(self.numa),
            Level::Socket => Some(self.socket),
        }
    }
}

/// Who shares the third-level cache of a processor.
fn last_cache(cpu: &Path) -> Option<Cpus> {
    let indices = std::fs::read_dir(cpu.join("cache")).ok()?;
    let mut dirs = indices.flatten().map(|entry| entry.path());
    let is_third = |dir: &std::path::PathBuf| {
        let level = std::fs::read_to_string(dir.join("level"));
        level.is_ok_and(|level| level.trim() == "3")
    };
    Cpus::read(&dirs.find(is_third)?.join("shared_cpu_list"))
}
