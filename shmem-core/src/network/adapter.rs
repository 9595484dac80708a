//! The network device of a PE, and those of its branches.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use shmem_ib::device::{self, Device, Opened};
use shmem_ib::soft::SoftConfig;
use shmem_node::segment::NodeView;
use shmem_node::settings::Settings;
use shmem_node::sys;

use super::settings;
use crate::error::Error;

/// The network device of a PE. It is opened once in a process, and serves one endpoint after the other.
pub(crate) struct Adapter {
    pub(super) view: NodeView,
    pub(super) me: usize,
    pub(super) device: Arc<Device>,
    /// Why it is this one.
    pub(super) why: String,
    /// How a software HCA of this PE is to be.
    soft: SoftConfig,
    /// Those of branches.
    beside: Mutex<Vec<Option<Arc<Device>>>>,
}

pub(super) fn failed(e: &dyn std::fmt::Display) -> Error {
    Error::Network(e.to_string())
}

pub(super) fn random() -> Result<u64, Error> {
    let mut seed = [0; 8];
    sys::random(&mut seed).map_err(|source| Error::Os {
        what: "read random bytes",
        source,
    })?;
    Ok(u64::from_ne_bytes(seed))
}

impl Adapter {
    /// Opens the device that the settings ask for.
    pub(crate) fn open(view: &NodeView, me: usize, settings: &Settings) -> Result<Self, Error> {
        let soft = settings::software_hca(settings, view, me, random()?)?;
        let Opened { device, why } =
            device::open(&settings::device(settings, view, me, &soft)).map_err(|e| failed(&e))?;
        Ok(Self {
            view: *view,
            me,
            device: Arc::new(device),
            why,
            soft,
            beside: Mutex::default(),
        })
    }

    /// The device of a branch; opened once, as the first is.
    pub(super) fn beside(&self, index: usize) -> Result<Arc<Device>, Error> {
        let mut all = self.beside.lock().unwrap_or_else(|e| e.into_inner());
        if all.len() <= index {
            all.resize(index + 1, None);
        }
        if let Some(device) = &all[index] {
            return Ok(Arc::clone(device));
        }
        let seed = random()?;
        let mut soft = SoftConfig { seed, ..self.soft };
        // They are not to lose the same packets.
        soft.faults.seed ^= seed;
        let device = self.device.beside(&soft).map_err(|e| failed(&e))?;
        Ok(Arc::clone(all[index].insert(Arc::new(device))))
    }

    pub(super) fn local(&self) -> usize {
        self.view.local_of()[self.me] as usize
    }

    /// How often this PE has left the job before this life.
    pub(super) fn lives_before(&self) -> u32 {
        // Its own count, to which this life was added at the beginning.
        self.view
            .pe_block(self.local())
            .life
            .load(Ordering::Relaxed)
            - 1
    }
}
