//! The seam between the endpoint and the kind of connection that a job uses: RC to each peer,
//! or XRC to each node. The endpoint starts operations, counts and waits for them per peer in
//! either case; which queue pair a peer is reached over, and who shares it, the machines know.

use smallvec::SmallVec;

use super::domain::XrcPath;
use crate::endpoint::config::{EndpointConfig, Transport};
use crate::endpoint::error::ConnError;
use crate::handshake::{self, Phase, Verdict};
use crate::manager::{Identity, Manager};
use crate::message::{DecodeError, MAX_LEN, Message, Segments};
use crate::{ConnectStats, UdAddress, Way, xrc};
use shmem_verbs::{Cq, Hca, Qpn};

/// The connections of a PE.
#[derive(Debug)]
pub(crate) enum Path {
    Rc(Box<Manager>),
    Xrc(Box<XrcPath>),
}

/// What is to be done for connections.
#[derive(Debug)]
pub(crate) enum Todo {
    /// For the connection to this peer.
    Rc(u32, handshake::Action),
    Xrc(xrc::Action),
}

impl Path {
    /// No connections yet; `ud` is where this PE takes connection messages.
    pub(crate) fn new<H: Hca>(
        hca: &H,
        identity: &Identity,
        config: &EndpointConfig,
        ud: UdAddress,
        cq: Cq,
        seed: u64,
    ) -> Result<Self, ConnError> {
        let port = hca.port();
        let max_rd_atomic = config.max_rd_atomic.min(port.max_rd_atomic).max(1);
        match &config.transport {
            Transport::Rc => {
                let local = handshake::Local {
                    pe: config.pe,
                    incarnation: config.incarnation,
                    ud,
                    mtu: port.active_mtu,
                    max_rd_atomic,
                    segments: None,
                    revision: 0,
                    max_qps: config.max_qps,
                    leaving: false,
                    retry: config.retry_policy(),
                };
                Ok(Self::Rc(Box::new(Manager::new(identity, local, seed))))
            }
            Transport::Xrc { domain } => {
                let local = xrc::Local {
                    pe: config.pe,
                    incarnation: config.incarnation,
                    ud,
                    mtu: port.active_mtu,
                    max_rd_atomic,
                    memory: None,
                    retry: config.retry_policy(),
                };
                let manager = xrc::Manager::new(identity, local, seed);
                XrcPath::new(hca, cq, domain.as_deref(), manager)
                    .map(|path| Self::Xrc(Box::new(path)))
            }
        }
    }

    /// Something that concerns RC connections only.
    pub(crate) fn rc(&mut self, event: impl FnOnce(&mut Manager)) {
        if let Self::Rc(manager) = self {
            event(manager);
        }
    }

    pub(crate) fn stats(&self) -> &ConnectStats {
        match self {
            Self::Rc(manager) => manager.stats(),
            Self::Xrc(path) => path.manager.machine.stats(),
        }
    }

    pub(crate) fn connect(&mut self, now: u64, pe: u32, node: u32, ud: UdAddress) {
        match self {
            Self::Rc(manager) => manager.connect(now, pe, ud),
            Self::Xrc(path) => path.manager.machine.connect(now, pe, node, ud),
        }
    }

    pub(crate) fn is_wanted(&self, pe: u32) -> bool {
        match self {
            Self::Rc(manager) => manager.is_wanted(pe),
            Self::Xrc(path) => path.manager.machine.is_wanted(pe),
        }
    }

    /// The segments of this PE are these now.
    pub(crate) fn ready(&mut self, now: u64, segments: Segments) {
        match self {
            Self::Rc(manager) => manager.ready(now, segments),
            Self::Xrc(path) => path.ready(now, segments),
        }
    }

    /// Whether no peer may use an earlier registration any more. With XRC a PE does not know who
    /// has asked for its segments, so the answer is never yes.
    pub(crate) fn segments_known(&self) -> bool {
        match self {
            Self::Rc(manager) => manager.segments_known(),
            Self::Xrc(_) => false,
        }
    }

    /// A peer's segments as we know them lack one: asks for them again, now and then.
    pub(crate) fn refresh(&mut self, now: u64, pe: u32) {
        if let Self::Xrc(path) = self {
            path.manager.machine.refresh(now, pe);
        }
    }

    pub(crate) fn is_short(&self) -> bool {
        match self {
            Self::Rc(manager) => manager.is_short(),
            Self::Xrc(_) => false,
        }
    }

    pub(crate) fn usage_changed(&mut self) {
        self.rc(Manager::usage_changed);
    }

    pub(crate) fn next_timeout(&mut self) -> Option<u64> {
        match self {
            Self::Rc(manager) => manager.next_timeout(),
            Self::Xrc(path) => path.manager.machine.next_timeout(),
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: u64) {
        match self {
            Self::Rc(manager) => manager.handle_timeout(now),
            Self::Xrc(path) => path.manager.machine.handle_timeout(now),
        }
    }

    pub(crate) fn set_identity(&mut self, identity: &Identity) {
        match self {
            Self::Rc(manager) => manager.set_identity(identity),
            Self::Xrc(path) => path.manager.set_identity(identity),
        }
    }

    pub(crate) fn handle_datagram(
        &mut self,
        now: u64,
        bytes: &[u8],
    ) -> Result<Verdict, DecodeError> {
        match self {
            Self::Rc(manager) => manager.handle_datagram(now, bytes),
            Self::Xrc(path) => path.manager.handle_datagram(now, bytes),
        }
    }

    pub(crate) fn poll_action(&mut self) -> Option<Todo> {
        match self {
            Self::Rc(manager) => {
                let (pe, action) = manager.poll_action()?;
                Some(Todo::Rc(pe, action))
            }
            Self::Xrc(path) => path.manager.machine.poll_action().map(Todo::Xrc),
        }
    }

    pub(crate) fn encode(&self, message: &Message, out: &mut [u8; MAX_LEN]) -> usize {
        match self {
            Self::Rc(manager) => manager.encode(message, out),
            Self::Xrc(path) => path.manager.encode(message, out),
        }
    }

    /// The connection to `pe`, for operations.
    #[inline]
    pub(crate) fn way(&self, pe: u32) -> Option<Way<'_>> {
        match self {
            Self::Rc(manager) => manager.way(pe),
            Self::Xrc(path) => path.manager.machine.way(pe),
        }
    }

    /// The queue pair towards `pe` is in error. Returns which one that is.
    pub(crate) fn broke(&mut self, pe: u32) -> Option<Qpn> {
        match self {
            Self::Rc(manager) => manager.broke(pe),
            Self::Xrc(path) => path.manager.machine.broke(pe),
        }
    }

    /// The queue pair towards `pe`, if it is in error.
    pub(crate) fn in_error(&self, pe: u32) -> Option<Qpn> {
        match self {
            Self::Rc(manager) => manager.handshake(pe)?.in_error(),
            Self::Xrc(path) => path.manager.machine.in_error(pe),
        }
    }

    /// If the connection to `pe` is to be closed as soon as nothing is under way on it: the peers that
    /// are reached over it.
    pub(crate) fn draining(&self, pe: u32) -> Option<SmallVec<[u32; 4]>> {
        match self {
            Self::Rc(manager) => manager
                .way(pe)
                .filter(|way| way.draining)
                .map(|_| SmallVec::from_iter([pe])),
            Self::Xrc(path) => {
                let machine = &path.manager.machine;
                let node = machine.draining(pe)?;
                Some(machine.members(node).collect())
            }
        }
    }

    /// Nothing is under way any more on the connection to `pe`, which drains.
    pub(crate) fn drained(&mut self, now: u64, pe: u32) {
        match self {
            Self::Rc(manager) => {
                if let Some(qpn) = manager.way(pe).map(|way| way.qpn) {
                    manager.drained(now, pe, qpn);
                }
            }
            Self::Xrc(path) => {
                let machine = &mut path.manager.machine;
                if let Some(node) = machine.draining(pe) {
                    machine.drained(now, node);
                }
            }
        }
    }

    /// How many peers we may use.
    pub(crate) fn open_peers(&self) -> usize {
        let open = |pe: &u32| self.way(*pe).is_some();
        match self {
            Self::Rc(manager) => manager.peers().filter(open).count(),
            Self::Xrc(path) => path.manager.machine.peers().filter(open).count(),
        }
    }

    /// The peer whose queue pair requests for `pe` go to, if there is one.
    pub(crate) fn direct(&self, pe: u32) -> Option<u32> {
        match self {
            Self::Rc(_) => Some(pe),
            Self::Xrc(path) => path.manager.machine.direct(pe),
        }
    }

    pub(crate) fn leave(&mut self, now: u64, linger: u64) {
        match self {
            Self::Rc(manager) => manager.leave(now, linger),
            Self::Xrc(path) => path.manager.machine.leave(now, linger),
        }
    }

    pub(crate) fn say_bye(&mut self, now: u64, max: usize) -> bool {
        match self {
            Self::Rc(manager) => manager.say_bye(now, max),
            Self::Xrc(path) => path.manager.machine.say_bye(now, max),
        }
    }

    pub(crate) fn traffic_seen(&mut self, now: u64) {
        match self {
            Self::Rc(manager) => manager.traffic_seen(now),
            Self::Xrc(path) => path.manager.machine.traffic_seen(now),
        }
    }

    pub(crate) fn has_left(&self) -> bool {
        match self {
            Self::Rc(manager) => manager.has_left(),
            Self::Xrc(path) => path.manager.machine.has_left(),
        }
    }

    /// Peers that may use their connection to us, whether or not we may use it, and with XRC
    /// also those that we may use.
    pub(crate) fn linked_peers(&self) -> Vec<u32> {
        match self {
            Self::Rc(manager) => {
                let linked = |pe: &u32| {
                    matches!(
                        manager.phase(*pe),
                        Phase::Answered
                            | Phase::Open
                            | Phase::Draining
                            | Phase::Parting
                            | Phase::Parted
                    )
                };
                manager.peers().filter(linked).collect()
            }
            Self::Xrc(path) => {
                let machine = &path.manager.machine;
                let linked = |pe: &u32| machine.is_reachable(*pe) || machine.target(*pe).is_some();
                machine.peers().filter(linked).collect()
            }
        }
    }

    /// All connected queue pairs.
    pub(crate) fn queue_pairs(&self) -> Vec<Qpn> {
        match self {
            Self::Rc(manager) => {
                let local = |pe| manager.local_qp(pe).map(|(qpn, _)| qpn);
                manager.peers().filter_map(local).collect()
            }
            Self::Xrc(path) => {
                let (mut all, targets) = path.manager.machine.queue_pairs();
                all.extend(targets);
                all
            }
        }
    }

    /// The RC queue pair towards `pe`.
    pub(crate) fn rc_qp(&self, pe: u32) -> Option<Qpn> {
        match self {
            Self::Rc(manager) => manager.local_qp(pe).map(|(qpn, _)| qpn),
            Self::Xrc(_) => None,
        }
    }

    /// The peer to which an RC queue pair leads. Slow.
    pub(crate) fn rc_peer(&self, qpn: Qpn) -> Option<u32> {
        match self {
            Self::Rc(manager) => manager.peers().find(|pe| self.rc_qp(*pe) == Some(qpn)),
            Self::Xrc(_) => None,
        }
    }

    /// How many initiators and how many targets there are.
    pub(crate) fn xrc_queue_pairs(&self) -> (u32, u32) {
        match self {
            Self::Rc(_) => (0, 0),
            Self::Xrc(path) => {
                let (initiators, targets) = path.manager.machine.queue_pairs();
                (initiators.len() as u32, targets.len() as u32)
            }
        }
    }

    /// Gives back what was created besides queue pairs, which are gone.
    pub(crate) fn release<H: Hca>(&mut self, hca: &H) {
        if let Self::Xrc(path) = self {
            path.release(hca);
        }
    }
}
