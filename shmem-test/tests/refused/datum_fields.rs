//! Structs with fields that are no `Datum`s, and functions that take one.

#[derive(Clone, Copy, Debug, shmem::Datum)]
#[repr(C)]
struct Flagged {
    a: u8,
    flag: bool,
}

#[derive(Clone, Copy, Debug, shmem::Datum)]
#[repr(transparent)]
struct Pointer(&'static u64);

#[derive(Clone, Copy, Debug, shmem::Datum)]
#[repr(C)]
struct Pair<T> {
    a: T,
    b: T,
}

fn main() {
    let _ = shmem::alloc::<char>(1);
    let _ = shmem::alloc::<Pair<bool>>(1);
}
