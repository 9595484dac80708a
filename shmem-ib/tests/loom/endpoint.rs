//! Threads of an endpoint: one waits for its completion, and whoever finds that wakes it; one sets a
//! timer, and whoever sleeps serves it.

use std::time::Duration;

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex, MutexGuard};
use loom::thread;
use shmem_testkit::models::model;

use crate::asleep::Asleep;
use crate::host::{FOREVER, Model, NAP_NS};
use crate::sleep;
use crate::sleep::Host;

#[derive(Default)]
struct Driver {
    completed: u32,
    notify: bool,
    /// When a connection timer is due.
    timer: Option<u64>,
    /// The deadline that the HCA knows.
    alarm: Option<u64>,
    /// Timers that have acted.
    acted: u32,
}

struct Endpoint {
    model: Model,
    driver: Mutex<Driver>,
    asleep: Asleep,
    stop: AtomicBool,
}

impl Endpoint {
    fn new(threads: u32) -> Arc<Self> {
        Self::on(Model::new(threads, NAP_NS))
    }

    fn on(model: Model) -> Arc<Self> {
        Arc::new(Self {
            model,
            driver: Mutex::new(Driver::default()),
            asleep: Asleep::default(),
            stop: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Driver> {
        self.driver.lock().unwrap()
    }

    /// As `Locked::unlock`, with `Driver::set_alarm`.
    fn unlock(&self, mut driver: MutexGuard<'_, Driver>) {
        if driver.timer != driver.alarm {
            driver.alarm = driver.timer;
            let now = self.model.now();
            let after = driver
                .timer
                .map(|at| Duration::from_nanos(at.saturating_sub(now)));
            sleep::set_alarm(&self.model, after);
        }
        let notify = std::mem::take(&mut driver.notify);
        drop(driver);
        if notify && self.asleep.anybody() {
            sleep::wake(&self.model);
        }
    }

    fn poll(&self, driver: &mut Driver) -> bool {
        let any = self.model.poll();
        driver.completed += u32::from(any);
        driver.notify |= any;
        let due = driver.timer.is_some_and(|at| at <= self.model.now());
        if due {
            driver.timer = None;
            driver.acted += 1;
        }
        any || due
    }

    /// A connection wants to be looked after at `timer`; the thread polls nothing.
    fn set_timer(&self, timer: u64) {
        let mut driver = self.lock();
        driver.timer = Some(timer);
        self.unlock(driver);
    }

    /// As the progress thread, until `n` timers have acted.
    fn serve_timers(&self, n: u32) {
        loop {
            sleep::wait(&self.model, None, FOREVER);
            let mut driver = self.lock();
            self.poll(&mut driver);
            let done = driver.acted >= n;
            self.unlock(driver);
            if done {
                return;
            }
        }
    }

    /// As `Locked::wait_until`, for `n` completions by whomever, with a patience of one poll.
    fn wait_for(&self, n: u32) {
        let mut driver = self.lock();
        while driver.completed < n {
            if self.poll(&mut driver) {
                continue;
            }
            self.asleep.enter();
            let seen = sleep::wakes(&self.model);
            self.unlock(driver);
            sleep::wait(&self.model, Some(seen), FOREVER);
            self.asleep.leave();
            driver = self.lock();
        }
        self.unlock(driver);
    }

    /// As the progress thread with `progress_wait`.
    fn progress(&self) {
        while !self.stop.load(Ordering::Acquire) {
            sleep::wait(&self.model, None, FOREVER);
            let mut driver = self.lock();
            self.poll(&mut driver);
            self.unlock(driver);
        }
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        sleep::wake(&self.model);
    }
}

/// The progress thread may find the completion that the application sleeps for, go on to its next
/// sleep, and be faster at the event than the application.
#[test]
fn a_sleeper_learns_what_the_progress_thread_found() {
    model(2, || {
        let endpoint = Endpoint::new(3);
        let progress = {
            let endpoint = endpoint.clone();
            thread::spawn(move || {
                endpoint.progress();
                endpoint.model.rests();
            })
        };
        let app = {
            let endpoint = endpoint.clone();
            // When it ends this thread goes on in its place, so nobody begins to rest.
            thread::spawn(move || endpoint.wait_for(1))
        };
        endpoint.model.arrive();
        endpoint.model.rests();
        app.join().unwrap();
        endpoint.stop();
        endpoint.model.rests();
        progress.join().unwrap();
    });
}

/// Two applications, each of which may find what the other one sleeps for.
#[test]
fn two_sleepers_wake_each_other() {
    model(2, || {
        let endpoint = Endpoint::new(3);
        let apps = [(); 2].map(|()| {
            let endpoint = endpoint.clone();
            thread::spawn(move || {
                endpoint.wait_for(1);
                endpoint.model.rests();
            })
        });
        endpoint.model.arrive();
        endpoint.model.rests();
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
            let endpoint = Endpoint::on(if timers {
                model
            } else {
                model.without_timers()
            });
            let progress = {
                let endpoint = endpoint.clone();
                thread::spawn(move || {
                    endpoint.serve_timers(1);
                    endpoint.model.rests();
                })
            };
            endpoint.set_timer(100);
            endpoint.set_timer(50);
            endpoint.model.rests();
            progress.join().unwrap();
        });
    }
}

/// Timer and engine each have a deadline, made while the only server falls asleep. Neither hides
/// the other.
#[test]
fn timers_and_the_engine_are_served_by_one_sleeper() {
    for (timer, post) in [(60, 90), (90, 60)] {
        model(2, move || {
            // The server polls, and so may nap before it serves the later one.
            let endpoint = Endpoint::on(Model::new(2, NAP_NS));
            let progress = {
                let endpoint = endpoint.clone();
                thread::spawn(move || {
                    endpoint.serve_timers(1);
                    let mut driver = endpoint.lock();
                    while driver.completed == 0 {
                        endpoint.unlock(driver);
                        sleep::wait(&endpoint.model, None, FOREVER);
                        driver = endpoint.lock();
                        endpoint.poll(&mut driver);
                    }
                    endpoint.unlock(driver);
                    endpoint.model.rests();
                })
            };
            endpoint.set_timer(timer);
            endpoint.model.post(post);
            endpoint.model.rests();
            progress.join().unwrap();
        });
    }
}

/// Two threads sleep, of which one leaves when another wakes it. The timer stays with the other.
#[test]
fn a_timer_is_not_lost_with_the_sleeper_that_knew_it() {
    model(2, || {
        let endpoint = Endpoint::on(Model::new(3, 100));
        let brief = {
            let endpoint = endpoint.clone();
            thread::spawn(move || {
                sleep::wait(&endpoint.model, Some(0), Duration::from_nanos(200));
                endpoint.model.rests();
            })
        };
        let progress = {
            let endpoint = endpoint.clone();
            thread::spawn(move || {
                endpoint.serve_timers(1);
                endpoint.model.rests();
            })
        };
        endpoint.set_timer(100);
        sleep::wake(&endpoint.model);
        endpoint.model.rests();
        brief.join().unwrap();
        progress.join().unwrap();
    });
}
