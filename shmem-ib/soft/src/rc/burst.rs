//! How long messages are cut into bursts, each of which the driver hands to the kernel as one
//! segmented datagram while the next one is made.
//!
//! A long message begins with a burst of two packets. Its first packet is longer than the others, by
//! the headers that only that one has, so the kernel takes no third into the same datagram
//! anyway; and the peer has something to do while the next burst is made.
//!
//! The other bursts are as equal as can be: sixteen packets behind the first two go as two bursts of
//! eight, not as fifteen and one, so that both sides work at the same time and no call is spent
//! on a rest.
//!
//! Where a packet is as long as a datagram may be, each is a burst of its own.

#![forbid(unsafe_code)]

/// Payload of the longest burst: with headers it stays below the 64 KiB of an IP packet.
const BURST_BYTES: u32 = 60 << 10;
/// Most packets: kernels segment a datagram into 64 at most.
const BURST_PACKETS: u32 = 60;

/// Packets of the first burst of a long message, and how many make a message long.
const LEAD: u32 = 2;
const LEAD_FROM: u32 = 9;

/// Packets of the longest burst.
pub(crate) const fn longest(mtu: u32) -> u32 {
    let packets = BURST_BYTES / mtu;
    match packets {
        0 => 1,
        1..=BURST_PACKETS => packets,
        _ => BURST_PACKETS,
    }
}

/// Where a packet stands in its burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BurstPosition {
    /// Packets from the beginning of the burst on; 1 if the packet does not begin one.
    pub(crate) needs: u32,
    /// It is the last one.
    pub(crate) ends: bool,
    /// It is the last of every second burst after the leading one, or of the message.
    pub(crate) ends_pair: bool,
}

impl BurstPosition {
    /// The position of packet `index` of a message of `packets`.
    pub(crate) fn of(index: u32, packets: u32, mtu: u32) -> Self {
        let longest = longest(mtu);
        if packets <= 1 {
            return Self {
                needs: 1,
                ends: true,
                ends_pair: true,
            };
        }
        let lead = if packets >= LEAD_FROM && longest >= LEAD {
            LEAD
        } else {
            0
        };
        if index < lead {
            return Self {
                needs: if index == 0 { lead } else { 1 },
                ends: index + 1 == lead,
                ends_pair: false,
            };
        }
        let (index, packets) = (index - lead, packets - lead);
        let bursts = packets.div_ceil(longest);
        // The first `rest` bursts are longer by one.
        let (short, rest) = (packets / bursts, packets % bursts);
        let in_long = rest * (short + 1);
        let (burst, at, len) = if index < in_long {
            (index / (short + 1), index % (short + 1), short + 1)
        } else {
            let index = index - in_long;
            (rest + index / short, index % short, short)
        };
        let ends = at + 1 == len;
        Self {
            needs: if at == 0 { len } else { 1 },
            ends,
            ends_pair: ends && (burst % 2 == 1 || index + 1 == packets),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_cover_a_message_and_are_about_equal() {
        for mtu in [256, 1024, 4096, 61_440] {
            for packets in (1..200).chain([256, 1000, 1 << 18]) {
                let (mut lengths, mut left) = (Vec::new(), 0);
                for index in 0..packets {
                    let place = BurstPosition::of(index, packets, mtu);
                    if left == 0 {
                        left = place.needs;
                        lengths.push(left);
                    } else {
                        assert_eq!(place.needs, 1);
                    }
                    left -= 1;
                    assert_eq!(place.ends, left == 0, "packet {index} of {packets}");
                    // The leading burst does not count.
                    let leads = packets >= LEAD_FROM && longest(mtu) >= LEAD;
                    let bursts = lengths.len() - usize::from(leads);
                    let even = bursts > 0 && bursts.is_multiple_of(2);
                    let pair = place.ends && (even || index + 1 == packets);
                    assert_eq!(place.ends_pair, pair);
                }
                if packets >= LEAD_FROM && longest(mtu) >= LEAD {
                    assert_eq!(lengths.remove(0), LEAD);
                }
                let (min, max) = (lengths.iter().min(), lengths.iter().max());
                let (min, max) = (*min.unwrap(), *max.unwrap());
                assert!(left == 0 && max <= longest(mtu) && max - min <= 1);
            }
        }
    }
}
