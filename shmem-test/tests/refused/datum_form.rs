//! Structs that are no `Datum` by their form.

#[derive(Clone, Copy, Debug, shmem::Datum)]
struct NoRepr {
    a: u64,
}

#[derive(Clone, Copy, Debug, shmem::Datum)]
#[repr(u8)]
enum Kind {
    Solid,
    Liquid,
}

#[derive(Clone, Copy, shmem::Datum)]
#[repr(C)]
union Either {
    a: u64,
    b: f64,
}

#[derive(Clone, Copy, Debug, shmem::Datum)]
#[repr(C)]
struct Nothing;

#[derive(Clone, Copy, Debug, shmem::Datum)]
#[repr(C)]
struct Borrowed<'a> {
    a: &'a u64,
}

#[derive(Clone, Copy, Debug, shmem::Datum)]
#[repr(C)]
struct Mixed<T> {
    a: T,
    b: u64,
}

#[derive(Clone, Copy, Debug, shmem::Datum)]
#[repr(C, align(16))]
struct Aligned<T> {
    a: T,
}

fn main() {}
