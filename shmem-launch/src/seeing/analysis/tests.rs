//! Analyses of small jobs whose answers can be seen.

use shmem_node::recording::{Event, Routine, Traffic};
use shmem_node::settings;

use super::super::testing::{call, recording};
use super::*;
use crate::report::{Launcher, Reduced};

const US: u64 = 1000;
const MS: u64 = 1_000_000;

fn launcher(n_pes: u32) -> Launcher {
    Launcher {
        program: "./prog".into(),
        n_pes,
        n_nodes: 2,
        start: 10,
        planned: 10 + MS,
        exited: 10 + 1000 * MS,
        done: 10 + 1001 * MS,
        ..Launcher::default()
    }
}

fn analysed(recordings: &[Recording]) -> Analysis {
    let mut reduced = Reduced::default();
    recordings.iter().for_each(|of| reduced.add_pe(&of.stats));
    analyse(&Job {
        launcher: &launcher(recordings.len() as u32),
        reduced: &reduced,
        recordings,
    })
}

/// A PE whose life is that of the job.
fn pe(rank: u32, node: u32, events: Vec<Event>) -> Recording {
    let mut of = recording(rank, node, events);
    let mut set = |stat: Stat, value| of.stats.0[stat as usize] = value;
    set(Stat::InitWall, 5 * MS);
    set(Stat::InitDoneAt, 10 + 5 * MS);
    set(Stat::MapWall, (1 + u64::from(rank)) * MS);
    set(Stat::FinalizeDoneAt, 10 + 1000 * MS);
    of
}

fn barrier(number: u64, begin: u64, end: u64) -> Event {
    Event {
        at: number,
        ..call(Routine::Barrier, 10 + begin, 10 + end)
    }
}

#[test]
fn who_comes_last_is_told_with_its_cost() {
    // PE 2 comes 100 ms late, four times of five.
    let of = |rank: u32| {
        let calls = (0..5u64).map(|n| {
            let late = if rank == 2 && n < 4 { 100 * MS } else { 0 };
            barrier(n, 110 * MS * (n + 1) + late, 110 * MS * (n + 1) + 101 * MS)
        });
        pe(rank, rank / 2, calls.collect())
    };
    let told = analysed(&[of(0), of(1), of(2), of(3)]);
    let stragglers = &told.stragglers;
    assert_eq!((stragglers.collectives, stragglers.uneven), (5, 4));
    assert_eq!(stragglers.cost, 4 * 3 * 100 * MS);
    let worst = &stragglers.worst[0];
    assert_eq!((worst.pe, worst.last, worst.cost), (2, 4, 1200 * MS));
    let said = told.advice.join("\n");
    assert!(
        said.contains("PEs waited 1.20 s (30 % of their time)"),
        "{said}"
    );
    assert!(
        said.contains("PE 2 was that in 4 of 4, which cost the others 1.20 s, most in barrier"),
        "{said}"
    );
    assert_eq!(told.head.lived, 4 * 1000 * MS);
    assert_eq!(told.head.wall, 1001 * MS);
    assert_eq!(told.head.start_up, Some(5 * MS));
}

#[test]
fn nothing_is_said_where_there_is_nothing_to_say() {
    let told = analysed(&[pe(0, 0, vec![]), pe(1, 1, vec![])]);
    assert_eq!(told.advice, Vec::<String>::new());
    assert_eq!(told.connections, None);
    assert_eq!(told.network, []);
    assert_eq!(told.places.places[1].state, 0);
    let map = &told.start.steps[0];
    assert_eq!(
        (map.name, map.min, map.max, map.slowest),
        ("init: map segment", MS, 2 * MS, 1)
    );
}

#[test]
fn waits_name_who_ended_them() {
    let wait = |begin, end| Event {
        at: 64,
        ..call(Routine::WaitUntil, 10 + begin, 10 + end)
    };
    let put = |begin, pe| Event {
        pe,
        at: 64,
        bytes: 8,
        ..call(Routine::Put, 10 + begin, 10 + begin + US)
    };
    let told = analysed(&[
        pe(
            0,
            0,
            vec![wait(10 * MS, 900 * MS), wait(901 * MS, 902 * MS)],
        ),
        pe(1, 0, vec![put(899 * MS, 0), put(850 * MS, 2)]),
        pe(2, 1, vec![wait(20 * MS, 851 * MS)]),
    ]);
    let waits: Vec<_> = told
        .waits
        .iter()
        .map(|w| (w.pe, w.took, w.by, w.by_began))
        .collect();
    assert_eq!(
        waits,
        [
            (0, 890 * MS, Some(1), Some(899 * MS)),
            (2, 831 * MS, Some(1), Some(850 * MS)),
            (0, MS, None, None)
        ]
    );
    let said = told.advice.join("\n");
    assert!(
        said.contains("operations of PE 1 ended 100 % of it (1.72 s)"),
        "{said}"
    );
    let row = told
        .routines
        .iter()
        .find(|row| row.name == "wait_until")
        .unwrap();
    assert_eq!((row.pes, row.calls, row.min, row.max_pe), (2, 3, 0, 0));
    assert_eq!(row.mean, row.ns / 3);
}

#[test]
fn advice_names_settings_that_exist() {
    let mut of = pe(3, 1, vec![barrier(1, 0, 5)]);
    of.lost = 41;
    let mut set = |stat: Stat, value| of.stats.0[stat as usize] = value;
    set(Stat::FinalizeDoneAt, 0);
    set(Stat::Retransmissions, 50);
    set(Stat::PacketsSent, 1000);
    set(Stat::Evictions, 12000);
    set(Stat::Reconnects, 11000);
    let told = analysed(&[of]);
    let said = told.advice.join("\n");
    for part in [
        "PE 3 came out of init but not through finalize",
        "5.0 % of the packets were retransmitted (50 of 1000)",
        "12000 connections were closed to make room and 11000 opened anew",
        "of 41 calls of 1 PE were not recorded",
        "--trace-calls 42 has room for all",
    ] {
        assert!(said.contains(part), "{part} in\n{said}");
    }
    let words = said.split(|c: char| !(c.is_ascii_uppercase() || c == '_'));
    for name in words.filter(|word| word.starts_with("SHMEM_")) {
        assert!(settings::TABLE.iter().any(|s| s.name == name), "{name}");
    }
    assert_eq!(told.network.len(), 3);
    assert_eq!(told.places.places[0].state, 1);
}

#[test]
fn connections_are_summed_over_time() {
    let link = |routine, end, open| Event {
        bytes: open,
        ..call(routine, 10 + end, 10 + end)
    };
    let (up, down) = (Routine::Connect, Routine::Disconnect);
    let told = analysed(&[
        pe(
            0,
            0,
            vec![
                link(up, 100 * MS, 1),
                link(up, 300 * MS, 2),
                link(down, 700 * MS, 0),
            ],
        ),
        pe(1, 1, vec![link(up, 200 * MS, 1)]),
    ]);
    let lines = told.connections.unwrap();
    assert_eq!((lines.busiest, lines.most), (0, 2));
    assert_eq!((lines.from, lines.to), (100 * MS, 1000 * MS));
    assert_eq!(
        (lines.sum[0], lines.sum.iter().max(), lines.sum.last()),
        (1, Some(&3), Some(&1))
    );
    assert_eq!(lines.sum.len(), lines.own.len());
}

#[test]
fn the_matrix_has_who_called_in_rows() {
    let mut all: Vec<_> = (0..3).map(|rank| pe(rank, rank / 2, vec![])).collect();
    let traffic = |pe, bytes| Traffic {
        pe,
        operations: 2,
        bytes,
        connections: 1,
    };
    all[0].traffic = vec![traffic(2, 100), traffic(0, 8), traffic(u32::MAX, 5)];
    all[2].traffic = vec![traffic(1, 7)];
    let matrix = analysed(&all).matrix;
    assert_eq!(matrix.names, ["PE 0", "PE 1", "PE 2"]);
    let rows: [&[u64]; 3] = [&[0, 8, 2, 1, 1, 100, 2, 1], &[], &[1, 7, 2, 1]];
    assert_eq!(matrix.rows, rows);
    let bounds: Vec<_> = matrix.nodes.iter().map(|b| (b.at, b.node)).collect();
    assert_eq!(bounds, [(0, Some(0)), (2, Some(1))]);
    assert!(!matrix.folded);
}

#[test]
fn pes_that_are_too_many_are_told_by_node() {
    let all: Vec<_> = (0..2100)
        .map(|rank| pe(rank, rank / 7, vec![barrier(0, 0, MS)]))
        .collect();
    let told = analysed(&all);
    assert!(told.places.folded && told.matrix.folded);
    assert_eq!(told.places.places.len(), 300);
    let first = &told.places.places[0];
    assert_eq!(
        (&*first.name, first.node, first.waited),
        ("PEs 0-6", Some(0), MS)
    );
    assert!(told.matrix.rows.len() <= 256);
}

#[test]
fn memory_that_all_use_is_told() {
    let to = |pe, operations, bytes| Traffic {
        pe,
        operations,
        bytes,
        connections: 0,
    };
    // Twelve count at PE 12, eight bytes at a time; neighbours exchange more bytes; own memory is nobody's business.
    let of = |rank: u32| {
        let mut of = pe(rank, rank / 4, vec![]);
        of.traffic = vec![
            to(12, 100 + u64::from(rank), 800),
            to((rank + 1) % 12, 10, 50_000),
            to(rank, 7000, 7000),
        ];
        of.totals = vec![shmem_node::recording::Total {
            routine: Routine::Put,
            calls: 110,
            ns: US,
            longest: US,
            bytes: 0,
        }];
        of
    };
    let mut recordings: Vec<Recording> = (0..12).map(of).collect();
    recordings.push(pe(12, 3, vec![]));
    let told = analysed(&recordings);
    let others = &told.others;
    assert_eq!((others.pes, others.hottest.len()), (13, 10));
    let counted: u64 = (0..12).map(|rank| 100 + rank).sum();
    assert_eq!(others.operations, counted + 12 * 10);
    assert_eq!(
        others.hottest[0],
        hot::Hot {
            pe: 12,
            by: 12,
            operations: counted,
            bytes: 12 * 800,
            most: 11,
            most_operations: 111,
        }
    );
    let rest: Vec<u32> = others.hottest[1..].iter().map(|hot| hot.pe).collect();
    assert_eq!(rest, (0..9).collect::<Vec<u32>>());
    let said = told.advice.join("\n");
    assert!(said.contains("were on PE 12's"), "{said}");
}
