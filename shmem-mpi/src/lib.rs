//! MPI, found while a program runs: a small binding in Rust alone, without headers, without `mpicc`, and without a
//! library at link time.
//!
//! It is for programs that use MPI and OpenSHMEM together, and for libraries that want to know whether the process
//! they are in uses MPI. One executable runs with any MPI whose binary interface is one of three:
//!
//! | interface | library | handles |
//! |---|---|---|
//! | MPICH's, which Intel MPI, MVAPICH and Cray MPICH share | `libmpi.so.12`, `libmpich.so.12` | `int` |
//! | MPI 5's standard one | `libmpi_abi.so.1` | pointers that are small numbers |
//! | Open MPI 4 and 5 | `libmpi.so.40` | addresses of objects |
//!
//! # Example
//!
//! ```no_run
//! use shmem_mpi::{Mpi, ReduceOp, ThreadLevel};
//!
//! let mpi = Mpi::load(None)?;
//! mpi.init(ThreadLevel::Serialized)?;
//! let world = mpi.world()?;
//! let mut sum = [0u64];
//! world.allreduce(&[u64::from(world.rank())], &mut sum, ReduceOp::Sum)?;
//! let mut all_here = world.ibarrier()?;
//! while !all_here.test()? {
//!     // ... work that overlaps with the barrier ...
//! }
//! mpi.finalize()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Map
//! * [`Mpi`]: the library; whether MPI is initialised, and its thread level.
//! * [`Comm`]: a communicator; messages and collective operations over slices of numbers.
//! * [`Request`]: an operation that was started. It owns its buffers, so that nothing can go wrong when it is dropped or leaked.
//! * `abi`: what the three interfaces number differently. `loader`, `calls`, `request`: the unsafe code.
//!
//! # Rules
//! * A library is never unloaded, and a process uses one: the one that is there when this crate first looks.
//! * Who calls is checked: before `MPI_Init`, after `MPI_Finalize`, or from a thread that the level of MPI does not
//!   allow, a call is an error and does not reach MPI. The program may call `MPI_Init` and `MPI_Finalize` itself, in C,
//!   too; it must not do so while another thread is in a call of this crate.
//! * With [`ThreadLevel::Serialized`] one call is under way at a time: a thread that receives keeps others from sending.
//! * Errors are values on communicators that this crate has made, and on the world if [`Mpi::init`] has initialised
//!   MPI; elsewhere the program's error handler has the word, which aborts unless somebody has set another.
//! * As in C, all processes of a communicator make the same collective calls with sizes that fit.

#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!(
    "shmem is for 64-bit little-endian targets: offsets in symmetric memory are 64 bits wide, and nodes exchange them as they lie in memory"
);

mod abi;
mod calls;
mod comm;
mod element;
mod entered;
mod error;
#[cfg(test)]
mod header_tests;
mod loader;
mod mpi;
mod request;
mod search;
mod thread_level;

pub use abi::Interface;
pub use comm::{Comm, Received};
pub use element::Element;
pub use error::{Error, LoadError};
pub use mpi::{Mpi, State};
pub use request::Request;
pub use search::ENV_LIBRARY;
pub use thread_level::ThreadLevel;

/// How a reduction combines values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReduceOp {
    /// The sum; whole numbers wrap.
    Sum,
    /// The largest.
    Max,
    /// The smallest.
    Min,
}
