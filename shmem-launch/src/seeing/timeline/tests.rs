//! Timelines are read again, by a reader that shares nothing with the writer.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::super::testing::{any_recordings, call, recording};
use super::*;
use crate::report::{Launcher, Reduced};

/// A field's value.
#[derive(Debug, Clone)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, by their numbers.
struct Fields<'a>(Vec<(u64, Value<'a>)>);

impl<'a> Fields<'a> {
    fn read(mut bytes: &'a [u8]) -> Self {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let (mut value, mut shift) = (0, 0);
            loop {
                let byte = bytes[0];
                *bytes = &bytes[1..];
                value |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    return value;
                }
            }
        }
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let value = match tag & 7 {
                0 => Value::Number(varint(&mut bytes)),
                1 => {
                    let (word, rest) = bytes.split_at(8);
                    bytes = rest;
                    Value::Number(u64::from_le_bytes(word.try_into().unwrap()))
                }
                2 => {
                    let len = varint(&mut bytes) as usize;
                    let (inner, rest) = bytes.split_at(len);
                    bytes = rest;
                    Value::Bytes(inner)
                }
                other => panic!("wire type {other}"),
            };
            fields.push((tag >> 3, value));
        }
        Self(fields)
    }

    fn numbers(&self, field: u64) -> Vec<u64> {
        let of = self.0.iter().filter(|f| f.0 == field);
        of.map(|f| match f.1 {
            Value::Number(n) => n,
            Value::Bytes(_) => panic!("field {field} is no number"),
        })
        .collect()
    }

    fn number(&self, field: u64) -> Option<u64> {
        self.numbers(field).first().copied()
    }

    fn messages(&self, field: u64) -> Vec<Fields<'a>> {
        let of = self.0.iter().filter(|f| f.0 == field);
        of.map(|f| match f.1 {
            Value::Bytes(bytes) => Fields::read(bytes),
            Value::Number(_) => panic!("field {field} is a number"),
        })
        .collect()
    }

    fn text(&self, field: u64) -> Option<String> {
        let found = self.0.iter().find(|f| f.0 == field);
        found.map(|f| match f.1 {
            Value::Bytes(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            Value::Number(_) => panic!("field {field} is a number"),
        })
    }
}

/// A slice, with the names of its process and track.
#[derive(Debug, Clone, PartialEq)]
struct Slice {
    process: String,
    track: String,
    name: String,
    category: String,
    begin: u64,
    end: u64,
    depth: usize,
    notes: HashMap<String, u64>,
    flows: Vec<u64>,
    arrives: Vec<u64>,
}

#[derive(Debug, Default)]
struct Read {
    slices: Vec<Slice>,
    counts: Vec<(String, u64, u64)>,
    instants: Vec<(String, String, HashMap<String, u64>)>,
    processes: Vec<(u64, String)>,
}

fn read(bytes: &[u8]) -> Read {
    let mut out = Read::default();
    let mut names: HashMap<(u64, u64), String> = HashMap::new();
    let mut tracks: HashMap<u64, (String, String)> = HashMap::new();
    let mut open: HashMap<u64, Vec<Slice>> = HashMap::new();
    let mut last: HashMap<u64, u64> = HashMap::new();
    let mut threads = HashSet::new();
    for (at, packet) in Fields::read(bytes).messages(1).into_iter().enumerate() {
        assert_eq!(packet.number(10), Some(1), "one sequence");
        assert_eq!(packet.number(13) == Some(1), at == 0, "names begin once");
        for data in packet.messages(12) {
            for field in 1..=3 {
                for entry in data.messages(field) {
                    let iid = entry.number(1).unwrap();
                    assert_ne!(iid, 0);
                    let old = names.insert((field, iid), entry.text(2).unwrap());
                    assert_eq!(old, None);
                }
            }
        }
        for track in packet.messages(60) {
            let uuid = track.number(1).unwrap();
            let (mut process, mut name) = (String::new(), track.text(2).unwrap_or_default());
            for of in track.messages(3) {
                process = of.text(6).unwrap();
                out.processes.push((of.number(1).unwrap(), process.clone()));
            }
            if let Some(parent) = track.number(5) {
                process = tracks[&parent].0.clone();
            }
            for thread in track.messages(4) {
                name = thread.text(5).unwrap();
                assert!(threads.insert(thread.number(2).unwrap()), "threads differ");
            }
            assert!(tracks.insert(uuid, (process, name)).is_none());
        }
        for event in packet.messages(11) {
            let time = packet.number(8).unwrap();
            assert_eq!(packet.number(13), Some(2), "names are needed");
            let track = event.number(11).unwrap();
            let (process, track_name) = tracks[&track].clone();
            let before = last.insert(track, time).unwrap_or(0);
            assert!(before <= time, "{track_name} of {process} goes back");
            let notes = event.messages(4).into_iter().map(|note| {
                let name = &names[&(3, note.number(1).unwrap())];
                (name.clone(), note.number(3).unwrap())
            });
            let notes = notes.collect();
            let interned = |field, iid| event.number(iid).map(|iid| names[&(field, iid)].clone());
            let name = event.text(23).or_else(|| interned(2, 10));
            let category = event.text(22).or_else(|| interned(1, 3));
            let open = open.entry(track).or_default();
            match event.number(9).unwrap() {
                1 => open.push(Slice {
                    process,
                    track: track_name,
                    name: name.unwrap(),
                    category: category.unwrap(),
                    begin: time,
                    end: 0,
                    depth: open.len(),
                    notes,
                    flows: event.numbers(47),
                    arrives: Vec::new(),
                }),
                2 => {
                    let mut slice = open.pop().expect("what ends has begun");
                    slice.end = time;
                    slice.arrives = event.numbers(47);
                    out.slices.push(slice);
                }
                3 => out.instants.push((process, name.unwrap(), notes)),
                4 => out.counts.push((process, time, event.number(30).unwrap())),
                other => panic!("type {other}"),
            }
        }
    }
    assert!(open.values().all(Vec::is_empty), "what begins ends");
    out
}

fn render(recordings: &[Recording]) -> Read {
    let launcher = Launcher {
        start: 1000,
        planned: 1010,
        ready: 1020,
        started: 1030,
        exited: 2000,
        done: 2001,
        ..Launcher::default()
    };
    read(&timeline(&Job {
        launcher: &launcher,
        reduced: &Reduced::default(),
        recordings,
    }))
}

fn find<'a>(read: &'a Read, process: &str, name: &str) -> &'a Slice {
    let found = read
        .slices
        .iter()
        .find(|s| s.process == process && s.name == name);
    found.unwrap_or_else(|| panic!("{name} of {process} in {read:#?}"))
}

#[test]
fn puts_point_to_the_waits_that_they_end() {
    let put = Event {
        pe: 0,
        bytes: 800,
        at: 64,
        ..call(Routine::PutSignal, 1100, 1110)
    };
    let wait = Event {
        at: 64,
        ..call(Routine::WaitUntil, 1050, 1200)
    };
    let read = render(&[recording(0, 0, vec![wait]), recording(10, 1, vec![put])]);
    let (from, to) = (
        find(&read, "PE 10 on node 1", "put_signal"),
        find(&read, "PE 00 on node 0", "wait_until"),
    );
    assert_eq!((from.flows.len(), from.begin, from.end), (1, 100, 110));
    assert_eq!((&to.arrives, &to.flows), (&from.flows, &vec![]));
    assert_eq!(from.category, Group::Rma.text());
    let note = |slice: &Slice, name: &str| slice.notes.get(name).copied();
    assert_eq!(note(from, "PE"), Some(0));
    assert_eq!(note(from, "bytes"), Some(800));
    assert_eq!(note(from, "offset in the segment"), Some(64));
    assert_eq!(note(to, "ended by PE"), Some(10));
    assert_eq!(note(to, "PE"), None);
    let pids = [
        (999_999, "Launcher (shmrun)"),
        (1_000_000, "PE 00 on node 0"),
        (1_000_010, "PE 10 on node 1"),
    ];
    assert_eq!(
        read.processes,
        pids.map(|(pid, name)| (pid, name.to_owned()))
    );
    assert_eq!(find(&read, "Launcher (shmrun)", "plan and checks").end, 10);
}

#[test]
fn members_of_a_collective_tell_who_came_last() {
    let barrier = |begin| Event {
        at: 3 << 56 | 7 << 32 | 5,
        ..call(Routine::Barrier, begin, 1200)
    };
    let read = render(&[
        recording(0, 0, vec![barrier(1050)]),
        recording(1, 0, vec![barrier(1150)]),
    ]);
    let slice = find(&read, "PE 0 on node 0", "barrier");
    let note = |name: &str| slice.notes.get(name).copied();
    assert_eq!(note("last to arrive: PE"), Some(1));
    assert_eq!(note("waited for it, ns"), Some(100));
    assert_eq!(note("collective"), Some(5));
    assert_eq!(
        (note("slot of the team"), note("first PE of the team")),
        (Some(3), Some(7))
    );
}

#[test]
fn connections_overlap_and_are_counted() {
    let link = |routine, begin, end, open| Event {
        pe: 1,
        bytes: open,
        ..call(routine, begin, end)
    };
    let events = vec![
        link(Routine::Connect, 1010, 1030, 1),
        link(Routine::Connect, 1020, 1040, 2),
        link(Routine::Disconnect, 1050, 1050, 1),
    ];
    let read = render(&[recording(0, 0, events)]);
    let counts: Vec<_> = read.counts.iter().map(|c| (c.1, c.2)).collect();
    assert_eq!(counts, [(30, 1), (40, 2), (50, 1)]);
    let links = read.slices.iter().filter(|s| s.track == "connections");
    assert!(links.clone().all(|link| link.depth == 0));
    assert_eq!(links.count(), 3);
}

#[test]
fn odd_recordings_are_drawn_nevertheless() {
    let odd = [
        call(Routine::Put, u64::MAX, u64::MAX),
        call(Routine::Put, 0, u64::MAX),
        call(Routine::Barrier, 5, 3),
        Event {
            thread: 255,
            pe: u32::MAX - 1,
            at: u64::MAX,
            bytes: u64::MAX,
            ..call(Routine::Connect, 7, 9)
        },
    ];
    let mut one = recording(u32::MAX, u32::MAX, odd.to_vec());
    one.lost = u64::MAX;
    let read = render(&[recording(0, 0, Vec::new()), one]);
    assert_eq!(read.instants.len(), 1);
    let (process, name, notes) = &read.instants[0];
    assert_eq!(process, "PE 4294967295 on node 4294967295");
    assert_eq!(
        (&**name, notes["calls without room"]),
        ("no more room for calls", u64::MAX)
    );
    assert!(
        render(&[])
            .slices
            .iter()
            .all(|s| s.process == "Launcher (shmrun)")
    );
}

proptest! {
    #[test]
    fn any_recordings_are_drawn(recordings in any_recordings()) {
        let read = render(&recordings);
        let calls = recordings.iter().map(|of| of.events.len()).sum::<usize>();
        let phases = read.slices.iter().filter(|slice| slice.process == "Launcher (shmrun)");
        prop_assert_eq!(read.slices.len(), calls + phases.count());
        // Each arrow has its two ends.
        let mut from: Vec<u64> = read.slices.iter().flat_map(|slice| slice.flows.clone()).collect();
        let mut to: Vec<u64> = read.slices.iter().flat_map(|slice| slice.arrives.clone()).collect();
        from.sort_unstable();
        to.sort_unstable();
        prop_assert_eq!(from, to);
    }
}
