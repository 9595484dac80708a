//! The programs as users start them, without a launcher: jobs of one PE. Larger ones are tested where
//! there is a launcher.

use npb_ports::cpu::Level;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Every program of this package, built by cargo before this test.
fn programs() -> Vec<PathBuf> {
    let built = Path::new(env!("CARGO_BIN_EXE_npb-ep"));
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin");
    let found: Vec<_> = sources
        .read_dir()
        .expect("the programs' sources")
        .map(|entry| built.with_file_name(entry.expect("a name").path().file_stem().expect("one")))
        .collect();
    assert!(found.iter().any(|program| program == built), "{found:?}");
    found
}

fn run(program: &Path, args: &[&str]) -> Output {
    Command::new(program)
        .args(args)
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()))
}

#[test]
fn wrong_command_lines_have_a_status_of_their_own() {
    for program in programs() {
        for (args, message) in [
            (&["Z"][..], "no problem class `Z`"),
            (&["A", "--class", "B"], "cannot be used with"),
            (&["--simd", "mmx"], "this processor has baseline"),
            (&["--frobnicate"], "unexpected argument '--frobnicate'"),
        ] {
            let output = run(&program, args);
            let error = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
            assert!(error.contains(message), "{args:?}: {error}");
            assert!(output.stdout.is_empty(), "{args:?}");
        }
    }
}

#[test]
fn help_names_every_option() {
    for program in programs() {
        let output = run(&program, &["--help"]);
        let help = String::from_utf8_lossy(&output.stdout);
        let name = program.file_name().expect("a program").to_string_lossy();
        assert!(output.status.success());
        let usage = format!("Usage: {name} ");
        let start = format!("shmrun -n 4 {name} A");
        for word in [&usage, &start, "CLASS", "--class", "--json", "--simd"] {
            assert!(help.contains(word), "no {word} in {help}");
        }
    }
}

/// On a full disk, the report is lost, which a script must learn.
#[test]
#[cfg(target_os = "linux")]
fn a_report_that_cannot_be_written_is_a_failure() {
    let full = || std::fs::File::create("/dev/full").expect("a full device");
    for program in programs() {
        let output = Command::new(&program)
            .args(["S", "--json"])
            .stdout(full())
            .output()
            .expect("a program");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("cannot print the report"), "{error}");
    }
}

/// Verification of `class` by some of the benchmarks, with each kind of vector instructions.
fn verify(kernels: &[&str], class: &str) {
    for kernel in kernels {
        for level in Level::supported() {
            let program = Path::new(env!("CARGO_BIN_EXE_npb-ep")).with_file_name(kernel);
            let output = run(&program, &[class, "--json", "--simd", level.name()]);
            let said = String::from_utf8_lossy(&output.stderr);
            let report = String::from_utf8_lossy(&output.stdout);
            let verified = output.status.success() && report.contains("\"verified\":true");
            assert!(verified, "{kernel} {class}, {level}: {said}{report}");
        }
    }
}

// Two, which take as long and run side by side.

#[test]
#[ignore = "many seconds, with --release"]
fn flows_of_class_w_verify_at_every_level() {
    verify(&["npb-bt", "npb-lu", "npb-sp"], "W");
}

#[test]
#[ignore = "many seconds, with --release"]
fn kernels_of_class_a_verify_at_every_level() {
    verify(&["npb-cg", "npb-ep", "npb-ft", "npb-is", "npb-mg"], "A");
}
