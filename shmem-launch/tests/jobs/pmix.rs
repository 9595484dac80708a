//! Programs that speak PMIx, whose server is libpmix in a process beside each agent.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use shmem_testkit::job::Running;
use shmem_testkit::processes::{Process, kill};
use shmem_testkit::{Job, needs, wait_until};

use crate::support::shmrun;

/// Whether there is a libpmix.
fn there_is() -> bool {
    match shmem_pmix::Library::load(None) {
        Ok(_) => true,
        Err(e) => {
            needs::skipped("pmix", e);
            false
        }
    }
}

/// The example of that name.
fn program() -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_shmrun")).with_file_name("examples/pmix");
    assert!(program.exists(), "cargo build -p shmem-launch --examples");
    program.to_str().expect("a path in UTF-8").to_owned()
}

/// A job of it, which does what the words say.
fn pmix(options: &[&str], words: &str) -> Job {
    let program = program();
    let words: Vec<&str> = words.split(' ').collect();
    shmrun(&[options, &["--pmix", &program], &words].concat())
}

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// The directory of its server, as a process has it in its environment.
fn directory(pid: i32) -> PathBuf {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mut variables = environment.split(|&b| b == 0);
    let dir = variables.find_map(|v| v.strip_prefix(b"PMIX_SERVER_TMPDIR="));
    let dir = dir.unwrap_or_else(|| panic!("process {pid} has no server"));
    OsStr::from_bytes(dir).into()
}

#[test]
fn processes_find_their_place_and_each_other() {
    if !there_is() {
        return;
    }
    let out = pmix(
        &["-n", "5", "-N", "2"],
        "init place put fence check finalize",
    )
    .run();
    assert_eq!(out.code(), 0, "{}", out.stderr);
    let want = |rank: u32, local, of, peers, node| {
        format!(
            "{rank} of 5: local Some({local}) of Some({of}) ({peers}), node Some({node}) of Some(2), program \
             Some(0)"
        )
    };
    let want = [
        want(0, 0, 3, "0,1,2", 0),
        want(1, 1, 3, "0,1,2", 0),
        want(2, 2, 3, "0,1,2", 0),
        want(3, 0, 2, "3,4", 1),
        want(4, 1, 2, "3,4", 1),
    ];
    assert_eq!(sorted(&out.stdout), want);
    let out = pmix(&["-n", "3", "-N", "3"], "init peers finalize").run();
    let want = [
        "0: peers [[0], [1], [2]]",
        "1: peers [[0], [1], [2]]",
        "2: peers [[0], [1], [2]]",
    ];
    assert_eq!(sorted(&out.stdout), want, "{}", out.stderr);
}

#[test]
fn what_is_put_is_found_without_a_fence() {
    if there_is() {
        let words = "init put check barrier finalize";
        // Inside a node libpmix does it alone.
        let out = pmix(&["-n", "6", "-N", "6"], words).run();
        assert_eq!(out.code(), 0, "{}", out.stderr);
    }
}

#[test]
fn fences_of_parts_of_a_job_do_not_disturb_each_other() {
    if there_is() {
        let options = ["-n", "12", "-N", "6", "-x", "SHMEM_TREE_DEGREE=2"];
        let out = pmix(&options, "init subsets barrier finalize").run();
        assert_eq!(out.code(), 0, "{}", out.stderr);
    }
}

#[test]
fn programs_are_numbered() {
    if !there_is() {
        return;
    }
    let program = &program();
    let part = |n, value| ["-n", n, "-x", value, program, "init", "place", "finalize"];
    let first = [&["--pmix"][..], &part("1", "A=1")].concat();
    let out = shmrun(&[&first[..], &[":"], &part("2", "A=2")].concat()).run();
    assert_eq!(out.code(), 0, "{}", out.stderr);
    let lines = sorted(&out.stdout);
    for (line, program) in lines.iter().zip([0, 1, 1]) {
        assert!(line.contains(&format!("program Some({program})")), "{line}");
    }
    assert_eq!(lines.len(), 3);
}

#[test]
fn an_abort_ends_the_job_with_its_status_and_words() {
    if there_is() {
        let words = "init only 3 abort only 3 peers sleep";
        let out = pmix(&["-n", "4", "-N", "2"], words).run();
        assert_eq!(out.code(), 7, "{}", out.stderr);
        // The process is there until the launcher has heard of the abort and ends it.
        assert_eq!(out.stdout, "");
        assert!(
            out.messages()[0].contains("ended the job with status 7: not any more"),
            "{}",
            out.stderr
        );
        assert!(out.messages()[0].contains("PE 3 on node 1"));
    }
}

#[test]
fn who_leaves_without_finalize_is_missed() {
    if there_is() {
        let out = pmix(&["-n", "4", "-N", "2"], "init barrier only 2 exit sleep").run();
        assert_eq!(out.code(), 1, "{}", out.stderr);
        let told = &out.messages()[0];
        assert!(
            told.contains("PE 2") && told.contains("without finalize"),
            "{told}"
        );
    }
}

#[test]
fn who_never_initialises_is_missed_by_those_who_have() {
    if !there_is() {
        return;
    }
    // On the same node, whose libpmix alone knows of the fence; and on another, through the tree.
    for options in [&["-n", "2"][..], &["-n", "2", "-N", "2"]] {
        let out = pmix(options, "only 1 exit init barrier finalize").run();
        assert_eq!(out.code(), 1, "{}", out.stderr);
        let told = &out.messages()[0];
        assert!(told.contains("PE 1 has ended, but other PEs"), "{told}");
    }
    // Nobody has: nobody waits.
    let out = pmix(&["-n", "3"], "exit").run();
    assert_eq!(out.code(), 0, "{}", out.stderr);
    // And those who have finalized do not.
    let out = pmix(&["-n", "2"], "init finalize exit").run();
    assert_eq!(out.code(), 0, "{}", out.stderr);
}

/// Files by which a job's processes and a test wait for each other.
struct Gate(PathBuf);

impl Gate {
    fn new(name: &str) -> Self {
        let name = format!("shmrun-gate-{name}-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        Self(dir)
    }

    fn path(&self, name: &str) -> String {
        let path = self.0.join(name);
        path.to_str().expect("a path in UTF-8").to_owned()
    }

    /// Waits until all processes have come to `reach` with this name.
    #[track_caller]
    fn wait(&self, name: &str, n: u32, job: &Running) {
        let there = || (0..n).all(|rank| self.0.join(format!("{name}.{rank}")).exists());
        wait_until("all have come so far", there, || {
            format!("{:?}", job.processes())
        });
    }

    /// Has those go on that `await` this name.
    fn open(&self, name: &str) {
        std::fs::write(self.0.join(name), "").unwrap();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Checks how a job ended whose servers had these directories.
#[track_caller]
fn ended(job: Running, dirs: &[PathBuf], code: i32, words: &str) {
    let out = job.wait();
    assert_eq!(out.code(), code, "{out:?}");
    let told = out.messages();
    assert!(told.len() == 1 && told[0].contains(words), "{out:?}");
    let left: Vec<_> = dirs.iter().filter(|dir| dir.exists()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn nothing_is_left_whoever_is_killed() {
    if !there_is() {
        return;
    }
    for (victim, count, code) in [
        ("shmrun-pmix", 2, 125),
        ("shmrun-agent", 2, 125),
        ("pmix", 4, 137),
    ] {
        let gate = Gate::new("left");
        let words = format!("init barrier reach {} sleep", gate.path("in"));
        let job = pmix(&["-n", "4", "-N", "2"], &words).start();
        gate.wait("in", 4, &job);
        let dirs: Vec<PathBuf> = job.wait_for("pmix", 4).into_iter().map(directory).collect();
        assert!(dirs.iter().all(|dir| dir.is_dir()), "{dirs:?}");
        kill(*job.wait_for(victim, count).last().unwrap(), 9);
        let words = match victim {
            "shmrun-pmix" => "its PMIx server was killed by signal 9",
            _ => "was killed by signal 9",
        };
        ended(job, &dirs, code, words);
    }
}

/// PEs that are in init cannot get out of it without their server, and fail. Their agent hears of that and of the
/// server's death in one order or the other.
#[test]
fn the_death_of_a_server_is_told_and_not_that_pes_fail_of_it() {
    if !there_is() {
        return;
    }
    for pes_first in [true, false] {
        let gate = Gate::new("in-init");
        let words = format!(
            "reach {} await {} reach {} init barrier sleep",
            gate.path("up"),
            gate.path("go"),
            gate.path("in")
        );
        let job = pmix(&["-n", "4", "-N", "2"], &words).start();
        gate.wait("up", 4, &job);
        let pes = job.wait_for("pmix", 4);
        let dirs: Vec<PathBuf> = pes.iter().copied().map(directory).collect();
        let server = *job.wait_for("shmrun-pmix", 2).last().unwrap();
        let agent = Process::of(server).unwrap().parent;
        let child = |pid: &i32| Process::of(*pid).is_some_and(|p| p.parent == agent);
        let own: Vec<i32> = pes.iter().copied().filter(child).collect();
        assert_eq!(own.len(), 2, "{:?}", job.processes());
        kill(server, libc::SIGSTOP);
        gate.open("go");
        gate.wait("in", 4, &job);
        match pes_first {
            // It hears of all of it at once.
            true => {
                kill(agent, libc::SIGSTOP);
                kill(server, libc::SIGKILL);
                let over = |pid: &i32| Process::of(*pid).is_none_or(|p| p.state == 'Z');
                wait_until(
                    "the PEs have failed",
                    || own.iter().all(over),
                    || format!("{:?}", job.processes()),
                );
                kill(agent, libc::SIGCONT);
            }
            // The PEs are continued to be ended.
            false => {
                own.iter().for_each(|&pe| kill(pe, libc::SIGSTOP));
                kill(server, libc::SIGKILL);
            }
        }
        ended(job, &dirs, 125, "its PMIx server was killed by signal 9");
    }
}

/// Nobody waits for a server that does not answer before the failure of a PE is told.
#[test]
fn a_pe_that_fails_is_told_also_where_its_server_is_stopped() {
    if !there_is() {
        return;
    }
    let gate = Gate::new("stopped");
    let words = format!(
        "init barrier reach {} await {} only 1 die sleep",
        gate.path("in"),
        gate.path("go")
    );
    let job = pmix(&["-n", "2"], &words).start();
    gate.wait("in", 2, &job);
    let server = job.wait_for("shmrun-pmix", 1)[0];
    kill(server, libc::SIGSTOP);
    gate.open("go");
    let told = "PE 1 on node 0";
    let dirs = Vec::new();
    ended(job, &dirs, 128 + libc::SIGABRT, told);
}

/// An agent and its server are killed at once, so that neither looks after the other; and so are all above them.
#[test]
fn nothing_is_left_when_servers_and_agents_are_killed_at_once() {
    if !there_is() {
        return;
    }
    for with_launcher in [false, true] {
        let job = pmix(&["-n", "4", "-N", "2"], "init barrier sleep").start();
        let processes = job.wait_for("pmix", 4);
        let dirs: Vec<PathBuf> = processes.into_iter().map(directory).collect();
        let mut victims = job.wait_for("shmrun-pmix", 2);
        victims.extend(job.wait_for("shmrun-agent", 2));
        victims.extend(with_launcher.then(|| job.pid()));
        // So that nobody sees another's end before his own.
        for signal in [libc::SIGSTOP, libc::SIGKILL] {
            victims.iter().for_each(|&pid| kill(pid, signal));
        }
        job.wait();
        // The guards go on by themselves.
        let gone = || dirs.iter().all(|dir| !dir.exists());
        wait_until("the servers' directories are gone", gone, || {
            format!("{dirs:?}")
        });
    }
}

#[test]
fn a_program_gets_pmi_or_pmix() {
    let variables = |options: &[&str]| {
        let script = "env | sed -n 's/^\\(PMI_RANK\\|PMIX_RANK\\|PMIX_NAMESPACE\\|OMPI_COMM_WORLD_RANK\\)=.*/\\1/p'";
        let words = [options, &["-n", "1", "/bin/sh", "-c", script]].concat();
        let job = shmrun(&words)
            .env("PMIX_RANK", "3")
            .env("PMIX_NAMESPACE", "outer");
        let out = job.env("OMPI_COMM_WORLD_RANK", "3").run();
        assert_eq!(out.code(), 0, "{}", out.stderr);
        sorted(&out.stdout)
    };
    // What an outer launcher has set is not passed on.
    assert_eq!(variables(&[]), ["PMI_RANK"]);
    if there_is() {
        assert_eq!(variables(&["--pmix"]), ["PMIX_NAMESPACE", "PMIX_RANK"]);
    }
}

#[test]
fn without_a_library_nothing_is_started() {
    let job = shmrun(&["-n", "2", "--pmix", "/bin/sh", "-c", "echo started"]);
    let out = job.env("SHMEM_PMIX_LIBRARY", "/no/such/libpmix.so").run();
    assert_eq!((out.code(), out.stdout.as_str()), (125, ""));
    for part in ["--pmix", "SHMEM_PMIX_LIBRARY=/no/such/libpmix.so"] {
        assert!(out.stderr.contains(part), "{}", out.stderr);
    }
    let out = shmrun(&["-n", "2", "--pmix", "--respawn", "1", "true"]).run();
    assert_eq!(out.code(), 2, "{}", out.stderr);
    let out = shmrun(&["--pmix-server"]).run();
    assert_eq!(out.code(), 2, "{}", out.stderr);
}

#[test]
fn open_mpi_is_told_where_processes_outnumber_cores() {
    if !there_is() {
        return;
    }
    let say = [
        "-n",
        "2",
        "--pmix",
        "/bin/sh",
        "-c",
        "echo +$OMPI_MCA_mpi_yield_when_idle",
    ];
    for (polls, yields, want) in [
        ("0", None, "+1"),
        ("100", None, "+"),
        ("0", Some("0"), "+0"),
    ] {
        let mut job = shmrun(&say).env("SHMEM_SPIN", polls);
        if let Some(yields) = yields {
            job = job.env("OMPI_MCA_mpi_yield_when_idle", yields);
        }
        let out = job.run();
        assert_eq!(out.code(), 0, "{out:?}");
        assert_eq!(sorted(&out.stdout), [want, want], "SHMEM_SPIN={polls}");
    }
}
