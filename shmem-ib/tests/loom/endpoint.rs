//! Threads of an endpoint: one waits for its completion, and the thread that finds that wakes it; one sets a
//! timer, and a thread that sleeps serves it; one closes the endpoint, and others wait for that.
//!
//! The endpoint's lock, its waits and its polls are the files of `src`. What they stand on is made for the models: an
//! HCA with completions of no content, and a [`driver`] that counts them.

use std::sync::Arc;
use std::time::Duration;

use loom::thread;
use shmem_testkit::models::model;

use self::awaited::Awaited;
use self::driver::Driver;
use self::lock::Endpoint;
use crate::host::{FOREVER, Model, NAP_NS};
use crate::sleep;
use crate::spin::SpinLimit;
use crate::sync::{AtomicBool, Ordering};

#[path = "../../connect/src/endpoint/asleep.rs"]
mod asleep;
#[path = "../../connect/src/endpoint/completions.rs"]
mod completions;
#[allow(dead_code)] // models use a part of it
#[path = "../../connect/src/endpoint/life.rs"]
mod life;
#[allow(dead_code, unreachable_pub)]
#[path = "../../connect/src/endpoint/lock.rs"]
mod lock;
#[path = "../../connect/src/endpoint/notices.rs"]
mod notices;
#[allow(dead_code, unreachable_pub)]
#[path = "../../connect/src/endpoint/progress.rs"]
mod progress;

mod driver {
    use std::sync::Arc;

    use shmem_ib::verbs::{Completion, Cq, Hca, WcStatus};

    use super::atomics::by_owner::owner::Owner;
    use super::completions::Completions;
    use super::life::Life;
    use super::notices::{Inbound, Notices};
    use crate::host::Model;
    use crate::sleep::Host;

    /// What takes completions and has nothing else to do.
    pub(super) struct Driver<H: Hca> {
        pub(super) hca: Arc<H>,
        /// Completions that were taken.
        pub(super) completed: u32,
        pub(super) manager: Manager,
        pub(super) completions: Completions,
        pub(super) alarm: Option<u64>,
        pub(super) sends: Sends,
        pub(super) ahead: Nothing,
        pub(super) composer: Nothing,
        pub(super) unanswered: u64,
        pub(super) attention: Vec<u32>,
        pub(super) owner: Option<Owner>,
        pub(super) inbound: Inbound,
        pub(super) notices: Notices,
        pub(super) life: Life,
    }

    #[derive(Default)]
    pub(super) struct Sends {
        pub(super) held: Nothing,
        pub(super) uncovered: Vec<u32>,
    }

    /// What there is never any of.
    #[derive(Default)]
    pub(super) struct Nothing;

    impl Nothing {
        pub(super) fn is_empty(&self) -> bool {
            true
        }
        pub(super) fn is_idle(&self) -> bool {
            true
        }
        pub(super) fn is_held_up(&self) -> bool {
            false
        }
    }

    /// Connections, of which one may want to be looked after.
    #[derive(Default)]
    pub(super) struct Manager {
        pub(super) timer: Option<u64>,
        /// Timers that have acted.
        pub(super) acted: u32,
    }

    impl Manager {
        pub(super) fn next_timeout(&self) -> Option<u64> {
            self.timer
        }
        pub(super) fn handle_timeout(&mut self, _: u64) {
            self.timer = None;
            self.acted += 1;
        }
        pub(super) fn is_short(&self) -> bool {
            false
        }
        pub(super) fn has_left(&self) -> bool {
            false
        }
        pub(super) fn traffic_seen(&mut self, _: u64) {}
    }

    impl Driver<Model> {
        pub(super) fn new(hca: Arc<Model>) -> Self {
            Self {
                hca,
                completed: 0,
                manager: Manager::default(),
                completions: Completions::new(Cq(0)),
                alarm: None,
                sends: Sends::default(),
                ahead: Nothing,
                composer: Nothing,
                unanswered: 0,
                attention: Vec::new(),
                owner: None,
                inbound: Inbound::default(),
                notices: Notices::default(),
                life: Life::default(),
            }
        }
    }

    impl<H: Hca> Driver<H> {
        pub(super) fn now(&self) -> u64 {
            let model: &dyn std::any::Any = &*self.hca;
            model.downcast_ref::<Model>().map_or(0, Host::now)
        }
        pub(super) fn rc_completed(&mut self, _: u64, _: WcStatus) {
            self.completed += 1;
        }
        pub(super) fn tear_down(&mut self) {
            (self.life.closing, self.life.closed) = (true, true);
            self.notices.happened = true;
        }
        pub(super) fn has_answers(&self) -> bool {
            false
        }
        pub(super) fn act(&mut self) {}
        pub(super) fn let_go(&mut self) {}
        pub(super) fn cover(&mut self) {}
        pub(super) fn connect_more(&mut self) {}
        pub(super) fn resume_steps(&mut self) {}
        pub(super) fn send_answers(&mut self) {}
        pub(super) fn probe_silent(&mut self) {}
        pub(super) fn attend(&mut self) {}
        pub(super) fn make_room(&mut self) {}
        pub(super) fn look_for_failure(&mut self) {}
        pub(super) fn datagram(&mut self, _: u32, _: &Completion) {}
        pub(super) fn datagram_sent(&mut self, _: u32, _: &Completion) {}
        pub(super) fn message_received(&mut self, _: u32, _: &Completion) {}
        pub(super) fn answer_sent(&mut self, _: u16, _: &Completion) {}
    }
}

mod awaited {
    pub(super) struct Awaited;

    pub(super) trait Watch: Send + Sync {}

    /// Nobody wants to know of waits.
    pub(super) struct Told<'a>(&'a dyn Watch);

    impl<'a> Told<'a> {
        pub(super) fn begin(watch: &'a dyn Watch, _: Awaited) -> Option<Self> {
            Some(Self(watch))
        }
        pub(super) fn go_on(&self, _: Awaited) {
            let _ = self.0;
        }
    }
}

mod error {
    #[derive(Clone, Debug)]
    pub(super) struct ConnError;
}

mod operations {
    pub(super) mod accounts {
        pub(in super::super) struct Gauge;
    }
}

mod atomics {
    pub(super) mod by_owner {
        pub(in super::super) mod owner {
            pub(in super::super::super) struct Owner;

            impl Owner {
                pub(in super::super::super) fn has_executed(&mut self) -> bool {
                    false
                }
            }
        }
    }
}

mod wr_id {
    /// All completions are of operations.
    #[allow(dead_code)]
    pub(super) enum Whose {
        Operation(u64),
        Received(u32),
        Sent(u32),
        Asked(u32),
        Answered(u16),
    }

    impl Whose {
        pub(super) fn of_wr_id(wr_id: u64) -> Self {
            Self::Operation(wr_id)
        }
    }
}

/// An endpoint and what ends its progress thread.
struct Job {
    endpoint: Endpoint<Model>,
    stop: AtomicBool,
}

impl Job {
    fn new(threads: u32) -> Arc<Self> {
        Self::on(Model::new(threads, NAP_NS))
    }

    fn on(model: Model) -> Arc<Self> {
        let hca = Arc::new(model);
        let driver = Driver::new(Arc::clone(&hca));
        let gauge = operations::accounts::Gauge;
        Arc::new(Self {
            endpoint: Endpoint::with(hca, driver, gauge, false, true, SpinLimit),
            stop: AtomicBool::new(false),
        })
    }

    fn model(&self) -> &Model {
        &self.endpoint.hca
    }

    /// A connection wants to be looked after at `timer`; the thread polls nothing.
    fn set_timer(&self, timer: u64) {
        self.endpoint.lock().manager.timer = Some(timer);
    }

    /// As the progress thread, until `n` timers have acted.
    fn serve_timers(&self, n: u32) {
        while self.endpoint.lock().manager.acted < n {
            self.endpoint.progress_wait(FOREVER);
        }
    }

    /// Waits for `n` completions, of which any thread may take each.
    fn wait_for(&self, n: u32) {
        let enough = |d: &mut Driver<Model>| (d.completed >= n).then_some(());
        self.endpoint.lock().wait_until(|_| Awaited, enough);
    }

    /// As the progress thread.
    fn progress(&self) {
        while !self.stop.load(Ordering::Acquire) {
            self.endpoint.progress_wait(FOREVER);
        }
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        sleep::wake(self.model());
    }
}

impl<H: shmem_ib::verbs::Hca> Endpoint<H> {
    fn close(&self) {
        unreachable!("no branch");
    }
}

fn spawn(job: &Arc<Job>, f: impl FnOnce(&Job) + 'static) -> thread::JoinHandle<()> {
    let job = Arc::clone(job);
    thread::spawn(move || {
        f(&job);
        job.model().rests();
    })
}

/// The progress thread may find the completion that the application sleeps for, go on to its next
/// sleep, and be faster at the event than the application.
#[test]
fn a_sleeper_learns_what_the_progress_thread_found() {
    model(3, || {
        let job = Job::new(3);
        let progress = spawn(&job, Job::progress);
        let app = {
            let job = Arc::clone(&job);
            // When it ends this thread goes on in its place, so nobody begins to rest.
            thread::spawn(move || job.wait_for(1))
        };
        job.model().arrive();
        job.model().rests();
        app.join().unwrap();
        job.stop();
        job.model().rests();
        progress.join().unwrap();
    });
}

/// Two applications, each of which may find what the other one sleeps for.
#[test]
fn two_sleepers_wake_each_other() {
    model(3, || {
        let job = Job::new(3);
        let apps = [(); 2].map(|()| spawn(&job, |job| job.wait_for(1)));
        job.model().arrive();
        job.model().rests();
        for app in apps {
            app.join().unwrap();
        }
    });
}

/// The application sets a timer while the progress thread falls asleep, sets it to an earlier time, and
/// computes. Also on a machine without timer descriptors.
#[test]
fn a_sleeper_serves_the_timer_of_another_thread() {
    for timers in [true, false] {
        model(3, move || {
            let model = Model::new(2, 50);
            let job = Job::on(if timers {
                model
            } else {
                model.without_timers()
            });
            let progress = spawn(&job, |job| job.serve_timers(1));
            job.set_timer(100);
            job.set_timer(50);
            job.model().rests();
            progress.join().unwrap();
        });
    }
}

/// Timer and engine each have a deadline, made while the only server falls asleep. Neither hides
/// the other.
#[test]
fn timers_and_the_engine_are_served_by_one_sleeper() {
    for (timer, post) in [(60, 90), (90, 60)] {
        model(3, move || {
            // The server polls, and so may nap before it serves the later one.
            let job = Job::on(Model::new(2, NAP_NS));
            let progress = spawn(&job, |job| {
                job.serve_timers(1);
                while job.endpoint.lock().completed == 0 {
                    job.endpoint.progress_wait(FOREVER);
                }
            });
            job.set_timer(timer);
            job.model().post(post);
            job.model().rests();
            progress.join().unwrap();
        });
    }
}

/// Two threads sleep, of which one leaves when another wakes it. The timer stays with the other.
#[test]
fn a_timer_is_not_lost_with_the_sleeper_that_knew_it() {
    model(3, || {
        let job = Job::on(Model::new(3, 100));
        let brief = spawn(&job, |job| {
            sleep::wait(job.model(), Some(0), Duration::from_nanos(200));
        });
        let progress = spawn(&job, |job| job.serve_timers(1));
        job.set_timer(100);
        sleep::wake(job.model());
        job.model().rests();
        brief.join().unwrap();
        progress.join().unwrap();
    });
}

/// One thread closes the endpoint while the progress thread comes by, or sleeps in the HCA already: that one ends.
#[test]
fn the_end_of_an_endpoint_ends_its_progress_thread() {
    model(3, || {
        let job = Job::new(2);
        let progress = spawn(&job, Job::progress);
        job.stop.store(true, Ordering::Release);
        {
            let mut locked = job.endpoint.lock();
            (locked.life.closing, locked.notices.happened) = (true, true);
        }
        job.endpoint.lock().end();
        job.stop();
        job.model().rests();
        progress.join().unwrap();
    });
}
