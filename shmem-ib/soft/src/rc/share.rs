//! How much each peer may have on its way to us: what the socket's receive buffer holds, divided among
//! those who send much at present.
//!
//! A peer's own window is made for a buffer that it has to itself. When many write to one PE at the same
//! time, their windows together exceed any buffer; and as nothing is kept behind a missing packet, each
//! packet that finds it full costs all that the sender has sent after it. So acknowledgements, also those
//! that READs and atomics are answered with, carry a share, in the field that InfiniBand has for the
//! receives of a responder (credits), which says nothing about WRITEs. READs are not bound by it: what they
//! ask for comes to the other side. A sender keeps to the last share that it was told also when it begins again: those who
//! send in turns, as collectives do, do so together.
//!
//! Who counts is counted anew in each period, long enough for all processes of a busy machine to have run.
//!
//! Small shares cost senders system calls and waits. That pays where all senders run at the same time; where
//! processes outnumber cores they take turns anyway, and nobody should be told a share.

#![forbid(unsafe_code)]

use crate::wire::{STANDARD_MAX, Syndrome};
use shmem_verbs::Mtu;

const PERIOD_NS: u64 = 200_000_000;
/// What the kernel needs for a packet besides its payload, and at least for one: a network interface fills
/// buffers of 2 KiB.
const OVERHEAD: u32 = 512;
const LEAST: u32 = 2304;

/// The receiver's side.
#[derive(Debug, Default)]
pub(crate) struct Share {
    /// Packets that the receive buffer holds, as senders count them (see `pacing`); 0: nobody knows.
    room: u32,
    /// Counts periods, from 1.
    period: u64,
    ends_at: u64,
    /// Who sent much in this period and in the one before.
    senders: u32,
    before: u32,
}

/// The last period in which a queue pair brought much.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Sent(u64);

impl Share {
    /// The receive buffer holds so many bytes.
    pub(crate) fn set_buffer(&mut self, bytes: u32, mtu: Mtu) {
        let whole = mtu.bytes().min(STANDARD_MAX) as u32;
        self.room = bytes / (whole + OVERHEAD).max(LEAST);
    }

    /// Something has come at `now`.
    #[inline]
    pub(crate) fn tick(&mut self, now: u64) {
        if now >= self.ends_at {
            let gap = now >= self.ends_at.saturating_add(PERIOD_NS);
            self.before = if gap { 0 } else { self.senders };
            self.senders = 0;
            self.period += 1;
            self.ends_at = now + PERIOD_NS;
        }
    }

    /// A queue pair has brought a packet of a long message.
    #[inline]
    pub(crate) fn brought(&mut self, sent: &mut Sent) {
        if sent.0 != self.period {
            sent.0 = self.period;
            self.senders += 1;
        }
    }

    /// What an acknowledgement says. Who is alone has its own limit.
    pub(crate) fn syndrome(&self) -> Syndrome {
        match self.senders.max(self.before) {
            0 | 1 => Syndrome::OK,
            _ if self.room == 0 => Syndrome::OK,
            senders => Syndrome::with_credits(self.room / senders),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credits(share: &Share) -> Option<u32> {
        share.syndrome().credits()
    }

    #[test]
    fn the_buffer_is_divided_among_those_who_send_now() {
        let mut share = Share::default();
        let mut peers = [Sent::default(); 20];
        share.tick(5);
        peers.iter_mut().for_each(|p| share.brought(p));
        assert_eq!(
            credits(&share),
            None,
            "nobody has said what there is to divide"
        );
        share.set_buffer(425_984, Mtu::M4096);
        for n in 1..=peers.len() {
            share.tick(10 * n as u64 * PERIOD_NS);
            for _ in 0..3 {
                peers[..n].iter_mut().for_each(|p| share.brought(p));
            }
            let told = credits(&share);
            if n == 1 {
                assert_eq!(told, None);
                continue;
            }
            let told = told.unwrap();
            assert!(told > 0 && told * n as u32 <= 92, "{n}: {told}");
            assert!(told * n as u32 * 3 >= 92, "{n}: {told}");
        }
        // However many they are, each may send something.
        let mut crowd = vec![Sent::default(); 500];
        crowd.iter_mut().for_each(|p| share.brought(p));
        assert_eq!(credits(&share), Some(1));
    }

    #[test]
    fn who_pauses_counts_for_a_while_and_no_longer() {
        let mut share = Share::default();
        share.set_buffer(425_984, Mtu::M4096);
        let mut peers = [Sent::default(); 2];
        share.tick(1);
        peers.iter_mut().for_each(|p| share.brought(p));
        share.tick(1 + PERIOD_NS);
        share.brought(&mut peers[0]);
        assert_eq!(credits(&share), Some(32), "of 46");
        share.tick(1 + 2 * PERIOD_NS);
        share.brought(&mut peers[0]);
        assert_eq!(credits(&share), None);
    }
}
