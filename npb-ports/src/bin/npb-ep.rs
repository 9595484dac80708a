//! `npb-ep`: the EP benchmark as a program. `shmrun -n 4 target/release/npb-ep A`

use std::process::ExitCode;

fn main() -> ExitCode {
    npb_ports::cli::main("EP", "Gaussian deviates", npb_ports::ep::run)
}
