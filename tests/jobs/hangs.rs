//! Programs that hang: what `shmrun` tells of them names who holds up the others, and PEs do not notice that
//! they are looked at.

use std::io::Read;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shmem_testkit::{Job, Running, wait_until};

use crate::programs::{HANGS, SHMRUN, shmrun};

const USR1: i32 = 10;
const TERM: i32 = 15;
const CONT: i32 = 18;

const NODES: &str = "-n 64 --nodes 8";

/// A job that hangs, and what it has said so far.
struct Hang {
    job: Running,
    said: Arc<Mutex<String>>,
}

impl Hang {
    fn start(options: &str, program: &[&str], env: &[(&str, &str)]) -> Self {
        let (mut from, to) = std::io::pipe().expect("a pipe");
        let job = shmrun(options, program).envs(env.iter().copied());
        let job = job.stderr(Stdio::from(to)).start();
        let said = Arc::new(Mutex::new(String::new()));
        let into = said.clone();
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(n @ 1..) = from.read(&mut part) {
                let text = String::from_utf8_lossy(&part[..n]);
                into.lock().expect("no panic").push_str(&text);
            }
        });
        // A signal that comes before shmrun has got to its work ends it.
        let name = program[0].rsplit('/').next().unwrap_or_default();
        wait_until(
            &format!("{name} runs"),
            || job.processes().iter().any(|p| p.name == name),
            || format!("{:?}", job.processes()),
        );
        Self { job, said }
    }

    fn said(&self) -> String {
        self.said.lock().expect("no panic").clone()
    }

    /// Asks until the answer has all of these: PEs take their time to get to where they hang.
    #[track_caller]
    fn tells(&self, parts: &[&str]) {
        wait_until(
            &format!("the answer has {parts:?}"),
            || {
                self.said.lock().expect("no panic").clear();
                self.job.kill(USR1);
                let end = |text: &str| text.contains("wait for, ") && text.ends_with('\n');
                for _ in 0..100 {
                    std::thread::sleep(Duration::from_millis(20));
                    if end(&self.said()) {
                        break;
                    }
                }
                let said = self.said();
                parts.iter().all(|part| said.contains(part))
            },
            || self.said(),
        );
    }

    fn end(self) {
        self.job.kill(TERM);
        let outcome = self.job.wait();
        assert_eq!(outcome.code(), 128 + TERM, "{outcome:?}");
    }
}

#[test]
fn who_skips_a_barrier_is_named() {
    let hang = Hang::start(NODES, &[HANGS, "barrier", "13"], &[]);
    hang.tells(&[
        "what the 64 PEs of this job on 8 nodes wait for, ",
        "PEs 0-12,14-63 (63) wait in barrier_all of the world team (its no. ",
        "; missing: PE 13\n",
        "PE 13 (node 1, pid ",
        ") computes",
        "It comes down to PE 13, which ",
        ": PEs 0-12,14-63 (63) wait for it.",
    ]);
    hang.end();
}

/// The main thread sleeps until the thread that called init ends, which computes.
#[test]
fn what_is_told_of_a_process_is_that_of_the_thread_that_called_init() {
    let hang = Hang::start("-n 2", &[HANGS, "thread", "1"], &[]);
    hang.tells(&[
        "PE 1 (node 0, pid ",
        ") computes (is in no call that waits): its thread is running",
    ]);
    hang.end();
}

/// Without `SHMEM_CHECK`, which would find it at once.
#[test]
fn a_job_of_which_a_pe_leaves_while_others_wait_for_it_is_ended() {
    let start = |options, how, parts: &[&str]| {
        let job = shmrun(options, &[HANGS, how, "2"]).env("SHMEM_CHECK", "0");
        (
            job.start(),
            Vec::from_iter(parts.iter().map(|p| p.to_string())),
        )
    };
    let left = "but PE 2 has left finalize, or the end of main; ending the job, which cannot go on";
    let leaves =
        "but PE 2 is in finalize, or at the end of main; ending the job, which cannot go on";
    let jobs = [
        start(
            "-n 4",
            "leaves",
            &["wait in barrier_all of the world team (its no. ", left],
        ),
        start(
            "-n 4 --nodes 2",
            "adds",
            &["in a reduction of the world team (its no. ", leaves],
        ),
    ];
    for (job, parts) in jobs {
        let outcome = job.wait();
        assert_eq!(outcome.code(), 1, "{outcome:?}");
        for part in parts {
            assert!(outcome.stderr.contains(&part), "{part}: {}", outcome.stderr);
        }
    }
}

/// Another thread of the PE may end the wait, so the job goes on.
#[test]
fn who_waits_for_memory_while_all_others_leave_is_told_of() {
    let hang = Hang::start("-n 4 --nodes 2", &[HANGS, "forgets", "2"], &[]);
    wait_until(
        "shmrun tells of it",
        || {
            hang.said()
                .contains("the job may wait for ever (Ctrl-C ends it)")
        },
        || hang.said(),
    );
    let said = hang.said();
    assert!(
        said.contains("waits in wait_until for the word at heap"),
        "{said}"
    );
    assert!(
        said.contains("but PEs 0,1,3 (3) are in finalize, or at the end of main"),
        "{said}"
    );
    hang.end();
}

#[test]
fn a_flag_that_nobody_sets_is_named_with_its_value() {
    let hang = Hang::start(NODES, &[HANGS, "flag", "20"], &[]);
    hang.tells(&[
        "PEs 0-19,21-63 (63) wait in barrier_all of the world team",
        "PE 20 (node 2, pid ",
        ") waits in wait_until for the word at heap + 0x",
        " to be >= 7; it is 0, called at tests/programs/hangs.rs:",
        "It comes down to PE 20, which waits in wait_until",
    ]);
    hang.end();
}

#[test]
fn the_holder_of_a_lock_is_named() {
    let hang = Hang::start(NODES, &[HANGS, "lock", "5"], &[]);
    hang.tells(&[
        "PEs 0-4,6-63 (63) wait for the lock at heap + 0x",
        ", called at tests/programs/hangs.rs:",
        "; held by PE 5\n",
        "PE 5 (node 0, pid ",
        ") waits in barrier_all of the world team",
        "; missing: PEs 0-4,6-63 (63)\n",
        "PEs 0-63 (64) wait for each other: a circle",
    ]);
    hang.end();
}

#[test]
fn a_thread_that_waits_for_its_own_lock_is_found() {
    let hang = Hang::start("-n 2", &[HANGS, "lock-twice", "1"], &[]);
    hang.tells(&[
        "PE 1 (node 0, pid ",
        ") waits for the lock at heap + 0x",
        ", which a thread of the same PE holds or waits for, called at tests/programs/hangs.rs:",
        "It comes down to PE 1, which waits for the lock",
    ]);
    hang.end();
}

#[test]
fn a_pe_that_was_stopped_is_named_by_those_who_call_it() {
    let hang = Hang::start("-n 8 --nodes 4", &[HANGS, "stopped", "5"], &[]);
    hang.tells(&[
        "PE 5 (node 2, pid ",
        "STOPPED by a signal (state T)",
        " of PE 5 ",
        "It comes down to PE 5, which ",
    ]);
    let stopped = hang.job.processes();
    let stopped = stopped.iter().find(|p| p.state == 'T').expect("it is");
    assert!(stopped.kill(CONT), "{stopped:?}");
    hang.end();
}

#[test]
fn members_of_a_team_are_named() {
    let hang = Hang::start("-n 16 --nodes 4", &[HANGS, "team", "5"], &[]);
    hang.tells(&[
        "wait in a sync of the team of PEs 1-15:2 (8) (its no. ",
        "; missing: PE 5\n",
        "PEs 0-14:2 (8) wait in barrier_all of the world team",
        "It comes down to PE 5, which ",
    ]);
    hang.end();
}

#[test]
fn who_does_not_call_init_is_named() {
    let hang = Hang::start(
        "-n 8 --nodes 2 -x SHMEM_SPAWN=exec",
        &[HANGS, "init", "6"],
        &[],
    );
    hang.tells(&[
        "PEs 4,5,7 (3) wait in init for the other PEs of the node, for ",
        "; missing: PE 6\n",
        "PE 6 (node 1, pid ",
        ") has not called init",
        ": PEs 0-5,7 (7) wait for it.",
    ]);
    hang.end();
}

#[test]
fn programs_of_other_kinds_are_told_of_by_their_processes() {
    let hang = Hang::start("-n 4 --nodes 2", &["sleep", "1000"], &[]);
    hang.tells(&[
        "PEs 0-3 (4) have not called init (or are no OpenSHMEM program): their main threads are sleeping",
    ]);
    hang.end();
}

#[test]
fn the_time_limit_tells_before_it_ends_a_job() {
    let job = shmrun("-n 8 --nodes 2 --timeout 5", &[HANGS, "barrier", "3"]);
    let out = job.run();
    assert_eq!(out.code(), 124, "{out:?}");
    for part in [
        "the time limit of 5 s (--timeout) is over; ending the job\n",
        "PEs 0-2,4-7 (7) wait in barrier_all of the world team",
        "It comes down to PE 3, which ",
    ] {
        assert!(out.stderr.contains(part), "no {part:?} in {out:?}");
    }
}

pub(crate) fn ps(args: &[&str]) -> (Option<i32>, String, String) {
    let outcome = Job::new(SHMRUN, "--ps", args).run();
    let code = Some(outcome.code());
    (code, outcome.stdout, outcome.stderr)
}

#[test]
fn another_terminal_is_told_the_same() {
    let hang = Hang::start("-n 8 --nodes 2", &[HANGS, "barrier", "3"], &[]);
    hang.tells(&["missing: PE 3\n"]);
    let pid = hang.job.pid().to_string();
    let (code, list, _) = ps(&[]);
    assert_eq!(code, Some(0));
    let line = list.lines().find(|line| line.contains(&pid));
    let line = line.unwrap_or_else(|| panic!("no {pid} in {list}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[..3], [&pid, "8", "2"], "{line}");
    assert!(line.contains("running"), "{line}");
    assert!(line.contains("hangs"), "{line}");
    let (code, text, err) = ps(&[&pid]);
    assert_eq!((code, &err[..]), (Some(0), ""));
    assert!(text.contains("missing: PE 3\n"), "{text}");
    hang.end();
    let (code, _, err) = ps(&[&pid]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("no such job"), "{err}");
}

#[test]
fn the_signal_is_passed_on_where_that_is_asked_for() {
    let script = "trap 'exit 7' USR1; echo up; while :; do sleep 1000 & wait; done";
    let job = shmrun("-n 2 --nodes 2", &["/bin/sh", "-c", script]);
    let mut job = job.env("SHMEM_PASS_SIGUSR1", "yes").start();
    let mut up = [0; 6];
    job.stdout().read_exact(&mut up).expect("both are up");
    job.wait_for("sleep", 2);
    job.kill(USR1);
    let out = job.wait();
    assert_eq!(out.code(), 7, "{out:?}");
    assert!(!out.stderr.contains("wait for"), "{out:?}");
}
