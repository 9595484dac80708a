//! Why a benchmark can't run here: said before the timed region, with what would do.

use crate::class::Class;
use shmem_node::machine::Size;

/// What keeps a benchmark from running.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The benchmark does not run on this number of PEs.
    #[error(
        "{kernel} class {class} does not run on {n_pes} PE{}: it takes {rule}; start it with {} PEs",
        plural(*.n_pes),
        list(.try_with)
    )]
    Processes {
        /// The benchmark in capitals.
        kernel: &'static str,
        /// Its class.
        class: Class,
        /// PEs of the job.
        n_pes: usize,
        /// Which numbers it takes: "a square number of PEs up to 16".
        rule: String,
        /// The nearest numbers that it takes.
        try_with: Vec<usize>,
    },
    /// The data does not fit in the memory of a node.
    #[error(
        "{kernel} class {class} on {n_pes} PE{} needs {} of memory on a node with {on_node} of them, \
         which has {} left; use more nodes or a smaller class",
        plural(*.n_pes), Size(*.needed), Size(*.available)
    )]
    Memory {
        /// The benchmark in capitals.
        kernel: &'static str,
        /// Its class.
        class: Class,
        /// PEs of the job.
        n_pes: usize,
        /// PEs of the node.
        on_node: usize,
        /// Bytes that they need together.
        needed: u64,
        /// Bytes that there are.
        available: u64,
    },
    /// The symmetric heap is too small.
    #[error(
        "the symmetric heap has {}, but {} are needed; set SHMEM_SYMMETRIC_SIZE={}M or more",
        Size(*.size as u64), Size(*.needed as u64), heap_mib(*.needed)
    )]
    Heap {
        /// Bytes of the heap.
        size: usize,
        /// Bytes that are needed: what is in use and what was asked for.
        needed: usize,
    },
    /// The system gives no address space for a grid.
    #[error("no address space for a grid: {0}; is there a limit (ulimit -v)?")]
    Grid(#[from] std::io::Error),
    /// The runtime could not do what was asked.
    #[error(transparent)]
    Runtime(shmem::Error),
}

impl Error {
    /// Whether all PEs of the job come to the same error. If not, this PE may be the only one, and
    /// others wait for it.
    #[must_use]
    pub fn is_everywhere(&self) -> bool {
        match self {
            Self::Processes { .. } | Self::Memory { .. } | Self::Heap { .. } => true,
            Self::Grid(_) | Self::Runtime(_) => false,
        }
    }
}

impl From<shmem::Error> for Error {
    fn from(error: shmem::Error) -> Self {
        match error {
            shmem::Error::HeapExhausted {
                asked, size, used, ..
            } => Self::Heap {
                size,
                needed: used.saturating_add(asked),
            },
            other => Self::Runtime(other),
        }
    }
}

/// A size in MiB with which `needed` bytes fit, and the few hundred that come after them.
fn heap_mib(needed: usize) -> usize {
    const SPARE: usize = 64 << 10;
    needed.saturating_add(SPARE).div_ceil(1 << 20)
}

fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}

/// "4", "4 or 9", "1, 4 or 9".
fn list(numbers: &[usize]) -> String {
    let words: Vec<_> = numbers.iter().map(usize::to_string).collect();
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => "other".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_number_of_pes_is_told_with_right_ones() {
        let error = Error::Processes {
            kernel: "BT",
            class: Class::S,
            n_pes: 3,
            rule: "a square number of PEs up to 16".to_owned(),
            try_with: vec![1, 4],
        };
        assert_eq!(
            error.to_string(),
            "BT class S does not run on 3 PEs: it takes a square number of PEs up to 16; \
             start it with 1 or 4 PEs"
        );
    }

    #[test]
    fn sizes_are_told_with_units() {
        let error = Error::Memory {
            kernel: "MG",
            class: Class::E,
            n_pes: 4,
            on_node: 2,
            needed: 96 << 30,
            available: 1 << 30,
        };
        assert_eq!(
            error.to_string(),
            "MG class E on 4 PEs needs 96.0 GiB of memory on a node with 2 of them, which has \
             1.0 GiB left; use more nodes or a smaller class"
        );
    }

    #[test]
    fn an_exhausted_heap_is_told_with_the_size_to_set() {
        let error = Error::from(shmem::Error::HeapExhausted {
            asked: 5 << 20,
            size: 65536,
            used: 1 << 20,
            largest_free: 65000,
            called: None,
        });
        let text = error.to_string();
        assert!(text.contains("has 64.0 KiB"), "{text}");
        assert!(text.contains("but 6.0 MiB are needed"), "{text}");
        assert!(
            text.ends_with("set SHMEM_SYMMETRIC_SIZE=7M or more"),
            "{text}"
        );
    }
}
