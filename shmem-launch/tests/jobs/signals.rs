//! Signals for `shmrun`: ignored ones, those that stop and continue a job, those that programs use.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;

use shmem_testkit::processes::kill;
use shmem_testkit::{Job, Running, wait_until};

use crate::hosts::Network;
use crate::support::{shmrun, shmrun_after};

const HUP: i32 = 1;
const INT: i32 = 2;
const QUIT: i32 = 3;
const CONT: i32 = 18;
const TSTP: i32 = 20;

/// A file that PEs wait for.
struct Go(std::path::PathBuf);

impl Go {
    fn new() -> Self {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("shmrun-go-{}-{number}", std::process::id())))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn give(&self) {
        File::create(&self.0).unwrap();
    }
}

impl Drop for Go {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Signals that a process ignores, as a mask of /proc.
fn ignored(text: &str) -> u64 {
    let line = text.lines().find(|l| l.starts_with("SigIgn")).unwrap();
    u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

const WAIT: &str = "grep SigIgn /proc/self/status; while ! test -e $GO; do sleep 0.05; done";

fn outlives(mut job: Job, pes: usize) {
    let go = Go::new();
    job = job.env("GO", go.path());
    let mut job = job.start();
    let mut output = job.stdout();
    let mut text = Vec::new();
    while text.iter().filter(|&&b| b == b'\n').count() < pes {
        let mut part = [0; 512];
        let n = output.read(&mut part).unwrap();
        assert!(n > 0, "{}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&part[..n]);
    }
    for line in String::from_utf8(text).unwrap().lines() {
        let all = bit(HUP) | bit(INT) | bit(QUIT);
        assert_eq!(ignored(line) & all, all, "{line}");
    }
    for signal in [HUP, INT, QUIT, HUP, INT, QUIT] {
        job.kill(signal);
    }
    go.give();
    let out = job.wait();
    assert_eq!((out.code(), &out.stderr[..]), (0, ""), "{out:?}");
}

#[test]
fn what_was_ignored_stays_ignored() {
    let first = "trap '' HUP INT QUIT";
    let args = ["-n", "4", "--nodes", "2", "/bin/sh", "-c", WAIT];
    outlives(shmrun_after(first, &args), 4);
    let net = Network::new();
    let args = [&["--hosts", "a,b", "-n", "4"][..], &args[4..]].concat();
    let job = shmrun_after(first, &args).env("SHMEM_RSH", net.rsh());
    outlives(job, 4);
}

#[test]
fn pes_of_a_template_ignore_what_was_ignored() {
    let probe = crate::template::program();
    for nodes in ["1", "2"] {
        let args = ["-n", "4", "--nodes", nodes, &probe, "signals"];
        let out = shmrun_after("trap '' HUP QUIT", &args).run();
        assert_eq!(out.code(), 0, "{out:?}");
        assert_eq!(out.stdout.lines().count(), 4);
        for line in out.stdout.lines() {
            let all = bit(HUP) | bit(INT) | bit(QUIT) | bit(13);
            // The library of Rust programs ignores SIGPIPE.
            assert_eq!(
                ignored(line) & all,
                bit(HUP) | bit(QUIT) | bit(13),
                "{line}"
            );
        }
    }
}

/// Waits until all processes of this name are in a state.
fn wait_for_state(job: &Running, name: &str, count: usize, stopped: bool) {
    wait_until(
        &format!(
            "{count} {name} are {}",
            if stopped { "stopped" } else { "going on" }
        ),
        || {
            let found = job.processes();
            let of = found.iter().filter(|p| p.name == name && p.state != 'Z');
            of.filter(|p| (p.state == 'T') == stopped).count() == count
        },
        || format!("{:?}", job.processes()),
    );
}

fn stops_and_goes_on(mut job: Job) {
    let go = Go::new();
    job = job.env("GO", go.path());
    let job = job.start();
    job.wait_for("sleep", 4);
    for _ in 0..3 {
        job.kill(TSTP);
        wait_for_state(&job, "sleep", 4, true);
        wait_for_state(&job, "shmrun", 1, true);
        job.kill(CONT);
        wait_for_state(&job, "sleep", 4, false);
        wait_for_state(&job, "shmrun", 1, false);
    }
    for pe in job.wait_for("sleep", 4) {
        kill(pe, 10);
    }
    let out = job.wait();
    assert_eq!(out.code(), 128 + 10, "{out:?}");
}

#[test]
fn a_stopped_job_stops_on_all_nodes_and_goes_on() {
    stops_and_goes_on(shmrun(&["-n", "4", "sleep", "1000"]));
    let args = [
        "-n",
        "4",
        "--nodes",
        "4",
        "-x",
        "SHMEM_TREE_DEGREE=2",
        "sleep",
        "1000",
    ];
    stops_and_goes_on(shmrun(&args));
    let net = Network::new();
    stops_and_goes_on(net.job("a,b", &["-n", "4", "sleep", "1000"]));
}

#[test]
fn a_stopped_job_can_be_ended() {
    let job = shmrun(&["-n", "4", "--nodes", "2", "sleep", "1000"]);
    let job = job.start();
    job.wait_for("sleep", 4);
    job.kill(TSTP);
    wait_for_state(&job, "shmrun", 1, true);
    job.kill(15);
    job.kill(CONT);
    let out = job.wait();
    assert_eq!(out.code(), 143, "{out:?}");
}

#[test]
fn a_killed_launcher_takes_its_stopped_pes_along() {
    let job = shmrun(&["-n", "4", "--nodes", "2", "sleep", "1000"]);
    let job = job.start();
    job.wait_for("sleep", 4);
    job.kill(TSTP);
    wait_for_state(&job, "shmrun", 1, true);
    job.kill(9);
    let out = job.wait();
    assert_eq!(out.signal(), Some(9), "{out:?}");
}

#[test]
fn signals_for_programs_reach_all_of_them() {
    let script = "trap 'echo one' USR1; trap 'echo two; exit 0' USR2; echo up; \
         while :; do sleep 1000 & wait; done";
    for nodes in ["1", "3"] {
        let args = ["-n", "3", "--nodes", nodes, "/bin/sh", "-c", script];
        let job = shmrun(&args).env("SHMEM_PASS_SIGUSR1", "yes");
        let mut job = job.start();
        let mut output = job.stdout();
        let mut expect = |line: &str| {
            let mut text = vec![0; 3 * (line.len() + 1)];
            output.read_exact(&mut text).unwrap();
            assert_eq!(
                String::from_utf8(text).unwrap(),
                format!("{line}\n").repeat(3)
            );
        };
        expect("up");
        job.wait_for("sleep", 3);
        job.kill(10);
        expect("one");
        // A shell that has run its trap starts another sleep, in the group as the first.
        job.kill(12);
        expect("two");
        let out = job.wait();
        assert_eq!(out.code(), 0, "{out:?}");
    }
}

/// A terminal, for a shell with job control or whoever writes to one.
pub(crate) struct Terminal {
    keyboard: File,
    screen: mpsc::Receiver<u8>,
    seen: String,
}

impl Terminal {
    pub(crate) fn open() -> (Self, OwnedFd) {
        let (mut ours, mut theirs) = (-1, -1);
        // SAFETY: the two numbers are written; name, settings and size are left out.
        let opened = unsafe {
            libc::openpty(
                &mut ours,
                &mut theirs,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
        assert_eq!(opened, 0);
        // SAFETY: both are new.
        let (ours, theirs) = unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
        let (sender, screen) = mpsc::channel();
        let mut source = ours.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut part = [0; 256];
            while let Ok(n @ 1..) = source.read(&mut part) {
                for &b in &part[..n] {
                    let _ = sender.send(b);
                }
            }
        });
        let terminal = Self {
            keyboard: ours,
            screen,
            seen: String::new(),
        };
        (terminal, theirs)
    }

    fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until the screen shows this, after what was waited for before; gives what came until then.
    pub(crate) fn wait_for(&mut self, what: &str) -> String {
        while !self.seen.contains(what) {
            let next = self
                .screen
                .recv_timeout(std::time::Duration::from_secs(120));
            let byte = next.unwrap_or_else(|e| panic!("{e}: no {what:?} in {:?}", self.seen));
            self.seen.push(byte.into());
        }
        std::mem::take(&mut self.seen)
    }
}

#[test]
fn a_job_is_stopped_and_continued_from_the_keyboard() {
    let (mut terminal, theirs) = Terminal::open();
    let number = theirs.as_raw_fd();
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-i"])
        .env("PS1", "ready> ")
        .env("HISTFILE", "/dev/null");
    // SAFETY: two system calls between fork and exec, on a descriptor that is open there.
    unsafe {
        shell.pre_exec(move || {
            if libc::setsid() < 0 || libc::ioctl(number, libc::TIOCSCTTY, 0) < 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    let stream = || Stdio::from(theirs.try_clone().unwrap());
    let job = Job::of(shell).stdin(stream());
    let job = job.stdout(stream()).stderr(stream()).start();
    let shmrun = env!("CARGO_BIN_EXE_shmrun");
    terminal.wait_for("ready> ");
    terminal.type_in(&format!("{shmrun} -n 4 --nodes 2 sleep 1000\n"));
    job.wait_for("sleep", 4);
    terminal.type_in("\x1a");
    wait_for_state(&job, "sleep", 4, true);
    terminal.wait_for("ready> ");
    terminal.type_in("fg\n");
    wait_for_state(&job, "sleep", 4, false);
    terminal.type_in("\x03");
    terminal.wait_for("received SIGINT");
    terminal.wait_for("ready> ");
    terminal.type_in("exit 5\n");
    let out = job.wait();
    assert_eq!(out.code(), 5, "{out:?}");
}
