//! Jobs without a launcher: ordinary processes that share nothing but an id, which they get by a variable or
//! on standard input; as one node, as several emulated on this machine, and as hosts that are network namespaces.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use shmem::UniqueId;
use shmem_testkit::needs::skipped;
use shmem_testkit::ports::free_tcp;
use shmem_testkit::processes;
use shmem_testkit::{Job, Outcome, Running};

use crate::conformance::{self, SOME_OF_EACH};
use crate::programs::{BY_ID, HELLO, RING};

const SIGKILL: i32 = 9;

/// A process that has printed a line: the process, the line, and the rest of what it will print.
struct Told {
    process: Running,
    line: String,
    rest: Box<dyn Read>,
}

fn told(job: Job) -> Told {
    let mut process = job.start();
    let mut rest = BufReader::new(process.stdout());
    let mut line = String::new();
    rest.read_line(&mut line).expect("its first line");
    Told {
        process,
        line: line.trim().to_owned(),
        rest: Box::new(rest),
    }
}

impl Told {
    /// What it printed until its end, which must be a success.
    fn succeed(mut self) -> String {
        let mut text = String::new();
        self.rest.read_to_string(&mut text).expect("its output");
        self.process.wait().expect_success();
        text
    }
}

/// A process that makes an id, and lives until its input is closed.
fn maker() -> Told {
    told(Job::new(BY_ID, "", &["maker"]).stdin(Stdio::piped()))
}

/// A process of the program of these tests, which gets the id as its input.
fn pe(id: &str, what: &str, rank: usize, n: usize, settings: &[(&str, &str)]) -> Running {
    let (rank, n) = (rank.to_string(), n.to_string());
    let job = Job::new(BY_ID, "", &[what, &rank, &n]);
    let job = job.envs(settings.iter().copied()).stdin(Stdio::piped());
    let mut running = job.start();
    // One that has ended by now is judged by its outcome.
    let _ = writeln!(running.stdin(), "{id}");
    running
}

fn pes(id: &str, what: &str, ranks: std::ops::Range<usize>, n: usize) -> Vec<Running> {
    ranks.map(|rank| pe(id, what, rank, n, &[])).collect()
}

fn ended(pes: Vec<Running>) -> Vec<Outcome> {
    pes.into_iter().map(Running::wait).collect()
}

/// A program that knows nothing of ids, as PE `rank`.
fn by_environment(program: &[&str], id: &str, rank: usize, n: usize) -> Job {
    Job::new(program[0], "", &program[1..])
        .env("SHMEM_UNIQUE_ID", id)
        .env("RANK", rank.to_string())
        .env("WORLD_SIZE", n.to_string())
        .env("SHMEM_DEBUG", "1")
}

/// Where an id says that its processes meet.
fn address(id: &str) -> String {
    let id: UniqueId = id.parse().unwrap();
    let shown = format!("{id:?}");
    let at = shown.split("at ").nth(1).unwrap();
    at.split(',').next().unwrap().to_owned()
}

#[test]
fn a_variable_makes_any_program_a_job() {
    let maker = maker();
    let rings: Vec<_> = (0..4)
        .map(|rank| by_environment(&[RING], &maker.line, rank, 4).start())
        .collect();
    for (rank, outcome) in ended(rings).into_iter().enumerate() {
        outcome.expect_success();
        let place = format!("PE {rank} of 4 on node 0 of 1");
        assert!(outcome.stderr.contains(&place), "{outcome:?}");
        assert!(!outcome.stderr.contains(&maker.line), "{outcome:?}");
    }
    // The maker lives on, and has nothing to say.
    let mut maker = maker;
    drop(maker.process.stdin());
    maker.succeed();
}

#[test]
fn pe_0_makes_the_id_and_the_others_read_it() {
    let first = told(Job::new(BY_ID, "", &["first", "4"]));
    for outcome in ended(pes(&first.line, "rounds", 1..4, 4)) {
        outcome.expect_success();
        assert!(
            outcome.stdout.contains("of 4 on 1 nodes: ok"),
            "{outcome:?}"
        );
    }
    assert_eq!(first.succeed(), "PE 0 of 4 on 1 nodes: ok\n");
}

#[test]
fn emulated_nodes_pass_checks_of_each_kind() {
    emulated_nodes_pass(SOME_OF_EACH);
}

#[test]
#[ignore = "nightly: each run has some checks"]
fn emulated_nodes_pass_what_must_hold_everywhere() {
    emulated_nodes_pass(&[]);
}

fn emulated_nodes_pass(checks: &[&'static str]) {
    let program = conformance::with(checks);
    let id = UniqueId::at("127.0.0.1", free_tcp()).unwrap().to_text();
    let start = |rank: usize| {
        let node = ["left", "right"][rank % 2];
        by_environment(&program, &id, rank, 4)
            .env("SHMEM_EMULATED_NODE", node)
            .env("SHMEM_SPIN", "0")
            .start()
    };
    // PE 0 listens, and comes last.
    let pes: Vec<_> = [3, 1, 2, 0].map(start).into();
    for (outcome, rank) in ended(pes).into_iter().zip([3, 1, 2, 0]) {
        outcome.expect_success();
        let place = format!("PE {rank} of 4 on node {} of 2", rank % 2);
        assert!(outcome.stderr.contains(&place), "{outcome:?}");
    }
}

#[test]
fn frameworks_variables_and_a_secret_do() {
    let port = free_tcp();
    let before = (port - 1).to_string();
    let start = |rank: usize| {
        Job::new(RING, "", &[])
            .env("MASTER_ADDR", "localhost")
            .env("MASTER_PORT", &before)
            .env("RANK", rank.to_string())
            .env("LOCAL_RANK", rank.to_string())
            .env("WORLD_SIZE", "3")
            .env("TORCHELASTIC_RUN_ID", "none")
            .env("SHMEM_DEBUG", "1")
    };
    let with = |rank| start(rank).env("SHMEM_UNIQUE_ID_SECRET", "of these tests, and no other");
    let pes: Vec<_> = (0..3).map(|rank| with(rank).start()).collect();
    for outcome in ended(pes) {
        outcome.expect_success();
        assert!(
            outcome.stderr.contains("of 3 on node 0 of 1"),
            "{outcome:?}"
        );
    }
    // Without it nobody is a job of his own by mistake.
    let outcome = start(0).run();
    assert!(!outcome.status.success(), "{outcome:?}");
    let said = &outcome.stderr;
    assert!(
        said.contains("torchrun") && said.contains("SHMEM_UNIQUE_ID_SECRET"),
        "{said}"
    );
}

#[test]
fn strangers_neither_stop_nor_join_a_job() {
    let first = told(Job::new(BY_ID, "", &["first", "3"]));
    let at = address(&first.line);
    let mut strangers: Vec<TcpStream> = (0..200)
        .map(|_| TcpStream::connect(&at).expect("it listens"))
        .collect();
    for (number, stranger) in strangers.iter_mut().enumerate() {
        // Some say nothing, some speak another protocol, some a lot. Their connections may be closed by now.
        let _ = match number % 4 {
            0 => Ok(()),
            1 => stranger.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
            2 => stranger.write_all(&[0xff; 10_000]),
            _ => stranger.write_all(b"SHMEMID\x01"),
        };
    }
    let (host, port) = at.rsplit_once(':').unwrap();
    let other = UniqueId::at(host, port.parse().unwrap()).unwrap().to_text();
    let wrong = pe(&other, "rounds", 1, 3, &[]).wait();
    assert!(!wrong.status.success(), "{wrong:?}");
    assert!(wrong.stderr.contains("does not know the key"), "{wrong:?}");
    for outcome in ended(pes(&first.line, "rounds", 1..3, 3)) {
        outcome.expect_success();
    }
    assert_eq!(first.succeed(), "PE 0 of 3 on 1 nodes: ok\n");
    // Nobody was answered.
    for stranger in &mut strangers {
        let mut heard = Vec::new();
        let _ = stranger.read_to_end(&mut heard);
        assert!(heard.is_empty(), "{heard:?}");
    }
}

/// One that waits for what never comes; it runs.
fn running((process, mut rest): (Running, impl BufRead + 'static)) -> Told {
    let mut line = String::new();
    rest.read_line(&mut line).expect("its first line");
    assert!(line.starts_with("ready "), "{line}");
    Told {
        process,
        line,
        rest: Box::new(rest),
    }
}

/// Starts PEs that wait for what never comes; all run.
fn hanging(id: &str, n: usize) -> Vec<Told> {
    let start = |rank: usize| {
        let mut process = pe(id, "hang", rank, n, &[]);
        let rest = BufReader::new(process.stdout());
        (process, rest)
    };
    let started: Vec<_> = (0..n).map(start).collect();
    started.into_iter().map(running).collect()
}

#[test]
fn the_death_of_a_pe_ends_all_and_is_told() {
    let maker = maker();
    let mut pes = hanging(&maker.line, 4);
    let dead = pes.remove(2);
    processes::kill(dead.process.pid(), SIGKILL);
    for pe in pes {
        let outcome = pe.process.wait();
        assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
        let said = &outcome.stderr;
        let pid = dead.process.pid();
        assert!(
            said.contains(&format!("PE 2 (pid {pid} at 127.0.0.1)")),
            "{said}"
        );
        assert!(said.contains("has ended without finalize"), "{said}");
    }
    assert!(!dead.process.wait().status.success());
}

#[test]
fn the_death_of_who_listens_ends_all_and_is_told() {
    let maker = maker();
    let pes = hanging(&maker.line, 3);
    processes::kill(maker.process.pid(), SIGKILL);
    for pe in pes {
        let outcome = pe.process.wait();
        assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
        assert!(
            outcome.stderr.contains("The process that made the id"),
            "{outcome:?}"
        );
    }
    assert!(!maker.process.wait().status.success());
    // Who comes now is told, too.
    let late = pe(&maker.line, "rounds", 0, 3, &[]).wait();
    assert!(!late.status.success());
    assert!(
        late.stderr.contains("cannot connect to 127.0.0.1"),
        "{late:?}"
    );
}

#[test]
fn a_failure_is_everybodys() {
    // A panic's status is 101.
    for (how, status, why) in [("panic", 101, "on purpose"), ("exit", 7, "global_exit(7)")] {
        let maker = maker();
        let outcomes = ended(pes(&maker.line, how, 0..3, 3));
        for outcome in &outcomes {
            assert_eq!(outcome.status.code(), Some(status), "{outcome:?}");
        }
        for outcome in &outcomes[..2] {
            let said = &outcome.stderr;
            assert!(said.contains("the job ends: PE 2 (pid"), "{said}");
        }
        let said: String = outcomes.into_iter().map(|outcome| outcome.stderr).collect();
        assert!(said.contains(why), "{said}");
    }
    // PE 0 listens, and is the one that fails.
    let id = UniqueId::at("127.0.0.1", free_tcp()).unwrap().to_text();
    let both = vec![
        pe(&id, "alone-fails", 0, 2, &[]),
        pe(&id, "rounds", 1, 2, &[]),
    ];
    let outcomes = ended(both);
    for (outcome, why) in outcomes
        .iter()
        .zip(["no such thing", "PE 0 exits without finalize"])
    {
        assert_eq!(outcome.status.code(), Some(101), "{outcome:?}");
        assert!(outcome.stderr.contains(why), "{outcome:?}");
    }
}

#[test]
fn who_is_missing_is_named_to_all() {
    let maker = told(
        Job::new(BY_ID, "", &["maker"])
            .stdin(Stdio::piped())
            .env("SHMEM_INIT_TIMEOUT", "10s"),
    );
    for outcome in ended(pes(&maker.line, "rounds", 1..3, 5)) {
        assert!(!outcome.status.success());
        let said = &outcome.stderr;
        assert!(
            said.contains("PEs 0,3-4 of 5 have not come within 10s"),
            "{said}"
        );
    }
    // Where PE 0 is to listen, its absence is what the others see.
    let id = UniqueId::at("127.0.0.1", free_tcp()).unwrap().to_text();
    let outcome = pe(&id, "rounds", 1, 2, &[("SHMEM_INIT_TIMEOUT", "1s")]).wait();
    assert!(!outcome.status.success());
    let said = &outcome.stderr;
    assert!(
        said.contains("within 1s") && said.contains("PE 0 listens there"),
        "{said}"
    );
}

#[test]
fn places_that_contradict_each_other_are_told_to_all() {
    let maker_a = maker();
    let both = vec![
        pe(&maker_a.line, "rounds", 0, 3, &[]),
        pe(&maker_a.line, "rounds", 0, 3, &[]),
    ];
    for outcome in ended(both) {
        assert!(!outcome.status.success());
        assert!(
            outcome.stderr.contains("two processes want to be PE 0"),
            "{outcome:?}"
        );
    }
    let maker_b = maker();
    let both = vec![
        pe(&maker_b.line, "rounds", 0, 3, &[]),
        pe(&maker_b.line, "rounds", 1, 4, &[]),
    ];
    for outcome in ended(both) {
        assert!(!outcome.status.success());
        assert!(outcome.stderr.contains("that it has"), "{outcome:?}");
    }
    let outcome = pe(&maker_b.line, "rounds", 3, 3, &[]).wait();
    assert!(outcome.stderr.contains("PE 3 of 3"), "{outcome:?}");
    let outcome = by_environment(&[HELLO], "4711", 0, 1).run();
    assert!(
        outcome.stderr.contains("SHMEM_UNIQUE_ID cannot be used"),
        "{outcome:?}"
    );
}

#[test]
fn a_setting_that_makes_no_sense_is_everybodys() {
    let maker = maker();
    let odd = [("SHMEM_SPIN", "sideways")];
    let both = vec![
        pe(&maker.line, "rounds", 0, 2, &[]),
        pe(&maker.line, "rounds", 1, 2, &odd),
    ];
    for outcome in ended(both) {
        assert!(!outcome.status.success());
        assert!(
            outcome.stderr.contains("SHMEM_SPIN=sideways"),
            "{outcome:?}"
        );
    }
}

#[test]
fn pe_0_may_leave_first() {
    let id = UniqueId::at("127.0.0.1", free_tcp()).unwrap().to_text();
    for (rank, outcome) in ended(pes(&id, "late", 0..4, 4)).into_iter().enumerate() {
        outcome.expect_success();
        assert_eq!(outcome.stdout, format!("PE {rank}: ok\n"));
        assert_eq!(outcome.stderr, "");
    }
}

#[test]
fn pes_join_their_job_again_and_no_other() {
    let id = UniqueId::at("127.0.0.1", free_tcp()).unwrap().to_text();
    let pes: Vec<_> = (0..3)
        .map(|rank| {
            pe(
                &id,
                "again",
                rank,
                3,
                &[("SHMEM_EMULATED_NODE", ["a", "b", "b"][rank])],
            )
        })
        .collect();
    for outcome in ended(pes) {
        outcome.expect_success();
        let said = &outcome.stdout;
        assert!(said.contains("a process can be a PE of one job"), "{said}");
    }
}

#[test]
fn who_does_not_join_again_is_named() {
    let maker = maker();
    let outcomes = ended(pes(&maker.line, "unequal", 0..3, 3));
    outcomes[1].expect_success();
    for rank in [0, 2] {
        let outcome = &outcomes[rank];
        assert!(!outcome.status.success(), "{outcome:?}");
        assert!(outcome.stderr.contains("PE 1"), "{outcome:?}");
    }
}

#[test]
fn two_jobs_do_not_meet() {
    let makers = [maker(), maker()];
    let pes: Vec<_> = (0..6)
        .map(|i| pe(&makers[i % 2].line, "rounds", i / 2, 3, &[]))
        .collect();
    for outcome in ended(pes) {
        outcome.expect_success();
        assert!(
            outcome.stdout.contains("of 3 on 1 nodes: ok"),
            "{outcome:?}"
        );
    }
}

/// Two network namespaces with a cable between, removed at the end.
struct Hosts([String; 2]);

fn ip(args: &str) -> Result<(), String> {
    let output = Command::new("ip").args(args.split_whitespace()).output();
    let output = output.map_err(|e| format!("ip: {e}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "ip {args}: {}",
            shmem_testkit::text(&output.stderr)
        )),
    }
}

impl Hosts {
    fn new() -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = |i| format!("shmem-by-id-{}-{number}-{i}", std::process::id());
        let hosts = Self([name(0), name(1)]);
        for host in &hosts.0 {
            ip(&format!("netns add {host}"))?;
            ip(&format!("-n {host} link set lo up"))?;
        }
        let [left, right] = &hosts.0;
        ip(&format!(
            "link add eth0 netns {left} type veth peer name eth0 netns {right}"
        ))?;
        for (i, host) in hosts.0.iter().enumerate() {
            ip(&format!("-n {host} addr add 10.79.0.{}/24 dev eth0", i + 1))?;
            ip(&format!("-n {host} link set eth0 up"))?;
        }
        Ok(hosts)
    }

    /// A process of host `i`.
    fn run(&self, i: usize, program: &[&str]) -> Job {
        let args = ["netns", "exec", &self.0[i]];
        Job::new("ip", "", &[&args[..], program].concat())
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in &self.0 {
            let _ = ip(&format!("netns del {host}"));
        }
    }
}

#[test]
fn hosts_share_an_id_and_nothing_else() {
    let hosts = match Hosts::new() {
        Ok(hosts) => hosts,
        Err(why) => return skipped("hosts", why),
    };
    // The one that makes the id finds its own address.
    let first = told(hosts.run(0, &[BY_ID, "first", "4"]));
    assert!(
        address(&first.line).starts_with("10.79.0.1:"),
        "{}",
        address(&first.line)
    );
    let pes: Vec<_> = (1..4)
        .map(|rank: usize| {
            let rank_text = rank.to_string();
            let program = [BY_ID, "rounds", &rank_text, "4"];
            let mut pe = hosts.run(rank / 2, &program).stdin(Stdio::piped()).start();
            writeln!(pe.stdin(), "{}", first.line).unwrap();
            pe
        })
        .collect();
    for outcome in ended(pes) {
        outcome.expect_success();
        assert!(
            outcome.stdout.contains("of 4 on 2 nodes: ok"),
            "{outcome:?}"
        );
    }
    assert_eq!(first.succeed(), "PE 0 of 4 on 2 nodes: ok\n");
}

#[test]
fn a_host_that_is_cut_off_is_noticed_on_both_sides() {
    let hosts = match Hosts::new() {
        Ok(hosts) => hosts,
        Err(why) => return skipped("hosts", why),
    };
    let id = UniqueId::at("10.79.0.1", 4711).unwrap().to_text();
    let start = |rank: usize| {
        let rank_text = rank.to_string();
        let program = [BY_ID, "hang", &rank_text, "4"];
        let mut pe = hosts.run(rank / 2, &program).stdin(Stdio::piped()).start();
        writeln!(pe.stdin(), "{id}").unwrap();
        let rest = BufReader::new(pe.stdout());
        (pe, rest)
    };
    // All are needed before one runs.
    let started: Vec<_> = (0..4).map(start).collect();
    let pes: Vec<_> = started.into_iter().map(running).collect();
    ip(&format!("-n {} link set eth0 down", hosts.0[0])).unwrap();
    for pe in pes {
        let outcome = pe.process.wait();
        assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
        // Who finds it first is chance, and which of the lost processes.
        let ways = [
            "at 10.79.0.2) cannot be reached any more",
            "PE 0, which listens there, has ended, or its machine",
            "cannot send",
            "at 10.79.0.1) has ended it",
        ];
        let says = ways.iter().any(|words| outcome.stderr.contains(words));
        assert!(says, "{outcome:?}");
    }
}
