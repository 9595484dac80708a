//! Jobs at PMI-1 servers that offer little. One has the least that such servers have, and no process mapping, so
//! the PEs find out by themselves who shares a machine. The other behaves as that of Flux 0.88, by its source
//! (`libpmi/simple_server.c`, `shell/pmi/pmi.c`): short limits, no text for errors, and a process that says
//! anything else than it knows is ended.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::JoinHandle;

use shmem_testkit::{PATIENCE, text};

use crate::programs::{PMI_PROCESS, RING};

const SIZE: usize = 3;

/// What the connections share: pairs, and the fence.
struct Server {
    pairs: Mutex<HashMap<String, String>>,
    fence: Barrier,
    flux: bool,
}

fn value<'a>(line: &'a str, key: &str) -> &'a str {
    let pairs = line
        .split_whitespace()
        .filter_map(|pair| pair.split_once('='));
    let mut found = pairs.filter(|(name, _)| *name == key);
    found.next().map_or("", |(_, value)| value)
}

impl Server {
    fn new(flux: bool) -> Arc<Self> {
        Arc::new(Self {
            pairs: Mutex::default(),
            fence: Barrier::new(SIZE),
            flux,
        })
    }

    /// Of Flux. 63 bytes of names and keys, 1023 of values; a key that is put twice is an error (4).
    fn reply_of_flux(&self, line: &str) -> String {
        let (key, text) = (value(line, "key"), value(line, "value"));
        assert!(line.len() < 64 + 64 + 1024 + 64 && key.len() < 64, "{line}");
        assert!(matches!(value(line, "kvsname"), "" | FLUX_JOB), "{line}");
        match value(line, "cmd") {
            "init" if value(line, "pmi_version") == "2" => "cmd=response_to_init rc=-1\n".into(),
            "init" => "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n".into(),
            "get_maxes" => "cmd=maxes rc=0 kvsname_max=64 keylen_max=64 vallen_max=1024\n".into(),
            "get_my_kvsname" => format!("cmd=my_kvsname rc=0 kvsname={FLUX_JOB}\n"),
            "get_appnum" => "cmd=appnum rc=0 appnum=0\n".into(),
            "get_universe_size" => format!("cmd=universe_size rc=0 size={SIZE}\n"),
            "put" => {
                assert!(text.len() < 1024, "{line}");
                let mut pairs = self.pairs.lock().unwrap();
                let rc = match pairs.insert(key.into(), text.into()) {
                    None => 0,
                    Some(_) => 4,
                };
                format!("cmd=put_result rc={rc}\n")
            }
            "get" => match self.pairs.lock().unwrap().get(key) {
                Some(text) => format!("cmd=get_result rc=0 value={text}\n"),
                None => "cmd=get_result rc=4\n".into(),
            },
            "barrier_in" => {
                self.fence.wait();
                "cmd=barrier_out rc=0\n".into()
            }
            "publish_name" => "cmd=publish_result rc=-1 msg=command not implemented\n".into(),
            "lookup_name" => "cmd=lookup_result rc=-1 msg=command not implemented\n".into(),
            "unpublish_name" => "cmd=unpublish_result rc=-1 msg=command not implemented\n".into(),
            "abort" => String::new(),
            "finalize" => "cmd=finalize_ack rc=0\n".into(),
            other => panic!("a command for which Flux ends the process: {other}"),
        }
    }

    fn reply(&self, line: &str) -> String {
        if self.flux {
            return self.reply_of_flux(line);
        }
        match value(line, "cmd") {
            "initack" => format!(
                "cmd=initack rc=0\ncmd=set size={SIZE}\ncmd=set rank={}\ncmd=set debug=0\n",
                value(line, "pmiid")
            ),
            "init" => "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n".into(),
            "get_maxes" => "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n".into(),
            "get_appnum" => "cmd=appnum appnum=0\n".into(),
            "get_universe_size" => "cmd=universe_size size=-1\n".into(),
            "get_my_kvsname" => {
                format!("cmd=my_kvsname kvsname=plain_{}\n", std::process::id())
            }
            "put" => {
                let pair = (value(line, "key").into(), value(line, "value").into());
                self.pairs.lock().unwrap().extend([pair]);
                "cmd=put_result rc=0 msg=success\n".into()
            }
            "get" => match self.pairs.lock().unwrap().get(value(line, "key")) {
                Some(value) => format!("cmd=get_result rc=0 msg=success value={value}\n"),
                None => "cmd=get_result rc=-1 msg=key_not_found value=unknown\n".into(),
            },
            "barrier_in" => {
                self.fence.wait();
                "cmd=barrier_out rc=0\n".into()
            }
            "finalize" => "cmd=finalize_ack rc=0\n".into(),
            other => panic!("a command that no plain server has: {other}"),
        }
    }

    /// Returns the commands of one process, to its end.
    fn serve(&self, input: impl Read, mut stream: impl Write) -> Vec<String> {
        let lines = BufReader::new(input).lines();
        let mut commands = Vec::new();
        for line in lines.map_while(Result::ok) {
            commands.push(value(&line, "cmd").to_owned());
            stream.write_all(self.reply(&line).as_bytes()).unwrap();
            if self.flux && commands.last().is_some_and(|last| last == "finalize") {
                break;
            }
        }
        commands
    }
}

const FLUX_JOB: &str = "f2Pc3mYnFVJh";

/// A PE that fails would leave the others, and its test, in the fence: all ends unless what this gives is dropped in time.
fn no_longer_than_patience() -> Sender<()> {
    let (watch, dropped) = channel();
    std::thread::spawn(move || {
        if dropped.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            eprintln!("the job hangs");
            std::process::exit(1);
        }
    });
    watch
}

/// A job under what behaves as Flux; gives what its processes wrote, in the order of ranks, and what they asked.
fn flux(
    program: &str,
    args: &[&str],
    settings: &[(&str, &str)],
    mapping: Option<&str>,
) -> Vec<(Output, Vec<String>)> {
    let _watch = no_longer_than_patience();
    let server = Server::new(true);
    let mut pairs = server.pairs.lock().unwrap();
    pairs.insert(
        "flux.taskmap".into(),
        "{\"version\":1,\"map\":[[0,1,3,1]]}".into(),
    );
    pairs.insert("flux.instance-level".into(), "0".into());
    if let Some(mapping) = mapping {
        pairs.insert("PMI_process_mapping".into(), mapping.into());
    }
    drop(pairs);
    let start = |rank: usize| {
        let (own, its) = UnixStream::pair().unwrap();
        // SAFETY: it changes a flag of a descriptor that is open.
        assert_eq!(unsafe { libc::fcntl(its.as_raw_fd(), libc::F_SETFD, 0) }, 0);
        let pe = Command::new(program)
            .args(args)
            .env("PMI_FD", its.as_raw_fd().to_string())
            .env("PMI_RANK", rank.to_string())
            .env("PMI_SIZE", SIZE.to_string())
            .env("FLUX_JOB_ID", FLUX_JOB)
            .env("FLUX_JOB_SIZE", SIZE.to_string())
            .env("FLUX_TASK_RANK", rank.to_string())
            .env("FLUX_PMI_LIBRARY_PATH", "/usr/lib/flux/libpmi.so")
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(its);
        let server = Arc::clone(&server);
        let session = std::thread::spawn(move || server.serve(&own, &own));
        (pe, session)
    };
    let pes: Vec<_> = (0..SIZE).map(start).collect();
    let ended = |(pe, session): (Child, JoinHandle<_>)| {
        let output = pe.wait_with_output().unwrap();
        (output, session.join().unwrap())
    };
    pes.into_iter().map(ended).collect()
}

#[test]
fn flux_starts_programs() {
    let two_nodes = "(vector,(0,1,2),(1,1,1))";
    let settings = [("SHMEM_DEBUG", "1"), ("SHMEM_SPIN", "0")];
    for (mapping, places) in [
        (
            Some(two_nodes),
            ["node 0 of 2", "node 0 of 2", "node 1 of 2"],
        ),
        (None, ["node 0 of 1"; SIZE]),
    ] {
        let ended = flux(RING, &[], &settings, mapping);
        for (rank, ((output, commands), place)) in ended.iter().zip(places).enumerate() {
            assert!(output.status.success(), "{output:?}");
            let place = format!("PE {rank} of {SIZE} on {place}");
            assert!(text(&output.stderr).contains(&place), "{output:?}");
            assert_eq!(commands.last().map(String::as_str), Some("finalize"));
        }
    }
}

#[test]
fn flux_offers_what_it_says() {
    for what in ["threads", "unequal", "direct"] {
        for (output, _) in flux(PMI_PROCESS, &[what], &[], None) {
            assert!(output.status.success(), "{what}: {output:?}");
            assert!(
                text(&output.stdout).contains("of 3 ok (PMI-1 server)"),
                "{output:?}"
            );
        }
    }
    // PMI-2 it refuses, and who asks for it is told.
    for (output, commands) in flux(RING, &[], &[("SHMEM_PMI", "2")], None) {
        assert!(!output.status.success(), "{output:?}");
        let said = text(&output.stderr);
        assert!(
            said.contains("PMI-2 server") && said.contains("2.0"),
            "{said}"
        );
        assert_eq!(commands[0], "init");
    }
}

#[test]
fn pes_find_out_who_shares_a_machine() {
    let _watch = no_longer_than_patience();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().to_string();
    let server = Server::new(false);
    let start = |id: usize| {
        Command::new(RING)
            .env("PMI_PORT", &port)
            .env("PMI_ID", id.to_string())
            .env("SHMEM_DEBUG", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let pes: Vec<_> = (0..SIZE).map(start).collect();
    let sessions: Vec<_> = (0..SIZE)
        .map(|_| {
            let (stream, server) = (listener.accept().unwrap().0, Arc::clone(&server));
            std::thread::spawn(move || server.serve(&stream, &stream))
        })
        .collect();
    for (rank, pe) in pes.into_iter().enumerate() {
        let output = pe.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let place = format!("PE {rank} of {SIZE} on node 0 of 1");
        assert!(text(&output.stderr).contains(&place), "{output:?}");
    }
    for session in sessions {
        let commands = session.join().unwrap();
        let count = |name: &str| commands.iter().filter(|c| *c == name).count();
        // One node has no addresses to exchange.
        assert_eq!((count("barrier_in"), count("put")), (1, 1), "{commands:?}");
        assert_eq!(commands.last().map(String::as_str), Some("finalize"));
    }
}
