//! Parking: more open pipes than the descriptor table has room for.
//!
//! Where the limit of descriptors cannot be raised, an agent with thousands of PEs would be refused
//! for want of a third descriptor per PE. A descriptor that was sent over a Unix socket and not yet
//! received is open without occupying a place in any table, and epoll goes on watching it: a
//! registration lives as long as the open file, and is reported with its token (epoll(7), Q6). So
//! the read ends of stderr, which mostly stay silent, are parked in sockets, a *lot* of PEs in one
//! message, and fetched when one of them has something to say.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use shmem_node::sys::{recv_with_fds, send_with_fds};

use crate::agent::SPAWN_BATCH;
use crate::sys;

/// PEs of one lot: those of one spawn request.
pub(super) const LOT: u32 = SPAWN_BATCH;

/// Lots that may be out at once before the one fetched first is parked again.
const MOST_OUT: usize = 16;

/// Descriptors that parking needs for `n` PEs: two sockets per lot, and the lots that are out.
pub(crate) fn descriptors(n: u64) -> u64 {
    2 * n.div_ceil(LOT.into()) + (MOST_OUT as u64 + 1) * u64::from(LOT)
}

#[derive(Debug)]
struct Lot {
    send: OwnedFd,
    receive: OwnedFd,
    /// Whose descriptors are in the message; empty while none is parked.
    parked: Vec<u32>,
}

/// All lots of a node.
#[derive(Debug, Default)]
pub(super) struct Parking {
    lots: Vec<Option<Lot>>,
    out: VecDeque<usize>,
}

impl Parking {
    /// The lot of a local PE.
    fn lot_of(local: u32) -> usize {
        (local / LOT) as usize
    }

    /// Parks descriptors of PEs of one lot; on failure they stay open in the table.
    ///
    /// # Errors
    /// With the descriptors, when sockets cannot be had.
    pub(super) fn park(
        &mut self,
        fds: Vec<(u32, OwnedFd)>,
    ) -> Result<(), (io::Error, Vec<(u32, OwnedFd)>)> {
        let Some(&(first, _)) = fds.first() else {
            return Ok(());
        };
        let at = Self::lot_of(first);
        debug_assert!(fds.iter().all(|&(local, _)| Self::lot_of(local) == at));
        if self.lots.len() <= at {
            self.lots.resize_with(at + 1, || None);
        }
        if self.lots[at].is_none() {
            match sys::socketpair(libc::SOCK_SEQPACKET) {
                Ok((send, receive)) => {
                    self.lots[at] = Some(Lot {
                        send,
                        receive,
                        parked: Vec::new(),
                    })
                }
                Err(e) => return Err((e, fds)),
            }
        }
        let lot = self.lots[at].as_mut().expect("made above");
        debug_assert!(lot.parked.is_empty(), "one message per lot");
        let raw: Vec<RawFd> = fds.iter().map(|(_, fd)| fd.as_raw_fd()).collect();
        match send_with_fds(lot.send.as_fd(), &[1], &raw) {
            Ok(_) => {
                lot.parked = fds.into_iter().map(|(local, _)| local).collect();
                Ok(())
            }
            Err(e) => Err((e, fds)),
        }
    }

    /// Fetches the lot of a local PE, if it is parked.
    pub(super) fn fetch(&mut self, local: u32) -> Vec<(u32, OwnedFd)> {
        let at = Self::lot_of(local);
        let Some(Some(lot)) = self.lots.get_mut(at) else {
            return Vec::new();
        };
        if lot.parked.is_empty() {
            return Vec::new();
        }
        let locals = std::mem::take(&mut lot.parked);
        match recv_with_fds(lot.receive.as_fd(), &mut [0; 8]) {
            Ok((_, fds)) => {
                self.out.push_back(at);
                locals.into_iter().zip(fds).collect()
            }
            Err(_) => Vec::new(),
        }
    }

    /// The PEs of a lot that should be parked again, because too many are out.
    pub(super) fn overdue(&mut self) -> Option<std::ops::Range<u32>> {
        if self.out.len() <= MOST_OUT {
            return None;
        }
        let at = self.out.pop_front()? as u32;
        Some(at * LOT..(at + 1) * LOT)
    }

    /// Whether a PE's descriptor is parked.
    #[cfg(test)]
    fn holds(&self, local: u32) -> bool {
        matches!(self.lots.get(Self::lot_of(local)), Some(Some(lot)) if lot.parked.contains(&local))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{Epoll, Interest};
    use std::time::Duration;

    #[test]
    fn a_parked_pipe_is_watched_and_comes_back() {
        let epoll = Epoll::new().unwrap();
        let mut parking = Parking::default();
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for local in LOT..LOT + 3 {
            let (read, write) = sys::pipe().unwrap();
            epoll.add(&read, local.into(), Interest::Read).unwrap();
            reads.push((local, read));
            writes.push(write);
        }
        parking.park(reads).unwrap();
        assert!(parking.holds(LOT + 1) && !parking.holds(0));
        let mut ready = Vec::new();
        epoll.wait(&mut ready, Some(Duration::ZERO)).unwrap();
        assert!(ready.is_empty());

        sys::write(writes[1].as_fd(), b"hello").unwrap();
        epoll
            .wait(&mut ready, Some(Duration::from_secs(10)))
            .unwrap();
        assert_eq!(
            ready.iter().map(|r| r.token).collect::<Vec<_>>(),
            [u64::from(LOT + 1)]
        );
        let mut out = parking.fetch(LOT + 1);
        assert_eq!(out.len(), 3);
        assert!(!parking.holds(LOT + 1) && parking.fetch(LOT).is_empty());
        let mut buf = [0; 16];
        assert_eq!(sys::read(out[1].1.as_fd(), &mut buf).unwrap(), 5);

        // Parked again without one of them: the others are still watched.
        drop(out.remove(0));
        parking.park(out).unwrap();
        writes.clear();
        epoll
            .wait(&mut ready, Some(Duration::from_secs(10)))
            .unwrap();
        let mut tokens: Vec<_> = ready.iter().map(|r| r.token).collect();
        tokens.sort_unstable();
        assert_eq!(tokens, [u64::from(LOT + 1), u64::from(LOT + 2)]);
        assert!(ready.iter().all(|r| r.hangup()));
        assert_eq!(parking.fetch(LOT + 2).len(), 2);
    }
}
