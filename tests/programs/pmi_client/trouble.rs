//! Clients that do not behave. The others, if they are to, behave.

use std::io::{Read, Write};
use std::process::exit;
use std::time::Duration;

use crate::wire::{Pmi, V1, V2, rank, size, socket};

/// What the last rank sends before it waits for the end of the job, or ends.
fn bytes(version: &str, what: &str) -> Option<Vec<u8>> {
    let greeting: &[u8] = match version {
        "1" => b"cmd=init pmi_version=1 pmi_subversion=1\n",
        _ => b"cmd=init pmi_version=2 pmi_subversion=0\n",
    };
    let rest: Vec<u8> = match (version, what) {
        (_, "garbage") => return Some((0..4096u32).map(|i| ((i * 7919) >> 3) as u8).collect()),
        (_, "garbage-later") => b"\xff\x00~~~\ngarbage\nis what this is\n".to_vec(),
        ("1", "half") => b"cmd=get_max".to_vec(),
        (_, "half") => b"    99cmd=fullinit;pmi".to_vec(),
        (_, "endless") => vec![b'x'; 4 << 20],
        _ => return None,
    };
    Some([greeting, &rest].concat())
}

/// Whether this was one of them.
pub(crate) fn happened(version: &str, what: &str) -> bool {
    let last = rank() == size() - 1;
    let behave = || -> Box<dyn Pmi> {
        match version {
            "1" => Box::new(V1::init()),
            _ => Box::new(V2::init()),
        }
    };
    if let Some(bytes) = bytes(version, what) {
        if !last {
            // The job ends before the barrier does.
            behave().fence();
            println!("rank {} came through", rank());
            return true;
        }
        let mut socket = socket();
        // Nobody may read it any more.
        let _ = socket.write_all(&bytes);
        if what == "half" {
            exit(0);
        }
        std::thread::sleep(Duration::from_secs(1000));
    }
    match what {
        // Some never speak, some only look.
        "silent" => {
            if last {
                drop(socket());
            }
            println!("rank {} says nothing", rank());
        }
        // Others wait for somebody who said who it is, and then leaves.
        "vanish" if last => drop(behave()),
        "close" if last => {
            drop(behave());
            std::thread::sleep(Duration::from_secs(1000));
        }
        "vanish" | "close" => behave().fence(),
        // More requests than anybody reads replies of.
        "flood" if last => flood(),
        "flood" => {
            let mut pmi = behave();
            for round in 0..200 {
                pmi.put(&format!("{round}-{}", rank()), "v");
                assert_eq!(pmi.get("none"), None);
            }
            pmi.finalize();
            println!("rank {} was served", rank());
        }
        _ => return false,
    }
    true
}

fn flood() {
    let mut socket = socket();
    socket
        .write_all(b"cmd=init pmi_version=1 pmi_subversion=1\n")
        .expect("a server");
    socket.set_nonblocking(true).expect("a socket");
    let requests = b"cmd=get_maxes\n".repeat(1000);
    let (mut sent, mut stuck) = (0usize, 0);
    while stuck < 100 {
        match socket.write(&requests) {
            Ok(n) => (sent, stuck) = (sent + n, 0),
            Err(_) => {
                stuck += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        // Replies are larger than requests: an agent that stored all would need more than this.
        assert!(sent < 64 << 20, "{sent} bytes taken, no reply read");
    }
    println!("the flood stopped");
    socket.set_nonblocking(false).expect("a socket");
    let mut buf = vec![0; 1 << 20];
    let mut replies = 0;
    let wanted = sent / b"cmd=get_maxes\n".len();
    while replies < wanted {
        let n = socket.read(&mut buf).expect("replies");
        assert_ne!(n, 0, "the server gave up");
        replies += buf[..n].iter().filter(|&&b| b == b'\n').count();
    }
    println!("the flood was answered");
}
