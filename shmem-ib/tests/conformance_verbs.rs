//! The conformance suite on RDMA devices.
//!
//! `SHMEM_TEST_HCA` names one device, or two that can reach each other with a comma between. Without
//! it the first usable one is taken. Where there is none this is skipped, for the need `rdma` of
//! `SHMEM_TEST_REQUIRE`. Arguments that are no options select checks by parts of their names.
//!
//! Each check's result is a line of its own, with the reason where something is left out.

#[path = "common/device.rs"]
mod device;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use shmem_ib::device::VerbsConfig;
use shmem_ib::device::ibv::{FoundDevice, VerbsHca};
use shmem_ib::verbs::Hca;
use shmem_ib_kit::conformance::{Beyond, Fabric, Lapses, all};
use shmem_testkit::needs::skipped;

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

fn main() -> ExitCode {
    let (ports, found) = match device::pair() {
        Ok(found) => found,
        Err(why) => {
            skipped("rdma", why);
            return ExitCode::SUCCESS;
        }
    };
    for device in &found {
        match &device.info {
            Ok(info) => println!("{info:#?}"),
            Err(e) => println!("{e}"),
        }
    }
    let lapses = lapses(&ports, &found);
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    let (mut passed, mut failed) = (0, Vec::new());
    for (name, check) in all::<Devices>() {
        if !wanted.is_empty() && !wanted.iter().any(|w| name.contains(w)) {
            continue;
        }
        let open = |config| VerbsHca::open(config).unwrap_or_else(|e| panic!("{e}"));
        let devices = Devices {
            hcas: [open(&ports[0]), open(&ports[1])],
            lapses,
            left_out: RefCell::default(),
        };
        let start = Instant::now();
        let ended = catch_unwind(AssertUnwindSafe(|| check(&devices)));
        let time = start.elapsed();
        let why: Vec<&str> = devices.left_out.take().into_iter().collect();
        let why = match why.is_empty() {
            true => String::new(),
            false => format!(" [left out: {}]", why.join("; ")),
        };
        match ended {
            Ok(()) => {
                passed += 1;
                println!("check {name}: ok ({time:.1?}){why}");
            }
            Err(_) => {
                println!("check {name}: FAILED ({time:.1?}){why}");
                failed.push(name);
            }
        }
    }
    println!(
        "{passed} checks passed, {} failed: {failed:?}",
        failed.len()
    );
    ExitCode::from(u8::from(!failed.is_empty()))
}
