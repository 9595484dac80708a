//! The deprecated collectives of active sets, through the raw interface, and that on teams.

use shmem::raw::{self, Combine, Group, SYNC_SIZE, SymAddr};
use shmem::{SymSlice, Team, alloc, barrier_all, free, my_pe, n_pes};

use crate::check::{Check, usual_or};

pub(crate) const CHECKS: &[Check] = &[
    ("active_sets", active_sets),
    ("one_array_for_many_sets", one_array_for_many_sets),
    ("raw_collectives_on_teams", raw_collectives_on_teams),
];

fn sym<T: shmem::Datum>(array: SymSlice<T>) -> SymAddr {
    raw::symmetric(array.as_ptr().cast(), array.len() * size_of::<T>()).unwrap()
}

/// Calls `f` for all active sets of the job that this PE is in, with their members.
fn with_sets(f: impl Fn((usize, u32, usize), &[usize])) {
    let n = n_pes();
    for log_stride in 0..=n.ilog2() {
        let stride = 1 << log_stride;
        for start in 0..n.min(3) {
            for size in [1, 2, 3, 5, n] {
                let members: Vec<usize> = (0..size).map(|i| start + i * stride).collect();
                if members[size - 1] < n && members.contains(&my_pe()) {
                    f((start, log_stride, size), &members);
                }
                barrier_all();
            }
        }
    }
}

fn value(pe: usize, i: usize) -> u64 {
    (pe * 1_000_003 + i * 17) as u64
}

/// Adds `n` numbers of 64 bits.
unsafe fn add(into: *mut u8, from: *const u8, n: usize) {
    let (into, from) = (into.cast::<u64>(), from.cast::<u64>());
    for i in 0..n {
        // SAFETY: arrays of `n` aligned numbers.
        unsafe { *into.add(i) = (*into.add(i)).wrapping_add(*from.add(i)) };
    }
}

/// More than a reduction on an active set fetches at a time.
const ROOM: usize = 9000;
const FREE: u64 = u64::MAX;

/// Every collective of `len` elements on a group whose PEs are `pes`.
fn run_all(
    group: Group<'_>,
    pes: &[usize],
    len: usize,
    dest: SymSlice<u64>,
    source: SymSlice<u64>,
) {
    let n = pes.len();
    let me = pes.iter().position(|&pe| pe == my_pe()).unwrap();
    let bytes = 8 * len;
    let on_team = matches!(group, Group::Team(_));
    let next = |used: usize| {
        // SAFETY: the array `psync` and those of the check, which are long enough.
        unsafe { raw::barrier(group) };
        dest.at(..used + 1).fill(FREE);
        source.write_from(&(0..n * len).map(|i| value(my_pe(), i)).collect::<Vec<_>>());
        // SAFETY: as above.
        unsafe { raw::sync(group) };
    };
    let expect = |what: &str, len: usize, want: &dyn Fn(usize) -> u64| {
        for i in 0..len {
            assert_eq!(
                dest.read(i),
                want(i),
                "{what} of {len} elements among {pes:?}, element {i}"
            );
        }
        assert_eq!(
            dest.read(len),
            FREE,
            "{what} of {len} elements among {pes:?} wrote too much"
        );
    };
    let (d, s) = (sym(dest), sym(source));

    for (root, write_root) in [(0, false), (n / 2, true), (n - 1, false)] {
        next(len);
        // SAFETY: as above.
        unsafe { raw::broadcast(group, d, s, bytes, root, write_root) };
        if me == root && !write_root {
            expect("broadcast at its root", 0, &|_| FREE);
        } else {
            expect("broadcast", len, &|i| value(pes[root], i));
        }
    }
    next(n * len);
    // SAFETY: as above.
    unsafe { raw::fcollect(group, d, s, bytes) };
    expect("fcollect", n * len, &|i| value(pes[i / len], i % len));

    let count = |rank: usize| len * (rank % 3) / 2;
    let starts: Vec<usize> = (0..=n).map(|r| (0..r).map(count).sum()).collect();
    next(n * len);
    // SAFETY: as above.
    unsafe { raw::collect(group, d, s, 8 * count(me)) };
    expect("collect", starts[n], &|i| {
        let rank = starts.partition_point(|&start| start <= i) - 1;
        value(pes[rank], i - starts[rank])
    });

    let sum = |i| pes.iter().map(|&pe| value(pe, i)).sum();
    next(len);
    // SAFETY: arrays of `len` words, which the function is for.
    unsafe { raw::reduce(group, d, s, len, 8, Combine::new(add)) };
    expect("reduce", len, &sum);
    next(len);
    dest.write_from(&source.at(..len).to_vec());
    // SAFETY: as above.
    unsafe { raw::sync(group) };
    // SAFETY: as above; in place.
    unsafe { raw::reduce(group, d, d, len, 8, Combine::new(add)) };
    expect("reduce in place", len, &sum);

    next(n * len);
    // SAFETY: as above.
    unsafe { raw::alltoall(group, d, s, bytes) };
    expect("alltoall", n * len, &|i| {
        let (from, i) = (i / len, i % len);
        value(pes[from], me * len + i)
    });
    let half = len / 2;
    next(n * half * 2);
    let pieces = raw::Blocks {
        count: half,
        bytes: 8,
        dest_stride: 16,
        source_stride: 8,
    };
    // SAFETY: as above.
    unsafe { raw::alltoalls(group, d, s, pieces) };
    expect("alltoalls", (n * half * 2).saturating_sub(1), &|i| {
        let (from, i) = (i / 2 / half, i / 2 % half + i % 2 * ROOM);
        if i < ROOM {
            value(pes[from], me * half + i)
        } else {
            FREE
        }
    });
    if on_team {
        let Group::Team(team) = group else {
            unreachable!()
        };
        for exclusive in [false, true] {
            next(len);
            // SAFETY: as above.
            unsafe { raw::scan(team, d, s, len, 8, Combine::new(add), exclusive) };
            let before = &pes[..me + usize::from(!exclusive)];
            expect("scan", len, &|i| {
                before.iter().map(|&pe| value(pe, i)).sum()
            });
        }
    }
    // SAFETY: as above.
    unsafe { raw::barrier(group) };
}

fn with_arrays(f: impl Fn(SymSlice<u64>, SymSlice<u64>)) {
    let source = alloc::<u64>(ROOM * n_pes()).unwrap();
    let dest = alloc::<u64>(ROOM * n_pes() + 1).unwrap();
    f(dest, source);
    free(dest).unwrap();
    free(source).unwrap();
}

/// One array serves all, and is zero in the end.
fn active_sets() {
    let psync = alloc::<i64>(SYNC_SIZE).unwrap();
    with_arrays(|dest, source| {
        with_sets(|(start, log_stride, size), pes| {
            let group = Group::ActiveSet {
                start,
                log_stride,
                size,
                psync: sym(psync),
            };
            for &len in usual_or(&[3, 300][..], &[1, 3, 300]) {
                run_all(group, pes, len, dest, source);
            }
        });
        assert!(psync.to_vec().iter().all(|&word| word == 0));
        barrier_all();
        let all: Vec<usize> = (0..n_pes()).collect();
        let group = Group::ActiveSet {
            start: 0,
            log_stride: 0,
            size: all.len(),
            psync: sym(psync),
        };
        run_all(group, &all, ROOM, dest, source);
        if all.len() > 2 {
            // Long messages through the general way, too.
            let most = Group::ActiveSet {
                start: 1,
                log_stride: 0,
                size: all.len() - 1,
                psync: sym(psync),
            };
            if my_pe() > 0 {
                run_all(most, &all[1..], ROOM, dest, source);
            }
        }
    });
    free(psync).unwrap();
}

/// Barriers of one set after the other need no more than one array, nor anything in between.
fn one_array_for_many_sets() {
    let psync = alloc::<i64>(SYNC_SIZE).unwrap();
    let count = alloc::<u64>(1).unwrap();
    with_sets(|(start, log_stride, size), pes| {
        let group = Group::ActiveSet {
            start,
            log_stride,
            size,
            psync: sym(psync),
        };
        let before = shmem::g(count, pes[0]);
        // SAFETY: as above.
        unsafe { raw::sync(group) };
        for round in 1..=20 {
            shmem::atomic_inc(count, pes[0]);
            // SAFETY: as above.
            unsafe { raw::barrier(group) };
            let now = shmem::g(count, pes[0]) - before;
            assert_eq!(now as usize, round * size, "round {round} among {pes:?}");
            // SAFETY: as above.
            unsafe { raw::sync(group) };
        }
    });
    assert!(psync.to_vec().iter().all(|&word| word == 0));
    barrier_all();
    free(count).unwrap();
    free(psync).unwrap();
}

fn raw_collectives_on_teams() {
    with_arrays(|dest, source| {
        let world = Team::world();
        let n = world.n_pes() as isize;
        let reversed = world.split_strided(n - 1, -1, n).unwrap().unwrap();
        let teams = [Team::shared(), &reversed, world];
        for team in &teams[..usual_or(2, 3)] {
            let pes: Vec<usize> = team.members().iter().collect();
            for len in [1, 200, 2400] {
                run_all(Group::Team(team), &pes, len, dest, source);
            }
            barrier_all();
        }
        reversed.destroy();
    });
}
