//! The typed collectives: methods of a team, and functions on the world.

use shmem_node::waiting::Collective;

use super::combine::combine;
use super::op::{ReduceOp, Sum};
use crate::datum::{Arithmetic, Datum};
use crate::heap::address::SymAddr;
use crate::rma::Blocks;
use crate::symmetric::array::SymSlice;
use crate::team::Team;

fn sym<T: Datum>(array: SymSlice<T>) -> SymAddr {
    SymAddr::new(array.offset())
}

#[track_caller]
fn check_equal_len<T: Datum>(what: &str, dest: SymSlice<T>, source: SymSlice<T>) {
    assert!(
        dest.len() == source.len(),
        "{what}: dest has {} elements, source {}",
        dest.len(),
        source.len()
    );
}

/// Blocks for `n` PEs of elements that lie apart.
#[track_caller]
fn check_blocks(block: usize, n: usize, name: &str, len: usize, stride: usize) {
    assert!(stride > 0, "alltoall: the stride of {name} is 0");
    let needed = block.checked_mul(n).and_then(|all| {
        all.checked_sub(1)
            .map_or(Some(0), |i| i.checked_mul(stride)?.checked_add(1))
    });
    assert!(
        needed.is_some_and(|needed| needed <= len),
        "alltoall: blocks of {block} elements, {stride} apart, for {n} PEs need more than {name} has \
         ({len} elements)"
    );
}

impl Team {
    #[track_caller]
    pub(crate) fn check_root(&self, what: &str, root: usize) {
        assert!(
            root < self.n_pes(),
            "{what}: there is no PE {root} in {self}, which has PEs 0 to {}",
            self.n_pes() - 1
        );
    }

    /// Waits until all members have called it. Says nothing about outstanding operations, except that
    /// stores to one's own memory made before are visible to all members after.
    ///
    /// **Collective** over the team.
    ///
    /// # Panics
    /// As all collectives: if another thread of this PE is in a collective of the team, or the job
    /// that the team belongs to has been finalized.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_team_sync`.
    #[doc(alias("MPI_Barrier"))]
    #[track_caller]
    pub fn sync(&self) {
        let (rt, _guard) = self.enter(Collective::Sync, |said| said);
        rt.await_members(self);
    }

    /// Completes what this PE has started on the default context, as [`quiet`](crate::quiet) does, and
    /// waits until all members have done so.
    ///
    /// **Collective** over the team.
    ///
    /// # Panics
    /// As [`sync`](Self::sync).
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_quiet` and `shmem_team_sync`.
    #[track_caller]
    pub fn barrier(&self) {
        let (rt, _guard) = self.enter(Collective::Barrier, |said| said);
        rt.team_barrier(self);
    }

    /// Copies `source` of member `root` into `dest` of every member, the root included.
    ///
    /// **Collective** over the team; `dest` may be used on return, and `source` changed.
    ///
    /// # Panics
    /// If the lengths differ or there is no member `root`; and as [`sync`](Self::sync).
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_broadcast`.
    #[doc(alias("MPI_Bcast", "bcast"))]
    #[track_caller]
    pub fn broadcast<T: Datum>(&self, dest: SymSlice<T>, source: SymSlice<T>, root: usize) {
        check_equal_len("broadcast", dest, source);
        self.check_root("broadcast", root);
        let (rt, _guard) = self.enter(Collective::Broadcast, |said| {
            said.elements::<T>(dest.len()).with([root]).dest(sym(dest))
        });
        rt.team_broadcast(self, sym(dest), sym(source), dest.bytes(), root, true);
    }

    /// Concatenates `source` of all members, in order of their numbers, into `dest` of every member.
    /// `source` has the same length on all of them.
    ///
    /// **Collective** over the team; `dest` may be used on return, and `source` changed.
    ///
    /// # Panics
    /// If `dest` is shorter than `source` times the number of members; and as [`sync`](Self::sync).
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_fcollect`.
    #[doc(alias("MPI_Allgather", "allgather"))]
    #[track_caller]
    pub fn fcollect<T: Datum>(&self, dest: SymSlice<T>, source: SymSlice<T>) {
        assert!(
            source.len().saturating_mul(self.n_pes()) <= dest.len(),
            "fcollect: dest has {} elements, but {} PEs contribute {} each",
            dest.len(),
            self.n_pes(),
            source.len()
        );
        let (rt, _guard) = self.enter(Collective::Fcollect, |said| {
            let said = said.elements::<T>(source.len());
            said.dest(sym(dest)).source(sym(source))
        });
        rt.team_fcollect(self, sym(dest), sym(source), source.bytes());
    }

    /// Concatenates `source` of all members, in order of their numbers, into `dest` of every member.
    /// The length of `source` may differ between them (take [`SymSlice::at`] of a symmetric array).
    /// Gives the number of elements collected.
    ///
    /// **Collective** over the team; `dest` may be used on return, and `source` changed.
    ///
    /// # Panics
    /// If `dest` is too short, on all members alike; and as [`sync`](Self::sync).
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_collect`.
    #[doc(alias("MPI_Allgatherv", "allgatherv"))]
    #[track_caller]
    pub fn collect<T: Datum>(&self, dest: SymSlice<T>, source: SymSlice<T>) -> usize {
        let (rt, guard) = self.enter(Collective::Collect, |said| {
            said.of::<T>().with([dest.offset()])
        });
        let bytes = source.bytes();
        let total = rt.team_collect(self, sym(dest), sym(source), bytes, dest.bytes());
        drop(guard);
        assert!(
            total <= dest.bytes(),
            "collect: dest has {} elements, but the PEs together contribute {}",
            dest.len(),
            total / size_of::<T>()
        );
        total.checked_div(size_of::<T>()).unwrap_or(0)
    }

    /// Exchanges blocks of `block` elements between all pairs of members: block `i` of `source` on
    /// member `j` goes to block `j` of `dest` on member `i`.
    ///
    /// **Collective** over the team; `dest` may be used on return, and `source` changed.
    ///
    /// # Panics
    /// If an array is shorter than `block` times the number of members; and as [`sync`](Self::sync).
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_alltoall`.
    #[doc(alias("MPI_Alltoall"))]
    #[track_caller]
    pub fn alltoall<T: Datum>(&self, dest: SymSlice<T>, source: SymSlice<T>, block: usize) {
        self.alltoalls(dest, source, 1, 1, block);
    }

    /// As [`alltoall`](Self::alltoall) with elements `dest_stride` and `source_stride` apart: block
    /// `i` of `dest` begins at element `i * block * dest_stride`, and of `source` likewise.
    ///
    /// **Collective** over the team; `dest` may be used on return, and `source` changed.
    ///
    /// # Panics
    /// If a stride is 0 or an array too short; and as [`sync`](Self::sync).
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_alltoalls`.
    #[track_caller]
    pub fn alltoalls<T: Datum>(
        &self,
        dest: SymSlice<T>,
        source: SymSlice<T>,
        dest_stride: usize,
        source_stride: usize,
        block: usize,
    ) {
        let n = self.n_pes();
        check_blocks(block, n, "dest", dest.len(), dest_stride);
        check_blocks(block, n, "source", source.len(), source_stride);
        let elem = size_of::<T>();
        let blocks = Blocks {
            count: block,
            bytes: elem,
            dest_stride: dest_stride.saturating_mul(elem),
            source_stride: source_stride.saturating_mul(elem),
        };
        let (rt, _guard) = self.enter(Collective::Alltoall, |said| {
            let said = said.elements::<T>(block).blocks(blocks);
            said.dest(sym(dest)).source(sym(source))
        });
        rt.team_alltoall(self, sym(dest), sym(source), blocks);
    }

    /// Combines `source` of all members element by element; every member gets the result in `dest`.
    /// `op` is [`Sum`], [`Prod`](crate::Prod), [`Min`](crate::Min), [`Max`](crate::Max),
    /// [`And`](crate::And), [`Or`](crate::Or), [`Xor`](crate::Xor) or another [`ReduceOp`].
    ///
    /// **Collective** over the team; `dest` may be used on return, and `source` changed. `dest` and
    /// `source` may be the same array. Results do not vary between runs with the same layout of PEs on
    /// nodes.
    ///
    /// # Panics
    /// If the lengths differ; and as [`sync`](Self::sync).
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_sum_reduce`, `shmem_prod_reduce`, `shmem_min_reduce`, `shmem_max_reduce`,
    /// `shmem_and_reduce`, `shmem_or_reduce`, `shmem_xor_reduce`.
    #[doc(alias("MPI_Allreduce", "allreduce"))]
    #[track_caller]
    pub fn reduce<T: Datum, O: ReduceOp<T>>(&self, dest: SymSlice<T>, source: SymSlice<T>, op: O) {
        check_equal_len("reduce", dest, source);
        let (to, from, elem) = (sym(dest), sym(source), size_of::<T>());
        let (n, combine) = (dest.len(), combine(op));
        let (rt, _guard) = self.enter(Collective::Reduce, |said| {
            said.combined(n, elem, combine).dest(to).source(from)
        });
        // SAFETY: arrays of `T`, which the operation is for.
        unsafe { rt.team_reduce(self, to, from, n, elem, combine) };
    }

    #[track_caller]
    fn sum_scan<T: Arithmetic>(&self, dest: SymSlice<T>, source: SymSlice<T>, exclusive: bool) {
        check_equal_len("scan", dest, source);
        let (to, from, n) = (sym(dest), sym(source), dest.len());
        let (elem, combine) = (size_of::<T>(), combine::<T, _>(Sum));
        let (rt, _guard) = self.enter(Collective::Scan, |said| {
            let said = said
                .combined(n, elem, combine)
                .with([usize::from(exclusive)]);
            said.dest(to).source(from)
        });
        // SAFETY: arrays of `T`, which the operation is for.
        unsafe { rt.team_scan(self, to, from, n, elem, combine, exclusive) };
    }

    /// Gives each member, element by element, the sum of `source` of all members up to it, itself
    /// included.
    ///
    /// **Collective** over the team; `dest` may be used on return, and `source` changed. `dest` and
    /// `source` may be the same array.
    ///
    /// # Panics
    /// If the lengths differ; and as [`sync`](Self::sync).
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_sum_inscan`.
    #[doc(alias("MPI_Scan"))]
    #[track_caller]
    pub fn sum_inscan<T: Arithmetic>(&self, dest: SymSlice<T>, source: SymSlice<T>) {
        self.sum_scan(dest, source, false);
    }

    /// Gives each member, element by element, the sum of `source` of all members before it; member 0
    /// gets zeros. This tells, for instance, where a member's part of a common array begins:
    ///
    /// ```
    /// # let _world = shmem::init().unwrap();
    /// use shmem::{Team, alloc};
    ///
    /// let length = alloc::<u64>(1).unwrap();
    /// let start = alloc::<u64>(1).unwrap();
    /// length.write(0, 10);
    /// let world = Team::world();
    /// world.sum_exscan(start, length);
    /// assert_eq!(start.read(0), 10 * world.my_pe() as u64);
    /// ```
    ///
    /// **Collective** over the team; `dest` may be used on return, and `source` changed. `dest` and
    /// `source` may be the same array.
    ///
    /// # Panics
    /// If the lengths differ; and as [`sync`](Self::sync).
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_sum_exscan`.
    #[doc(alias("MPI_Exscan"))]
    #[track_caller]
    pub fn sum_exscan<T: Arithmetic>(&self, dest: SymSlice<T>, source: SymSlice<T>) {
        self.sum_scan(dest, source, true);
    }
}

/// Waits until all PEs have called it, and all operations that they started before on the default
/// context are complete: puts and atomics are delivered, non-blocking gets have their data.
///
/// **Collective**.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_barrier_all`.
#[track_caller]
pub fn barrier_all() {
    Team::world().barrier();
}

/// Waits until all PEs have called it: [`Team::sync`] on the world.
///
/// **Collective**.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_sync_all`.
#[track_caller]
pub fn sync_all() {
    Team::world().sync();
}

macro_rules! on_the_world {
    ($($name:ident<$($t:ident: $bound:path),*>($($arg:ident: $of:ty),*) $(-> $ret:ty)?, $spec:literal;)*) => { $(
        #[doc = concat!("[`Team::", stringify!($name), "`] on the world.")]
        ///
        /// **Collective**.
        ///
        /// # Panics
        /// As the method.
        ///
        /// # Spec
        #[doc = concat!("OpenSHMEM 1.6, `", $spec, "`.")]
        #[track_caller]
        pub fn $name<$($t: $bound),*>($($arg: $of),*) $(-> $ret)? {
            Team::world().$name($($arg),*)
        }
    )* };
}

on_the_world! {
    broadcast<T: Datum>(dest: SymSlice<T>, source: SymSlice<T>, root: usize), "shmem_broadcast";
    fcollect<T: Datum>(dest: SymSlice<T>, source: SymSlice<T>), "shmem_fcollect";
    collect<T: Datum>(dest: SymSlice<T>, source: SymSlice<T>) -> usize, "shmem_collect";
    alltoall<T: Datum>(dest: SymSlice<T>, source: SymSlice<T>, block: usize), "shmem_alltoall";
    alltoalls<T: Datum>(
        dest: SymSlice<T>,
        source: SymSlice<T>,
        dest_stride: usize,
        source_stride: usize,
        block: usize
    ), "shmem_alltoalls";
    reduce<T: Datum, O: ReduceOp<T>>(dest: SymSlice<T>, source: SymSlice<T>, op: O), "shmem_sum_reduce";
    sum_inscan<T: Arithmetic>(dest: SymSlice<T>, source: SymSlice<T>), "shmem_sum_inscan";
    sum_exscan<T: Arithmetic>(dest: SymSlice<T>, source: SymSlice<T>), "shmem_sum_exscan";
}
