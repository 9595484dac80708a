//! Against trees of /sys as machines have them.

use super::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory with the files of a machine.
struct Sys(PathBuf);

impl Sys {
    /// `tree` has a line for each processor: number, core, cache, socket, each but the first as the list of
    /// processors that share it; then a line for each NUMA node: `node` and its list.
    fn new(online: &str, nodes: &[&str], cpus: &[[&str; 4]]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("shmrun-sys-{}-{number}", std::process::id());
        let sys = Self(std::env::temp_dir().join(name));
        sys.put("cpu/online", online);
        sys.put(
            "node/online",
            &match nodes.len() {
                1 => "0".into(),
                n => format!("0-{}", n - 1),
            },
        );
        for (at, list) in nodes.iter().enumerate() {
            sys.put(&format!("node/node{at}/cpulist"), list);
        }
        for [cpu, core, cache, socket] in cpus {
            let put = |file: &str, text: &str| sys.put(&format!("cpu/cpu{cpu}/{file}"), text);
            put("topology/core_cpus_list", core);
            put("topology/package_cpus_list", socket);
            for (index, level, list) in [(0, 1, core), (1, 1, core), (2, 2, core), (3, 3, cache)] {
                put(&format!("cache/index{index}/level"), &level.to_string());
                put(&format!("cache/index{index}/shared_cpu_list"), list);
            }
        }
        sys
    }

    fn put(&self, file: &str, text: &str) {
        let path = self.0.join("devices/system").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    fn seen(&self, allowed: &str) -> Topology {
        Topology::read(&self.0, &Cpus::parse(allowed).unwrap())
    }
}

impl Drop for Sys {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A desktop: one socket, four cores of two threads each.
fn desktop() -> Sys {
    let cpu = |n: &'static str| {
        [
            n,
            ["0,4", "1,5", "2,6", "3,7"][n.parse::<usize>().unwrap() % 4],
            "0-7",
            "0-7",
        ]
    };
    Sys::new(
        "0-7",
        &["0-7"],
        &["0", "1", "2", "3", "4", "5", "6", "7"].map(cpu),
    )
}

/// A server: two sockets with two NUMA nodes each, eight cores; processors are numbered by turns.
fn server() -> Sys {
    let all = ["0", "1", "2", "3", "4", "5", "6", "7"];
    let cpu = |n: &'static str| match n.parse::<usize>().unwrap() % 2 {
        0 => [n, n, "0,2,4,6", "0,2,4,6"],
        _ => [n, n, "1,3,5,7", "1,3,5,7"],
    };
    Sys::new("0-7", &["0,4", "1,5", "2,6", "3,7"], &all.map(cpu))
}

fn lists(of: &[Cpus]) -> Vec<String> {
    of.iter().map(Cpus::to_string).collect()
}

fn plan(t: &Topology, to: &str, by: Option<Level>, pes: u32) -> Result<Vec<String>, TooFew> {
    let binding = Binding {
        to: to.parse().unwrap(),
        by,
        report: false,
    };
    binding.plan(t, 0..pes, pes).map(|b| lists(&b.0))
}

#[test]
fn threads_of_a_core_stay_together() {
    let sys = desktop();
    let t = sys.seen("0-7");
    assert_eq!(lists(&t.objects(Level::Core)), ["0,4", "1,5", "2,6", "3,7"]);
    assert_eq!(lists(&t.objects(Level::Socket)), ["0-7"]);
    assert_eq!(lists(&t.objects(Level::None)), ["0-7"]);
    assert_eq!(plan(&t, "core", None, 3).unwrap(), ["0,4", "1,5", "2,6"]);
    assert_eq!(plan(&t, "core:2", None, 2).unwrap(), ["0-1,4-5", "2-3,6-7"]);
    assert_eq!(plan(&t, "hwthread", None, 3).unwrap(), ["0", "4", "1"]);
    let spread = plan(&t, "hwthread", Some(Level::Core), 5).unwrap();
    assert_eq!(spread, ["0", "1", "2", "3", "4"]);
    assert_eq!(plan(&t, "socket", None, 2).unwrap(), ["0-7", "0-7"]);
    assert!(plan(&t, "none", None, 9).unwrap().is_empty());
}

#[test]
fn sockets_and_numa_nodes_are_dealt_out_by_turns() {
    let sys = server();
    let t = sys.seen("0-7");
    assert_eq!(lists(&t.objects(Level::Socket)), ["0,2,4,6", "1,3,5,7"]);
    assert_eq!(lists(&t.objects(Level::Numa)), ["0,4", "2,6", "1,5", "3,7"]);
    assert_eq!(lists(&t.objects(Level::L3cache)), ["0,2,4,6", "1,3,5,7"]);
    // Neighbours first.
    assert_eq!(
        plan(&t, "core", None, 5).unwrap(),
        ["0", "4", "2", "6", "1"]
    );
    let turns = plan(&t, "core", Some(Level::Socket), 4).unwrap();
    assert_eq!(turns, ["0", "1", "4", "5"]);
    let turns = plan(&t, "core", Some(Level::Numa), 5).unwrap();
    assert_eq!(turns, ["0", "2", "1", "3", "4"]);
    assert_eq!(
        plan(&t, "socket", None, 3).unwrap(),
        ["0,2,4,6", "1,3,5,7", "0,2,4,6"]
    );
    let filled = plan(&t, "socket", Some(Level::Core), 5).unwrap();
    assert_eq!(filled[3..], ["0,2,4,6", "1,3,5,7"]);
    assert_eq!(plan(&t, "numa:2", None, 2).unwrap(), ["0,2,4,6", "1,3,5,7"]);
}

#[test]
fn what_may_not_be_used_is_not() {
    let sys = server();
    // By a cpuset: one socket has one core left.
    let t = sys.seen("0,1,3,5,99");
    assert_eq!(
        plan(&t, "core", Some(Level::Socket), 4).unwrap(),
        ["0", "1", "5", "3"]
    );
    let e = plan(&t, "core", None, 5).unwrap_err().to_string();
    assert!(e.contains("5 PEs") && e.contains("only 4"), "{e}");
    assert!(plan(&t, "core:2", None, 3).is_err());
    // Sockets can be shared.
    assert_eq!(plan(&t, "socket", None, 9).unwrap().len(), 4);
    // The administrator has turned some off.
    let sys = Sys::new(
        "0-1,3",
        &["0-3"],
        &[
            ["0", "0-1", "0-3", "0-3"],
            ["1", "0-1", "0-3", "0-3"],
            ["3", "2-3", "0-3", "0-3"],
        ],
    );
    let t = sys.seen("0-3");
    assert_eq!(plan(&t, "core", None, 2).unwrap(), ["0-1", "3"]);
}

#[test]
fn emulated_nodes_share_the_machine() {
    let sys = desktop();
    let t = sys.seen("0-7");
    let binding = Binding {
        to: "core".parse().unwrap(),
        ..Binding::default()
    };
    let second = binding.plan(&t, 2..4, 4).unwrap();
    assert_eq!(lists(&second.0), ["2,6", "3,7"]);
    let line = describe(2, &second.0[0], &t);
    assert_eq!(
        line,
        "PE 2 is bound to CPUs 2,6: core 2 of socket 0, NUMA node 0"
    );
}

#[test]
fn a_machine_that_tells_nothing_has_one_socket() {
    let t = Topology::read(Path::new("/nonexistent"), &Cpus::parse("0-2").unwrap());
    assert_eq!(lists(&t.objects(Level::Core)), ["0", "1", "2"]);
    for level in [Level::L3cache, Level::Numa, Level::Socket] {
        assert_eq!(lists(&t.objects(level)), ["0-2"]);
    }
    let here = Topology::of_this_machine();
    assert!(!here.objects(Level::Core).is_empty());
}

#[test]
fn words_are_understood() {
    for (word, level) in Level::WORDS {
        assert_eq!(
            (word.parse(), level.to_string().as_str()),
            (Ok(level), word)
        );
    }
    for bad in [
        "", "cores", "core:", "core:0", "core:x", "none:2", "machine",
    ] {
        assert!(bad.parse::<BindTo>().is_err(), "{bad}");
    }
}
