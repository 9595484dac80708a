//! This PE's side of PMI: it tells its UD address at start, and waits for nothing.
//!
//! Under `shmrun` the launch agents exchange the addresses ([`agent_client`]); under other launchers the
//! key-value space of their PMI server does ([`foreign`]). Either way init goes on at once, and the
//! [`PeAddresses`] tells a peer's address when it is needed. A PE of a job with one node has nothing to tell.

mod agent_client;
mod foreign;
mod found;
mod pe_addresses;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use shmem_ib::connect::Published;
use shmem_ib::connect::endpoint::Endpoint;
use shmem_ib::device::Device;
use shmem_node::address::ADDRESS_LEN;
use shmem_node::contract::Descriptors;
use shmem_node::layout::AGREED_ALIGN;
use shmem_node::segment::NodeView;
use shmem_pmi::id::UniqueId;

use self::agent_client::AgentClient;
pub(crate) use self::foreign::{Foreign, give_up};
pub(crate) use self::found::{Found, Identity};
pub(crate) use self::pe_addresses::PeAddresses;
use crate::error::Error;

/// The way to the process manager.
pub(crate) enum Pmi {
    /// There is none: this process was started alone.
    Alone,
    /// The launch agent of `shmrun`.
    Agent(AgentClient),
    /// The PMI server of another launcher.
    Foreign(Arc<Foreign>),
}

/// A layout of static data as PEs publish it: 0 if the data is not symmetric.
pub(crate) fn short_layout(layout: u64) -> u32 {
    let folded = (layout ^ layout >> 32) as u32;
    folded.max(u32::from(layout != 0))
}

/// Where the heaps of a node begin in their segments, as PEs publish it.
pub(crate) fn heap_start(view: &NodeView) -> u32 {
    // Segments are far smaller than the 256 TiB that this can say.
    (view.heap_start() / AGREED_ALIGN) as u32
}

impl Pmi {
    /// For a PE without a launcher.
    pub(crate) fn alone() -> Self {
        Self::Alone
    }

    /// Takes over the socket that the launch agent left open. Nothing is sent yet.
    pub(crate) fn inherited(local: u32, fds: Descriptors) -> Result<Self, Error> {
        AgentClient::inherited(local, fds.agent()).map(Self::Agent)
    }

    /// Whether this process is of the job of an id.
    pub(crate) fn is_of(&self, id: &UniqueId) -> bool {
        let of = match self {
            Self::Alone | Self::Agent(_) => None,
            Self::Foreign(foreign) => foreign.process().id(),
        };
        of.is_some_and(|of| of.to_bytes() == id.to_bytes())
    }

    /// The job's identity, if this PE knows it already.
    pub(crate) fn identity(&self, view: &NodeView) -> Option<Identity> {
        match self {
            Self::Alone | Self::Agent(_) => Some((view.job_id(), view.job_key())),
            Self::Foreign(foreign) => foreign.identity(),
        }
    }

    /// The addresses of all PEs in their `life`th life, counted from 1, as they come in.
    pub(crate) fn addresses(&self, view: &NodeView, life: u32) -> PeAddresses {
        match self {
            Self::Alone | Self::Agent(_) => PeAddresses::Gather {
                view: Box::new(*view),
                request: life - 1,
            },
            Self::Foreign(foreign) => PeAddresses::Kvs(foreign.addresses(life)),
        }
    }

    /// Tells the others the address of this PE in its `life`th life. Collective, and does not wait.
    pub(crate) fn publish(
        &self,
        (view, local): (&NodeView, usize),
        life: u32,
        addresses: &PeAddresses,
        endpoint: &Arc<Endpoint<Device>>,
        checks: bool,
    ) -> Result<(), Error> {
        const { assert!(Published::LEN == ADDRESS_LEN) };
        let published = Published {
            checks,
            // Moved into the segment before, if it was.
            statics: short_layout(view.pe_block(local).statics.load(Ordering::Relaxed)),
            heap_start: heap_start(view),
            ..endpoint.published()
        };
        let address: [u8; Published::LEN] = published.to_bytes();
        match (self, addresses) {
            (Self::Agent(agent), _) => match view.leave_address(local, life, &address) {
                Some(all) => agent.hand_over(&all),
                None => Ok(()),
            },
            (Self::Foreign(_), PeAddresses::Kvs(addresses)) => {
                addresses.exchange(&address, endpoint)
            }
            _ => Ok(()),
        }
    }

    /// Asks the launcher to end the whole job with `status`.
    pub(crate) fn abort(&self, status: i32, message: &str) {
        match self {
            Self::Alone => {}
            Self::Agent(agent) => agent.abort(status, message),
            Self::Foreign(foreign) => foreign.abort(status, message),
        }
    }

    /// Has the launcher tell the user something about this PE, if there is one that can; `adds`: it only
    /// adds to what was told before.
    pub(crate) fn tell(&self, text: &str, adds: bool) -> bool {
        match self {
            Self::Agent(agent) => agent.tell(text, adds),
            Self::Alone | Self::Foreign(_) => false,
        }
    }

    /// A PE of this node is in finalize, the first one.
    pub(crate) fn leaves(&self) {
        if let Self::Agent(agent) = self {
            agent.leaves();
        }
    }

    /// This process does not become a PE, because of `why`. The agent of `shmrun` sees that itself.
    pub(crate) fn init_failed(&self, why: &Error) {
        if let Self::Foreign(foreign) = self {
            foreign.init_failed(why);
        }
    }

    /// This process is no PE any more, and may become one again. `is_own` says that the process is the PE and not one that
    /// it has forked.
    pub(crate) fn leave(&self, is_own: impl FnOnce() -> bool) {
        if let Self::Foreign(foreign) = self
            && is_own()
        {
            foreign.leave();
        }
    }

    /// It is about to.
    pub(crate) fn return_again(&self) -> Result<(), Error> {
        match self {
            Self::Alone | Self::Agent(_) => Ok(()),
            Self::Foreign(foreign) => foreign.return_again(),
        }
    }

    /// Whether the exit of a PE has the launcher end the job, and this process, at once.
    pub(crate) fn ends_job_at_exit(&self) -> bool {
        matches!(self, Self::Foreign(_))
    }

    /// The process exits with `status`, as a PE or as none any more.
    pub(crate) fn process_exits(&self, status: i32, is_pe: bool) {
        if let Self::Foreign(foreign) = self {
            foreign.process_exits(status, is_pe);
        }
    }
}
