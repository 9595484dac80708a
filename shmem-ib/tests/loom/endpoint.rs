//! Threads of an endpoint: one waits for its completion, and whoever finds that wakes it.

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex, MutexGuard};
use loom::thread;

use crate::asleep::Asleep;
use crate::host::{FOREVER, Model, NAP_NS};
use crate::{model, rest};

#[derive(Default)]
struct Driver {
    completed: u32,
    notify: bool,
}

struct Endpoint {
    model: Model,
    driver: Mutex<Driver>,
    asleep: Asleep,
    stop: AtomicBool,
}

impl Endpoint {
    fn new(threads: u32) -> Arc<Self> {
        Arc::new(Self {
            model: Model::new(threads, NAP_NS),
            driver: Mutex::new(Driver::default()),
            asleep: Asleep::default(),
            stop: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Driver> {
        self.driver.lock().unwrap()
    }

    /// As `Locked::unlock`.
    fn unlock(&self, mut driver: MutexGuard<'_, Driver>) {
        let notify = std::mem::take(&mut driver.notify);
        drop(driver);
        if notify && self.asleep.anybody() {
            rest::wake(&self.model);
        }
    }

    fn poll(&self, driver: &mut Driver) -> bool {
        let any = self.model.poll();
        driver.completed += u32::from(any);
        driver.notify |= any;
        any
    }

    /// As `Locked::wait_until`, for `n` completions by whomever, with a patience of one poll.
    fn wait_for(&self, n: u32) {
        let mut driver = self.lock();
        while driver.completed < n {
            if self.poll(&mut driver) {
                continue;
            }
            self.asleep.enter();
            let seen = rest::wakes(&self.model);
            self.unlock(driver);
            rest::wait(&self.model, Some(seen), FOREVER);
            self.asleep.leave();
            driver = self.lock();
        }
        self.unlock(driver);
    }

    /// As the progress thread with `progress_wait`.
    fn progress(&self) {
        while !self.stop.load(Ordering::Acquire) {
            rest::wait(&self.model, None, FOREVER);
            let mut driver = self.lock();
            self.poll(&mut driver);
            self.unlock(driver);
        }
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        rest::wake(&self.model);
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
