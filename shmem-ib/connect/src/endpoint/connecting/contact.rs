//! Making contact: at an operation's first use of a peer, with all peers before, or with those of whom
//! it is known that they will be used soon.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::UdAddress;
use crate::endpoint::awaited::Awaited;
use crate::endpoint::config::{Directory, Lookup};
use crate::endpoint::driver::Driver;
use crate::endpoint::error::ConnError;
use crate::endpoint::lock::{Endpoint, Locked};
use crate::endpoint::peer::Ahead;
use shmem_verbs::Hca;

/// Connections that [`Endpoint::connect_all`] or [`Endpoint::connect_ahead`] has under way at a time:
/// enough to hide the
/// round trips, few enough for the peers' receive queues.
const CONNECT_WINDOW: usize = 16;
/// How long one wait for the directory lasts. It wakes when the address is there; with thousands
/// of PEs waiting on few cores, looking more often would delay what they wait for.
const DIRECTORY_WAIT: Duration = Duration::from_millis(500);

impl<H: Hca> Endpoint<H> {
    /// Connects to all of `peers` (this PE is skipped) and returns when every connection was
    /// open: the static mode, for comparison with connecting on demand. If fewer queue pairs are
    /// allowed than there are peers, those connected first have been closed again then.
    ///
    /// # Errors
    /// The first peer that cannot be reached.
    pub fn connect_all(&self, peers: impl Iterator<Item = u32>) -> Result<(), ConnError> {
        let mut locked = self.lock();
        let me = locked.config.pe;
        let window = match locked.config.max_qps as usize {
            0 => CONNECT_WINDOW,
            cap => cap.min(CONNECT_WINDOW),
        };
        let mut under_way = VecDeque::with_capacity(window);
        for pe in peers.filter(|pe| *pe != me) {
            if under_way.len() == window
                && let Some(first) = under_way.pop_front()
            {
                locked.ensure_open(first)?;
            }
            if locked.usable(pe)?.is_none() {
                locked.begin_connect(pe)?;
                under_way.push_back(pe);
            }
        }
        under_way
            .into_iter()
            .try_for_each(|pe| locked.ensure_open(pe))
    }

    /// Starts to connect to `peers`, which are about to be used, and returns when their addresses are there, without
    /// waiting for anything else. A few handshakes at a time are under way; the next begin, whoever makes
    /// progress, as those complete. What goes wrong is told to operations that use the peer. Peers that are
    /// connected are passed over. Where there may be only so many queue pairs, it stops at half of them: opening
    /// one ahead is not to close one that is in use, and others come here, too.
    pub fn connect_ahead(&self, peers: impl Iterator<Item = u32>) {
        let mut locked = self.lock();
        let (me, n_pes) = (locked.config.pe, locked.config.n_pes);
        let Some(directory) = locked.directory.clone() else {
            return;
        };
        if locked.life.closing || !locked.has_room_ahead() {
            return;
        }
        let distant = |pe: &u32| *pe < n_pes && *pe != me && !locked.is_known(*pe);
        let wanted: Vec<u32> = peers.filter(distant).collect();
        // Addresses come together, if not all at once. Who uses these peers would wait for them next.
        if let Some(&first) = wanted.first()
            && locked.await_address(&directory, first).is_err()
        {
            return;
        }
        let found: Vec<(u32, u32, UdAddress)> = locked.unlocked(|_| {
            let known = |pe: u32| match directory.lookup(pe) {
                Lookup::Ready(address) => Some((pe, directory.node(pe), address)),
                Lookup::Pending | Lookup::Unknown(_) => None,
            };
            wanted.into_iter().filter_map(known).collect()
        });
        locked.ahead.waiting.extend(found);
        locked.connect_more();
    }
}

impl<H: Hca> Driver<H> {
    /// Whether `pe` is connected, or about to be.
    fn is_known(&self, pe: u32) -> bool {
        self.manager.is_wanted(pe) || self.manager.route(pe).is_some()
    }

    /// Whether connections may be made that nobody waits for yet.
    fn has_room_ahead(&self) -> bool {
        match self.config.max_qps as usize {
            0 => true,
            cap => self.manager.queue_pairs_held() < cap / 2,
        }
    }

    /// Begins handshakes with those who wait for it, as far as the window allows.
    pub(crate) fn connect_more(&mut self) {
        if self.life.closing {
            self.ahead = Ahead::default();
            return;
        }
        let mut under_way = std::mem::take(&mut self.ahead.under_way);
        under_way.retain(|pe| self.manager.route(*pe).is_none() && self.manager.is_wanted(*pe));
        if !self.has_room_ahead() {
            self.ahead.waiting.clear();
        }
        while under_way.len() < CONNECT_WINDOW
            && self.has_room_ahead()
            && let Some((pe, node, address)) = self.ahead.waiting.pop_front()
        {
            if !self.is_known(pe) {
                self.peers.entry(pe).or_default().address = Some(address);
                let now = self.now();
                self.manager.connect(now, pe, node, address);
                self.act();
                under_way.push(pe);
            }
        }
        self.ahead.under_way = under_way;
    }
}

impl<H: Hca> Locked<'_, H> {
    /// Starts connecting to `pe` unless that is under way, waiting for its address if need be.
    fn begin_connect(&mut self, pe: u32) -> Result<(), ConnError> {
        let (me, n_pes) = (self.config.pe, self.config.n_pes);
        if pe >= n_pes || pe == me {
            return Err(ConnError::NoSuchPeer { pe, me, n_pes });
        }
        let Some(directory) = self.directory.clone() else {
            return Err(ConnError::NoDirectory { pe });
        };
        let address = self.await_address(&directory, pe)?;
        self.peers.entry(pe).or_default().address = Some(address);
        let now = self.now();
        self.manager.connect(now, pe, directory.node(pe), address);
        self.act();
        Ok(())
    }

    /// The address of `pe`, when it is there.
    fn await_address(
        &mut self,
        directory: &Arc<dyn Directory>,
        pe: u32,
    ) -> Result<UdAddress, ConnError> {
        let (began, deadline) = (Instant::now(), self.config.connect_deadline);
        let mut told = None;
        loop {
            match self.unlocked(|_| directory.lookup(pe)) {
                Lookup::Ready(address) => return Ok(address),
                Lookup::Unknown(why) => {
                    return Err(ConnError::AddressUnknown {
                        peer: self.describe(pe),
                        why,
                    });
                }
                Lookup::Pending => {}
            }
            let waited = began.elapsed();
            if waited >= deadline {
                return Err(ConnError::AddressLate {
                    peer: self.describe(pe),
                    waited,
                });
            }
            self.poll();
            told = told.or_else(|| self.tell(Awaited::Address(pe)));
            self.unlocked(|_| directory.wait(pe, DIRECTORY_WAIT.min(deadline - waited)));
            if self.life.closing {
                return Err(self.over());
            }
        }
    }

    /// Returns when operations may be posted to `pe`, as long as the lock is kept.
    pub(crate) fn ensure_open(&mut self, pe: u32) -> Result<(), ConnError> {
        if self.usable(pe)?.is_some() {
            return Ok(());
        }
        self.peers.entry(pe).or_default().waiters += 1;
        let result = self.wait_for_open(pe);
        if let Some(peer) = self.peers.get_mut(&pe) {
            peer.waiters -= 1;
            // Who goes takes its place along, whether it has used it or not.
            peer.entitled = peer.entitled.saturating_sub(1).min(peer.waiters);
            if peer.entitled == 0 {
                self.manager.usage_changed();
            }
        }
        result
    }

    fn wait_for_open(&mut self, pe: u32) -> Result<(), ConnError> {
        let entitled = |d: &Driver<H>| {
            let called = d.peers.get(&pe).is_some_and(|p| p.entitled > 0);
            called && d.manager.route(pe).is_some()
        };
        loop {
            if self.usable(pe)?.is_some() || entitled(self) {
                return Ok(());
            }
            let before = self.peers.get(&pe).map_or(0, |p| p.failures);
            self.begin_connect(pe)?;
            let outcome = self.wait_until(
                |_| Awaited::Connection(pe),
                |d| match d.usable(pe) {
                    Err(e) => Some(Err(e)),
                    Ok(Some(_)) => Some(Ok(true)),
                    Ok(None) if entitled(d) => Some(Ok(true)),
                    Ok(None) => {
                        let failed = d.peers.get(&pe).filter(|p| p.failures > before);
                        if let Some(error) = failed.and_then(|p| p.failure.clone()) {
                            return Some(Err(error));
                        }
                        // It was open, and the peer has replaced it already, or it is making room:
                        // ask again.
                        (!d.manager.is_wanted(pe)).then_some(Ok(false))
                    }
                },
            )?;
            if outcome {
                return Ok(());
            }
        }
    }
}
