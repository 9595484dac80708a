//! The macros of [shmem-core](https://docs.rs/shmem-core), which has them under its own name: `shmem::Datum`,
//! `shmem::main`, `shmem::test`. Nobody needs this crate by itself.
//!
//! A macro looks at what stands before it and refuses what cannot be meant, at its place. What depends on types
//! is left to the compiler: it finds bounds and constants in the expansion, with messages of ours.
//!
//! What the macros do is described in a file each, `*.md`: shmem-test tests the programs in them.

mod arithmetic;
mod datum;
mod function;
mod library;
mod test;

use proc_macro::TokenStream;

#[doc = include_str!("datum.md")]
#[proc_macro_derive(Datum, attributes(shmem))]
pub fn derive_datum(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    datum::derive(&input)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

#[doc = include_str!("arithmetic.md")]
#[proc_macro_derive(Arithmetic, attributes(shmem))]
pub fn derive_arithmetic(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    arithmetic::derive(&input)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

#[doc = include_str!("main.md")]
#[proc_macro_attribute]
pub fn main(args: TokenStream, item: TokenStream) -> TokenStream {
    function::main(args.into(), item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

#[doc = include_str!("test.md")]
#[proc_macro_attribute]
pub fn test(args: TokenStream, item: TokenStream) -> TokenStream {
    test::test(args.into(), item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
