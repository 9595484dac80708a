//! Programs whose PEs do not call the same: `differ WHAT PE`, where the one PE does otherwise than the others.
//! For tests of what they are told; a program that nobody stops comes to its end and says so.

use shmem::{
    Max, Sum, SymSlice, Team, alloc, alloc_aligned, alltoall, alltoalls, alltoallv, barrier_all,
    broadcast, collect, fcollect, free, my_pe, n_pes, realloc, reduce, sum_exscan, sum_inscan,
    sync_all,
};

/// The two arrays that all have.
type Arrays = [SymSlice<u64>; 2];

fn main() -> Result<(), shmem::Error> {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_default();
    let pe = args.next().and_then(|pe| pe.parse().ok()).unwrap_or(0);
    let world = shmem::init()?;
    let n = n_pes();
    let arrays = [alloc::<u64>(8 * n)?, alloc::<u64>(8 * n)?];
    let odd = my_pe() == pe;
    match what.as_str() {
        "end" if odd => return Ok(()),
        "finalize" if odd => {
            world.finalize();
            return Ok(());
        }
        "end" | "finalize" => barrier_all(),
        "team" => of_a_team(pe)?,
        "permitted" => permitted(arrays)?,
        what => of_all(what, odd, arrays)?,
    }
    barrier_all();
    if my_pe() == 0 {
        println!("went on");
    }
    Ok(())
}

/// Collectives of all PEs.
fn of_all(what: &str, odd: bool, [a, b]: Arrays) -> Result<(), shmem::Error> {
    let world = Team::world();
    match (what, odd) {
        ("alloc", true) => drop(alloc::<u32>(1)?),
        ("alloc", false) => drop(alloc::<u32>(2)?),
        ("alignment", true) => drop(alloc_aligned::<u8>(100, 256)?),
        ("alignment", false) => drop(alloc::<u8>(100)?),
        ("realloc", true) => drop(realloc(a, 100)?),
        ("realloc", false) => drop(realloc(a, 200)?),
        ("free", true) => free(a)?,
        ("free", false) => free(b)?,
        ("alloc-barrier", true) => drop(alloc::<u64>(1)?),
        ("free-barrier", true) => free(a)?,
        ("realloc-barrier", true) => drop(realloc(a, 1)?),
        ("split-barrier", true) => drop(world.split_strided(0, 1, 1)?),
        ("sync-barrier", true) => sync_all(),
        ("reduce", true) => reduce(b.at(..2), a.at(..2), Sum),
        ("reduce", false) => reduce(b.at(..4), a.at(..4), Sum),
        ("long-reduce", true) => reduce(b.at(..1), a.at(..1), Sum),
        ("long-reduce", false) => reduce(b, a, Sum),
        ("operation", true) => reduce(b.at(..1), a.at(..1), Max),
        ("operation", false) => reduce(b.at(..1), a.at(..1), Sum),
        ("broadcast-reduce", true) => broadcast(b.at(..2), a.at(..2), 0),
        ("broadcast-reduce", false) => reduce(b.at(..2), a.at(..2), Sum),
        ("root", true) => broadcast(b.at(..4), a.at(..4), 1),
        ("root", false) => broadcast(b.at(..4), a.at(..4), 0),
        ("type", true) => broadcast(alias::<u32>(b, 2), alias(a, 2), 0),
        ("type", false) => broadcast(alias::<f32>(b, 2), alias(a, 2), 0),
        ("array", true) => fcollect(b, a.elem(1)),
        ("array", false) => fcollect(b, a.elem(0)),
        ("nothing", true) => reduce(b.at(..0), a.at(..0), Sum),
        ("nothing", false) => reduce(b.at(..1), a.at(..1), Sum),
        ("scan", true) => sum_inscan(b.at(..1), a.at(..1)),
        ("scan", false) => sum_exscan(b.at(..1), a.at(..1)),
        ("alltoall", true) => alltoall(b, a, 2),
        ("alltoall", false) => alltoall(b, a, 4),
        ("stride", true) => alltoalls(b, a, 2, 1, 3),
        ("stride", false) => alltoalls(b, a, 1, 1, 3),
        ("collect-fcollect", true) => drop(collect(b, a.at(..1))),
        ("collect-fcollect", false) => fcollect(b, a.at(..1)),
        ("collect-elsewhere", true) => drop(collect(a, a.at(..1))),
        ("collect-elsewhere", false) => drop(collect(b, a.at(..1))),
        ("all-gather", true) => drop(world.all_gather(1u64)),
        ("all-gather", false) => drop(world.all_gather(1f64)),
        ("gather-all-gather", true) => drop(world.gather(1u64, 0)),
        ("gather-all-gather", false) => drop(world.all_gather(1u64)),
        ("slice", true) => world.sum_slice(&mut [1.0; 3]),
        ("slice", false) => world.reduce_slice(&mut [1.0; 4], Sum),
        ("scatter-broadcast", true) => drop(world.scatter_parts(&vec![[1u8]; n_pes()], 0)),
        ("scatter-broadcast", false) => drop(world.broadcast_slice(&[1u8], 0)),
        ("alloc-in-alltoallv", true) => drop(alltoallv(&vec![[1u32]; n_pes()])?),
        ("alloc-in-alltoallv", false) => drop(alltoallv(&vec![[1f32]; n_pes()])?),
        ("split", true) => drop(world.split_strided(0, 1, 2)?),
        ("split", false) => drop(world.split_strided(1, 1, 1)?),
        ("split-2d", true) => drop(world.split_2d(1)?),
        ("split-2d", false) => drop(world.split_2d(2)?),
        (what, false) if what.ends_with("-barrier") => barrier_all(),
        _ => panic!("no PEs differ in {what}"),
    }
    Ok(())
}

/// The same bytes as elements of another type.
fn alias<T: shmem::Datum>(array: SymSlice<u64>, len: usize) -> SymSlice<T> {
    // SAFETY: elements of at most 8 bytes each, where there are as many words.
    unsafe { SymSlice::from_addr(array.addr(), len) }
}

/// Of every other PE, and of all from the last to the first.
fn of_a_team(pe: usize) -> Result<(), shmem::Error> {
    let (world, n) = (Team::world(), n_pes() as isize);
    let other = world.split_strided(n - 1, -1, n)?;
    let team = other.expect("all are in");
    if my_pe() == pe {
        team.barrier();
    } else {
        team.sync();
    }
    Ok(())
}

/// What members may do differently.
fn permitted([a, b]: Arrays) -> Result<(), shmem::Error> {
    let (me, n) = (my_pe(), n_pes());
    let others = (0..n).map(|pe| pe % 8);
    assert_eq!(collect(b, a.at(..me % 8)), others.sum());
    assert_eq!(collect(b, a.at(me..me + 1)), n);
    a.fill(me as u64);
    let source = if me == 0 { a.at(3..5) } else { b.at(..2) };
    broadcast(b.at(4..6), source, 0);
    assert_eq!(b.at(4..6).to_vec(), [0, 0]);
    // At different places of the program.
    if me == 0 {
        barrier_all();
    } else {
        Team::world().barrier();
    }
    // By closures that are the same, and of types of the same name.
    let most = match me {
        0 => first_of_two(me),
        _ => second_of_two(me),
    };
    assert_eq!(most.of, n - 1);
    let odd = Team::world().split_strided(0, 2, n.div_ceil(2) as isize)?;
    if let Some(team) = odd {
        team.reduce(b.elem(0), a.elem(0), Sum);
        team.destroy();
    }
    // All alike have no such team, too much, and nothing.
    let none = Team::world().split_strided(0, 1, 1 + n as isize);
    assert!(matches!(none, Err(shmem::Error::NoSuchTeam { .. })));
    let too_much = alloc::<u64>(1 << 50);
    assert!(matches!(too_much, Err(shmem::Error::HeapExhausted { .. })));
    reduce(b.at(..0), a.at(..0), Sum);
    free(alloc::<u8>(0)?)
}

/// As another program of the job would have it.
mod of_another_program {
    #[derive(Clone, Copy, Debug)]
    #[repr(transparent)]
    pub(crate) struct Most {
        pub(crate) of: usize,
    }
    // SAFETY: a number.
    unsafe impl shmem::Datum for Most {}
}

#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
struct Most {
    of: usize,
}
// SAFETY: a number.
unsafe impl shmem::Datum for Most {}

fn first_of_two(of: usize) -> Most {
    let max = |a: Most, b: Most| if a.of < b.of { b } else { a };
    Team::world().reduce_value(Most { of }, max)
}

fn second_of_two(of: usize) -> Most {
    use of_another_program::Most as Theirs;
    let max = |a: Theirs, b: Theirs| if a.of < b.of { b } else { a };
    let Theirs { of } = Team::world().reduce_value(Theirs { of }, max);
    Most { of }
}
