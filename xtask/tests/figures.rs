//! A figure from the command line to the page, the plots and the samples.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// With what this test was built: all that is measured is there then.
const PROFILE: &str = if cfg!(debug_assertions) {
    "dev"
} else {
    "release"
};

fn figures(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command
        .args(["figures", "--profile", PROFILE])
        .args(arguments);
    command.output().expect("xtask runs")
}

fn scratch() -> PathBuf {
    let dir =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("figures-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    dir
}

/// Has cargo build all that is measured, which takes minutes.
#[test]
#[ignore = "nightly: cargo builds programs for minutes"]
fn a_figure_is_measured_and_drawn() {
    let dir = scratch();
    let out = dir.to_str().expect("a path in UTF-8");
    // A rival that starts nobody, and one that fails: it is left out.
    let rivals = ["--vs", "sleep 0.0{n}", "--vs", "exit 3"];
    let small = [
        "init", "--quick", "--rounds", "2", "--most", "4", "--out", out,
    ];
    let ended = figures(&[&small[..], &rivals].concat());
    assert!(ended.status.success(), "{ended:?}");

    let read = |name: &str| {
        let path = dir.join(name);
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    let page = read("init.md");
    for part in [
        "A quick run",
        "| 4 |",
        "sleep 0.0{n}",
        "`exit 3` is left out",
        "| commit |",
    ] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    for picture in ["wall", "hello", "parts-static", "parts-on-demand"] {
        let file = format!("init-{picture}.svg");
        assert!(page.contains(&file), "{page}");
        assert!(read(&file).starts_with("<svg "), "{file}");
    }
    let samples = read("init.jsonl");
    assert!(samples.starts_with("{\"commit\":"), "{samples}");
    let kept = |series: &str| {
        let of = |line: &&str| line.contains(series) && line.contains("\"quantity\":\"hello");
        samples.lines().filter(of).count()
    };
    // Two rounds; what warms up is not kept.
    assert_eq!(
        [kept("\"static\""), kept("\"on demand\""), kept("sleep")],
        [2, 2, 2],
        "{samples}"
    );
    assert!(read("README.md").contains("[`init`](init.md)"));
    fs::remove_dir_all(&dir).expect("it is ours");
}

#[test]
#[ignore = "nightly: cargo builds programs for a minute"]
fn mistakes_are_told_and_figures_listed() {
    let list = figures(&["--list"]);
    assert!(list.status.success(), "{list:?}");
    assert!(
        String::from_utf8_lossy(&list.stdout).contains("not measured: "),
        "{list:?}"
    );
    let unknown = figures(&["innit"]);
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(
        !unknown.status.success() && said.contains("there are init, "),
        "{said}"
    );
}
