//! `npb-bt`: the BT benchmark as a program. `shmrun -n 4 target/release/npb-bt A`

use std::process::ExitCode;

fn main() -> ExitCode {
    npb_ports::cli::main(
        "BT",
        "implicit flow solver with block-tridiagonal systems, on a square number of PEs",
        npb_ports::bt::run,
    )
}
