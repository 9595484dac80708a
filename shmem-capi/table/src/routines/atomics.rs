//! Atomic memory operations.

use super::line::{Chapter, Contexts, Routine};
use crate::types::{BITWISE, EXTENDED, STANDARD, Types};

const VALUE: &str = "T *dest, T value, int pe";
const NO_VALUE: &str = "T *dest, int pe";
const SOURCE: &str = "const T *source, int pe";
const CONDITION: &str = "T *dest, T cond, T value, int pe";

/// Name after `shmem_T_atomic_`, its types, whether it fetches, its parameters.
const LINES: [(&str, Types, bool, &str); 14] = [
    ("fetch", EXTENDED, true, SOURCE),
    ("set", EXTENDED, false, VALUE),
    ("compare_swap", STANDARD, true, CONDITION),
    ("swap", EXTENDED, true, VALUE),
    ("fetch_inc", STANDARD, true, NO_VALUE),
    ("inc", STANDARD, false, NO_VALUE),
    ("fetch_add", STANDARD, true, VALUE),
    ("add", STANDARD, false, VALUE),
    ("fetch_and", BITWISE, true, VALUE),
    ("and", BITWISE, false, VALUE),
    ("fetch_or", BITWISE, true, VALUE),
    ("or", BITWISE, false, VALUE),
    ("fetch_xor", BITWISE, true, VALUE),
    ("xor", BITWISE, false, VALUE),
];

fn line(proto: &str, types: Types) -> Routine {
    let routine = Routine::new("atomics", proto);
    routine.types(types).contexts(Contexts::Any)
}

pub(super) fn chapters() -> Vec<Chapter> {
    let blocking = LINES.iter().map(|&(op, types, fetches, params)| {
        let ret = if fetches { "T" } else { "void" };
        line(&format!("{ret} shmem_T_atomic_{op}({params})"), types)
    });
    let fetching = LINES.iter().filter(|(_, _, fetches, _)| *fetches);
    let nonblocking = fetching.map(|&(op, types, _, params)| {
        let proto = format!("void shmem_T_atomic_{op}_nbi(T *fetch, {params})");
        line(&proto, types)
    });
    vec![
        Chapter {
            title: "Atomic memory operations",
            routines: blocking.collect(),
            tests: &[
                "tests/programs/conformance/atomics.rs",
                "tests/programs/conformance/contexts.rs",
                "tests/c/atomics.c",
                "tests/c/atomics_ctx.c",
                "tests/c/atomics_generic.c",
                "tests/c/atomics_generic_ctx.c",
            ],
        },
        Chapter {
            title: "Atomic memory operations, non-blocking",
            routines: nonblocking.collect(),
            tests: &[
                "tests/programs/conformance/nbi.rs",
                "tests/c/atomics.c",
                "tests/c/atomics_ctx.c",
                "tests/c/atomics_generic.c",
                "tests/c/atomics_generic_ctx.c",
            ],
        },
    ]
}
