//! Signals: puts that announce themselves.

use super::line::{Chapter, Contexts, Routine};
use super::rma;
use crate::types::Types;

pub(super) fn chapter() -> Chapter {
    let line = |proto| Routine::new("signal", proto);
    let update = |proto| line(proto).contexts(Contexts::Any).generic(Types::None);
    let mut routines = rma::with_signal();
    routines.extend([
        update("void shmem_signal_add(uint64_t *sig_addr, uint64_t signal, int pe)"),
        update("void shmem_signal_set(uint64_t *sig_addr, uint64_t signal, int pe)"),
        line("uint64_t shmem_signal_fetch(const volatile uint64_t *sig_addr)"),
        line(
            "uint64_t shmem_signal_wait_until(volatile uint64_t *sig_addr, int cmp, uint64_t \
             cmp_value)",
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
