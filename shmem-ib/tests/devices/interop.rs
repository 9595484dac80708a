//! Our software HCA and the kernel's Soft-RoCE, an implementation of RoCEv2 by others, on one wire:
//! the conformance suite with one of each as its two HCAs. What passes in both orders shows that the
//! packets are those of RoCEv2, and not only the same on both sides.
//!
//! The two cannot share a network namespace, because both want the UDP port 4791 there, and the
//! kernel's uses the first namespace only. So this needs a wire into another namespace; the job
//! `interop` of `ci/vm.sh` makes one:
//!
//! ```text
//! SHMEM_INTEROP=rxe0,10.8.0.2,/run/netns/soft devices interop [soft-rxe|rxe-soft] [MTU] [data] [CHECK...] [-CHECK...]
//! ```
//!
//! `SHMEM_INTEROP` is the device, an address of the software HCA, and the namespace where it is. The
//! first HCA named is the one that requests in most checks. `data` means checks of RC transfers only,
//! which hold on a network that loses packets, too. Without `SHMEM_INTEROP` this is skipped.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use shmem_ib::device::Device;
use shmem_ib::device::VerbsConfig;
use shmem_ib::device::ibv::VerbsHca;
use shmem_ib::soft::{Faults, SoftConfig, SoftHca};
use shmem_ib::verbs::{Counters, Hca, Mtu};
use shmem_ib_kit::conformance::{self, Beyond, Fabric, Lapses};
use shmem_testkit::needs::skipped;

/// One HCA of each make, in the order of the check.
struct Pair {
    hcas: [Device; 2],
    soft_first: bool,
    left_out: RefCell<BTreeSet<&'static str>>,
}

impl Fabric for Pair {
    type H = Device;

    fn hcas(&self) -> [&Device; 2] {
        [&self.hcas[0], &self.hcas[1]]
    }

    fn beyond(&self) -> Beyond {
        Beyond {
            checks_handles: true,
            ..Beyond::NOTHING
        }
    }

    /// Those of the kernel's side: of the requester, or of the responder.
    fn lapses(&self) -> Lapses {
        let known = Lapses::SOFT_ROCE;
        if self.soft_first {
            Lapses {
                vague_receive_errors: known.vague_receive_errors,
                late_receives_stay: known.late_receives_stay,
                ..Lapses::NONE
            }
        } else {
            Lapses {
                late_receives_stay: known.late_receives_stay,
                local_failures_flush: known.local_failures_flush,
                ..Lapses::NONE
            }
        }
    }

    fn left_out(&self, why: &'static str) {
        self.left_out.borrow_mut().insert(why);
    }

    fn advance(&self) {
        // The kernel's work queue needs the processor.
        thread::sleep(Duration::from_micros(50));
    }
}

impl Pair {
    fn soft(&self) -> &Device {
        let soft = self.hcas.iter().find(|hca| matches!(hca, Device::Soft(_)));
        soft.expect("one is the software HCA")
    }
}

/// Where the two are.
struct Wire {
    device: String,
    address: IpAddr,
    namespace: PathBuf,
}

impl Wire {
    fn from_env() -> Option<Self> {
        let value = std::env::var("SHMEM_INTEROP").ok()?;
        let parts: Vec<&str> = value.split(',').collect();
        let [device, address, namespace] = parts[..] else {
            panic!("SHMEM_INTEROP is DEVICE,ADDRESS,NAMESPACE, not {value}");
        };
        Some(Self {
            device: device.to_owned(),
            address: address.parse().expect("an address of the software HCA"),
            namespace: namespace.into(),
        })
    }

    /// Opens both. `seed` differs between checks, so that late packets of one are none of the next.
    fn open(&self, soft_first: bool, mtu: Mtu, seed: u64) -> Pair {
        let config = SoftConfig {
            bind: self.address,
            ports: (4791, 4791),
            mtu,
            interop: true,
            faults: Faults::default(),
            ..SoftConfig::loopback(seed)
        };
        let namespace = File::open(&self.namespace).expect("the namespace");
        let soft = thread::scope(|scope| {
            let opener = scope.spawn(|| {
                // SAFETY: it moves only this thread, which ends after opening a socket.
                let moved = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
                assert_eq!(moved, 0, "setns: {}", std::io::Error::last_os_error());
                SoftHca::open(&config).expect("the port of RoCEv2 in the namespace")
            });
            opener.join().expect("the opener of the software HCA")
        });
        let config = VerbsConfig::new(self.device.clone(), 1, self.gid_index());
        let verbs = VerbsHca::open(&config).expect("the device");
        let (soft, verbs) = (Device::Soft(soft), Device::Verbs(verbs));
        Pair {
            hcas: if soft_first {
                [soft, verbs]
            } else {
                [verbs, soft]
            },
            soft_first,
            left_out: RefCell::default(),
        }
    }

    fn sysfs(&self) -> PathBuf {
        PathBuf::from("/sys/class/infiniband")
            .join(&self.device)
            .join("ports/1")
    }

    /// Index of the device's IPv4-mapped GID.
    fn gid_index(&self) -> u8 {
        let is_ipv4 = |index: &u8| {
            fs::read_to_string(self.sysfs().join(format!("gids/{index}")))
                .is_ok_and(|gid| gid.starts_with("0000:0000:0000:0000:0000:ffff:"))
        };
        (0..16).find(is_ipv4).expect("an IPv4-mapped GID")
    }

    /// What the kernel counts, by name.
    fn kernel_counters(&self) -> BTreeMap<String, u64> {
        let dir = fs::read_dir(self.sysfs().join("hw_counters")).expect("hw_counters");
        dir.filter_map(|entry| {
            let entry = entry.ok()?;
            let value = fs::read_to_string(entry.path()).ok()?.trim().parse().ok()?;
            Some((entry.file_name().into_string().ok()?, value))
        })
        .collect()
    }
}

/// Transfers of each kind: parts of names of checks.
const DATA: &[&str] = &[
    "writes_of_all_sizes",
    "reads_of_all_sizes",
    "atomics_return_old_values",
    "requests_of_one_queue_keep_their_order",
    "outstanding_reads_and_atomics",
    "both_directions_at_once",
    "psn_wraps",
    "many_queue_pairs",
    "sends_of_all_sizes",
    "immediate_data_of_sends_and_writes",
    "receiver_not_ready_is_waited_for",
    "shared_receives_serve_many_queue_pairs",
];

/// What a panic said, for the table.
static SAID: Mutex<String> = Mutex::new(String::new());

/// Runs the checks that the arguments ask for. Returns whether they passed.
pub(crate) fn run(arguments: &[String]) -> bool {
    let Some(wire) = Wire::from_env() else {
        skipped("rdma", "SHMEM_INTEROP names no wire to a Soft-RoCE device");
        return true;
    };
    let (mut soft_first, mut mtu) = (true, Mtu::M4096);
    let (mut named, mut without) = (Vec::new(), Vec::new());
    for argument in arguments {
        match argument.as_str() {
            "soft-rxe" => soft_first = true,
            "rxe-soft" => soft_first = false,
            "256" => mtu = Mtu::M256,
            "1024" => mtu = Mtu::M1024,
            "4096" => mtu = Mtu::M4096,
            "data" => named.extend(DATA.iter().map(ToString::to_string)),
            check => match check.strip_prefix('-') {
                Some(name) => without.push(name.to_owned()),
                None => named.push(check.to_owned()),
            },
        }
    }
    let wanted = |name: &str| {
        (named.is_empty() || named.iter().any(|n| name.contains(n)))
            && !without.iter().any(|n| name.contains(n))
    };
    let checks: Vec<_> = conformance::all::<Pair>()
        .into_iter()
        .filter(|(name, _)| wanted(name))
        .collect();
    assert!(!checks.is_empty(), "no check of the names {named:?}");

    std::panic::set_hook(Box::new(|info| {
        *SAID.lock().expect("SAID") = info.to_string().replace('\n', " ");
    }));
    let before = wire.kernel_counters();
    let (mut soft, mut failed) = (Counters::default(), Vec::new());
    for (i, (name, check)) in checks.iter().enumerate() {
        let pair = wire.open(soft_first, mtu, i as u64 + 1);
        let start = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| check(&pair)));
        let took = start.elapsed().as_millis();
        let left_out: Vec<&str> = pair.left_out.take().into_iter().collect();
        let left_out = match &left_out[..] {
            [] => String::new(),
            why => format!(" [left out: {}]", why.join("; ")),
        };
        match outcome {
            Ok(()) => println!("{name}: ok, {took} ms{left_out}"),
            Err(_) => {
                let said = SAID.lock().expect("SAID");
                println!("{name}: FAILED, {took} ms{left_out}: {said}");
                println!("    soft: {:?}", pair.soft().counters());
                failed.push(*name);
            }
        }
        add(&mut soft, &pair.soft().counters());
    }
    print_summary(&wire, checks.len(), &failed, &soft, &before);
    failed.is_empty()
}

fn add(sum: &mut Counters, more: &Counters) {
    sum.packets_sent += more.packets_sent;
    sum.packets_received += more.packets_received;
    sum.retransmitted += more.retransmitted;
    sum.duplicates += more.duplicates;
    sum.out_of_sequence += more.out_of_sequence;
    sum.naks_sent += more.naks_sent;
    sum.naks_received += more.naks_received;
    sum.icrc_errors += more.icrc_errors;
    sum.dropped += more.dropped;
}

fn print_summary(
    wire: &Wire,
    checks: usize,
    failed: &[&str],
    soft: &Counters,
    before: &BTreeMap<String, u64>,
) {
    println!(
        "soft: sent {} received {} repeated {} duplicates {} ahead {} NAKs {}+{} bad ICRC {} dropped {}",
        soft.packets_sent,
        soft.packets_received,
        soft.retransmitted,
        soft.duplicates,
        soft.out_of_sequence,
        soft.naks_sent,
        soft.naks_received,
        soft.icrc_errors,
        soft.dropped
    );
    let after = wire.kernel_counters();
    let counts = after.iter().filter_map(|(name, value)| {
        let count = value - before.get(name).unwrap_or(&0);
        (count > 0).then(|| format!(" {name} {count}"))
    });
    println!("rxe:{}", counts.collect::<String>());
    println!(
        "passed {} of {checks}; failed: {}",
        checks - failed.len(),
        failed.join(" ")
    );
}
