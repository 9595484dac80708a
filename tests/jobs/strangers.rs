//! Attacks on a job, which must have no effect: by other users of its hosts, by another host of its network, and by processes of
//! the same user that only ask.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use shmem_node::contract::unhex;
use shmem_node::sys::user;
use shmem_testkit::job::Patient;
use shmem_testkit::needs::skipped;
use shmem_testkit::processes::Process;
use shmem_testkit::{Job, PATIENCE, Running, wait_until};

use crate::hangs::ps;
use crate::hosts::Network;
use crate::programs::{SHMRUN, STRANGERS, shmrun};
use crate::seeing::Dir;

const TERM: i32 = 15;
/// A user that no process of a job has.
const STRANGER: &str = "54321";

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
    /// Its input, once something was written to it.
    input: Option<ChildStdin>,
}

impl Stranger {
    fn start(net: &Network, host: u32, args: &[&str]) -> Self {
        let mut process = net.start(host, &[&[STRANGERS], args].concat());
        let output = process.stdout();
        Self {
            process,
            output,
            input: None,
        }
    }

    /// Reads what it did in its next pass: the lines of input that it had read before the pass, and the packets that it sent:
    /// datagrams of the earlier job, datagrams of the present one alone, and invitations.
    fn pass(&mut self) -> [usize; 4] {
        let line = self.output.read_until("\n");
        let numbers = line.split_whitespace().map(|word| word.parse());
        let numbers: Result<Vec<usize>, _> = numbers.collect();
        let numbers = numbers.ok().and_then(|all| all.try_into().ok());
        numbers.unwrap_or_else(|| panic!("{line}"))
    }

    /// Waits for a pass that begins from now on, in which it attacks the present job with packets of that job, too. Passes that
    /// it printed before are in the pipe, so a line of input marks those that begin later.
    fn attacks_the_present_job(&mut self) {
        let mut input = self.process.stdin();
        input.write_all(b"from now on\n").expect("its input");
        let start = Instant::now();
        loop {
            let [lines, _, live, invitations] = self.pass();
            if lines == 1 && live > 0 && invitations > 0 {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "{lines} {live} {invitations}");
        }
        self.input = Some(input);
    }

    /// Ends it; nobody may have connected to it.
    fn end(mut self) {
        drop(self.input.take().unwrap_or_else(|| self.process.stdin()));
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
        let [_, earlier, ..] = stranger.pass();
        assert!(earlier > 20, "{earlier}");
    }
    // From its first packet on the job is attacked.
    let job = start();
    for stranger in &mut strangers {
        stranger.attacks_the_present_job();
    }
    let outcome = job.end(2);
    strangers.into_iter().for_each(Stranger::end);
    recorder.end();
    let report = outcome.report();
    for figure in [
        "packets dropped (damaged, late or of strangers)",
        "streams opened",
    ] {
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
fn silent_connections_to_shmrun_give_way_to_questions() {
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
    for text in [&numbers[0], &numbers[1], "posed"] {
        assert!(!list.contains(text), "{text}: {list}");
    }
    // Of the second nobody knows the user, since nobody accepts.
    let full = std::io::Error::from_raw_os_error(libc::EAGAIN).to_string();
    for (number, why) in numbers.iter().zip(["is another user's", &full]) {
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
    let scratch = Dir::new("secret");
    let [dir, shell] = ["directory", "shell"].map(|name| scratch.0.join(name));
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
    let upper = hex.to_uppercase();
    let forms = [&job.key[..], hex.as_bytes(), upper.as_bytes()];
    for process in &all {
        let place = |file: &str| PathBuf::from(format!("/proc/{}/{file}", process.pid));
        // Descriptors of what has no name in a file system read as `socket:[1]`, or `/memfd:heap (deleted)`.
        let files = descriptors(process).into_iter();
        let files = files.filter(|file| fs::metadata(file).is_ok_and(|m| m.is_file()));
        let own = [place("cmdline"), place("environ")];
        // The kernel hides the environment of a process that is not dumpable from all users but root.
        let is_hidden = process.name == "shmrun-spawner";
        for place in own.iter().cloned().chain(files) {
            let bytes = match fs::read(&place) {
                Ok(bytes) => bytes,
                Err(_) if is_hidden || !own.contains(&place) => continue,
                Err(e) => panic!("{}, {process:?}: {e}", place.display()),
            };
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
    // shmrun, and for each host a remote shell or an agent, and a PE.
    assert!(all.len() >= 5, "{all:?}");
    // One for each PE, which is not bound to all addresses.
    let sockets = network_sockets(&all);
    assert_eq!(sockets.len(), 2, "{sockets:?}");
    for socket in &sockets {
        assert!(socket.starts_with("udp 0100007F:"), "{sockets:?}");
    }
    job.end(2);
    // Nor has the job left a file behind.
    fs::remove_dir(&dir).expect("an empty directory");
}
