//! Jobs of an ordinary user who may have few descriptors, as most accounts do: what the kernel counts
//! for the user, above all descriptors that are on their way from agents to templates, it does not
//! hold against root.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::Job;

/// The first of the users of these tests, if root runs them: one for each, so that nobody else's
/// descriptors count.
const USER: u32 = 54_321;

/// A directory of programs that the user may execute, and what starts them.
struct Account {
    user: u32,
    dir: PathBuf,
}

impl Account {
    fn new(user: u32) -> Self {
        let name = format!("shmrun-ordinary-{}-{user}", std::process::id());
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
            fs::copy(&from, &to).unwrap_or_else(|e| panic!("{}: {e}", from.display()));
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
    let account = Account::new(USER);
    let probe = account.program("examples/probe");
    let options = ["-n", "1000", "--nodes", "64", &probe, "init", "finalize"];
    let out = account.shmrun(1024, &options).run();
    assert_eq!((out.code(), out.stderr.as_str()), (0, ""));
}

#[test]
fn more_pes_than_one_table_has_room_for() {
    let account = Account::new(USER + 1);
    // Three descriptors for each would be more, two are not.
    let script = "echo out $PMI_RANK; echo err $PMI_RANK >&2; ulimit -n";
    let options = ["-n", "1370", "/bin/sh", "-c", script];
    let out = account.shmrun(4096, &options).run();
    assert_eq!(out.code(), 0, "{out:?}");
    let lines = |text: &str, what: &str| {
        let mut lines: Vec<u32> = text
            .lines()
            .filter_map(|l| l.strip_prefix(what)?.parse().ok())
            .collect();
        lines.sort_unstable();
        lines
    };
    let all: Vec<u32> = (0..1370).collect();
    assert_eq!(lines(&out.stdout, "out "), all);
    assert_eq!(lines(&out.stderr, "err "), all);
    assert_eq!(out.stdout.lines().filter(|&l| l == "4096").count(), 1370);

    let out = account.shmrun(1024, &options).run();
    assert_eq!(out.code(), 125);
    assert!(out.stderr.contains("more --nodes"), "{}", out.stderr);
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
    let account = Account::new(USER + 2);
    let crowd = Crowd::start(&account);
    let options = ["-n", "40", "--nodes", "4", "/bin/sh", "-c", "echo here"];
    let mut job = account.shmrun(1024, &options);
    let child = job.start();
    job.wait_for("shmrun-spawner", 4);
    // That nothing has started by now is what the crowd is for; it is no failure if it has.
    std::thread::sleep(std::time::Duration::from_millis(300));
    crowd.end();
    let out = job.finish(child);
    assert_eq!((out.code(), out.stderr.as_str()), (0, ""));
    assert_eq!(out.stdout, "here\n".repeat(40));
}
