//! Programs that must not compile, and what the compiler says: each file of `refused/` has its messages beside.
//!
//! `TRYBUILD=overwrite cargo test -p shmem-test --test refused -- --ignored` writes them anew. What is said in words of the
//! compiler's own changes with its version; so most programs are refused in words of ours.

/// trybuild has cargo build the library anew, in a target directory of its own.
#[test]
#[ignore = "nightly: cargo builds programs for minutes"]
fn what_must_not_compile_says_what_to_do() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
