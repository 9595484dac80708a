//! `npb-cg`: the CG benchmark as a program. `shmrun -n 4 target/release/npb-cg A`

fn main() -> std::process::ExitCode {
    npb_ports::kernels::CG.main()
}
