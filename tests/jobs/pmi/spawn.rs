//! Jobs that PEs spawn: together with their parents they are one job for the user.

use super::*;
use shmem_testkit::wait_until;

#[test]
fn children_hear_from_parents_and_have_children() {
    for version in ["1", "2"] {
        for (n, nodes) in [(1, 1), (4, 2)] {
            let options = format!("-n {n} --nodes {nodes}");
            let out = client(&options, &format!("{version} spawn")).succeed();
            assert_eq!(out.matches("of 3 has all").count(), 3, "{out}");
            assert_eq!(out.matches("parent is content").count(), 1, "{out}");
            assert_eq!(out.matches("grandchild").count(), 1, "{out}");
        }
    }
}

#[test]
fn labels_tell_jobs_apart() {
    let out = client("-n 1 -l", "1 spawn").succeed();
    assert!(out.contains("[0] parent is content"), "{out}");
    assert!(out.contains("[1:2] rank 2 of 3 has all"), "{out}");
    assert!(out.contains("[2:0] grandchild"), "{out}");
}

#[test]
fn a_spawned_job_may_have_several_programs() {
    for version in ["1", "2"] {
        for nodes in [1, 2] {
            let options = format!("-n 1 --nodes 1 --ppn {}", 6 / nodes);
            let out = client(&options, &format!("{version} spawn-two")).succeed();
            assert_eq!(out.matches("of 5 has all").count(), 5, "{out}");
        }
    }
}

#[test]
fn a_job_that_cannot_be_is_refused_and_its_parent_goes_on() {
    for version in ["1", "2"] {
        let out = client("-n 2", &format!("{version} spawn-nothing")).succeed();
        for why in ["not", "found", "executable", "directory"] {
            assert!(out.contains(why), "{out}");
        }
    }
}

#[test]
fn the_end_of_a_spawned_job_is_the_end_of_all() {
    for (how, status) in [("abort:23", 23), ("exit:7", 7)] {
        for version in ["1", "2"] {
            let job = client("-n 3 --nodes 2", &format!("{version} spawn-to-fail {how}"));
            let outcome = ends_with(status, job);
            let (out, err) = (&outcome.stdout, &outcome.stderr);
            assert!(out.contains("spawned"), "{out}");
            let told = outcome.messages();
            assert_eq!(told.len(), 1, "{err}");
            assert!(told[0].contains("spawned job 1: PE"), "{err}");
        }
    }
}

#[test]
fn the_time_limit_is_that_of_all() {
    let job = client("-n 2 --timeout 3", "2 spawn-to-fail sleep");
    let outcome = ends_with(124, job);
    // Why, and what the PEs were in; the spawned job has nothing to add to that.
    let told = outcome.messages();
    assert_eq!(told.len(), 2, "{outcome:?}");
    assert!(told[0].contains("time limit of 3 s"), "{told:?}");
}

#[test]
fn nothing_is_left_when_the_launcher_is_killed() {
    for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGINT] {
        let running = client("-n 2 --nodes 2", "1 spawn-to-fail sleep").start();
        // Two launchers, four agents with their guards, four PEs.
        wait_until(
            "all are there",
            || running.processes().len() >= 14,
            || format!("{:?}", running.processes()),
        );
        running.kill(signal);
        assert!(!running.wait().status.success());
    }
}
