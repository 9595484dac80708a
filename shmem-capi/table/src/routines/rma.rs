//! Remote memory access: put and get in all their forms.

use super::line::{Chapter, Contexts, Routine};
use crate::types::{RMA, Types, WIDTHS};

const PLAIN: &str = "T *dest, const T *source, size_t nelems, int pe";
const STRIDED: &str =
    "T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe";
const BLOCKS: &str = "T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst, size_t bsize, \
                      size_t nblocks, int pe";
const SIGNAL: &str = "T *dest, const T *source, size_t nelems, uint64_t *sig_addr, \
                      uint64_t signal, int sig_op, int pe";

fn line(proto: &str, types: Types) -> Routine {
    let routine = Routine::new("rma", proto);
    routine.types(types).contexts(Contexts::Any)
}

/// The routines `op`, with a `tail` to every name, by type, by width, and, where elements lie one behind the
/// other, in bytes.
fn family(op: &str, tail: &str, params: &str) -> Vec<Routine> {
    let untyped = params.replace("T *", "void *");
    let mut all = vec![
        line(&format!("void shmem_T_{op}{tail}({params})"), RMA),
        line(&format!("void shmem_{op}N{tail}({untyped})"), WIDTHS),
    ];
    if params == PLAIN || params == SIGNAL {
        let proto = format!("void shmem_{op}mem{tail}({untyped})");
        all.push(line(&proto, Types::Bytes));
    }
    all
}

/// The put-with-signal routines, which the specification has in another chapter.
pub(super) fn with_signal() -> Vec<Routine> {
    let mut all = family("put", "_signal", SIGNAL);
    all.extend(family("put", "_signal_nbi", SIGNAL));
    all
}

pub(super) fn chapters() -> Vec<Chapter> {
    let mut blocking = vec![
        line("void shmem_T_p(T *dest, T value, int pe)", RMA),
        line("T shmem_T_g(const T *source, int pe)", RMA),
    ];
    for (op, params) in [
        ("put", PLAIN),
        ("get", PLAIN),
        ("iput", STRIDED),
        ("iget", STRIDED),
        ("ibput", BLOCKS),
        ("ibget", BLOCKS),
    ] {
        blocking.extend(family(op, "", params));
    }
    let mut nonblocking = family("put", "_nbi", PLAIN);
    nonblocking.extend(family("get", "_nbi", PLAIN));
    vec![
        Chapter {
            title: "Remote memory access",
            routines: blocking,
            tests: &[
                "tests/programs/conformance/rma.rs",
                "tests/programs/conformance/strided.rs",
                "tests/programs/conformance/contexts.rs",
                "tests/c/rma.c",
                "tests/c/rma_ctx.c",
                "tests/c/rma_generic.c",
                "tests/c/rma_generic_ctx.c",
                "tests/c/sized.c",
            ],
        },
        Chapter {
            title: "Remote memory access, non-blocking",
            routines: nonblocking,
            tests: &[
                "tests/programs/conformance/nbi.rs",
                "tests/programs/conformance/contexts.rs",
                "tests/c/rma.c",
                "tests/c/rma_ctx.c",
                "tests/c/rma_generic.c",
                "tests/c/rma_generic_ctx.c",
                "tests/c/sized.c",
            ],
        },
    ]
}
