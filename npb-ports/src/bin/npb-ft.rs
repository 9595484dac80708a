//! `npb-ft`: the FT benchmark as a program. `shmrun -n 4 target/release/npb-ft A`

fn main() -> std::process::ExitCode {
    npb_ports::kernels::FT.main()
}
