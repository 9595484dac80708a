//! `shmrun`, built beside the tests.

fn main() -> std::process::ExitCode {
    // SAFETY: nothing has started a thread yet.
    unsafe { shmem_launch::main(std::env::args_os()) }.into()
}
