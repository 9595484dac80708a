//! Deprecated routines, which are to be supported until the specification says otherwise, and six
//! that it has dropped but old programs call.

use super::{Chapter, Context, Routine, Status};
use crate::types::{
    EXTENDED, OLD_ARITHMETIC, OLD_BITS, OLD_EXTENDED, OLD_ORDERED, OLD_STANDARD, OLD_WAITED,
    OLD_WIDTHS, STANDARD, Types,
};

fn old(proto: &str, call: &'static str, rust: &'static str) -> Routine {
    Routine::new(proto, call, rust).status(Status::Deprecated)
}

const SET: &str = "int PE_start, int logPE_stride, int PE_size, long *pSync";

fn names() -> Vec<Routine> {
    vec![
        old(
            "void start_pes(int npes)",
            "setup::start_pes",
            "raw::start_pes",
        ),
        old("int _my_pe(void)", "setup::my_pe", "my_pe"),
        old("int _num_pes(void)", "setup::n_pes", "n_pes"),
        old("void *shmalloc(size_t size)", "memory::malloc", "alloc"),
        old("void shfree(void *ptr)", "memory::free", "free"),
        old(
            "void *shrealloc(void *ptr, size_t size)",
            "memory::realloc",
            "realloc",
        ),
        old(
            "void *shmemalign(size_t alignment, size_t size)",
            "memory::align",
            "alloc_aligned",
        ),
    ]
}

fn atomics() -> Vec<Routine> {
    let line = |proto: &str, call, rust, types: Types, generic, generic_types: Types| {
        old(proto, call, rust)
            .types(types)
            .context(Context::Default)
            .generic(generic, 0)
            .generic_types(generic_types)
    };
    let standard =
        |proto: &str, call, rust, generic| line(proto, call, rust, OLD_STANDARD, generic, STANDARD);
    let extended =
        |proto: &str, call, rust, generic| line(proto, call, rust, OLD_EXTENDED, generic, EXTENDED);
    vec![
        standard(
            "T shmem_T_cswap(T *dest, T cond, T value, int pe)",
            "atomics::compare_swap::<{T}>",
            "atomic_compare_swap",
            "shmem_cswap",
        ),
        standard(
            "T shmem_T_finc(T *dest, int pe)",
            "atomics::fetch_inc::<{T}>",
            "atomic_fetch_inc",
            "shmem_finc",
        ),
        standard(
            "void shmem_T_inc(T *dest, int pe)",
            "atomics::inc::<{T}>",
            "atomic_inc",
            "shmem_inc",
        ),
        standard(
            "T shmem_T_fadd(T *dest, T value, int pe)",
            "atomics::fetch_add::<{T}>",
            "atomic_fetch_add",
            "shmem_fadd",
        ),
        standard(
            "void shmem_T_add(T *dest, T value, int pe)",
            "atomics::add::<{T}>",
            "atomic_add",
            "shmem_add",
        ),
        extended(
            "T shmem_T_swap(T *dest, T value, int pe)",
            "atomics::swap::<{T}>",
            "atomic_swap",
            "shmem_swap",
        ),
        extended(
            "T shmem_T_fetch(const T *source, int pe)",
            "atomics::fetch::<{T}>",
            "atomic_fetch",
            "shmem_fetch",
        ),
        extended(
            "void shmem_T_set(T *dest, T value, int pe)",
            "atomics::set::<{T}>",
            "atomic_set",
            "shmem_set",
        ),
    ]
}

fn active_sets() -> Vec<Routine> {
    let mut all = vec![
        old(
            &format!("void shmem_barrier({SET})"),
            "active::barrier",
            "raw::barrier",
        ),
        old(
            &format!("void shmem_sync({SET})"),
            "active::sync",
            "raw::sync",
        ),
    ];
    let copy = "void *dest, const void *source";
    for (op, params, call, rust) in [
        (
            "broadcast",
            "size_t nelems, int PE_root",
            "active::broadcast::<{T}>",
            "raw::broadcast",
        ),
        (
            "collect",
            "size_t nelems",
            "active::collect::<{T}>",
            "raw::collect",
        ),
        (
            "fcollect",
            "size_t nelems",
            "active::fcollect::<{T}>",
            "raw::fcollect",
        ),
        (
            "alltoall",
            "size_t nelems",
            "active::alltoall::<{T}>",
            "raw::alltoall",
        ),
        (
            "alltoalls",
            "ptrdiff_t dst, ptrdiff_t sst, size_t nelems",
            "active::alltoalls::<{T}>",
            "raw::alltoalls",
        ),
    ] {
        let proto = format!("void shmem_{op}N({copy}, {params}, {SET})");
        all.push(old(&proto, call, rust).types(OLD_WIDTHS));
    }
    for (op, types, call) in [
        ("and", OLD_BITS, "active::reduce::<{T}, And>"),
        ("or", OLD_BITS, "active::reduce::<{T}, Or>"),
        ("xor", OLD_BITS, "active::reduce::<{T}, Xor>"),
        ("max", OLD_ORDERED, "active::reduce::<{T}, Max>"),
        ("min", OLD_ORDERED, "active::reduce::<{T}, Min>"),
        ("sum", OLD_ARITHMETIC, "active::reduce::<{T}, Sum>"),
        ("prod", OLD_ARITHMETIC, "active::reduce::<{T}, Prod>"),
    ] {
        let proto = format!(
            "void shmem_T_{op}_to_all(T *dest, const T *source, int nreduce, int PE_start, \
             int logPE_stride, int PE_size, T *pWrk, long *pSync)"
        );
        all.push(old(&proto, call, "raw::reduce").types(types));
    }
    all
}

fn waits() -> Vec<Routine> {
    vec![
        old(
            "void shmem_T_wait_until(volatile T *ivar, int cmp, T cmp_value)",
            "sync::wait_until::<{T}>",
            "wait_until",
        )
        .types(OLD_WAITED),
        old(
            "int shmem_T_test(volatile T *ivar, int cmp, T cmp_value)",
            "sync::test::<{T}>",
            "test",
        )
        .types(OLD_WAITED),
        old(
            "void shmem_wait_until(volatile long *ivar, int cmp, long cmp_value)",
            "sync::wait_until::<c_long>",
            "wait_until",
        ),
        old(
            "void shmem_wait(volatile long *ivar, long cmp_value)",
            "sync::wait::<c_long>",
            "wait_until",
        ),
        old(
            "void shmem_T_wait(volatile T *ivar, T cmp_value)",
            "sync::wait::<{T}>",
            "wait_until",
        )
        .types(OLD_BITS),
    ]
}

fn caches() -> Vec<Routine> {
    [
        "void shmem_set_cache_inv(void)",
        "void shmem_clear_cache_inv(void)",
        "void shmem_udcflush(void)",
        "void shmem_set_cache_line_inv(void *dest)",
        "void shmem_clear_cache_line_inv(void *dest)",
        "void shmem_udcflush_line(void *dest)",
    ]
    .into_iter()
    .map(|proto| {
        let call = match proto.ends_with("(void)") {
            true => "setup::cache",
            false => "setup::cache_line",
        };
        Routine::new(proto, call, "").status(Status::Removed)
    })
    .collect()
}

pub(super) fn chapters() -> Vec<Chapter> {
    vec![
        Chapter {
            title: "Deprecated: old names",
            routines: names(),
            tests: &["tests/c/deprecated.c", "tests/c/programs/start_pes.c"],
        },
        Chapter {
            title: "Deprecated: atomics",
            routines: atomics(),
            tests: &["tests/c/deprecated.c"],
        },
        Chapter {
            title: "Deprecated: collectives of active sets",
            routines: active_sets(),
            tests: &[
                "tests/programs/conformance/active_sets.rs",
                "tests/c/active_sets.c",
            ],
        },
        Chapter {
            title: "Deprecated: waiting",
            routines: waits(),
            tests: &["tests/c/deprecated.c"],
        },
        Chapter {
            title: "Removed: caches",
            routines: caches(),
            tests: &["tests/c/deprecated.c"],
        },
    ]
}
