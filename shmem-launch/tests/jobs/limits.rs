//! Limits of the account or of a container that a job meets.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use shmem_testkit::needs::skipped;

use crate::support::shmrun_after;

/// A control group whose processes may have so much memory.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    fn make(bytes: u64) -> Option<Self> {
        let name = format!("shmrun-memory-{}", std::process::id());
        let [one, two] =
            ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"].map(|at| Path::new(at).join(&name));
        let limit = |dir: PathBuf, file: &str| {
            fs::create_dir(&dir).ok()?;
            let group = Self(dir);
            let file = group.0.join(file);
            // Only where the controller is on.
            let limited = file.exists() && fs::write(file, bytes.to_string()).is_ok();
            // What does not fit is not to go elsewhere.
            for (file, most) in [
                ("memory.memsw.limit_in_bytes", bytes),
                ("memory.swap.max", 0),
            ] {
                let file = group.0.join(file);
                let _ = file.exists().then(|| fs::write(file, most.to_string()));
            }
            limited.then_some(group)
        };
        limit(one, "memory.limit_in_bytes").or_else(|| limit(two, "memory.max"))
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn what_memory_may_have_ended_is_said_to_be() {
    let Some(group) = MemoryGroup::make(64 << 20) else {
        return skipped("memory-limit", "a control group that limits memory");
    };
    let enter = format!("echo $$ > {}/cgroup.procs", group.0.display());
    let job = |shape: &[&str], last: &str| {
        let script = format!("[ $PMI_RANK = 1 ] || exec sleep 1000; {last}");
        let args = [shape, &["/bin/sh", "-c", &script]].concat();
        shmrun_after(&enter, &args)
            .env("SHMEM_SYMMETRIC_SIZE", "1m")
            .run()
    };
    // Somebody else has killed this one.
    let out = job(&["-n", "2"], "kill -9 $$");
    assert_eq!(out.code(), 137, "{out:?}");
    assert!(!out.stderr.contains("memory"), "{out:?}");
    for shape in [&["-n", "2"][..], &["-n", "2", "--nodes", "2"]] {
        let out = job(
            shape,
            "text=$(head -c 200000000 /dev/zero | tr '\\0' x); exit 3",
        );
        assert_eq!(out.code(), 137, "{out:?}");
        let said = "(SIGKILL); memory may have run out: the kernel has killed processes for that";
        assert!(out.stderr.contains(said), "{out:?}");
        assert!(
            out.stderr.contains("the control group allows 64.0 MiB"),
            "{out:?}"
        );
    }
}

#[test]
fn shared_memory_that_is_too_long_for_a_file_is_named() {
    for shape in [&["-n", "2"][..], &["-n", "2", "--nodes", "2"]] {
        let args = [shape, &["/bin/sh", "-c", "ulimit -f"]].concat();
        let out = shmrun_after("ulimit -f 2000", &args).run();
        assert_eq!(out.code(), 125, "{out:?}");
        assert!(out.stderr.contains("ulimit -f"), "{out:?}");
        assert!(out.stderr.contains("SHMEM_SYMMETRIC_SIZE"), "{out:?}");
        // Only the soft limit is low: agents raise it, and programs have it.
        let out = shmrun_after("ulimit -Sf 2000", &args).run();
        assert_eq!((out.code(), &*out.stdout), (0, "2000\n2000\n"), "{out:?}");
    }
}

#[test]
fn output_that_is_too_long_for_a_file_is_lost_with_a_message() {
    let file = std::env::temp_dir().join(format!("shmrun-too-long-{}", std::process::id()));
    let args = ["-n", "2", "/bin/sh", "-c", "head -c 100000 /dev/zero"];
    let job = shmrun_after("ulimit -Sf 100", &args);
    let out = job.stdout(File::create(&file).unwrap()).run();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(out.code(), 123, "{out:?}");
    let said = "cannot write to standard output: File too large";
    assert!(out.messages()[0].contains(said), "{out:?}");
}

#[test]
fn programs_may_have_few_descriptors_though_the_agents_have_more() {
    let probe = crate::template::program();
    for (limit, shape) in [
        ("64", &["-n", "32"][..]),
        ("40", &["-n", "20", "--nodes", "2"]),
        ("24", &["-n", "5"]),
        ("24", &["-n", "5", "--stdin", "all"]),
    ] {
        for spawn in ["template", "exec"] {
            let program = [&*probe, "init", "finalize"];
            let spawn = format!("SHMEM_SPAWN={spawn}");
            let args = [shape, &["-x", &spawn], &program].concat();
            let out = shmrun_after(&format!("ulimit -Sn {limit}"), &args).run();
            assert_eq!(
                (out.code(), &*out.stderr),
                (0, ""),
                "{limit} {args:?} {out:?}"
            );
        }
    }
}

#[test]
fn a_small_stack_is_raised_or_named() {
    for shape in [&["-n", "2"][..], &["-n", "2", "--nodes", "2"]] {
        let args = [shape, &["/bin/sh", "-c", "ulimit -s"]].concat();
        let out = shmrun_after("ulimit -Ss 100", &args).run();
        assert_eq!((out.code(), &*out.stdout), (0, "100\n100\n"), "{out:?}");
        let out = shmrun_after("ulimit -s 100", &args).run();
        assert_eq!(out.code(), 125, "{out:?}");
        assert!(out.stderr.contains("(ulimit -Hs) is 100.0 KiB"), "{out:?}");
    }
}
