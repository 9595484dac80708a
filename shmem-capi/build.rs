//! Renders the exported functions, the constants and a test from the table, and names the library.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let out = Path::new(&out);
    fs::write(out.join("exports.rs"), shmem_table::exports::rust())?;
    fs::write(out.join("constants.rs"), shmem_table::constants::rust())?;
    fs::write(out.join("rust_names.rs"), shmem_table::coverage::uses())?;
    // What programs ask for at run time, whichever file name the library was installed under.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libshmem.so.1");
    // A program that has opened it and closes it again must not unmap it: threads run in it, and
    // the C library keeps handlers for exit and fork.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    Ok(())
}
