//! The page that says what of OpenSHMEM 1.6 there is: `docs/spec-coverage.md`.

use std::fmt::Write;

use crate::routines::{Chapter, Context, Routine, Status, chapters, functions};
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
    let _ = writeln!(
        out,
        "\n{} C functions of the specification, {} deprecated ones that it demands, {} that it has dropped.",
        count(Status::Current),
        count(Status::Deprecated),
        count(Status::Removed)
    );
    for chapter in chapters() {
        section(&mut out, &chapter);
    }
    out
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
    let generic = routine.generic.map_or("", |generic| generic.name);
    let names_in_rust: Vec<String> = routine.rust.split(", ").map(code).collect();
    let in_rust = names_in_rust.join(", ");
    let note = match (routine.context, routine.rust) {
        (_, "") => "none".to_owned(),
        // A scope of non-blocking operations belongs to a context itself.
        (Context::Any, rust) if !rust.contains("::") => {
            format!(
                "{in_rust}; of a context {}",
                code(&format!("Context::{rust}"))
            )
        }
        _ => in_rust,
    };
    let _ = writeln!(
        out,
        "| {} | {} | {types} | {} | {note} |",
        names.join(", "),
        routine.functions().len(),
        code(generic)
    );
}
