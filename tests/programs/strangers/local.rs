//! Another user of the machine of a job.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use shmem_node::sys::connect_now;

use crate::calls::{become_user, listen};
use crate::say;

/// What the `shmrun` of a job answers to a question.
fn asked(name: &str, question: &str) -> Vec<u8> {
    let address = SocketAddr::from_abstract_name(name).expect("a name");
    let mut stream = UnixStream::connect_addr(&address).expect("anybody can connect");
    let _ = stream.write_all(question.as_bytes());
    let mut heard = Vec::new();
    let _ = stream.read_to_end(&mut heard);
    heard
}

pub(crate) fn look(user: &str, uid: &str, pids: &[&str]) {
    become_user(user);
    let mut could = Vec::new();
    for pid in pids {
        for file in ["mem", "environ", "maps", "auxv"] {
            let path = format!("/proc/{pid}/{file}");
            could.extend(File::open(&path).is_ok().then_some(path));
        }
        let fds = format!("/proc/{pid}/fd");
        could.extend(fs::read_dir(&fds).is_ok().then_some(fds));
        let number = pid.parse().expect("the number of a process");
        // SAFETY: the signal 0 does nothing but to ask whether a signal may be sent.
        let signalled = unsafe { libc::kill(number, 0) } == 0;
        could.extend(signalled.then(|| format!("kill {pid}")));
    }
    let shmrun = format!("shmrun-{uid}-{}", pids[0]);
    for question in ["job\n", "waits\n", "stacks\n", ""] {
        let heard = asked(&shmrun, question);
        could.extend((!heard.is_empty()).then(|| format!("{question:?}: {heard:?}")));
    }
    say(&format!("looked at {}, could {could:?}", pids.len()));
}

pub(crate) fn pose(user: &str, name: &str, full: &str) {
    become_user(user);
    let bind = |name| {
        let address = SocketAddr::from_abstract_name(name).expect("a name");
        UnixListener::bind_addr(&address).expect("a name that is free")
    };
    let answers = bind(name);
    let accepts_nobody = bind(full);
    listen(&accepts_nobody, 1);
    let mut waiting = Vec::new();
    loop {
        match connect_now(full.as_bytes()) {
            Ok(stream) => waiting.push(stream),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
            Err(e) => panic!("connection {}: {e}", waiting.len()),
        }
    }
    std::thread::spawn(move || {
        for stream in answers.incoming().flatten() {
            let _ = (&stream).write_all(b"7\t1\t1\trunning\tposed\n");
        }
    });
    say("posing");
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
}
