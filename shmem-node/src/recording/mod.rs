//! What a PE records of its calls, for `shmrun --trace` and the page of `shmrun --report`.
//!
//! The agent sets aside room for each PE of its node in the node's memory; the PE writes there ([`Recorder`]),
//! and the agent reads it when the PE has ended, however it ended ([`Recording`]). Nothing is sent while the
//! job runs, and without a room nothing is written.
//!
//! Three things are written: for each routine how often and how long it was called, for each PE what was
//! moved to and from it, and each call with its times. The first two are complete; calls are
//! recorded until the room is full, and those that follow are counted.

#![forbid(unsafe_code)]

mod recorder;

pub use crate::routine::{Group, ROUTINES, Routine};
pub use recorder::{Recorder, room};

use serde::{Deserialize, Serialize};

use crate::stats::PeStats;

/// A call that has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When it began, in nanoseconds of the machine's monotonic clock.
    pub begin: u64,
    /// When it returned.
    pub end: u64,
    /// Which.
    pub routine: Routine,
    /// Which thread of the PE: 0 is the first that was recorded.
    pub thread: u8,
    /// The other PE of a one-sided operation or a connection; else [`Event::NOBODY`].
    pub pe: u32,
    /// Bytes of a one-sided operation; of a connection that opens or closes, how many queue pairs the PE has then.
    pub bytes: u64,
    /// Of an operation that writes, the offset in the other's segment of the word by which that may be told (the
    /// signal, else the first byte); of a wait, of the word that it waits for. Of a collective, which
    /// of its team or set it is: see [`collective_number`] and [`set_number`].
    pub at: u64,
}

impl Event {
    /// A number that no PE has.
    pub const NOBODY: u32 = u32::MAX;

    /// A call that has to do with no PE and no word.
    #[must_use]
    pub const fn of(routine: Routine, begin: u64, end: u64) -> Self {
        Self {
            begin,
            end,
            routine,
            thread: 0,
            pe: Self::NOBODY,
            bytes: 0,
            at: 0,
        }
    }
}

/// What tells a collective from others of a job: the slot of its team, the team's first member and how many
/// collectives of the team its members have begun. Alike on all members; teams that share no
/// member may have the same slot, but not the same first member.
#[must_use]
pub const fn collective_number(slot: u8, first: u32, number: u32) -> u64 {
    (slot as u64) << 56 | (first as u64 & 0x00ff_ffff) << 32 | number as u64
}

/// The same of an active set of `size` PEs from `first` on, `2^log_stride` apart, of whose collectives a PE has begun so many:
/// with slots that no team has. Sets that differ by 4096 PEs in size alone have the same numbers.
#[must_use]
pub const fn set_number(first: u32, log_stride: u32, size: u32, number: u32) -> u64 {
    let slot = 0x80 | log_stride as u8 & 0x7f;
    collective_number(slot, first, size << 20 | number & 0xf_ffff)
}

/// The slot of the team, none for an active set, the first member and the number behind one of these.
#[must_use]
pub const fn numbered(at: u64) -> (Option<u8>, u32, u32) {
    let (slot, first, number) = ((at >> 56) as u8, (at >> 32) as u32 & 0x00ff_ffff, at as u32);
    match slot < 0x80 {
        true => (Some(slot), first, number),
        false => (None, first, number & 0xf_ffff),
    }
}

/// What a PE did in all its calls of a routine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// Which.
    pub routine: Routine,
    /// How often it was called.
    pub calls: u64,
    /// How long it took in nanoseconds, all calls together.
    pub ns: u64,
    /// The longest call.
    pub longest: u64,
    /// Bytes that it moved.
    pub bytes: u64,
}

/// What a PE moved to and from another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// The other.
    pub pe: u32,
    /// One-sided operations.
    pub operations: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Connections to it that this PE saw open.
    pub connections: u64,
}

/// All that a PE recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// The PE.
    pub rank: u32,
    /// Its node.
    pub node: u32,
    /// Calls that found no room.
    pub lost: u64,
    /// By routine, those that were called.
    pub totals: Vec<Total>,
    /// By PE, those that it had to do with.
    pub traffic: Vec<Traffic>,
    /// Calls in the order in which they returned, or nearly where several threads call.
    pub events: Vec<Event>,
    /// The PE's figures.
    pub stats: PeStats,
}

impl Recording {
    /// Adds `shift`, modulo 2^64, to all moments: brings them to another machine's clock.
    pub fn shift(&mut self, shift: u64) {
        for event in &mut self.events {
            event.begin = event.begin.wrapping_add(shift);
            event.end = event.end.wrapping_add(shift);
        }
        self.stats.shift(shift);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_say_whose_they_are() {
        let team = collective_number(62, 9, u32::MAX);
        assert_eq!(numbered(team), (Some(62), 9, u32::MAX));
        for log_stride in [0, 18] {
            assert_eq!(numbered(set_number(9, log_stride, 4095, 7)), (None, 9, 7));
        }
        let of = |size| set_number(9, 0, size, 7);
        assert_ne!(of(2), of(3));
        assert_ne!(of(2), set_number(9, 1, 2, 7));
    }
}
