//! Jobs of every kind to which everything happens: processes of all kinds are killed, stopped and continued,
//! output is closed, its disk is full, terminals hang up. No job takes longer to end than it may, none leaves a
//! process or a file, and no line is lost of a PE that ended well.
//!
//! A job follows from its seed, of which a failure tells: `SHMEM_CHAOS_SEED=17` runs that job alone.
//! `SHMEM_CHAOS_JOBS=500` runs so many. Things happen at random moments and to random processes, which is the
//! point: how far a job has come by then is the machine's business, so a seed may have to be run more than once.
//! What is judged afterwards holds wherever a job was, and however slow the machine is.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use shmem_testkit::job::Running;
use shmem_testkit::processes::Process;
use shmem_testkit::{Job, Outcome, PATIENCE};

use crate::programs::{BUSY, RING, SHMRUN};

const HUP: i32 = 1;
const INT: i32 = 2;
const QUIT: i32 = 3;
const KILL: i32 = 9;
const TERM: i32 = 15;
const CONT: i32 = 18;
const STOP: i32 = 19;
const TSTP: i32 = 20;

/// How long anybody may be silent where somebody is stopped.
const SILENCE: &str = "2s";

/// How long elsewhere: so long that it takes no process for dead which gets no processor.
const NO_SILENCE: &str = "300s";

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// What the PEs do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    /// An OpenSHMEM program that never ends.
    Busy,
    /// One that does.
    Ring,
    /// A shell that writes numbered lines and leaves a file behind when it has written all of them.
    Lines,
    /// One that has children with sessions of their own besides.
    Sessions,
    /// One that writes megabytes of anything.
    Bytes,
}

/// Where the output goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    Read,
    /// Nobody reads it after a while.
    Closed,
    /// Its disk is full.
    Full,
}

/// What happens to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Nothing,
    /// A signal for a process of this name.
    Signal(&'static str, i32),
    /// It is stopped, and continued after a while.
    Pause(&'static str),
    /// All that is `shmrun`'s is killed at once.
    Everything,
}

/// Names of processes. A PE has the name of its program.
const LAUNCHER: &str = "shmrun-under-te";
const PE: &str = "PE";

#[derive(Debug)]
struct Plan {
    pes: u64,
    nodes: u64,
    hosts: bool,
    degree: u64,
    keep_going: bool,
    program: Program,
    output: Output,
    faults: Vec<(Duration, Fault)>,
    input: bool,
}

impl Plan {
    fn of(seed: u64) -> Self {
        let mut chance = Chance(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let nodes = 1 + chance.below(5);
        let hosts = nodes > 1 && chance.one_in(3);
        let program = chance.one_of(&[
            Program::Busy,
            Program::Ring,
            Program::Lines,
            Program::Lines,
            Program::Sessions,
            Program::Bytes,
        ]);
        let mut faults = Vec::new();
        for _ in 0..1 + chance.below(2) {
            let at = Duration::from_millis(chance.one_of(&[50, 300, 1000]));
            let at = at.mul_f64(chance.below(1000) as f64 / 1000.0);
            faults.push((at, Self::fault(&mut chance)));
        }
        // A guard ends its PEs when all that is shmrun's is gone, and an agent ends PEs whose guard is gone, once it has looked.
        // Against both at once there is nothing.
        if faults
            .iter()
            .any(|&(_, fault)| fault == Fault::Signal("pe-guard", KILL))
        {
            faults.retain(|&(_, fault)| fault != Fault::Everything);
        }
        let ended =
            |(_, fault): &(Duration, Fault)| !matches!(fault, Fault::Nothing | Fault::Pause(_));
        if program == Program::Busy && !faults.iter().any(ended) {
            faults.push((Duration::from_secs(1), Fault::Signal(LAUNCHER, TERM)));
        }
        faults.sort_by_key(|&(at, _)| at);
        Self {
            pes: nodes + chance.below(8),
            nodes,
            hosts,
            degree: 2 + chance.below(2),
            keep_going: chance.one_in(4),
            program,
            output: chance.one_of(&[
                Output::Read,
                Output::Read,
                Output::Read,
                Output::Closed,
                Output::Full,
            ]),
            faults,
            input: chance.one_in(3),
        }
    }

    fn fault(chance: &mut Chance) -> Fault {
        let victims = [
            PE,
            PE,
            "shmrun-agent",
            "pe-guard",
            "shmrun-warden",
            "shmrun-spawner",
            LAUNCHER,
        ];
        match chance.below(12) {
            0 | 1 => Fault::Nothing,
            2 => Fault::Signal(LAUNCHER, chance.one_of(&[HUP, INT, QUIT, TERM])),
            3 => Fault::Signal("shmrun-agent", TERM),
            4 | 5 => Fault::Signal("shmrun-agent", STOP),
            6 => Fault::Everything,
            7 | 8 => Fault::Pause(chance.one_of(&[PE, "pe-guard", "shmrun-warden", LAUNCHER])),
            _ => Fault::Signal(chance.one_of(&victims), KILL),
        }
    }

    /// Whether somebody is harmed by whom output may be lost, or the job ended.
    fn harms(&self, whom: impl Fn(&str) -> bool) -> bool {
        self.faults.iter().any(|(_, fault)| match fault {
            Fault::Nothing | Fault::Pause(_) => false,
            Fault::Everything => true,
            Fault::Signal(name, _) => whom(name),
        })
    }

    /// What the heartbeat is for: an agent that is stopped for good, of which nothing is judged that silence could
    /// spoil; and a launcher that is paused for longer, which agents must not take for dead. They count looks, not
    /// seconds (`shmem-launch/src/pulse.rs`), so that is no question of time.
    fn silence(&self) -> &'static str {
        let tried = |(_, fault): &(Duration, Fault)| {
            matches!(fault, Fault::Signal(_, STOP) | Fault::Pause(LAUNCHER))
        };
        match self.faults.iter().any(tried) {
            true => SILENCE,
            false => NO_SILENCE,
        }
    }

    /// Whether all goes well.
    fn is_harmless(&self) -> bool {
        !self.harms(|_| true) && self.output == Output::Read
    }

    /// Whether all that comes of PEs arrives.
    fn output_arrives(&self) -> bool {
        let harmed =
            self.harms(|name| name != PE && name != "shmrun-spawner" && name != "pe-guard");
        !harmed && self.output == Output::Read
    }

    fn command(&self, dir: &Path) -> Command {
        let mut command = Command::new(SHMRUN);
        command.args(["-n", &self.pes.to_string()]);
        if self.hosts {
            let hosts: Vec<_> = (0..self.nodes).map(|n| format!("h{n}")).collect();
            command.args(["--hosts", &hosts.join(","), "--rsh"]);
            command.arg(format!("sh {}", dir.join("rsh").display()));
        } else {
            command.args(["--nodes", &self.nodes.to_string()]);
        }
        if self.keep_going {
            command.arg("--keep-going");
        }
        let lines = "n=0; while [ $n -lt 200 ]; do echo $PMI_RANK $n; n=$((n+1)); done; \
                     [ $PMI_RANK != 1 ] || sleep 0.7; : >$DIR/well.$PMI_RANK";
        let sessions =
            format!("setsid sleep 1000 & (setsid sh -c 'sleep 1000 & exec sleep 1000' &); {lines}");
        match self.program {
            Program::Busy => command.arg(BUSY),
            Program::Ring => command.arg(RING),
            Program::Lines => command.args(["/bin/sh", "-c", lines]),
            Program::Sessions => command.args(["/bin/sh", "-c", &sessions]),
            Program::Bytes => {
                command.args(["/bin/sh", "-c", "head -c 3000000 /dev/urandom; sleep 0.3"])
            }
        };
        command
            .env("DIR", dir)
            .env("TMPDIR", dir.join("tmp"))
            .env("SHMEM_SYMMETRIC_SIZE", "1M")
            .env("SHMEM_TREE_DEGREE", self.degree.to_string())
            .env("SHMEM_HEARTBEAT_TIMEOUT", self.silence());
        command
    }
}

/// Whether a process is meant. Before PEs run, their template has their program's name.
fn is(process: &Process, name: &str) -> bool {
    match name {
        PE => {
            !process.name.starts_with("shmrun")
                && !["pe-guard", "setsid", "sleep"].contains(&&*process.name)
        }
        name => process.name == name,
    }
}

fn victims(job: &Running, name: &str) -> Vec<Process> {
    let mut all = job.processes();
    all.retain(|p| is(p, name));
    all
}

/// The agents that can be stopped for good. What an agent has just forked to start PEs has its name for a moment,
/// and must not be: nobody ends a job whose PEs are only slow to start. So an agent has a guard, or is no agent's
/// child.
fn agents(job: &Running) -> Vec<Process> {
    let all = job.processes();
    let is_agent = |p: &Process| p.name == "shmrun-agent";
    let has_guard = |pid| all.iter().any(|p| p.name == "pe-guard" && p.parent == pid);
    let by_agent = |p: &Process| all.iter().any(|of| of.pid == p.parent && is_agent(of));
    let certain = all
        .iter()
        .filter(|p| is_agent(p) && (has_guard(p.pid) || !by_agent(p)));
    certain.cloned().collect()
}

/// Whether nobody is left who could end a job of which something is stopped.
fn launcher_has_ended(job: &Running) -> bool {
    Process::of(job.pid()).is_none_or(|p| p.state == 'Z')
}

/// A directory for a job, with a remote shell.
struct Place(PathBuf);

impl Place {
    fn new(seed: u64) -> Self {
        let dir = std::env::temp_dir().join(format!("shmem-chaos-{}-{seed}", std::process::id()));
        fs::create_dir_all(dir.join("tmp")).expect("a temporary directory");
        let rsh = "shift; exec setsid -w env -i PATH=\"$PATH\" DIR=\"$DIR\" TESTKIT_JOB=\"$TESTKIT_JOB\" \
                   sh -c \"$*\"\n";
        fs::write(dir.join("rsh"), rsh).expect("a new file");
        Self(dir)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Lets everything happen, and gives whom to continue.
fn happen(job: &Running, plan: &Plan, chance: &mut Chance) {
    let began = Instant::now();
    for &(at, fault) in &plan.faults {
        std::thread::sleep(at.saturating_sub(began.elapsed()));
        let mut one = |all: Vec<Process>| {
            let at = chance.below(all.len().max(1) as u64) as usize;
            all.into_iter().nth(at)
        };
        match fault {
            Fault::Nothing => {}
            Fault::Signal(_, STOP) => {
                if let Some(agent) = one(agents(job)) {
                    // Whom somebody stops when all above are gone, only that one can continue.
                    if agent.kill(STOP) && launcher_has_ended(job) {
                        agent.kill(CONT);
                    }
                }
            }
            Fault::Signal(name, signal) => {
                if let Some(process) = one(victims(job, name)) {
                    process.kill(signal);
                }
            }
            Fault::Pause(name) => {
                if let Some(process) = one(victims(job, name)) {
                    // On other hosts nobody can tell a launcher that says nothing before it stops from one that
                    // is cut off.
                    let told = name == LAUNCHER && (plan.hosts || process.pid % 2 == 0);
                    process.kill([STOP, TSTP][usize::from(told)]);
                    std::thread::sleep(Duration::from_secs(3));
                    process.kill(CONT);
                }
            }
            Fault::Everything => {
                for process in job.processes() {
                    if process.name.starts_with("shmrun") {
                        process.kill(KILL);
                    }
                }
            }
        }
    }
}

/// Runs the job of a seed, and tells what is wrong.
fn run(seed: u64) -> Result<(), String> {
    let plan = Plan::of(seed);
    let place = Place::new(seed);
    let mut job = Job::of(plan.command(&place.0)).in_a_group();
    if plan.input {
        job = job.stdin(Stdio::piped());
    }
    if plan.output == Output::Full {
        let full = fs::File::options().write(true).open("/dev/full");
        job = job.stdout(full.expect("/dev/full"));
    }
    let mut job = job.start();
    let reader = (plan.output == Output::Closed).then(|| job.stdout());
    let wrong = |what: String| format!("{what}: {plan:?}");
    let mut chance = Chance(seed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            drop(reader);
        });
        happen(&job, &plan, &mut chance);
    });
    if plan.program == Program::Busy {
        // Whoever was to be harmed may not have been there.
        std::thread::sleep(Duration::from_secs(1));
        job.kill(TERM);
    }
    let outcome = job.end_in(PATIENCE, PATIENCE).map_err(wrong)?;
    judge(&plan, &place.0, &outcome).map_err(|what| wrong(format!("{what}: {outcome:.2000?}")))
}

fn judge(plan: &Plan, dir: &Path, outcome: &Outcome) -> Result<(), String> {
    let left = fs::read_dir(dir.join("tmp")).expect("a directory").count();
    if left > 0 {
        return Err(format!("{left} files are left"));
    }
    // Programs may well panic that cannot write.
    let ours = [
        "panicked at shmem-launch",
        "panicked at shmem-pmi",
        "panicked at shmem-node",
    ];
    let panicked = |l: &str| ours.iter().any(|part| l.contains(part));
    if outcome.stderr.lines().any(panicked) {
        return Err("somebody panicked".to_owned());
    }
    if plan.is_harmless() && plan.program != Program::Busy && outcome.status.code() != Some(0) {
        return Err("nothing went wrong, and yet it failed".to_owned());
    }
    if !plan.output_arrives() || !matches!(plan.program, Program::Lines | Program::Sessions) {
        return Ok(());
    }
    let mut wrong = String::new();
    for rank in 0..plan.pes {
        if !dir.join(format!("well.{rank}")).exists() {
            continue;
        }
        let of_rank = format!("{rank} ");
        let lines = outcome
            .stdout
            .lines()
            .filter_map(|l| l.strip_prefix(&of_rank));
        let numbers = lines.filter_map(|l| l.parse::<u32>().ok());
        if !numbers.eq(0..200) {
            let _ = write!(wrong, "lines of PE {rank} are lost, which ended well; ");
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong),
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn whatever_happens_jobs_end_and_leave_nothing() {
    if let Some(seed) = number("SHMEM_CHAOS_SEED") {
        return run(seed).unwrap_or_else(|what| panic!("{what}"));
    }
    let jobs = number("SHMEM_CHAOS_JOBS").unwrap_or(40);
    let first = number("SHMEM_CHAOS_FIRST").unwrap_or(0);
    let (next, failed) = (AtomicU64::new(first), AtomicU64::new(0));
    std::thread::scope(|scope| {
        // Most of the time they wait.
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + jobs {
                        break;
                    }
                    if let Err(what) = run(seed) {
                        eprintln!("failed with SHMEM_CHAOS_SEED={seed}: {what}");
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner();
    assert_eq!(failed, 0, "of {jobs} jobs");
}
