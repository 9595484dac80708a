//! The headers by themselves, as compilers of old and new standards see them when they are strict.

use std::io::Write;
use std::process::Stdio;

use shmem_testkit::text;
use shmem_testkit::tools::{CC, CXX, Tool};

use super::toolchain::{scratch, toolchain};

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

/// musl's headers define no `__GLIBC__`, nor do these stand-ins. Programs would link there, and fail when they start.
#[test]
fn headers_of_another_c_library_are_refused() {
    let Some(c) = toolchain() else { return };
    let dir = scratch().join("musl");
    std::fs::create_dir_all(&dir).unwrap();
    for header in ["stddef.h", "stdint.h"] {
        std::fs::write(dir.join(header), "").unwrap();
    }
    let source = dir.join("program.c");
    std::fs::write(&source, "#include <shmem.h>\n").unwrap();
    let output = CC
        .command()
        .args(["-nostdinc", "-fsyntax-only", "-I"])
        .arg(&dir)
        .arg("-I")
        .arg(c.prefix.join("include"))
        .arg(&source)
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert!(!output.status.success(), "{said}");
    let wanted = "libshmem is for programs with glibc; the headers here are those of another";
    assert!(said.contains(wanted), "{said}");
}
