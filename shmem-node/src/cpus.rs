//! Sets of processors, as the kernel numbers and writes them: what a PE is bound to.

use std::fmt;
use std::num::NonZero;
use std::path::Path;
use std::sync::OnceLock;
use std::thread;

/// More than any machine has.
const MAX: u32 = 1 << 16;

const BITS: u32 = u64::BITS;

/// Processors that this process might use when this was asked for the first time: a template asks before its
/// PEs are bound to theirs, since it takes some system calls.
pub fn of_machine() -> usize {
    static FOUND: OnceLock<usize> = OnceLock::new();
    *FOUND.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get))
}

/// A set of processors (hardware threads).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Cpus {
    /// A bit for each; the last word is not 0.
    mask: Vec<u64>,
}

impl Cpus {
    /// Reads the kernel's list format: numbers and ranges with commas between them, as in `0-3,8`.
    /// `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let mut out = Self::default();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            if first > last || last >= MAX {
                return None;
            }
            out.extend(first..=last);
        }
        Some(out)
    }

    /// Those on which this process may run, which control groups limit, too; `None` where the kernel does
    /// not tell.
    pub fn allowed() -> Option<Self> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let mut lines = status.lines();
        Self::parse(lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?)
    }

    /// Reads a file in the kernel's list format.
    pub fn read(file: &Path) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(file).ok()?)
    }

    /// Whether this processor belongs to them.
    pub fn contains(&self, cpu: u32) -> bool {
        let word = self.mask.get((cpu / BITS) as usize);
        word.is_some_and(|word| word >> (cpu % BITS) & 1 != 0)
    }

    /// Those that are also in the other set.
    pub fn and(&self, other: &Self) -> Self {
        self.iter().filter(|&cpu| other.contains(cpu)).collect()
    }

    /// Each of them, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.mask).flat_map(|(at, &word)| {
            (0..BITS).filter_map(move |bit| (word >> bit & 1 != 0).then_some(at * BITS + bit))
        })
    }

    /// The lowest number.
    pub fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.mask
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.mask.is_empty()
    }

    /// A bit for each, from the lowest of the first word on.
    pub fn mask(&self) -> &[u64] {
        &self.mask
    }
}

impl Extend<u32> for Cpus {
    fn extend<T: IntoIterator<Item = u32>>(&mut self, cpus: T) {
        for cpu in cpus {
            let word = (cpu / BITS) as usize;
            if self.mask.len() <= word {
                self.mask.resize(word + 1, 0);
            }
            self.mask[word] |= 1 << (cpu % BITS);
        }
    }
}

impl FromIterator<u32> for Cpus {
    fn from_iter<T: IntoIterator<Item = u32>>(cpus: T) -> Self {
        let mut out = Self::default();
        out.extend(cpus);
        out
    }
}

/// The kernel's list format.
impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut comma = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            match last == first {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

/// What the PEs of a node are bound to, by their local numbers; should there be more of them, they begin
/// anew. Nobody is bound where there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bindings(pub Vec<Cpus>);

impl Bindings {
    /// That of a PE.
    pub fn of(&self, local: u32) -> Option<&Cpus> {
        let at = (local as usize).checked_rem(self.0.len())?;
        self.0.get(at)
    }

    /// Reads what [`Display`](fmt::Display) writes. `None` if it is something else.
    pub fn parse(text: &str) -> Option<Self> {
        let sets = text.split(';').filter(|set| !set.is_empty());
        sets.map(Cpus::parse).collect::<Option<_>>().map(Self)
    }
}

/// Lists with semicolons between them.
impl fmt::Display for Bindings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, cpus) in self.0.iter().enumerate() {
            let between = if at == 0 { "" } else { ";" };
            write!(f, "{between}{cpus}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_are_read_and_written() {
        for (text, len) in [("0-3,8", 5), ("0", 1), ("", 0), ("5,64-65,127", 4)] {
            let cpus = Cpus::parse(text).unwrap();
            assert_eq!((cpus.to_string().as_str(), cpus.len()), (text, len));
        }
        assert_eq!(Cpus::parse("0,1,2\n").unwrap().to_string(), "0-2");
        for bad in ["a", "3-1", "1-", "99999999", "0-99999", "-1"] {
            assert_eq!(Cpus::parse(bad), None, "{bad}");
        }
        let allowed = Cpus::allowed().unwrap();
        assert!(!allowed.is_empty());
    }

    #[test]
    fn bindings_begin_anew() {
        let bindings = Bindings::parse("0,2;1,3").unwrap();
        assert_eq!(bindings.to_string(), "0,2;1,3");
        assert_eq!(bindings.of(3).unwrap().to_string(), "1,3");
        assert_eq!(Bindings::parse(""), Some(Bindings::default()));
        assert_eq!(Bindings::default().of(3), None);
        assert_eq!(Bindings::parse("0;x"), None);
    }

    proptest! {
        #[test]
        fn sets_survive_being_written(cpus: std::collections::BTreeSet<u16>) {
            let set: Cpus = cpus.iter().map(|&cpu| cpu.into()).collect();
            prop_assert_eq!(Cpus::parse(&set.to_string()), Some(set.clone()));
            prop_assert!(set.iter().eq(cpus.iter().map(|&cpu| u32::from(cpu))));
            prop_assert_eq!((set.len(), set.first()), (cpus.len(), cpus.first().map(|&c| c.into())));
        }

        #[test]
        fn garbage_is_no_set(text: String) {
            let _ = (Cpus::parse(&text), Bindings::parse(&text));
        }
    }
}
