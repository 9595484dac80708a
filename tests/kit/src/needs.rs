//! What tests need beyond cargo and a C linker, and what becomes of them where they have it not.
//!
//! A test that cannot run calls [`skipped`] and returns. That fails where `SHMEM_TEST_REQUIRE` is `all` or
//! names what lacks (names of the file `needs`, with commas between). Elsewhere the test passes, after a
//! line on standard error, which libtest does not keep back, and a row in the file that
//! `SHMEM_TEST_SKIPPED` names, if it does: a need, the test's executable, the test, and why. Whoever runs the
//! tests shows that file and may run its tests again where they can.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;

/// Which needs must not be missing.
const REQUIRE: &str = "SHMEM_TEST_REQUIRE";
/// The file that tells what was skipped.
const SKIPPED: &str = "SHMEM_TEST_SKIPPED";

/// Names of needs, and what has them.
fn needs() -> impl Iterator<Item = (&'static str, &'static str)> {
    include_str!("../needs")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(char::is_whitespace))
        .map(|(name, what)| (name, what.trim()))
}

/// Whether `value` of the variable has `need`.
///
/// # Errors
/// If it has a word that is no need: a typing mistake must not make a test pass.
fn requires(value: &str, need: &str) -> Result<bool, String> {
    let words = || value.split(',').map(str::trim).filter(|w| !w.is_empty());
    let unknown = |word: &&str| *word != "all" && !needs().any(|(name, _)| name == *word);
    if let Some(word) = words().find(unknown) {
        let names: Vec<_> = needs().map(|(name, _)| name).collect();
        let names = names.join(", ");
        return Err(format!(
            "{REQUIRE}={value}: there is no need {word}, only all, {names}"
        ));
    }
    Ok(words().any(|word| word == "all" || word == need))
}

/// A row of the file of what was skipped; what it tells of is one field each.
fn row(need: &str, program: &str, test: &str, why: &str) -> String {
    let field = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let [need, test, why] = [need, test, why].map(field);
    format!("{need}\t{program}\t{test}\t{why}\n")
}

/// The test that calls. Where libtest runs a single test it has no thread for it; then its name was an argument, of
/// cargo-nextest for example.
fn test_name() -> String {
    let thread = std::thread::current();
    let mut named = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'));
    match thread.name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => named.next().unwrap_or_else(|| "?".to_owned()),
    }
}

/// The calling test cannot run, for lack of `need`, and returns after this. `why` is what was tried, and
/// how that failed.
///
/// # Panics
/// If the need must not be missing, or is not one.
#[track_caller]
pub fn skipped(need: &str, why: impl Display) {
    let Some((_, what)) = needs().find(|(name, _)| *name == need) else {
        panic!("the file `needs` has no {need}");
    };
    let value = std::env::var(REQUIRE).unwrap_or_default();
    match requires(&value, need) {
        Ok(false) => {}
        Ok(true) => panic!("{REQUIRE}={value}, but {why} (it takes {what})"),
        Err(e) => panic!("{e}"),
    }
    let test = test_name();
    // Not by `eprintln!`, whose words libtest keeps to itself where a test passes.
    let said = format!("\nskipped: {test}: {why} (it takes {what})\n");
    let _ = std::io::stderr().write_all(said.as_bytes());
    if let Some(file) = std::env::var_os(SKIPPED) {
        let program = std::env::current_exe().expect("a running program");
        let program = program.to_str().expect("a path in UTF-8");
        let row = row(need, program, &test, &why.to_string());
        // A row is one write to the end of the file, so that tests that run at once do not mix theirs.
        let written = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&file)
            .and_then(|mut file| file.write_all(row.as_bytes()));
        if let Err(e) = written {
            panic!("{SKIPPED}={}: {e}", file.display());
        }
    }
}

/// Whether a process of the calling test may not have `n` descriptors; it was skipped then.
///
/// # Panics
/// As [`skipped`].
#[track_caller]
pub fn lacks_descriptors(n: u64) -> bool {
    let limits = std::fs::read_to_string("/proc/self/limits").expect("limits of this process");
    let files = limits
        .lines()
        .find_map(|l| l.strip_prefix("Max open files"));
    let hard = files.and_then(|l| l.split_whitespace().nth(1));
    let hard = hard.expect("a soft and a hard limit of descriptors");
    // There may be no limit.
    let lacks = hard.parse().is_ok_and(|hard: u64| hard < n);
    if lacks {
        skipped("descriptors", format!("the hard limit of them is {hard}"));
    }
    lacks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_required_is_all_or_named() {
        for (value, need, wanted) in [
            ("", "c", false),
            ("all", "c", true),
            ("c", "c", true),
            ("mpich, c", "c", true),
            ("mpich,", "c", false),
            ("mpich-spawn", "mpich", false),
        ] {
            assert_eq!(requires(value, need), Ok(wanted), "{value}");
        }
        let refused = requires("c,mpitch", "c").unwrap_err();
        assert!(
            refused.contains("no need mpitch, only all, aarch64, c,"),
            "{refused}"
        );
    }

    #[test]
    fn rows_have_four_fields() {
        let row = row("c", "/a b/c", "t", "no cc:\n\tnot found\n");
        assert_eq!(row, "c\t/a b/c\tt\tno cc: not found\n");
    }

    #[test]
    fn needs_are_told_apart() {
        let mut names: Vec<_> = needs().map(|(name, _)| name).collect();
        assert!(needs().all(|(_, what)| !what.is_empty()));
        assert!(names.is_sorted(), "{names:?}");
        names.dedup();
        assert_eq!(names.len(), needs().count());
    }

    /// Passes, fails, and tells, in a process of its own, whose environment is not that of other tests.
    #[test]
    fn a_test_without_its_need_passes_or_fails_as_required() {
        const CHILD: &str = "SHMEM_REQUIRE_TEST_CHILD";
        if std::env::var_os(CHILD).is_some() {
            return skipped("rdma", "this test has no device");
        }
        let file = std::env::temp_dir().join(format!("shmem-skipped-{}", std::process::id()));
        let test = "needs::tests::a_test_without_its_need_passes_or_fails_as_required";
        let run = |required: &str| {
            let output = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", test])
                .env(CHILD, "1")
                .env(REQUIRE, required)
                .env(SKIPPED, &file)
                .output()
                .unwrap();
            let rows = std::fs::read_to_string(&file).unwrap_or_default();
            let _ = std::fs::remove_file(&file);
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8(said).unwrap();
            (output.status.success(), rows, said)
        };
        let (passed, rows, said) = run("c,mpich");
        assert!(passed, "{said}");
        assert!(said.contains("has no device (it takes an RDMA"), "{said}");
        let fields: Vec<_> = rows.trim_end().split('\t').collect();
        assert_eq!(fields.len(), 4, "{rows}");
        assert_eq!((fields[0], fields[3]), ("rdma", "this test has no device"));
        assert_eq!(fields[2], test, "{rows}");
        for required in ["all", "c,rdma", "rmda"] {
            let (passed, rows, said) = run(required);
            assert!(!passed && rows.is_empty(), "{required}: {said}");
            assert!(said.contains(&format!("{REQUIRE}={required}")), "{said}");
        }
    }
}
