//! Why the benchmark cannot run here, or did not come out right: said with what would do.

use crate::golden::Difference;
use crate::validation::Refusal;
use shmem_node::machine::Size;

/// What keeps the benchmark from running, or its results from counting.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There are not enough vertices.
    #[error(
        "SCALE {scale} has {} vertices, fewer than there are PEs ({n_pes}); use SCALE {} or more, or fewer PEs",
        1u64 << .scale, .n_pes.next_power_of_two().ilog2()
    )]
    Pes {
        /// The scale.
        scale: u32,
        /// PEs of the job.
        n_pes: usize,
    },
    /// The symmetric heap is too small.
    #[error(
        "SCALE {scale} on {n_pes} PEs needs {} of symmetric heap on each, which has {}; \
         set SHMEM_SYMMETRIC_SIZE={}M or more{}",
        Size(*.needed as u64), Size(*.size as u64), heap_mib(*.needed),
        if *.with_validation { " (SKIP_VALIDATION=1 takes less)" } else { "" }
    )]
    Heap {
        /// The scale.
        scale: u32,
        /// PEs of the job.
        n_pes: usize,
        /// Bytes of the heap.
        size: usize,
        /// Bytes that are needed.
        needed: usize,
        /// Whether some of that is for the validation.
        with_validation: bool,
    },
    /// The data does not fit into a machine.
    #[error(
        "SCALE {scale} needs {} of memory on a machine with {pes} of the PEs, which has {} left; use more \
         machines or a smaller SCALE",
        Size(*.needed), Size(*.available)
    )]
    Memory {
        /// The scale.
        scale: u32,
        /// PEs of the machine.
        pes: usize,
        /// Bytes that they need together.
        needed: u64,
        /// Bytes that there are.
        available: u64,
    },
    /// No vertex has an edge to another.
    #[error(
        "no vertex has an edge to another one, so that there is nothing to search; use a larger SCALE"
    )]
    NoRoots,
    /// The result of a search is wrong.
    #[error("the search from vertex {root} is wrong: {refusal}")]
    Invalid {
        /// Where it started.
        root: u32,
        /// What is wrong.
        refusal: Refusal,
    },
    /// The reference has other values.
    #[error("the check failed: {0}")]
    Check(#[from] Difference),
    /// There is no MPI for the hybrid variant.
    #[error("--hybrid needs an MPI library: {0}")]
    NoMpi(#[from] shmem_mpi::LoadError),
    /// MPI could not do what was asked.
    #[error(transparent)]
    Mpi(#[from] shmem_mpi::Error),
    /// MPI has other processes.
    #[error(
        "MPI numbers this process {rank} of {ranks}, and this is PE {pe} of {n_pes}: this launcher has not started the \
         MPI library. Use shmrun, with --pmix for Open MPI, or the library's own launcher; SHMEM_MPI_LIBRARY names another \
         library"
    )]
    Ranks {
        /// Processes of MPI.
        ranks: usize,
        /// Number of this one.
        rank: usize,
        /// PEs.
        n_pes: usize,
        /// Number of this one.
        pe: usize,
    },
    /// The runtime could not do what was asked.
    #[error(transparent)]
    Runtime(#[from] shmem::Error),
}

impl Error {
    /// Whether all PEs of the job come to the same error. If not, this PE may be the only one, and others wait for
    /// it.
    #[must_use]
    pub fn is_everywhere(&self) -> bool {
        match self {
            Self::Pes { .. }
            | Self::Heap { .. }
            | Self::Memory { .. }
            | Self::NoRoots
            | Self::Invalid { .. }
            | Self::Check(_)
            | Self::Runtime(shmem::Error::HeapExhausted { .. }) => true,
            Self::NoMpi(_) | Self::Mpi(_) | Self::Ranks { .. } | Self::Runtime(_) => false,
        }
    }
}

/// A size in MiB with which `needed` bytes fit, and what the library has besides.
fn heap_mib(needed: usize) -> usize {
    const SPARE: usize = 1 << 20;
    needed.saturating_add(SPARE).div_ceil(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_would_do() {
        let pes = Error::Pes { scale: 3, n_pes: 9 };
        assert_eq!(
            pes.to_string(),
            "SCALE 3 has 8 vertices, fewer than there are PEs (9); use SCALE 4 or more, or fewer PEs"
        );
        let heap = Error::Heap {
            scale: 20,
            n_pes: 4,
            size: 16 << 20,
            needed: 70 << 20,
            with_validation: true,
        };
        assert_eq!(
            heap.to_string(),
            "SCALE 20 on 4 PEs needs 70.0 MiB of symmetric heap on each, which has 16.0 MiB; \
             set SHMEM_SYMMETRIC_SIZE=71M or more (SKIP_VALIDATION=1 takes less)"
        );
        assert!(heap.is_everywhere());
    }
}
