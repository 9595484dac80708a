//! A kernel that does not take every datagram: for tests of what an HCA makes of that.

use std::collections::HashMap;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::hca::SoftHca;
use super::messages::Train;

/// What one socket is refused, by UDP port of the peer.
#[derive(Debug, Default)]
pub(super) struct Unwilling {
    rules: Mutex<HashMap<u16, Rule>>,
    /// Packets of the longest train to each peer.
    longest: Mutex<HashMap<u16, usize>>,
    /// Datagrams refused so far.
    pub(super) refused: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    pub(super) errno: i32,
    /// Only datagrams of more packets or bytes than these are refused.
    pub(super) packets: usize,
    pub(super) bytes: usize,
    /// How many datagrams; then the rule is over.
    pub(super) times: u64,
}

impl Rule {
    pub(super) const fn always(errno: i32) -> Self {
        Self {
            errno,
            packets: 0,
            bytes: 0,
            times: u64::MAX,
        }
    }
}

impl Unwilling {
    /// From now on, or no more.
    pub(super) fn set(&self, port: u16, rule: Option<Rule>) {
        let mut rules = self.rules.lock().expect("tests do not panic here");
        match rule {
            Some(rule) => rules.insert(port, rule),
            None => rules.remove(&port),
        };
    }

    /// Packets of the longest train to this peer since the last call.
    pub(super) fn longest_train(&self, port: u16) -> usize {
        let mut longest = self.longest.lock().expect("tests do not panic here");
        longest.remove(&port).unwrap_or_default()
    }

    /// The trains before the first that is refused; an error if that is the first of all.
    pub(super) fn limit<'t>(&self, trains: &'t [Train]) -> io::Result<&'t [Train]> {
        let mut longest = self.longest.lock().expect("tests do not panic here");
        for train in trains {
            let longest = longest.entry(train.dst.udp_port).or_default();
            *longest = train.packets.max(*longest);
        }
        let mut rules = self.rules.lock().expect("tests do not panic here");
        for (i, train) in trains.iter().enumerate() {
            let Some(rule) = rules.get_mut(&train.dst.udp_port) else {
                continue;
            };
            if train.packets <= rule.packets || train.packet_len <= rule.bytes || rule.times == 0 {
                continue;
            }
            if i > 0 {
                return Ok(&trains[..i]);
            }
            rule.times -= 1;
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(io::Error::from_raw_os_error(rule.errno));
        }
        Ok(trains)
    }
}

impl SoftHca {
    /// What its socket is refused.
    pub(super) const fn unwilling(&self) -> &Unwilling {
        &self.socket.unwilling
    }
}
