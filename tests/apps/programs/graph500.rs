//! The Graph500 benchmark.

fn main() -> std::process::ExitCode {
    graph500::cli::main(std::env::args_os())
}
