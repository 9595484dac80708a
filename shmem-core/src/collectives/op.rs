//! What a reduction does with two elements: a type for each operation, so that those that make no sense
//! for a type of elements do not compile.

use crate::datum::{Arithmetic, Bits, Datum, Number};

/// An operation of [`reduce`](crate::reduce) on elements of type `T`: [`Sum`], [`Prod`], [`Min`],
/// [`Max`], [`And`], [`Or`], [`Xor`], or one of the program's own:
///
/// ```
/// # let _world = shmem::init().unwrap();
/// use shmem::{ReduceOp, alloc, my_pe, n_pes, reduce};
///
/// /// The number that is farther from zero.
/// struct Farthest;
///
/// impl ReduceOp<f64> for Farthest {
///     fn combine(&self, a: f64, b: f64) -> f64 {
///         if a.abs() < b.abs() { b } else { a }
///     }
/// }
///
/// let cell = alloc::<f64>(1).unwrap();
/// cell.write(0, -(my_pe() as f64));
/// reduce(cell, cell, Farthest);
/// assert_eq!(cell.read(0), 1.0 - n_pes() as f64);
/// ```
///
/// A closure or a function is an operation, too, whose parameters say their types:
///
/// ```
/// # let _world = shmem::init().unwrap();
/// let cell = shmem::alloc::<u32>(1).unwrap();
/// cell.write(0, 3);
/// shmem::reduce(cell, cell, |a: u32, b: u32| a.max(b) | 8);
/// # assert_eq!(cell.read(0) | 8, 11);
/// ```
///
/// All PEs have to combine in the same way, so an operation has no data of its own. One that has is refused
/// when it is compiled:
///
/// ```compile_fail,E0080
/// # let _world = shmem::init().unwrap();
/// let cell = shmem::alloc::<u32>(1).unwrap();
/// let factor = shmem::my_pe() as u32;
/// shmem::reduce(cell, cell, |a: u32, b: u32| a + factor * b);
/// ```
///
/// An operation that panics leaves its collective half done. The program may catch the panic, but the next collective of
/// the team panics, too, since other members may wait for ever.
///
/// It must not matter how elements are grouped, nor in which order they come, unless it does not matter
/// that results differ between layouts of PEs on nodes.
///
/// ```compile_fail,E0277
/// # let _world = shmem::init().unwrap();
/// let cells = shmem::alloc::<f64>(1).unwrap();
/// shmem::reduce(cells, cells, shmem::And); // floating-point numbers have no such operation
/// ```
pub trait ReduceOp<T: Datum>: 'static {
    /// What the two make together.
    fn combine(&self, a: T, b: T) -> T;
}

impl<T: Datum, F: Fn(T, T) -> T + 'static> ReduceOp<T> for F {
    #[inline]
    fn combine(&self, a: T, b: T) -> T {
        self(a, b)
    }
}

macro_rules! ops {
    ($($(#[$doc:meta])* $op:ident: $bound:ident, $method:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $op;

        impl<T: $bound> ReduceOp<T> for $op {
            #[inline]
            fn combine(&self, a: T, b: T) -> T {
                a.$method(b)
            }
        }
    )* };
}

ops! {
    /// Sum; integers wrap.
    Sum: Arithmetic, plus;
    /// Product; integers wrap.
    Prod: Arithmetic, times;
    /// Smallest. A NaN loses against a number.
    Min: Number, smaller;
    /// Largest. A NaN loses against a number.
    Max: Number, larger;
    /// Bitwise and, for integers.
    And: Bits, and;
    /// Bitwise or, for integers.
    Or: Bits, or;
    /// Bitwise exclusive or, for integers.
    Xor: Bits, xor;
}
