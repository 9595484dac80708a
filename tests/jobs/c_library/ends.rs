//! How C programs end: by returning from `main`, with `shmem_finalize` or without, or in failure.

use super::toolchain::toolchain;

const LAYOUTS: [&str; 6] = [
    "-np 1",
    "-np 2",
    "-np 5",
    "-np 2 --nodes 2",
    "-np 5 --nodes 2",
    "-np 4 --nodes 4",
];

/// Returning from `main` finalizes: what is under way arrives, and nobody is told off.
#[test]
fn returning_from_main_finalizes() {
    let Some(c) = toolchain() else { return };
    let program = c.program("returns");
    for how in ["all", "some", "nested", "twice", "exit", "child", "again"] {
        for options in LAYOUTS {
            let output = c.job(options, &program, &[how]).run();
            let said = output.stderr;
            assert!(output.status.success(), "{options} {how}: {said}");
            assert_eq!(said, "", "{options} {how}");
        }
    }
}

/// Who fails does not wait for the others, and those who wait for it lose nothing that they said.
#[test]
fn failing_is_not_returning() {
    let Some(c) = toolchain() else { return };
    let program = c.program("returns");
    for (how, status) in [("status", 7), ("killed", 128 + 9)] {
        for options in ["-np 2", "-np 5 --nodes 2"] {
            let output = c.job(options, &program, &[how]).run();
            let (out, err) = (output.stdout, output.stderr);
            assert_eq!(output.status.code(), Some(status), "{options} {how}: {err}");
            assert!(out.contains("PE 0 is done"), "{options} {how}: {out}{err}");
        }
    }
}
