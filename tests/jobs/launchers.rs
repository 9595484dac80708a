//! Jobs under launchers other than `shmrun`: Hydra with both of its ways to offer PMI-1, on one host and
//! on several; Open MPI's; none at all; and those that are refused.
//!
//! "Several hosts" are proxies of Hydra on this machine, each started by what `mpiexec.hydra` takes for a
//! remote shell. They need Hydra (`mpich` of `SHMEM_TEST_REQUIRE`). `ci/slurm.sh` has the same for Slurm.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use shmem_testkit::launchers::{self, hydra, installed};
use shmem_testkit::processes::threads;
use shmem_testkit::{Job, needs, wait_until};

use crate::conformance::{self, SOME_OF_EACH};
use crate::programs::{
    BUSY, CONFORMANCE, HELLO, HISTOGRAM, LIVES, MISHAPS, PMI_RING, RING, STATICS, STEP6_HALO,
    shmrun,
};

/// A job of Hydra with 2 PEs on each of some hosts.
pub(crate) fn hydra_on(hosts: u32, options: &str, program: &[&str]) -> Option<Job> {
    launchers::hydra_on(tmp(), hosts, options, program)
}

/// The remote shell of those hosts.
pub(crate) fn remote_shell() -> PathBuf {
    launchers::remote_shell(tmp())
}

fn tmp() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

#[test]
fn no_launcher() {
    let out = Job::new(RING, "", &[]).succeed();
    assert!(out.contains("round 1 PEs and came back right"), "{out}");
}

#[test]
fn hydra_on_one_host() {
    for model in ["", "-pmi-port"] {
        for n in [1, 2, 8] {
            let Some(job) = hydra(&format!("{model} -n {n}"), &[RING]) else {
                return;
            };
            let out = job.succeed();
            assert!(
                out.contains(&format!("round {n} PEs and came back")),
                "{out}"
            );
        }
    }
    for program in [HELLO, HISTOGRAM, STEP6_HALO] {
        if let Some(job) = hydra("-n 8", &[program]) {
            job.succeed();
        }
    }
}

#[test]
fn hydra_on_several_hosts() {
    for model in ["", "-pmi-port"] {
        let Some(job) = hydra_on(3, model, &[RING]) else {
            return;
        };
        let out = job.env("SHMEM_DEBUG", "1").run();
        assert!(out.status.success(), "{out:?}");
        assert!(out.stdout.contains("round 6 PEs and came back"), "{out:?}");
        let err = out.stderr;
        for node in 0..3 {
            let place = format!("PE {} of 6 on node {node} of 3", 2 * node + 1);
            assert!(err.contains(&place), "{err}");
        }
    }
    for program in [HISTOGRAM, STEP6_HALO] {
        if let Some(job) = hydra_on(4, "", &[program]) {
            job.succeed();
        }
    }
}

#[test]
fn settings_hold_under_hydra() {
    for (name, value) in [
        ("SHMEM_TRANSPORT", "xrc"),
        ("SHMEM_CONNECT", "static"),
        ("SHMEM_ATOMICS", "owner"),
        ("SHMEM_PMI", "2"),
        ("SHMEM_SOFT_ADDRESS", "127.0.0.1"),
    ] {
        if let Some(job) = hydra_on(2, "", &[HISTOGRAM]) {
            job.env(name, value).succeed();
        }
    }
}

fn checks_pass(job: Option<Job>) {
    let Some(job) = job else { return };
    let out = job.succeed();
    assert!(out.contains("checks passed on"), "{out}");
}

#[test]
fn checks_of_each_kind_under_hydra() {
    checks_pass(hydra_on(2, "", &conformance::with(SOME_OF_EACH)));
}

#[test]
#[ignore = "nightly: each run has some checks"]
fn the_whole_library_under_hydra() {
    checks_pass(hydra_on(2, "", &[CONFORMANCE]));
    checks_pass(hydra("-n 3", &[CONFORMANCE]));
}

#[test]
fn several_lives_and_static_data_under_hydra() {
    for program in [&[LIVES, "5"][..], &[LIVES, "3", "static"], &[STATICS]] {
        let jobs = [hydra("-n 3", program), hydra_on(2, "", program)];
        for job in jobs.into_iter().flatten() {
            job.succeed();
        }
    }
}

/// They share a machine, a user and node numbers.
#[test]
fn two_jobs_at_once_do_not_meet() {
    let jobs: Vec<_> = (0..3)
        .filter_map(|_| Some(hydra_on(2, "", &[RING])?.start()))
        .collect();
    for job in jobs {
        let out = job.wait();
        assert!(out.status.success(), "{out:?}");
        assert!(out.stdout.contains("round 4 PEs and came back"));
    }
}

/// Where PEs write what they would say on standard error: Hydra drops what it has not passed on when a
/// job is aborted.
struct Log(PathBuf);

impl Log {
    fn new(name: &str) -> Self {
        let name = format!("launchers-{name}-{}", std::process::id());
        Self(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    /// For `sh -c`, before the program and its arguments; runs `first` before.
    fn script(&self, first: &str) -> String {
        format!("{first}\nexec \"$0\" \"$@\" 2>>{}", self.0.display())
    }

    /// What has been said since the last time.
    fn take(&self) -> String {
        let said = std::fs::read_to_string(&self.0).unwrap_or_default();
        let _ = std::fs::remove_file(&self.0);
        said
    }
}

#[test]
fn a_pe_that_gives_up_ends_the_job_under_hydra() {
    let log = Log::new("gives-up");
    let script = log.script("");
    for mishap in [
        "global-exit-3",
        "exit-0",
        "exit-3",
        "panic",
        "wait-for-ever",
    ] {
        let program = ["sh", "-c", &script, MISHAPS, mishap];
        for job in [hydra("-n 3", &program), hydra_on(2, "", &program)] {
            let Some(job) = job else { return };
            let status = job.run().status;
            let said = log.take();
            assert!(!status.success(), "{mishap}: {said}");
            if mishap == "global-exit-3" {
                assert_eq!(status.code(), Some(3), "{said}");
                assert!(said.contains("PE 0 called global_exit(3)"), "{said}");
            }
            if mishap.starts_with("exit") {
                assert!(said.contains("PE 0 exits without finalize"), "{said}");
            }
        }
    }
}

/// One PE cannot: the others would wait for it, and are ended.
#[test]
fn a_pe_that_cannot_initialise_ends_the_job_under_hydra() {
    let log = Log::new("cannot-initialise");
    let script = log.script("if [ $PMI_RANK = 1 ]; then export SHMEM_HCA=none7:1; fi");
    if let Some(job) = hydra_on(2, "", &["sh", "-c", &script, RING]) {
        let output = job.run();
        let said = log.take();
        assert!(!output.status.success(), "{said}");
        assert!(said.contains("PE 1 cannot initialise"), "{said}");
    }
}

/// One host has settings that make no sense; the others are ended.
#[test]
fn settings_that_make_no_sense_end_the_job_under_hydra() {
    let log = Log::new("settings");
    let script = log.script("case $PMI_RANK in 2|3) export SHMEM_SPIN=abc;; esac");
    if let Some(job) = hydra_on(2, "", &["sh", "-c", &script, RING]) {
        let output = job.run();
        let said = log.take();
        assert!(!output.status.success(), "{said}");
        assert!(said.contains("cannot initialise: SHMEM_SPIN"), "{said}");
    }
}

/// Kills a process of a job of 4 PEs that is at work, chosen by `victim` among those of the job and `mpiexec`
/// itself; nothing is left then.
fn kill(what: &str, job: Option<Job>, victim: &str) {
    let Some(job) = job else { return };
    let mut job = job.start();
    // PE 0 prints this behind a barrier: every PE has put something to another one, and goes on.
    let mut output = job.stdout();
    output.read_until("round 1\n");
    let all = job.processes();
    let is_it = |name: &str| match victim {
        "PE" => name == "busy-pe",
        _ => name.starts_with("hydra_pmi_"),
    };
    let killed = match victim {
        "mpiexec" => all.iter().find(|p| p.pid == job.pid()),
        // Not the first, which is PE 0, or has it.
        _ => all.iter().rfind(|p| is_it(&p.name)),
    };
    let killed = killed.unwrap_or_else(|| panic!("{what}: there is none in {all:?}"));
    assert!(killed.kill(libc::SIGKILL), "{what}: {killed:?} had ended");
    let outcome = job.wait();
    assert!(!outcome.status.success(), "{what}: {outcome:?}");
}

#[test]
fn nothing_survives_the_death_of_a_pe_or_of_mpiexec_or_its_proxy() {
    for victim in ["PE", "mpiexec", "proxy"] {
        let what = format!("death-of-{victim}");
        kill(&what, hydra_on(2, "", &[BUSY]), victim);
        for model in ["", "-pmi-port"] {
            let what = format!("{what}-alone{model}");
            kill(&what, hydra(&format!("{model} -n 4"), &[BUSY]), victim);
        }
    }
}

#[test]
fn nobody_waits_in_init_when_the_launcher_is_gone() {
    // PE 0, which the others wait for, reads what the launcher no longer sends.
    let program = format!("[ $PMI_RANK != 0 ] || exec cat; exec {RING}");
    let Some(job) = hydra("-n 4", &["sh", "-c", &program]) else {
        return;
    };
    let job = job.stdin(Stdio::piped()).start();
    let pes = job.wait_for("ring", 3);
    // Their second thread is there before they wait. Whether they wait already does not matter: whoever does
    // not will find that the launcher has gone.
    wait_until(
        "all PEs watch the PMI server",
        || pes.iter().all(|&pid| threads(pid) >= 2),
        || format!("{:?}", job.processes()),
    );
    job.kill(libc::SIGKILL);
    let outcome = job.wait();
    assert!(!outcome.status.success(), "{outcome:?}");
}

/// Runs the ring as such a launcher would; gives what it says.
fn refused(env: &[(&str, &str)]) -> String {
    refused_program(RING, env)
}

fn refused_program(program: &str, env: &[(&str, &str)]) -> String {
    let outcome = Job::new(program, "", &[]).envs(env.iter().copied()).run();
    assert!(!outcome.status.success(), "{env:?}: {outcome:?}");
    outcome.stderr
}

#[test]
fn launchers_that_cannot_be_talked_to_are_refused() {
    let slurm = [("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "4")];
    let said = refused(&slurm);
    assert!(said.contains("srun --mpi=pmi2 -n 4 PROGRAM"), "{said}");
    // PMI alone is no better off.
    for env in [&slurm[..], &[("PMI_RANK", "3"), ("PMI_SIZE", "4")]] {
        let said = refused_program(PMI_RING, env);
        assert!(said.contains("Refused"), "{said}");
    }
    let said = refused(&[("PMIX_RANK", "1")]);
    assert!(
        said.contains("unset PMIX_RANK to run a single PE"),
        "{said}"
    );
    // PMIx, of a library that is not there.
    let library = ("SHMEM_PMIX_LIBRARY", "/nowhere/libpmix.so.2");
    let pmix = [("PMIX_NAMESPACE", "a@1"), ("PMIX_RANK", "1"), library];
    let said = refused(&pmix);
    for part in ["libpmix", "SHMEM_PMIX_LIBRARY=/nowhere/libpmix.so.2"] {
        assert!(said.contains(part), "{said}");
    }
    // A descriptor that the launcher has not left.
    let said = refused(&[("PMI_FD", "77"), ("PMI_RANK", "0"), ("PMI_SIZE", "2")]);
    assert!(said.contains("descriptor 77"), "{said}");
    // Nobody listens there.
    let said = refused(&[("PMI_PORT", "127.0.0.1:1"), ("PMI_ID", "0")]);
    assert!(said.contains("cannot connect to `127.0.0.1:1`"), "{said}");
}

/// With PMIx, of which `ci/pmix.sh` has more.
#[test]
fn open_mpi_starts_programs() {
    if !installed("mpirun.openmpi", "openmpi") {
        return;
    }
    let run = |options: &str| {
        let options = format!("--allow-run-as-root --oversubscribe {options}");
        Job::new("mpirun.openmpi", &options, &[RING]).run()
    };
    let output = run("-n 3");
    assert!(output.status.success(), "{output:?}");
    assert!(
        output.stdout.contains("round 3 PEs and came back"),
        "{output:?}"
    );
    let without = "-x SHMEM_PMIX_LIBRARY=/nowhere/libpmix.so.2";
    let output = run(&format!("{without} -n 2"));
    let said = output.stderr;
    assert!(!output.status.success(), "{said}");
    for part in [
        "Open MPI's mpirun, as one of 2",
        "mpiexec.hydra -n 2 PROGRAM",
    ] {
        assert!(said.contains(part), "{said}");
    }
    // One process can do without.
    let output = run(&format!("{without} -n 1"));
    assert!(output.status.success(), "{output:?}");
}

/// OpenSHMEM programs under `shmrun --pmix` need neither PMI nor PMIx; what speaks PMI finds PMIx.
#[test]
fn programs_of_ours_run_where_shmrun_serves_pmix() {
    if let Err(e) = shmem_pmix::Library::load(None) {
        return needs::skipped("pmix", e);
    }
    for options in ["-n 4 --pmix", "-n 5 --nodes 2 --pmix"] {
        let n = &options[3..4];
        let script = format!("exec {RING}");
        for program in [&[RING][..], &["/bin/sh", "-c", &script]] {
            let out = shmrun(options, program).succeed();
            let told = out.contains(&format!("round {n} PEs and came back right"));
            assert!(told, "{options} {program:?}: {out}");
        }
        shmrun(options, &[PMI_RING]).succeed();
        let script = format!("exec {HELLO}");
        let out = shmrun(options, &["/bin/sh", "-c", &script]).succeed();
        let mut lines: Vec<&str> = out.lines().collect();
        lines.sort_unstable();
        let count = n.parse().expect("a number");
        let all = (0..count).map(|pe: usize| format!("Hello from PE {pe} of {n}"));
        assert_eq!(lines, all.collect::<Vec<_>>(), "{options}");
    }
}
