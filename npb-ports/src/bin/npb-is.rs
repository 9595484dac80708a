//! `npb-is`: the IS benchmark as a program. `shmrun -n 4 target/release/npb-is A`

fn main() -> std::process::ExitCode {
    npb_ports::kernels::IS.main()
}
