//! What those who sleep on a device share: who rests, which queues were asked to announce completions,
//! and what wakes them besides.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rdma_sys::ibv_req_notify_cq;
use shmem_verbs::provider::sleep::{Polls, Rest};
use shmem_verbs::provider::{Event, Timer};

use super::objects::CqObject;
use super::table::Table;

/// What sleepers share.
#[derive(Debug)]
pub(super) struct Sleepers {
    state: Mutex<State>,
    pub(super) polls: Polls,
    pub(super) event: Arc<Event>,
    /// Unless the kernel refuses it.
    pub(super) timer: Option<Timer>,
    pub(super) started: Instant,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) rest: Rest,
    /// The completion queues by number.
    pub(super) queues: Vec<u32>,
    /// Something that ends a sleep was seen in this wait, besides completions.
    pub(super) event: bool,
}

impl Sleepers {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            state: Mutex::default(),
            polls: Polls::default(),
            event: Arc::new(Event::new()?),
            timer: Timer::new().ok(),
            started: Instant::now(),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is complete by itself.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A completion queue of `cqs` was made. Whoever sleeps is to hear of it.
    pub(super) fn watch(&self, number: u32, cqs: &Table<Arc<CqObject>>) {
        let mut state = self.lock();
        state.queues.push(number);
        if state.rest.anybody()
            && let Some(cq) = cqs.get(number)
        {
            ask(&cq);
        }
    }

    /// A completion queue is destroyed.
    pub(super) fn remove(&self, cq: u32) {
        self.lock().queues.retain(|number| *number != cq);
    }
}

/// Asks a queue to announce its next completion, unless somebody has. Under the sleepers' mutex.
pub(super) fn ask(cq: &CqObject) {
    if !cq.armed.load(Ordering::Relaxed) {
        // SAFETY: the queue is open as long as it is in the table, where it is in use.
        let errno = unsafe { ibv_req_notify_cq(cq.raw(), 0) };
        // Should the device refuse, sleeps end by their time.
        cq.armed.store(errno == 0, Ordering::Relaxed);
    }
}
