//! Takes all the room that its user has for descriptors on their way over Unix sockets, until its
//! standard input ends: a program beside which the launcher's tests start jobs.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use shmem_node::sys::{MAX_FDS, send_with_fds};

fn main() {
    let mut pairs = Vec::new();
    let any = std::fs::File::open("/dev/null").expect("/dev/null can be opened");
    let refused = loop {
        let (from, to) = UnixStream::pair().expect("a pair of sockets can be had");
        let sent = send_with_fds(from.as_fd(), &[1], &[any.as_fd(); MAX_FDS]);
        pairs.push((from, to));
        if let Err(e) = sent {
            break e;
        }
    };
    // Who waits for this line knows that nothing more can be sent.
    println!("{refused}");
    let _ = std::io::stdin().read(&mut [0]);
}
