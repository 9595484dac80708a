//! `npb-ep`: the EP benchmark as a program. `shmrun -n 4 target/release/npb-ep A`

fn main() -> std::process::ExitCode {
    npb_ports::kernels::EP.main()
}
