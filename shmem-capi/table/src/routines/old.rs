//! Deprecated routines, which are to be supported until the specification says otherwise, and six
//! that it has dropped but old programs call.

use super::line::{Chapter, Contexts, Routine, Status, find, reduce};
use crate::types::{
    EXTENDED, OLD_ARITHMETIC, OLD_BITS, OLD_EXTENDED, OLD_ORDERED, OLD_STANDARD, OLD_WAITED,
    OLD_WIDTHS, STANDARD, Types,
};

fn old(module: &'static str, proto: &str) -> Routine {
    Routine::new(module, proto).status(Status::Deprecated)
}

const SET: &str = "int PE_start, int logPE_stride, int PE_size, long *pSync";

fn names(current: &[Chapter]) -> Vec<Routine> {
    let mut all = vec![old("setup", "void start_pes(int npes)").rust(["raw::start_pes"])];
    for (proto, name) in [
        ("int _my_pe(void)", "shmem_my_pe"),
        ("int _num_pes(void)", "shmem_n_pes"),
        ("void *shmalloc(size_t size)", "shmem_malloc"),
        ("void shfree(void *ptr)", "shmem_free"),
        ("void *shrealloc(void *ptr, size_t size)", "shmem_realloc"),
        (
            "void *shmemalign(size_t alignment, size_t size)",
            "shmem_align",
        ),
    ] {
        all.push(old("", proto).replaced_by(find(current, name)));
    }
    all
}

fn atomics(current: &[Chapter]) -> Vec<Routine> {
    let mut all = Vec::new();
    for (types, generic, lines) in [
        (
            OLD_STANDARD,
            STANDARD,
            &[
                (
                    "T shmem_T_cswap(T *dest, T cond, T value, int pe)",
                    "compare_swap",
                ),
                ("T shmem_T_finc(T *dest, int pe)", "fetch_inc"),
                ("void shmem_T_inc(T *dest, int pe)", "inc"),
                ("T shmem_T_fadd(T *dest, T value, int pe)", "fetch_add"),
                ("void shmem_T_add(T *dest, T value, int pe)", "add"),
            ][..],
        ),
        (
            OLD_EXTENDED,
            EXTENDED,
            &[
                ("T shmem_T_swap(T *dest, T value, int pe)", "swap"),
                ("T shmem_T_fetch(const T *source, int pe)", "fetch"),
                ("void shmem_T_set(T *dest, T value, int pe)", "set"),
            ],
        ),
    ] {
        for (proto, op) in lines {
            let current = find(current, &format!("shmem_T_atomic_{op}"));
            all.push(
                old("", proto)
                    .replaced_by(current)
                    .types(types)
                    .contexts(Contexts::Default)
                    .generic(generic),
            );
        }
    }
    all
}

fn active_sets() -> Vec<Routine> {
    let line = |proto: &str, types: Types| {
        let routine = old("active", proto).types(types);
        let name = format!("raw::{}", routine.stem());
        routine.rust([&name])
    };
    let mut all = vec![
        line(&format!("void shmem_barrier({SET})"), Types::None),
        line(&format!("void shmem_sync({SET})"), Types::None),
    ];
    for (op, params) in [
        ("broadcast", "size_t nelems, int PE_root"),
        ("collect", "size_t nelems"),
        ("fcollect", "size_t nelems"),
        ("alltoall", "size_t nelems"),
        ("alltoalls", "ptrdiff_t dst, ptrdiff_t sst, size_t nelems"),
    ] {
        let copy = "void *dest, const void *source";
        let proto = format!("void shmem_{op}N({copy}, {params}, {SET})");
        all.push(line(&proto, OLD_WIDTHS));
    }
    for (op, types) in [
        ("and", OLD_BITS),
        ("or", OLD_BITS),
        ("xor", OLD_BITS),
        ("max", OLD_ORDERED),
        ("min", OLD_ORDERED),
        ("sum", OLD_ARITHMETIC),
        ("prod", OLD_ARITHMETIC),
    ] {
        let proto = format!(
            "void shmem_T_{op}_to_all(T *dest, const T *source, int nreduce, int PE_start, \
             int logPE_stride, int PE_size, T *pWrk, long *pSync)"
        );
        let routine = line(&proto, types).behind(reduce(op));
        all.push(routine.rust(["raw::reduce"]));
    }
    all
}

fn waits() -> Vec<Routine> {
    let line = |proto| old("sync", proto);
    vec![
        line("void shmem_T_wait_until(volatile T *ivar, int cmp, T cmp_value)").types(OLD_WAITED),
        line("int shmem_T_test(volatile T *ivar, int cmp, T cmp_value)").types(OLD_WAITED),
        line("void shmem_wait_until(volatile long *ivar, int cmp, long cmp_value)")
            .behind("wait_until::<c_long>"),
        line("void shmem_wait(volatile long *ivar, long cmp_value)")
            .behind("wait::<c_long>")
            .rust(["wait_until"]),
        line("void shmem_T_wait(volatile T *ivar, T cmp_value)")
            .types(OLD_BITS)
            .rust(["wait_until"]),
    ]
}

fn caches() -> Vec<Routine> {
    let mut all = Vec::new();
    for (function, params, names) in [
        (
            "cache",
            "void",
            ["set_cache_inv", "clear_cache_inv", "udcflush"],
        ),
        (
            "cache_line",
            "void *dest",
            [
                "set_cache_line_inv",
                "clear_cache_line_inv",
                "udcflush_line",
            ],
        ),
    ] {
        for name in names {
            let routine = old("setup", &format!("void shmem_{name}({params})"));
            all.push(routine.status(Status::Removed).behind(function).rust([]));
        }
    }
    all
}

pub(super) fn chapters(current: &[Chapter]) -> Vec<Chapter> {
    vec![
        Chapter {
            title: "Deprecated: old names",
            routines: names(current),
            tests: &["tests/c/deprecated.c", "tests/c/programs/start_pes.c"],
        },
        Chapter {
            title: "Deprecated: atomics",
            routines: atomics(current),
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
