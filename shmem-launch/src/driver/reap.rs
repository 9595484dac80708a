//! The last thing that launcher and agents do: end and reap every descendant that is left.

use std::time::{Duration, Instant};

use crate::sys::{self, Waited};

/// Reaps all children, killing those that `spare` does not protect. Protected children (agents
/// that are exiting on their own) lose their protection after `patience`. Children of children
/// that die become ours, hence the loop. Gives up after `limit`; what is left then cannot be
/// killed.
pub(super) fn bury(spare: impl Fn(i32) -> bool, patience: Duration, limit: Duration) {
    let start = Instant::now();
    let mut pause = Duration::from_micros(200);
    loop {
        match sys::wait(-1) {
            Waited::NoChild => return,
            Waited::Child(..) => continue,
            Waited::NotYet => {}
        }
        let late = start.elapsed() >= patience;
        for child in sys::children() {
            if late || !spare(child) {
                sys::kill(child, libc::SIGKILL);
            }
        }
        if start.elapsed() >= limit {
            return;
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(Duration::from_millis(10));
    }
}
