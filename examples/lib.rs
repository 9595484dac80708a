//! Examples of `shmem`: one idea a file, each asserts its result.
//!
//! Build them with `cargo build --release -p shmem-examples --examples`, run one with
//! `shmrun -n 4 target/release/examples/ring`. A file of tests is `shmem-test/tests/tested.rs`.
