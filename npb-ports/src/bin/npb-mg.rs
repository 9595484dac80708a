//! `npb-mg`: the MG benchmark as a program. `shmrun -n 4 target/release/npb-mg A`

use std::process::ExitCode;

fn main() -> ExitCode {
    npb_ports::cli::main("MG", "multigrid for a Poisson equation", npb_ports::mg::run)
}
