//! Symmetric memory for the time of a function.

use shmem_node::waiting::Collective;

use crate::collectives::{Announcement, WorldCollective, collective};
use crate::datum::Datum;
use crate::error::Error;
use crate::heap::address::SymAddr;
use crate::symmetric::array::SymSlice;

/// Every array begins at a multiple of this: the largest alignment of a [`Datum`].
const ALIGN: usize = 64;

/// The arrays of a [`scratch`]: a [`SymSlice`], or a tuple of up to six.
pub trait Arrays: sealed::Sealed {
    /// Their lengths, in elements: a number, or a tuple of numbers.
    type Lens: Copy;
    /// Bytes of all.
    #[doc(hidden)]
    fn bytes_of(lens: Self::Lens) -> usize;
    /// The arrays, of which the first begins at `at`.
    #[doc(hidden)]
    fn begin_at(at: SymAddr, lens: Self::Lens) -> Self;
}

mod sealed {
    pub trait Sealed: Sized {}
}

impl<T: Datum> sealed::Sealed for SymSlice<T> {}
impl<T: Datum> Arrays for SymSlice<T> {
    type Lens = usize;

    fn bytes_of(len: usize) -> usize {
        len.saturating_mul(size_of::<T>())
            .checked_next_multiple_of(ALIGN)
            .unwrap_or(usize::MAX)
    }

    fn begin_at(at: SymAddr, len: usize) -> Self {
        Self::from_raw(at.offset(), len)
    }
}

macro_rules! tuples {
    ($(($($t:ident $len:ident),*))*) => { $(
        impl<$($t: Datum),*> sealed::Sealed for ($(SymSlice<$t>,)*) {}
        impl<$($t: Datum),*> Arrays for ($(SymSlice<$t>,)*) {
            type Lens = ($(<SymSlice<$t> as Arrays>::Lens,)*);

            fn bytes_of(($($len,)*): Self::Lens) -> usize {
                let mut bytes = 0usize;
                $( bytes = bytes.saturating_add(SymSlice::<$t>::bytes_of($len)); )*
                bytes
            }

            fn begin_at(at: SymAddr, ($($len,)*): Self::Lens) -> Self {
                let mut offset = 0;
                let mut next = |bytes| {
                    let start = at.at(offset);
                    offset += bytes;
                    start
                };
                ($( SymSlice::begin_at(next(SymSlice::<$t>::bytes_of($len)), $len), )*)
            }
        }
    )* };
}
tuples! {
    (A a)
    (A a, B b)
    (A a, B b, C c)
    (A a, B b, C c, D d)
    (A a, B b, C c, D d, E e)
    (A a, B b, C c, D d, E e, F f)
}

impl WorldCollective {
    /// Takes `bytes` bytes of any contents; nobody has to wait but where they have to be registered first.
    fn lend(&self, bytes: usize) -> Result<SymAddr, Error> {
        let at = self.take(bytes, ALIGN, false)?;
        if let Some(network) = &self.network
            && !network.registrar.parts().are_one()
        {
            self.barrier_all();
        }
        Ok(at)
    }
}

/// Runs `f` with symmetric arrays, which are freed when it comes back, with `?` too.
///
/// ```
/// # fn main() -> Result<(), shmem::Error> {
/// # let world = shmem::init()?;
/// use shmem::SymSlice;
///
/// let n = world.n_pes();
/// let total = shmem::scratch((n, n), |(sent, got): (SymSlice<u32>, SymSlice<u32>)| {
///     sent.fill(world.my_pe() as u32);
///     world.alltoall(got, sent, 1);
///     got.iter().sum::<u32>()
/// })?;
/// assert_eq!(total as usize, n * (n - 1) / 2);
/// # Ok(())
/// # }
/// ```
///
/// The elements have some values, which may be those of arrays that were freed; each array is aligned to 64
/// bytes.
///
/// **Collective** with the same types and lengths on all PEs, which run `f` alike: one that leaves it early
/// waits for the others at its end. There is no barrier at the beginning (but where the heap is registered
/// in parts, `SHMEM_HEAP_REGISTER`, or calls are compared, `SHMEM_CHECK`), so `f` sees to it that others are through with what it overwrites of
/// theirs, as collectives do; and one at the end, which completes what this PE has started on the default
/// context. Handles to the arrays must not be used after.
///
/// # Errors
/// [`Error::HeapExhausted`], on all PEs alike and before `f`.
///
/// # Spec
/// As `shmem_malloc` and `shmem_free` of OpenSHMEM 1.6, with one barrier in all.
#[track_caller]
pub fn scratch<A: Arrays, R>(lens: A::Lens, f: impl FnOnce(A) -> R) -> Result<R, Error> {
    let lent = lend(lens)?;
    let made = f(lent.arrays());
    lent.give_back()?;
    Ok(made)
}

/// Memory that is scratch until it is given back.
pub(crate) struct Lent<A: Arrays> {
    at: SymAddr,
    lens: A::Lens,
}

/// The first half of [`scratch`], for callers that name the program's line again at its end.
#[track_caller]
pub(crate) fn lend<A: Arrays>(lens: A::Lens) -> Result<Lent<A>, Error> {
    let bytes = A::bytes_of(lens);
    let say = |said: Announcement| said.of::<A>().bytes(bytes).with([ALIGN]);
    let at = collective(Collective::Alloc, say).lend(bytes)?;
    Ok(Lent { at, lens })
}

impl<A: Arrays> Lent<A> {
    pub(crate) fn arrays(&self) -> A {
        A::begin_at(self.at, self.lens)
    }

    /// What [`scratch`] ends with.
    #[track_caller]
    pub(crate) fn give_back(self) -> Result<(), Error> {
        collective(Collective::Free, |said| said.with([self.at.offset()])).release(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_lie_one_after_the_other() {
        type Three = (SymSlice<u8>, SymSlice<u64>, SymSlice<u16>);
        let lens = (65, 9, 0);
        assert_eq!(Three::bytes_of(lens), 128 + 128);
        let (a, b, c) = Three::begin_at(SymAddr::new(4096), lens);
        assert_eq!((a.offset(), a.len()), (4096, 65));
        assert_eq!((b.offset(), b.len()), (4096 + 128, 9));
        assert_eq!((c.offset(), c.len()), (4096 + 256, 0));
        assert_eq!(SymSlice::<u64>::bytes_of(usize::MAX), usize::MAX);
        assert_eq!(Three::bytes_of((1, usize::MAX / 4, 1)), usize::MAX);
    }
}
