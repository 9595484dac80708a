//! The heap: zeroed, disjoint, exhausted with an error, recovered.

use shmem::raw;
use shmem::{
    Error, SymSlice, alloc, alloc_aligned, alloc_uninit, barrier_all, free, g, get, my_pe, n_pes,
    node_of, put, realloc,
};

use crate::check::Check;

pub(crate) const CHECKS: &[Check] = &[
    ("fresh_memory_is_zero", fresh_memory_is_zero),
    ("exhaustion", exhaustion),
    ("alignment", alignment),
    ("realloc_keeps_contents", realloc_keeps_contents),
    ("raw_memory", raw_memory),
    ("pointers", pointers),
    ("many_sizes", many_sizes),
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

fn alignment() {
    let pad = alloc::<u8>(1).unwrap();
    for shift in 0..=21 {
        let align = 1usize << shift;
        let a = alloc_aligned::<u32>(3, align).unwrap();
        assert!(a.as_ptr().addr().is_multiple_of(align), "{align}");
        for pe in 0..n_pes() {
            if let Some(at) = a.ptr(pe) {
                assert!(at.addr().is_multiple_of(align), "{align} on PE {pe}");
            }
        }
        assert_eq!(a.to_vec(), [0; 3]);
        a.fill(7);
        barrier_all();
        free(a).unwrap();
    }
    let error = alloc_aligned::<u32>(3, 32 << 20).unwrap_err();
    assert!(matches!(error, Error::Alignment { .. }), "{error}");
    free(pad).unwrap();
}

fn realloc_keeps_contents() {
    let (me, n) = (my_pe(), n_pes());
    let right = (me + 1) % n;
    let a = alloc::<u64>(100).unwrap();
    put(a, &[me as u64 + 1; 100], right);
    // In place: nothing is behind it.
    let longer = realloc(a, 5000).unwrap();
    let left = ((me + n - 1) % n) as u64;
    let kept = |a: SymSlice<u64>, len: usize| {
        assert!(a.at(..len).to_vec().iter().all(|&v| v == left + 1));
        assert!(a.at(len..).to_vec().iter().all(|&v| v == 0));
    };
    assert_eq!(longer.len(), 5000);
    kept(longer, 100);
    // Something is in the way.
    let wall = alloc::<u64>(8).unwrap();
    wall.fill(99);
    let moved = realloc(longer, 9000).unwrap();
    kept(moved, 100);
    assert_eq!(wall.to_vec(), [99; 8]);
    let mut theirs = [0; 101];
    get(&mut theirs, moved, right);
    assert_eq!(theirs[..100], [me as u64 + 1; 100]);
    let shorter = realloc(moved, 50).unwrap();
    kept(shorter, 50);
    // It does not fit: the array stays.
    assert!(matches!(
        realloc(shorter, 1 << 50),
        Err(Error::HeapExhausted { .. })
    ));
    kept(shorter, 50);
    assert!(matches!(
        realloc(shorter.at(1..), 10),
        Err(Error::NotAllocated { .. })
    ));
    free(shorter).unwrap();
    free(wall).unwrap();
    let some = alloc_uninit::<u64>(1000).unwrap();
    some.fill(3);
    free(some).unwrap();
}

fn raw_memory() {
    let none = raw::allocate(0, 1, true).unwrap();
    assert!(none.is_null());
    raw::release(none).unwrap();
    let a = raw::reallocate(std::ptr::null_mut(), 300).unwrap();
    let at = raw::symmetric(a, 300).expect("a block of the heap");
    assert_eq!(raw::local(at), a);
    // SAFETY: the block has 300 bytes, and only this PE writes its own.
    unsafe { a.write_bytes(0x5a, 300) };
    let b = raw::reallocate(a, 3 << 20).unwrap();
    // SAFETY: the block has more than 300 bytes.
    let kept = unsafe { std::slice::from_raw_parts(b, 300) };
    assert_eq!(kept, [0x5a; 300]);
    let error = raw::release(b.wrapping_add(64)).unwrap_err();
    assert!(matches!(error, Error::NotAllocated { .. }), "{error}");
    assert!(raw::reallocate(b, 0).unwrap().is_null());
    let zeros = raw::allocate(3 << 20, 4096, true).unwrap();
    // SAFETY: the block is as long.
    let words = unsafe { std::slice::from_raw_parts(zeros, 3 << 20) };
    assert!(words.iter().all(|&b| b == 0));
    raw::release(zeros).unwrap();
    let here = 0u64;
    let error = raw::release((&raw const here).cast_mut().cast()).unwrap_err();
    assert!(error.to_string().contains("is not symmetric"), "{error}");
    let error = raw::allocate(usize::MAX, 64, false).unwrap_err();
    assert!(matches!(error, Error::HeapExhausted { .. }), "{error}");
}

fn pointers() {
    let (me, n) = (my_pe(), n_pes());
    let a = alloc::<u64>(n).unwrap();
    for pe in 0..n {
        let at = a.ptr(pe);
        assert_eq!(at.is_some(), node_of(pe) == node_of(me));
        if let Some(at) = at {
            // SAFETY: an element of an array that others write elsewhere.
            unsafe { at.add(me).write_volatile(me as u64 + 1) };
        }
        assert!(raw::pe_accessible(pe) && raw::addr_accessible(a.as_ptr().cast(), pe));
    }
    assert_eq!(a.ptr(me), Some(a.as_ptr()));
    assert_eq!(a.ptr(n), None);
    assert!(!raw::pe_accessible(n) && !raw::pe_accessible(usize::MAX));
    barrier_all();
    for pe in (0..n).filter(|&pe| node_of(pe) == node_of(me)) {
        assert_eq!(a.read(pe), pe as u64 + 1);
    }
    free(a).unwrap();
}

/// Blocks of all sizes come and go, on every PE at the same offsets.
fn many_sizes() {
    let mut noise = crate::check::noise(7);
    let mut live: Vec<SymSlice<u8>> = Vec::new();
    for round in 0..60 {
        if live.len() > 8 || (round % 3 == 2 && !live.is_empty()) {
            let a = live.swap_remove(noise() as usize % live.len());
            let first = a.to_vec();
            assert!(first.windows(2).all(|w| w[0] == w[1]), "it was overwritten");
            free(a).unwrap();
        } else if round % 5 == 4 && !live.is_empty() {
            let i = noise() as usize % live.len();
            let value = live[i].to_vec().first().copied().unwrap_or(0);
            live[i] = realloc(live[i], 1 + noise() as usize % 200_000).unwrap();
            live[i].fill(value);
        } else {
            let a = alloc::<u8>(1 + noise() as usize % 100_000).unwrap();
            a.fill(round as u8);
            live.push(a);
        }
    }
    let all = alloc::<u64>(n_pes()).unwrap();
    let mine = alloc::<u64>(1).unwrap();
    mine.write(0, live.iter().fold(0, |h, a| h ^ a.addr().offset() as u64));
    shmem::fcollect(all, mine);
    assert!(all.to_vec().iter().all(|&h| h == mine.read(0)));
    for a in live {
        free(a).unwrap();
    }
    free(all).unwrap();
    free(mine).unwrap();
}
