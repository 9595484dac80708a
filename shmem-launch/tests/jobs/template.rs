//! Template start, and PEs that leave their peers in the lurch.

use std::collections::HashSet;

use shmem_testkit::Job;

use crate::support::shmrun;

/// The program that cargo builds beside `shmrun` for these tests.
pub(crate) fn program() -> String {
    let path = std::path::Path::new(env!("CARGO_BIN_EXE_shmrun")).with_file_name("examples/probe");
    path.to_str().expect("an ordinary path").to_owned()
}

/// A job of it.
pub(crate) fn probe(options: &[&str], words: &[&str]) -> Job {
    let path = program();
    shmrun(&[options, &[&path], words].concat())
}

#[test]
fn forked_pes_know_their_place() {
    for options in [
        &["-n", "70"][..],
        &["-n", "70", "--nodes", "3"],
        &["-n", "70", "-x", "SHMEM_SPAWN=exec"],
    ] {
        let out = probe(options, &["place"]).run();
        assert_eq!(out.code(), 0, "{out:?}");
        let nodes = if options.len() == 4 && options[2] == "--nodes" {
            3
        } else {
            1
        };
        let layout = shmem_launch::plan::Layout::of(70, nodes);
        let node_of = layout.node_of();
        let mut want: Vec<String> = (0..70)
            .map(|r| format!("PE {r} of 70 on node {}", node_of[r]))
            .collect();
        want.sort_unstable();
        assert_eq!(out.sorted(), want);
    }
}

#[test]
fn pes_are_processes_of_their_own() {
    let out = probe(
        &["-n", "40", "-x", "SHMEM_SPAWN=template"],
        &["pid", "descriptors"],
    )
    .run();
    assert_eq!(out.code(), 0, "{out:?}");
    let pids: HashSet<&str> = out
        .stdout
        .lines()
        .filter(|l| l.contains("child of"))
        .map(|l| l.split(' ').next().unwrap())
        .collect();
    assert_eq!(pids.len(), 40);
    // Streams, PMI, the memfds of the node (tables, heap, XRC domain), the agent, and the directory being read.
    assert_eq!(
        out.stdout.matches("9 descriptors\n").count(),
        40,
        "{}",
        out.stdout
    );
}

#[test]
fn input_reaches_pe_0_of_a_template() {
    let out = probe(&["-n", "3"], &["echo"]).run_with_input(b"some input\n".to_vec());
    assert_eq!((out.code(), out.stdout.as_str()), (0, "some input\n"));
}

#[test]
fn a_pe_that_leaves_without_finalize_is_named() {
    let words = ["init", "only", "2", "leave", "sleep"];
    let out = probe(&["-n", "4", "--nodes", "2"], &words).run();
    assert_eq!(out.code(), 1, "{out:?}");
    assert!(
        out.messages()[0].contains("PE 2 on node 1"),
        "{}",
        out.stderr
    );
    assert!(
        out.messages()[0].contains("without finalize"),
        "{}",
        out.stderr
    );
    let out = probe(&["-n", "4", "--nodes", "2"], &["init", "finalize"]).run();
    assert_eq!(out.code(), 0, "{out:?}");
}

#[test]
fn garbage_on_the_pmi_socket_ends_the_job_with_a_name() {
    let out = probe(
        &["-n", "4", "--nodes", "2"],
        &["only", "3", "garbage", "sleep"],
    )
    .run();
    assert_eq!(out.code(), 125, "{out:?}");
    assert!(out.messages()[0].contains("PE 3"), "{}", out.stderr);
}

#[test]
fn a_panicking_pe_is_an_exit_with_101() {
    let out = probe(&["-n", "3"], &["only", "1", "nonsense", "sleep"]).run();
    assert_eq!(out.code(), 101, "{out:?}");
    assert!(
        out.stderr.contains("probe does not know nonsense"),
        "{}",
        out.stderr
    );
}
