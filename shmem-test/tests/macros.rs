//! What the macros make, used as users do: structs in symmetric memory, and tests that are jobs.

use shmem::{Datum, World};

#[derive(Clone, Copy, Debug, Default, PartialEq, Datum)]
#[repr(C)]
struct Particle {
    place: [f64; 3],
    cell: u32,
    kind: [u8; 4],
}

#[derive(Clone, Copy, Debug, PartialEq, Datum)]
#[repr(transparent)]
struct Metres<T>(T);

#[derive(Clone, Copy, Debug, PartialEq, Datum)]
#[repr(C)]
struct Block<T, const N: usize> {
    first: T,
    rest: [[T; N]; 2],
}

/// Two sizes without padding that alignment alone would give.
#[derive(Clone, Copy, Debug, PartialEq, Datum)]
#[repr(C, packed)]
struct Packed(u8, u32);

/// Puts a value to the next PE, and gives what the one before has put.
fn around<T: Datum>(world: &World, value: T) -> Result<T, shmem::Error> {
    let inbox = shmem::alloc::<T>(1)?;
    shmem::p(inbox, value, (world.my_pe() + 1) % world.n_pes());
    world.barrier();
    Ok(inbox.read(0))
}

#[shmem::test(pes = 4, nodes = [1, 2])]
fn structs_go_around(world: &World) -> Result<(), shmem::Error> {
    let before = (world.my_pe() + 3) % 4;
    let particle = |pe: usize| Particle {
        place: [pe as f64; 3],
        cell: pe as u32,
        kind: [7; 4],
    };
    let block = |pe: usize| Block {
        first: Metres(pe as u8),
        rest: [[Metres(1); 3], [Metres(2); 3]],
    };
    assert_eq!(around(world, particle(world.my_pe()))?, particle(before));
    assert_eq!(around(world, block(world.my_pe()))?, block(before));
    let packed = around(world, Packed(1, world.my_pe() as u32))?;
    assert_eq!(packed, Packed(1, before as u32));
    Ok(())
}

#[shmem::test(pes = [1, 3], nodes = [1])]
fn the_world_has_the_size_that_is_asked_for(world: &World) {
    let name = std::thread::current().name().map(str::to_owned);
    let wanted = match name.as_deref() {
        Some("the_world_has_the_size_that_is_asked_for::pes_1_nodes_1") => 1,
        Some("the_world_has_the_size_that_is_asked_for::pes_3_nodes_1") => 3,
        other => panic!("a test named {other:?}"),
    };
    assert_eq!(world.n_pes(), wanted);
}

#[shmem::test(pes = 4, nodes = 3)]
fn nodes_are_emulated(world: &World) {
    assert_eq!(shmem::node_of(0), 0);
    assert_eq!(shmem::node_of(world.n_pes() - 1), 2);
}

#[shmem::test]
fn without_arguments_there_are_four() {
    assert_eq!(shmem::n_pes(), 4);
}

/// The parameter of the expansion is another `world` than this function.
#[shmem::test(pes = 2)]
fn world(world: &World) {
    world.barrier();
}

#[shmem::test(pes = 2, env("SHMEM_SYMMETRIC_SIZE" = "1m", "A_VARIABLE" = "a b=c"))]
fn variables_reach_the_pes() {
    assert_eq!(std::env::var("A_VARIABLE").as_deref(), Ok("a b=c"));
    assert!(shmem::alloc::<u8>(2 << 20).is_err());
}

#[shmem::test(pes = 3)]
#[should_panic(expected = "put of 5 elements into a symmetric array of 4")]
fn a_mistake_panics(world: &World) {
    let array = shmem::alloc::<u64>(4).expect("memory");
    if world.my_pe() == 2 {
        shmem::put(array, &[1; 5], 0);
    }
    world.barrier();
}

#[shmem::test(pes = 1)]
#[should_panic]
fn a_single_pe_panics_alike() {
    panic!("as it should");
}

#[shmem::test]
#[ignore = "what is asked for by name alone runs, too"]
fn ignored_where_nobody_asks() {}

mod deeper {
    pub(super) mod still {
        #[shmem::test(pes = 2)]
        fn modules_are_part_of_the_name(world: &shmem::World) {
            assert_eq!(world.sum(1), 2);
        }
    }
}

/// Each form of struct, and one that a macro makes.
#[shmem::test(pes = 3)]
fn sums_of_structs(world: &shmem::World) {
    #[derive(Clone, Copy, Debug, PartialEq, shmem::Datum, shmem::Arithmetic)]
    #[repr(C)]
    struct Pair<T>(T, [T; 2]);

    macro_rules! made {
        ($name:ident, $ty:ty) => {
            #[derive(Clone, Copy, Debug, PartialEq, shmem::Datum, shmem::Arithmetic)]
            #[repr(C)]
            struct $name {
                inner: Pair<$ty>,
            }
        };
    }
    made!(Made, i32);

    let me = world.my_pe() as i32;
    let mine = Made {
        inner: Pair(me, [1, -me]),
    };
    let all = Made {
        inner: Pair(3, [3, -3]),
    };
    assert_eq!(world.sum(mine), all);
    let mut slice = [mine; 200];
    world.sum_slice(&mut slice);
    assert_eq!(slice, [all; 200]);
    assert_eq!(world.prod(mine).inner, Pair(0, [1, 0]));
}

/// The library under a name that only this module knows, as if a manifest had renamed it.
mod osh {
    use std::sync::atomic::{AtomicUsize, Ordering};

    pub(super) use shmem::{for_macros, main};

    /// Programs that were run by this name.
    pub(super) static RUN: AtomicUsize = AtomicUsize::new(0);

    pub(super) fn run(
        program: impl FnOnce(&shmem::World) -> Result<(), Box<dyn std::error::Error>>,
    ) {
        RUN.fetch_add(1, Ordering::Relaxed);
        shmem::run(program);
    }

    /// # Safety
    /// None: it has nothing of the library's trait but the name.
    pub(super) unsafe trait Datum {}
    // SAFETY: as the trait says.
    unsafe impl Datum for u32 {}
}

#[derive(Clone, Copy, Debug, Datum)]
#[shmem(crate = osh)]
#[repr(C)]
struct OfAnotherName {
    number: u32,
}

#[shmem::test(crate = osh, pes = 2)]
fn the_library_may_have_another_name(world: &World) {
    fn datum<T: osh::Datum>(_: T) {}
    datum(OfAnotherName { number: 1 });
    assert_eq!(osh::RUN.load(std::sync::atomic::Ordering::Relaxed), 1);
    assert_eq!(world.sum(1), 2);
}

mod program_under_another_name {
    use super::osh;

    #[osh::main(crate = osh)]
    fn main() {}

    #[test]
    fn is_a_function() {
        let _: fn() = main;
    }
}

mod with_the_prelude {
    use shmem::prelude::*;

    /// Not a job: no PE prints its number.
    #[test]
    fn a_test_is_an_ordinary_one() {
        assert!(!initialized());
    }
}
