//! Collectives of teams. What is copied matters by its size only; what is combined, by
//! [`ReduceOp`].

use std::ffi::c_int;

use shmem::raw::{self, Blocks, Group, SymAddr, combine};
use shmem::{Arithmetic, Datum, ReduceOp, Sum};

use crate::check;
use crate::handles::Team;

pub(crate) fn barrier_all(name: &str) {
    check::collective(name);
    raw::Team::world().barrier();
}

pub(crate) fn sync_all(name: &str) {
    check::collective(name);
    raw::Team::world().sync();
}

/// 0.
pub(crate) unsafe fn team_sync(name: &str, team: Team) -> c_int {
    check::collective(name);
    // SAFETY: by the caller.
    unsafe { team.get(name) }.sync();
    0
}

/// The arguments of a collective in which every array has a known length.
fn arrays<T>(name: &str, dest: (*mut T, usize), source: (*const T, usize)) -> (SymAddr, SymAddr) {
    (
        check::symmetric(name, "dest", dest.0, check::bytes::<T>(dest.1)),
        check::symmetric(name, "source", source.0, check::bytes::<T>(source.1)),
    )
}

pub(crate) unsafe fn broadcast<T>(
    name: &str,
    team: Team,
    dest: *mut T,
    source: *const T,
    nelems: usize,
    root: c_int,
) -> c_int {
    check::collective(name);
    // SAFETY: by the caller.
    let team = unsafe { team.get(name) };
    let number = root as usize;
    if number >= team.n_pes() {
        check::no_such_pe(name, root, team.n_pes());
    }
    // The source is of importance on the root only.
    let read = if number == team.my_pe() { nelems } else { 0 };
    let (dest, from) = arrays(name, (dest, nelems), (source, read));
    let bytes = check::bytes::<T>(nelems);
    // SAFETY: the arrays were checked; their use by the caller.
    unsafe { raw::broadcast(Group::Team(team), dest, from, bytes, number, true) };
    0
}

/// What is known of the length of a collect's destination before all members have told how much they
/// give: there may be none where this PE gives nothing.
pub(crate) fn at_least<T>(given: usize, dest: *mut T) -> usize {
    match dest.is_null() {
        true => given,
        false => given.max(1),
    }
}

pub(crate) unsafe fn collect<T>(
    name: &str,
    team: Team,
    dest: *mut T,
    source: *const T,
    nelems: usize,
) -> c_int {
    check::collective(name);
    // SAFETY: by the caller.
    let team = unsafe { team.get(name) };
    let least = at_least(nelems, dest);
    let (dest, source) = arrays(name, (dest, least), (source, nelems));
    // SAFETY: the source was checked; the destination, whose length the members make together, by the
    // caller.
    unsafe { raw::collect(Group::Team(team), dest, source, check::bytes::<T>(nelems)) };
    0
}

pub(crate) unsafe fn fcollect<T>(
    name: &str,
    team: Team,
    dest: *mut T,
    source: *const T,
    nelems: usize,
) -> c_int {
    check::collective(name);
    // SAFETY: by the caller.
    let team = unsafe { team.get(name) };
    let all = nelems.saturating_mul(team.n_pes());
    let (dest, source) = arrays(name, (dest, all), (source, nelems));
    // SAFETY: the arrays were checked; their use by the caller.
    unsafe { raw::fcollect(Group::Team(team), dest, source, check::bytes::<T>(nelems)) };
    0
}

pub(crate) unsafe fn alltoall<T>(
    name: &str,
    team: Team,
    dest: *mut T,
    source: *const T,
    nelems: usize,
) -> c_int {
    check::collective(name);
    // SAFETY: by the caller.
    let team = unsafe { team.get(name) };
    let all = nelems.saturating_mul(team.n_pes());
    let (dest, source) = arrays(name, (dest, all), (source, all));
    // SAFETY: the arrays were checked; their use by the caller.
    unsafe { raw::alltoall(Group::Team(team), dest, source, check::bytes::<T>(nelems)) };
    0
}

pub(crate) unsafe fn alltoalls<T>(
    name: &str,
    team: Team,
    dest: *mut T,
    source: *const T,
    dst: isize,
    sst: isize,
    nelems: usize,
) -> c_int {
    check::collective(name);
    // SAFETY: by the caller.
    let team = unsafe { team.get(name) };
    let all = nelems.saturating_mul(team.n_pes());
    let (blocks, to, from) = check::blocks::<T>(name, dst, sst, 1, all);
    let dest = check::symmetric(name, "dest", dest, to);
    let source = check::symmetric(name, "source", source, from);
    let pieces = Blocks {
        count: nelems,
        ..blocks
    };
    // SAFETY: the arrays were checked; their use by the caller.
    unsafe { raw::alltoalls(Group::Team(team), dest, source, pieces) };
    0
}

pub(crate) unsafe fn reduce<T: Datum, O: ReduceOp<T> + Default>(
    name: &str,
    team: Team,
    dest: *mut T,
    source: *const T,
    nreduce: usize,
) -> c_int {
    check::collective(name);
    // SAFETY: by the caller.
    let team = unsafe { team.get(name) };
    check::aligned_to::<T>(name, dest, source);
    let (dest, source) = arrays(name, (dest, nreduce), (source, nreduce));
    let group = Group::Team(team);
    // SAFETY: the arrays were checked; overlap by the caller.
    unsafe {
        raw::reduce(
            group,
            dest,
            source,
            nreduce,
            size_of::<T>(),
            combine::<T, O>(O::default()),
        )
    };
    0
}

unsafe fn scan<T: Arithmetic>(
    name: &str,
    team: Team,
    dest: *mut T,
    source: *const T,
    nelems: usize,
    exclusive: bool,
) -> c_int {
    check::collective(name);
    // SAFETY: by the caller.
    let team = unsafe { team.get(name) };
    check::aligned_to::<T>(name, dest, source);
    let (dest, source) = arrays(name, (dest, nelems), (source, nelems));
    let (elem, sum) = (size_of::<T>(), combine::<T, _>(Sum));
    // SAFETY: the arrays were checked; overlap by the caller.
    unsafe { raw::scan(team, dest, source, nelems, elem, sum, exclusive) };
    0
}

pub(crate) unsafe fn sum_inscan<T: Arithmetic>(
    name: &str,
    team: Team,
    dest: *mut T,
    source: *const T,
    nelems: usize,
) -> c_int {
    // SAFETY: by the caller.
    unsafe { scan(name, team, dest, source, nelems, false) }
}

pub(crate) unsafe fn sum_exscan<T: Arithmetic>(
    name: &str,
    team: Team,
    dest: *mut T,
    source: *const T,
    nelems: usize,
) -> c_int {
    // SAFETY: by the caller.
    unsafe { scan(name, team, dest, source, nelems, true) }
}
