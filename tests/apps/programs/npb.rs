//! `npb KERNEL ARGUMENT...`: any of the NAS benchmarks.

use std::process::ExitCode;

use npb_ports::kernels::KERNELS;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let name = args.first().expect("the name of a benchmark");
    let kernel = KERNELS.iter().find(|kernel| name == kernel.name);
    kernel
        .expect("a benchmark of this name")
        .main_with(args.into_iter())
}
