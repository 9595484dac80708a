//! Clients that behave: exchanges, names, attributes, threads, ends, new lives.

use super::*;

use crate::programs::{HELLO, shmrun};

#[test]
fn everybody_exchanges_with_either_protocol_and_with_both() {
    for version in ["1", "2", "12"] {
        for (n, nodes) in [(1, 1), (5, 1), (6, 2), (9, 4)] {
            let out = client(
                &format!("-n {n} --nodes {nodes}"),
                &format!("{version} exchange"),
            )
            .succeed();
            assert_eq!(out.matches("has all").count(), n, "{version}: {out}");
        }
    }
}

#[test]
fn names_are_known_on_all_nodes() {
    for version in ["1", "2", "12"] {
        for nodes in [1, 3] {
            let options = format!("-n 4 --nodes {nodes}");
            let out = client(&options, &format!("{version} names")).succeed();
            assert_eq!(out.matches("names of rank").count(), 4, "{out}");
        }
    }
}

#[test]
fn attributes_of_a_node_stay_there_and_are_waited_for() {
    for (n, nodes) in [(4, 1), (7, 3)] {
        let out = client(&format!("-n {n} --nodes {nodes}"), "2 nodes").succeed();
        assert_eq!(out.matches("(vector,(0,").count(), n, "{out}");
    }
}

#[test]
fn threads_of_a_process_do_not_hold_each_other_up() {
    let out = client("-n 3 --nodes 2", "2 threads").succeed();
    assert_eq!(out.matches("threads of rank").count(), 3, "{out}");
}

#[test]
fn a_process_that_aborts_gives_the_status() {
    for version in ["1", "2"] {
        let err = ends_with(41, client("-n 4 --nodes 2", &format!("{version} abort 41"))).stderr;
        let told = err.lines().filter(|l| l.starts_with("shmrun: ")).count();
        assert_eq!(told, 1, "{err}");
        assert!(err.contains("PE 3") && err.contains("enough"), "{err}");
    }
}

#[test]
fn processes_that_die_are_started_again_and_go_on_where_they_stood() {
    for version in ["1", "2"] {
        for nodes in [1, 2] {
            let job = client(
                &format!("-n 3 --nodes {nodes} --respawn 2"),
                &format!("{version} respawn"),
            );
            let outcome = ends_with(0, job);
            let (out, err) = (&outcome.stdout, &outcome.stderr);
            assert_eq!(out.matches("in life").count(), 3, "{out}");
            assert!(out.contains("rank 1 in life 2"), "{out}");
            assert_eq!(err.matches("starting it again").count(), 2, "{err}");
        }
    }
    // One time less than it takes.
    let err = ends_with(134, client("-n 3 --respawn 1", "2 respawn")).stderr;
    assert!(
        err.contains("(1 of 1)") && err.contains("ending the job"),
        "{err}"
    );
}

#[test]
fn the_place_of_the_launcher_in_another_job_is_not_that_of_its_processes() {
    let names = [
        "PMI_RANK",
        "SHMEM_LOCAL_RANK",
        "MPI_LOCALRANKID",
        "MPI_LOCALNRANKS",
        "MPIR_CVAR_CH3_INTERFACE_HOSTNAME",
    ];
    let job = shmrun("-n 4", &["/usr/bin/env"]);
    let out = names.iter().fold(job, |job, name| job.env(name, "77"));
    let out = out.succeed();
    for name in names {
        assert!(!out.contains(&format!("{name}=77\n")), "{out}");
    }
    // What the job has for it stands there once.
    for name in &names[..4] {
        assert_eq!(out.matches(&format!("{name}=")).count(), 4, "{out}");
    }
}

#[test]
fn openshmem_programs_are_not_started_again() {
    let err = ends_with(2, shmrun("-n 2 --respawn 1", &[HELLO])).stderr;
    assert!(err.contains("is an OpenSHMEM program"), "{err}");
}

/// What is not known to be one before it initialises, and fails before that.
#[test]
fn a_script_that_fails_before_it_comes_to_openshmem_is_started_again_and_joins() {
    let script = "[ $PMI_RESPAWNED ] || [ $PMI_RANK != 1 ] || exit 3; exec \"$0\"";
    for options in ["-n 3 --respawn 1", "-n 4 --nodes 2 --respawn 1"] {
        shmrun(options, &["sh", "-c", script, HELLO]).succeed();
    }
}

#[test]
fn programs_that_never_touch_a_heap_need_no_memory_for_one() {
    let large = |program: &[&str]| shmrun("-n 2", program).env("SHMEM_SYMMETRIC_SIZE", "4T");
    large(&[PMI_CLIENT, "1", "exchange"]).succeed();
    let err = ends_with(125, large(&[HELLO])).stderr;
    assert!(err.contains("SHMEM_SYMMETRIC_SIZE"), "{err}");
}
