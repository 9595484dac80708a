//! The conformance suite on RDMA devices. Each check's result is a line of its own, with the reason where
//! something is left out.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use shmem_ib::device::VerbsConfig;
use shmem_ib::device::ibv::{FoundDevice, VerbsHca};
use shmem_ib::verbs::Hca;
use shmem_ib_kit::conformance::{Beyond, Fabric, Lapses, all};
use shmem_testkit::needs::skipped;

use crate::{Tally, device, wanted};

struct Devices {
    hcas: [VerbsHca; 2],
    lapses: Lapses,
    left_out: RefCell<BTreeSet<&'static str>>,
}

impl Fabric for Devices {
    type H = VerbsHca;

    fn hcas(&self) -> [&VerbsHca; 2] {
        [&self.hcas[0], &self.hcas[1]]
    }

    fn beyond(&self) -> Beyond {
        DEVICE
    }

    fn lapses(&self) -> Lapses {
        self.lapses
    }

    fn left_out(&self, why: &'static str) {
        self.left_out.borrow_mut().insert(why);
    }

    fn advance(&self) {
        // A software device moves only while nobody keeps the processor.
        self.hcas[0].wait(Duration::from_micros(200));
    }
}

/// What every device held so far; a real one may hold less.
const DEVICE: Beyond = Beyond {
    // Of our own tables.
    checks_handles: true,
    ..Beyond::NOTHING
};

/// What is known of the devices under test.
fn lapses(ports: &[VerbsConfig; 2], found: &[FoundDevice]) -> Lapses {
    let is_soft_roce = |d: &FoundDevice| {
        let used = ports.iter().any(|p| p.device == d.name);
        used && d.info.as_ref().is_ok_and(|i| i.emulated)
    };
    match found.iter().any(is_soft_roce) {
        true => Lapses::SOFT_ROCE,
        false => Lapses::NONE,
    }
}

/// Runs the checks that the arguments ask for. Returns whether they passed.
pub(crate) fn run(arguments: &[String]) -> bool {
    let (ports, found) = match device::pair() {
        Ok(found) => found,
        Err(why) => {
            skipped("rdma", why);
            return true;
        }
    };
    for device in &found {
        match &device.info {
            Ok(info) => println!("{info:#?}"),
            Err(e) => println!("{e}"),
        }
    }
    let lapses = lapses(&ports, &found);
    let mut tally = Tally::default();
    for (name, check) in all::<Devices>() {
        if !wanted(name, arguments) {
            continue;
        }
        let open = |config| VerbsHca::open(config).unwrap_or_else(|e| panic!("{e}"));
        let devices = Devices {
            hcas: [open(&ports[0]), open(&ports[1])],
            lapses,
            left_out: RefCell::default(),
        };
        let left_out = || devices.left_out.take().into_iter().collect();
        tally.check(name, || check(&devices), left_out);
    }
    tally.end()
}
