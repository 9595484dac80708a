//! The Graph500 benchmark as a program.

fn main() -> std::process::ExitCode {
    graph500::cli::main(std::env::args_os())
}
