//! `npb-bt`: the BT benchmark as a program. `shmrun -n 4 target/release/npb-bt A`

fn main() -> std::process::ExitCode {
    npb_ports::kernels::BT.main()
}
