//! `--bind-to` and `--map-by`: which processors of its machine a PE may use.
//!
//! The PEs of a machine are dealt out over its cores in an order: those of one socket after those of the
//! other, or by turns (`--map-by`). Then each is bound to the core that it got, to so many of them, or to
//! what its core belongs to. Only processors that `shmrun` (or the agent of another host) may use itself
//! count, so that affinity masks, `taskset` and the cpusets of batch systems are respected. Emulated nodes
//! share the machine, and their PEs are dealt out together.
//!
//! Nobody is bound by default: a launcher does not see what else runs on a machine, and two jobs, each bound
//! from its first core on, would share some of them and leave others idle; threads of a program that is bound
//! to a core would share that.

mod topology;

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use shmem_node::cpus::{Bindings, Cpus};

pub use topology::Topology;

/// What a PE can be bound to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Level {
    /// All that there is.
    #[default]
    None,
    /// A processor.
    Hwthread,
    /// A core with all its processors.
    Core,
    /// What shares a third-level cache.
    L3cache,
    /// What shares a memory.
    Numa,
    /// What is in one package.
    Socket,
}

impl Level {
    /// All of them, with their names.
    pub const WORDS: [(&'static str, Self); 6] = [
        ("none", Self::None),
        ("hwthread", Self::Hwthread),
        ("core", Self::Core),
        ("l3cache", Self::L3cache),
        ("numa", Self::Numa),
        ("socket", Self::Socket),
    ];
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Self::WORDS.iter().find(|(_, level)| level == self);
        f.write_str(word.map_or("", |(word, _)| word))
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::WORDS.iter().find(|(word, _)| *word == text);
        found.map(|&(_, level)| level).ok_or_else(|| {
            let words = Self::WORDS.map(|(word, _)| word);
            format!("expected one of {}", words.join(", "))
        })
    }
}

/// `--bind-to`: so many of what each PE gets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindTo {
    level: Level,
    /// How many; 0 for none said.
    count: u32,
}

impl FromStr for BindTo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (level, count) = match text.split_once(':') {
            None => (text, 1),
            Some((level, count)) => match count.parse() {
                Ok(count @ 1..) => (level, count),
                _ => return Err("expected a number of at least 1 behind the colon".into()),
            },
        };
        match level.parse()? {
            Level::None if count > 1 => Err("expected an object before the colon".into()),
            Level::None => Ok(Self::default()),
            level => Ok(Self { level, count }),
        }
    }
}

/// What was asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// What each PE is bound to.
    pub to: BindTo,
    /// Over what PEs are dealt out by turns; if it was not said, over what they are bound to.
    pub by: Option<Level>,
    /// Whether each binding is told.
    pub report: bool,
}

/// A machine that has too little for its PEs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "--bind-to {level}: {pes} PEs on this machine need {need}, but only {have} can be used; start fewer PEs, or \
     use --bind-to socket, numa or none"
)]
pub struct TooFew {
    level: Level,
    pes: u32,
    need: u64,
    have: usize,
}

impl Binding {
    /// Whether anybody is bound.
    pub fn binds(&self) -> bool {
        self.to.level != Level::None
    }

    /// The bindings of a node: its PEs are those of these numbers among the `pes` of the machine.
    ///
    /// # Errors
    /// When there are fewer cores than PEs that want their own.
    pub fn plan(
        &self,
        machine: &Topology,
        numbers: Range<u32>,
        pes: u32,
    ) -> Result<Bindings, TooFew> {
        let BindTo { level, count } = self.to;
        if !self.binds() {
            return Ok(Bindings::default());
        }
        // What is dealt out.
        let unit = match level {
            Level::Hwthread => Level::Hwthread,
            _ => Level::Core,
        };
        let order = by_turns(machine, unit, self.by.unwrap_or(level));
        let own = level == unit;
        let need = u64::from(pes) * u64::from(count);
        if own && need > order.len() as u64 {
            let have = order.len();
            return Err(TooFew {
                level,
                pes,
                need,
                have,
            });
        }
        let objects = machine.objects(level);
        let bound = |number: u32| -> Cpus {
            let number = number as usize;
            if own {
                let count = count as usize;
                return order[number * count..][..count]
                    .iter()
                    .flat_map(Cpus::iter)
                    .collect();
            }
            let first = order[number * count as usize % order.len()].first();
            let at = objects
                .iter()
                .position(|o| first.is_some_and(|cpu| o.contains(cpu)));
            let several = objects.iter().cycle().skip(at.unwrap_or(0));
            let several = several.take((count as usize).min(objects.len()));
            several.flat_map(Cpus::iter).collect()
        };
        // They begin anew where the machine has been dealt out.
        let period = order.len() as u32;
        let distinct = numbers.start..numbers.end.min(numbers.start.saturating_add(period));
        Ok(Bindings(distinct.map(bound).collect()))
    }
}

/// The units of a machine in the order in which they are dealt out: by turns from each object of `by`.
fn by_turns(machine: &Topology, unit: Level, by: Level) -> Vec<Cpus> {
    let units = machine.objects(unit);
    let objects = machine.objects(by);
    let mut piles: Vec<_> = objects
        .iter()
        .map(|object| {
            let inside = |u: &&Cpus| u.first().is_some_and(|cpu| object.contains(cpu));
            units
                .iter()
                .filter(inside)
                .cloned()
                .collect::<Vec<_>>()
                .into_iter()
        })
        .collect();
    let mut order = Vec::with_capacity(units.len());
    while order.len() < units.len() {
        let before = order.len();
        order.extend(piles.iter_mut().filter_map(Iterator::next));
        // A unit that is in no object, as a processor of a finer level than the unit: none is left.
        if order.len() == before {
            break;
        }
    }
    order
}

/// One line about a PE that is bound.
pub fn describe(rank: u32, cpus: &Cpus, machine: &Topology) -> String {
    let of = |level| {
        let numbers = cpus.iter().filter_map(|cpu| machine.object_of(cpu, level));
        numbers.map(|n| n as u32).collect::<Cpus>()
    };
    let named = |name: &str, set: &Cpus| {
        let s = if set.len() == 1 { "" } else { "s" };
        format!("{name}{s} {set}")
    };
    format!(
        "PE {rank} is bound to {}: {} of {}, {}",
        named("CPU", cpus),
        named("core", &of(Level::Core)),
        named("socket", &of(Level::Socket)),
        named("NUMA node", &of(Level::Numa)),
    )
}

#[cfg(test)]
mod tests;
