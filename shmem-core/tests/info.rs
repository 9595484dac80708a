//! The real `shmem-info`, on whatever machine this is.

use std::process::{Command, Output};

fn info(args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shmem-info"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SHMEM_")) {
        command.env_remove(name);
    }
    command.args(args).envs(env.iter().copied());
    command.output().expect("shmem-info starts")
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// The value of `"name"` in the report: the rest of its line.
fn field<'a>(json: &'a str, name: &str) -> &'a str {
    let key = format!("\"{name}\": ");
    let line = json
        .lines()
        .map(str::trim)
        .find_map(|l| l.strip_prefix(&key));
    line.unwrap_or_else(|| panic!("{name} in {json}"))
        .trim_end_matches(',')
}

#[test]
fn it_tells_of_the_build_and_of_the_software_hca_anywhere() {
    let text = said(&info(&[], &[]));
    for part in [
        env!("CARGO_PKG_VERSION"),
        "A PE here uses",
        "software HCA: always there",
        // Found, or why not: this build can use devices.
        "libibverbs: ",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(
        !text.contains("Settings that are not the defaults"),
        "{text}"
    );
}

#[test]
fn settings_that_are_not_the_defaults_are_shown() {
    let env = [
        ("SHMEM_HCA", "soft"),
        ("SHMEM_INIT_TIMEOUT", "5m"),
        ("SMA_SYMMETRIC_SIZE", "1g"),
    ];
    let text = said(&info(&[], &env));
    assert!(text.contains("  SHMEM_HCA=soft\n"), "{text}");
    assert!(text.contains("  SMA_SYMMETRIC_SIZE=1g\n"), "{text}");
    assert!(
        !text.contains("SHMEM_INIT_TIMEOUT"),
        "5m is the default: {text}"
    );
    assert!(
        text.contains("the software HCA: the settings say so"),
        "{text}"
    );
}

#[test]
fn a_setting_that_cannot_be_used_is_named_and_hides_nothing() {
    let text = said(&info(&[], &[("SHMEM_INIT_TIMEOUT", "long")]));
    assert!(
        text.contains("SHMEM_INIT_TIMEOUT=long: not a number"),
        "{text}"
    );
    assert!(text.contains("software HCA: always there"), "{text}");
}

#[test]
fn the_report_for_programs_tells_the_same() {
    let json = said(&info(&["--json"], &[("SHMEM_HCA", "soft")]));
    assert_eq!(field(&json, "kind"), "\"soft\"");
    assert_eq!(
        field(&json, "version"),
        format!("\"{}\"", env!("CARGO_PKG_VERSION"))
    );
    let devices = match std::fs::read_dir("/sys/class/infiniband") {
        Ok(entries) => entries.count(),
        Err(_) => 0,
    };
    assert_eq!(json.matches("\"guid\": ").count(), devices, "{json}");
}

#[test]
fn a_device_that_is_not_there_is_an_error_with_its_reason() {
    let json = said(&info(&["--json"], &[("SHMEM_HCA", "no_such_device:7")]));
    assert_eq!(field(&json, "kind"), "\"error\"");
    let why = field(&json, "why");
    assert!(
        why.contains("SHMEM_HCA=no_such_device:7 cannot be had"),
        "{why}"
    );
}

/// Whatever devices there are, each PE takes one, or the software HCA.
#[test]
fn the_table_of_devices_says_who_takes_what() {
    let text = said(&info(
        &["--devices", "--pes", "3"],
        &[("SHMEM_HCA", "soft")],
    ));
    let mut lines = text.lines();
    let head = lines.next().expect("a heading");
    assert!(head.contains("as for 3 PEs"), "{head}");
    let soft = lines.find(|line| line.starts_with("software HCA"));
    let soft = soft.unwrap_or_else(|| panic!("{text}"));
    assert!(soft.ends_with("PEs 0,1,2: the settings say so"), "{soft}");
    let missing = [("SHMEM_HCA", "no_such_device")];
    let text = said(&info(&["--devices"], &missing));
    let soft = text.lines().find(|line| line.starts_with("software HCA"));
    assert!(
        soft.is_some_and(|line| line.ends_with("not used")),
        "{text}"
    );
    for pes in ["0", "many", "-1"] {
        let output = info(&["--pes", pes], &[]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
}

#[test]
fn what_is_no_option_is_refused() {
    let output = info(&["--jason"], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--jason is not an option"));
    use std::os::unix::ffi::OsStrExt;
    let no_text = std::ffi::OsStr::from_bytes(b"--\xff");
    let mut command = Command::new(env!("CARGO_BIN_EXE_shmem-info"));
    let output = command.arg(no_text).output().expect("shmem-info starts");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(said(&info(&["--version"], &[])).starts_with("shmem-info "));
    assert!(said(&info(&["--help"], &[])).contains("SHMEM_HCA"));
}

#[test]
fn ids_are_made_and_not_shown_among_settings() {
    let made = info(&["--make-id", "[fe80::1]:4711"], &[]);
    assert!(made.status.success(), "{made:?}");
    let text = said(&made);
    let id: shmem::UniqueId = text.parse().unwrap();
    assert!(format!("{id:?}").contains("at [fe80::1]:4711"), "{id:?}");
    let shown = info(&["--settings"], &[("SHMEM_UNIQUE_ID", text.trim())]);
    let shown = said(&shown);
    assert!(
        shown.contains("SHMEM_UNIQUE_ID=(withheld)  (environment)"),
        "{shown}"
    );
    for args in [&["--settings"][..], &[], &["--json"]] {
        let shown = said(&info(args, &[("SHMEM_UNIQUE_ID", text.trim())]));
        assert!(!shown.contains(&text.trim()[20..60]), "{shown}");
        assert!(shown.contains("(withheld)"), "{shown}");
    }
    for wrong in [
        "",
        "node1",
        "node1:",
        "node1:65536",
        "node1:0",
        ":4711",
        "a b:1",
    ] {
        let refused = info(&["--make-id", wrong], &[]);
        assert!(!refused.status.success(), "{wrong}: {refused:?}");
        assert!(!refused.stderr.is_empty());
    }
}
