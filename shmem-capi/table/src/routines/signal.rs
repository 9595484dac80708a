//! Signals: puts that announce themselves.

use super::{Chapter, Context, Routine, rma};

pub(super) fn chapter() -> Chapter {
    let mut routines = rma::with_signal();
    routines.extend([
        Routine::new(
            "void shmem_signal_add(uint64_t *sig_addr, uint64_t signal, int pe)",
            "signal::add",
            "signal_add",
        )
        .context(Context::Any)
        .generic("shmem_signal_add", 0),
        Routine::new(
            "void shmem_signal_set(uint64_t *sig_addr, uint64_t signal, int pe)",
            "signal::set",
            "signal_set",
        )
        .context(Context::Any)
        .generic("shmem_signal_set", 0),
        Routine::new(
            "uint64_t shmem_signal_fetch(const volatile uint64_t *sig_addr)",
            "signal::fetch",
            "signal_fetch",
        ),
        Routine::new(
            "uint64_t shmem_signal_wait_until(volatile uint64_t *sig_addr, int cmp, uint64_t \
             cmp_value)",
            "signal::wait_until",
            "signal_wait_until",
        ),
    ]);
    Chapter {
        title: "Signals",
        routines,
        tests: &[
            "tests/programs/conformance/signals.rs",
            "tests/c/signals.c",
            "tests/c/rma.c",
            "tests/c/rma_ctx.c",
        ],
    }
}
