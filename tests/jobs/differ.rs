//! PEs that do not call the same collective: with `SHMEM_CHECK` they are told so at once, each with what it
//! calls and where in the program, on one node and between nodes; without it nobody looks.

use std::path::Path;

use shmem_testkit::Outcome;

use crate::programs::{DIFFER, shmrun};

/// On each the last PE differs, and one between others. Nodes have as many PEs as they can have alike, the first
/// ones one more.
const LAYOUTS: [(&str, usize, usize); 7] = [
    ("-n 2", 2, 1),
    ("-n 5", 5, 1),
    ("-n 2 --nodes 2", 2, 2),
    ("-n 5 --nodes 2", 5, 2),
    ("-n 3 --nodes 3", 3, 3),
    ("-n 6 --nodes 3", 6, 3),
    ("-n 40", 40, 1),
];

/// A case of the program, and what the one PE and another one are told to be in.
type Case = (&'static str, &'static str, &'static str);

const CASES: [Case; 32] = [
    (
        "alloc",
        "alloc of 4 bytes (1 u32)",
        "alloc of 8 bytes (2 u32)",
    ),
    (
        "alignment",
        "alloc of 100 bytes (100 u8), aligned to 256",
        "alloc of 100 bytes (100 u8), aligned to 1",
    ),
    (
        "realloc",
        "realloc to 800 bytes (100 u64) of the block at offset 0x",
        "realloc to 1600 bytes (200 u64) of the block at offset 0x",
    ),
    (
        "free",
        "free of the block at offset 0x",
        "free of the block at offset 0x",
    ),
    ("alloc-barrier", "alloc of 8 bytes (1 u64)", "barrier_all"),
    (
        "free-barrier",
        "free of the block at offset 0x",
        "barrier_all",
    ),
    (
        "realloc-barrier",
        "realloc to 8 bytes (1 u64)",
        "barrier_all",
    ),
    (
        "split-barrier",
        "a split of 1 members from 0 on, 1 apart",
        "barrier_all",
    ),
    ("sync-barrier", "sync_all", "barrier_all"),
    (
        "reduce",
        "a reduction of 16 bytes (2 u64) by Sum",
        "a reduction of 32 bytes (4 u64) by Sum",
    ),
    (
        "long-reduce",
        "a reduction of 8 bytes (1 u64) by Sum",
        "a reduction of ",
    ),
    (
        "operation",
        "a reduction of 8 bytes (1 u64) by Max",
        "a reduction of 8 bytes (1 u64) by Sum",
    ),
    (
        "broadcast-reduce",
        "a broadcast of 16 bytes (2 u64) from PE 0",
        "a reduction of 16 bytes (2 u64) by Sum",
    ),
    (
        "root",
        "a broadcast of 32 bytes (4 u64) from PE 1",
        "a broadcast of 32 bytes (4 u64) from PE 0",
    ),
    (
        "type",
        "a broadcast of 8 bytes (2 u32) from PE 0",
        "a broadcast of 8 bytes (2 f32) from PE 0",
    ),
    (
        "array",
        "fcollect of 8 bytes (1 u64) from the array at offset 0x",
        "fcollect of 8 bytes (1 u64) from the array at offset 0x",
    ),
    (
        "nothing",
        "a reduction of 0 bytes (0 u64) by Sum",
        "a reduction of 8 bytes (1 u64) by Sum",
    ),
    (
        "scan",
        "an inclusive scan of 8 bytes (1 u64)",
        "an exclusive scan of 8 bytes (1 u64)",
    ),
    (
        "alltoall",
        "alltoall of blocks of 16 bytes (2 u64)",
        "alltoall of blocks of 32 bytes (4 u64)",
    ),
    (
        "stride",
        "alltoall of blocks of 24 bytes (3 u64), in pieces of 8 bytes that are 16 bytes apart in dest",
        "alltoall of blocks of 24 bytes (3 u64), in pieces of 8 bytes that are 8 bytes apart in dest",
    ),
    (
        "collect-fcollect",
        "collect of u64",
        "fcollect of 8 bytes (1 u64)",
    ),
    (
        "collect-elsewhere",
        "collect of u64 into the array at offset 0x",
        "collect of u64 into the array at offset 0x",
    ),
    (
        "all-gather",
        "all_gather of 8 bytes (1 u64)",
        "all_gather of 8 bytes (1 f64)",
    ),
    (
        "gather-all-gather",
        "gather of 8 bytes (1 u64) to PE 0",
        "all_gather of 8 bytes (1 u64)",
    ),
    (
        "slice",
        "a reduction of 24 bytes (3 f64) by Sum",
        "a reduction of 32 bytes (4 f64) by Sum",
    ),
    (
        "scatter-broadcast",
        "scatter of u8 from PE 0",
        "a broadcast of u8 from PE 0",
    ),
    (
        "alloc-in-alltoallv",
        "alloc of 64 bytes (SymSlice<u32>)",
        "alloc of 64 bytes (SymSlice<f32>)",
    ),
    (
        "split",
        "a split of 2 members from 0 on, 1 apart",
        "a split of 1 members from 1 on, 1 apart",
    ),
    (
        "split-2d",
        "a split into rows of 1",
        "a split into rows of 2",
    ),
    ("team", "a barrier", "a sync"),
    ("finalize", "finalize", "barrier_all"),
    ("end", "finalize at the end of main", "barrier_all"),
];

fn run(options: &str, case: &str, odd: usize, check: Option<&str>) -> Outcome {
    let job = shmrun(options, &[DIFFER, case, &odd.to_string()]);
    let job = job.env("SHMEM_SYMMETRIC_SIZE", "4M");
    match check {
        Some(check) => job.env("SHMEM_CHECK", check),
        None => job,
    }
    .run()
}

fn node_of(pe: usize, n: usize, nodes: usize) -> usize {
    let (each, more) = (n / nodes, n % nodes);
    match pe < more * (each + 1) {
        true => pe / (each + 1),
        false => more + (pe - more * (each + 1)) / each,
    }
}

/// What a message says that a PE does: from behind the PE's name to the name of the next PE. The PE that reports does not
/// repeat its own name.
fn deed<'a>(line: &'a str, pe: &str) -> Option<&'a str> {
    let (_, deed) = line
        .split_once(&format!("shmem: {pe}: this PE is in "))
        .or_else(|| line.split_once(&format!(", but {pe} is in ")))?;
    let end = deed
        .find(", but PE ")
        .or_else(|| deed.find(": all members of "));
    Some(&deed[..end?])
}

/// The line of the program to which a deed is told to belong.
fn line_at(deed: &str) -> Option<String> {
    let (_, place) = deed.split_once(" at tests/programs/differ.rs:")?;
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/differ.rs");
    let program = std::fs::read_to_string(program).expect("the program's source");
    let line: usize = place.parse().ok()?;
    Some(program.lines().nth(line - 1)?.trim().to_owned())
}

/// The PE and somebody else are told with what they do, and where.
#[track_caller]
fn told((case, does, others): Case, (options, n, nodes): (&str, usize, usize), odd: usize) {
    let outcome = run(options, case, odd, Some("1"));
    let err = &outcome.stderr;
    let shown = format!("{options} {case} {odd}: {err}{}", outcome.stdout);
    assert_eq!(outcome.status.code(), Some(1), "{shown}");
    let said = "must call the same collectives in the same order with matching arguments";
    let line = err.lines().find(|line| line.contains(said));
    let line = line.unwrap_or_else(|| panic!("{shown}"));
    let name = |pe: usize| format!("PE {pe} (node {})", node_of(pe, n, nodes));
    let mine = deed(line, &name(odd)).unwrap_or_else(|| panic!("{shown}"));
    assert!(mine.starts_with(does), "{shown}");
    let mut theirs = (0..n).filter(|&pe| pe != odd);
    let theirs = theirs.find_map(|pe| deed(line, &name(pe)));
    let theirs = theirs.unwrap_or_else(|| panic!("{shown}"));
    assert!(theirs.starts_with(others), "{shown}");
    assert_ne!(mine, theirs, "{shown}");
    let calls = theirs
        .split_once(' ')
        .map_or(theirs, |(first, rest)| match first {
            "a" | "an" => rest,
            _ => first,
        });
    // The source has, in that place, what is called: by its name, or by a part of it.
    let found = line_at(theirs).unwrap_or_else(|| panic!("{shown}"));
    let stem = |words: &str| words.chars().take(4).collect::<String>();
    let called = [stem(calls), "scan".into()]
        .iter()
        .any(|stem| found.contains(stem));
    assert!(called, "{found}: {shown}");
    if case == "end" {
        assert_eq!(mine, does, "{shown}");
    } else {
        let mine = line_at(mine).unwrap_or_else(|| panic!("{shown}"));
        assert_ne!(mine, found, "{shown}");
    }
}

#[test]
fn who_differs_is_told_on_one_node_and_between_nodes() {
    for case in CASES {
        for layout in &LAYOUTS[..6] {
            told(case, *layout, layout.1 - 1);
        }
    }
}

#[test]
fn whoever_it_is_is_told() {
    for layout in LAYOUTS {
        for odd in (0..layout.1).step_by(layout.1.div_ceil(6)) {
            told(CASES[0], layout, odd);
            told(CASES[9], layout, odd);
        }
    }
}

/// However they wait.
#[test]
fn who_differs_is_told_where_pes_poll_and_where_they_sleep() {
    for spin in ["0", "1000"] {
        for options in ["-n 3", "-n 4 --nodes 2"] {
            let job = shmrun(options, &[DIFFER, "alloc-barrier", "1"]);
            let outcome = job.env("SHMEM_SPIN", spin).env("SHMEM_CHECK", "yes").run();
            assert_eq!(outcome.status.code(), Some(1), "{options}: {outcome:?}");
            let err = &outcome.stderr;
            let deed = err.lines().find_map(|line| deed(line, "PE 1 (node 0)"));
            let deed = deed.unwrap_or_else(|| panic!("{options}: {err}"));
            let said = "alloc of 8 bytes (1 u64) at tests/programs/differ.rs:";
            assert!(deed.starts_with(said), "{options}: {err}");
        }
    }
}

#[test]
fn debug_builds_look_without_being_asked() {
    for options in ["-n 2", "-n 3 --nodes 3"] {
        let outcome = run(options, "alloc", 1, None);
        let found = cfg!(debug_assertions);
        assert_eq!(outcome.status.code() == Some(1), found, "{outcome:?}");
        assert_eq!(outcome.stderr.contains("PE 1 (node "), found, "{outcome:?}");
    }
}

/// These end all the same, and nobody is told of it.
#[test]
fn who_is_not_to_look_does_not() {
    for options in ["-n 2", "-n 3 --nodes 3", "-n 6 --nodes 3"] {
        for case in ["alloc", "operation", "sync-barrier"] {
            let outcome = run(options, case, 1, Some("0"));
            assert_eq!(
                outcome.status.code(),
                Some(0),
                "{options} {case}: {outcome:?}"
            );
            assert_eq!(outcome.stdout, "went on\n", "{options} {case}");
            assert_eq!(outcome.stderr, "", "{options} {case}");
        }
    }
}

#[test]
fn what_is_permitted_is_not_told() {
    for options in [
        "-n 1",
        "-n 2",
        "-n 5",
        "-n 3 --nodes 3",
        "-n 6 --nodes 3",
        "-n 40 --nodes 2",
    ] {
        let outcome = run(options, "permitted", 0, Some("1"));
        assert_eq!(outcome.status.code(), Some(0), "{options}: {outcome:?}");
        assert_eq!(outcome.stderr, "", "{options}");
    }
}
