//! Waiting for memory to change, and locks.

use super::{Chapter, Routine};
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

/// Function, Rust name and generic name of waiting and of testing in a form.
fn names(form: &str) -> [[&'static str; 3]; 2] {
    macro_rules! names {
        ($($form:literal)*) => {
            match form {
                $($form => [
                    [
                        concat!("sync::wait_until", $form, "::<{T}>"),
                        concat!("wait_until", $form),
                        concat!("shmem_wait_until", $form),
                    ],
                    [
                        concat!("sync::test", $form, "::<{T}>"),
                        concat!("test", $form),
                        concat!("shmem_test", $form),
                    ],
                ],)*
                _ => unreachable!("named in FORMS"),
            }
        };
    }
    names!("" "_all" "_any" "_some" "_all_vector" "_any_vector" "_some_vector")
}

pub(super) fn chapters() -> Vec<Chapter> {
    let mut routines = Vec::new();
    for (form, params, waits, tests) in FORMS {
        for (verb, ret, [call, rust, generic]) in ["wait_until", "test"]
            .into_iter()
            .zip([waits, tests])
            .zip(names(form))
            .map(|((verb, ret), names)| (verb, ret, names))
        {
            let routine =
                Routine::new(&format!("{ret} shmem_T_{verb}{form}({params})"), call, rust)
                    .types(STANDARD)
                    .generic(generic, 0);
            routines.push(match form {
                "" => routine.generic_types(WAITED),
                _ => routine,
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
                Routine::new(
                    "void shmem_set_lock(volatile long *lock)",
                    "sync::set_lock",
                    "Lock::lock",
                ),
                Routine::new(
                    "void shmem_clear_lock(volatile long *lock)",
                    "sync::clear_lock",
                    "Lock",
                ),
                Routine::new(
                    "int shmem_test_lock(volatile long *lock)",
                    "sync::test_lock",
                    "Lock::try_lock",
                ),
            ],
            tests: &["tests/programs/conformance/locks.rs", "tests/c/locks.c"],
        },
    ]
}
