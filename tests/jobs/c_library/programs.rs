//! C programs that need a job of their own: ends, mistakes, threads, large heaps, old habits.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use shmem_testkit::Job;
use shmem_testkit::tools::CC;

use super::toolchain::{Toolchain, scratch, sources, toolchain};

/// Layouts with neighbours on the node, on others, and both.
const LAYOUTS: [&str; 6] = [
    "-np 1",
    "-np 2",
    "-np 5",
    "-np 2 --nodes 2",
    "-np 5 --nodes 2",
    "-np 8 --nodes 4",
];

fn succeeds_everywhere(name: &str, said: &str) {
    let Some(c) = toolchain() else { return };
    for options in LAYOUTS {
        let out = c.job(options, &c.program(name), &[]).succeed();
        assert!(out.contains(said), "{options}: {out}");
    }
}

#[test]
fn profiling_takes_the_place_of_routines() {
    succeeds_everywhere("pshmem", "0 wrong; 1 puts and 2 barriers seen");
}

/// Linked statically, the program's routine takes the place of the archive's.
#[test]
fn profiling_with_the_archive() {
    let Some(c) = toolchain() else { return };
    let source = sources().join("programs/pshmem.c");
    let program = c.make("pshmem-archive", &[source], &["-static-libshmem"]);
    let out = c.job("-np 2", &program, &[]).succeed();
    assert!(out.contains("0 wrong; 1 puts and 2 barriers seen"), "{out}");
}

#[test]
fn init_and_finalize_again_and_again() {
    succeeds_everywhere("again", "0 wrong in 3 rounds");
}

#[test]
fn threads_communicate_at_once() {
    succeeds_everywhere("threads", "0 wrong on ");
}

/// Whatever the program's thread-local data takes, and although the program blocks a signal after init.
#[test]
fn library_threads_take_no_signals_and_leave_room_for_thread_local_data() {
    succeeds_everywhere("library_threads", "PEs took their signal");
}

/// A store rings no bell, so each of these waits may take a while; without looking now and then they
/// would take minutes.
#[test]
fn plain_stores_are_seen() {
    succeeds_everywhere("stores", "100 turns");
}

#[test]
fn forked_children_keep_to_themselves() {
    succeeds_everywhere("forks", "0 wrong");
}

/// Closing the library does not unmap it: its threads and its handlers for exit and fork stay.
#[test]
fn the_library_can_be_opened_and_closed() {
    let Some(c) = toolchain() else { return };
    let program = without_library("opened", "opened.c");
    let library = c.prefix.join("lib/libshmem.so");
    for options in ["-np 1", "-np 3 --nodes 3"] {
        let out = c
            .job(options, &program, &[library.to_str().unwrap(), "3"])
            .succeed();
        assert!(out.contains("opened 3 times"), "{options}: {out}");
    }
}

/// As many KiB as docs/c.md says, with what the dynamic linker takes. User-level threads have 16 to 64.
#[test]
fn collectives_do_with_small_stacks() {
    let Some(c) = toolchain() else { return };
    for (options, kib) in [
        ("-np 4", "16"),
        ("-np 4 --nodes 2", "32"),
        ("-np 5 --nodes 3", "32"),
    ] {
        c.job(options, &c.program("stacks"), &[kib]).succeed();
    }
}

/// A program of tests/c/programs that is not linked with the library.
fn without_library(name: &str, source: &str) -> PathBuf {
    let source = sources().join("programs").join(source);
    let words = [
        "-Wall",
        "-Wextra",
        "-Werror",
        source.to_str().unwrap(),
        "-ldl",
    ];
    CC.makes(&scratch().join("c-programs").join(name), words)
        .unwrap()
}

/// The program `host`, with or without the library, and a plugin that has a copy of the library inside.
fn host_and_plugin(c: &Toolchain) -> ([PathBuf; 2], PathBuf) {
    let source = |name: &str| sources().join("programs").join(name);
    let options = ["-fPIC", "-shared", "-static-libshmem", "-Wl,-Bsymbolic"];
    let plugin = c.make("libplugin.so", &[source("plugin.c")], &options);
    let with = c.make(
        "host-with",
        &[source("host.c")],
        &["-DWITH_LIBRARY", "-ldl"],
    );
    ([with, without_library("host-without", "host.c")], plugin)
}

#[test]
fn a_plugin_that_has_been_a_pe_can_be_closed() {
    let Some(c) = toolchain() else { return };
    let ([_, host], plugin) = host_and_plugin(c);
    for options in ["-np 1", "-np 2", "-np 2 --nodes 2"] {
        let words = [plugin.to_str().unwrap(), "plugin", "close"];
        let out = c.job(options, &host, &words).succeed();
        assert!(out.contains("done"), "{options}: {out}");
    }
}

/// One copy is the PE. The other says so, and leaves what belongs to the first alone.
#[test]
fn a_second_copy_of_the_library_is_refused() {
    let Some(c) = toolchain() else { return };
    let ([host, _], plugin) = host_and_plugin(c);
    for options in [
        "-np 2",
        "-np 2 --nodes 2",
        "-np 2 -x SHMEM_SPAWN=exec",
        "-np 2 --nodes 2 -x SHMEM_SPAWN=exec",
    ] {
        for words in [["init", "plugin", "barrier"], ["plugin", "init", "barrier"]] {
            let words = [&[plugin.to_str().unwrap()][..], &words].concat();
            let outcome = c.job(options, &host, &words).run();
            let err = &outcome.stderr;
            assert_eq!(
                outcome.status.code(),
                Some(1),
                "{options} {words:?}: {outcome:?}"
            );
            assert!(
                err.contains("another copy of the library"),
                "{options} {words:?}: {err}"
            );
        }
    }
}

/// Processes that share nothing but an id, which PE 0 makes and prints.
#[test]
fn an_id_makes_processes_a_job() {
    let Some(c) = toolchain() else { return };
    let program = c.program("by_id");
    let start = |rank: &str| {
        let job = Job::new(&program, "", &[rank, "3"]);
        job.stdin(Stdio::piped()).start()
    };
    let mut first = start("0");
    let mut said = BufReader::new(first.stdout());
    let mut id = String::new();
    said.read_line(&mut id).unwrap();
    let others = ["1", "2"].map(|rank| {
        let mut pe = start(rank);
        pe.stdin().write_all(id.as_bytes()).unwrap();
        pe
    });
    for (pe, rank) in others.into_iter().zip(1..) {
        let outcome = pe.wait();
        outcome.expect_success();
        assert_eq!(outcome.stdout, format!("PE {rank} of 3: ok\n"));
        let told = "shmemx_init_from_uniqueid: ";
        assert_eq!(outcome.stderr.matches(told).count(), 2, "{outcome:?}");
        assert!(outcome.stderr.contains("my_pe = -1"), "{outcome:?}");
    }
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "PE 0 of 3: ok\n");
    first.wait().expect_success();
}

/// A routine on an active set does nothing on PEs outside of it.
#[test]
fn outside_of_an_active_set_nothing_happens() {
    succeeds_everywhere("outside", "0 wrong on ");
}

/// Of a broadcast's source the root's address alone counts.
#[test]
fn broadcasts_need_no_source_but_the_roots() {
    succeeds_everywhere("rootless", "0 wrong on PE 0");
}

#[test]
fn volatile_objects_are_waited_for() {
    succeeds_everywhere("volatiles", "good 1");
    let Some(c) = toolchain() else { return };
    let source = sources().join("programs/volatiles_cxx.cpp");
    let program = c.make("volatiles_cxx", &[source], &[]);
    let out = c.job("-np 3 --nodes 2", &program, &[]).succeed();
    assert!(out.contains("good 1"), "{out}");
}

#[test]
fn start_pes_needs_no_end() {
    succeeds_everywhere("start_pes", "sum ");
}

#[test]
fn global_exit_gives_its_status() {
    let Some(c) = toolchain() else { return };
    let program = c.program("exits");
    for options in ["-np 1", "-np 4", "-np 4 --nodes 2"] {
        for status in ["0", "1", "42", "255"] {
            for who in ["one", "all", "blocked"] {
                let output = c.job(options, &program, &[status, who]).run();
                let said = output.stdout;
                let shown = format!("{options} {status} {who}: {said}{}", output.stderr);
                assert_eq!(output.status.code(), status.parse().ok(), "{shown}");
                // Where all end the job, the first one's end may be that of the others.
                if who != "all" {
                    // What was printed is not lost, and functions given to atexit run.
                    assert!(said.contains("said before the end"), "{shown}");
                    assert!(said.contains("cleaned up"), "{shown}");
                }
            }
        }
    }
}

/// There are no places of a C program, but names of routines.
#[test]
fn who_calls_something_else_is_named_with_the_routine() {
    let Some(c) = toolchain() else { return };
    let program = c.program("differ");
    let barrier = "shmem_barrier_all";
    let cases = [
        ("malloc-barrier", "shmem_malloc of 100 bytes", barrier),
        (
            "malloc",
            "shmem_malloc of 100 bytes",
            "shmem_malloc of 200 bytes",
        ),
        (
            "reduce",
            "shmem_int_sum_reduce of 8 bytes (2 i32)",
            "shmem_int_sum_reduce of 16 bytes (4 i32)",
        ),
        (
            "operation",
            "shmem_int_max_reduce of 4 bytes (1 i32) by Max",
            "shmem_int_sum_reduce of 4 bytes (1 i32) by Sum",
        ),
        (
            "broadcast-reduce",
            "shmem_int_broadcast of 4 bytes from PE 0",
            "shmem_int_sum_reduce of 4 bytes",
        ),
        (
            "root",
            "shmem_int_broadcast of 32 bytes from PE 1",
            "shmem_int_broadcast of 32 bytes from PE 0",
        ),
        ("finalize", "shmem_finalize", barrier),
        ("end", "finalize at the end of main", barrier),
    ];
    for (options, last) in [
        ("-np 2", "PE 1 (node 0)"),
        ("-np 2 --nodes 2", "PE 1 (node 1)"),
        ("-np 6 --nodes 3", "PE 5 (node 2)"),
    ] {
        for (case, does, others) in cases {
            let job = c.job(options, &program, &[case]).env("SHMEM_CHECK", "1");
            let out = job.run();
            let err = &out.stderr;
            assert_eq!(out.status.code(), Some(1), "{options} {case}: {err}");
            let first = [
                format!("shmem: {last}: this PE is in {does}"),
                format!(", but {last} is in {does}"),
            ];
            assert!(
                first.iter().any(|first| err.contains(first)),
                "{options} {case}: {err}"
            );
            let then = [
                format!("this PE is in {others}"),
                format!(") is in {others}"),
            ];
            assert!(
                then.iter().any(|then| err.contains(then)),
                "{options} {case}: {err}"
            );
            assert!(!err.contains(".rs"), "{options} {case}: {err}");
        }
        for (case, check) in [("permitted", "1"), ("malloc", "0"), ("operation", "0")] {
            let job = c.job(options, &program, &[case]).env("SHMEM_CHECK", check);
            let out = job.run();
            let shown = format!("{options} {case}: {out:?}");
            assert_eq!((out.code(), &*out.stdout), (0, "went on\n"), "{shown}");
            assert_eq!(out.stderr, "", "{shown}");
        }
    }
}

#[test]
fn mistakes_are_named() {
    let Some(c) = toolchain() else { return };
    let program = c.program("mistakes");
    let mistakes: [(&str, &[&str]); 13] = [
        ("before-init", &["shmem_long_p", "shmem_init"]),
        ("stack", &["shmem_long_put", "stack"]),
        ("malloc", &["shmem_long_get", "not symmetric"]),
        ("constant", &["shmem_long_g", "not symmetric"]),
        ("null", &["shmem_long_p", "NULL"]),
        ("pe", &["shmem_long_p", "PE 2"]),
        ("negative-pe", &["shmem_long_atomic_inc", "-1"]),
        ("misaligned", &["shmem_long_atomic_inc", "align"]),
        ("comparison", &["shmem_long_wait_until", "99"]),
        ("free", &["shmem_free"]),
        ("past-the-heap", &["shmem_putmem", "past its end"]),
        ("stride", &["shmem_long_iput", "sst = 0"]),
        ("wide-stride", &["shmem_long_iput", "so far apart"]),
    ];
    for (mistake, words) in mistakes {
        let output = c.job("-np 2", &program, &[mistake]).run();
        let said = output.stderr;
        assert!(!output.status.success(), "{mistake}: {said}");
        // An abort of the library's, with its message; no crash.
        assert!(
            output.status.code().is_some_and(|s| s != 139),
            "{mistake}: {said}"
        );
        for word in words {
            let found = said.to_lowercase().contains(&word.to_lowercase());
            assert!(found, "{mistake}: no `{word}` in\n{said}");
        }
    }
    let output = c.job("-np 2", &program, &["twice"]).run();
    assert!(!output.status.success(), "{}", output.stderr);
}

/// A heap that is too small is no mistake: NULL for the program, and for the user what to do.
#[test]
fn an_exhausted_heap_names_the_variable() {
    let Some(c) = toolchain() else { return };
    let job = c.job("-np 2", &c.program("mistakes"), &["exhausted"]);
    let output = job.env("SHMEM_SYMMETRIC_SIZE", "1m").run();
    let said = output.stderr;
    assert!(output.status.success(), "{said}");
    assert_eq!(output.stdout.matches("went on").count(), 2);
    assert!(said.contains("SHMEM_SYMMETRIC_SIZE"), "{said}");
}

/// Memory is taken when touched, so large heaps start at once.
#[test]
fn large_heaps() {
    let Some(c) = toolchain() else { return };
    let program = c.program("large");
    for options in ["-np 64", "-np 64 --nodes 4"] {
        let job = c.job(options, &program, &["1000000000"]);
        let out = job.env("SHMEM_SYMMETRIC_SIZE", "1g").succeed();
        assert!(out.contains("1000000000 bytes on each of 64 PEs"), "{out}");
    }
}

#[test]
fn examples() {
    let Some(c) = toolchain() else { return };
    let example = |name: &str| {
        let source = sources().join(format!("../../examples/c/{name}.c"));
        c.make(&format!("example-{name}"), &[source], &[])
    };
    let run = |options: &str, name: &str| c.job(options, &example(name), &[]).succeed();
    for options in LAYOUTS {
        let n: usize = options.split(' ').nth(1).unwrap().parse().unwrap();
        let mut lines: Vec<_> = run(options, "hello").lines().map(str::to_owned).collect();
        lines.sort();
        let want: Vec<_> = (0..n)
            .map(|pe| format!("Hello from PE {pe} of {n}"))
            .collect();
        assert_eq!(lines, want, "{options}");
        let out = run(options, "ring");
        assert!(
            out.contains(&format!("the token came back after {n} PEs")),
            "{out}"
        );
        let out = run(options, "matrix");
        assert!(out.contains("the product is right"), "{out}");
    }
}

/// Programs that the wrapper linked are started from a template, as Rust programs are.
#[test]
fn programs_of_the_wrapper_can_be_templates() {
    let Some(c) = toolchain() else { return };
    let job: Job = c.job(
        "-np 4 --nodes 2 -x SHMEM_SPAWN=template",
        &c.program("large"),
        &["100"],
    );
    assert!(job.succeed().contains("100 bytes"));
}

/// The launcher cannot see what a wrapper starts: it leaves room where that costs nothing. Where it would, who uses
/// static variables is told what to set, and with that all is well.
#[test]
fn programs_behind_wrappers_have_room_for_static_data() {
    let Some(c) = toolchain() else { return };
    let source = sources().join("../../examples/c/ring.c");
    let ring = c.make("example-ring-wrapped", &[source], &[]);
    let ring = ring.to_str().unwrap();
    for options in ["-np 2", "-np 4 --nodes 2"] {
        let script = format!("exec {ring}");
        for (wrapper, arguments) in [("/usr/bin/env", &[ring][..]), ("/bin/sh", &["-c", &script])] {
            let out = c.job(options, Path::new(wrapper), arguments).succeed();
            assert!(out.contains("the token came back"), "{out}");
        }
        let job = |options: &str| {
            let job = c.job(options, Path::new("/usr/bin/env"), &[ring]);
            job.env("SHMEM_HEAP_COMMIT", "reserve")
                .env("SHMEM_SYMMETRIC_SIZE", "16m")
        };
        let output = job(options).run();
        let said = output.stderr;
        assert!(!output.status.success(), "{said}");
        let hint = said.split_once("SHMEM_STATICS_SIZE=").map(|(_, rest)| rest);
        let enough: String = hint
            .unwrap_or_else(|| panic!("no hint in {said}"))
            .chars()
            .take_while(char::is_ascii_alphanumeric)
            .collect();
        let out = job(options).env("SHMEM_STATICS_SIZE", &enough).succeed();
        assert!(out.contains("the token came back"), "{out}");
    }
}

/// A program that calls nothing of the library is started as often as was asked, like any other.
#[test]
fn programs_without_calls_run() {
    let Some(c) = toolchain() else { return };
    let source = sources().join("programs/nothing.c");
    for (name, flags) in [
        ("nothing", &[][..]),
        ("nothing-as-needed", &["-Wl,--as-needed"]),
        ("nothing-archive", &["-static-libshmem"]),
    ] {
        let program = c.make(name, std::slice::from_ref(&source), flags);
        let out = c.job("-np 3 --nodes 2", &program, &[]).succeed();
        assert_eq!(out.matches("nothing to do").count(), 3, "{name}: {out}");
    }
}
