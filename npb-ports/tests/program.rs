//! The programs as users start them. Only what happens before a job is joined: runs in jobs are
//! tested where there is a launcher.

use std::process::{Command, Output};

fn ep(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_npb-ep"))
        .args(args)
        .output()
        .expect("npb-ep starts")
}

#[test]
fn wrong_command_lines_have_a_status_of_their_own() {
    for (args, message) in [
        (&["Z"][..], "no problem class `Z`"),
        (&["A", "--class", "B"], "cannot be used with"),
        (&["--simd", "mmx"], "this processor has baseline"),
        (&["--frobnicate"], "unexpected argument '--frobnicate'"),
    ] {
        let output = ep(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.contains(message), "{args:?}: {error}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn help_names_every_option() {
    let output = ep(&["--help"]);
    let help = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    for word in ["Usage: npb-ep", "CLASS", "--class", "--json", "--simd"] {
        assert!(help.contains(word), "no {word} in {help}");
    }
}
