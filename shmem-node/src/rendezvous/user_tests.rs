//! PEs that meet, and another user of the machine, who knows the name of their socket.
//!
//! That user is a process that executes one of these tests again, with the name in a variable.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use shmem_testkit::needs::skipped;

use super::tests::{meeting, segment};
use super::*;

const STRANGER: u32 = 54321;
const NAME: &str = "SHMEM_TEST_MEETING";

/// The name of the meeting, in a process that is the stranger.
fn as_stranger() -> Option<String> {
    let name = std::env::var(NAME).ok()?;
    assert_eq!(sys::user(), STRANGER);
    Some(name)
}

/// Executes a test again as the stranger. The program is named so because its folder may not let another user in.
fn stranger(test: &str, meeting: &Meeting) -> Option<Child> {
    if sys::user() != 0 {
        skipped("users", "this user cannot start a process of another one");
        return None;
    }
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["--nocapture", "--exact"])
        .arg(format!("rendezvous::user_tests::{test}"))
        .env(NAME, meeting.name())
        .uid(STRANGER)
        .gid(STRANGER)
        .stdout(Stdio::piped());
    match command.spawn() {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            let why = format!("another user cannot execute this test: {e}");
            skipped("users", why);
            None
        }
        child => Some(child.expect("a process of another user")),
    }
}

#[test]
fn another_user_gets_no_memory_of_the_node() {
    if let Some(name) = as_stranger() {
        for _ in 0..3 {
            let mut stream = UnixStream::from(sys::connect_now(name.as_bytes()).unwrap());
            stream.set_nonblocking(false).unwrap();
            // Nothing would be wrong with this of a PE. It may be too late to say it.
            let hello = super::tests::meeting("of others", 0, &[0, 1]).hello(1);
            let _ = stream.write_all(hello.as_bytes());
            let mut answer = [0];
            match sys::recv_with_fds(stream.as_fd(), &mut answer) {
                Ok((len, fds)) => assert_eq!((len, fds.len()), (0, 0)),
                Err(e) => assert_eq!(e.kind(), io::ErrorKind::ConnectionReset),
            }
        }
        return;
    }
    let m = meeting("of others", 0, &[0, 1]);
    let host = Host::open(&m).unwrap();
    let Some(stranger) = stranger("another_user_gets_no_memory_of_the_node", &m) else {
        return;
    };
    let segment = segment(0);
    let (output, joined, shared) = std::thread::scope(|s| {
        let host = s.spawn(|| host.share(&segment));
        let output = stranger.wait_with_output();
        // The real one comes later, and finds its place free.
        let joined = join(&m, 1);
        // It waits no longer than `m` allows, and then is dropped.
        (output, joined, host.join())
    });
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
    joined.unwrap();
    shared.unwrap().unwrap();
}

#[test]
fn another_user_gives_no_memory_to_a_pe() {
    if let Some(name) = as_stranger() {
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        println!("\nlistens");
        // The PE closes without a word.
        let (mut stream, _) = listener.accept().unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        return assert_eq!(heard, b"");
    }
    let m = meeting("by others", 0, &[0, 1]);
    let Some(mut stranger) = stranger("another_user_gives_no_memory_to_a_pe", &m) else {
        return;
    };
    let output = stranger.stdout.take().unwrap();
    let mut lines = BufReader::new(output).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "listens"));
    let joined = join(&m, 1);
    let expected =
        matches!(&joined, Err(RendezvousError::OtherUser { uid, .. }) if *uid == STRANGER);
    if !expected {
        // It would wait for this PE.
        let _ = stranger.kill();
    }
    let status = stranger.wait().unwrap();
    assert!(expected, "{joined:?}");
    assert!(status.success());
    assert!(lines.any(|line| line.contains("1 passed")));
}
