//! Inits inside of an init, and what can be asked at any time.

use shmem::raw;
use shmem::{ThreadLevel, alloc, barrier_all, free, my_pe, n_pes};

use crate::check::Check;

pub(crate) const CHECKS: &[Check] = &[
    ("inits_are_counted", inits_are_counted),
    ("questions_at_any_time", questions_at_any_time),
];

fn inits_are_counted() {
    let array = alloc::<u64>(1).unwrap();
    array.write(0, my_pe() as u64);
    for _ in 0..3 {
        let inner = shmem::init_thread(ThreadLevel::Single).unwrap();
        // The outermost one has decided.
        assert_eq!(shmem::thread_level(), Some(ThreadLevel::Multiple));
        let innermost = raw::init(ThreadLevel::Serialized).unwrap();
        assert_eq!(innermost, ThreadLevel::Multiple);
        raw::start_pes().unwrap();
        assert_eq!(inner.n_pes(), n_pes());
        inner.finalize();
        raw::finalize();
        assert!(shmem::initialized());
        assert_eq!(array.read(0), my_pe() as u64);
        barrier_all();
    }
    free(array).unwrap();
}

fn questions_at_any_time() {
    let answers = std::thread::spawn(|| (shmem::initialized(), shmem::thread_level()));
    let answers = answers.join().unwrap();
    assert_eq!(answers, (true, Some(ThreadLevel::Multiple)));
    assert_eq!(shmem::info_version(), (1, 6));
    assert!(shmem::info_name().starts_with("shmem ") && shmem::info_name().len() < 256);
    assert_eq!(ThreadLevel::from_number(2), Some(ThreadLevel::Serialized));
    assert!(ThreadLevel::Single < ThreadLevel::Multiple);
}
