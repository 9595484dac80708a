//! Groups, their merging, and their words.

use super::look::{Found, Node, note_missing};
use super::text::Job;
use super::*;
use proptest::prelude::*;
use shmem_node::layout::INTERNAL_SIZE;
use shmem_node::pe_block::PeState;
use shmem_node::waiting::{Place as Source, Seen, Team, Wait, Word};
use std::panic::Location;

mod elsewhere;

const SECOND: u64 = 1_000_000_000;
const NOW: u64 = 100 * SECOND;
const HEAP: u64 = INTERNAL_SIZE as u64 + 4096;

fn found(local: usize, waits: &[Wait]) -> Found {
    let seen = |(i, wait): (usize, &Wait)| Seen {
        since: NOW - 12 * SECOND + i as u64 * SECOND,
        words: wait.encode(),
    };
    Found {
        local,
        started: true,
        ended: false,
        state: PeState::Running,
        waits: waits.iter().enumerate().map(seen).collect(),
        waited: NOW - 13 * SECOND,
        begun: 41,
        pid: 1000 + local as u32,
        process: Some(Process {
            state: b'R',
            place: String::new(),
        }),
        cpu: Some(12 * SECOND),
    }
}

fn world(n: u32, call: Collective, number: u32) -> Wait {
    Wait::Collective {
        call,
        team: Team {
            kind: TeamKind::World,
            slot: 0,
            listed: false,
            first: 0,
            stride: 1,
            size: n,
        },
        number,
        at: Source::NOWHERE,
    }
}

fn memory(word: Word) -> Wait {
    let called = Source::NOWHERE;
    Wait::Memory { word, called }
}

/// For tests of messages.
pub(crate) fn sample() -> Census {
    let mut all = Census::default();
    for census in job(2, 3, |rank, pe| match rank {
        0 => {}
        1 => *pe = found(pe.local, &[world(6, Collective::Barrier, 2), Wait::Init]),
        rank => {
            let remote = Wait::Remote {
                what: Remote::Quiet,
                pe: rank ^ 1,
                operations: 3,
                more: 1,
            };
            *pe = found(pe.local, &[remote]);
        }
    }) {
        all.merge(census);
    }
    all
}

/// The same, of a job in which PE 3 is in finalize and the others in a barrier.
pub(crate) fn stuck_sample() -> Census {
    let mut all = Census::default();
    job(2, 2, |rank, pe| *pe = left(rank, pe.local, 41))
        .into_iter()
        .for_each(|census| all.merge(census));
    all
}

/// PE 3 has begun finalize as its collective of this number, the others a barrier as their 41st.
fn left(rank: u32, local: usize, number: u32) -> Found {
    match rank {
        3 => Found {
            state: PeState::Finalizing,
            begun: number,
            ..found(local, &[world(4, Collective::Finalize, number)])
        },
        _ => found(local, &[world(4, Collective::Barrier, 41)]),
    }
}

/// A job of nodes with `per_node` PEs each, which do what `doing` says.
fn job(nodes: u32, per_node: u32, doing: impl Fn(u32, &mut Found)) -> Vec<Census> {
    (0..nodes)
        .map(|node| {
            let ranks: Vec<u32> = (node * per_node..(node + 1) * per_node).collect();
            let here = Node {
                node,
                ranks: &ranks,
                heap_start: HEAP,
                segment_len: HEAP + (1 << 20),
            };
            let mut groups: Vec<Group> = (0..per_node)
                .map(|local| {
                    let mut pe = found(local as usize, &[]);
                    doing(ranks[local as usize], &mut pe);
                    here.group(pe, NOW, |_, _| Some(0))
                })
                .collect();
            note_missing(here, &mut groups);
            Census::of(node, groups)
        })
        .collect()
}

fn told(nodes: u32, per_node: u32, doing: impl Fn(u32, &mut Found)) -> String {
    let mut all = Census::default();
    for census in job(nodes, per_node, doing) {
        all.merge(census);
    }
    words(&all, nodes, per_node)
}

fn words(all: &Census, nodes: u32, per_node: u32) -> String {
    all.text(of(nodes, per_node))
}

fn of(nodes: u32, per_node: u32) -> Job<'static> {
    Job {
        n_pes: nodes * per_node,
        n_nodes: nodes,
        hosts: &[],
        age: 20 * SECOND,
    }
}

#[test]
fn processes_of_groups_are_named_up_to_a_number() {
    let all = |nodes, per_node| {
        let mut all = Census::default();
        let parts = job(nodes, per_node, |rank, pe| {
            pe.pid = 100 + rank;
            pe.ended = rank == 1;
        });
        // In whatever order nodes answer.
        parts.into_iter().rev().for_each(|part| all.merge(part));
        all
    };
    let text = all(2, 3).processes(of(2, 3));
    assert_eq!(
        text,
        "\n  pids on node 0: 100 (PE 0), 102 (PE 2)\n  pids on node 1: 103 (PE 3), 104 (PE 4), 105 (PE 5)"
    );
    let many = all(8, 32);
    assert_eq!(many.processes.len(), MOST_PROCESSES);
    assert_eq!(many.processes.last().map(|pe| pe.rank), Some(64));
    // Those that are alone in what they do have their process there.
    assert_eq!(all(1, 2).processes(of(1, 2)), "");
}

fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

#[test]
fn who_skips_a_barrier_is_found() {
    let text = told(8, 8, |rank, pe| {
        if rank != 13 {
            pe.begun = 42;
            *pe = Found {
                begun: 42,
                ..found(pe.local, &[world(64, Collective::Barrier, 42)])
            };
        }
    });
    has(
        &text,
        &[
            "what the 64 PEs of this job on 8 nodes wait for, 20.0 s after its start:\n",
            "PEs 0-12,14-63 (63) wait in barrier_all of the world team (its no. 42), for 12.0 s; missing: PE 13\n",
            "PE 13 (node 1, pid 1005) computes (is in no call that waits): its thread is running, 12.0 s of CPU time; last waited 13.0 s \
             ago; has begun 41 collectives of the world team\n",
            "It comes down to PE 13, which computes (is in no call that waits): PEs 0-12,14-63 (63) wait for it.",
        ],
    );
}

/// Those who wait at different places of the program wait for the same.
#[test]
fn places_in_the_program_are_told() {
    let here = Location::caller();
    let places = [Source::of(here), elsewhere(), further(), Source::NOWHERE];
    let waits = |at| match world(6, Collective::Alloc, 42) {
        Wait::Collective {
            call, team, number, ..
        } => Wait::Collective {
            call,
            team,
            number,
            at,
        },
        other => other,
    };
    let text = told(2, 3, |rank, pe| {
        if rank != 5 {
            *pe = found(pe.local, &[waits(places[rank as usize % 4])]);
            pe.begun = 42;
        }
    });
    let at = places[..3].iter().map(ToString::to_string);
    let at = at.collect::<std::collections::BTreeSet<_>>();
    let at = Vec::from_iter(at).join(", ");
    let said =
        format!("PEs 0-4 (5) wait in alloc of the world team (its no. 42) at {at}, for 12.0 s");
    has(&text, &[&said, "; missing: PE 5\n"]);
}

fn elsewhere() -> Source {
    Source::of(Location::caller())
}

fn further() -> Source {
    Source::of(Location::caller())
}

#[test]
fn the_call_of_a_wait_is_told_and_not_that_of_one_inside() {
    let called = Source::of(Location::caller());
    let memory = Wait::Memory {
        word: Word {
            form: Form::Until,
            cmp: Comparison::Ge,
            number: Number::U64,
            at: HEAP + 8,
            value: 7,
            count: 1,
        },
        called,
    };
    let lock = Wait::Lock {
        why: LockWait::Turn,
        at: HEAP,
        behind: 0,
        called,
    };
    let text = told(1, 3, |rank, pe| match rank {
        0 => *pe = found(pe.local, &[memory, world(3, Collective::Barrier, 2)]),
        1 => *pe = found(pe.local, &[lock]),
        _ => {}
    });
    for part in [
        format!("to be >= 7; it is 0, called at {called}, and in there in barrier_all"),
        format!("waits for the lock at heap + 0x0, called at {called}, for 12.0 s"),
    ] {
        assert!(text.contains(&part), "no {part:?} in: {text}");
    }
}

/// Few of many places are told, the same in whichever order they come.
#[test]
fn some_of_many_places_are_told() {
    let of = |text: &str| Places::of(text.to_owned());
    let sum = |texts: &[&str]| {
        let mut sum = Places::default();
        texts.iter().for_each(|text| sum.add(of(text)));
        sum
    };
    assert_eq!(
        sum(&["d", "b", "", "a", "b", "c"]),
        sum(&["a", "b", "c", "d"])
    );
    assert!(sum(&["d", "b", "a", "c"]).more);
    assert!(!sum(&["c", "b", "a", ""]).more);
}

#[test]
fn the_holder_of_a_lock_is_found() {
    let lock = |behind| Wait::Lock {
        why: LockWait::Turn,
        at: HEAP + 64,
        behind,
        called: Source::NOWHERE,
    };
    // PE 5 holds it, 1 came next, then 2, and so on.
    let text = told(2, 4, |rank, pe| match rank {
        5 => {
            *pe = found(pe.local, &[world(8, Collective::Barrier, 42)]);
            pe.begun = 42;
        }
        1 => *pe = found(pe.local, &[lock(5)]),
        2 | 3 => *pe = found(pe.local, &[lock(rank - 1)]),
        _ => {}
    });
    has(
        &text,
        &[
            "PEs 1-3 (3) wait for the lock at heap + 0x40, for 12.0 s; held by PE 5",
            "PE 5 (node 1, pid 1001) waits in barrier_all of the world team (its no. 42), for 12.0 s; missing: \
             PEs 0-4,6,7 (7)",
            "It comes down to PEs 0,4,6,7 (4), which compute (are in no call that waits): PEs 1-3,5 (4) wait for them.",
        ],
    );
}

#[test]
fn a_circle_is_told() {
    let text = told(1, 2, |rank, pe| {
        *pe = found(
            pe.local,
            &[Wait::Remote {
                what: Remote::Connection,
                pe: 1 - rank,
                operations: 0,
                more: 0,
            }],
        );
    });
    has(
        &text,
        &[
            "PE 0 (node 0, pid 1000) waits for the answer of PE 1 to a request for a connection",
            "PEs 0,1 wait for each other: a circle",
        ],
    );
}

#[test]
fn a_word_is_told_with_what_it_is_and_is_to_be() {
    let text = told(1, 3, |rank, pe| {
        let word = Word {
            form: Form::Until,
            cmp: Comparison::Ge,
            number: Number::I32,
            at: [HEAP + 8, INTERNAL_SIZE as u64 + 4, Word::ELSEWHERE][rank as usize],
            value: 7,
            count: 1,
        };
        *pe = found(pe.local, &[memory(word)]);
    });
    has(
        &text,
        &[
            "waits in wait_until for the word at heap + 0x8 to be >= 7; it is 0, for 12.0 s",
            "the word at static data + 0x4 to be >= 7; it is 0",
            "the word at an address that is not symmetric to be >= 7, for",
        ],
    );
}

#[test]
fn a_wait_inside_another_is_told_with_it() {
    let text = told(1, 2, |rank, pe| {
        if rank == 0 {
            let inner = Wait::Remote {
                what: Remote::Quiet,
                pe: 9,
                operations: 3,
                more: 0,
            };
            *pe = found(pe.local, &[world(2, Collective::Reduce, 42), inner]);
        }
    });
    has(
        &text,
        &[
            "waits in a reduction of the world team (its no. 42), and in there in quiet for 3 operations towards PE 9",
        ],
    );
}

#[test]
fn stopped_processes_and_those_before_init_are_told() {
    let text = told(1, 6, |rank, pe| {
        pe.state = PeState::Starting;
        match rank {
            0 => {
                *pe = found(pe.local, &[Wait::Init]);
                pe.state = PeState::Starting;
                pe.process = Some(Process {
                    state: b'T',
                    place: String::new(),
                });
            }
            1 => {
                pe.state = PeState::Fresh;
                pe.process = Some(Process {
                    state: b'S',
                    place: "hrtimer_nanosleep".into(),
                });
            }
            2 => pe.ended = true,
            3 => (pe.started, pe.process) = (false, None),
            _ => *pe = found(pe.local, &[Wait::Init]),
        }
    });
    has(
        &text,
        &[
            "PE 0 (node 0, pid 1000) waits in init for the other PEs of the node, for 12.0 s; its process is \
             STOPPED by a signal",
            "PE 1 (node 0, pid 1001) has not called init (or is no OpenSHMEM program): its main thread is sleeping \
             in the kernel in hrtimer_nanosleep",
            "PE 2 (node 0, pid 1002) has ended",
            "PE 3 (node 0, pid 1003) is not started yet",
            "missing: PEs 1-3 (3)",
        ],
    );
}

#[test]
fn nodes_that_say_nothing_are_named() {
    let mut all = Census::default();
    let censuses = job(3, 2, |_, pe| {
        *pe = found(pe.local, &[world(6, Collective::Barrier, 42)]);
    });
    for census in [&censuses[0], &censuses[2]] {
        all.merge(census.clone());
    }
    has(
        &words(&all, 3, 2),
        &[
            "PEs 2,3: no word came from the launch agent of node 1\n",
            "It comes down to PEs 2,3, of which nothing is known",
        ],
    );
}

#[test]
fn teams_name_their_members() {
    let team = |kind, listed, first, stride, size| Wait::Collective {
        call: Collective::Sync,
        team: Team {
            kind,
            slot: 3,
            listed,
            first,
            stride,
            size,
        },
        number: 1,
        at: Source::NOWHERE,
    };
    let text = told(2, 4, |rank, pe| match rank {
        6 | 4 => *pe = found(pe.local, &[team(TeamKind::Split, false, 6, -2, 4)]),
        1 => *pe = found(pe.local, &[team(TeamKind::Shared, true, 0, 1, 4)]),
        _ => {}
    });
    has(
        &text,
        &[
            "PEs 4,6 wait in a sync of the team of PEs 0-6:2 (4) (its no. 1), for 12.0 s; missing: PEs 0,2",
            "waits in a sync of the shared team of PEs 0-3 (4) (its no. 1), for 12.0 s; missing: PEs 0,2,3 (3)",
        ],
    );
}

#[test]
fn however_much_pes_differ_a_message_is_bounded() {
    let mut all = Census::default();
    for census in job(64, 128, |rank, pe| {
        let word = Word {
            form: Form::ALL[rank as usize % 4],
            cmp: Comparison::Eq,
            number: Number::U64,
            at: HEAP + 8 * u64::from(rank),
            value: rank.into(),
            count: rank.into(),
        };
        let waits = [
            memory(word),
            Wait::Remote {
                what: Remote::ALL[rank as usize % 6],
                pe: rank ^ 1,
                operations: 1,
                more: 0,
            },
        ];
        *pe = found(pe.local, &waits[rank as usize % 2..]);
        pe.process = Some(Process {
            state: b'S',
            place: format!("f{rank}"),
        });
    }) {
        all.merge(census);
        assert!(all.groups.len() <= MOST_GROUPS);
    }
    assert_eq!(all.ranks(), RankSet::range(0..8192));
    let mut bytes = Vec::new();
    crate::frame::codec::encode(&all, &mut bytes);
    assert!(bytes.len() < 64 << 10, "{} bytes", bytes.len());
    has(&words(&all, 64, 128), &["some of that was left out"]);
}

proptest! {
    /// In whichever order they come, each PE is in one group.
    #[test]
    fn nobody_is_lost_or_counted_twice(
        states in prop::collection::vec((0u32..5, 0u32..4), 24),
        order in Just((0..6usize).collect::<Vec<_>>()).prop_shuffle(),
        split in 0usize..6,
    ) {
        let censuses = job(6, 4, |rank, pe| match states[rank as usize] {
            (0, number) => *pe = found(pe.local, &[world(24, Collective::Barrier, number)]),
            (1, what) => *pe = found(pe.local, &[Wait::Remote {
                what: Remote::Connection, pe: what, operations: 0, more: 0,
            }]),
            (2, _) => pe.state = PeState::Fresh,
            (3, _) => pe.ended = true,
            _ => {}
        });
        let sum = |parts: &[usize]| {
            let mut sum = Census::default();
            parts.iter().for_each(|&at| sum.merge(censuses[at].clone()));
            sum
        };
        let mut all = sum(&order[..split]);
        all.merge(sum(&order[split..]));
        prop_assert_eq!(all.groups.iter().map(|g| g.ranks.len()).sum::<u64>(), 24);
        prop_assert_eq!(all.ranks(), RankSet::range(0..24));
        prop_assert_eq!(&all.nodes, &RankSet::range(0..6));
        prop_assert_eq!(words(&all, 6, 4), words(&sum(&[0, 1, 2, 3, 4, 5]), 6, 4));
    }

    /// Whatever a peer sends: the frame is refused, or its words can be had.
    #[test]
    fn any_census_can_be_told(bytes in prop::collection::vec(any::<u8>(), 0..300), pes in 0u32..100) {
        if let Ok(census) = crate::frame::codec::decode::<Census>(&bytes) {
            census.text(Job { n_pes: pes, n_nodes: 3, hosts: &[], age: 1 });
        }
    }
}

fn stuck(nodes: u32, per_node: u32, doing: impl Fn(u32, &mut Found)) -> Option<(bool, String)> {
    let mut all = Census::default();
    job(nodes, per_node, doing)
        .into_iter()
        .for_each(|census| all.merge(census));
    let job = Job {
        n_pes: nodes * per_node,
        n_nodes: nodes,
        hosts: &[],
        age: 20 * SECOND,
    };
    let stuck = all.stuck(job)?;
    Some((stuck.for_ever, stuck.text))
}

#[test]
fn pes_that_wait_for_one_in_finalize_are_found() {
    for number in [40, 41] {
        let (for_ever, text) = stuck(2, 2, |rank, pe| *pe = left(rank, pe.local, number)).unwrap();
        assert!(for_ever);
        assert_eq!(
            text,
            "PEs 0-2 (3) wait in barrier_all of the world team (its no. 41), for 12.0 s, but PE 3 is in finalize, \
             or at the end of main"
        );
    }
    // It has ended: the others' last barrier was the one of its finalize.
    let (for_ever, text) = stuck(1, 4, |rank, pe| match rank {
        3 => (pe.ended, pe.begun, pe.state) = (true, 40, PeState::Finalized),
        _ => *pe = left(rank, pe.local, 0),
    })
    .unwrap();
    assert!(for_ever);
    assert!(
        text.ends_with("but PE 3 has left finalize, or the end of main"),
        "{text}"
    );
}

#[test]
fn pes_that_wait_for_others_are_not() {
    // PE 3 was in that barrier.
    let passed = |rank, pe: &mut Found| *pe = left(rank, pe.local, 42);
    assert_eq!(
        stuck(1, 4, |rank, pe| if rank > 0 {
            passed(rank, pe)
        }),
        None
    );
    // Others compute, and what they wait for in finalize is as it should be.
    let computes = |rank: u32, pe: &mut Found| {
        if rank > 1 {
            *pe = found(pe.local, &[world(4, Collective::Finalize, 42)]);
        }
    };
    assert_eq!(stuck(2, 2, computes), None);
    // The wait has only begun.
    let soon = |rank, pe: &mut Found| {
        *pe = left(rank, pe.local, 41);
        pe.waits
            .iter_mut()
            .for_each(|seen| seen.since = NOW - SECOND);
    };
    assert_eq!(stuck(2, 2, soon), None);
}

/// A thread of the PE may write the word, so this may end.
#[test]
fn who_waits_for_memory_while_all_others_have_left_may_wait_for_ever() {
    let word = Word {
        form: Form::Until,
        cmp: Comparison::Eq,
        number: Number::U64,
        at: HEAP,
        value: 7,
        count: 1,
    };
    let waits = |rank: u32, pe: &mut Found| {
        *pe = match rank {
            0 => found(pe.local, &[memory(word)]),
            _ => found(pe.local, &[world(4, Collective::Finalize, 41)]),
        }
    };
    let (for_ever, text) = stuck(1, 4, waits).unwrap();
    assert!(!for_ever);
    assert!(
        text.starts_with("PE 0 (node 0, pid 1000) waits in wait_until"),
        "{text}"
    );
    assert!(
        text.ends_with("but PEs 1-3 (3) are in finalize, or at the end of main"),
        "{text}"
    );
}
