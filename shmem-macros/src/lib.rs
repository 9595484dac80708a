//! The macros of [shmem-core](https://docs.rs/shmem-core), which has them under its own name: `shmem::Datum`,
//! `shmem::main`, `shmem::test`. Nobody needs this crate by itself.
//!
//! A macro looks at what stands before it and refuses what cannot be meant, at its place. What depends on types
//! is left to the compiler: it finds bounds and constants in the expansion, with messages of ours.

mod datum;
mod function;
mod test;

use proc_macro::TokenStream;

/// A struct whose values are plain bytes can lie in symmetric memory.
///
/// The struct has `#[repr(C)]` or `#[repr(transparent)]`, all its fields are `Datum`s, and there is no padding
/// between or behind them. What is not so does not compile.
///
/// ```
/// #[derive(Clone, Copy, Debug, Default, PartialEq, shmem::Datum)]
/// #[repr(C)]
/// struct Particle {
///     place: [f64; 3],
///     cell: u32,
///     kind: u32,
/// }
///
/// shmem::run(|world| {
///     let particles = shmem::alloc::<Particle>(10)?;
///     shmem::put(particles, &[Particle { cell: 7, ..Default::default() }], world.my_pe());
///     shmem::quiet();
///     assert_eq!(shmem::g(particles, world.my_pe()).cell, 7);
///     Ok(())
/// });
/// ```
///
/// # Generic structs
/// Padding depends on what the parameters stand for, so a struct may have parameters where it cannot have any:
/// with `#[repr(transparent)]`, or with `#[repr(C)]` where all fields are of the same type, or arrays of it.
///
/// ```
/// #[derive(Clone, Copy, Debug, shmem::Datum)]
/// #[repr(C)]
/// struct Interval<T> {
///     low: T,
///     high: T,
/// }
/// ```
#[proc_macro_derive(Datum)]
pub fn derive_datum(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    datum::derive(&input)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Makes `main` a program of a job: `shmem::run` around its body.
///
/// `main` takes the world (`world: &World`) or nothing, and gives nothing or a `Result<(), E>` whose error converts
/// into a `Box<dyn Error>`. An error is told, with the PE, and ends the job.
///
/// ```
/// use shmem::World;
///
/// #[shmem::main]
/// fn main(world: &World) -> Result<(), shmem::Error> {
///     let total = shmem::alloc::<u64>(1)?;
///     shmem::atomic_add(total, 1, 0);
///     world.barrier();
///     assert_eq!(shmem::g(total, 0) as usize, world.n_pes());
///     Ok(())
/// }
/// ```
#[proc_macro_attribute]
pub fn main(args: TokenStream, item: TokenStream) -> TokenStream {
    function::main(args.into(), item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Makes a function a test that is a job: every PE calls it.
///
/// The job runs under plain `cargo test` and under cargo-nextest, with nothing to install: the test program
/// carries the launcher. That is the feature `test` of shmem-core:
///
/// ```toml
/// [dev-dependencies]
/// shmem-core = { version = "0.1", features = ["test"] }
/// ```
///
/// The function takes the world (`world: &World`) or nothing, and gives nothing or a `Result<(), E>` whose error
/// converts into a `Box<dyn Error>`. It runs between `init` and `finalize`, as `shmem::run` has it.
///
/// ```
/// use shmem::World;
///
/// #[shmem::test(pes = 4, nodes = 2)]
/// fn everybody_counts(world: &World) {
///     assert_eq!(world.sum(1), 4);
/// }
/// # fn main() {}
/// ```
///
/// The test fails when the job does: when a PE panics, gives an error, exits with another status than 0 or is killed, and
/// when the time limit is over. Its message is the launcher's: which PE on which node, and why, or who waits for
/// whom. What the PEs print is the test's output, with the PE in front of each line, if there are several.
///
/// # Arguments
/// * `pes = 4`: number of PEs; 4 if it is not said.
/// * `nodes = 2`: number of nodes, 1 if it is not said. They are emulated on this machine, and share nothing but the
///   network.
/// * A list, `pes = [1, 4]`, `nodes = [1, 2]`, makes a test of each, and of each combination: `everybody_counts::nodes_1`,
///   `everybody_counts::nodes_2`; `everybody_counts::pes_4_nodes_2` where both are lists.
/// * `timeout = "90s"`: time limit of the job, in whole seconds (`s`) or minutes (`min`); 60 s if it is not said. The environment
///   variable `SHMEM_TEST_TIMEOUT` overrides it for all tests: `SHMEM_TEST_TIMEOUT=0s` takes it away, for debugging.
/// * `env("NAME" = "VALUE", ...)`: variables for the PEs, settings among them. Others are those of the test's own environment.
///
/// # With other attributes
/// `#[ignore]`, `#[cfg(...)]` and lints mean what they do for any test. `#[should_panic]`, also with `expected`, passes when a PE
/// panics; a time limit, a crash or an error do not pass for that. Like any test it runs alone by its name:
/// `cargo test everybody_counts -- --nocapture`.
#[proc_macro_attribute]
pub fn test(args: TokenStream, item: TokenStream) -> TokenStream {
    test::test(args.into(), item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
