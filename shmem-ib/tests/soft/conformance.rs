//! The conformance suite on software HCAs over UDP sockets of the loopback, plain, with streams, and with
//! packets lost, doubled and reordered on purpose.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use shmem_ib::soft::xrc::SharedWindow;
use shmem_ib::soft::{Faults, SoftConfig, SoftHca};
use shmem_ib::verbs::{Hca, Mtu};
use shmem_ib_kit::conformance::{Beyond, Fabric};

struct Loopback([SoftHca; 2]);

impl Fabric for Loopback {
    type H = SoftHca;

    fn hcas(&self) -> [&SoftHca; 2] {
        [&self.0[0], &self.0[1]]
    }

    fn beyond(&self) -> Beyond {
        Beyond::SOFTWARE
    }

    fn advance(&self) {
        // Both are polled by the caller; a moment of sleep lets timers pass without spinning.
        self.0[0].wait(Duration::from_micros(50));
    }
}

/// Both HCAs of a test are in this process.
fn everything() -> SharedWindow {
    // SAFETY: all processes of the domains that they open are this one.
    unsafe { SharedWindow::everything() }
}

fn open(bind: &str, mtu: Mtu, faults: fn(u64) -> Faults) -> Loopback {
    Loopback([1, 2].map(|seed| {
        let bind = bind.parse().expect("an address");
        let config = SoftConfig {
            bind,
            mtu,
            faults: faults(seed),
            shared: Some(everything()),
            ..SoftConfig::loopback(seed)
        };
        SoftHca::open(&config).expect("a port on the loopback")
    }))
}

mod ipv4 {
    use super::*;
    shmem_ib_kit::conformance_matrix!(|mtu| open("127.0.0.1", mtu, |_| Faults::default()));
}

/// Every WRITE and READ goes by a stream as soon as there is one.
mod streams {
    use super::*;

    fn open() -> Loopback {
        Loopback([1, 2].map(|seed| {
            let config = SoftConfig {
                mtu: Mtu::M1024,
                stream: Some(1),
                shared: Some(everything()),
                ..SoftConfig::loopback(seed)
            };
            SoftHca::open(&config).expect("a port on the loopback")
        }))
    }
    shmem_ib_kit::conformance_tests!(open());
}

mod ipv6 {
    use super::*;
    shmem_ib_kit::conformance_tests!(open("::1", Mtu::M1024, |_| Faults::default()));
}

/// As with devices of other makes: everybody on the port of RoCEv2, each at an address of its own.
mod interop {
    use super::*;

    fn open() -> Loopback {
        static NEXT: AtomicU16 = AtomicU16::new(1);
        Loopback([1, 2].map(|seed| {
            // Addresses that other processes which run this test hardly have.
            let process = 16 + (std::process::id() % 200) as u8;
            let [high, low] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
            let config = SoftConfig {
                bind: IpAddr::V4(Ipv4Addr::new(127, process, high, low)),
                ports: (4791, 4791),
                interop: true,
                shared: Some(everything()),
                ..SoftConfig::loopback(seed)
            };
            SoftHca::open(&config).expect("the port of RoCEv2 at an address of our own")
        }))
    }
    shmem_ib_kit::conformance_tests!(open());
}

mod faulty {
    use super::*;

    const fn faults(seed: u64) -> Faults {
        Faults {
            drop: 20_000,
            duplicate: 20_000,
            reorder: 20_000,
            seed,
        }
    }
    shmem_ib_kit::conformance_matrix!(reliable | mtu | open("127.0.0.1", mtu, faults));
}
