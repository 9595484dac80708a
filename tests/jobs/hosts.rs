//! Jobs on several hosts whose packets cross a network: each host is a network namespace behind a
//! bridge, and the remote shell leads into it.
//!
//! Needs `ip` and the right to make network namespaces: the need `hosts` of `SHMEM_TEST_REQUIRE`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use shmem_testkit::needs::skipped;
use shmem_testkit::{Job, Running, text};

use crate::conformance::{self, SOME_OF_EACH};
use crate::programs::{HELLO, HISTOGRAM, RING, shmrun};

const HOSTS: u32 = 3;

/// `rsh HOST COMMAND..`: in the host's namespace, in another directory, with another environment.
const RSH: &str = r#"#!/bin/sh
prefix=$1 host=$2; shift 2
cd / && exec ip netns exec "$prefix$host" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin RSH_HOST="$host" sh -c "$*"
"#;

/// Hosts `0`, `1`, .. with the addresses 10.78.0.1, .. and 10.79.0.1, .. on Ethernet.
pub(crate) struct Network {
    prefix: String,
    /// Files of a test, removed with the network.
    pub(crate) dir: PathBuf,
}

fn ip(command: &str) -> Result<String, String> {
    let output = Command::new("ip").args(command.split_whitespace()).output();
    let output = output.map_err(|e| format!("ip: {e}"))?;
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(format!("ip {command}: {}", text(&output.stderr))),
    }
}

impl Network {
    pub(crate) fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("shmh{}-{number}-", std::process::id());
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
        let prefix = &self.prefix;
        ip(&format!("netns add {prefix}bridge"))?;
        let bridge = format!("-n {prefix}bridge");
        ip(&format!("{bridge} link add br0 type bridge"))?;
        ip(&format!("{bridge} link set br0 up"))?;
        for i in 0..HOSTS {
            ip(&format!("netns add {prefix}{i}"))?;
            let host = format!("-n {prefix}{i}");
            ip(&format!("{host} link set lo up"))?;
            ip(&format!(
                "link add eth0 netns {prefix}{i} type veth peer name port{i} netns {prefix}bridge"
            ))?;
            ip(&format!("{bridge} link set port{i} master br0 up"))?;
            for network in [78, 79] {
                let address = format!("10.{network}.0.{}/24", i + 1);
                ip(&format!("{host} addr add {address} dev eth0"))?;
            }
            ip(&format!("{host} link set eth0 up"))?;
        }
        std::fs::create_dir_all(&self.dir).map_err(|e| e.to_string())?;
        std::fs::write(self.dir.join("rsh"), RSH).map_err(|e| e.to_string())
    }

    fn job(&self, options: &str, program: &str) -> Job {
        self.over(shmrun(options, &[program]))
    }

    /// A job of `shmrun` whose hosts are these.
    pub(crate) fn over(&self, job: Job) -> Job {
        let rsh = format!("sh {} {}", self.dir.join("rsh").display(), self.prefix);
        // No host knows that it shares its cores with the others.
        job.env("SHMEM_SPIN", "0").env("SHMEM_RSH", &rsh)
    }

    /// A program on a host, which gets its input by a pipe.
    pub(crate) fn start(&self, host: u32, program: &[&str]) -> Running {
        let host = format!("{}{host}", self.prefix);
        let words = [&["netns", "exec", &host], program].concat();
        Job::new("ip", "", &words).stdin(Stdio::piped()).start()
    }

    /// Packets that a host has sent.
    fn sent(&self, host: u32) -> u64 {
        let counts = ip(&format!("-n {}{host} -s link show eth0", self.prefix)).unwrap();
        let line = counts.lines().last().expect("the counts of what was sent");
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let hosts = (0..HOSTS).map(|i| i.to_string());
        for name in hosts.chain(["bridge".into()]) {
            let _ = ip(&format!("netns del {}{name}", self.prefix));
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Every PE finds every other over Ethernet, with whatever says where the HCAs are. Ethernet takes 1500
/// bytes, so that packets of a path MTU of 4096 would not pass.
#[test]
fn packets_cross_the_network_between_the_hosts() {
    let Some(net) = Network::new() else { return };
    for (address, hosts) in [
        ("auto", "0,1,2"),
        ("10.79.0.0/24", "0,1,2"),
        ("10.78.0.1+", "0,1,2"),
        ("auto", "2:1,0:3,1:2"),
    ] {
        let before: Vec<u64> = (0..HOSTS).map(|i| net.sent(i)).collect();
        let options = format!("-n 6 --hosts {hosts}");
        let run = |program| {
            net.job(&options, program)
                .env("SHMEM_SOFT_ADDRESS", address)
        };
        let out = run(RING).succeed();
        assert!(
            out.contains("6 PEs and came back right"),
            "{address}: {out}"
        );
        run(HISTOGRAM).succeed();
        for i in 0..HOSTS {
            let sent = net.sent(i) - before[i as usize];
            assert!(sent > 50, "{address}: host {i} sent {sent} packets");
        }
    }
}

#[test]
fn routines_of_each_kind_work_between_hosts() {
    routines_work(SOME_OF_EACH);
}

#[test]
#[ignore = "nightly: each run has some checks"]
fn every_routine_works_between_hosts() {
    routines_work(&[]);
}

fn routines_work(checks: &[&'static str]) {
    let Some(net) = Network::new() else { return };
    let program = conformance::with(checks);
    for transport in ["rc", "xrc"] {
        let job = net.over(shmrun("-n 4 --hosts 0,1,2", &program));
        job.env("SHMEM_TRANSPORT", transport).succeed();
    }
}

#[test]
fn a_network_in_which_a_host_is_not_is_told() {
    let Some(net) = Network::new() else { return };
    ip(&format!(
        "-n {}1 addr del 10.79.0.2/24 dev eth0",
        net.prefix
    ))
    .unwrap();
    let job = net.job("-n 3 --hosts 0,1,2", HELLO);
    let output = job.env("SHMEM_SOFT_ADDRESS", "10.79.0.0/24").run();
    let said = output.stderr;
    assert_eq!(output.status.code(), Some(125), "{said}");
    for part in [
        "node 1 (1)",
        "no address in SHMEM_SOFT_ADDRESS=10.79.0.0/24",
        "10.78.0.2 on eth0",
    ] {
        assert!(said.contains(part), "no {part} in {said}");
    }
    // The rest of them still see each other on the other network.
    net.job("-n 3 --hosts 0,1,2", HELLO).succeed();
}
