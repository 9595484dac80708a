//! The program as users start it, without a launcher: a job of one PE. Larger ones are tested where there is a launcher.

use std::process::{Command, Output};

fn graph500(line: &str, env: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_graph500"))
        .args(line.split_whitespace())
        .envs(env.iter().copied())
        .output()
        .expect("the program")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn values_are_those_of_the_reference() {
    for algorithm in ["top-down", "direction-optimising"] {
        for scale in [10, 14] {
            let output = graph500(&format!("{scale} --check --algorithm {algorithm}"), &[]);
            let (out, said) = (text(&output.stdout), text(&output.stderr));
            assert!(output.status.success(), "{said}");
            assert!(
                said.contains("All values are those of the reference."),
                "{said}"
            );
            assert!(said.contains("Validate time for BFS 63 is "), "{said}");
            assert!(out.starts_with(&format!("SCALE:                          {scale}\n")));
            assert!(out.contains("\nNBFS:                           64\n"));
            assert!(out.contains("\nbfs  harmonic_mean_TEPS:     !  "));
        }
    }
}

#[test]
fn values_of_a_larger_scale_are_those_of_the_reference() {
    let output = graph500("16 --check", &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
#[ignore = "nightly: a graph of a quarter of a million vertices"]
fn values_of_the_largest_known_scale_are_those_of_the_reference() {
    let output = graph500("18 --check", &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn wrong_command_lines_have_a_status_of_their_own() {
    for (line, message) in [
        ("", "<SCALE>"),
        ("0", "0 is not in 1..=31"),
        ("10 --frobnicate", "unexpected argument '--frobnicate'"),
        ("12 --check", "--check knows SCALE 10, 14, 16 and 18"),
    ] {
        let output = graph500(line, &[]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains(message), "{line}: {said}");
        assert!(output.stdout.is_empty(), "{line}");
    }
}

#[test]
fn variables_of_the_reference_are_known() {
    let output = graph500("10 --quiet", &[("SKIP_BFS", "1")]);
    assert!(output.status.success());
    assert_eq!(text(&output.stdout).lines().count(), 6);
    assert!(output.stderr.is_empty());
    let output = graph500("10 --roots 2 --json -", &[("SKIP_VALIDATION", "1")]);
    let out = text(&output.stdout);
    assert!(out.contains("\"validate\":null}]}"), "{out}");
    assert_eq!(out.lines().count(), 1);
    assert!(!text(&output.stderr).contains("Validating"));
}

#[test]
fn what_does_not_fit_is_told_before_it_is_made() {
    let small = graph500("20", &[("SHMEM_SYMMETRIC_SIZE", "1m")]);
    let said = text(&small.stderr);
    assert_eq!(small.status.code(), Some(1), "{said}");
    assert!(said.contains("SCALE 20 on 1 PEs needs "), "{said}");
    assert!(said.contains("set SHMEM_SYMMETRIC_SIZE="), "{said}");
    let large = graph500("31", &[("SHMEM_SYMMETRIC_SIZE", "64g")]);
    let said = text(&large.stderr);
    assert_eq!(large.status.code(), Some(1), "{said}");
    assert!(
        said.contains("iB of memory on a machine with 1 of the PEs"),
        "{said}"
    );
}

#[test]
#[cfg(target_os = "linux")]
fn results_that_cannot_be_written_are_a_failure() {
    let full = std::fs::File::create("/dev/full").expect("a full device");
    let output = Command::new(env!("CARGO_BIN_EXE_graph500"))
        .args(["10", "--roots", "1"])
        .stdout(full)
        .output()
        .expect("the program");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("cannot write the results to standard output"),
        "{said}"
    );
    let output = graph500("10 --roots 1 --json /nowhere/results", &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot write the results to /nowhere/results"));
    assert!(text(&output.stdout).contains("harmonic_mean_TEPS"));
}

#[test]
#[cfg(target_os = "linux")]
fn words_that_cannot_be_written_are_no_failure() {
    let full = std::fs::File::create("/dev/full").expect("a full device");
    let output = Command::new(env!("CARGO_BIN_EXE_graph500"))
        .args(["10", "--roots", "1"])
        .stderr(full)
        .output()
        .expect("the program");
    assert!(output.status.success());
    assert!(text(&output.stdout).contains("harmonic_mean_TEPS"));
}
