//! The way to PEs on other nodes: the endpoint, the thread that serves it while the program computes, and
//! what of this PE's memory is registered with the device.
//!
//! * [`settings`]: what users ask of devices and endpoints; [`wanted`]: of which device; [`adapter`]: that device, open.
//! * [`stream`]: by which endpoint a context's operations go; [`branches`]: more endpoints, for contexts that share no
//!   connections; [`progress`]: the thread that serves an endpoint.
//! * [`directory`]: where the others are; [`layouts`]: which of them have this PE's static data.
//! * [`register`]: what peers can access, and [`limits`]: whether there is memory for it.

mod adapter;
mod branches;
mod directory;
mod layouts;
mod limits;
mod progress;
mod register;
mod settings;
mod stream;
mod wanted;

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use shmem_ib::connect::endpoint::{ConnError, Endpoint, EndpointConfig};
use shmem_ib::device::Device;
use shmem_ib::device::choice::Wanted;
use shmem_ib::device::sysfs::Places;
use shmem_ib::verbs::Hca;
use shmem_node::segment::NodeView;
use shmem_node::settings::{Settings, Transport};

pub(crate) use self::adapter::Adapter;
use self::adapter::{failed, random};
use self::branches::{Branch, Branches};
use self::directory::AddressTable;
use self::layouts::Layouts;
use self::progress::Progress;
use self::register::{Registrar, Shape};
pub(crate) use self::stream::{Operations, Stream};
use crate::attach::compares;
use crate::error::Error;
use crate::fault;
use crate::pmi::{Identity, PeAddresses, short_layout};
use crate::recording::watch_connections;
use crate::wait_report::EndpointWaits;

/// The PEs that may sleep until memory changes that this PE's HCA writes for other nodes: this PE, and with
/// XRC, where requests for all PEs of the node come in through any of them, the whole node.
#[derive(Clone, Copy)]
struct Bells {
    view: NodeView,
    /// Positions on the node.
    first: usize,
    count: usize,
}

impl Bells {
    /// Wakes those who sleep.
    #[inline]
    fn ring(&self) {
        for local in self.first..self.first + self.count {
            self.view.pe_block(local).doorbell.ring();
        }
    }
}

/// Connection to all other nodes.
pub(crate) struct Network {
    pub(crate) endpoint: Arc<Endpoint<Device>>,
    /// What of this PE's segment peers can access, and how it is cut, as all PEs' segments are.
    pub(crate) registrar: Registrar,
    notices_inbound: bool,
    progress: Progress,
    pub(crate) branches: Branches,
    adapter: &'static Adapter,
    /// Where the others are, in this life.
    directory: Mutex<Option<Arc<AddressTable>>>,
    /// What is known of the static data of PEs.
    layouts: Layouts,
}

/// In a template: searches for RDMA devices on behalf of its PEs, if they will want one. Where there is none, PEs do
/// not search again.
pub(crate) fn remember_absence(view: &NodeView) {
    let want = |settings: &Settings| wanted::wanted(settings) != Wanted::Soft;
    if view.n_nodes() > 1 && Settings::from_env().as_ref().is_ok_and(want) {
        Places::default().remember_absence();
    }
}

impl Network {
    /// Opens the UD endpoint. Nothing is sent. `addresses` has those of the other PEs as they come;
    /// without an `identity` the job's comes with them. So many bytes of static data lie in this PE's segment.
    pub(crate) fn open(
        settings: &Settings,
        adapter: &'static Adapter,
        xrc: Option<OwnedFd>,
        addresses: PeAddresses,
        identity: Option<Identity>,
        statics: usize,
    ) -> Result<Self, Error> {
        let Adapter {
            view, me, device, ..
        } = adapter;
        let notices_inbound = device.port().notices_inbound;
        let fabric = device.fabric();
        let registrar = Registrar::new(
            settings,
            fabric,
            device.port().pins_memory,
            Shape::of(view, statics),
            view.on_machine(),
        )?;
        let config = EndpointConfig {
            life: adapter.lives_before(),
            seed: random()?,
            ..settings::endpoint(settings, view, *me, fabric, xrc, identity)
        };
        let endpoint = Endpoint::new(Arc::clone(device), config).map_err(|e| match e {
            ConnError::OwnerOverXrc => {
                failed(&format_args!("{e} (SHMEM_TRANSPORT and SHMEM_ATOMICS)"))
            }
            e => failed(&e),
        })?;
        let network = Self {
            endpoint,
            registrar,
            notices_inbound,
            progress: Progress::default(),
            branches: Branches::new(settings::shares(settings)),
            adapter,
            directory: Mutex::default(),
            layouts: Layouts::of(view.node_of().len()),
        };
        network.begin_life(settings, adapter, addresses);
        Ok(network)
    }

    /// Opens the endpoint again for the next life, in which the settings are the same. Its progress
    /// thread has ended.
    pub(crate) fn reopen(
        &self,
        settings: &Settings,
        adapter: &Adapter,
        addresses: PeAddresses,
        identity: Option<Identity>,
    ) -> Result<(), Error> {
        let reopened = self.endpoint.reopen(adapter.lives_before(), random()?);
        reopened.map_err(|e| failed(&e))?;
        // One that came late the last time is known from the beginning now.
        if let Some((job_id, job_key)) = identity {
            self.endpoint.set_identity(job_id, job_key);
        }
        self.registrar.forget();
        self.branches.begin_life();
        self.begin_life(settings, adapter, addresses);
        Ok(())
    }

    /// Gives the endpoint the addresses of the others, and what to call when they have written.
    fn begin_life(&self, settings: &Settings, adapter: &Adapter, addresses: PeAddresses) {
        let directory = Arc::new(AddressTable {
            view: adapter.view,
            addresses,
            fabric: adapter.device.fabric(),
            pkey: adapter.device.port().lane.pkey,
            why: adapter.why.clone(),
            by_owner: self.endpoint.atomics_by_owner(),
            checks: compares(settings),
        });
        *self.directory.lock().unwrap_or_else(|e| e.into_inner()) = Some(Arc::clone(&directory));
        self.endpoint.set_directory(directory);
        let (view, local) = (adapter.view, adapter.local());
        self.endpoint
            .on_fetch(move || view.pe_block(local).doorbell.ring());
        let (first, count) = match settings.transport {
            Transport::Rc => (adapter.local(), 1),
            Transport::Xrc => (0, adapter.view.n_local()),
        };
        let bells = Bells {
            view: adapter.view,
            first,
            count,
        };
        // Whichever thread takes in what peers have written tells at once, not when its own wait ends.
        self.endpoint.on_inbound(move || bells.ring());
        self.endpoint
            .on_wait(EndpointWaits(adapter.view.pe_block(adapter.local())));
        if let Some(recorder) = adapter.view.recorder(adapter.local()) {
            watch_connections(recorder, &self.endpoint);
        }
        // The program may be in no call that could tell: it computes, or waits for its memory to change.
        self.endpoint
            .on_failure(|error| fault::fail(&error.to_string()));
    }

    /// Whether a PE of another node has its static data laid out as this PE, which has `layout`. One that cannot be reached
    /// counts as alike: an operation that needs it reports why it cannot be reached.
    pub(crate) fn shares_statics(&self, pe: usize, layout: u64) -> bool {
        if let Some(alike) = self.layouts.is_alike(pe) {
            return alike;
        }
        let directory = self
            .directory
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .clone();
        match directory.and_then(|directory| directory.statics(pe as u32, self.adapter.local())) {
            Some(theirs) => self.layouts.note(pe, theirs == short_layout(layout)),
            None => true,
        }
    }

    /// Whether somebody rings when other nodes have written this PE's memory.
    pub(crate) fn notices_inbound(&self) -> bool {
        self.notices_inbound
    }

    /// Starts the thread that answers while the program computes.
    pub(crate) fn start_progress_thread(&self) -> Result<(), Error> {
        self.progress.start(&self.endpoint)
    }

    /// How many PEs there is a connection with, whoever asked for it and whichever context uses it.
    pub(crate) fn connected_pes(&self) -> u64 {
        let mut all = self.endpoint.connected_peers();
        for branch in self.branches.open_ones() {
            all.extend(branch.endpoint.connected_peers());
        }
        all.sort_unstable();
        all.dedup();
        all.len() as u64
    }

    /// A branch for a context, if there is one left.
    pub(crate) fn branch(&self) -> Option<&Branch> {
        self.branches.take(self.adapter, &self.endpoint)
    }

    /// Closes the endpoint and its branches, after a barrier of all PEs, and has their progress threads end.
    pub(crate) fn stop(&self) {
        self.endpoint.close();
        self.progress.stop(|| self.adapter.device.wake());
        // Their threads have closed them.
        self.branches.stop();
    }

    /// Has the progress threads of an endpoint that was stopped end, and waits for that. An init that has
    /// failed may have left the endpoint open.
    pub(crate) fn end_progress_threads(&self) {
        self.endpoint.abort();
        self.progress.end(|| self.adapter.device.wake());
        self.branches.end_progress();
    }
}
