//! One process of a job is killed: the job ends, one message names the process, and nothing survives.

use shmem_testkit::processes::kill;

use crate::support::{kill_when, sh, shmrun};
use crate::template::probe;

/// Processes that are killed in turn: the name (empty for a PE), which of them, the signal, the status of the job, and
/// what the message says of it.
const DEATHS: [(&str, std::ops::Range<usize>, i32, i32, &str); 5] = [
    ("", 9..10, 9, 137, ") was killed by signal 9 (SIGKILL)"),
    (
        "shmrun-agent",
        0..7,
        9,
        125,
        ") was killed by signal 9 (SIGKILL)",
    ),
    (
        "shmrun-agent",
        3..4,
        15,
        125,
        "its launch agent was told to end",
    ),
    (
        "pe-guard",
        2..3,
        9,
        125,
        "the guard of the PEs' process group was killed",
    ),
    ("shmrun", 0..1, 9, 0, ""),
];

#[test]
fn the_death_of_any_process_ends_the_job() {
    let options = ["-n", "14", "--nodes", "7", "-x", "SHMEM_TREE_DEGREE=2"];
    let executed = || shmrun(&[&options[..], &["sleep", "1000"]].concat());
    let forked = || probe(&options, &["init", "sleep"]);
    let shapes: [(_, &dyn Fn() -> _); 2] = [("sleep", &executed), ("probe", &forked)];
    for (pe, start) in shapes {
        let deaths = DEATHS
            .into_iter()
            .flat_map(|(victim, which, signal, status, said)| {
                which.map(move |at| (victim, at, signal, status, said))
            });
        for (victim, at, signal, status, said) in deaths {
            let job = start().start();
            let pes = job.wait_for_pes(pe, 14);
            let pid = match victim {
                "" => pes[at],
                "shmrun" => job.pid(),
                victim => job.wait_for(victim, 7)[at],
            };
            kill(pid, signal);
            let out = job.wait();
            if victim == "shmrun" {
                assert_eq!(out.signal(), Some(signal), "{out:?}");
                continue;
            }
            assert_eq!(out.code(), status, "{victim} {at} of {pe}: {out:?}");
            let said = match said.strip_prefix(')') {
                Some(rest) => format!("(pid {pid}){rest}"),
                None => said.to_owned(),
            };
            let messages = out.messages();
            assert!(
                messages.len() == 1 && messages[0].contains(&said),
                "{victim} {at} of {pe}: not {said} alone in {out:?}"
            );
        }
    }
}

#[test]
fn nothing_outlives_shmrun_whatever_it_ignores() {
    let job = sh(
        &["-n", "6", "--nodes", "4"],
        "trap '' TERM HUP INT; sleep 1000 & setsid sleep 1000 & wait",
    );
    let job = job.start();
    job.wait_for("sleep", 12);
    job.kill(9);
    let out = job.wait();
    assert_eq!(out.signal(), Some(9));
}

#[test]
fn deaths_during_the_start_leave_nothing() {
    // At the end there are the launcher, 16 agents with a guard each, and 64 PEs: one ends in the start.
    for there_are in [1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 97] {
        for victim in ["shmrun", "shmrun-agent"] {
            let job = shmrun(&["-n", "64", "--nodes", "16", "sleep", "1000"]);
            let job = job.start();
            kill_when(&job, there_are, victim);
            let out = job.wait();
            assert!(out.signal() == Some(9) || out.code() == 125, "{out:?}");
        }
    }
}
