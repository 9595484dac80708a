//! The page that says what of OpenSHMEM 1.6 there is: `docs/spec-coverage.md`.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::routines::{Chapter, Contexts, Routine, Status, chapters, functions};
use crate::types::Types;

const HEAD: &str = "\
# What of OpenSHMEM 1.6 there is

This page is made from the table in `shmem-capi/table`, as are the C headers and the exported functions:
`UPDATE_DOCS=1 cargo test -p shmem-capi` writes it anew. `T` stands for a type, `N` for a width in bits. Every C
function exists a second time as `p...` for profiling tools.
";

/// The page.
#[must_use]
pub fn page() -> String {
    let mut out = HEAD.to_owned();
    let count = |status| {
        functions()
            .iter()
            .filter(|(routine, _)| routine.status == status)
            .count()
    };
    let _ = write!(
        out,
        "\n{} C functions of the specification, {} deprecated ones that it demands, {} that it has dropped",
        count(Status::Current),
        count(Status::Deprecated),
        count(Status::Removed)
    );
    match count(Status::Extension) {
        0 => out.push_str(".\n"),
        n => out.push_str(&format!(", {n} extensions (`shmemx.h`).\n")),
    }
    for chapter in chapters() {
        section(&mut out, &chapter);
    }
    out
}

/// Rust source that compiles where all items exist that the page names.
#[must_use]
pub fn uses() -> String {
    let names: BTreeSet<String> = chapters()
        .iter()
        .flat_map(|chapter| &chapter.routines)
        .flat_map(Routine::rust_names)
        .collect();
    let (mut items, mut methods) = (String::new(), String::new());
    for name in names {
        match name.split_once("::") {
            // A method that takes one element, whose type a mere name does not say. The free function of the same name
            // stands for it: one macro makes both, and checks of the suites call those of `Nbi`.
            Some((_, method)) if method.starts_with("atomic_") || method.contains("signal") => {
                let _ = writeln!(items, "    use shmem::{} as _;", untyped(method));
            }
            Some((ty, method)) if ty.starts_with(char::is_uppercase) => {
                let of = match ty {
                    "Context" | "ContextBuilder" | "Nbi" => "::<Shareable>",
                    "SymSlice" => "::<u64>",
                    _ => "",
                };
                let method = method.replace("::<T", "::<u64");
                let _ = writeln!(methods, "    let _ = {ty}{of}::{method};");
            }
            _ => {
                let _ = writeln!(items, "    use shmem::{} as _;", untyped(&name));
            }
        }
    }
    format!(
        "#[allow(unused_imports, reason = \"that they are there is enough\")]\n\
         fn names() {{\n{items}    use shmem::*;\n{methods}}}\n"
    )
}

/// A path without type arguments.
fn untyped(name: &str) -> &str {
    name.split_once("::<").map_or(name, |(path, _)| path)
}

fn section(out: &mut String, chapter: &Chapter) {
    let _ = writeln!(out, "\n## {}\n", chapter.title);
    let tests: Vec<String> = chapter.tests.iter().map(|t| format!("`{t}`")).collect();
    let _ = writeln!(out, "Tests: {}.\n", tests.join(", "));
    out.push_str(
        "| routine | functions | types | C11 name | Rust (`shmem::`) |\n|---|---|---|---|---|\n",
    );
    for routine in &chapter.routines {
        row(out, routine);
    }
}

fn row(out: &mut String, routine: &Routine) {
    let names: Vec<String> = routine.names().iter().map(|n| format!("`{n}`")).collect();
    let types = match routine.types {
        Types::None => String::new(),
        Types::Bytes => "bytes".to_owned(),
        Types::Widths(widths) => widths
            .iter()
            .map(u32::to_string)
            .collect::<Vec<_>>()
            .join(" "),
        Types::Set(types) => types.iter().map(|ty| ty.name).collect::<Vec<_>>().join(" "),
    };
    let code = |text: &str| match text {
        "" => String::new(),
        text => format!("`{text}`"),
    };
    let generic = routine.generic_name().map_or_else(String::new, |g| g.name);
    let (of_context, plain): (Vec<String>, Vec<String>) = routine
        .rust_names()
        .iter()
        .map(|name| code(untyped(name)))
        .partition(|name| routine.contexts == Contexts::Any && name.starts_with("`Context::"));
    let in_rust = match (&plain[..], &of_context[..]) {
        ([], _) => "none".to_owned(),
        (plain, []) => plain.join(", "),
        (plain, of_context) => format!(
            "{}; of a context {}",
            plain.join(", "),
            of_context.join(", ")
        ),
    };
    let _ = writeln!(
        out,
        "| {} | {} | {types} | {} | {in_rust} |",
        names.join(", "),
        routine.functions().len(),
        code(&generic)
    );
}
