//! The benchmarks as a list: what the programs, the tests and the tables need to know of each.

use crate::class::Class;
use crate::cli;
use crate::error::Error;
use crate::options::{Options, program};
use crate::peers::Graph;
use crate::report::Report;
use std::ffi::OsString;
use std::process::ExitCode;

/// A benchmark.
#[derive(Debug)]
pub struct Kernel {
    /// Its name, in capitals.
    pub name: &'static str,
    /// What it computes.
    pub about: &'static str,
    /// The largest class that it is defined for.
    pub largest: Class,
    /// Runs it on all PEs.
    pub run: fn(&Options) -> Result<Report, Error>,
    /// Whom PEs talk to but for collectives: for a number of PEs, and of points along an edge of the grid.
    pub neighbours: fn(usize, usize) -> Graph,
    /// Whether it gathers or reduces more than a few numbers.
    pub gathers: bool,
}

/// BT.
pub const BT: Kernel = Kernel {
    name: "BT",
    about: "implicit flow solver with block-tridiagonal systems, on a square number of PEs",
    largest: Class::F,
    run: crate::bt::run,
    neighbours: |n_pes, _| Graph::implicit_solver(n_pes),
    gathers: false,
};

/// CG.
pub const CG: Kernel = Kernel {
    name: "CG",
    about: "an eigenvalue of a sparse matrix, by conjugate gradients",
    largest: Class::F,
    run: crate::cg::run,
    neighbours: |n_pes, _| Graph::conjugate_gradient(n_pes),
    gathers: false,
};

/// EP.
pub const EP: Kernel = Kernel {
    name: "EP",
    about: "Gaussian deviates",
    largest: Class::F,
    run: crate::ep::run,
    neighbours: |n_pes, _| Graph::silent(n_pes),
    gathers: false,
};

/// FT.
pub const FT: Kernel = Kernel {
    name: "FT",
    about: "diffusion by Fourier transforms, everybody sends to everybody",
    largest: Class::F,
    run: crate::ft::run,
    neighbours: |n_pes, _| Graph::everybody(n_pes),
    gathers: false,
};

/// IS.
pub const IS: Kernel = Kernel {
    name: "IS",
    about: "ranks of integer keys",
    largest: Class::E,
    run: crate::is::run,
    neighbours: |n_pes, _| Graph::everybody(n_pes),
    gathers: false,
};

/// LU.
pub const LU: Kernel = Kernel {
    name: "LU",
    about: "symmetric successive over-relaxation, in wavefronts through the PEs",
    largest: Class::F,
    run: crate::lu::run,
    neighbours: |n_pes, _| Graph::wavefront(n_pes),
    gathers: false,
};

/// MG.
pub const MG: Kernel = Kernel {
    name: "MG",
    about: "multigrid for a Poisson equation",
    largest: Class::F,
    run: crate::mg::run,
    neighbours: Graph::multigrid,
    gathers: true, // What PEs found in the charges.
};

/// SP.
pub const SP: Kernel = Kernel {
    name: "SP",
    about: "implicit steps by scalar penta-diagonal systems",
    largest: Class::F,
    run: crate::sp::run,
    neighbours: BT.neighbours,
    gathers: false,
};

/// All benchmarks.
pub const KERNELS: [&Kernel; 8] = [&BT, &CG, &EP, &FT, &IS, &LU, &MG, &SP];

impl Kernel {
    /// Whom PEs talk to, each on a node of its own: [`Kernel::neighbours`], and those that collectives take.
    #[must_use]
    pub fn peers(&self, n_pes: usize, edge: usize) -> Graph {
        (self.neighbours)(n_pes, edge).and(&Graph::collectives(n_pes, self.gathers))
    }

    /// The name of its program.
    #[must_use]
    pub fn program(&self) -> String {
        program(self.name)
    }

    /// The benchmark as a program with the command line of this process.
    pub fn main(&self) -> ExitCode {
        self.main_with(std::env::args_os())
    }

    /// The benchmark as a program with another command line, of which the first is how it was called.
    pub fn main_with(&self, args: impl Iterator<Item = OsString>) -> ExitCode {
        cli::main(self.name, self.about, self.largest, args, self.run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each has a program of its name.
    #[test]
    fn every_benchmark_is_a_program() {
        let programs = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bin");
        let entries = std::fs::read_dir(programs).expect("the programs");
        let mut found: Vec<String> = entries
            .map(|entry| entry.expect("a name").file_name())
            .map(|file| file.to_string_lossy().trim_end_matches(".rs").to_owned())
            .collect();
        found.sort();
        assert_eq!(found, KERNELS.map(Kernel::program));
    }
}
