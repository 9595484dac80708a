//! Where and of what samples were taken: figures without that cannot be compared later.

use std::fs;
use std::process::{Command, Stdio};

/// First line that a command prints, if it succeeds.
pub fn first_line(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()
        .filter(|o| o.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().map(|line| line.trim().to_owned())
}

/// The machine, its load now, and the commit of the checkout that this program was built in: one
/// `name: value` a line.
pub fn about() -> String {
    let unknown = || "unknown".to_owned();
    let commit = [
        "-C",
        env!("CARGO_MANIFEST_DIR"),
        "describe",
        "--always",
        "--dirty",
        "--abbrev=40",
        "--exclude=*",
    ];
    let processor = fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| field(&text, "model name"));
    let memory = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| field(&text, "MemTotal"));
    let load = fs::read_to_string("/proc/loadavg").ok();
    let cores = std::thread::available_parallelism().map_or_else(|_| unknown(), |n| n.to_string());
    let facts = [
        ("commit", first_line("git", &commit)),
        ("date", first_line("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"])),
        ("host", first_line("uname", &["-n"])),
        ("kernel", first_line("uname", &["-srm"])),
        ("processor", processor),
        ("cores for this process", Some(cores)),
        ("memory", memory),
        ("load", load.map(|l| l.trim().to_owned())),
    ];
    facts
        .into_iter()
        .map(|(name, value)| format!("{name}: {}\n", value.unwrap_or_else(unknown)))
        .collect()
}

/// The first `name : value` of a file like `/proc/cpuinfo`.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let text = "processor\t: 0\nmodel name\t: A: B\nmodel name\t: C\n";
        assert_eq!(field(text, "model name").as_deref(), Some("A: B"));
        assert_eq!(field(text, "model"), None);
    }

    #[test]
    fn commands_that_fail_say_nothing() {
        assert_eq!(first_line("echo", &["a b"]).as_deref(), Some("a b"));
        assert_eq!(first_line("false", &[]), None);
        assert_eq!(first_line("no-such-program-anywhere", &[]), None);
    }
}
