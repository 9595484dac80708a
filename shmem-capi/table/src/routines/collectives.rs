//! Collectives of teams.

use super::{Chapter, Routine};
use crate::types::{ARITHMETIC, BITS, ORDERED, RMA, Types};

const PLAIN: &str = "shmem_team_t team, T *dest, const T *source, size_t nelems";
const ROOTED: &str = "shmem_team_t team, T *dest, const T *source, size_t nelems, int PE_root";
const STRIDED: &str = "shmem_team_t team, T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst, \
                       size_t nelems";
const REDUCE: &str = "shmem_team_t team, T *dest, const T *source, size_t nreduce";

pub(super) fn chapter() -> Chapter {
    let mut routines = vec![
        Routine::new(
            "void shmem_barrier_all(void)",
            "collectives::barrier_all",
            "barrier_all",
        ),
        Routine::new(
            "void shmem_sync_all(void)",
            "collectives::sync_all",
            "sync_all",
        ),
        Routine::new(
            "int shmem_team_sync(shmem_team_t team)",
            "collectives::team_sync",
            "Team::sync",
        ),
    ];
    for (op, params, call, rust, generic) in [
        (
            "alltoall",
            PLAIN,
            "collectives::alltoall::<{T}>",
            "Team::alltoall",
            "shmem_alltoall",
        ),
        (
            "alltoalls",
            STRIDED,
            "collectives::alltoalls::<{T}>",
            "Team::alltoalls",
            "shmem_alltoalls",
        ),
        (
            "broadcast",
            ROOTED,
            "collectives::broadcast::<{T}>",
            "Team::broadcast",
            "shmem_broadcast",
        ),
        (
            "collect",
            PLAIN,
            "collectives::collect::<{T}>",
            "Team::collect",
            "shmem_collect",
        ),
        (
            "fcollect",
            PLAIN,
            "collectives::fcollect::<{T}>",
            "Team::fcollect",
            "shmem_fcollect",
        ),
    ] {
        let untyped = params.replace("T *", "void *");
        routines.push(
            Routine::new(&format!("int shmem_T_{op}({params})"), call, rust)
                .types(RMA)
                .generic(generic, 1),
        );
        routines.push(
            Routine::new(&format!("int shmem_{op}mem({untyped})"), call, rust).types(Types::Bytes),
        );
    }
    for (op, types, call, rust, generic) in [
        (
            "and",
            BITS,
            "collectives::reduce::<{T}, And>",
            "Team::reduce_bits",
            "shmem_and_reduce",
        ),
        (
            "or",
            BITS,
            "collectives::reduce::<{T}, Or>",
            "Team::reduce_bits",
            "shmem_or_reduce",
        ),
        (
            "xor",
            BITS,
            "collectives::reduce::<{T}, Xor>",
            "Team::reduce_bits",
            "shmem_xor_reduce",
        ),
        (
            "max",
            ORDERED,
            "collectives::reduce::<{T}, Max>",
            "Team::reduce",
            "shmem_max_reduce",
        ),
        (
            "min",
            ORDERED,
            "collectives::reduce::<{T}, Min>",
            "Team::reduce",
            "shmem_min_reduce",
        ),
        (
            "sum",
            ARITHMETIC,
            "collectives::reduce::<{T}, Sum>",
            "Team::sum_reduce",
            "shmem_sum_reduce",
        ),
        (
            "prod",
            ARITHMETIC,
            "collectives::reduce::<{T}, Prod>",
            "Team::prod_reduce",
            "shmem_prod_reduce",
        ),
    ] {
        let proto = format!("int shmem_T_{op}_reduce({REDUCE})");
        routines.push(
            Routine::new(&proto, call, rust)
                .types(types)
                .generic(generic, 1),
        );
    }
    for (op, call, rust, generic) in [
        (
            "inscan",
            "collectives::inscan::<{T}>",
            "Team::sum_inscan",
            "shmem_sum_inscan",
        ),
        (
            "exscan",
            "collectives::exscan::<{T}>",
            "Team::sum_exscan",
            "shmem_sum_exscan",
        ),
    ] {
        let proto = format!("int shmem_T_sum_{op}({PLAIN})");
        routines.push(
            Routine::new(&proto, call, rust)
                .types(ARITHMETIC)
                .generic(generic, 1),
        );
    }
    Chapter {
        title: "Collectives",
        routines,
        tests: &[
            "tests/programs/conformance/collectives.rs",
            "tests/programs/conformance/teams.rs",
            "tests/c/collectives.c",
            "tests/c/collectives_generic.c",
        ],
    }
}
