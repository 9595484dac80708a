//! Packets between the engine and the kernel: which share a datagram, and what to make of a datagram
//! that the kernel does not take.
//!
//! Packets of equal length to one peer form a *train*, which the kernel takes as one datagram and
//! segments. What the kernel may answer:
//!
//! | answer | what it means | what follows |
//! |---|---|---|
//! | `EAGAIN` | its buffer is full: the link is slower than we are | trains stay here, and the engine is asked for no more, until it has room |
//! | `EINVAL`, `EIO`, `EMSGSIZE` for a train | it does not segment on this way | packet by packet to this peer from now on |
//! | `EMSGSIZE` for a packet | a link on the way takes no packet of this length | failure, at once |
//! | anything else | a firewall, no route, no memory | the train is lost, and repeated as others that are lost; if nothing gets through for half a second: failure |
//!
//! Pure: the driver asks the kernel, and tells what it said.

#![forbid(unsafe_code)]

use std::io;

use hashbrown::HashSet;
use smallvec::SmallVec;

use super::messages::{TX_TRAINS, Train};
use super::socket::{TRAIN_BYTES, TRAIN_PACKETS};
use crate::engine::Lent;
use shmem_verbs::provider::Troubles;
use shmem_verbs::{AddressVector, Gid};

/// UDP port of RoCEv2; a hardware device may be behind it.
const ROCE_PORT: u16 = 4791;

/// What the driver does after an answer of the kernel.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Sends what is left.
    Go,
    /// Waits until the kernel has room.
    Wait,
    /// The HCA has failed.
    Fail(Refusal),
}

/// A way on which the kernel takes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    pub(super) dst: AddressVector,
    pub(super) errno: i32,
    /// Bytes of the packet.
    pub(super) len: usize,
}

impl Refusal {
    /// For whoever has to do something about it.
    pub(super) fn reason(&self) -> String {
        let Self { dst, errno, len } = self;
        let advice = match *errno {
            libc::EMSGSIZE => {
                "a link on the way takes no packet of this length: lower SHMEM_SOFT_MTU for the whole job, or raise \
                 the MTU of the network interface"
            }
            libc::EPERM | libc::EACCES => {
                "a firewall of this machine forbids it (`nft list ruleset`, `ip route get`), or its \
                 table of connections is full"
            }
            libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EINVAL => {
                "there is no way to it: see `ip route get` for this address, and whether the network \
                 interface is up"
            }
            _ => "nothing got through for half a second",
        };
        let error = io::Error::from_raw_os_error(*errno);
        format!("cannot send {len} bytes to {dst}: {error}; {advice}")
    }
}

/// Packets that lie in the driver's send buffer.
#[derive(Debug)]
pub(super) struct Outbox {
    trains: SmallVec<[Train; 8]>,
    /// How many of them the kernel has taken.
    taken: usize,
    own: Gid,
    /// Peers may be devices that need every packet in a datagram of its own.
    singly: bool,
    /// Peers on the way to whom the kernel does not segment.
    unsegmented: HashSet<AddressVector>,
    /// The last train ended with a shorter packet.
    closed: bool,
    troubles: Troubles<AddressVector>,
}

impl Outbox {
    pub(super) fn new(own: Gid, singly: bool) -> Self {
        Self {
            trains: SmallVec::new(),
            taken: 0,
            own,
            singly,
            unsegmented: HashSet::new(),
            closed: false,
            troubles: Troubles::default(),
        }
    }

    /// Whether waiting for more packets is of no use.
    pub(super) fn is_due(&self) -> bool {
        let full = |t: &Train| t.packets == TRAIN_PACKETS || t.len + t.packet_len > TRAIN_BYTES;
        self.trains.len() >= TX_TRAINS || self.trains.last().is_some_and(full)
    }

    /// Appends the packet at `start`, behind the one added before.
    pub(super) fn add(&mut self, dst: AddressVector, start: usize, len: usize, lent: Option<Lent>) {
        if lent.is_none()
            && !self.singly
            && !self.closed
            && let Some(last) = self.trains.last_mut()
            && last.dst == dst
            && last.lent.is_none()
            && len <= last.packet_len
            && last.packets < TRAIN_PACKETS
            && last.len + len <= TRAIN_BYTES
            && may_segment(self.own, dst)
            && !self.unsegmented.contains(&dst)
        {
            self.closed = len < last.packet_len;
            last.len += len;
            last.packets += 1;
            return;
        }
        self.closed = false;
        self.trains.push(Train {
            dst,
            start,
            len,
            packet_len: len,
            packets: 1,
            lent,
        });
    }

    /// Has `read` fill the gaps of packets that wait: what they were lent may be gone when they leave.
    pub(super) fn keep(&mut self, mut read: impl FnMut(usize, Lent)) {
        for train in &mut self.trains[self.taken..] {
            if let Some(lent) = train.lent.take() {
                read(train.start + lent.at, lent);
            }
        }
    }

    /// Trains that the kernel took for no peer before may go now.
    pub(super) fn try_trains_again(&mut self) {
        self.unsegmented.clear();
    }

    /// What the kernel is to be offered next. Once it is empty the send buffer is free.
    pub(super) fn waiting(&self) -> &[Train] {
        &self.trains[self.taken..]
    }

    /// Takes the kernel's answer to an offer of [`Self::waiting`]: how many trains it has taken, or
    /// why not the first.
    pub(super) fn answered(&mut self, now: u64, answer: io::Result<usize>) -> Next {
        let Some(&first) = self.waiting().first() else {
            return Next::Go;
        };
        let mut next = Next::Go;
        match answer {
            Ok(sent) => {
                for _ in 0..sent.max(1) {
                    if let Some(train) = self.trains.get(self.taken) {
                        self.troubles.over(&train.dst);
                        self.taken += 1;
                    }
                }
            }
            Err(e) => match e.raw_os_error().unwrap_or(libc::EIO) {
                libc::EAGAIN => return Next::Wait,
                libc::EINTR => return Next::Go,
                libc::EINVAL | libc::EIO | libc::EMSGSIZE if first.packets > 1 => {
                    self.unsegmented.insert(first.dst);
                    self.take_apart(&first);
                }
                errno => {
                    self.taken += 1;
                    let lasts = self.troubles.met(first.dst, now);
                    if lasts || errno == libc::EMSGSIZE {
                        next = Next::Fail(Refusal {
                            dst: first.dst,
                            errno,
                            len: first.packet_len,
                        });
                    }
                }
            },
        }
        if self.taken == self.trains.len() {
            self.trains.clear();
            (self.taken, self.closed) = (0, false);
        }
        next
    }

    /// Replaces the first train that waits by its packets.
    fn take_apart(&mut self, train: &Train) {
        let end = train.start + train.len;
        let starts = (train.start..end).step_by(train.packet_len.max(1));
        let singles: SmallVec<[Train; 8]> = starts
            .map(|start| {
                let len = train.packet_len.min(end - start);
                Train {
                    start,
                    len,
                    packet_len: len,
                    packets: 1,
                    ..*train
                }
            })
            .collect();
        self.trains.remove(self.taken);
        self.trains.insert_many(self.taken, singles);
        // Nothing may join the last of them: it is not alone in being sent singly.
        self.closed = true;
    }
}

/// A train that is segmented on its way gets IP identifications other than 0, which are in the
/// ICRC. Software HCAs do not see them; a device behind the port of RoCEv2 does. On the way to
/// this machine itself nothing is segmented.
fn may_segment(own: Gid, dst: AddressVector) -> bool {
    dst.udp_port != ROCE_PORT || dst.gid == own || dst.gid.ip().is_loopback()
}

#[cfg(test)]
#[path = "tests/outbox.rs"]
mod tests;
