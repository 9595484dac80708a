//! The conformance suite on RDMA devices.
//!
//! `SHMEM_TEST_HCA` names one device, or two that can reach each other with a comma between. Without
//! it the first usable one is taken. Where there is none this says so and passes, unless
//! `SHMEM_TEST_HCA_REQUIRED=1`. Arguments that are no options select checks by parts of their
//! names.
//!
//! Each check's result is a line of its own, with the reason where something is left out.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use shmem_ib::conformance::{Beyond, Fabric, all};
use shmem_ib::sys::{DeviceInfo, SysError, VerbsConfig, VerbsHca, devices};
use shmem_ib::verbs::Hca;

struct Devices {
    hcas: [VerbsHca; 2],
    beyond: Beyond,
    left_out: RefCell<BTreeSet<&'static str>>,
}

impl Fabric for Devices {
    type H = VerbsHca;

    fn hcas(&self) -> [&VerbsHca; 2] {
        [&self.hcas[0], &self.hcas[1]]
    }

    fn beyond(&self) -> Beyond {
        self.beyond
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

fn usable(info: &DeviceInfo) -> Option<VerbsConfig> {
    let port = info.ports.iter().find(|p| p.is_active())?;
    let gid = port.best_gid()?;
    Some(VerbsConfig::new(&info.name, port.number, gid.index))
}

/// The ports to test on, or why there are none.
fn ports() -> Result<[VerbsConfig; 2], String> {
    let wanted = std::env::var("SHMEM_TEST_HCA").unwrap_or_default();
    let found = devices().map_err(|e: SysError| e.to_string())?;
    for device in &found {
        match &device.info {
            Ok(info) => println!("{info:#?}"),
            Err(e) => println!("{e}"),
        }
    }
    let config = |name: &str| {
        let device = found.iter().find(|d| d.name == name);
        let device = device.ok_or_else(|| format!("there is no device {name}"))?;
        let info = device.info.as_ref().map_err(ToString::to_string)?;
        usable(info).ok_or_else(|| format!("{name} has no active port with an address"))
    };
    let first_usable = || {
        let usable = |d: &&shmem_ib::sys::FoundDevice| config(&d.name).is_ok();
        found.iter().find(usable).map(|d| d.name.as_str())
    };
    let names: Vec<&str> = wanted.split(',').filter(|n| !n.is_empty()).collect();
    let names = match names[..] {
        [] => [first_usable().ok_or("no RDMA device is usable")?; 2],
        [one] => [one; 2],
        [one, two] => [one, two],
        _ => return Err("SHMEM_TEST_HCA names more than two devices".into()),
    };
    Ok([config(names[0])?, config(names[1])?])
}

fn main() -> ExitCode {
    let ports = match ports() {
        Ok(ports) => ports,
        Err(why) => {
            println!("conformance on RDMA devices: nothing was tested: {why}");
            let required = std::env::var("SHMEM_TEST_HCA_REQUIRED").is_ok_and(|v| v == "1");
            return ExitCode::from(u8::from(required));
        }
    };
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
            beyond: DEVICE,
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
