//! PEs that are bound to processors, on whatever machine runs this.

use shmem_launch::binding::{Binding, Level, Topology};

use crate::hosts::Network;
use crate::support::shmrun;
use crate::template::probe;

/// What the PEs of this machine are bound to, and how many can be.
fn expected(to: &str, most: u32) -> Vec<String> {
    let machine = Topology::of_this_machine();
    let pes = (machine.objects(Level::Hwthread).len() as u32).min(most);
    let binding = Binding {
        to: to.parse().unwrap(),
        ..Binding::default()
    };
    let plan = binding.plan(&machine, 0..pes, pes).unwrap();
    (0..pes)
        .map(|pe| plan.of(pe).unwrap().to_string())
        .collect()
}

#[test]
fn every_pe_runs_where_it_was_put() {
    let bound = expected("hwthread", 3);
    let n = bound.len().to_string();
    let want: Vec<String> = (0..)
        .zip(&bound)
        .map(|(pe, at)| format!("{pe} {at} false"))
        .collect();
    let nodes = n.as_str();
    for options in [
        &["-n", &n, "-x", "SHMEM_SPAWN=exec", "-bind-to", "hwthread"][..],
        &[
            "-n",
            &n,
            "-x",
            "SHMEM_SPAWN=template",
            "--bind-to",
            "hwthread",
        ],
        &[
            "-n",
            &n,
            "--nodes",
            nodes,
            "--bind-to=hwthread:1",
            "--map-by",
            "core",
            "--report-bindings",
        ],
    ] {
        let out = probe(options, &["processors"]).run();
        assert_eq!(
            (out.code(), out.sorted() == want),
            (0, true),
            "{options:?} {out:?}"
        );
        let told = out
            .stderr
            .lines()
            .filter(|l| l.contains("is bound to CPU "))
            .count();
        let all = if options.len() > 6 { bound.len() } else { 0 };
        assert_eq!(told, all, "{out:?}");
    }
    let free = probe(&["-n", "1"], &["processors"]).run();
    assert!(
        free.stdout
            .contains(&shmem_node::cpus::Cpus::allowed().unwrap().to_string())
    );
}

#[test]
fn each_host_binds_its_own() {
    let net = Network::new();
    let at = &expected("hwthread", 1)[0];
    let script = "grep Cpus_allowed_list /proc/self/status";
    let options = ["-n", "2", "--bind-to", "hwthread", "--report-bindings"];
    let out = net.sh("a,b", &options, script).run();
    assert_eq!(out.code(), 0, "{out:?}");
    assert_eq!(out.stdout, format!("Cpus_allowed_list:\t{at}\n").repeat(2));
    for host in ["a", "b"] {
        let pe = u32::from(host == "b");
        let told = format!("{host}: shmrun: PE {pe} is bound to CPU {at}:");
        assert!(out.stderr.contains(&told), "{told} {out:?}");
    }
    // One more than there are cores, on each host.
    let pes = Topology::of_this_machine().objects(Level::Core).len() + 1;
    let n = (2 * pes).to_string();
    let out = net
        .sh("a,b", &["-n", &n, "--bind-to", "core"], "true")
        .run();
    assert_eq!(out.code(), 125, "{out:?}");
    let told = format!("{pes} PEs on this machine need {pes}");
    assert!(out.stderr.contains(&told), "{out:?}");
}

#[test]
fn bindings_are_shown_and_refused_before_anything_starts() {
    let at = &expected("core", 1)[0];
    let out = shmrun(&["--dry-run", "--bind-to", "core", "true"]).run();
    assert_eq!(out.code(), 0, "{out:?}");
    let told = format!(
        "PE 0 is bound to CPU{} {at}: core 0 of socket 0",
        if at.contains(['-', ',']) { "s" } else { "" }
    );
    assert!(out.stderr.contains(&told), "{out:?}");
    for (line, said) in [
        (
            "-n 100000 --bind-to core true",
            "100000 PEs on this machine need 100000",
        ),
        ("--bind-to box true", "expected one of none, hwthread"),
        ("--map-by core true", "--bind-to"),
    ] {
        let words: Vec<&str> = line.split_whitespace().collect();
        let out = shmrun(&words).run();
        assert_eq!(out.code(), 2, "{line}: {out:?}");
        assert!(out.stderr.contains(said), "{line}: {out:?}");
    }
}
