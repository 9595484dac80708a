//! The headers by themselves, as compilers of old and new standards see them when they are strict.

use std::io::Write;
use std::process::Stdio;

use shmem_testkit::text;
use shmem_testkit::tools::{CC, CXX, Tool};

use super::toolchain::toolchain;

/// What a compiler says about a file that includes a header twice and does nothing else.
fn complaints(compiler: Tool, language: &str, standard: &str, header: &str) -> String {
    let Some(c) = toolchain() else {
        return String::new();
    };
    let mut child = compiler
        .command()
        .args(["-x", language, &format!("-std={standard}")])
        .args(["-pedantic", "-Wall", "-Wextra", "-fsyntax-only"])
        // Not as a system header, of which nothing would be said.
        .arg("-I")
        .arg(c.prefix.join("include"))
        .arg("-")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let source = format!("#include <{header}>\n#include <{header}>\nextern int nothing;\n");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(source.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    format!(
        "{}{}",
        text(&output.stderr),
        match output.status.success() {
            true => "",
            false => "does not compile",
        }
    )
}

#[test]
fn strict_compilers_have_no_complaints() {
    for (compiler, language, standards) in [
        (CC, "c", &["c89", "c99", "c11", "gnu17"][..]),
        (CXX, "c++", &["c++98", "c++11", "c++17", "c++20"][..]),
    ] {
        for standard in standards {
            for header in [
                "shmem.h",
                "pshmem.h",
                "shmemx.h",
                "mpp/shmem.h",
                "shmem_pmi2.h",
            ] {
                let said = complaints(compiler, language, standard, header);
                assert_eq!(said, "", "{header} as {standard}");
            }
        }
    }
}
