//! `npb-lu`: the LU benchmark as a program. `shmrun -n 4 target/release/npb-lu A`

fn main() -> std::process::ExitCode {
    npb_ports::kernels::LU.main()
}
