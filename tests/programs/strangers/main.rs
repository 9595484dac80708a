//! Both sides of an attack: a job whose PEs check all that they read, and strangers to it.
//!
//! * `pe`: a PE. The job goes on until the standard input of PE 0 ends.
//! * `child`: a program that a PE executes: prints which descriptors it has.
//! * `record FILE`: writes all UDP datagrams that this network namespace sends and receives to a file.
//! * `replay HOW FROM EARLIER LIVE`: sends the datagrams again that came from the address FROM: all of the file EARLIER, which was
//!   recorded in a job before, and of the file LIVE, which is being recorded, what makes, changes or ends connections.
//!   After each pass it prints how many lines it had read from its input before the pass, and how many packets it sent.
//!   With the queue pairs found in LIVE it forges invitations, too. HOW is `USER`, the number of a user that the process becomes
//!   before, or `raw` for a host that may send from any address.
//! * `look USER UID PID...`: tries, as that user, to look into processes, to signal them, and to ask the job's `shmrun`.
//! * `pose USER NAME FULL`: takes, as that user, the names of two sockets. At the first it answers as a `shmrun` does, at the
//!   second there is no room for anybody.
//!
//! Strangers go on until their standard input ends, and print what they did.

mod calls;
mod datagrams;
mod local;
mod pe;
mod replay;
mod sender;

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Between two rounds of PEs, or of a stranger.
const PAUSE: Duration = Duration::from_millis(2);

static ENDED: AtomicBool = AtomicBool::new(false);

/// Lines of standard input so far.
static LINES: AtomicUsize = AtomicUsize::new(0);

/// Counts the lines of standard input in [`LINES`], and sets [`ENDED`] at its end.
fn watch_input() {
    std::thread::spawn(|| {
        for _ in io::stdin().lines().map_while(Result::ok) {
            LINES.fetch_add(1, Ordering::Relaxed);
        }
        ENDED.store(true, Ordering::Relaxed);
    });
}

fn ended() -> bool {
    ENDED.load(Ordering::Relaxed)
}

fn say(text: &str) {
    println!("{text}");
    io::stdout().flush().expect("standard output");
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["pe"] => pe::pe().expect("a PE of a job"),
        ["child"] => say(&format!("child {:?}", pe::descriptors())),
        ["record", file] => datagrams::record(file).expect("a recording"),
        ["replay", how, from, earlier, live] => {
            let from = from.parse().expect("an address");
            let sender = sender::Sender::new(how, from);
            replay::replay(&sender, from, earlier, live);
        }
        ["look", user, uid, ref pids @ ..] => local::look(user, uid, pids),
        ["pose", user, name, full] => local::pose(user, name, full),
        _ => panic!("what is {args:?}?"),
    }
}
