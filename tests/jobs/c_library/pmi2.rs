//! PMI-2 and its extensions for C: programs that are linked with the installed `libshmem_pmi2`, as `pkg-config` says,
//! under `shmrun` in every way of speaking, under MPICH's launcher, and alone.

use std::path::{Path, PathBuf};
use std::process::Command;

use shmem_testkit::launchers::hydra;
use shmem_testkit::needs::skipped;
use shmem_testkit::tools::CC;
use shmem_testkit::{Job, text};

use super::toolchain::{Toolchain, scratch, sources, toolchain};

/// What `pkg-config` says about the library; `None` without it.
fn flags(c: &Toolchain, kind: &str) -> Option<Vec<String>> {
    let mut command = Command::new("pkg-config");
    command
        .env("PKG_CONFIG_PATH", c.prefix.join("lib/pkgconfig"))
        .args([kind, "shmem_pmi2"]);
    let output = match command.output() {
        Ok(output) => output,
        Err(e) => {
            skipped("c", format_args!("pkg-config: {e}"));
            return None;
        }
    };
    assert!(output.status.success(), "{}", text(&output.stderr));
    // The prefix has a space, which pkg-config escapes; no path has another backslash.
    let said = text(&output.stdout).replace("\\ ", "\0");
    let words = said.split_whitespace().map(|word| word.replace('\0', " "));
    Some(words.collect())
}

/// Compiles a program of `tests/c` with the flags.
fn compiled(name: &str, source: &str, more: &[String]) -> PathBuf {
    let source = sources().join(source).display().to_string();
    let mut words = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", &source].to_vec();
    words.extend(more.iter().map(String::as_str));
    CC.makes(&scratch().join("pmi2-programs").join(name), words)
        .unwrap()
}

fn extensions(name: &str, linking: &str) -> Option<(&'static Toolchain, PathBuf)> {
    let c = toolchain()?;
    let (mut all, mut libs) = (flags(c, "--cflags")?, flags(c, "--libs")?);
    if linking == "static" {
        libs = vec![c.prefix.join("lib/libshmem_pmi2.a").display().to_string()];
        libs.extend(["-lpthread", "-ldl", "-lm", "-lrt", "-lutil"].map(str::to_owned));
    }
    all.append(&mut libs);
    Some((c, compiled(name, "pmi2/extensions.c", &all)))
}

fn path(program: &Path) -> &str {
    program.to_str().expect("a path in UTF-8")
}

fn all_is_well(job: Job, n: usize) {
    let out = job.succeed();
    for rank in 0..n {
        let line = format!("rank {rank} of {n}, ");
        assert!(out.contains(&line), "no {line:?} in: {out}");
    }
}

#[test]
fn extensions_under_shmrun() {
    let Some((c, program)) = extensions("shmrun", "shared") else {
        return;
    };
    for (options, n) in [
        ("-np 1", 1),
        ("-np 4", 4),
        ("-np 2 --nodes 2", 2),
        ("-np 5 --nodes 2", 5),
    ] {
        for way in ["auto", "1", "2"] {
            let job = c.job(options, &program, &[]).env("SHMEM_PMI", way);
            all_is_well(job, n);
        }
    }
}

#[test]
fn extensions_under_hydra() {
    let Some((_, program)) = extensions("hydra", "shared") else {
        return;
    };
    for (options, n) in [("-n 1", 1), ("-n 4", 4), ("-n 3 -pmi-port", 3)] {
        let Some(job) = hydra(options, &[path(&program)]) else {
            return;
        };
        all_is_well(job, n);
    }
}

#[test]
fn extensions_alone_and_linked_statically() {
    for linking in ["shared", "static"] {
        let Some((_, program)) = extensions(linking, linking) else {
            return;
        };
        let outcome = Job::new(path(&program), "", &[]).run();
        let said = &outcome.stderr;
        assert_eq!(outcome.code(), 0, "{said}");
        // Before init there is no rank; a reason is told once, however often it comes.
        let told = |line: &str| said.lines().filter(|&l| l == line).count();
        let early = "called before PMI2_Init or after PMI2_Finalize";
        assert_eq!(told(&format!("PMI2_KVS_Fence: {early}")), 1, "{said}");
        assert_eq!(told("PE 0: PMI2_KVS_Put: key is null"), 1, "{said}");
        assert!(!said.contains("nobody-has"), "{said}");
    }
}

/// Also where there is no room for its last words.
#[test]
fn an_abort_ends_the_job() {
    let Some((c, program)) = extensions("abort", "shared") else {
        return;
    };
    for flag in ["0", "1"] {
        for stderr in ["/dev/stderr", "/dev/full"] {
            let script = format!("exec '{}' {flag} 2> {stderr}", path(&program));
            let out = c.job("-np 2", Path::new("/bin/sh"), &["-c", &script]).run();
            assert_eq!(out.code(), 1, "{flag} {stderr}: {out:?}");
        }
    }
}

/// What Slurm's library can do, this one can, too.
#[test]
fn a_program_for_libpmi2() {
    let Some(c) = toolchain() else { return };
    let (Some(mut all), Some(mut libs)) = (flags(c, "--cflags"), flags(c, "--libs")) else {
        return;
    };
    all.append(&mut libs);
    all.push("-DOURS".to_owned());
    let program = compiled("pmi2", "mpi/pmi2.c", &all);
    for (options, n) in [("-np 1", 1), ("-np 4 --nodes 2", 4)] {
        let out = c.job(options, &program, &[]).succeed();
        assert_eq!(out.matches("pmi2 rank").count(), n, "{options}: {out}");
    }
}
