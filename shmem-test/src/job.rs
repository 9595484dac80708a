//! The job of a test, as the test sees it: it is started, its output is passed on, and its end is judged.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use shmem_node::settings::Settings;
use shmem_pmi::process::launchers::{Launcher, launcher};

use crate::output::{Line, Output, Stream};
use crate::{Test, launcher::NAME, pe};

/// Most of what the launcher says that a message has.
const MOST: usize = 64 << 10;

/// Runs the job of a test to its end.
///
/// # Errors
/// Why the test has failed, for its user.
pub(crate) fn run(test: &Test) -> Result<(), String> {
    refuse_a_pe()?;
    let limit = limit(test)?;
    let program =
        std::env::current_exe().map_err(|e| format!("cannot find the test program: {e}"))?;
    let child = start(test, limit, program).map_err(|e| format!("cannot start the job: {e}"))?;
    let ended = attend(test, child).map_err(|e| format!("cannot follow the job: {e}"))?;
    judge(test, &ended)
}

/// A job at its end.
#[derive(Debug)]
struct Ended {
    status: ExitStatus,
    /// What the launcher has said.
    said: String,
    /// How many PEs have begun with the test.
    begun: u32,
}

/// A PE that would start jobs of its own, as all the others do, is not what anybody means.
fn refuse_a_pe() -> Result<(), String> {
    let found = launcher(|name| std::env::var(name).ok());
    let who = match found {
        Ok(Launcher::Nobody) => return Ok(()),
        Ok(Launcher::Agent(_)) => "shmrun".to_owned(),
        Ok(Launcher::Pmi | Launcher::Mpi) => "a launcher that speaks PMI or PMIx".to_owned(),
        Err(refused) => return Err(format!("it starts a job of its own, but {refused}")),
    };
    Err(format!(
        "it starts a job of its own, but this process is a PE already, started by {who}: run the test program without, \
         as `cargo test` does"
    ))
}

/// The time limit in force, in seconds.
fn limit(test: &Test) -> Result<Option<u64>, String> {
    let settings = Settings::from_env().map_err(|e| e.to_string())?;
    let Some(given) = settings.test_timeout else {
        return Ok(Some(test.seconds));
    };
    let whole = given.as_secs() + u64::from(given.subsec_nanos() > 0);
    Ok((given > Duration::ZERO).then_some(whole))
}

fn start(test: &Test, limit: Option<u64>, program: PathBuf) -> io::Result<Child> {
    // What runs, even if its file has been replaced.
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0(NAME)
        // In an allocation, too, the nodes are emulated here: they are what the test asks for.
        .args([
            "-x",
            "SHMEM_ALLOCATION=none",
            "--launcher",
            "fork",
            "--stdin",
            "none",
            "--label",
        ])
        .args([
            "-n",
            &test.pes.to_string(),
            "--nodes",
            &test.nodes.to_string(),
        ]);
    if let Some(seconds) = limit {
        command.args(["--timeout", &seconds.to_string()]);
    }
    for (name, value) in test.env {
        command.args(["--genv", &format!("{name}={value}")]);
    }
    command
        .arg("--")
        .arg(program)
        .args(["--exact", test.in_crate(), pe::ARGUMENT])
        .args(["--include-ignored", "--nocapture", "--test-threads=1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let parent = getpid();
    let end_with_it = move || {
        set_parent_process_death_signal(Some(Signal::TERM))?;
        // It may have ended before.
        match getppid() == Some(parent) {
            true => Ok(()),
            false => Err(io::ErrorKind::BrokenPipe.into()),
        }
    };
    // SAFETY: system calls alone, and an error without memory of its own.
    unsafe { command.pre_exec(end_with_it) };
    command.spawn()
}

/// Passes on what the PEs write until the job has ended.
///
/// It is this thread that writes, because its output is what libtest takes for the test's.
fn attend(test: &Test, mut child: Child) -> io::Result<Ended> {
    let mut output = Output::new(test.in_crate(), test.pes > 1);
    let mut said = String::new();
    let (sender, lines) = channel();
    let (out, err) = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        let errors = sender.clone();
        scope.spawn(move || read(out, Stream::Out, &sender));
        scope.spawn(move || read(err, Stream::Err, &errors));
        for (stream, line) in lines {
            let line = String::from_utf8_lossy(&line);
            match (output.take(stream, &line), stream) {
                (Line::Pe(text), Stream::Out) => println!("{text}"),
                (Line::Pe(text), Stream::Err) => eprintln!("{text}"),
                (Line::Launcher(text), _) if said.len() < MOST => {
                    let _ = writeln!(said, "{text}");
                }
                (Line::Launcher(_) | Line::Noise, _) => {}
            }
        }
    });
    Ok(Ended {
        status: child.wait()?,
        said,
        begun: output.begun(),
    })
}

/// Reads lines to the end.
fn read(from: Option<impl Read>, stream: Stream, to: &Sender<(Stream, Vec<u8>)>) {
    let Some(from) = from else { return };
    let mut from = BufReader::new(from);
    loop {
        let mut line = Vec::new();
        match from.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                line.pop_if(|&mut last| last == b'\n');
                if to.send((stream, line)).is_err() {
                    return;
                }
            }
        }
    }
}

fn judge(test: &Test, ended: &Ended) -> Result<(), String> {
    let job = {
        let (pes, nodes) = (test.pes, test.nodes);
        let s = |n| if n == 1 { "" } else { "s" };
        format!("the job of {pes} PE{} on {nodes} node{}", s(pes), s(nodes))
    };
    let (status, said) = (ended.status, ended.said.trim_end());
    match (status.code(), test.panics) {
        // libtest is content with no test at all.
        (Some(0), _) if ended.begun < test.pes => Err(format!(
            "{job} has ended well, but only {} of its PEs have run the test: is it known to libtest as {:?}?",
            ended.begun,
            test.in_crate()
        )),
        (Some(0), None) => {
            // What it noticed beside.
            if !said.is_empty() {
                eprintln!("{said}");
            }
            Ok(())
        }
        (Some(0), Some(_)) => Err(format!(
            "{job} has ended well, and one of its PEs should panic"
        )),
        (Some(pe::PANICKED), Some(_)) if ended.begun > 0 => {
            eprintln!("{said}");
            Ok(())
        }
        (_, Some(_)) => Err(format!(
            "{job} has failed, but not by the panic that it should ({status})\n{said}"
        )),
        (_, None) => Err(format!("{job} has failed ({status})\n{said}")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    const TEST: Test = Test {
        name: "a::b::c",
        pes: 2,
        nodes: 1,
        seconds: 9,
        env: &[],
        panics: None,
    };

    fn judged(panics: Option<&'static str>, code: i32, begun: u32) -> Result<(), String> {
        let ended = Ended {
            status: ExitStatus::from_raw(code << 8),
            said: "shmrun: why\n".to_owned(),
            begun,
        };
        judge(&Test { panics, ..TEST }, &ended)
    }

    #[test]
    fn the_status_decides_if_all_have_begun() {
        assert_eq!(judged(None, 0, 2), Ok(()));
        let failed = judged(None, 101, 2).unwrap_err();
        assert_eq!(
            failed,
            "the job of 2 PEs on 1 node has failed (exit status: 101)\nshmrun: why"
        );
        let unknown = judged(None, 0, 1).unwrap_err();
        assert!(unknown.contains("only 1 of its PEs"), "{unknown}");
        assert!(unknown.contains("\"b::c\""), "{unknown}");
    }

    #[test]
    fn a_panic_that_should_be_passes_and_nothing_else() {
        assert_eq!(judged(Some(""), 101, 2), Ok(()));
        // It is libtest's own status, too.
        assert!(judged(Some(""), 101, 0).is_err());
        for other in [0, 1, 124, 134] {
            assert!(judged(Some(""), other, 2).is_err(), "{other}");
        }
    }
}
