//! Collectives of plain values, for which nobody needs symmetric memory.
//!
//! What a member gives to a reduction lies in a place of its slot, which is source and destination at once:
//! others touch it only between its arrival and its release. A broadcast is not such a collective, as its
//! root may be many of them ahead of the others; so it is a gathering to which only the root gives
//! something.
//!
//! What is gathered is put together in the box that leaders show, as much at a time as it holds.

use std::mem::MaybeUninit;
use std::ops::{Deref, Range};

use shmem_node::recording::Routine;
use shmem_node::waiting::Collective;

use super::announce::Announcement;
use super::combine::{Combine, combine};
use super::gather::Items;
use super::op::{Max, Min, Prod, ReduceOp, Sum};
use crate::datum::{Arithmetic, Datum, Number};
use crate::heap::access;
use crate::heap::address::SymAddr;
use crate::runtime::Runtime;
use crate::team::Team;
use crate::team::slots::{BOX, SHOWN, STAGED, STAGING, VALUE, VALUE_SIZE};

const _: () = assert!(BOX <= STAGED);

/// What all members of a team have given, one part after the other, in order of their numbers: a slice of
/// all elements, and of each member's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts<T> {
    data: Vec<T>,
    /// Where each part ends.
    ends: Vec<usize>,
}

impl<T> Parts<T> {
    pub(crate) fn new(data: Vec<T>, ends: Vec<usize>) -> Self {
        Self { data, ends }
    }

    /// What member `i` has given.
    ///
    /// # Panics
    /// If there is no such member.
    #[track_caller]
    #[must_use]
    pub fn part(&self, i: usize) -> &[T] {
        assert!(
            i < self.ends.len(),
            "there is no part {i}: {} members gave one each",
            self.ends.len()
        );
        &self.data[range(|i| self.ends[i], i)]
    }

    /// What each member has given.
    #[must_use]
    pub fn parts(&self) -> impl DoubleEndedIterator<Item = &[T]> + ExactSizeIterator {
        (0..self.ends.len()).map(|i| self.part(i))
    }

    /// All elements.
    #[must_use]
    pub fn into_vec(self) -> Vec<T> {
        self.data
    }
}

impl<T> Deref for Parts<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.data
    }
}

/// Part `i` of what ends there.
fn range(ends: impl Fn(usize) -> usize, i: usize) -> Range<usize> {
    i.checked_sub(1).map_or(0, &ends)..ends(i)
}

/// What two ranges have in common.
fn common(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}

/// The first of `n` parts that ends after `at`.
fn first_after(n: usize, ends: impl Fn(usize) -> usize, at: usize) -> usize {
    let (mut low, mut high) = (0, n);
    while low < high {
        let middle = low.midpoint(high);
        match ends(middle) <= at {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}

impl Runtime {
    /// Puts the parts of all members together, where that of member `i` ends at byte `ends(i)`, and gives this one the bytes
    /// that it wants.
    ///
    /// # Safety
    /// `mine` is readable for this member's part; `out` is writable for what is wanted.
    unsafe fn gather_blocks(
        &self,
        team: &Team,
        mine: *const u8,
        ends: impl Fn(usize) -> usize,
        wanted: Range<usize>,
        out: *mut u8,
    ) {
        let (mapping, n) = (team.mapping(), team.n_pes());
        let total = ends(n - 1);
        let (own, place) = (range(&ends, team.my_pe()), team.slot(STAGING));
        let shown = self.leader_slot(team, SHOWN);
        for start in (0..total).step_by(BOX) {
            let window = start..total.min(start + BOX);
            let part = common(&own, &window);
            // SAFETY: readable by the caller; a window is no longer than the staging room, which nobody else
            // writes before this member's leader has taken what lies there.
            unsafe {
                let from = mine.wrapping_add(part.start.saturating_sub(own.start));
                access::copy(from, self.own(place), part.len());
            }
            self.meet(team, || {
                for i in 0..mapping.n_here() {
                    let part = common(&range(&ends, self.rank_here(team, i)), &window);
                    if part.is_empty() {
                        continue;
                    }
                    let from = self.neighbour(mapping.local(i), place);
                    // SAFETY: the member has put its part there; the box has room for the window. All have
                    // arrived, so nobody reads what was shown before.
                    unsafe { access::copy(from, shown.add(part.start - start), part.len()) };
                }
                if mapping.n_nodes() > 1 {
                    let first = first_after(n, &ends, start);
                    let last = first_after(n, &ends, window.end - 1);
                    let items = Items {
                        count: last + 1 - first,
                        range: |i| {
                            let part = common(&range(&ends, first + i), &window);
                            part.start - start..part.end - start
                        },
                        node: |i| mapping.node_of(first + i),
                    };
                    self.exchange_boxes(team, &items);
                }
            });
            let part = common(&wanted, &window);
            if !part.is_empty() {
                let (from, to) = (part.start - start, part.start - wanted.start);
                // SAFETY: what is shown stays until this PE arrives again; writable by the caller.
                unsafe { access::copy(shown.add(from), out.add(to), part.len()) };
            }
        }
    }
}

/// Who gives and who gets elements in a collective.
pub(crate) struct Gathering<E: Fn(usize) -> usize> {
    /// Where the part of each member ends.
    pub(crate) ends: E,
    /// The elements that this member gets, of those of all.
    pub(crate) wanted: Range<usize>,
}

impl<E: Fn(usize) -> usize> Gathering<E> {
    /// This member gets the parts of all `n`.
    fn whole(n: usize, ends: E) -> Self {
        let wanted = 0..ends(n - 1);
        Self { ends, wanted }
    }
}

impl Team {
    /// What this member gets of the parts of all.
    ///
    /// # Panics
    /// If `part` is shorter than the part of this member, or the parts have no such elements as this member wants.
    #[track_caller]
    pub(crate) fn gather_elements<T: Datum>(
        &self,
        call: Collective,
        say: impl FnOnce(Announcement) -> Announcement,
        part: &[T],
        Gathering { ends, wanted }: Gathering<impl Fn(usize) -> usize>,
    ) -> Vec<T> {
        assert!(
            range(&ends, self.my_pe()).len() <= part.len(),
            "the part of this PE is shorter than it says"
        );
        let (size, all) = (size_of::<T>(), ends(self.n_pes() - 1));
        // These numbers come from other PEs, and a PE that is in a different collective gives any.
        assert!(
            wanted.start <= wanted.end && wanted.end <= all && all.checked_mul(size).is_some(),
            "elements {} to {} of {all}: another PE is in a different collective of {self} (SHMEM_CHECK=1 finds it)",
            wanted.start,
            wanted.end
        );
        let (rt, _guard) = self.enter(call, say);
        let mut got = Vec::<T>::with_capacity(wanted.len());
        // SAFETY: the part is long enough; the vector has room for what is wanted, which fills it; any bytes are values.
        unsafe {
            let (from, to) = (part.as_ptr().cast(), got.as_mut_ptr().cast());
            let bytes = wanted.start * size..wanted.end * size;
            rt.gather_blocks(self, from, |i| ends(i) * size, bytes, to);
            got.set_len(wanted.len());
        }
        got
    }

    /// The parts of all members, where that of member `i` ends at element `ends(i)`.
    #[track_caller]
    fn gather_all<T: Datum>(
        &self,
        call: Collective,
        say: impl FnOnce(Announcement) -> Announcement,
        part: &[T],
        ends: impl Fn(usize) -> usize,
    ) -> Vec<T> {
        let whole = Gathering::whole(self.n_pes(), ends);
        self.gather_elements(call, say, part, whole)
    }

    /// What all members give, in order of their numbers.
    ///
    /// ```
    /// # let world = shmem::init().unwrap();
    /// let squares = world.all_gather(world.my_pe() * world.my_pe());
    /// assert!(squares.iter().enumerate().all(|(pe, &square)| square == pe * pe));
    /// ```
    ///
    /// **Collective** over the team. Every member has room for a value of each: at thousands of PEs that
    /// counts.
    ///
    /// # Panics
    /// As [`sync`](Self::sync).
    ///
    /// # Spec
    /// As `shmem_fcollect` of OpenSHMEM 1.6, without symmetric memory.
    #[doc(alias("MPI_Allgather", "allgather", "fcollect"))]
    #[track_caller]
    #[must_use]
    pub fn all_gather<T: Datum>(&self, value: T) -> Vec<T> {
        self.gather_one(Collective::AllGather, value)
    }

    /// A value of each member, for a call that may have another name.
    #[track_caller]
    fn gather_one<T: Datum>(&self, call: Collective, value: T) -> Vec<T> {
        self.gather_all(call, |said| said.elements::<T>(1), &[value], |i| i + 1)
    }

    /// What all members give, in order of their numbers; each may give another number of elements.
    ///
    /// ```
    /// # let world = shmem::init().unwrap();
    /// let me = world.my_pe() as u32;
    /// let all = world.all_gather_parts(&vec![me; world.my_pe()]);
    /// assert!(all.parts().enumerate().all(|(pe, part)| part == vec![pe as u32; pe]));
    /// assert_eq!(all.len(), world.n_pes() * (world.n_pes() - 1) / 2);
    /// ```
    ///
    /// **Collective** over the team. Meant for what fits into a cache: it goes through boxes of 18 KiB. Long
    /// parts in symmetric memory are faster concatenated by [`collect`](Self::collect).
    ///
    /// # Panics
    /// As [`sync`](Self::sync).
    ///
    /// # Spec
    /// As `shmem_collect` of OpenSHMEM 1.6, without symmetric memory.
    #[doc(alias("MPI_Allgatherv", "allgatherv", "collect"))]
    #[track_caller]
    #[must_use]
    pub fn all_gather_parts<T: Datum>(&self, part: &[T]) -> Parts<T> {
        let _recorded = self.composed(Routine::AllGatherParts);
        let call = Collective::AllGatherParts;
        let ends = self.ends_of_parts(call, |said| said.of::<T>(), part.len());
        let end = ends[ends.len() - 1];
        let say = |said: Announcement| said.of::<T>().with([end]);
        let all = self.gather_all(call, say, part, |i| ends[i]);
        Parts::new(all, ends)
    }

    /// Where the part of each member ends, if it has so many elements.
    #[track_caller]
    pub(crate) fn ends_of_parts(
        &self,
        call: Collective,
        say: impl FnOnce(Announcement) -> Announcement,
        len: usize,
    ) -> Vec<usize> {
        let mut ends = self.gather_all(call, say, &[len], |i| i + 1);
        let mut end = 0;
        for len in &mut ends {
            // Too much is found before it is gathered.
            end = len.saturating_add(end);
            *len = end;
        }
        ends
    }

    /// The value of member `root`; those of the others mean nothing.
    ///
    /// ```
    /// # let world = shmem::init().unwrap();
    /// let seed = match world.my_pe() {
    ///     0 => 42, // what only one PE has read
    ///     _ => 0,
    /// };
    /// assert_eq!(world.broadcast_value(seed, 0), 42);
    /// ```
    ///
    /// **Collective** over the team.
    ///
    /// # Panics
    /// If there is no member `root`; and as [`sync`](Self::sync).
    ///
    /// # Spec
    /// As `shmem_broadcast` of OpenSHMEM 1.6, without symmetric memory.
    #[doc(alias("MPI_Bcast", "bcast"))]
    #[track_caller]
    #[must_use]
    pub fn broadcast_value<T: Datum>(&self, value: T, root: usize) -> T {
        self.check_root("broadcast", root);
        let only_root = |i| usize::from(i >= root);
        let say = |said: Announcement| said.elements::<T>(1).with([root]);
        let got = self.gather_all(Collective::Broadcast, say, &[value], only_root);
        got[0]
    }

    /// What the values of all members make together by `op`: [`Sum`], [`Min`],
    /// [`And`](crate::And) or another [`ReduceOp`], of which a closure is one.
    ///
    /// ```
    /// # let world = shmem::init().unwrap();
    /// // The largest element, and the PE that has it.
    /// let mine = [world.my_pe() as f64 % 3.0, world.my_pe() as f64];
    /// let [largest, owner] = world.reduce_value(mine, |a: [f64; 2], b: [f64; 2]| {
    ///     if a[0] < b[0] { b } else { a }
    /// });
    /// # assert!(largest <= 2.0 && (owner as usize) < world.n_pes());
    /// ```
    ///
    /// **Collective** over the team. Results do not vary between runs with the same layout of PEs on nodes.
    /// Of types of more than 512 bytes every member gathers all values.
    ///
    /// # Panics
    /// As [`sync`](Self::sync).
    ///
    /// # Spec
    /// As `shmem_sum_reduce` and its like of OpenSHMEM 1.6, without symmetric memory.
    #[doc(alias("MPI_Allreduce", "allreduce"))]
    #[track_caller]
    #[must_use]
    pub fn reduce_value<T: Datum, O: ReduceOp<T>>(&self, value: T, op: O) -> T {
        if size_of::<T>() > VALUE_SIZE {
            return self.reduce_large(value, &op);
        }
        let combine = combine(op);
        self.in_place(Collective::Reduce, combine, value, |rt, place| {
            // SAFETY: the place holds a `T`, which the operation is for.
            unsafe { rt.team_reduce(self, place, place, 1, size_of::<T>(), combine) };
        })
    }

    /// Each member gathers all values: for one that does not fit into its place.
    #[track_caller]
    fn reduce_large<T: Datum, O: ReduceOp<T>>(&self, value: T, op: &O) -> T {
        let all = self.gather_one(Collective::Reduce, value);
        let made = all.into_iter().reduce(|a, b| op.combine(a, b));
        made.expect("a team has members")
    }

    /// Compares what members are about to reduce, where that is compared (`SHMEM_CHECK`).
    #[track_caller]
    pub(crate) fn say_reduction<T: Datum, O: ReduceOp<T>>(&self, values: &[T], _op: &O) {
        let say =
            |said: Announcement| said.combined(values.len(), size_of::<T>(), Combine::of::<T, O>());
        drop(self.enter(Collective::Reduce, say));
    }

    /// Combines slices of equal length, element by element, as many elements at a time as [`VALUE_SIZE`] bytes hold, or
    /// one.
    #[track_caller]
    pub(crate) fn reduce_in_pieces<T: Datum, O: ReduceOp<T>>(&self, values: &mut [T], op: O) {
        let size = size_of::<T>();
        if size > VALUE_SIZE {
            for value in values {
                *value = self.reduce_large(*value, &op);
            }
            return;
        }
        let combine = combine(op);
        let (rt, _guard) = self.enter(Collective::Reduce, |said| {
            said.combined(values.len(), size, combine)
        });
        let place = self.slot(VALUE);
        for piece in values.chunks_mut(VALUE_SIZE / size.max(1)) {
            let (at, bytes) = (piece.as_mut_ptr().cast(), size_of_val(piece));
            // SAFETY: the place has room for the piece and is this member's own, whose elements the operation is for; any
            // bytes are values.
            unsafe {
                access::copy(at, rt.own(place), bytes);
                let place = SymAddr::new(place);
                rt.team_reduce(self, place, place, piece.len(), size, combine);
                access::copy(rt.own(place.offset()), at, bytes);
            }
        }
    }

    /// Puts a value of at most [`VALUE_SIZE`] bytes where `collective` finds it; gives what is there then.
    #[inline]
    #[track_caller]
    fn in_place<T: Datum>(
        &self,
        call: Collective,
        combine: Combine,
        value: T,
        collective: impl FnOnce(&Runtime, SymAddr),
    ) -> T {
        let (rt, _guard) = self.enter(call, |said| said.combined(1, size_of::<T>(), combine));
        let place = self.slot(VALUE);
        let mut out = MaybeUninit::<T>::uninit();
        // SAFETY: the place has room for the value and is this member's own; any bytes are a value.
        unsafe {
            access::copy((&raw const value).cast(), rt.own(place), size_of::<T>());
            collective(rt, SymAddr::new(place));
            access::copy(rt.own(place), out.as_mut_ptr().cast(), size_of::<T>());
            out.assume_init()
        }
    }

    /// The largest of the values of all members, and the lowest number of a member that gives an equal one. A NaN loses
    /// against a number.
    ///
    /// ```
    /// # let world = shmem::init().unwrap();
    /// let (height, pe) = world.max_loc(world.my_pe() as f64 / 2.0);
    /// assert_eq!((height, pe), ((world.n_pes() - 1) as f64 / 2.0, world.n_pes() - 1));
    /// ```
    ///
    /// **Collective** over the team: two reductions.
    ///
    /// # Panics
    /// If no member gives the value, because a [`Number`] of the program's makes another one of two; and as
    /// [`sync`](Self::sync).
    ///
    /// # Spec
    /// None; MPI has `MPI_MAXLOC`.
    #[doc(alias("MPI_MAXLOC"))]
    #[must_use]
    #[track_caller]
    pub fn max_loc<T: Number>(&self, value: T) -> (T, usize) {
        let found = self.max(value);
        (found, self.first_with(value, found))
    }

    /// The smallest of the values of all members, and the lowest number of a member that gives an equal one. A NaN loses
    /// against a number.
    ///
    /// **Collective** over the team: two reductions.
    ///
    /// # Panics
    /// If no member gives the value, because a [`Number`] of the program's makes another one of two; and as
    /// [`sync`](Self::sync).
    ///
    /// # Spec
    /// None; MPI has `MPI_MINLOC`.
    #[doc(alias("MPI_MINLOC"))]
    #[must_use]
    #[track_caller]
    pub fn min_loc<T: Number>(&self, value: T) -> (T, usize) {
        let found = self.min(value);
        (found, self.first_with(value, found))
    }

    /// The first member whose value is the one that was found. If that is a NaN, all values are.
    #[track_caller]
    fn first_with<T: Number>(&self, value: T, found: T) -> usize {
        let is_nan = |value: T| value.partial_cmp(&value).is_none();
        let first = match value == found || is_nan(found) {
            true => self.min(self.my_pe()),
            false => self.min(usize::MAX),
        };
        assert!(first != usize::MAX, "no PE of {self} gives {found:?}");
        first
    }

    /// The sum of the values of the members before this one; member 0 gets zero. Where a member's part of a
    /// common array begins, for instance, is this of the parts' lengths.
    ///
    /// ```
    /// # let world = shmem::init().unwrap();
    /// assert_eq!(world.sum_before(10), 10 * world.my_pe());
    /// ```
    ///
    /// **Collective** over the team.
    ///
    /// # Panics
    /// As [`sync`](Self::sync). Types of more than 512 bytes do not compile.
    ///
    /// # Spec
    /// As `shmem_sum_exscan` of OpenSHMEM 1.6, without symmetric memory.
    #[doc(alias("MPI_Exscan", "exscan"))]
    #[track_caller]
    #[must_use]
    pub fn sum_before<T: Arithmetic>(&self, value: T) -> T {
        const {
            assert!(
                size_of::<T>() <= VALUE_SIZE,
                "at most 512 bytes can be summed so"
            )
        };
        let sum = combine::<T, _>(Sum);
        self.in_place(Collective::Scan, sum, value, |rt, place| {
            // SAFETY: the place holds a `T`, which the operation is for.
            unsafe { rt.team_scan(self, place, place, 1, size_of::<T>(), sum, true) };
        })
    }
}

macro_rules! reductions {
    ($($(#[$doc:meta])* $name:ident: $bound:ident, $op:ident, $spec:literal;)*) => {
        impl Team { $(
            $(#[$doc])*
            ///
            /// **Collective** over the team.
            ///
            /// # Panics
            /// As [`sync`](Self::sync).
            ///
            /// # Spec
            #[doc = concat!("As `", $spec, "` of OpenSHMEM 1.6, without symmetric memory.")]
            #[must_use]
            #[track_caller]
            pub fn $name<T: $bound>(&self, value: T) -> T {
                self.reduce_value(value, $op)
            }
        )* }
    };
}

reductions! {
    /// The sum of the values of all members, element by element where they are arrays; integers wrap.
    ///
    /// ```
    /// # let world = shmem::init().unwrap();
    /// assert_eq!(world.sum(2), 2 * world.n_pes());
    /// assert_eq!(world.sum([0.5, 1.0]), [0.5, 1.0].map(|x| x * world.n_pes() as f64));
    /// ```
    sum: Arithmetic, Sum, "shmem_sum_reduce";
    /// The product of the values of all members, element by element where they are arrays; integers wrap.
    prod: Arithmetic, Prod, "shmem_prod_reduce";
    /// The smallest of the values of all members. A NaN loses against a number.
    min: Number, Min, "shmem_min_reduce";
    /// The largest of the values of all members. A NaN loses against a number.
    max: Number, Max, "shmem_max_reduce";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_what_members_gave() {
        let parts = Parts::new(vec![1, 2, 3], vec![2, 2, 3]);
        assert!(parts.parts().eq([&[1, 2][..], &[], &[3]]));
        assert_eq!((parts.len(), parts.part(2)), (3, &[3][..]));
        assert_eq!(parts.into_vec(), [1, 2, 3]);
    }

    #[test]
    #[should_panic(expected = "no part 1: 1 members")]
    fn there_are_as_many_parts_as_members() {
        let _ = Parts::new(vec![1, 2, 3], vec![3]).part(1);
    }

    #[test]
    fn parts_of_a_window_are_found() {
        let ends = [3, 3, 7, 7, 7, 20, 20];
        let first = |at| first_after(ends.len(), |i| ends[i], at);
        assert_eq!([0, 2, 3, 6, 7, 19].map(first), [0, 0, 2, 2, 5, 5]);
        assert_eq!(range(|i| ends[i], 2), 3..7);
        assert_eq!(common(&(3..7), &(0..5)), 3..5);
        assert!(common(&(3..7), &(8..9)).is_empty() && common(&(8..9), &(3..7)).is_empty());
    }
}
