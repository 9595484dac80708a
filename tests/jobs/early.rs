//! What libraries do before `main`, of which a fork of the template would lose a part: PEs have all of it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use shmem_testkit::Job;
use shmem_testkit::needs::skipped;
use shmem_testkit::tools::CC;

use crate::c_library::toolchain::{scratch, sources, works};
use crate::programs::{HELLO, SHMRUN};

/// The library, made with a compiler of C.
fn library() -> Option<&'static Path> {
    static MADE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let source = sources().join("programs/early.c");
        let words = [
            "-shared",
            "-fPIC",
            "-pthread",
            source.to_str().unwrap(),
            "-ldl",
        ];
        works(&CC.words()).then(|| CC.makes(&scratch().join("libearly.so"), words).unwrap())
    });
    if made.is_none() {
        skipped("c", "there is no compiler of C");
    }
    made.as_deref()
}

fn job(options: &str, library: &Path, what: &str) -> Job {
    let preload = format!("LD_PRELOAD={}", library.display());
    let early = format!("EARLY={what}");
    let options = format!("-x {preload} -x {early} {options}");
    Job::reported(SHMRUN, &options, &[HELLO])
}

#[test]
fn pes_have_what_libraries_began_before_main() {
    let Some(library) = library() else { return };
    for (what, why) in [
        ("thread", "started threads"),
        ("unpreload", "started threads"),
        ("profile", "set a timer"),
        ("virtual", "set a timer"),
        ("real", "set a timer"),
        ("timer", "set a timer"),
        ("ignore", "changed what SIGCHLD does"),
        ("file", "opened files"),
        ("lock", "locked memory"),
    ] {
        let outcome = job("-n 3 --nodes 2", library, what).run();
        outcome.expect_success();
        let mut said: Vec<_> = outcome.stderr.lines().collect();
        said.sort_unstable();
        let there: Vec<_> = (0..3)
            .map(|pe| format!("{what}: there in PE {pe}"))
            .collect();
        assert_eq!(said, there, "{what}");
        assert_eq!(
            outcome.stdout.lines().count(),
            3,
            "{what}: {}",
            outcome.stdout
        );
        let how = outcome.report().spawn().unwrap_or_default();
        assert!(
            how.starts_with("exec (") && how.contains(why),
            "{what}: {how}"
        );
    }
}

#[test]
fn a_library_that_does_nothing_leaves_the_template() {
    let Some(library) = library() else { return };
    let outcome = job("-n 2", library, "nothing").run();
    outcome.expect_success();
    assert_eq!(outcome.report().spawn(), Some("template"));
}

#[test]
fn a_template_that_must_fork_refuses_what_it_would_lose() {
    let Some(library) = library() else { return };
    let outcome = job("-n 2 -x SHMEM_SPAWN=template", library, "thread").run();
    assert_eq!(outcome.code(), 125, "{}", outcome.stderr);
    for part in ["cannot start PE 0", "started threads", "SHMEM_SPAWN=auto"] {
        assert!(
            outcome.stderr.contains(part),
            "no {part:?}: {}",
            outcome.stderr
        );
    }
    assert_eq!(outcome.stdout, "");
}

/// A library may wait for children that are not its own, and so take the status of a PE before the agent can.
#[test]
fn a_pe_whose_status_somebody_else_took_has_ended() {
    let Some(library) = library() else { return };
    let outcome = job("-n 2", library, "reap").run();
    assert_eq!(outcome.code(), 125, "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("PE 0 on node 0") && outcome.stderr.contains("nobody knows"),
        "{}",
        outcome.stderr
    );
}
