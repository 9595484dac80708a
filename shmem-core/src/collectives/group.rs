//! The collectives of the raw interface: on a team or an active set, in addresses and bytes.

use shmem_node::waiting::Collective;

use super::active::ActiveSet;
use super::announce::Announcement;
use super::combine::Combine;
use crate::heap::address::SymAddr;
use crate::recording::{RecordedCall, Scope};
use crate::rma::Blocks;
use crate::runtime::{Runtime, rt};
use crate::team::{Guard, Team};

/// Who takes part in a collective, and what they meet by.
///
/// # Safety
/// What the routines ask of their callers: `dest` and `source` are addresses of symmetric objects that have,
/// on each member, the bytes that the routine writes and reads there; nobody else uses them meanwhile, and
/// any bytes are values of what lies there. `psync` of an active set is the address of [`SYNC_SIZE`] aligned
/// words of a symmetric object, which nothing else uses meanwhile.
///
/// [`SYNC_SIZE`]: super::SYNC_SIZE
#[derive(Clone, Copy, Debug)]
pub enum Group<'a> {
    /// The members of a team.
    Team(&'a Team),
    /// `size` PEs from `start` on, `2^log_stride` apart, with an array of [`SYNC_SIZE`] words that
    /// are all zero while nobody uses it.
    ///
    /// [`SYNC_SIZE`]: super::SYNC_SIZE
    ActiveSet {
        /// The first PE.
        start: usize,
        /// Logarithm to base 2 of the distance between PEs.
        log_stride: u32,
        /// Number of PEs.
        size: usize,
        /// The array `pSync`.
        psync: SymAddr,
    },
}

/// What a group is worked on as.
enum Who<'a> {
    Team(&'static Runtime, &'a Team, #[allow(dead_code)] Guard<'a>),
    Set(
        &'static Runtime,
        ActiveSet,
        #[allow(dead_code)] Option<Scope>,
    ),
}

impl<'a> Group<'a> {
    /// The group, for a collective that uses these `arrays`.
    ///
    /// # Panics
    /// Before init; if another thread is in a collective of the team; if this PE is no member, or
    /// members do not exist; if an array is static data of which a member has another.
    #[track_caller]
    fn who<const N: usize>(
        self,
        call: Collective,
        arrays: [SymAddr; N],
        say: impl FnOnce(Announcement) -> Announcement,
    ) -> Who<'a> {
        let team = match self {
            Self::Team(team) => team,
            Self::ActiveSet {
                start,
                log_stride,
                size,
                psync,
            } => {
                let rt = rt();
                let everybody = start == 0 && size == rt.n_pes && (log_stride == 0 || size == 1);
                if !everybody {
                    let set = ActiveSet::new(rt, start, log_stride, size, psync);
                    if !rt.has_no_statics(&arrays) || rt.is_static(psync.offset()) {
                        rt.check_members((0..size).map(|rank| start + (rank << log_stride)));
                    }
                    let recorded = rt.scope(|| RecordedCall {
                        at: set.next_number() as usize,
                        ..RecordedCall::of(call.into())
                    });
                    return Who::Set(rt, set, recorded);
                }
                Team::world()
            }
        };
        let (rt, guard) = team.enter(call, say);
        rt.check_arrays(team, &arrays);
        Who::Team(rt, team, guard)
    }
}

impl Runtime {
    #[inline]
    fn has_no_statics(&self, arrays: &[SymAddr]) -> bool {
        arrays.iter().all(|array| !self.is_static(array.offset()))
    }

    /// # Panics
    /// If an array is static data of which a member of the team has another.
    #[inline]
    #[track_caller]
    fn check_arrays(&self, team: &Team, arrays: &[SymAddr]) {
        if !self.has_no_statics(arrays) && !team.shares_statics() {
            self.check_members((0..team.n_pes()).map(|pe| team.world_pe(pe)));
            team.note_shared_statics();
        }
    }

    /// # Panics
    /// If one of these PEs has other static data than this one.
    #[cold]
    #[track_caller]
    fn check_members(&self, members: impl Iterator<Item = usize>) {
        if self.all_share_statics() {
            return;
        }
        for pe in members {
            self.check_statics(pe, self.ranges.heap_at - 1);
        }
    }
}

/// Checks a root's number.
#[track_caller]
fn check_root(root: usize, n: usize, of: &dyn std::fmt::Display) {
    assert!(
        root < n,
        "broadcast: there is no PE {root} in {of}, which has PEs 0 to {}",
        n - 1
    );
}

/// Completes what this PE has started on the default context, and waits for all members.
///
/// # Safety
/// As [`Group`] says: a team asks for nothing.
///
/// # Panics
/// As all collectives: before init, if another thread is in a collective of the team, or if this PE
/// is not in the active set.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_barrier`.
#[track_caller]
pub unsafe fn barrier(group: Group<'_>) {
    match group.who(Collective::Barrier, [], |said| said) {
        Who::Team(rt, team, _) => rt.team_barrier(team),
        Who::Set(rt, set, _) => rt.set_barrier(set),
    }
}

/// Waits for all members.
///
/// # Safety
/// As [`Group`] says: a team asks for nothing.
///
/// # Panics
/// As [`barrier`].
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_team_sync`, `shmem_sync`.
#[track_caller]
pub unsafe fn sync(group: Group<'_>) {
    match group.who(Collective::Sync, [], |said| said) {
        Who::Team(rt, team, _) => rt.await_members(team),
        Who::Set(rt, set, _) => rt.set_sync(set),
    }
}

/// Copies `bytes` of `source` of member `root` into `dest` of all members; of the root itself only
/// with `write_root`, as teams have it and active sets do not.
///
/// # Safety
/// As [`Group`] says.
///
/// # Panics
/// As [`barrier`], and if there is no member `root`.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_broadcast`.
#[track_caller]
pub unsafe fn broadcast(
    group: Group<'_>,
    dest: SymAddr,
    source: SymAddr,
    bytes: usize,
    root: usize,
    write_root: bool,
) {
    let who = group.who(Collective::Broadcast, [dest, source], |said| {
        let said = said.bytes(bytes).with([root]);
        // Where the root is not written to, it may name anything.
        if write_root { said.dest(dest) } else { said }
    });
    match who {
        Who::Team(rt, team, _) => {
            check_root(root, team.n_pes(), team);
            rt.team_broadcast(team, dest, source, bytes, root, write_root);
        }
        Who::Set(rt, set, _) => {
            check_root(root, set.size(), &"the active set");
            rt.set_broadcast(set, dest, source, bytes, root, write_root);
        }
    }
}

/// Concatenates `bytes` of every member, in order of rank; members may give different numbers.
///
/// # Safety
/// As [`Group`] says.
///
/// # Panics
/// As [`barrier`].
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_collect`.
#[track_caller]
pub unsafe fn collect(group: Group<'_>, dest: SymAddr, source: SymAddr, bytes: usize) {
    match group.who(Collective::Collect, [dest, source], |said| said) {
        Who::Team(rt, team, _) => {
            rt.team_collect(team, dest, source, bytes, usize::MAX);
        }
        Who::Set(rt, set, _) => rt.set_collect(set, dest, source, bytes),
    }
}

/// Concatenates `bytes` of every member, in order of rank; all give the same number.
///
/// # Safety
/// As [`Group`] says.
///
/// # Panics
/// As [`barrier`].
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_fcollect`.
#[track_caller]
pub unsafe fn fcollect(group: Group<'_>, dest: SymAddr, source: SymAddr, bytes: usize) {
    let who = group.who(Collective::Fcollect, [dest, source], |said| {
        said.bytes(bytes).dest(dest).source(source)
    });
    match who {
        Who::Team(rt, team, _) => rt.team_fcollect(team, dest, source, bytes),
        Who::Set(rt, set, _) => rt.set_fcollect(set, dest, source, bytes),
    }
}

/// Gives block `i` of `source`, of `bytes_per_pe` bytes, to member `i`, where it becomes the block
/// of `dest` with this member's number.
///
/// # Safety
/// As [`Group`] says.
///
/// # Panics
/// As [`barrier`].
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_alltoall`.
#[track_caller]
pub unsafe fn alltoall(group: Group<'_>, dest: SymAddr, source: SymAddr, bytes_per_pe: usize) {
    exchange(group, dest, source, Blocks::dense(bytes_per_pe));
}

/// As [`alltoall`] with blocks of several pieces that lie apart: those of block `i` begin at piece
/// `i * pieces.count`, counted in strides.
///
/// # Safety
/// As [`Group`] says.
///
/// # Panics
/// As [`barrier`].
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_alltoalls`.
#[track_caller]
pub unsafe fn alltoalls(group: Group<'_>, dest: SymAddr, source: SymAddr, pieces: Blocks) {
    exchange(group, dest, source, pieces);
}

#[track_caller]
fn exchange(group: Group<'_>, dest: SymAddr, source: SymAddr, blocks: Blocks) {
    let who = group.who(Collective::Alltoall, [dest, source], |said| {
        said.blocks(blocks).dest(dest).source(source)
    });
    match who {
        Who::Team(rt, team, _) => rt.team_alltoall(team, dest, source, blocks),
        Who::Set(rt, set, _) => rt.set_alltoall(set, dest, source, blocks),
    }
}

/// Combines `n` elements of `elem` bytes of all members; all get the result. `dest` may be `source`.
///
/// # Safety
/// `combine` is for elements of `elem` bytes, and the arrays of all members hold `n` of them,
/// aligned for it. The arrays are the same or do not overlap.
///
/// # Panics
/// As [`barrier`].
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_sum_reduce` and its like.
#[track_caller]
pub unsafe fn reduce(
    group: Group<'_>,
    dest: SymAddr,
    source: SymAddr,
    n: usize,
    elem: usize,
    combine: Combine,
) {
    let who = group.who(Collective::Reduce, [dest, source], |said| {
        said.combined(n, elem, combine).dest(dest).source(source)
    });
    // SAFETY: by the caller.
    unsafe {
        match who {
            Who::Team(rt, team, _) => rt.team_reduce(team, dest, source, n, elem, combine),
            Who::Set(rt, set, _) => rt.set_reduce(set, dest, source, n, elem, combine),
        }
    }
}

/// Combines `n` elements of `elem` bytes of the members up to each one, or, `exclusive`, of those
/// before it: the first one then gets elements whose bytes are all zero. `dest` may be `source`.
///
/// # Safety
/// As for [`reduce`].
///
/// # Panics
/// As [`barrier`].
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_sum_inscan`, `shmem_sum_exscan`. There is none for active sets.
#[track_caller]
pub unsafe fn scan(
    team: &Team,
    dest: SymAddr,
    source: SymAddr,
    n: usize,
    elem: usize,
    combine: Combine,
    exclusive: bool,
) {
    let (rt, _guard) = team.enter(Collective::Scan, |said| {
        let said = said
            .combined(n, elem, combine)
            .with([usize::from(exclusive)]);
        said.dest(dest).source(source)
    });
    rt.check_arrays(team, &[dest, source]);
    // SAFETY: by the caller.
    unsafe { rt.team_scan(team, dest, source, n, elem, combine, exclusive) };
}
