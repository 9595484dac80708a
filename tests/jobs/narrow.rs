//! Hosts between which packets of their interfaces' length do not get through: two network namespaces with jumbo frames, and two
//! routers between them with a link of 1500 bytes.
//!
//! Needs `ip` and the right to make network namespaces: the need `hosts` of `SHMEM_TEST_REQUIRE`.

use std::path::{Path, PathBuf};
use std::process::Command;

use shmem_testkit::needs::skipped;
use shmem_testkit::text;

use crate::conformance;
use crate::programs::shmrun;

/// `rsh HOST COMMAND..`: in the host's namespace.
const RSH: &str = r#"#!/bin/sh
prefix=$1 host=$2; shift 2
exec ip netns exec "$prefix$host" sh -c "$*"
"#;

struct Network {
    prefix: String,
    dir: PathBuf,
}

fn ip(command: &str) -> Result<(), String> {
    let output = Command::new("ip").args(command.split_whitespace()).output();
    let output = output.map_err(|e| format!("ip: {e}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ip {command}: {}", text(&output.stderr))),
    }
}

/// Hosts 0 and 3, routers 1 and 2; link n is between n and n + 1.
const NAMES: [&str; 4] = ["0", "1", "2", "3"];

impl Network {
    fn new() -> Option<Self> {
        let prefix = format!("shmn{}-", std::process::id());
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&prefix);
        let network = Self { prefix, dir };
        match network.make() {
            Ok(()) => Some(network),
            Err(e) => {
                skipped("hosts", e);
                None
            }
        }
    }

    fn make(&self) -> Result<(), String> {
        let at = |n: usize| format!("{}{}", self.prefix, NAMES[n]);
        for n in 0..4 {
            ip(&format!("netns add {}", at(n)))?;
            ip(&format!("-n {} link set lo up", at(n)))?;
        }
        for (link, mtu) in [9000, 1500, 9000].into_iter().enumerate() {
            let (left, right) = (at(link), at(link + 1));
            ip(&format!(
                "link add right netns {left} type veth peer name left netns {right}"
            ))?;
            for (end, device, host) in [(left, "right", 1), (right, "left", 2)] {
                ip(&format!("-n {end} link set {device} mtu {mtu} up"))?;
                ip(&format!(
                    "-n {end} addr add 10.9{link}.0.{host}/24 dev {device}"
                ))?;
            }
        }
        for router in [1, 2] {
            let forward = "sysctl -q -w net.ipv4.ip_forward=1";
            ip(&format!("netns exec {} {forward}", at(router)))?;
        }
        ip(&format!("-n {} route add default via 10.90.0.2", at(0)))?;
        ip(&format!("-n {} route add default via 10.91.0.2", at(1)))?;
        ip(&format!("-n {} route add default via 10.91.0.1", at(2)))?;
        ip(&format!("-n {} route add default via 10.92.0.1", at(3)))?;
        std::fs::create_dir_all(&self.dir).map_err(|e| e.to_string())?;
        std::fs::write(self.dir.join("rsh"), RSH).map_err(|e| e.to_string())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in NAMES {
            let _ = ip(&format!("netns del {}{name}", self.prefix));
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// With short packets nothing would be cut; with those of the interfaces a link takes none of them.
#[test]
fn packets_that_a_link_on_the_way_does_not_take_are_cut() {
    packets_are_cut(&[
        "sizes_and_alignments",
        "large_copies_across_borders",
        "huge_elements",
        "signal_after_data",
        "flag_after_atomics",
    ]);
}

#[test]
#[ignore = "nightly: each run has the checks with long messages"]
fn packets_are_cut_for_all_checks() {
    packets_are_cut(&[]);
}

fn packets_are_cut(checks: &[&'static str]) {
    let program = conformance::with(checks);
    let Some(net) = Network::new() else { return };
    let rsh = format!("sh {} {}", net.dir.join("rsh").display(), net.prefix);
    for stream in ["never", "auto"] {
        let job = shmrun("-n 2 --hosts 0,3", &program)
            .env("SHMEM_SPIN", "0")
            .env("SHMEM_SOFT_ADDRESS", "10.80.0.0/12")
            .env("SHMEM_SOFT_STREAM", stream)
            .env("SHMEM_RSH", &rsh);
        job.succeed();
    }
}
