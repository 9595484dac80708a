//! The end of an endpoint whose HCA has failed.
//!
//! An HCA keeps its failure, whichever thread meets it ([`Hca::failure`]); every poll of the endpoint
//! looks. Whoever sees it first ends the endpoint as [`abort`](super::Endpoint::abort) does: queue pairs
//! are destroyed, so that no buffer is used any more, operations under way are over, and all waits end.
//! From then on every call gives the failure. A program that is in no call is told by
//! [`Endpoint::on_failure`].

use super::Endpoint;
use super::driver::Driver;
use super::error::ConnError;
use shmem_verbs::{AddressVector, Failure, Hca, WcStatus};

/// Told of the failure of an HCA.
pub(super) type Tell = Box<dyn Fn(&ConnError) + Send + Sync>;

impl<H: Hca> Endpoint<H> {
    /// Has `tell` called once if the HCA fails, by whichever thread has noticed; without a lock of the
    /// endpoint. Only the first `tell` counts.
    pub fn on_failure(&self, tell: impl Fn(&ConnError) + Send + Sync + 'static) {
        let _ = self.on_failure.set(Box::new(tell));
    }
}

impl<H: Hca> Driver<H> {
    /// Ends everything if the HCA has failed.
    #[inline]
    pub(super) fn look_for_failure(&mut self) {
        if self.failure.is_some() || self.hca.failure().is_some() {
            self.end_failed();
        }
    }

    #[cold]
    fn end_failed(&mut self) {
        if self.closed {
            return;
        }
        let by_hca = || {
            let failure = self.hca.failure()?;
            let peer = failure.peer.and_then(|av| self.peer_at(av));
            Some(ConnError::device(failure, peer))
        };
        let error = self.failure.clone().or_else(by_hca);
        (self.failure, self.untold_failure) = (error.clone(), error);
        self.tear_down();
    }

    /// Connection messages cannot be sent or received any more: their queue pair is in error. The
    /// poll that has found it ends everything.
    #[cold]
    pub(super) fn datagrams_failed(&mut self, what: &str, status: WcStatus) {
        let reason = format!("{what} a connection message ended with {status:?}");
        let device = format!("the network device at {}", self.hca.port().av);
        let peer = None;
        self.failure.get_or_insert(ConnError::Device {
            device,
            peer,
            reason,
        });
    }

    /// Why nothing may be started any more.
    pub(super) fn over(&self) -> ConnError {
        self.failure.clone().unwrap_or(ConnError::Closed)
    }

    fn peer_at(&self, av: AddressVector) -> Option<String> {
        let at = |(_, peer): &(&u32, &super::peer::Peer)| {
            peer.address.is_some_and(|address| address.av() == av)
        };
        let (pe, _) = self.peers.iter().find(at)?;
        Some(self.describe(*pe))
    }
}

impl ConnError {
    pub(super) fn device(failure: &Failure, peer: Option<String>) -> Self {
        Self::Device {
            device: failure.device.clone(),
            peer,
            reason: failure.reason.clone(),
        }
    }
}
