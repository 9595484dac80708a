//! Datagrams under way: what a UD queue pair has to know of its requests.
//!
//! *Sends* use an address handle, which must stay until they have completed: devices look it up
//! when they send. *Receives* bring the sender's address only in front of the payload, so the place
//! of their buffer is kept. Both queues complete in order, so each is a list that loses its
//! front; what completed in error, or without telling, goes when a later one completes.
//!
//! Datagrams carry only connection messages, so a mutex and an allocation now and then are no
//! matter.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashMap;

use super::context::Pd;
use super::map::Origin;
use super::objects::Ah;
use shmem_verbs::{AddressVector, GRH_LEN, RecvWr};

/// Requests of one queue, in the order in which they were posted.
#[derive(Debug)]
struct UnderWay<T> {
    queue: VecDeque<(u64, T)>,
    /// Most that the queue pair holds.
    most: usize,
}

impl<T> UnderWay<T> {
    fn new(most: u32) -> Self {
        Self {
            queue: VecDeque::new(),
            most: most.max(1) as usize,
        }
    }

    fn posted(&mut self, wr_id: u64, what: T) {
        if self.queue.len() == self.most {
            self.queue.pop_front(); // The device had room for one more: this one is over.
        }
        self.queue.push_back((wr_id, what));
    }

    /// Takes out the first of this identifier, with everything before it.
    fn completed(&mut self, wr_id: u64) -> Option<T> {
        let place = self.queue.iter().position(|(id, _)| *id == wr_id)?;
        self.queue.drain(..=place).next_back().map(|(_, what)| what)
    }
}

/// Requests of a UD queue pair.
#[derive(Debug)]
pub(super) struct Datagrams {
    sends: Mutex<UnderWay<Arc<Ah>>>,
    /// Addresses of buffers; 0 of those that are too short for a header in one piece.
    receives: Mutex<UnderWay<u64>>,
}

impl Datagrams {
    /// With queues of so many requests.
    pub(super) fn new(send: u32, recv: u32) -> Self {
        Self {
            sends: Mutex::new(UnderWay::new(send)),
            receives: Mutex::new(UnderWay::new(recv)),
        }
    }

    /// Posts a send by `post`, and keeps its address handle.
    pub(super) fn send<E>(
        &self,
        wr_id: u64,
        ah: Arc<Ah>,
        post: impl FnOnce(&Ah) -> Result<(), E>,
    ) -> Result<(), E> {
        // Held over the post: the list has the order of the queue.
        let mut sends = self.sends.lock().unwrap_or_else(PoisonError::into_inner);
        post(&ah)?;
        sends.posted(wr_id, ah);
        Ok(())
    }

    /// A send has completed.
    pub(super) fn sent(&self, wr_id: u64) {
        let mut sends = self.sends.lock().unwrap_or_else(PoisonError::into_inner);
        sends.completed(wr_id);
    }

    /// Posts a receive by `post`, and keeps the place of its buffer.
    pub(super) fn receive<E>(
        &self,
        wr: &RecvWr<'_>,
        post: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let first = wr.sges.first().filter(|sge| sge.len as usize >= GRH_LEN);
        let mut receives = self.receives.lock().unwrap_or_else(PoisonError::into_inner);
        post()?;
        receives.posted(wr.wr_id, first.map_or(0, |sge| sge.addr));
        Ok(())
    }

    /// A receive has completed successfully: what stands in front of the datagram.
    ///
    /// # Safety
    /// The completion was polled just now and is not handed out yet, so that the buffer of the
    /// receive is still valid and nobody writes to it.
    pub(super) unsafe fn received(&self, wr_id: u64) -> Option<[u8; GRH_LEN]> {
        let mut receives = self.receives.lock().unwrap_or_else(PoisonError::into_inner);
        let addr = receives.completed(wr_id).filter(|addr| *addr != 0)?;
        let from = std::ptr::with_exposed_provenance::<[u8; GRH_LEN]>(addr as usize);
        // SAFETY: the buffer holds a header by `receive`, and is valid by the caller's promise.
        // Bytes need no alignment.
        Some(unsafe { from.read() })
    }

    /// The queue pair was reset: nothing is under way.
    pub(super) fn forget(&self) {
        let mut sends = self.sends.lock().unwrap_or_else(PoisonError::into_inner);
        sends.queue.clear();
        let mut receives = self.receives.lock().unwrap_or_else(PoisonError::into_inner);
        receives.queue.clear();
    }
}

/// Address handles by peer. A device resolves the way to a peer when a handle is made, which takes
/// its time; there are as many as a job has nodes, or fewer.
#[derive(Debug)]
pub(super) struct AddressHandles {
    most: usize,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Counts uses.
    clock: u64,
    handles: HashMap<AddressVector, CachedHandle>,
}

#[derive(Debug)]
struct CachedHandle {
    used: u64,
    ah: Arc<Ah>,
}

/// Handles that are kept where the device has more.
const MOST_HANDLES: usize = 4096;

impl AddressHandles {
    /// For a device with so many handles; 0: it does not tell.
    pub(super) fn new(max_ah: u32) -> Self {
        let most = match max_ah {
            0 => MOST_HANDLES,
            // Other processes use the device, too.
            n => (n as usize / 8).clamp(1, MOST_HANDLES),
        };
        Self {
            most,
            known: Mutex::default(),
        }
    }

    /// The handle for a peer. If there are too many, the one that was used the longest ago goes as
    /// soon as no datagram needs it.
    pub(super) fn to(
        &self,
        av: &AddressVector,
        pd: &Arc<Pd>,
        origin: &Origin,
    ) -> Result<Arc<Ah>, i32> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.clock += 1;
        let Known { clock, handles } = &mut *known;
        if let Some(handle) = handles.get_mut(av) {
            handle.used = *clock;
            return Ok(Arc::clone(&handle.ah));
        }
        let ah = Arc::new(Ah::create(pd, origin.path_to(av))?);
        if handles.len() >= self.most
            && let Some((&oldest, _)) = handles.iter().min_by_key(|(_, handle)| handle.used)
        {
            handles.remove(&oldest);
        }
        let handle = CachedHandle {
            used: *clock,
            ah: Arc::clone(&ah),
        };
        handles.insert(*av, handle);
        Ok(ah)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_before_a_completed_request_is_over() {
        let mut list = UnderWay::new(4);
        for id in 1..=4 {
            list.posted(id, id * 10);
        }
        assert_eq!(list.completed(2), Some(20));
        assert_eq!(list.completed(1), None);
        assert_eq!(list.completed(3), Some(30));
        // The same identifier twice: the earlier one.
        list.posted(4, 41);
        assert_eq!(list.completed(4), Some(40));
        assert_eq!(list.completed(4), Some(41));
        assert!(list.queue.is_empty());
    }

    #[test]
    fn the_list_is_no_longer_than_the_queue() {
        let mut list = UnderWay::new(2);
        for id in 1..=5 {
            list.posted(id, id);
        }
        assert_eq!(list.queue, [(4, 4), (5, 5)]);
    }
}
