//! `#[derive(Arithmetic)]`: sum and product field by field.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Data, DeriveInput, Error, Result, parse_quote};

use crate::library;

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let name = &input.ident;
    let library = library::of_struct(input)?;
    let Data::Struct(data) = &input.data else {
        let what = "only a struct is `Arithmetic` field by field";
        return Err(Error::new_spanned(name, what));
    };
    let mut generics = input.generics.clone();
    for parameter in input.generics.type_params() {
        let ident = &parameter.ident;
        let bound = quote_spanned!(ident.span()=> #ident: #library::Arithmetic);
        let clause = generics.make_where_clause();
        clause.predicates.push(parse_quote!(#bound));
    }
    let (parameters, arguments, bounds) = generics.split_for_impl();
    let method = |method: TokenStream| {
        let fields = data.fields.iter().zip(data.fields.members());
        let fields = fields.map(|(field, member)| {
            // At the field, but with names of this macro's own place: `self` may stand in a macro of the program's.
            let at = syn::spanned::Spanned::span(&field.ty);
            let span = Span::call_site().located_at(at);
            quote_spanned!(span=> #member: #library::Arithmetic::#method(self.#member, other.#member))
        });
        quote! {
            #[inline]
            fn #method(self, other: Self) -> Self {
                Self { #(#fields),* }
            }
        }
    };
    let (plus, times) = (method(quote!(plus)), method(quote!(times)));
    Ok(quote! {
        #[automatically_derived]
        impl #parameters #library::Arithmetic for #name #arguments #bounds {
            #plus
            #times
        }
    })
}
