//! The way to PEs on other nodes: the endpoint, the thread that serves it while the program computes, and
//! what of this PE's memory is registered with the device.
//!
//! * [`settings`]: what users ask of devices and endpoints; [`wanted`]: of which device.
//! * [`directory`]: where the others are.
//! * [`register`]: what peers can access, and [`limits`]: whether there is memory for it.

mod directory;
mod limits;
mod register;
mod settings;
mod wanted;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use shmem_ib::connect::endpoint::{ConnError, Endpoint, EndpointConfig};
use shmem_ib::device::{self, Device, Opened};
use shmem_ib::verbs::Hca;
use shmem_node::segment::NodeView;
use shmem_node::settings::{Settings, Transport};
use shmem_node::sys;

use self::directory::AddressTable;
use self::register::{Registrar, Shape};
use crate::collectives::compares;
use crate::error::Error;
use crate::fault;
use crate::pmi::{Book, Identity};
use crate::told::OfEndpoint;

/// How long the progress thread sleeps when nothing happens. Only a bound: packets, timers and
/// [`Network::stop`] wake it.
const IDLE: Duration = Duration::from_secs(3600);

/// Stack of the progress thread: it runs the endpoint's state machines and nothing of the user's.
const STACK: usize = 256 << 10;

/// Who may sleep until memory changes that this PE's HCA writes for other nodes: this PE, and with
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
    stop: Arc<AtomicBool>,
}

/// The network device of a PE. It is opened once in a process, and serves one endpoint after the other.
pub(crate) struct Adapter {
    view: NodeView,
    me: usize,
    device: Arc<Device>,
    /// Why it is this one.
    why: String,
}

fn failed(e: &dyn std::fmt::Display) -> Error {
    Error::Network(e.to_string())
}

fn random() -> Result<u64, Error> {
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
        })
    }

    fn local(&self) -> usize {
        self.view.local_of()[self.me] as usize
    }

    /// How often this PE has left the job before this life.
    fn lives_before(&self) -> u32 {
        // Its own count, to which this life was added at the beginning.
        self.view
            .pe_block(self.local())
            .life
            .load(Ordering::Relaxed)
            - 1
    }
}

impl Network {
    /// Opens the UD endpoint. Nothing is sent. `book` is where the addresses of the others will be;
    /// without an `identity` the job's comes with them. So many bytes of static data lie in this PE's segment.
    pub(crate) fn open(
        settings: &Settings,
        adapter: &Adapter,
        xrc: Option<OwnedFd>,
        book: Book,
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
            stop: Arc::new(AtomicBool::new(false)),
        };
        network.begin_life(settings, adapter, book);
        Ok(network)
    }

    /// Opens the endpoint again for the next life, in which the settings are the same. Its progress
    /// thread has ended.
    pub(crate) fn reopen(
        &self,
        settings: &Settings,
        adapter: &Adapter,
        book: Book,
        identity: Option<Identity>,
    ) -> Result<(), Error> {
        let reopened = self.endpoint.reopen(adapter.lives_before(), random()?);
        reopened.map_err(|e| failed(&e))?;
        // One that came late the last time is known from the beginning now.
        if let Some((job_id, job_key)) = identity {
            self.endpoint.set_identity(job_id, job_key);
        }
        self.registrar.forget();
        self.stop.store(false, Ordering::Relaxed);
        self.begin_life(settings, adapter, book);
        Ok(())
    }

    /// Tells the endpoint where the others are, and whom to tell of what they write.
    fn begin_life(&self, settings: &Settings, adapter: &Adapter, book: Book) {
        self.endpoint.set_directory(Arc::new(AddressTable {
            view: adapter.view,
            book,
            fabric: adapter.device.fabric(),
            pkey: adapter.device.port().lane.pkey,
            why: adapter.why.clone(),
            by_owner: self.endpoint.atomics_by_owner(),
            checks: compares(settings),
        }));
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
            .on_wait(OfEndpoint(adapter.view.pe_block(adapter.local())));
        // The program may be in no call that could tell: it computes, or waits for its memory to change.
        self.endpoint
            .on_failure(|error| fault::fail(&error.to_string()));
    }

    /// Whether somebody rings when other nodes have written this PE's memory.
    pub(crate) fn notices_inbound(&self) -> bool {
        self.notices_inbound
    }

    /// Starts the thread that answers while the program computes.
    pub(crate) fn start_progress_thread(&self) -> Result<(), Error> {
        let (endpoint, stop) = (self.endpoint.clone(), self.stop.clone());
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

    /// Closes the endpoint, after a barrier of all PEs. The progress thread ends when it next
    /// wakes; it is not woken for that, because most often the whole process ends now.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.endpoint.close();
    }

    /// Whether the progress thread has ended. It shares the device with that of the next
    /// endpoint, from which it must not take events.
    fn progress_thread_has_ended(&self) -> bool {
        Arc::strong_count(&self.stop) == 1
    }

    /// Has the progress thread of an endpoint that was stopped end, and waits for that. An init that has
    /// failed may have left the endpoint open.
    pub(crate) fn end_progress_thread(&self, adapter: &Adapter) {
        self.stop.store(true, Ordering::Relaxed);
        self.endpoint.abort();
        while !self.progress_thread_has_ended() {
            adapter.device.wake();
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}
