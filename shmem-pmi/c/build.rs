//! Names the library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // What programs ask for at run time, whichever file name the library was installed under.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libshmem_pmi2.so.1");
    // A program that closes it again must not unmap it: threads of libpmix may call it back.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
