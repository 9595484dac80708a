//! `#[shmem::test]`: what stands in its parentheses, and the tests that are made of a function.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{
    Attribute, Error, Expr, Lit, LitInt, LitStr, Meta, Path, Result, Token, bracketed,
    parenthesized,
};

use crate::function::Function;
use crate::library;

/// Where nothing else is said.
const PES: u32 = 4;
const SECONDS: u64 = 60;

/// The names of arguments.
const NAMES: &str =
    "pes = 4, nodes = 2, timeout = \"10s\", env(\"NAME\" = \"VALUE\"), crate = path";

/// A number, or a list of them.
struct Numbers {
    listed: bool,
    numbers: Vec<(u32, Span)>,
}

impl Numbers {
    fn one(number: u32) -> Self {
        Self {
            listed: false,
            numbers: vec![(number, Span::call_site())],
        }
    }
}

impl Parse for Numbers {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let number = |literal: &LitInt| {
            let number = literal.base10_parse::<u32>()?;
            match number {
                0 => Err(Error::new(literal.span(), "at least 1")),
                n => Ok((n, literal.span())),
            }
        };
        if !input.peek(syn::token::Bracket) {
            let literal: LitInt = input.parse()?;
            return Ok(Self {
                listed: false,
                numbers: vec![number(&literal)?],
            });
        }
        let content;
        let bracket = bracketed!(content in input);
        let literals = Punctuated::<LitInt, Token![,]>::parse_terminated(&content)?;
        let numbers: Vec<_> = literals.iter().map(number).collect::<Result<_>>()?;
        if numbers.is_empty() {
            return Err(Error::new(bracket.span.join(), "at least one number"));
        }
        for (at, (n, span)) in numbers.iter().enumerate() {
            if numbers[..at].iter().any(|(before, _)| before == n) {
                return Err(Error::new(*span, format!("{n} is in the list already")));
            }
        }
        Ok(Self {
            listed: true,
            numbers,
        })
    }
}

/// What stands in the parentheses.
struct Arguments {
    pes: Numbers,
    nodes: Numbers,
    seconds: u64,
    env: Vec<(LitStr, LitStr)>,
    library: Path,
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let (mut pes, mut nodes, mut seconds) = (None, None, None);
        let (mut env, mut library) = (Vec::new(), None);
        while !input.is_empty() {
            let name = input.call(Ident::parse_any)?;
            let once = |given: bool| match given {
                true => Err(Error::new(name.span(), format!("`{name}` is given twice"))),
                false => Ok(()),
            };
            match name.to_string().as_str() {
                "pes" => {
                    once(pes.is_some())?;
                    input.parse::<Token![=]>()?;
                    pes = Some(input.parse()?);
                }
                "nodes" => {
                    once(nodes.is_some())?;
                    input.parse::<Token![=]>()?;
                    nodes = Some(input.parse()?);
                }
                "timeout" => {
                    once(seconds.is_some())?;
                    input.parse::<Token![=]>()?;
                    seconds = Some(time(&input.parse()?)?);
                }
                "crate" => {
                    once(library.is_some())?;
                    input.parse::<Token![=]>()?;
                    library = Some(input.call(Path::parse_mod_style)?);
                }
                "env" => variables(input, &mut env)?,
                _ => {
                    let what = format!("`{name}` is none of the arguments: {NAMES}");
                    return Err(Error::new(name.span(), what));
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(Self {
            pes: pes.unwrap_or_else(|| Numbers::one(PES)),
            nodes: nodes.unwrap_or_else(|| Numbers::one(1)),
            seconds: seconds.unwrap_or(SECONDS),
            env,
            library: library.unwrap_or_else(library::usual),
        })
    }
}

/// A time in whole seconds, which is what the launcher's limit is in.
fn time(literal: &LitStr) -> Result<u64> {
    let text = literal.value();
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let scale = match unit.trim() {
        "s" => Some(1),
        "m" | "min" => Some(60),
        "h" => Some(3600),
        _ => None,
    };
    let seconds = scale.and_then(|scale| number.parse::<u64>().ok()?.checked_mul(scale));
    match seconds {
        Some(seconds @ 1..=1_000_000) => Ok(seconds),
        _ => {
            let what = "a time of at least a second, in whole seconds, such as \"10s\" or \"2min\"";
            Err(Error::new(literal.span(), what))
        }
    }
}

fn variables(input: ParseStream<'_>, env: &mut Vec<(LitStr, LitStr)>) -> Result<()> {
    let content;
    parenthesized!(content in input);
    while !content.is_empty() {
        let name: LitStr = content.parse()?;
        content.parse::<Token![=]>()?;
        let value: LitStr = content.parse()?;
        let text = name.value();
        if text.is_empty() || text.contains(['=', '\0']) {
            return Err(Error::new(name.span(), "no name of a variable"));
        }
        if value.value().contains('\0') {
            return Err(Error::new(value.span(), "a variable has no zero bytes"));
        }
        if env.iter().any(|(before, _)| before.value() == text) {
            return Err(Error::new(name.span(), format!("`{text}` is given twice")));
        }
        env.push((name, value));
        if !content.is_empty() {
            content.parse::<Token![,]>()?;
        }
    }
    Ok(())
}

/// What the panic of a PE has to say, if one is to panic: `#[should_panic(expected = "...")]`.
fn expected(attribute: &Attribute) -> Result<LitStr> {
    let text = |value: &Expr| match value {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => Ok(text.clone()),
            other => Err(Error::new_spanned(other, "a text")),
        },
        other => Err(Error::new_spanned(other, "a text")),
    };
    match &attribute.meta {
        Meta::Path(path) => Ok(LitStr::new("", path.span())),
        Meta::NameValue(pair) => text(&pair.value),
        Meta::List(list) => {
            let pair: syn::MetaNameValue = list.parse_args()?;
            match pair.path.is_ident("expected") {
                true => text(&pair.value),
                false => Err(Error::new_spanned(
                    pair.path,
                    "should_panic takes `expected` alone",
                )),
            }
        }
    }
}

/// The other attributes of a test.
struct Attributes {
    /// What the panic has to say, if the test is to panic.
    panics: Option<LitStr>,
    /// Those that each `#[test]` gets.
    of_tests: Vec<Attribute>,
    /// Those of the function.
    of_all: Vec<Attribute>,
}

impl Attributes {
    /// Takes them from the function.
    fn take(function: &mut Function) -> Result<Self> {
        let mut found = Self {
            panics: None,
            of_tests: Vec::new(),
            of_all: Vec::new(),
        };
        for attribute in std::mem::take(&mut function.item.attrs) {
            let last = attribute
                .path()
                .segments
                .last()
                .map(|s| s.ident.to_string());
            match last.as_deref() {
                Some("test" | "bench") => {
                    let what = "#[shmem::test] makes a test already, which every PE of its job calls: one of the two \
                                has to go";
                    return Err(Error::new_spanned(attribute, what));
                }
                Some("should_panic") => found.panics = Some(expected(&attribute)?),
                Some("ignore") => found.of_tests.push(attribute),
                _ => found.of_all.push(attribute),
            }
        }
        if let (Some(_), syn::ReturnType::Type(_, ty)) = (&found.panics, &function.item.sig.output)
        {
            let what = "a test that should panic gives nothing, as without #[shmem::test]";
            return Err(Error::new_spanned(ty, what));
        }
        Ok(found)
    }
}

/// `#[shmem::test]`.
pub(crate) fn test(args: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let arguments: Arguments = syn::parse2(args)?;
    let mut function = Function::parse("shmem::test", item)?;
    let attributes = Attributes::take(&mut function)?;
    let name = function.name().clone();
    let layouts = layouts(&arguments)?;
    let (of_tests, of_all) = (&attributes.of_tests, &attributes.of_all);
    let panics = match &attributes.panics {
        Some(text) => quote!(::core::option::Option::Some(#text)),
        None => quote!(::core::option::Option::None),
    };
    let job = |test: &Ident, path: &TokenStream, pes: u32, nodes: u32| {
        let library = &arguments.library;
        let run = function.run(library, path);
        let (seconds, env) = (arguments.seconds, arguments.env.iter());
        let env = env.map(|(name, value)| quote!((#name, #value)));
        let last = test.to_string();
        let last = last.trim_start_matches("r#");
        quote! {
            #library::for_macros::test(
                &#library::for_macros::Test {
                    name: ::core::concat!(::core::module_path!(), "::", #last),
                    pes: #pes,
                    nodes: #nodes,
                    seconds: #seconds,
                    env: &[#(#env),*],
                    panics: #panics,
                },
                || #run,
            )
        }
    };
    let inner = &function.item;
    if let [(None, pes, nodes)] = layouts[..] {
        let job = job(&name, &quote!(#name), pes, nodes);
        return Ok(quote! {
            #(#of_all)*
            #(#of_tests)*
            #[::core::prelude::v1::test]
            fn #name() {
                #inner
                #job
            }
        });
    }
    let tests = layouts.iter().map(|(suffix, pes, nodes)| {
        let test = format_ident!("{}", suffix.as_deref().unwrap_or("job"), span = name.span());
        let job = job(&test, &quote!(super::#name), *pes, *nodes);
        quote! {
            #(#of_tests)*
            #[::core::prelude::v1::test]
            fn #test() {
                #job
            }
        }
    });
    let of_module = of_all
        .iter()
        .filter(|a| a.path().is_ident("cfg") || a.path().is_ident("allow"));
    Ok(quote! {
        #(#of_all)*
        #inner
        #(#of_module)*
        mod #name {
            #(#tests)*
        }
    })
}

/// The jobs to be run: what is added to the test's name where there are lists, PEs and nodes.
fn layouts(arguments: &Arguments) -> Result<Vec<(Option<String>, u32, u32)>> {
    let Arguments { pes, nodes, .. } = arguments;
    let mut out = Vec::new();
    for &(p, _) in &pes.numbers {
        for &(n, span) in &nodes.numbers {
            if n > p {
                let what = format!("{n} nodes have {p} PEs: each node takes one at least");
                return Err(Error::new(span, what));
            }
            let of_pes = pes.listed.then(|| format!("pes_{p}"));
            let of_nodes = nodes.listed.then(|| format!("nodes_{n}"));
            let parts: Vec<_> = of_pes.into_iter().chain(of_nodes).collect();
            out.push(((!parts.is_empty()).then(|| parts.join("_")), p, n));
        }
    }
    Ok(out)
}
