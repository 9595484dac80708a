//! Collectives of slices of ordinary memory, for which the program needs no symmetric memory: reductions and broadcasts of any
//! length, gathering at one member, and handing out from one.
//!
//! What is short goes through the slots of the team, a piece at a time. What is long takes symmetric memory for its time in the
//! world team: then it is as fast as a collective of symmetric arrays, plus two copies. If there is no room in the heap it goes
//! in pieces, too. Other teams cannot allocate symmetric memory, which all PEs do together.

use std::ops::Range;

use shmem_node::recording::Routine;
use shmem_node::waiting::Collective;

use crate::allocate::scratch::lend;
use crate::collectives::Announcement;
use crate::collectives::op::{Max, Min, Prod, ReduceOp, Sum};
use crate::collectives::values::{Gathering, Parts};
use crate::datum::{Arithmetic, Datum, Number};
use crate::symmetric::array::SymSlice;
use crate::team::Team;
use crate::team::slots::{BOX, VALUE_SIZE};

/// A longer reduction takes symmetric memory: between nodes that costs as much as two pieces.
const SHORT_REDUCTION: usize = 2 * VALUE_SIZE;
/// A longer broadcast does.
const SHORT_BROADCAST: usize = BOX;

impl Team {
    /// Runs `f` with a symmetric array of `n` elements, and returns whether it could: in the world team, if the heap has room,
    /// which all PEs find alike.
    #[track_caller]
    fn with_room<T: Datum>(&self, n: usize, f: impl FnOnce(SymSlice<T>)) -> bool {
        if !self.is_world() {
            return false;
        }
        let Ok(lent) = lend::<SymSlice<T>>(n) else {
            return false;
        };
        f(lent.arrays());
        if let Err(e) = lent.give_back() {
            panic!("memory that the library took for a collective cannot be freed: {e}");
        }
        true
    }

    /// Combines the slices of all members by `op`, element by element; each member finds the result in its own.
    ///
    /// ```
    /// # let world = shmem::init().unwrap();
    /// let mut low: Vec<usize> = (0..100).map(|i| i + world.my_pe()).collect();
    /// world.reduce_slice(&mut low, shmem::Min);
    /// assert!(low.iter().enumerate().all(|(i, &value)| value == i));
    /// ```
    ///
    /// **Collective** over the team, with slices of the same length.
    ///
    /// Results do not vary between runs with the same layout of PEs on nodes. In the world team a slice of more than 1 KiB
    /// takes symmetric memory for its time, if there is room. Then the call also completes what this PE has started on the
    /// default context. In other teams, and where there is no room, the slice goes in pieces of 512 bytes, or of one element if
    /// that is larger: there [`reduce`](Self::reduce) of a symmetric array is many times as fast.
    ///
    /// # Panics
    /// As [`sync`](Self::sync).
    ///
    /// # Spec
    /// As `shmem_sum_reduce` and its like of OpenSHMEM 1.6, without symmetric memory.
    #[doc(alias("MPI_Allreduce", "allreduce"))]
    #[track_caller]
    pub fn reduce_slice<T: Datum, O: ReduceOp<T>>(&self, values: &mut [T], op: O) {
        if size_of_val(values) <= SHORT_REDUCTION {
            return self.reduce_in_pieces(values, op);
        }
        let _recorded = self.composed(Routine::Reduce);
        // Here SHMEM_CHECK reports a PE that gives another length, before that PE allocates another array or none.
        self.say_reduction(values, &op);
        let mut op = Some(op);
        let in_room = self.with_room(values.len(), |array| {
            if let Some(op) = op.take() {
                array.write_from(values);
                self.reduce(array, array, op);
                array.read_to(values);
            }
        });
        if let (false, Some(op)) = (in_room, op) {
            self.reduce_in_pieces(values, op);
        }
    }

    /// The slice of member `root`. Only it knows the length; what the others give means nothing.
    ///
    /// ```
    /// # let world = shmem::init().unwrap();
    /// let text = match world.my_pe() {
    ///     0 => "what only one PE has read".as_bytes(),
    ///     _ => &[],
    /// };
    /// assert_eq!(world.broadcast_slice(text, 0), b"what only one PE has read");
    /// ```
    ///
    /// **Collective** over the team.
    ///
    /// In the world team a slice of more than 18 KiB takes symmetric memory for its time, if there is room. Then the call also
    /// completes what this PE has started on the default context. In other teams, and where there is no room, the slice goes in
    /// pieces of 18 KiB.
    ///
    /// # Panics
    /// If there is no member `root`; and as [`sync`](Self::sync).
    ///
    /// # Spec
    /// As `shmem_broadcast` of OpenSHMEM 1.6, without symmetric memory.
    #[doc(alias("MPI_Bcast", "bcast"))]
    #[track_caller]
    #[must_use]
    pub fn broadcast_slice<T: Datum>(&self, values: &[T], root: usize) -> Vec<T> {
        self.check_root("broadcast", root);
        let _recorded = self.composed(Routine::Broadcast);
        let say = |said: Announcement| said.of::<T>().with([root]);
        let lens = self.of_root(Collective::Broadcast, say, &[values.len()], root, (1, 0..1));
        let n = lens[0];
        let mut got = Vec::new();
        if n.saturating_mul(size_of::<T>()) > SHORT_BROADCAST
            && self.with_room(n, |array| {
                if self.my_pe() == root {
                    array.write_from(values);
                }
                self.broadcast(array, array, root);
                got = array.to_vec();
            })
        {
            return got;
        }
        self.of_root(Collective::Broadcast, say, values, root, (n, 0..n))
    }

    /// A range of the `n` elements that member `root` gives.
    #[track_caller]
    fn of_root<T: Datum>(
        &self,
        call: Collective,
        say: impl FnOnce(Announcement) -> Announcement,
        values: &[T],
        root: usize,
        (n, wanted): (usize, Range<usize>),
    ) -> Vec<T> {
        let ends = |i| if i >= root { n } else { 0 };
        self.gather_elements(call, say, values, Gathering { ends, wanted })
    }

    /// What all members give, in order of their numbers, at member `root`; `None` at the others.
    ///
    /// ```
    /// # let world = shmem::init().unwrap();
    /// let squares = world.gather(world.my_pe() * world.my_pe(), 0);
    /// assert_eq!(squares.is_some(), world.my_pe() == 0);
    /// assert!(squares.iter().flatten().enumerate().all(|(pe, &square)| square == pe * pe));
    /// ```
    ///
    /// **Collective** over the team. Only the root has room for all values; the network carries them as in
    /// [`all_gather`](Self::all_gather).
    ///
    /// # Panics
    /// If there is no member `root`; and as [`sync`](Self::sync).
    ///
    /// # Spec
    /// None; MPI has `MPI_Gather`.
    #[doc(alias("MPI_Gather"))]
    #[track_caller]
    #[must_use]
    pub fn gather<T: Datum>(&self, value: T, root: usize) -> Option<Vec<T>> {
        self.check_root("gather", root);
        let say = |said: Announcement| said.elements::<T>(1).with([root]);
        self.gather_at(say, &[value], root, |i| i + 1)
    }

    /// As [`gather`](Self::gather), where each member may give another number of elements.
    ///
    /// ```
    /// # let world = shmem::init().unwrap();
    /// let line = format!("PE {} was here", world.my_pe());
    /// if let Some(lines) = world.gather_parts(line.as_bytes(), 0) {
    ///     for (pe, line) in lines.parts().enumerate() {
    ///         assert_eq!(line, format!("PE {pe} was here").as_bytes());
    ///     }
    /// }
    /// ```
    ///
    /// **Collective** over the team. Any length works, but the parts go to all nodes, through boxes of 18 KiB. Megabytes are
    /// sent to the root alone by [`alltoallv`](Self::alltoallv) of the world team, with empty parts for the others.
    ///
    /// # Panics
    /// If there is no member `root`; and as [`sync`](Self::sync).
    ///
    /// # Spec
    /// None; MPI has `MPI_Gatherv`.
    #[doc(alias("MPI_Gatherv"))]
    #[track_caller]
    #[must_use]
    pub fn gather_parts<T: Datum>(&self, part: &[T], root: usize) -> Option<Parts<T>> {
        self.check_root("gather", root);
        let _recorded = self.composed(Routine::Gather);
        let say = |said: Announcement| said.of::<T>().with([root]);
        // All have to know how long the parts are together, and where their own lies.
        let ends = self.ends_of_parts(Collective::Gather, say, part.len());
        let all = self.gather_at(say, part, root, |i| ends[i])?;
        Some(Parts::new(all, ends))
    }

    #[track_caller]
    fn gather_at<T: Datum>(
        &self,
        say: impl FnOnce(Announcement) -> Announcement,
        part: &[T],
        root: usize,
        ends: impl Fn(usize) -> usize,
    ) -> Option<Vec<T>> {
        let here = self.my_pe() == root;
        let wanted = 0..if here { ends(self.n_pes() - 1) } else { 0 };
        let all = self.gather_elements(Collective::Gather, say, part, Gathering { ends, wanted });
        here.then_some(all)
    }

    /// The element of `values` at member `root` that has this member's number. What the others give means nothing.
    ///
    /// ```
    /// # let world = shmem::init().unwrap();
    /// let seeds: Vec<u32> = match world.my_pe() {
    ///     0 => (100..).take(world.n_pes()).collect(),
    ///     _ => Vec::new(),
    /// };
    /// assert_eq!(world.scatter(&seeds, 0), 100 + world.my_pe() as u32);
    /// ```
    ///
    /// **Collective** over the team. The network carries all values to all nodes, as in
    /// [`broadcast_slice`](Self::broadcast_slice).
    ///
    /// # Panics
    /// If there is no member `root`, or `root` does not give a value for each member; and as [`sync`](Self::sync).
    ///
    /// # Spec
    /// None; MPI has `MPI_Scatter`.
    #[doc(alias("MPI_Scatter"))]
    #[track_caller]
    #[must_use]
    pub fn scatter<T: Datum>(&self, values: &[T], root: usize) -> T {
        self.check_scattered(root, values.len());
        let (me, n) = (self.my_pe(), self.n_pes());
        let say = |said: Announcement| said.elements::<T>(1).with([root]);
        self.of_root(Collective::Scatter, say, values, root, (n, me..me + 1))[0]
    }

    /// As [`scatter`](Self::scatter), where each member may get another number of elements.
    ///
    /// ```
    /// # let world = shmem::init().unwrap();
    /// // Member i gets i numbers.
    /// let rows: Vec<Vec<usize>> = match world.my_pe() {
    ///     0 => (0..world.n_pes()).map(|i| vec![i; i]).collect(),
    ///     _ => Vec::new(),
    /// };
    /// assert_eq!(world.scatter_parts(&rows, 0), vec![world.my_pe(); world.my_pe()]);
    /// ```
    ///
    /// **Collective** over the team. Any length works, but all of it goes to all nodes, through boxes of 18 KiB. Of megabytes
    /// [`alltoallv`](Self::alltoallv) of the world team sends each part to its PE alone, if all PEs but the root give empty
    /// parts.
    ///
    /// # Panics
    /// If there is no member `root`, or `root` does not give a part for each member; and as [`sync`](Self::sync).
    ///
    /// # Spec
    /// None; MPI has `MPI_Scatterv`.
    #[doc(alias("MPI_Scatterv"))]
    #[track_caller]
    #[must_use]
    pub fn scatter_parts<T: Datum>(&self, parts: &[impl AsRef<[T]>], root: usize) -> Vec<T> {
        self.check_scattered(root, parts.len());
        let _recorded = self.composed(Routine::Scatter);
        let say = |said: Announcement| said.of::<T>().with([root]);
        let (me, n) = (self.my_pe(), self.n_pes());
        // Where the part of each member begins and ends, and where the last one does.
        let (mut places, mut all) = (Vec::new(), Vec::new());
        if me == root {
            for part in parts {
                let start = all.len();
                all.extend_from_slice(part.as_ref());
                places.push([start, all.len(), 0]);
            }
            for place in &mut places {
                place[2] = all.len();
            }
        }
        let mine = self.of_root(Collective::Scatter, say, &places, root, (n, me..me + 1));
        let [start, end, total] = mine[0];
        self.of_root(Collective::Scatter, say, &all, root, (total, start..end))
    }

    #[track_caller]
    fn check_scattered(&self, root: usize, given: usize) {
        self.check_root("scatter", root);
        let n = self.n_pes();
        assert!(
            self.my_pe() != root || given == n,
            "scatter: PE {root}, which gives for all, has {given} for the {n} PEs of {self}"
        );
    }
}

macro_rules! reductions {
    ($($(#[$doc:meta])* $name:ident: $bound:ident, $op:ident, $spec:literal;)*) => {
        impl Team { $(
            $(#[$doc])*
            ///
            /// **Collective** over the team, with slices of the same length. For the rest see
            /// [`reduce_slice`](Self::reduce_slice).
            ///
            /// # Panics
            /// As [`sync`](Self::sync).
            ///
            /// # Spec
            #[doc = concat!("As `", $spec, "` of OpenSHMEM 1.6, without symmetric memory.")]
            #[track_caller]
            pub fn $name<T: $bound>(&self, values: &mut [T]) {
                self.reduce_slice(values, $op);
            }
        )* }
    };
}

reductions! {
    /// Replaces each element of the slice by the sum of these elements of all members; integers wrap.
    ///
    /// ```
    /// # let world = shmem::init().unwrap();
    /// let mut histogram = vec![1u32; 1000];
    /// world.sum_slice(&mut histogram);
    /// assert!(histogram.iter().all(|&count| count as usize == world.n_pes()));
    /// ```
    sum_slice: Arithmetic, Sum, "shmem_sum_reduce";
    /// Replaces each element of the slice by the product of these elements of all members; integers wrap.
    prod_slice: Arithmetic, Prod, "shmem_prod_reduce";
    /// Replaces each element of the slice by the smallest of these elements of all members. A NaN loses against a number.
    min_slice: Number, Min, "shmem_min_reduce";
    /// Replaces each element of the slice by the largest of these elements of all members. A NaN loses against a number.
    max_slice: Number, Max, "shmem_max_reduce";
}
