//! `#[shmem::test]` as users have it: in a crate that is not of this workspace, under `cargo test`, under
//! cargo-nextest where that is installed, and started as the latter starts tests.
//!
//! The crate is made in a temporary directory. What it depends on is built once, in a directory of its own below
//! the target directory, without debug information: half a minute of a processor. So this test is ignored but for
//! nightly runs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use shmem_testkit::{Job, Outcome};
use xtask::build::workspace;

use crate::programs::SHMRUN;

/// One test passes, one fails on one PE, one waits for ever.
const TESTS: &str = r#"
use shmem::{Cmp, World};

#[shmem::test(pes = 4, nodes = 2)]
fn passes(world: &World) {
    println!("not shown");
    assert_eq!(world.sum(1), 4);
}

#[shmem::test(pes = 4, nodes = 2)]
fn fails_on_one(world: &World) {
    println!("PE {} of {} is here", world.my_pe(), world.n_pes());
    world.barrier();
    if world.my_pe() == 1 {
        panic!("this PE has had enough");
    }
    world.barrier();
}

#[shmem::test(pes = 4, nodes = 2, timeout = "5s")]
fn hangs(world: &World) -> Result<(), shmem::Error> {
    let flag = shmem::alloc::<u64>(1)?;
    if world.my_pe() == 1 {
        shmem::wait_until(flag, Cmp::Eq, 1);
    }
    world.barrier();
    Ok(())
}
"#;

/// To build everything, on a machine that does something else, too.
const TO_BUILD: Duration = Duration::from_secs(3600);

/// A crate outside, removed in the end with what was built of it.
struct Outside {
    dir: PathBuf,
    target: PathBuf,
}

impl Outside {
    fn new() -> Self {
        let name = format!("shmem-outside-{}", std::process::id());
        let outside = Self {
            dir: std::env::temp_dir().join(name),
            target: Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside"),
        };
        let core = workspace().join("shmem-core");
        let manifest = format!(
            "[package]\nname = \"outside\"\nedition = \"2024\"\n\
             [dev-dependencies]\nshmem-core = {{ path = {core:?}, features = [\"test\"] }}\n\
             [profile.dev]\ndebug = false\n[workspace]\n"
        );
        let write = |name: &str, text: &str| {
            let path = outside.dir.join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a temporary folder");
            std::fs::write(path, text).expect("a temporary file");
        };
        write("Cargo.toml", &manifest);
        write("src/lib.rs", "");
        write("tests/jobs.rs", TESTS);
        // The same versions, so that nothing is fetched.
        let lock = std::fs::read_to_string(workspace().join("Cargo.lock")).expect("the lock file");
        write("Cargo.lock", &lock);
        outside
    }

    /// cargo with arguments, in the crate.
    fn cargo(&self, args: &[&str]) -> Job {
        let mut command = Command::new(env!("CARGO"));
        command.args(args).current_dir(&self.dir);
        self.set(Job::of(command))
    }

    fn set(&self, job: Job) -> Job {
        job.env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_INCREMENTAL", "0")
            .env("CARGO_TERM_COLOR", "never")
            .env("RUST_BACKTRACE", "0")
            .env("SHMEM_TEST_TIMEOUT", "unset")
    }

    /// The test program.
    fn build(&self) -> PathBuf {
        let job = self.cargo(&["test", "--offline", "--no-run", "--message-format=json"]);
        let built = job.start().end_in(TO_BUILD, Duration::from_secs(10));
        let built = built.unwrap_or_else(|e| panic!("{e}"));
        built.expect_success();
        let mark = "\"executable\":\"";
        let programs = built.stdout.split(mark).skip(1);
        let mut programs = programs.filter_map(|text| text.split('"').next());
        let program = programs.find(|path| path.contains("/jobs-"));
        PathBuf::from(program.unwrap_or_else(|| panic!("no program: {}", built.stdout)))
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
        for entry in std::fs::read_dir(self.target.join("debug/deps"))
            .into_iter()
            .flatten()
        {
            let path = entry.expect("a name").path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if ["jobs-", "outside-", "liboutside-"]
                .iter()
                .any(|of| name.starts_with(of))
            {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// What the test that fails has said, and nobody else.
fn expect_the_failure(text: &str) {
    for wanted in [
        "tests/jobs.rs:10: fails_on_one: the job of 4 PEs on 2 nodes has failed (exit status: 101)\n",
        "shmem: PE 1 (node 0): tests/jobs.rs:15, thread 'fails_on_one': this PE has had enough\n",
        "shmrun: PE 1 on node 0 (pid ",
        ") exited with status 101; ending the job\n",
    ] {
        assert!(text.contains(wanted), "no {wanted:?}:\n{text}");
    }
}

fn expect_the_output(text: &str) {
    for pe in 0..4 {
        let wanted = format!("[{pe}] PE {pe} of 4 is here\n");
        assert!(text.contains(&wanted), "no {wanted:?}:\n{text}");
    }
    // libtest's words in PEs.
    for line in text
        .lines()
        .filter(|line| line.trim_start().starts_with('['))
    {
        assert!(line.ends_with(" is here"), "{line:?}:\n{text}");
    }
}

/// What the one that hangs has said.
fn expect_the_wait(text: &str) {
    for wanted in [
        "hangs: the job of 4 PEs on 2 nodes has failed (exit status: 124)\n",
        "shmrun: the time limit of 5 s (--timeout) is over; ending the job\n",
        "missing: PE 1\n",
        " waits in wait_until for the word at heap + 0x0 to be == 1; it is 0",
    ] {
        assert!(text.contains(wanted), "no {wanted:?}:\n{text}");
    }
}

/// Builds the library anew, as a crate of somebody else does.
#[test]
#[ignore = "nightly: cargo builds programs for minutes"]
fn a_crate_elsewhere_has_tests_that_are_jobs() {
    let outside = Outside::new();
    let program = outside.build();
    let ends_with = |outcome: &Outcome, status| {
        assert_eq!(outcome.status.code(), Some(status), "{outcome:?}");
    };

    // All at once, in threads.
    let all = outside
        .cargo(&["test", "--offline", "--test", "jobs"])
        .run();
    ends_with(&all, 101);
    expect_the_failure(&all.stdout);
    expect_the_output(&all.stdout);
    expect_the_wait(&all.stdout);
    assert!(all.stdout.contains("test passes ... ok\n"), "{all:?}");
    assert!(
        all.stdout.contains("FAILED. 1 passed; 2 failed;"),
        "{all:?}"
    );
    assert!(!all.stdout.contains("not shown"), "{all:?}");

    // Each in a process of its own, as cargo-nextest has it.
    let alone = |test: &str| {
        let mut command = Command::new(&program);
        command.args(["--exact", test, "--nocapture"]);
        command.current_dir(&outside.dir);
        outside.set(Job::of(command)).in_a_group()
    };
    let failed = alone("fails_on_one").run();
    ends_with(&failed, 101);
    expect_the_failure(&failed.stderr);
    expect_the_output(&failed.stdout);
    alone("passes").succeed();
    let has_nextest = Command::new(env!("CARGO"))
        .args(["nextest", "--version"])
        .output();
    if has_nextest.is_ok_and(|output| output.status.success()) {
        let run = outside
            .cargo(&["nextest", "run", "--offline", "--no-fail-fast"])
            .run();
        ends_with(&run, 100);
        expect_the_failure(&run.stderr.replace("\n    ", "\n"));
        expect_the_wait(&run.stderr.replace("\n    ", "\n"));
        assert!(
            run.stderr.contains("3 tests run: 1 passed, 2 failed"),
            "{run:?}"
        );
    }

    // A test that is killed takes its job along: `wait` sees to that.
    for signal in [9, 15] {
        let job = alone("hangs").env("SHMEM_TEST_TIMEOUT", "0s").start();
        // The test and its PEs, which have the program's name.
        let name = program.file_name().expect("a name").to_string_lossy();
        job.wait_for(&name[..name.len().min(15)], 5);
        job.kill(signal);
        job.wait();
    }

    // As PEs of somebody's job the test programs refuse to start more.
    let program = program.to_string_lossy();
    let refused = Job::new(SHMRUN, "-n 2", &[&program, "passes"]).run();
    ends_with(&refused, 101);
    assert!(
        refused
            .stdout
            .contains("this process is a PE already, started by shmrun"),
        "{refused:?}"
    );
}
