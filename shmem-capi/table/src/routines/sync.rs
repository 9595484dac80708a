//! Waiting for memory to change, and locks.

use super::line::{Chapter, Routine};
use crate::types::{STANDARD, WAITED};

/// After the name's verb: parameters, and results of waiting and testing. What is waited for is
/// `volatile` here and not in the specification: programs declare it so, as others write it, and in C++
/// there is no way from such a pointer to another.
const FORMS: [(&str, &str, &str, &str); 7] = [
    ("", "volatile T *ivar, int cmp, T cmp_value", "void", "int"),
    (
        "_all",
        "volatile T *ivars, size_t nelems, const int *status, int cmp, T cmp_value",
        "void",
        "int",
    ),
    (
        "_any",
        "volatile T *ivars, size_t nelems, const int *status, int cmp, T cmp_value",
        "size_t",
        "size_t",
    ),
    (
        "_some",
        "volatile T *ivars, size_t nelems, size_t *indices, const int *status, int cmp, \
         T cmp_value",
        "size_t",
        "size_t",
    ),
    (
        "_all_vector",
        "volatile T *ivars, size_t nelems, const int *status, int cmp, const T *cmp_values",
        "void",
        "int",
    ),
    (
        "_any_vector",
        "volatile T *ivars, size_t nelems, const int *status, int cmp, const T *cmp_values",
        "size_t",
        "size_t",
    ),
    (
        "_some_vector",
        "volatile T *ivars, size_t nelems, size_t *indices, const int *status, int cmp, \
         const T *cmp_values",
        "size_t",
        "size_t",
    ),
];

pub(super) fn chapters() -> Vec<Chapter> {
    let line = |proto: &str| Routine::new("sync", proto);
    let mut routines = Vec::new();
    for (form, params, waits, tests) in FORMS {
        for (verb, ret) in [("wait_until", waits), ("test", tests)] {
            let routine = line(&format!("{ret} shmem_T_{verb}{form}({params})")).types(STANDARD);
            routines.push(match form.strip_suffix("_vector") {
                _ if form.is_empty() => routine.generic(WAITED),
                // In Rust the same function takes one value or one for each word.
                Some(form) => routine.rust([&format!("{verb}{form}::<T>")]),
                None => routine,
            });
        }
    }
    vec![
        Chapter {
            title: "Waiting",
            routines,
            tests: &[
                "tests/programs/conformance/waiting.rs",
                "tests/c/waiting.c",
                "tests/c/waiting_generic.c",
            ],
        },
        Chapter {
            title: "Locks",
            routines: vec![
                line("void shmem_set_lock(volatile long *lock)").rust(["Lock::lock"]),
                line("void shmem_clear_lock(volatile long *lock)").rust(["LockGuard"]),
                line("int shmem_test_lock(volatile long *lock)").rust(["Lock::try_lock"]),
            ],
            tests: &["tests/programs/conformance/locks.rs", "tests/c/locks.c"],
        },
    ]
}
