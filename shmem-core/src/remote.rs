//! The way to PEs on other nodes: the endpoint, the thread that serves it while the program
//! computes, and the directory of addresses.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use shmem_ib::connect::Published;
use shmem_ib::connect::endpoint::{
    Atomics, ConnError, Directory, Endpoint, EndpointConfig, Lookup, Transport,
};
use shmem_ib::device::{self, Device, Opened};
use shmem_ib::soft::xrc::SharedWindow;
use shmem_ib::soft::{Faults, SoftConfig};
use shmem_ib::verbs::{Fabric, Hca, Mtu};
use shmem_node::own_address;
use shmem_node::segment::NodeView;
use shmem_node::settings::{self, Settings};
use shmem_node::sys;

use crate::device::wanted;
use crate::error::Error;
use crate::fault;
use crate::heap::register::{self, Registrar, Shape};
use crate::pmi::{Book, Found, Identity};

/// How long the progress thread sleeps when nothing happens. Only a bound: packets, timers and
/// [`Remote::stop`] wake it.
const IDLE: Duration = Duration::from_secs(3600);

/// Operations under way per connection on a device. It takes the memory for all of them when the
/// queue pair is made, with room for inline payloads 1 KiB each and more; enough to keep a link busy.
const DEVICE_SQ_DEPTH: u32 = 64;

/// Stack of the progress thread: it runs the endpoint's state machines and nothing of the user's.
const STACK: usize = 256 << 10;

/// Who may sleep until memory changes that this PE's HCA writes for other nodes: this PE, and with
/// XRC, where requests for all PEs of the node come in through any of them, the whole node.
#[derive(Clone, Copy)]
pub(crate) struct Bells {
    view: NodeView,
    /// Positions on the node.
    first: usize,
    count: usize,
}

impl Bells {
    /// Wakes those who sleep.
    #[inline]
    pub(crate) fn ring(&self) {
        for local in self.first..self.first + self.count {
            self.view.pe_block(local).doorbell.ring();
        }
    }
}

/// Connection to all other nodes.
pub(crate) struct Remote {
    pub(crate) endpoint: Arc<Endpoint<Device>>,
    /// What of this PE's segment peers can access, and how it is cut, as all PEs' segments are.
    pub(crate) registrar: Registrar,
    notices_inbound: bool,
    stop: Arc<AtomicBool>,
}

/// The network device. It is opened once in a process, and serves one endpoint after the other.
pub(crate) struct Adapter {
    device: Arc<Device>,
    /// Why it is this one.
    why: String,
}

fn network(e: &dyn std::fmt::Display) -> Error {
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
        let addresses = view.hca_addresses().ok_or_else(|| {
            Error::Launch("shmrun gave addresses of a kind that this program does not know".into())
        })?;
        let faults = settings.soft_faults;
        let (window, window_len) = view.heap_window();
        let bind = addresses.of(view.node() as u32, me as u32);
        let config = SoftConfig {
            bind,
            port: settings.soft_port,
            mtu: mtu(match settings.soft_mtu {
                0 => own_address::path_mtu(bind).unwrap_or(0),
                bytes => bytes,
            }),
            interop: settings.soft_interop,
            silent: faults.silent,
            receive_buffer: settings.soft_buffer.try_into().unwrap_or(u32::MAX),
            // Where PEs outnumber cores, so that nobody spins, senders take turns anyway.
            shares: view.spins() > 0,
            // SAFETY: the heap memory of the node, whole, as every PE of it maps it until its end; the
            // library and the program access it through raw pointers or atomics.
            shared: Some(unsafe { SharedWindow::new(window, window_len) }),
            faults: Faults {
                drop: faults.drop_ppm,
                duplicate: faults.duplicate_ppm,
                reorder: faults.reorder_ppm,
                seed: faults.seed ^ (me as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            },
            seed: random()?,
        };
        let local = view.local_of()[me] as usize;
        let Opened { device, why } = device::open(&device::Request {
            wanted: wanted(settings),
            number: view.node() + local,
            gid_index: settings.gid_index,
            memory: register::at_least(settings, view.heap_start(), view.segment_len()) as u64,
            on_demand_paging: register::wants_paging(settings),
            xrc: settings.transport == settings::Transport::Xrc,
            soft: &config,
        })
        .map_err(|e| network(&e))?;
        Ok(Self {
            device: Arc::new(device),
            why,
        })
    }
}

impl Remote {
    /// Opens the UD endpoint. Nothing is sent. `book` is where the addresses of the others will be;
    /// without an `identity` the job's comes with them.
    pub(crate) fn open(
        view: &NodeView,
        me: usize,
        settings: &Settings,
        adapter: &Adapter,
        xrc: Option<OwnedFd>,
        book: Book,
        identity: Option<Identity>,
    ) -> Result<Self, Error> {
        let device = &adapter.device;
        let notices_inbound = device.port().notices_inbound;
        let fabric = device.fabric();
        let registrar = Registrar::new(
            settings,
            fabric,
            device.port().pins_memory,
            Shape::of(view),
            view.on_machine(),
        )?;
        let (job_id, job_key) = identity.unwrap_or(([0; 16], &[0; 32]));
        let config = EndpointConfig {
            pe: me as u32,
            n_pes: view.n_pes() as u32,
            transport: match settings.transport {
                settings::Transport::Rc => Transport::Rc,
                settings::Transport::Xrc => Transport::Xrc {
                    domain: xrc.map(Arc::new),
                },
            },
            atomics: match settings.atomics {
                settings::Atomics::Auto => Atomics::Auto,
                settings::Atomics::Hca => Atomics::Hca,
                settings::Atomics::Owner => Atomics::Owner,
            },
            job_id,
            job_key,
            identity_later: identity.is_none(),
            life: lives_before(view, me),
            seed: random()?,
            connect_deadline: settings.connect_timeout,
            linger: settings.linger,
            max_qps: settings.max_qps,
            spin_rounds: view.spins(),
            sq_depth: match fabric {
                Fabric::Soft => EndpointConfig::default().sq_depth,
                Fabric::Roce | Fabric::InfiniBand => DEVICE_SQ_DEPTH,
            },
            ..EndpointConfig::default()
        };
        let endpoint = Endpoint::new(Arc::clone(device), config).map_err(|e| match e {
            ConnError::OwnerOverXrc => {
                network(&format_args!("{e} (SHMEM_TRANSPORT and SHMEM_ATOMICS)"))
            }
            e => network(&e),
        })?;
        let remote = Self {
            endpoint,
            registrar,
            notices_inbound,
            stop: Arc::new(AtomicBool::new(false)),
        };
        remote.introduce(view, me, settings, adapter, book);
        Ok(remote)
    }

    /// Opens the endpoint again for the next life, in which the settings are the same. Its progress
    /// thread was dismissed.
    pub(crate) fn reopen(
        &self,
        view: &NodeView,
        me: usize,
        settings: &Settings,
        adapter: &Adapter,
        book: Book,
        identity: Option<Identity>,
    ) -> Result<(), Error> {
        let reopened = self.endpoint.reopen(lives_before(view, me), random()?);
        reopened.map_err(|e| network(&e))?;
        // One that came late the last time is known from the beginning now.
        if let Some((job_id, job_key)) = identity {
            self.endpoint.set_identity(job_id, job_key);
        }
        self.registrar.forget();
        self.stop.store(false, Ordering::Relaxed);
        self.introduce(view, me, settings, adapter, book);
        Ok(())
    }

    /// Tells the endpoint where the others are, and whom to tell of what they write.
    fn introduce(
        &self,
        view: &NodeView,
        me: usize,
        settings: &Settings,
        adapter: &Adapter,
        book: Book,
    ) {
        self.endpoint.set_directory(Arc::new(AddressTable {
            view: *view,
            book,
            fabric: adapter.device.fabric(),
            why: adapter.why.clone(),
            by_owner: self.endpoint.atomics_by_owner(),
        }));
        let (first, count) = match settings.transport {
            settings::Transport::Rc => (view.local_of()[me] as usize, 1),
            settings::Transport::Xrc => (0, view.n_local()),
        };
        let view = *view;
        let bells = Bells { view, first, count };
        // Whichever thread takes in what peers have written tells at once, not when its own wait ends.
        self.endpoint.on_inbound(move || bells.ring());
        // The program may be in no call that could tell: it computes, or waits for its memory to change.
        self.endpoint
            .on_failure(|error| fault::fail(&error.to_string()));
    }

    /// Whether somebody rings when other nodes have written this PE's memory.
    pub(crate) fn notices_inbound(&self) -> bool {
        self.notices_inbound
    }

    /// Starts the thread that answers while the program computes.
    pub(crate) fn serve(&self) -> Result<(), Error> {
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
    fn is_deserted(&self) -> bool {
        Arc::strong_count(&self.stop) == 1
    }

    /// Has the progress thread of an endpoint that was stopped end, and waits for that. An init that has
    /// failed may have left the endpoint open.
    pub(crate) fn dismiss(&self, adapter: &Adapter) {
        self.stop.store(true, Ordering::Relaxed);
        self.endpoint.abort();
        while !self.is_deserted() {
            adapter.device.wake();
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// How often PE `me`, of this node, has left the job before this life.
fn lives_before(view: &NodeView, me: usize) -> u32 {
    let block = view.pe_block(view.local_of()[me] as usize);
    // Its own count, to which this life was added at the beginning.
    block.life.load(Ordering::Relaxed) - 1
}

/// The settings table allows no other values.
fn mtu(bytes: u32) -> Mtu {
    match bytes {
        256 => Mtu::M256,
        512 => Mtu::M512,
        1024 => Mtu::M1024,
        2048 => Mtu::M2048,
        _ => Mtu::M4096,
    }
}

/// Where PEs are, and whether they can be reached from here.
struct AddressTable {
    view: NodeView,
    book: Book,
    /// Of this PE's device.
    fabric: Fabric,
    /// Why this PE uses it.
    why: String,
    /// Whether this PE has owners execute atomics.
    by_owner: bool,
}

impl AddressTable {
    /// Whether this PE can talk to who has published that.
    fn check(&self, peer: Published) -> Result<Published, String> {
        if peer.fabric != self.fabric {
            return Err(format!(
                "it is reached over {} (at {}), and this PE uses {} ({}). Give all PEs the same \
                 with SHMEM_HCA; SHMEM_HCA=soft goes everywhere. shmem-info shows what a node has",
                peer.fabric, peer.ud, self.fabric, self.why
            ));
        }
        if peer.by_owner != self.by_owner {
            let who = |by_owner| if by_owner { "owners" } else { "HCAs" };
            return Err(format!(
                "atomics between it and others are executed by {}, and those of this PE by {} (on {}: {}). \
                 Give all PEs the same with SHMEM_ATOMICS; owner goes with every device",
                who(peer.by_owner),
                who(self.by_owner),
                self.fabric,
                self.why
            ));
        }
        Ok(peer)
    }
}

impl Directory for AddressTable {
    fn lookup(&self, pe: u32) -> Lookup {
        match self.book.find(pe) {
            Found::Pending => Lookup::Pending,
            Found::Address(peer) => match self.check(peer) {
                Ok(peer) => Lookup::Ready(peer.ud),
                Err(why) => Lookup::Unknown(why),
            },
            Found::Unknown(why) => Lookup::Unknown(why),
        }
    }

    fn wait(&self, _pe: u32, max: Duration) {
        self.book.wait(max);
    }

    fn node(&self, pe: u32) -> u32 {
        // A PE that does not exist is refused before anybody asks for its node.
        self.view.node_of().get(pe as usize).copied().unwrap_or(pe)
    }

    fn describe(&self, pe: u32) -> String {
        match self.view.node_of().get(pe as usize) {
            Some(node) => format!("PE {pe} (node {node})"),
            None => format!("PE {pe}"),
        }
    }
}
