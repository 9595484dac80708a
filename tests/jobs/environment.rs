//! What users say by environment variables, and what they are told.

use shmem_testkit::Job;

use crate::programs::{HELLO, LIVES, PMI_RING, SHMRUN, STATICS, shmrun};

/// More than any machine has that runs this, but pages come when they are touched.
#[test]
fn large_heaps_for_many_pes_start_at_once() {
    for program in [&[HELLO][..], &[STATICS]] {
        let job = shmrun("-n 64", program).env("SHMEM_SYMMETRIC_SIZE", "1g");
        assert!(job.succeed().contains("64"));
    }
    let nodes = shmrun("-n 64 --nodes 4", &[LIVES, "1"]);
    nodes.env("SHMEM_SYMMETRIC_SIZE", "1g").succeed();
}

#[test]
fn a_heap_that_is_too_small_names_the_variable_on_all_pes() {
    let output = shmrun("-n 3 -l", &[LIVES, "1"])
        // Rounded up to what the allocator takes.
        .env("SHMEM_SYMMETRIC_SIZE", "1000")
        .run();
    let err = output.stderr;
    assert_eq!(output.status.code(), Some(1), "{err}");
    for part in [
        "tests/programs/lives.rs:",
        "no room for 24000 bytes",
        "0 of 1024 bytes are in use",
        "largest free range has 1024",
        "give more with `shmrun --heap SIZE` or SHMEM_SYMMETRIC_SIZE=SIZE",
    ] {
        assert!(err.contains(part), "no {part:?} in: {err}");
    }
}

#[test]
fn the_heap_has_an_option_and_misspelt_settings_are_reported() {
    let job = |options: &str| shmrun(options, &["sh", "-c", "echo $SHMEM_SYMMETRIC_SIZE"]);
    assert_eq!(job("-n 2 --heap 3m").succeed(), "3m\n3m\n");
    let options = "-n 3 -l --heap 1000 -x SHMEM_SYMMETRIC_SIZE=1g";
    let output = shmrun(options, &[LIVES, "1"]).run();
    assert!(
        output.stderr.contains("0 of 1024 bytes are in use"),
        "{}",
        output.stderr
    );
    let wrong = shmrun("-n 2 --heap 5x", &[HELLO]).run();
    assert_eq!(wrong.status.code(), Some(2), "{}", wrong.stderr);

    let misspelt = |quiet: &str| {
        job(&format!("{quiet} -n 1"))
            .env("SHMEM_SYMETRIC_SIZE", "1g")
            .run()
    };
    let told = misspelt("").stderr;
    assert!(
        told.contains("SHMEM_SYMETRIC_SIZE is no setting of this library"),
        "{told}"
    );
    assert!(
        told.contains("did you mean SHMEM_SYMMETRIC_SIZE?"),
        "{told}"
    );
    assert_eq!(misspelt("-q").stderr, "");
}

#[test]
fn a_low_limit_of_descriptors_is_raised_or_named() {
    let limited = |limit: &str| {
        let script = format!("ulimit {limit}; exec \"$@\"");
        let job = [
            "sh",
            SHMRUN,
            "-n",
            "2",
            "--nodes",
            "2",
            "sh",
            "-c",
            "ulimit -Sn",
        ];
        Job::new("sh", "-c", &[&[&script[..]], &job[..]].concat()).run()
    };
    let output = limited("-Sn 32");
    assert!(output.status.success(), "{}", output.stderr);
    // A program has the limit that the user gave.
    assert_eq!(output.stdout, "32\n32\n");
    // So few that a PE has its own below the usual numbers.
    for how in ["exec", "template"] {
        let script = "ulimit -Sn 40; exec \"$@\"";
        let words = [script, "sh", SHMRUN, "-n", "20", "--nodes", "2", HELLO];
        let job = Job::new("sh", "-c", &words).env("SHMEM_SPAWN", how);
        let output = job.run();
        assert!(output.status.success(), "{how}: {}", output.stderr);
    }
    // Root may raise the hard limit, too.
    let output = limited("-n 32");
    let err = output.stderr;
    let said = "descriptors, but the limit (ulimit -Hn) is 32; raise it";
    assert!(output.status.success() || err.contains(said), "{err}");
}

/// Shells keep 3 to 9 for their users.
#[test]
fn scripts_may_use_descriptors_that_shells_can_name() {
    let script = "for fd in 3 4 5 6 7 8 9; do eval \"exec $fd>/dev/null\"; done; exec \"$0\"";
    for options in ["-n 2", "-n 2 --nodes 2"] {
        shmrun(options, &["sh", "-c", script, HELLO]).succeed();
        let output = shmrun(options, &["sh", "-c", script, PMI_RING]).run();
        assert!(output.status.success(), "{options}: {}", output.stderr);
    }
}

/// A script that takes the number of one of a PE's own.
#[test]
fn what_stands_in_a_descriptors_place_is_named() {
    let script = "fd=$((${SHMEM_NODE#*:} + $1)); eval \"exec $fd>/dev/null\"; exec \"$0\"";
    // Tables and heap, and the socket of the agent, of which there is use where the PEs have several nodes.
    for (which, options) in [("2", "-n 2"), ("3", "-n 2"), ("5", "-n 2 --nodes 2")] {
        let output = shmrun(options, &["bash", "-c", script, HELLO, which]).run();
        let err = output.stderr;
        assert_eq!(output.status.code(), Some(1), "{which}: {err}");
        let said = "is /dev/null, and not what shmrun has left there: a script";
        assert!(err.contains(said), "{which}: {err}");
    }
}

#[test]
fn sizes_have_many_forms() {
    let told = |name: &str, size: &str| {
        let job = shmrun("-n 2", &[LIVES, "1"]).env("SHMEM_DEBUG", "");
        let output = job.env(name, size).run();
        (output.status.code(), output.stderr)
    };
    for (size, told_as) in [
        (".5m", "heap of 512.0 KiB"),
        ("20480kk", "heap of 20.0 MiB"),
        ("0.03125G", "heap of 32.0 MiB"),
        ("1048576.5", "heap of 1.0 MiB"),
    ] {
        for name in ["SHMEM_SYMMETRIC_SIZE", "SMA_SYMMETRIC_SIZE"] {
            let (code, err) = told(name, size);
            assert_eq!(code, Some(0), "{err}");
            assert!(err.contains(told_as), "{name}={size}: {err}");
        }
    }
    for size in ["", "-1m", "1x", "lots"] {
        let (code, err) = told("SHMEM_SYMMETRIC_SIZE", size);
        assert_eq!(code, Some(2), "{size}: {err}");
        assert!(err.contains("SHMEM_SYMMETRIC_SIZE="), "{size}: {err}");
    }
}

#[test]
fn version_and_settings_are_told_once() {
    for names in [["SHMEM_VERSION", "SHMEM_INFO"], ["SMA_VERSION", "SMA_INFO"]] {
        let job = shmrun("-n 3", &[LIVES, "2"])
            .env(names[0], "0")
            .env(names[1], "");
        let out = job.env("SHMEM_INIT_TIMEOUT", "40s").succeed();
        assert_eq!(out.matches("(OpenSHMEM 1.6)").count(), 1, "{out}");
        assert_eq!(
            out.matches("SHMEM_SYMMETRIC_SIZE=256M  (default)").count(),
            1
        );
        assert!(
            out.contains("SHMEM_INIT_TIMEOUT=40s  (environment)"),
            "{out}"
        );
    }
    assert_eq!(shmrun("-n 3", &[LIVES, "1"]).succeed(), "");
}

#[test]
fn every_pe_tells_what_it_does() {
    let output = shmrun("-n 3", &[LIVES, "1"]).env("SMA_DEBUG", "1").run();
    let err = output.stderr;
    for pe in 0..3 {
        assert!(
            err.contains(&format!("shmem: PE {pe} of 3 on node 0 of 1")),
            "{err}"
        );
        assert!(err.contains(&format!("shmem: PE {pe}: finalized")), "{err}");
    }
}
