//! Types that are written alike and are not the same.
#![allow(unused_braces)]

trait Pick {
    type Out: shmem::Datum;
}
struct Line<const L: u32>;
impl Pick for Line<18> {
    type Out = u8;
}
impl Pick for Line<19> {
    type Out = u32;
}

#[derive(Clone, Copy, Debug, shmem::Datum)]
#[repr(C)]
struct Alike<const N: usize> {
    a: <Line<{ line!() }> as Pick>::Out,
    b: <Line<{ line!() }> as Pick>::Out,
}

fn main() {}
