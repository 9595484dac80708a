//! Functions that every PE of a job calls: what `main` and `test` have in common, and `main`.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::spanned::Spanned as _;
use syn::{Error, ItemFn, Path, Result, Safety};

use crate::library;

/// A function that can be the program of a job.
pub(crate) struct Function {
    pub(crate) item: ItemFn,
}

impl Function {
    /// Looks at `item`, which stands below the attribute `which`.
    pub(crate) fn parse(which: &str, item: TokenStream) -> Result<Self> {
        let not_one = |e: Error| {
            Error::new(
                e.span(),
                format!("#[{which}] stands before a function: {e}"),
            )
        };
        let item: ItemFn = syn::parse2(item).map_err(not_one)?;
        let signature = &item.sig;
        let refuse = |span, what: &str| Err(Error::new(span, format!("#[{which}]: {what}")));
        if let Some(word) = &signature.asyncness {
            let what = "an async function would need a runtime, whose threads wait for none of shmem's operations";
            return refuse(word.span(), what);
        }
        if let Some(word) = &signature.constness {
            return refuse(word.span(), "a const function is no program");
        }
        if let Safety::Unsafe(word) = &signature.safety {
            return refuse(
                word.span(),
                "nobody could keep what an unsafe function asks for",
            );
        }
        if let Some(word) = &signature.abi {
            return refuse(word.span(), "the function is called by Rust");
        }
        if !signature.generics.params.is_empty() {
            let what = "the function has no parameters of types: nobody could choose them";
            return refuse(signature.generics.span(), what);
        }
        if let Some(too_much) = signature.inputs.iter().nth(1) {
            let what = "the function takes `world: &World`, or nothing";
            return refuse(too_much.span(), what);
        }
        Ok(Self { item })
    }

    pub(crate) fn name(&self) -> &Ident {
        &self.item.sig.ident
    }

    /// An expression that runs it, being called `path`, from init to finalize of `library`.
    pub(crate) fn run(&self, library: &Path, path: &TokenStream) -> TokenStream {
        // Of this macro alone: the function itself may be called so.
        let world = Ident::new("world", Span::mixed_site());
        let given = (!self.item.sig.inputs.is_empty()).then_some(&world);
        quote! {
            #library::run(|#world| {
                let _ = #world;
                #library::for_macros::Outcome::of_a_pe(#path(#given))
            })
        }
    }
}

/// `#[shmem::main]`.
pub(crate) fn main(args: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let library = library::of_arguments(args, "shmem::main")?;
    let mut function = Function::parse("shmem::main", item)?;
    if function.name() != "main" {
        let what = "#[shmem::main] is for the function `main`; elsewhere there is `shmem::run`";
        return Err(Error::new_spanned(function.name(), what));
    }
    let attributes = std::mem::take(&mut function.item.attrs);
    let run = function.run(&library, &quote!(main));
    let inner = &function.item;
    Ok(quote! {
        #(#attributes)*
        fn main() {
            #inner
            #run
        }
    })
}
