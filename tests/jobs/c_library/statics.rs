//! Static data: of PEs of several programs, and while threads and signal handlers write it.

use std::path::{Path, PathBuf};

use shmem_testkit::Job;

use super::toolchain::{Toolchain, sources, toolchain};
use crate::launchers;

/// A program in two builds, whose variables lie at different places.
fn two_builds(c: &Toolchain) -> [PathBuf; 2] {
    let source = sources().join("programs/layouts.c");
    let quiet = ["-Wno-deprecated-declarations"];
    [
        c.make("layouts", std::slice::from_ref(&source), &quiet),
        c.make("layouts-other", &[source], &["-DOTHER", quiet[0]]),
    ]
}

/// Ways to start half of `n` PEs as each program: one after the other on the command line, or by a script, of which
/// the launcher knows nothing.
fn jobs(c: &Toolchain, programs: &[PathBuf; 2], options: &str, n: usize, what: &str) -> [Job; 2] {
    let half = n / 2;
    let [one, other] = programs.each_ref().map(|p| p.to_str().unwrap());
    let (first, half_text) = (half.to_string(), half.to_string());
    let of_one = [one, what, "0", &half_text, &first];
    let of_other = [other, what, &first, &half_text, "0"];
    let count = format!("-n {half}");
    let mut typed = of_one[1..].to_vec();
    typed.push(":");
    typed.extend(count.split(' '));
    typed.extend(of_other);
    let script = format!(
        "if [ $PMI_RANK -lt {half} ]; then exec {}; else exec {}; fi",
        of_one.join(" "),
        of_other.join(" ")
    );
    [
        c.job(&format!("-n {half} {options}"), &programs[0], &typed),
        c.job(
            &format!("-n {n} {options}"),
            Path::new("/bin/sh"),
            &["-c", &script],
        ),
    ]
}

#[test]
fn static_data_is_symmetric_among_the_pes_of_each_program() {
    let Some(c) = toolchain() else { return };
    let programs = two_builds(c);
    let mut turned = programs.clone();
    turned.reverse();
    for programs in [&programs, &turned] {
        // Each program is on one node, is alone on one, and is on two.
        for (options, n) in [("", 4), ("--nodes 2", 4), ("--nodes 3", 6)] {
            for job in jobs(c, programs, options, n, "right") {
                assert_eq!(job.succeed(), "done\n", "{options}");
            }
        }
    }
}

#[test]
fn static_data_of_another_program_is_refused() {
    other_static_data_is_refused(false);
}

#[test]
#[ignore = "nightly: each run has one way to start it on each layout"]
fn static_data_of_another_program_is_refused_however_it_starts() {
    other_static_data_is_refused(true);
}

fn other_static_data_is_refused(all: bool) {
    let Some(c) = toolchain() else { return };
    let programs = two_builds(c);
    for (how, options) in ["", "--nodes 2"].into_iter().enumerate() {
        for (what, routine) in [
            ("put", "shmem_long_put: dest"),
            ("p", "shmem_long_p: dest"),
            ("nbi", "shmem_long_put_nbi: dest"),
            ("get", "shmem_long_get: source"),
            ("iput", "shmem_long_iput: dest"),
            ("iget", "shmem_long_iget: source"),
            ("add", "shmem_long_atomic_add: dest"),
            ("fetch", "shmem_long_atomic_fetch: dest"),
            ("fetch_nbi", "shmem_uint64_atomic_fetch_nbi: dest"),
            ("signal", "shmem_long_put_signal: sig_addr"),
            ("signalled", "shmem_long_put_signal: dest"),
            (
                "reduce",
                "static data is symmetric among PEs of one program only",
            ),
        ] {
            let jobs = jobs(c, &programs, options, 4, what).into_iter();
            for (_, job) in jobs.enumerate().filter(|&(way, _)| all || way == how) {
                let output = job.run();
                let err = &output.stderr;
                assert_eq!(output.code(), 1, "{what} {options}: {err}");
                for part in [routine, "static data", "another program or another build"] {
                    assert!(err.contains(part), "{what} {options}: no {part:?}: {err}");
                }
            }
        }
    }
}

/// Under another launcher the first PE of each node makes room for the static data of its own program.
#[test]
fn nodes_with_other_programs_agree_on_the_heap_or_do_not_connect() {
    let Some(c) = toolchain() else { return };
    let [one, other] = &two_builds(c);
    let run = |what: &str, room: Option<&str>| {
        let script = format!(
            "if [ $PMI_RANK -lt 2 ]; then exec {} {what} 0 2 2; else exec {} {what} 2 2 0; fi",
            one.display(),
            other.display()
        );
        let job = launchers::hydra_on(2, "", &["/bin/sh", "-c", &script])?;
        Some(match room {
            Some(room) => job.env("SHMEM_STATICS_SIZE", room).run(),
            None => job.run(),
        })
    };
    let Some(apart) = run("right", None) else {
        return;
    };
    let err = &apart.stderr;
    assert_ne!(apart.code(), 0, "{err}");
    assert!(
        err.contains("room for static data") && err.contains("SHMEM_STATICS_SIZE="),
        "{err}"
    );
    let output = run("right", Some("1m")).expect("Hydra");
    assert_eq!(
        (output.code(), output.stdout.as_str()),
        (0, "done\n"),
        "{}",
        output.stderr
    );
    for what in ["put", "reduce"] {
        let output = run(what, Some("1m")).expect("Hydra");
        assert_ne!(output.code(), 0, "{what}");
        assert!(
            output.stderr.contains("another program or another build"),
            "{what}: {}",
            output.stderr
        );
    }
}

/// Many PEs at once: what goes wrong goes wrong now and then.
#[test]
fn nothing_is_lost_while_static_data_moves() {
    let Some(c) = toolchain() else { return };
    let source = sources().join("programs/meanwhile.c");
    let shared = c.make("meanwhile", std::slice::from_ref(&source), &["-pthread"]);
    let fixed = c.make("meanwhile-static", &[source], &["-pthread", "-static"]);
    for program in [&shared, &fixed] {
        for what in ["count", "turns", "allocate", "timer"] {
            for options in ["-np 8", "-np 4 --nodes 2"] {
                // One arena, which all threads use.
                let job = c.job(options, program, &[what]);
                let job = job.env("GLIBC_TUNABLES", "glibc.malloc.arena_max=1");
                assert_eq!(
                    job.succeed(),
                    "done\n",
                    "{what} {options} {}",
                    program.display()
                );
            }
        }
    }
}
