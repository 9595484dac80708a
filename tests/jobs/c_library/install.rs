//! What `cargo xtask install` makes, and that it can be moved and taken away.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use shmem_testkit::needs::skipped;
use shmem_testkit::tools::READELF;
use shmem_testkit::{Job, text};
use xtask::dist;
use xtask::install::{Destination, SONAME, install, uninstall};

use super::toolchain::{scratch, sources, toolchain};

fn run(command: &Path, args: &[&str]) -> Output {
    let mut running = Command::new(command);
    for compiler in ["CC", "CXX", "OSHCC_CC", "OSHCXX_CXX"] {
        running.env_remove(compiler);
    }
    let output = running.args(args).output();
    output.unwrap_or_else(|e| panic!("{}: {e}", command.display()))
}

fn words(command: &Path, args: &[&str]) -> String {
    let output = run(command, args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

#[test]
fn install_moves_and_uninstalls() {
    let Some(c) = toolchain() else { return };
    let stage = scratch().join("stage");
    let _ = fs::remove_dir_all(&stage);
    let staged = Destination::new(Path::new("/opt/shmem"), Some(&stage)).unwrap();
    assert!(uninstall(&staged).is_err(), "nothing is installed yet");
    let files = install(&c.products, &staged).unwrap();
    for file in [
        "bin/shmrun",
        "bin/shmem-info",
        "bin/oshcc",
        "bin/oshc++",
        "bin/oshCC",
        "bin/oshrun",
        "lib/libshmem.so",
        "lib/libshmem.a",
        "lib/libshmem_pmi2.so",
        "lib/libshmem_pmi2.so.1",
        "lib/libshmem_pmi2.a",
        "lib/shmem/note.o",
        "lib/pkgconfig/shmem.pc",
        "lib/pkgconfig/shmem_pmi2.pc",
        "include/shmem.h",
        "include/shmemx.h",
        "include/pshmem.h",
        "include/shmem_pmi2.h",
        "include/mpp/shmem.h",
        "include/mpp/shmemx.h",
        "share/man/man1/shmrun.1",
        "share/man/man1/oshcc.1",
        "share/man/man1/shmem-info.1",
        "share/man/man7/shmem.7",
        "share/bash-completion/completions/shmrun",
        "share/doc/shmem/LICENSE-MIT",
        "share/doc/shmem/LICENSE-APACHE",
        "share/doc/shmem/LICENSE-rdma-sys",
    ] {
        assert!(files.contains(&file.into()), "{file}");
        assert!(staged.root().join(file).exists(), "{file}");
    }
    // The library has code of rdma-sys, and so comes with its licence.
    let licence = Path::new("share/doc/shmem/LICENSE-rdma-sys");
    let text_of = fs::read_to_string(staged.root().join(licence)).unwrap();
    assert!(
        text_of.contains("Permission is hereby granted"),
        "{text_of}"
    );
    // Again, over what is there: what is no longer installed goes, a file of somebody else stays.
    assert_eq!(install(&c.products, &staged).unwrap(), files);
    fs::write(staged.root().join("lib/other"), "").unwrap();

    // Moved somewhere else, it works there.
    let moved = scratch().join("moved here");
    let _ = fs::remove_dir_all(&moved);
    fs::rename(staged.root(), &moved).unwrap();
    let hello = scratch().join("hello-moved");
    let source = sources().join("../../examples/c/hello.c");
    let link = scratch().join("oshcc-link");
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(moved.join("bin/oshcc"), &link).unwrap();
    let args = [source.to_str().unwrap(), "-o", hello.to_str().unwrap()];
    let output = run(&link, &args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shmrun = moved.join("bin/oshrun");
    let out = Job::new(
        shmrun.to_str().unwrap(),
        "-np 3",
        &[hello.to_str().unwrap()],
    )
    .succeed();
    assert_eq!(out.lines().count(), 3, "{out}");

    let there = Destination::new(&moved, None).unwrap();
    assert_eq!(uninstall(&there).unwrap(), files.len());
    let left: Vec<_> = fs::read_dir(&moved)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(left, ["lib"], "only what was not installed is left");
    assert!(moved.join("lib/other").exists());
    assert!(uninstall(&there).is_err());
}

#[test]
fn an_archive_works_wherever_it_is_unpacked() {
    let Some(c) = toolchain() else { return };
    let dir = scratch().join("archive");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(dir.join("un packed")).unwrap();
    let archive = dist::relocatable(&c.products, &dir, dist::Compression::fast()).unwrap();
    assert!(archive.glibc.is_some(), "{archive:?}");
    let (file, to) = (archive.path.to_str().unwrap(), dir.join("un packed"));
    words(
        Path::new("tar"),
        &["-xzf", file, "-C", to.to_str().unwrap()],
    );
    let name = archive.path.file_name().unwrap().to_str().unwrap();
    let tree = to.join(name.strip_suffix(".tar.gz").unwrap());
    let hello = dir.join("hello");
    let source = sources().join("../../examples/c/hello.c");
    let args = [source.to_str().unwrap(), "-o", hello.to_str().unwrap()];
    words(&tree.join("bin/oshcc"), &args);
    let oshrun = tree.join("bin/oshrun");
    let program = [hello.to_str().unwrap()];
    let out = Job::new(oshrun.to_str().unwrap(), "-np 2", &program).succeed();
    assert_eq!(out.lines().count(), 2, "{out}");
    // Nothing but the archive is left where it was made.
    let mut left: Vec<_> = fs::read_dir(&dir)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(
        left,
        ["hello", name, "un packed"].map(std::ffi::OsString::from)
    );
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn wrappers_add_what_is_needed_and_no_more() {
    let Some(c) = toolchain() else { return };
    let (oshcc, cxx) = (c.tool("oshcc"), c.tool("oshc++"));
    assert!(words(&oshcc, &["-show", "a.c"]).ends_with("-lshmem"));
    for compiling in [["-c", "a.c"], ["-E", "a.c"], ["-S", "a.c"], ["-M", "a.c"]] {
        let shown = words(&oshcc, &[&["-show"], &compiling[..]].concat());
        assert!(
            shown.contains("/include'") && !shown.contains("-lshmem"),
            "{shown}"
        );
        assert!(!shown.contains("note.o"), "{shown}");
    }
    let archive = words(&oshcc, &["-show", "-static-libshmem", "a.c"]);
    assert!(
        archive.contains("libshmem.a'") && !archive.contains("-lshmem"),
        "{archive}"
    );
    let library = words(&oshcc, &["-show", "-shared", "a.o"]);
    assert!(
        !library.contains("note.o") && library.contains("-lshmem"),
        "{library}"
    );
    let odd = words(&oshcc, &["-show", "-DX=a b", "it's.c"]);
    assert!(odd.contains("'-DX=a b' 'it'\\''s.c'"), "{odd}");
    assert!(words(&oshcc, &["--showme:compile"]).starts_with("'-I"));
    assert!(words(&oshcc, &["--showme:link"]).contains("-lshmem"));
    assert!(words(&cxx, &["-show", "a.cpp"]).starts_with("c++ "));
    // The compiler's own questions and errors stay its own.
    assert_eq!(
        words(&oshcc, &["-dumpversion"]),
        words(Path::new("cc"), &["-dumpversion"])
    );
    assert!(!run(&oshcc, &["no-such-file.c"]).status.success());

    let with = |name: &str, value: &str| {
        let mut command = Command::new(&oshcc);
        command.args(["-show", "a.c"]).env_remove("OSHCC_CC");
        command.env(name, value);
        text(&command.output().unwrap().stdout)
    };
    assert!(with("OSHCC_CC", "gcc-99 -m64").starts_with("gcc-99 -m64 a.c"));
    assert!(with("CC", "clang").starts_with("clang a.c"));
    let missing = Command::new(&oshcc)
        .arg("a.c")
        .env("CC", "no-such-cc -O2")
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(127));
    let said = text(&missing.stderr);
    assert!(
        said.contains("oshcc: there is no compiler no-such-cc; name one with CC"),
        "{said}"
    );
    // `make CC=oshcc` must not go round in circles.
    assert!(with("CC", "/usr/bin/oshcc").starts_with("cc a.c"));
}

/// The name that programs look for at run time, and what `pkg-config` says.
#[test]
fn names_of_the_library() {
    let Some(c) = toolchain() else { return };
    let program = c.program("large");
    let needed = READELF.command().arg("-d").arg(&program).output().unwrap();
    assert!(
        text(&needed.stdout).contains(&format!("[{SONAME}]")),
        "{}",
        text(&needed.stdout)
    );
    let mut pkg_config = Command::new("pkg-config");
    pkg_config
        .env("PKG_CONFIG_PATH", c.prefix.join("lib/pkgconfig"))
        .args(["--cflags", "--libs", "shmem"]);
    match pkg_config.output() {
        Ok(output) => {
            let said = text(&output.stdout);
            assert!(output.status.success(), "{}", text(&output.stderr));
            assert!(
                said.contains("-lshmem") && said.contains("-I") && said.contains("note.o"),
                "{said}"
            );
        }
        Err(e) => {
            skipped("c", format_args!("pkg-config: {e}"));
        }
    }
}
