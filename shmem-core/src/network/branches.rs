//! Branches of the endpoint: each serves one context at a time, which then shares neither connections nor a
//! lock with others.
//!
//! A branch is opened when a context first gets it, on a software HCA or queues of its own, and kept for the
//! next one when that is destroyed: with its connections, up to finalize. Opening sends nothing. A thread of its
//! own serves it while its context waits for nothing.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use shmem_ib::connect::endpoint::Endpoint;
use shmem_ib::device::Device;
use shmem_ib::verbs::Hca;

use super::adapter::{Adapter, failed, random};
use super::progress::Progress;
use super::settings::Shares;
use crate::error::Error;
use crate::fault;
use crate::recording::watch_connections;
use crate::wait_report::EndpointWaits;

/// The branches that there may be.
pub(crate) struct Branches {
    shares: Shares,
    all: Box<[OnceLock<Branch>]>,
    state: Mutex<State>,
}

/// A branch, open or closed.
#[derive(Debug)]
pub(crate) struct Branch {
    index: usize,
    pub(crate) endpoint: Arc<Endpoint<Device>>,
    device: Arc<Device>,
    progress: Progress,
}

#[derive(Debug, Default)]
struct State {
    /// Those that no context has; the last one is given next, so that warm ones are.
    free: Vec<usize>,
    /// Those that were opened in this life.
    open: Vec<usize>,
}

impl Branches {
    pub(super) fn new(shares: Shares) -> Self {
        let all = (0..shares.branches).map(|_| OnceLock::new()).collect();
        let branches = Self {
            shares,
            all,
            state: Mutex::default(),
        };
        branches.begin_life();
        branches
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// All are free, and none is open.
    pub(super) fn begin_life(&self) {
        *self.state() = State {
            free: (0..self.all.len()).rev().collect(),
            open: Vec::new(),
        };
    }

    /// Whether contexts that only one thread uses at a time get a branch, though nobody asked for it.
    pub(crate) fn unasked(&self) -> bool {
        self.shares.unasked
    }

    /// A branch of `main` for a context; `None` if all are in use, or there is no port, memory or thread for
    /// one more.
    pub(super) fn take(&self, adapter: &Adapter, main: &Endpoint<Device>) -> Option<&Branch> {
        let mut state = self.state();
        let index = state.free.pop()?;
        let is_open = state.open.contains(&index);
        let taken = match is_open {
            true => Ok(()),
            false => self.open(index, adapter, main),
        };
        if taken.is_err() {
            state.free.push(index);
            return None;
        }
        if !is_open {
            state.open.push(index);
        }
        self.all[index].get()
    }

    fn open(&self, index: usize, adapter: &Adapter, main: &Endpoint<Device>) -> Result<(), Error> {
        let branch = match self.all[index].get() {
            Some(branch) => {
                let renewed = main.renew_branch(&branch.endpoint, random()?);
                renewed.map_err(|e| failed(&e))?;
                branch
            }
            None => {
                let device = adapter.beside(index)?;
                let number = index as u32 + 1;
                let endpoint = main
                    .branch(Arc::clone(&device), number, self.shares.each, random()?)
                    .map_err(|e| failed(&e))?;
                endpoint.on_wait(EndpointWaits(adapter.view.pe_block(adapter.local())));
                if let Some(recorder) = adapter.view.recorder(adapter.local()) {
                    watch_connections(recorder, &endpoint);
                }
                endpoint.on_failure(|error| fault::fail(&error.to_string()));
                let (view, local) = (adapter.view, adapter.local());
                endpoint.on_fetch(move || view.pe_block(local).doorbell.ring());
                self.all[index].get_or_init(|| Branch {
                    index,
                    endpoint,
                    device,
                    progress: Progress::default(),
                })
            }
        };
        let started = branch.progress.start(&branch.endpoint);
        started.inspect_err(|_| branch.endpoint.abort())
    }

    /// The context of a branch is gone; its operations are complete.
    pub(crate) fn give_back(&self, branch: &Branch) {
        self.state().free.push(branch.index);
    }

    /// Those that were opened in this life.
    pub(crate) fn open_ones(&self) -> Vec<&Branch> {
        let open = self.state().open.clone();
        let made = open.into_iter().filter_map(|index| self.all[index].get());
        made.collect()
    }

    /// Has the threads end when their endpoints are closed.
    pub(super) fn stop(&self) {
        for branch in self.open_ones() {
            branch.progress.stop(|| branch.device.wake());
        }
    }

    /// Has them end, and waits for that. The endpoints are closed.
    pub(super) fn end_progress(&self) {
        for branch in self.all.iter().filter_map(OnceLock::get) {
            branch.progress.end(|| branch.device.wake());
        }
    }
}
