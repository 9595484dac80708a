//! Nothing to do, unless the bindings are to be made anew: see README.md.

#[cfg(feature = "generate")]
#[path = "generate.rs"]
mod generate;

fn main() {
    #[cfg(feature = "generate")]
    generate::generate();
}
