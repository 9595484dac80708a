//! A job at a PMI-1 server that offers the least that such servers have: no process mapping, so the PEs
//! find out by themselves who shares a machine.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Barrier, Mutex};

use shmem_testkit::{PATIENCE, text};

use crate::programs::RING;

const SIZE: usize = 3;

/// What the connections share: pairs, and the fence.
struct Server {
    pairs: Mutex<HashMap<String, String>>,
    fence: Barrier,
}

fn value<'a>(line: &'a str, key: &str) -> &'a str {
    let pairs = line
        .split_whitespace()
        .filter_map(|pair| pair.split_once('='));
    let mut found = pairs.filter(|(name, _)| *name == key);
    found.next().map_or("", |(_, value)| value)
}

impl Server {
    fn reply(&self, line: &str) -> String {
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
    fn serve(&self, mut stream: TcpStream) -> Vec<String> {
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut commands = Vec::new();
        for line in lines.map_while(Result::ok) {
            commands.push(value(&line, "cmd").to_owned());
            stream.write_all(self.reply(&line).as_bytes()).unwrap();
        }
        commands
    }
}

#[test]
fn pes_find_out_who_shares_a_machine() {
    // A PE that fails would leave the others, and this test, in the fence.
    std::thread::spawn(|| {
        std::thread::sleep(PATIENCE);
        eprintln!("the job hangs");
        std::process::exit(1);
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().to_string();
    let server = Arc::new(Server {
        pairs: Mutex::default(),
        fence: Barrier::new(SIZE),
    });
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
            std::thread::spawn(move || server.serve(stream))
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
