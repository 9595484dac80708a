//! What all simulated worlds have: virtual time with the events to come, a network that loses, repeats, garbles,
//! delays and reorders datagrams, and the endpoints' settings.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Debug;

use shmem_ib::connect::UdAddress;
use shmem_ib::connect::interface::Local;
use shmem_ib::connect::manager::{Identity, Manager};
use shmem_ib::connect::message::{MAX_LEN, Memory, Message, Segment};
use shmem_ib::connect::retry::RetryPolicy;
use shmem_ib::rng::Rng;
use shmem_ib::verbs::{Mtu, Qkey, Qpn, Rkey, SrqNum};

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000 * US;

/// Virtual time, and what is going to happen.
pub(crate) struct Timeline<E> {
    pub(crate) now: u64,
    verbose: bool,
    serial: u64,
    events: BinaryHeap<Reverse<(u64, u64, E)>>,
}

/// What happens next: a timer of somebody fires, or an event.
pub(crate) enum Next<E> {
    Timer(usize),
    Event(E),
}

impl<E: Ord + Debug> Timeline<E> {
    /// `verbose` ones print what happens.
    pub(crate) fn new(verbose: bool) -> Self {
        Self {
            now: 0,
            verbose,
            serial: 0,
            events: BinaryHeap::new(),
        }
    }

    pub(crate) fn at(&mut self, time: u64, event: E) {
        self.serial += 1;
        self.events.push(Reverse((time, self.serial, event)));
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    pub(crate) fn say(&self, text: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>10.3} ms  {}", self.now as f64 / MS as f64, text());
        }
    }

    /// Goes on to what happens next and before `end`: the earliest of the `timers`, given as time and owner, or an
    /// event, which comes first at the same time.
    pub(crate) fn next(
        &mut self,
        timers: impl Iterator<Item = (u64, usize)>,
        end: u64,
    ) -> Option<Next<E>> {
        let event = self.events.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
        let (timer, owner) = timers.min().unwrap_or((u64::MAX, 0));
        let at = event.min(timer);
        if at >= end {
            return None;
        }
        self.now = self.now.max(at);
        if timer < event {
            return Some(Next::Timer(owner));
        }
        let Reverse((_, _, event)) = self.events.pop()?;
        self.say(|| format!("{event:?}"));
        Some(Next::Event(event))
    }
}

/// What a network does to datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) loss_ppm: u32,
    pub(crate) repeat_ppm: u32,
    pub(crate) garble_ppm: u32,
    pub(crate) min_delay: u64,
    pub(crate) max_delay: u64,
}

impl Faults {
    /// Draws them; some are off altogether.
    pub(crate) fn drawn(rng: &mut Rng, most_lost_ppm: u64) -> Self {
        let off = |rng: &mut Rng, value: u32| if rng.below(3) == 0 { 0 } else { value };
        let loss = rng.below(most_lost_ppm + 1) as u32;
        let repeat = rng.below(300_001) as u32;
        let min_delay = 1 + rng.below(50) * US;
        let spread = [10 * US, MS, 30 * MS, 300 * MS][rng.below(4) as usize];
        Self {
            loss_ppm: off(rng, loss),
            repeat_ppm: off(rng, repeat),
            garble_ppm: off(rng, 20_000),
            min_delay,
            max_delay: min_delay + rng.below(spread),
        }
    }

    /// The same network, when nothing goes wrong any more.
    pub(crate) fn healed(&self) -> Self {
        Self {
            min_delay: self.min_delay,
            max_delay: self.max_delay,
            ..Self::default()
        }
    }

    pub(crate) fn delay(&self, rng: &mut Rng) -> u64 {
        self.min_delay + rng.below(self.max_delay - self.min_delay + 1)
    }

    /// Sends a packet, of which each copy that arrives is an event; returns how many there are.
    pub(crate) fn send<E: Ord + Debug>(
        &self,
        rng: &mut Rng,
        time: &mut Timeline<E>,
        bytes: &[u8],
        arrival: impl Fn(Vec<u8>) -> E,
    ) -> u32 {
        if rng.chance_ppm(self.loss_ppm) {
            return 0;
        }
        let copies = 1 + u32::from(rng.chance_ppm(self.repeat_ppm));
        for _ in 0..copies {
            let mut bytes = bytes.to_vec();
            if rng.chance_ppm(self.garble_ppm) {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << rng.below(8);
            }
            let at = time.now + self.delay(rng);
            time.at(at, arrival(bytes));
        }
        copies
    }
}

/// Sums over all runs, to see that what should be simulated was. What has a text must have happened in a thousand runs.
macro_rules! totals {
    ($(#[$doc:meta])* sum { $($(#[$note:meta])* $sum:ident $(= $what:literal)?,)* } most { $($(#[$nota:meta])* $most:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub(crate) struct Totals {
            pub(crate) runs: u64,
            $($(#[$note])* pub(crate) $sum: u64,)*
            $($(#[$nota])* pub(crate) $most: u64,)*
        }

        impl Totals {
            pub(crate) fn assert_that_everything_happened(&self) {
                $($(assert!(
                    self.$sum > 0 || self.runs < 1000,
                    concat!("no ", $what, ": the simulation is too kind")
                );)?)*
            }

            /// Adds one run.
            fn add(&mut self, run: &Self) {
                self.runs += 1;
                $(self.$sum += run.$sum;)*
                $(self.$most = self.$most.max(run.$most);)*
            }
        }
    };
}
pub(crate) use totals;

/// A job of so many PEs.
pub(crate) fn identity(n_pes: u32) -> Identity {
    Identity {
        job_id: [1; 16],
        job_key: &[2; 32],
        n_pes,
    }
}

/// What an endpoint is like that says nothing else.
pub(crate) fn local(pe: u32) -> Local {
    Local {
        pe,
        ud: address(pe),
        mtu: Mtu::M1024,
        max_rd_atomic: 1,
        memory: None,
        max_qps: 0,
        leaving: false,
        retry: RetryPolicy::default(),
    }
}

/// Every timeout is always due, so that no state differs from another one by its times alone. Nobody is ever silent for
/// too long.
pub(crate) const ALWAYS_DUE: RetryPolicy = RetryPolicy {
    initial: 0,
    max: 0,
    silence: u64::MAX,
    bye: 0,
};

/// PEs differ in what they can.
pub(crate) fn mtu_of(pe: u32) -> Mtu {
    [Mtu::M1024, Mtu::M4096][(pe % 2) as usize]
}

pub(crate) fn common_mtu(a: u32, b: u32) -> Mtu {
    mtu_of(a).min(mtu_of(b))
}

pub(crate) fn memory(pe: u32) -> Memory {
    let segment = Segment {
        address: u64::from(pe) << 32,
        size: 1 << 20,
        rkey: Rkey(pe),
        id: 0,
    };
    Memory {
        srqn: SrqNum(pe + 500),
        segments: std::iter::once(segment).collect(),
    }
}

pub(crate) fn address(pe: u32) -> UdAddress {
    UdAddress {
        gid: std::net::Ipv4Addr::new(10, 0, 0, pe as u8).into(),
        udp_port: 4791,
        qpn: Qpn(pe + 2),
        qkey: Qkey(pe + 1000),
    }
}

/// A message as it travels.
pub(crate) fn encoded(manager: &Manager, message: &Message) -> Vec<u8> {
    let mut buf = [0; MAX_LEN];
    let len = manager.encode(message, &mut buf);
    buf[..len].to_vec()
}
