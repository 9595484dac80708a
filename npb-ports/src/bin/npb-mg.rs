//! `npb-mg`: the MG benchmark as a program. `shmrun -n 4 target/release/npb-mg A`

fn main() -> std::process::ExitCode {
    npb_ports::kernels::MG.main()
}
