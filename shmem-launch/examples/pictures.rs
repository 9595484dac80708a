//! The timeline and the page of a job that is made up, to look at them and to test them: `pictures DIR PES`
//! writes `DIR/job.pftrace` and `DIR/job.html`.
//!
//! PEs pass data on around a ring, one of them computes longer than the others, and their connections do not suffice.

use std::path::PathBuf;

use shmem_launch::exit::End;
use shmem_launch::report::{Ended, Launcher, Moment, Reduced, Used};
use shmem_launch::seeing::{Job, page, timeline};
use shmem_node::recording::{Event, Recording, Routine, Total, Traffic, collective_number};
use shmem_node::stats::{PeStats, STAT_COUNT, Stat};

const US: u64 = 1000;
const MS: u64 = 1000 * US;
/// When `shmrun` began.
const START: u64 = 5_000_000 * MS;
/// When the last of init was done.
const RUNNING: u64 = START + 80 * MS;
const ROUNDS: u64 = 30;
const ROUND: u64 = 10 * MS;
const PER_NODE: u32 = 8;

/// Numbers that look random, the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n.max(1)
    }
}

struct Pe {
    events: Vec<Event>,
    traffic: Vec<Traffic>,
}

impl Pe {
    fn call(&mut self, routine: Routine, begin: u64, end: u64) -> &mut Event {
        self.events.push(Event::of(routine, begin, end));
        self.events.last_mut().expect("one")
    }

    fn moved(&mut self, pe: u32, operations: u64, bytes: u64) {
        match self.traffic.iter_mut().find(|t| t.pe == pe) {
            Some(t) => (t.operations, t.bytes) = (t.operations + operations, t.bytes + bytes),
            None => self.traffic.push(Traffic {
                pe,
                operations,
                bytes,
                connections: 1,
            }),
        }
    }
}

fn pe(rank: u32, n: u32) -> Recording {
    let mut dice = Dice(0x9e37_79b9 ^ (u64::from(rank) + 1) << 20);
    let mut pe = Pe {
        events: Vec::new(),
        traffic: Vec::new(),
    };
    let steps = [
        (Routine::InitMap, Stat::MapWall, 2 * MS),
        (Routine::InitEndpoint, Stat::EndpointWall, 3 * MS),
        (Routine::InitGather, Stat::GatherWall, MS),
        (Routine::InitRegister, Stat::RegisterWall, 12 * MS),
        (Routine::InitConnect, Stat::ConnectWall, 50 * US),
        (Routine::InitBarrier, Stat::BarrierWall, 4 * MS),
    ];
    let mut stats = [0; STAT_COUNT];
    let begin = RUNNING - 30 * MS;
    let mut now = begin;
    for (routine, stat, about) in steps {
        let took = about / 2 + dice.below(about);
        stats[stat as usize] = took;
        pe.call(routine, now, now + took);
        now += took;
    }
    stats[Stat::InitWall as usize] = now - begin;
    stats[Stat::InitDoneAt as usize] = now;

    let (right, slow) = ((rank + 1) % n, n / 3);
    for (open, peer) in (1..).zip([right, (rank + n / 2) % n, 0]) {
        let begin = RUNNING + open * open * 20 * MS + dice.below(30) * MS;
        let took = 80 * US + dice.below(400) * US;
        let event = pe.call(Routine::Connect, begin, begin + took);
        (event.pe, event.bytes) = (peer, open);
    }
    for round in 0..ROUNDS {
        let begin = RUNNING + round * ROUND;
        let late = if rank == slow { 4 * MS } else { 0 };
        let computed = begin + MS + dice.below(MS) + late;
        let left_computed = begin
            + 3 * MS
            + if (rank + n - 1) % n == slow {
                3 * MS
            } else {
                0
            };
        let event = pe.call(Routine::PutSignalNbi, computed, computed + 3 * US);
        let bytes = 4096 << dice.below(6);
        (event.pe, event.bytes, event.at) = (right, bytes, 64);
        pe.moved(right, 1, bytes);
        let waits = computed + 10 * US;
        let woken = waits.max(left_computed) + 20 * US + dice.below(50 * US);
        pe.call(Routine::WaitUntil, waits, woken).at = 64;
        let event = pe.call(Routine::AtomicFetching, woken + US, woken + 6 * US);
        (event.pe, event.bytes, event.at) = (0, 8, 128);
        pe.moved(0, 1, 8);
        if round % 10 == 3 {
            let far = (rank + n / 2) % n;
            let event = pe.call(Routine::Get, woken + 10 * US, woken + 60 * US);
            (event.pe, event.bytes, event.at) = (far, 100_000, 4096);
            pe.moved(far, 1, 100_000);
        }
        let meets = woken + 100 * US + dice.below(200) * US;
        let routine = if round % 4 == 0 {
            Routine::Reduce
        } else {
            Routine::Barrier
        };
        let out = begin + ROUND - 2 * MS + dice.below(20 * US);
        pe.call(routine, meets, out.max(meets)).at = collective_number(0, 0, round as u32 + 1);
    }
    let end = RUNNING + ROUNDS * ROUND;
    let event = pe.call(Routine::Disconnect, end, end);
    (event.pe, event.bytes) = (right, 2);
    let killed = n > 2 && rank == n - 1;
    if !killed {
        pe.call(Routine::Finalize, end + MS, end + 3 * MS).at = collective_number(0, 0, 99);
        stats[Stat::FinalizeDoneAt as usize] = end + 3 * MS;
    }
    stats[Stat::PacketsSent as usize] = 10_000;
    stats[Stat::Retransmissions as usize] = u64::from(rank % 5 == 1) * 700;
    stats[Stat::Evictions as usize] = u64::from(rank.is_multiple_of(3)) * 12;
    stats[Stat::Reconnects as usize] = u64::from(rank.is_multiple_of(3)) * 9;
    Recording {
        rank,
        node: rank / PER_NODE.min(n.div_ceil(2)),
        lost: if rank == 1 { 1234 } else { 0 },
        totals: totals(&pe.events),
        traffic: pe.traffic,
        events: pe.events,
        stats: PeStats(stats),
    }
}

fn totals(events: &[Event]) -> Vec<Total> {
    let of = |&routine: &Routine| {
        let calls = events.iter().filter(|e| e.routine == routine);
        let took = calls.clone().map(|e| e.end - e.begin);
        Total {
            routine,
            calls: calls.clone().count() as u64,
            ns: took.clone().sum(),
            longest: took.max().unwrap_or(0),
            bytes: match routine.is_one_sided() {
                true => calls.map(|e| e.bytes).sum(),
                false => 0,
            },
        }
    };
    let all = Routine::ALL.iter().map(of);
    all.filter(|total| total.calls > 0).collect()
}

fn main() {
    let mut words = std::env::args().skip(1);
    let (Some(dir), Some(Ok(n))) = (words.next(), words.next().map(|n| n.parse::<u32>())) else {
        eprintln!("usage: pictures DIR PES");
        std::process::exit(2);
    };
    let recordings: Vec<Recording> = (0..n).map(|rank| pe(rank, n)).collect();
    let exited = RUNNING + ROUNDS * ROUND + 5 * MS;
    let nodes = recordings.last().map_or(0, |of| of.node + 1);
    let launcher = Launcher {
        program: "./ring </script> --size 4096".into(),
        n_pes: n,
        n_nodes: nodes,
        degree: 4,
        depth: 2,
        spawn: "template",
        start: START,
        planned: START + 2 * MS,
        ready: START + 30 * MS,
        started: START + 45 * MS,
        exited,
        done: exited + 2 * MS,
        status: if n > 2 { 137 } else { 0 },
    };
    let mut reduced = Reduced {
        agents: nodes.into(),
        ..Reduced::default()
    };
    let moments = [
        (Moment::Launched, 10),
        (Moment::Prepared, 25),
        (Moment::FirstPe, 35),
        (Moment::LastPe, 44),
    ];
    for (moment, ms) in moments {
        reduced.moments[moment as usize].add(START + ms * MS);
    }
    for of in &recordings {
        reduced.add_pe(&of.stats);
        let ended = Ended {
            rank: of.rank,
            end: match of.stats.get(Stat::FinalizeDoneAt) {
                0 => End::killed(9),
                _ => End::Code(0),
            },
            used: Used::default(),
        };
        reduced.processes.add(ended, false);
    }
    let job = Job {
        launcher: &launcher,
        reduced: &reduced,
        recordings: &recordings,
    };
    let write = |name: &str, content: &[u8]| {
        let file = PathBuf::from(&dir).join(name);
        std::fs::write(&file, content).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        println!("{}: {} bytes", file.display(), content.len());
    };
    write("job.pftrace", &timeline(&job));
    write("job.html", page(&job).as_bytes());
}
