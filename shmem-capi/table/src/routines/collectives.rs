//! Collectives of teams.

use super::line::{Chapter, Routine, reduce, type_of};
use crate::types::{ARITHMETIC, BITS, ORDERED, RMA, Types};

const PLAIN: &str = "shmem_team_t team, T *dest, const T *source, size_t nelems";
const ROOTED: &str = "shmem_team_t team, T *dest, const T *source, size_t nelems, int PE_root";
const STRIDED: &str = "shmem_team_t team, T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst, \
                       size_t nelems";
const REDUCE: &str = "shmem_team_t team, T *dest, const T *source, size_t nreduce";

fn line(proto: &str) -> Routine {
    Routine::new("collectives", proto)
}

pub(super) fn chapter() -> Chapter {
    let mut routines = vec![
        line("void shmem_barrier_all(void)"),
        line("void shmem_sync_all(void)"),
        line("int shmem_team_sync(shmem_team_t team)"),
    ];
    for (op, params) in [
        ("alltoall", PLAIN),
        ("alltoalls", STRIDED),
        ("broadcast", ROOTED),
        ("collect", PLAIN),
        ("fcollect", PLAIN),
    ] {
        let untyped = params.replace("T *", "void *");
        routines.push(line(&format!("int shmem_T_{op}({params})")).types(RMA));
        routines.push(line(&format!("int shmem_{op}mem({untyped})")).types(Types::Bytes));
    }
    for (op, types) in [
        ("and", BITS),
        ("or", BITS),
        ("xor", BITS),
        ("max", ORDERED),
        ("min", ORDERED),
        ("sum", ARITHMETIC),
        ("prod", ARITHMETIC),
    ] {
        let op_type = type_of(op);
        let method = format!("Team::reduce::<T, {op_type}>");
        routines.push(
            line(&format!("int shmem_T_{op}_reduce({REDUCE})"))
                .types(types)
                .behind(reduce(op))
                .rust([&method, &op_type]),
        );
    }
    for scan in ["inscan", "exscan"] {
        let proto = format!("int shmem_T_sum_{scan}({PLAIN})");
        routines.push(line(&proto).types(ARITHMETIC));
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
