//! Tools that people use on programs: sanitizers, profilers, debuggers, memcheck. On one node and on two each of them
//! reports nothing about a program that has no error, and finds an error that was planted.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use shmem_testkit::needs::skipped;
use shmem_testkit::{Job, Outcome, text};

use crate::c_library::toolchain::{Toolchain, scratch, sources, toolchain};
use crate::programs::{HELLO, SHMRUN, shmrun};

const LAYOUTS: [&str; 2] = ["-np 2", "-np 3 --nodes 2"];

/// The program, made with these options.
fn program(c: &Toolchain, name: &str, flags: &[&str]) -> PathBuf {
    let flags = [&["-pthread", "-g", "-fno-omit-frame-pointer"], flags].concat();
    c.make(name, &[sources().join("programs/tooled.c")], &flags)
}

/// The installed library, if the compiler has this sanitizer.
fn sanitizer(name: &str) -> Option<&'static Toolchain> {
    let c = toolchain()?;
    let made = scratch().join(format!("sanitized-{name}-{}", std::process::id()));
    let output = shmem_testkit::tools::CC
        .command()
        .arg(format!("-fsanitize={name}"))
        .arg(sources().join("programs/nothing.c"))
        .arg("-o")
        .arg(&made)
        .output()
        .expect("a compiler");
    let _ = fs::remove_file(&made);
    if !output.status.success() {
        skipped("sanitizers", text(&output.stderr).trim());
        return None;
    }
    Some(c)
}

/// A job of the program that ends well, and about which nobody says anything.
#[track_caller]
fn finds_nothing(job: Job) {
    let outcome = job.run();
    outcome.expect_success();
    let wrong = outcome
        .stdout
        .lines()
        .any(|line| !line.ends_with(": 0 wrong"));
    assert!(!wrong && !outcome.stdout.is_empty(), "{}", outcome.stdout);
    assert_eq!(outcome.stderr, "");
}

/// A job in whose messages a tool names the error and the function.
#[track_caller]
fn finds(job: Job, error: &str, function: &str) -> Outcome {
    let outcome = job.run();
    for part in [error, function] {
        assert!(
            outcome.stderr.contains(part),
            "no {part:?}: {}",
            outcome.stderr
        );
    }
    outcome
}

#[test]
fn address_sanitizer() {
    let Some(c) = sanitizer("address") else {
        return;
    };
    let program = program(c, "tooled-address", &["-fsanitize=address"]);
    for options in LAYOUTS {
        // Leaks are looked for by a thread that traces the process, which containers may refuse.
        let job = |mistake| {
            let job = c.job(options, &program, &[mistake]);
            job.env("ASAN_OPTIONS", "detect_leaks=0")
        };
        finds_nothing(job("none"));
        let outcome = finds(job("overflow"), "heap-buffer-overflow", "in overflow");
        assert_eq!(outcome.code(), 1, "{options}");
    }
}

#[test]
fn leak_sanitizer() {
    let Some(c) = sanitizer("leak") else { return };
    let program = program(c, "tooled-leak", &["-fsanitize=leak"]);
    let first = c.job("-np 1", &program, &[]).run();
    if first
        .stderr
        .contains("LeakSanitizer has encountered a fatal error")
    {
        return skipped("ptrace", first.stderr.trim());
    }
    for options in LAYOUTS {
        finds_nothing(c.job(options, &program, &[]));
        let outcome = finds(
            c.job(options, &program, &["leak"]),
            "1234 byte(s) leaked in 1 allocation(s)",
            "in leak",
        );
        assert_eq!(outcome.code(), 23, "{options}");
    }
}

#[test]
fn undefined_behaviour_sanitizer() {
    let Some(c) = sanitizer("undefined") else {
        return;
    };
    let flags = ["-fsanitize=undefined", "-fno-sanitize-recover"];
    let program = program(c, "tooled-undefined", &flags);
    for options in LAYOUTS {
        finds_nothing(c.job(options, &program, &[]));
        let job = c.job(options, &program, &["undefined"]);
        let outcome = finds(job, "signed integer overflow", "tooled.c:");
        assert_eq!(outcome.code(), 1, "{options}");
    }
}

/// The library is not made for it: what its threads hand to each other would look like races. So accesses of the library
/// are ignored, and those of the program are not.
#[test]
fn thread_sanitizer() {
    let Some(c) = sanitizer("thread") else { return };
    let program = program(c, "tooled-thread", &["-fsanitize=thread"]);
    for options in LAYOUTS {
        let job = |mistake| {
            let job = c.job(options, &program, &[mistake]);
            job.env("TSAN_OPTIONS", "ignore_noninstrumented_modules=1")
        };
        finds_nothing(job("none"));
        let outcome = finds(job("race"), "data race", "in unlocked");
        assert_eq!(outcome.code(), 66, "{options}");
    }
    // Within a node it finds nothing wrong either way.
    finds_nothing(c.job("-np 2", &program, &[]));
}

/// Every PE has a profile with samples: the timer that makes them starts before `main`, and no fork hands it on.
#[test]
fn gprof_profiles_each_pe() {
    let Some(c) = toolchain() else { return };
    let program = program(c, "tooled-profile", &["-pg"]);
    for (options, pes) in LAYOUTS.into_iter().zip([2, 3]) {
        let place = scratch().join(format!("profiles-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).unwrap();
        let out = c
            .job(options, &program, &["busy"])
            .env("GMON_OUT_PREFIX", place.join("gmon"))
            .succeed();
        assert_eq!(out.lines().count(), pes, "{out}");
        let profiles: Vec<_> = fs::read_dir(&place)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert_eq!(profiles.len(), pes, "{options}: {profiles:?}");
        for profile in profiles {
            let flat = Command::new("gprof")
                .args(["-b", "-p"])
                .args([&program, &profile])
                .output()
                .expect("gprof is one of binutils");
            let flat = text(&flat.stdout);
            assert!(flat.lines().any(busy), "{options}: {flat}");
        }
        fs::remove_dir_all(&place).unwrap();
    }
}

/// Whether a line of a flat profile says that `busy` took some time.
fn busy(line: &str) -> bool {
    let words: Vec<_> = line.split_whitespace().collect();
    words.last() == Some(&"busy") && words[2].parse::<f64>().is_ok_and(|seconds| seconds > 0.0)
}

/// A job under memcheck, of a program that may have made one mistake.
fn memcheck_job(options: &str, c: &Toolchain, mistake: &str) -> Job {
    let program = program(c, "tooled", &[]);
    let valgrind = "valgrind -q --error-exitcode=9 --leak-check=full \
                    --show-leak-kinds=definite --errors-for-leak-kinds=definite";
    let mut words: Vec<_> = valgrind.split_whitespace().collect();
    words.extend([program.to_str().expect("a path in UTF-8"), mistake]);
    // valgrind keeps notes for each byte, and looks through them at the end.
    Job::new(c.tool("oshrun"), options, &words)
        .env("SHMEM_SYMMETRIC_SIZE", "16m")
        .env("SHMEM_STATICS_SIZE", "16m")
}

#[track_caller]
fn memcheck_finds(options: &str, c: &Toolchain, mistake: &str, error: &str) {
    let job = memcheck_job(options, c, mistake);
    let outcome = finds(job, error, &format!("{mistake} (tooled.c:"));
    assert_eq!(outcome.code(), 9, "{options}");
}

#[test]
fn memcheck() {
    let Some(c) = toolchain().filter(|_| crate::valgrind::found()) else {
        return;
    };
    memcheck_finds(LAYOUTS[0], c, "overflow", "Invalid write of size 8");
}

#[test]
#[ignore = "nightly: five more jobs under valgrind"]
fn memcheck_on_each_layout() {
    let Some(c) = toolchain().filter(|_| crate::valgrind::found()) else {
        return;
    };
    memcheck_finds(LAYOUTS[1], c, "overflow", "Invalid write of size 8");
    for options in LAYOUTS {
        finds_nothing(memcheck_job(options, c, "none"));
        let lost = "1,234 bytes in 1 blocks are definitely lost";
        memcheck_finds(options, c, "leak", lost);
    }
}

/// Whether there is a debugger.
fn gdb() -> bool {
    let why = match Command::new("gdb").arg("--version").output() {
        Ok(output) if output.status.success() => return true,
        Ok(output) => format!("gdb --version: {}", output.status),
        Err(e) => format!("gdb: {e}"),
    };
    skipped("gdb", why);
    false
}

/// A batch of commands for gdb, as its options.
fn batch<'a>(commands: &[&'a str]) -> Vec<&'a str> {
    let commands = commands.iter().flat_map(|command| ["-ex", command]);
    ["gdb", "-nx", "-batch"]
        .into_iter()
        .chain(commands)
        .collect()
}

/// Whether gdb could not do its work because processes may not be traced here; the test was skipped then.
fn may_not_trace(said: &str) -> bool {
    let lines = ["Operation not permitted", "Could not trace"];
    let refused = said
        .lines()
        .find(|line| lines.iter().any(|l| line.contains(l)));
    if let Some(refused) = refused {
        skipped("ptrace", format!("gdb: {refused}"));
    }
    refused.is_some()
}

/// The process of a PE, as `shmrun --ps JOB` names it.
fn pid_of(pe: u32, ps: &str) -> Option<&str> {
    let before = ps.split_once(&format!(" (PE {pe})"))?.0;
    before.rsplit(' ').next()
}

/// A user finds the process of a PE, attaches to it, looks at variables, calls the library, and sets a variable that
/// all PEs wait for.
#[test]
fn gdb_attaches_to_a_pe() {
    let Some(c) = toolchain().filter(|_| gdb()) else {
        return;
    };
    let program = program(c, "tooled", &[]);
    for options in ["-np 4", "-np 4 --nodes 2"] {
        let job = c.job(options, &program, &["hold"]).start();
        let number = job.pid().to_string();
        let mut ps = String::new();
        shmem_testkit::wait_until(
            "all PEs wait",
            || {
                // At first the launcher cannot be asked yet.
                ps = Job::new(SHMRUN, "--ps", &[&number]).run().stdout;
                ps.contains("PEs 0-3 (4) wait in wait_until")
            },
            || "they do not".to_owned(),
        );
        let pid = pid_of(2, &ps).unwrap_or_else(|| panic!("no process of PE 2: {ps}"));
        let commands = ["print (int)shmem_my_pe()", "print first", "set var go = 1"];
        let mut words = batch(&commands);
        words.extend(["-p", pid]);
        let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        if may_not_trace(&err) {
            return;
        }
        assert!(out.contains("$1 = 2\n$2 = 43\n"), "{options}: {out}{err}");
        let outcome = job.wait();
        outcome.expect_success();
        assert_eq!(outcome.stdout.lines().count(), 4, "{}", outcome.stdout);
    }
}

/// One PE of a job under the debugger from its start.
#[test]
fn gdb_starts_one_pe() {
    let Some(c) = toolchain().filter(|_| gdb()) else {
        return;
    };
    let tooled = program(c, "tooled", &[]);
    let tooled = tooled.to_str().unwrap();
    for (words, function) in [(&[tooled, "busy"][..], "busy"), (&[HELLO], "main")] {
        let script = format!(
            "if [ $PMI_RANK = 1 ]; then exec gdb -nx -batch -ex 'tbreak {function}' -ex run -ex bt -ex continue --args \
             \"$@\"; fi; exec \"$@\""
        );
        for options in LAYOUTS {
            let program = [&["sh", "-c", &script, "sh"], words].concat();
            let outcome = shmrun(options, &program).run();
            if may_not_trace(&outcome.stderr) {
                return;
            }
            outcome.expect_success();
            let out = &outcome.stdout;
            let innermost = out.lines().find(|line| line.starts_with("#0 "));
            let there = innermost.is_some_and(|line| line.contains(function));
            assert!(there, "{options}: {out}");
            assert!(out.contains("exited normally"), "{options}: {out}");
        }
    }
}

/// The launcher is a program of its own under either name, and no script.
#[test]
fn gdb_runs_oshrun() {
    let Some(c) = toolchain().filter(|_| gdb()) else {
        return;
    };
    let oshrun = c.tool("oshrun");
    let mut words = batch(&["run"]);
    words.extend(["--args", oshrun.to_str().unwrap(), "-np", "2", HELLO]);
    let outcome = Job::new(words[0], "", &words[1..]).run();
    if may_not_trace(&outcome.stderr) {
        return;
    }
    let out = &outcome.stdout;
    assert!(out.contains("PE 1 of 2"), "{out}{}", outcome.stderr);
    assert!(out.contains("exited normally"), "{out}");
}

/// A shell that started the launcher would drop those that are no identifiers, such as functions of bash.
#[test]
fn oshrun_hands_on_all_variables() {
    let Some(c) = toolchain() else { return };
    let all = [
        ("BASH_FUNC_module%%", "() {  echo loaded\n}"),
        ("a.b", "c"),
        ("with space", "d"),
    ];
    let oshrun = c.tool("oshrun");
    let out = Job::new(oshrun, "-np 1", &["env"]).envs(all).succeed();
    for (name, value) in all {
        assert!(out.contains(&format!("{name}={value}\n")), "{name}: {out}");
    }
}

/// The page has a command for gdb that reads the library's variables by their names.
#[test]
fn the_command_that_prints_symmetric_arrays_names_what_there_is() {
    let read = |path: &str| fs::read_to_string(sources().join("../..").join(path)).unwrap();
    let page = read("docs/debugging.md");
    assert!(page.contains("&shmem::runtime::RUNTIME as *mut *mut shmem::runtime::Runtime)).own.0"));
    let runtime = read("shmem-core/src/runtime/mod.rs");
    for part in ["static RUNTIME: AtomicPtr<Runtime>", "own: Segment,"] {
        assert!(runtime.contains(part), "{part}");
    }
}
