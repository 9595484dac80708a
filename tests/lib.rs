//! Starts jobs through the `shmrun` built beside the tests, and judges them.

use std::io::Read;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a job may take before it counts as hung. Generous: a loaded machine is no failure.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// A job about to be started.
#[derive(Debug)]
pub struct Job {
    command: Command,
    shown: String,
}

impl Job {
    /// `shmrun` at path `shmrun` with options such as `"-n 4 --nodes 2"`, then a program and its
    /// arguments.
    pub fn new(shmrun: &str, options: &str, program: &[&str]) -> Self {
        let mut command = Command::new(shmrun);
        command
            .args(options.split_whitespace())
            .args(program)
            .stdin(Stdio::null());
        Self {
            command,
            shown: format!("shmrun {options} {}", program.join(" ")),
        }
    }

    /// The job's standard input brings nothing and does not end before the job.
    pub fn open_input(mut self) -> Self {
        self.command.stdin(Stdio::piped());
        self
    }

    /// Sets a variable for the job.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self.shown = format!("{name}={value} {}", self.shown);
        self
    }

    /// Starts the job with piped output.
    pub fn start(mut self) -> Running {
        let child = self
            .command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.unwrap_or_else(|e| panic!("{}: {e}", self.shown));
        let drain = |mut pipe: Box<dyn Read + Send>| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                pipe.read_to_end(&mut bytes).map(|_| bytes)
            })
        };
        let stdout = drain(Box::new(child.stdout.take().expect("piped")));
        let stderr = drain(Box::new(child.stderr.take().expect("piped")));
        Running {
            _input: child.stdin.take(),
            child,
            pipes: Some([stdout, stderr]),
            shown: self.shown,
        }
    }

    /// Runs the job to its end.
    pub fn output(self) -> Output {
        self.start().wait()
    }

    /// Runs the job, which must succeed; gives its standard output.
    pub fn succeed(self) -> String {
        let shown = self.shown.clone();
        let output = self.output();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(
            output.status.success(),
            "{shown}: {}\n{out}\n{err}",
            output.status
        );
        out
    }
}

type Drain = std::thread::JoinHandle<std::io::Result<Vec<u8>>>;

/// What a pipe brought, once it has ended; `None` if somebody keeps it open.
fn drained(drain: Drain) -> Option<Vec<u8>> {
    let start = Instant::now();
    while !drain.is_finished() {
        if start.elapsed() > PATIENCE {
            return None;
        }
        std::thread::sleep(Duration::from_millis(3));
    }
    Some(drain.join().expect("no panic").expect("a readable pipe"))
}

/// A job that runs. Dropped before its end, as when a test fails, it is killed.
#[derive(Debug)]
pub struct Running {
    child: Child,
    _input: Option<ChildStdin>,
    pipes: Option<[Drain; 2]>,
    shown: String,
}

impl Running {
    /// Process id of `shmrun`.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end of the job.
    ///
    /// # Panics
    /// If the job does not end in time (it is killed then), or a process that it left behind keeps
    /// its output open.
    pub fn wait(mut self) -> Output {
        let start = Instant::now();
        let mut status = None;
        while status.is_none() && start.elapsed() < PATIENCE {
            status = self.child.try_wait().expect("our child");
            std::thread::sleep(Duration::from_millis(3));
        }
        if status.is_none() {
            let _ = self.child.kill();
        }
        let bytes = self.pipes.take().expect("waited for once").map(drained);
        match (status, bytes) {
            (Some(status), [Some(stdout), Some(stderr)]) => Output {
                status,
                stdout,
                stderr,
            },
            (Some(_), _) => panic!("{}: ended, but its output is still open", self.shown),
            (None, bytes) => {
                let [out, err] = bytes.map(|b| b.map(|b| text(&b)));
                panic!("{}: hung\n{out:?}\n{err:?}", self.shown);
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its agents and PEs end when it does.
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Bytes as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A process of the job under test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its process id.
    pub pid: i32,
    /// Its name, of at most 15 bytes.
    pub name: String,
}

/// All living processes that were started with `mark` (`NAME=VALUE`) in their environment.
pub fn family(mark: &str) -> Vec<Member> {
    let entries = std::fs::read_dir("/proc").expect("/proc");
    entries
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let environ = std::fs::read(entry.path().join("environ")).ok()?;
            let marked = environ.split(|&b| b == 0).any(|v| v == mark.as_bytes());
            let name = std::fs::read_to_string(entry.path().join("comm")).ok()?;
            // A process that has ended but was not waited for has no memory, hence no environment.
            marked.then(|| Member {
                pid,
                name: name.trim().to_owned(),
            })
        })
        .collect()
}
