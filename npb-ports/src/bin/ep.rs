//! `ep`: the EP benchmark as a program. `shmrun -n 4 target/release/ep A`

use std::process::ExitCode;

fn main() -> ExitCode {
    npb_ports::cli::main(
        "ep",
        "NAS benchmark EP: Gaussian deviates",
        npb_ports::ep::run,
    )
}
