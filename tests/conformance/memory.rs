//! The heap: zeroed, disjoint, exhausted with an error, recovered.

use shmem::{Error, alloc, barrier_all, free, g, my_pe, n_pes};

use crate::Check;

pub(crate) const CHECKS: &[Check] = &[
    ("fresh_memory_is_zero", fresh_memory_is_zero),
    ("exhaustion", exhaustion),
];

fn fresh_memory_is_zero() {
    let (me, n) = (my_pe(), n_pes());
    for round in 0..4u64 {
        let a = alloc::<u64>(1000).unwrap();
        let b = alloc::<u8>(3).unwrap();
        assert!(a.to_vec().iter().all(|&v| v == 0), "round {round}");
        assert_eq!(b.to_vec(), [0; 3]);
        a.fill(round + 1 + me as u64);
        b.fill(0xff);
        barrier_all();
        assert_eq!(
            g(a.elem(999), (me + 1) % n),
            round + 1 + ((me + 1) % n) as u64
        );
        barrier_all();
        free(a).unwrap();
        free(b).unwrap();
    }
    assert_eq!(alloc::<u64>(0).map(|empty| empty.len()).unwrap(), 0);
}

fn exhaustion() {
    let error = alloc::<u64>(1 << 50).unwrap_err();
    assert!(matches!(error, Error::HeapExhausted { .. }));
    assert!(
        error.to_string().contains("SHMEM_SYMMETRIC_SIZE"),
        "{error}"
    );
    let kept = alloc::<u32>(10).unwrap();
    assert!(matches!(
        free(kept.at(1..)),
        Err(Error::NotAllocated { .. })
    ));
    free(kept).unwrap();
    assert!(matches!(free(kept), Err(Error::NotAllocated { .. })));
}
