//! Atomic memory operations.

use super::{Chapter, Context, Routine};
use crate::types::{BITWISE, EXTENDED, STANDARD, Types};

/// Name after `shmem_T_atomic_`, its types, whether it fetches, its parameters.
type Line = (&'static str, Types, bool, &'static str);

const VALUE: &str = "T *dest, T value, int pe";
const NO_VALUE: &str = "T *dest, int pe";
const SOURCE: &str = "const T *source, int pe";
const CONDITION: &str = "T *dest, T cond, T value, int pe";

const LINES: [Line; 14] = [
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

/// The strings of a line, which live as long as the program.
fn names(op: &str) -> [&'static str; 6] {
    macro_rules! names {
        ($($op:literal)*) => {
            match op {
                $($op => [
                    concat!("atomics::", $op, "::<{T}>"),
                    concat!("atomics::", $op, "_nbi::<{T}>"),
                    concat!("atomic_", $op),
                    concat!("Nbi::atomic_", $op),
                    concat!("shmem_atomic_", $op),
                    concat!("shmem_atomic_", $op, "_nbi"),
                ],)*
                _ => unreachable!("named in LINES"),
            }
        };
    }
    names!("fetch" "set" "compare_swap" "swap" "fetch_inc" "inc" "fetch_add" "add" "fetch_and"
        "and" "fetch_or" "or" "fetch_xor" "xor")
}

pub(super) fn chapters() -> Vec<Chapter> {
    let blocking = LINES.iter().map(|&(op, types, fetches, params)| {
        let ret = if fetches { "T" } else { "void" };
        let [call, _, rust, _, generic, _] = names(op);
        Routine::new(&format!("{ret} shmem_T_atomic_{op}({params})"), call, rust)
            .types(types)
            .context(Context::Any)
            .generic(generic, 0)
    });
    let nonblocking =
        LINES
            .iter()
            .filter(|(_, _, fetches, _)| *fetches)
            .map(|&(op, types, _, params)| {
                let [_, call, _, rust, _, generic] = names(op);
                let proto = format!("void shmem_T_atomic_{op}_nbi(T *fetch, {params})");
                Routine::new(&proto, call, rust)
                    .types(types)
                    .context(Context::Any)
                    .generic(generic, 0)
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
