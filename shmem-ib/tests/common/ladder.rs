//! How simulations connect queue pairs.

use shmem_ib::soft::{Engine, Memory};
use shmem_ib::verbs::{Access, Psn, QpAttr, Qpn, RcDest};

/// Takes a queue pair from RESET to RTS, without a limit of retries: simulated networks are worse than any
/// budget.
pub(crate) fn climb<M: Memory>(
    engine: &mut Engine<M>,
    qp: Qpn,
    dest: RcDest,
    sq_psn: Psn,
    max_rd_atomic: u8,
) {
    let init = QpAttr::Init {
        access: Access::ALL,
        qkey: None,
    };
    let rts = QpAttr::Rts {
        sq_psn,
        timeout: 0,
        retry_cnt: 7,
        rnr_retry: 7,
        max_rd_atomic,
    };
    for attr in [init, QpAttr::Rtr { dest: Some(dest) }, rts] {
        engine.modify_qp(qp, &attr).expect("a legal transition");
    }
}
