//! Starting `shmrun` in tests, and looking for what it might leave behind.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Long enough for the slowest machine: reached only when something hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A job whose processes can be found by a variable in their environment.
pub(crate) struct Job {
    mark: String,
    command: Command,
}

/// What is known of a process of the job.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) name: String,
    pub(crate) state: char,
    parent: i32,
}

impl Job {
    pub(crate) fn new(args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shmrun"));
        command.args(args);
        Self::under_control(command)
    }

    /// A job that `sh` becomes after it has done something else, say `trap '' HUP`.
    pub(crate) fn after(first: &str, args: &[&str]) -> Self {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", &format!("{first}; exec \"$0\" \"$@\"")])
            .arg(env!("CARGO_BIN_EXE_shmrun"))
            .args(args);
        Self::under_control(command)
    }

    /// In a process group of its own, as a shell with job control has it. The tests themselves may be in one
    /// that nobody could continue, and such a group is not stopped by the kernel.
    fn under_control(mut command: Command) -> Self {
        command.process_group(0);
        Self::of(command)
    }

    /// The job that a command starts.
    pub(crate) fn of(mut command: Command) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("SHMRUN_TEST_MARK={}-{number}-end", std::process::id());
        let (name, value) = mark.split_once('=').unwrap();
        command.env(name, value).env_remove("SHMEM_SPAWN");
        Self { mark, command }
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Starts the job without waiting.
    pub(crate) fn start(&mut self) -> Child {
        self.start_with([Stdio::null(), Stdio::piped(), Stdio::piped()])
    }

    /// Starts it with these standard streams.
    pub(crate) fn start_with(&mut self, streams: [Stdio; 3]) -> Child {
        let [input, output, error] = streams;
        self.command.stdin(input).stdout(output).stderr(error);
        let child = self.command.spawn().expect("shmrun starts");
        // The job's ends are the job's alone.
        self.command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        child
    }

    /// Runs it with these standard streams.
    pub(crate) fn run_with(mut self, streams: [Stdio; 3]) -> Outcome {
        let child = self.start_with(streams);
        self.finish(child)
    }

    /// Runs the job to its end, which leaves nothing.
    pub(crate) fn run(mut self) -> Outcome {
        let child = self.start();
        self.finish(child)
    }

    /// Runs it with input.
    pub(crate) fn run_with_input(mut self, input: Vec<u8>) -> Outcome {
        let mut child = self.start_with([Stdio::piped(), Stdio::piped(), Stdio::piped()]);
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || {
            // A job that does not read all of its input is no failure of the test.
            let _ = stdin.write_all(&input);
        });
        let outcome = self.finish(child);
        writer.join().unwrap();
        outcome
    }

    /// Waits for the end; nothing may be left then.
    pub(crate) fn finish(&self, child: Child) -> Outcome {
        let pid = child.id() as i32;
        let mark = self.mark.clone();
        let watchdog = Watchdog::start(pid);
        let Output {
            status,
            stdout,
            stderr,
        } = child.wait_with_output().unwrap();
        drop(watchdog);
        let outcome = Outcome {
            status: std::os::unix::process::ExitStatusExt::into_raw(status),
            stdout: String::from_utf8_lossy(&stdout).into_owned(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        };
        wait_until(
            "every process of the job is gone",
            || processes(&mark).is_empty(),
            || format!("{:?}\n{outcome:?}", processes(&mark)),
        );
        outcome
    }

    /// The processes of the job.
    pub(crate) fn processes(&self) -> Vec<Process> {
        processes(&self.mark)
    }

    /// Waits until so many processes of the job have a name.
    pub(crate) fn wait_for(&self, name: &str, count: usize) -> Vec<i32> {
        self.wait_for_those(name, |found| found.len() == count)
    }

    /// Waits until so many PEs of a program that is a template run. A template has the same name until
    /// its PEs have outlived it; while it lives, it is their parent.
    pub(crate) fn wait_for_pes(&self, name: &str, count: usize) -> Vec<i32> {
        self.wait_for_those(name, |found| {
            let template = |of: &Process| found.iter().any(|p| p.pid == of.parent);
            found.len() == count && !found.iter().any(template)
        })
    }

    fn wait_for_those(&self, name: &str, these: impl Fn(&[Process]) -> bool) -> Vec<i32> {
        let mut found = Vec::new();
        wait_until(
            &format!("there are enough {name}"),
            || {
                found = self.processes();
                found.retain(|p| p.name == name && p.state != 'Z');
                these(&found)
            },
            || format!("{:?}", self.processes()),
        );
        found.iter().map(|p| p.pid).collect()
    }
}

/// How a job ended. `status` is the raw status of wait(2).
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    #[track_caller]
    pub(crate) fn code(&self) -> i32 {
        assert_eq!(self.status & 0x7f, 0, "shmrun was killed: {self:?}");
        self.status >> 8
    }

    /// The messages of `shmrun` itself.
    pub(crate) fn messages(&self) -> Vec<&str> {
        self.stderr
            .lines()
            .filter(|l| l.starts_with("shmrun: "))
            .collect()
    }

    /// The lines of standard output in sorted order.
    pub(crate) fn sorted(&self) -> Vec<&str> {
        let mut lines: Vec<_> = self.stdout.lines().collect();
        lines.sort_unstable();
        lines
    }
}

/// Kills a hanging job so that the test ends with a message rather than never.
struct Watchdog(std::sync::mpsc::Sender<()>);

impl Watchdog {
    fn start(pid: i32) -> Self {
        let (sender, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            if ended.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                eprintln!("shmrun (pid {pid}) hangs and is killed");
                kill(pid, 9);
            }
        });
        Self(sender)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

pub(crate) fn wait_until(what: &str, mut is: impl FnMut() -> bool, state: impl Fn() -> String) {
    let start = Instant::now();
    while !is() {
        assert!(
            start.elapsed() < PATIENCE,
            "waited in vain until {what}: {}",
            state()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn kill(pid: i32, signal: i32) {
    assert!(pid > 1);
    let status = Command::new("/bin/kill")
        .args([format!("-{signal}"), pid.to_string()])
        .status()
        .unwrap();
    // The target may have ended in the meantime.
    let _ = status;
}

fn processes(mark: &str) -> Vec<Process> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|n| n.parse::<i32>().ok())
        else {
            continue;
        };
        let Ok(environ) = std::fs::read(entry.path().join("environ")) else {
            continue;
        };
        if !environ.windows(mark.len()).any(|w| w == mark.as_bytes()) {
            continue;
        }
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        let (Some(open), Some(close)) = (stat.find('('), stat.rfind(')')) else {
            continue;
        };
        let mut rest = stat[close + 1..].split_whitespace();
        let state = rest.next().and_then(|s| s.chars().next()).unwrap_or('?');
        found.push(Process {
            pid,
            name: stat[open + 1..close].to_owned(),
            state,
            parent: rest.next().and_then(|p| p.parse().ok()).unwrap_or(0),
        });
    }
    found
}
