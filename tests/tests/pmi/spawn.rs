//! Jobs that PEs spawn: together with their parents they are one job for the user.

use super::*;
use shmem_tests::family;
use std::time::{Duration, Instant};

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
            let (out, err) = ends_with(status, job);
            assert!(out.contains("spawned"), "{out}");
            let told: Vec<&str> = err.lines().filter(|l| l.starts_with("shmrun: ")).collect();
            assert_eq!(told.len(), 1, "{err}");
            assert!(told[0].contains("spawned job 1: PE"), "{err}");
        }
    }
}

#[test]
fn the_time_limit_is_that_of_all() {
    let job = client("-n 2 --timeout 3", "2 spawn-to-fail sleep");
    let (_, err) = ends_with(124, job);
    assert_eq!(err.lines().count(), 1, "{err}");
}

#[test]
fn nothing_is_left_when_the_launcher_is_killed() {
    for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGINT] {
        let mark = format!("{}-{signal}", std::process::id());
        let job = client("-n 2 --nodes 2", "1 spawn-to-fail sleep").env("SHMEM_TEST_MARK", &mark);
        let running = job.start();
        let mark = format!("SHMEM_TEST_MARK={mark}");
        let start = Instant::now();
        let patient = || {
            std::thread::sleep(Duration::from_millis(10));
            start.elapsed() < shmem_tests::PATIENCE
        };
        // Two launchers, four agents with their guards, four PEs.
        while family(&mark).len() < 14 {
            assert!(patient(), "{} of 14 processes", family(&mark).len());
        }
        // SAFETY: plain system call.
        unsafe { libc::kill(running.pid() as i32, signal) };
        let output = running.wait();
        assert!(!output.status.success());
        while !family(&mark).is_empty() {
            assert!(patient(), "{} processes are left", family(&mark).len());
        }
    }
}
