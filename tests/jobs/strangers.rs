//! What those cannot do to a job who are no part of it: other users of its hosts, another host of its network, and processes of
//! the same user that only ask.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};

use shmem_node::contract::unhex;
use shmem_testkit::job::Patient;
use shmem_testkit::needs::skipped;
use shmem_testkit::processes::Process;
use shmem_testkit::{Job, PATIENCE, Running, wait_until};

use crate::hangs::ps;
use crate::hosts::Network;
use crate::programs::{SHMRUN, STRANGERS, shmrun};

const TERM: i32 = 15;
/// A user that no process of a job has.
const STRANGER: &str = "54321";

fn user() -> u32 {
    fs::metadata("/proc/self").expect("/proc").uid()
}

/// A job whose PEs check what they read until its input ends, and what it prints.
struct Checking {
    job: Running,
    key: Vec<u8>,
    output: Patient<ChildStdout>,
}

impl Checking {
    /// All PEs are connected with their neighbours, and have exchanged data.
    fn start(job: Job) -> Self {
        let mut job = job.stdin(Stdio::piped()).start();
        let mut output = job.stdout();
        let said = output.read_until("running\n");
        // No descriptor of the job is left to a program that a PE executes after init.
        assert!(said.contains("child []\n"), "{said}");
        let digits = said.lines().find_map(|line| line.strip_prefix("key "));
        let turned = unhex(digits.expect("a key").as_bytes()).expect("digits");
        Self {
            job,
            key: turned.iter().map(|byte| !byte).collect(),
            output,
        }
    }

    /// Ends it, and finds that all its PEs read what they should; returns the outcome.
    fn end(mut self, pes: usize) -> shmem_testkit::Outcome {
        drop(self.job.stdin());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("its output");
        let outcome = self.job.wait();
        outcome.expect_success();
        assert_eq!(outcome.stderr, "");
        assert_eq!(rest, "ok\n".repeat(pes));
        outcome
    }
}

/// A stranger that goes on until its input ends.
struct Stranger {
    process: Running,
    output: Patient<ChildStdout>,
}

impl Stranger {
    fn start(net: &Network, host: u32, args: &[&str]) -> Self {
        let mut process = net.start(host, &[&[STRANGERS], args].concat());
        let output = process.stdout();
        Self { process, output }
    }

    /// What it did in its next pass: datagrams of the earlier job and of the present one, and invitations.
    fn pass(&mut self) -> [usize; 3] {
        let line = self.output.read_until("\n");
        let numbers = line.split_whitespace().map(|word| word.parse());
        let numbers: Result<Vec<usize>, _> = numbers.collect();
        let numbers = numbers.ok().and_then(|all| all.try_into().ok());
        numbers.unwrap_or_else(|| panic!("{line}"))
    }

    /// Ends it; nobody may have connected to it.
    fn end(mut self) {
        drop(self.process.stdin());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("its output");
        assert!(!rest.contains("connected"), "{rest}");
        self.process.wait().expect_success();
    }
}

/// Two jobs one after the other have the same hosts, addresses and ports. A user of one host and another host of the network send
/// what was recorded of the first to the second, connection messages of the second itself, and invitations to its queue pairs.
#[test]
fn packets_of_an_earlier_job_and_forged_invitations_do_nothing_to_a_job() {
    let Some(net) = Network::new() else { return };
    let files = ["earlier", "live"].map(|name| net.dir.join(name).display().to_string());
    let [earlier, live] = files.each_ref().map(String::as_str);
    let start = || {
        let job = Job::reported(SHMRUN, "-n 2 --hosts 0,1", &[STRANGERS, "pe"]);
        let job = net.over(job).env("SHMEM_SOFT_ADDRESS", "10.78.0.0/24");
        Checking::start(job.env("SHMEM_SOFT_PORT", "20000"))
    };
    let record = |file| {
        let mut recorder = Stranger::start(&net, 0, &["record", file]);
        recorder.output.read_until("recording\n");
        recorder
    };
    let recorder = record(earlier);
    start().end(2);
    recorder.end();
    let recorder = record(live);
    let mut strangers = [(0, STRANGER), (2, "raw")].map(|(host, how)| {
        Stranger::start(&net, host, &["replay", how, "10.78.0.1", earlier, live])
    });
    for stranger in &mut strangers {
        let [earlier, ..] = stranger.pass();
        assert!(earlier > 20, "{earlier}");
    }
    // From its first packet on the job is attacked.
    let job = start();
    for stranger in &mut strangers {
        // This pass may have begun before the job said that it runs.
        while stranger.pass()[1..].contains(&0) {}
        stranger.pass();
    }
    let outcome = job.end(2);
    strangers.into_iter().for_each(Stranger::end);
    recorder.end();
    let report = outcome.report();
    for figure in ["packets dropped, damaged or of strangers", "streams opened"] {
        assert!(report.figure(figure).sum > 0.0, "{figure}");
    }
}

#[test]
fn another_user_sees_and_ends_nothing_of_a_job() {
    if user() != 0 {
        return skipped("users", "this user cannot become another one");
    }
    let job = Checking::start(shmrun("-n 2 --nodes 2", &[STRANGERS, "pe"]));
    let pid = job.job.pid();
    let all = job.job.processes();
    let others = all.iter().map(|p| p.pid).filter(|other| *other != pid);
    let pids: Vec<String> = [pid]
        .into_iter()
        .chain(others)
        .map(|p| p.to_string())
        .collect();
    // shmrun, and for each node an agent and a PE at least.
    assert!(pids.len() >= 5, "{all:?}");
    let mut words = vec!["look", STRANGER, "0"];
    words.extend(pids.iter().map(String::as_str));
    let said = Job::new(STRANGERS, "", &words).succeed();
    assert_eq!(said, format!("looked at {}, could []\n", pids.len()));
    job.end(2);
}

/// The user's own processes may ask `shmrun`. Those that say nothing, or too much, keep nobody else from it.
#[test]
fn who_asks_nothing_is_closed_when_others_ask() {
    let job = shmrun("-n 1", &["sleep", "1000"]).start();
    let pid = job.pid().to_string();
    let name = format!("shmrun-{}-{pid}", user());
    let address = SocketAddr::from_abstract_name(name).expect("a name");
    let connect = || UnixStream::connect_addr(&address);
    wait_until("shmrun listens", || connect().is_ok(), String::new);
    let heard = |mut stream: &UnixStream| {
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let mut heard = Vec::new();
        // What it has sent and nobody read makes the end a reset.
        match stream.read_to_end(&mut heard) {
            Err(e) if e.kind() != ErrorKind::ConnectionReset => panic!("{e}"),
            _ => heard,
        }
    };
    for word in [&b"what\n"[..], &[b'x'; 64]] {
        let mut stream = connect().expect("shmrun listens");
        stream.write_all(word).expect("it is open");
        assert_eq!(heard(&stream), b"");
    }
    let silent: Vec<_> = (0..40)
        .map(|_| connect().expect("shmrun listens"))
        .collect();
    let (code, list, _) = ps(&[]);
    assert_eq!(code, Some(0));
    assert!(list.contains(&pid), "{list}");
    // With `--ps` they were 41 at least, of which 16 have room.
    for stream in &silent[..41 - 16] {
        assert_eq!(heard(stream), b"");
    }
    job.kill(TERM);
    assert_eq!(job.wait().code(), 128 + TERM);
}

#[test]
fn a_socket_of_another_user_is_no_shmrun() {
    if user() != 0 {
        return skipped("users", "this user cannot become another one");
    }
    // No process has such a number, and no other test.
    let numbers = [0, 1].map(|i| ((1 << 30) + 2 * std::process::id() + i).to_string());
    let names = numbers
        .each_ref()
        .map(|number| format!("shmrun-0-{number}"));
    let words = ["pose", STRANGER, &names[0], &names[1]];
    let mut stranger = Job::new(STRANGERS, "", &words)
        .stdin(Stdio::piped())
        .start();
    stranger.stdout().read_until("posing\n");
    let (code, list, _) = ps(&[]);
    assert_eq!(code, Some(0));
    assert!(
        !list.contains(&numbers[0]) && !list.contains("posed"),
        "{list}"
    );
    for (number, why) in numbers.iter().zip(["is another user's", "does not answer"]) {
        let (code, text, err) = ps(&[number]);
        assert_eq!((code, &text[..]), (Some(125), ""), "{err}");
        assert!(err.contains(why), "{err}");
    }
    drop(stranger.stdin());
    stranger.wait().expect_success();
}

/// What the descriptors of a process lead to; nothing if it has ended, or may not be looked at.
fn descriptors(process: &Process) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{}/fd", process.pid));
    let entries = entries.into_iter().flatten();
    let links = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.collect()
}

/// Local addresses of the network sockets of processes, with their kind: `udp 0100007F:4E20`.
fn network_sockets(all: &[Process]) -> Vec<String> {
    let mut found = Vec::new();
    for process in all {
        let own: BTreeSet<_> = descriptors(process).into_iter().collect();
        for kind in ["tcp", "tcp6", "udp", "udp6", "raw", "raw6"] {
            let table = fs::read_to_string(format!("/proc/{}/net/{kind}", process.pid));
            for line in table.unwrap_or_default().lines().skip(1) {
                let words: Vec<_> = line.split_whitespace().collect();
                if own.contains(Path::new(&format!("socket:[{}]", words[9]))) {
                    found.push(format!("{kind} {}", words[1]));
                }
            }
        }
    }
    found
}

#[test]
fn a_job_on_one_node_has_no_socket_of_the_network() {
    let job = Checking::start(shmrun("-n 3", &[STRANGERS, "pe"]));
    assert_eq!(network_sockets(&job.job.processes()), [""; 0]);
    job.end(3);
}

/// On two hosts behind a remote shell, which are this machine.
#[test]
fn the_secret_is_in_no_command_line_variable_or_file_and_no_socket_hears_all_addresses() {
    let name = format!("shmem-secret-{}", std::process::id());
    let [dir, shell] = ["", "-shell"].map(|end| std::env::temp_dir().join(format!("{name}{end}")));
    fs::create_dir(&dir).expect("a new directory");
    fs::write(&shell, "shift; exec sh -c \"$*\"").expect("a script");
    let mut command = Command::new(SHMRUN);
    let options = ["-n", "2", "--hosts", "a,b", STRANGERS, "pe"];
    command.args(options).current_dir(&dir);
    let job = Job::of(command)
        .env("SHMEM_RSH", format!("sh {}", shell.display()))
        .env("SHMEM_SOFT_ADDRESS", "127.0.0.1");
    let job = Checking::start(job);
    let all = job.job.processes();
    let hex: String = job.key.iter().map(|byte| format!("{byte:02x}")).collect();
    let forms = [
        &job.key[..],
        hex.as_bytes(),
        hex.to_uppercase().leak().as_bytes(),
    ];
    let mut looked = 0;
    for process in &all {
        let place = |file: &str| PathBuf::from(format!("/proc/{}/{file}", process.pid));
        let mut places = vec![place("cmdline"), place("environ")];
        // Descriptors of what has no name in a file system read as `socket:[1]`, or `/memfd:heap (deleted)`.
        let files = descriptors(process).into_iter();
        places.extend(files.filter(|file| fs::metadata(file).is_ok_and(|m| m.is_file())));
        for place in places {
            let Ok(bytes) = fs::read(&place) else {
                continue;
            };
            looked += 1;
            for form in forms {
                let holds = bytes.windows(form.len()).any(|window| window == form);
                assert!(
                    !holds,
                    "the secret is in {} of {process:?}",
                    place.display()
                );
            }
        }
    }
    // Command line and environment of shmrun, and of the PEs at least.
    assert!(looked >= 6, "{all:?}");
    // One for each PE, which is not bound to all addresses.
    let sockets = network_sockets(&all);
    assert_eq!(sockets.len(), 2, "{sockets:?}");
    for socket in &sockets {
        assert!(socket.starts_with("udp 0100007F:"), "{sockets:?}");
    }
    job.end(2);
    // Nor has the job left a file behind.
    fs::remove_dir(&dir).expect("an empty directory");
    fs::remove_file(&shell).expect("the script");
}
