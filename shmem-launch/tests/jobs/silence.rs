//! Agents that are stopped, links that carry nothing, and those who are only thought to be silent.

use std::time::Duration;

use shmem_testkit::needs::skipped;
use shmem_testkit::processes::{Process, kill};
use shmem_testkit::{Job, Outcome, wait_until};

use crate::hosts::Network;
use crate::support::{sh, shmrun};

const STOP: i32 = 19;
const CONT: i32 = 18;
const TSTP: i32 = 20;

const TIMEOUT: &str = "SHMEM_HEARTBEAT_TIMEOUT";

const OPTIONS: [&str; 4] = ["--tree-degree", "2", "-n", "8"];

/// A job on four nodes, of which one has a node below it.
fn job_on_nodes() -> Job {
    let rest = ["--nodes", "4", "sleep", "1000"];
    shmrun(&[&OPTIONS[..], &rest].concat())
}

fn job_on_hosts(net: &Network) -> Job {
    net.job("a,b,c,d", &[&OPTIONS[..], &["sleep", "1000"]].concat())
}

/// Stops an agent, and gives what becomes of the job.
fn stopped(job: Job, agent: usize) -> Outcome {
    let job = job.env(TIMEOUT, "2s").start();
    job.wait_for("sleep", 8);
    let mut agents = job.wait_for("shmrun-agent", 4);
    agents.sort_unstable();
    kill(agents[agent], STOP);
    job.wait()
}

#[track_caller]
fn tells_of_silence(out: &Outcome) {
    assert_eq!(out.code(), 125, "{out:?}");
    let told = out.messages();
    let silent: Vec<_> = told
        .iter()
        .filter(|l| l.ends_with("; ending the job"))
        .collect();
    assert_eq!(silent.len(), 1, "{told:?}");
    for part in [
        "nothing was heard of its launch agent for",
        TIMEOUT,
        "lost with it: PE",
    ] {
        assert!(silent[0].contains(part), "no {part} in {told:?}");
    }
}

#[test]
fn a_stopped_agent_of_a_node_ends_the_job() {
    for agent in 0..4 {
        tells_of_silence(&stopped(job_on_nodes(), agent));
    }
}

#[test]
fn a_stopped_agent_of_a_host_ends_the_job_there_too() {
    let net = Network::new();
    for agent in 0..4 {
        let out = stopped(job_on_hosts(&net), agent);
        tells_of_silence(&out);
        assert!(out.stderr.contains("): nothing was heard"), "{out:?}");
    }
}

#[test]
fn a_host_that_is_cut_off_is_told_and_ends_its_pes_by_itself() {
    for (host, pes) in [
        ("a", "PEs 0 to 7"),
        ("b", "PEs 2 to 5"),
        ("d", "PEs 6 to 7"),
    ] {
        let net = Network::new();
        let job = job_on_hosts(&net).env(TIMEOUT, "2s").start();
        job.wait_for("sleep", 8);
        net.cut(host);
        // Nothing is left, which is to be seen before the link is mended.
        let out = job.wait();
        tells_of_silence(&out);
        for part in [format!("({host}): "), pes.to_owned()] {
            assert!(out.stderr.contains(&part), "no {part} in {out:?}");
        }
    }
}

#[test]
fn who_is_stopped_on_purpose_is_not_silent() {
    for signal in [TSTP, STOP] {
        let script = "trap 'exit 0' USR2; while :; do sleep 0.1; done";
        let job = sh(&["-n", "4", "--nodes", "3", "--tree-degree", "2"], script);
        let job = job.env(TIMEOUT, "4s").start();
        job.wait_for("sh", 4);
        job.kill(signal);
        std::thread::sleep(Duration::from_secs(9));
        job.kill(CONT);
        // Whoever is silent since then is told of after that.
        std::thread::sleep(Duration::from_secs(6));
        job.kill(12);
        let out = job.wait();
        assert_eq!(out.code(), 0, "{out:?}");
        assert!(out.messages().is_empty(), "{out:?}");
    }
}

#[test]
fn without_a_limit_everybody_may_be_silent() {
    let job = job_on_nodes().env(TIMEOUT, "0s").start();
    job.wait_for("sleep", 8);
    let agents = job.wait_for("shmrun-agent", 4);
    kill(agents[3], STOP);
    std::thread::sleep(Duration::from_secs(2));
    kill(agents[3], CONT);
    for pe in job.wait_for("sleep", 8) {
        kill(pe, 10);
    }
    let out = job.wait();
    assert_eq!(out.code(), 128 + 10, "{out:?}");
}

#[test]
fn idle_links_are_no_reason_to_end_a_job() {
    let net = Network::new();
    let job = net.job("a,b,c,d", &["--tree-degree", "2", "sleep", "9"]);
    let out = job.env(TIMEOUT, "4s").run();
    assert_eq!((out.code(), out.stderr.as_str()), (0, ""), "{out:?}");
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
        let name = group.file_name().unwrap().to_string_lossy().into_owned();
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
    let job = job_with_sessions().env(TIMEOUT, "0s").start();
    job.wait_for("sleep", 8);
    for agent in job.wait_for("shmrun-agent", 2) {
        kill(agent, STOP);
    }
    job.kill(9);
    assert_eq!(job.wait().signal(), Some(9));
}

#[test]
fn the_others_go_on_without_pes_that_fail() {
    let script = "case $PMI_RANK in 2) exit 3;; 4) kill -9 $$;; esac; sleep 0.5; echo done";
    let out = sh(&["-n", "6", "--nodes", "3", "--keep-going"], script).run();
    assert!([3, 137].contains(&out.code()), "{out:?}");
    assert_eq!(out.stdout, "done\n".repeat(4));
    let told = out.messages();
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
    let go = std::env::temp_dir().join(format!("shmrun-lost-node-{}", std::process::id()));
    let script = "while ! test -e $GO; do sleep 0.05; done; echo done";
    let options = ["-n", "6", "--nodes", "3", "--keep-going"];
    for signal in [9, STOP] {
        let job = sh(&options, script).env("GO", &go).env(TIMEOUT, "2s");
        let job = job.start();
        job.wait_for("sh", 6);
        let mut agents = job.wait_for("shmrun-agent", 3);
        agents.sort_unstable();
        kill(agents[2], signal);
        wait_until(
            "the node is lost",
            || job.processes().iter().filter(|p| p.name == "sh").count() == 4,
            || format!("{:?}", job.processes()),
        );
        // It has to be told of, too.
        std::thread::sleep(Duration::from_millis(500));
        std::fs::File::create(&go).unwrap();
        let out = job.wait();
        std::fs::remove_file(&go).unwrap();
        assert_eq!(
            (out.code(), out.stdout.as_str()),
            (125, &*"done\n".repeat(4)),
            "{out:?}"
        );
        let part = "2 of 6 PEs failed (--keep-going): PEs 4 to 5 lost with node 2";
        assert!(out.stderr.contains(part), "no {part} in {out:?}");
    }
}
