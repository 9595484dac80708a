//! Tests that are jobs: functions that PEs call together, and what must hold of them on whatever PEs and nodes.
//!
//! ```text
//! cargo test -p shmem-test --test tested
//! ```

use shmem::{Datum, Error, World};

/// What is looked for among the parts of all PEs: where it is, and its value.
#[derive(Clone, Copy, Debug, PartialEq, Datum)]
#[repr(C)]
struct Found {
    value: f64,
    pe: u32,
    index: u32,
}

/// The greatest element of all parts, and where it is; of equal ones that of the lowest PE. Collective.
///
/// # Panics
/// If no PE has an element.
fn greatest(world: &World, part: &[f64]) -> Found {
    let own = part.iter().zip(0..).map(|(&value, index)| Found {
        value,
        pe: world.my_pe() as u32,
        index,
    });
    let greater = |a: Found, b: Found| if b.value > a.value { b } else { a };
    let own = own.reduce(greater).unwrap_or(Found {
        value: f64::NEG_INFINITY,
        pe: u32::MAX,
        index: u32::MAX,
    });
    let found = world.all_gather(own).into_iter().reduce(greater);
    let found = found.expect("a PE");
    assert!(
        found.pe != u32::MAX,
        "no PE of {} has an element",
        world.n_pes()
    );
    found
}

#[shmem::test(pes = [1, 4, 7], nodes = [1])]
fn the_greatest_is_found_wherever_it_is(world: &World) {
    for holder in 0..world.n_pes() {
        let mut part = [0.5; 10];
        if world.my_pe() == holder {
            part[3] = 2.0;
        }
        let found = greatest(world, &part);
        let wanted = Found {
            value: 2.0,
            pe: holder as u32,
            index: 3,
        };
        assert_eq!(found, wanted);
    }
}

/// PEs that have nothing take part. The same over a network as in one memory.
#[shmem::test(pes = 5, nodes = [1, 3])]
fn some_have_nothing(world: &World) -> Result<(), Error> {
    let part: &[f64] = if world.my_pe() % 2 == 1 {
        &[-1.0, -2.0]
    } else {
        &[]
    };
    let found = greatest(world, part);
    // Everybody has the same answer: one of them writes it down for all to see.
    let noted = shmem::alloc::<Found>(1)?;
    if world.my_pe() == 4 {
        shmem::p(noted, found, 0);
    }
    world.barrier();
    assert_eq!(
        shmem::g(noted, 0),
        Found {
            value: -1.0,
            pe: 1,
            index: 0
        }
    );
    Ok(())
}

#[shmem::test(pes = 2)]
#[should_panic(expected = "no PE of 2 has an element")]
fn nothing_is_no_answer(world: &World) {
    greatest(world, &[]);
}

/// Ordinary tests beside jobs: the prelude leaves `#[test]` alone, here and in modules that import this one.
mod beside {
    use shmem::prelude::*;

    fn twice(world: &World) -> usize {
        2 * world.n_pes()
    }

    mod tests {
        use super::*;

        #[test]
        fn an_ordinary_test_is_no_job() {
            assert!(!initialized());
        }

        #[shmem::test(pes = 2)]
        fn a_job_is_one(world: &World) {
            assert_eq!(twice(world), 4);
            assert!(test(alloc::<u64>(1).unwrap(), Cmp::Eq, 0), "the function");
        }
    }
}
