//! Many PEs that wait for one: they wake when they must, and leave the machine alone until then.

use std::time::Instant;

use shmem_node::turns::TURN;
use shmem_testkit::Job;

use crate::programs::{SHMRUN, WAITING};

/// Runs `waiting HOW SECONDS` on so many PEs; gives how often they looked, all together, and how
/// often they may have: once a turn for as long as the job took, and as often again, and at the
/// beginning, when the first do not know yet how many will come.
fn looks(n_pes: usize, how: &str, seconds: &str) -> (f64, f64) {
    let start = Instant::now();
    let outcome = Job::reported(SHMRUN, &format!("-n {n_pes}"), &[WAITING, how, seconds]).run();
    outcome.expect_success();
    let turns = start.elapsed().as_secs_f64() / TURN.as_secs_f64();
    let told = &outcome.stdout;
    assert!(told.contains(&format!("{n_pes} PEs waited")), "{told}");
    let looks = outcome.report().figure("looks of sleepers");
    (looks.sum, 2.0 * turns + 2.0 * n_pes as f64)
}

/// However many sleep, all of a node together look once a turn.
#[test]
fn hundreds_of_sleepers_hardly_look() {
    let (looks, most) = looks(250, "word", "3");
    assert!(looks <= most, "{looks} looks, where {most} are many");
}

/// A store that rings no bell is found, if only by a look.
#[test]
fn stores_that_ring_no_bell_are_seen() {
    let (looks, most) = looks(100, "silent", "0.5");
    assert!(looks > 0.0, "somebody must have looked");
    assert!(looks <= most, "{looks} looks, where {most} are many");
}

/// In a barrier only bells matter.
#[test]
fn who_is_in_a_barrier_does_not_look() {
    assert_eq!(looks(200, "barrier", "2").0, 0.0);
}
