//! A program whose static data is symmetric, as that of C programs is: `statics` checks all of it on
//! every PE, `statics why` prints why a static variable is not symmetric, or that it is.

use std::cell::UnsafeCell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use shmem::raw::{self, addr_accessible, symmetric};
use shmem::{
    Cmp, SymSlice, ThreadLevel, atomic_fetch_add, barrier_all, broadcast, get, my_pe, n_pes,
    node_of, p, put, wait_until,
};

/// The launcher leaves room for static data.
#[used]
#[unsafe(link_section = ".note.shmem")]
static NOTE: raw::Note = raw::Note::WITH_STATICS;

const LARGE: usize = 1 << 20;

/// Memory that any PE may write.
#[repr(C, align(64))]
struct Shared<const N: usize>(UnsafeCell<[u64; N]>);

// SAFETY: it is accessed through the library, by address.
unsafe impl<const N: usize> Sync for Shared<N> {}

impl<const N: usize> Shared<N> {
    const fn new(words: [u64; N]) -> Self {
        Self(UnsafeCell::new(words))
    }

    #[track_caller]
    fn array(&self) -> SymSlice<u64> {
        let at = self.0.get().cast::<u8>().cast_const();
        let sym =
            symmetric(at, N * 8).unwrap_or_else(|| panic!("{}", raw::why_not_symmetric(at, N * 8)));
        // SAFETY: the address of `N` aligned words.
        unsafe { SymSlice::from_addr(sym, N) }
    }
}

static DATA: Shared<4> = Shared::new([11, 22, 33, 44]);
static ZERO: Shared<4> = Shared::new([0; 4]);
static BIG: Shared<LARGE> = Shared::new([0; LARGE]);
static COUNT: AtomicU64 = AtomicU64::new(5);
static BEFORE: AtomicUsize = AtomicUsize::new(0);
static LIST: Mutex<Vec<u64>> = Mutex::new(Vec::new());
static CONSTANT: [u64; 64] = [9; 64];

fn main() -> Result<(), shmem::Error> {
    // What static data holds before stays.
    BEFORE.store(77, Ordering::Relaxed);
    LIST.lock().expect("no panic").extend([1, 2, 3]);
    raw::init(ThreadLevel::Multiple)?;
    match std::env::args().nth(1).as_deref() {
        Some("why") => {
            let at = (&raw const COUNT).cast();
            match symmetric(at, 8) {
                Some(_) => println!("PE {}: symmetric", my_pe()),
                None => println!("PE {}: {}", my_pe(), raw::why_not_symmetric(at, 8)),
            }
        }
        None => check(),
        Some(other) => panic!("there is no check {other}"),
    }
    raw::finalize();
    Ok(())
}

fn check() {
    assert_eq!(BEFORE.load(Ordering::Relaxed), 77);
    assert_eq!(*LIST.lock().expect("no panic"), [1, 2, 3]);
    LIST.lock().expect("no panic").push(my_pe() as u64);
    what_is_symmetric();
    forked_children_have_their_own();
    barrier_all();
    copies();
    barrier_all();
    atomics_and_pointers();
    barrier_all();
    if my_pe() == 0 {
        println!("static data checked on {} PEs", n_pes());
    }
}

fn what_is_symmetric() {
    let here = 0u64;
    let private = Box::new(1u64);
    std::thread_local!(static LOCAL: u64 = const { 3 });
    let local = LOCAL.with(|v| &raw const *v).cast::<u8>();
    let heap = raw::allocate(64, 1, false).expect("room for a line");
    let bytes = |at: *const u64| at.cast::<u8>();
    for (at, is, what) in [
        (bytes((&raw const COUNT).cast()), true, "a word"),
        (bytes(BIG.0.get().cast()), true, "a large array"),
        (
            bytes(BIG.0.get().cast::<u64>().wrapping_add(LARGE - 1)),
            true,
            "its end",
        ),
        (heap.cast_const(), true, "the heap"),
        (bytes(&raw const here), false, "the stack"),
        (bytes(&raw const *private), false, "private memory"),
        (local, false, "a thread-local"),
        (bytes((&raw const CONSTANT).cast()), false, "a constant"),
        (main as *const u8, false, "a function"),
        (unsafe_environ(), false, "another library's variable"),
        (std::ptr::null(), false, "null"),
    ] {
        assert_eq!(symmetric(at, 8).is_some(), is, "{what}");
        for pe in 0..n_pes() {
            assert_eq!(addr_accessible(at, pe), is, "{what} on PE {pe}");
        }
        assert!(!addr_accessible(at, n_pes()), "{what}");
    }
    let sym = symmetric((&raw const COUNT).cast(), 8).expect("just seen");
    assert_eq!(raw::local(sym).cast_const(), (&raw const COUNT).cast());
    raw::release(heap).expect("it was allocated");
}

/// A variable of the C library that is not copied into the program.
fn unsafe_environ() -> *const u8 {
    // SAFETY: the name is NUL-terminated.
    unsafe {
        libc::dlsym(libc::RTLD_DEFAULT, c"mallopt".as_ptr())
            .cast_const()
            .cast()
    }
}

/// What a child writes is not seen here, and it sees what was there.
fn forked_children_have_their_own() {
    let words = ZERO.array();
    words.write(1, 6);
    // SAFETY: the child only touches static data and ends.
    let status = unsafe {
        let child = libc::fork();
        if child == 0 {
            let own = ZERO.0.get().cast::<u64>();
            let seen =
                own.add(1).read_volatile() == 6 && BIG.0.get().cast::<u64>().read_volatile() == 0;
            own.add(1).write_volatile(1000);
            BIG.0.get().cast::<u64>().add(5000).write_volatile(1000);
            libc::_exit(if seen { 0 } else { 1 });
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        status
    };
    assert_eq!(status, 0);
    assert_eq!(words.read(1), 6);
    assert_eq!(BIG.array().read(5000), 0);
    words.write(1, 0);
}

fn copies() {
    let (me, n) = (my_pe(), n_pes());
    let (left, right) = ((me + n - 1) % n, (me + 1) % n);
    let (data, zero, big) = (DATA.array(), ZERO.array(), BIG.array());
    let mut seen = [0; 4];
    get(&mut seen, data, right);
    assert_eq!(seen, [11, 22, 33, 44]);
    put(zero, &[me as u64 + 1; 3], right);
    p(zero.elem(3), 1, right);
    wait_until(zero.elem(3), Cmp::Eq, 1);
    barrier_all();
    assert_eq!(
        zero.to_vec(),
        [left as u64 + 1, left as u64 + 1, left as u64 + 1, 1]
    );
    // From static data to static data, with the heap in between.
    let mine = vec![me as u64 + 3; LARGE];
    put(big, &mine, right);
    barrier_all();
    assert!(big.to_vec().iter().all(|&v| v == left as u64 + 3));
    // The program sees it at its own address.
    // SAFETY: nobody writes it now.
    let last = unsafe { BIG.0.get().cast::<u64>().add(LARGE - 1).read_volatile() };
    assert_eq!(last, left as u64 + 3);
    let heap = shmem::alloc::<u64>(4).expect("room for words");
    broadcast(heap, data, n - 1);
    assert_eq!(heap.to_vec(), [11, 22, 33, 44]);
    data.write(0, 100 + me as u64);
    barrier_all();
    broadcast(zero, data, 0);
    assert_eq!(zero.to_vec(), [100, 22, 33, 44]);
    shmem::free(heap).expect("it was allocated");
}

fn atomics_and_pointers() {
    let (me, n) = (my_pe(), n_pes());
    let sym = symmetric((&raw const COUNT).cast(), 8).expect("a static");
    // SAFETY: the address of an aligned word.
    let count = unsafe { SymSlice::<u64>::from_addr(sym, 1) };
    for pe in 0..n {
        for _ in 0..10 {
            atomic_fetch_add(count, 1, pe);
        }
    }
    barrier_all();
    assert_eq!(COUNT.load(Ordering::SeqCst), 5 + 10 * n as u64);
    barrier_all();
    for pe in 0..n {
        let at = raw::ptr(sym, pe);
        assert_eq!(at.is_some(), node_of(pe) == node_of(me), "PE {pe}");
        if let Some(at) = at {
            // SAFETY: a word of shared memory that everybody uses atomically.
            unsafe { AtomicU64::from_ptr(at.cast()) }.fetch_add(1000, Ordering::SeqCst);
        }
    }
    assert_eq!(raw::ptr(sym, n), None);
    barrier_all();
    let here = (0..n).filter(|&pe| node_of(pe) == node_of(me)).count() as u64;
    assert_eq!(
        COUNT.load(Ordering::SeqCst),
        5 + 10 * n as u64 + 1000 * here
    );
    assert_eq!(LIST.lock().expect("no panic").len(), 4);
}
