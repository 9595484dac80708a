//! `npb-sp`: the SP benchmark as a program. `shmrun -n 4 target/release/npb-sp A`

use std::process::ExitCode;

fn main() -> ExitCode {
    npb_ports::cli::main(
        "SP",
        "implicit steps by scalar penta-diagonal systems",
        npb_ports::sp::run,
    )
}
