//! SIGKILL at random moments: of a PE, of a launch agent, of `shmrun`. The job ends, somebody says
//! why if somebody is left to say it, and nothing survives.
//!
//! `SHMEM_TEST_KILLS=50` kills that often (a few times by default), `SHMEM_TEST_SEED` chooses how long
//! jobs run before that. How far a job has come by then is the machine's business, so a seed does not
//! repeat a failure. Random moments are the point of these tests: what they assert holds at every one.

use std::time::Duration;

use shmem_testkit::processes::Process;
use shmem_testkit::wait_until;

use crate::programs::{BUSY, shmrun};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(default)
}

/// A linear congruential sequence: enough to choose moments and victims.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Kills one process named `victim` of a job with these options, at a random moment, again and
/// again. `spoken` are parts of messages of which one must appear, if any must.
fn kill_at_random(victim: &str, options: &str, spoken: &[&str]) {
    let seed = number("SHMEM_TEST_SEED", 1);
    let mut chance = Chance(seed ^ victim.len() as u64);
    for round in 0..number("SHMEM_TEST_KILLS", 6) {
        let context = format!("{victim}, seed {seed}, round {round}");
        let job = shmrun(options, &[BUSY]).start();
        std::thread::sleep(Duration::from_millis(chance.below(250)));
        // Early moments come before the victim exists, and one that has been found may be gone.
        let mut killed: Option<Process> = None;
        wait_until(
            "a victim is killed",
            || {
                let mut targets = job.processes();
                targets.retain(|p| p.name == victim);
                if !targets.is_empty() {
                    let at = chance.below(targets.len() as u64) as usize;
                    killed = Some(targets.swap_remove(at)).filter(|p| p.kill(libc::SIGKILL));
                }
                killed.is_some()
            },
            || format!("{context}: {:?}", job.processes()),
        );
        let outcome = job.wait();
        let err = &outcome.stderr;
        assert!(
            !outcome.status.success(),
            "{context}: {killed:?}, yet success"
        );
        assert!(
            spoken.is_empty() || spoken.iter().any(|part| err.contains(part)),
            "{context}: {killed:?}, stderr: {err}"
        );
    }
}

#[test]
fn of_a_pe() {
    kill_at_random("busy-pe", "-n 8 --nodes 4", &["SIGKILL"]);
}

#[test]
fn of_a_pe_on_one_node() {
    kill_at_random("busy-pe", "-n 5", &["SIGKILL"]);
}

#[test]
fn of_a_launch_agent() {
    // What an agent has just forked has its name for a moment, and becomes the template then.
    let spoken = ["SIGKILL", "while it was to fork PEs"];
    kill_at_random("shmrun-agent", "-n 8 --nodes 4", &spoken);
}

#[test]
fn of_a_guard() {
    kill_at_random("pe-guard", "-n 8 --nodes 4", &["guard"]);
}

#[test]
fn of_shmrun() {
    kill_at_random("shmrun-under-te", "-n 8 --nodes 4", &[]);
}

#[test]
fn nobody_goes_on_without_whom_others_wait_for() {
    for (victim, code, said) in [
        ("busy-pe", 137, "others may wait for it"),
        ("shmrun-agent", 125, "; the others go on"),
    ] {
        let mut job = shmrun("-n 6 --nodes 3 --keep-going", &[BUSY]).start();
        // PE 0 prints this behind a barrier: all PEs and agents are at work.
        let mut output = job.stdout();
        output.read_until("round 1\n");
        let count = if victim == "busy-pe" { 6 } else { 3 };
        let all = job.wait_for_processes(victim, count);
        // The agent of node 0 is the parent of the others. No job goes on without it.
        let of_node_0 = |p: &Process| all.iter().any(|child| child.parent == p.pid);
        let mut targets = all.iter().filter(|p| !of_node_0(p));
        assert!(
            targets.next().is_some_and(|p| p.kill(libc::SIGKILL)),
            "{all:?}"
        );
        let outcome = job.wait();
        assert_eq!(outcome.code(), code, "{outcome:?}");
        assert!(outcome.stderr.contains(said), "no {said} in {outcome:?}");
    }
}
