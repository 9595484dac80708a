//! Structs with bytes that have no value.

#[derive(Clone, Copy, Debug, shmem::Datum)]
#[repr(C)]
struct Between {
    a: u8,
    b: u32,
}

#[derive(Clone, Copy, Debug, shmem::Datum)]
#[repr(C)]
struct Behind(u64, u16);

#[derive(Clone, Copy, Debug, shmem::Datum)]
#[repr(C, align(128))]
struct Wide {
    a: [u64; 16],
}

fn main() {}
