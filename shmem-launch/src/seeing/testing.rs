//! Calls and recordings as tests want them.

use proptest::prelude::*;
use shmem_node::recording::{Event, Recording, Routine, Total, Traffic};
use shmem_node::stats::{PeStats, STAT_COUNT};

/// A call that has to do with no other PE.
pub(super) fn call(routine: Routine, begin: u64, end: u64) -> Event {
    Event::of(routine, begin, end)
}

/// A recording of these calls, with the totals that they have.
pub(super) fn recording(rank: u32, node: u32, events: Vec<Event>) -> Recording {
    let mut totals: Vec<Total> = Vec::new();
    for call in &events {
        let at = totals.iter().position(|t| t.routine == call.routine);
        let at = at.unwrap_or_else(|| {
            totals.push(Total {
                routine: call.routine,
                calls: 0,
                ns: 0,
                longest: 0,
                bytes: 0,
            });
            totals.len() - 1
        });
        let total = &mut totals[at];
        let took = call.end.saturating_sub(call.begin);
        total.calls += 1;
        total.ns += took;
        total.longest = total.longest.max(took);
        total.bytes += if call.routine.is_one_sided() {
            call.bytes
        } else {
            0
        };
    }
    Recording {
        rank,
        node,
        lost: 0,
        totals,
        traffic: Vec::new(),
        events,
        stats: PeStats([0; STAT_COUNT]),
    }
}

/// A number that is small, so that it is met again, or any.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0u64..5, 2 => 0u64..1_000_000, 1 => any::<u64>()]
}

fn any_call() -> impl Strategy<Value = Event> {
    let routine = prop::sample::select(Routine::ALL);
    let what = (routine, 0u8..3, number(), number(), number());
    (number(), number(), what).prop_map(|(begin, end, (routine, thread, pe, bytes, at))| Event {
        begin,
        end,
        routine,
        thread,
        pe: pe as u32,
        bytes,
        at,
    })
}

fn any_total() -> impl Strategy<Value = Total> {
    let routine = prop::sample::select(Routine::ALL);
    (routine, number(), number(), number(), number()).prop_map(
        |(routine, calls, ns, longest, bytes)| Total {
            routine,
            calls,
            ns,
            longest,
            bytes,
        },
    )
}

fn any_traffic() -> impl Strategy<Value = Traffic> {
    (number(), number(), number(), number()).prop_map(|(pe, operations, bytes, connections)| {
        Traffic {
            pe: pe as u32,
            operations,
            bytes,
            connections,
        }
    })
}

/// Recordings of different PEs of which nothing else holds.
pub(super) fn any_recordings() -> impl Strategy<Value = Vec<Recording>> {
    let one = (
        (number(), number(), number()),
        prop::collection::vec(any_total(), 0..4),
        prop::collection::vec(any_traffic(), 0..4),
        prop::collection::vec(any_call(), 0..12),
        prop::collection::vec(number(), STAT_COUNT),
    );
    let one = one.prop_map(
        |((rank, node, lost), totals, traffic, events, stats)| Recording {
            rank: rank as u32,
            node: node as u32,
            lost,
            totals,
            traffic,
            events,
            stats: PeStats(stats.try_into().expect("as many")),
        },
    );
    prop::collection::vec(one, 0..6).prop_map(|mut all| {
        all.sort_by_key(|of| of.rank);
        all.dedup_by_key(|of| of.rank);
        all
    })
}
