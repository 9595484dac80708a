//! `npb-sp`: the SP benchmark as a program. `shmrun -n 4 target/release/npb-sp A`

fn main() -> std::process::ExitCode {
    npb_ports::kernels::SP.main()
}
