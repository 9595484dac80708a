//! Broadcast, reductions and all-to-all.

use super::links::{CHUNK, DOWN_BUFFER, UP_BUFFER};
use super::tree;
use crate::datum::{Bits, Datum, Number};
use crate::heap::access;
use crate::heap::sym::SymSlice;
use crate::rma::Source;
use crate::runtime::{Runtime, collective};

/// How a reduction combines elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Sum; integers wrap.
    Sum,
    /// Product; integers wrap.
    Prod,
    /// Smallest. A NaN loses against a number.
    Min,
    /// Largest. A NaN loses against a number.
    Max,
    /// Bitwise and, for integers ([`reduce_bits`]).
    And,
    /// Bitwise or, for integers ([`reduce_bits`]).
    Or,
    /// Bitwise exclusive or, for integers ([`reduce_bits`]).
    Xor,
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

impl Runtime {
    /// One chunk of a broadcast among leaders: `here` is the offset of the data if the root is on
    /// this node. Leaves it in the down buffer.
    fn broadcast_chunk(&self, here: Option<usize>, root_node: usize, len: usize) {
        let (node, nodes) = (self.node.node(), self.node.n_nodes());
        let round = self.next_round();
        let mut data = here;
        for (k, child) in self.tree_children() {
            let at = self.await_child(k, round);
            if tree::subtree(child, nodes).contains(&root_node) {
                data = Some(at);
            }
        }
        // All children have sent, so they have what was last sent down, and that buffer is free.
        if node != 0 {
            match data {
                Some(at) => {
                    self.copy_own(at, UP_BUFFER, len);
                    self.to_parent(round, UP_BUFFER, len);
                }
                None => self.flag_parent(round),
            }
            data = Some(self.await_parent(round));
        }
        let data = data.expect("the root's node or a child's subtree has the data");
        self.copy_own(data, DOWN_BUFFER, len);
        self.to_children(round, DOWN_BUFFER, len);
    }

    /// Copies inside the own segment.
    fn copy_own(&self, from: usize, to: usize, len: usize) {
        // SAFETY: offsets and length stay inside the segment.
        unsafe { access::copy(self.own(from), self.own(to), len) };
    }

    fn broadcast(&self, dest: usize, source: usize, bytes: usize, root: usize) {
        let root_here = self.node_of[root] == self.my_node;
        if self.node.n_nodes() == 1 {
            // The root's array is within reach: no staging.
            self.node_barrier();
            let from = self.neighbour(self.local_of[root] as usize, source);
            // SAFETY: both arrays lie inside segments of this node.
            unsafe { access::copy(from, self.own(dest), bytes) };
            self.node_barrier();
            return;
        }
        let root_node = self.node_of[root] as usize;
        for start in (0..bytes).step_by(CHUNK) {
            let len = CHUNK.min(bytes - start);
            self.meet_node(|| {
                let here = root_here.then(|| {
                    let from = self.neighbour(self.local_of[root] as usize, source + start);
                    // SAFETY: inside the root's array; the up buffer is free between rounds.
                    unsafe { access::copy(from, self.own(UP_BUFFER), len) };
                    UP_BUFFER
                });
                self.broadcast_chunk(here, root_node, len);
            });
            // SAFETY: the leader's buffer is unchanged until this PE arrives again.
            unsafe { access::copy(self.neighbour(0, DOWN_BUFFER), self.own(dest + start), len) };
        }
    }

    fn reduce<T: Datum>(&self, dest: usize, source: usize, n: usize, f: impl Fn(T, T) -> T + Copy) {
        let per_chunk = CHUNK / size_of::<T>();
        for start in (0..n).step_by(per_chunk) {
            let count = per_chunk.min(n - start);
            let from = source + start * size_of::<T>();
            self.meet_node(|| self.reduce_chunk(from, count, f));
            let to = self.own(dest + start * size_of::<T>());
            // SAFETY: the leader's buffer is unchanged until this PE arrives again.
            unsafe { access::copy(self.neighbour(0, DOWN_BUFFER), to, count * size_of::<T>()) };
        }
        if n == 0 {
            self.sync_all();
        }
    }

    /// Combines `n` elements of all PEs, in the order of ranks inside a node and then of the tree,
    /// so that results are the same in every run with the same layout. For leaders.
    fn reduce_chunk<T: Datum>(&self, source: usize, n: usize, f: impl Fn(T, T) -> T + Copy) {
        let len = n * size_of::<T>();
        let acc = self.own(UP_BUFFER).cast::<T>();
        // SAFETY: arrays of `n` elements inside segments of this node, aligned; the up buffer is
        // this leader's own and free between rounds.
        unsafe {
            access::copy(self.own(source), acc.cast(), len);
            for local in 1..self.node.n_local() {
                access::combine(acc, self.neighbour(local, source).cast(), n, f);
            }
        }
        if self.node.n_nodes() == 1 {
            return self.copy_own(UP_BUFFER, DOWN_BUFFER, len);
        }
        let round = self.next_round();
        for (k, _) in self.tree_children() {
            let from = self.own(self.await_child(k, round)).cast::<T>();
            // SAFETY: a mailbox holds a chunk and is aligned to a page.
            unsafe { access::combine(acc, from, n, f) };
        }
        let result = if self.node.node() == 0 {
            UP_BUFFER
        } else {
            self.to_parent(round, UP_BUFFER, len);
            self.await_parent(round)
        };
        self.copy_own(result, DOWN_BUFFER, len);
        self.to_children(round, DOWN_BUFFER, len);
    }
}

/// Copies `source` of PE `root` into `dest` on every PE, the root included.
///
/// **Collective**; `dest` may be used on return, `source` may be changed.
///
/// # Panics
/// If the lengths differ or there is no PE `root`.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_broadcast`.
#[track_caller]
pub fn broadcast<T: Datum>(dest: SymSlice<T>, source: SymSlice<T>, root: usize) {
    check_equal_len("broadcast", dest, source);
    let rt = collective();
    assert!(
        root < rt.n_pes,
        "broadcast: there is no PE {root} among {}",
        rt.n_pes
    );
    rt.broadcast(dest.offset(), source.offset(), dest.bytes(), root);
}

/// Combines `source` of all PEs element by element; every PE gets the result in `dest`.
///
/// **Collective**; `dest` may be used and `source` changed on return. `dest` and `source` may be
/// the same array. Results do not vary between runs with the same layout of PEs on nodes.
///
/// # Panics
/// If the lengths differ, or `op` is a bitwise one ([`reduce_bits`] has those).
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_sum_reduce`, `shmem_prod_reduce`, `shmem_min_reduce`, `shmem_max_reduce`.
#[track_caller]
pub fn reduce<T: Number>(dest: SymSlice<T>, source: SymSlice<T>, op: Op) {
    check_equal_len("reduce", dest, source);
    let (d, s, n) = (dest.offset(), source.offset(), dest.len());
    let rt = collective();
    match op {
        Op::Sum => rt.reduce(d, s, n, T::plus),
        Op::Prod => rt.reduce(d, s, n, T::times),
        Op::Min => rt.reduce(d, s, n, T::smaller),
        Op::Max => rt.reduce(d, s, n, T::larger),
        Op::And | Op::Or | Op::Xor => panic!("reduce: use reduce_bits for {op:?}"),
    }
}

/// As [`reduce`], for integers and with the bitwise operations too.
///
/// # Panics
/// If the lengths differ.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_and_reduce`, `shmem_or_reduce`, `shmem_xor_reduce`.
#[track_caller]
pub fn reduce_bits<T: Bits>(dest: SymSlice<T>, source: SymSlice<T>, op: Op) {
    check_equal_len("reduce", dest, source);
    let (d, s, n) = (dest.offset(), source.offset(), dest.len());
    match op {
        Op::And => collective().reduce(d, s, n, T::and),
        Op::Or => collective().reduce(d, s, n, T::or),
        Op::Xor => collective().reduce(d, s, n, T::xor),
        _ => reduce(dest, source, op),
    }
}

/// Exchanges blocks of `block` elements between all PEs: block `i` of `source` on PE `j` goes to
/// block `j` of `dest` on PE `i`.
///
/// **Collective**; `dest` may be used and `source` changed on return.
///
/// # Panics
/// If an array is shorter than `block` times the number of PEs.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_alltoall`.
#[track_caller]
pub fn alltoall<T: Datum>(dest: SymSlice<T>, source: SymSlice<T>, block: usize) {
    let rt = collective();
    let all = block.saturating_mul(rt.n_pes);
    assert!(
        all <= dest.len().min(source.len()),
        "alltoall: blocks of {block} elements for {} PEs need more than dest ({} elements) and \
         source ({}) have",
        rt.n_pes,
        dest.len(),
        source.len()
    );
    let bytes = block * size_of::<T>();
    for step in 0..rt.n_pes {
        // Starting behind the own rank spreads the load over the targets.
        let pe = (rt.me + step) % rt.n_pes;
        let from = rt.own(source.offset() + pe * bytes);
        // SAFETY: blocks inside the two arrays; the barrier below completes the put.
        unsafe {
            rt.put_raw(
                pe,
                dest.offset() + rt.me * bytes,
                from,
                bytes,
                Source::Stays,
            )
        };
    }
    rt.barrier_all();
}
