//! Threads of one HCA: sleepers, posters, and an application that polls.

use std::time::Duration;

use loom::sync::Arc;
use loom::thread;
use shmem_testkit::models::model;

use crate::Wake;
use crate::host::{FOREVER, Model, NAP_NS};
use crate::sleep;

fn spawn(host: &Arc<Model>, f: impl FnOnce(&Model) + 'static) -> thread::JoinHandle<()> {
    let host = host.clone();
    thread::spawn(move || {
        f(&host);
        host.rests();
    })
}

/// Sleeps and handles what comes until `n` completions were taken.
fn serve(host: &Model, n: u32) {
    let mut taken = 0;
    while taken < n {
        sleep::wait(host, None, FOREVER);
        while host.poll() {
            taken += 1;
        }
    }
}

fn finish<const N: usize>(host: &Model, threads: [thread::JoinHandle<()>; N]) {
    host.rests();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// A post of another thread makes a deadline while the only server falls asleep without one.
#[test]
fn a_sleeper_serves_a_deadline_made_after_it_fell_asleep() {
    for timers in [true, false] {
        model(3, move || {
            let host = Model::new(3, 100);
            let host = Arc::new(if timers { host } else { host.without_timers() });
            let server = spawn(&host, |h| serve(h, 1));
            let poster = spawn(&host, |h| h.post(100));
            finish(&host, [server, poster]);
        });
    }
}

/// Deadlines that come nearer, while the timer is armed, fires, is taken, and is armed again.
#[test]
fn nearer_deadlines_are_kept_while_the_timer_is_in_use() {
    model(2, || {
        let host = Arc::new(Model::new(3, NAP_NS));
        let server = spawn(&host, |h| serve(h, 1));
        let poster = host.clone();
        let poster = thread::spawn(move || {
            poster.post(100);
            poster.post(50);
            let wake = sleep::wait(&*poster, None, Duration::from_nanos(60));
            assert_ne!(wake, Wake::Woken);
        });
        // When it ends this thread goes on in its place.
        host.rests();
        poster.join().unwrap();
        // Either thread may have handled the deadline; the server then has nothing left to do.
        host.post(70);
        finish(&host, [server]);
    });
}

/// A deadline that a sleeper expects is announced to nobody. When that one leaves early, because
/// it was woken, the other one learns of it.
#[test]
fn whoever_leaves_looks_after_those_that_go_on() {
    model(2, || {
        let host = Arc::new(Model::new(3, NAP_NS));
        let brief = spawn(&host, |h| {
            sleep::wait(h, Some(0), Duration::from_nanos(50));
        });
        let server = spawn(&host, |h| serve(h, 1));
        sleep::wake(&*host);
        host.post(100);
        host.rests();
        brief.join().unwrap();
        server.join().unwrap();
    });
}

/// The application polls, so the progress thread naps; then the application stops, and what comes
/// in afterwards is handled within a nap.
#[test]
fn a_packet_after_the_last_poll_waits_for_a_nap_at_most() {
    model(2, || {
        let host = Arc::new(Model::new(3, NAP_NS));
        let server = spawn(&host, |h| serve(h, 1));
        let app = spawn(&host, |h| {
            if h.poll() {
                h.arrive(); // it took the server's packet
            }
        });
        host.arrive();
        finish(&host, [server, app]);
    });
}

/// A wake-up that comes before the sleep ends it, and one that comes during a nap ends that.
#[test]
fn a_wake_up_is_never_lost() {
    model(3, || {
        let host = Arc::new(Model::new(3, 0));
        let sleeper = spawn(&host, |h| {
            assert_eq!(sleep::wait(h, None, FOREVER), Wake::Woken);
        });
        let waker = spawn(&host, sleep::wake);
        host.poll();
        finish(&host, [sleeper, waker]);
    });
}

/// Both who sleep when a wake-up comes return for it, in whatever order they get the processor.
#[test]
fn a_wake_up_reaches_all_who_sleep() {
    model(2, || {
        let host = Arc::new(Model::new(3, NAP_NS));
        let sleepers = [(); 2].map(|()| {
            spawn(&host, |h| {
                assert_eq!(sleep::wait(h, Some(0), FOREVER), Wake::Woken);
            })
        });
        sleep::wake(&*host);
        finish(&host, sleepers);
    });
}
