//! Agents that are stopped, links that carry nothing, and jobs that go on without PEs that are lost.
//!
//! What depends on time is in tests/sim/silence.rs, under a virtual clock. Here are two jobs in real time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use shmem_testkit::job::Running;
use shmem_testkit::needs::skipped;
use shmem_testkit::processes::{Process, kill};
use shmem_testkit::{Job, Outcome, wait_until};

use crate::hosts::Network;
use crate::support::{HEARTBEAT_TIMEOUT, sh, shmrun};

const STOP: i32 = 19;
const CONT: i32 = 18;
const TSTP: i32 = 20;

/// How long anybody may be silent.
const LIMIT: &str = "10s";
const LIMIT_TIME: Duration = Duration::from_secs(10);

const OPTIONS: [&str; 4] = ["-x", "SHMEM_TREE_DEGREE=2", "-n", "8"];

/// The launch agent whose child a PE is: with a template, PEs are no children of it. Process numbers do not tell the node of
/// an agent, because agents start their children in any order.
#[track_caller]
fn agent_of(job: &Running, pe: usize) -> i32 {
    let (rank, all) = (pe.to_string(), job.processes());
    let of = |agent: &Process| {
        let mut children = all.iter().filter(|p| p.parent == agent.pid);
        children.any(|p| p.variable("PMI_RANK").as_ref() == Some(&rank))
    };
    let mut agents = all.iter().filter(|p| p.name == "shmrun-agent");
    agents
        .find(|agent| of(agent))
        .unwrap_or_else(|| panic!("no agent of PE {pe} in {all:?}"))
        .pid
}

/// The launcher is stopped, for longer than anybody may be silent, and continued. Then an agent is.
#[test]
#[ignore = "nightly: waits for heartbeats in real time; tests/sim has the same under a virtual clock"]
fn a_stopped_launcher_is_not_silent_and_a_stopped_agent_is() {
    for signal in [TSTP, STOP] {
        let options = [&OPTIONS[..], &["--nodes", "4", "sleep", "1000"]].concat();
        let job = shmrun(&options).env(HEARTBEAT_TIMEOUT, LIMIT).start();
        job.wait_for("sleep", 8);
        let agent = agent_of(&job, 6);
        job.kill(signal);
        std::thread::sleep(2 * LIMIT_TIME);
        job.kill(CONT);
        std::thread::sleep(2 * LIMIT_TIME);
        assert_eq!(job.wait_for("sleep", 8).len(), 8);
        kill(agent, STOP);
        tells_of_silence(&job.wait(), "node 3: ");
    }
}

#[test]
#[ignore = "nightly: waits for heartbeats in real time; tests/sim has the same under a virtual clock"]
fn a_host_that_is_cut_off_is_told_and_ends_its_pes_by_itself() {
    let net = Network::new();
    let job = net.job("a,b,c,d", &[&OPTIONS[..], &["sleep", "1000"]].concat());
    let job = job.env(HEARTBEAT_TIMEOUT, LIMIT).start();
    job.wait_for("sleep", 8);
    net.cut("b");
    // Nothing is left, which is to be seen before the link is mended.
    let out = job.wait();
    tells_of_silence(&out, "node 1 (b): ");
    assert!(out.stderr.contains("PEs 2 to 5"), "{out:?}");
}

#[track_caller]
fn tells_of_silence(out: &Outcome, node: &str) {
    assert_eq!(out.code(), 125, "{out:?}");
    let told = out.messages();
    let silent: Vec<_> = told
        .iter()
        .filter(|l| l.ends_with("; ending the job"))
        .collect();
    assert_eq!(silent.len(), 1, "{told:?}");
    let said = format!("{node}nothing was heard of its launch agent for");
    for part in [&said, HEARTBEAT_TIMEOUT, "lost with it: PE"] {
        assert!(silent[0].contains(part), "no {part} in {told:?}");
    }
}

/// A job whose PEs leave processes with sessions of their own behind.
fn job_with_sessions() -> Job {
    let script =
        "setsid sleep 1000 & (setsid sh -c 'sleep 1000 & exec sleep 1000' &); exec sleep 1000";
    sh(&["-n", "2", "--nodes", "2"], script)
}

#[test]
fn nothing_survives_the_death_of_all_of_shmrun_at_once() {
    let job = job_with_sessions().start();
    job.wait_for("sleep", 8);
    // As `pkill -9 shmrun` does.
    for process in job.processes() {
        if process.name.starts_with("shmrun") {
            kill(process.pid, 9);
        }
    }
    assert_eq!(job.wait().signal(), Some(9));
}

/// The control group of a process, version 2.
fn control_group(pid: i32) -> std::path::PathBuf {
    let own = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mounted = mounts.lines().find(|line| line.contains(" cgroup2 "));
    let mounted = mounted.and_then(|line| line.split(' ').nth(1));
    std::path::Path::new(mounted.unwrap_or("/")).join(own.unwrap_or("none"))
}

#[test]
fn who_has_thrown_away_its_environment_ends_with_its_control_group() {
    let script = "setsid env -i /bin/sleep 1000 & exec sleep 1000";
    for victims in [&["shmrun"][..], &["shmrun", "shmrun-agent"]] {
        let job = sh(&["-n", "2"], script).start();
        let group = control_group(job.wait_for("sleep", 2)[0]);
        let name = group.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with("shmrun-") {
            return skipped("cgroup", "PEs get no control group of their own");
        }
        let members = || std::fs::read_to_string(group.join("cgroup.procs"));
        wait_until(
            "all of them are in it",
            || members().unwrap().lines().count() == 4,
            || format!("{:?}", members()),
        );
        let pids: Vec<i32> = members()
            .unwrap()
            .lines()
            .map(|l| l.parse().unwrap())
            .collect();
        for process in job.processes() {
            if victims.contains(&&*process.name) {
                kill(process.pid, 9);
            }
        }
        assert_eq!(job.wait().signal(), Some(9));
        let left = || pids.iter().copied().filter_map(Process::of);
        wait_until(
            "nothing is left of it",
            || left().all(|p| p.state == 'Z') && !group.exists(),
            || format!("{:?}, {:?}", left().collect::<Vec<_>>(), members()),
        );
    }
}

#[test]
fn a_stopped_agent_ends_with_its_parent() {
    let job = job_with_sessions().start();
    job.wait_for("sleep", 8);
    for agent in job.wait_for("shmrun-agent", 2) {
        kill(agent, STOP);
    }
    job.kill(9);
    assert_eq!(job.wait().signal(), Some(9));
}

/// A job in which PEs that have not failed wait for a file, and where its errors go.
struct Gated {
    go: PathBuf,
    errors: PathBuf,
    job: Running,
}

impl Gated {
    /// `first` is what PEs do before they wait.
    fn new(name: &str, first: &str) -> Self {
        let path = |what| {
            let name = format!("shmrun-{name}-{what}-{}", std::process::id());
            std::env::temp_dir().join(name)
        };
        let (go, errors) = (path("go"), path("errors"));
        let script = format!("{first}; while ! test -e $GO; do sleep 0.05; done; echo done");
        let job = sh(&["-n", "6", "--nodes", "3", "--keep-going"], &script);
        let file = std::fs::File::create(&errors).unwrap();
        let job = job.env("GO", &go).stderr(file).start();
        Self { go, errors, job }
    }

    /// What shmrun itself has written so far, in whole lines.
    fn told(errors: &Path) -> Vec<String> {
        let errors = std::fs::read_to_string(errors).unwrap();
        let told = errors
            .split_inclusive('\n')
            .filter_map(|l| l.strip_suffix('\n'));
        let told = told.filter(|l| l.starts_with("shmrun: "));
        told.map(str::to_owned).collect()
    }

    /// Waits until so many losses are told, and has the others end. Gives the status, the output and what was told.
    #[track_caller]
    fn end_after(self, losses: usize) -> (i32, String, Vec<String>) {
        let Self { go, errors, job } = self;
        let lost = || Self::told(&errors).len() >= losses;
        wait_until("the losses are told", lost, || {
            format!("{:?}", Self::told(&errors))
        });
        std::fs::write(&go, "").unwrap();
        let out = job.wait();
        let told = Self::told(&errors);
        std::fs::remove_file(go).unwrap();
        std::fs::remove_file(errors).unwrap();
        (out.code(), out.stdout, told)
    }
}

#[test]
fn the_others_go_on_without_pes_that_fail() {
    let job = Gated::new(
        "failed-pes",
        "case $PMI_RANK in 2) exit 3;; 4) kill -9 $$;; esac",
    );
    let (code, stdout, told) = job.end_after(2);
    assert!([3, 137].contains(&code), "{told:?}");
    assert_eq!(stdout, "done\n".repeat(4));
    for part in [
        "exited with status 3; the others go on",
        "was killed by signal 9 (SIGKILL); the others go on",
        "2 of 6 PEs failed (--keep-going): PE 2 exited with status 3; PE 4 was killed by signal 9 (SIGKILL)",
    ] {
        assert!(
            told.iter().any(|l| l.contains(part)),
            "no {part} in {told:?}"
        );
    }
    assert_eq!(told.len(), 3, "{told:?}");
}

#[test]
fn many_failures_are_told_in_few_lines() {
    let out = sh(&["-n", "100", "--nodes", "4", "--keep-going"], "exit 7").run();
    assert_eq!(out.code(), 7);
    let told = out.messages();
    assert_eq!(told.len(), 22, "{told:?}");
    let all = "100 of 100 PEs failed (--keep-going): PEs 0 to 99 exited with status 7";
    assert!(told[21].ends_with(all), "{told:?}");
}

#[test]
fn the_others_go_on_without_a_lost_node() {
    let gated = Gated::new("lost-node", ":");
    gated.job.wait_for("sh", 6);
    kill(agent_of(&gated.job, 4), 9);
    let (code, stdout, told) = gated.end_after(1);
    assert_eq!((code, stdout), (125, "done\n".repeat(4)), "{told:?}");
    let part = "2 of 6 PEs failed (--keep-going): PEs 4 to 5 lost with node 2";
    assert!(told.len() == 2 && told[1].contains(part), "{told:?}");
}
