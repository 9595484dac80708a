//! Jobs of an ordinary user who may have few descriptors, as most accounts do: what the kernel counts
//! for the user, above all descriptors that are on their way from agents to templates, it does not
//! hold against root.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use shmem_testkit::needs::skipped;
use shmem_testkit::{Job, wait_until};

use crate::support::HEARTBEAT_TIMEOUT;

/// Users that each test process may have, if root runs it: one for each test, so that nobody else's descriptors
/// count.
const USERS: u32 = 10;

/// The first user id that may be chosen, and how many sets of them there are: below those that systems give away by
/// themselves, and within the 65,536 that a container may have.
const FIRST_USER: u32 = 10_000;
const SETS: u32 = 5000;

/// Whether this is nobody's id: there is no such account, and no process.
fn is_free(user: u32) -> bool {
    let account = Command::new("getent")
        .args(["passwd", &user.to_string()])
        .stdout(Stdio::null())
        .status();
    let owned = |entry: std::io::Result<fs::DirEntry>| {
        let owner = entry.ok().and_then(|e| e.metadata().ok());
        owner.is_some_and(|owner| owner.uid() == user)
    };
    let known = account.expect("getent, of the C library").success();
    !known && !fs::read_dir("/proc").unwrap().any(owned)
}

/// The user of a test, by its number: other test processes begin to look elsewhere.
fn user(number: u32) -> u32 {
    assert!(number < USERS);
    (0..SETS)
        .map(|set| FIRST_USER + (std::process::id() + set) % SETS * USERS + number)
        .find(|&user| is_free(user))
        .expect("an id that nobody has")
}

/// A directory of programs that the user may execute, and what starts them.
struct Account {
    user: u32,
    dir: PathBuf,
}

impl Account {
    /// That of the test with this number.
    fn new(number: u32) -> Self {
        let user = user(number);
        let name = format!("shmrun-ordinary-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        Self { user, dir }
    }

    /// A copy of a program that cargo has built beside `shmrun`.
    fn program(&self, name: &str) -> String {
        let from = Path::new(env!("CARGO_BIN_EXE_shmrun")).with_file_name(name);
        let to = self.dir.join(from.file_name().unwrap());
        if !to.exists() {
            // By another process: a program that is open for writing in this one, or in one that is being
            // forked from it, could not be executed.
            let copied = Command::new("cp").args([&from, &to]).status().unwrap();
            assert!(copied.success(), "{}", from.display());
            fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
        }
        to.to_str().expect("an ordinary path").to_owned()
    }

    /// A command of the ordinary user, who is the one that runs this unless that is root; with at most
    /// so many descriptors.
    fn command(&self, descriptors: u32, name: &str, args: &[&str]) -> Command {
        let mut command = Command::new("/bin/sh");
        let limits = format!("ulimit -Sn {descriptors} && ulimit -Hn {descriptors} && exec \"$@\"");
        command
            .args(["-c", &limits, "sh", &self.program(name)])
            .args(args)
            .current_dir(&self.dir);
        if fs::metadata("/proc/self").unwrap().uid() == 0 {
            command.uid(self.user).gid(self.user);
        }
        command.env(HEARTBEAT_TIMEOUT, "0s");
        command
    }

    fn shmrun(&self, descriptors: u32, args: &[&str]) -> Job {
        Job::of(self.command(descriptors, "shmrun", args))
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn many_nodes_on_few_descriptors() {
    let account = Account::new(0);
    let probe = account.program("examples/probe");
    let options = ["-n", "1000", "--nodes", "64", &probe, "init", "finalize"];
    let out = account.shmrun(1024, &options).run();
    assert_eq!((out.code(), out.stderr.as_str()), (0, ""));
}

#[test]
fn a_job_as_large_as_a_machine_of_the_site_on_few_descriptors() {
    let account = Account::new(6);
    let probe = account.program("examples/probe");
    let options = ["-n", "8192", "--nodes", "128", &probe, "init", "finalize"];
    let out = account.shmrun(1024, &options).run();
    // A small machine may lack something else: it says what, by name and number, and starts nothing.
    if out.code() == 125 {
        let named = [
            "kernel.pid_max is ",
            "kernel.threads-max is ",
            "pids.max is ",
            "(ulimit -u) is ",
            " of memory: ",
        ];
        assert!(
            named.iter().any(|name| out.stderr.contains(name)),
            "{out:?}"
        );
        assert_eq!(out.messages().len(), 1, "{out:?}");
        return skipped("memory", out.stderr.trim_end());
    }
    assert_eq!((out.code(), out.stderr.as_str()), (0, ""));
}

/// A job of an account that may have so many processes.
fn with_processes(account: &Account, most: u32, args: &str) -> Job {
    let shmrun = account.program("shmrun");
    let script = format!("ulimit -u {most}; exec {shmrun} {args}");
    let mut command = Command::new("/bin/bash");
    command.args(["-c", &script]).current_dir(&account.dir);
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        command.uid(account.user).gid(account.user);
    }
    Job::of(command)
}

#[test]
fn a_job_may_need_all_processes_that_its_user_may_have() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return skipped("users", "an account without other processes");
    }
    let account = Account::new(8);
    // Beside shmrun itself: its three threads, an agent, a guard, what starts the PEs, and four PEs.
    let out = with_processes(&account, 11, "-n 4 true").run();
    assert_eq!((out.code(), &*out.stderr), (0, ""), "{out:?}");
    let out = with_processes(&account, 10, "-n 4 true").run();
    assert_eq!(out.code(), 125, "{out:?}");
    let said = "needs 10 processes and threads beside the 1 that exist, but";
    assert!(out.stderr.contains(said), "{out:?}");
    // With a thread of each PE and two nodes.
    let hello = account.program("examples/probe");
    let args = format!("-n 4 --nodes 2 {hello} init finalize");
    let out = with_processes(&account, 18, &args).run();
    assert_eq!((out.code(), &*out.stderr), (0, ""), "{out:?}");
    let out = with_processes(&account, 17, &args).run();
    assert_eq!(out.code(), 125, "{out:?}");
}

#[test]
fn a_limit_of_processes_is_told_before_anything_starts() {
    let account = Account::new(7);
    let out = with_processes(&account, 600, "-n 1000 --nodes 64 true").run();
    assert_eq!(out.code(), 125, "{out:?}");
    let said = "needs 2195 processes and threads beside the ";
    for part in [said, "(ulimit -u) is 600; raise it with: ulimit -u "] {
        assert!(out.stderr.contains(part), "{part} in {out:?}");
    }
}

#[test]
fn more_pes_than_a_user_may_have_descriptors_for_are_refused() {
    let account = Account::new(5);
    let out = account.shmrun(1024, &["-n", "1370", "true"]).run();
    assert_eq!(out.code(), 125);
    let advice = out.stderr.split("--ppn ").nth(1).expect("an advice");
    let most: String = advice.chars().take_while(char::is_ascii_digit).collect();
    let options = ["-n", "1370", "--ppn", &most, "true"];
    let out_as_advised = account.shmrun(1024, &options).run();
    assert_eq!(out_as_advised.code(), 0, "{out_as_advised:?}");
    assert_eq!(out.stdout, "");
}

/// A program that takes all that its user may have on their way.
struct Crowd(Child);

impl Crowd {
    fn start(account: &Account) -> Self {
        let mut child = account
            .command(1024, "examples/crowd", &[])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("crowd starts");
        let mut line = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut line).unwrap();
        assert!(line.contains("Too many references"), "{line}");
        Self(child)
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

#[test]
fn a_job_waits_for_others_of_the_same_user() {
    let account = Account::new(2);
    let crowd = Crowd::start(&account);
    let options = ["-n", "40", "--nodes", "4", "/bin/sh", "-c", "echo here"];
    let job = account.shmrun(1024, &options);
    let job = job.start();
    // That nothing has started by now is what the crowd is for. It is no failure if it has, and even ended: the
    // crowd may have met other tests of the same user, who have given back since what they had.
    wait_until(
        "all nodes have begun to start PEs, or the job has ended",
        || {
            let there = job.processes();
            let spawners = there.iter().filter(|p| p.name == "shmrun-spawner");
            there.is_empty() || spawners.count() == 4
        },
        || format!("{:?}", job.processes()),
    );
    std::thread::sleep(std::time::Duration::from_millis(300));
    crowd.end();
    let out = job.wait();
    assert_eq!((out.code(), out.stderr.as_str()), (0, ""));
    assert_eq!(out.stdout, "here\n".repeat(40));
}
