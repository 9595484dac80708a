//! When to send again and how much to send at once.
//!
//! The retransmission timeout follows the measured round trip (smoothed mean plus four
//! deviations, as TCP does), doubles with every timeout in a row, and is spread by a random
//! eighth so that many queue pairs which lost packets together do not come back together.
//!
//! Between processes of one machine nothing is lost, and yet the timer fires: a peer that does not
//! get a processor for a few milliseconds is silent for so long. A longer timeout would not help,
//! for that has no bound, and would let the recovery from true losses take longer. So a timeout may
//! be needless, and is made cheap: until the next acknowledgement one packet is in flight, then two,
//! four, and so on, whatever their length; and once the requester knows better (see `requester`),
//! the window is again what it was.
//!
//! The window counts packets of a whole MTU, or of 4096 bytes where that is longer; a longer packet counts as
//! many of these as it needs, and what is in flight as if all of it were as long. Additive increase, multiplicative decrease; the upper
//! limit keeps one queue pair below the smallest usual socket receive buffer (212992 bytes, which
//! Linux doubles), and what is under way stays in the processors' caches. It is a multiple of the
//! longest burst, and a burst begins when there is room for all of it: otherwise every
//! acknowledgement would let a few packets out, in a datagram of their own.
//!
//! The receiver may have room for less, and then says so (see `share`).
//!
//! Short packets count less: a receive buffer has room for several instead of one of 4096 bytes.

#![forbid(unsafe_code)]

use super::burst;
use crate::wire::STANDARD_MAX;
use shmem_verbs::rng::Rng;

/// Shortest retransmission timeout. Below it the scheduler of the peer's host looks like loss, and so
/// does a peer whose progress thread naps for a millisecond (see `shmem_verbs::provider::sleep`).
const RTO_MIN_NS: u64 = 2_000_000;
/// Longest retransmission timeout.
const RTO_MAX_NS: u64 = 500_000_000;
/// The timeout before any round trip was measured: a sleeping peer has to be woken.
const RTO_FIRST_NS: u64 = 8_000_000;
const WINDOW_MIN: u32 = 2;
/// In bursts.
const WINDOW_FIRST: u32 = 2;
const WINDOW_MAX: u32 = 4;
/// Payload of a short packet.
pub(crate) const SHORT: u32 = 256;
/// Short packets per packet of the window.
const SHORT_FACTOR: u32 = 8;
/// Longest packet that counts as one.
const UNIT: u32 = STANDARD_MAX as u32;

/// What a packet of `len` bytes counts.
const fn weight(len: u32) -> u32 {
    if len <= UNIT { 1 } else { len.div_ceil(UNIT) }
}

#[derive(Clone, Debug)]
pub(crate) struct Pacing {
    srtt_ns: Option<u64>,
    rttvar_ns: u64,
    backoff: u32,
    window: u32,
    threshold: u32,
    /// Window and threshold before the last timeout, until that proves right or wrong.
    before_timeout: Option<(u32, u32)>,
    window_max: u32,
    /// What the receiver has room for.
    share: Option<u32>,
    /// Packets acknowledged towards the next additive increase.
    credit: u32,
    rng: Rng,
}

impl Pacing {
    pub(crate) fn new(mtu: u32, seed: u64) -> Self {
        let burst = burst::longest(mtu.min(UNIT));
        let window_max = WINDOW_MAX * burst;
        Self {
            srtt_ns: None,
            rttvar_ns: 0,
            backoff: 0,
            window: WINDOW_FIRST * burst,
            threshold: window_max,
            before_timeout: None,
            window_max,
            share: None,
            credit: 0,
            rng: Rng::new(seed),
        }
    }

    /// How many packets of a whole MTU may be in flight; one from a timeout on until something is
    /// acknowledged.
    const fn window(&self) -> u32 {
        if self.backoff > 0 { 1 } else { self.shared() }
    }

    /// Whether answers to READs of `len` bytes each may join what is in flight, up to `packets` with it: they take
    /// room here, and none of the peer's.
    pub(crate) const fn allows_answers(&self, packets: u32, len: u32) -> bool {
        let window = if self.backoff > 0 { 1 } else { self.window };
        packets * weight(len) <= window
    }

    /// The window, or the receiver's share if that is smaller.
    const fn shared(&self) -> u32 {
        match self.share {
            Some(share) if share < self.window => share,
            _ => self.window,
        }
    }

    /// What the receiver has room for, in packets; `None`: for all that we send. One may always be sent,
    /// or nothing would ever tell of more.
    pub(crate) fn set_share(&mut self, share: Option<u32>) {
        self.share = share.map(|share| share.max(1));
    }

    /// Whether a packet with `len` bytes of payload may join `in_flight` others, where so many
    /// belong to the burst that it begins.
    pub(crate) fn allows(&self, in_flight: u32, len: u32, burst: u32) -> bool {
        if len <= SHORT && self.before_timeout.is_none() {
            return in_flight < self.shared() * SHORT_FACTOR;
        }
        // After losses the window may be shorter than a burst.
        let (window, weight) = (self.window(), weight(len));
        let room = (burst * weight).min(window / 2).max(1);
        in_flight == 0 || in_flight * weight + room <= window
    }

    /// A round trip of a packet that was sent once.
    pub(crate) fn on_rtt(&mut self, rtt_ns: u64) {
        match self.srtt_ns {
            None => {
                self.srtt_ns = Some(rtt_ns);
                self.rttvar_ns = rtt_ns / 2;
            }
            Some(srtt) => {
                self.rttvar_ns = (3 * self.rttvar_ns + srtt.abs_diff(rtt_ns)) / 4;
                self.srtt_ns = Some((7 * srtt + rtt_ns) / 8);
            }
        }
    }

    /// `packets` more were acknowledged, of `len` bytes each.
    pub(crate) fn on_acked(&mut self, packets: u32, len: u32) {
        let packets = packets.saturating_mul(weight(len));
        self.backoff = 0;
        if self.window < self.threshold {
            self.window = (self.window + packets).min(self.threshold);
        } else {
            self.credit += packets;
            if self.credit >= self.window {
                self.credit -= self.window;
                self.window += 1;
            }
        }
        self.window = self.window.min(self.window_max);
        self.credit = self.credit.min(self.window_max);
    }

    /// A loss was reported by the peer.
    pub(crate) fn on_loss(&mut self) {
        self.before_timeout = None;
        self.threshold = (self.window / 2).max(WINDOW_MIN);
        self.window = self.threshold;
        self.credit = 0;
    }

    /// Nothing was heard for a whole timeout.
    pub(crate) fn on_timeout(&mut self) {
        self.before_timeout
            .get_or_insert((self.window, self.threshold));
        self.threshold = (self.window / 2).max(WINDOW_MIN);
        self.window = WINDOW_MIN;
        self.credit = 0;
        self.backoff = (self.backoff + 1).min(16);
    }

    /// Everything was repeated, and nothing has shown that there was no need.
    pub(crate) fn on_timeout_served(&mut self) {
        self.before_timeout = None;
    }

    /// Packets were acknowledged which had not been repeated yet: nothing was lost, the peer was
    /// only slow. Most often its process did not run for a while.
    pub(crate) fn on_needless_timeout(&mut self) {
        if let Some((window, threshold)) = self.before_timeout.take() {
            self.window = window;
            self.threshold = threshold;
        }
    }

    /// How long to wait for an acknowledgement from now on.
    pub(crate) fn rto_ns(&mut self) -> u64 {
        let base = match self.srtt_ns {
            None => RTO_FIRST_NS,
            Some(srtt) => srtt + 4 * self.rttvar_ns,
        };
        let rto = (base.clamp(RTO_MIN_NS, RTO_MAX_NS) << self.backoff).min(RTO_MAX_NS);
        rto + self.rng.below(rto / 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_follows_round_trips_and_doubles() {
        let mut p = Pacing::new(4096, 3);
        assert!((RTO_FIRST_NS..RTO_FIRST_NS * 9 / 8).contains(&p.rto_ns()));
        for _ in 0..100 {
            p.on_rtt(20_000);
        }
        assert!((RTO_MIN_NS..RTO_MIN_NS * 9 / 8).contains(&p.rto_ns()));
        for _ in 0..100 {
            p.on_rtt(10_000_000);
        }
        let rto = p.rto_ns();
        assert!((10_000_000..14_000_000).contains(&rto), "{rto}");
        p.on_timeout();
        assert!(p.rto_ns() >= 20_000_000);
        for _ in 0..20 {
            p.on_timeout();
        }
        assert!((RTO_MAX_NS..=RTO_MAX_NS * 9 / 8).contains(&p.rto_ns()));
        p.on_acked(1, 4096);
        assert!(p.rto_ns() < 14_000_000);
    }

    #[test]
    fn a_needless_timeout_leaves_the_window_as_it_was() {
        let mut p = Pacing::new(4096, 3);
        p.on_acked(1000, 4096);
        let before = p.window();
        p.on_timeout();
        p.on_timeout();
        assert_eq!(p.window(), 1);
        p.on_needless_timeout();
        p.on_acked(1, 4096);
        assert_eq!(p.window(), before);
        p.on_timeout();
        p.on_acked(1, 4096);
        assert_eq!(p.window(), WINDOW_MIN + 1);
        p.on_timeout_served();
        p.on_needless_timeout();
        assert_eq!(p.window(), WINDOW_MIN + 1);
    }

    #[test]
    fn bursts_wait_for_room_and_short_packets_count_less() {
        let mut p = Pacing::new(4096, 3);
        p.on_acked(1000, 4096);
        assert!(p.allows(0, 4096, 15) && p.allows(45, 4096, 15));
        assert!(!p.allows(46, 4096, 15) && p.allows(46, 4096, 1));
        assert!(!p.allows(60, 4096, 1) && p.allows(60, 8, 1) && !p.allows(480, 8, 1));
        p.on_timeout();
        assert!(p.allows(0, 4096, 15) && !p.allows(1, 4096, 15) && !p.allows(1, 8, 1));
        p.on_acked(0, 4096);
        assert!(p.allows(1, 4096, 15) && !p.allows(2, 4096, 15) && !p.allows(2, 8, 1));
        p.on_timeout_served();
        assert!(p.allows(0, 4096, 15) && p.allows(1, 4096, 15) && !p.allows(2, 4096, 15));
        assert!(p.allows(2, 8, 1));
    }

    #[test]
    fn packets_as_long_as_datagrams_count_what_they_weigh() {
        let mut p = Pacing::new(61_440, 3);
        p.on_acked(1000, 61_440);
        assert_eq!(p.window(), 60);
        assert!(p.allows(3, 61_440, 1) && !p.allows(4, 61_440, 1));
        assert!(p.allows(59, 4096, 1) && p.allows(479, 8, 1) && !p.allows(480, 8, 1));
        assert!(p.allows_answers(4, 61_440) && !p.allows_answers(5, 61_440));
        p.on_loss();
        assert!(p.allows(1, 61_440, 1) && !p.allows(2, 61_440, 1));
        p.on_timeout();
        assert!(p.allows(0, 61_440, 1) && !p.allows(1, 61_440, 1));
    }

    #[test]
    fn a_share_bounds_the_window_and_does_not_change_it() {
        let mut p = Pacing::new(4096, 3);
        p.on_acked(1000, 4096);
        p.set_share(Some(6));
        assert_eq!(p.window(), 6);
        assert!(p.allows(3, 4096, 15) && !p.allows(4, 4096, 15) && p.allows(5, 4096, 1));
        assert!(p.allows(47, 8, 1) && !p.allows(48, 8, 1));
        assert!(p.allows_answers(60, 4096) && !p.allows_answers(61, 4096));
        for least in [1, 0] {
            p.set_share(Some(least));
            assert!(p.allows(0, 4096, 15) && !p.allows(1, 4096, 1));
            assert!(p.allows(7, 8, 1) && !p.allows(8, 8, 1));
        }
        p.set_share(Some(1000));
        assert_eq!(p.window(), 60);
        p.set_share(None);
        assert_eq!(p.window(), 60);
    }

    #[test]
    fn window_grows_to_its_limit_and_shrinks_on_loss() {
        let mut p = Pacing::new(4096, 3);
        for _ in 0..1000 {
            p.on_acked(4, 4096);
        }
        assert_eq!(p.window(), 60);
        p.on_loss();
        assert_eq!(p.window(), 30);
        p.on_acked(30, 4096);
        assert_eq!(p.window(), 31);
        p.on_timeout();
        assert_eq!(p.window(), 1);
        p.on_acked(0, 4096);
        assert_eq!(p.window(), WINDOW_MIN);
        for _ in 0..100 {
            p.on_loss();
        }
        assert_eq!(p.window(), WINDOW_MIN);
    }
}
