//! Two RoCEv2 endpoints in user space, without a device and without privileges: one writes into the
//! memory of the other.
//!
//! `cargo run -p shmem-soft --example rocev2`

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shmem_soft::{SoftConfig, SoftHca};
use shmem_verbs::{
    Access, Completion, Hca, Mtu, Psn, QpInit, QpType, RcDest, RcStart, SendOp, SendWr, Sge,
    VerbsError, WcStatus,
};

/// A word of each endpoint.
static WORDS: [AtomicU64; 2] = [AtomicU64::new(42), AtomicU64::new(0)];

fn main() -> Result<(), VerbsError> {
    let open = |seed| SoftHca::open(&SoftConfig::loopback(seed));
    let hcas = [open(1)?, open(2)?];
    let cqs = [hcas[0].create_cq(16)?, hcas[1].create_cq(16)?];
    let create = |i: usize| hcas[i].create_qp(&QpInit::new(QpType::Rc, cqs[i]));
    let qps = [create(0)?, create(1)?];
    for (me, peer) in [(0, 1), (1, 0)] {
        let dest = RcDest::new(hcas[peer].port().av, qps[peer], Psn(0), Mtu::M4096);
        for attr in RcStart::new(dest, Psn(0)).attrs() {
            hcas[me].modify_qp(qps[me], &attr)?;
        }
    }
    // SAFETY: the words are there for ever, and are accessed as atomics only.
    let register = |i: usize| unsafe { hcas[i].reg_mr(WORDS[i].as_ptr().cast(), 8, Access::ALL) };
    let (from, to) = (register(0)?, register(1)?);

    let (raddr, rkey, imm) = (to.addr, to.rkey, None);
    let (addr, len, lkey) = (from.addr, 8, from.lkey);
    let sges = [Sge { addr, len, lkey }];
    let write = SendWr::new(7, SendOp::Write { raddr, rkey, imm }, &sges);
    // SAFETY: as above.
    unsafe { hcas[0].post_send(qps[0], &write) }?;
    let mut done = [Completion::EMPTY];
    while hcas[0].poll_cq(cqs[0], &mut done) == 0 {
        // In another process this would be a thread that waits all the time.
        hcas[1].wait(Duration::from_millis(1));
    }
    assert_eq!((done[0].wr_id, done[0].status), (7, WcStatus::Success));
    assert_eq!(WORDS[1].load(Ordering::Acquire), 42);
    Ok(())
}

#[test]
fn it_writes() {
    main().expect("two ports on the loopback");
}
