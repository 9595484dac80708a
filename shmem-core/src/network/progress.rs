//! The thread that serves an endpoint while the program computes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use shmem_ib::connect::endpoint::Endpoint;
use shmem_ib::device::Device;
use shmem_node::sys;

use crate::error::Error;

/// How long it sleeps when nothing happens. Only a bound: packets, timers and whoever closes the endpoint
/// wake it.
const IDLE: Duration = Duration::from_secs(3600);

/// Its stack: it runs the endpoint's state machines and nothing of the user's.
const STACK: usize = 256 << 10;

/// Whether it is to end. The thread has the other reference.
#[derive(Debug, Default)]
pub(super) struct Progress(Arc<AtomicBool>);

impl Progress {
    pub(super) fn start(&self, endpoint: &Arc<Endpoint<Device>>) -> Result<(), Error> {
        self.0.store(false, Ordering::Relaxed);
        let (endpoint, stop) = (Arc::clone(endpoint), Arc::clone(&self.0));
        sys::spawn_thread(STACK, move || {
            while !stop.load(Ordering::Relaxed) {
                endpoint.progress_wait(IDLE);
            }
        })
        .map_err(|source| Error::Os {
            what: "start the progress thread",
            source,
        })
    }

    /// Has it end, and does not wait for that: a process whose other threads have ended, `main`'s too, ends with its last
    /// one. `wake` ends its sleep.
    pub(super) fn stop(&self, wake: impl Fn()) {
        // Relaxed: the wake-up brings it.
        self.0.store(true, Ordering::Relaxed);
        wake();
    }

    /// Has it end, and waits for that. It shares the device with that of the next endpoint, from which it
    /// must not take events.
    pub(super) fn end(&self, wake: impl Fn()) {
        while Arc::strong_count(&self.0) > 1 {
            self.stop(&wake);
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}
