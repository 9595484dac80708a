//! `#[derive(Datum)]`: what of the contract of `Datum` a struct keeps by its form is checked here, what it keeps by
//! its fields' types by the compiler.
//!
//! Any bytes are a value of a struct if they are of all its fields. Padding there is none if the struct is as
//! large as its fields together. That is a constant where the struct has no parameters; where it has, it must follow
//! from the form, because nothing would look at the constant of each use.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::punctuated::Punctuated;
use syn::{Data, DeriveInput, Error, Fields, Meta, Result, Token, Type, parse_quote};

use crate::library;

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let name = &input.ident;
    let library = library::of_struct(input)?;
    let fields = match &input.data {
        Data::Struct(data) => &data.fields,
        Data::Enum(data) => {
            let what = "an enum is no Datum: not all bytes are a value of it, and other PEs can write any. Store its \
                        number (`Kind::Solid as u32`), and convert what is read";
            return Err(Error::new(data.enum_token.span, what));
        }
        Data::Union(data) => {
            let what = "a union is no Datum: what is in it is not known when it is copied. Make it a struct";
            return Err(Error::new(data.union_token.span, what));
        }
    };
    if fields.is_empty() {
        let what = "a struct without fields is no Datum: there is nothing of it to copy";
        return Err(Error::new_spanned(name, what));
    }
    let repr = Repr::of(input)?;
    let types: Vec<&Type> = fields.iter().map(|field| &field.ty).collect();
    let generic = !input.generics.params.is_empty();
    if generic {
        repr.check_generic(input, &types)?;
    }
    let mut generics = input.generics.clone();
    if generic {
        for parameter in input.generics.type_params() {
            let ident = &parameter.ident;
            let bound = quote_spanned!(ident.span()=> #ident: #library::Datum);
            generics
                .make_where_clause()
                .predicates
                .push(parse_quote!(#bound));
        }
    }
    let (parameters, arguments, bounds) = generics.split_for_impl();
    let of_fields = of_fields(fields, &types);
    let alike = generic.then(|| alike(&types));
    let members = fields.members();
    let values = (0..types.len()).map(|i| format_ident!("field_{i}"));
    let given = values.clone();
    let layout = (!generic).then(|| layout(input, &types));
    Ok(quote! {
        #[automatically_derived]
        // SAFETY: each field's type is a `Datum` by the function below, so that any bytes are a value and pointers
        // are none. There is no padding, and no greater alignment, by the constant below; or, with parameters, by
        // the form of the struct, which the macro has looked at.
        unsafe impl #parameters #library::Datum for #name #arguments #bounds {}
        const _: () = {
            #layout
            #[allow(dead_code)]
            fn fields #parameters () #bounds {
                fn datum<T: #library::Datum>() {}
                #of_fields
                #alike
            }
            // The struct itself, which another macro may have changed behind this one.
            #[allow(dead_code, unused_variables)]
            fn as_written #parameters (it: #name #arguments) #bounds {
                let #name { #(#members: #values),* } = it;
                #(let _: #types = #given;)*
            }
        };
    })
}

/// That the types are one: what is written alike, a macro or a path through another one's crate, may not be.
fn alike(types: &[&Type]) -> TokenStream {
    let first = element(types[0]);
    let others = types[1..].iter().map(|ty| element(ty));
    quote!(#(let _: fn(#first) -> #others = |it| it;)*)
}

/// Asks of each field that its type is a `Datum`, at its place.
fn of_fields(fields: &Fields, types: &[&Type]) -> TokenStream {
    let asked = fields.iter().zip(types).map(|(_, ty)| {
        let span = syn::spanned::Spanned::span(ty);
        quote_spanned!(span=> datum::<#ty>();)
    });
    quote!(#(#asked)*)
}

/// The constant that does not compile where there is padding.
fn layout(input: &DeriveInput, types: &[&Type]) -> TokenStream {
    let name = &input.ident;
    let padded = format!(
        "`{name}` has padding, whose bytes have no value: put the fields with the greatest alignment first, and make \
         what is missing a field, such as `unused: [u8; 4]`"
    );
    let aligned =
        format!("`{name}` has an alignment of more than 64, and symmetric memory has not");
    // At the struct's name, as errors of the form are.
    let size = format_ident!("size_of", span = name.span());
    quote_spanned! {name.span()=>
        ::core::assert!(
            ::core::mem::#size::<#name>() == #(::core::mem::size_of::<#types>())+*,
            #padded
        );
        ::core::assert!(::core::mem::align_of::<#name>() <= 64, #aligned);
    }
}

/// What `#[repr(...)]` says, as far as it matters here.
#[derive(Default)]
struct Repr {
    c: bool,
    transparent: bool,
    /// `align` or `packed`.
    other: Option<Span>,
}

impl Repr {
    fn of(input: &DeriveInput) -> Result<Self> {
        let mut found = Self::default();
        for attribute in input.attrs.iter().filter(|a| a.path().is_ident("repr")) {
            let list =
                attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)?;
            for word in list {
                if word.path().is_ident("C") {
                    found.c = true;
                } else if word.path().is_ident("transparent") {
                    found.transparent = true;
                } else {
                    found.other = Some(syn::spanned::Spanned::span(&word));
                }
            }
        }
        if found.c || found.transparent {
            return Ok(found);
        }
        let what = "a Datum needs `#[repr(C)]` (or `#[repr(transparent)]`): without it the order of the fields may \
                    differ between programs";
        Err(Error::new_spanned(&input.ident, what))
    }

    /// Whether there is no padding whatever the parameters stand for.
    fn check_generic(&self, input: &DeriveInput, types: &[&Type]) -> Result<()> {
        if let Some(lifetime) = input.generics.lifetimes().next() {
            let what = "a Datum has no references: they mean nothing to other PEs";
            return Err(Error::new_spanned(lifetime, what));
        }
        if self.transparent {
            return Ok(());
        }
        if let Some(span) = self.other {
            let what = "a Datum with parameters has no other layout than `#[repr(C)]` or `#[repr(transparent)]`";
            return Err(Error::new(span, what));
        }
        // Field after field of one size and one alignment.
        // The compiler looks, too: here it is said in better words.
        let first = written(element(types[0]));
        let is_other = |ty: &&&Type| written(element(ty)) != first;
        match types.iter().find(is_other) {
            None => Ok(()),
            Some(other) => {
                let what = "a Datum with parameters has fields of one type, or arrays of it: of others padding would \
                            depend on the parameters. Write the struct for the types that are needed";
                Err(Error::new_spanned(other, what))
            }
        }
    }
}

/// What an array is of, if it is one.
fn element(mut ty: &Type) -> &Type {
    while let Type::Array(array) = ty {
        ty = &array.elem;
    }
    ty
}

fn written(ty: &Type) -> String {
    ty.to_token_stream().to_string()
}
