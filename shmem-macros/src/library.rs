//! The path of the library in the program: `::shmem`, unless the program says otherwise, because its manifest renames the
//! library, or another crate passes the library on.

use proc_macro2::TokenStream;
use syn::parse::{Parse, ParseStream};
use syn::{DeriveInput, Error, Path, Result, Token, parse_quote};

/// The path where nothing is said.
pub(crate) fn usual() -> Path {
    parse_quote!(::shmem)
}

/// `crate = path`.
struct Renamed(Path);

impl Parse for Renamed {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        input.parse::<Token![crate]>()?;
        input.parse::<Token![=]>()?;
        let path = input.call(Path::parse_mod_style)?;
        input.parse::<Option<Token![,]>>()?;
        Ok(Self(path))
    }
}

/// What `#[shmem(crate = path)]` says above a struct.
pub(crate) fn of_struct(input: &DeriveInput) -> Result<Path> {
    let mut found = None;
    for attribute in input.attrs.iter().filter(|a| a.path().is_ident("shmem")) {
        let Renamed(path) = attribute.parse_args()?;
        if found.replace(path).is_some() {
            return Err(Error::new_spanned(attribute, "`crate` is given twice"));
        }
    }
    Ok(found.unwrap_or_else(usual))
}

/// What the parentheses of an attribute say that takes nothing else: `(crate = path)`.
pub(crate) fn of_arguments(args: TokenStream, which: &str) -> Result<Path> {
    if args.is_empty() {
        return Ok(usual());
    }
    let text = format!("#[{which}] takes no arguments but `crate = path`, the path of the library");
    let Renamed(path) = syn::parse2(args).map_err(|e| Error::new(e.span(), text))?;
    Ok(path)
}
