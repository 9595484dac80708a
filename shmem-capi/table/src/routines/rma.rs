//! Remote memory access: put and get in all their forms.

use super::{Chapter, Context, Routine};
use crate::types::{RMA, Types, WIDTHS};

/// The routines that move `$params` elements, by type, by width, and (`$mem`) in bytes.
struct Family {
    /// `put`.
    op: &'static str,
    /// What follows it in every name.
    tail: &'static str,
    /// Parameters, `T *` for a typed pointer.
    params: &'static str,
    call: &'static str,
    rust: &'static str,
    generic: &'static str,
    mem: bool,
}

impl Family {
    fn routines(&self) -> Vec<Routine> {
        let Self {
            op,
            tail,
            params,
            call,
            rust,
            generic,
            mem,
        } = *self;
        let untyped = params.replace("T *", "void *");
        let line = |name: String, params: &str, types: Types| {
            Routine::new(&format!("void {name}({params})"), call, rust)
                .types(types)
                .context(Context::Any)
        };
        let mut all = vec![
            line(format!("shmem_T_{op}{tail}"), params, RMA).generic(generic, 0),
            line(format!("shmem_{op}N{tail}"), &untyped, WIDTHS),
        ];
        if mem {
            all.push(line(format!("shmem_{op}mem{tail}"), &untyped, Types::Bytes));
        }
        all
    }
}

const PLAIN: &str = "T *dest, const T *source, size_t nelems, int pe";
const STRIDED: &str =
    "T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe";
const BLOCKS: &str = "T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst, size_t bsize, \
                      size_t nblocks, int pe";
const SIGNAL: &str = "T *dest, const T *source, size_t nelems, uint64_t *sig_addr, \
                      uint64_t signal, int sig_op, int pe";

fn family(
    op: &'static str,
    tail: &'static str,
    params: &'static str,
    call: &'static str,
    rust: &'static str,
    generic: &'static str,
) -> Vec<Routine> {
    let mem = params == PLAIN || params == SIGNAL;
    Family {
        op,
        tail,
        params,
        call,
        rust,
        generic,
        mem,
    }
    .routines()
}

/// The put-with-signal routines, which the specification has in another chapter.
pub(super) fn with_signal() -> Vec<Routine> {
    let mut all = family(
        "put",
        "_signal",
        SIGNAL,
        "rma::put_signal::<{T}>",
        "put_signal",
        "shmem_put_signal",
    );
    all.extend(family(
        "put",
        "_signal_nbi",
        SIGNAL,
        "rma::put_signal_nbi::<{T}>",
        "Nbi::put_signal",
        "shmem_put_signal_nbi",
    ));
    all
}

pub(super) fn chapters() -> Vec<Chapter> {
    let mut blocking = vec![
        Routine::new(
            "void shmem_T_p(T *dest, T value, int pe)",
            "rma::p::<{T}>",
            "p",
        )
        .types(RMA)
        .context(Context::Any)
        .generic("shmem_p", 0),
        Routine::new("T shmem_T_g(const T *source, int pe)", "rma::g::<{T}>", "g")
            .types(RMA)
            .context(Context::Any)
            .generic("shmem_g", 0),
    ];
    for (op, params, call, rust, generic) in [
        ("put", PLAIN, "rma::put::<{T}>", "put", "shmem_put"),
        ("get", PLAIN, "rma::get::<{T}>", "get", "shmem_get"),
        ("iput", STRIDED, "rma::iput::<{T}>", "iput", "shmem_iput"),
        ("iget", STRIDED, "rma::iget::<{T}>", "iget", "shmem_iget"),
        ("ibput", BLOCKS, "rma::ibput::<{T}>", "ibput", "shmem_ibput"),
        ("ibget", BLOCKS, "rma::ibget::<{T}>", "ibget", "shmem_ibget"),
    ] {
        blocking.extend(family(op, "", params, call, rust, generic));
    }
    let mut nonblocking = family(
        "put",
        "_nbi",
        PLAIN,
        "rma::put_nbi::<{T}>",
        "Nbi::put",
        "shmem_put_nbi",
    );
    nonblocking.extend(family(
        "get",
        "_nbi",
        PLAIN,
        "rma::get_nbi::<{T}>",
        "Nbi::get",
        "shmem_get_nbi",
    ));
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
