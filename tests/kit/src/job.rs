//! Starts whole jobs, and judges how they end: by themselves, in time, with nothing left behind.
//!
//! A job is whatever one command starts. A variable in its environment marks it, which every process
//! inherits that does not throw its environment away; so processes are found however they were started, and
//! whoever has become their parent.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::processes::{self, Marked, Process};
use crate::report::Report;
use crate::{PATIENCE, text, wait_until};

/// The variable that marks the processes of a job. A remote shell of the tests has to hand it on.
pub const MARK: &str = "TESTKIT_JOB";

const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// Time for a launcher to end by itself after SIGTERM.
const GRACE: Duration = Duration::from_secs(3);

/// Between two looks at what ends soon.
const TICK: Duration = Duration::from_millis(2);

/// Path of a program that was built with the calling one: `shmrun`, `examples/ring`.
///
/// # Errors
/// If it was not.
pub fn built(name: &str) -> std::io::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    if path.is_file() {
        return Ok(path);
    }
    let how = "cargo build --release --workspace --bins --examples";
    let missing = format!("{} is missing: {how}", path.display());
    Err(std::io::Error::new(std::io::ErrorKind::NotFound, missing))
}

/// A job about to be started. Its standard input is empty, its output is taken, unless it is told otherwise.
#[derive(Debug)]
pub struct Job {
    command: Command,
    mark: String,
    report: Option<PathBuf>,
}

impl Job {
    /// The job that a command starts.
    pub fn of(mut command: Command) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // With the time, because numbers of processes come again, and something may be left of the one before.
        let now = UNIX_EPOCH.elapsed().expect("a clock").as_nanos();
        let value = format!("{}-{number}-{now}-end", std::process::id());
        command
            .env(MARK, &value)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self {
            command,
            mark: format!("{MARK}={value}"),
            report: None,
        }
    }

    /// A launcher with options such as `"-n 4 --nodes 2"`, then a program and its arguments.
    pub fn new(launcher: impl AsRef<OsStr>, options: &str, program: &[&str]) -> Self {
        let mut command = Command::new(launcher);
        command.args(options.split_whitespace()).args(program);
        Self::of(command)
    }

    /// The same with `shmrun`, whose report is read when the job has ended.
    pub fn reported(shmrun: impl AsRef<OsStr>, options: &str, program: &[&str]) -> Self {
        let mut job = Self::new(shmrun, "", &[]);
        let name = format!("{}.json", job.mark.replace('=', "-"));
        let file = std::env::temp_dir().join(name);
        job.command.arg("--report").arg(&file);
        job.command.args(options.split_whitespace()).args(program);
        job.report = Some(file);
        job
    }

    /// Sets a variable for the job.
    pub fn env(self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.envs([(name, value)])
    }

    /// Sets variables for the job.
    pub fn envs<V: AsRef<OsStr>>(
        mut self,
        all: impl IntoIterator<Item = (impl AsRef<OsStr>, V)>,
    ) -> Self {
        self.command.envs(all);
        self
    }

    /// Where its input comes from. From a pipe, which is [`Running::child`]'s, comes nothing, and no end before
    /// the job's, unless the test takes it.
    pub fn stdin(mut self, input: impl Into<Stdio>) -> Self {
        self.command.stdin(input);
        self
    }

    /// Where its output goes.
    pub fn stdout(mut self, output: impl Into<Stdio>) -> Self {
        self.command.stdout(output);
        self
    }

    /// Where its messages go.
    pub fn stderr(mut self, errors: impl Into<Stdio>) -> Self {
        self.command.stderr(errors);
        self
    }

    /// In a process group of its own, as a shell with job control has it. The tests themselves may be in one
    /// that nobody could continue, and such a group is not stopped by the kernel.
    pub fn in_a_group(mut self) -> Self {
        self.command.process_group(0);
        self
    }

    /// Starts the job.
    ///
    /// # Panics
    /// If that fails.
    #[track_caller]
    pub fn start(mut self) -> Running {
        let shown = format!("{:?}", self.command);
        let marked = Marked::new(self.mark);
        let begun = Instant::now();
        let child = self.command.spawn();
        Running {
            child: child.unwrap_or_else(|e| panic!("{shown}: {e}")),
            marked,
            report: self.report,
            shown,
            begun,
            took: Duration::ZERO,
        }
    }

    /// Runs the job to its end; see [`Running::wait`].
    #[track_caller]
    pub fn run(self) -> Outcome {
        self.start().wait()
    }

    /// Runs the job with input.
    #[track_caller]
    pub fn run_with_input(self, input: Vec<u8>) -> Outcome {
        let mut job = self.stdin(Stdio::piped()).start();
        let mut stdin = job.stdin();
        let writer = std::thread::spawn(move || {
            // A job that does not read all of its input is no failure of the test.
            let _ = stdin.write_all(&input);
        });
        let outcome = job.wait();
        writer.join().expect("no panic");
        outcome
    }

    /// Runs the job, which must succeed; gives its standard output.
    ///
    /// # Panics
    /// If it does not; and as [`Running::wait`].
    #[track_caller]
    pub fn succeed(self) -> String {
        let outcome = self.run();
        outcome.expect_success();
        outcome.stdout
    }

    /// Runs the job for at most `limit`, ends it then, and kills whatever is left of it: launchers of other
    /// libraries hang at times, and processes of theirs outlive them and would spoil later measurements.
    #[track_caller]
    pub fn run_within(self, limit: Duration) -> Outcome {
        self.start().end_within(limit)
    }
}

/// A pipe from a job. To read fails when nothing comes within [`PATIENCE`]: a job that hangs fails its test
/// rather than holding up all others.
#[derive(Debug)]
pub struct Patient<P>(P);

impl<P: Read + AsFd> Patient<P> {
    /// Reads until a text has come, and returns all that has. What follows can still be read.
    ///
    /// # Panics
    /// If the pipe ends before, or nothing comes within [`PATIENCE`].
    #[track_caller]
    pub fn read_until(&mut self, wanted: &str) -> String {
        let mut come = Vec::new();
        while !come.ends_with(wanted.as_bytes()) {
            let mut byte = [0];
            match self.read(&mut byte) {
                Ok(1..) => come.extend(byte),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                end => panic!("{end:?} before {wanted:?}: {}", text(&come)),
            }
        }
        text(&come)
    }
}

impl<P: Read + AsFd> Read for Patient<P> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let mut readable = [PollFd::new(&self.0, PollFlags::IN)];
        let limit = Timespec::try_from(PATIENCE).expect("seconds");
        if poll(&mut readable, Some(&limit))? == 0 {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        self.0.read(into)
    }
}

/// A job that runs. Dropped before its end, as when a test fails, it is killed.
#[derive(Debug)]
pub struct Running {
    /// The process that was started: the launcher.
    pub child: Child,
    marked: Marked,
    report: Option<PathBuf>,
    shown: String,
    begun: Instant,
    took: Duration,
}

/// A stream that is being read, and what has come. It is read by a thread, so that nobody waits for who
/// writes.
struct Stream {
    thread: JoinHandle<()>,
    bytes: Arc<Mutex<Vec<u8>>>,
}

fn stream(pipe: Option<impl Read + Send + 'static>) -> Stream {
    let bytes = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&bytes);
    let read = move || {
        let mut part = [0; 1 << 16];
        let Some(mut pipe) = pipe else { return };
        loop {
            match pipe.read(&mut part) {
                Ok(0) => return,
                Ok(n) => into.lock().expect("no panic").extend_from_slice(&part[..n]),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => panic!("a readable pipe: {e}"),
            }
        }
    };
    let thread = std::thread::spawn(read);
    Stream { thread, bytes }
}

impl Running {
    /// Process id of the launcher.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Sends the launcher a signal.
    pub fn kill(&self, signal: i32) {
        processes::kill(self.pid(), signal);
    }

    /// The pipe to the launcher's input.
    ///
    /// # Panics
    /// If that is no pipe, or was taken.
    pub fn stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("a pipe to the input")
    }

    /// The pipe from the launcher's output, which the outcome will not have then.
    ///
    /// # Panics
    /// If that is no pipe, or was taken.
    pub fn stdout(&mut self) -> Patient<ChildStdout> {
        Patient(self.child.stdout.take().expect("a pipe from the output"))
    }

    /// The same of the launcher's errors.
    ///
    /// # Panics
    /// If that is no pipe, or was taken.
    pub fn stderr(&mut self) -> Patient<ChildStderr> {
        Patient(self.child.stderr.take().expect("a pipe from the errors"))
    }

    /// The processes of the job that have not ended.
    pub fn processes(&self) -> Vec<Process> {
        self.marked.all()
    }

    /// Waits until so many processes of the job have a name, neither more nor fewer; returns their numbers.
    #[track_caller]
    pub fn wait_for(&self, name: &str, count: usize) -> Vec<i32> {
        let found = self.wait_for_processes(name, count);
        found.iter().map(|p| p.pid).collect()
    }

    /// As [`Self::wait_for`]. What this returns can be killed even if it may have ended meanwhile.
    #[track_caller]
    pub fn wait_for_processes(&self, name: &str, count: usize) -> Vec<Process> {
        self.wait_for_those(name, |found| found.len() == count)
    }

    /// Waits until so many PEs of a program that is a template run. A template has the same name until
    /// its PEs have outlived it; while it lives, it is their parent.
    #[track_caller]
    pub fn wait_for_pes(&self, name: &str, count: usize) -> Vec<i32> {
        let found = self.wait_for_those(name, |found| {
            let template = |of: &Process| found.iter().any(|p| p.pid == of.parent);
            found.len() == count && !found.iter().any(template)
        });
        found.iter().map(|p| p.pid).collect()
    }

    /// Waits until two looks in a row find the same processes with a name, and those wanted: a process has the name
    /// of its parent for a moment, and would be counted in the place of one that is still to come.
    #[track_caller]
    fn wait_for_those(&self, name: &str, these: impl Fn(&[Process]) -> bool) -> Vec<Process> {
        let mut found = Vec::new();
        let same = |a: &[Process], b: &[Process]| {
            let who = |all: &[Process]| -> BTreeSet<_> {
                all.iter().map(|p| (p.pid, p.started)).collect()
            };
            who(a) == who(b)
        };
        wait_until(
            &format!("there are enough {name}"),
            || {
                let before = std::mem::replace(&mut found, self.processes());
                found.retain(|p| p.name == name);
                these(&found) && same(&before, &found)
            },
            || format!("{:?}", self.processes()),
        );
        found
    }

    /// Waits for the end, after which nothing may be left.
    ///
    /// # Panics
    /// If the job does not end in time (it is killed then), or leaves processes behind.
    #[track_caller]
    pub fn wait(mut self) -> Outcome {
        let streams = self.streams();
        let mut status = self.ended(PATIENCE);
        let hung = status.is_none();
        if hung {
            processes::kill(self.pid(), SIGKILL);
            status = self.ended(PATIENCE);
        }
        let outcome = self.outcome(status, streams, PATIENCE, None);
        assert!(!hung, "{} hung: {outcome:?}", self.shown);
        let held = outcome.spoilt.as_ref();
        assert!(held.is_none(), "{}: {held:?}: {outcome:?}", self.shown);
        wait_until(
            "every process of the job is gone",
            || !self.marked.any(),
            || format!("{}: {:?}\n{outcome:?}", self.shown, self.processes()),
        );
        outcome
    }

    /// Waits for the end at most `limit`, after which nothing may be left for longer than `left`.
    ///
    /// # Errors
    /// What was wrong; the whole job is killed then.
    pub fn end_in(mut self, limit: Duration, left: Duration) -> Result<Outcome, String> {
        let streams = self.streams();
        let status = self.ended(limit);
        let hung = status.is_none().then(|| {
            let what = format!(
                "not ended after {} s: {:?}",
                limit.as_secs_f64(),
                self.processes()
            );
            self.kill(SIGKILL);
            what
        });
        let status = status.or_else(|| self.ended(PATIENCE));
        let end = Instant::now() + left;
        while self.marked.any() && Instant::now() < end {
            sleep(TICK * 10);
        }
        let remain = self.processes();
        self.kill_all();
        let outcome = self.outcome(status, streams, GRACE, None);
        match hung {
            Some(what) => Err(format!("{what}: {outcome:?}")),
            None if !remain.is_empty() => Err(format!("left: {remain:?}: {outcome:?}")),
            None => match &outcome.spoilt {
                Some(what) => Err(format!("{what}: {outcome:?}")),
                None => Ok(outcome),
            },
        }
    }

    /// See [`Job::run_within`].
    #[track_caller]
    pub fn end_within(mut self, limit: Duration) -> Outcome {
        let streams = self.streams();
        let (mut status, mut late) = (self.ended(limit), None);
        if status.is_none() {
            late = Some(format!("ended after {} s", limit.as_secs_f64()));
            // A launcher that is asked to end removes its files.
            self.kill(SIGTERM);
            status = self.ended(GRACE);
            if status.is_none() {
                self.kill(SIGKILL);
                status = self.ended(PATIENCE);
            }
        }
        self.kill_all();
        self.outcome(status, streams, GRACE, late)
    }

    fn streams(&mut self) -> [Stream; 2] {
        let child = &mut self.child;
        [stream(child.stdout.take()), stream(child.stderr.take())]
    }

    /// How the launcher ended, if it did within `limit`. It is not looked at meanwhile: that would take time from
    /// what is measured.
    fn ended(&mut self, limit: Duration) -> Option<ExitStatus> {
        let start = Instant::now();
        let pid = Pid::from_raw(self.pid()).expect("no process has number 0");
        // Not before somebody has waited for it is it gone.
        let process = pidfd_open(pid, PidfdFlags::empty());
        loop {
            let status = self.child.try_wait().expect("our child");
            let left = limit.saturating_sub(start.elapsed());
            if status.is_some() {
                self.took = self.begun.elapsed();
            }
            if status.is_some() || left.is_zero() {
                return status;
            }
            match (&process, Timespec::try_from(left)) {
                (Ok(process), Ok(left)) => {
                    let _ = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&left));
                }
                _ => sleep(TICK.min(left)),
            }
        }
    }

    #[track_caller]
    fn outcome(
        &self,
        status: Option<ExitStatus>,
        streams: [Stream; 2],
        patience: Duration,
        late: Option<String>,
    ) -> Outcome {
        let status = status.unwrap_or_else(|| panic!("{} cannot be killed", self.shown));
        let (end, mut spoilt) = (Instant::now() + patience, late);
        let [stdout, stderr] = streams.map(|stream| {
            while !stream.thread.is_finished() && Instant::now() < end {
                sleep(TICK);
            }
            match stream.thread.is_finished() {
                true => stream.thread.join().expect("a readable pipe"),
                // One without the mark, or it would have been found.
                false => spoilt = Some("somebody who outlives it holds its output".to_owned()),
            }
            text(&stream.bytes.lock().expect("no panic"))
        });
        let report = self.report.as_ref().and_then(|file| {
            let report = Report::read(file).ok();
            let _ = std::fs::remove_file(file);
            report
        });
        Outcome {
            status,
            took: self.took,
            stdout,
            stderr,
            spoilt,
            report,
        }
    }

    /// Kills until nobody is left: a process may start another one before it dies. One that dies loses its
    /// memory, and the mark with it, a moment before it has ended.
    fn kill_all(&self) {
        loop {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            let mut out_of_reach = 0;
            for process in &left {
                out_of_reach += usize::from(!process.kill(SIGKILL) && process.lives());
            }
            if out_of_reach == left.len() {
                return; // of another user
            }
            let end = Instant::now() + GRACE;
            while left.iter().any(Process::lives) && Instant::now() < end {
                sleep(TICK);
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Agents and PEs end when their launcher does.
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// How a job ended, and what it said.
#[derive(Debug)]
pub struct Outcome {
    /// Of the launcher.
    pub status: ExitStatus,
    /// From its start to its end.
    pub took: Duration,
    /// What it wrote to its standard output, unless that went elsewhere.
    pub stdout: String,
    /// What it wrote to its standard error, unless that went elsewhere.
    pub stderr: String,
    /// What was wrong with its end, besides its status.
    spoilt: Option<String>,
    /// What a job that was [`Job::reported`] has told, if it came to that.
    pub report: Option<Report>,
}

impl Outcome {
    /// The status with which the launcher exited.
    ///
    /// # Panics
    /// If it was killed.
    #[track_caller]
    pub fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| panic!("the launcher was killed: {self:?}"))
    }

    /// The signal that killed the launcher.
    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    /// How the job failed; none if it did not.
    pub fn failure(&self) -> Option<String> {
        match &self.spoilt {
            Some(how) => Some(how.clone()),
            None if self.status.success() => None,
            None => Some(self.status.to_string()),
        }
    }

    /// The outcome of a job that did not fail.
    ///
    /// # Errors
    /// How the job failed, and what it said.
    pub fn well(self) -> std::io::Result<Self> {
        match self.failure() {
            None => Ok(self),
            Some(how) => Err(std::io::Error::other(format!("{how}\n{}", self.stderr))),
        }
    }

    /// # Panics
    /// If the job failed.
    #[track_caller]
    pub fn expect_success(&self) {
        if let Some(how) = self.failure() {
            panic!("{how}\n{}\n{}", self.stdout, self.stderr);
        }
    }

    /// The report of a job that was [`Job::reported`].
    ///
    /// # Panics
    /// If there is none.
    #[track_caller]
    pub fn report(&self) -> &Report {
        let report = self.report.as_ref();
        report.unwrap_or_else(|| panic!("there is no report: {self:?}"))
    }

    /// The messages of `shmrun` itself.
    pub fn messages(&self) -> Vec<&str> {
        self.stderr
            .lines()
            .filter(|l| l.starts_with("shmrun: "))
            .collect()
    }

    /// The lines of standard output in sorted order.
    pub fn sorted(&self) -> Vec<&str> {
        let mut lines: Vec<_> = self.stdout.lines().collect();
        lines.sort_unstable();
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job::of(command)
    }

    #[test]
    fn what_has_come_is_there_although_somebody_holds_the_output() {
        // Without its environment nobody finds it. It is forked by one that has none already.
        let holder = "env -i /bin/sh -c 'sleep 1000 & echo $!'";
        let outcome = shell(&format!("echo said; {holder}; exit 0")).run_within(PATIENCE);
        let pid = outcome.stdout.strip_prefix("said\n").map(str::trim);
        let holder = Process::of(pid.unwrap().parse().unwrap()).unwrap();
        assert!(holder.kill(SIGKILL));
        let how = outcome.failure().expect("somebody was left");
        assert!(how.contains("holds its output"), "{how}");
    }

    #[test]
    fn what_is_left_is_killed() {
        let outcome = shell("sleep 1000 & echo said; exit 3").run_within(PATIENCE);
        assert_eq!((outcome.code(), &outcome.stdout[..]), (3, "said\n"));
    }
}
